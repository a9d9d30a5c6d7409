//! One pod as the runtime has it: its sandboxes and containers in full, asked for in parallel.

use components::edge::FailureClass;
use components::edge::cri::{ContainerStatus, KnownObjects, PodInspection};
use components::ids::{ContainerId, PodUid, SandboxId};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use proto::runtime::v1 as pb;

use super::client::Client;
use super::failure::CallError;
use super::from_proto::{self, InspectedSandbox};
use super::message;

/// Calls of one inspection that run at a time; pods have few containers, and the runtime serves other pods as well.
const PARALLEL: usize = 8;

const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";

/// Looks at a pod's known objects, or at those that carry its uid. What is gone is left out.
pub(super) async fn inspect_pod(
    runtime: &Client,
    uid: &PodUid,
    known: Option<KnownObjects>,
) -> Result<PodInspection, CallError> {
    let known = match known {
        Some(known) => known,
        None => find_objects(runtime, uid).await?,
    };
    let sandboxes = stream::iter(known.sandboxes)
        .map(|id| read_sandbox(runtime, id))
        .buffer_unordered(PARALLEL)
        .try_filter_map(|found| async { Ok(found) })
        .try_collect::<Vec<InspectedSandbox>>();
    let containers = stream::iter(known.containers)
        .map(|(id, sandbox)| read_container(runtime, id, sandbox))
        .buffer_unordered(PARALLEL)
        .try_filter_map(|found| async { Ok(found) })
        .try_collect::<Vec<ContainerStatus>>();
    let (sandboxes, containers) = tokio::try_join!(sandboxes, containers)?;
    Ok(from_proto::pod_inspection(sandboxes, containers))
}

async fn find_objects(runtime: &Client, uid: &PodUid) -> Result<KnownObjects, CallError> {
    let label_selector = [(POD_UID_LABEL.to_owned(), uid.to_string())].into_iter().collect();
    let sandboxes = runtime.call::<_, pb::ListPodSandboxResponse>(
        "/runtime.v1.RuntimeService/ListPodSandbox",
        pb::ListPodSandboxRequest { filter: Some(pb::PodSandboxFilter { label_selector, ..Default::default() }) },
    );
    let label_selector = [(POD_UID_LABEL.to_owned(), uid.to_string())].into_iter().collect();
    let containers = runtime.call::<_, pb::ListContainersResponse>(
        "/runtime.v1.RuntimeService/ListContainers",
        pb::ListContainersRequest { filter: Some(pb::ContainerFilter { label_selector, ..Default::default() }) },
    );
    let (sandboxes, containers) = tokio::try_join!(sandboxes, containers)?;
    Ok(KnownObjects {
        sandboxes: sandboxes.items.into_iter().map(|item| SandboxId::from(item.id)).collect(),
        containers: containers
            .containers
            .into_iter()
            .map(|item| (ContainerId::from(item.id), SandboxId::from(item.pod_sandbox_id)))
            .collect(),
    })
}

async fn read_sandbox(runtime: &Client, id: SandboxId) -> Result<Option<InspectedSandbox>, CallError> {
    const PATH: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";
    let request = pb::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
    let Some(answer) = unless_gone(runtime.call::<_, pb::PodSandboxStatusResponse>(PATH, request).await)? else {
        return Ok(None);
    };
    let status = answer.status.ok_or_else(|| CallError::garbage(PATH, "no status"))?;
    Ok(Some(from_proto::sandbox_status(id, status)))
}

async fn read_container(
    runtime: &Client,
    id: ContainerId,
    sandbox: SandboxId,
) -> Result<Option<ContainerStatus>, CallError> {
    const PATH: &str = "/runtime.v1.RuntimeService/ContainerStatus";
    let request = pb::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
    let Some(answer) = unless_gone(runtime.call::<_, pb::ContainerStatusResponse>(PATH, request).await)? else {
        return Ok(None);
    };
    let status = answer.status.ok_or_else(|| CallError::garbage(PATH, "no status"))?;
    let status = message::complete(&id, status).await;
    Ok(Some(from_proto::container_status(id, sandbox, status)))
}

fn unless_gone<T>(result: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match result {
        Err(error) if error.class() == FailureClass::NotFound => Ok(None),
        other => other.map(Some),
    }
}
