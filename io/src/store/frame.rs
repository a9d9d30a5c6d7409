//! The bytes of the journal: a header, then frames. Pure functions.
//!
//! A frame is `mark (4) | length (4, little endian) | CRC-32 of length and payload (4) | payload`, and its payload is
//! one commit's records in postcard. One commit is one frame, so a crash can only tear the last frame: the next is not
//! begun before the last was durable.

use components::edge::store::Record;

/// First bytes of a journal: name and version of the format.
pub(super) const HEADER: &[u8] = b"ticklet journal 1\n";

/// Begins every frame; lets a scan see whether whole frames follow a damaged place.
const MARK: [u8; 4] = [0xF7, b'T', b'K', 0x1A];

/// Bytes before a payload.
const HEAD: usize = 12;

/// Largest payload: some hundred thousand records.
const MAX_PAYLOAD: usize = 64 << 20;

/// What a journal holds.
#[derive(Debug, PartialEq)]
pub(super) struct Scan {
    /// Records of each commit.
    pub(super) groups: Vec<Vec<Record>>,
    /// Bytes up to the end of the last whole frame.
    pub(super) good: usize,
    /// Bytes of a torn tail after that.
    pub(super) torn: usize,
}

/// Damage that is no torn tail.
#[derive(Debug, PartialEq)]
pub(super) struct Damage {
    pub(super) offset: usize,
    pub(super) what: &'static str,
}

/// One commit as a frame; `None` when it is too large.
pub(super) fn encode(records: &[Record]) -> Option<Vec<u8>> {
    let payload = postcard::to_stdvec(records).ok()?;
    if payload.len() > MAX_PAYLOAD {
        return None;
    }
    let length = u32::try_from(payload.len()).ok()?.to_le_bytes();
    let mut frame = Vec::with_capacity(HEAD + payload.len());
    frame.extend(MARK);
    frame.extend(length);
    frame.extend(checksum(&length, &payload).to_le_bytes());
    frame.extend(payload);
    Some(frame)
}

/// Reads a whole journal.
pub(super) fn scan(bytes: &[u8]) -> Result<Scan, Damage> {
    if !bytes.starts_with(HEADER) {
        return Err(Damage { offset: 0, what: "it does not begin as a journal of this version" });
    }
    let mut groups = Vec::new();
    let mut offset = HEADER.len();
    while let Some((records, length)) = bytes.get(offset..).and_then(decode) {
        groups.push(records);
        offset += length;
    }
    let rest = bytes.get(offset..).unwrap_or_default();
    if has_frame(rest.get(1..).unwrap_or_default()) {
        return Err(Damage { offset, what: "records there are unreadable while later ones are whole" });
    }
    Ok(Scan { groups, good: offset, torn: rest.len() })
}

/// The whole frame that `bytes` begins with, and its length.
fn decode(bytes: &[u8]) -> Option<(Vec<Record>, usize)> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let (mark, head) = head.split_first_chunk::<4>()?;
    let (length, sum) = head.split_first_chunk::<4>()?;
    if *mark != MARK {
        return None;
    }
    let size = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if size > MAX_PAYLOAD {
        return None;
    }
    let payload = rest.get(..size)?;
    if checksum(length, payload).to_le_bytes() != *sum {
        return None;
    }
    let records = postcard::from_bytes(payload).ok()?;
    Some((records, HEAD + size))
}

fn has_frame(bytes: &[u8]) -> bool {
    bytes
        .windows(MARK.len())
        .enumerate()
        .filter(|(_, window)| *window == MARK)
        .any(|(at, _)| bytes.get(at..).and_then(decode).is_some())
}

fn checksum(length: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(length);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::ids::PodUid;

    fn record(name: &str) -> Record {
        Record::PodFinished { uid: PodUid::from(name), succeeded: true }
    }

    fn journal(groups: &[&[Record]]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = HEADER.to_vec();
        let mut ends = vec![bytes.len()];
        for group in groups {
            bytes.extend(encode(group).unwrap());
            ends.push(bytes.len());
        }
        (bytes, ends)
    }

    #[test]
    fn every_cut_of_the_last_frame_is_a_torn_tail() {
        let groups: [&[Record]; 2] = [&[record("a")], &[record("b"), record("c")]];
        let (bytes, ends) = journal(&groups);
        for end in ends[1]..bytes.len() {
            let scan = scan(&bytes[..end]).unwrap();
            assert_eq!(scan.groups.len(), 1, "cut at {end}");
            assert_eq!((scan.good, scan.torn), (ends[1], end - ends[1]));
        }
        assert_eq!(scan(&bytes).unwrap().groups.len(), 2);
        let mut extended = bytes.clone();
        extended.extend([0; 100]);
        assert_eq!(scan(&extended).unwrap().torn, 100);
    }

    #[test]
    fn every_flipped_byte_is_noticed() {
        let groups: [&[Record]; 3] = [&[record("a")], &[record("b")], &[record("c")]];
        let (bytes, ends) = journal(&groups);
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x40;
            match scan(&flipped) {
                Err(damage) => {
                    assert!(at < ends[2], "byte {at} is in the tail");
                    let begin = ends.iter().rfind(|end| **end <= at).copied();
                    assert_eq!(damage.offset, begin.unwrap_or(0));
                }
                Ok(scan) => {
                    assert!(at >= ends[2], "byte {at} was not noticed");
                    assert_eq!(scan.good, ends[2]);
                }
            }
        }
    }
}
