//! A WebSocket whose streams end one by one (`v5.channel.k8s.io`), for a runtime that speaks SPDY.
//!
//! Each message begins with its channel: 0 standard input, 1 output, 2 error output, 3 how it ended, 4 terminal sizes.
//! Here, every channel is a SPDY stream. One task carries messages to the runtime, one carries frames to the client;
//! each waits for its receiver, so neither keeps more than one message or frame.

use super::backend::{Asked, Backend};
use super::pump::LINGER;
use super::spdy_in_websocket::PROTOCOL_VERSION;
use super::{Streams, status, websocket};
use crate::cri::streams::Wanted;
use crate::server::body::Body;
use crate::server::connection::Peer;
use crate::spdy::{Frame, FrameReader, FrameWriter, SpdyError};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message, Utf8Bytes};

/// The protocol inside of SPDY: how a process ended is told in JSON.
const V4: &str = "v4.channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
/// Followed by a channel: the client sends nothing more on it.
const CLOSE: u8 = 255;

/// Largest part of a message that becomes one frame.
const PART: usize = 64 << 10;
/// What is kept of the runtime's error stream.
const MAX_STATUS: usize = 64 << 10;
/// For telling a client how it ended.
const TELLING: Duration = Duration::from_secs(10);

/// Makes the client's connection a WebSocket and begins to translate.
pub(super) fn serve(
    streams: &Streams,
    slot: OwnedSemaphorePermit,
    backend: Backend,
    peer: &Peer,
    mut request: Request<Incoming>,
    wanted: Wanted,
) -> Response<Body> {
    let answer = match websocket::accept(request.headers(), websocket::V5) {
        Ok(answer) => answer,
        Err(bad) => return *bad,
    };
    let client = hyper::upgrade::on(&mut request);
    streams.go_on(slot, peer, async move {
        match client.await {
            Ok(near) => session(websocket::server(TokioIo::new(near)).await, backend, wanted).await,
            Err(error) => tracing::debug!(%error, "Client left before its stream began"),
        }
    });
    answer
}

async fn session<S>(near: WebSocketStream<S>, backend: Backend, wanted: Wanted)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(V4));
    let far = match backend.upgrade(Method::POST, headers).await {
        Ok(Asked::Upgraded(far, headers)) if headers.get(PROTOCOL_VERSION).is_some_and(|chosen| chosen == V4) => {
            Ok(far)
        }
        Ok(Asked::Upgraded(..)) => Err(format!("the runtime does not speak {V4} in SPDY")),
        Ok(Asked::Refused(status, _, body)) => {
            Err(format!("unable to upgrade connection: {status}: {}", String::from_utf8_lossy(&body).trim()))
        }
        Err(error) => Err(error),
    };
    translate(near, far, wanted).await;
}

/// Carries everything between a client and an upgraded connection to the runtime, or tells why there is none.
async fn translate<S, F>(near: WebSocketStream<S>, far: Result<F, String>, wanted: Wanted)
where
    S: AsyncRead + AsyncWrite + Unpin,
    F: AsyncRead + AsyncWrite,
{
    let (mut send, receive) = near.split();
    // An empty message says that the connection stands.
    let first = if wanted.stdout {
        STDOUT
    } else if wanted.stderr {
        STDERR
    } else {
        STATUS
    };
    if send.send(message(first, &[])).await.is_err() {
        return;
    }
    let far = match far {
        Ok(far) => far,
        Err(error) => {
            tracing::error!(%error, "Error while proxying request");
            return tell(send, receive, status::broken(&error)).await;
        }
    };
    let (read, write) = tokio::io::split(far);
    let (pong, pongs) = mpsc::channel(8);
    let ids = Ids::new(wanted);
    let mut up = Up { ids, write: FrameWriter::new(write), receive, pongs };
    if let Err(error) = up.open().await {
        return tell(send, up.receive, status::broken(&error.to_string())).await;
    }
    let mut down = Down { ids, send, pong, said: Vec::new() };
    let ended = {
        let (carrying_up, carrying_down) = (up.run(), down.run(FrameReader::new(read)));
        tokio::pin!(carrying_up, carrying_down);
        tokio::select! {
            () = &mut carrying_up => None,
            ended = &mut carrying_down => Some(ended),
        }
    };
    match ended {
        // The client is gone: the runtime learns it from the end of its connection.
        None | Some(Err(Broken::Client)) => {}
        Some(Ok(())) => tell(down.send, up.receive, status::told(&down.said)).await,
        Some(Err(Broken::Runtime(error))) if down.said.is_empty() => {
            tell(down.send, up.receive, status::broken(&error.to_string())).await;
        }
        Some(Err(Broken::Runtime(_))) => tell(down.send, up.receive, status::told(&down.said)).await,
    }
}

