//! The HTTP client: HTTP/2 where the server speaks it, few connections, checked by pings when quiet.
//!
//! It follows its files: when the kubeconfig or a file that it names changes, a new client takes over, and what runs over
//! the old one's connections is told that they are closed. Files that became unusable leave the former client in place.

mod connect;
pub(super) mod dial;

use super::Access;
use super::counts::{ApiCounts, Counter};
use super::exec::{Credential, Exec};
use super::identity::Bearer;
use super::kubeconfig::{Kubeconfig, Pem};
use super::pool::{Place, Pools};
use crate::files::{Stamp, stamp};
use arc_swap::ArcSwap;
use bytes::Bytes;
use components::edge::FailureClass;
use components::edge::api::{Answered, ApiRequest, Body, Class, Method};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// Largest answer that is taken; the server itself refuses objects of more than a few MiB.
const MAX_BODY: usize = 256 << 20;
/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) class: FailureClass,
    pub(super) message: String,
}

/// A client for one API server.
#[derive(Debug)]
pub(super) struct Transport {
    access: Access,
    live: ArcSwap<Live>,
    look: Mutex<Look>,
    counts: Counter,
}

/// The last look at the files.
#[derive(Debug)]
struct Look {
    at: Instant,
    files: Vec<PathBuf>,
    stamps: Vec<Stamp>,
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    files.iter().map(|path| stamp(path)).collect()
}

/// What the files said when they were read.
#[derive(Debug)]
struct Live {
    /// Scheme and authority, with the path prefix where there is one, without a slash at the end.
    base: String,
    kubeconfig: Kubeconfig,
    pools: Arc<Pools>,
    bearer: Option<Bearer>,
    exec: Option<Exec>,
    /// Cancelled when another client takes over.
    closed: CancellationToken,
}

/// An answer whose body is still to be read.
pub(super) struct Sent {
    pub(super) response: Response<Incoming>,
    /// Cancelled when its connection should be given up.
    pub(super) closed: CancellationToken,
    /// A watch's place on its connection, kept as long as the answer is read.
    pub(super) place: Option<Place>,
}

/// Which connection something goes over.
#[derive(Clone, Copy)]
enum Way {
    Request(Class),
    Watch,
}

impl Live {
    /// Reads the files; also which ones.
    fn new(access: &Access) -> Result<(Self, Vec<PathBuf>), String> {
        let mut kubeconfig = Kubeconfig::read(&access.kubeconfig).map_err(|error| error.to_string())?;
        let mut files = vec![access.kubeconfig.clone()];
        let file = |pem: &Pem| match pem {
            Pem::File(path) => Some(path.clone()),
            Pem::Inline(_) => None,
        };
        files.extend(kubeconfig.authority.iter().filter_map(file));
        files.extend(kubeconfig.identity.iter().flat_map(|(certificate, key)| [certificate, key]).filter_map(file));
        if let Some(rotated) = &access.rotated {
            files.push(rotated.clone());
            if rotated.exists() {
                kubeconfig.identity = Some((Pem::File(rotated.clone()), Pem::File(rotated.clone())));
            }
        }
        let missing = |pem: &Pem| file(pem).is_some_and(|path| !path.exists());
        if access.may_begin_without && kubeconfig.identity.as_ref().is_some_and(|(pem, _)| missing(pem)) {
            kubeconfig.identity = None;
        }
        let pools = connect::pools(&kubeconfig, None)?;
        let bearer = kubeconfig.token.clone().map(Bearer::new).transpose()?;
        let exec = kubeconfig.exec.clone().map(Exec::new);
        let base = kubeconfig.server.to_string().trim_end_matches('/').to_owned();
        let closed = CancellationToken::new();
        Ok((Self { base, kubeconfig, pools, bearer, exec, closed }, files))
    }

    /// Whom to send as, and over which connections.
    async fn who(&self) -> Result<(Arc<Pools>, Option<HeaderValue>, CancellationToken), CallError> {
        let Some(exec) = &self.exec else {
            return Ok((Arc::clone(&self.pools), self.bearer.as_ref().map(Bearer::value), self.closed.clone()));
        };
        let made = exec.current(|credential: &Credential| match &credential.identity {
            Some((certificate, key)) => {
                let pair = (Pem::Inline(certificate.clone()), Pem::Inline(key.clone()));
                connect::pools(&self.kubeconfig, Some(&pair))
            }
            None => Ok(Arc::clone(&self.pools)),
        });
        let made = made.await.map_err(|message| CallError { class: FailureClass::Unavailable, message })?;
        Ok((Arc::clone(&made.pools), made.bearer.clone(), made.closed.clone()))
    }
}

