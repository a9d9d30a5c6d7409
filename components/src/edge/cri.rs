//! The container runtime (CRI v1), in our own lean form. Wire types stop at the bridge.

pub mod started;

use self::started::StartedObject;
use crate::ids::{ContainerId, PodUid, SandboxId, Sensitive};
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

// === calls ===

/// Calls to the runtime.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub enum CriEffect {
    /// `Version`, `Status` and, where known, `RuntimeConfig`.
    ReadRuntime,
    /// `ListPodSandbox` and `ListContainers`, everything, lean.
    ListRuntime,
    /// `PodSandboxStatus` and `ContainerStatus` of one pod's objects. Objects that are gone are left out.
    InspectPod {
        /// The pod.
        uid: PodUid,
        /// Its known objects; `None` when they must be listed first by the pod's uid label.
        known: Option<KnownObjects>,
    },
    /// `RunPodSandbox`.
    RunSandbox {
        /// Complete configuration.
        config: Box<SandboxConfig>,
        /// Runtime class handler; empty for the default.
        handler: String,
    },
    /// `StopPodSandbox`; a missing sandbox counts as stopped.
    StopSandbox {
        /// The sandbox.
        id: SandboxId,
    },
    /// `RemovePodSandbox`; a missing sandbox counts as removed.
    RemoveSandbox {
        /// The sandbox.
        id: SandboxId,
    },
    /// `ImageStatus`.
    FindImage {
        /// Image as the pod names it, with a tag or digest.
        image: String,
    },
    /// `PullImage`.
    PullImage {
        /// Image as the pod names it, with a tag or digest.
        image: String,
        /// The sandbox's configuration, which runtimes may use.
        config: Box<SandboxConfig>,
        /// Login of the registry; what the runtime itself knows when unset.
        #[serde(skip_serializing_if = "Option::is_none")]
        login: Option<crate::registry::RegistryLogin>,
    },
    /// `CreateContainer`.
    CreateContainer {
        /// In which sandbox.
        sandbox: SandboxId,
        /// Complete configuration.
        config: Box<ContainerConfig>,
        /// Configuration the sandbox was made with.
        sandbox_config: Box<SandboxConfig>,
    },
    /// `StartContainer`.
    StartContainer {
        /// The container.
        id: ContainerId,
    },
    /// `StopContainer`; a missing container counts as stopped.
    StopContainer {
        /// The container.
        id: ContainerId,
        /// Seconds between the stop signal and the kill.
        grace_seconds: u32,
    },
    /// `RemoveContainer`; a missing container counts as removed.
    RemoveContainer {
        /// The container.
        id: ContainerId,
    },
    /// Open (or open again) the stream of `GetContainerEvents`.
    WatchEvents,
    /// `ExecSync`; a command that the runtime ended for its time is `TimedOut`.
    ExecSync {
        /// The container.
        id: ContainerId,
        /// The command.
        command: Arc<[Sensitive]>,
        /// Seconds after which the runtime ends the command.
        timeout_seconds: u32,
        /// Bytes of output that are kept.
        output_limit: u32,
    },
    /// `ReopenContainerLog`.
    ReopenLog {
        /// The container.
        id: ContainerId,
    },
    /// `ListImages`, everything.
    ListImages,
    /// `UpdateRuntimeConfig`: the addresses that pods of this node get.
    SetPodCidr {
        /// Ranges, one of each family, joined by commas.
        cidr: String,
    },
    /// `UpdateContainerResources`.
    UpdateContainer {
        /// The container.
        id: ContainerId,
        /// What it is to have; zero leaves a field as it is.
        resources: Box<LinuxResources>,
    },
}

/// The sandboxes and containers of a pod that are known by id.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KnownObjects {
    /// Sandboxes.
    pub sandboxes: Vec<SandboxId>,
    /// Containers, each with its sandbox.
    pub containers: Vec<(ContainerId, SandboxId)>,
}

