//! WebSockets that end here: which are asked for, and the handshake.

use crate::server::body::{Body, Refused, TEXT, response};
use http::header::{CONNECTION, HeaderMap, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::header::{SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE};
use http::{Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Largest message that is taken, as the reference's; some clients send a whole file as one.
const MAX_MESSAGE: usize = 32 << 20;
/// Begins the protocols that carry SPDY in a WebSocket; the SPDY protocol follows.
const TUNNEL: &str = "SPDY/3.1+";
/// Streams of a process, each with an end of its own.
pub(super) const V5: &str = "v5.channel.k8s.io";

/// True when the connection is to become something else.
pub(super) fn is_upgrade(headers: &HeaderMap) -> bool {
    headers
        .get_all(CONNECTION)
        .iter()
        .any(|value| value.to_str().is_ok_and(|text| text.to_ascii_lowercase().contains("upgrade")))
}

/// True when it is to become a WebSocket.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let named = headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    named && is_upgrade(headers)
}

/// The protocols that a client offers, in its order.
fn offered(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

/// True when a client offers the protocol whose streams end one by one.
pub(super) fn offers_v5(headers: &HeaderMap) -> bool {
    is_asked_for(headers) && offered(headers).any(|protocol| protocol == V5)
}

/// The SPDY protocol that a client offers to speak inside of a WebSocket.
pub(super) fn tunnel_protocol(headers: &HeaderMap) -> Option<&str> {
    if !is_asked_for(headers) {
        return None;
    }
    offered(headers).filter(|protocol| protocol.ends_with(".k8s.io")).find_map(|protocol| protocol.strip_prefix(TUNNEL))
}

/// The name of a tunnel for a SPDY protocol.
pub(super) fn tunnel_name(spdy: &str) -> String {
    format!("{TUNNEL}{spdy}")
}

/// A WebSocket on a connection whose handshake is done.
pub(super) async fn server<S: AsyncRead + AsyncWrite + Unpin>(stream: S) -> WebSocketStream<S> {
    let limits = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE)).max_frame_size(Some(MAX_MESSAGE));
    WebSocketStream::from_raw_socket(stream, Role::Server, Some(limits)).await
}

/// The answer that makes a connection a WebSocket.
///
/// # Errors
/// The answer to a client that doesn't ask as it should.
pub(super) fn accept(headers: &HeaderMap, protocol: &str) -> Result<Response<Body>, Refused> {
    let bad = |message: &'static str| Box::new(response(StatusCode::BAD_REQUEST, TEXT, message));
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err(bad("missing or bad WebSocket Version\n"));
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| bad("mismatch challenge/response\n"))?;
    let mut answer = Response::new(Body::whole(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| bad("bad WebSocket Protocol\n"));
    let (accept, protocol) = (value(&derive_accept_key(key.as_bytes()))?, value(protocol)?);
    let all = answer.headers_mut();
    all.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    all.insert(UPGRADE, HeaderValue::from_static("websocket"));
    all.insert(SEC_WEBSOCKET_ACCEPT, accept);
    all.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (http::HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    fn asking(protocols: &str) -> HeaderMap {
        headers(&[
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-protocol", protocols),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("sec-websocket-version", "13"),
        ])
    }

    #[test]
    fn the_kind_of_a_request_is_told_by_its_headers() {
        assert!(!is_upgrade(&headers(&[("upgrade", "websocket")])));
        assert!(is_upgrade(&headers(&[("connection", "upgrade")])));
        assert!(!is_asked_for(&headers(&[("connection", "upgrade"), ("upgrade", "SPDY/3.1")])));
        assert!(offers_v5(&asking("v4.channel.k8s.io, v5.channel.k8s.io")));
        assert!(!offers_v5(&asking("v4.channel.k8s.io")));
        assert_eq!(tunnel_protocol(&asking("x, SPDY/3.1+portforward.k8s.io")), Some("portforward.k8s.io"));
        assert_eq!(tunnel_protocol(&asking("SPDY/3.1+portforward.example")), None);
        assert_eq!(tunnel_name("portforward.k8s.io"), "SPDY/3.1+portforward.k8s.io");
    }

    #[test]
    fn the_handshake_follows_the_standard() {
        let answer = accept(&asking(V5), V5).unwrap();
        assert_eq!(answer.status(), 101);
        // The example of RFC 6455.
        assert_eq!(answer.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(answer.headers()["sec-websocket-protocol"], V5);
        let mut old = asking(V5);
        old.insert("sec-websocket-version", "8".parse().unwrap());
        assert_eq!(accept(&old, V5).unwrap_err().status(), 400);
        let mut keyless = asking(V5);
        keyless.remove("sec-websocket-key");
        assert_eq!(accept(&keyless, V5).unwrap_err().status(), 400);
    }
}
