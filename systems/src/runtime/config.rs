//! Complete CRI configurations of sandboxes and containers (contract 3.1 to 3.7).

use super::{cgroups, dns, env, hosts, paths, resources};
use components::edge::cri::{
    ContainerConfig, ContainerSecurity, FoundImage, Mount, NamespaceMode, Namespaces, PortMapping, SandboxConfig,
    SandboxSecurity, Seccomp,
};
use components::ids::Sensitive;
use components::node::{Machine, NodeConfig};
use components::spec::{ContainerKind, ContainerSpec, PodSpec, VolumeSource};
use std::collections::BTreeMap;

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
const READONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What configurations are made from besides the pod.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) config: &'a NodeConfig,
    pub(super) machine: &'a Machine,
    /// The cgroup driver is systemd.
    pub(super) systemd: bool,
}

/// Configuration of a pod's sandbox.
pub(super) fn sandbox(spec: &PodSpec, site: Site<'_>, attempt: u32) -> SandboxConfig {
    let mut labels = spec.labels.clone();
    labels.extend(identity(spec));
    let (hostname, fqdn) = hosts::names(spec, &site.config.cluster_domain);
    let shown = if spec.hostname_as_fqdn && !fqdn.is_empty() { fqdn } else { hostname };
    SandboxConfig {
        name: spec.name.to_string(),
        uid: spec.uid.to_string(),
        namespace: spec.namespace.to_string(),
        attempt,
        hostname: if spec.host_network { String::new() } else { shown },
        log_directory: paths::log_dir(site.config, spec),
        dns: Some(dns::config(spec, site.config, site.machine).0),
        ports: ports(spec),
        labels,
        annotations: spec.annotations.clone(),
        cgroup_parent: cgroups::parent(site.config, site.systemd, spec.qos, spec.uid.as_str()),
        sysctls: spec.security.sysctls.clone(),
        security: sandbox_security(spec),
        overhead: components::edge::cri::LinuxResources::default(),
        resources: resources::of_pod(spec, site.config),
    }
}

/// Labels that name a pod.
fn identity(spec: &PodSpec) -> BTreeMap<String, String> {
    BTreeMap::from([
        ("io.kubernetes.pod.name".to_owned(), spec.name.to_string()),
        ("io.kubernetes.pod.namespace".to_owned(), spec.namespace.to_string()),
        ("io.kubernetes.pod.uid".to_owned(), spec.uid.to_string()),
    ])
}

fn ports(spec: &PodSpec) -> Vec<PortMapping> {
    let main = spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
    main.flat_map(|c| &c.ports)
        .map(|p| PortMapping {
            protocol: p.protocol,
            container_port: p.container_port,
            host_port: p.host_port,
            host_ip: p.host_ip.clone(),
        })
        .collect()
}

fn namespaces(spec: &PodSpec) -> Namespaces {
    let node_or = |host: bool, other: NamespaceMode| if host { NamespaceMode::Node } else { other };
    let pid = if spec.share_process_namespace { NamespaceMode::Pod } else { NamespaceMode::Container };
    Namespaces {
        network: node_or(spec.host_network, NamespaceMode::Pod),
        pid: node_or(spec.host_pid, pid),
        ipc: node_or(spec.host_ipc, NamespaceMode::Pod),
    }
}

fn groups(spec: &PodSpec) -> Vec<i64> {
    spec.security.fs_group.into_iter().chain(spec.security.supplemental_groups.iter().copied()).collect()
}

fn sandbox_security(spec: &PodSpec) -> SandboxSecurity {
    SandboxSecurity {
        namespaces: namespaces(spec),
        privileged: spec.containers.iter().any(|c| c.security.privileged),
        run_as_user: spec.security.run_as_user,
        run_as_group: spec.security.run_as_group,
        supplemental_groups: groups(spec),
        seccomp: Seccomp::RuntimeDefault,
        selinux: spec.security.selinux.clone(),
    }
}