/// What the runtime answers.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CriAnswer {
    /// To `ReadRuntime`.
    RuntimeRead(RuntimeInfo),
    /// To `ListRuntime`.
    RuntimeListed(RuntimeList),
    /// To `InspectPod`.
    PodInspected(PodInspection),
    /// To `RunSandbox`.
    SandboxStarted {
        /// The new sandbox.
        id: SandboxId,
    },
    /// To `FindImage`: the image, when it is here.
    ImageFound(Option<FoundImage>),
    /// To `PullImage`.
    ImagePulled {
        /// Image id or digest.
        image_ref: Arc<str>,
    },
    /// To `CreateContainer`.
    ContainerCreated {
        /// The new container.
        id: ContainerId,
    },
    /// To `ExecSync`.
    Executed {
        /// Exit code of the command.
        exit_code: i32,
        /// The beginning of its standard output, then of its error output.
        output: String,
    },
    /// To `ReadRuntime`, with what the handlers can do.
    RuntimeSeen {
        /// The runtime.
        info: RuntimeInfo,
        /// Its handlers, by name.
        handlers: Vec<RuntimeHandler>,
    },
    /// To `ListImages`: the largest first, then by id.
    ImagesListed(Vec<ListedImage>),
    /// To `ReadRuntime`, with everything it says of itself.
    RuntimeDescribed {
        /// The runtime.
        info: RuntimeInfo,
        /// Its handlers, by name.
        handlers: Vec<RuntimeHandler>,
        /// It acts on `supplementalGroupsPolicy`; `None` when it lists no features.
        supplemental_groups: Option<bool>,
    },
    /// To `InspectPod`, with what the containers have.
    PodSeen {
        /// The pod.
        pod: PodInspection,
        /// What each of its containers has, in their order, where the runtime says it.
        sizes: Vec<Option<RuntimeSize>>,
    },
}

/// Resources that a container has as the runtime says; zero where nothing is set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeSize {
    /// CFS period in microseconds.
    pub cpu_period: i64,
    /// CFS quota in microseconds.
    pub cpu_quota: i64,
    /// CPU shares.
    pub cpu_shares: i64,
    /// Memory limit in bytes.
    pub memory_limit_bytes: i64,
}

/// An image that is on the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListedImage {
    /// Image id.
    pub id: Arc<str>,
    /// `repository@digest` names.
    pub digests: Vec<String>,
    /// `repository:tag` names.
    pub tags: Vec<String>,
    /// In bytes.
    pub size: u64,
    /// Never to be removed.
    pub pinned: bool,
}

/// An image that is here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FoundImage {
    /// Image id.
    pub image_ref: Arc<str>,
    /// Numeric user of the image, where it has one.
    pub uid: Option<i64>,
    /// User name of the image; empty when it has none or a numeric one.
    pub username: String,
}

/// Unasked facts of the runtime.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CriIngress {
    /// The event stream delivers.
    EventsOpened,
    /// The event stream ended, or could not be opened.
    EventsClosed {
        /// True when the runtime has no such call.
        unsupported: bool,
        /// What was said.
        message: String,
    },
    /// A container or sandbox changed.
    ContainerChanged {
        /// Pod uid from the event's sandbox status; empty when the event carries none.
        pod: PodUid,
        /// Id of the container, or of the sandbox itself.
        id: ContainerId,
        /// What happened.
        change: ContainerChange,
    },
    /// A container or sandbox started, and the runtime says what it is since.
    ObjectStarted {
        /// Pod uid from the event's sandbox status.
        pod: PodUid,
        /// The object.
        object: Box<StartedObject>,
    },
}

/// Kinds of container event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum ContainerChange {
    /// Made, not running.
    Created,
    /// Running.
    Started,
    /// Exited.
    Stopped,
    /// Removed.
    Deleted,
}

// === what is observed ===

