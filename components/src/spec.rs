//! The compiled pod spec: what decisions need of a pod, made once at ingest and shared behind an `Arc`.
//!
//! Defaults are applied and quantities are numbers. What `/pods` must show again stays as the defaulted JSON.

use crate::edge::cri::{AppArmor, GroupsPolicy, Propagation, Protocol, Seccomp};
use crate::edge::host::HostPathKind;
use crate::edge::sources::Source;
use crate::ids::{PodUid, Sensitive};
use crate::objects::ObjectRef;
use crate::podcerts::CertificateSource;
use crate::probes::{ProbeKind, ProbeSpec};
use crate::scheduling::Requirement;
use crate::time::Wall;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A compiled pod.
#[derive(Clone, PartialEq, Debug)]
pub struct PodSpec {
    /// `metadata.uid`, given or derived (contract 6.8).
    pub uid: PodUid,
    /// `metadata.name`; for static pods with the node name appended.
    pub name: Arc<str>,
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// Where it came from.
    pub source: Source,
    /// First seen at (`kubernetes.io/config.seen`).
    pub seen: Wall,
    /// Changes exactly when the object's content changes.
    pub digest: u128,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations, with the `kubernetes.io/config.*` ones added.
    pub annotations: BTreeMap<String, String>,
    /// `spec.restartPolicy`.
    pub restart_policy: RestartPolicy,
    /// `spec.terminationGracePeriodSeconds`.
    pub grace_seconds: u32,
    /// `spec.activeDeadlineSeconds`.
    pub active_deadline_seconds: Option<u32>,
    /// Host name inside, before truncation rules: `spec.hostnameOverride`, `spec.hostname` or the pod's name.
    pub hostname: String,
    /// `spec.subdomain`.
    pub subdomain: String,
    /// `spec.setHostnameAsFQDN`.
    pub hostname_as_fqdn: bool,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `spec.hostPID`.
    pub host_pid: bool,
    /// `spec.hostIPC`.
    pub host_ipc: bool,
    /// `spec.hostUsers`: false gives the pod a user namespace of its own.
    pub host_users: bool,
    /// `spec.shareProcessNamespace`.
    pub share_process_namespace: bool,
    /// `spec.hostAliases`: (ip, host names).
    pub host_aliases: Vec<(String, Vec<String>)>,
    /// `spec.dnsPolicy`.
    pub dns_policy: DnsPolicy,
    /// `spec.dnsConfig`.
    pub dns_config: Option<crate::edge::cri::DnsConfig>,
    /// `spec.securityContext`.
    pub security: PodSecurity,
    /// `spec.serviceAccountName`.
    pub service_account: String,
    /// `spec.enableServiceLinks`.
    pub service_links: bool,
    /// `spec.imagePullSecrets` by name, in order.
    pub pull_secrets: Vec<Arc<str>>,
    /// `spec.runtimeClassName`.
    pub runtime_class: Option<String>,
    /// `spec.priority`.
    pub priority: i32,
    /// `spec.priorityClassName`.
    pub priority_class: String,
    /// Computed QoS class.
    pub qos: QosClass,
    /// `spec.overhead`.
    pub overhead: Resources,
    /// Pod-level `spec.resources` (requests and limits), where set.
    pub resources: Option<ResourceRequirements>,
    /// What it asks of its node.
    pub scheduling: crate::scheduling::Scheduling,
    /// Volumes in order.
    pub volumes: Vec<Volume>,
    /// Init containers (with sidecars), then main containers, then ephemeral ones; each group in spec order.
    pub containers: Vec<ContainerSpec>,
    /// `spec.readinessGates`: conditions of others that count for `Ready`, in order.
    pub readiness_gates: Vec<Arc<str>>,
    /// `metadata.generation`; 0 where there is none.
    pub generation: i64,
    /// Reason and message, where this version of ticklet cannot run it.
    pub refused: Option<(&'static str, String)>,
    /// The defaulted object without status, as JSON.
    pub json: Arc<str>,
}

impl PodSpec {
    /// `name_namespace`, the key under which only one pod may live.
    #[must_use]
    pub fn full_name(&self) -> String {
        format!("{}_{}", self.name, self.namespace)
    }

