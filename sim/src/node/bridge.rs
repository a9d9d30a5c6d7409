//! What the simulated runtime answers to the effects of the core. Decides nothing that the model does not.

use crate::runtime::Runtime;
use crate::runtime::model::{Container, ContainerRequest, Refusal, RuntimeEvent, Sandbox, SandboxRequest};
use components::edge::cri::started::StartedObject;
use components::edge::cri::{
    ContainerBrief, ContainerChange, ContainerConfig, ContainerState, ContainerStatus, CriAnswer, CriEffect,
    CriIngress, FoundImage, KnownObjects, LinuxResources, ListedImage, NamespaceMode, PodInspection, RuntimeInfo,
    RuntimeList, RuntimeSize, SandboxBrief, SandboxConfig, SandboxState, SandboxStatus,
};
use components::edge::{Answer, Failure, FailureClass};
use components::ids::{PodUid, SandboxId};
use components::time::Now;
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// Runs one call on the model, without waiting: a stop has only been asked for when this returns.
///
/// # Errors
/// As the model refuses.
pub fn call(runtime: &mut Runtime, now: Now, effect: &CriEffect) -> Result<Answer, Failure> {
    let answer = match effect {
        CriEffect::ReadRuntime => CriAnswer::RuntimeRead(info(runtime)),
        CriEffect::ListRuntime => {
            runtime.advance(now);
            CriAnswer::RuntimeListed(list(runtime))
        }
        CriEffect::InspectPod { uid, known } => {
            runtime.advance(now);
            let pod = inspect(runtime, uid, known.as_ref());
            let sizes = pod.containers.iter().map(|container| container.size).collect();
            CriAnswer::PodSeen { pod, sizes }
        }
        CriEffect::RunSandbox { config, handler } => {
            let request = SandboxRequest { handler: handler.clone(), ..sandbox_request(config) };
            let id = runtime.run_sandbox(now, request).map_err(failure)?;
            CriAnswer::SandboxStarted { id }
        }
        CriEffect::FindImage { image } => CriAnswer::ImageFound(runtime.find_image(image).map(|i| FoundImage {
            image_ref: Arc::clone(&i.id),
            uid: None,
            username: String::new(),
        })),
        CriEffect::SetPodCidr { .. } => return Ok(Answer::Nothing),
        CriEffect::ListImages => CriAnswer::ImagesListed(images(runtime)),
        CriEffect::PullImage { image, login, .. } => {
            CriAnswer::ImagePulled { image_ref: runtime.images.pull_with(image, login.as_ref()).map_err(failure)? }
        }
        CriEffect::CreateContainer { sandbox, config, .. } => {
            let id = runtime.create_container(now, sandbox, container_request(config)).map_err(failure)?;
            CriAnswer::ContainerCreated { id }
        }
        CriEffect::StartContainer { id } => return nothing(runtime.start_container(now, id)),
        CriEffect::UpdateContainer { id, resources } => return nothing(runtime.update_container(now, id, resources)),
        CriEffect::StopSandbox { id } => return nothing_or_gone(runtime.stop_sandbox(now, id)),
        CriEffect::RemoveSandbox { id } => return nothing_or_gone(runtime.remove_sandbox(now, id)),
        CriEffect::RemoveContainer { id } => return nothing_or_gone(runtime.remove_container(now, id)),
        CriEffect::StopContainer { id, grace_seconds } => {
            let grace = Duration::from_secs(u64::from(*grace_seconds));
            return nothing_or_gone(runtime.stop_container(now, id, grace));
        }
        CriEffect::ExecSync { id, command, .. } => {
            runtime.advance(now);
            let exit_code = runtime.exec(id, &plain(command)).map_err(failure)?.exit_code;
            CriAnswer::Executed { exit_code, output: String::new() }
        }
        CriEffect::WatchEvents => return Ok(Answer::Nothing),
        CriEffect::ReopenLog { id } => return nothing(runtime.reopen_log(now, id)),
    };
    Ok(Answer::Cri(answer))
}

/// The fact that an event of the runtime becomes; with what has started, where it is so still and statuses are carried.
#[must_use]
pub fn event(runtime: &Runtime, event: &RuntimeEvent, statuses: bool) -> CriIngress {
    let started = || {
        if let Some(sandbox) = runtime.sandboxes().get(&SandboxId(Arc::clone(&event.id.0))) {
            let (namespace, name) = (sandbox.request.namespace.clone(), sandbox.request.name.clone());
            let ready = sandbox.state == SandboxState::Ready;
            return ready.then(|| StartedObject::Sandbox { namespace, name, status: sandbox_status(sandbox) });
        }
        let container = runtime.containers().get(&event.id).filter(|c| c.state == ContainerState::Running)?;
        let status = container_status(runtime, container);
        Some(StartedObject::Container { size: status.size, status })
    };
    let object = if statuses && event.change == ContainerChange::Started { started() } else { None };
    object.map_or_else(
        || CriIngress::ContainerChanged { pod: event.pod.clone(), id: event.id.clone(), change: event.change },
        |object| CriIngress::ObjectStarted { pod: event.pod.clone(), object: Box::new(object) },
    )
}

/// The failure that a refusal becomes at the edge.
#[must_use]
pub fn failure(refusal: Refusal) -> Failure {
    Failure { class: refusal.class, message: refusal.message }
}

fn nothing(result: Result<(), Refusal>) -> Result<Answer, Failure> {
    result.map(|()| Answer::Nothing).map_err(failure)
}

fn nothing_or_gone(result: Result<(), Refusal>) -> Result<Answer, Failure> {
    match result {
        Err(refusal) if refusal.class != FailureClass::NotFound => Err(failure(refusal)),
        _ => Ok(Answer::Nothing),
    }
}