/// What the runtime says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeInfo {
    /// Runtime name, for example `containerd`: the scheme of container ids.
    pub name: String,
    /// Runtime version.
    pub version: String,
    /// Condition `RuntimeReady`.
    pub runtime_ready: bool,
    /// Condition `NetworkReady`.
    pub network_ready: bool,
    /// Reasons and messages of conditions that are not true, joined.
    pub message: String,
    /// cgroup driver of `RuntimeConfig` (`systemd` or `cgroupfs`), where the runtime says it.
    pub cgroup_driver: Option<String>,
}

/// A handler of the runtime, as a runtime class may name it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeHandler {
    /// Name; empty for the default.
    pub name: String,
    /// It can make mounts read-only with all that lies below them.
    pub recursive_read_only: bool,
    /// It can give a pod a user namespace.
    pub user_namespaces: bool,
}

/// State of a sandbox.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum SandboxState {
    /// Ready.
    Ready,
    /// Not ready.
    NotReady,
}

/// State of a container.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ContainerState {
    /// Made, never started.
    Created,
    /// Running.
    Running,
    /// Ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// All sandboxes and containers, sorted by id.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RuntimeList {
    /// Sandboxes.
    pub sandboxes: Vec<SandboxBrief>,
    /// Containers.
    pub containers: Vec<ContainerBrief>,
}

/// What a relist needs of a sandbox.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SandboxBrief {
    /// Id.
    pub id: SandboxId,
    /// Pod uid (label `io.kubernetes.pod.uid`); sandboxes without it are left out of lists.
    pub pod: PodUid,
    /// State.
    pub state: SandboxState,
}

/// What a relist needs of a container.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerBrief {
    /// Id.
    pub id: ContainerId,
    /// Its sandbox; the pod is found through it.
    pub sandbox: SandboxId,
    /// State.
    pub state: ContainerState,
}

/// One pod as the runtime has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PodInspection {
    /// Pod namespace and name from the newest sandbox's labels; empty when there is no sandbox.
    pub namespace: String,
    /// See `namespace`.
    pub name: String,
    /// Sandboxes, newest first (attempt, then creation time, then id): a wall clock step reorders nothing.
    pub sandboxes: Vec<SandboxStatus>,
    /// Containers, sorted by name, newest first within a name.
    pub containers: Vec<ContainerStatus>,
}

/// A sandbox's status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SandboxStatus {
    /// Id.
    pub id: SandboxId,
    /// `metadata.attempt`.
    pub attempt: u32,
    /// State.
    pub state: SandboxState,
    /// Creation time.
    pub created_at: Wall,
    /// Whether it uses the node's network namespace.
    pub host_network: bool,
    /// Pod IPs, primary first; empty for the node's network.
    pub ips: Vec<String>,
}

/// A container's status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ContainerStatus {
    /// Id.
    pub id: ContainerId,
    /// Its sandbox (from the list, or as the request said).
    pub sandbox: SandboxId,
    /// Container name in the pod spec.
    pub name: Arc<str>,
    /// `metadata.attempt`.
    pub attempt: u32,
    /// Annotation `io.kubernetes.container.restartCount`.
    pub restart_count: u32,
    /// Annotation `io.kubernetes.container.hash`, parsed.
    pub hash: Option<u32>,
    /// Annotation `io.kubernetes.pod.terminationGracePeriod`, seconds.
    pub grace_seconds: Option<u32>,
    /// State.
    pub state: ContainerState,
    /// Creation time.
    pub created_at: Wall,
    /// Start time; zero when never started.
    pub started_at: Wall,
    /// End time; zero when not ended.
    pub finished_at: Wall,
    /// Exit code; meaningful once ended.
    pub exit_code: i32,
    /// Runtime's reason, for example `Completed`, `Error`, `OOMKilled`.
    pub reason: String,
    /// Runtime's message.
    pub message: String,
    /// Image as the status names it.
    pub image: String,
    /// Resolved image (`image_ref`).
    pub image_ref: String,
    /// `user.linux` of the status, where the runtime gives it: uid, gid, supplemental groups.
    pub user: Option<(i64, i64, Vec<i64>)>,
    /// Full path of the log file.
    pub log_path: String,
    /// What it has of CPU and memory, where the runtime says it; it travels beside the inspection.
    #[serde(skip)]
    pub size: Option<RuntimeSize>,
}

