//! The messages of one response, and the status at its end.

use bytes::{Buf, Bytes, BytesMut};
use h2::RecvStream;
use http::{HeaderMap, Response, StatusCode};
use tonic::{Code, Status};

use super::{HEAD, line};
use crate::percent;

/// Largest answer that is taken: four times what the Go kubelet takes, about 50,000 containers in one list.
const MAX_ANSWER: usize = 64 << 20;

/// Messages of a response as they come. Dropping it tells the other side that nobody waits any more.
pub(in crate::cri) struct Answers {
    body: RecvStream,
    frames: Frames,
}

impl Answers {
    /// Reads the beginning of a response; a refusal may be all of it.
    pub(super) fn of(response: Response<RecvStream>) -> Result<Self, Status> {
        let (head, body) = response.into_parts();
        if let Some(status) = status_of(&head.headers)
            && status.code() != Code::Ok
        {
            return Err(status);
        }
        if head.status != StatusCode::OK {
            return Err(Status::new(
                code_of(head.status),
                format!("HTTP status {} without a gRPC status", head.status),
            ));
        }
        Ok(Self { body, frames: Frames::default() })
    }

    /// The next message; `None` when the call ended well.
    pub(in crate::cri) async fn message(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.frames.next()? {
                return Ok(Some(message));
            }
            let Some(chunk) = self.body.data().await else { break };
            let chunk = chunk.map_err(line::refused)?;
            self.body.flow_control().release_capacity(chunk.len()).map_err(line::refused)?;
            self.frames.push(chunk);
        }
        let trailers = self.body.trailers().await.map_err(line::refused)?;
        match trailers.as_ref().and_then(status_of) {
            Some(status) if status.code() != Code::Ok => Err(status),
            _ if self.frames.is_within() => Err(Status::internal("the answer is cut off")),
            _ => Ok(None),
        }
    }
}

/// Cuts the bytes of a response into messages.
#[derive(Debug, Default)]
struct Frames {
    /// What was not looked at yet.
    rest: Bytes,
    /// A message that has begun, with its whole length.
    begun: Option<(usize, BytesMut)>,
}

impl Frames {
    fn push(&mut self, chunk: Bytes) {
        if self.rest.is_empty() {
            self.rest = chunk;
        } else {
            // Only the beginning of a head is ever left.
            self.rest = [&self.rest[..], &chunk[..]].concat().into();
        }
    }

    const fn is_within(&self) -> bool {
        self.begun.is_some() || !self.rest.is_empty()
    }

    fn next(&mut self) -> Result<Option<Bytes>, Status> {
        if self.begun.is_none() {
            if self.rest.len() < HEAD {
                return Ok(None);
            }
            let packed = self.rest.get_u8();
            let length = self.rest.get_u32() as usize;
            if packed != 0 {
                return Err(Status::internal("the answer is compressed, which was not asked for"));
            }
            if length > MAX_ANSWER {
                let text = format!("an answer of {length} bytes is larger than the limit of {MAX_ANSWER} bytes");
                return Err(Status::out_of_range(text));
            }
            if self.rest.len() >= length {
                return Ok(Some(self.rest.split_to(length)));
            }
            self.begun = Some((length, BytesMut::with_capacity(length)));
        }
        let Some((length, message)) = &mut self.begun else { return Ok(None) };
        let more = self.rest.split_to(self.rest.len().min(*length - message.len()));
        message.extend_from_slice(&more);
        if message.len() < *length {
            return Ok(None);
        }
        Ok(self.begun.take().map(|(_, message)| message.freeze()))
    }
}

/// The gRPC status of headers or trailers, where they have one.
fn status_of(headers: &HeaderMap) -> Option<Status> {
    let code = Code::from_bytes(headers.get("grpc-status")?.as_bytes());
    let message = headers.get("grpc-message").map_or_else(String::new, |text| percent::decode(text.as_bytes(), false));
    Some(Status::new(code, message))
}

/// What an HTTP status stands for where no gRPC status came.
const fn code_of(status: StatusCode) -> Code {
    match status.as_u16() {
        400 => Code::Internal,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => Code::Unimplemented,
        429 | 502..=504 => Code::Unavailable,
        _ => Code::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(message: &[u8]) -> Vec<u8> {
        let mut out = vec![0];
        out.extend_from_slice(&u32::try_from(message.len()).unwrap().to_be_bytes());
        out.extend_from_slice(message);
        out
    }

    #[test]
    fn messages_are_cut_out_wherever_the_chunks_end() {
        let bytes = [frame(b"first"), frame(b""), frame(&[7; 300])].concat();
        for size in 1..bytes.len() {
            let mut frames = Frames::default();
            let mut seen = Vec::new();
            for chunk in bytes.chunks(size) {
                frames.push(Bytes::copy_from_slice(chunk));
                while let Some(message) = frames.next().unwrap() {
                    seen.push(message.to_vec());
                }
            }
            assert_eq!(seen, [b"first".to_vec(), Vec::new(), vec![7; 300]], "chunks of {size}");
            assert!(!frames.is_within());
        }
    }

    #[test]
    fn half_a_message_is_noticed() {
        for cut in [1, 5, 7] {
            let mut frames = Frames::default();
            frames.push(Bytes::copy_from_slice(&frame(b"first")[..cut]));
            assert_eq!(frames.next().unwrap(), None);
            assert!(frames.is_within(), "{cut}");
        }
    }

    #[test]
    fn compressed_and_huge_answers_are_refused() {
        let mut frames = Frames::default();
        frames.push(Bytes::from_static(&[1, 0, 0, 0, 1, 9]));
        assert_eq!(frames.next().unwrap_err().code(), Code::Internal);
        let mut frames = Frames::default();
        frames.push(Bytes::from_static(&[0, 0xff, 0, 0, 0]));
        assert_eq!(frames.next().unwrap_err().code(), Code::OutOfRange);
    }

    #[test]
    fn a_status_is_read_with_its_escapes() {
        let check = |code: &'static str, message: &'static str, expect: (Code, &str)| {
            let headers = [("grpc-status", code), ("grpc-message", message)];
            let headers = headers.into_iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
            let status = status_of(&headers).unwrap();
            assert_eq!((status.code(), status.message()), expect);
        };
        check("5", "not found", (Code::NotFound, "not found"));
        check("2", "50%25 of %22x%22%0A", (Code::Unknown, "50% of \"x\"\n"));
        check("2", "100% %zz %4", (Code::Unknown, "100% %zz %4"));
        check("2", "%C3%A4", (Code::Unknown, "ä"));
        check("99", "", (Code::Unknown, ""));
        assert!(status_of(&HeaderMap::new()).is_none());
    }
}