/// Inputs of one container attempt.
pub(super) struct Attempt<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) container: &'a ContainerSpec,
    pub(super) attempt: u32,
    pub(super) image: &'a FoundImage,
    pub(super) pod_ips: &'a [String],
}

/// Configuration of a container.
///
/// # Errors
/// Why it cannot be made: the message of `CreateContainerConfigError`.
pub(super) fn container(attempt: &Attempt<'_>, site: Site<'_>) -> Result<ContainerConfig, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let context = env::EnvContext { spec, config: site.config, machine: site.machine, pod_ips: attempt.pod_ips };
    let envs = env::variables(&context, container)?;
    let lookup = |name: &str| envs.iter().find(|(n, _)| n == name).map(|(_, v)| v.0.clone());
    let expand = |texts: &[String]| texts.iter().map(|t| Sensitive(env::expand(t, &lookup))).collect();
    let mut labels = identity(spec);
    labels.insert("io.kubernetes.container.name".to_owned(), container.name.to_string());
    Ok(ContainerConfig {
        name: container.name.to_string(),
        attempt: attempt.attempt,
        image_ref: attempt.image.image_ref.to_string(),
        user_specified_image: container.image.to_string(),
        command: expand(&container.command),
        args: expand(&container.args),
        working_dir: container.working_dir.clone(),
        mounts: mounts(attempt, site, &lookup)?,
        envs,
        labels,
        annotations: annotations(attempt),
        log_path: format!("{}/{}.log", container.name, attempt.attempt),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        resources: resources::of_container(spec, container, site.config, site.machine),
        security: security(attempt, site.config)?,
    })
}

fn annotations(attempt: &Attempt<'_>) -> BTreeMap<String, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let mut out = BTreeMap::new();
    let mut put = |key: &str, value: String| {
        out.insert(key.to_owned(), value);
    };
    put("io.kubernetes.container.hash", format!("{:x}", container.hash));
    put("io.kubernetes.container.restartCount", attempt.attempt.to_string());
    put("io.kubernetes.container.terminationMessagePath", container.termination_message_path.clone());
    put("io.kubernetes.container.terminationMessagePolicy", container.termination_message_policy.clone());
    put("io.kubernetes.pod.terminationGracePeriod", spec.grace_seconds.to_string());
    if !container.pre_stop_json.is_empty() {
        put("io.kubernetes.container.preStopHandler", container.pre_stop_json.clone());
    }
    if !container.ports_json.is_empty() {
        put("io.kubernetes.container.ports", container.ports_json.clone());
    }
    out
}

fn mounts(
    attempt: &Attempt<'_>,
    site: Site<'_>,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<Mount>, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let mut out = Vec::new();
    for mount in &container.mounts {
        let volume = spec.volumes.iter().find(|v| *v.name == *mount.volume);
        let volume = volume.ok_or_else(|| format!("mount {:?} names no volume of the pod", mount.volume))?;
        let base = match &volume.source {
            VolumeSource::EmptyDir | VolumeSource::EmptyDirMemory { .. } => {
                paths::empty_dir(site.config, spec.uid.as_str(), &volume.name)
            }
            VolumeSource::HostPath { path, .. } => path.clone(),
        };
        let sub = if mount.sub_path_expr.is_empty() {
            mount.sub_path.clone()
        } else {
            env::expand(&mount.sub_path_expr, lookup)
        };
        if !sub.is_empty() {
            // Safe against symlink races only with bind mounts of opened paths, which this version does not make.
            return Err(format!("subPath of volume mount {:?} is not supported by this version", mount.volume));
        }
        out.push(Mount {
            container_path: absolute(&mount.path),
            host_path: base,
            readonly: mount.readonly,
            recursive_read_only: mount.recursive_read_only,
            propagation: mount.propagation,
        });
    }
    if wants_hosts_file(spec, container, attempt.pod_ips) {
        out.push(plain("/etc/hosts", paths::etc_hosts(site.config, spec.uid.as_str())));
    }
    let path = &container.termination_message_path;
    if !path.is_empty() {
        let file = paths::termination_log(site.config, spec.uid.as_str(), &container.name, attempt.attempt);
        out.push(plain(path, file));
    }
    Ok(out)
}

