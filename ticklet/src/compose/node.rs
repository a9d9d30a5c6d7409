//! The core's configuration from the kubelet's: only what decisions read, in the units they use.

use components::config::KubeletConfiguration;
use components::config::gates::GateSet;
use components::duration::GoDuration;
use components::node::reclaim::{CollectionConfig, ReclaimConfig, RotationConfig};
use components::node::{Machine, NodeConfig, ResizeLimits, ShutdownBand};
use components::pulls::{PullVerification, VerifyPolicy};
use components::quantity::Quantity;
use std::time::Duration;

/// Where log collectors look for links to container logs; no setting of the kubelet changes it.
const LOG_LINKS: &str = "/var/log/containers";
/// Time between two collections, as the kubelet's.
const COLLECTION_PERIOD: Duration = Duration::from_secs(60);
/// Shortest period of anything periodic, so that a zero in a file cannot make the node spin.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// Builds the core's configuration. `root_dir` has no trailing slash.
pub(crate) fn node_config(config: &KubeletConfiguration, root_dir: &str, machine: &Machine) -> NodeConfig {
    NodeConfig {
        node_name: machine.hostname.to_lowercase().into(),
        root_dir: root_dir.trim_end_matches('/').to_owned(),
        pod_logs_dir: config.pod_logs_dir.trim_end_matches('/').to_owned(),
        file_source: !config.static_pod_path.is_empty(),
        url_source: (!config.static_pod_url.is_empty()).then(|| config.static_pod_url.clone()),
        file_check: period(config.file_check_frequency),
        url_check: period(config.http_check_frequency),
        sync_frequency: period(config.sync_frequency),
        max_restart_period: config
            .crash_loop_back_off
            .max_container_restart_period
            .map_or(Duration::from_secs(300), duration),
        runtime_timeout: period(config.runtime_request_timeout),
        pull_qps: u32::try_from(config.registry_pull_qps).unwrap_or(0),
        pull_burst: u32::try_from(config.registry_burst).unwrap_or(0).max(1),
        cgroups_per_qos: config.cgroups_per_qos,
        cgroup_root: cgroup_root(&config.cgroup_root),
        cgroup_driver_systemd: config.cgroup_driver == "systemd",
        cpu_cfs_quota: config.cpu_cfs_quota,
        cpu_cfs_period_us: i64::try_from(duration(config.cpu_cfs_quota_period).as_micros()).unwrap_or(100_000),
        pod_pids_limit: (config.pod_pids_limit > 0).then_some(config.pod_pids_limit),
        single_process_oom_kill: config.single_process_oom_kill.unwrap_or(!machine.cgroup_v2),
        cluster_dns: config.cluster_dns_addresses().iter().map(ToString::to_string).collect(),
        cluster_domain: config.cluster_domain.clone(),
        seccomp_default: config.seccomp_default,
        max_pods: u32::try_from(config.max_pods).unwrap_or(0),
        end_orphans: true,
        api: None,
        limits: super::limits::limits(
            config,
            machine,
            io::host::machine::disk_bytes(std::path::Path::new(root_dir)).unwrap_or(0),
        ),
        shutdown_bands: shutdown_bands(config),
        stop_signals: GateSet::from_map(&config.feature_gates).0.enabled("ContainerStopSignals"),
        object: None,
        resize: resize(config),
        identity: None,
        providers: None,
        pulls: pulls(config),
        reclaim: ReclaimConfig {
            rotation: rotation(config),
            collection: Some(collection(-1, 1, GoDuration::ZERO)),
            log_links: Some(LOG_LINKS.to_owned()),
        },
    }
}

/// When pods prove that they may use images that are here.
fn pulls(config: &KubeletConfiguration) -> Option<PullVerification> {
    let policy = VerifyPolicy::from_name(&config.image_pull_credentials_verification_policy)?;
    let allowlist = config.preloaded_images_verification_allowlist.clone();
    GateSet::from_map(&config.feature_gates)
        .0
        .enabled("KubeletEnsureSecretPulledImages")
        .then_some(PullVerification { policy, allowlist })
}

/// What a resize of a running pod may change.
fn resize(config: &KubeletConfiguration) -> ResizeLimits {
    let (gates, _) = GateSet::from_map(&config.feature_gates);
    let pinned = |policy: &str, gate| policy.eq_ignore_ascii_case("static") && !gates.enabled(gate);
    ResizeLimits {
        pod_level: gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        cpu_static: pinned(&config.cpu_manager_policy, "InPlacePodVerticalScalingExclusiveCPUs"),
        memory_static: pinned(&config.memory_manager_policy, "InPlacePodVerticalScalingExclusiveMemory"),
    }
}

/// Rotation of logs; a negative size turns it off.
fn rotation(config: &KubeletConfiguration) -> Option<RotationConfig> {
    // Validated before: a size that can't be read is no reason to fill a disk.
    let size = Quantity::parse(&config.container_log_max_size).map_or(10 << 20, Quantity::value);
    Some(RotationConfig {
        max_bytes: u64::try_from(size).ok()?,
        max_files: u32::try_from(config.container_log_max_files).unwrap_or(2),
        workers: u32::try_from(config.container_log_max_workers).unwrap_or(1),
        period: period(config.container_log_monitor_interval),
    })
}

/// Collection by the flags `--maximum-dead-containers`, `--maximum-dead-containers-per-container` and
/// `--minimum-container-ttl-duration`; negative numbers are no limit.
pub(crate) fn collection(total: i32, per_container: i32, min_age: GoDuration) -> CollectionConfig {
    CollectionConfig {
        period: COLLECTION_PERIOD,
        min_age: duration(min_age),
        per_container: u32::try_from(per_container).ok(),
        total: u32::try_from(total).ok(),
    }
}

/// Priority from which a pod counts as critical.
const CRITICAL: i32 = 2_000_000_000;

/// The bands of a graceful shutdown, lowest priority first: those of the configuration, or the two that its two
/// periods make. A band without time is kept, as its pods end at once.
fn shutdown_bands(config: &KubeletConfiguration) -> Vec<ShutdownBand> {
    let band = |priority, seconds: i64| ShutdownBand { priority, seconds: u32::try_from(seconds).unwrap_or(0) };
    let given = &config.shutdown_grace_period_by_pod_priority;
    if !given.is_empty() {
        let mut bands: Vec<_> = given.iter().map(|g| band(g.priority, g.shutdown_grace_period_seconds)).collect();
        bands.sort_by_key(|band| band.priority);
        return bands;
    }
    let seconds = |given: GoDuration| i64::try_from(duration(given).as_secs()).unwrap_or(0);
    let (all, critical) = (seconds(config.shutdown_grace_period), seconds(config.shutdown_grace_period_critical_pods));
    if all == 0 {
        return Vec::new();
    }
    vec![band(0, all - critical), band(CRITICAL, critical)]
}

fn cgroup_root(root: &str) -> String {
    let root = root.trim_matches('/');
    if root.is_empty() { String::new() } else { format!("/{root}") }
}

fn duration(given: GoDuration) -> Duration {
    Duration::from_nanos(u64::try_from(given.0).unwrap_or(0))
}

fn period(given: GoDuration) -> Duration {
    duration(given).max(SHORTEST_PERIOD)
}
