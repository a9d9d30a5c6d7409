//! SPDY/3.1 frames as container runtimes speak them for exec, attach and port-forward.
//!
//! Decides nothing: reads and writes frames, keeps the state of header compression, and bounds what it takes. Which
//! streams there are, and what their bytes mean, is known to whoever uses it. Windows are not kept: neither runtimes
//! nor clients of Kubernetes do, the connection itself holds a fast sender up.

mod headers;
mod read;
mod write;

pub use self::read::FrameReader;
pub use self::write::FrameWriter;

use bytes::Bytes;
use std::io;
use thiserror::Error;

/// The only version, in the head of each control frame.
const VERSION: u16 = 3;
/// Marks a control frame.
const CONTROL: u16 = 0x8000;
/// The last frame of a stream's direction.
const FIN: u8 = 1;

/// Types of control frames.
mod kind {
    pub(super) const SYN_STREAM: u16 = 1;
    pub(super) const SYN_REPLY: u16 = 2;
    pub(super) const RST_STREAM: u16 = 3;
    pub(super) const PING: u16 = 6;
    pub(super) const GO_AWAY: u16 = 7;
    pub(super) const HEADERS: u16 = 8;
}

/// Names and values of a frame; names are in lower case.
pub type Headers = Vec<(String, String)>;

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// Begins a stream.
    Open {
        /// Its number: odd from clients, even from servers.
        stream: u32,
        /// What it is for.
        headers: Headers,
        /// The sender sends nothing more on it.
        fin: bool,
    },
    /// Accepts a stream.
    Reply {
        /// Its number.
        stream: u32,
        /// More about it.
        headers: Headers,
        /// The sender sends nothing more on it.
        fin: bool,
    },
    /// Ends a stream in both directions.
    Reset {
        /// Its number.
        stream: u32,
        /// Why.
        status: u32,
    },
    /// More about a stream.
    Headers {
        /// Its number.
        stream: u32,
        /// What there is to say.
        headers: Headers,
        /// The sender sends nothing more on it.
        fin: bool,
    },
    /// Asks for the same frame back.
    Ping {
        /// Odd from clients, even from servers.
        id: u32,
    },
    /// No more streams are taken.
    GoAway {
        /// The last stream that was.
        last: u32,
        /// Why.
        status: u32,
    },
    /// Bytes of a stream. A long frame is read as several.
    Data {
        /// Its number.
        stream: u32,
        /// The bytes.
        bytes: Bytes,
        /// The sender sends nothing more on it.
        fin: bool,
    },
    /// Something that changes nothing here, such as settings and windows.
    Other {
        /// The type of the control frame.
        kind: u16,
    },
}

/// Why a connection can't go on.
#[derive(Debug, Error)]
pub enum SpdyError {
    /// The connection broke.
    #[error("SPDY connection: {0}")]
    Io(#[from] io::Error),
    /// The peer does not speak SPDY/3.1.
    #[error("SPDY frame: {0}")]
    Protocol(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncWriteExt, duplex};

    async fn round(frames: Vec<Frame>) -> Vec<Frame> {
        let (near, far) = duplex(1 << 20);
        let mut writer = FrameWriter::new(near);
        for frame in &frames {
            writer.send(frame).await.unwrap();
        }
        drop(writer);
        let mut reader = FrameReader::new(far);
        let mut found = Vec::new();
        while let Some(frame) = reader.next().await.unwrap() {
            found.push(frame);
        }
        found
    }

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test]
    async fn what_is_written_is_read() {
        let frames = vec![
            Frame::Open { stream: 1, headers: headers(&[("streamtype", "error")]), fin: false },
            Frame::Open { stream: 3, headers: headers(&[("streamtype", "stdin"), ("port", "80")]), fin: true },
            Frame::Reply { stream: 1, headers: vec![], fin: false },
            Frame::Data { stream: 3, bytes: Bytes::from_static(b"hello"), fin: false },
            Frame::Data { stream: 3, bytes: Bytes::new(), fin: true },
            Frame::Headers { stream: 1, headers: headers(&[("a", "")]), fin: false },
            Frame::Reset { stream: 1, status: 5 },
            Frame::Ping { id: 7 },
            Frame::GoAway { last: 3, status: 0 },
        ];
        assert_eq!(round(frames.clone()).await, frames);
    }

    #[tokio::test]
    async fn a_long_frame_is_read_in_parts_and_ends_once() {
        let bytes = Bytes::from(vec![9; 100_000]);
        let found = round(vec![Frame::Data { stream: 5, bytes: bytes.clone(), fin: true }]).await;
        let mut whole = Vec::new();
        for (index, frame) in found.iter().enumerate() {
            let Frame::Data { stream: 5, bytes, fin } = frame else { panic!("{frame:?}") };
            assert_eq!(*fin, index + 1 == found.len());
            assert!(bytes.len() <= 32 << 10);
            whole.extend_from_slice(bytes);
        }
        assert_eq!(whole, bytes);
    }

    #[track_caller]
    fn refused(bytes: &[u8], expect: &str) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(async {
            let (mut near, far) = duplex(1 << 20);
            near.write_all(bytes).await.unwrap();
            drop(near);
            FrameReader::new(far).next().await.unwrap_err().to_string()
        });
        assert!(error.contains(expect), "{error}");
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        refused(b"HTTP/1.1 400 Bad", "SPDY");
        refused(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1], "another version");
        refused(&[0x80, 3, 0, 6, 0, 0, 0, 3, 0, 0, 0], "too short");
        refused(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff], "too long");
        refused(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0], "eof");
        refused(&[0, 0, 0, 1, 0, 0, 0, 4, 0], "eof");
        refused(&[0x80, 3, 0, 2, 0, 0, 0, 6, 0, 0, 0, 1, 1, 2], "compressed");
        refused(&[0x80, 3, 0], "eof");
    }

    #[tokio::test]
    async fn unknown_frames_are_passed_over() {
        let (mut near, far) = duplex(100);
        near.write_all(&[0x80, 3, 0, 9, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 1, 0]).await.unwrap();
        near.write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 9]).await.unwrap();
        let mut reader = FrameReader::new(far);
        assert_eq!(reader.next().await.unwrap(), Some(Frame::Other { kind: 9 }));
        assert_eq!(reader.next().await.unwrap(), Some(Frame::Ping { id: 9 }));
    }
}
