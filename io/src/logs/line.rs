//! The CRI log format: physical lines `TIME STREAM TAG CONTENT` become the lines that the container wrote.
//!
//! Decides what of a log is shown: by stream, by time, by bytes. A line that the runtime cut into pieces (tag `P`, the
//! last one `F`) is joined and stamped once, with the time of its first piece. Content is passed through as it comes,
//! whatever bytes it holds, so that memory does not grow with the length of a line.

/// Longest head of a physical line: a time with nine digits and zone, a stream, a few tags.
const LONGEST_HEAD: usize = 256;
/// Lines of the other stream that are kept back while a line is open; past that they are shown within it.
const KEPT_BACK: usize = 64 << 10;

/// What a container writes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl Stream {
    const fn index(self) -> usize {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }

    const fn other(self) -> Self {
        match self {
            Self::Stdout => Self::Stderr,
            Self::Stderr => Self::Stdout,
        }
    }
}

/// One value per stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct PerStream<T>([T; 2]);

impl<T: Copy> PerStream<T> {
    pub(super) const fn both(value: T) -> Self {
        Self([value, value])
    }

    pub(super) const fn get(&self, stream: Stream) -> T {
        self.0[stream.index()]
    }

    pub(super) const fn set(&mut self, stream: Stream, value: T) {
        self.0[stream.index()] = value;
    }

    pub(super) const fn all(&self) -> [T; 2] {
        self.0
    }
}

/// The head of a physical line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// When it was written, in nanoseconds since 1970.
    pub(super) at: i128,
    /// To what it was written.
    pub(super) stream: Stream,
    /// The line goes on in the next piece of the same stream.
    pub(super) partial: bool,
}

/// Parses a head that ends with its third space; `None` when it is none.
pub(super) fn parse_head(head: &[u8]) -> Option<Head> {
    let text = std::str::from_utf8(head).ok()?.strip_suffix(' ')?;
    let mut parts = text.split(' ');
    let at = parts.next()?.parse::<jiff::Timestamp>().ok()?.as_nanosecond();
    let stream = match parts.next()? {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return None,
    };
    // Tags that are added later stand behind a colon.
    let partial = parts.next()?.split(':').next() == Some("P");
    parts.next().is_none().then_some(Head { at, stream, partial })
}

/// The time of a head as it is shown: with nine digits, whatever the runtime wrote.
fn stamp(head: &[u8]) -> Vec<u8> {
    let time = head.split(|byte| *byte == b' ').next().unwrap_or_default();
    let zone = time.iter().rposition(|byte| matches!(byte, b'Z' | b'+' | b'-')).unwrap_or(time.len());
    let (time, zone) = time.split_at(zone);
    let (whole, digits) = match time.iter().position(|byte| *byte == b'.') {
        Some(dot) => (&time[..dot], &time[dot + 1..]),
        None => (time, &b""[..]),
    };
    let mut out = whole.to_vec();
    out.push(b'.');
    out.extend((0..9).map(|digit| digits.get(digit).copied().unwrap_or(b'0')));
    out.extend_from_slice(if zone == b"+00:00" { b"Z" } else { zone });
    out.push(b' ');
    out
}

/// What is shown of a log.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    /// Streams.
    pub(super) streams: PerStream<bool>,
    /// Lines that began before are left out.
    pub(super) since: Option<i128>,
    /// Each line begins with its time.
    pub(super) timestamps: bool,
    /// Bytes in all.
    pub(super) limit: u64,
}

/// Joins the bytes of a log file to what is shown.
#[derive(Debug)]
pub(super) struct Joiner {
    shown: Shown,
    /// Pieces that begin before this offset of the file are left out.
    from: PerStream<u64>,
    /// Offset of the next byte.
    offset: u64,
    state: State,
    /// Per stream: a line was begun and is not at its end; true when it is shown.
    open: PerStream<Option<bool>>,
    /// The stream whose open line is shown as it comes.
    holder: Option<Stream>,
    /// Lines of the other stream, which wait for the end of that line.
    kept_back: Vec<u8>,
}

/// Where in a physical line the next byte stands.
#[derive(Debug)]
enum State {
    /// In its head, of which this much is known.
    Head(Vec<u8>),
    /// In its content.
    Content { stream: Stream, partial: bool, shown: bool },
    /// In a line that is none.
    Skip,
}

