//! Rules of the pod spec as a whole; parts have their own files.

use super::amounts::{self, Of};
use super::{check_label, containers, names, security, volumes};
use crate::issues::Issues;
use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec, Toleration};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
/// Name servers, search paths and their characters that `dnsConfig` may have.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
/// Seconds are kept in 32 bits here, which is a century.
const MAX_SECONDS: i64 = i32::MAX as i64;

/// Adds everything that is wrong with `spec`.
pub(super) fn check(spec: &PodSpec, issues: &mut Issues) {
    let volumes = volumes::check(spec.volumes.as_deref().unwrap_or_default(), &containers::names_of(spec), issues);
    containers::check(spec, &volumes, issues);
    one_of("spec.restartPolicy", spec.restart_policy.as_deref(), &RESTART_POLICIES, issues);
    seconds("spec.terminationGracePeriodSeconds", spec.termination_grace_period_seconds, 0, issues);
    seconds("spec.activeDeadlineSeconds", spec.active_deadline_seconds, 1, issues);
    check_dns(spec, issues);
    check_names(spec, issues);
    for (i, toleration) in spec.tolerations.iter().flatten().enumerate() {
        check_toleration(&format!("spec.tolerations[{i}]"), toleration, issues);
    }
    if let Some(security) = &spec.security_context {
        security::check_pod(security, spec, issues);
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        issues.invalid("spec.shareProcessNamespace", true, "must not be set together with hostPID");
    }
    if spec.host_users == Some(false) {
        for (field, shared) in
            [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)]
        {
            if shared == Some(true) {
                issues.forbidden(&format!("spec.{field}"), "when `hostUsers` is false");
            }
        }
        for (i, container) in spec.init_containers.iter().flatten().chain(&spec.containers).enumerate() {
            if container.volume_devices.as_ref().is_some_and(|devices| !devices.is_empty()) {
                issues.forbidden(&format!("spec.containers[{i}].volumeDevices"), "when `hostUsers` is false");
            }
        }
    }
    if spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty()) {
        issues.forbidden("spec.schedulingGates", "a static pod is not scheduled");
    }
    if let Some(overhead) = &spec.overhead {
        amounts::check_list("spec.overhead", Of::Container, overhead, issues);
    }
    if let Some(resources) = &spec.resources {
        amounts::check("spec.resources", Of::Pod, resources, issues);
    }
}

/// Checks a value against a fixed set.
pub(super) fn one_of(path: &str, value: Option<&str>, set: &[&str], issues: &mut Issues) {
    match value {
        None | Some("") => issues.required(path, ""),
        Some(value) if !set.contains(&value) => issues.unsupported(path, value, set),
        Some(_) => {}
    }
}

/// Checks a duration in seconds against its least value.
pub(super) fn seconds(path: &str, value: Option<i64>, least: i64, issues: &mut Issues) {
    if let Some(value) = value.filter(|v| !(least..=MAX_SECONDS).contains(v)) {
        issues.invalid(path, value, &format!("must be between {least} and {MAX_SECONDS}"));
    }
}

fn check_dns(spec: &PodSpec, issues: &mut Issues) {
    one_of("spec.dnsPolicy", spec.dns_policy.as_deref(), &DNS_POLICIES, issues);
    let empty = PodDNSConfig::default();
    let config = spec.dns_config.as_ref().unwrap_or(&empty);
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let searches = config.searches.as_deref().unwrap_or_default();
    if spec.dns_policy.as_deref() == Some("None") && servers.is_empty() {
        issues.required("spec.dnsConfig.nameservers", "dnsPolicy None needs at least one name server");
    }
    if servers.len() > MAX_SERVERS {
        issues.invalid("spec.dnsConfig.nameservers", servers.len(), "must have at most 3 entries");
    }
    for (i, server) in servers.iter().enumerate() {
        if let Some(wrong) = names::ip(server) {
            issues.invalid(&format!("spec.dnsConfig.nameservers[{i}]"), server, wrong);
        }
    }
    if searches.len() > MAX_SEARCHES || searches.join(" ").len() > MAX_SEARCH_CHARS {
        issues.invalid("spec.dnsConfig.searches", searches.len(), "must have at most 32 entries and 2048 characters");
    }
    for (i, search) in searches.iter().enumerate() {
        // A lone dot is the root; a trailing dot and underscores are accepted.
        let name = search.strip_suffix('.').unwrap_or(search).replace('_', "-").to_ascii_lowercase();
        let trimmed: Vec<&str> = name.split('.').map(|part| part.trim_matches('-')).collect();
        if search != "." && names::subdomain(&trimmed.join(".")).is_some() {
            issues.invalid(&format!("spec.dnsConfig.searches[{i}]"), search, "must be a domain name");
        }
    }
    for (i, option) in config.options.iter().flatten().enumerate() {
        if option.name.as_deref().is_none_or(str::is_empty) {
            issues.required(&format!("spec.dnsConfig.options[{i}].name"), "");
        }
    }
}

