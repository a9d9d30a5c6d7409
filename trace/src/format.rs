//! The frame around everything: magic, version, and blocks with lengths and checksums.
//!
//! ```text
//! file  = magic(8) major(u16) minor(u16) tool_len(u8) tool(tool_len) block*
//! block = kind(u8) codec(u8) raw_len(u32) stored_len(u32) head_crc(u32) data_crc(u32) data(stored_len)
//! ```
//! Numbers are little-endian. `head_crc` covers the ten bytes before it, so that a damaged length is told from a
//! file that was cut off. Nothing is allocated from a length before that length was checked.
//!
//! Compatibility: a reader refuses a newer major, reads any minor of its own major, and skips blocks it does not know
//! whose kind is [`SKIPPABLE`] or above. New variants at the end of the edge enums raise the minor; any other change
//! of an edge type's layout raises the major (`tests/golden.rs` notices).

use std::borrow::Cow;

/// First bytes of every trace.
pub const MAGIC: [u8; 8] = *b"ticktrc\n";
/// Layout version: raised when old readers would misread.
pub const MAJOR: u16 = 1;
/// Raised when something is added that old readers can do without.
pub const MINOR: u16 = 0;
/// Kinds from here on may be skipped by readers that do not know them.
pub const SKIPPABLE: u8 = 0x80;
/// Largest block after decompression: a relist of 100,000 objects is about 15 MiB, so 64 MiB is never met honestly.
pub const MAX_RAW: usize = 64 << 20;

/// lz4 expands at most about 255 times.
const MAX_RATIO: usize = 255;
const BLOCK_HEAD: usize = 18;
/// Below this, compression cannot win anything.
const MIN_COMPRESS: usize = 64;

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The header, as JSON.
    Header = 1,
    /// Frames, one after the other.
    Frames = 2,
    /// Frames are missing here.
    Gap = 3,
    /// Nothing follows, and why.
    End = 4,
}

/// Why a trace cannot be read (or written).
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The first bytes are not a trace's.
    #[error("not a ticklet trace (it does not begin with the magic bytes)")]
    NotATrace,
    /// The file ends before its header does.
    #[error("the trace ends inside its header, at byte {offset}: nothing of it can be read")]
    NoHeader {
        /// Where it ends.
        offset: usize,
    },
    /// A newer ticklet wrote it.
    #[error(
        "the trace has format {major}.{minor}, written by ticklet {tool}; this ticklet reads up to \
         {MAJOR}.x: use ticklet {tool} or a newer one"
    )]
    Newer {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
        /// Version of the ticklet that wrote it.
        tool: String,
    },
    /// A checksum does not match, or what it protects makes no sense.
    #[error("the trace is damaged at byte {offset}: {what}")]
    Corrupt {
        /// Offset of the block in the file.
        offset: usize,
        /// What is wrong.
        what: String,
    },
    /// The header is intact but this ticklet cannot use it.
    #[error("the header of the trace cannot be used: {what}")]
    BadHeader {
        /// What is wrong.
        what: String,
    },
    /// It does not begin at the start of the engine.
    #[error(
        "the trace begins at tick {tick}, not at the start of its run, and cannot be replayed; \
         `ticklet trace show` prints it"
    )]
    NotFromBoot {
        /// Its first tick.
        tick: u64,
    },
    /// A frame could not be put into bytes.
    #[error("a frame could not be encoded: {what}")]
    Encode {
        /// What is wrong.
        what: String,
    },
}

/// The version part of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileHead {
    /// Major version.
    pub major: u16,
    /// Minor version.
    pub minor: u16,
    /// Version of the ticklet that wrote it.
    pub tool: String,
}

/// A block as it lies in the file.
#[derive(Clone, Copy, Debug)]
pub struct Block<'a> {
    /// Its kind, which may be unknown.
    pub kind: u8,
    /// Offset of its first byte in the file.
    pub offset: usize,
    /// Offset of the first byte after it.
    pub end: usize,
    codec: u8,
    raw_len: usize,
    data: &'a [u8],
}

