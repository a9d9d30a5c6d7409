//! `/exec`, `/attach` and `/portForward`: which process or pod is meant, where the runtime serves it, and who carries
//! the bytes.
//!
//! The bytes never pass through the core. Most upgrades are tunnelled to the runtime as they are; WebSockets of the
//! newer kinds end here, because runtimes speak only SPDY for them. How many streams there may be is bounded.

mod backend;
mod options;
mod pump;
mod spdy_in_websocket;
mod status;
mod translate;
mod tunnel;
mod websocket;

use self::backend::Backend;
use super::Readers;
use super::body::{Body, Refused, TEXT, response};
use super::connection::Peer;
use super::query;
use super::routes::Site;
use crate::cri::streams::{StreamCallError, Wanted};
use crate::metrics::{Descriptor, Exposition, as_f64};
use components::edge::FailureClass;
use components::snapshot::PodView;
use components::world::Stage;
use http::header::{HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Streams at a time. Each holds two descriptors and four buffers of 32 KiB at most.
const MAX_STREAMS: usize = 1024;

/// What a path asks to be connected with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StreamKind {
    /// A new process.
    Exec,
    /// A running container's process.
    Attach,
    /// Ports of a pod.
    PortForward,
}

/// The streams that are open.
#[derive(Debug)]
pub(super) struct Streams {
    slots: Arc<Semaphore>,
    stop: CancellationToken,
    tasks: TaskTracker,
    /// WebSockets that ended here: exec, attach, port-forward.
    websockets: [AtomicU64; 3],
}

impl Streams {
    pub(super) fn new(stop: CancellationToken, tasks: TaskTracker) -> Self {
        Self { slots: Arc::new(Semaphore::new(MAX_STREAMS)), stop, tasks, websockets: Default::default() }
    }

    /// Writes the numbers.
    pub(super) fn write(&self, page: &mut Exposition) {
        let help = "WebSockets of newer kinds that this node ended for exec, attach and port-forward.";
        let mut family = page.family(Descriptor::counter("kubelet_websocket_streaming_requests_total", help));
        for (kind, count) in ["exec", "attach", "portforward"].iter().zip(&self.websockets) {
            family.sample(&[("subresource", kind)], as_f64(count.load(Ordering::Relaxed)));
        }
        let open = as_f64(u64::try_from(MAX_STREAMS - self.slots.available_permits()).unwrap_or(0));
        page.single(
            Descriptor::gauge("ticklet_streams_open", "Exec, attach and port-forward streams that are open."),
            open,
        );
    }

    /// Cancelled when the ports are closed.
    pub(super) fn stopped(&self) -> CancellationToken {
        self.stop.clone()
    }

    fn slot(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    fn count_websocket(&self, kind: StreamKind) {
        self.websockets[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Lets a stream run on after its answer, until it ends or the ports are closed.
    fn go_on(&self, slot: OwnedSemaphorePermit, peer: &Peer, stream: impl Future<Output = ()> + Send + 'static) {
        let (stop, busy) = (self.stop.clone(), peer.busy.enter());
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = stream => {}
            }
            drop((slot, busy));
        });
    }
}

/// Answers a request for a stream.
pub(super) async fn serve(
    site: &Arc<Site>,
    kind: StreamKind,
    peer: &Peer,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(slot) = site.streams.slot() else {
        return response(StatusCode::TOO_MANY_REQUESTS, TEXT, "too many streams are open on this node\n");
    };
    let (backend, wanted) = match locate(&site.readers, kind, &request).await {
        Ok(found) => found,
        Err(refused) => return *refused,
    };
    if kind != StreamKind::PortForward && websocket::offers_v5(request.headers()) {
        site.streams.count_websocket(kind);
        return translate::serve(&site.streams, slot, backend, peer, request, wanted);
    }
    if kind == StreamKind::PortForward
        && let Some(protocol) = websocket::tunnel_protocol(request.headers())
    {
        let protocol = protocol.to_owned();
        return spdy_in_websocket::serve(&site.streams, slot, backend, peer, request, protocol).await;
    }
    tunnel::serve(&site.streams, slot, backend, peer, request).await
}

