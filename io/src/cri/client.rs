//! One connection to a CRI socket. Answers are taken raw, so that lists need not be built and a wrong answer is
//! told from a refusal.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::EndpointError;
use super::failure::CallError;

/// Largest answer that is taken: four times what the Go kubelet takes, about 50,000 containers in one list.
const MAX_ANSWER: usize = 64 << 20;

/// Bytes of one answer that may be on their way at once. Large lists should not wait for window updates.
const STREAM_WINDOW: u32 = 4 << 20;

/// Bytes of all answers that may be on their way at once; above the stream window, so that no answer blocks others.
const CONNECTION_WINDOW: u32 = 32 << 20;

/// Calls methods over one connection, which is made on demand and shared by all clones.
#[derive(Clone, Debug)]
pub(super) struct Client {
    endpoint: Endpoint,
    grpc: Grpc<Channel>,
}

impl Client {
    pub(super) fn new(endpoint: &str) -> Result<Self, EndpointError> {
        let wrong = |reason| EndpointError { endpoint: endpoint.to_owned(), reason };
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        if !path.starts_with('/') {
            return Err(wrong("must be unix:// and an absolute path"));
        }
        let endpoint = Endpoint::from_shared(format!("unix://{path}"))
            .map_err(|_| wrong("is not a valid address"))?
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW);
        Ok(Self::on(endpoint))
    }

    /// A client of the same runtime with a connection of its own.
    pub(super) fn apart(&self) -> Self {
        Self::on(self.endpoint.clone())
    }

    fn on(endpoint: Endpoint) -> Self {
        let grpc = Grpc::new(endpoint.connect_lazy()).max_decoding_message_size(MAX_ANSWER);
        Self { endpoint, grpc }
    }

    /// Calls a method and decodes its answer.
    pub(super) async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        A::decode(self.raw(path, request).await?).map_err(|error| CallError::garbage(path, error))
    }

    /// Calls a method and returns its answer as it came.
    pub(super) async fn raw<Q>(&self, path: &'static str, request: Q) -> Result<Bytes, CallError>
    where
        Q: Message + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let answer = grpc.unary(Request::new(request), PathAndQuery::from_static(path), Raw::default()).await?;
        Ok(answer.into_inner())
    }

    /// Opens a stream of answers.
    pub(super) async fn stream<Q>(&self, path: &'static str, request: Q) -> Result<Streaming<Bytes>, CallError>
    where
        Q: Message + 'static,
    {
        let mut grpc = self.grpc.clone();
        grpc.ready().await.map_err(|error| Status::from_error(error.into()))?;
        let path = PathAndQuery::from_static(path);
        Ok(grpc.server_streaming(Request::new(request), path, Raw::default()).await?.into_inner())
    }
}

/// Encodes requests, leaves answers as they are.
struct Raw<Q>(PhantomData<Q>);

impl<Q> Default for Raw<Q> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<Q: Message + 'static> Codec for Raw<Q> {
    type Encode = Q;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self::Encoder {
        Self::default()
    }

    fn decoder(&mut self) -> Self::Decoder {
        Self::default()
    }
}

impl<Q: Message> Encoder for Raw<Q> {
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, item: Q, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<Q> Decoder for Raw<Q> {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        // Splits the receive buffer, without a copy.
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
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
