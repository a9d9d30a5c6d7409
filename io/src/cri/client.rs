//! One connection to a CRI socket. Answers are taken raw, so that lists need not be built and a wrong answer is
//! told from a refusal.
//!
//! gRPC is spoken over HTTP/2 directly, without a general client: with one peer on a unix socket nothing of its queues,
//! its tasks for each call and its retrying is wanted.

mod answers;
mod line;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::Request;
use prost::Message;
use tonic::Status;

use self::answers::Answers;
use self::line::Line;
use super::EndpointError;
use super::failure::CallError;

/// What stands before each message: a flag of compression and four bytes of length.
const HEAD: usize = 5;

/// Calls methods over one connection, which is made on demand and shared by all clones.
#[derive(Clone, Debug)]
pub(super) struct Client {
    line: Arc<Line>,
}

impl Client {
    pub(super) fn new(endpoint: &str) -> Result<Self, EndpointError> {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !path.starts_with('/') {
            return Err(EndpointError {
                endpoint: endpoint.to_owned(),
                reason: "must be unix:// and an absolute path",
            });
        }
        Ok(Self { line: Arc::new(Line::to(PathBuf::from(path))) })
    }

    /// A client of the same runtime with a connection of its own.
    pub(super) fn apart(&self) -> Self {
        Self { line: Arc::new(self.line.apart()) }
    }

    /// Calls a method and decodes its answer.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message,
        A: Message + Default,
    {
        A::decode(self.raw(path, request).await?).map_err(|error| CallError::garbage(path, error))
    }

    /// Calls a method and returns its answer as it came.
    pub(super) async fn raw<Q: Message>(&self, path: &'static str, request: Q) -> Result<Bytes, CallError> {
        let mut answers = self.stream(path, request).await?;
        let answer = answers.message().await?;
        while answers.message().await?.is_some() {}
        answer.ok_or_else(|| Status::internal("the answer is missing").into())
    }

    /// Opens a stream of answers; waits for the beginning of the response.
    pub(super) async fn stream<Q: Message>(&self, path: &'static str, request: Q) -> Result<Answers, CallError> {
        let body = framed(&request)?;
        drop(request);
        let mut sender = self.line.sender().await?;
        let (response, mut stream) = sender.send_request(head(path)?, false).map_err(line::refused)?;
        stream.send_data(body, true).map_err(line::refused)?;
        Ok(Answers::of(response.await.map_err(line::refused)?)?)
    }
}

fn head(path: &'static str) -> Result<Request<()>, Status> {
    let uri = http::Uri::builder().scheme("http").authority("localhost").path_and_query(path).build();
    Request::post(uri.map_err(|error| Status::internal(error.to_string()))?)
        .version(http::Version::HTTP_2)
        .header(http::header::TE, "trailers")
        .header(http::header::CONTENT_TYPE, "application/grpc")
        .header(http::header::USER_AGENT, concat!("ticklet/", env!("CARGO_PKG_VERSION")))
        .body(())
        .map_err(|error| Status::internal(error.to_string()))
}

/// A message with its head.
fn framed(message: &impl Message) -> Result<Bytes, Status> {
    let length = message.encoded_len();
    let stated = u32::try_from(length).map_err(|_| Status::resource_exhausted("the request is too large"))?;
    let mut body = BytesMut::with_capacity(HEAD + length);
    body.put_u8(0);
    body.put_u32(stated);
    message.encode(&mut body).map_err(|error| Status::internal(error.to_string()))?;
    Ok(body.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn endpoints_are_unix_sockets_with_absolute_paths() {
        let check = |endpoint: &str, expect: &str| {
            let found = Client::new(endpoint).map_or_else(|error| error.to_string(), |_| "ok".to_owned());
            assert_eq!(found, expect);
        };
        check("unix:///run/containerd/containerd.sock", "ok");
        check("/run/containerd/containerd.sock", "ok");
        let wrong = "must be unix:// and an absolute path";
        check("tcp://127.0.0.1:1", &format!("use runtime endpoint \"tcp://127.0.0.1:1\": {wrong}"));
        check("run/x.sock", &format!("use runtime endpoint \"run/x.sock\": {wrong}"));
        check("", &format!("use runtime endpoint \"\": {wrong}"));
    }
}
