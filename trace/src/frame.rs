//! One frame: a tick's clocks and inputs, and what it decided, as hashes with a line each.
//!
//! ```text
//! frame  = flags tick mono wall count input* [hash count line*]
//! ```
//! Flags: 1 = clocks are absolute and nothing before is needed, 2 = what was decided follows (it does not when the
//! tick ended in a panic). Otherwise clocks are differences to the frame before.

use components::edge::cri::CriEffect;
use components::edge::label::{RecordLabel, WorkLabel};
use components::edge::store::Record;
use components::edge::{Effect, Ingress, Lane, Work};
use components::ids::{PodUid, Ticket};
use components::time::{Mono, Now, Wall};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

use crate::delta::{self, Base};
use crate::format::TraceError;
use crate::hash::{self, Fnv};

const FRESH: u8 = 1;
const DECIDED: u8 = 2;

/// What a tick decided, borrowed from the engine's output.
#[derive(Clone, Copy, Debug, Default)]
pub struct TickEffects<'a> {
    /// Works, in order.
    pub works: &'a [Work],
    /// Tickets of works that are no longer wanted.
    pub cancels: &'a [Ticket],
    /// Records to be made durable before the works start.
    pub durable: &'a [Record],
}

/// One tick as recorded.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Frame {
    /// Number of the tick.
    pub tick: u64,
    /// Its clocks.
    pub now: Now,
    /// What came in, in order, secrets redacted.
    pub inputs: Vec<Ingress>,
    /// What was decided; `None` when the tick did not end.
    pub effects: Option<Summary>,
}

/// What a tick decided.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Summary {
    /// Hash of all lines.
    pub hash: u64,
    /// One line per record, work and cancel, in this order.
    pub lines: Vec<Line>,
}

/// One decision.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Line {
    /// What kind of decision.
    pub kind: LineKind,
    /// Ticket of a work or a cancel.
    pub ticket: Ticket,
    /// The pod it concerns, where one is known.
    pub pod: Option<PodUid>,
    /// Hash of everything it carries.
    pub hash: u64,
    /// What it does, see [`components::edge::label`].
    pub label: String,
    /// `system: rule` that asked for it; empty for records and cancels.
    pub why: String,
}

/// Kinds of decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LineKind {
    /// A durable record.
    Record,
    /// A work.
    Work,
    /// A cancel.
    Cancel,
}

/// A frame in bytes, ready to be put into a block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packet {
    /// Number of the tick.
    pub tick: u64,
    /// True when it can be decoded without the frames before it.
    pub fresh: bool,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Puts ticks into bytes. Cheap enough for the tick's own thread: no compression, no copy of what it is given.
#[derive(Debug, Default)]
pub struct Encoder {
    base: Base,
    last: Option<(u64, Now)>,
    open: Option<Packet>,
    label: String,
    why: String,
}

/// Gets ticks out of bytes.
#[derive(Debug, Default)]
pub struct Decoder {
    base: Base,
    last: Option<(u64, Now)>,
}

impl Summary {
    /// The lines of what was decided.
    #[must_use]
    pub fn of(effects: &TickEffects<'_>) -> Self {
        let mut lines = Vec::new();
        let (mut label, mut why) = (String::new(), String::new());
        each_line(effects, &mut label, &mut why, |line| {
            lines.push(Line {
                kind: line.kind,
                ticket: line.ticket,
                pod: line.pod.cloned(),
                hash: line.hash,
                label: line.label.to_owned(),
                why: line.why.to_owned(),
            });
        });
        let hash = hash::effects_hash(effects);
        Self { hash, lines }
    }
}

impl Encoder {
    /// Makes the next frame decodable without the ones before it: after a loss, and at the begin of a file.
    pub fn refresh(&mut self) {
        self.last = None;
        self.base = Base::default();
    }

