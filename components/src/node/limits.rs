//! What bounds pods on this node besides their own specs: what is left for them, and what they may set.

use crate::edge::cri::IdRange;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bounds of pods, from KubeletConfiguration and the machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeLimits {
    /// CPU that pods may have together, in thousandths: what is not reserved. 0 when nothing was computed.
    pub cpu_milli: i64,
    /// Memory that pods may have together, in bytes: what is not reserved.
    pub memory_bytes: i64,
    /// Memory that the node offers to pods: the same less what eviction keeps free.
    pub allocatable_memory_bytes: i64,
    /// Local storage that the node offers to pods, in bytes.
    pub allocatable_disk_bytes: i64,
    /// `enforceNodeAllocatable` has `pods`: the two above are limits of the pods' common cgroup.
    pub enforced: bool,
    /// `allowedUnsafeSysctls`.
    pub unsafe_sysctls: Vec<String>,
    /// `defaultPodSysctls`, where its feature gate is on.
    pub default_sysctls: BTreeMap<String, String>,
    /// `memoryThrottlingFactor`, where its feature gate is on.
    pub memory_throttling_factor: Option<f64>,
    /// `memoryReservationPolicy` is `TieredReservation`, and its feature gate is on.
    pub tiered_memory: bool,
    /// `memorySwap.swapBehavior` is `LimitedSwap`.
    pub limited_swap: bool,
    /// Host ids for user namespaces, or why there are none.
    pub users: Option<UserIds>,
}

/// Host ids that user namespaces of pods are cut from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UserIds {
    /// All of them.
    pub range: IdRange,
    /// Ids of one pod.
    pub per_pod: u32,
}

/// What a resize of a running pod may change on this node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct ResizeLimits {
    /// Feature gate `InPlacePodLevelResourcesVerticalScaling`.
    pub pod_level: bool,
    /// `cpuManagerPolicy` is `static`, and its pods may not be resized.
    pub cpu_static: bool,
    /// `memoryManagerPolicy` is `Static`, and its pods may not be resized.
    pub memory_static: bool,
}

impl Default for ResizeLimits {
    fn default() -> Self {
        Self { pod_level: true, cpu_static: false, memory_static: false }
    }
}
