//! The idle limit of a connection: short between requests, long while one is answered.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// How many requests of a connection are being answered.
#[derive(Clone, Default, Debug)]
pub(super) struct Busy(Arc<AtomicUsize>);

/// Keeps its connection busy as long as it lives.
#[derive(Debug)]
pub(super) struct BusyGuard(Arc<AtomicUsize>);

impl Busy {
    /// One more request.
    pub(super) fn enter(&self) -> BusyGuard {
        self.0.fetch_add(1, Ordering::Relaxed);
        BusyGuard(Arc::clone(&self.0))
    }
}

impl Drop for BusyGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A stream that fails once nothing was read or written for a while.
pub(super) struct IdleLimit<S> {
    stream: S,
    busy: Busy,
    between: Duration,
    within: Duration,
    last: Instant,
    deadline: Pin<Box<Sleep>>,
}

impl<S> IdleLimit<S> {
    /// Allows silence of `between` while nothing is answered, and of `within` while something is.
    pub(super) fn new(stream: S, busy: Busy, between: Duration, within: Duration) -> Self {
        let deadline = Box::pin(tokio::time::sleep(between));
        Self { stream, busy, between, within, last: Instant::now(), deadline }
    }

    /// Passes a result on; while there is none, looks whether the time is over.
    fn watch<T>(&mut self, polled: Poll<io::Result<T>>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.last = Instant::now();
            self.deadline.as_mut().reset(self.last + self.between);
            return polled;
        }
        while self.deadline.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let over = self.last + if self.busy.0.load(Ordering::Relaxed) > 0 { self.within } else { self.between };
            if now >= over {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.deadline.as_mut().reset(over.min(now + self.between));
        }
        Poll::Pending
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

    const BETWEEN: Duration = Duration::from_secs(90);
    const WITHIN: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_silent_peer_is_let_go_and_a_talking_one_is_kept() {
        let (mut far, near) = duplex(64);
        let mut near = IdleLimit::new(near, Busy::default(), BETWEEN, WITHIN);
        let mut buf = [0; 1];
        for _ in 0..5 {
            tokio::time::sleep(Duration::from_secs(60)).await;
            far.write_all(b"x").await.unwrap();
            near.read_exact(&mut buf).await.unwrap();
        }
        let began = Instant::now();
        let error = near.read_exact(&mut buf).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert_eq!(began.elapsed(), BETWEEN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_under_way_may_be_silent_for_long_but_not_for_ever() {
        let (mut far, near) = duplex(64);
        let busy = Busy::default();
        let mut near = IdleLimit::new(near, busy.clone(), BETWEEN, WITHIN);
        let guard = busy.enter();
        let mut buf = [0; 1];
        let began = Instant::now();
        let late = async {
            tokio::time::sleep(Duration::from_secs(3000)).await;
            far.write_all(b"x").await.unwrap();
        };
        tokio::join!(late, async { near.read_exact(&mut buf).await.unwrap() });
        near.read_exact(&mut buf).await.unwrap_err();
        assert_eq!(began.elapsed(), Duration::from_secs(3000) + WITHIN);
        drop(guard);
        let began = Instant::now();
        near.last = began;
        near.deadline.as_mut().reset(began + BETWEEN);
        near.read_exact(&mut buf).await.unwrap_err();
        assert_eq!(began.elapsed(), BETWEEN);
    }
}
