//! Complete CRI configurations of sandboxes and containers (contract 3.1 to 3.7).

use super::{cgroups, dns, env, hosts, paths, resources, security};
use crate::expand::expand;
use crate::{sysctls, volumes};
use components::edge::cri::{ContainerConfig, FoundImage, GroupsPolicy, IdRange, Mount, PortMapping, SandboxConfig};
use components::ids::{ContainerId, Sensitive};
use components::node::{Machine, NodeConfig};
use components::objects::{Objects, Services};
use components::spec::{ContainerKind, ContainerSpec, PodSpec};
use std::collections::BTreeMap;

/// What configurations are made from besides the pod.
#[derive(Clone, Copy)]
pub(super) struct Site<'a> {
    pub(super) config: &'a NodeConfig,
    pub(super) machine: &'a Machine,
    /// The runtime is new enough to keep `supplementalGroupsPolicy`.
    pub(super) strict_groups: bool,
    /// Host ids of the pod's user namespace, where it has one.
    pub(super) users: Option<IdRange>,
    /// The cgroup driver is systemd.
    pub(super) systemd: bool,
    /// Objects that pods refer to.
    pub(super) objects: &'a Objects,
    /// Services of the cluster.
    pub(super) services: &'a Services,
}

/// Configuration of a pod's sandbox.
///
/// # Errors
/// Why there can be none: the message of `FailedCreatePodSandBox`.
pub(super) fn sandbox(spec: &PodSpec, site: Site<'_>, attempt: u32) -> Result<SandboxConfig, String> {
    if spec.security.groups_policy == Some(GroupsPolicy::Strict) && !site.strict_groups {
        return Err("SupplementalGroupsPolicy=Strict is not supported in this node".to_owned());
    }
    let mut labels = spec.labels.clone();
    labels.extend(identity(spec));
    Ok(SandboxConfig {
        name: spec.name.to_string(),
        uid: spec.uid.to_string(),
        namespace: spec.namespace.to_string(),
        attempt,
        hostname: hosts::kernel_name(spec, &site.config.cluster_domain)?,
        log_directory: paths::log_dir(site.config, spec),
        dns: Some(dns::config(spec, site.config, site.machine).0),
        ports: ports(spec),
        labels,
        annotations: spec.annotations.clone(),
        cgroup_parent: cgroups::parent(site.config, site.systemd, spec.qos, spec.uid.as_str()),
        sysctls: sysctls::of_pod(spec, &site.config.limits.default_sysctls),
        security: security::of_sandbox(spec, site.users),
        overhead: resources::of_overhead(spec, site.config, site.machine),
        resources: resources::of_pod(spec, site.config, site.machine),
    })
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

/// Inputs of one container attempt.
pub(super) struct Attempt<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) container: &'a ContainerSpec,
    pub(super) attempt: u32,
    pub(super) image: &'a FoundImage,
    pub(super) pod_ips: &'a [String],
    pub(super) mounting: volumes::Mounting<'a>,
    /// Values of environment files, in the order of the variables that ask for them.
    pub(super) env_files: &'a [env::FileValue],
    /// The instance whose processes an ephemeral container sees.
    pub(super) target: Option<&'a ContainerId>,
}

/// Configuration of a container.
///
/// # Errors
/// Why it cannot be made: the message of `CreateContainerConfigError`.
pub(super) fn container(attempt: &Attempt<'_>, site: Site<'_>) -> Result<ContainerConfig, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let context = env::EnvContext {
        spec,
        config: site.config,
        machine: site.machine,
        pod_ips: attempt.pod_ips,
        files: attempt.env_files,
        objects: site.objects,
        services: site.services,
    };
    let envs = env::variables(&context, container)?;
    let lookup = |name: &str| envs.iter().find(|(n, _)| n == name).map(|(_, v)| v.0.as_str());
    let expand = |texts: &[String]| texts.iter().map(|t| Sensitive(expand(t, lookup))).collect();
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
        mounts: mounts(attempt, site, &envs)?,
        envs,
        labels,
        annotations: annotations(attempt),
        log_path: format!("{}/{}.log", container.name, attempt.attempt),
        stdin: container.stdin,
        stdin_once: container.stdin_once,
        tty: container.tty,
        resources: resources::of_container(spec, container, site.config, site.machine),
        security: security::of_container(attempt, site.config, site.users)?,
        stop_signal: container.lifecycle.stop_signal.clone().filter(|_| site.config.stop_signals),
        ..ContainerConfig::default()
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

fn mounts(attempt: &Attempt<'_>, site: Site<'_>, envs: &[(String, Sensitive)]) -> Result<Vec<Mount>, String> {
    let (spec, container) = (attempt.spec, attempt.container);
    let mut out = volumes::mounts_of(spec, container, attempt.mounting, envs)?;
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

#[cfg(test)]
mod tests;
