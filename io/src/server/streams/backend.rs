//! The runtime's streaming server: where it is, and an upgraded connection to it.

use bytes::Bytes;
use http::header::{HOST, HeaderMap};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::time::Duration;
use tokio::net::TcpStream;

/// From the first packet to the answer: the other end is on this machine.
const SET_UP: Duration = Duration::from_secs(30);
/// Largest refusal that is passed on.
const MAX_REFUSAL: usize = 1 << 20;

/// Where a stream is served.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Backend {
    host: String,
    path: String,
}

/// What became of asking for an upgrade.
#[derive(Debug)]
pub(super) enum Asked {
    /// The connection and the head of the answer.
    Upgraded(TokioIo<Upgraded>, HeaderMap),
    /// It was refused like this.
    Refused(StatusCode, HeaderMap, Bytes),
}

impl Backend {
    /// Reads an address that the runtime gave.
    ///
    /// # Errors
    /// One line, when it is none that can be used.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        let wrong = |reason: &str| format!("streaming address {url:?} of the runtime: {reason}");
        let uri: Uri = url.parse().map_err(|_| wrong("it is no URL"))?;
        if !matches!(uri.scheme_str(), Some("http") | None) {
            return Err(wrong("only http is supported; let the runtime serve streams on loopback without TLS"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("it has no host"))?;
        let host = match authority.port() {
            Some(_) => authority.as_str().to_owned(),
            None => format!("{authority}:80"),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { host, path })
    }

    /// Connects and asks for the upgrade that the headers name.
    ///
    /// # Errors
    /// One line, when nobody is there or no answer comes.
    pub(super) async fn upgrade(&self, method: Method, headers: HeaderMap) -> Result<Asked, String> {
        match tokio::time::timeout(SET_UP, self.ask(method, headers)).await {
            Ok(asked) => asked,
            Err(_) => Err(format!("dial tcp {}: i/o timeout", self.host)),
        }
    }

    async fn ask(&self, method: Method, headers: HeaderMap) -> Result<Asked, String> {
        let host = &self.host;
        let stream = TcpStream::connect(host).await.map_err(|error| format!("dial tcp {host}: {error}"))?;
        // Keystrokes should not wait for each other.
        let _ = stream.set_nodelay(true);
        let failed = |error: hyper::Error| format!("ask the runtime at {host} for a stream: {error}");
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let request = self.request(method, headers)?;
        // The connection ends with the upgraded stream, or with the sender.
        tokio::spawn(connection.with_upgrades());
        let answer = sender.send_request(request).await.map_err(failed)?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return refusal(answer).await;
        }
        let headers = answer.headers().clone();
        let upgraded = hyper::upgrade::on(answer).await.map_err(failed)?;
        Ok(Asked::Upgraded(TokioIo::new(upgraded), headers))
    }

    fn request(&self, method: Method, headers: HeaderMap) -> Result<Request<Empty<Bytes>>, String> {
        let mut request = Request::builder().method(method).uri(&self.path);
        if let Some(all) = request.headers_mut() {
            *all = headers;
            if let Ok(host) = self.host.parse() {
                all.entry(HOST).or_insert(host);
            }
        }
        request.body(Empty::new()).map_err(|error| error.to_string())
    }
}

async fn refusal(answer: Response<Incoming>) -> Result<Asked, String> {
    let status = answer.status();
    if status.as_u16() < 400 {
        return Err(format!("invalid upgrade response: status code {}", status.as_u16()));
    }
    let (head, body) = answer.into_parts();
    // A body that is cut or too long is worth less than the status.
    let body = Limited::new(body, MAX_REFUSAL).collect().await.map(|all| all.to_bytes()).unwrap_or_default();
    Ok(Asked::Refused(status, head.headers, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expect: Result<(&str, &str), &str>) {
        match (Backend::parse(url), expect) {
            (Ok(found), Ok((host, path))) => assert_eq!((found.host.as_str(), found.path.as_str()), (host, path)),
            (Err(found), Err(part)) => assert!(found.contains(part), "{found}"),
            (found, expect) => panic!("{found:?} is not {expect:?}"),
        }
    }

    #[test]
    fn addresses_of_the_runtime_are_read() {
        check("http://127.0.0.1:4711/exec/AbC-_", Ok(("127.0.0.1:4711", "/exec/AbC-_")));
        check("http://[::1]:4711/attach/x?y=1", Ok(("[::1]:4711", "/attach/x?y=1")));
        check("http://localhost/x", Ok(("localhost:80", "/x")));
        check("https://127.0.0.1:1/x", Err("only http is supported"));
        check("/exec/x", Err("has no host"));
        check("http://a b/", Err("no URL"));
    }
}
