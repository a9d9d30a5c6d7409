//! The model's objects as CRI messages.

use super::state::State;
use crate::runtime::images::Image;
use crate::runtime::model::{Container, ContainerRequest, RuntimeEvent, Sandbox, SandboxRequest};
use components::edge::cri::{ContainerChange, ContainerState, NamespaceMode, Namespaces, SandboxState};
use components::ids::{ContainerId, SandboxId};
use components::time::Wall;
use proto::runtime::v1 as cri;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Label under which a pod's objects are listed.
pub(super) const UID_LABEL: &str = "io.kubernetes.pod.uid";

/// What the model needs of a sandbox configuration.
pub(super) fn sandbox_request(config: &cri::PodSandboxConfig) -> SandboxRequest {
    let metadata = config.metadata.clone().unwrap_or_default();
    let options =
        config.linux.as_ref().and_then(|l| l.security_context.as_ref()).and_then(|s| s.namespace_options.as_ref());
    SandboxRequest {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        attempt: metadata.attempt,
        log_directory: config.log_directory.clone(),
        namespaces: options.map_or_else(Namespaces::default, |o| Namespaces {
            network: mode(o.network),
            pid: mode(o.pid),
            ipc: mode(o.ipc),
            ..Namespaces::default()
        }),
        labels: BTreeMap::new(),
        handler: String::new(),
    }
}

/// What the model needs of a container configuration.
pub(super) fn container_request(config: &cri::ContainerConfig) -> ContainerRequest {
    let metadata = config.metadata.clone().unwrap_or_default();
    let image = config.image.clone().unwrap_or_default();
    ContainerRequest {
        name: metadata.name,
        attempt: metadata.attempt,
        image_ref: image.image,
        user_image: image.user_specified_image,
        command: config.command.clone(),
        args: config.args.clone(),
        annotations: BTreeMap::new(),
        log_path: config.log_path.clone(),
        // What they are is kept with the whole configuration.
        resources: Default::default(),
    }
}

/// A sandbox as lists show it.
pub(super) fn sandbox(state: &State, sandbox: &Sandbox) -> cri::PodSandbox {
    let request = state.sandboxes.get(&sandbox.id).cloned().unwrap_or_default();
    let config = request.config.as_ref();
    cri::PodSandbox {
        id: sandbox.id.to_string(),
        metadata: config.and_then(|c| c.metadata.clone()),
        state: sandbox_state(sandbox.state).into(),
        created_at: sandbox.created.0,
        labels: config.map(|c| c.labels.clone()).unwrap_or_default(),
        annotations: config.map(|c| c.annotations.clone()).unwrap_or_default(),
        runtime_handler: request.runtime_handler.clone(),
    }
}

/// A sandbox in full.
pub(super) fn sandbox_status(state: &State, sandbox: &Sandbox) -> cri::PodSandboxStatus {
    let request = state.sandboxes.get(&sandbox.id).cloned().unwrap_or_default();
    let config = request.config.as_ref();
    let options = config
        .and_then(|c| c.linux.as_ref())
        .and_then(|l| l.security_context.as_ref())
        .and_then(|s| s.namespace_options.clone())
        .unwrap_or_default();
    cri::PodSandboxStatus {
        id: sandbox.id.to_string(),
        metadata: config.and_then(|c| c.metadata.clone()),
        state: sandbox_state(sandbox.state).into(),
        created_at: sandbox.created.0,
        network: Some(cri::PodSandboxNetworkStatus { ip: sandbox.ip(), additional_ips: Vec::new() }),
        linux: Some(cri::LinuxPodSandboxStatus { namespaces: Some(cri::Namespace { options: Some(options) }) }),
        labels: config.map(|c| c.labels.clone()).unwrap_or_default(),
        annotations: config.map(|c| c.annotations.clone()).unwrap_or_default(),
        runtime_handler: request.runtime_handler.clone(),
    }
}

