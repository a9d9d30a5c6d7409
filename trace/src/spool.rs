//! Which files a recording is kept in: the ring's policy, as steps for whoever may touch files.
//!
//! A replay needs a run from its first tick, so the first file of a run keeps growing from there up to a limit. A
//! run that goes on after that is kept for `ticklet trace show` only: in a few smaller files of which the oldest is
//! dropped. Old runs are dropped, oldest first, when there are too many or they are too large. Files that are not
//! named like a recording are never touched.
//!
//! Reads no clock and touches no file: times come in, steps go out, and a failed step is reported back. What cannot
//! be written is dropped and counted; a gap in the file says so.

use components::time::Wall;
use std::time::Duration;

use crate::build::{BLOCK, file_start, put_end, put_gap};
use crate::format::{self, Kind, MAX_RAW, TraceError};
use crate::frame::Packet;
use crate::header::{Ending, Gap, Header};

/// How much is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Size of a run's first file, the one that can be replayed.
    pub run_bytes: u64,
    /// Size of each later file of a run.
    pub tail_bytes: u64,
    /// Later files that are kept.
    pub tail_files: usize,
    /// Runs that are kept, this one included.
    pub runs: usize,
    /// Size of all runs together.
    pub total_bytes: u64,
    /// Longest time that a tick stays unwritten.
    pub flush: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        // A quiet node records about 2 MiB a day, so a first file covers weeks; a start of 500 pods takes about 2 MiB.
        Self {
            run_bytes: 64 << 20,
            tail_bytes: 8 << 20,
            tail_files: 2,
            runs: 16,
            total_bytes: 256 << 20,
            flush: Duration::from_millis(500),
        }
    }
}

/// One thing to do in the directory of traces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Begin a file that is not there yet; later appends go to it.
    Create {
        /// Its name, without a directory.
        name: String,
        /// Its first bytes.
        bytes: Vec<u8>,
    },
    /// Append to the file, all of it or nothing.
    Append {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Remove a file that may be gone already.
    Remove {
        /// Its name.
        name: String,
    },
}

/// Pause after a failed step: a full disk does not empty within milliseconds.
const PAUSE: Duration = Duration::from_secs(1);

/// Turns frames into steps.
#[derive(Debug)]
pub struct Spool {
    limits: Limits,
    header: Header,
    stem: String,
    /// The file at hand and its size.
    file: Option<u64>,
    /// Number of the next file of this run, and names of the later ones that are there.
    segment: u32,
    tail: Vec<String>,
    block: Vec<u8>,
    block_frames: u64,
    /// When the oldest frame in `block` came.
    since: Option<Duration>,
    last_tick: u64,
    /// Frames that were lost and no gap says so yet; frames that were lost in all.
    unsaid: u64,
    lost: u64,
    /// Any frame of this run was lost before the first file was begun, or that file is over.
    past_boot: bool,
    wants_fresh: bool,
    paused_until: Option<Duration>,
    /// Frames in the steps given out last, and whether they begin a file.
    given: u64,
    given_create: bool,
}

impl Spool {
    /// A recording of a new run. `existing` are the files of the directory with their sizes; steps that make room come
    /// back.
    #[must_use]
    pub fn start(header: Header, limits: Limits, existing: &[(String, u64)]) -> (Self, Vec<Step>) {
        let stem = free_stem(header.started, existing);
        let steps = prune(existing, &limits).into_iter().map(|name| Step::Remove { name }).collect();
        let spool = Self {
            limits,
            header,
            stem,
            file: None,
            segment: 0,
            tail: Vec::new(),
            block: Vec::new(),
            block_frames: 0,
            since: None,
            last_tick: 0,
            unsaid: 0,
            lost: 0,
            past_boot: false,
            wants_fresh: false,
            paused_until: None,
            given: 0,
            given_create: false,
        };
        (spool, steps)
    }

    /// True when the next frame should not depend on those before it: a new file is to be begun, or some were lost.
    #[must_use]
    pub fn wants_fresh(&self) -> bool {
        self.wants_fresh
    }

