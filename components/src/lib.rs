//! Data that the layers share: typed ids, clocks, the compiled pod spec, components of the world, and the edge.
//!
//! Decides nothing, reads nothing, writes nothing: only types and their plain conversions.

pub mod apipods;
pub mod certificates;
pub mod config;
pub mod duration;
pub mod edge;
pub mod events;
pub mod fnv;
pub mod histogram;
pub mod hooks;
pub mod ids;
pub mod node;
pub mod objects;
pub mod planted;
pub mod podcerts;
pub mod probes;
pub mod providers;
pub mod pulls;
pub mod quantity;
pub mod registry;
pub mod resize;
pub mod scheduling;
pub mod snapshot;
pub mod spec;
pub mod status;
pub mod time;
pub mod volumes;
pub mod world;
