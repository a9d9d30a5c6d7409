//! From a volume of a spec to the one piece of work that sets it up on this host. Reads only its arguments.

use super::content::{self, Origin};
use crate::runtime::cgroups::memory_limit;
use components::edge::host::{Medium, OwnPlace, VolumeSetup};
use components::node::{Machine, NodeConfig};
use components::spec::{FilesKind, PodSpec, Volume, VolumeSource};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Where a volume lies on this host; `None` for one that the runtime brings.
pub(super) fn host_path(spec: &PodSpec, volume: &Volume, config: &NodeConfig) -> Option<String> {
    if let VolumeSource::HostPath { path, .. } = &volume.source {
        return Some(path.clone());
    }
    Some(config.volume_dir(spec.uid.as_str(), volume.source.plugin()?, &volume.name))
}

/// Where the bind mount of a sub-path lies (contract 2).
pub(super) fn sub_path_target(
    spec: &PodSpec,
    volume: &str,
    container: &str,
    index: usize,
    config: &NodeConfig,
) -> String {
    format!("{}/volume-subpaths/{volume}/{container}/{index}", config.pod_dir(spec.uid.as_str()))
}

/// What sets the volume up; `None` when there is nothing to do.
///
/// # Errors
/// Why it can not be set up, whatever is tried.
pub(crate) fn of_volume(spec: &PodSpec, volume: &Volume, origin: Origin<'_>) -> Result<Option<VolumeSetup>, String> {
    let Origin { config, machine, .. } = origin;
    let name = Arc::clone(&volume.name);
    let Some(path) = host_path(spec, volume, config) else { return Ok(None) };
    // A written volume is an empty one inside, which the kubelet keeps under another name.
    let inner = if matches!(volume.source, VolumeSource::Files { .. }) { "wrapped_" } else { "" };
    let marker = format!("{}/plugins/kubernetes.io~empty-dir/{inner}{name}", config.pod_dir(spec.uid.as_str()));
    let place = |path| OwnPlace {
        path,
        marker,
        group: spec.security.fs_group,
        only_on_mismatch: spec.security.fs_group_on_mismatch,
    };
    Ok(Some(match &volume.source {
        VolumeSource::HostPath { kind, .. } => VolumeSetup::HostPath { name, path, kind: *kind },
        VolumeSource::EmptyDir { .. } => VolumeSetup::EmptyDir { name, place: place(path), medium: Medium::Disk },
        VolumeSource::EmptyDirMemory { size_bytes } => {
            let medium = Medium::Memory { size_bytes: memory_size(spec, config, machine, *size_bytes) };
            VolumeSetup::EmptyDir { name, place: place(path), medium }
        }
        VolumeSource::EmptyDirHugePages { page_bytes } => {
            let medium = Medium::HugePages { page_bytes: page_size(spec, *page_bytes)? };
            VolumeSetup::EmptyDir { name, place: place(path), medium }
        }
        VolumeSource::Files { kind, sources } => {
            let content = content::files(sources, spec, origin)?;
            VolumeSetup::Files {
                name,
                place: place(path),
                size_bytes: memory_size(spec, config, machine, None),
                files: content.files,
                on_disk: *kind == FilesKind::ConfigMap,
                versions: content.versions,
            }
        }
        VolumeSource::Image { .. } => return Ok(None),
    }))
}

/// The smallest of what the node has, what the pod may use, and what the volume asks for.
fn memory_size(spec: &PodSpec, config: &NodeConfig, machine: &Machine, asked: Option<i64>) -> i64 {
    let known = Some(config.limits.allocatable_memory_bytes);
    [memory_limit(spec), asked, known]
        .into_iter()
        .flatten()
        .filter(|bytes| *bytes > 0)
        .fold(machine.memory_bytes, i64::min)
}

