//! Carries bytes between two connections until both have nothing more to say.

use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

/// Bytes of one direction that are on their way.
pub(super) const BUFFER: usize = 32 << 10;
/// After one end has closed, the other has this long to finish: protocols inside have their own half-close.
pub(super) const LINGER: Duration = Duration::from_secs(10);

/// Carries both directions. An end of one is passed on as such; an error ends both.
pub(super) async fn pump(near: impl AsyncRead + AsyncWrite, far: impl AsyncRead + AsyncWrite) {
    let (near_read, near_write) = tokio::io::split(near);
    let (far_read, far_write) = tokio::io::split(far);
    let up = carry(near_read, far_write);
    let down = carry(far_read, near_write);
    both(up, down).await;
}

/// Runs both directions; an error ends both, an end gives the other a moment to finish.
pub(super) async fn both(up: impl Future<Output = io::Result<()>>, down: impl Future<Output = io::Result<()>>) {
    tokio::pin!(up, down);
    let ended = tokio::select! {
        ended = &mut up => match ended {
            Ok(()) => tokio::time::timeout(LINGER, down).await.unwrap_or(Ok(())),
            failed => failed,
        },
        ended = &mut down => match ended {
            Ok(()) => tokio::time::timeout(LINGER, up).await.unwrap_or(Ok(())),
            failed => failed,
        },
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "Stream broke off");
    }
}

async fn carry<R: AsyncRead, W: AsyncWrite>(mut from: ReadHalf<R>, mut to: WriteHalf<W>) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let read = from.read(&mut buffer).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(buffer.get(..read).unwrap_or_default()).await?;
        to.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn an_end_is_passed_on_and_the_other_direction_may_finish() {
        let ((mut client, near), (far, mut server)) = (duplex(64), duplex(64));
        let pumping = tokio::spawn(pump(near, far));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut asked = String::new();
        server.read_to_string(&mut asked).await.unwrap();
        assert_eq!(asked, "question");
        tokio::spawn(async move { server.write_all(&[b'x'; 1000]).await.unwrap() });
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer.len(), 1000);
        pumping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_never_ends_is_let_go() {
        let ((client, near), (far, server)) = (duplex(64), duplex(64));
        let began = Instant::now();
        let pumping = tokio::spawn(pump(near, far));
        drop(client);
        pumping.await.unwrap();
        assert_eq!(began.elapsed(), LINGER);
        drop(server);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_reader_holds_the_writer_up() {
        let ((client, near), (far, mut server)) = (duplex(64), duplex(64));
        tokio::spawn(pump(near, far));
        // Nobody reads at the client: besides the pipes only one buffer's worth is taken.
        let flood = tokio::time::timeout(Duration::from_secs(5), server.write_all(&vec![0; 2 * BUFFER])).await;
        assert!(flood.is_err(), "the pump takes bytes that nobody reads");
        drop(client);
    }
}