// === what is asked for ===

/// `PodSandboxConfig`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct SandboxConfig {
    /// Pod name.
    pub name: String,
    /// Pod uid.
    pub uid: String,
    /// Pod namespace.
    pub namespace: String,
    /// Attempt.
    pub attempt: u32,
    /// Host name; empty with the node's network.
    pub hostname: String,
    /// Log directory.
    pub log_directory: String,
    /// DNS: servers, searches, options. `None` leaves it to the runtime.
    pub dns: Option<DnsConfig>,
    /// Port mappings.
    pub ports: Vec<PortMapping>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// `linux.cgroup_parent`.
    pub cgroup_parent: String,
    /// `linux.sysctls`.
    pub sysctls: BTreeMap<String, String>,
    /// `linux.security_context`.
    pub security: SandboxSecurity,
    /// `linux.overhead`.
    pub overhead: LinuxResources,
    /// `linux.resources`: sum of the containers.
    pub resources: LinuxResources,
}

/// `DNSConfig`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DnsConfig {
    /// Name servers.
    pub servers: Vec<String>,
    /// Search domains.
    pub searches: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

/// `PortMapping`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct PortMapping {
    /// Protocol.
    pub protocol: Protocol,
    /// Port in the pod.
    pub container_port: i32,
    /// Port on the host; 0 for none.
    pub host_port: i32,
    /// Host address; empty for any.
    pub host_ip: String,
}

/// Transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// `LinuxSandboxSecurityContext`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SandboxSecurity {
    /// Namespaces.
    pub namespaces: Namespaces,
    /// True when any container is privileged.
    pub privileged: bool,
    /// `run_as_user`.
    pub run_as_user: Option<i64>,
    /// `run_as_group`.
    pub run_as_group: Option<i64>,
    /// Supplemental groups.
    pub supplemental_groups: Vec<i64>,
    /// Seccomp profile; always `RuntimeDefault` for a sandbox.
    pub seccomp: Seccomp,
    /// SELinux options: user, role, type, level.
    pub selinux: Option<[String; 4]>,
    /// `supplemental_groups_policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_policy: Option<GroupsPolicy>,
}

/// Namespace modes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Namespaces {
    /// Network namespace.
    pub network: NamespaceMode,
    /// Process namespace.
    pub pid: NamespaceMode,
    /// IPC namespace.
    pub ipc: NamespaceMode,
    /// The container whose process namespace is shared, with mode [`NamespaceMode::Target`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<ContainerId>,
    /// Host ids of the pod's user namespace; `None` shares the node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub users: Option<IdRange>,
}

/// Ids of the host to which the ids from 0 of a user namespace are mapped, for users and groups alike.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct IdRange {
    /// First id on the host.
    pub first: u32,
    /// How many ids.
    pub length: u32,
}

/// `NamespaceMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum NamespaceMode {
    /// The pod's.
    #[default]
    Pod,
    /// The container's own.
    Container,
    /// The node's.
    Node,
    /// Another container's, for an ephemeral one.
    Target,
}

/// How groups of the image relate to those of the pod (`supplementalGroupsPolicy`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum GroupsPolicy {
    /// Groups that the image gives the user are kept beside the pod's.
    Merge,
    /// Only the pod's groups.
    Strict,
}

/// Seccomp profile.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Seccomp {
    /// None.
    #[default]
    Unconfined,
    /// The runtime's default.
    RuntimeDefault,
    /// A file of the host.
    Localhost(String),
}

/// AppArmor profile.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum AppArmor {
    /// The runtime's default.
    RuntimeDefault,
    /// None.
    Unconfined,
    /// A loaded profile.
    Localhost(String),
}