/// Asks the runtime where the stream is served, and which streams of a process there are.
async fn locate(
    readers: &Readers,
    kind: StreamKind,
    request: &Request<Incoming>,
) -> Result<(Backend, Wanted), Refused> {
    let parts = query::parts(request.uri().path());
    let pairs = query::pairs(request.uri().query().unwrap_or_default());
    let bad = |message: String| response(StatusCode::BAD_REQUEST, TEXT, message);
    let mut wanted = Wanted::default();
    let url = match kind {
        StreamKind::Exec | StreamKind::Attach => {
            wanted = options::wanted(&pairs).map_err(bad)?;
            let pod = find_pod(readers, &parts)?;
            let name = parts.last().map_or("", String::as_str);
            let container = find_container(readers, &pod, &parts).await.map_err(|error| call_failed(&error))?;
            if kind == StreamKind::Exec {
                let container = container.ok_or_else(|| failed(format!("container not found ({name:?})")))?;
                readers.runtime.exec(&container, query::all(&pairs, "command"), wanted).await
            } else {
                let (pod_name, namespace) = (&pod.name, &pod.namespace);
                let missing = || failed(format!("container {name} not found in pod {pod_name}_{namespace}"));
                let container = container.ok_or_else(missing)?;
                // Whether a process has a terminal was settled when it began.
                wanted.tty = has_terminal(&pod, name).ok_or_else(missing)?;
                wanted.stderr &= !wanted.tty;
                readers.runtime.attach(&container, wanted).await
            }
        }
        StreamKind::PortForward => {
            let ports = options::ports(request.headers(), &pairs).map_err(bad)?;
            let pod = find_pod(readers, &parts)?;
            if parts.get(2).is_some_and(|uid| uid != pod.uid.as_str()) {
                return Err(Box::new(response(StatusCode::NOT_FOUND, TEXT, "pod not found")));
            }
            let sandbox = readers.runtime.sandbox(&pod.uid).await.map_err(|error| call_failed(&error))?;
            let missing = || failed(format!("pod not found (\"{}_{}\")", pod.name, pod.namespace));
            readers.runtime.port_forward(&sandbox.ok_or_else(missing)?, ports).await
        }
    };
    let url = url.map_err(|error| call_failed(&error))?;
    Ok((Backend::parse(&url).map_err(failed)?, wanted))
}

/// The pod that a path's first parts name; of two generations, the one that is to run.
pub(super) fn find_pod(readers: &Readers, parts: &[String]) -> Result<Arc<PodView>, Refused> {
    let [namespace, name, ..] = parts else {
        return Err(Box::new(response(StatusCode::NOT_FOUND, TEXT, "404: Page Not Found")));
    };
    let snapshot = readers.snapshot.load();
    let named =
        snapshot.pods().filter(|pod| pod.spec.is_some() && *pod.namespace == **namespace && *pod.name == **name);
    let rank = |pod: &&Arc<PodView>| match pod.stage {
        Stage::Syncing => 0,
        Stage::Queued => 1,
        Stage::Terminating => 2,
        Stage::Terminated | Stage::Done => 3,
    };
    named.min_by_key(rank).cloned().ok_or_else(|| Box::new(response(StatusCode::NOT_FOUND, TEXT, "pod does not exist")))
}

/// The running container that the rest of a path names, with or without a uid before it.
pub(super) async fn find_container(
    readers: &Readers,
    pod: &PodView,
    parts: &[String],
) -> Result<Option<String>, StreamCallError> {
    match parts {
        [_, _, name] => readers.runtime.container(&pod.uid, name).await,
        [_, _, uid, name] if uid == pod.uid.as_str() => readers.runtime.container(&pod.uid, name).await,
        _ => Ok(None),
    }
}

fn has_terminal(pod: &PodView, container: &str) -> Option<bool> {
    let spec = pod.spec.as_ref()?;
    spec.containers.iter().find(|found| *found.name == *container).map(|found| found.tty)
}

/// What the runtime refused, as the reference tells it.
fn call_failed(error: &StreamCallError) -> Response<Body> {
    match error.class {
        FailureClass::NotFound => response(StatusCode::NOT_FOUND, TEXT, error.message.clone()),
        FailureClass::Exhausted => {
            let mut refused = response(StatusCode::TOO_MANY_REQUESTS, TEXT, error.message.clone());
            // How long the runtime keeps an address that nobody used.
            refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("60"));
            refused
        }
        _ => failed(error.message.clone()),
    }
}

fn failed(message: impl Into<String>) -> Response<Body> {
    response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, message.into())
}