/// What lies at a place in the file.
#[derive(Debug)]
pub enum Found<'a> {
    /// A whole block with matching checksums.
    Block(Block<'a>),
    /// The end of the file, exactly.
    End,
    /// The file stops inside a block (or was zero-filled by a crash).
    CutOff,
}

/// Writes the version part.
pub fn put_head(out: &mut Vec<u8>, tool: &str) {
    let cut = tool.char_indices().map(|(at, c)| at + c.len_utf8());
    let len = cut.take_while(|end| *end <= 255).last().unwrap_or(0);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&MAJOR.to_le_bytes());
    out.extend_from_slice(&MINOR.to_le_bytes());
    out.push(u8::try_from(len).unwrap_or(0));
    out.extend_from_slice(&tool.as_bytes()[..len]);
}

/// Reads the version part and says where the first block begins.
///
/// # Errors
/// When it is not a trace, ends here, or a newer major version.
pub fn read_head(data: &[u8]) -> Result<(FileHead, usize), TraceError> {
    let seen = data.len().min(MAGIC.len());
    if data[..seen] != MAGIC[..seen] || seen == 0 {
        return Err(TraceError::NotATrace);
    }
    let short = || TraceError::NoHeader { offset: data.len() };
    let number = |at: usize| -> Option<u16> {
        let bytes = data.get(at..at + 2)?;
        Some(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let major = number(8).ok_or_else(short)?;
    let minor = number(10).ok_or_else(short)?;
    let len = usize::from(*data.get(12).ok_or_else(short)?);
    let tool = data.get(13..13 + len).ok_or_else(short)?;
    let tool = String::from_utf8_lossy(tool).into_owned();
    if major > MAJOR {
        return Err(TraceError::Newer { major, minor, tool });
    }
    let head = FileHead { major, minor, tool };
    Ok((head, 13 + len))
}

/// Writes one block, compressed when that makes it smaller. `raw` must be at most [`MAX_RAW`].
pub fn put_block(out: &mut Vec<u8>, kind: Kind, raw: &[u8]) {
    debug_assert!(raw.len() <= MAX_RAW);
    let packed = (raw.len() >= MIN_COMPRESS).then(|| lz4_flex::block::compress(raw));
    let (codec, data) = match &packed {
        Some(packed) if packed.len() < raw.len() => (1, packed.as_slice()),
        _ => (0, raw),
    };
    let start = out.len();
    out.extend_from_slice(&[kind as u8, codec]);
    for len in [raw.len(), data.len()] {
        out.extend_from_slice(&u32::try_from(len).unwrap_or(u32::MAX).to_le_bytes());
    }
    let head_crc = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&head_crc.to_le_bytes());
    out.extend_from_slice(&crc32fast::hash(data).to_le_bytes());
    out.extend_from_slice(data);
}

/// Looks at the block that begins at `offset`.
///
/// # Errors
/// When a checksum does not match or a length is beyond its limit.
pub fn read_block(data: &[u8], offset: usize) -> Result<Found<'_>, TraceError> {
    let rest = data.get(offset..).unwrap_or_default();
    if rest.is_empty() {
        return Ok(Found::End);
    }
    let corrupt = |what: &str| TraceError::Corrupt { offset, what: what.to_owned() };
    let Some(head) = rest.get(..BLOCK_HEAD) else {
        return Ok(Found::CutOff);
    };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if crc32fast::hash(&head[..10]) != word(10) {
        if rest.iter().all(|byte| *byte == 0) {
            return Ok(Found::CutOff);
        }
        return Err(corrupt("the checksum of a block's head does not match"));
    }
    let (raw_len, stored) = (word(2) as usize, word(6) as usize);
    let Some(payload) = rest.get(BLOCK_HEAD..BLOCK_HEAD.saturating_add(stored)) else {
        return Ok(Found::CutOff);
    };
    if crc32fast::hash(payload) != word(14) {
        // A crash may leave the length of a file on the disk and not its content; short blocks are written at once.
        let last = offset + BLOCK_HEAD + stored == data.len();
        if last && stored >= MIN_COMPRESS && payload.iter().all(|byte| *byte == 0) {
            return Ok(Found::CutOff);
        }
        return Err(corrupt("the checksum of a block does not match"));
    }
    if raw_len > MAX_RAW || raw_len > stored.saturating_mul(MAX_RATIO).saturating_add(64) {
        return Err(corrupt("a block claims more content than it can hold"));
    }
    Ok(Found::Block(Block {
        kind: head[0],
        offset,
        end: offset + BLOCK_HEAD + stored,
        codec: head[1],
        raw_len,
        data: payload,
    }))
}

