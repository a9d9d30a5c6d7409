//! Rules for the node as a whole: lifecycle, shutdown, images, logs, registration, networking leftovers.

use super::Check;
use crate::config::decode::quote;
use crate::config::names::{label_value_problem, qualified_name_problem};
use crate::config::tree::{index, join};
use crate::duration::GoDuration;
use crate::quantity::Quantity;

pub(super) fn check(c: &mut Check<'_>) {
    limits(c);
    images(c);
    shutdown(c);
    restarts(c);
    container_logs(c);
    logging(c);
    taints(c);
    sysctls(c);
    let config = c.config;
    c.one_of("hairpinMode", &config.hairpin_mode, &["promiscuous-bridge", "hairpin-veth", "none"]);
    c.one_of("memorySwap.swapBehavior", &config.memory_swap.swap_behavior, &["", "NoSwap", "LimitedSwap"]);
    let strategies = ["Get", "Cache", "Watch"];
    let strategy = &config.config_map_and_secret_change_detection_strategy;
    c.one_of("configMapAndSecretChangeDetectionStrategy", strategy, &strategies);
    if config.run_once {
        c.fail("runOnce", "is no longer possible".to_owned());
    }
    if let Some(ids) = config.user_namespaces.as_ref().and_then(|u| u.ids_per_pod) {
        let fits = (65536..=i64::from(u32::MAX)).contains(&ids) && ids % 65536 == 0;
        if !fits {
            c.fail("userNamespaces.idsPerPod", format!("{ids} must be a multiple of 65536 below 2^32"));
        }
    }
}

fn limits(c: &mut Check<'_>) {
    let config = c.config;
    c.at_least("nodeLeaseDurationSeconds", config.node_lease_duration_seconds.into(), 1);
    c.at_least("nodeStatusMaxImages", config.node_status_max_images.into(), -1);
    c.at_least("maxOpenFiles", config.max_open_files, 0);
    c.at_least("maxPods", config.max_pods.into(), 0);
    c.at_least("podsPerCore", config.pods_per_core.into(), 0);
    c.range("oomScoreAdj", config.oom_score_adj.into(), -1000, 1000);
    c.range("iptablesDropBit", config.iptables_drop_bit.into(), 0, 31);
    c.range("iptablesMasqueradeBit", config.iptables_masquerade_bit.into(), 0, 31);
    for (path, period) in [
        ("syncFrequency", config.sync_frequency),
        ("fileCheckFrequency", config.file_check_frequency),
        ("httpCheckFrequency", config.http_check_frequency),
        ("runtimeRequestTimeout", config.runtime_request_timeout),
        ("nodeStatusUpdateFrequency", config.node_status_update_frequency),
        ("nodeStatusReportFrequency", config.node_status_report_frequency),
    ] {
        c.not_negative_time(path, period);
    }
    c.endpoint("containerRuntimeEndpoint", &config.container_runtime_endpoint, false);
    c.endpoint("imageServiceEndpoint", &config.image_service_endpoint, true);
}

impl Check<'_> {
    fn endpoint(&mut self, path: &str, endpoint: &str, may_be_empty: bool) {
        let socket = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if endpoint.is_empty() && may_be_empty {
            return;
        }
        if !socket.starts_with('/') {
            self.fail(path, format!("{}: want unix:///path/of/the/socket", quote(endpoint)));
        }
    }
}

fn images(c: &mut Check<'_>) {
    let config = c.config;
    let (high, low) = (config.image_gc_high_threshold_percent, config.image_gc_low_threshold_percent);
    c.range("imageGCHighThresholdPercent", high.into(), 0, 100);
    c.range("imageGCLowThresholdPercent", low.into(), 0, 100);
    if low >= high {
        c.fail("imageGCLowThresholdPercent", format!("{low} must be less than imageGCHighThresholdPercent, {high}"));
    }
    let (youngest, oldest) = (config.image_minimum_gc_age, config.image_maximum_gc_age);
    c.not_negative_time("imageMinimumGCAge", youngest);
    c.not_negative_time("imageMaximumGCAge", oldest);
    if oldest > GoDuration::ZERO && oldest <= youngest {
        c.fail("imageMaximumGCAge", format!("{oldest} must be greater than imageMinimumGCAge, {youngest}"));
    }
    c.at_least("registryBurst", config.registry_burst.into(), 0);
    c.at_least("registryPullQPS", config.registry_pull_qps.into(), 0);
    if let Some(pulls) = config.max_parallel_image_pulls {
        c.at_least("maxParallelImagePulls", pulls.into(), 1);
        if config.serialize_image_pulls && pulls > 1 {
            c.fail("maxParallelImagePulls", format!("{pulls} needs serializeImagePulls to be false"));
        }
    }
    image_credentials(c);
}

