//! What the model keeps of a sandbox and a container. Decides nothing.

use crate::runtime::behaviour::Behaviour;
use components::edge::FailureClass;
use components::edge::cri::{ContainerChange, ContainerState, LinuxResources, Namespaces, SandboxState};
use components::ids::{ContainerId, PodUid, SandboxId};
use components::time::{Mono, Wall};
use std::collections::{BTreeMap, BTreeSet};

/// What `RunPodSandbox` asks for, as far as the model looks at it.
#[derive(Debug, Clone, Default)]
pub struct SandboxRequest {
    /// Pod name.
    pub name: String,
    /// Pod namespace.
    pub namespace: String,
    /// Pod uid.
    pub uid: String,
    /// Attempt.
    pub attempt: u32,
    /// Log directory.
    pub log_directory: String,
    /// Namespace modes.
    pub namespaces: Namespaces,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Which of its runtimes is to run it; empty for the default.
    pub handler: String,
}

/// What `CreateContainer` asks for, as far as the model looks at it.
#[derive(Debug, Clone, Default)]
pub struct ContainerRequest {
    /// Container name.
    pub name: String,
    /// Attempt.
    pub attempt: u32,
    /// Image id or name.
    pub image_ref: String,
    /// Image as the pod names it.
    pub user_image: String,
    /// Command.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Log path below the sandbox's log directory.
    pub log_path: String,
    /// Resources.
    pub resources: LinuxResources,
}

/// A sandbox.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Id.
    pub id: SandboxId,
    /// Pod uid.
    pub pod: PodUid,
    /// What was asked for.
    pub request: SandboxRequest,
    /// Reserved name.
    pub key: String,
    /// State.
    pub state: SandboxState,
    /// Creation time.
    pub created: Wall,
    /// Number of its address; `None` with the node's network or once it is down.
    pub address: Option<u32>,
    /// Its containers.
    pub containers: BTreeSet<ContainerId>,
}

impl Sandbox {
    /// Its address as text; empty when it has none.
    #[must_use]
    pub fn ip(&self) -> String {
        self.address.map_or_else(String::new, |n| format!("10.88.{}.{}", n >> 8, n & 0xff))
    }
}

/// A container.
#[derive(Debug, Clone)]
pub struct Container {
    /// Id.
    pub id: ContainerId,
    /// Pod uid.
    pub pod: PodUid,
    /// Its sandbox.
    pub sandbox: SandboxId,
    /// What was asked for.
    pub request: ContainerRequest,
    /// Reserved name.
    pub key: String,
    /// What its process does.
    pub behaviour: Behaviour,
    /// State.
    pub state: ContainerState,
    /// Creation time.
    pub created: Wall,
    /// Start time; zero when never started.
    pub started: Wall,
    /// End time; zero while not ended.
    pub finished: Wall,
    /// Exit code.
    pub exit_code: i32,
    /// Reason of the end.
    pub reason: String,
    /// When its process ends by itself.
    pub ends_at: Option<Mono>,
    /// When it is killed, after a stop that its process ignores.
    pub kill_at: Option<Mono>,
}

/// Something that happened to a container or sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeEvent {
    /// Pod uid.
    pub pod: PodUid,
    /// Container id, or the sandbox's own.
    pub id: ContainerId,
    /// What happened.
    pub change: ContainerChange,
    /// When.
    pub at: Wall,
}

/// Why a call was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Class.
    pub class: FailureClass,
    /// What a runtime would say.
    pub message: String,
}

impl Refusal {
    /// A refusal with this text.
    #[must_use]
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into() }
    }
}
