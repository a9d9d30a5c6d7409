//! Volumes: defaults, and the compact form that decisions use.

use crate::convert::resource_source;
use crate::image;
use crate::resources::parse;
use components::edge::host::HostPathKind;
use components::objects::{ObjectKind, ObjectRef};
use components::podcerts::{CertificateSlot, CertificateSource, KeyType};
use components::quantity::Quantity;
use components::scheduling::Requirement;
use components::spec::{
    BundleSource, EnvSource, FileSource, FilesKind, KeyPath, PullPolicy, Volume, VolumeFile, VolumeSource,
};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use std::sync::Arc;

/// Mode of files for which none is set.
const DEFAULT_MODE: i32 = 0o644;
/// Life of a token for which none is set.
const TOKEN_SECONDS: i64 = 3600;

/// Fills in what is not set.
pub(super) fn default(volume: &mut api::Volume) {
    // Any field but the name would be a source.
    if *volume == (api::Volume { name: volume.name.clone(), ..api::Volume::default() }) {
        volume.empty_dir = Some(api::EmptyDirVolumeSource::default());
    }
    if let Some(path) = &mut volume.host_path {
        path.type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(DEFAULT_MODE);
        default_items(source.items.as_mut());
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(DEFAULT_MODE);
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(DEFAULT_MODE);
    }
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(DEFAULT_MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(source) = &mut source.downward_api {
                default_items(source.items.as_mut());
            }
            if let Some(source) = &mut source.service_account_token {
                source.expiration_seconds.get_or_insert(TOKEN_SECONDS);
            }
        }
    }
    if let Some(source) = &mut volume.image
        && source.pull_policy.as_deref().is_none_or(str::is_empty)
    {
        let latest = image::is_latest(source.reference.as_deref().unwrap_or_default());
        source.pull_policy = Some(if latest { "Always" } else { "IfNotPresent" }.to_owned());
    }
}

fn default_items(items: Option<&mut Vec<api::DownwardAPIVolumeFile>>) {
    for field in items.into_iter().flatten().filter_map(|item| item.field_ref.as_mut()) {
        if field.api_version.as_deref().is_none_or(str::is_empty) {
            field.api_version = Some("v1".to_owned());
        }
    }
}

/// The compact form of a volume that was found to be good.
pub(super) fn convert(volume: &api::Volume) -> Volume {
    let source = if let Some(host) = &volume.host_path {
        VolumeSource::HostPath { path: host.path.clone(), kind: host_path_kind(host.type_.as_deref()) }
    } else if let Some(source) = &volume.downward_api {
        let items = source.items.iter().flatten().map(|item| FileSource::Known(file(item, source.default_mode)));
        VolumeSource::Files { kind: FilesKind::DownwardApi, sources: items.collect() }
    } else if let Some(source) = &volume.config_map {
        let object = object(ObjectKind::ConfigMap, &source.name, source.optional);
        let sources = vec![keys(object, source.items.as_deref(), source.default_mode)];
        VolumeSource::Files { kind: FilesKind::ConfigMap, sources }
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let object = object(ObjectKind::Secret, name, source.optional);
        let sources = vec![keys(object, source.items.as_deref(), source.default_mode)];
        VolumeSource::Files { kind: FilesKind::Secret, sources }
    } else if let Some(projected) = &volume.projected {
        let sources = projected.sources.iter().flatten().enumerate();
        let sources = sources.flat_map(|(index, source)| {
            let source_index = u16::try_from(index).unwrap_or(u16::MAX);
            projection(source, &volume.name, source_index, projected.default_mode)
        });
        let sources = sources.collect();
        VolumeSource::Files { kind: FilesKind::Projected, sources }
    } else if let Some(source) = &volume.image {
        let reference = source.reference.clone().unwrap_or_default();
        VolumeSource::Image {
            to_pull: image::with_tag(&reference).into(),
            reference: reference.into(),
            pull_policy: pull_policy(source.pull_policy.as_deref()),
        }
    } else {
        volume.empty_dir.as_ref().map_or(VolumeSource::EmptyDir { size_bytes: None }, empty_dir)
    };
    Volume { name: Arc::from(volume.name.as_str()), source }
}