impl Joiner {
    pub(super) fn new(shown: Shown, from: PerStream<u64>, offset: u64) -> Self {
        Self {
            shown,
            from,
            offset,
            state: State::Head(Vec::new()),
            open: PerStream::default(),
            holder: None,
            kept_back: Vec::new(),
        }
    }

    /// Goes on at the beginning of the file that follows.
    pub(super) fn next_file(&mut self) {
        self.offset = 0;
        self.from = PerStream::default();
        self.state = State::Head(Vec::new());
    }

    /// Takes bytes in and puts what is shown of them into `out`; false when no more is shown.
    pub(super) fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) -> bool {
        while !bytes.is_empty() && self.shown.limit > 0 {
            let taken = match &mut self.state {
                State::Head(head) => {
                    let taken = take_head(head, bytes);
                    self.offset += taken as u64;
                    self.end_of_head(out);
                    taken
                }
                State::Content { .. } | State::Skip => {
                    let taken = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| at + 1);
                    self.offset += taken as u64;
                    self.content(&bytes[..taken], out);
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
        self.shown.limit > 0
    }

    /// Nothing more is there for now: what was kept back is shown.
    pub(super) fn rest(&mut self, out: &mut Vec<u8>) {
        let kept = std::mem::take(&mut self.kept_back);
        self.push(&kept, out);
    }

    /// Looks whether the head is whole by now.
    fn end_of_head(&mut self, out: &mut Vec<u8>) {
        let State::Head(head) = &mut self.state else { return };
        let ended = head.last() == Some(&b'\n');
        if !ended && head.iter().filter(|byte| **byte == b' ').count() < 3 {
            if head.len() >= LONGEST_HEAD {
                self.state = State::Skip;
            }
            return;
        }
        let head = std::mem::take(head);
        if ended {
            return;
        }
        let Some(parsed) = parse_head(&head) else {
            self.state = State::Skip;
            return;
        };
        let begins = self.offset - head.len() as u64;
        let Head { at, stream, partial } = parsed;
        let shown = match self.open.get(stream) {
            Some(shown) => shown,
            None => {
                let wanted = self.shown.streams.get(stream) && begins >= self.from.get(stream);
                let shown = wanted && self.shown.since.is_none_or(|since| at >= since);
                if shown {
                    self.holder.get_or_insert(stream);
                }
                if shown && self.shown.timestamps {
                    self.show(stream, &stamp(&head), out);
                }
                shown
            }
        };
        self.open.set(stream, Some(shown));
        self.state = State::Content { stream, partial, shown };
    }

    fn content(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let ended = bytes.last() == Some(&b'\n');
        if let State::Content { stream, partial, shown } = self.state {
            if shown {
                let cut = if ended && partial { &bytes[..bytes.len() - 1] } else { bytes };
                self.show(stream, cut, out);
            }
            if ended && !partial {
                self.open.set(stream, None);
                if self.holder == Some(stream) {
                    self.rest(out);
                    let other = stream.other();
                    self.holder = (self.open.get(other) == Some(true)).then_some(other);
                }
            }
        }
        if ended {
            self.state = State::Head(Vec::new());
        }
    }

    /// Shows bytes of a stream, or keeps them back while a line of the other one is open.
    fn show(&mut self, stream: Stream, bytes: &[u8], out: &mut Vec<u8>) {
        let waits = self.holder.is_some_and(|holder| holder != stream);
        if waits && self.kept_back.len() + bytes.len() <= KEPT_BACK {
            self.kept_back.extend_from_slice(bytes);
            return;
        }
        if waits {
            // From here on this line is shown as it comes, and the other one's end waits.
            self.rest(out);
            self.holder = Some(stream);
        }
        self.push(bytes, out);
    }

    fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let fits = usize::try_from(self.shown.limit).unwrap_or(usize::MAX).min(bytes.len());
        out.extend_from_slice(&bytes[..fits]);
        self.shown.limit -= fits as u64;
    }
}

