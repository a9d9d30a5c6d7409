//! The lanes: which work may start next. Pure data, no tasks and no waiting, so that its rules can be tested alone.
//!
//! A lane has at most one running work. Its head waits in the list of its kind until that kind has a free slot.
//! Entries of those lists may be outdated (the head was cancelled); they are skipped when taken.

use super::stats::{DispatchStats, KindStats, OperationStats, operations};
use super::{Kind, Limits};
use components::edge::{Completion, Effect, Failure, FailureClass, Lane, Outcome, Work};
use components::ids::{PodUid, Ticket};
use futures_util::future::{AbortHandle, AbortRegistration};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

const KINDS: usize = Kind::ALL.len();

/// Lanes whose last work failed and which are empty now are remembered up to this number (a few hundred KiB), for a
/// chained work that comes later. The core chains within one tick; this only covers a completion it has not seen yet.
const FAILED_LANES: usize = 4096;

/// A work that is to be run now.
#[derive(Debug)]
pub(super) struct Start {
    key: Key,
    pub(super) ticket: Ticket,
    pub(super) effect: Effect,
    pub(super) timeout: Duration,
    pub(super) abort: AbortRegistration,
}

/// Names a running work when it ends.
#[derive(Debug)]
pub(super) struct Slot {
    key: Key,
    ticket: Ticket,
}

impl Start {
    pub(super) fn slot(&self) -> Slot {
        Slot { key: self.key.clone(), ticket: self.ticket }
    }
}

/// Identity of a lane: each work of the free lane is a lane of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Key {
    Free(Ticket),
    Pod(PodUid, u16),
}

#[derive(Debug)]
struct Waiting {
    ticket: Ticket,
    kind: Kind,
    chained: bool,
    timeout: Duration,
    since: Instant,
    effect: Effect,
}

#[derive(Debug)]
struct Running {
    ticket: Ticket,
    kind: Kind,
    since: Instant,
    operations: &'static [&'static str],
    abort: AbortHandle,
}

/// A place in a lane.
#[derive(Debug)]
enum Entry {
    /// Waits.
    Work(Waiting),
    /// Was answered already without being done: breaks the chain of what comes after.
    Cut,
}

impl Entry {
    const fn work(&self) -> Option<&Waiting> {
        match self {
            Self::Work(work) => Some(work),
            Self::Cut => None,
        }
    }
}

#[derive(Debug, Default)]
struct LaneState {
    waiting: VecDeque<Entry>,
    running: Option<Running>,
    /// The head that is in the list of its kind.
    offered: Option<Ticket>,
    /// The work before the head did not end in `Done`.
    broken: bool,
}

impl LaneState {
    /// Ticket and kind of the first entry, when it is a work.
    fn head(&self) -> Option<&Waiting> {
        self.waiting.front().and_then(Entry::work)
    }

