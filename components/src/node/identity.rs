//! Which certificates the node asks the cluster for.

use serde::{Deserialize, Serialize};

/// Settings of the node's own certificates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct IdentityConfig {
    /// `--cert-dir`.
    pub cert_dir: String,
    /// `--kubeconfig`.
    pub kubeconfig: String,
    /// There are bootstrap credentials (`--bootstrap-kubeconfig`).
    pub bootstrap: bool,
    /// The kubeconfig held no usable certificate at the start: one is asked for with the bootstrap credentials.
    pub bootstrapping: bool,
    /// `rotateCertificates`.
    pub rotate: bool,
    /// `serverTLSBootstrap`.
    pub serving: Option<ServingConfig>,
}

/// Settings of the serving certificate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServingConfig {
    /// `tlsCertFile` and `tlsPrivateKeyFile`, used until there is one from the cluster.
    pub files: Option<(String, String)>,
    /// Feature gate `AllowDNSOnlyNodeCSR`: a node without an address asks too.
    pub dns_only: bool,
}
