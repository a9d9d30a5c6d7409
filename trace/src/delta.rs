//! Inputs in bytes. Two of them repeat themselves and are written as differences to their last occurrence:
//! the relist (every second, up to 10,000 objects) and the manifests of a source. Everything else is plain postcard.
//!
//! ```text
//! input = 0 ingress | 1 ticket (the list is the last one) | 2 ticket ops ops | 3 ticket source count object* problems
//! ops   = (1 n | 2 n | 3 entry | 4 state)* 0      copy n, skip n, insert, copy one with another state
//! object = 0 manifest | k+1 (the k-th object of the last reading)
//! ```

use components::edge::cri::{ContainerBrief, CriAnswer, RuntimeList, SandboxBrief};
use components::edge::sources::{Manifest, ManifestProblem, Source, SourcesAnswer};
use components::edge::{Answer, Completion, Ingress, Outcome};
use components::ids::Ticket;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::format::TraceError;
use crate::frame::{put, take};
use crate::redact;

/// Objects that one frame may unfold to: a crafted file must not turn a few bytes into much memory. An honest frame
/// holds one or two relists.
pub const BUDGET: usize = 1 << 22;

const PLAIN: u8 = 0;
const SAME_LIST: u8 = 1;
const LIST: u8 = 2;
const MANIFESTS: u8 = 3;

const OP_END: u8 = 0;
const OP_COPY: u8 = 1;
const OP_SKIP: u8 = 2;
const OP_INSERT: u8 = 3;
const OP_STATE: u8 = 4;

/// What differences refer to. Writer and reader keep the same one.
#[derive(Debug, Default)]
pub struct Base {
    list: RuntimeList,
    /// Last reading by source; the writer keeps it without the texts.
    manifests: BTreeMap<Source, Vec<Manifest>>,
}

/// Appends an input, redacted.
///
/// # Errors
/// When it cannot be encoded.
pub fn encode(base: &mut Base, input: &Ingress, out: &mut Vec<u8>) -> Result<(), TraceError> {
    match input {
        Ingress::Completed(Completion {
            ticket,
            outcome: Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(list))),
        }) => encode_list(&mut base.list, *ticket, list, out),
        Ingress::Completed(Completion {
            ticket,
            outcome: Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsRead { source, manifests, problems })),
        }) => {
            out.push(MANIFESTS);
            put(out, ticket)?;
            put(out, source)?;
            let last = base.manifests.entry(*source).or_default();
            encode_manifests(last, manifests, out)?;
            put(out, problems)
        }
        plain => {
            out.push(PLAIN);
            put(out, &redact::api(plain))
        }
    }
}

/// Takes an input off the front of `data`.
///
/// # Errors
/// With a sentence when the bytes make no input.
pub fn decode(base: &mut Base, data: &mut &[u8], budget: &mut usize) -> Result<Ingress, String> {
    let (ticket, answer) = match take::<u8>(data)? {
        PLAIN => return take(data),
        SAME_LIST => {
            let ticket = take::<Ticket>(data)?;
            spend(budget, base.list.sandboxes.len() + base.list.containers.len())?;
            (ticket, Answer::Cri(CriAnswer::RuntimeListed(base.list.clone())))
        }
        LIST => {
            let ticket = take::<Ticket>(data)?;
            let list = RuntimeList {
                sandboxes: decode_ops(&base.list.sandboxes, data, budget)?,
                containers: decode_ops(&base.list.containers, data, budget)?,
            };
            base.list.clone_from(&list);
            (ticket, Answer::Cri(CriAnswer::RuntimeListed(list)))
        }
        MANIFESTS => {
            let ticket = take::<Ticket>(data)?;
            let source = take::<Source>(data)?;
            let last = base.manifests.entry(source).or_default();
            let manifests = decode_manifests(last, data, budget)?;
            last.clone_from(&manifests);
            let problems = take::<Vec<ManifestProblem>>(data)?;
            let answer = SourcesAnswer::ManifestsRead { source, manifests, problems };
            (ticket, Answer::Sources(answer))
        }
        tag => return Err(format!("unknown kind of input {tag}")),
    };
    let outcome = Outcome::Done(answer);
    Ok(Ingress::Completed(Completion { ticket, outcome }))
}

fn encode_list(
    last: &mut RuntimeList,
    ticket: Ticket,
    list: &RuntimeList,
    out: &mut Vec<u8>,
) -> Result<(), TraceError> {
    if last == list {
        out.push(SAME_LIST);
        return put(out, &ticket);
    }
    out.push(LIST);
    put(out, &ticket)?;
    encode_ops(&last.sandboxes, &list.sandboxes, out)?;
    encode_ops(&last.containers, &list.containers, out)?;
    last.clone_from(list);
    Ok(())
}

