//! Rules of containers: names, image, ports, environment, and what lies in other files.

use super::amounts::{self, Of};
use super::handlers;
use super::names;
use super::pod::one_of;
use super::restarts;
use super::security;
use super::volumes::check_mounts;
use crate::issues::Issues;
use crate::resources::{is_sidecar, parse};
use crate::unsupported::each_container;
use components::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, ContainerPort, EnvVar, EnvVarSource, PodSpec, ResourceFieldSelector};
use std::collections::BTreeSet;

const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
/// Fields of the pod that an environment variable may show.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Checks all containers; `volumes` are the names of the pod's volumes.
pub(super) fn check(spec: &PodSpec, volumes: &BTreeSet<&str>, issues: &mut Issues) {
    if spec.containers.is_empty() {
        issues.required("spec.containers", "");
    }
    let mut names = BTreeSet::new();
    let mut host_ports = BTreeSet::new();
    let all = names_of(spec);
    each_container(spec, |path, init, container| {
        check_name(path, container, issues);
        if !container.name.is_empty() && !names.insert(container.name.clone()) {
            issues.duplicate(&format!("{path}.name"), &container.name);
        }
        check_one(path, container, volumes, spec.host_users != Some(false), issues);
        check_env(path, container, &all, issues);
        check_env_files(path, spec, container, issues);
        check_ports(path, spec, container, issues);
        // Init containers that end do not hold ports while the main ones run.
        if !init || is_sidecar(container) {
            check_host_ports(path, container, &mut host_ports, issues);
        }
        let lasting = !init || is_sidecar(container);
        handlers::check(path, lasting, container, spec, issues);
        restarts::check(path, container, issues);
    });
}

fn check_name(path: &str, container: &Container, issues: &mut Issues) {
    if container.name.is_empty() {
        issues.required(&format!("{path}.name"), "");
    } else if let Some(wrong) = names::label(&container.name) {
        issues.invalid(&format!("{path}.name"), &container.name, wrong);
    }
}

fn check_one(path: &str, container: &Container, volumes: &BTreeSet<&str>, host_users: bool, issues: &mut Issues) {
    let image = container.image.as_deref().unwrap_or_default();
    if image.is_empty() {
        issues.required(&format!("{path}.image"), "");
    } else if image.trim() != image {
        issues.invalid(&format!("{path}.image"), image, "must not have leading or trailing spaces");
    }
    one_of(&format!("{path}.imagePullPolicy"), container.image_pull_policy.as_deref(), &PULL_POLICIES, issues);
    one_of(
        &format!("{path}.terminationMessagePolicy"),
        container.termination_message_policy.as_deref(),
        &MESSAGE_POLICIES,
        issues,
    );
    if let Some(resources) = &container.resources {
        amounts::check(&format!("{path}.resources"), Of::Container, resources, issues);
    }
    if let Some(security) = &container.security_context {
        security::check_container(&format!("{path}.securityContext"), security, host_users, issues);
    }
    check_mounts(path, container, volumes, issues);
}

fn check_ports(path: &str, spec: &PodSpec, container: &Container, issues: &mut Issues) {
    let mut seen = BTreeSet::new();
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let path = format!("{path}.ports[{i}]");
        if let Some(name) = port.name.as_deref().filter(|n| !n.is_empty()) {
            if let Some(wrong) = names::port(name) {
                issues.invalid(&format!("{path}.name"), name, wrong);
            } else if !seen.insert(name) {
                issues.duplicate(&format!("{path}.name"), name);
            }
        }
        check_port(&path, spec.host_network == Some(true), port, issues);
    }
}

fn check_port(path: &str, host_network: bool, port: &ContainerPort, issues: &mut Issues) {
    const RANGE: &str = "must be between 1 and 65535";
    let in_range = |port: i32| (1..=65535).contains(&port);
    if port.container_port == 0 {
        issues.required(&format!("{path}.containerPort"), "");
    } else if !in_range(port.container_port) {
        issues.invalid(&format!("{path}.containerPort"), port.container_port, RANGE);
    }
    let host = port.host_port.unwrap_or(0);
    if host != 0 && !in_range(host) {
        issues.invalid(&format!("{path}.hostPort"), host, RANGE);
    } else if host_network && host != port.container_port {
        issues.invalid(&format!("{path}.hostPort"), host, "must match containerPort when hostNetwork is true");
    }
    if let Some(ip) = port.host_ip.as_deref().filter(|ip| !ip.is_empty())
        && let Some(wrong) = names::ip(ip)
    {
        issues.invalid(&format!("{path}.hostIP"), ip, wrong);
    }
    one_of(&format!("{path}.protocol"), port.protocol.as_deref(), &PROTOCOLS, issues);
}

fn check_host_ports(path: &str, container: &Container, taken: &mut BTreeSet<String>, issues: &mut Issues) {
    for (i, port) in container.ports.iter().flatten().enumerate() {
        let host = port.host_port.unwrap_or(0);
        if host == 0 {
            continue;
        }
        let key = format!(
            "{}/{}/{host}",
            port.protocol.as_deref().unwrap_or_default(),
            port.host_ip.as_deref().unwrap_or_default()
        );
        if !taken.insert(key.clone()) {
            issues.duplicate(&format!("{path}.ports[{i}].hostPort"), &key);
        }
    }
}

/// Names of all containers.
pub(super) fn names_of(spec: &PodSpec) -> BTreeSet<String> {
    spec.init_containers.iter().flatten().chain(&spec.containers).map(|c| c.name.clone()).collect()
}