    /// Takes in the inputs of a tick, before the engine consumes them. A tick that was begun and not ended is
    /// returned: it is to be written without effects.
    ///
    /// # Errors
    /// When an input cannot be encoded; the frame is lost then.
    pub fn begin(&mut self, tick: u64, now: Now, inputs: &[Ingress]) -> Result<Option<Packet>, TraceError> {
        let unfinished = self.open.take();
        let fresh = self.last.is_none();
        let mut bytes = Vec::with_capacity(64);
        bytes.push(if fresh { FRESH } else { 0 });
        let (last_tick, last) = self.last.unwrap_or_default();
        put(&mut bytes, &tick.wrapping_sub(last_tick))?;
        put(&mut bytes, &now.mono.0.wrapping_sub(last.mono.0))?;
        put(&mut bytes, &skew(now).wrapping_sub(skew(last)))?;
        put(&mut bytes, &(inputs.len() as u64))?;
        for input in inputs {
            delta::encode(&mut self.base, input, &mut bytes)?;
        }
        self.last = Some((tick, now));
        self.open = Some(Packet { tick, fresh, bytes });
        Ok(unfinished)
    }

    /// Adds what the tick decided and gives the frame out; `None` when no tick was begun.
    ///
    /// # Errors
    /// When a line cannot be encoded.
    pub fn end(&mut self, effects: &TickEffects<'_>) -> Result<Option<Packet>, TraceError> {
        let Some(mut packet) = self.open.take() else {
            return Ok(None);
        };
        let out = &mut packet.bytes;
        out[0] |= DECIDED;
        let hash_at = out.len();
        out.extend_from_slice(&[0; 8]);
        let count = effects.durable.len() + effects.works.len() + effects.cancels.len();
        put(out, &(count as u64))?;
        let mut all = Fnv::default();
        let mut result = Ok(());
        each_line(effects, &mut self.label, &mut self.why, |line| {
            all.write(&line.hash.to_le_bytes());
            if result.is_ok() {
                result = put(out, &line);
            }
        });
        result?;
        out[hash_at..hash_at + 8].copy_from_slice(&all.0.to_le_bytes());
        Ok(Some(packet))
    }

    /// Gives out a tick that was begun and will not be ended.
    pub fn abandon(&mut self) -> Option<Packet> {
        self.open.take()
    }

    /// Puts a frame that was read into bytes again.
    ///
    /// # Errors
    /// When something in it cannot be encoded.
    pub fn encode(&mut self, frame: &Frame) -> Result<Packet, TraceError> {
        self.begin(frame.tick, frame.now, &frame.inputs)?;
        let packet = self.open.take();
        let mut packet = packet.ok_or_else(|| TraceError::Encode { what: "the frame was lost".to_owned() })?;
        if let Some(summary) = &frame.effects {
            packet.bytes[0] |= DECIDED;
            packet.bytes.extend_from_slice(&summary.hash.to_le_bytes());
            put(&mut packet.bytes, &(summary.lines.len() as u64))?;
            for line in &summary.lines {
                put(&mut packet.bytes, line)?;
            }
        }
        Ok(packet)
    }
}

impl Decoder {
    /// Takes one frame from the front of `data`.
    ///
    /// # Errors
    /// With a sentence when the bytes make no frame.
    pub fn decode(&mut self, data: &mut &[u8]) -> Result<Frame, String> {
        let flags = take::<u8>(data)?;
        if flags & !(FRESH | DECIDED) != 0 {
            return Err(format!("unknown frame flags {flags:#x}"));
        }
        if flags & FRESH != 0 {
            *self = Self::default();
        } else if self.last.is_none() {
            return Err("a frame depends on one that is missing".to_owned());
        }
        let (last_tick, last) = self.last.unwrap_or_default();
        let tick = take::<u64>(data)?.wrapping_add(last_tick);
        let mono = Mono(take::<u64>(data)?.wrapping_add(last.mono.0));
        let skewed = take::<i64>(data)?.wrapping_add(skew(last));
        let wall = Wall(skewed.wrapping_add(mono.0.cast_signed()));
        let now = Now { mono, wall };
        let count = take::<u64>(data)?;
        let mut inputs = Vec::new();
        let mut budget = delta::BUDGET;
        for _ in 0..count {
            inputs.push(delta::decode(&mut self.base, data, &mut budget)?);
        }
        let decided = flags & DECIDED != 0;
        let effects = decided.then(|| summary(data)).transpose()?;
        self.last = Some((tick, now));
        Ok(Frame { tick, now, inputs, effects })
    }
}