    /// Frames that were lost in all.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// When [`Self::wake`] is due.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.since.map(|since| since + self.limits.flush)
    }

    /// Takes a frame; `lost_before` frames before it never came here.
    ///
    /// # Errors
    /// When a header, gap or end cannot be encoded.
    pub fn packet(&mut self, packet: &Packet, lost_before: u64, at: Duration) -> Result<Vec<Step>, TraceError> {
        let mut steps = self.begin_steps();
        self.lose(lost_before);
        let paused = self.paused_until.is_some_and(|until| at < until);
        let follows = packet.fresh || (self.unsaid == 0 && self.file.is_some());
        if paused || !follows || packet.bytes.len() > MAX_RAW {
            self.lose(1);
            return Ok(steps);
        }
        self.paused_until = None;
        if packet.fresh {
            self.wants_fresh = false;
            self.roll(&mut steps)?;
            self.say_lost(&mut steps)?;
        }
        if self.block.len() + packet.bytes.len() > BLOCK {
            self.flush(&mut steps);
        }
        self.block.extend_from_slice(&packet.bytes);
        self.block_frames += 1;
        self.last_tick = packet.tick;
        self.since.get_or_insert(at);
        if self.block.len() > BLOCK || self.deadline().is_some_and(|due| due <= at) {
            self.flush(&mut steps);
        }
        Ok(steps)
    }

    /// Writes what has waited long enough.
    pub fn wake(&mut self, at: Duration) -> Vec<Step> {
        let mut steps = self.begin_steps();
        if self.deadline().is_some_and(|due| due <= at) {
            self.flush(&mut steps);
        }
        steps
    }

    /// The steps given out last did not all succeed. With `open` the file can still be appended to and holds nothing of
    /// the step that failed.
    pub fn failed(&mut self, open: bool, at: Duration) {
        let given = std::mem::take(&mut self.given);
        let waiting = std::mem::take(&mut self.block_frames);
        self.block.clear();
        self.since = None;
        if self.given_create || !open {
            self.file = None;
            self.past_boot = true;
        }
        self.lose(given + waiting);
        self.wants_fresh = true;
        self.paused_until = Some(at + PAUSE);
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// When the end cannot be encoded.
    pub fn close(&mut self) -> Result<Vec<Step>, TraceError> {
        let mut steps = self.begin_steps();
        self.flush(&mut steps);
        if self.file.is_some() {
            self.say_lost(&mut steps)?;
            self.end(Ending::Closed, &mut steps)?;
        }
        Ok(steps)
    }

    fn begin_steps(&mut self) -> Vec<Step> {
        self.given = 0;
        self.given_create = false;
        Vec::new()
    }

    fn lose(&mut self, frames: u64) {
        if frames > 0 {
            self.unsaid += frames;
            self.lost += frames;
            self.wants_fresh = true;
            self.past_boot |= self.file.is_none();
        }
    }

    /// Begins a file when there is none, or the one at hand is full.
    fn roll(&mut self, steps: &mut Vec<Step>) -> Result<(), TraceError> {
        if self.is_full() {
            self.flush(steps);
            self.end(Ending::Full, steps)?;
            self.past_boot = true;
        }
        if self.file.is_some() {
            return Ok(());
        }
        let name = format!("{}-{:03}.trace", self.stem, self.segment);
        let header = Header { segment: self.segment, from_boot: !self.past_boot, ..self.header.clone() };
        if self.past_boot {
            while self.tail.len() >= self.limits.tail_files.max(1) {
                let name = self.tail.remove(0);
                steps.push(Step::Remove { name });
            }
            self.tail.push(name.clone());
        }
        let bytes = file_start(&header)?;
        self.file = Some(bytes.len() as u64);
        self.segment += 1;
        self.given_create = true;
        steps.push(Step::Create { name, bytes });
        Ok(())
    }

    fn say_lost(&mut self, steps: &mut Vec<Step>) -> Result<(), TraceError> {
        let frames = std::mem::take(&mut self.unsaid);
        if frames == 0 {
            return Ok(());
        }
        self.flush(steps);
        let mut bytes = Vec::new();
        put_gap(&mut bytes, Gap { after_tick: self.last_tick, frames })?;
        self.append(bytes, steps);
        Ok(())
    }

    fn end(&mut self, ending: Ending, steps: &mut Vec<Step>) -> Result<(), TraceError> {
        let mut bytes = Vec::new();
        put_end(&mut bytes, ending)?;
        self.append(bytes, steps);
        self.file = None;
        Ok(())
    }

    fn flush(&mut self, steps: &mut Vec<Step>) {
        self.since = None;
        if self.block.is_empty() {
            return;
        }
        let mut bytes = Vec::new();
        format::put_block(&mut bytes, Kind::Frames, &self.block);
        self.block.clear();
        // A burst makes it several times as large.
        self.block.shrink_to(BLOCK);
        self.given += std::mem::take(&mut self.block_frames);
        self.append(bytes, steps);
        self.wants_fresh |= self.is_full();
    }

    fn append(&mut self, bytes: Vec<u8>, steps: &mut Vec<Step>) {
        if let Some(size) = &mut self.file {
            *size += bytes.len() as u64;
        }
        steps.push(Step::Append { bytes });
    }

    fn is_full(&self) -> bool {
        let limit = if self.past_boot { self.limits.tail_bytes } else { self.limits.run_bytes };
        self.file.is_some_and(|size| size >= limit)
    }
}

