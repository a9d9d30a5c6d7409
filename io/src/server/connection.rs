//! One listener's connections: accepted up to a bound, with a handshake deadline and an idle deadline.

use super::routes::{Listener, Site};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Connections per listener. A node has a handful of clients; each connection may hold a buffer of [`MAX_HEADER`].
const MAX_CONNECTIONS: usize = 256;
/// Largest request head.
const MAX_HEADER: usize = 1 << 20;
/// A TLS handshake takes two round trips.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// The kubelet's idle limit.
const IDLE: Duration = Duration::from_secs(90);
/// Requests at a time within one HTTP/2 connection, as Go's server has it.
const MAX_STREAMS: u32 = 250;
/// Pause after an accept that failed for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves one listener.
pub(super) struct Acceptor {
    pub(super) site: Arc<Site>,
    pub(super) listener: Listener,
    pub(super) tls: Option<Arc<rustls::ServerConfig>>,
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
                Ok((stream, _)) => {
                    let this = Arc::clone(&this);
                    this.tasks.clone().spawn(async move {
                        this.handle(stream).await;
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

    async fn handle(&self, stream: TcpStream) {
        let stream = IdleLimit::new(stream, IDLE);
        let Some(tls) = &self.tls else {
            return self.http(stream).await;
        };
        let handshake = TlsAcceptor::from(Arc::clone(tls)).accept(stream);
        match tokio::time::timeout(HANDSHAKE, handshake).await {
            Ok(Ok(stream)) => self.http(stream).await,
            Ok(Err(error)) => tracing::debug!(error = %error, "TLS handshake failed"),
            Err(_) => tracing::debug!("TLS handshake took too long"),
        }
    }

    async fn http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(&self, stream: S) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).max_buf_size(MAX_HEADER).header_read_timeout(IDLE);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(u32::try_from(MAX_HEADER).unwrap_or(u32::MAX))
            .max_concurrent_streams(MAX_STREAMS);
        let service = service_fn(|request: Request<Incoming>| {
            let site = Arc::clone(&self.site);
            let listener = self.listener;
            async move { Ok::<Response<Full<Bytes>>, Infallible>(site.answer(listener, request.method(), request.uri())) }
        });
        let connection = builder.serve_connection(TokioIo::new(stream), service);
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

/// A stream that fails once nothing was read or written for a while.
struct IdleLimit<S> {
    stream: S,
    limit: Duration,
    deadline: Pin<Box<Sleep>>,
}

impl<S> IdleLimit<S> {
    fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: Box::pin(tokio::time::sleep(limit)) }
    }

    /// Passes a result on; while there is none, looks whether the time is over.
    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.deadline.as_mut().reset(Instant::now() + self.limit);
            return polled;
        }
        match self.deadline.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IdleLimit<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.watch(polled, cx)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleLimit<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_let_go_and_a_talking_one_is_kept() {
        let (mut far, near) = duplex(64);
        let mut near = IdleLimit::new(near, Duration::from_secs(90));
        let mut buf = [0; 1];
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            far.write_all(b"x").await.unwrap();
            near.read_exact(&mut buf).await.unwrap();
        }
        let began = Instant::now();
        let error = near.read_exact(&mut buf).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(90));
    }
}
