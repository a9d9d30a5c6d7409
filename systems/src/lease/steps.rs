//! What is asked next to keep the Lease, and what an answer means.

use crate::node_object::{answered, chance, trouble};
use bevy_ecs::prelude::Resource;
use components::edge::Outcome;
use components::edge::api::{ApiRequest, Class, Method};
use components::ids::Ticket;
use components::time::{Mono, Now};
use serde_json::{Value, json};
use std::time::Duration;

/// Where the leases of nodes are.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
/// Renewals tried at once before the lease is looked at again.
const TRIES: u32 = 5;
/// First and longest wait while the lease cannot be read or made.
const WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(7));
/// Share of the period by which the time of the next renewal varies.
const JITTER: f64 = 0.04;

/// What is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Read,
    Create,
    Renew,
}

/// What the lease is made from.
pub(super) struct Facts<'a> {
    pub(super) node: &'a str,
    /// Uid of the node's object, once it is known.
    pub(super) uid: Option<&'a str>,
    pub(super) seconds: u32,
    pub(super) period: Duration,
    pub(super) now: Now,
}

/// State of the Lease.
#[derive(Resource, Debug)]
pub(super) struct LeaseKeeper {
    /// When the next step is due.
    pub(super) due: Option<Mono>,
    /// The lease as last written or read.
    latest: Option<Value>,
    next: Step,
    doing: Option<(Ticket, Step)>,
    tries: u32,
    failures: u32,
    seed: u64,
    drawn: u64,
}

impl LeaseKeeper {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            due: None,
            latest: None,
            next: Step::Read,
            doing: None,
            tries: 0,
            failures: 0,
            seed: seed ^ 0x006c_6561_7365,
            drawn: 0,
        }
    }

    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.doing.is_some_and(|(awaited, _)| awaited == ticket)
    }

    pub(super) const fn asked(&mut self, ticket: Ticket, step: Step) {
        self.doing = Some((ticket, step));
    }

    /// Does the next step if it is due.
    pub(super) fn act(&mut self, facts: &Facts<'_>) -> Option<(Step, ApiRequest)> {
        let now = facts.now.mono;
        if self.doing.is_some() || self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        let own = format!("{LEASES}/{}", facts.node);
        Some(match (self.next, &self.latest) {
            (Step::Renew, Some(latest)) => {
                let body = renewed(latest, facts).to_string();
                (Step::Renew, ApiRequest::send(Method::Put, own, body, Class::Lease))
            }
            (Step::Create, _) => {
                if facts.uid.is_none() {
                    // It must go with its node: as long as that is not known there is none.
                    self.due = Some(now.after(WAITS.0));
                    return None;
                }
                let fresh = json!({
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": { "name": facts.node, "namespace": "kube-node-lease" },
                    "spec": { "holderIdentity": facts.node },
                });
                let body = renewed(&fresh, facts).to_string();
                (Step::Create, ApiRequest::send(Method::Post, LEASES.to_owned(), body, Class::Lease))
            }
            (Step::Read | Step::Renew, _) => (Step::Read, ApiRequest::get(own, Class::Lease)),
        })
    }

    /// Takes the answer to what was asked.
    pub(super) fn take(&mut self, outcome: &Outcome, facts: &Facts<'_>) {
        let Some((_, step)) = self.doing.take() else { return };
        let now = facts.now.mono;
        let answer = answered(outcome);
        let object = answer.filter(|a| a.is_success()).and_then(|a| serde_json::from_str(&a.body).ok());
        if let Some(lease) = object {
            self.latest = Some(lease);
            self.next = Step::Renew;
            self.failures = 0;
            if step == Step::Read {
                self.due = Some(now);
            } else {
                self.tries = 0;
                self.due = Some(now.after(self.period(facts.period)));
            }
            return;
        }
        let status = answer.map(|a| a.status);
        match (step, status) {
            (Step::Read, Some(404)) => {
                self.latest = None;
                self.next = Step::Create;
                self.due = Some(now);
                return;
            }
            // Somebody else wrote it, or it is gone: on with what there is.
            (Step::Renew, Some(404 | 409)) if self.tries + 1 < TRIES => {
                self.tries += 1;
                self.next = Step::Read;
                self.due = Some(now);
            }
            (Step::Renew, Some(_)) if self.tries + 1 < TRIES => {
                self.tries += 1;
                self.due = Some(now);
            }
            _ => {
                let wait = WAITS.0.saturating_mul(1 << self.failures.min(6)).min(WAITS.1);
                self.failures = self.failures.saturating_add(1);
                self.tries = 0;
                self.next = Step::Read;
                self.due = Some(now.after(wait));
            }
        }
        tracing::warn!(error = %trouble(outcome), "The node's lease could not be kept");
    }

    fn period(&mut self, period: Duration) -> Duration {
        self.drawn += 1;
        period.mul_f64(1.0 + JITTER * chance(self.seed, self.drawn))
    }
}

