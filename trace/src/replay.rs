//! Runs a recorded trace again and finds the first tick in which something else is decided.
//!
//! The engine comes as a trait object, so that this layer knows nothing of it.

use components::edge::label::InputLabel;
use components::edge::store::Record;
use components::edge::{Ingress, Work};
use components::ids::Ticket;
use components::time::Now;
use std::fmt;
use std::time::Duration;

use crate::format::TraceError;
use crate::frame::{Frame, Line, Summary, TickEffects};
use crate::hash;
use crate::header::{Ending, Gap};
use crate::reader::{Item, Reader};

/// Lines and inputs that a divergence shows of each kind.
const SHOWN: usize = 20;

/// Something that decides: the engine with all its systems, made from the trace's header.
pub trait Replayed {
    /// Runs one tick.
    fn tick(&mut self, now: Now, batch: Vec<Ingress>) -> Effects;
}

/// What a tick decided.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Effects {
    /// Number of the tick.
    pub tick: u64,
    /// Works, in order.
    pub works: Vec<Work>,
    /// Tickets of works that are no longer wanted.
    pub cancels: Vec<Ticket>,
    /// Records to be made durable before the works start.
    pub durable: Vec<Record>,
}

impl Effects {
    /// The same, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> TickEffects<'_> {
        TickEffects { works: &self.works, cancels: &self.cancels, durable: &self.durable }
    }
}

/// What came of a replay.
#[derive(Clone, PartialEq, Debug)]
pub struct Report {
    /// Ticks that were run.
    pub ticks: u64,
    /// Works that were decided in them.
    pub works: u64,
    /// Monotonic time between the first and the last of them.
    pub span: Duration,
    /// Ticks that did not end when they were recorded, and so could not be compared.
    pub not_ended: Vec<u64>,
    /// Where the recording ended.
    pub stopped: Stopped,
    /// Ticks in which something else was decided, first ones first.
    pub differences: Vec<Divergence>,
    /// Damage that ended the reading early.
    pub damage: Option<String>,
}

/// Why a replay came to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// All frames were run; so the file ends.
    Ended(Ending),
    /// Frames are missing from here on, and what follows cannot be run without them.
    AtGap(Gap),
    /// Enough differences were found.
    AtDifference,
}

/// A tick in which something else was decided.
#[derive(Clone, PartialEq, Debug)]
pub struct Divergence {
    /// Number of the tick in the recording.
    pub tick: u64,
    /// Number the replayed engine gave it.
    pub replayed_tick: u64,
    /// Its clocks.
    pub now: Now,
    /// What was decided when it was recorded.
    pub expected: Summary,
    /// What was decided now.
    pub got: Summary,
    /// What came in.
    pub inputs: Vec<Ingress>,
}

/// Runs the trace until its end or until `limit` ticks differed.
///
/// # Errors
/// When the trace does not begin at the start of its run.
pub fn replay(reader: &mut Reader<'_>, engine: &mut dyn Replayed, limit: usize) -> Result<Report, TraceError> {
    let mut report = Report {
        ticks: 0,
        works: 0,
        span: Duration::ZERO,
        not_ended: Vec::new(),
        stopped: Stopped::Ended(Ending::Open),
        differences: Vec::new(),
        damage: None,
    };
    let from_boot = reader.header().from_boot;
    let mut first = None;
    loop {
        let item = match reader.next_item() {
            Ok(item) => item,
            Err(error) => {
                report.damage = Some(error.to_string());
                None
            }
        };
        let frame = match item {
            Some(Item::Frame(frame)) => frame,
            Some(Item::Gap(gap)) => {
                report.stopped = Stopped::AtGap(gap);
                break;
            }
            None => {
                report.stopped = Stopped::Ended(reader.ending().unwrap_or(Ending::Open));
                break;
            }
        };
        if !from_boot {
            return Err(TraceError::NotFromBoot { tick: frame.tick });
        }
        let first = *first.get_or_insert(frame.now.mono);
        report.span = frame.now.mono.since(first);
        one_tick(*frame, engine, &mut report);
        if report.differences.len() >= limit.max(1) {
            report.stopped = Stopped::AtDifference;
            break;
        }
    }
    if !from_boot && report.ticks == 0 {
        return Err(TraceError::NotFromBoot { tick: 0 });
    }
    Ok(report)
}

