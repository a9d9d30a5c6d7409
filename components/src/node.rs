//! What the core is told once at start: the node's configuration and the machine's facts. Part of a trace's header.

mod api;
pub mod cgroups;
pub mod identity;
mod limits;

pub use api::{ApiConfig, ObjectStrategy};
pub use limits::{NodeLimits, ResizeLimits, UserIds};
pub mod object;
pub mod reclaim;

use bevy_ecs::prelude::Resource;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// Everything the engine starts from besides its inputs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Boot {
    /// Node configuration.
    pub config: NodeConfig,
    /// Machine facts.
    pub machine: Machine,
    /// Durable records of earlier runs, in order.
    pub records: Vec<crate::edge::store::Record>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Tickets issued by engines that ran before in the same process; this one goes on counting from there.
    pub tickets: u64,
}

/// The part of KubeletConfiguration and of the flags that decisions read, defaulted and validated.
#[derive(Resource, Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NodeConfig {
    /// Node name, lower case.
    pub node_name: Arc<str>,
    /// `--root-dir`.
    pub root_dir: String,
    /// `podLogsDir`.
    pub pod_logs_dir: String,
    /// A manifest directory or file is configured.
    pub file_source: bool,
    /// Origin of the file source, as in a static pod's uid (`file:<path>` is the manifest's own path).
    pub url_source: Option<String>,
    /// `fileCheckFrequency`.
    pub file_check: Duration,
    /// `httpCheckFrequency`.
    pub url_check: Duration,
    /// `syncFrequency`.
    pub sync_frequency: Duration,
    /// `crashLoopBackOff.maxContainerRestartPeriod`.
    pub max_restart_period: Duration,
    /// `runtimeRequestTimeout`.
    pub runtime_timeout: Duration,
    /// `registryPullQPS`; 0 is unlimited.
    pub pull_qps: u32,
    /// `registryBurst`.
    pub pull_burst: u32,
    /// `cgroupsPerQOS`.
    pub cgroups_per_qos: bool,
    /// `cgroupRoot`; empty for the root.
    pub cgroup_root: String,
    /// `cgroupDriver`, unless the runtime says otherwise.
    pub cgroup_driver_systemd: bool,
    /// `cpuCFSQuota`.
    pub cpu_cfs_quota: bool,
    /// `cpuCFSQuotaPeriod` in microseconds.
    pub cpu_cfs_period_us: i64,
    /// `podPidsLimit`; `None` for no limit.
    pub pod_pids_limit: Option<i64>,
    /// `singleProcessOOMKill`: true leaves `memory.oom.group` alone.
    pub single_process_oom_kill: bool,
    /// `clusterDNS`.
    pub cluster_dns: Vec<String>,
    /// `clusterDomain`.
    pub cluster_domain: String,
    /// `seccompDefault`.
    pub seccomp_default: bool,
    /// `maxPods`.
    pub max_pods: u32,
    /// Pods that only the runtime knows are ended, as a node's one kubelet does. False for `ticklet up`, which shares
    /// its runtime with others and leaves their pods alone.
    pub end_orphans: bool,
    /// What bounds pods.
    #[serde(default)]
    pub limits: NodeLimits,
    /// Bands of a graceful shutdown, lowest priority first; empty when it is off.
    #[serde(default)]
    pub shutdown_bands: Vec<ShutdownBand>,
    /// Feature gate `ContainerStopSignals`: `lifecycle.stopSignal` is passed on.
    #[serde(default)]
    pub stop_signals: bool,
    /// What is reclaimed without pressure.
    #[serde(default)]
    pub reclaim: reclaim::ReclaimConfig,
    /// The cluster; `None` for a node that works on its own.
    #[serde(default)]
    pub api: Option<ApiConfig>,
    /// How the node shows itself to the API server; `None` for a standalone node.
    #[serde(default)]
    pub object: Option<Box<object::NodeObjectConfig>>,
    /// What a resize may change.
    #[serde(default)]
    pub resize: ResizeLimits,
    /// Certificates that the node asks the cluster for.
    #[serde(default)]
    pub identity: Option<Box<identity::IdentityConfig>>,
    /// Credential providers for image pulls.
    #[serde(default)]
    pub providers: Option<Box<crate::providers::Providers>>,
    /// Pods prove that they may use images that are here; `None` when that is off.
    #[serde(default)]
    pub pulls: Option<crate::pulls::PullVerification>,
}

