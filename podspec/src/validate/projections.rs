//! Rules of volumes whose files are written on the node: `downwardAPI` and `projected`; and of `image`.

use super::certificates;
use super::containers::{check_resource_ref, is_map_key};
use super::pod::one_of;
use super::volumes::goes_up;
use crate::issues::Issues;
use k8s_openapi::api::core::v1::{ClusterTrustBundleProjection, DownwardAPIVolumeFile, ImageVolumeSource, Volume};
use std::collections::BTreeSet;

const FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const MAX_MODE: i32 = 0o777;

/// Checks the sources of a volume that are of these kinds. `containers` are the pod's containers by name.
pub(super) fn check(path: &str, volume: &Volume, containers: &BTreeSet<String>, issues: &mut Issues) {
    if let Some(source) = &volume.downward_api {
        let path = format!("{path}.downwardAPI");
        check_mode(&format!("{path}.defaultMode"), source.default_mode, issues);
        let mut paths = BTreeSet::new();
        check_items(&path, source.items.as_deref(), containers, &mut paths, issues);
    }
    if let Some(projected) = &volume.projected {
        let path = format!("{path}.projected");
        check_mode(&format!("{path}.defaultMode"), projected.default_mode, issues);
        let mut paths = BTreeSet::new();
        for (i, source) in projected.sources.iter().flatten().enumerate() {
            let path = format!("{path}.sources[{i}]");
            let fields = serde_json::to_value(source).unwrap_or_default();
            match fields.as_object().map_or(0, serde_json::Map::len) {
                0 => issues.required(&path, "must name a source"),
                1 => {}
                _ => issues.forbidden(&path, "may not have more than one source"),
            }
            if let Some(bundle) = &source.cluster_trust_bundle {
                check_bundle(&format!("{path}.clusterTrustBundle"), bundle, &mut paths, issues);
            }
            if let Some(source) = &source.pod_certificate {
                certificates::check(&format!("{path}.podCertificate"), source, &mut paths, issues);
            }
            if let Some(source) = &source.downward_api {
                let path = format!("{path}.downwardAPI");
                check_items(&path, source.items.as_deref(), containers, &mut paths, issues);
            }
        }
    }
    if let Some(image) = &volume.image {
        check_image(&format!("{path}.image"), image, issues);
    }
}

fn check_mode(path: &str, mode: Option<i32>, issues: &mut Issues) {
    if let Some(mode) = mode.filter(|mode| !(0..=MAX_MODE).contains(mode)) {
        issues.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn check_items(
    path: &str,
    items: Option<&[DownwardAPIVolumeFile]>,
    containers: &BTreeSet<String>,
    paths: &mut BTreeSet<String>,
    issues: &mut Issues,
) {
    for (i, item) in items.unwrap_or_default().iter().enumerate() {
        let path = format!("{path}.items[{i}]");
        check_new_path(&format!("{path}.path"), &item.path, paths, issues);
        check_mode(&format!("{path}.mode"), item.mode, issues);
        match (&item.field_ref, &item.resource_field_ref) {
            (None, None) => issues.required(&path, "must name fieldRef or resourceFieldRef"),
            (Some(_), Some(_)) => {
                issues.invalid(&path, "", "fieldRef and resourceFieldRef can not be specified simultaneously");
            }
            (Some(field), None) => {
                let name = field.field_path.as_str();
                if !(FIELDS.contains(&name) || is_map_key(name)) {
                    issues.unsupported(&format!("{path}.fieldRef.fieldPath"), name, &FIELDS);
                }
            }
            (None, Some(resource)) => {
                let path = format!("{path}.resourceFieldRef");
                if resource.container_name.as_deref().is_none_or(str::is_empty) {
                    issues.required(&format!("{path}.containerName"), "");
                }
                check_resource_ref(&path, resource, containers, issues);
            }
        }
    }
}

fn check_bundle(path: &str, bundle: &ClusterTrustBundleProjection, paths: &mut BTreeSet<String>, issues: &mut Issues) {
    let set = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    match (set(&bundle.name), set(&bundle.signer_name)) {
        (false, false) => issues.required(path, "either name or signerName must be specified"),
        (true, true) => issues.invalid(path, "", "only one of name and signerName may be used"),
        (true, false) if bundle.label_selector.is_some() => {
            issues.invalid(&format!("{path}.labelSelector"), "", "labelSelector must be unset if name is specified");
        }
        _ => {}
    }
    check_new_path(&format!("{path}.path"), &bundle.path, paths, issues);
}

/// Checks a path that no other source of the volume may write.
pub(super) fn check_new_path(path: &str, value: &str, paths: &mut BTreeSet<String>, issues: &mut Issues) {
    check_path(path, value, issues);
    if !value.is_empty() && !paths.insert(value.to_owned()) {
        issues.invalid(path, value, "conflicting duplicate paths");
    }
}

/// The names that begin with two dots are the writer's own.
fn check_path(path: &str, value: &str, issues: &mut Issues) {
    if value.is_empty() {
        issues.required(path, "");
    } else if value.starts_with('/') {
        issues.invalid(path, value, "must be a relative path");
    } else if goes_up(value) {
        issues.invalid(path, value, "must not contain '..'");
    } else if value.starts_with("..") {
        issues.invalid(path, value, "must not start with '..'");
    } else if value.contains('\0') || value.len() > 4096 || value.split('/').any(|part| part.len() > 255) {
        issues.invalid(path, value, "must be a path with at most 4096 bytes and 255 per element");
    }
}

fn check_image(path: &str, image: &ImageVolumeSource, issues: &mut Issues) {
    if image.reference.as_deref().is_none_or(str::is_empty) {
        issues.required(&format!("{path}.reference"), "");
    }
    let policies = ["Always", "IfNotPresent", "Never"];
    one_of(&format!("{path}.pullPolicy"), image.pull_policy.as_deref(), &policies, issues);
}
