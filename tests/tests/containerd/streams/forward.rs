//! A client's side of port-forward: one SPDY connection, plain or inside of a WebSocket, and any number of connections.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use io::spdy::{Frame, FrameReader, FrameWriter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, WriteHalf};
use tokio::sync::{Mutex, mpsc};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::client::{Client, Either};
use super::process::websocket_headers;

const PROTOCOL: &str = "portforward.k8s.io";

/// An open session.
pub(super) struct Session<S> {
    write: Arc<Mutex<(FrameWriter<WriteHalf<S>>, u32)>>,
    streams: Arc<std::sync::Mutex<HashMap<u32, mpsc::UnboundedSender<Bytes>>>>,
    reading: tokio::task::JoinHandle<()>,
}

/// What came of one connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) data: Vec<u8>,
    pub(super) error: String,
}

type Any = Either<tokio_rustls::client::TlsStream<tokio::net::TcpStream>, DuplexStream>;

/// Opens a session to a pod.
pub(super) async fn open(client: &Client, path: &str, websocket: bool) -> Session<Any> {
    if websocket {
        let protocol = format!("SPDY/3.1+{PROTOCOL}");
        let (code, head, stream) = client.upgrade("GET", path, &websocket_headers(&protocol)).await;
        assert_eq!(code, 101, "{head}");
        assert!(head.contains("sec-websocket-protocol: spdy/3.1+portforward.k8s.io"), "{head}");
        return Session::new(Either::Tunnel(bytes_of(stream).await));
    }
    let headers = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", PROTOCOL)];
    let (code, head, stream) = client.upgrade("POST", path, &headers).await;
    assert_eq!(code, 101, "{head}");
    Session::new(Either::Plain(stream))
}

/// The bytes inside of a WebSocket.
async fn bytes_of(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> DuplexStream {
    let (mut send, mut receive) = WebSocketStream::from_raw_socket(stream, Role::Client, None).await.split();
    let (near, far) = tokio::io::duplex(64 << 10);
    let (mut read, mut write) = tokio::io::split(far);
    tokio::spawn(async move {
        let mut buffer = vec![0; 16 << 10];
        while let Ok(count) = read.read(&mut buffer).await {
            if count == 0 || send.send(Message::Binary(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
                break;
            }
        }
        let _ = send.close().await;
    });
    tokio::spawn(async move {
        while let Some(Ok(message)) = receive.next().await {
            if let Message::Binary(bytes) = message
                && write.write_all(&bytes).await.is_err()
            {
                break;
            }
        }
        let _ = write.shutdown().await;
    });
    near
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Session<S> {
    fn new(stream: S) -> Self {
        let (read, write) = tokio::io::split(stream);
        let streams = Arc::<std::sync::Mutex<HashMap<u32, mpsc::UnboundedSender<Bytes>>>>::default();
        let known = Arc::clone(&streams);
        let reading = tokio::spawn(async move {
            let mut read = FrameReader::new(read);
            while let Ok(Some(frame)) = read.next().await {
                let mut known = known.lock().unwrap();
                let ended = match frame {
                    Frame::Data { stream, bytes, fin } => {
                        if let Some(receiver) = known.get(&stream) {
                            let _ = receiver.send(bytes);
                        }
                        fin.then_some(stream)
                    }
                    Frame::Reset { stream, .. } => Some(stream),
                    _ => None,
                };
                if let Some(stream) = ended {
                    known.remove(&stream);
                }
            }
            known.lock().unwrap().clear();
        });
        Self { write: Arc::new(Mutex::new((FrameWriter::new(write), 1))), streams, reading }
    }

    /// Opens the pair of streams of a connection to a port.
    async fn pair(&self, port: u16) -> (u32, [mpsc::UnboundedReceiver<Bytes>; 2]) {
        let mut write = self.write.lock().await;
        let first = write.1;
        write.1 += 4;
        let mut receivers = Vec::new();
        for (stream, kind) in [(first, "error"), (first + 2, "data")] {
            let (sender, receiver) = mpsc::unbounded_channel();
            self.streams.lock().unwrap().insert(stream, sender);
            receivers.push(receiver);
            let headers = vec![
                ("streamtype".to_owned(), kind.to_owned()),
                ("port".to_owned(), port.to_string()),
                ("requestid".to_owned(), first.to_string()),
            ];
            write.0.send(&Frame::Open { stream, headers, fin: false }).await.unwrap();
        }
        // Nothing is sent on the error stream.
        write.0.send(&Frame::Data { stream: first, bytes: Bytes::new(), fin: true }).await.unwrap();
        (first + 2, receivers.try_into().unwrap())
    }

    /// Makes a connection, sends a request, and reads both streams to their ends.
    pub(super) async fn exchange(&self, port: u16, request: &str) -> Connection {
        let (data, [mut error, mut answer]) = self.pair(port).await;
        let bytes = Bytes::copy_from_slice(request.as_bytes());
        self.write.lock().await.0.send(&Frame::Data { stream: data, bytes, fin: false }).await.unwrap();
        let mut connection = Connection { data: Vec::new(), error: String::new() };
        let reading = async {
            while let Some(bytes) = answer.recv().await {
                connection.data.extend_from_slice(&bytes);
            }
            while let Some(bytes) = error.recv().await {
                connection.error.push_str(&String::from_utf8_lossy(&bytes));
            }
        };
        let read = tokio::time::timeout(std::time::Duration::from_secs(45), reading).await;
        assert!(read.is_ok(), "port {port} has no end: {} bytes, {}", connection.data.len(), connection.error);
        connection
    }

    /// Makes a connection, waits for its first bytes, and is gone without a word.
    pub(super) async fn drop_halfway(self, port: u16, request: &str) {
        let (data, [_error, mut answer]) = self.pair(port).await;
        let bytes = Bytes::copy_from_slice(request.as_bytes());
        self.write.lock().await.0.send(&Frame::Data { stream: data, bytes, fin: false }).await.unwrap();
        assert!(answer.recv().await.is_some(), "nothing came");
    }
}

impl<S> Drop for Session<S> {
    fn drop(&mut self) {
        self.reading.abort();
    }
}