fn one_tick(frame: Frame, engine: &mut dyn Replayed, report: &mut Report) {
    // Kept for the report; inputs are cheap to clone (shared texts) next to running the tick.
    let inputs = frame.inputs.clone();
    let got = engine.tick(frame.now, frame.inputs);
    report.ticks += 1;
    report.works += got.works.len() as u64;
    let Some(expected) = frame.effects else {
        report.not_ended.push(frame.tick);
        return;
    };
    let same = hash::effects_hash(&got.borrowed()) == expected.hash && got.tick == frame.tick;
    if !same {
        report.differences.push(Divergence {
            tick: frame.tick,
            replayed_tick: got.tick,
            now: frame.now,
            expected,
            got: Summary::of(&got.borrowed()),
            inputs,
        });
    }
}

impl Report {
    /// True when every tick that could be compared decided the same, and nothing was unreadable.
    #[must_use]
    pub fn is_same(&self) -> bool {
        self.differences.is_empty() && self.damage.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ticks, works, span) = (self.ticks, self.works, self.span.as_secs_f64());
        writeln!(f, "{ticks} ticks over {span:.1} s, {works} works")?;
        for tick in &self.not_ended {
            writeln!(f, "note: tick {tick} did not end when it was recorded; not compared")?;
        }
        match self.stopped {
            Stopped::Ended(Ending::Closed) | Stopped::AtDifference => {}
            Stopped::Ended(ending) => writeln!(f, "note: the file is {}", ending.describe())?,
            Stopped::AtGap(gap) => {
                let (frames, after) = (gap.frames, gap.after_tick);
                writeln!(f, "note: {frames} ticks after tick {after} are missing; stopped there")?;
            }
        }
        if let Some(damage) = &self.damage {
            writeln!(f, "note: {damage}")?;
        }
        for difference in &self.differences {
            write!(f, "{difference}")?;
        }
        if self.differences.is_empty() {
            writeln!(f, "no divergence")?;
        }
        Ok(())
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tick, at) = (self.tick, self.now.wall.rfc3339_nano());
        let mono = Duration::from_nanos(self.now.mono.0).as_secs_f64();
        writeln!(f, "divergence at tick {tick} ({at}, {mono:.3} s):")?;
        if self.replayed_tick != tick {
            writeln!(f, "  the engine counted it as tick {}", self.replayed_tick)?;
        }
        self.fmt_decisions(f)?;
        writeln!(f, "  inputs of this tick:")?;
        for input in self.inputs.iter().take(SHOWN) {
            writeln!(f, "    {}", InputLabel(input))?;
        }
        more(f, self.inputs.len())
    }
}

impl Divergence {
    /// The lines that differ, with those that both begin and end with left out.
    #[must_use]
    pub fn changed_lines(&self) -> (&[Line], &[Line]) {
        let (mut old, mut new) = (&*self.expected.lines, &*self.got.lines);
        while let ([a, old_rest @ ..], [b, new_rest @ ..]) = (old, new)
            && a.hash == b.hash
        {
            (old, new) = (old_rest, new_rest);
        }
        while let ([old_rest @ .., a], [new_rest @ .., b]) = (old, new)
            && a.hash == b.hash
        {
            (old, new) = (old_rest, new_rest);
        }
        (old, new)
    }

    fn fmt_decisions(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (old, new) = self.changed_lines();
        let same = self.expected.lines.len() - old.len();
        writeln!(f, "  {same} decisions are the same")?;
        for (mark, what, lines) in [('-', "recorded", old), ('+', "replayed", new)] {
            writeln!(f, "  {what}:{}", if lines.is_empty() { " nothing" } else { "" })?;
            for line in lines.iter().take(SHOWN) {
                writeln!(f, "  {mark} {line}")?;
            }
            more(f, lines.len())?;
        }
        Ok(())
    }
}

fn more(f: &mut fmt::Formatter<'_>, len: usize) -> fmt::Result {
    match len.checked_sub(SHOWN) {
        Some(hidden) if hidden > 0 => writeln!(f, "    … and {hidden} more"),
        _ => Ok(()),
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ticket.0 != 0 {
            write!(f, "#{} ", self.ticket.0)?;
        }
        f.write_str(&self.label)?;
        if let Some(pod) = &self.pod
            && !self.label.contains(pod.as_str())
        {
            write!(f, " pod {pod}")?;
        }
        if !self.why.is_empty() {
            write!(f, " ({})", self.why)?;
        }
        write!(f, " [{:016x}]", self.hash)
    }
}
