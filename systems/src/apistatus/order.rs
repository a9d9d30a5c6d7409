//! Whose status is written next: by urgency, then by the time since which it waits.

use components::apipods::ApiPod;
use components::ids::PodUid;
use components::status::{ConditionKind, PodStatus};
use components::time::Mono;
use std::collections::{BTreeMap, BTreeSet};

/// How much others wait for a write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Urgency {
    /// An end, or a change of readiness: schedulers, controllers and load balancers wait for it.
    Soon,
    /// Anything else.
    Usual,
}

/// Pods that wait for their write.
#[derive(Default, Debug)]
pub(super) struct Order {
    waiting: BTreeMap<PodUid, (Urgency, Mono)>,
    by_time: BTreeSet<(Mono, PodUid)>,
    ready: BTreeSet<(Urgency, Mono, PodUid)>,
}

impl Order {
    /// Lets a pod wait until `at`; one that waits already keeps the earlier time and the greater urgency.
    pub(super) fn add(&mut self, at: Mono, urgency: Urgency, uid: &PodUid) {
        let (urgency, at) = match self.waiting.get(uid) {
            Some((known, since)) => (urgency.min(*known), at.min(*since)),
            None => (urgency, at),
        };
        self.remove(uid);
        self.waiting.insert(uid.clone(), (urgency, at));
        self.by_time.insert((at, uid.clone()));
    }

    /// The pod whose turn it is now.
    pub(super) fn next(&mut self, now: Mono) -> Option<PodUid> {
        while let Some((at, uid)) = self.by_time.first().filter(|(at, _)| *at <= now).cloned() {
            self.by_time.remove(&(at, uid.clone()));
            let urgency = self.waiting.get(&uid).map_or(Urgency::Usual, |(urgency, _)| *urgency);
            self.ready.insert((urgency, at, uid));
        }
        let (_, _, uid) = self.ready.pop_first()?;
        self.waiting.remove(&uid);
        Some(uid)
    }

    /// When [`Self::next`] has something to give.
    pub(super) fn due(&self) -> Option<Mono> {
        let waits = self.by_time.first().map(|(at, _)| *at);
        self.ready.first().map(|(_, at, _)| *at).into_iter().chain(waits).min()
    }

    /// Takes a pod out.
    pub(super) fn remove(&mut self, uid: &PodUid) {
        if let Some((urgency, at)) = self.waiting.remove(uid) {
            self.by_time.remove(&(at, uid.clone()));
            self.ready.remove(&(urgency, at, uid.clone()));
        }
    }
}

/// How much others wait for this status.
pub(super) fn urgency(known: &ApiPod, status: &PodStatus, finished: bool) -> Urgency {
    let ready = |conditions: &[components::status::Condition]| {
        conditions.iter().any(|c| c.kind == ConditionKind::Ready && c.status)
    };
    let ends = status.phase.is_terminal() || (finished && known.delete.is_some());
    // A cheap look at the text, as this is asked for every change.
    let was_ready = components::status::parse::status(&known.status);
    if ends || ready(&was_ready.conditions) != ready(&status.conditions) { Urgency::Soon } else { Urgency::Usual }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_urgent_goes_first_and_nobody_waits_twice() {
        let mut order = Order::default();
        order.add(Mono(10), Urgency::Usual, &"a".into());
        order.add(Mono(20), Urgency::Usual, &"b".into());
        order.add(Mono(30), Urgency::Usual, &"b".into());
        order.add(Mono(25), Urgency::Soon, &"c".into());
        assert_eq!((order.due(), order.next(Mono(5))), (Some(Mono(10)), None));
        assert_eq!(order.next(Mono(30)), Some("c".into()));
        assert_eq!(order.next(Mono(30)), Some("a".into()));
        // What waits already may become urgent.
        order.add(Mono(40), Urgency::Soon, &"b".into());
        order.add(Mono(1), Urgency::Usual, &"d".into());
        assert_eq!(order.next(Mono(30)), Some("b".into()));
        order.remove(&"d".into());
        assert_eq!((order.next(Mono(99)), order.due()), (None, None));
    }
}
