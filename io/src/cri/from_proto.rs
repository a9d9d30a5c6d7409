//! From CRI messages to the edge's own types.

use std::cmp::Reverse;

use components::edge::cri::started::StartedObject;
use components::edge::cri::{
    ContainerState, ContainerStatus, CriAnswer, FoundImage, ListedImage, PodInspection, RuntimeHandler, RuntimeInfo,
    RuntimeSize, SandboxState, SandboxStatus,
};
use components::ids::{ContainerId, SandboxId};
use components::time::Wall;
use proto::runtime::v1 as pb;

/// A sandbox's status with what only an inspection of the whole pod needs.
#[derive(Debug)]
pub(super) struct InspectedSandbox {
    status: SandboxStatus,
    namespace: String,
    name: String,
}

/// Both health conditions have to exist; one that is missing counts as not met.
pub(super) fn runtime_info(
    version: pb::VersionResponse,
    status: pb::StatusResponse,
    config: Option<pb::RuntimeConfigResponse>,
) -> RuntimeInfo {
    let conditions = status.status.unwrap_or_default().conditions;
    let met = |kind: &str| conditions.iter().any(|c| c.r#type == kind && c.status);
    let complaints: Vec<String> = conditions
        .iter()
        // Runtimes have further conditions, such as deprecation warnings, that say nothing about health.
        .filter(|c| !c.status && matches!(c.r#type.as_str(), "RuntimeReady" | "NetworkReady"))
        .map(|c| format!("{}=false reason:{} message:{}", c.r#type, c.reason, c.message))
        .collect();
    let driver = config.and_then(|config| config.linux).map(|linux| match linux.cgroup_driver() {
        pb::CgroupDriver::Systemd => "systemd".to_owned(),
        pb::CgroupDriver::Cgroupfs => "cgroupfs".to_owned(),
    });
    RuntimeInfo {
        runtime_ready: met("RuntimeReady"),
        network_ready: met("NetworkReady"),
        name: version.runtime_name,
        version: version.runtime_version,
        message: complaints.join(", "),
        cgroup_driver: driver,
    }
}

/// All images, the largest first; those of a size by id.
pub(super) fn listed_images(listed: pb::ListImagesResponse) -> Vec<ListedImage> {
    let mut images: Vec<ListedImage> = listed
        .images
        .into_iter()
        .map(|image| ListedImage {
            id: image.id.into(),
            digests: image.repo_digests,
            tags: image.repo_tags,
            size: image.size,
            pinned: image.pinned,
        })
        .collect();
    images.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    images
}

/// What the handlers can do, by name; runtimes before CRI 1.30 do not say.
pub(super) fn handlers(status: &pb::StatusResponse) -> Vec<RuntimeHandler> {
    let handler = |handler: &pb::RuntimeHandler| {
        let can = handler.features.unwrap_or_default();
        RuntimeHandler {
            name: handler.name.clone(),
            recursive_read_only: can.recursive_read_only_mounts,
            user_namespaces: can.user_namespaces,
        }
    };
    let mut handlers: Vec<RuntimeHandler> = status.runtime_handlers.iter().map(handler).collect();
    handlers.sort_by(|a, b| a.name.cmp(&b.name));
    handlers
}

pub(super) fn found_image(image: pb::Image) -> FoundImage {
    FoundImage { image_ref: image.id.into(), uid: image.uid.map(|uid| uid.value), username: image.username }
}

impl InspectedSandbox {
    /// As an event carries it; `None` when it is not ready.
    pub(super) fn started(self) -> Option<StartedObject> {
        let Self { status, namespace, name } = self;
        (status.state == SandboxState::Ready).then_some(StartedObject::Sandbox { namespace, name, status })
    }
}

pub(super) fn sandbox_status(id: SandboxId, status: pb::PodSandboxStatus) -> InspectedSandbox {
    let state = match pb::PodSandboxState::try_from(status.state) {
        Ok(pb::PodSandboxState::SandboxReady) => SandboxState::Ready,
        Ok(pb::PodSandboxState::SandboxNotready) | Err(_) => SandboxState::NotReady,
    };
    let host_network = status
        .linux
        .and_then(|linux| linux.namespaces)
        .and_then(|namespaces| namespaces.options)
        .is_some_and(|options| options.network() == pb::NamespaceMode::Node);
    let network = status.network.unwrap_or_default();
    let further = network.additional_ips.into_iter().map(|further| further.ip);
    let ips = std::iter::once(network.ip).chain(further).filter(|ip| !ip.is_empty()).collect();
    let metadata = status.metadata.unwrap_or_default();
    let mut labels = status.labels;
    let mut label = |key: &str, or: String| labels.remove(key).unwrap_or(or);
    InspectedSandbox {
        namespace: label("io.kubernetes.pod.namespace", metadata.namespace),
        name: label("io.kubernetes.pod.name", metadata.name),
        status: SandboxStatus {
            id,
            attempt: metadata.attempt,
            state,
            created_at: wall(status.created_at),
            host_network,
            ips,
        },
    }
}

/// A command's end. Its output is cut before it is decoded, so that a huge one costs nothing more.
pub(super) fn executed(answer: pb::ExecSyncResponse, limit: u32) -> CriAnswer {
    let mut output = answer.stdout.to_vec();
    output.extend_from_slice(&answer.stderr);
    output.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    CriAnswer::Executed { exit_code: answer.exit_code, output: String::from_utf8_lossy(&output).into_owned() }
}

pub(super) fn container_status(id: ContainerId, sandbox: SandboxId, status: pb::ContainerStatus) -> ContainerStatus {
    let state = match pb::ContainerState::try_from(status.state) {
        Ok(pb::ContainerState::ContainerCreated) => ContainerState::Created,
        Ok(pb::ContainerState::ContainerRunning) => ContainerState::Running,
        Ok(pb::ContainerState::ContainerExited) => ContainerState::Exited,
        Ok(pb::ContainerState::ContainerUnknown) | Err(_) => ContainerState::Unknown,
    };
    let note = |key: &str| status.annotations.get(key).map(String::as_str);
    let user = status.user.and_then(|user| user.linux);
    let metadata = status.metadata.unwrap_or_default();
    ContainerStatus {
        id,
        sandbox,
        name: metadata.name.into(),
        attempt: metadata.attempt,
        restart_count: note("io.kubernetes.container.restartCount").and_then(|n| n.parse().ok()).unwrap_or(0),
        hash: note("io.kubernetes.container.hash").and_then(|hash| u32::from_str_radix(hash, 16).ok()),
        grace_seconds: note("io.kubernetes.pod.terminationGracePeriod").and_then(|n| n.parse().ok()),
        state,
        created_at: wall(status.created_at),
        started_at: wall(status.started_at),
        finished_at: wall(status.finished_at),
        exit_code: status.exit_code,
        reason: status.reason,
        message: status.message,
        image: status.image.unwrap_or_default().image,
        image_ref: status.image_ref,
        user: user.map(|user| (user.uid, user.gid, user.supplemental_groups)),
        log_path: status.log_path,
        size: status.resources.and_then(|resources| resources.linux).map(|linux| RuntimeSize {
            cpu_period: linux.cpu_period,
            cpu_quota: linux.cpu_quota,
            cpu_shares: linux.cpu_shares,
            memory_limit_bytes: linux.memory_limit_in_bytes,
        }),
    }
}

/// Sandboxes newest first; containers by name, newest first within a name. Attempts count up whatever the wall clock
/// does, so they say what is newer before creation times do.
pub(super) fn pod_inspection(
    mut sandboxes: Vec<InspectedSandbox>,
    mut containers: Vec<ContainerStatus>,
) -> PodInspection {
    let age = |s: &SandboxStatus| (s.attempt, s.created_at, s.id.clone());
    sandboxes.sort_by_cached_key(|sandbox| Reverse(age(&sandbox.status)));
    containers.sort_by_cached_key(|c| (c.name.clone(), Reverse((c.attempt, c.created_at, c.id.clone()))));
    let newest = sandboxes.first();
    PodInspection {
        namespace: newest.map(|sandbox| sandbox.namespace.clone()).unwrap_or_default(),
        name: newest.map(|sandbox| sandbox.name.clone()).unwrap_or_default(),
        sandboxes: sandboxes.into_iter().map(|sandbox| sandbox.status).collect(),
        containers,
    }
}

/// Some runtimes print "never" as a time before 1970.
fn wall(nanos: i64) -> Wall {
    Wall(nanos.max(0))
}
