//! What this version of ticklet does not act on yet: refused where running without it would be wrong or unsafe, named in
//! a warning where the pod still does its work.

use crate::issues::Issues;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Volume};

/// Ends each refusal of this file.
const NOT_YET: &str = "not supported by this version of ticklet yet";

/// Adds a refusal for everything that must not be left out.
pub(super) fn refuse(spec: &PodSpec, issues: &mut Issues) {
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        refuse_volume(&format!("spec.volumes[{i}]"), volume, issues);
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|c| !c.is_empty()) {
        issues.forbidden("spec.ephemeralContainers", "cannot be set in a manifest");
    }
    if spec.security_context.as_ref().is_some_and(|security| security.windows_options.is_some()) {
        issues.forbidden("spec.securityContext.windowsOptions", "cannot be set on a Linux node");
    }
    if let Some(os) = spec.os.as_ref().filter(|os| os.name != "linux") {
        issues.unsupported("spec.os.name", &os.name, &["linux"]);
    }
    each_container(spec, |path, init, container| refuse_container(path, init, container, issues));
}

/// Calls `f` with path, "is an init container" and container.
pub(super) fn each_container(spec: &PodSpec, mut f: impl FnMut(&str, bool, &Container)) {
    for (i, container) in spec.init_containers.iter().flatten().enumerate() {
        f(&format!("spec.initContainers[{i}]"), true, container);
    }
    for (i, container) in spec.containers.iter().enumerate() {
        f(&format!("spec.containers[{i}]"), false, container);
    }
}

fn refuse_container(path: &str, init: bool, container: &Container, issues: &mut Issues) {
    let mut no = |field: &str| issues.forbidden(&format!("{path}.{field}"), NOT_YET);
    if container.volume_devices.as_ref().is_some_and(|d| !d.is_empty()) {
        no("volumeDevices");
    }
    if container.restart_policy_rules.as_ref().is_some_and(|r| !r.is_empty()) {
        no("restartPolicyRules");
    }
    if container.restart_policy.as_deref().is_some_and(|p| !init || p != "Always") {
        no("restartPolicy");
    }
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if mount.bind_mount_options.as_ref().is_some_and(|o| !o.is_empty()) {
            no(&format!("volumeMounts[{i}].bindMountOptions"));
        }
    }
    if container.security_context.as_ref().is_some_and(|s| s.windows_options.is_some()) {
        issues.forbidden(&format!("{path}.securityContext.windowsOptions"), "cannot be set on a Linux node");
    }
}

fn refuse_volume(path: &str, volume: &Volume, issues: &mut Issues) {
    if let Some(empty) = &volume.empty_dir {
        if empty.medium.as_deref().is_some_and(|m| m.starts_with("HugePages")) {
            issues.forbidden(&format!("{path}.emptyDir.medium"), NOT_YET);
        }
        return;
    }
    if volume.host_path.is_some() {
        return;
    }
    let kind = kind(volume);
    issues.forbidden(&format!("{path}.{kind}"), &format!("volume {:?} is of a kind {NOT_YET}", volume.name));
}

/// Field name of the volume's source.
fn kind(volume: &Volume) -> String {
    let fields = serde_json::to_value(volume).unwrap_or_default();
    let names = fields.as_object().into_iter().flat_map(|o| o.keys()).filter(|k| *k != "name");
    names.min().cloned().unwrap_or_else(|| "source".to_owned())
}

/// What is accepted but not acted on yet, one short phrase each, sorted.
pub(super) fn left_out(pod: &Pod) -> Vec<&'static str> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let mut found = std::collections::BTreeSet::new();
    each_container(spec, |_, _, container| {
        if container.liveness_probe.is_some()
            || container.readiness_probe.is_some()
            || container.startup_probe.is_some()
        {
            found.insert("probes");
        }
        if let Some(lifecycle) = &container.lifecycle {
            if lifecycle.post_start.is_some() || lifecycle.pre_stop.is_some() {
                found.insert("lifecycle hooks");
            }
            if lifecycle.stop_signal.is_some() {
                found.insert("stopSignal");
            }
        }
        if let Some(resources) = &container.resources
            && resources.limits.iter().flatten().any(|(name, _)| name.contains('/'))
        {
            found.insert("extended resources");
        }
    });
    let some = |list: Option<usize>| list.is_some_and(|len| len > 0);
    if spec.affinity.is_some() || spec.node_selector.as_ref().is_some_and(|s| !s.is_empty()) {
        found.insert("node selection");
    }
    if some(spec.readiness_gates.as_ref().map(Vec::len)) {
        found.insert("readiness gates");
    }
    if spec.scheduling_group.is_some() {
        found.insert("schedulingGroup");
    }
    if some(spec.eviction_responders.as_ref().map(Vec::len)) {
        found.insert("evictionResponders");
    }
    for volume in spec.volumes.iter().flatten() {
        if let Some(empty) = &volume.empty_dir {
            if empty.size_limit.is_some() && empty.medium.as_deref().is_none_or(str::is_empty) {
                found.insert("sizeLimit of emptyDir on disk");
            }
            if empty.mode.is_some() {
                found.insert("mode of emptyDir");
            }
        }
    }
    found.into_iter().collect()
}
