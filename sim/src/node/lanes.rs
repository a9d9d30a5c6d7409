//! Lanes: works of one lane run one at a time, in order; what is chained to a work that was not done is not run.
//!
//! The same rules as the dispatcher of the real node, in virtual time.

use components::edge::{Lane, Work};
use components::ids::Ticket;
use std::collections::{BTreeMap, VecDeque};

/// All lanes that have or had something in them.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<Lane, State>,
}

#[derive(Debug, Default)]
struct State {
    running: Option<Ticket>,
    waiting: VecDeque<Entry>,
    /// The last work of the lane was not done.
    broken: bool,
}

#[derive(Debug)]
enum Entry {
    Work(Box<Work>),
    /// A work was cancelled here.
    Cut,
}

/// What a change of a lane brings about.
#[derive(Debug, Default)]
pub struct Moves {
    /// The work to start now.
    pub start: Option<Box<Work>>,
    /// Works that will not run.
    pub dismissed: Vec<Ticket>,
}

impl Lanes {
    /// Takes a work in.
    pub fn push(&mut self, work: Work) -> Moves {
        if work.lane == Lane::Free {
            return Moves { start: Some(Box::new(work)), dismissed: Vec::new() };
        }
        let lane = work.lane.clone();
        let state = self.lanes.entry(lane.clone()).or_default();
        state.waiting.push_back(Entry::Work(Box::new(work)));
        self.settle(&lane)
    }

    /// A running work ended.
    pub fn finish(&mut self, lane: &Lane, ticket: Ticket, done: bool) -> Moves {
        let Some(state) = self.lanes.get_mut(lane) else { return Moves::default() };
        if state.running != Some(ticket) {
            return Moves::default();
        }
        state.running = None;
        state.broken = !done;
        self.settle(lane)
    }

    /// Takes a waiting work out; false when it does not wait.
    pub fn cancel_waiting(&mut self, ticket: Ticket) -> bool {
        let waits = |e: &Entry| matches!(e, Entry::Work(w) if w.ticket == ticket);
        for state in self.lanes.values_mut() {
            if let Some(entry) = state.waiting.iter_mut().find(|e| waits(e)) {
                *entry = Entry::Cut;
                return true;
            }
        }
        false
    }

    /// Works that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.lanes.values().map(|s| s.waiting.iter().filter(|e| matches!(e, Entry::Work(_))).count()).sum()
    }

    fn settle(&mut self, lane: &Lane) -> Moves {
        let mut moves = Moves::default();
        let Some(state) = self.lanes.get_mut(lane) else { return moves };
        while state.running.is_none() {
            match state.waiting.pop_front() {
                None => break,
                Some(Entry::Cut) => state.broken = true,
                Some(Entry::Work(work)) if work.chained && state.broken => moves.dismissed.push(work.ticket),
                Some(Entry::Work(work)) => {
                    state.running = Some(work.ticket);
                    state.broken = false;
                    moves.start = Some(work);
                }
            }
        }
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::cri::CriEffect;
    use components::edge::{Effect, Why};
    use components::ids::PodUid;
    use std::time::Duration;

    fn work(ticket: u64, chained: bool) -> Work {
        Work {
            ticket: Ticket(ticket),
            lane: Lane::Pod { uid: PodUid::from("u"), strand: 0 },
            chained,
            timeout: Duration::from_secs(1),
            why: Why { system: "test", rule: "test" },
            effect: Effect::Cri(CriEffect::ListRuntime),
        }
    }

    #[track_caller]
    fn check(moves: &Moves, start: Option<u64>, dismissed: &[u64]) {
        assert_eq!(moves.start.as_ref().map(|w| w.ticket.0), start);
        assert_eq!(moves.dismissed.iter().map(|t| t.0).collect::<Vec<_>>(), dismissed);
    }

    #[test]
    fn a_chain_breaks_where_a_work_was_not_done() {
        let mut lanes = Lanes::default();
        let lane = work(0, false).lane;
        check(&lanes.push(work(1, false)), Some(1), &[]);
        for (ticket, chained) in [(2, true), (3, true), (4, false), (5, true)] {
            check(&lanes.push(work(ticket, chained)), None, &[]);
        }
        check(&lanes.finish(&lane, Ticket(1), false), Some(4), &[2, 3]);
        check(&lanes.finish(&lane, Ticket(4), true), Some(5), &[]);
        assert_eq!(lanes.waiting(), 0);
    }

    #[test]
    fn a_cancelled_work_breaks_the_chain_behind_it() {
        let mut lanes = Lanes::default();
        let lane = work(0, false).lane;
        lanes.push(work(1, false));
        lanes.push(work(2, false));
        lanes.push(work(3, true));
        assert!(lanes.cancel_waiting(Ticket(2)));
        assert!(!lanes.cancel_waiting(Ticket(1)));
        check(&lanes.finish(&lane, Ticket(1), true), None, &[3]);
    }
}