/// A container gets our hosts file unless it mounts its own, or the pod has no address yet.
pub(super) fn wants_hosts_file(spec: &PodSpec, container: &ContainerSpec, pod_ips: &[String]) -> bool {
    let own = container.mounts.iter().any(|m| m.path.trim_end_matches('/') == "/etc/hosts");
    !own && (spec.host_network || !pod_ips.is_empty())
}

fn plain(container_path: &str, host_path: String) -> Mount {
    Mount { container_path: container_path.to_owned(), host_path, ..Mount::default() }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn security(attempt: &Attempt<'_>, config: &NodeConfig) -> Result<ContainerSecurity, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let own = &container.security;
    let (run_as_user, run_as_username) = user(attempt)?;
    let strings = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
    let masked = !own.privileged && !own.unmasked_proc;
    let default = if config.seccomp_default { Seccomp::RuntimeDefault } else { Seccomp::Unconfined };
    let seccomp = own.seccomp.clone().or_else(|| spec.security.seccomp.clone()).unwrap_or(default);
    Ok(ContainerSecurity {
        add_capabilities: own.add_capabilities.clone(),
        drop_capabilities: own.drop_capabilities.clone(),
        privileged: own.privileged,
        namespaces: namespaces(spec),
        run_as_user,
        run_as_username,
        run_as_group: own.run_as_group.or(spec.security.run_as_group),
        readonly_rootfs: own.readonly_rootfs,
        supplemental_groups: groups(spec),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if masked { strings(&MASKED) } else { Vec::new() },
        readonly_paths: if masked { strings(&READONLY) } else { Vec::new() },
        seccomp: if own.privileged { Seccomp::Unconfined } else { localhost(seccomp, config) },
        apparmor: own.apparmor.clone().or_else(|| spec.security.apparmor.clone()),
        selinux: own.selinux.clone().or_else(|| spec.security.selinux.clone()),
    })
}

/// The user to run as: the spec's, else the image's; checked against `runAsNonRoot`.
fn user(attempt: &Attempt<'_>) -> Result<(Option<i64>, String), String> {
    let (spec, container, image) = (attempt.spec, attempt.container, attempt.image);
    let asked = container.security.run_as_user.or(spec.security.run_as_user);
    let non_root = container.security.run_as_non_root.or(spec.security.run_as_non_root).unwrap_or(false);
    let what = || format!("(pod: \"{}\", container: {})", spec.described(), container.name);
    if non_root {
        match (asked, image.uid) {
            (Some(0), _) => return Err(format!("container's runAsUser breaks non-root policy {}", what())),
            (None, _) if !image.username.is_empty() => {
                return Err(format!(
                    "container has runAsNonRoot and image has non-numeric user ({}), cannot verify user is non-root {}",
                    image.username,
                    what()
                ));
            }
            (None, None | Some(0)) => {
                return Err(format!("container has runAsNonRoot and image will run as root {}", what()));
            }
            _ => {}
        }
    }
    Ok(match asked {
        Some(uid) => (Some(uid), String::new()),
        None if image.username.is_empty() => (Some(image.uid.unwrap_or(0)), String::new()),
        None => (None, image.username.clone()),
    })
}

/// Localhost profiles lie below `ROOT/seccomp`.
fn localhost(profile: Seccomp, config: &NodeConfig) -> Seccomp {
    match profile {
        Seccomp::Localhost(path) => Seccomp::Localhost(format!("{}/seccomp/{path}", config.root_dir)),
        other => other,
    }
}
