//! One listener's connections: accepted up to a bound, with a handshake deadline and an idle deadline.

use super::body::Body;
use super::credentials::Credentials;
use super::idle::{Busy, IdleLimit};
use super::routes::{Listener, Site};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls::pki_types::CertificateDer;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections per listener: a thousand followed logs and their like. A waiting one costs some 20 KiB; only a request
/// with a large head makes a buffer grow, up to [`MAX_HEADER`].
const MAX_CONNECTIONS: usize = 2048;
/// Largest request head.
const MAX_HEADER: usize = 1 << 20;
/// A TLS handshake takes two round trips.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The kubelet's idle limit.
const IDLE: Duration = Duration::from_secs(90);
/// The kubelet's limit of a request's reading and writing, here of the silence within one.
pub(super) const SILENCE: Duration = Duration::from_secs(4 * 3600);
/// Requests at a time within one HTTP/2 connection, as Go's server has it.
const MAX_STREAMS: u32 = 250;
/// Pause after an accept that failed for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: IpAddr,
    /// What it showed in the handshake, its own certificate first.
    pub(super) certificates: Arc<[CertificateDer<'static>]>,
    /// For what goes on after an answer.
    pub(super) busy: Busy,
}

/// Serves one listener.
pub(super) struct Acceptor {
    pub(super) site: Arc<Site>,
    pub(super) listener: Listener,
    pub(super) tls: Option<Arc<Credentials>>,
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

impl Acceptor {
    pub(super) async fn run(self, listener: TcpListener) {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let this = Arc::new(self);
        loop {
            // Beyond the bound, connections wait in the kernel's queue.
            let next = async {
                let slot = Arc::clone(&slots).acquire_owned().await;
                (slot, listener.accept().await)
            };
            let (slot, accepted) = tokio::select! {
                () = this.stop.cancelled() => return,
                next = next => next,
            };
            let (Ok(slot), stream) = (slot, accepted) else { return };
            match stream {
                Ok((stream, peer)) => {
                    let this = Arc::clone(&this);
                    this.tasks.clone().spawn(async move {
                        this.handle(stream, peer.ip()).await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(error = %error, "Connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn handle(&self, stream: TcpStream, address: IpAddr) {
        let busy = Busy::default();
        let stream = IdleLimit::new(stream, busy.clone(), IDLE, SILENCE);
        let mut peer = Peer { address, certificates: Arc::default(), busy };
        let Some(credentials) = &self.tls else {
            return self.http(stream, peer).await;
        };
        let handshake = TlsAcceptor::from(Arc::clone(&credentials.current().await.tls)).accept(stream);
        match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => {
                peer.certificates = stream.get_ref().1.peer_certificates().unwrap_or_default().into();
                self.http(stream, peer).await;
            }
            Ok(Err(error)) => tracing::debug!(error = %error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S, peer: Peer) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).max_buf_size(MAX_HEADER).header_read_timeout(IDLE);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(MAX_HEADER).unwrap_or(u32::MAX))
            .max_concurrent_streams(MAX_STREAMS);
        let service = service_fn(|request: Request<Incoming>| {
            let (site, peer, listener) = (Arc::clone(&self.site), peer.clone(), self.listener);
            async move {
                let busy = peer.busy.enter();
                let answer = site.answer(listener, &peer, request).await;
                Ok::<Response<Body>, Infallible>(answer.map(|body| body.hold(busy)))
            }
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let ended = tokio::select! {
            ended = &mut connection => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %error, "Connection ended early");
        }
    }
}