/// A reference to an object.
pub(super) fn object(kind: ObjectKind, name: &str, optional: Option<bool>) -> ObjectRef {
    ObjectRef { kind, name: name.into(), optional: optional == Some(true) }
}

fn keys(object: ObjectRef, items: Option<&[api::KeyToPath]>, default_mode: Option<i32>) -> FileSource {
    let item = |item: &api::KeyToPath| KeyPath {
        key: item.key.clone(),
        path: item.path.clone(),
        mode: bits(item.mode.or(default_mode)),
    };
    FileSource::Object { object, items: items.unwrap_or_default().iter().map(item).collect(), mode: bits(default_mode) }
}

/// What one source of a projected volume writes.
fn projection(source: &api::VolumeProjection, volume: &str, index: u16, mode: Option<i32>) -> Vec<FileSource> {
    if let Some(it) = &source.secret {
        return vec![keys(object(ObjectKind::Secret, &it.name, it.optional), it.items.as_deref(), mode)];
    }
    if let Some(it) = &source.config_map {
        return vec![keys(object(ObjectKind::ConfigMap, &it.name, it.optional), it.items.as_deref(), mode)];
    }
    if let Some(it) = &source.service_account_token {
        return vec![FileSource::Token {
            audience: it.audience.clone().unwrap_or_default(),
            seconds: it.expiration_seconds.unwrap_or(TOKEN_SECONDS),
            path: it.path.clone(),
            mode: bits(mode),
        }];
    }
    if let Some(it) = &source.cluster_trust_bundle {
        return vec![FileSource::Bundle(BundleSource {
            name: it.name.clone(),
            signer: it.signer_name.clone().unwrap_or_default(),
            labels: it.label_selector.as_ref().map(requirements),
            optional: it.optional == Some(true),
            path: it.path.clone(),
            mode: bits(mode),
        })];
    }
    if let Some(it) = &source.pod_certificate {
        let slot = CertificateSlot { volume: volume.into(), source: index };
        return vec![FileSource::Certificate(Box::new(certificate(it, slot, bits(mode))))];
    }
    let items = source.downward_api.iter().flat_map(|it| it.items.iter().flatten());
    items.map(|item| FileSource::Known(file(item, mode))).collect()
}

fn certificate(it: &api::PodCertificateProjection, slot: CertificateSlot, mode: u32) -> CertificateSource {
    CertificateSource {
        slot,
        signer: it.signer_name.clone(),
        // A type that is not known was refused.
        key_type: KeyType::parse(&it.key_type).unwrap_or(KeyType::EcdsaP256),
        seconds: it.max_expiration_seconds,
        annotations: it.user_annotations.clone().unwrap_or_default(),
        bundle_path: it.credential_bundle_path.clone().unwrap_or_default(),
        key_path: it.key_path.clone().unwrap_or_default(),
        chain_path: it.certificate_chain_path.clone().unwrap_or_default(),
        mode,
    }
}

/// What a label selector asks of labels; an empty one asks for nothing.
fn requirements(selector: &LabelSelector) -> Vec<Requirement> {
    let plain = selector.match_labels.iter().flatten().map(|(key, value)| Requirement {
        key: key.clone(),
        operator: "In".to_owned(),
        values: vec![value.clone()],
    });
    let expressions = selector.match_expressions.iter().flatten().map(|it| Requirement {
        key: it.key.clone(),
        operator: it.operator.clone(),
        values: it.values.clone().unwrap_or_default(),
    });
    plain.chain(expressions).collect()
}

fn bits(mode: Option<i32>) -> u32 {
    u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or_default()
}

fn empty_dir(empty: &api::EmptyDirVolumeSource) -> VolumeSource {
    // A limit of zero is no limit.
    let size = empty.size_limit.as_ref().and_then(|q| parse(&q.0)).map(Quantity::value).filter(|s| *s > 0);
    match empty.medium.as_deref().unwrap_or_default() {
        "Memory" => VolumeSource::EmptyDirMemory { size_bytes: size },
        medium if medium.starts_with("HugePages") => VolumeSource::EmptyDirHugePages {
            page_bytes: medium.strip_prefix("HugePages-").and_then(parse).map(Quantity::value),
        },
        _ => VolumeSource::EmptyDir { size_bytes: size },
    }
}

