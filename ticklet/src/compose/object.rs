//! What the node tells the API server of itself, from the kubelet's configuration, flags and this machine.

use crate::flags::{KUBERNETES_VERSION, KubeletFlags};
use anyhow::Context;
use components::config::KubeletConfiguration;
use components::config::gates::GateSet;
use components::node::Machine;
use components::node::object::{NodeObjectConfig, NodeTaint};
use std::path::Path;
use std::time::Duration;

/// Features of the node that others have to know of, each with the gate of the same name. Only what is done is told.
const DECLARED: [&str; 4] = [
    "ExtendWebSocketsToKubelet",
    "InPlacePodLevelResourcesVerticalScaling",
    "InPlacePodVerticalScalingInitContainers",
    "RestartAllContainersOnContainerExits",
];

/// Settings of the Node object.
///
/// # Errors
/// When the machine's identity cannot be read.
pub(crate) fn object(
    config: &KubeletConfiguration,
    flags: &KubeletFlags,
    machine: &Machine,
) -> anyhow::Result<NodeObjectConfig> {
    let (gates, _) = GateSet::from_map(&config.feature_gates);
    let declared = |name: &&&str| gates.enabled("NodeDeclaredFeatures") && gates.enabled(name);
    let disk = io::host::machine::disk_bytes(Path::new(&flags.root_dir));
    Ok(NodeObjectConfig {
        register: config.register_node,
        labels: flags.node_labels.clone(),
        taints: config
            .register_with_taints
            .iter()
            .map(|t| NodeTaint { key: t.key.clone(), value: t.value.clone(), effect: t.effect.clone() })
            .collect(),
        provider_id: config.provider_id.clone(),
        external_cloud: flags.cloud_provider == "external",
        node_ip_given: flags.node_ips().0.iter().any(|ip| !ip.is_unspecified()),
        controller_attach_detach: config.enable_controller_attach_detach,
        update_period: positive(config.node_status_update_frequency.0),
        report_period: positive(config.node_status_report_frequency.0),
        lease_seconds: u32::try_from(config.node_lease_duration_seconds).unwrap_or(40),
        max_images: u32::try_from(config.node_status_max_images).ok(),
        pods: pods(config, machine.cpus),
        port: u16::try_from(config.port).unwrap_or(0),
        version: flags.reported_version.clone().unwrap_or_else(|| KUBERNETES_VERSION.to_owned()),
        declared_features: DECLARED.iter().filter(declared).map(|name| (*name).to_owned()).collect(),
        disk_bytes: disk.filter(|_| config.local_storage_capacity_isolation),
        machine: io::host::machine::identity().context("failed to read this machine's identity")?,
    })
}

/// Pods that the node takes.
pub(crate) fn pods(config: &KubeletConfiguration, cpus: u32) -> u32 {
    let max = u32::try_from(config.max_pods).unwrap_or(0);
    match u32::try_from(config.pods_per_core) {
        Ok(per_core) if per_core > 0 => per_core.saturating_mul(cpus).min(max),
        _ => max,
    }
}

fn positive(nanos: i64) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0)).max(Duration::from_secs(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_become_what_the_node_tells() {
        let machine = Machine { cpus: 4, ..Machine::default() };
        let mut config = KubeletConfiguration::default();
        let mut flags = KubeletFlags { root_dir: "/".into(), ..KubeletFlags::default() };
        let told = object(&config, &flags, &machine).unwrap();
        assert_eq!((told.pods, told.lease_seconds, told.max_images, told.port), (110, 40, Some(50), 10250));
        assert_eq!((told.update_period.as_secs(), told.report_period.as_secs()), (10, 300));
        assert_eq!(told.declared_features, DECLARED);
        assert!(told.register && !told.node_ip_given && told.disk_bytes.is_some());
        config.pods_per_core = 10;
        config.node_status_max_images = -1;
        config.feature_gates.insert("ExtendWebSocketsToKubelet".into(), false);
        flags.node_ip = "0.0.0.0".into();
        flags.reported_version = Some("v1.37.2-lab".into());
        let told = object(&config, &flags, &machine).unwrap();
        assert_eq!((told.pods, told.max_images, told.version.as_str()), (40, None, "v1.37.2-lab"));
        assert_eq!(told.declared_features, DECLARED[1..]);
        assert!(!told.node_ip_given);
        flags.node_ip = "10.0.0.1".into();
        assert!(object(&config, &flags, &machine).unwrap().node_ip_given);
    }
}
