//! Deadlines in monotonic time: one per kind and owner; arming again replaces.

use crate::outbox::Owner;
use bevy_ecs::prelude::*;
use components::time::Mono;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// What a deadline is for. The engine only orders them; systems give them meaning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TimerKind {
    /// Look at one pod again.
    Pod,
    /// Look at all pods again (`syncFrequency`).
    Resync,
    /// Relist the runtime.
    Relist,
    /// Open the runtime's event stream again.
    Events,
    /// Ask the runtime how it is.
    RuntimeHealth,
    /// Read the manifest directory.
    Manifests,
    /// Fetch the manifest URL.
    ManifestUrl,
    /// Write durable records again after a failure.
    Journal,
    /// Ask the probes of a pod that are due.
    Probes,
    /// Write down what probes have found out.
    ProbeMemo,
    /// Look at the sizes of container logs.
    LogRotation,
    /// Collect what dead containers and pods left.
    Garbage,
    /// The time of a band of a graceful shutdown is over.
    Shutdown,
    /// Look at the node's own object.
    NodeStatus,
    /// Follow the node's own object again.
    NodeWatch,
    /// Renew the node's lease.
    Lease,
    /// List the images.
    Images,
    /// Send events to the cluster again after a failure.
    ClusterEvents,
    /// Ask the API server for the pods of this node.
    BoundPods,
    /// Write pod statuses to the API server.
    StatusWrites,
    /// Make or delete mirror pods again after a failure.
    Mirrors,
    /// Ask for objects that pods refer to.
    Objects,
    /// Ask for the tokens of a pod.
    Tokens,
    /// Try resizes that wait.
    Resizes,
    /// Look at the node's certificates.
    Certificates,
    /// Look for records of pulled images that are gone.
    PullRecords,
    /// Ask for the requests for pods' certificates.
    PodCertificates,
}

/// A deadline's name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timer {
    /// What for.
    pub kind: TimerKind,
    /// For whom.
    pub owner: Owner,
}

/// All armed deadlines, and those that have passed in this tick.
#[derive(Resource, Default, Debug)]
pub struct Timers {
    queue: BTreeSet<(Mono, Timer)>,
    armed: FxHashMap<Timer, Mono>,
    due: Vec<Timer>,
}

impl Timers {
    /// Arms a deadline; an earlier one of the same name is replaced.
    pub fn arm(&mut self, kind: TimerKind, owner: Owner, at: Mono) {
        let timer = Timer { kind, owner };
        if let Some(old) = self.armed.insert(timer, at) {
            self.queue.remove(&(old, timer));
        }
        self.queue.insert((at, timer));
    }

    /// Arms a deadline unless one of the same name is due sooner.
    pub fn arm_no_later(&mut self, kind: TimerKind, owner: Owner, at: Mono) {
        if self.armed.get(&Timer { kind, owner }).is_none_or(|&old| old > at) {
            self.arm(kind, owner, at);
        }
    }

    /// Takes a deadline back.
    pub fn disarm(&mut self, kind: TimerKind, owner: Owner) {
        let timer = Timer { kind, owner };
        if let Some(old) = self.armed.remove(&timer) {
            self.queue.remove(&(old, timer));
        }
    }

    /// Deadlines that passed in this tick, by time, then name.
    #[must_use]
    pub fn due(&self) -> &[Timer] {
        &self.due
    }

    /// True when the node's deadline of this kind passed in this tick.
    #[must_use]
    pub fn node_due(&self, kind: TimerKind) -> bool {
        self.due.contains(&Timer { kind, owner: Owner::Node })
    }

    /// True when the node's deadline of this kind is armed.
    #[must_use]
    pub fn node_armed(&self, kind: TimerKind) -> bool {
        self.armed.contains_key(&Timer { kind, owner: Owner::Node })
    }

    /// The earliest deadline.
    #[must_use]
    pub fn next(&self) -> Option<Mono> {
        self.queue.first().map(|(at, _)| *at)
    }

    pub(crate) fn advance(&mut self, now: Mono) {
        self.due.clear();
        while let Some(&(at, timer)) = self.queue.first() {
            if at > now {
                break;
            }
            self.queue.pop_first();
            self.armed.remove(&timer);
            self.due.push(timer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arming_again_replaces_and_due_timers_come_once_in_order() {
        let mut timers = Timers::default();
        timers.arm(TimerKind::Relist, Owner::Node, Mono(30));
        timers.arm(TimerKind::Resync, Owner::Node, Mono(10));
        timers.arm(TimerKind::Relist, Owner::Node, Mono(20));
        assert_eq!(timers.next(), Some(Mono(10)));
        timers.advance(Mono(25));
        let kinds: Vec<_> = timers.due().iter().map(|t| t.kind).collect();
        assert_eq!(kinds, [TimerKind::Resync, TimerKind::Relist]);
        timers.advance(Mono(100));
        assert!(timers.due().is_empty());
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn a_later_wish_does_not_push_an_earlier_deadline_back() {
        let mut timers = Timers::default();
        timers.arm_no_later(TimerKind::Relist, Owner::Node, Mono(10));
        timers.arm_no_later(TimerKind::Relist, Owner::Node, Mono(50));
        assert_eq!(timers.next(), Some(Mono(10)));
        timers.disarm(TimerKind::Relist, Owner::Node);
        assert_eq!(timers.next(), None);
    }
}
