//! This host: directories, files, volumes, cgroups.

pub mod identity;
pub mod podkeys;
pub mod provider;
pub mod pulls;
pub mod reclaim;

use crate::ids::{Hidden, Sensitive};
use crate::podcerts::PodKey;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Changes to the host. Paths are absolute.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub enum HostEffect {
    /// Make everything a pod needs before its sandbox: cgroup, directories, volumes. Idempotent.
    PreparePod(Box<PreparePod>),
    /// Make the files and directories one container attempt needs. Idempotent.
    PrepareContainer(Box<PrepareContainer>),
    /// Remove what a pod left behind, mounts first. Missing things count as removed; nothing outside is followed.
    CleanPod(Box<CleanPod>),
    /// Find the log files that are large, and those that are missing.
    LookAtLogs(Box<reclaim::LookAtLogs>),
    /// Take a log file away from under its writer, which must then be told to open a new one.
    RotateLog(Box<reclaim::RotateLog>),
    /// Undo the last step of a rotation.
    RestoreLog(Box<reclaim::RestoreLog>),
    /// Remove an ended container's log files. Missing ones count as removed.
    RemoveLogs(Box<reclaim::RemoveLogs>),
    /// Link log files to where log collectors look for them. Idempotent.
    LinkLogs(Box<reclaim::LinkLogs>),
    /// Remove links to log files that are gone.
    CleanLogLinks(Box<reclaim::CleanLogLinks>),
    /// Find directories that belong to pods.
    LookAtRemains(Box<reclaim::LookAtRemains>),
    /// Remove a directory whose pod is gone.
    RemoveRemains(Box<reclaim::RemoveRemains>),
    /// Set up one volume of a pod, or bring its content up to date. Idempotent.
    SetUpVolume(Box<VolumeSetup>),
    /// Make cgroups that hold those of pods, or set their limits. Idempotent.
    SetCgroups(Vec<Cgroup>),
    /// Find values in environment files of volumes.
    ReadEnvFiles(Vec<EnvFileKey>),
    /// Read the logins of docker configurations: of the first file that is there, by kind.
    ReadLogins {
        /// The files: `config.json`s, then `.dockercfg`s.
        paths: Vec<String>,
    },
    /// Delay a shutdown of the machine no longer. Idempotent.
    AllowShutdown,
    /// Read how much memory a pod and some of its containers use.
    ReadMemory {
        /// The pod's cgroup.
        pod: String,
        /// Those of the containers.
        containers: Vec<String>,
    },
    /// Look at, ask for or keep certificates of the node.
    Identity(Box<identity::IdentityEffect>),
    /// Ask a credential provider for logins.
    RunProvider(Box<provider::RunProvider>),
    /// Look at or change records of image pulls.
    Pulls(Box<pulls::PullsEffect>),
    /// Make or forget keys of pods.
    PodKeys(Box<podkeys::PodKeyEffect>),
}

/// One value of an environment file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EnvFileKey {
    /// The volume's directory; nothing outside of it is read.
    pub volume: String,
    /// Path within the volume.
    pub path: String,
    /// Name of the value.
    pub key: String,
}

/// Input of [`HostEffect::PreparePod`].
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PreparePod {
    /// The pod's cgroup, made before anything else.
    pub cgroup: Option<Cgroup>,
    /// Directories to make, parents before children.
    pub dirs: Vec<Dir>,
    /// Files to write once the directories are there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<File>,
    /// Volumes to set up, in spec order.
    pub volumes: Vec<VolumeSetup>,
    /// Per-container log directories to look into for earlier attempts (they need not exist): (container, directory).
    pub log_dirs: Vec<(Arc<str>, String)>,
}

/// A directory to make when missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Dir {
    /// Absolute path.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
}

/// A pod or QoS cgroup with its limits. A `None` leaves the kernel's default.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Cgroup {
    /// Path below each controller's mount point, cgroupfs form, for example `/kubepods/besteffort/podUID`.
    pub path: String,
    /// `cpu.shares` (2 to 262144); converted to `cpu.weight` on v2.
    pub cpu_shares: Option<u64>,
    /// CFS quota in microseconds per period.
    pub cpu_quota: Option<i64>,
    /// CFS period in microseconds.
    pub cpu_period: Option<u64>,
    /// Memory limit in bytes.
    pub memory_bytes: Option<i64>,
    /// Process limit.
    pub pids: Option<i64>,
    /// Files of the unified hierarchy and their contents.
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub unified: std::collections::BTreeMap<String, String>,
}

/// One volume to set up.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum VolumeSetup {
    /// A directory of the pod's own.
    EmptyDir {
        /// Volume name.
        name: Arc<str>,
        /// The directory.
        place: OwnPlace,
        /// What lies below it.
        medium: Medium,
    },
    /// Files that are written for the pod, in a memory file system of its own; all of them change at once.
    Files {
        /// Volume name.
        name: Arc<str>,
        /// The directory.
        place: OwnPlace,
        /// Size of the memory file system in bytes.
        size_bytes: i64,
        /// The files, by path.
        files: Vec<ProjectedFile>,
        /// They lie on the disk of the root directory and not in memory (`configMap`).
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        on_disk: bool,
        /// Versions of the objects that hidden contents are from: they stand for these contents in comparisons.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        versions: Vec<String>,
    },
    /// A path of the host, checked or made as its type says.
    HostPath {
        /// Volume name.
        name: Arc<str>,
        /// The path.
        path: String,
        /// What must be there.
        kind: HostPathKind,
    },
}

impl VolumeSetup {
    /// The volume's name.
    #[must_use]
    pub const fn name(&self) -> &Arc<str> {
        match self {
            Self::EmptyDir { name, .. } | Self::Files { name, .. } | Self::HostPath { name, .. } => name,
        }
    }
}

