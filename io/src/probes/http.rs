//! `httpGet`: one GET, redirects to the same host followed, at most ten.

use super::dial::{address, dial, said};
use super::response::{Head, MAX_HEAD};
use super::tls::Lazy;
use components::edge::probes::{HttpTarget, ProbesAnswer};
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Redirects that are followed.
const MAX_REDIRECTS: u32 = 10;
/// First size of the buffer: most answers to probes fit.
const BUFFER: usize = 1024;

/// Asks and says whether the answer lets the probe pass.
pub(super) async fn get(target: Arc<HttpTarget>, tls: &Lazy) -> ProbesAnswer {
    let mut at = target;
    for _ in 0..MAX_REDIRECTS {
        let (head, body) = match exchange(&at, tls).await {
            Ok(answer) => answer,
            Err(message) => return ProbesAnswer::NotPassed { message: format!("Get {:?}: {message}", url(&at)) },
        };
        let location = head.location.as_deref().filter(|_| matches!(head.status, 301 | 302 | 303 | 307 | 308));
        match location.map(|location| follow(&at, location)) {
            Some(Ok(Some(next))) => at = Arc::new(next),
            Some(Err(message)) => return ProbesAnswer::NotPassed { message },
            None | Some(Ok(None)) => return judge(head.status, &body),
        }
    }
    let message = format!("Get {:?}: stopped after {MAX_REDIRECTS} redirects", url(&at));
    ProbesAnswer::NotPassed { message }
}

fn judge(status: u16, body: &str) -> ProbesAnswer {
    match status {
        200..=299 => ProbesAnswer::Passed,
        // The body of a redirect names its target, which is what a reader of the event looks for.
        300..=399 => {
            ProbesAnswer::PassedWithWarning { message: format!("Probe terminated redirects, Response body: {body}") }
        }
        // What the target answered stays out: it may hold secrets, and anyone who reads events would see it.
        _ => ProbesAnswer::NotPassed { message: format!("HTTP probe failed with statuscode: {status}") },
    }
}

fn url(target: &HttpTarget) -> String {
    let scheme = if target.tls { "https" } else { "http" };
    let path = target.path.split('?').next().unwrap_or_default();
    format!("{scheme}://{}{path}", address(&target.host, target.port))
}

/// Where a redirect leads; `None` when it leads to another host, which is not followed.
fn follow(from: &HttpTarget, location: &str) -> Result<Option<HttpTarget>, String> {
    let bad = || "failed to parse Location header".to_owned();
    if location.bytes().any(|b| b <= b' ' || b == 0x7f) {
        return Err(bad());
    }
    let location = location.split('#').next().unwrap_or_default();
    let mut next = from.clone();
    let rest = match location.split_once("://") {
        Some((scheme, rest)) => {
            next.tls = match scheme.to_ascii_lowercase().as_str() {
                "http" => false,
                "https" => true,
                other => return Err(format!("unsupported protocol scheme {other:?}")),
            };
            Some(rest)
        }
        None => location.strip_prefix("//"),
    };
    let Some(rest) = rest else {
        next.path = if location.starts_with('/') { location.to_owned() } else { beside(&from.path, location) };
        return Ok(Some(next));
    };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let (host, port) = split_authority(authority).ok_or_else(bad)?;
    if host != from.host {
        return Ok(None);
    }
    next.port = port.unwrap_or(if next.tls { 443 } else { 80 });
    next.host_header = authority.to_owned();
    next.path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok(Some(next))
}

/// A relative reference, resolved against the path it was met at.
fn beside(path: &str, reference: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    if reference.is_empty() {
        return path.to_owned();
    }
    if reference.starts_with('?') {
        return format!("{path}{reference}");
    }
    let folder = path.rfind('/').map_or("", |at| &path[..at]);
    format!("{folder}/{reference}")
}

fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map(|(host, port)| (host, port.strip_prefix(':')))?,
        None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    let port = match port.filter(|p| !p.is_empty()) {
        Some(port) => Some(port.parse().ok()?),
        None => None,
    };
    Some((host, port))
}

async fn exchange(target: &HttpTarget, tls: &Lazy) -> Result<(Head, String), String> {
    let request = request(target)?;
    let stream = dial(&target.host, target.port).await?;
    if target.tls {
        talk(tls.connect(&target.host, stream).await?, &request).await
    } else {
        talk(stream, &request).await
    }
}

fn request(target: &HttpTarget) -> Result<String, String> {
    let breaks = |text: &str| text.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0));
    let mut out = String::with_capacity(192);
    let _ = write!(out, "GET {} HTTP/1.1\r\nHost: {}\r\n", target.path, target.host_header);
    if breaks(&target.host_header) {
        return Err("net/http: invalid Host header".to_owned());
    }
    for (name, value) in &target.headers {
        if breaks(name) || breaks(&value.0) {
            return Err(format!("net/http: invalid header field value for {name:?}"));
        }
        let _ = write!(out, "{name}: {}\r\n", value.0);
    }
    out.push_str("Connection: close\r\n\r\n");
    Ok(out)
}

async fn talk(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<(Head, String), String> {
    stream.write_all(request.as_bytes()).await.map_err(|e| format!("write: {}", said(&e)))?;
    let mut bytes = Vec::with_capacity(BUFFER);
    let mut head = None;
    loop {
        let read = match stream.read_buf(&mut bytes).await {
            Ok(read) => read,
            // The answer is there; how the connection ends is of no interest.
            Err(_) if head.is_some() => 0,
            Err(error) => return Err(format!("read: {}", said(&error))),
        };
        if head.is_none() {
            head = Head::find(&bytes)?;
        }
        match &head {
            Some(found) if read == 0 || found.is_complete(&bytes) => return Ok((found.clone(), found.text(&bytes))),
            None if read == 0 => return Err("EOF".to_owned()),
            None if bytes.len() > MAX_HEAD => return Err("the answer's headers are too long".to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> HttpTarget {
        HttpTarget {
            tls: false,
            host: "10.0.0.1".to_owned(),
            port: 80,
            path: "/a/b?c".to_owned(),
            host_header: "x".to_owned(),
            headers: vec![("A".to_owned(), "1".into())],
        }
    }

    #[track_caller]
    fn check(location: &str, expect: &str) {
        let found = match follow(&target(), location) {
            Ok(Some(next)) => format!("{} {} {}", url(&next), next.path, next.host_header),
            Ok(None) => "elsewhere".to_owned(),
            Err(message) => message,
        };
        assert_eq!(found, expect);
    }

    #[test]
    fn redirects_are_followed_on_the_same_host_only() {
        check("/x?y", "http://10.0.0.1:80/x /x?y x");
        check("d", "http://10.0.0.1:80/a/d /a/d x");
        check("https://10.0.0.1/z", "https://10.0.0.1:443/z /z 10.0.0.1");
        check("http://10.0.0.1:81", "http://10.0.0.1:81/ / 10.0.0.1:81");
        check("//10.0.0.1:82/q#f", "http://10.0.0.1:82/q /q 10.0.0.1:82");
        check("http://10.0.0.2/", "elsewhere");
        check("ftp://10.0.0.1/", "unsupported protocol scheme \"ftp\"");
        check("/a\r\nX: y", "failed to parse Location header");
    }

    #[test]
    fn a_header_cannot_smuggle_another() {
        assert_eq!(request(&target()).unwrap(), "GET /a/b?c HTTP/1.1\r\nHost: x\r\nA: 1\r\nConnection: close\r\n\r\n");
        let mut bad = target();
        bad.headers[0].1 = "1\r\nB: 2".into();
        assert!(request(&bad).is_err());
    }
}