/// A container as lists show it.
pub(super) fn container(state: &State, container: &Container) -> cri::Container {
    let config = state.containers.get(&container.id);
    let image_id = image_id(state, container);
    cri::Container {
        id: container.id.to_string(),
        pod_sandbox_id: container.sandbox.to_string(),
        metadata: config.and_then(|c| c.metadata.clone()),
        image: config.and_then(|c| c.image.clone()),
        image_ref: image_id.clone(),
        state: container_state(container.state).into(),
        created_at: container.created.0,
        labels: config.map(|c| c.labels.clone()).unwrap_or_default(),
        annotations: config.map(|c| c.annotations.clone()).unwrap_or_default(),
        image_id,
    }
}

/// A container in full.
pub(super) fn container_status(state: &State, container: &Container) -> cri::ContainerStatus {
    let config = state.containers.get(&container.id).cloned().unwrap_or_default();
    let image_id = image_id(state, container);
    let image = state.runtime.find_image(&image_id).map_or_else(String::new, |i| i.name.clone());
    let linux = config.linux.clone().unwrap_or_default();
    let security = linux.security_context.unwrap_or_default();
    let ended = container.state == ContainerState::Exited;
    cri::ContainerStatus {
        id: container.id.to_string(),
        metadata: config.metadata.clone(),
        state: container_state(container.state).into(),
        created_at: container.created.0,
        started_at: container.started.0,
        finished_at: container.finished.0,
        exit_code: container.exit_code,
        image: Some(cri::ImageSpec { image, ..cri::ImageSpec::default() }),
        image_ref: image_id.clone(),
        reason: if ended { container.reason.clone() } else { String::new() },
        message: String::new(),
        labels: config.labels.clone(),
        annotations: config.annotations.clone(),
        mounts: config.mounts.clone(),
        log_path: state.log_path(&container.id).unwrap_or_default(),
        resources: Some(cri::ContainerResources { linux: linux.resources }),
        image_id,
        user: Some(cri::ContainerUser {
            linux: Some(cri::LinuxContainerUser {
                uid: security.run_as_user.map_or(0, |v| v.value),
                gid: security.run_as_group.map_or(0, |v| v.value),
                supplemental_groups: security.supplemental_groups,
            }),
        }),
        stop_signal: config.stop_signal,
    }
}

/// An image.
pub(super) fn image(image: &Image) -> cri::Image {
    let digest = image.id.strip_prefix("sha256:").unwrap_or(&image.id);
    let repository = image.name.rsplit_once([':', '@']).map_or(image.name.as_str(), |(r, _)| r);
    cri::Image {
        id: image.id.to_string(),
        repo_tags: vec![image.name.clone()],
        repo_digests: vec![format!("{repository}@sha256:{digest}")],
        size: image.size,
        ..cri::Image::default()
    }
}

/// An event with the pod's state, as containerd sends it.
pub(super) fn event(state: &State, event: &RuntimeEvent) -> cri::ContainerEventResponse {
    let own = SandboxId(Arc::clone(&event.id.0));
    let sandboxes = state.runtime.sandboxes();
    let sandbox = sandboxes
        .get(&own)
        .or_else(|| state.runtime.containers().get(&event.id).and_then(|c| sandboxes.get(&c.sandbox)))
        .or_else(|| state.runtime.sandboxes_of(&event.pod).next());
    let of_sandbox = |s: &Sandbox| {
        s.containers
            .iter()
            .filter_map(|id| state.runtime.containers().get(id))
            .map(|c| container_status(state, c))
            .collect()
    };
    let kind = match event.change {
        ContainerChange::Created => cri::ContainerEventType::ContainerCreatedEvent,
        ContainerChange::Started => cri::ContainerEventType::ContainerStartedEvent,
        ContainerChange::Stopped => cri::ContainerEventType::ContainerStoppedEvent,
        ContainerChange::Deleted => cri::ContainerEventType::ContainerDeletedEvent,
    };
    cri::ContainerEventResponse {
        container_id: event.id.to_string(),
        container_event_type: kind.into(),
        created_at: event.at.0,
        pod_sandbox_status: sandbox.map(|s| sandbox_status(state, s)),
        containers_statuses: sandbox.map(of_sandbox).unwrap_or_default(),
    }
}

