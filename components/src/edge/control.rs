//! Requests of the process itself.

use serde::{Deserialize, Serialize};

/// What the process asks of the core.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ControlIngress {
    /// All pods were asked to end and their remains to be removed (`ticklet up` on Ctrl-C).
    DrainRequested {
        /// Upper bound on every pod's grace period, in seconds; `None` keeps each pod's own.
        grace_seconds: Option<u32>,
    },
    /// The node is going to be shut down: pods end by priority.
    ShutdownAnnounced,
    /// The shutdown was called off.
    ShutdownCancelled,
}
