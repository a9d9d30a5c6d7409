//! What decisions need to know of the API server.

use serde::{Deserialize, Serialize};

/// How the node takes part in a cluster. Without it the node works on its own and asks no API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConfig {
    /// Writes of pod statuses that may be under way at a time.
    pub status_writes: u32,
}

impl Default for ApiConfig {
    fn default() -> Self {
        // Enough to use up `kubeAPIQPS` at common latencies; what waits is not yet sent, so the newest status is.
        Self { status_writes: 16 }
    }
}