/// An object of a list: an id, a state, and what else never changes.
trait Entry: Clone + PartialEq + Serialize + DeserializeOwned {
    type State: Copy + PartialEq + Serialize + DeserializeOwned;
    fn id(&self) -> &str;
    fn state(&self) -> Self::State;
    fn with_state(&self, state: Self::State) -> Self;
}

impl Entry for SandboxBrief {
    type State = components::edge::cri::SandboxState;
    fn id(&self) -> &str {
        self.id.as_str()
    }
    fn state(&self) -> Self::State {
        self.state
    }
    fn with_state(&self, state: Self::State) -> Self {
        Self { state, ..self.clone() }
    }
}

impl Entry for ContainerBrief {
    type State = components::edge::cri::ContainerState;
    fn id(&self) -> &str {
        self.id.as_str()
    }
    fn state(&self) -> Self::State {
        self.state
    }
    fn with_state(&self, state: Self::State) -> Self {
        Self { state, ..self.clone() }
    }
}

/// Walks both lists by id. Right for any two lists, short for two that are sorted.
fn encode_ops<T: Entry>(last: &[T], next: &[T], out: &mut Vec<u8>) -> Result<(), TraceError> {
    let (mut at, mut copies, mut skips) = (0, 0u64, 0u64);
    for entry in next {
        while last.get(at).is_some_and(|old| old.id() < entry.id()) {
            run(OP_COPY, &mut copies, out)?;
            skips += 1;
            at += 1;
        }
        match last.get(at) {
            Some(old) if old == entry => {
                run(OP_SKIP, &mut skips, out)?;
                copies += 1;
                at += 1;
            }
            Some(old) if old.with_state(entry.state()) == *entry => {
                run(OP_COPY, &mut copies, out)?;
                run(OP_SKIP, &mut skips, out)?;
                out.push(OP_STATE);
                put(out, &entry.state())?;
                at += 1;
            }
            _ => {
                run(OP_COPY, &mut copies, out)?;
                run(OP_SKIP, &mut skips, out)?;
                out.push(OP_INSERT);
                put(out, entry)?;
            }
        }
    }
    run(OP_COPY, &mut copies, out)?;
    out.push(OP_END);
    Ok(())
}

fn run(op: u8, count: &mut u64, out: &mut Vec<u8>) -> Result<(), TraceError> {
    let n = std::mem::take(count);
    if n > 0 {
        out.push(op);
        put(out, &n)?;
    }
    Ok(())
}

fn decode_ops<T: Entry>(last: &[T], data: &mut &[u8], budget: &mut usize) -> Result<Vec<T>, String> {
    let mut left = last;
    let mut next = Vec::new();
    loop {
        let op = take::<u8>(data)?;
        match op {
            OP_END => return Ok(next),
            OP_COPY | OP_SKIP => {
                let n = usize::try_from(take::<u64>(data)?).unwrap_or(usize::MAX);
                let (taken, rest) = left.split_at_checked(n).ok_or("a list refers beyond the one before it")?;
                if op == OP_COPY {
                    spend(budget, n)?;
                    next.extend_from_slice(taken);
                }
                left = rest;
            }
            OP_INSERT => {
                spend(budget, 1)?;
                next.push(take::<T>(data)?);
            }
            OP_STATE => {
                let (old, rest) = left.split_first().ok_or("a list refers beyond the one before it")?;
                spend(budget, 1)?;
                next.push(old.with_state(take::<T::State>(data)?));
                left = rest;
            }
            op => return Err(format!("unknown list operation {op}")),
        }
    }
}

fn encode_manifests(last: &mut Vec<Manifest>, next: &[Manifest], out: &mut Vec<u8>) -> Result<(), TraceError> {
    let key = |m: &Manifest| (Arc::clone(&m.origin), m.index);
    let mut at = 0;
    put(out, &(next.len() as u64))?;
    for manifest in next {
        while last.get(at).is_some_and(|old| key(old) < key(manifest)) {
            at += 1;
        }
        let same = last.get(at).is_some_and(|old| key(old) == key(manifest) && old.digest == manifest.digest);
        if same {
            put(out, &(at as u64 + 1))?;
        } else {
            out.push(0);
            put(out, &redact::manifest(manifest))?;
        }
    }
    let bare = |m: &Manifest| Manifest { json: Arc::from(""), ..m.clone() };
    *last = next.iter().map(bare).collect();
    Ok(())
}

fn decode_manifests(last: &[Manifest], data: &mut &[u8], budget: &mut usize) -> Result<Vec<Manifest>, String> {
    let mut next = Vec::new();
    for _ in 0..take::<u64>(data)? {
        spend(budget, 1)?;
        let manifest = match take::<u64>(data)? {
            0 => take::<Manifest>(data)?,
            k => {
                let at = usize::try_from(k - 1).unwrap_or(usize::MAX);
                let old = last.get(at);
                old.ok_or("a manifest refers beyond the last reading")?.clone()
            }
        };
        next.push(manifest);
    }
    Ok(next)
}

