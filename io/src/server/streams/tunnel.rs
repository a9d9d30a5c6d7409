//! Upgrades that are passed to the runtime as they are: SPDY, and the WebSockets that runtimes speak themselves.

use super::backend::{Asked, Backend};
use super::pump::pump;
use super::{Streams, failed, websocket};
use crate::server::body::Body;
use crate::server::connection::Peer;
use http::header::{AUTHORIZATION, CONNECTION, CONTENT_LENGTH, COOKIE, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::IpAddr;
use tokio::sync::OwnedSemaphorePermit;

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Asks the runtime for the same upgrade and answers what it answers.
pub(super) async fn serve(
    streams: &Streams,
    slot: OwnedSemaphorePermit,
    backend: Backend,
    peer: &Peer,
    mut request: Request<Incoming>,
) -> Response<Body> {
    if !websocket::is_upgrade(request.headers()) || request.version() != Version::HTTP_11 {
        return failed("Upgrade request required\n");
    }
    let headers = forwarded(request.headers(), peer.address);
    match backend.upgrade(request.method().clone(), headers).await {
        Ok(Asked::Upgraded(far, headers)) => {
            let client = hyper::upgrade::on(&mut request);
            streams.go_on(slot, peer, async move {
                match client.await {
                    Ok(near) => pump(TokioIo::new(near), far).await,
                    Err(error) => tracing::debug!(%error, "Client left before its stream began"),
                }
            });
            switched(headers)
        }
        Ok(Asked::Refused(status, headers, body)) => refused(status, &headers, body),
        Err(error) => {
            tracing::error!(%error, "Error while proxying request");
            failed(format!("{error}\n"))
        }
    }
}

/// The client's headers for the runtime: all but its secrets and what belongs to one connection.
pub(super) fn forwarded(headers: &HeaderMap, from: IpAddr) -> HeaderMap {
    let mut all = headers.clone();
    for name in [AUTHORIZATION, COOKIE, CONTENT_LENGTH, TRANSFER_ENCODING] {
        all.remove(name);
    }
    let before = all.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let chain: Vec<_> = before.map(str::to_owned).chain([from.to_string()]).collect();
    if let Ok(chain) = HeaderValue::from_str(&chain.join(", ")) {
        all.insert(FORWARDED_FOR, chain);
    }
    all
}

fn switched(mut headers: HeaderMap) -> Response<Body> {
    headers.remove(CONTENT_LENGTH);
    headers.remove(TRANSFER_ENCODING);
    let mut answer = Response::new(Body::whole(""));
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *answer.headers_mut() = headers;
    answer
}

/// Passes a refusal on. The connection ends with it, as it was half-way to something else.
pub(super) fn refused(status: StatusCode, headers: &HeaderMap, body: bytes::Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::whole(body));
    *answer.status_mut() = status;
    for (name, value) in headers {
        if ![CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING].contains(name) {
            answer.headers_mut().append(name, value.clone());
        }
    }
    answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_here_and_the_sender_is_named() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("authorization", "Bearer x"),
            ("upgrade", "SPDY/3.1"),
            ("x-stream-protocol-version", "v4.channel.k8s.io"),
            (FORWARDED_FOR, "10.0.0.1"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let passed = forwarded(&headers, "10.0.0.2".parse().unwrap());
        assert!(!passed.contains_key("authorization"));
        assert_eq!(passed["upgrade"], "SPDY/3.1");
        assert_eq!(passed["x-stream-protocol-version"], "v4.channel.k8s.io");
        assert_eq!(passed[FORWARDED_FOR], "10.0.0.1, 10.0.0.2");
    }
}
