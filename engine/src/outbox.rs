//! What systems want done: works with tickets, cancellations, durable records.

use bevy_ecs::prelude::*;
use components::edge::store::Record;
use components::edge::{Effect, Lane, Why, Work};
use components::ids::Ticket;
use rustc_hash::FxHashMap;
use std::time::Duration;

/// Who asked for a piece of work.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Owner {
    /// The node as a whole.
    Node,
    /// A pod's entity; its generation guards against a despawned pod's late completions.
    Pod(Entity),
}

impl Owner {
    pub(crate) fn lives(self, world: &World) -> bool {
        match self {
            Self::Node => true,
            Self::Pod(entity) => world.get_entity(entity).is_ok(),
        }
    }
}

/// A piece of work before it has its ticket.
#[derive(Debug)]
pub struct NewWork {
    /// Who asks.
    pub owner: Owner,
    /// Its lane.
    pub lane: Lane,
    /// Only after the work before it in its lane was done.
    pub chained: bool,
    /// Deadline from the moment it runs.
    pub timeout: Duration,
    /// Why.
    pub why: Why,
    /// What.
    pub effect: Effect,
}

/// Counters of the engine.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Ticks run.
    pub ticks: u64,
    /// Inputs taken.
    pub inputs: u64,
    /// Works emitted.
    pub works: u64,
    /// Completions whose asker is gone or that came twice.
    pub stale_completions: u64,
    /// Durable records emitted.
    pub records: u64,
}

/// Collects what goes out of a tick. Emitting systems are ordered, so the order in here is decided by the schedule.
#[derive(Resource, Default, Debug)]
pub struct Outbox {
    next: u64,
    waiting: FxHashMap<Ticket, Owner>,
    works: Vec<Work>,
    cancels: Vec<Ticket>,
    durable: Vec<Record>,
    /// Counters.
    pub counts: Counts,
}

impl Outbox {
    /// Emits a work and returns the ticket that its completion will carry.
    pub fn emit(&mut self, work: NewWork) -> Ticket {
        self.next += 1;
        let ticket = Ticket(self.next);
        self.waiting.insert(ticket, work.owner);
        self.counts.works += 1;
        self.works.push(Work {
            ticket,
            lane: work.lane,
            chained: work.chained,
            timeout: work.timeout,
            why: work.why,
            effect: work.effect,
        });
        ticket
    }

    /// Asks to stop a work; its completion still comes (`Cancelled`, or how it ended before).
    pub fn cancel(&mut self, ticket: Ticket) {
        self.cancels.push(ticket);
    }

    /// Asks to make a record durable before any work of this tick starts.
    pub fn record(&mut self, record: Record) {
        self.counts.records += 1;
        self.durable.push(record);
    }

    /// Works emitted so far in this tick.
    #[must_use]
    pub fn emitted(&self) -> &[Work] {
        &self.works
    }

    /// Works whose completion is awaited.
    #[must_use]
    pub fn awaited(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) const fn issued(&self) -> u64 {
        self.next
    }

    /// An outbox whose tickets come after the first `tickets`: late completions of earlier ones are known as stale.
    pub(crate) fn after(tickets: u64) -> Self {
        Self { next: tickets, ..Self::default() }
    }

    pub(crate) fn settle(&mut self, ticket: Ticket) -> Option<Owner> {
        self.waiting.remove(&ticket)
    }

    pub(crate) fn drain(&mut self) -> (Vec<Record>, Vec<Ticket>, Vec<Work>) {
        (std::mem::take(&mut self.durable), std::mem::take(&mut self.cancels), std::mem::take(&mut self.works))
    }
}
