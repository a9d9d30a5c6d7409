//! `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1` and the objects inside it, with their defaults.
//!
//! A value of these types is the effective configuration: an option stays an option only where absence keeps a meaning
//! of its own. Order and names are those of the kubelet's `/configz`.

use std::collections::BTreeMap;

use crate::config::decode::Decode;
use crate::config::objects::{
    Authentication, Authorization, CrashLoopBackOff, Logging, MemoryReservation, MemorySwap,
    ShutdownGracePeriodByPodPriority, Taint, Tracing, UserNamespaces,
};
use crate::config::record::record;
use crate::duration::GoDuration;

/// The kind that every configuration file must carry.
pub const KIND: &str = "KubeletConfiguration";
/// The API version that every configuration file must carry.
pub const API_VERSION: &str = "kubelet.config.k8s.io/v1beta1";

const fn secs(n: i64) -> GoDuration {
    GoDuration::from_secs(n)
}

record! {
    /// The configuration of one kubelet.
    pub struct KubeletConfiguration {
        /// Always `KubeletConfiguration`.
        kind: String = "kind", set(KIND.to_owned());
        /// Always `kubelet.config.k8s.io/v1beta1`.
        api_version: String = "apiVersion", set(API_VERSION.to_owned());
        /// Whether the server on `port` runs.
        enable_server: bool = "enableServer", set(true);
        /// Directory of static pod manifests, or one manifest.
        static_pod_path: String = "staticPodPath", plain;
        /// Root of the pods' log directories.
        pod_logs_dir: String = "podLogsDir", or("/var/log/pods".to_owned());
        /// Longest time between two syncs of a pod.
        sync_frequency: GoDuration = "syncFrequency", or(secs(60));
        /// Rescan period of `static_pod_path`.
        file_check_frequency: GoDuration = "fileCheckFrequency", or(secs(20));
        /// Poll period of `static_pod_url`.
        http_check_frequency: GoDuration = "httpCheckFrequency", or(secs(20));
        /// URL that serves static pods.
        static_pod_url: String = "staticPodURL", plain;
        /// Headers sent to that URL; their values are secret.
        static_pod_url_header: BTreeMap<String, Vec<String>> = "staticPodURLHeader", plain;
        /// Address the server listens on.
        address: String = "address", or("0.0.0.0".to_owned());
        /// Port of the server.
        port: i32 = "port", or(10250);
        /// Port without authentication; 0 is off.
        read_only_port: i32 = "readOnlyPort", plain;
        /// Serving certificate chain.
        tls_cert_file: String = "tlsCertFile", plain;
        /// Key of the serving certificate.
        tls_private_key_file: String = "tlsPrivateKeyFile", plain;
        /// Cipher suites allowed below TLS 1.3.
        tls_cipher_suites: Vec<String> = "tlsCipherSuites", plain;
        /// Key exchange groups allowed, as IANA numbers.
        tls_curve_preferences: Vec<i32> = "tlsCurvePreferences", plain;
        /// Lowest TLS version served.
        tls_min_version: String = "tlsMinVersion", plain;
        /// Whether the client certificate is renewed by the kubelet.
        rotate_certificates: bool = "rotateCertificates", plain;
        /// Whether the serving certificate is requested from the API server.
        server_tls_bootstrap: bool = "serverTLSBootstrap", plain;
        /// Who may ask.
        authentication: Authentication = "authentication", always;
        /// What they may do.
        authorization: Authorization = "authorization", always;
        /// Image pulls a second; 0 is no limit.
        registry_pull_qps: i32 = "registryPullQPS", set(5);
        /// Burst of image pulls.
        registry_burst: i32 = "registryBurst", or(10);
        /// When the credentials of a pulled image are checked again; empty when its gate is off.
        image_pull_credentials_verification_policy: String =
            "imagePullCredentialsVerificationPolicy", or("NeverVerifyPreloadedImages".to_owned());
        /// Images that need no check under that policy.
        preloaded_images_verification_allowlist: Vec<String> = "preloadedImagesVerificationAllowlist", plain;
        /// Events a second; 0 is no limit.
        event_record_qps: i32 = "eventRecordQPS", set(50);
        /// Burst of events.
        event_burst: i32 = "eventBurst", or(100);
        /// Whether logs, exec, attach and port-forward are served.
        enable_debugging_handlers: bool = "enableDebuggingHandlers", set(true);
        /// Whether lock contention is profiled.
        enable_contention_profiling: bool = "enableContentionProfiling", plain;
        /// Port of the local health endpoint; 0 is off.
        healthz_port: i32 = "healthzPort", set(10248);
        /// Address of the local health endpoint.
        healthz_bind_address: String = "healthzBindAddress", or("127.0.0.1".to_owned());
        /// The kubelet's own badness for the OOM killer.
        oom_score_adj: i32 = "oomScoreAdj", set(-999);
        /// DNS domain of the cluster.
        cluster_domain: String = "clusterDomain", plain;
        /// DNS servers of the cluster.
        cluster_dns: Vec<String> = "clusterDNS", plain;
        /// Without effect.
        streaming_connection_idle_timeout: GoDuration = "streamingConnectionIdleTimeout", or(secs(4 * 3600));
        /// How often the node's status is computed.
        node_status_update_frequency: GoDuration = "nodeStatusUpdateFrequency", or(secs(10));
        /// How often an unchanged node status is posted.
        node_status_report_frequency: GoDuration = "nodeStatusReportFrequency", or(secs(300));
        /// How long the node's lease lasts.
        node_lease_duration_seconds: i32 = "nodeLeaseDurationSeconds", or(40);
        /// Age below which an unused image is kept.
        image_minimum_gc_age: GoDuration = "imageMinimumGCAge", or(secs(120));
        /// Age above which an unused image is removed; 0 is off.
        image_maximum_gc_age: GoDuration = "imageMaximumGCAge", always;
        /// Disk usage that starts image garbage collection.
        image_gc_high_threshold_percent: i32 = "imageGCHighThresholdPercent", set(85);
        /// Disk usage that stops it.
        image_gc_low_threshold_percent: i32 = "imageGCLowThresholdPercent", set(80);
        /// How long volume usage is cached.
        volume_stats_agg_period: GoDuration = "volumeStatsAggPeriod", or(secs(60));
        /// Cgroup the kubelet moves itself into.
        kubelet_cgroups: String = "kubeletCgroups", plain;
        /// Cgroup for processes that are in none.
        system_cgroups: String = "systemCgroups", plain;
        /// Parent of the pods' cgroups.
        cgroup_root: String = "cgroupRoot", plain;
        /// Whether pods get cgroups by QoS class.
        cgroups_per_qos: bool = "cgroupsPerQOS", set(true);
        /// `cgroupfs` or `systemd`, unless the runtime says.
        cgroup_driver: String = "cgroupDriver", or("cgroupfs".to_owned());
        /// `none` or `static`.
        cpu_manager_policy: String = "cpuManagerPolicy", or("none".to_owned());
        /// Whether the OOM killer ends single processes; absent means by cgroup version.
        single_process_oom_kill: Option<bool> = "singleProcessOOMKill", opt;
        /// Fine tuning of the CPU manager.
        cpu_manager_policy_options: BTreeMap<String, String> = "cpuManagerPolicyOptions", plain;
        /// How often CPU sets are put right.
        cpu_manager_reconcile_period: GoDuration = "cpuManagerReconcilePeriod", or(secs(10));
        /// `None` or `Static`.
        memory_manager_policy: String = "memoryManagerPolicy", or("None".to_owned());
        /// `none`, `best-effort`, `restricted` or `single-numa-node`.
        topology_manager_policy: String = "topologyManagerPolicy", or("none".to_owned());
        /// `container` or `pod`.
        topology_manager_scope: String = "topologyManagerScope", or("container".to_owned());
        /// Fine tuning of the topology manager.
        topology_manager_policy_options: BTreeMap<String, String> = "topologyManagerPolicyOptions", plain;
        /// Memory reserved by QoS class, in percent.
        qos_reserved: BTreeMap<String, String> = "qosReserved", plain;
        /// Time limit of short requests to the runtime.
        runtime_request_timeout: GoDuration = "runtimeRequestTimeout", or(secs(120));
        /// Without effect.
        hairpin_mode: String = "hairpinMode", or("promiscuous-bridge".to_owned());
        /// Pods the node takes.
        max_pods: i32 = "maxPods", or(110);
        /// Pod addresses of a standalone node.
        pod_cidr: String = "podCIDR", plain;
        /// Processes a pod may have; -1 is no limit of its own.
        pod_pids_limit: i64 = "podPidsLimit", set(-1);
        /// The resolver file that pods start from; empty means none.
        resolv_conf: String = "resolvConf", set("/etc/resolv.conf".to_owned());
        /// No longer possible.
        run_once: bool = "runOnce", plain;
        /// Whether CPU limits are enforced.
        cpu_cfs_quota: bool = "cpuCFSQuota", set(true);
        /// Period of that enforcement.
        cpu_cfs_quota_period: GoDuration = "cpuCFSQuotaPeriod", set(GoDuration::from_millis(100));
        /// Images listed in the node's status; -1 is all.
        node_status_max_images: i32 = "nodeStatusMaxImages", set(50);
        /// Files the kubelet may have open.
        max_open_files: i64 = "maxOpenFiles", or(1_000_000);
        /// Wire format of requests to the API server.
        content_type: String = "contentType", or("application/vnd.kubernetes.protobuf".to_owned());
        /// Requests a second to the API server.
        kube_api_qps: i32 = "kubeAPIQPS", set(50);
        /// Burst of requests to the API server.
        kube_api_burst: i32 = "kubeAPIBurst", or(100);
        /// Whether images are pulled one at a time.
        serialize_image_pulls: bool = "serializeImagePulls", set(true);
        /// Pulls at the same time; absent is no limit.
        max_parallel_image_pulls: Option<i32> = "maxParallelImagePulls", opt;
        /// Thresholds that evict at once.
        eviction_hard: BTreeMap<String, String> = "evictionHard", plain;
        /// Thresholds that evict when they last.
        eviction_soft: BTreeMap<String, String> = "evictionSoft", plain;
        /// How long each soft threshold must last.
        eviction_soft_grace_period: BTreeMap<String, String> = "evictionSoftGracePeriod", plain;
        /// How long a pressure condition stays after its cause.
        eviction_pressure_transition_period: GoDuration = "evictionPressureTransitionPeriod", or(secs(300));
        /// Longest grace period of a soft eviction, in seconds.
        eviction_max_pod_grace_period: i32 = "evictionMaxPodGracePeriod", plain;
        /// What an eviction frees at least, by signal.
        eviction_minimum_reclaim: BTreeMap<String, String> = "evictionMinimumReclaim", plain;
        /// Whether signals not named keep their default threshold.
        merge_default_eviction_settings: bool = "mergeDefaultEvictionSettings", set(false);
        /// Pods per CPU; 0 is no limit.
        pods_per_core: i32 = "podsPerCore", plain;
        /// Whether the controller manager attaches volumes.
        enable_controller_attach_detach: bool = "enableControllerAttachDetach", set(true);
        /// Whether unexpected kernel settings are an error.
        protect_kernel_defaults: bool = "protectKernelDefaults", plain;
        /// Whether the iptables hint chain is made.
        make_iptables_util_chains: bool = "makeIPTablesUtilChains", set(true);
        /// Without effect.
        iptables_masquerade_bit: i32 = "iptablesMasqueradeBit", set(14);
        /// Without effect.
        iptables_drop_bit: i32 = "iptablesDropBit", set(15);
        /// Features switched on or off.
        feature_gates: BTreeMap<String, bool> = "featureGates", plain;
        /// Whether swap keeps the kubelet from starting.
        fail_swap_on: bool = "failSwapOn", set(true);
        /// Whether pods may swap.
        memory_swap: MemorySwap = "memorySwap", always;
        /// Size at which a container's log is rotated.
        container_log_max_size: String = "containerLogMaxSize", or("10Mi".to_owned());
        /// Log files kept for each container.
        container_log_max_files: i32 = "containerLogMaxFiles", set(5);
        /// Rotations at the same time.
        container_log_max_workers: i32 = "containerLogMaxWorkers", set(1);
        /// How often log sizes are looked at.
        container_log_monitor_interval: GoDuration = "containerLogMonitorInterval", set(secs(10));
        /// `Get`, `Cache` or `Watch`.
        config_map_and_secret_change_detection_strategy: String =
            "configMapAndSecretChangeDetectionStrategy", or("Watch".to_owned());
        /// Resources kept for the system.
        system_reserved: BTreeMap<String, String> = "systemReserved", plain;
        /// Resources kept for Kubernetes.
        kube_reserved: BTreeMap<String, String> = "kubeReserved", plain;
        /// CPUs kept for both.
        reserved_system_cpus: String = "reservedSystemCPUs", plain;
        /// Release whose hidden metrics are shown.
        show_hidden_metrics_for_version: String = "showHiddenMetricsForVersion", plain;
        /// Cgroup in which the system's reservation is enforced.
        system_reserved_cgroup: String = "systemReservedCgroup", plain;
        /// Cgroup in which Kubernetes' reservation is enforced.
        kube_reserved_cgroup: String = "kubeReservedCgroup", plain;
        /// Which reservations are enforced.
        enforce_node_allocatable: Vec<String> = "enforceNodeAllocatable", list(vec!["pods".to_owned()]);
        /// Unsafe sysctls that pods may set.
        allowed_unsafe_sysctls: Vec<String> = "allowedUnsafeSysctls", plain;
        /// Sysctls set for every pod.
        default_pod_sysctls: BTreeMap<String, String> = "defaultPodSysctls", plain;
        /// Where FlexVolume drivers are.
        volume_plugin_dir: String =
            "volumePluginDir", or("/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".to_owned());
        /// The node's id at its provider.
        provider_id: String = "providerID", plain;
        /// Whether the kernel reports memory thresholds.
        kernel_memcg_notification: bool = "kernelMemcgNotification", plain;
        /// Logging.
        logging: Logging = "logging", always;
        /// Whether /logs is served.
        enable_system_log_handler: bool = "enableSystemLogHandler", set(true);
        /// Whether /logs answers queries.
        enable_system_log_query: bool = "enableSystemLogQuery", set(false);
        /// How long a node shutdown is delayed; 0 is off.
        shutdown_grace_period: GoDuration = "shutdownGracePeriod", always;
        /// The part of it kept for critical pods.
        shutdown_grace_period_critical_pods: GoDuration = "shutdownGracePeriodCriticalPods", always;
        /// Shutdown grace periods by priority.
        shutdown_grace_period_by_pod_priority: Vec<ShutdownGracePeriodByPodPriority> =
            "shutdownGracePeriodByPodPriority", plain;
        /// Limits of the restart back-off.
        crash_loop_back_off: CrashLoopBackOff = "crashLoopBackOff", always;
        /// Memory kept on each NUMA cell.
        reserved_memory: Vec<MemoryReservation> = "reservedMemory", plain;
        /// Whether profiles are served.
        enable_profiling_handler: bool = "enableProfilingHandler", set(true);
        /// Whether the log level can be changed over HTTP.
        enable_debug_flags_handler: bool = "enableDebugFlagsHandler", set(true);
        /// Whether pods without a seccomp profile get the runtime's.
        seccomp_default: bool = "seccompDefault", set(false);
        /// Where memory throttling begins, as a part of the limit; absent is nowhere.
        memory_throttling_factor: Option<f64> = "memoryThrottlingFactor", opt;
        /// `None` or `TieredReservation`.
        memory_reservation_policy: String = "memoryReservationPolicy", or("None".to_owned());
        /// Taints of a newly registered node.
        register_with_taints: Vec<Taint> = "registerWithTaints", plain;
        /// Whether the node registers itself.
        register_node: bool = "registerNode", set(true);
        /// Where spans are sent.
        tracing: Option<Tracing> = "tracing", opt;
        /// Whether ephemeral storage is accounted for.
        local_storage_capacity_isolation: bool = "localStorageCapacityIsolation", set(true);
        /// Socket of the container runtime.
        container_runtime_endpoint: String =
            "containerRuntimeEndpoint", or("unix:///run/containerd/containerd.sock".to_owned());
        /// Socket of the image service; empty means the runtime's.
        image_service_endpoint: String = "imageServiceEndpoint", plain;
        /// Whether cgroup v1 keeps the kubelet from starting.
        fail_cgroup_v1: bool = "failCgroupV1", set(true);
        /// Id ranges of user namespaces.
        user_namespaces: Option<UserNamespaces> = "userNamespaces", opt;
    }
}

