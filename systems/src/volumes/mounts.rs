//! Volume mounts of one container: what the runtime is told, and which parts of volumes have to be bound before.
//! Reads only its arguments.

use super::setup;
use crate::expand::expand_known;
use components::edge::cri::{ImageMount, Mount};
use components::edge::host::SubPath;
use components::ids::Sensitive;
use components::node::NodeConfig;
use components::spec::{ContainerSpec, PodSpec, RecursiveReadOnly, Volume, VolumeMount, VolumeSource};
use components::volumes::{ImageState, PodVolumes};
use std::sync::Arc;

type Envs = [(String, Sensitive)];

/// What mounts depend on besides the pod.
#[derive(Clone, Copy)]
pub(crate) struct Mounting<'a> {
    pub(crate) config: &'a NodeConfig,
    /// SELinux is enabled on the host.
    pub(crate) selinux: bool,
    /// The runtime makes mounts read-only with all that lies below them.
    pub(crate) recursive_read_only: bool,
    /// What was found out of the pod's volumes.
    pub(crate) volumes: &'a PodVolumes,
}

/// The mounts, in spec order.
///
/// # Errors
/// Why there can be none: the message of `CreateContainerConfigError`.
pub(crate) fn mounts_of(
    spec: &PodSpec,
    container: &ContainerSpec,
    node: Mounting<'_>,
    envs: &Envs,
) -> Result<Vec<Mount>, String> {
    let each = container.mounts.iter().enumerate();
    each.map(|(index, mount)| mount_of(spec, container, index, mount, node, envs)).collect()
}

fn mount_of(
    spec: &PodSpec,
    container: &ContainerSpec,
    index: usize,
    mount: &VolumeMount,
    node: Mounting<'_>,
    envs: &Envs,
) -> Result<Mount, String> {
    let volume = volume_of(spec, mount)?;
    let sub = sub_path(mount, envs)?;
    let image = match &volume.source {
        VolumeSource::Image { reference, .. } => Some(image_of(node.volumes, volume, reference, &sub)?),
        _ => None,
    };
    let host_path = if image.is_none() && !sub.is_empty() {
        Some(setup::sub_path_target(spec, &volume.name, &container.name, index, node.config))
    } else {
        setup::host_path(spec, volume, node.config)
    };
    // What the kubelet or an image brings is not for containers to change.
    let given = matches!(volume.source, VolumeSource::Files { .. } | VolumeSource::Image { .. });
    Ok(Mount {
        container_path: absolute(&mount.path),
        host_path: host_path.unwrap_or_default(),
        readonly: mount.readonly || given,
        recursive_read_only: recursive(mount, node.recursive_read_only)?,
        propagation: mount.propagation,
        // A path of the host keeps its label: others than this pod use it.
        selinux_relabel: node.selinux && !matches!(volume.source, VolumeSource::HostPath { .. }),
        image,
    })
}

fn image_of(volumes: &PodVolumes, volume: &Volume, reference: &str, sub_path: &str) -> Result<ImageMount, String> {
    let known = volumes.volumes.iter().find(|run| run.name == volume.name).map(|run| &run.image);
    let Some(ImageState::Here(image_ref) | ImageState::Found(image_ref)) = known else {
        return Err(format!("the image of volume {:?} is not here", volume.name));
    };
    Ok(ImageMount {
        image_ref: image_ref.to_string(),
        user_specified: reference.to_owned(),
        sub_path: sub_path.to_owned(),
    })
}

fn recursive(mount: &VolumeMount, supported: bool) -> Result<bool, String> {
    match mount.recursive_read_only {
        RecursiveReadOnly::Disabled => Ok(false),
        RecursiveReadOnly::IfPossible => Ok(supported),
        RecursiveReadOnly::Enabled if supported => Ok(true),
        RecursiveReadOnly::Enabled => Err(format!(
            "failed to resolve recursive read-only mode: volume \"{}\" requested recursive read-only mode, but it is \
             not supported by the runtime",
            mount.volume
        )),
    }
}