/// The page size that the medium names, or the one size that the pod's containers request.
fn page_size(spec: &PodSpec, named: Option<i64>) -> Result<i64, String> {
    let own = spec.resources.iter().map(|all| &all.requests);
    let requests = own.chain(spec.containers.iter().map(|c| &c.resources.requests));
    let names: BTreeSet<&str> = requests.flat_map(|list| list.hugepages.keys()).map(String::as_str).collect();
    let sizes: BTreeSet<i64> = names
        .into_iter()
        .filter_map(|name| components::quantity::Quantity::parse(name.strip_prefix("hugepages-")?).ok())
        .map(|size| size.value())
        .collect();
    match (named, sizes.len()) {
        (Some(page), _) if sizes.contains(&page) => Ok(page),
        (Some(page), _) => Err(format!(
            "hugePages storage of page size {page} requested, but there is no resource request for huge pages of that size"
        )),
        (None, 0) => Err("hugePages storage requested, but there is no resource request for huge pages.".to_owned()),
        (None, 1) => Ok(sizes.first().copied().unwrap_or_default()),
        (None, _) => Err("medium: HugePages can't be used if container requests multiple huge page sizes".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn volume(source: VolumeSource) -> Volume {
        Volume { name: "v".into(), source }
    }

    #[track_caller]
    fn check_size(pod_limit: Option<i64>, asked: Option<i64>, expect: i64) {
        let mut spec = fixtures::spec("always a");
        spec.containers[0].resources.limits.memory_bytes = pod_limit;
        spec.qos = components::spec::QosClass::Burstable;
        let machine = Machine { memory_bytes: 1000, ..Machine::default() };
        assert_eq!(memory_size(&spec, &fixtures::node(), &machine, asked), expect);
    }

    #[test]
    fn memory_is_bounded_by_the_least_of_volume_pod_and_node() {
        check_size(None, None, 1000);
        check_size(None, Some(2000), 1000);
        check_size(None, Some(10), 10);
        check_size(Some(100), None, 100);
        check_size(Some(100), Some(200), 100);
        check_size(Some(100), Some(0), 100);
    }

    #[test]
    fn huge_pages_need_one_size() {
        let mut spec = fixtures::spec("always a b");
        assert!(page_size(&spec, None).unwrap_err().contains("no resource request"));
        assert!(page_size(&spec, Some(2 << 20)).unwrap_err().contains("no resource request"));
        spec.containers[0].resources.requests.hugepages.insert("hugepages-2Mi".to_owned(), 4 << 20);
        assert_eq!(page_size(&spec, None), Ok(2 << 20));
        assert_eq!(page_size(&spec, Some(2 << 20)), Ok(2 << 20));
        assert!(page_size(&spec, Some(1 << 30)).is_err());
        spec.containers[1].resources.requests.hugepages.insert("hugepages-1Gi".to_owned(), 1 << 30);
        assert!(page_size(&spec, None).unwrap_err().contains("multiple huge page sizes"));
        assert_eq!(page_size(&spec, Some(1 << 30)), Ok(1 << 30));
    }

    #[test]
    fn volumes_lie_where_the_kubelet_puts_them() {
        let spec = fixtures::spec("always a");
        let config = fixtures::node();
        let at = |source| host_path(&spec, &volume(source), &config);
        let root = &config.root_dir;
        assert_eq!(
            at(VolumeSource::EmptyDir { size_bytes: None }),
            Some(format!("{root}/pods/uid/volumes/kubernetes.io~empty-dir/v"))
        );
        let files = |kind| VolumeSource::Files { kind, sources: Vec::new() };
        for (kind, name) in [
            (FilesKind::DownwardApi, "downward-api"),
            (FilesKind::Projected, "projected"),
            (FilesKind::ConfigMap, "configmap"),
            (FilesKind::Secret, "secret"),
        ] {
            assert_eq!(at(files(kind)), Some(format!("{root}/pods/uid/volumes/kubernetes.io~{name}/v")));
        }
        let (machine, objects, refs) =
            (Machine::default(), fixtures::objects(), components::objects::PodRefs::default());
        let origin = Origin { config: &config, machine: &machine, objects: &objects, refs: &refs };
        let made = of_volume(&spec, &volume(files(FilesKind::DownwardApi)), origin).unwrap().unwrap();
        let VolumeSetup::Files { place, on_disk: false, .. } = made else { panic!("{made:?}") };
        assert_eq!(place.marker, format!("{root}/pods/uid/plugins/kubernetes.io~empty-dir/wrapped_v"));
    }
}
