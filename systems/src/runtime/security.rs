//! Security contexts of sandboxes and containers: users, groups, privileges, profiles, namespaces (contract 3.6).
//!
//! Reads the spec, the image's user and the node's configuration. What the container says wins over what the pod says.

use super::config::Attempt;
use components::edge::cri::{
    ContainerSecurity, FoundImage, IdRange, NamespaceMode, Namespaces, SandboxSecurity, Seccomp,
};
use components::ids::ContainerId;
use components::node::NodeConfig;
use components::spec::{ContainerSpec, PodSpec};

/// Paths that a container with `procMount: Default` does not see.
const MASKED: [&str; 12] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Paths that it sees but cannot change.
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// Security context of a pod's sandbox.
pub(super) fn of_sandbox(spec: &PodSpec, users: Option<IdRange>) -> SandboxSecurity {
    SandboxSecurity {
        namespaces: namespaces(spec, users),
        privileged: spec.containers.iter().any(|c| c.security.privileged),
        run_as_user: spec.security.run_as_user,
        run_as_group: spec.security.run_as_group,
        supplemental_groups: groups(spec),
        seccomp: Seccomp::RuntimeDefault,
        selinux: spec.security.selinux.clone(),
        groups_policy: spec.security.groups_policy,
    }
}

/// Security context of one container attempt.
///
/// # Errors
/// Why the container may not run: the message of `CreateContainerConfigError`.
pub(super) fn of_container(
    attempt: &Attempt<'_>,
    config: &NodeConfig,
    users: Option<IdRange>,
) -> Result<ContainerSecurity, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let own = &container.security;
    let (run_as_user, run_as_username) = user(spec, container, attempt.image)?;
    let shown: fn(&[&str]) -> Vec<String> = |list| list.iter().map(|path| (*path).to_owned()).collect();
    let paths = |list: &[&str]| if own.unmasked_proc { Vec::new() } else { shown(list) };
    Ok(ContainerSecurity {
        add_capabilities: own.add_capabilities.clone(),
        drop_capabilities: own.drop_capabilities.clone(),
        privileged: own.privileged,
        namespaces: aimed(namespaces(spec, users), attempt.target),
        run_as_user,
        run_as_username,
        run_as_group: own.run_as_group.or(spec.security.run_as_group),
        readonly_rootfs: own.readonly_rootfs,
        supplemental_groups: groups(spec),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: paths(&MASKED),
        readonly_paths: paths(&READONLY),
        seccomp: seccomp(spec, container, config),
        apparmor: own.apparmor.clone().or_else(|| spec.security.apparmor.clone()),
        selinux: selinux(spec, container),
        groups_policy: spec.security.groups_policy,
    })
}

fn namespaces(spec: &PodSpec, users: Option<IdRange>) -> Namespaces {
    let node_or = |host: bool, other: NamespaceMode| if host { NamespaceMode::Node } else { other };
    let pid = if spec.share_process_namespace { NamespaceMode::Pod } else { NamespaceMode::Container };
    Namespaces {
        network: node_or(spec.host_network, NamespaceMode::Pod),
        pid: node_or(spec.host_pid, pid),
        ipc: node_or(spec.host_ipc, NamespaceMode::Pod),
        target: None,
        users,
    }
}

/// A target counts where a container would have process ids of its own.
fn aimed(mut namespaces: Namespaces, target: Option<&ContainerId>) -> Namespaces {
    if namespaces.pid == NamespaceMode::Container && target.is_some() {
        namespaces.pid = NamespaceMode::Target;
        namespaces.target = target.cloned();
    }
    namespaces
}

fn groups(spec: &PodSpec) -> Vec<i64> {
    spec.security.fs_group.into_iter().chain(spec.security.supplemental_groups.iter().copied()).collect()
}

/// The user to run as: the spec's, else the image's; checked against `runAsNonRoot`. A number wins over a name.
fn user(spec: &PodSpec, container: &ContainerSpec, image: &FoundImage) -> Result<(Option<i64>, String), String> {
    let asked = container.security.run_as_user.or(spec.security.run_as_user);
    let named = Some(image.username.as_str()).filter(|name| image.uid.is_none() && !name.is_empty());
    if container.security.run_as_non_root.or(spec.security.run_as_non_root) == Some(true) {
        let what = format!("(pod: {:?}, container: {})", spec.described(), container.name);
        match (asked, named, image.uid.unwrap_or(0)) {
            (Some(0), ..) => return Err(format!("container's runAsUser breaks non-root policy {what}")),
            (Some(_), ..) => {}
            (None, Some(name), _) => {
                let unsure = "cannot verify user is non-root";
                return Err(format!(
                    "container has runAsNonRoot and image has non-numeric user ({name}), {unsure} {what}"
                ));
            }
            (None, None, 0) => {
                return Err(format!("container has runAsNonRoot and image will run as root {what}"));
            }
            (None, None, _) => {}
        }
    }
    Ok(match (asked, named) {
        (Some(uid), _) => (Some(uid), String::new()),
        (None, Some(name)) => (None, name.to_owned()),
        (None, None) => (Some(image.uid.unwrap_or(0)), String::new()),
    })
}

/// The container's profile, else the pod's, else what the node does without one. Local ones lie below `ROOT/seccomp`.
fn seccomp(spec: &PodSpec, container: &ContainerSpec, config: &NodeConfig) -> Seccomp {
    let default = if config.seccomp_default { Seccomp::RuntimeDefault } else { Seccomp::Unconfined };
    let asked = container.security.seccomp.as_ref().or(spec.security.seccomp.as_ref()).unwrap_or(&default);
    match asked {
        Seccomp::Localhost(path) => Seccomp::Localhost(super::paths::seccomp(config, path)),
        other => other.clone(),
    }
}

/// Options of the container, or of the pod where the container has none at all.
fn selinux(spec: &PodSpec, container: &ContainerSpec) -> Option<[String; 4]> {
    container.security.selinux.as_ref().or(spec.security.selinux.as_ref()).cloned()
}