/// The parts of volumes that the container mounts.
///
/// # Errors
/// As [`mounts_of`].
pub(crate) fn sub_paths_of(
    spec: &PodSpec,
    container: &ContainerSpec,
    config: &NodeConfig,
    envs: &Envs,
) -> Result<Vec<SubPath>, String> {
    let mut out = Vec::new();
    for (index, mount) in container.mounts.iter().enumerate() {
        let volume = volume_of(spec, mount)?;
        let path = sub_path(mount, envs)?;
        let Some(root) = setup::host_path(spec, volume, config).filter(|_| !path.is_empty()) else { continue };
        out.push(SubPath {
            volume: Arc::clone(&volume.name),
            container: Arc::clone(&container.name),
            root,
            path,
            target: setup::sub_path_target(spec, &volume.name, &container.name, index, config),
        });
    }
    Ok(out)
}

fn volume_of<'a>(spec: &'a PodSpec, mount: &VolumeMount) -> Result<&'a Volume, String> {
    let found = spec.volumes.iter().find(|volume| *volume.name == *mount.volume);
    found.ok_or_else(|| format!("mount {:?} names no volume of the pod", mount.volume))
}

/// `subPath`, or `subPathExpr` with the container's environment in it.
fn sub_path(mount: &VolumeMount, envs: &Envs) -> Result<String, String> {
    let path = if mount.sub_path_expr.is_empty() {
        mount.sub_path.clone()
    } else {
        let value = |name: &str| envs.iter().find(|(n, _)| n == name).map(|(_, v)| v.0.as_str());
        expand_known(&mount.sub_path_expr, |name| value(name).filter(|value| !value.is_empty()))
            .map_err(|name| format!("missing value for {name}"))?
    };
    if path.starts_with('/') {
        return Err(format!("error SubPath `{path}` must not be an absolute path"));
    }
    if path.split('/').any(|part| part == "..") {
        return Err(format!("unable to provision SubPath `{path}`: must not contain '..'"));
    }
    Ok(path)
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::edge::cri::Propagation;

    fn mount(sub_path: &str, sub_path_expr: &str) -> VolumeMount {
        VolumeMount {
            volume: "v".to_owned(),
            path: "data".to_owned(),
            sub_path: sub_path.to_owned(),
            sub_path_expr: sub_path_expr.to_owned(),
            readonly: false,
            recursive_read_only: RecursiveReadOnly::Disabled,
            propagation: Propagation::Private,
        }
    }

    fn pod(source: VolumeSource, mounts: Vec<VolumeMount>) -> PodSpec {
        let mut spec = fixtures::spec("always a");
        spec.volumes = vec![Volume { name: "v".into(), source }];
        spec.containers[0].mounts = mounts;
        spec
    }

    #[track_caller]
    fn check_sub_path(plain: &str, expr: &str, expect: Result<&str, &str>) {
        let spec = pod(VolumeSource::EmptyDir { size_bytes: None }, vec![mount("", ""), mount(plain, expr)]);
        let envs = [("POD", "web"), ("UP", ".."), ("ROOT", "/"), ("NONE", "")];
        let envs = envs.map(|(name, value)| (name.to_owned(), Sensitive::from(value)));
        let found = sub_paths_of(&spec, &spec.containers[0], &fixtures::node(), &envs);
        let path = found.as_ref().map(|all| all.first().map_or("", |sub| sub.path.as_str()));
        assert_eq!(path.map_err(String::as_str), expect);
        let (config, volumes) = (fixtures::node(), PodVolumes::default());
        let mounts = mounts_of(&spec, &spec.containers[0], node(&config, &volumes, false), &envs);
        match (mounts, found) {
            (Ok(mounts), Ok(sub_paths)) => {
                for sub in sub_paths {
                    assert!(sub.target.ends_with("/pods/uid/volume-subpaths/v/a/1"), "{}", sub.target);
                    assert_eq!((&mounts[1].host_path, mounts[1].container_path.as_str()), (&sub.target, "/data"));
                }
                assert!(mounts[0].host_path.ends_with("/volumes/kubernetes.io~empty-dir/v"));
            }
            (mounts, found) => assert_eq!(mounts.unwrap_err(), found.unwrap_err()),
        }
    }

    #[test]
    fn sub_paths_are_expanded_and_stay_inside() {
        check_sub_path("", "", Ok(""));
        check_sub_path("a/b", "", Ok("a/b"));
        check_sub_path("$(POD)", "", Ok("$(POD)"));
        check_sub_path("", "logs/$(POD)", Ok("logs/web"));
        check_sub_path("", "$(NO)/$(POD)", Err("missing value for NO"));
        check_sub_path("", "$(NONE)", Err("missing value for NONE"));
        check_sub_path("", "a/$(UP)/b", Err("unable to provision SubPath `a/../b`: must not contain '..'"));
        check_sub_path("", "$(ROOT)etc", Err("error SubPath `/etc` must not be an absolute path"));
    }

    fn node<'a>(config: &'a NodeConfig, volumes: &'a PodVolumes, able: bool) -> Mounting<'a> {
        Mounting { config, selinux: able, recursive_read_only: able, volumes }
    }

    #[test]
    fn written_files_are_mounted_read_only_and_own_volumes_relabelled() {
        let config = fixtures::node();
        let made = |source| {
            let spec = pod(source, vec![mount("", "")]);
            let volumes = PodVolumes::default();
            let made = mounts_of(&spec, &spec.containers[0], node(&config, &volumes, true), &[]).unwrap().remove(0);
            (made.readonly, made.selinux_relabel)
        };
        assert_eq!(
            made(VolumeSource::Files { kind: components::spec::FilesKind::DownwardApi, sources: Vec::new() }),
            (true, true)
        );
        assert_eq!(made(VolumeSource::EmptyDir { size_bytes: None }), (false, true));
        let kind = components::edge::host::HostPathKind::Unset;
        assert_eq!(made(VolumeSource::HostPath { path: "/x".to_owned(), kind }), (false, false));
    }

    #[test]
    fn recursive_read_only_follows_what_the_runtime_can() {
        let check = |recursive_read_only, able, expect: Result<bool, &str>| {
            let mount = VolumeMount { readonly: true, recursive_read_only, ..mount("", "") };
            let got = recursive(&mount, able);
            assert_eq!(
                got.as_ref().map_err(|text| text.contains("not supported by the runtime")),
                expect.as_ref().map_err(|_| true)
            );
        };
        check(RecursiveReadOnly::Disabled, true, Ok(false));
        check(RecursiveReadOnly::IfPossible, true, Ok(true));
        check(RecursiveReadOnly::IfPossible, false, Ok(false));
        check(RecursiveReadOnly::Enabled, true, Ok(true));
        check(RecursiveReadOnly::Enabled, false, Err("refused"));
    }

    #[test]
    fn images_are_mounted_by_what_was_found_with_their_sub_path() {
        let image = VolumeSource::Image {
            reference: "reg/data".into(),
            to_pull: "reg/data:latest".into(),
            pull_policy: components::spec::PullPolicy::IfNotPresent,
        };
        let spec = pod(image, vec![mount("etc/x", "")]);
        let config = fixtures::node();
        let mut volumes = PodVolumes::default();
        let made = |volumes: &PodVolumes| mounts_of(&spec, &spec.containers[0], node(&config, volumes, false), &[]);
        assert!(made(&volumes).unwrap_err().contains("is not here"));
        let image = ImageState::Here("sha256:1".into());
        volumes.volumes.push(components::volumes::VolumeRun { name: "v".into(), image, ..Default::default() });
        let made = made(&volumes).unwrap().remove(0);
        assert_eq!((made.host_path.as_str(), made.readonly), ("", true));
        let expect = ImageMount {
            image_ref: "sha256:1".to_owned(),
            user_specified: "reg/data".to_owned(),
            sub_path: "etc/x".to_owned(),
        };
        assert_eq!(made.image, Some(expect));
        assert!(sub_paths_of(&spec, &spec.containers[0], &config, &[]).unwrap().is_empty());
    }
}
