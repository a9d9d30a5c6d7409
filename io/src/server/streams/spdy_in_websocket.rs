//! SPDY inside a WebSocket: the client's messages are the bytes of a SPDY connection, which the runtime serves.

use super::backend::{Asked, Backend};
use super::pump::{BUFFER, both};
use super::tunnel::{forwarded, refused};
use super::{StreamKind, Streams, failed, websocket};
use crate::server::body::Body;
use crate::server::connection::Peer;
use bytes::BytesMut;
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::{Error, Message};

/// Names the protocols inside of SPDY, best first.
pub(super) const PROTOCOL_VERSION: &str = "x-stream-protocol-version";

/// Makes the runtime speak SPDY, then the client's connection a WebSocket, and carries the bytes.
pub(super) async fn serve(
    streams: &Streams,
    slot: OwnedSemaphorePermit,
    backend: Backend,
    peer: &Peer,
    mut request: Request<Incoming>,
    protocol: String,
) -> Response<Body> {
    streams.count_websocket(StreamKind::PortForward);
    // A client that asks wrongly is told before the runtime is bothered.
    if let Err(bad) = websocket::accept(request.headers(), &websocket::tunnel_name(&protocol)) {
        return *bad;
    }
    let headers = as_spdy(forwarded(request.headers(), peer.address), &protocol);
    let (far, headers) = match backend.upgrade(Method::POST, headers).await {
        Ok(Asked::Upgraded(far, headers)) => (far, headers),
        Ok(Asked::Refused(status, headers, body)) => return refused(status, &headers, body),
        Err(error) => {
            tracing::error!(%error, "Error while proxying request");
            return failed(format!("{error}\n"));
        }
    };
    let chosen = headers.get(PROTOCOL_VERSION).and_then(|value| value.to_str().ok()).unwrap_or(&protocol);
    let answer = match websocket::accept(request.headers(), &websocket::tunnel_name(chosen)) {
        Ok(answer) => answer,
        Err(bad) => return *bad,
    };
    let client = hyper::upgrade::on(&mut request);
    streams.go_on(slot, peer, async move {
        match client.await {
            Ok(near) => carry(websocket::server(TokioIo::new(near)).await, far).await,
            Err(error) => tracing::debug!(%error, "Client left before its stream began"),
        }
    });
    answer
}

/// The headers of a WebSocket request as those of a SPDY request.
fn as_spdy(mut headers: HeaderMap, protocol: &str) -> HeaderMap {
    let websocket: Vec<_> =
        headers.keys().filter(|name| name.as_str().starts_with("sec-websocket-")).cloned().collect();
    for name in websocket {
        headers.remove(name);
    }
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    if let Ok(protocol) = HeaderValue::from_str(protocol) {
        headers.insert(PROTOCOL_VERSION, protocol);
    }
    headers
}

/// Carries messages one way and bytes the other, until both have ended.
async fn carry<W>(near: W, far: impl AsyncRead + AsyncWrite)
where
    W: Stream<Item = Result<Message, Error>> + Sink<Message, Error = Error>,
{
    let (mut send, mut receive) = near.split();
    let (mut far_read, mut far_write) = tokio::io::split(far);
    let up = async {
        while let Some(message) = receive.next().await {
            match message.map_err(io::Error::other)? {
                Message::Binary(bytes) => {
                    far_write.write_all(&bytes).await?;
                    far_write.flush().await?;
                }
                Message::Text(_) => return Err(io::Error::other("text in a tunnel of bytes")),
                Message::Close(_) => break,
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
        far_write.shutdown().await
    };
    let down = async {
        let mut buffer = BytesMut::new();
        loop {
            buffer.reserve(BUFFER);
            if far_read.read_buf(&mut buffer).await? == 0 {
                return send.send(super::translate::goodbye()).await.map_err(io::Error::other);
            }
            send.send(Message::Binary(buffer.split().freeze())).await.map_err(io::Error::other)?;
        }
    };
    both(up, down).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::duplex;
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::protocol::Role;

    #[test]
    fn a_request_for_a_websocket_becomes_one_for_spdy() {
        let mut headers = HeaderMap::new();
        for (name, value) in [("upgrade", "websocket"), ("sec-websocket-key", "k"), ("sec-websocket-protocol", "p")] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let spdy = as_spdy(headers, "portforward.k8s.io");
        assert_eq!(spdy.len(), 3);
        assert_eq!(
            (&spdy["upgrade"], &spdy[PROTOCOL_VERSION]),
            (&"SPDY/3.1".parse().unwrap(), &"portforward.k8s.io".parse().unwrap())
        );
    }

    #[tokio::test]
    async fn bytes_pass_whole_in_both_directions_and_ends_as_ends() {
        let ((client, near), (far, mut server)) = (duplex(1000), duplex(1000));
        let carrying = tokio::spawn(async move { carry(websocket::server(near).await, far).await });
        let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        client.send(Message::Binary("to the runtime".into())).await.unwrap();
        let mut got = [0; 14];
        server.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"to the runtime");
        let sent = vec![7; 100_000];
        let copy = sent.clone();
        let writer = tokio::spawn(async move {
            server.write_all(&copy).await.unwrap();
        });
        let mut received = Vec::new();
        while let Some(message) = client.next().await {
            match message.unwrap() {
                Message::Binary(bytes) => received.extend_from_slice(&bytes),
                Message::Close(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(received, sent);
        writer.await.unwrap();
        drop(client);
        carrying.await.unwrap();
    }
}
