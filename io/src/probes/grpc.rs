//! `grpc`: one call of `grpc.health.v1.Health/Check` over HTTP/2 without TLS.

use super::dial::{address, dial};
use bytes::{BufMut, Bytes, BytesMut};
use components::edge::probes::GrpcTarget;
use http::{HeaderMap, Request};
use std::future::Future;

const PATH: &str = "/grpc.health.v1.Health/Check";
/// Most bytes of an answer: the message has one number.
const MAX_ANSWER: usize = 16 * 1024;

/// Asks; an error says why the probe fails.
pub(super) async fn check(target: &GrpcTarget) -> Result<(), String> {
    let at = address(&target.host, target.port);
    let refused = |why: String| format!("error: failed to connect service at {at:?}: {why}");
    let stream = dial(&target.host, target.port).await.map_err(refused)?;
    let (client, connection) = h2::client::handshake(stream).await.map_err(|e| refused(e.to_string()))?;
    // The connection moves only while someone drives it; it ends with the answer.
    let answer = std::pin::pin!(ask(client, target, &at));
    let status = drive(answer, connection).await??;
    match status {
        1 => Ok(()),
        other => Err(format!("service unhealthy (responded with {:?})", name(other))),
    }
}

async fn drive<T>(
    mut answer: std::pin::Pin<&mut impl Future<Output = T>>,
    connection: impl Future<Output = Result<(), h2::Error>>,
) -> Result<T, String> {
    let connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        answer = &mut answer => Ok(answer),
        ended = connection => {
            if let Err(error) = ended {
                return Err(format!("error: health rpc probe failed: rpc error: code = Unavailable desc = {error}"));
            }
            // What had arrived before the end can still be read.
            Ok(answer.await)
        }
    }
}

async fn ask(client: h2::client::SendRequest<Bytes>, target: &GrpcTarget, at: &str) -> Result<u64, String> {
    let failed = |why: String| format!("error: health rpc probe failed: {why}");
    let lost = |error: h2::Error| failed(format!("rpc error: code = Unavailable desc = {error}"));
    let request = Request::post(format!("http://{at}{PATH}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "kube-probe/1.37")
        .body(())
        .map_err(|error| failed(error.to_string()))?;
    let mut client = client.ready().await.map_err(lost)?;
    let (response, mut body) = client.send_request(request, false).map_err(lost)?;
    body.send_data(message(&target.service), true).map_err(lost)?;
    let response = response.await.map_err(lost)?;
    if response.status() != 200 {
        return Err(failed(format!("unexpected HTTP status code received from server: {}", response.status())));
    }
    status(response.headers())?;
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(data) = body.data().await {
        let data = data.map_err(lost)?;
        let _ = body.flow_control().release_capacity(data.len());
        bytes.extend_from_slice(&data);
        if bytes.len() > MAX_ANSWER {
            return Err(failed("rpc error: code = ResourceExhausted desc = the answer is too long".to_owned()));
        }
    }
    if let Some(trailers) = body.trailers().await.map_err(lost)? {
        status(&trailers)?;
    }
    serving(&bytes).ok_or_else(|| failed("rpc error: code = Internal desc = the answer is no health status".to_owned()))
}

/// The request with its length before it: field 1 is the service's name.
fn message(service: &str) -> Bytes {
    let mut field = BytesMut::new();
    if !service.is_empty() {
        field.put_u8(0x0a);
        let mut length = service.len();
        while length >= 0x80 {
            field.put_u8(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
            length >>= 7;
        }
        field.put_u8(u8::try_from(length).unwrap_or(0));
        field.put_slice(service.as_bytes());
    }
    let mut out = BytesMut::with_capacity(5 + field.len());
    out.put_u8(0);
    out.put_u32(u32::try_from(field.len()).unwrap_or(u32::MAX));
    out.extend_from_slice(&field);
    out.freeze()
}

/// Field 1 of the answer; 0 when it is not set.
fn serving(bytes: &[u8]) -> Option<u64> {
    let (prefix, message) = bytes.split_at_checked(5)?;
    let length = u32::from_be_bytes(prefix.get(1..5)?.try_into().ok()?);
    let message = message.get(..usize::try_from(length).ok()?)?;
    let mut rest = message;
    let mut found = 0;
    while !rest.is_empty() {
        // Only numbers stand in this message; anything else is not understood.
        let tag = varint(&mut rest)?;
        let value = (tag & 7 == 0).then(|| varint(&mut rest)).flatten()?;
        if tag >> 3 == 1 {
            found = value;
        }
    }
    (prefix[0] == 0).then_some(found)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// The call's own status, which stands in headers or in trailers.
fn status(headers: &HeaderMap) -> Result<(), String> {
    let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "" | "0" => Ok(()),
        "12" => Err(format!(
            "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): {}",
            text("grpc-message")
        )),
        code => {
            let message = text("grpc-message");
            Err(format!("error: health rpc probe failed: rpc error: code = {} desc = {message}", code_name(code)))
        }
    }
}

fn code_name(code: &str) -> &str {
    match code {
        "1" => "Canceled",
        "2" => "Unknown",
        "3" => "InvalidArgument",
        "4" => "DeadlineExceeded",
        "5" => "NotFound",
        "7" => "PermissionDenied",
        "8" => "ResourceExhausted",
        "13" => "Internal",
        "14" => "Unavailable",
        "16" => "Unauthenticated",
        other => other,
    }
}

fn name(status: u64) -> String {
    match status {
        0 => "UNKNOWN".to_owned(),
        2 => "NOT_SERVING".to_owned(),
        3 => "SERVICE_UNKNOWN".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_written_and_read() {
        assert_eq!(message("").as_ref(), [0, 0, 0, 0, 0]);
        assert_eq!(message("ab").as_ref(), [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        assert_eq!(message(&"x".repeat(200))[..8], [0, 0, 0, 0, 203, 0x0a, 0xc8, 1]);
        assert_eq!(serving(&[0, 0, 0, 0, 2, 8, 1]), Some(1));
        assert_eq!(serving(&[0, 0, 0, 0, 0]), Some(0));
        assert_eq!(serving(&[0, 0, 0, 0, 2, 8]), None);
        assert_eq!(serving(&[1, 0, 0, 0, 2, 8, 1]), None);
        assert_eq!(serving(&[0, 0, 0, 0, 3, 0x12, 1, 9]), None);
    }
}
