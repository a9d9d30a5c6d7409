//! What decisions need to know of the API server.

use serde::{Deserialize, Serialize};

/// How the node takes part in a cluster. Without it the node works on its own and asks no API server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ApiConfig {
    /// Writes of pod statuses that may be under way at a time.
    pub status_writes: u32,
    /// `configMapAndSecretChangeDetectionStrategy`.
    #[serde(default)]
    pub objects: ObjectStrategy,
    /// Feature gate `PodCertificateRequest`: certificates are asked for on behalf of pods.
    #[serde(default)]
    pub pod_certificates: bool,
}

/// How changes of config maps and secrets are noticed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum ObjectStrategy {
    /// By watches.
    #[default]
    Watch,
    /// By reading what is older than a minute.
    Cache,
    /// By reading whenever pods are looked at.
    Get,
}

impl Default for ApiConfig {
    fn default() -> Self {
        // Enough to use up `kubeAPIQPS` at common latencies; what waits is not yet sent, so the newest status is.
        Self { status_writes: 16, objects: ObjectStrategy::Watch, pod_certificates: true }
    }
}
