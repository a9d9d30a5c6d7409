//! Reads a trace from bytes, frame by frame; holds one decompressed block at a time.

use std::borrow::Cow;

use crate::format::{self, FileHead, Found, Kind, SKIPPABLE, TraceError};
use crate::frame::{Decoder, Frame, take};
use crate::header::{Ending, Gap, Header};

/// A trace that is being read.
#[derive(Debug)]
pub struct Reader<'a> {
    data: &'a [u8],
    head: FileHead,
    header: Header,
    /// Offset of the next block.
    at: usize,
    /// The block at hand, how far it is read, and its offset in the file.
    block: Cow<'a, [u8]>,
    pos: usize,
    block_at: usize,
    decoder: Decoder,
    ending: Option<Ending>,
}

/// What comes next in a trace.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// A tick.
    Frame(Box<Frame>),
    /// Ticks are missing.
    Gap(Gap),
}

impl<'a> Reader<'a> {
    /// Reads the version part and the header.
    ///
    /// # Errors
    /// When it is no trace, of a newer major version, or its header is cut off or damaged.
    pub fn open(data: &'a [u8]) -> Result<Self, TraceError> {
        let (head, at) = format::read_head(data)?;
        let short = TraceError::NoHeader { offset: data.len() };
        let (header, at) = match format::read_block(data, at)? {
            Found::Block(block) if block.kind == Kind::Header as u8 => (Header::decode(&block.content()?)?, block.end),
            Found::Block(block) => {
                return Err(TraceError::Corrupt {
                    offset: block.offset,
                    what: "the first block is not the header".to_owned(),
                });
            }
            Found::End | Found::CutOff => return Err(short),
        };
        Ok(Self {
            data,
            head,
            header,
            at,
            block: Cow::Borrowed(&[]),
            pos: 0,
            block_at: at,
            decoder: Decoder::default(),
            ending: None,
        })
    }

    /// What the run began with.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Version of the format and of the ticklet that wrote it.
    #[must_use]
    pub fn head(&self) -> &FileHead {
        &self.head
    }

    /// Size of the file.
    #[must_use]
    pub fn size(&self) -> usize {
        self.data.len()
    }

    /// How the file ends; known once [`Self::next_item`] has said `None`.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.ending
    }

    /// The next frame or gap; `None` at the end.
    ///
    /// # Errors
    /// With the offset, when the file is damaged here. What came before is good; nothing after can be read.
    pub fn next_item(&mut self) -> Result<Option<Item>, TraceError> {
        while self.pos >= self.block.len() {
            if self.ending.is_some() {
                return Ok(None);
            }
            match self.next_block() {
                Ok(None) => {}
                Ok(gap) => return Ok(gap),
                Err(error) => {
                    self.ending = Some(Ending::CutOff { offset: self.at as u64 });
                    return Err(error);
                }
            }
        }
        let mut rest = &self.block[self.pos..];
        let frame = self.decoder.decode(&mut rest);
        let left = rest.len();
        match frame {
            Ok(frame) => {
                self.pos = self.block.len() - left;
                Ok(Some(Item::Frame(Box::new(frame))))
            }
            Err(what) => {
                let inside = self.pos;
                self.pos = self.block.len();
                self.ending = Some(Ending::CutOff { offset: self.block_at as u64 });
                Err(TraceError::Corrupt {
                    offset: self.block_at,
                    what: format!("the frame at {inside} of this block: {what}"),
                })
            }
        }
    }

    /// Loads the next block of frames (`None`), or says what else was found.
    fn next_block(&mut self) -> Result<Option<Item>, TraceError> {
        let block = match format::read_block(self.data, self.at)? {
            Found::Block(block) => block,
            Found::End => {
                self.ending = Some(Ending::Open);
                return Ok(None);
            }
            Found::CutOff => {
                self.ending = Some(Ending::CutOff { offset: self.at as u64 });
                return Ok(None);
            }
        };
        let corrupt = |what: String| TraceError::Corrupt { offset: block.offset, what };
        let content = block.content()?;
        let mut found = None;
        match block.kind {
            kind if kind == Kind::Frames as u8 => {
                self.block = content;
                self.pos = 0;
                self.block_at = block.offset;
            }
            kind if kind == Kind::Gap as u8 => {
                found = Some(Item::Gap(take(&mut &*content).map_err(corrupt)?));
            }
            kind if kind == Kind::End as u8 => {
                self.ending = Some(take(&mut &*content).map_err(corrupt)?);
            }
            kind if kind >= SKIPPABLE => {}
            kind => return Err(corrupt(format!("unknown kind of block {kind}"))),
        }
        self.at = block.end;
        Ok(found)
    }
}
