//! The rules of the API server for a v1 Pod, as far as they touch what a static pod may hold. All breaches are listed.

mod amounts;
mod certificates;
mod containers;
mod handlers;
mod names;
mod pod;
mod projections;
mod restarts;
mod security;
mod volumes;

pub(super) use self::security::dotted;

use crate::issues::Issues;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Total size of all annotations that the API accepts.
const MAX_ANNOTATIONS: usize = 256 * 1024;
/// Uids become directory names, so more than the API's own uids is refused.
const MAX_UID: usize = 128;

/// Adds everything that is wrong with the defaulted `pod`. The node name was appended to the pod's name before.
pub(super) fn check(pod: &Pod, issues: &mut Issues) {
    check_meta(&pod.metadata, issues);
    match &pod.spec {
        Some(spec) => pod::check(spec, issues),
        None => issues.required("spec", ""),
    }
}

fn check_meta(meta: &ObjectMeta, issues: &mut Issues) {
    match meta.name.as_deref().unwrap_or_default() {
        "" => issues.required("metadata.name", ""),
        name => {
            if let Some(wrong) = names::subdomain(name) {
                issues.invalid("metadata.name", name, wrong);
            }
        }
    }
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    if let Some(wrong) = names::label(namespace) {
        issues.invalid("metadata.namespace", namespace, wrong);
    }
    let uid = meta.uid.as_deref().unwrap_or_default();
    if !uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') || uid.len() > MAX_UID {
        issues.invalid("metadata.uid", uid, "must be at most 128 letters, digits or '-'");
    }
    for (key, value) in meta.labels.iter().flatten() {
        check_label("metadata.labels", key, value, issues);
    }
    let mut size = 0;
    for (key, value) in meta.annotations.iter().flatten() {
        size += key.len() + value.len();
        if let Some(wrong) = names::qualified(&key.to_ascii_lowercase()) {
            issues.invalid("metadata.annotations", key, wrong);
        }
    }
    if size > MAX_ANNOTATIONS {
        issues.invalid("metadata.annotations", size, "must have at most 262144 bytes in all");
    }
}

/// Checks one label or selector entry.
fn check_label(path: &str, key: &str, value: &str, issues: &mut Issues) {
    if let Some(wrong) = names::qualified(key) {
        issues.invalid(path, key, wrong);
    }
    if let Some(wrong) = names::label_value(value) {
        issues.invalid(path, value, wrong);
    }
}
