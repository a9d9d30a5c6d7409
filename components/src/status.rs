//! Pod status as the core computes it; the HTTP server shows it, and it is written to the API server.

pub mod json;
pub mod parse;

use crate::resize::ResizeConditions;
use crate::spec::{ResourceRequirements, Resources};
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// `status.phase`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub enum Phase {
    /// Not everything has started.
    #[default]
    Pending,
    /// At least one container runs or will run again.
    Running,
    /// All ended well and none will run again.
    Succeeded,
    /// All ended, at least one badly, and none will run again.
    Failed,
}

impl Phase {
    /// True for phases that never change.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// As the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// A pod's status.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct PodStatus {
    /// Phase.
    pub phase: Phase,
    /// Pod-level reason; empty when unset.
    pub reason: String,
    /// Pod-level message; empty when unset.
    pub message: String,
    /// Conditions in the kubelet's order.
    pub conditions: Vec<Condition>,
    /// Node addresses joined by commas, the first of which is `hostIP`.
    pub host_ip: String,
    /// Pod addresses, primary first.
    pub pod_ips: Vec<String>,
    /// When the pod was first seen here, whole seconds.
    pub start_time: Wall,
    /// QoS class.
    pub qos: String,
    /// Init containers in spec order.
    pub init_containers: Vec<ContainerReport>,
    /// Main containers by name.
    pub containers: Vec<ContainerReport>,
    /// Ephemeral containers in spec order.
    pub ephemeral_containers: Vec<ContainerReport>,
    /// Conditions of a resize; a pod that has ended has none.
    #[serde(skip)]
    pub resize: Option<Box<ResizeConditions>>,
    /// Resources of the pod as a whole, where they are shown.
    #[serde(skip)]
    pub whole: Option<Box<WholeResources>>,
}

/// Resources of a pod as a whole.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct WholeResources {
    /// `allocatedResources`: what is requested and was granted.
    pub allocated: Resources,
    /// `resources`: what is in force.
    pub resources: ResourceRequirements,
}

/// Condition of a resize that was not granted.
pub const RESIZE_PENDING: &str = "PodResizePending";
/// Condition of a resize that is not in force everywhere.
pub const RESIZE_IN_PROGRESS: &str = "PodResizeInProgress";

impl PodStatus {
    /// The node's addresses.
    pub fn host_ips(&self) -> impl Iterator<Item = &str> {
        self.host_ip.split(',').filter(|ip| !ip.is_empty())
    }
}

/// One condition.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Condition {
    /// Type.
    pub kind: ConditionKind,
    /// `True` or `False`.
    pub status: bool,
    /// Reason; empty when unset.
    pub reason: String,
    /// Message; empty when unset.
    pub message: String,
    /// Last change of `status`, whole seconds.
    pub since: Wall,
}

/// Condition types that the kubelet owns.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ConditionKind {
    /// Sandbox exists, is ready and has its network.
    PodReadyToStartContainers,
    /// Init containers are done.
    Initialized,
    /// The pod serves.
    Ready,
    /// All containers serve.
    ContainersReady,
    /// Bound to this node.
    PodScheduled,
    /// Every container is restarted in place; only shown while it lasts.
    AllContainersRestarting,
    /// The kubelet ended the pod.
    DisruptionTarget,
}

impl ConditionKind {
    /// Every type, in the kubelet's order.
    pub const ALL: [Self; 6] = [
        Self::PodReadyToStartContainers,
        Self::Initialized,
        Self::Ready,
        Self::ContainersReady,
        Self::PodScheduled,
        Self::AllContainersRestarting,
    ];

    /// True for the name of a condition that the kubelet owns, those of a resize included.
    #[must_use]
    pub fn is_own(name: &str) -> bool {
        matches!(name, RESIZE_PENDING | RESIZE_IN_PROGRESS) || Self::ALL.iter().any(|kind| kind.as_str() == name)
    }

    /// As the API spells it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PodReadyToStartContainers => "PodReadyToStartContainers",
            Self::Initialized => "Initialized",
            Self::Ready => "Ready",
            Self::ContainersReady => "ContainersReady",
            Self::PodScheduled => "PodScheduled",
            Self::AllContainersRestarting => "AllContainersRestarting",
            Self::DisruptionTarget => "DisruptionTarget",
        }
    }
}

/// `containerStatuses[]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ContainerReport {
    /// Name.
    pub name: Arc<str>,
    /// State now.
    pub state: ReportedState,
    /// State of the instance before.
    pub last: Option<ReportedState>,
    /// Ready.
    pub ready: bool,
    /// Started; `None` before it can be known.
    pub started: Option<bool>,
    /// Restart count.
    pub restart_count: u32,
    /// Image.
    pub image: String,
    /// Resolved image.
    pub image_id: String,
    /// `containerd://…`; empty when there is none.
    pub container_id: String,
    /// uid, gid, supplemental groups.
    pub user: Option<(i64, i64, Vec<i64>)>,
    /// What it has, where that differs from what is allocated to it; what ended has what was allocated.
    #[serde(skip)]
    pub actual: Option<Box<ActualSize>>,
}

/// What a container has of CPU and memory; `None` is what is allocated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ActualSize {
    /// Requested CPU in thousandths.
    pub cpu_request: Option<i64>,
    /// Limit of CPU in thousandths.
    pub cpu_limit: Option<i64>,
    /// Requested memory in bytes.
    pub memory_request: Option<i64>,
    /// Limit of memory in bytes.
    pub memory_limit: Option<i64>,
}

/// State of a container as reported.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ReportedState {
    /// Not running, not ended.
    Waiting {
        /// Reason.
        reason: String,
        /// Message; may be empty.
        message: String,
    },
    /// Running.
    Running {
        /// Since.
        started_at: Wall,
    },
    /// Ended.
    Terminated {
        /// Exit code.
        exit_code: i32,
        /// Reason.
        reason: String,
        /// Message; may be empty.
        message: String,
        /// Start.
        started_at: Wall,
        /// End.
        finished_at: Wall,
        /// `containerd://…`.
        container_id: String,
    },
}