/// A line that borrows; serialises as [`Line`] does.
#[derive(Serialize)]
struct LineRef<'a> {
    kind: LineKind,
    ticket: Ticket,
    pod: Option<&'a PodUid>,
    hash: u64,
    label: &'a str,
    why: &'a str,
}

fn each_line(effects: &TickEffects<'_>, label: &mut String, why: &mut String, mut emit: impl FnMut(LineRef<'_>)) {
    for record in effects.durable {
        label.clear();
        // Writing into a `String` cannot fail.
        let _ = write!(label, "{}", RecordLabel(record));
        emit(LineRef {
            kind: LineKind::Record,
            ticket: Ticket(0),
            pod: Some(record_pod(record)),
            hash: hash::record_hash(record),
            label,
            why: "",
        });
    }
    for work in effects.works {
        label.clear();
        why.clear();
        let _ = write!(label, "{}", WorkLabel(work));
        let _ = write!(why, "{}: {}", work.why.system, work.why.rule);
        emit(LineRef {
            kind: LineKind::Work,
            ticket: work.ticket,
            pod: work_pod(work),
            hash: hash::work_hash(work),
            label,
            why,
        });
    }
    for ticket in effects.cancels {
        label.clear();
        let _ = write!(label, "Cancel #{}", ticket.0);
        emit(LineRef {
            kind: LineKind::Cancel,
            ticket: *ticket,
            pod: None,
            hash: hash::cancel_hash(*ticket),
            label,
            why: "",
        });
    }
}

fn work_pod(work: &Work) -> Option<&PodUid> {
    match (&work.lane, &work.effect) {
        (Lane::Pod { uid, .. }, _) => Some(uid),
        (Lane::Free, Effect::Cri(CriEffect::InspectPod { uid, .. })) => Some(uid),
        (Lane::Free, _) => None,
    }
}

fn record_pod(record: &Record) -> &PodUid {
    match record {
        Record::PodAdmitted { uid, .. }
        | Record::PodFinished { uid, .. }
        | Record::PodForgotten { uid }
        | Record::PodProbed { uid, .. }
        | Record::PodEnded { uid, .. }
        | Record::PodAllocated { uid, .. }
        | Record::PodActuated { uid, .. } => uid,
    }
}

fn summary(data: &mut &[u8]) -> Result<Summary, String> {
    let (hash, rest) = data.split_first_chunk::<8>().ok_or("a frame ends inside its effects")?;
    let hash = u64::from_le_bytes(*hash);
    *data = rest;
    let mut lines = Vec::new();
    for _ in 0..take::<u64>(data)? {
        lines.push(take::<Line>(data)?);
    }
    Ok(Summary { hash, lines })
}

/// Wall time minus monotonic time: changes only when the wall clock steps.
fn skew(now: Now) -> i64 {
    now.wall.0.wrapping_sub(now.mono.0.cast_signed())
}

/// Appends a value's postcard bytes.
pub(crate) fn put<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) -> Result<(), TraceError> {
    struct Append<'a>(&'a mut Vec<u8>);
    impl postcard::ser_flavors::Flavor for Append<'_> {
        type Output = ();
        fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
            self.0.extend_from_slice(data);
            Ok(())
        }
        fn try_push(&mut self, data: u8) -> postcard::Result<()> {
            self.0.push(data);
            Ok(())
        }
        fn finalize(self) -> postcard::Result<()> {
            Ok(())
        }
    }
    postcard::serialize_with_flavor(value, Append(out)).map_err(|e| TraceError::Encode { what: e.to_string() })
}

