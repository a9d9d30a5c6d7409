//! What is in a trace, in numbers.

use components::edge::label::input_label;
use components::time::Now;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::format::TraceError;
use crate::frame::Frame;
use crate::header::Ending;
use crate::reader::{Item, Reader};

/// Numbers of a trace.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Info {
    /// Format version.
    pub format: String,
    /// Version of the ticklet that wrote it.
    pub ticklet: String,
    /// Node it ran on.
    pub node: String,
    /// Start of the run, RFC 3339.
    pub started: String,
    /// Number of the file within the run.
    pub segment: u32,
    /// Whether it can be replayed.
    pub from_boot: bool,
    /// Durable records the run began with.
    pub records: usize,
    /// Size of the file.
    pub bytes: usize,
    /// Ticks.
    pub ticks: u64,
    /// First and last tick.
    pub first: Option<(u64, Now)>,
    /// See `first`.
    pub last: Option<(u64, Now)>,
    /// Ticks that did not end.
    pub not_ended: u64,
    /// Gaps, and ticks missing in them.
    pub gaps: (u64, u64),
    /// Inputs by kind.
    pub inputs: BTreeMap<String, u64>,
    /// Decisions by kind.
    pub decisions: BTreeMap<String, u64>,
    /// How it ends.
    pub ending: Ending,
    /// Where it is damaged.
    pub damage: Option<String>,
}

/// Counts what is in the rest of the trace.
///
/// # Errors
/// When it cannot be opened; damage further on is part of the answer.
pub fn info(data: &[u8]) -> Result<Info, TraceError> {
    let mut reader = Reader::open(data)?;
    let (head, header) = (reader.head(), reader.header());
    let mut info = Info {
        format: format!("{}.{}", head.major, head.minor),
        ticklet: head.tool.clone(),
        node: header.boot.config.node_name.to_string(),
        started: header.started.rfc3339_nano(),
        segment: header.segment,
        from_boot: header.from_boot,
        records: header.boot.records.len(),
        bytes: data.len(),
        ticks: 0,
        first: None,
        last: None,
        not_ended: 0,
        gaps: (0, 0),
        inputs: BTreeMap::new(),
        decisions: BTreeMap::new(),
        ending: Ending::Open,
        damage: None,
    };
    loop {
        match reader.next_item() {
            Ok(Some(Item::Frame(frame))) => info.count(&frame),
            Ok(Some(Item::Gap(gap))) => {
                info.gaps = (info.gaps.0 + 1, info.gaps.1.saturating_add(gap.frames));
            }
            Ok(None) => break,
            Err(error) => {
                info.damage = Some(error.to_string());
                break;
            }
        }
    }
    info.ending = reader.ending().unwrap_or(Ending::Open);
    Ok(info)
}

impl Info {
    fn count(&mut self, frame: &Frame) {
        self.ticks += 1;
        let at = (frame.tick, frame.now);
        self.first.get_or_insert(at);
        self.last = Some(at);
        for input in &frame.inputs {
            *self.inputs.entry(input_kind(&input_label(input))).or_default() += 1;
        }
        let Some(effects) = &frame.effects else {
            self.not_ended += 1;
            return;
        };
        for line in &effects.lines {
            *self.decisions.entry(first_word(&line.label).to_owned()).or_default() += 1;
        }
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "format     {} by ticklet {}", self.format, self.ticklet)?;
        writeln!(f, "node       {}", self.node)?;
        writeln!(f, "started    {}", self.started)?;
        let replay = if self.from_boot { "from boot, can be replayed" } else { "not from boot, cannot be replayed" };
        writeln!(f, "file       {} of its run, {replay}", self.segment)?;
        writeln!(f, "size       {} bytes", self.bytes)?;
        writeln!(f, "records    {} durable at the start", self.records)?;
        match (self.first, self.last) {
            (Some((first, from)), Some((last, to))) => {
                let span = to.mono.since(from.mono);
                writeln!(f, "ticks      {} ({first} to {last}) over {}", self.ticks, seconds(span))?;
            }
            _ => writeln!(f, "ticks      none")?,
        }
        if self.not_ended > 0 {
            writeln!(f, "not ended  {} ticks (panic or kill)", self.not_ended)?;
        }
        if self.gaps.0 > 0 {
            writeln!(f, "gaps       {}, {} ticks are missing", self.gaps.0, self.gaps.1)?;
        }
        writeln!(f, "end        {}", self.ending.describe())?;
        if let Some(damage) = &self.damage {
            writeln!(f, "damage     {damage}")?;
        }
        for (what, counts) in [("inputs", &self.inputs), ("decisions", &self.decisions)] {
            writeln!(f, "{what}:")?;
            for (kind, count) in counts {
                writeln!(f, "  {count:>8} {kind}")?;
            }
        }
        Ok(())
    }
}

/// Kind of an input, from its label: a completion is named by its answer.
fn input_kind(label: &str) -> String {
    match label.strip_prefix("Completed #").and_then(|rest| rest.split_once(' ')) {
        Some((_, "Done")) => "Completed".to_owned(),
        Some((_, answer)) => first_word(answer).to_owned(),
        None => first_word(label).to_owned(),
    }
}

fn first_word(text: &str) -> &str {
    text.split([' ', ':']).next().unwrap_or(text)
}

fn seconds(span: Duration) -> String {
    format!("{:.3} s", span.as_secs_f64())
}