/// Takes bytes up to the third space or the end of the line into the head; how many.
fn take_head(head: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let mut spaces = head.iter().filter(|byte| **byte == b' ').count();
    let room = LONGEST_HEAD.saturating_sub(head.len());
    for (index, byte) in bytes.iter().take(room).enumerate() {
        head.push(*byte);
        spaces += usize::from(*byte == b' ');
        if spaces == 3 || *byte == b'\n' {
            return index + 1;
        }
    }
    bytes.len().min(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: &str = "2026-11-29T22:00:00.";

    fn shown() -> Shown {
        Shown { streams: PerStream::both(true), since: None, timestamps: false, limit: u64::MAX }
    }

    /// Feeds a log whole, byte by byte and in odd portions: the outcome must be the same.
    #[track_caller]
    fn check(shown: &Shown, log: &[u8], expect: &[u8]) {
        for portion in [log.len().max(1), 1, 7] {
            let mut joiner = Joiner::new(shown.clone(), PerStream::default(), 0);
            let mut out = Vec::new();
            for part in log.chunks(portion) {
                if !joiner.feed(part, &mut out) {
                    break;
                }
            }
            joiner.rest(&mut out);
            let start = |bytes: &[u8]| String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
            assert_eq!(start(&out), start(expect), "portions of {portion}");
            assert!(out == expect, "portions of {portion}");
        }
    }

    fn log(lines: &str) -> Vec<u8> {
        lines.replace('@', T).into_bytes()
    }

    #[test]
    fn pieces_are_joined_and_stamped_once() {
        let text = log("@1Z stdout P aaa\n@2Z stdout P aaa\n@3Z stdout F a\n@4Z stdout F end\n@5Z stdout P tail\n");
        check(&shown(), &text, b"aaaaaaa\nend\ntail");
        let stamped = Shown { timestamps: true, ..shown() };
        let expect = log("@100000000Z aaaaaaa\n@400000000Z end\n@500000000Z tail");
        check(&stamped, &text, &expect);
        check(&Shown { limit: 5, ..shown() }, &text, b"aaaaa");
        check(&Shown { limit: 0, ..shown() }, &text, b"");
    }

    #[test]
    fn lines_that_began_before_are_left_out_whole() {
        let text = log("@1Z stdout P old\n@3Z stdout F old\n@4Z stderr F new\n");
        let since = "2026-11-29T22:00:00.2Z".parse::<jiff::Timestamp>().unwrap().as_nanosecond();
        check(&Shown { since: Some(since), ..shown() }, &text, b"new\n");
        check(
            &Shown {
                streams: {
                    let mut s = PerStream::both(false);
                    s.set(Stream::Stdout, true);
                    s
                },
                ..shown()
            },
            &text,
            b"oldold\n",
        );
    }

    #[test]
    fn a_line_of_one_stream_is_not_put_into_a_line_of_the_other() {
        let text =
            log("@1Z stdout P aa\n@2Z stderr F bb\n@3Z stderr P c\n@4Z stdout F aa\n@5Z stdout F dd\n@6Z stderr F c\n");
        check(&shown(), &text, b"aaaa\nbb\ncc\ndd\n");
        // Without an end of the open line what waits is shown at last, and what is too much at once.
        let text = log("@1Z stdout P aa\n@2Z stderr F bb\n");
        check(&shown(), &text, b"aabb\n");
        let long = "b".repeat(KEPT_BACK + 1);
        check(
            &shown(),
            &log(&format!("@1Z stdout P aa\n@2Z stderr F {long}\n@3Z stdout F a\n")),
            format!("aa{long}\na\n").as_bytes(),
        );
    }

    #[test]
    fn any_bytes_pass_and_lines_that_are_none_are_left_out() {
        let mut text = log("@1Z stdout F ");
        text.extend_from_slice(b"\xff\xfe\0\n");
        text.extend_from_slice(&log(
            "garbage\n\n@2Z stdin F x\n@3Z stdout F\nno time stdout F x\n@4Z stdout F:tag:x y\n@5Z stdout F ",
        ));
        text.extend_from_slice(&[b'z'; 9000]);
        let mut expect = b"\xff\xfe\0\ny\n".to_vec();
        expect.extend_from_slice(&[b'z'; 9000]);
        check(&shown(), &text, &expect);
        check(&shown(), &[b'x'; 5000], b"");
    }

    #[test]
    fn times_are_shown_with_nine_digits_in_their_own_zone() {
        for (given, expect) in [
            ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000000Z"),
            ("2026-01-02T03:04:05.12+02:00", "2026-01-02T03:04:05.120000000+02:00"),
            ("2026-01-02T03:04:05.123456789+00:00", "2026-01-02T03:04:05.123456789Z"),
            ("2026-01-02T03:04:05-07:00", "2026-01-02T03:04:05.000000000-07:00"),
        ] {
            let shown = stamp(format!("{given} stdout F ").as_bytes());
            assert_eq!(String::from_utf8(shown).unwrap(), format!("{expect} "));
        }
    }
}