fn check_names(spec: &PodSpec, issues: &mut Issues) {
    let label = |path: &str, name: &Option<String>, issues: &mut Issues| {
        if let Some(name) = name.as_deref().filter(|n| !n.is_empty())
            && let Some(wrong) = names::label(name)
        {
            issues.invalid(path, name, wrong);
        }
    };
    label("spec.hostname", &spec.hostname, issues);
    label("spec.subdomain", &spec.subdomain, issues);
    for (path, name) in [
        ("spec.runtimeClassName", &spec.runtime_class_name),
        ("spec.priorityClassName", &spec.priority_class_name),
        ("spec.schedulerName", &spec.scheduler_name),
    ] {
        if let Some(name) = name.as_deref().filter(|n| !n.is_empty())
            && let Some(wrong) = names::subdomain(name)
        {
            issues.invalid(path, name, wrong);
        }
    }
    if let Some(name) = spec.hostname_override.as_deref() {
        if name.len() > 64 || names::subdomain(name).is_some() {
            issues.invalid("spec.hostnameOverride", name, "must be a DNS subdomain of at most 64 characters");
        }
        if spec.set_hostname_as_fqdn == Some(true) || spec.host_network == Some(true) {
            issues.forbidden("spec.hostnameOverride", "must not be set together with setHostnameAsFQDN or hostNetwork");
        }
    }
    for (i, alias) in spec.host_aliases.iter().flatten().enumerate() {
        if let Some(wrong) = names::ip(&alias.ip) {
            issues.invalid(&format!("spec.hostAliases[{i}].ip"), &alias.ip, wrong);
        }
        for (j, name) in alias.hostnames.iter().flatten().enumerate() {
            if let Some(wrong) = names::subdomain(name) {
                issues.invalid(&format!("spec.hostAliases[{i}].hostnames[{j}]"), name, wrong);
            }
        }
    }
    for (key, value) in spec.node_selector.iter().flatten() {
        check_label("spec.nodeSelector", key, value, issues);
    }
}

fn check_toleration(path: &str, toleration: &Toleration, issues: &mut Issues) {
    let key = toleration.key.as_deref().unwrap_or_default();
    let operator = toleration.operator.as_deref().unwrap_or_default();
    let value = toleration.value.as_deref().unwrap_or_default();
    let effect = toleration.effect.as_deref().unwrap_or_default();
    if !key.is_empty()
        && let Some(wrong) = names::qualified(key)
    {
        issues.invalid(&format!("{path}.key"), key, wrong);
    }
    match operator {
        "Exists" if !value.is_empty() => {
            issues.invalid(&format!("{path}.value"), value, "must be empty when the operator is Exists");
        }
        "Exists" => {}
        "" | "Equal" | "Lt" | "Gt" => {
            if key.is_empty() {
                issues.invalid(&format!("{path}.operator"), operator, "must be Exists when the key is empty");
            }
            if let Some(wrong) = names::label_value(value) {
                issues.invalid(&format!("{path}.value"), value, wrong);
            }
        }
        _ => issues.unsupported(&format!("{path}.operator"), operator, &["Equal", "Exists", "Gt", "Lt"]),
    }
    if !effect.is_empty() {
        one_of(&format!("{path}.effect"), Some(effect), &["NoSchedule", "PreferNoSchedule", "NoExecute"], issues);
    }
    if toleration.toleration_seconds.is_some() && effect != "NoExecute" {
        issues.invalid(&format!("{path}.effect"), effect, "must be NoExecute when tolerationSeconds is set");
    }
}
