//! The HTTP/2 connection below a client: made when a call needs it, made again after it broke.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use tokio::net::UnixStream;
use tokio::sync::Mutex;
use tonic::Status;

/// Bytes of one answer that may be on their way at once. Large lists should not wait for window updates.
const STREAM_WINDOW: u32 = 4 << 20;

/// Bytes of all answers that may be on their way at once; above the stream window, so that no answer blocks others.
const CONNECTION_WINDOW: u32 = 32 << 20;

/// A connection to one socket.
#[derive(Debug)]
pub(super) struct Line {
    socket: PathBuf,
    open: Mutex<Option<Open>>,
}

#[derive(Debug)]
struct Open {
    sender: SendRequest<Bytes>,
    /// Set by the connection's task when it ends.
    ended: Arc<AtomicBool>,
}

impl Line {
    pub(super) fn to(socket: PathBuf) -> Self {
        Self { socket, open: Mutex::default() }
    }

    /// Another connection to the same socket.
    pub(super) fn apart(&self) -> Self {
        Self::to(self.socket.clone())
    }

    /// What sends a request. A connection that has broken is made anew; nothing is tried twice.
    pub(super) async fn sender(&self) -> Result<SendRequest<Bytes>, Status> {
        let mut open = self.open.lock().await;
        if let Some(open) = &*open
            && !open.ended.load(Ordering::Acquire)
            // Of a connection that is about to end it says so at once; it waits for nothing else on a fresh clone.
            && let Ok(sender) = open.sender.clone().ready().await
        {
            return Ok(sender);
        }
        *open = None;
        let made = connect(&self.socket).await?;
        let sender = made.sender.clone();
        *open = Some(made);
        drop(open);
        sender.ready().await.map_err(refused)
    }
}

async fn connect(socket: &Path) -> Result<Open, Status> {
    let stream = UnixStream::connect(socket).await.map_err(unreachable)?;
    let (sender, connection) = Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake(stream)
        .await
        .map_err(refused)?;
    let ended = Arc::new(AtomicBool::new(false));
    let ends = Arc::clone(&ended);
    tokio::spawn(async move {
        // Calls under way get the error themselves.
        if let Err(error) = (Gathering { connection, yielded: false }).await {
            tracing::debug!(%error, "Connection to the runtime ended");
        }
        ends.store(true, Ordering::Release);
    });
    Ok(Open { sender, ended })
}

/// Lets the tasks that are ready run before the connection is driven, so that their requests leave in one write.
struct Gathering<C> {
    connection: C,
    yielded: bool,
}

impl<C: Future + Unpin> Future for Gathering<C> {
    type Output = C::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<C::Output> {
        self.yielded = !self.yielded;
        if self.yielded {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Pin::new(&mut self.connection).poll(context)
    }
}

/// The status of a call that the connection refused or lost.
pub(super) fn refused(error: h2::Error) -> Status {
    if !error.is_io() {
        return Status::from_error(Box::new(error));
    }
    error.into_io().map_or_else(|| Status::unavailable("the connection broke"), unreachable)
}

fn unreachable(error: io::Error) -> Status {
    Status::from_error(Box::new(error))
}