    /// Replaces the entry at `index`; neighbouring cuts become one, so that cuts do not pile up.
    fn cut(&mut self, index: usize) -> Option<Waiting> {
        let beside_cut = [index.checked_sub(1), index.checked_add(1)]
            .into_iter()
            .flatten()
            .any(|i| matches!(self.waiting.get(i), Some(Entry::Cut)));
        let entry = if beside_cut {
            self.waiting.remove(index)
        } else {
            self.waiting.get_mut(index).map(|entry| std::mem::replace(entry, Entry::Cut))
        };
        match entry? {
            Entry::Work(work) => Some(work),
            Entry::Cut => None,
        }
    }
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Queue {
    limits: Limits,
    lanes: FxHashMap<Key, LaneState>,
    tickets: FxHashMap<Ticket, Key>,
    ready: [VecDeque<(Key, Ticket)>; KINDS],
    kinds: [KindStats; KINDS],
    waiting: usize,
    running: usize,
    closed: bool,
    failed: FxHashSet<Key>,
    failed_order: VecDeque<Key>,
    operations: BTreeMap<&'static str, OperationStats>,
    answers: Vec<Completion>,
}

impl Queue {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            lanes: FxHashMap::default(),
            tickets: FxHashMap::default(),
            ready: Default::default(),
            kinds: Kind::ALL.map(|kind| KindStats { kind: kind.as_str(), ..KindStats::default() }),
            waiting: 0,
            running: 0,
            closed: false,
            failed: FxHashSet::default(),
            failed_order: VecDeque::new(),
            operations: BTreeMap::new(),
            answers: Vec::new(),
        }
    }

    /// Completions that came about since they were last taken.
    pub(super) fn answers(&mut self) -> &mut Vec<Completion> {
        &mut self.answers
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.running == 0 && self.waiting == 0
    }

    /// Appends a work to its lane.
    pub(super) fn push(&mut self, work: Work, now: Instant) {
        let kind = Kind::of(&work.effect);
        if self.closed {
            return self.answer(work.ticket, kind, Outcome::Cancelled);
        }
        let key = match work.lane {
            Lane::Free => Key::Free(work.ticket),
            Lane::Pod { uid, strand } => Key::Pod(uid, strand),
        };
        let remembered = self.failed.remove(&key);
        let lane = self.lanes.entry(key.clone()).or_default();
        lane.broken |= remembered;
        let settled = lane.waiting.is_empty();
        if self.waiting >= self.limits.waiting {
            lane.waiting.push_back(Entry::Cut);
            let outcome = Outcome::Failed(Failure {
                class: FailureClass::Exhausted,
                message: format!("{} works wait already", self.limits.waiting),
            });
            self.answer(work.ticket, kind, outcome);
        } else {
            lane.waiting.push_back(Entry::Work(Waiting {
                ticket: work.ticket,
                kind,
                chained: work.chained,
                timeout: work.timeout,
                since: now,
                effect: work.effect,
            }));
            self.waiting += 1;
            self.kinds[kind as usize].waiting += 1;
            self.tickets.insert(work.ticket, key.clone());
        }
        if settled {
            self.settle(&key);
        }
    }

    /// Cancels one work. A running one is answered when its task has noticed.
    pub(super) fn cancel(&mut self, ticket: Ticket) {
        let Some(key) = self.tickets.get(&ticket).cloned() else {
            return;
        };
        let Some(lane) = self.lanes.get_mut(&key) else {
            return;
        };
        if let Some(running) = lane.running.as_ref().filter(|r| r.ticket == ticket) {
            running.abort.abort();
            return;
        }
        let index = lane.waiting.iter().position(|entry| entry.work().is_some_and(|work| work.ticket == ticket));
        let Some(cut) = index.and_then(|index| lane.cut(index)) else {
            return;
        };
        self.dismiss(&cut);
        self.settle(&key);
        self.tidy_ready(cut.kind);
    }

    /// Every work that may start now, each kind's oldest first.
    pub(super) fn take_all(&mut self, now: Instant) -> Vec<Start> {
        let mut starts = Vec::new();
        for kind in Kind::ALL {
            while self.kinds[kind as usize].running < self.limits.of(kind) {
                let Some((key, ticket)) = self.ready[kind as usize].pop_front() else {
                    break;
                };
                starts.extend(self.start(key, ticket, now));
            }
        }
        starts
    }

    fn start(&mut self, key: Key, ticket: Ticket, now: Instant) -> Option<Start> {
        let lane = self.lanes.get_mut(&key)?;
        if lane.running.is_some() || lane.head()?.ticket != ticket {
            return None;
        }
        let Entry::Work(work) = lane.waiting.pop_front()? else {
            return None;
        };
        let (handle, abort) = AbortHandle::new_pair();
        lane.running =
            Some(Running { ticket, kind: work.kind, since: now, operations: operations(&work.effect), abort: handle });
        self.waiting -= 1;
        self.running += 1;
        let kind = &mut self.kinds[work.kind as usize];
        kind.waiting -= 1;
        kind.running += 1;
        kind.longest_wait = kind.longest_wait.max(now.saturating_duration_since(work.since));
        Some(Start { key, ticket, effect: work.effect, timeout: work.timeout, abort })
    }

    /// Takes the end of a running work.
    pub(super) fn finish(&mut self, slot: Slot, outcome: Outcome, now: Instant) {
        let Some(lane) = self.lanes.get_mut(&slot.key) else {
            return;
        };
        let Some(running) = lane.running.take_if(|r| r.ticket == slot.ticket) else {
            return;
        };
        let done = matches!(outcome, Outcome::Done(_));
        lane.broken = !done;
        self.running -= 1;
        self.kinds[running.kind as usize].running -= 1;
        self.tickets.remove(&slot.ticket);
        if !matches!(outcome, Outcome::Cancelled) {
            let took = now.saturating_duration_since(running.since);
            for operation in running.operations {
                self.operations.entry(operation).or_insert_with(|| OperationStats::new(operation)).observe(took, !done);
            }
        }
        self.answer(slot.ticket, running.kind, outcome);
        self.settle(&slot.key);
    }

    /// Takes in nothing any more and cancels all that waits.
    pub(super) fn close(&mut self) {
        self.closed = true;
        let mut waiting: Vec<Waiting> = self
            .lanes
            .values_mut()
            .flat_map(|lane| lane.waiting.drain(..))
            .filter_map(|entry| match entry {
                Entry::Work(work) => Some(work),
                Entry::Cut => None,
            })
            .collect();
        waiting.sort_unstable_by_key(|work| work.ticket);
        for work in &waiting {
            self.dismiss(work);
        }
        self.ready = Default::default();
        self.lanes.retain(|_, lane| lane.running.is_some());
    }

    /// Asks all that runs to stop.
    pub(super) fn abort_running(&mut self) {
        for running in self.lanes.values().filter_map(|lane| lane.running.as_ref()) {
            running.abort.abort();
        }
    }

    pub(super) fn stats(&self, now: Instant) -> DispatchStats {
        let mut kinds = self.kinds.to_vec();
        for (kind, ready) in kinds.iter_mut().zip(&self.ready) {
            // The oldest that waits for a slot right now counts as well, so that a stuck kind shows.
            let oldest = ready.iter().find_map(|(key, ticket)| {
                let head = self.lanes.get(key)?.head()?;
                (head.ticket == *ticket).then_some(head.since)
            });
            if let Some(since) = oldest {
                kind.longest_wait = kind.longest_wait.max(now.saturating_duration_since(since));
            }
        }
        DispatchStats { kinds, operations: self.operations.values().cloned().collect(), lanes: self.lanes.len() }
    }

    /// Brings a lane without a running work to its next head that may run, or drops it when it is empty.
    fn settle(&mut self, key: &Key) {
        loop {
            let Some(lane) = self.lanes.get_mut(key) else {
                return;
            };
            if lane.running.is_some() {
                return;
            }
            match lane.waiting.front() {
                None => {
                    let broken = lane.broken;
                    self.lanes.remove(key);
                    if broken && matches!(key, Key::Pod(..)) {
                        self.remember_failed(key.clone());
                    }
                    return;
                }
                // A head that is not chained starts a new chain.
                Some(Entry::Work(head)) if !(head.chained && lane.broken) => {
                    let entry = (key.clone(), head.ticket);
                    let ready = &mut self.ready[head.kind as usize];
                    if lane.offered != Some(head.ticket) {
                        lane.offered = Some(head.ticket);
                        ready.push_back(entry);
                    }
                    return;
                }
                Some(Entry::Work(_) | Entry::Cut) => {
                    lane.broken = true;
                    if let Some(Entry::Work(cut)) = lane.waiting.pop_front() {
                        self.dismiss(&cut);
                    }
                }
            }
        }
    }

    /// Answers a work that was taken out of its lane unrun.
    fn dismiss(&mut self, work: &Waiting) {
        self.waiting -= 1;
        self.kinds[work.kind as usize].waiting -= 1;
        self.tickets.remove(&work.ticket);
        self.answer(work.ticket, work.kind, Outcome::Cancelled);
    }

    /// Drops outdated entries once they are the greater part, so that they cannot pile up behind a stuck kind.
    fn tidy_ready(&mut self, kind: Kind) {
        let ready = &mut self.ready[kind as usize];
        if ready.len() > 64 + 2 * self.kinds[kind as usize].waiting {
            let lanes = &self.lanes;
            ready.retain(|(key, ticket)| {
                lanes.get(key).and_then(LaneState::head).is_some_and(|head| head.ticket == *ticket)
            });
        }
    }

    fn answer(&mut self, ticket: Ticket, kind: Kind, outcome: Outcome) {
        self.kinds[kind as usize].count(&outcome);
        self.answers.push(Completion { ticket, outcome });
    }

    fn remember_failed(&mut self, key: Key) {
        if self.failed.insert(key.clone()) {
            self.failed_order.push_back(key);
        }
        while self.failed_order.len() > FAILED_LANES {
            if let Some(oldest) = self.failed_order.pop_front() {
                self.failed.remove(&oldest);
            }
        }
    }
}