/// A directory that belongs to one volume of one pod.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OwnPlace {
    /// The directory, made open to all when missing.
    pub path: String,
    /// Directory that holds a file `ready` once the volume was set up; what containers changed since is left alone.
    pub marker: String,
    /// Group that owns it (`fsGroup`), with the set-group-id bit.
    pub group: Option<i64>,
    /// `fsGroupChangePolicy` is `OnRootMismatch`: a tree whose top already fits is not walked.
    pub only_on_mismatch: bool,
}

/// What an own directory's content lies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum Medium {
    /// The disk of the root directory.
    Disk,
    /// A memory file system.
    Memory {
        /// Size limit in bytes.
        size_bytes: i64,
    },
    /// Huge pages.
    HugePages {
        /// Size of a page in bytes.
        page_bytes: i64,
    },
}

/// A file of [`VolumeSetup::Files`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ProjectedFile {
    /// Path below the volume, without `..`.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// Content.
    pub content: FileContent,
    /// User that owns it; the kubelet's own when unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<u32>,
}

/// Content of a [`ProjectedFile`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(untagged)]
pub enum FileContent {
    /// What is known on the node.
    Text(String),
    /// From an object or a token.
    Hidden(Hidden),
    /// A key that the host keeps, PEM, and what follows it.
    Key {
        /// The key.
        key: PodKey,
        /// Certificates, or nothing.
        then: Arc<str>,
    },
}

impl FileContent {
    /// The bytes to write; `None` where only the host knows them.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Text(text) => Some(text.as_bytes()),
            Self::Hidden(bytes) => Some(&bytes.0),
            Self::Key { .. } => None,
        }
    }
}

/// `hostPath.type`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HostPathKind {
    /// No check.
    Unset,
    /// Directory, made (0755) when missing.
    DirectoryOrCreate,
    /// Directory that must exist.
    Directory,
    /// File, made (0644) when missing.
    FileOrCreate,
    /// File that must exist.
    File,
    /// Unix socket that must exist.
    Socket,
    /// Character device that must exist.
    CharDevice,
    /// Block device that must exist.
    BlockDevice,
}

/// Input of [`HostEffect::PrepareContainer`].
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct PrepareContainer {
    /// Directories to make, parents before children.
    pub dirs: Vec<Dir>,
    /// Files to write.
    pub files: Vec<File>,
    /// Parts of volumes to bind to a place of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sub_paths: Vec<SubPath>,
}

/// A part of a volume that one container mounts. It is looked up without leaving the volume, whatever links containers
/// put there, made when missing, and bound to a path that nobody else can change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SubPath {
    /// Volume name, for messages.
    pub volume: Arc<str>,
    /// Container name, for messages.
    pub container: Arc<str>,
    /// The volume's path.
    pub root: String,
    /// Path below the volume, without `..`.
    pub path: String,
    /// Where it is bound.
    pub target: String,
}

/// A file to write whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct File {
    /// Absolute path.
    pub path: String,
    /// Permission bits, set regardless of the umask.
    pub mode: u32,
    /// Content.
    pub content: String,
}

/// Input of [`HostEffect::CleanPod`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct CleanPod {
    /// The pod's directory below the root directory: everything mounted in it is unmounted, then it is removed
    /// without crossing into another file system.
    pub pod_dir: Option<String>,
    /// The pod's log directory.
    pub log_dir: Option<String>,
    /// cgroup path (cgroupfs form); processes left in it are killed first.
    pub cgroup: Option<String>,
}

/// Answers of the host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HostAnswer {
    /// The pod is prepared.
    PodPrepared {
        /// Highest `N` of `N.log*` per container, where there is one; sorted by container.
        log_attempts: Vec<(Arc<str>, u32)>,
    },
    /// To `LookAtLogs`: large and missing log files, in the order asked for.
    LogsFound {
        /// The files.
        logs: Vec<reclaim::LogFound>,
    },
    /// To `LookAtRemains`: names of directories, sorted.
    RemainsFound {
        /// In the directory of pod directories.
        pod_dirs: Vec<String>,
        /// In the directory of log directories.
        log_dirs: Vec<String>,
    },
    /// The pod is prepared, but not all of its volumes are.
    PodPreparedInPart {
        /// See [`HostAnswer::PodPrepared`].
        log_attempts: Vec<(Arc<str>, u32)>,
        /// Volumes that could not be set up, with what was said.
        failed: Vec<(Arc<str>, String)>,
    },
    /// To `ReadEnvFiles`, in the order of what was asked: the value, nothing when there is no such file or key, or why
    /// the file cannot be read.
    EnvFilesRead(Vec<Result<Option<Sensitive>, String>>),
    /// To `ReadLogins`.
    LoginsRead {
        /// What the first readable file holds.
        logins: Vec<crate::registry::RegistryLogin>,
        /// Files that are there and cannot be read.
        problems: Vec<String>,
    },
    /// To `ReadMemory`, in bytes; `None` for a cgroup that is not there.
    MemoryRead {
        /// Of the pod as a whole.
        pod: Option<u64>,
        /// Of each container, in the order asked for.
        containers: Vec<Option<u64>>,
    },
    /// To `Identity`.
    Identity(Box<identity::IdentityAnswer>),
    /// To `RunProvider`.
    Provided(Box<provider::Provided>),
    /// To `Pulls`.
    Pulls(Box<pulls::PullsAnswer>),
    /// To `PodKeys`, for a key that was made.
    PodKeyMade {
        /// PKCS#10 in base64, made with the key.
        request: String,
    },
}