impl<'a> Block<'a> {
    /// Its content, decompressed.
    ///
    /// # Errors
    /// When it cannot be decompressed to the length it claims.
    pub fn content(&self) -> Result<Cow<'a, [u8]>, TraceError> {
        let corrupt = |what: String| TraceError::Corrupt { offset: self.offset, what };
        match self.codec {
            0 if self.raw_len == self.data.len() => Ok(Cow::Borrowed(self.data)),
            0 => Err(corrupt("a block's two lengths disagree".to_owned())),
            1 => {
                let mut raw = vec![0; self.raw_len];
                let got = lz4_flex::block::decompress_into(self.data, &mut raw)
                    .map_err(|e| corrupt(format!("a block cannot be decompressed: {e}")))?;
                if got == self.raw_len {
                    Ok(Cow::Owned(raw))
                } else {
                    Err(corrupt("a block is shorter than it claims".to_owned()))
                }
            }
            codec => Err(corrupt(format!("unknown compression {codec}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(raw: &[u8]) -> (Vec<u8>, usize) {
        let mut out = Vec::new();
        put_head(&mut out, "0.1.0");
        let at = out.len();
        put_block(&mut out, Kind::Frames, raw);
        (out, at)
    }

    fn content(data: &[u8], at: usize) -> Vec<u8> {
        match read_block(data, at).unwrap() {
            Found::Block(block) => block.content().unwrap().into_owned(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn blocks_come_back_compressed_or_not() {
        for raw in [Vec::new(), vec![1, 2, 3], vec![7; 100_000]] {
            let (data, at) = file(&raw);
            assert_eq!(content(&data, at), raw);
        }
        assert!(file(&vec![7; 100_000]).0.len() < 1_000);
    }

    #[test]
    fn a_newer_major_names_the_version_needed() {
        let (mut data, _) = file(&[]);
        data[8] = 9;
        let error = read_head(&data).unwrap_err().to_string();
        assert!(error.contains("format 9.0"), "{error}");
        assert!(error.contains("use ticklet 0.1.0 or a newer one"), "{error}");
        data[8] = 1;
        data[10] = 200;
        assert_eq!(read_head(&data).unwrap().0.minor, 200);
    }

    #[test]
    fn a_damaged_length_is_damage_and_a_missing_tail_is_a_cut() {
        let (data, at) = file(&vec![7; 1000]);
        for bit in 0..(data.len() - at) * 8 {
            let mut bad = data.clone();
            bad[at + bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read_block(&bad, at), Err(TraceError::Corrupt { .. })));
        }
        for end in at + 1..data.len() {
            assert!(matches!(read_block(&data[..end], at), Ok(Found::CutOff)));
        }
        let mut zeros = data.clone();
        zeros[at..].fill(0);
        assert!(matches!(read_block(&zeros, at), Ok(Found::CutOff)));
    }

    #[test]
    fn lengths_are_checked_before_they_are_believed() {
        let (mut data, at) = file(&vec![7; 1000]);
        data[at + 2..at + 6].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32fast::hash(&data[at..at + 10]);
        data[at + 10..at + 14].copy_from_slice(&crc.to_le_bytes());
        assert!(matches!(read_block(&data, at), Err(TraceError::Corrupt { .. })));
    }

    #[test]
    fn long_tool_versions_are_cut_between_characters() {
        let mut out = Vec::new();
        put_head(&mut out, &"ä".repeat(200));
        assert_eq!(read_head(&out).unwrap().0.tool, "ä".repeat(127));
    }
}
