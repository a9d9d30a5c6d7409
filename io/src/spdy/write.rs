//! Writes frames.

use super::headers::Deflater;
use super::{CONTROL, FIN, Frame, Headers, SpdyError, VERSION, kind};
use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// What the length of a frame can say.
const MAX_LENGTH: usize = (1 << 24) - 1;

/// Writes the frames of one direction.
#[derive(Debug)]
pub struct FrameWriter<W> {
    write: W,
    deflater: Deflater,
}

impl<W: AsyncWrite + Unpin> FrameWriter<W> {
    /// Writes from the beginning of a connection.
    pub fn new(write: W) -> Self {
        Self { write, deflater: Deflater::default() }
    }

    /// Writes a frame and sends it off. Not to be cancelled half-way.
    ///
    /// # Errors
    /// When the connection breaks, or the frame is longer than frames can be.
    pub async fn send(&mut self, frame: &Frame) -> Result<(), SpdyError> {
        let mut bytes = BytesMut::new();
        match frame {
            Frame::Open { stream, headers, fin } => {
                let mut head = BytesMut::new();
                head.put_u32(*stream);
                // No stream that this one belongs to, no priority, no slot.
                head.put_u32(0);
                head.put_u16(0);
                self.headers(&mut bytes, kind::SYN_STREAM, *fin, &head, headers)?;
            }
            Frame::Reply { stream, headers, fin } => {
                self.headers(&mut bytes, kind::SYN_REPLY, *fin, &stream.to_be_bytes(), headers)?;
            }
            Frame::Headers { stream, headers, fin } => {
                self.headers(&mut bytes, kind::HEADERS, *fin, &stream.to_be_bytes(), headers)?;
            }
            Frame::Reset { stream, status } => numbers(&mut bytes, kind::RST_STREAM, &[*stream, *status])?,
            Frame::Ping { id } => numbers(&mut bytes, kind::PING, &[*id])?,
            Frame::GoAway { last, status } => numbers(&mut bytes, kind::GO_AWAY, &[*last, *status])?,
            Frame::Data { stream, bytes: data, fin } => {
                bytes.put_u32(*stream);
                length(&mut bytes, *fin, data.len())?;
                self.write.write_all(&bytes).await?;
                self.write.write_all(data).await?;
                return Ok(self.write.flush().await?);
            }
            Frame::Other { .. } => return Err(SpdyError::Protocol("a frame without content can't be written")),
        }
        self.write.write_all(&bytes).await?;
        Ok(self.write.flush().await?)
    }

    /// Says that nothing more comes.
    ///
    /// # Errors
    /// When the connection is broken.
    pub async fn shutdown(&mut self) -> Result<(), SpdyError> {
        Ok(self.write.shutdown().await?)
    }

    fn headers(
        &mut self,
        bytes: &mut BytesMut,
        kind: u16,
        fin: bool,
        head: &[u8],
        headers: &Headers,
    ) -> Result<(), SpdyError> {
        let block = self.deflater.block(headers)?;
        control(bytes, kind, fin, head.len() + block.len())?;
        bytes.put_slice(head);
        bytes.put_slice(&block);
        Ok(())
    }
}

fn numbers(bytes: &mut BytesMut, kind: u16, numbers: &[u32]) -> Result<(), SpdyError> {
    control(bytes, kind, false, numbers.len() * 4)?;
    for number in numbers {
        bytes.put_u32(*number);
    }
    Ok(())
}

fn control(bytes: &mut BytesMut, kind: u16, fin: bool, size: usize) -> Result<(), SpdyError> {
    bytes.put_u16(CONTROL | VERSION);
    bytes.put_u16(kind);
    length(bytes, fin, size)
}

fn length(bytes: &mut BytesMut, fin: bool, size: usize) -> Result<(), SpdyError> {
    if size > MAX_LENGTH {
        return Err(SpdyError::Protocol("a frame is too long"));
    }
    let flags = if fin { u32::from(FIN) << 24 } else { 0 };
    bytes.put_u32(flags | u32::try_from(size).unwrap_or(0));
    Ok(())
}
