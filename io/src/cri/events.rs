//! The runtime's event stream: one task that turns events into facts until the stream ends.

use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use components::edge::cri::started::StartedObject;
use components::edge::cri::{ContainerChange, ContainerState, CriIngress};
use components::edge::{FailureClass, Ingress};
use components::ids::{ContainerId, PodUid, SandboxId};
use futures_util::FutureExt;
use prost::Message;
use proto::runtime::v1 as pb;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::client::Client;
use super::failure::CallError;
use super::from_proto;
use super::wire::{Fields, WireError};

const PATH: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

/// Watches the events of one runtime; at most one stream is open at a time.
#[derive(Debug)]
pub(super) struct Watch {
    runtime: Client,
    ingress: mpsc::Sender<Ingress>,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Watch {
    pub(super) fn new(runtime: Client, ingress: mpsc::Sender<Ingress>) -> Self {
        Self { runtime, ingress, task: Mutex::default() }
    }

    /// Opens the stream and returns at once: runtimes send nothing, not even headers, before the first event.
    /// A stream that was open before is dropped without a word.
    pub(super) fn open(&self) {
        // A connection of its own: when nobody takes events in, calls must not wait behind them.
        let client = self.runtime.apart();
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(before) = task.take() {
            before.abort();
        }
        *task = Some(tokio::spawn(watch(client, self.ingress.clone())));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().unwrap_or_else(PoisonError::into_inner) {
            task.abort();
        }
    }
}

async fn watch(client: Client, ingress: mpsc::Sender<Ingress>) {
    // The transport may panic on headers it does not understand; the stream's end must be told all the same.
    let (unsupported, message) = match AssertUnwindSafe(deliver(&client, &ingress)).catch_unwind().await {
        Ok(Ok(())) => (false, "the runtime ended the stream".to_owned()),
        Ok(Err(error)) => (error.class() == FailureClass::Unimplemented, error.message()),
        Err(_panic) => (false, "the stream could not be read".to_owned()),
    };
    tell(&ingress, CriIngress::EventsClosed { unsupported, message }).await;
}

/// Delivers events until the stream ends or nobody takes them any more.
async fn deliver(client: &Client, ingress: &mpsc::Sender<Ingress>) -> Result<(), CallError> {
    let mut stream = client.stream(PATH, pb::GetEventsRequest {}).await?;
    tell(ingress, CriIngress::EventsOpened).await;
    while let Some(event) = stream.message().await? {
        let fact = read_event(&event).map_err(|error| CallError::garbage(PATH, error))?;
        if !tell(ingress, fact).await {
            break;
        }
    }
    Ok(())
}

/// Returns whether somebody still listens.
async fn tell(ingress: &mpsc::Sender<Ingress>, fact: CriIngress) -> bool {
    ingress.send(Ingress::Cri(fact)).await.is_ok()
}

/// Reads id, kind and pod of a `ContainerEventResponse`, and of an object that started its status; the others that it
/// carries are jumped over.
fn read_event(event: &Bytes) -> Result<CriIngress, WireError> {
    let (mut id, mut kind, mut pod, mut sandbox) = ("", 0, "", None);
    for field in Fields::of(event) {
        let field = field?;
        match field.number {
            1 => id = field.text()?,
            2 => kind = field.number()?,
            // The sandbox status; field 2 is its metadata, and field 2 of that the pod's uid.
            4 => {
                sandbox = Some(field.bytes()?);
                for part in Fields::of(field.bytes()?) {
                    let part = part?;
                    if part.number == 2 {
                        pod = text_of(part.bytes()?, 2)?;
                    }
                }
            }
            _ => {}
        }
    }
    let change = match kind {
        0 => ContainerChange::Created,
        1 => ContainerChange::Started,
        3 => ContainerChange::Deleted,
        // 2, and kinds of the future: whatever it was, the pod is to be looked at.
        _ => ContainerChange::Stopped,
    };
    if let (ContainerChange::Started, Some(sandbox)) = (change, sandbox)
        && let Some(object) = started(event, id, sandbox)
    {
        return Ok(CriIngress::ObjectStarted { pod: PodUid::from(pod), object: Box::new(object) });
    }
    Ok(CriIngress::ContainerChanged { pod: PodUid::from(pod), id: ContainerId::from(id), change })
}

/// The text of a field of this number; empty when there is none.
fn text_of(message: &[u8], number: u32) -> Result<&str, WireError> {
    let mut text = "";
    for field in Fields::of(message) {
        let field = field?;
        if field.number == number {
            text = field.text()?;
        }
    }
    Ok(text)
}

/// What the event says of the object that started. `None` where it says nothing, or that the object has ended since:
/// then the pod is looked at.
fn started(event: &Bytes, id: &str, sandbox: &[u8]) -> Option<StartedObject> {
    let sandbox_id = text_of(sandbox, 1).ok().filter(|id| !id.is_empty())?;
    if sandbox_id == id {
        let status = pb::PodSandboxStatus::decode(sandbox).ok()?;
        return from_proto::sandbox_status(SandboxId::from(id), status).started();
    }
    for field in Fields::of(event).flatten().filter(|field| field.number == 5) {
        let container = field.bytes().ok()?;
        if text_of(container, 1).ok()? == id {
            let status = pb::ContainerStatus::decode(container).ok()?;
            let status = from_proto::container_status(ContainerId::from(id), SandboxId::from(sandbox_id), status);
            let size = status.size;
            let whole = status.state == ContainerState::Running && !status.name.is_empty();
            return whole.then_some(StartedObject::Container { status, size });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(event: &pb::ContainerEventResponse, expect: (&str, &str, ContainerChange)) {
        let found = read_event(&event.encode_to_vec().into()).unwrap();
        let (pod, id, change) = expect;
        assert_eq!(found, CriIngress::ContainerChanged { pod: pod.into(), id: id.into(), change });
    }

    #[test]
    fn events_give_pod_id_and_kind() {
        let mut event = pb::ContainerEventResponse {
            container_id: "c1".into(),
            container_event_type: 1,
            created_at: 5,
            pod_sandbox_status: Some(pb::PodSandboxStatus {
                id: "s1".into(),
                metadata: Some(pb::PodSandboxMetadata { name: "n".into(), uid: "u".into(), ..Default::default() }),
                labels: [("a".to_owned(), "b".to_owned())].into_iter().collect(),
                ..Default::default()
            }),
            containers_statuses: vec![pb::ContainerStatus { id: "c1".into(), ..Default::default() }],
        };
        check(&event, ("u", "c1", ContainerChange::Started));
        event.container_event_type = 2;
        check(&event, ("u", "c1", ContainerChange::Stopped));
        event.container_event_type = 3;
        event.pod_sandbox_status = None;
        check(&event, ("", "c1", ContainerChange::Deleted));
        event.container_event_type = 0;
        check(&event, ("", "c1", ContainerChange::Created));
        event.container_event_type = 77;
        check(&event, ("", "c1", ContainerChange::Stopped));
    }

    #[test]
    fn what_started_comes_with_its_status() {
        let running = pb::ContainerState::ContainerRunning as i32;
        let container = |id: &str, state| pb::ContainerStatus {
            id: id.into(),
            metadata: Some(pb::ContainerMetadata { name: id.into(), attempt: 2 }),
            state,
            ..Default::default()
        };
        let mut event = pb::ContainerEventResponse {
            container_id: "c1".into(),
            container_event_type: 1,
            created_at: 5,
            pod_sandbox_status: Some(pb::PodSandboxStatus {
                id: "s1".into(),
                metadata: Some(pb::PodSandboxMetadata { name: "n".into(), uid: "u".into(), ..Default::default() }),
                ..Default::default()
            }),
            containers_statuses: vec![container("c0", running), container("c1", running)],
        };
        let read = |event: &pb::ContainerEventResponse| read_event(&event.encode_to_vec().into()).unwrap();
        let CriIngress::ObjectStarted { pod, object } = read(&event) else { panic!() };
        let StartedObject::Container { status, size: None } = *object else { panic!() };
        assert_eq!((pod.as_str(), &*status.name, status.sandbox.as_str(), status.attempt), ("u", "c1", "s1", 2));
        event.container_id = "s1".into();
        let CriIngress::ObjectStarted { object, .. } = read(&event) else { panic!() };
        assert!(matches!(*object, StartedObject::Sandbox { name, .. } if name == "n"));
        // What has ended since is looked at.
        event.pod_sandbox_status.as_mut().unwrap().state = pb::PodSandboxState::SandboxNotready as i32;
        check(&event, ("u", "s1", ContainerChange::Started));
        event.container_id = "c1".into();
        event.containers_statuses[1].state = pb::ContainerState::ContainerExited as i32;
        check(&event, ("u", "c1", ContainerChange::Started));
        event.containers_statuses.clear();
        check(&event, ("u", "c1", ContainerChange::Started));
    }

    #[test]
    fn a_broken_event_is_an_error() {
        assert_eq!(read_event(&Bytes::from_static(&[0x0a, 9, b'x'])), Err(WireError::CutOff));
        assert_eq!(read_event(&Bytes::from_static(&[0x08, 9])), Err(WireError::WrongType(1)));
    }
}
