//! What makes a manifest's pod a static pod: name, namespace, uid, node, annotations, toleration; and what it may not
//! refer to.

use crate::Origin;
use components::edge::sources::Source;
use components::fnv::fnv1a_128;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Toleration, Volume};

/// Annotation with the pod's uid, by which a mirror pod is matched.
const HASH: &str = "kubernetes.io/config.hash";
/// Annotation with the source.
const SOURCE: &str = "kubernetes.io/config.source";
/// Annotation with the time the pod was first seen.
const SEEN: &str = "kubernetes.io/config.seen";

/// Turns the decoded and defaulted `pod` into this node's static pod.
pub(super) fn apply(pod: &mut Pod, origin: &Origin<'_>) {
    let meta = &mut pod.metadata;
    if meta.uid.as_deref().is_none_or(str::is_empty) {
        meta.uid = Some(generated_uid(origin));
    }
    if let Some(name) = meta.name.as_mut().filter(|name| !name.is_empty()) {
        name.push('-');
        name.push_str(origin.node_name);
    }
    if meta.namespace.as_deref().is_none_or(str::is_empty) {
        meta.namespace = Some("default".to_owned());
    }
    let annotations = meta.annotations.get_or_insert_default();
    annotations.insert(HASH.to_owned(), meta.uid.clone().unwrap_or_default());
    annotations.insert(SOURCE.to_owned(), origin.source.annotation().to_owned());
    annotations.insert(SEEN.to_owned(), origin.seen.rfc3339_nano());
    let spec = pod.spec.get_or_insert_default();
    spec.node_name = Some(origin.node_name.to_owned());
    if origin.source == Source::File {
        tolerate_everything(spec);
    }
}

/// Marks a pod of the API server as the kubelet does in its own memory.
pub(super) fn mark(pod: &mut Pod, origin: &Origin<'_>) {
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(SOURCE.to_owned(), origin.source.annotation().to_owned());
    annotations.insert(SEEN.to_owned(), origin.seen.rfc3339_nano());
}

/// 32 hex digits over the content and where it lies, so that a changed manifest is a new pod.
fn generated_uid(origin: &Origin<'_>) -> String {
    let mut bytes = origin.digest.to_be_bytes().to_vec();
    match origin.source {
        Source::Http => bytes.extend_from_slice(format!("url:{}", origin.path).as_bytes()),
        Source::File | Source::Api => {
            bytes.extend_from_slice(format!("host:{}file:{}", origin.node_name, origin.path).as_bytes());
        }
    }
    format!("{:032x}", fnv1a_128(&bytes))
}

/// A static pod of this node is not driven away by the node's taints.
fn tolerate_everything(spec: &mut PodSpec) {
    let all = Toleration {
        operator: Some("Exists".to_owned()),
        effect: Some("NoExecute".to_owned()),
        ..Toleration::default()
    };
    let tolerations = spec.tolerations.get_or_insert_default();
    if !tolerations.contains(&all) {
        tolerations.push(all);
    }
}

/// The first kind of API object the pod refers to, in the API's plural form. A static pod must do without.
pub(super) fn api_reference(spec: &PodSpec) -> Option<&'static str> {
    if spec.service_account_name.is_some() {
        return Some("serviceaccounts");
    }
    let containers = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let volumes = || spec.volumes.iter().flatten();
    if spec.image_pull_secrets.as_ref().is_some_and(|s| !s.is_empty())
        || containers().any(env_uses_secret)
        || volumes().any(volume_uses_secret)
    {
        return Some("secrets");
    }
    if containers().any(env_uses_config_map) || volumes().any(volume_uses_config_map) {
        return Some("configmaps");
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        return Some("resourceclaims");
    }
    volumes().find_map(volume_reference)
}

fn env_uses_secret(container: &Container) -> bool {
    container.env_from.iter().flatten().any(|from| from.secret_ref.is_some())
        || value_sources(container).any(|from| from.secret_key_ref.is_some())
}

fn env_uses_config_map(container: &Container) -> bool {
    container.env_from.iter().flatten().any(|from| from.config_map_ref.is_some())
        || value_sources(container).any(|from| from.config_map_key_ref.is_some())
}

fn value_sources(container: &Container) -> impl Iterator<Item = &k8s_openapi::api::core::v1::EnvVarSource> {
    container.env.iter().flatten().filter_map(|env| env.value_from.as_ref())
}

fn projections(volume: &Volume) -> impl Iterator<Item = &k8s_openapi::api::core::v1::VolumeProjection> {
    volume.projected.iter().flat_map(|projected| projected.sources.iter().flatten())
}

fn volume_uses_secret(volume: &Volume) -> bool {
    volume.secret.is_some()
        || projections(volume).any(|source| source.secret.is_some())
        || volume.azure_file.is_some()
        || volume.cephfs.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.cinder.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.flex_volume.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.rbd.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.scale_io.is_some()
        || volume.iscsi.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.storageos.as_ref().is_some_and(|v| v.secret_ref.is_some())
        || volume.csi.as_ref().is_some_and(|v| v.node_publish_secret_ref.is_some())
}

fn volume_uses_config_map(volume: &Volume) -> bool {
    volume.config_map.is_some() || projections(volume).any(|source| source.config_map.is_some())
}

fn volume_reference(volume: &Volume) -> Option<&'static str> {
    if volume.persistent_volume_claim.is_some() || volume.ephemeral.is_some() {
        return Some("persistentvolumeclaims");
    }
    if volume.csi.is_some() {
        return Some("csidrivers");
    }
    if volume.glusterfs.is_some() {
        return Some("endpoints");
    }
    projections(volume).find_map(|source| {
        if source.service_account_token.is_some() {
            Some("serviceaccounts")
        } else if source.cluster_trust_bundle.is_some() {
            Some("clustertrustbundles")
        } else {
            source.pod_certificate.as_ref().map(|_| "podcertificates")
        }
    })
}