/// Takes a value off the front of `data`.
pub(crate) fn take<T: DeserializeOwned>(data: &mut &[u8]) -> Result<T, String> {
    let (value, rest) = postcard::take_from_bytes(data).map_err(|e| e.to_string())?;
    *data = rest;
    Ok(value)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use components::edge::Why;
    use components::edge::cri::{ContainerConfig, SandboxConfig};
    use components::edge::sources::SourcesIngress;
    use components::ids::Sensitive;
    use std::time::Duration;

    pub(crate) fn work(ticket: u64) -> Work {
        Work {
            ticket: Ticket(ticket),
            lane: Lane::Free,
            chained: false,
            timeout: Duration::from_secs(120),
            why: Why { system: "relist", rule: "the period is over" },
            effect: Effect::Cri(CriEffect::ListRuntime),
        }
    }

    pub(crate) fn create(secret: &str, image: &str) -> Work {
        let effect = CriEffect::CreateContainer {
            sandbox: "sandbox-1".into(),
            config: Box::new(ContainerConfig {
                name: "c".into(),
                image_ref: image.into(),
                envs: vec![("TOKEN".into(), Sensitive::from(secret))],
                ..ContainerConfig::default()
            }),
            sandbox_config: Box::new(SandboxConfig {
                name: "web".into(),
                namespace: "default".into(),
                ..SandboxConfig::default()
            }),
        };
        Work { lane: Lane::Pod { uid: "uid-1".into(), strand: 1 }, effect: Effect::Cri(effect), ..work(7) }
    }

    fn now(mono: u64, wall: i64) -> Now {
        Now { mono: Mono(mono), wall: Wall(wall) }
    }

    #[test]
    fn frames_come_back_with_their_decisions() {
        let mut encoder = Encoder::default();
        let mut decoder = Decoder::default();
        let inputs = [Ingress::Sources(SourcesIngress::ManifestsTouched)];
        let works = [create("s", "v1"), work(8)];
        let durable = [Record::PodForgotten { uid: "uid-1".into() }];
        let effects = TickEffects { works: &works, cancels: &[Ticket(3)], durable: &durable };
        // The wall clock steps back between the second and the third tick.
        for (tick, now) in [(1, now(5, 100)), (2, now(9, 104)), (9, now(u64::MAX, -7))] {
            assert_eq!(encoder.begin(tick, now, &inputs).unwrap(), None);
            let packet = encoder.end(&effects).unwrap().unwrap();
            assert_eq!((packet.tick, packet.fresh), (tick, tick == 1));
            let mut data = packet.bytes.as_slice();
            let frame = decoder.decode(&mut data).unwrap();
            assert!(data.is_empty());
            assert_eq!((frame.tick, frame.now), (tick, now));
            assert_eq!(frame.inputs, inputs);
            assert_eq!(frame.effects, Some(Summary::of(&effects)));
        }
        let lines = Summary::of(&effects).lines;
        let labels: Vec<_> = lines.iter().map(|l| l.label.as_str()).collect();
        let expect = ["PodForgotten uid uid-1", "CreateContainer default/web/c attempt 0", "ListRuntime", "Cancel #3"];
        assert_eq!(labels, expect);
        assert_eq!(lines[2].why, "relist: the period is over");
    }

    #[test]
    fn a_tick_that_never_ended_is_given_out_by_the_next() {
        let mut encoder = Encoder::default();
        encoder.begin(1, now(1, 1), &[]).unwrap();
        let lost = encoder.begin(2, now(2, 2), &[]).unwrap().unwrap();
        let frame = Decoder::default().decode(&mut lost.bytes.as_slice());
        assert_eq!(frame.unwrap().effects, None);
        let packet = encoder.end(&TickEffects::default()).unwrap().unwrap();
        assert_eq!((packet.tick, packet.fresh), (2, false));
        assert!(Decoder::default().decode(&mut packet.bytes.as_slice()).is_err());
    }

    #[test]
    fn a_quiet_tick_is_small() {
        let mut encoder = Encoder::default();
        encoder.begin(1, now(0, 0), &[]).unwrap();
        encoder.begin(2, now(1_000_000_000, 1_000_000_000), &[]).unwrap();
        let packet = encoder.end(&TickEffects::default()).unwrap().unwrap();
        assert!(packet.bytes.len() <= 20, "{} bytes", packet.bytes.len());
    }
}