fn image_credentials(c: &mut Check<'_>) {
    const POLICIES: [&str; 4] =
        ["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"];
    let config = c.config;
    let policy = &config.image_pull_credentials_verification_policy;
    let list = &config.preloaded_images_verification_allowlist;
    if !c.gates.enabled("KubeletEnsureSecretPulledImages") {
        if !policy.is_empty() {
            c.needs_gate("imagePullCredentialsVerificationPolicy", "KubeletEnsureSecretPulledImages");
        }
        if !list.is_empty() {
            c.needs_gate("preloadedImagesVerificationAllowlist", "KubeletEnsureSecretPulledImages");
        }
        return;
    }
    c.one_of("imagePullCredentialsVerificationPolicy", policy, &POLICIES);
    if !list.is_empty() && policy != "NeverVerifyAllowlistedImages" {
        let message = "needs imagePullCredentialsVerificationPolicy to be NeverVerifyAllowlistedImages".to_owned();
        c.fail("preloadedImagesVerificationAllowlist", message);
    }
    for (i, pattern) in list.iter().enumerate() {
        if let Some(message) = image_pattern_problem(pattern) {
            c.fail(&index("preloadedImagesVerificationAllowlist", i), format!("{}: {message}", quote(pattern)));
        }
    }
}

fn image_pattern_problem(pattern: &str) -> Option<&'static str> {
    let name = pattern.strip_suffix("/*").unwrap_or(pattern);
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Some("want an image name, or a registry path followed by /*");
    }
    if name.contains('*') {
        return Some("an asterisk may only stand at the end, as /*");
    }
    let last = name.rsplit('/').next().unwrap_or(name);
    let tagged = name.contains('@') || (last.contains(':') && name == pattern);
    tagged.then_some("must have neither tag nor digest")
}

fn shutdown(c: &mut Check<'_>) {
    let config = c.config;
    let (all, critical) = (config.shutdown_grace_period, config.shutdown_grace_period_critical_pods);
    let second = GoDuration::from_secs(1);
    for (path, period) in [("shutdownGracePeriod", all), ("shutdownGracePeriodCriticalPods", critical)] {
        if period != GoDuration::ZERO && period < second {
            c.fail(path, format!("{period} must be zero or at least 1s"));
        }
        if period > GoDuration::ZERO {
            c.needs_gate(path, "GracefulNodeShutdown");
        }
    }
    if critical > all {
        let message = format!("{critical} must not be longer than shutdownGracePeriod, {all}");
        c.fail("shutdownGracePeriodCriticalPods", message);
    }
    if !config.shutdown_grace_period_by_pod_priority.is_empty() {
        c.needs_gate("shutdownGracePeriodByPodPriority", "GracefulNodeShutdownBasedOnPodPriority");
        if all > GoDuration::ZERO || critical > GoDuration::ZERO {
            let message = "must not be set together with shutdownGracePeriod or shutdownGracePeriodCriticalPods";
            c.fail("shutdownGracePeriodByPodPriority", message.to_owned());
        }
    }
}

fn restarts(c: &mut Check<'_>) {
    let path = "crashLoopBackOff.maxContainerRestartPeriod";
    match c.config.crash_loop_back_off.max_container_restart_period {
        Some(_) if !c.gates.enabled("KubeletCrashLoopBackOffMax") => c.needs_gate(path, "KubeletCrashLoopBackOffMax"),
        Some(period) if period < GoDuration::from_secs(1) || period > GoDuration::from_secs(300) => {
            c.fail(path, format!("{period} is out of range, want 1s to 5m0s"));
        }
        _ => {}
    }
}