/// Numbers of the SPDY streams; 0 for one that is not wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ids {
    error: u32,
    stdin: u32,
    stdout: u32,
    stderr: u32,
    resize: u32,
}

impl Ids {
    fn new(wanted: Wanted) -> Self {
        let mut next = 1;
        let mut id = |wanted: bool| {
            let id = if wanted { next } else { 0 };
            next += if wanted { 2 } else { 0 };
            id
        };
        Self {
            error: id(true),
            stdin: id(wanted.stdin),
            stdout: id(wanted.stdout),
            stderr: id(wanted.stderr),
            resize: id(wanted.tty),
        }
    }

    fn named(self) -> impl Iterator<Item = (u32, &'static str)> {
        let all = [
            (self.error, "error"),
            (self.stdin, "stdin"),
            (self.stdout, "stdout"),
            (self.stderr, "stderr"),
            (self.resize, "resize"),
        ];
        all.into_iter().filter(|(id, _)| *id != 0)
    }
}

/// From the client to the runtime.
struct Up<S, W> {
    ids: Ids,
    write: FrameWriter<W>,
    receive: SplitStream<WebSocketStream<S>>,
    pongs: mpsc::Receiver<u32>,
}

impl<S: AsyncRead + AsyncWrite + Unpin, W: AsyncWrite + Unpin> Up<S, W> {
    async fn open(&mut self) -> Result<(), SpdyError> {
        for (stream, name) in self.ids.named() {
            let headers = vec![("streamtype".to_owned(), name.to_owned())];
            self.write.send(&Frame::Open { stream, headers, fin: false }).await?;
        }
        Ok(())
    }

    /// Runs until the client is gone. A runtime that takes nothing more may still have something to say.
    async fn run(&mut self) {
        let mut takes = true;
        loop {
            let done = tokio::select! {
                Some(id) = self.pongs.recv() => self.write.send(&Frame::Ping { id }).await,
                message = self.receive.next() => match message {
                    Some(Ok(Message::Binary(bytes))) if takes => self.pass(bytes).await,
                    Some(Ok(Message::Text(text))) if takes => self.pass(text.into()).await,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                    Some(Ok(_)) => Ok(()),
                },
            };
            if let Err(error) = done {
                tracing::debug!(%error, "Runtime takes nothing more");
                takes = false;
            }
        }
    }

    async fn pass(&mut self, mut message: Bytes) -> Result<(), SpdyError> {
        if message.is_empty() {
            return Ok(());
        }
        let channel = message.split_to(1);
        if *channel == [CLOSE] {
            let stream = message.first().map_or(0, |closed| self.stream(*closed));
            return self.data(stream, Bytes::new(), true).await;
        }
        let stream = channel.first().map_or(0, |channel| self.stream(*channel));
        while !message.is_empty() {
            let part = message.split_to(message.len().min(PART));
            self.data(stream, part, false).await?;
        }
        Ok(())
    }