impl KubeletConfiguration {
    /// What the command line alone means: without a configuration file the kubelet still starts from older, more open
    /// defaults.
    #[must_use]
    pub fn legacy() -> Self {
        let mut config = Self::default();
        config.authentication.anonymous.enabled = true;
        config.authentication.webhook.enabled = false;
        config.authorization.mode = "AlwaysAllow".to_owned();
        config.read_only_port = 10255;
        config
    }

    /// The JSON names of all fields, in order.
    #[must_use]
    pub fn field_names() -> &'static [&'static str] {
        <Self as Decode>::FIELDS
    }

    /// A copy that may be shown or logged: header values and credentials in the URL are replaced.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut copy = self.clone();
        for values in copy.static_pod_url_header.values_mut() {
            *values = vec!["<masked>".to_owned()];
        }
        if let Some(start) = copy.static_pod_url.find("://").map(|end| end + 3) {
            let host = copy.static_pod_url[start..].find('/').map_or(copy.static_pod_url.len(), |end| start + end);
            if let Some(end) = copy.static_pod_url[start..host].rfind('@') {
                copy.static_pod_url.replace_range(start..start + end, "<masked>");
            }
        }
        copy
    }

    /// The object that `/configz` answers with. Like the kubelet's it shows header values: only authorised callers get
    /// it, and everything else uses `redacted`.
    #[must_use]
    pub fn configz(&self) -> serde_json::Value {
        serde_json::json!({ "kubeletconfig": self })
    }
}
