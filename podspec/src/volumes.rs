//! Volumes: defaults, and the compact form that decisions use.

use crate::convert::resource_source;
use crate::image;
use crate::resources::parse;
use components::edge::host::HostPathKind;
use components::quantity::Quantity;
use components::spec::{EnvSource, PullPolicy, Volume, VolumeFile, VolumeSource};
use k8s_openapi::api::core::v1 as api;
use std::sync::Arc;

/// Mode of files for which none is set.
const DEFAULT_MODE: i32 = 0o644;

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
    if let Some(projected) = &mut volume.projected {
        projected.default_mode.get_or_insert(DEFAULT_MODE);
        for source in projected.sources.iter_mut().flatten() {
            if let Some(source) = &mut source.downward_api {
                default_items(source.items.as_mut());
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
        let items = source.items.iter().flatten().map(|item| file(item, source.default_mode)).collect();
        VolumeSource::Files { projected: false, items }
    } else if let Some(projected) = &volume.projected {
        let sources = projected.sources.iter().flatten().filter_map(|source| source.downward_api.as_ref());
        let items = sources.flat_map(|source| source.items.iter().flatten());
        VolumeSource::Files { projected: true, items: items.map(|item| file(item, projected.default_mode)).collect() }
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
    let mode = item.mode.or(default_mode).unwrap_or(DEFAULT_MODE);
    let field = item.field_ref.as_ref().map(|field| EnvSource::Field(field.field_path.clone()));
    let resource = item.resource_field_ref.as_ref().map(|resource| resource_source(resource, ""));
    VolumeFile {
        path: item.path.clone(),
        mode: u32::try_from(mode).unwrap_or_default(),
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
