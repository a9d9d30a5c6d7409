//! Which settings this version acts on, so that the others can be named once at start.

use serde_json::{Map, Value};

use crate::config::types::KubeletConfiguration;

/// Settings that are acted on, and settings that have no effect on a kubelet either.
const SETTLED: &[&str] = &[
    "address",
    "allowedUnsafeSysctls",
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupDriver",
    "cgroupRoot",
    "cgroupsPerQOS",
    "clusterDNS",
    "clusterDomain",
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxFiles",
    "containerLogMaxSize",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "containerRuntimeEndpoint",
    "cpuCFSQuota",
    "cpuCFSQuotaPeriod",
    "crashLoopBackOff",
    "defaultPodSysctls",
    "enableControllerAttachDetach",
    "enableDebuggingHandlers",
    "enableServer",
    "eventBurst",
    "eventRecordQPS",
    "failCgroupV1",
    "failSwapOn",
    "featureGates",
    "fileCheckFrequency",
    "hairpinMode",
    "healthzBindAddress",
    "healthzPort",
    "httpCheckFrequency",
    "imagePullCredentialsVerificationPolicy",
    "imageServiceEndpoint",
    "iptablesDropBit",
    "iptablesMasqueradeBit",
    "kind",
    "kubeAPIBurst",
    "kubeAPIQPS",
    "kubeletCgroups",
    "maxParallelImagePulls",
    "maxPods",
    "memoryReservationPolicy",
    "memorySwap",
    "memoryThrottlingFactor",
    "nodeLeaseDurationSeconds",
    "nodeStatusMaxImages",
    "nodeStatusReportFrequency",
    "nodeStatusUpdateFrequency",
    "podLogsDir",
    "podPidsLimit",
    "port",
    "preloadedImagesVerificationAllowlist",
    "providerID",
    "readOnlyPort",
    "registerNode",
    "registerWithTaints",
    "registryBurst",
    "registryPullQPS",
    "resolvConf",
    "rotateCertificates",
    "runtimeRequestTimeout",
    "seccompDefault",
    "serializeImagePulls",
    "serverTLSBootstrap",
    "shutdownGracePeriod",
    "shutdownGracePeriodByPodPriority",
    "shutdownGracePeriodCriticalPods",
    "singleProcessOOMKill",
    "staticPodPath",
    "staticPodURL",
    "staticPodURLHeader",
    "streamingConnectionIdleTimeout",
    "syncFrequency",
    "systemCgroups",
    "tlsCertFile",
    "tlsCipherSuites",
    "tlsCurvePreferences",
    "tlsMinVersion",
    "tlsPrivateKeyFile",
    "volumeStatsAggPeriod",
];

/// The settings that differ from every default but change nothing yet, in the order of the configuration.
#[must_use]
pub fn not_acted_on(config: &KubeletConfiguration) -> Vec<&'static str> {
    let mut shown = config.clone();
    let usual = KubeletConfiguration::default();
    // Of the logging settings these two work.
    shown.logging.format.clone_from(&usual.logging.format);
    shown.logging.verbosity = usual.logging.verbosity;
    let shown = object(&shown);
    let baselines =
        [object(&usual), object(&KubeletConfiguration::legacy()), object(&super::assemble::with_eviction())];
    let differs = |name: &&&str| !baselines.iter().any(|base| base.get(**name) == shown.get(**name));
    KubeletConfiguration::field_names().iter().filter(|name| !SETTLED.contains(name)).filter(differs).copied().collect()
}

fn object(config: &KubeletConfiguration) -> Map<String, Value> {
    match serde_json::to_value(config) {
        Ok(Value::Object(map)) => map,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_names_real_fields() {
        assert!(SETTLED.windows(2).all(|w| w[0] < w[1]), "sorted");
        for name in SETTLED {
            assert!(KubeletConfiguration::field_names().contains(name), "{name}");
        }
    }

    #[test]
    fn only_changed_and_unused_settings_are_named() {
        assert_eq!(not_acted_on(&KubeletConfiguration::default()), [""; 0]);
        assert_eq!(not_acted_on(&KubeletConfiguration::legacy()), [""; 0]);
        let mut config =
            KubeletConfiguration { max_pods: 7, cpu_manager_policy: "static".into(), ..Default::default() };
        config.logging.verbosity = 4;
        config.eviction_hard.insert("memory.available".into(), "1Gi".into());
        config.event_burst = 3;
        assert_eq!(not_acted_on(&config), ["cpuManagerPolicy", "evictionHard"]);
    }
}