fn container_logs(c: &mut Check<'_>) {
    let config = c.config;
    c.at_least("containerLogMaxFiles", config.container_log_max_files.into(), 2);
    c.at_least("containerLogMaxWorkers", config.container_log_max_workers.into(), 1);
    if config.container_log_monitor_interval < GoDuration::from_secs(3) {
        let period = config.container_log_monitor_interval;
        c.fail("containerLogMonitorInterval", format!("{period} is too short, want at least 3s"));
    }
    if let Err(e) = Quantity::parse(&config.container_log_max_size) {
        c.fail("containerLogMaxSize", format!("{}: {e}", quote(&config.container_log_max_size)));
    }
    let dir = &config.pod_logs_dir;
    let clean = dir.starts_with('/') && *dir == crate::config::assemble::resolve_path("/", dir);
    if !clean || !dir.is_ascii() {
        c.fail("podLogsDir", format!("{} must be an absolute, normalised path in ASCII", quote(dir)));
    }
}

fn logging(c: &mut Check<'_>) {
    let logging = &c.config.logging;
    c.one_of("logging.format", &logging.format, &["text", "json"]);
    if logging.flush_frequency.every <= GoDuration::ZERO {
        c.fail("logging.flushFrequency", "must be greater than zero".to_owned());
    }
    c.range("logging.verbosity", logging.verbosity.into(), 0, i32::MAX.into());
    if !logging.vmodule.is_empty() && logging.format != "text" {
        c.fail("logging.vmodule", "only works with the text format".to_owned());
    }
    for (i, item) in logging.vmodule.iter().enumerate() {
        let path = index("logging.vmodule", i);
        if item.file_pattern.is_empty() || item.file_pattern.contains(['=', ',']) {
            let message = format!("{} must be a file pattern without '=' and ','", quote(&item.file_pattern));
            c.fail(&join(&path, "filePattern"), message);
        }
        c.range(&join(&path, "verbosity"), item.verbosity.into(), 0, i32::MAX.into());
    }
    for (name, options) in [("text", &logging.options.text), ("json", &logging.options.json)] {
        let path = join("logging.options", name);
        if options.split_stream {
            c.needs_gate(&join(&path, "splitStream"), "LoggingAlphaOptions");
        }
        if !options.info_buffer_size.is_zero() {
            c.needs_gate(&join(&path, "infoBufferSize"), "LoggingAlphaOptions");
        }
    }
}

fn taints(c: &mut Check<'_>) {
    for (i, taint) in c.config.register_with_taints.iter().enumerate() {
        let path = index("registerWithTaints", i);
        if let Some(problem) = qualified_name_problem(&taint.key) {
            c.fail(&join(&path, "key"), format!("{}: {problem}", quote(&taint.key)));
        }
        if let Some(problem) = label_value_problem(&taint.value) {
            c.fail(&join(&path, "value"), format!("{}: {problem}", quote(&taint.value)));
        }
        if !taint.effect.is_empty() {
            c.one_of(&join(&path, "effect"), &taint.effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
        if taint.time_added.is_some() {
            c.fail(&join(&path, "timeAdded"), "must not be set".to_owned());
        }
    }
}

fn sysctls(c: &mut Check<'_>) {
    let sysctls = &c.config.default_pod_sysctls;
    if sysctls.is_empty() {
        return;
    }
    c.needs_gate("defaultPodSysctls", "DefaultPodSysctls");
    let mut seen = std::collections::BTreeSet::new();
    for name in sysctls.keys() {
        let path = join("defaultPodSysctls", name);
        let dotted = name.replace('/', ".");
        if !is_sysctl_name(&dotted) {
            c.fail(&path, "is not the name of a sysctl".to_owned());
        } else if !is_namespaced(&dotted) {
            c.fail(&path, "is not known to be namespaced".to_owned());
        }
        if !seen.insert(dotted) {
            c.fail(&path, "is set twice".to_owned());
        }
    }
}

fn is_sysctl_name(name: &str) -> bool {
    let end = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let segment = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(end)
            && bytes.last().is_some_and(end)
            && bytes.iter().all(|b| end(b) || *b == b'-' || *b == b'_')
    };
    name.len() <= 253 && name.split('.').all(segment)
}

fn is_namespaced(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "kernel.domainname",
        "kernel.msg",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.sem",
        "kernel.shm",
        "kernel.shm_rmid_forced",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
    ];
    NAMES.contains(&name) || ["net.", "fs.mqueue.", "user."].iter().any(|prefix| name.starts_with(prefix))
}