fn check_env(path: &str, container: &Container, all: &BTreeSet<String>, issues: &mut Issues) {
    for (i, env) in container.env.iter().flatten().enumerate() {
        let path = format!("{path}.env[{i}]");
        if env.name.is_empty() {
            issues.required(&format!("{path}.name"), "");
        } else if let Some(wrong) = names::env(&env.name) {
            issues.invalid(&format!("{path}.name"), &env.name, wrong);
        }
        if let Some(from) = &env.value_from {
            check_value_from(&format!("{path}.valueFrom"), env, from, all, issues);
        }
    }
    for (i, from) in container.env_from.iter().flatten().enumerate() {
        if from.config_map_ref.is_none() && from.secret_ref.is_none() {
            issues.invalid(&format!("{path}.envFrom[{i}]"), "", "must name one of configMapRef or secretRef");
        }
    }
}

fn check_value_from(path: &str, env: &EnvVar, from: &EnvVarSource, all: &BTreeSet<String>, issues: &mut Issues) {
    let sources = [
        from.field_ref.is_some(),
        from.resource_field_ref.is_some(),
        from.config_map_key_ref.is_some(),
        from.secret_key_ref.is_some(),
        from.file_key_ref.is_some(),
    ];
    match sources.iter().filter(|set| **set).count() {
        0 => issues.invalid(path, "", "must name a source"),
        1 if env.value.as_deref().is_none_or(str::is_empty) => {}
        1 => issues.invalid(path, "", "must not be set when value is not empty"),
        _ => issues.invalid(path, "", "must not have more than one source"),
    }
    if let Some(field) = &from.field_ref {
        let path = format!("{path}.fieldRef");
        if field.api_version.as_deref() != Some("v1") {
            issues.invalid(
                &format!("{path}.apiVersion"),
                field.api_version.as_deref().unwrap_or_default(),
                "must be v1",
            );
        }
        let name = field.field_path.as_str();
        if !(ENV_FIELDS.contains(&name) || is_map_key(name)) {
            let mut fields: Vec<&str> = ENV_FIELDS.to_vec();
            fields.extend(["metadata.labels['KEY']", "metadata.annotations['KEY']"]);
            issues.unsupported(&format!("{path}.fieldPath"), name, &fields);
        }
    }
    if let Some(resource) = &from.resource_field_ref {
        check_resource_ref(&format!("{path}.resourceFieldRef"), resource, all, issues);
    }
}

/// Environment files lie in emptyDir volumes of the pod.
fn check_env_files(path: &str, spec: &PodSpec, container: &Container, issues: &mut Issues) {
    for (i, env) in container.env.iter().flatten().enumerate() {
        let Some(file) = env.value_from.as_ref().and_then(|from| from.file_key_ref.as_ref()) else { continue };
        let path = format!("{path}.env[{i}].valueFrom.fileKeyRef");
        match spec.volumes.iter().flatten().find(|volume| volume.name == file.volume_name) {
            None => issues.not_found(&format!("{path}.volumeName"), &file.volume_name),
            Some(volume) if volume.empty_dir.is_none() => {
                issues.invalid(&format!("{path}.volumeName"), &file.volume_name, "must name a volume of type emptyDir");
            }
            Some(_) => {}
        }
        if file.path.is_empty() {
            issues.required(&format!("{path}.path"), "");
        } else if file.path.starts_with('/') || file.path.split('/').any(|part| part == "..") {
            issues.invalid(&format!("{path}.path"), &file.path, "must be a relative path without '..'");
        }
        if file.key.is_empty() {
            issues.required(&format!("{path}.key"), "");
        } else if let Some(wrong) = names::env(&file.key) {
            issues.invalid(&format!("{path}.key"), &file.key, wrong);
        }
    }
}

/// Checks a `resourceFieldRef` against the pod's containers.
pub(super) fn check_resource_ref(
    path: &str,
    resource: &ResourceFieldSelector,
    containers: &BTreeSet<String>,
    issues: &mut Issues,
) {
    let name = resource.resource.as_str();
    let good = name.split_once('.').is_some_and(|(side, what)| {
        matches!(side, "limits" | "requests")
            && (matches!(what, "cpu" | "memory" | "ephemeral-storage") || what.starts_with("hugepages-"))
    });
    if !good {
        let set = ["limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", "requests.memory"];
        issues.unsupported(&format!("{path}.resource"), name, &set);
    }
    if let Some(other) = resource.container_name.as_deref().filter(|n| !n.is_empty() && !containers.contains(*n)) {
        issues.not_found(&format!("{path}.containerName"), other);
    }
    if let Some(divisor) = &resource.divisor
        && parse(&divisor.0).is_none_or(Quantity::is_negative)
    {
        issues.invalid(&format!("{path}.divisor"), &divisor.0, "must be a quantity, such as 1m, 1 or 1Mi");
    }
}

/// True for `metadata.labels['KEY']` or `metadata.annotations['KEY']` with a good key.
pub(super) fn is_map_key(path: &str) -> bool {
    let inside = |prefix: &str| path.strip_prefix(prefix)?.strip_suffix("']");
    inside("metadata.labels['").is_some_and(|key| names::qualified(key).is_none())
        || inside("metadata.annotations['").is_some_and(|key| names::qualified(&key.to_ascii_lowercase()).is_none())
}
