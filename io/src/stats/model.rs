//! The objects of `/stats/summary` (`stats/v1alpha1`) as they are written. Names are the API's.

use components::time::Wall;
use serde::{Serialize, Serializer};

/// A time as the API shows it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Time(pub(super) Wall);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 == Wall::default() {
            serializer.serialize_none()
        } else {
            serializer.serialize_str(&self.0.rfc3339())
        }
    }
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Summary {
    pub(super) node: Node,
    pub(super) pods: Vec<Pod>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) node_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) system_containers: Vec<Container>,
    pub(super) start_time: Time,
    #[serde(flatten)]
    pub(super) used: Used,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) runtime: Option<Runtime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rlimit: Option<Rlimit>,
}

/// What every cgroup has.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub(super) struct Used {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swap: Option<Swap>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) pod_ref: PodRef,
    pub(super) start_time: Time,
    /// `null` without any, as Go writes it.
    pub(super) containers: Option<Vec<Container>>,
    #[serde(flatten)]
    pub(super) used: Used,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<Network>,
    #[serde(rename = "volume", skip_serializing_if = "Vec::is_empty")]
    pub(super) volumes: Vec<Volume>,
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub(super) ephemeral_storage: Option<Fs>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub(super) process_stats: Option<ProcessStats>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct PodRef {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) uid: String,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) start_time: Time,
    #[serde(flatten)]
    pub(super) used: Used,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) logs: Option<Fs>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Cpu {
    pub(super) time: Time,
    pub(super) usage_nano_cores: u64,
    pub(super) usage_core_nano_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) psi: Option<Psi>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Memory {
    pub(super) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) available_bytes: Option<u64>,
    pub(super) usage_bytes: u64,
    pub(super) working_set_bytes: u64,
    pub(super) rss_bytes: u64,
    pub(super) page_faults: u64,
    pub(super) major_page_faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) psi: Option<Psi>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Io {
    pub(super) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) psi: Option<Psi>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Swap {
    pub(super) time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) swap_available_bytes: Option<u64>,
    pub(super) swap_usage_bytes: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Psi {
    pub(super) full: PsiData,
    pub(super) some: PsiData,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct PsiData {
    pub(super) total: u64,
    pub(super) avg10: f64,
    pub(super) avg60: f64,
    pub(super) avg300: f64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Network {
    pub(super) time: Time,
    #[serde(flatten)]
    pub(super) main: Interface,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) interfaces: Vec<Interface>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Interface {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rx_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) tx_errors: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fs {
    pub(super) time: Time,
    pub(super) available_bytes: u64,
    pub(super) capacity_bytes: u64,
    pub(super) used_bytes: u64,
    pub(super) inodes_free: u64,
    pub(super) inodes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) inodes_used: Option<u64>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Volume {
    #[serde(flatten)]
    pub(super) fs: Fs,
    pub(super) name: String,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Runtime {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image_fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) container_fs: Option<Fs>,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Rlimit {
    pub(super) time: Time,
    pub(super) maxpid: u64,
    pub(super) curproc: u64,
}

#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct ProcessStats {
    pub(super) process_count: u64,
}