fn info(runtime: &Runtime) -> RuntimeInfo {
    RuntimeInfo {
        name: "containerd".into(),
        version: "v2.0.0-sim".into(),
        runtime_ready: true,
        network_ready: runtime.network_ready,
        message: if runtime.network_ready { String::new() } else { "cni plugin not initialized".into() },
        cgroup_driver: Some("cgroupfs".into()),
    }
}

fn images(runtime: &Runtime) -> Vec<ListedImage> {
    let listed = |image: &crate::runtime::images::Image| ListedImage {
        id: Arc::clone(&image.id),
        digests: Vec::new(),
        tags: vec![image.name.clone()],
        size: image.size,
        pinned: false,
    };
    let mut images: Vec<ListedImage> = runtime.images.iter().map(listed).collect();
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    images
}

fn list(runtime: &Runtime) -> RuntimeList {
    RuntimeList {
        sandboxes: runtime
            .sandboxes()
            .values()
            .map(|s| SandboxBrief { id: s.id.clone(), pod: s.pod.clone(), state: s.state })
            .collect(),
        containers: runtime
            .containers()
            .values()
            .map(|c| ContainerBrief { id: c.id.clone(), sandbox: c.sandbox.clone(), state: c.state })
            .collect(),
    }
}

fn inspect(runtime: &Runtime, uid: &PodUid, known: Option<&KnownObjects>) -> PodInspection {
    let mut sandboxes: Vec<&Sandbox> = match known {
        None => runtime.sandboxes_of(uid).collect(),
        Some(known) => known.sandboxes.iter().filter_map(|id| runtime.sandboxes().get(id)).collect(),
    };
    let mut containers: Vec<&Container> = match known {
        None => runtime.containers_of(uid).collect(),
        Some(known) => known.containers.iter().filter_map(|(id, _)| runtime.containers().get(id)).collect(),
    };
    sandboxes.sort_by_key(|s| Reverse((s.request.attempt, s.created, s.id.clone())));
    containers.sort_by(|a, b| {
        let newest_first = (b.request.attempt, b.created, &b.id).cmp(&(a.request.attempt, a.created, &a.id));
        a.request.name.cmp(&b.request.name).then(newest_first)
    });
    let newest = sandboxes.first();
    PodInspection {
        namespace: newest.map(|s| s.request.namespace.clone()).unwrap_or_default(),
        name: newest.map(|s| s.request.name.clone()).unwrap_or_default(),
        sandboxes: sandboxes.into_iter().map(sandbox_status).collect(),
        containers: containers.into_iter().map(|c| container_status(runtime, c)).collect(),
    }
}

fn sandbox_status(sandbox: &Sandbox) -> SandboxStatus {
    SandboxStatus {
        id: sandbox.id.clone(),
        attempt: sandbox.request.attempt,
        state: sandbox.state,
        created_at: sandbox.created,
        host_network: sandbox.request.namespaces.network == NamespaceMode::Node,
        ips: Some(sandbox.ip()).filter(|ip| !ip.is_empty()).into_iter().collect(),
    }
}

fn container_status(runtime: &Runtime, container: &Container) -> ContainerStatus {
    let annotation = |key: &str| container.request.annotations.get(key);
    let log_directory = runtime.sandboxes().get(&container.sandbox).map(|s| s.request.log_directory.as_str());
    ContainerStatus {
        id: container.id.clone(),
        sandbox: container.sandbox.clone(),
        name: Arc::from(container.request.name.as_str()),
        attempt: container.request.attempt,
        restart_count: annotation("io.kubernetes.container.restartCount").and_then(|v| v.parse().ok()).unwrap_or(0),
        hash: annotation("io.kubernetes.container.hash").and_then(|v| u32::from_str_radix(v, 16).ok()),
        grace_seconds: annotation("io.kubernetes.pod.terminationGracePeriod").and_then(|v| v.parse().ok()),
        state: container.state,
        created_at: container.created,
        started_at: container.started,
        finished_at: container.finished,
        exit_code: container.exit_code,
        reason: if container.state == ContainerState::Exited { container.reason.clone() } else { String::new() },
        message: if container.state == ContainerState::Exited {
            container.behaviour.message.clone()
        } else {
            String::new()
        },
        image: container.request.user_image.clone(),
        image_ref: container.request.image_ref.clone(),
        user: None,
        log_path: format!("{}/{}", log_directory.unwrap_or_default(), container.request.log_path),
        size: Some(size(&container.request.resources)),
    }
}

const fn size(resources: &LinuxResources) -> RuntimeSize {
    RuntimeSize {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_bytes: resources.memory_limit_bytes,
    }
}

fn sandbox_request(config: &SandboxConfig) -> SandboxRequest {
    SandboxRequest {
        name: config.name.clone(),
        namespace: config.namespace.clone(),
        uid: config.uid.clone(),
        attempt: config.attempt,
        log_directory: config.log_directory.clone(),
        namespaces: config.security.namespaces.clone(),
        labels: config.labels.clone(),
        handler: String::new(),
    }
}

/// Words without their wrapping.
#[must_use]
pub fn plain(words: &[components::ids::Sensitive]) -> Vec<String> {
    words.iter().map(|w| w.0.clone()).collect()
}

fn container_request(config: &ContainerConfig) -> ContainerRequest {
    ContainerRequest {
        name: config.name.clone(),
        attempt: config.attempt,
        image_ref: config.image_ref.clone(),
        user_image: config.user_specified_image.clone(),
        command: plain(&config.command),
        args: plain(&config.args),
        annotations: config.annotations.clone(),
        log_path: config.log_path.clone(),
        resources: config.resources.clone(),
    }
}
