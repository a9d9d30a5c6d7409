//! A simulated node: the container runtime as a pure model, the same served as a CRI, and a whole node in virtual
//! time with seeded faults and checked invariants.
//!
//! Never part of a production path.

pub mod api;
pub mod checks;
pub mod node;
pub mod random;
pub mod recorder;
pub mod rng;
pub mod runtime;
pub mod scenario;
pub mod serve;
