//! Rules of security contexts.

use super::names;
use super::pod::one_of;
use crate::issues::Issues;
use k8s_openapi::api::core::v1::{
    AppArmorProfile, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext, Sysctl,
};
use std::collections::BTreeSet;

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
/// Ids are 32 bits, less one value that means "none".
const MAX_ID: i64 = i32::MAX as i64;

/// Checks the pod's security context.
pub(super) fn check_pod(security: &PodSecurityContext, spec: &PodSpec, issues: &mut Issues) {
    let path = "spec.securityContext";
    check_id(&format!("{path}.runAsUser"), security.run_as_user, issues);
    check_id(&format!("{path}.runAsGroup"), security.run_as_group, issues);
    check_id(&format!("{path}.fsGroup"), security.fs_group, issues);
    for (i, group) in security.supplemental_groups.iter().flatten().enumerate() {
        check_id(&format!("{path}.supplementalGroups[{i}]"), Some(*group), issues);
    }
    if let Some(policy) = security.supplemental_groups_policy.as_deref() {
        one_of(&format!("{path}.supplementalGroupsPolicy"), Some(policy), &["Merge", "Strict"], issues);
    }
    if let Some(policy) = security.fs_group_change_policy.as_deref() {
        one_of(&format!("{path}.fsGroupChangePolicy"), Some(policy), &["Always", "OnRootMismatch"], issues);
    }
    check_seccomp(path, security.seccomp_profile.as_ref(), issues);
    check_apparmor(path, security.app_armor_profile.as_ref(), issues);
    check_sysctls(&format!("{path}.sysctls"), security.sysctls.as_deref().unwrap_or_default(), spec, issues);
}

/// Checks a container's security context.
pub(super) fn check_container(path: &str, security: &SecurityContext, host_users: bool, issues: &mut Issues) {
    check_id(&format!("{path}.runAsUser"), security.run_as_user, issues);
    check_id(&format!("{path}.runAsGroup"), security.run_as_group, issues);
    check_seccomp(path, security.seccomp_profile.as_ref(), issues);
    check_apparmor(path, security.app_armor_profile.as_ref(), issues);
    if let Some(mount) = security.proc_mount.as_deref() {
        one_of(&format!("{path}.procMount"), Some(mount), &["Default", "Unmasked"], issues);
        if mount == "Unmasked" && host_users {
            issues.invalid(&format!("{path}.procMount"), mount, "needs hostUsers to be false");
        }
    }
    if security.allow_privilege_escalation == Some(false) {
        let field = format!("{path}.allowPrivilegeEscalation");
        if security.privileged == Some(true) {
            issues.invalid(&field, false, "cannot be false when privileged is true");
        }
        let added = security.capabilities.iter().flat_map(|c| c.add.iter().flatten());
        if added.into_iter().any(|name| name == "CAP_SYS_ADMIN") {
            issues.invalid(&field, false, "cannot be false when CAP_SYS_ADMIN is added");
        }
    }
}

fn check_id(path: &str, id: Option<i64>, issues: &mut Issues) {
    if let Some(id) = id.filter(|id| !(0..=MAX_ID).contains(id)) {
        issues.invalid(path, id, "must be between 0 and 2147483647");
    }
}

fn check_seccomp(path: &str, profile: Option<&SeccompProfile>, issues: &mut Issues) {
    if let Some(profile) = profile {
        let path = format!("{path}.seccompProfile");
        check_profile(&path, &profile.type_, profile.localhost_profile.as_deref(), issues);
        // The profile lies below the node's own directory and must stay there.
        let file = profile.localhost_profile.as_deref().unwrap_or_default();
        if file.starts_with('/') || file.split('/').any(|part| part == "..") {
            issues.invalid(&format!("{path}.localhostProfile"), file, "must be a relative path without '..'");
        }
    }
}

fn check_apparmor(path: &str, profile: Option<&AppArmorProfile>, issues: &mut Issues) {
    if let Some(profile) = profile {
        let path = format!("{path}.appArmorProfile");
        check_profile(&path, &profile.type_, profile.localhost_profile.as_deref(), issues);
        let name = profile.localhost_profile.as_deref().unwrap_or_default();
        if name.trim() != name || name.len() > 4095 {
            issues.invalid(&format!("{path}.localhostProfile"), name, "must not have outer spaces or 4096 characters");
        }
    }
}

fn check_profile(path: &str, kind: &str, local: Option<&str>, issues: &mut Issues) {
    one_of(&format!("{path}.type"), Some(kind), &PROFILES, issues);
    match (kind, local) {
        ("Localhost", None | Some("")) => {
            issues.required(&format!("{path}.localhostProfile"), "must be set when the type is Localhost");
        }
        ("Localhost", _) | (_, None) => {}
        (_, Some(name)) => {
            issues.invalid(&format!("{path}.localhostProfile"), name, "may only be set when the type is Localhost");
        }
    }
}

fn check_sysctls(path: &str, sysctls: &[Sysctl], spec: &PodSpec, issues: &mut Issues) {
    let mut seen = BTreeSet::new();
    for (i, sysctl) in sysctls.iter().enumerate() {
        let path = format!("{path}[{i}].name");
        if sysctl.name.is_empty() {
            issues.required(&path, "");
            continue;
        }
        if let Some(wrong) = names::sysctl(&sysctl.name) {
            issues.invalid(&path, &sysctl.name, wrong);
        }
        let name = dotted(&sysctl.name);
        if !seen.insert(name.clone()) {
            issues.duplicate(&path, &sysctl.name);
        }
        // In the node's own namespace a sysctl would change the node.
        if spec.host_network == Some(true) && name.starts_with("net.") {
            issues.invalid(&path, &sysctl.name, "must not be set when hostNetwork is true");
        }
        let ipc =
            ["kernel.shm", "kernel.msg", "fs.mqueue."].iter().any(|p| name.starts_with(p)) || name == "kernel.sem";
        if spec.host_ipc == Some(true) && ipc {
            issues.invalid(&path, &sysctl.name, "must not be set when hostIPC is true");
        }
    }
}

/// The name with dots, whichever separator came first.
pub(crate) fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.as_bytes()[at] == b'/' => name
            .chars()
            .map(|c| {
                if c == '/' {
                    '.'
                } else if c == '.' {
                    '/'
                } else {
                    c
                }
            })
            .collect(),
        _ => name.to_owned(),
    }
}
