//! Reads frames.

use super::headers::Inflater;
use super::{CONTROL, FIN, Frame, SpdyError, VERSION, kind};
use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, BufReader};

/// Largest control frame that is taken.
const MAX_CONTROL: usize = 64 << 10;
/// Most bytes of a data frame that are handed on at once.
const PART: usize = 32 << 10;

/// Reads the frames of one direction.
#[derive(Debug)]
pub struct FrameReader<R> {
    read: BufReader<R>,
    inflater: Inflater,
    /// A data frame that is not read to its end: stream, bytes left, whether it is the last.
    open: Option<(u32, usize, bool)>,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    /// Reads from the beginning of a connection.
    pub fn new(read: R) -> Self {
        Self { read: BufReader::new(read), inflater: Inflater::default(), open: None }
    }

    /// The next frame; `None` once the connection has ended between two frames. Not to be cancelled half-way.
    ///
    /// # Errors
    /// When the connection breaks or says what is no frame; then nothing more can be read.
    pub async fn next(&mut self) -> Result<Option<Frame>, SpdyError> {
        if let Some((stream, left, fin)) = self.open.take() {
            return self.data(stream, left, fin).await.map(Some);
        }
        let mut head = [0; 8];
        if self.read.read(&mut head[..1]).await? == 0 {
            return Ok(None);
        }
        self.read.read_exact(&mut head[1..]).await?;
        let mut rest = &head[..];
        let (first, second) = (rest.get_u16(), rest.get_u16());
        let (flags, length) = ((rest.chunk()[0]), usize::try_from(rest.get_u32() & 0xff_ffff).unwrap_or(usize::MAX));
        if first & CONTROL == 0 {
            let stream = u32::from(first) << 16 | u32::from(second);
            return self.data(stream, length, flags & FIN != 0).await.map(Some);
        }
        if first & !CONTROL != VERSION {
            return Err(SpdyError::Protocol("it is of another version"));
        }
        if length > MAX_CONTROL {
            return Err(SpdyError::Protocol("a control frame is too long"));
        }
        let mut payload = vec![0; length];
        self.read.read_exact(&mut payload).await?;
        self.control(second, flags & FIN != 0, payload.into()).map(Some)
    }

    async fn data(&mut self, stream: u32, length: usize, fin: bool) -> Result<Frame, SpdyError> {
        let part = length.min(PART);
        let mut bytes = BytesMut::zeroed(part);
        self.read.read_exact(&mut bytes).await?;
        let left = length - part;
        if left > 0 {
            self.open = Some((stream, left, fin));
        }
        Ok(Frame::Data { stream, bytes: bytes.freeze(), fin: fin && left == 0 })
    }

    fn control(&mut self, of: u16, fin: bool, mut payload: Bytes) -> Result<Frame, SpdyError> {
        let number = |payload: &mut Bytes| {
            payload.try_get_u32().map_err(|_| SpdyError::Protocol("a control frame is too short"))
        };
        Ok(match of {
            kind::SYN_STREAM => {
                let stream = number(&mut payload)?;
                number(&mut payload)?;
                // Priority and slot.
                payload.try_get_u16().map_err(|_| SpdyError::Protocol("a control frame is too short"))?;
                Frame::Open { stream, headers: self.inflater.headers(&payload)?, fin }
            }
            kind::SYN_REPLY => {
                let stream = number(&mut payload)?;
                Frame::Reply { stream, headers: self.inflater.headers(&payload)?, fin }
            }
            kind::HEADERS => {
                let stream = number(&mut payload)?;
                Frame::Headers { stream, headers: self.inflater.headers(&payload)?, fin }
            }
            kind::RST_STREAM => Frame::Reset { stream: number(&mut payload)?, status: number(&mut payload)? },
            kind::PING => Frame::Ping { id: number(&mut payload)? },
            kind::GO_AWAY => Frame::GoAway { last: number(&mut payload)?, status: number(&mut payload)? },
            kind => Frame::Other { kind },
        })
    }
}
