//! What this version of ticklet does not act on yet: refused where running without it would be wrong or unsafe, named in
//! a warning where the pod still does its work.

use crate::issues::Issues;
use components::podcerts::KeyType;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Probe, Volume};

/// Ends each refusal of this file.
const NOT_YET: &str = "not supported by this version of ticklet yet";

/// Adds a refusal for everything that must not be left out.
pub(super) fn refuse(spec: &PodSpec, issues: &mut Issues) {
    if let Some(os) = spec.os.as_ref().filter(|os| os.name != "linux") {
        issues.unsupported("spec.os.name", &os.name, &["linux"]);
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|c| !c.is_empty()) {
        issues.forbidden("spec.ephemeralContainers", "cannot be set in a manifest");
    }
    refuse_bound(spec, issues);
}

/// The same for a pod of the API server, apart from what its admission has reasons of its own for.
pub(super) fn refuse_bound(spec: &PodSpec, issues: &mut Issues) {
    for (i, volume) in spec.volumes.iter().flatten().enumerate() {
        refuse_volume(&format!("spec.volumes[{i}]"), volume, issues);
    }
    if spec.security_context.as_ref().is_some_and(|security| security.windows_options.is_some()) {
        issues.forbidden("spec.securityContext.windowsOptions", "cannot be set on a Linux node");
    }
    each_container(spec, |path, _, container| refuse_container(path, container, issues));
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

fn refuse_container(path: &str, container: &Container, issues: &mut Issues) {
    let mut no = |field: &str| issues.forbidden(&format!("{path}.{field}"), NOT_YET);
    if container.volume_devices.as_ref().is_some_and(|d| !d.is_empty()) {
        no("volumeDevices");
    }
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        if mount.bind_mount_options.as_ref().is_some_and(|o| !o.is_empty()) {
            no(&format!("volumeMounts[{i}].bindMountOptions"));
        }
    }
    for (name, probe) in [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ] {
        refuse_probe(&format!("{path}.{name}"), probe.as_ref(), issues);
    }
    if container.security_context.as_ref().is_some_and(|s| s.windows_options.is_some()) {
        issues.forbidden(&format!("{path}.securityContext.windowsOptions"), "cannot be set on a Linux node");
    }
}

/// Alpha fields whose gates are off: the API server would drop them, and a probe without them asks something else.
fn refuse_probe(path: &str, probe: Option<&Probe>, issues: &mut Issues) {
    let Some(probe) = probe else { return };
    let set = |field: Option<&String>, plain: &[&str]| field.is_some_and(|f| !plain.contains(&f.as_str()));
    if set(probe.http_get.as_ref().and_then(|get| get.protocol.as_ref()), &["", "HTTP1"]) {
        issues.forbidden(&format!("{path}.httpGet.protocol"), NOT_YET);
    }
    if set(probe.grpc.as_ref().and_then(|grpc| grpc.mode.as_ref()), &["", "Plaintext"]) {
        issues.forbidden(&format!("{path}.grpc.mode"), NOT_YET);
    }
}

fn refuse_volume(path: &str, volume: &Volume, issues: &mut Issues) {
    let here = volume.empty_dir.is_some() || volume.host_path.is_some() || volume.image.is_some();
    if here || volume.downward_api.is_some() || volume.config_map.is_some() || volume.secret.is_some() {
        return;
    }
    if let Some(projected) = &volume.projected {
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            let unknown = source.pod_certificate.as_ref().filter(|it| KeyType::parse(&it.key_type).is_none());
            if let Some(certificate) = unknown {
                let path = format!("{path}.projected.sources[{i}].podCertificate.keyType");
                issues.unsupported(&path, &certificate.key_type, &KeyType::NAMES);
            }
        }
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
        if let Some(resources) = &container.resources
            && resources.limits.iter().flatten().any(|(name, _)| name.contains('/'))
        {
            found.insert("extended resources");
        }
    });
    let some = |list: Option<usize>| list.is_some_and(|len| len > 0);
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
        let items = volume.downward_api.iter().flat_map(|source| source.items.iter().flatten());
        let default = volume.downward_api.as_ref().and_then(|source| source.default_user);
        let projected = volume.projected.as_ref().and_then(|source| source.default_user);
        if default.or(projected).is_some() || items.into_iter().any(|item| item.user.is_some()) {
            found.insert("user of volume files");
        }
    }
    found.into_iter().collect()
}