    /// True when every main container is started again whatever it ended with.
    #[must_use]
    pub fn always_restarts(&self) -> bool {
        let mut main = self.containers.iter().filter(|c| c.kind == ContainerKind::Main);
        let always = |policy: Option<RestartPolicy>| policy.unwrap_or(self.restart_policy) == RestartPolicy::Always;
        main.all(|c| always(c.lifecycle.restart_policy) && c.lifecycle.restart_rules.is_empty())
    }

    /// `name_namespace(uid)`, as messages and events name a pod.
    #[must_use]
    pub fn described(&self) -> String {
        format!("{}_{}({})", self.name, self.namespace, self.uid)
    }
}

/// `restartPolicy` of a pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartPolicy {
    /// Always.
    Always,
    /// On failure.
    OnFailure,
    /// Never.
    Never,
}

/// `dnsPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DnsPolicy {
    /// Cluster DNS unless the pod uses the node's network.
    ClusterFirst,
    /// Cluster DNS always.
    ClusterFirstWithHostNet,
    /// The node's resolver configuration.
    Default,
    /// Only `dnsConfig`.
    None,
}

/// QoS class.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QosClass {
    /// Requests equal limits for cpu and memory everywhere.
    Guaranteed,
    /// Something is requested or limited.
    Burstable,
    /// Nothing is.
    BestEffort,
}

impl QosClass {
    /// `status.qosClass`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "Guaranteed",
            Self::Burstable => "Burstable",
            Self::BestEffort => "BestEffort",
        }
    }
}

/// Pod-level security context.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PodSecurity {
    /// `runAsUser`.
    pub run_as_user: Option<i64>,
    /// `runAsGroup`.
    pub run_as_group: Option<i64>,
    /// `runAsNonRoot`.
    pub run_as_non_root: Option<bool>,
    /// `fsGroup`.
    pub fs_group: Option<i64>,
    /// `fsGroupChangePolicy` is `OnRootMismatch`.
    pub fs_group_on_mismatch: bool,
    /// `supplementalGroups`.
    pub supplemental_groups: Vec<i64>,
    /// `supplementalGroupsPolicy`.
    pub groups_policy: Option<GroupsPolicy>,
    /// `sysctls`.
    pub sysctls: BTreeMap<String, String>,
    /// `seccompProfile`.
    pub seccomp: Option<Seccomp>,
    /// `appArmorProfile`.
    pub apparmor: Option<AppArmor>,
    /// `seLinuxOptions`: user, role, type, level.
    pub selinux: Option<[String; 4]>,
}

/// Amounts of resources.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Resources {
    /// CPU in thousandths of a core, rounded up.
    pub cpu_milli: Option<i64>,
    /// Memory in bytes, rounded up.
    pub memory_bytes: Option<i64>,
    /// Ephemeral storage in bytes.
    pub ephemeral_storage_bytes: Option<i64>,
    /// Hugepages by resource name (`hugepages-2Mi`), in bytes.
    pub hugepages: BTreeMap<String, i64>,
    /// Everything else by resource name, in whole units.
    pub extended: BTreeMap<String, i64>,
}

/// Requests and limits.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ResourceRequirements {
    /// Requests, defaulted from limits where the API does so.
    pub requests: Resources,
    /// Limits.
    pub limits: Resources,
}

/// What role a container has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum ContainerKind {
    /// Init container that runs to completion.
    Init,
    /// Init container with `restartPolicy: Always`.
    Sidecar,
    /// Main container.
    Main,
    /// Ephemeral container.
    Ephemeral,
}

/// `imagePullPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PullPolicy {
    /// Pull at each start.
    Always,
    /// Pull when missing.
    IfNotPresent,
    /// Never pull.
    Never,
}

