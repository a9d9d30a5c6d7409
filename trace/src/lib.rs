//! Traces: what came into a run of the engine, tick by tick, and a hash of what it decided; enough to run it again.
//!
//! Decides the file format, what is left out of it (secrets) and when a file of the ring is begun or dropped. Reads
//! and writes bytes in memory only: files, clocks and threads belong to the caller, so the same code records on a
//! node, in the simulator and in a test.
//!
//! A file is a [head](format), then blocks. Each block has a kind, its lengths and checksums; the first holds the
//! [`Header`], the others [frames](frame), [gaps](Gap) and the [end](Ending). Frames never cross a block, so a file
//! that was cut off by a crash reads up to its last whole block.

pub mod build;
pub mod cut;
pub mod delta;
pub mod format;
pub mod frame;
pub mod hash;
pub mod header;
pub mod info;
pub mod page;
pub mod reader;
pub mod redact;
pub mod replay;
pub mod spool;
pub mod story;

pub use build::Builder;
pub use format::TraceError;
pub use frame::{Encoder, Frame, Line, LineKind, Packet, Summary, TickEffects};
pub use header::{Ending, Gap, Header};
pub use reader::{Item, Reader};
pub use replay::{Divergence, Effects, Replayed, Report, replay};
pub use spool::{Limits, Spool, Step};