impl Transport {
    /// Makes the client, whose requests are counted in `counts`; the error says what is wrong with the files.
    pub(super) fn new(access: &Access, counts: &Arc<ApiCounts>) -> Result<Self, String> {
        // The files are looked at before they are read: what changes in between is seen at the next look.
        let at = Instant::now();
        let (live, files) = Live::new(access)?;
        let counts = Counter::new(live.kubeconfig.server.authority().map_or("", |host| host.as_str()), counts);
        let look = Look { at, stamps: stamps(&files), files };
        Ok(Self { access: access.clone(), live: ArcSwap::from_pointee(live), look: Mutex::new(look), counts })
    }

    /// Counts of its requests.
    pub(super) const fn counts(&self) -> &Counter {
        &self.counts
    }

    /// Sends one request and reads its whole answer.
    pub(super) async fn request(&self, request: &ApiRequest) -> Result<Answered, CallError> {
        let way = Way::Request(request.class);
        let sent = self.send(way, request.method, &request.path, &request.body).await?;
        let answer = collect(sent.response, request.secret).await?;
        self.counts.sizes(request.method.as_str(), request.body.text().len(), answer.body.len());
        Ok(answer)
    }

    /// Begins a watch.
    pub(super) async fn watch(&self, path: &str) -> Result<Sent, CallError> {
        self.send(Way::Watch, Method::Get, path, &Body::Empty).await
    }

    /// Sends one request; the answer's body is still to be read.
    async fn send(&self, way: Way, method: Method, path: &str, body: &Body) -> Result<Sent, CallError> {
        self.follow();
        let live = self.live.load_full();
        let (pools, bearer, closed) = live.who().await?;
        let uri: Uri = format!("{}{path}", live.base).parse().map_err(|e| invalid(format!("{path}: {e}")))?;
        let mut builder = Request::builder().method(method.as_str()).uri(uri).header(ACCEPT, "application/json");
        builder = builder.header(USER_AGENT, concat!("ticklet/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = bearer {
            builder = builder.header(AUTHORIZATION, bearer);
        }
        let bytes = match body {
            Body::Empty => Bytes::new(),
            Body::Json(_) | Body::Secret(_) => {
                builder = builder.header(CONTENT_TYPE, HeaderValue::from_static(method.media_type()));
                Bytes::copy_from_slice(body.text().as_bytes())
            }
        };
        let shown = builder.headers_ref().and_then(|headers| headers.get(AUTHORIZATION)).cloned();
        let request = builder.body(Full::new(bytes)).map_err(|e| invalid(e.to_string()))?;
        let (client, place) = match way {
            Way::Request(class) => (pools.request(class).clone(), None),
            Way::Watch => {
                let (client, place) = pools.watch();
                (client, Some(place))
            }
        };
        let begun = Instant::now();
        let answer = client.request(request).await;
        let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        self.counts.note(method.as_str(), code, begun.elapsed());
        if let (Some(401), Some(exec)) = (code, &live.exec) {
            exec.refused(shown.as_ref()).await;
        }
        answer.map(|response| Sent { response, closed, place }).map_err(|e| unavailable(&e))
    }

    /// Takes over what the files say now, if they changed.
    fn follow(&self) {
        // Whoever holds the lock is looking.
        let Ok(mut look) = self.look.try_lock() else { return };
        if look.at.elapsed() < LOOK {
            return;
        }
        look.at = Instant::now();
        let seen = stamps(&look.files);
        if seen == look.stamps {
            return;
        }
        match Live::new(&self.access) {
            Ok((live, files)) => {
                // Files that were not known before are as they were just read.
                look.stamps = if files == look.files { seen } else { stamps(&files) };
                look.files = files;
                let former = self.live.swap(Arc::new(live));
                tracing::info!("The credentials for the API server changed; old connections are given up");
                former.close();
            }
            Err(message) => {
                look.stamps = seen;
                // Half of a pair may have been written: the former serves until the other half is there.
                tracing::warn!("{message}; the former credentials for the API server are used");
            }
        }
    }
}

impl Live {
    fn close(&self) {
        self.closed.cancel();
        if let Some(exec) = &self.exec {
            exec.close();
        }
    }
}

/// Reads the whole answer.
pub(super) async fn collect(response: Response<Incoming>, secret: bool) -> Result<Answered, CallError> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(|e| {
        if e.downcast_ref::<LengthLimitError>().is_some() {
            let message = format!("the answer is larger than {} MiB", MAX_BODY >> 20);
            return CallError { class: FailureClass::Exhausted, message };
        }
        unavailable(&*e)
    })?;
    let body = body.to_bytes();
    Ok(Answered { status, secret, body: String::from_utf8_lossy(&body).into(), retry_after })
}

/// The connection failed.
pub(super) fn unavailable(error: &dyn Error) -> CallError {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        message = format!("{message}: {cause}");
        next = cause.source();
    }
    CallError { class: FailureClass::Unavailable, message }
}

const fn invalid(message: String) -> CallError {
    CallError { class: FailureClass::Invalid, message }
}
