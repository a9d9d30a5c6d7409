//! Makes traces from traces: a part of one, or one with something altered.

use components::edge::Ingress;

use crate::build::Builder;
use crate::format::TraceError;
use crate::header::{Ending, Header};
use crate::reader::{Item, Reader};

/// The ticks `from..=to` of a trace. Only a cut that keeps the first tick can be replayed; any other is marked.
///
/// # Errors
/// When the trace cannot be read.
pub fn cut(data: &[u8], from: u64, to: u64) -> Result<Vec<u8>, TraceError> {
    let mut reader = Reader::open(data)?;
    let mut out = None;
    let mut skipped = 0;
    while let Some(item) = reader.next_item()? {
        let tick = match &item {
            Item::Frame(frame) => frame.tick,
            Item::Gap(gap) => gap.after_tick,
        };
        if tick > to {
            break;
        }
        if tick < from {
            skipped += 1;
            continue;
        }
        let out = match &mut out {
            Some(out) => out,
            none => none.insert(Builder::new(&Header {
                from_boot: reader.header().from_boot && skipped == 0,
                ..reader.header().clone()
            })?),
        };
        match item {
            Item::Frame(frame) => out.frame(&frame)?,
            Item::Gap(gap) => out.gap(gap)?,
        }
    }
    let out = match out {
        Some(out) => out,
        None => {
            Builder::new(&Header { from_boot: reader.header().from_boot && skipped == 0, ..reader.header().clone() })?
        }
    };
    out.finish(Ending::Cut)
}

/// The same trace with the inputs of one tick altered; what was decided stays as it was recorded. A test that alters
/// something that matters must see a replay diverge at this tick or later.
///
/// # Errors
/// When the trace cannot be read, or has no such tick.
pub fn alter(data: &[u8], tick: u64, change: impl FnOnce(&mut Vec<Ingress>)) -> Result<Vec<u8>, TraceError> {
    let mut reader = Reader::open(data)?;
    let mut out = Builder::new(reader.header())?;
    let mut change = Some(change);
    while let Some(item) = reader.next_item()? {
        match item {
            Item::Frame(mut frame) => {
                if frame.tick == tick
                    && let Some(change) = change.take()
                {
                    change(&mut frame.inputs);
                }
                out.frame(&frame)?;
            }
            Item::Gap(gap) => out.gap(gap)?,
        }
    }
    if change.is_some() {
        return Err(TraceError::Encode { what: format!("the trace has no tick {tick}") });
    }
    out.finish(reader.ending().unwrap_or(Ending::Open))
}