/// Files to drop before a new run begins: whole runs, oldest first, until there are fewer than allowed and the new
/// one has room.
#[must_use]
pub fn prune(existing: &[(String, u64)], limits: &Limits) -> Vec<String> {
    let mut runs: std::collections::BTreeMap<&str, (u64, Vec<&str>)> = std::collections::BTreeMap::new();
    for (name, size) in existing {
        if let Some(stem) = stem_of(name) {
            let run = runs.entry(stem).or_default();
            run.0 = run.0.saturating_add(*size);
            run.1.push(name);
        }
    }
    let tail = limits.tail_bytes.saturating_mul(limits.tail_files as u64);
    let room = limits.total_bytes.saturating_sub(limits.run_bytes).saturating_sub(tail);
    let mut total: u64 = runs.values().map(|(size, _)| *size).fold(0, u64::saturating_add);
    let mut drop = Vec::new();
    while total > room || runs.len() >= limits.runs.max(1) {
        let Some((_, (size, names))) = runs.pop_first() else {
            break;
        };
        total = total.saturating_sub(size);
        drop.extend(names.into_iter().map(str::to_owned));
    }
    drop
}

/// The run a file belongs to: `ticklet-<start>` of `ticklet-<start>-<n>.trace`.
fn stem_of(name: &str) -> Option<&str> {
    let (stem, number) = name.strip_suffix(".trace")?.rsplit_once('-')?;
    let start = stem.strip_prefix("ticklet-")?;
    let all_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (second, millis) = start.strip_suffix('Z')?.split_once('.')?;
    let (day, time) = second.split_once('T')?;
    let lengths = (day.len(), time.len(), millis.len()) == (8, 6, 3);
    (lengths && [number, day, time, millis].into_iter().all(all_digits)).then_some(stem)
}

/// A stem for a run that began at `started`, made of its time. It is later than every existing one, whatever the wall
/// clock says, since the oldest are dropped by name (a machine without a clock of its own starts in 1970 each time).
fn free_stem(started: Wall, existing: &[(String, u64)]) -> String {
    let digits = |text: &str| text.bytes().filter(u8::is_ascii_digit).fold(0, push_digit);
    let millis = started.0.div_euclid(1_000_000).rem_euclid(1000);
    let own = digits(&format!("{}{millis:03}", started.rfc3339()));
    let last = existing.iter().filter_map(|(name, _)| stem_of(name)).map(digits).max();
    let number = format!("{:017}", own.max(last.map_or(0, |last| last + 1)));
    format!("ticklet-{}T{}.{}Z", &number[..8], &number[8..14], &number[14..])
}

/// At most 18 digits stand in a name, which fit.
fn push_digit(number: u64, digit: u8) -> u64 {
    number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'))
}

#[cfg(test)]
#[path = "spool/tests.rs"]
mod tests;
