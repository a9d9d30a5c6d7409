//! Where the last lines of a log begin, counted in lines that the container wrote, however many pieces they are in.
//!
//! Reads backwards in blocks, so the cost is that of the lines found and not of the file. The streams may be mixed: a
//! line's first pieces can stand before a line of the other stream that is not wanted, so each stream has its own start.

use super::line::{PerStream, Stream, parse_head};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// Bytes read at a time.
const BLOCK: u64 = 64 << 10;
/// Bytes looked at for the head of a physical line.
const HEAD: usize = 128;

/// Where each stream's last `lines` lines begin among the first `size` bytes. `go_on` is asked before each block.
pub(super) fn starts(file: &File, size: u64, lines: u64, go_on: &dyn Fn() -> bool) -> io::Result<PerStream<u64>> {
    let mut count = Count { wanted: lines, found: 0, starts: PerStream::both(size), open: PerStream::default() };
    let mut walk = Walk { file, end: size, block: Vec::new(), block_at: size };
    while !count.done() && go_on() {
        let Some(begin) = walk.back()? else { break };
        let mut head = [0; HEAD];
        let read = walk.head(begin, &mut head)?;
        count.piece(begin, &head[..read]);
    }
    Ok(count.starts)
}

/// Lines found so far, from the end.
struct Count {
    wanted: u64,
    found: u64,
    starts: PerStream<u64>,
    /// The stream's next earlier unfinished piece belongs to a line that is wanted (`Some(true)`), to one that is not
    /// (`Some(false)`); `None` before the stream's last piece was seen.
    open: PerStream<Option<bool>>,
}

impl Count {
    /// Every wanted line was found, and none can have more pieces before.
    fn done(&self) -> bool {
        self.found >= self.wanted && !self.open.all().contains(&Some(true))
    }

    fn piece(&mut self, begin: u64, line: &[u8]) {
        let space = |(at, byte): (usize, &u8)| (*byte == b' ').then_some(at);
        let Some(end) = line.iter().enumerate().filter_map(space).nth(2) else { return };
        let Some(head) = parse_head(&line[..=end]) else { return };
        let ends_line = !head.partial || self.open.get(head.stream).is_none();
        if ends_line {
            let wanted = self.found < self.wanted;
            self.found += u64::from(wanted);
            self.open.set(head.stream, Some(wanted));
        }
        if self.open.get(head.stream) == Some(true) {
            self.starts.set(head.stream, begin);
        }
    }
}

/// Physical lines from the last to the first.
struct Walk<'a> {
    file: &'a File,
    /// Where the line that was found last begins.
    end: u64,
    block: Vec<u8>,
    block_at: u64,
}

impl Walk<'_> {
    /// Where the line before begins.
    fn back(&mut self) -> io::Result<Option<u64>> {
        if self.end == 0 {
            return Ok(None);
        }
        // The byte before is the end of the line that is looked for.
        let mut at = self.end - 1;
        loop {
            if at <= self.block_at {
                if at == 0 {
                    self.end = 0;
                    return Ok(Some(0));
                }
                self.load(at)?;
            }
            let inside = usize::try_from(at - self.block_at).unwrap_or(usize::MAX);
            match self.block[..inside].iter().rposition(|byte| *byte == b'\n') {
                Some(found) => {
                    self.end = self.block_at + found as u64 + 1;
                    return Ok(Some(self.end));
                }
                None => at = self.block_at,
            }
        }
    }

    /// Loads the block that ends at `end`.
    fn load(&mut self, end: u64) -> io::Result<()> {
        self.block_at = end.saturating_sub(BLOCK);
        self.block.resize(usize::try_from(end - self.block_at).unwrap_or(0), 0);
        self.file.read_exact_at(&mut self.block, self.block_at)
    }

    /// The first bytes of a line.
    fn head(&self, begin: u64, head: &mut [u8; HEAD]) -> io::Result<usize> {
        let known = begin.checked_sub(self.block_at).and_then(|at| self.block.get(usize::try_from(at).ok()?..));
        if let Some(known) = known.filter(|known| known.len() >= HEAD) {
            head.copy_from_slice(&known[..HEAD]);
            return Ok(HEAD);
        }
        self.file.read_at(head, begin)
    }
}

/// The earliest start.
pub(super) fn first(starts: &PerStream<u64>) -> u64 {
    starts.get(Stream::Stdout).min(starts.get(Stream::Stderr))
}

#[cfg(test)]
mod tests {
    use super::super::line::{Joiner, Shown};
    use super::*;
    use std::io::{Seek as _, Write as _};

    /// What is shown of the last `lines` lines.
    fn tail(log: &str, lines: u64) -> String {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(log.replace('@', "2026-11-29T22:00:00.").as_bytes()).unwrap();
        let size = file.stream_position().unwrap();
        let starts = starts(&file, size, lines, &|| true).unwrap();
        let mut rest = vec![0; usize::try_from(size - first(&starts)).unwrap()];
        file.read_exact_at(&mut rest, first(&starts)).unwrap();
        let shown = Shown { streams: PerStream::both(true), since: None, timestamps: false, limit: u64::MAX };
        let mut out = Vec::new();
        let mut joiner = Joiner::new(shown, starts, first(&starts));
        joiner.feed(&rest, &mut out);
        joiner.rest(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[track_caller]
    fn check(log: &str, expect: &[&str]) {
        for (lines, expect) in expect.iter().enumerate() {
            assert_eq!(tail(log, lines as u64), *expect, "tail {lines}");
        }
    }

    #[test]
    fn whole_lines_are_counted() {
        check("", &["", ""]);
        let log = "@1Z stdout F a\n@2Z stdout P b\n@3Z stdout P b\n@4Z stdout F b\n@5Z stdout F c\n@6Z stdout P d\n";
        check(log, &["", "d", "c\nd", "bbb\nc\nd", "a\nbbb\nc\nd", "a\nbbb\nc\nd"]);
        // A last piece that is still being written, and lines that are none.
        check("@1Z stdout F a\ngarbage\n@2Z stdout F b", &["", "b", "a\nb"]);
    }

    #[test]
    fn lines_of_mixed_streams_are_not_cut() {
        let log = "@0Z stderr F z\n@1Z stdout P a\n@2Z stderr F e\n@3Z stdout F a\n@4Z stderr P f\n@5Z stdout F b\n";
        check(log, &["", "b\n", "fb\n", "aa\nfb\n", "aa\ne\nfb\n", "z\naa\ne\nfb\n"]);
    }

    #[test]
    fn a_line_longer_than_many_blocks_is_found() {
        let long = "x".repeat(300_000);
        let log = format!("@1Z stdout F a\n@2Z stdout P {long}\n@3Z stdout F {long}\n@4Z stdout F end\n");
        assert_eq!(tail(&log, 1), "end\n");
        assert_eq!(tail(&log, 2).len(), 600_000 + 1 + 4);
        assert_eq!(tail(&log, 9).len(), 2 + 600_000 + 1 + 4);
        let many: String = (0..20_000).map(|n| format!("@1Z stdout F {n}\n")).collect();
        assert_eq!(tail(&many, 2), "19998\n19999\n");
        assert_eq!(tail(&many, 15_000).lines().next(), Some("5000"));
    }
}