/// `LinuxContainerResources`. Zero leaves a field unset, as on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LinuxResources {
    /// CFS period in microseconds.
    pub cpu_period: i64,
    /// CFS quota in microseconds.
    pub cpu_quota: i64,
    /// CPU shares.
    pub cpu_shares: i64,
    /// Memory limit in bytes.
    pub memory_limit_bytes: i64,
    /// OOM score adjustment.
    pub oom_score_adj: i64,
    /// Hugepage limits: page size as the runtime names it (`2MB`), bytes.
    pub hugepage_limits: Vec<(String, u64)>,
    /// cgroup v2 files.
    pub unified: BTreeMap<String, String>,
    /// Memory plus swap limit in bytes.
    pub memory_swap_limit_bytes: i64,
}

/// `ContainerConfig`.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct ContainerConfig {
    /// Container name.
    pub name: String,
    /// Attempt, which is the restart count.
    pub attempt: u32,
    /// Resolved image (id or digest).
    pub image_ref: String,
    /// Image as the pod names it.
    pub user_specified_image: String,
    /// Entry point, expanded.
    pub command: Vec<Sensitive>,
    /// Arguments, expanded.
    pub args: Vec<Sensitive>,
    /// Working directory.
    pub working_dir: String,
    /// Environment in order.
    pub envs: Vec<(String, Sensitive)>,
    /// Mounts in order.
    pub mounts: Vec<Mount>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Log path relative to the sandbox's log directory.
    pub log_path: String,
    /// `stdin`.
    pub stdin: bool,
    /// `stdin_once`.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
    /// Resources.
    pub resources: LinuxResources,
    /// Security context.
    pub security: ContainerSecurity,
    /// Devices of the host.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Names of CDI devices, which the runtime looks up.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cdi_devices: Vec<String>,
    /// `stop_signal`, for example `SIGUSR1`; `None` leaves it to the image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_signal: Option<String>,
}

/// `Mount`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Mount {
    /// Path in the container.
    pub container_path: String,
    /// Path on the host.
    pub host_path: String,
    /// Read-only.
    pub readonly: bool,
    /// Recursive read-only.
    pub recursive_read_only: bool,
    /// Propagation.
    pub propagation: Propagation,
    /// Relabel for SELinux.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub selinux_relabel: bool,
    /// The files of an image in place of a path of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageMount>,
}

/// What of an image is mounted.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ImageMount {
    /// Resolved image (id or digest).
    pub image_ref: String,
    /// Image as the pod names it.
    pub user_specified: String,
    /// Path within the image; empty for all of it.
    pub sub_path: String,
}

/// `MountPropagation`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Propagation {
    /// None.
    #[default]
    Private,
    /// Host to container.
    HostToContainer,
    /// Both ways.
    Bidirectional,
}

/// `LinuxContainerSecurityContext`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ContainerSecurity {
    /// Capabilities to add.
    pub add_capabilities: Vec<String>,
    /// Capabilities to drop.
    pub drop_capabilities: Vec<String>,
    /// Privileged.
    pub privileged: bool,
    /// Namespaces.
    pub namespaces: Namespaces,
    /// Numeric user; wins over `run_as_username`.
    pub run_as_user: Option<i64>,
    /// User name of the image.
    pub run_as_username: String,
    /// Group.
    pub run_as_group: Option<i64>,
    /// Read-only root file system.
    pub readonly_rootfs: bool,
    /// Supplemental groups.
    pub supplemental_groups: Vec<i64>,
    /// `no_new_privs`.
    pub no_new_privs: bool,
    /// Masked paths.
    pub masked_paths: Vec<String>,
    /// Read-only paths.
    pub readonly_paths: Vec<String>,
    /// Seccomp profile.
    pub seccomp: Seccomp,
    /// AppArmor profile; `None` leaves it to the runtime.
    pub apparmor: Option<AppArmor>,
    /// SELinux options: user, role, type, level.
    pub selinux: Option<[String; 4]>,
    /// `supplemental_groups_policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups_policy: Option<GroupsPolicy>,
}

/// A device of the host that a container gets.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Device {
    /// Path in the container.
    pub container_path: String,
    /// Path on the host.
    pub host_path: String,
    /// Of `r`, `w` and `m`.
    pub permissions: String,
}