/// A compiled container.
#[derive(Clone, PartialEq, Debug)]
pub struct ContainerSpec {
    /// Name.
    pub name: Arc<str>,
    /// Role.
    pub kind: ContainerKind,
    /// Image as written in the spec.
    pub image: Arc<str>,
    /// Image with the default tag added.
    pub image_to_pull: Arc<str>,
    /// Pull policy.
    pub pull_policy: PullPolicy,
    /// Value of `io.kubernetes.container.hash` (contract 3.3).
    pub hash: u32,
    /// Entry point, not expanded.
    pub command: Vec<String>,
    /// Arguments, not expanded.
    pub args: Vec<String>,
    /// Working directory.
    pub working_dir: String,
    /// Environment in order.
    pub env: Vec<EnvVar>,
    /// `envFrom` in order; `env` wins over it.
    pub env_from: Vec<EnvFrom>,
    /// Ports.
    pub ports: Vec<ContainerPort>,
    /// `ports` as the JSON of annotation `io.kubernetes.container.ports`; empty when there are none.
    pub ports_json: String,
    /// `lifecycle.preStop` as the JSON of annotation `io.kubernetes.container.preStopHandler`; empty when unset.
    pub pre_stop_json: String,
    /// Requests and limits.
    pub resources: ResourceRequirements,
    /// What becomes of it when they change.
    pub resize_policy: crate::resize::ResizePolicy,
    /// Volume mounts in order.
    pub mounts: Vec<VolumeMount>,
    /// `terminationMessagePath`.
    pub termination_message_path: String,
    /// `terminationMessagePolicy`.
    pub termination_message_policy: String,
    /// `stdin`.
    pub stdin: bool,
    /// `stdinOnce`.
    pub stdin_once: bool,
    /// `tty`.
    pub tty: bool,
    /// Security context.
    pub security: ContainerSecuritySpec,
    /// Probes, at most one of a kind, in the order of kinds.
    pub probes: Vec<(ProbeKind, ProbeSpec)>,
    /// Hooks, stop signal and restarts.
    pub lifecycle: crate::hooks::LifecycleSpec,
    /// `targetContainerName` of an ephemeral container: it sees that one's processes.
    pub target: Option<Arc<str>>,
}

/// One environment variable.
#[derive(Clone, PartialEq, Debug)]
pub struct EnvVar {
    /// Name.
    pub name: String,
    /// Where its value comes from.
    pub source: EnvSource,
}

/// All keys of an object as variables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnvFrom {
    /// Put before each key.
    pub prefix: String,
    /// The object.
    pub object: ObjectRef,
}

/// Source of an environment value.
#[derive(Clone, PartialEq, Debug)]
pub enum EnvSource {
    /// Literal text, with `$(NAME)` references.
    Value(Sensitive),
    /// `fieldRef.fieldPath`.
    Field(String),
    /// `resourceFieldRef`.
    Resource {
        /// Container whose resource is meant.
        container: String,
        /// For example `limits.memory`.
        resource: String,
        /// Divisor in thousandths (1000 for a divisor of 1).
        divisor_milli: i64,
    },
    /// `fileKeyRef`.
    File {
        /// Volume that holds the file.
        volume: String,
        /// Path within the volume.
        path: String,
        /// Name of the value in the file.
        key: String,
        /// Without such a file or key there is no variable.
        optional: bool,
    },
    /// `configMapKeyRef` or `secretKeyRef`.
    Key {
        /// The object.
        object: ObjectRef,
        /// Which of its keys.
        key: String,
    },
}

/// A container port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerPort {
    /// Name; empty when unset.
    pub name: String,
    /// Port.
    pub container_port: i32,
    /// Host port; 0 when unset.
    pub host_port: i32,
    /// Host address; empty when unset.
    pub host_ip: String,
    /// Protocol.
    pub protocol: Protocol,
}

/// A volume mount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeMount {
    /// Volume name.
    pub volume: String,
    /// Path in the container.
    pub path: String,
    /// `subPath`; empty when unset.
    pub sub_path: String,
    /// `subPathExpr`; empty when unset.
    pub sub_path_expr: String,
    /// Read-only.
    pub readonly: bool,
    /// `recursiveReadOnly`.
    pub recursive_read_only: RecursiveReadOnly,
    /// Propagation.
    pub propagation: Propagation,
}

/// `recursiveReadOnly` of a volume mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecursiveReadOnly {
    /// Only the top mount is read-only.
    #[default]
    Disabled,
    /// Mounts below it too, where the runtime can.
    IfPossible,
    /// Mounts below it too, or the container does not start.
    Enabled,
}

/// Container-level security context.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ContainerSecuritySpec {
    /// `runAsUser`.
    pub run_as_user: Option<i64>,
    /// `runAsGroup`.
    pub run_as_group: Option<i64>,
    /// `runAsNonRoot`.
    pub run_as_non_root: Option<bool>,
    /// `privileged`.
    pub privileged: bool,
    /// `readOnlyRootFilesystem`.
    pub readonly_rootfs: bool,
    /// `allowPrivilegeEscalation`.
    pub allow_privilege_escalation: Option<bool>,
    /// `capabilities.add`.
    pub add_capabilities: Vec<String>,
    /// `capabilities.drop`.
    pub drop_capabilities: Vec<String>,
    /// `procMount` is `Unmasked`.
    pub unmasked_proc: bool,
    /// `seccompProfile`.
    pub seccomp: Option<Seccomp>,
    /// `appArmorProfile`, or what the older annotation says of the container.
    pub apparmor: Option<AppArmor>,
    /// `seLinuxOptions`: user, role, type, level.
    pub selinux: Option<[String; 4]>,
}

