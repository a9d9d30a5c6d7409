//! How this node shows itself to the API server: settings of the Node object and of its Lease, and facts of the
//! machine that only the Node object tells.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Settings of the Node object and its Lease. A node without them runs standalone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeObjectConfig {
    /// `registerNode`: the object is made when there is none.
    pub register: bool,
    /// `--node-labels`.
    pub labels: BTreeMap<String, String>,
    /// `registerWithTaints`.
    pub taints: Vec<NodeTaint>,
    /// `providerID`; empty when unset.
    pub provider_id: String,
    /// `--cloud-provider=external`.
    pub external_cloud: bool,
    /// `--node-ip` names addresses, and they are not all zeros.
    pub node_ip_given: bool,
    /// `enableControllerAttachDetach`.
    pub controller_attach_detach: bool,
    /// `nodeStatusUpdateFrequency`.
    pub update_period: Duration,
    /// `nodeStatusReportFrequency`.
    pub report_period: Duration,
    /// `nodeLeaseDurationSeconds`.
    pub lease_seconds: u32,
    /// `nodeStatusMaxImages`; `None` for all.
    pub max_images: Option<u32>,
    /// Pods that the node takes: `maxPods`, or what `podsPerCore` leaves of it.
    pub pods: u32,
    /// Port of the kubelet's server.
    pub port: u16,
    /// Version told to the cluster, for example `v1.37.2`.
    pub version: String,
    /// `declaredFeatures`, sorted.
    pub declared_features: Vec<String>,
    /// Size of the file system of the root directory in bytes; `None` when local storage is not accounted for.
    pub disk_bytes: Option<i64>,
    /// Facts of the machine.
    pub machine: MachineIdentity,
}

impl NodeObjectConfig {
    /// Time between two renewals of the Lease.
    #[must_use]
    pub fn renew_period(&self) -> Duration {
        Duration::from_secs(u64::from(self.lease_seconds.max(1))) / 4
    }
}

/// A taint as it is registered.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeTaint {
    /// Key.
    pub key: String,
    /// Value; empty when unset.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: String,
}

/// What tells this machine from others.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MachineIdentity {
    /// `/etc/machine-id`.
    pub machine_id: String,
    /// UUID of the firmware, or the machine id where it has none.
    pub system_uuid: String,
    /// Kernel release.
    pub kernel: String,
    /// `PRETTY_NAME` of `os-release`.
    pub os_image: String,
    /// Architecture as Go names it, for example `amd64`.
    pub architecture: String,
    /// Hugepages by size: (bytes of a page, bytes of all of them).
    pub hugepages: Vec<(i64, i64)>,
    /// This process runs in a user namespace of its own.
    pub in_user_namespace: bool,
}