fn spend(budget: &mut usize, objects: usize) -> Result<(), String> {
    *budget = budget.checked_sub(objects).ok_or("a frame unfolds to more objects than a node can have")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::cri::{ContainerState, SandboxState};

    fn listed(ticket: u64, list: &RuntimeList) -> Ingress {
        Ingress::Completed(Completion {
            ticket: Ticket(ticket),
            outcome: Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(list.clone()))),
        })
    }

    fn node(pods: u32) -> RuntimeList {
        let id = |kind: &str, n: u32| format!("{n:08}-{kind}-{:048}", n.wrapping_mul(2_654_435_761));
        RuntimeList {
            sandboxes: (0..pods)
                .map(|n| SandboxBrief {
                    id: id("sandbox", n).into(),
                    pod: id("pod", n).into(),
                    state: SandboxState::Ready,
                })
                .collect(),
            containers: (0..pods)
                .map(|n| ContainerBrief {
                    id: id("container", n).into(),
                    sandbox: id("sandbox", n).into(),
                    state: ContainerState::Running,
                })
                .collect(),
        }
    }

    /// Encodes and decodes the inputs one after the other and returns the sizes.
    #[track_caller]
    fn round_trip(inputs: &[Ingress]) -> Vec<usize> {
        let (mut writer, mut reader) = (Base::default(), Base::default());
        let mut sizes = Vec::new();
        for input in inputs {
            let mut bytes = Vec::new();
            encode(&mut writer, input, &mut bytes).unwrap();
            let mut data = bytes.as_slice();
            let mut budget = BUDGET;
            assert_eq!(&decode(&mut reader, &mut data, &mut budget).unwrap(), input);
            assert!(data.is_empty());
            sizes.push(bytes.len());
        }
        sizes
    }

    #[test]
    fn a_relist_costs_what_changed() {
        let first = node(5_000);
        let mut second = first.clone();
        second.containers[17].state = ContainerState::Exited;
        second.containers.remove(4_000);
        second.sandboxes.remove(0);
        second.sandboxes[9].state = SandboxState::NotReady;
        let inputs = [
            listed(1, &first),
            listed(2, &first),
            listed(3, &second),
            listed(4, &first),
            listed(5, &RuntimeList::default()),
            listed(6, &first),
        ];
        let sizes = round_trip(&inputs);
        assert!(sizes[0] > 1_000_000);
        assert_eq!(sizes[1], 2);
        assert!(sizes[2] < 40, "{}", sizes[2]);
        assert!(sizes[3] < 400, "{}", sizes[3]);
        assert!(sizes[4] < 10);
        assert_eq!(sizes[5], sizes[0]);
    }

    #[test]
    fn unsorted_and_doubled_lists_come_back_too() {
        let mut first = node(20);
        first.containers.reverse();
        let mut second = node(20);
        second.containers.rotate_left(7);
        let twin = second.containers[3].clone();
        second.containers.insert(9, twin);
        round_trip(&[listed(1, &first), listed(2, &second), listed(3, &first)]);
    }

    fn read(manifests: Vec<Manifest>) -> Ingress {
        Ingress::Completed(Completion {
            ticket: Ticket(1),
            outcome: Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsRead {
                source: Source::File,
                manifests,
                problems: vec![ManifestProblem {
                    origin: "/m/bad.yaml".into(),
                    message: "line 3: what is this".into(),
                }],
            })),
        })
    }

    #[test]
    fn manifests_cost_what_changed() {
        let object = |n: u32, digest: u128| Manifest {
            origin: format!("/m/{n:04}.yaml").into(),
            index: 0,
            digest,
            json: format!(r#"{{"kind":"Pod","n":{n},"digest":{digest},"pad":"{:0500}"}}"#, 0).into(),
        };
        let all: Vec<_> = (0..200).map(|n| object(n, 1)).collect();
        let mut changed = all.clone();
        changed[50] = object(50, 2);
        changed.remove(100);
        let inputs = [all.clone(), changed, vec![], all].map(read);
        let sizes = round_trip(&inputs);
        assert!(sizes[0] > 100_000);
        assert!(sizes[1] < 1_200, "{}", sizes[1]);
        assert_eq!(sizes[3], sizes[0]);
    }

    #[test]
    fn a_few_bytes_never_unfold_to_much() {
        let mut base = Base { list: node(5_000), ..Base::default() };
        let mut budget = BUDGET;
        let mut error = None;
        for _ in 0..1_000 {
            let mut data: &[u8] = &[SAME_LIST, 1];
            if let Err(e) = decode(&mut base, &mut data, &mut budget) {
                error = Some(e);
                break;
            }
        }
        assert!(error.unwrap().contains("more objects"));
    }
}