    /// The stream that a client may send on; 0 where it may not.
    fn stream(&self, channel: u8) -> u32 {
        match channel {
            STDIN => self.ids.stdin,
            RESIZE => self.ids.resize,
            _ => 0,
        }
    }

    async fn data(&mut self, stream: u32, bytes: Bytes, fin: bool) -> Result<(), SpdyError> {
        if stream == 0 {
            return Ok(());
        }
        if fin {
            // What comes after the end of a channel is nothing.
            match stream {
                stream if stream == self.ids.stdin => self.ids.stdin = 0,
                _ => self.ids.resize = 0,
            }
        }
        self.write.send(&Frame::Data { stream, bytes, fin }).await
    }
}

/// From the runtime to the client.
struct Down<S> {
    ids: Ids,
    send: SplitSink<WebSocketStream<S>, Message>,
    pong: mpsc::Sender<u32>,
    /// What the error stream said.
    said: Vec<u8>,
}

/// Which side broke.
enum Broken {
    Client,
    Runtime(SpdyError),
}

impl<S: AsyncRead + AsyncWrite + Unpin> Down<S> {
    /// Runs until every stream of the runtime has ended.
    async fn run<R: AsyncRead + Unpin>(&mut self, mut read: FrameReader<R>) -> Result<(), Broken> {
        let mut open: Vec<u32> =
            [self.ids.error, self.ids.stdout, self.ids.stderr].into_iter().filter(|id| *id != 0).collect();
        while !open.is_empty() {
            let ended = match read.next().await.map_err(Broken::Runtime)? {
                None => return Ok(()),
                Some(Frame::Data { stream, bytes, fin }) => {
                    self.data(stream, &bytes).await.map_err(|_| Broken::Client)?;
                    fin.then_some(stream)
                }
                Some(Frame::Reply { stream, fin, .. } | Frame::Headers { stream, fin, .. }) => fin.then_some(stream),
                Some(Frame::Reset { stream, .. }) => Some(stream),
                Some(Frame::Ping { id }) => {
                    // With its queue full the runtime has answers enough to come.
                    let _ = self.pong.try_send(id);
                    None
                }
                Some(Frame::GoAway { .. } | Frame::Open { .. } | Frame::Other { .. }) => None,
            };
            open.retain(|id| Some(*id) != ended);
        }
        Ok(())
    }

    async fn data(&mut self, stream: u32, bytes: &[u8]) -> Result<(), Error> {
        if bytes.is_empty() {
            return Ok(());
        }
        if stream == self.ids.error {
            let room = MAX_STATUS.saturating_sub(self.said.len()).min(bytes.len());
            self.said.extend_from_slice(bytes.get(..room).unwrap_or_default());
            return Ok(());
        }
        let channel = match stream {
            stream if stream == self.ids.stdout => STDOUT,
            stream if stream == self.ids.stderr => STDERR,
            _ => return Ok(()),
        };
        self.send.send(message(channel, bytes)).await
    }
}

fn message(channel: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(channel);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

/// An end with the normal code: clients take an end without a code for a connection that broke.
pub(super) fn goodbye() -> Message {
    Message::Close(Some(CloseFrame { code: CloseCode::Normal, reason: Utf8Bytes::default() }))
}

/// Tells the client how it ended, says goodbye, and waits a moment for the client to do so, too.
async fn tell<S: AsyncRead + AsyncWrite + Unpin>(
    mut send: SplitSink<WebSocketStream<S>, Message>,
    mut receive: SplitStream<WebSocketStream<S>>,
    status: String,
) {
    let telling = async {
        send.send(message(STATUS, status.as_bytes())).await?;
        send.send(goodbye()).await
    };
    if !matches!(tokio::time::timeout(TELLING, telling).await, Ok(Ok(()))) {
        return;
    }
    let rest = async { while let Some(Ok(_)) = receive.next().await {} };
    let _ = tokio::time::timeout(LINGER, rest).await;
}

#[cfg(test)]
mod tests;
