//! Where things of a pod lie on this host (contract 2).

use components::fnv::fnv1a_32;
use components::node::NodeConfig;
use components::spec::PodSpec;

/// `LOGS/NAMESPACE_NAME_UID`.
pub(super) fn log_dir(config: &NodeConfig, spec: &PodSpec) -> String {
    log_dir_of(config, &spec.namespace, &spec.name, spec.uid.as_str())
}

/// The same from its parts.
pub(super) fn log_dir_of(config: &NodeConfig, namespace: &str, name: &str, uid: &str) -> String {
    format!("{}/{namespace}_{name}_{uid}", config.pod_logs_dir)
}

/// `ROOT/pods/UID/etc-hosts`.
pub(super) fn etc_hosts(config: &NodeConfig, uid: &str) -> String {
    format!("{}/etc-hosts", config.pod_dir(uid))
}

/// `ROOT/pods/UID/containers/NAME/XXXXXXXX`: eight hexadecimal digits, another file for each attempt.
pub(super) fn termination_log(config: &NodeConfig, uid: &str, container: &str, attempt: u32) -> String {
    let bytes: Vec<u8> = uid.bytes().chain(container.bytes()).chain(attempt.to_le_bytes()).collect();
    let hash = fnv1a_32(&bytes);
    format!("{}/containers/{container}/{hash:08x}", config.pod_dir(uid))
}

/// `ROOT/seccomp/PROFILE`, the profile's path cleaned of what names no folder.
pub(super) fn seccomp(config: &NodeConfig, profile: &str) -> String {
    let parts = profile.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.fold(format!("{}/seccomp", config.root_dir), |path, part| format!("{path}/{part}"))
}
