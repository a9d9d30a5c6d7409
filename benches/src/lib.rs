//! Benchmarks of the core: a whole node in one process whose works are answered at once.
//!
//! Measures CPU time of the thread, not wall time, so that a busy machine does not spoil the figures. The same code
//! runs tiny in tests.

pub mod instant_node;
pub mod measure;
pub mod tick;