/// The lease as it is written now: renewed, for as long as configured, owned by the node.
fn renewed(lease: &Value, facts: &Facts<'_>) -> Value {
    let mut out = lease.clone();
    out["spec"]["leaseDurationSeconds"] = facts.seconds.into();
    out["spec"]["renewTime"] = facts.now.wall.rfc3339_micro().into();
    let owned = out.pointer("/metadata/ownerReferences").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if let (false, Some(uid)) = (owned, facts.uid) {
        let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": facts.node, "uid": uid });
        out["metadata"]["ownerReferences"] = json!([owner]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::api::{Answered, ApiAnswer};
    use components::edge::{Answer, Failure, FailureClass};
    use components::time::Wall;

    struct Rig {
        keeper: LeaseKeeper,
        uid: Option<&'static str>,
        millis: u64,
    }

    impl Rig {
        fn new(uid: Option<&'static str>) -> Self {
            let mut keeper = LeaseKeeper::new(3);
            keeper.due = Some(Mono(0));
            Self { keeper, uid, millis: 0 }
        }

        fn facts(&self) -> Facts<'static> {
            let wall = Wall(i64::try_from(self.millis).unwrap() * 1_000_000);
            Facts {
                node: "n",
                uid: self.uid,
                seconds: 40,
                period: Duration::from_secs(10),
                now: Now { mono: Mono(self.millis * 1_000_000), wall },
            }
        }

        /// The next request within so many milliseconds, and when it comes.
        fn next(&mut self, wait: u64) -> Option<(u64, Step, ApiRequest)> {
            let from = self.millis;
            loop {
                if let Some((step, request)) = self.keeper.act(&self.facts()) {
                    self.keeper.asked(Ticket(1), step);
                    return Some((self.millis - from, step, request));
                }
                if self.millis - from >= wait {
                    return None;
                }
                self.millis += 100;
            }
        }

        fn answer(&mut self, status: u16, body: &str) {
            let answered = Answered { status, secret: false, body: body.into(), retry_after: None };
            let outcome = Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))));
            self.keeper.take(&outcome, &self.facts());
        }
    }

    #[test]
    fn a_lease_is_made_with_its_node_and_renewed() {
        let mut rig = Rig::new(None);
        assert_eq!(rig.next(0).unwrap().1, Step::Read);
        rig.answer(404, "{}");
        assert!(rig.next(1000).is_none(), "not before the node is known");
        rig.uid = Some("u1");
        let (_, step, request) = rig.next(300).unwrap();
        assert_eq!((step, request.method, request.path.as_str()), (Step::Create, Method::Post, LEASES));
        let made: Value = serde_json::from_str(request.body.text()).unwrap();
        assert_eq!(made["spec"]["holderIdentity"], "n");
        assert_eq!(made["spec"]["leaseDurationSeconds"], 40);
        assert_eq!(made["spec"]["renewTime"], rig.facts().now.wall.rfc3339_micro());
        let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u1" }]);
        assert_eq!(made["metadata"]["ownerReferences"], owner);
        rig.answer(201, &made.to_string());
        for _ in 0..3 {
            let (after, step, request) = rig.next(11_000).unwrap();
            assert_eq!((step, request.method), (Step::Renew, Method::Put));
            assert!((10_000..=10_500).contains(&after), "{after}");
            let text = request.body.text().to_owned();
            rig.answer(200, &text);
        }
    }

    #[test]
    fn an_existing_lease_is_taken_over_and_a_conflict_read_again() {
        let mut rig = Rig::new(Some("u1"));
        rig.next(0).unwrap();
        rig.answer(200, r#"{"metadata":{"name":"n","resourceVersion":"5"},"spec":{"holderIdentity":"n"}}"#);
        let (_, step, request) = rig.next(0).unwrap();
        assert_eq!(step, Step::Renew);
        assert!(request.body.text().contains(r#""resourceVersion":"5""#));
        rig.answer(409, "{}");
        assert_eq!(rig.next(0).unwrap().1, Step::Read);
        rig.answer(200, r#"{"metadata":{"name":"n","resourceVersion":"6"},"spec":{}}"#);
        assert!(rig.next(0).unwrap().2.body.text().contains(r#""resourceVersion":"6""#));
        // It was deleted meanwhile.
        rig.answer(404, "{}");
        rig.next(0).unwrap();
        rig.answer(404, "{}");
        assert_eq!(rig.next(0).unwrap().1, Step::Create);
    }

    #[test]
    fn without_an_api_server_the_waits_grow() {
        let mut rig = Rig::new(Some("u1"));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let (after, step, _) = rig.next(10_000).unwrap();
            assert_eq!(step, Step::Read);
            waits.push(after);
            let refused = Failure { class: FailureClass::Unavailable, message: "refused".into() };
            rig.keeper.take(&Outcome::Failed(refused), &rig.facts());
        }
        assert_eq!(waits, [0, 200, 400, 800, 1600, 3200, 6400, 7000]);
    }
}