impl NodeConfig {
    /// `ROOT/pods/UID` (contract 2).
    #[must_use]
    pub fn pod_dir(&self, uid: &str) -> String {
        format!("{}/pods/{uid}", self.root_dir)
    }

    /// `ROOT/pods/UID/volumes/kubernetes.io~PLUGIN/NAME` (contract 2).
    #[must_use]
    pub fn volume_dir(&self, uid: &str, plugin: &str, name: &str) -> String {
        format!("{}/volumes/kubernetes.io~{plugin}/{name}", self.pod_dir(uid))
    }
}

impl Default for NodeConfig {
    /// A standalone node with the kubelet's defaults, nothing to reclaim and no limits: the start of what tests, the
    /// simulator and benches set.
    fn default() -> Self {
        Self {
            node_name: "node".into(),
            root_dir: "/var/lib/kubelet".to_owned(),
            pod_logs_dir: "/var/log/pods".to_owned(),
            file_source: true,
            url_source: None,
            file_check: Duration::from_secs(20),
            url_check: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            max_restart_period: Duration::from_secs(300),
            runtime_timeout: Duration::from_secs(120),
            pull_qps: 5,
            pull_burst: 10,
            cgroups_per_qos: true,
            cgroup_root: String::new(),
            cgroup_driver_systemd: false,
            cpu_cfs_quota: true,
            cpu_cfs_period_us: 100_000,
            pod_pids_limit: None,
            single_process_oom_kill: false,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            seccomp_default: false,
            max_pods: 110,
            end_orphans: true,
            api: None,
            limits: NodeLimits::default(),
            shutdown_bands: Vec::new(),
            stop_signals: false,
            reclaim: reclaim::ReclaimConfig::default(),
            object: None,
            resize: ResizeLimits::default(),
            identity: None,
            providers: None,
            pulls: None,
        }
    }
}

/// Pods of a priority and above, up to the next band, and their time in a graceful shutdown
/// (`shutdownGracePeriodByPodPriority`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ShutdownBand {
    /// Lowest priority of the band.
    pub priority: i32,
    /// Its time in seconds, which also bounds each pod's grace period.
    pub seconds: u32,
}

/// Facts of this machine, read once at start.
#[derive(Resource, Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Machine {
    /// Host name.
    pub hostname: String,
    /// Node addresses, primary first.
    pub node_ips: Vec<String>,
    /// CPUs.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory_bytes: i64,
    /// Hugepage sizes as the runtime names them (`2MB`, `1GB`), in the kernel's order.
    pub hugepage_sizes: Vec<String>,
    /// An earlier run of this boot began a graceful shutdown that is not over.
    #[serde(default)]
    pub shutting_down: bool,
    /// True with the unified cgroup hierarchy only.
    pub cgroup_v2: bool,
    /// The kernel enforces AppArmor profiles.
    #[serde(default)]
    pub apparmor: bool,
    /// The kernel can limit swap per cgroup.
    #[serde(default)]
    pub swap_controller: bool,
    /// Swap in bytes.
    #[serde(default)]
    pub swap_bytes: i64,
    /// The node's resolver configuration (`resolvConf`); `None` when `resolvConf` is "".
    pub resolver: Option<crate::edge::cri::DnsConfig>,
    /// The node's `/etc/hosts`, for pods in the node's network.
    pub etc_hosts: String,
    /// SELinux is enabled.
    #[serde(default)]
    pub selinux: bool,
    /// Host ids of user namespaces, as recorded in pod folders.
    #[serde(default)]
    pub user_ranges: Vec<(crate::ids::PodUid, crate::edge::cri::IdRange)>,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: String,
}
