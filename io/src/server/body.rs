//! Bodies of answers: whole texts, or bytes that come piece by piece.

use super::idle::BusyGuard;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, SizeHint};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Content type of plain answers.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";

/// A body. Its connection counts as busy until it is gone.
#[derive(Debug)]
pub(super) struct Body {
    inner: UnsyncBoxBody<Bytes, io::Error>,
    busy: Option<BusyGuard>,
}

impl Body {
    /// A whole body.
    pub(super) fn whole(bytes: impl Into<Bytes>) -> Self {
        let inner = Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync();
        Self { inner, busy: None }
    }

    /// A body that is sent as it comes; an error ends the connection, so that nobody takes the rest for whole.
    pub(super) fn pieces(stream: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Self {
        Self { inner: StreamBody::new(stream.map_ok(Frame::data)).boxed_unsync(), busy: None }
    }

    /// Keeps the connection busy with it.
    pub(super) fn hold(mut self, busy: BusyGuard) -> Self {
        self.busy = Some(busy);
        self
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// An answer instead of what was asked for.
pub(super) type Refused = Box<Response<Body>>;

/// An answer with a whole body.
pub(super) fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pieces_arrive_in_order_and_an_error_is_no_end() {
        let pieces = [Ok(Bytes::from("a")), Ok(Bytes::from("b"))];
        let whole = Body::pieces(tokio_stream::iter(pieces)).collect().await.unwrap().to_bytes();
        assert_eq!(whole, "ab");
        let broken = [Ok(Bytes::from("a")), Err(io::ErrorKind::BrokenPipe.into())];
        Body::pieces(tokio_stream::iter(broken)).collect().await.unwrap_err();
    }
}
