//! Builds a whole trace in memory: for the simulator, tests, and files made from files.

use components::edge::Ingress;
use components::time::Now;

use crate::format::{self, Kind, MAX_RAW, TraceError};
use crate::frame::{Encoder, Frame, Packet, TickEffects, put};
use crate::header::{Ending, Gap, Header};

/// Bytes of frames that make a block: lz4 looks back 64 KiB, so larger blocks gain nothing.
pub const BLOCK: usize = 64 << 10;

/// A trace that grows in memory.
#[derive(Debug)]
pub struct Builder {
    encoder: Encoder,
    out: Vec<u8>,
    block: Vec<u8>,
}

impl Builder {
    /// A trace with this header and no frames.
    ///
    /// # Errors
    /// When the header cannot be encoded.
    pub fn new(header: &Header) -> Result<Self, TraceError> {
        Ok(Self { encoder: Encoder::default(), out: file_start(header)?, block: Vec::new() })
    }

    /// Takes in the inputs of a tick, before the engine consumes them.
    ///
    /// # Errors
    /// When they cannot be encoded.
    pub fn begin(&mut self, tick: u64, now: Now, inputs: &[Ingress]) -> Result<(), TraceError> {
        let unfinished = self.encoder.begin(tick, now, inputs)?;
        self.push(unfinished)
    }

    /// Adds what the tick decided.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn end(&mut self, effects: &TickEffects<'_>) -> Result<(), TraceError> {
        let packet = self.encoder.end(effects)?;
        self.push(packet)
    }

    /// Adds a frame that was read or made by hand.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn frame(&mut self, frame: &Frame) -> Result<(), TraceError> {
        let packet = self.encoder.encode(frame)?;
        self.push(Some(packet))
    }

    /// Says that frames are missing here.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn gap(&mut self, gap: Gap) -> Result<(), TraceError> {
        let unfinished = self.encoder.abandon();
        self.push(unfinished)?;
        self.flush();
        put_gap(&mut self.out, gap)?;
        self.encoder.refresh();
        Ok(())
    }

    /// The file so far, without an end, as a crash would leave it.
    #[must_use]
    pub fn unfinished(mut self) -> Vec<u8> {
        self.flush();
        self.out
    }

    /// The whole file.
    ///
    /// # Errors
    /// When the end cannot be encoded.
    pub fn finish(mut self, ending: Ending) -> Result<Vec<u8>, TraceError> {
        let unfinished = self.encoder.abandon();
        self.push(unfinished)?;
        self.flush();
        put_end(&mut self.out, ending)?;
        Ok(self.out)
    }

    fn push(&mut self, packet: Option<Packet>) -> Result<(), TraceError> {
        let Some(packet) = packet else {
            return Ok(());
        };
        if packet.bytes.len() > MAX_RAW {
            return Err(TraceError::Encode { what: format!("tick {} is larger than a block may be", packet.tick) });
        }
        if self.block.len() + packet.bytes.len() > BLOCK {
            self.flush();
        }
        self.block.extend_from_slice(&packet.bytes);
        Ok(())
    }

    /// Ends the block at hand. It ends by itself at [`BLOCK`] bytes.
    pub fn flush(&mut self) {
        if !self.block.is_empty() {
            format::put_block(&mut self.out, Kind::Frames, &self.block);
            self.block.clear();
        }
    }
}

/// What a file begins with.
pub(crate) fn file_start(header: &Header) -> Result<Vec<u8>, TraceError> {
    let mut out = Vec::new();
    format::put_head(&mut out, &header.ticklet);
    format::put_block(&mut out, Kind::Header, &header.encode()?);
    Ok(out)
}

/// Appends a gap.
pub(crate) fn put_gap(out: &mut Vec<u8>, gap: Gap) -> Result<(), TraceError> {
    let mut raw = Vec::new();
    put(&mut raw, &gap)?;
    format::put_block(out, Kind::Gap, &raw);
    Ok(())
}

/// Appends the end.
pub(crate) fn put_end(out: &mut Vec<u8>, ending: Ending) -> Result<(), TraceError> {
    let mut raw = Vec::new();
    put(&mut raw, &ending)?;
    format::put_block(out, Kind::End, &raw);
    Ok(())
}