fn file(item: &api::DownwardAPIVolumeFile, default_mode: Option<i32>) -> VolumeFile {
    let field = item.field_ref.as_ref().map(|field| EnvSource::Field(field.field_path.clone()));
    let resource = item.resource_field_ref.as_ref().map(|resource| resource_source(resource, ""));
    VolumeFile {
        path: item.path.clone(),
        mode: bits(item.mode.or(default_mode)),
        // One of them is there: validated.
        source: field.or(resource).unwrap_or_else(|| EnvSource::Field(String::new())),
    }
}

/// `imagePullPolicy` of a container or of an image volume, after defaulting.
pub(super) fn pull_policy(policy: Option<&str>) -> PullPolicy {
    match policy {
        Some("Always") => PullPolicy::Always,
        Some("Never") => PullPolicy::Never,
        _ => PullPolicy::IfNotPresent,
    }
}

fn host_path_kind(kind: Option<&str>) -> HostPathKind {
    match kind.unwrap_or_default() {
        "DirectoryOrCreate" => HostPathKind::DirectoryOrCreate,
        "Directory" => HostPathKind::Directory,
        "FileOrCreate" => HostPathKind::FileOrCreate,
        "File" => HostPathKind::File,
        "Socket" => HostPathKind::Socket,
        "CharDevice" => HostPathKind::CharDevice,
        "BlockDevice" => HostPathKind::BlockDevice,
        _ => HostPathKind::Unset,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn sources(source: Value, expect_kind: FilesKind) -> Vec<FileSource> {
        let mut object = json!({"name": "v"});
        object.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
        let mut volume: api::Volume = serde_json::from_value(object).unwrap();
        default(&mut volume);
        let VolumeSource::Files { kind, sources } = convert(&volume).source else { panic!("{volume:?}") };
        assert_eq!(kind, expect_kind);
        sources
    }

    fn all(kind: ObjectKind, name: &str, mode: u32) -> FileSource {
        let object = ObjectRef { kind, name: name.into(), optional: false };
        FileSource::Object { object, items: Vec::new(), mode }
    }

    #[test]
    fn objects_are_named_with_their_keys_and_modes() {
        let got = sources(json!({"configMap": {"name": "c"}}), FilesKind::ConfigMap);
        assert_eq!(got, [all(ObjectKind::ConfigMap, "c", 0o644)]);
        let got = sources(
            json!({"secret": {"secretName": "s", "optional": true, "defaultMode": 256, "items":
                [{"key": "a", "path": "x/a"}, {"key": "b", "path": "b", "mode": 511}]}}),
            FilesKind::Secret,
        );
        let item = |key: &str, path: &str, mode| KeyPath { key: key.to_owned(), path: path.to_owned(), mode };
        let object = ObjectRef { kind: ObjectKind::Secret, name: "s".into(), optional: true };
        let items = vec![item("a", "x/a", 0o400), item("b", "b", 0o777)];
        assert_eq!(got, [FileSource::Object { object, items, mode: 0o400 }]);
    }

    #[test]
    fn the_volume_that_every_pod_has_is_understood() {
        let got = sources(
            json!({"projected": {"defaultMode": 420, "sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
                {"serviceAccountToken": {"audience": "vault", "path": "vault"}},
            ]}}),
            FilesKind::Projected,
        );
        let token = |audience: &str, seconds, path: &str| FileSource::Token {
            audience: audience.to_owned(),
            seconds,
            path: path.to_owned(),
            mode: 0o644,
        };
        assert_eq!((&got[0], &got[3]), (&token("", 3607, "token"), &token("vault", 3600, "vault")));
        assert!(matches!(&got[1], FileSource::Object { object, items, .. }
            if &*object.name == "kube-root-ca.crt" && items[0].path == "ca.crt"));
        assert!(matches!(&got[2], FileSource::Known(file) if file.path == "namespace"));
    }
}
