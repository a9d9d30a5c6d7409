//! Rules of volumes and of how containers mount them.

use super::pod::one_of;
use super::{names, projections};
use crate::issues::Issues;
use crate::resources::parse;
use components::quantity::Quantity;
use k8s_openapi::api::core::v1::{Container, Volume, VolumeMount};
use std::collections::BTreeSet;

const HOST_PATH_TYPES: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
const MEDIA: [&str; 3] = ["", "Memory", "HugePages"];

/// Checks all volumes and returns their names. `containers` are the names of the pod's containers.
pub(super) fn check<'a>(
    volumes: &'a [Volume],
    containers: &BTreeSet<String>,
    issues: &mut Issues,
) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (i, volume) in volumes.iter().enumerate() {
        let path = format!("spec.volumes[{i}]");
        if volume.name.is_empty() {
            issues.required(&format!("{path}.name"), "");
        } else if let Some(wrong) = names::label(&volume.name) {
            issues.invalid(&format!("{path}.name"), &volume.name, wrong);
        } else if !seen.insert(volume.name.as_str()) {
            issues.duplicate(&format!("{path}.name"), &volume.name);
        }
        check_source(&path, volume, issues);
        projections::check(&path, volume, containers, issues);
    }
    seen
}

fn check_source(path: &str, volume: &Volume, issues: &mut Issues) {
    if source_count(volume) > 1 {
        issues.forbidden(path, "may not have more than one volume type");
    }
    if let Some(empty) = &volume.empty_dir {
        let medium = empty.medium.as_deref().unwrap_or_default();
        let page = medium.strip_prefix("HugePages-");
        if page.is_some_and(|size| parse(size).is_none_or(|size| size.value() <= 0)) {
            issues.invalid(&format!("{path}.emptyDir.medium"), medium, "must name a page size, such as HugePages-2Mi");
        } else if page.is_none() && !MEDIA.contains(&medium) {
            issues.unsupported(&format!("{path}.emptyDir.medium"), medium, &MEDIA);
        }
        if let Some(limit) = &empty.size_limit
            && parse(&limit.0).is_none_or(Quantity::is_negative)
        {
            issues.invalid(&format!("{path}.emptyDir.sizeLimit"), &limit.0, "must be a quantity not below 0");
        }
    }
    if let Some(host) = &volume.host_path {
        let field = format!("{path}.hostPath.path");
        if host.path.is_empty() {
            issues.required(&field, "");
        } else if goes_up(&host.path) {
            issues.invalid(&field, &host.path, "must not contain '..'");
        } else if !host.path.starts_with('/') {
            issues.invalid(&field, &host.path, "must be an absolute path");
        } else if host.path.contains('\0') {
            issues.invalid(&field, &host.path, "must not contain a null character");
        }
        let kind = host.type_.as_deref().unwrap_or_default();
        if !HOST_PATH_TYPES.contains(&kind) {
            one_of(&format!("{path}.hostPath.type"), Some(kind), &HOST_PATH_TYPES[1..], issues);
        }
    }
}

fn source_count(volume: &Volume) -> usize {
    let fields = serde_json::to_value(volume).unwrap_or_default();
    fields.as_object().map_or(0, |fields| fields.keys().filter(|key| *key != "name").count())
}

/// True when a path has a `..` element.
pub(super) fn goes_up(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// Checks the mounts of one container against the pod's volumes.
pub(super) fn check_mounts(path: &str, container: &Container, volumes: &BTreeSet<&str>, issues: &mut Issues) {
    let mut paths = BTreeSet::new();
    for (i, mount) in container.volume_mounts.iter().flatten().enumerate() {
        let path = format!("{path}.volumeMounts[{i}]");
        if mount.name.is_empty() {
            issues.required(&format!("{path}.name"), "");
        } else if !volumes.contains(mount.name.as_str()) {
            issues.not_found(&format!("{path}.name"), &mount.name);
        }
        let target = mount.mount_path.as_str();
        if target.is_empty() {
            issues.required(&format!("{path}.mountPath"), "");
        } else if target.contains([':', '\0']) {
            issues.invalid(&format!("{path}.mountPath"), target, "must not contain ':'");
        } else if !paths.insert(target) {
            issues.invalid(&format!("{path}.mountPath"), target, "must be unique");
        }
        check_sub_paths(&path, mount, issues);
        check_propagation(&path, container, mount, issues);
    }
}

fn check_sub_paths(path: &str, mount: &VolumeMount, issues: &mut Issues) {
    let plain = mount.sub_path.as_deref().unwrap_or_default();
    let expr = mount.sub_path_expr.as_deref().unwrap_or_default();
    if !plain.is_empty() && !expr.is_empty() {
        issues.invalid(&format!("{path}.subPathExpr"), expr, "must not be set together with subPath");
    }
    for (field, sub) in [("subPath", plain), ("subPathExpr", expr)] {
        if sub.starts_with('/') {
            issues.invalid(&format!("{path}.{field}"), sub, "must be a relative path");
        } else if goes_up(sub) {
            issues.invalid(&format!("{path}.{field}"), sub, "must not contain '..'");
        }
    }
}

fn check_propagation(path: &str, container: &Container, mount: &VolumeMount, issues: &mut Issues) {
    let privileged = container.security_context.as_ref().and_then(|s| s.privileged) == Some(true);
    let propagation = mount.mount_propagation.as_deref();
    if let Some(value) = propagation {
        one_of(&format!("{path}.mountPropagation"), Some(value), &["Bidirectional", "HostToContainer", "None"], issues);
        if value == "Bidirectional" && !privileged {
            issues.forbidden(&format!("{path}.mountPropagation"), "Bidirectional needs a privileged container");
        }
    }
    let Some(recursive) = mount.recursive_read_only.as_deref() else { return };
    let path = format!("{path}.recursiveReadOnly");
    one_of(&path, Some(recursive), &["Disabled", "Enabled", "IfPossible"], issues);
    if matches!(recursive, "Enabled" | "IfPossible") {
        if mount.read_only != Some(true) {
            issues.forbidden(&path, "may only be set when readOnly is set");
        }
        if !matches!(propagation, None | Some("None")) {
            issues.forbidden(&path, "may only be set when mountPropagation is unset or None");
        }
    }
}