/// Statistics of a container: it uses nothing.
pub(super) fn container_stats(state: &State, container: &Container, now: Wall) -> cri::ContainerStats {
    let config = state.containers.get(&container.id);
    cri::ContainerStats {
        attributes: Some(cri::ContainerAttributes {
            id: container.id.to_string(),
            metadata: config.and_then(|c| c.metadata.clone()),
            labels: config.map(|c| c.labels.clone()).unwrap_or_default(),
            annotations: config.map(|c| c.annotations.clone()).unwrap_or_default(),
        }),
        cpu: Some(cpu(now)),
        memory: Some(memory(now)),
        writable_layer: Some(cri::FilesystemUsage {
            timestamp: now.0,
            fs_id: None,
            used_bytes: Some(cri::UInt64Value { value: 0 }),
            inodes_used: Some(cri::UInt64Value { value: 0 }),
        }),
        swap: None,
    }
}

/// Statistics of a sandbox with its containers.
pub(super) fn sandbox_stats(state: &State, sandbox: &Sandbox, now: Wall) -> cri::PodSandboxStats {
    let request = state.sandboxes.get(&sandbox.id).cloned().unwrap_or_default();
    let config = request.config.as_ref();
    let running = |id: &ContainerId| state.runtime.containers().get(id).filter(|c| c.state == ContainerState::Running);
    cri::PodSandboxStats {
        attributes: Some(cri::PodSandboxAttributes {
            id: sandbox.id.to_string(),
            metadata: config.and_then(|c| c.metadata.clone()),
            labels: config.map(|c| c.labels.clone()).unwrap_or_default(),
            annotations: config.map(|c| c.annotations.clone()).unwrap_or_default(),
        }),
        linux: Some(cri::LinuxPodSandboxStats {
            cpu: Some(cpu(now)),
            memory: Some(memory(now)),
            network: None,
            process: Some(cri::ProcessUsage { timestamp: now.0, process_count: Some(cri::UInt64Value { value: 1 }) }),
            containers: sandbox.containers.iter().filter_map(running).map(|c| container_stats(state, c, now)).collect(),
        }),
    }
}

fn cpu(now: Wall) -> cri::CpuUsage {
    cri::CpuUsage {
        timestamp: now.0,
        usage_core_nano_seconds: Some(cri::UInt64Value { value: 0 }),
        usage_nano_cores: Some(cri::UInt64Value { value: 0 }),
    }
}

fn memory(now: Wall) -> cri::MemoryUsage {
    cri::MemoryUsage {
        timestamp: now.0,
        working_set_bytes: Some(cri::UInt64Value { value: 0 }),
        usage_bytes: Some(cri::UInt64Value { value: 0 }),
        ..cri::MemoryUsage::default()
    }
}

fn image_id(state: &State, container: &Container) -> String {
    let image = state.runtime.find_image(&container.request.image_ref);
    image.map_or_else(|| container.request.image_ref.clone(), |i| i.id.to_string())
}

/// A container's state on the wire.
pub(super) fn container_state(state: ContainerState) -> cri::ContainerState {
    match state {
        ContainerState::Created => cri::ContainerState::ContainerCreated,
        ContainerState::Running => cri::ContainerState::ContainerRunning,
        ContainerState::Exited => cri::ContainerState::ContainerExited,
        ContainerState::Unknown => cri::ContainerState::ContainerUnknown,
    }
}

/// A sandbox's state on the wire.
pub(super) fn sandbox_state(state: SandboxState) -> cri::PodSandboxState {
    match state {
        SandboxState::Ready => cri::PodSandboxState::SandboxReady,
        SandboxState::NotReady => cri::PodSandboxState::SandboxNotready,
    }
}

fn mode(value: i32) -> NamespaceMode {
    match cri::NamespaceMode::try_from(value) {
        Ok(cri::NamespaceMode::Node) => NamespaceMode::Node,
        Ok(cri::NamespaceMode::Container | cri::NamespaceMode::Target) => NamespaceMode::Container,
        Ok(cri::NamespaceMode::Pod) | Err(_) => NamespaceMode::Pod,
    }
}