/// A file of a volume whose content is known on the node.
#[derive(Clone, PartialEq, Debug)]
pub struct VolumeFile {
    /// Path below the volume.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Where its content comes from: a field or a resource.
    pub source: EnvSource,
}

/// Kinds of volumes whose files are written for the pod.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FilesKind {
    /// `downwardAPI`.
    DownwardApi,
    /// `configMap`.
    ConfigMap,
    /// `secret`.
    Secret,
    /// `projected`.
    Projected,
}

/// One source of files.
#[derive(Clone, PartialEq, Debug)]
pub enum FileSource {
    /// A file whose content is known on the node.
    Known(VolumeFile),
    /// Keys of an object.
    Object {
        /// The object.
        object: ObjectRef,
        /// Which keys; empty for all.
        items: Vec<KeyPath>,
        /// Permission bits of files that have none of their own.
        mode: u32,
    },
    /// `serviceAccountToken`.
    Token {
        /// `audience`; empty for that of the API server.
        audience: String,
        /// `expirationSeconds`.
        seconds: i64,
        /// Path below the volume.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// `clusterTrustBundle`.
    Bundle(BundleSource),
    /// `podCertificate`.
    Certificate(Box<CertificateSource>),
}

/// Trust anchors of the cluster as a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BundleSource {
    /// `name`; without it, all bundles of a signer.
    pub name: Option<String>,
    /// `signerName`.
    pub signer: String,
    /// `labelSelector`: requirements that must all be met; `None` selects nothing.
    pub labels: Option<Vec<Requirement>>,
    /// The pod does without it.
    pub optional: bool,
    /// Path below the volume.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
}

/// A key of an object as a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPath {
    /// The key.
    pub key: String,
    /// Path below the volume.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
}

/// A volume.
#[derive(Clone, PartialEq, Debug)]
pub struct Volume {
    /// Name.
    pub name: Arc<str>,
    /// Source.
    pub source: VolumeSource,
}

/// Volume sources that this version sets up; others are refused at ingest with a clear message.
#[derive(Clone, PartialEq, Debug)]
pub enum VolumeSource {
    /// `emptyDir` on disk.
    EmptyDir {
        /// `sizeLimit` in bytes.
        size_bytes: Option<i64>,
    },
    /// `emptyDir` with `medium: Memory`.
    EmptyDirMemory {
        /// `sizeLimit` in bytes.
        size_bytes: Option<i64>,
    },
    /// `emptyDir` with `medium: HugePages` or `HugePages-SIZE`.
    EmptyDirHugePages {
        /// Page size in bytes; `None` when the pod's requests tell.
        page_bytes: Option<i64>,
    },
    /// `downwardAPI`, `configMap`, `secret` or `projected`: files that are written for the pod.
    Files {
        /// Which of them.
        kind: FilesKind,
        /// Where the files come from, in order; of equal paths the last one counts.
        sources: Vec<FileSource>,
    },
    /// `image`: the files of an image, read-only.
    Image {
        /// Reference as written.
        reference: Arc<str>,
        /// Reference with the default tag added.
        to_pull: Arc<str>,
        /// `pullPolicy`.
        pull_policy: PullPolicy,
    },
    /// `hostPath`.
    HostPath {
        /// Path.
        path: String,
        /// Type.
        kind: HostPathKind,
    },
}

impl VolumeSource {
    /// Name of the plugin whose folder below the pod's holds the volume; `None` for one that lies elsewhere.
    #[must_use]
    pub const fn plugin(&self) -> Option<&'static str> {
        match self {
            Self::HostPath { .. } | Self::Image { .. } => None,
            Self::Files { kind, .. } => Some(match kind {
                FilesKind::DownwardApi => "downward-api",
                FilesKind::ConfigMap => "configmap",
                FilesKind::Secret => "secret",
                FilesKind::Projected => "projected",
            }),
            Self::EmptyDir { .. } | Self::EmptyDirMemory { .. } | Self::EmptyDirHugePages { .. } => Some("empty-dir"),
        }
    }
}
