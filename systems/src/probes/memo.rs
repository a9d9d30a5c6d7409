//! What probes have found out, kept over a restart of the agent: nobody else could say whether a container that runs has
//! started and serves, and a pod must not seem unready because its agent is new.
//!
//! Writes [`ProbeMemos`] and its durable records, all that changed at most once a second in one commit.

use bevy_ecs::prelude::*;
use components::edge::cri::ContainerState;
use components::edge::store::{ProbedContainer, Record};
use components::ids::{ContainerId, PodUid};
use components::probes::{ProbeKind, Probes};
use components::status::{ConditionKind, ContainerReport, PodStatus, ReportedState};
use components::time::Wall;
use components::world::{Desired, Observed, PodIndex, PodKey, Reported};
use engine::{Clock, Outbox, Owner, TimerKind, Timers, Touched};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Time for which changes are gathered. A crash within it loses what the next probes find out again.
const GATHER: Duration = Duration::from_secs(1);

/// What is known of one pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Memo {
    /// Its running containers with a startup or readiness probe.
    pub(super) containers: Vec<ProbedContainer>,
    /// Condition `Ready`.
    pub(super) ready: bool,
    /// When it last changed.
    pub(super) ready_since: Wall,
}

/// What is known of all pods with such probes.
#[derive(Resource, Default, Debug)]
pub struct ProbeMemos {
    pods: BTreeMap<PodUid, Memo>,
    changed: BTreeSet<PodUid>,
    /// Pods that an earlier run of the agent had admitted.
    before: BTreeSet<PodUid>,
}

impl ProbeMemos {
    /// What earlier runs wrote down.
    #[must_use]
    pub fn recovered(records: &[Record]) -> Self {
        let mut out = Self::default();
        for record in records {
            match record {
                Record::PodProbed { uid, containers, ready_since, ready } => {
                    let memo = Memo { containers: containers.clone(), ready: *ready, ready_since: *ready_since };
                    out.pods.insert(uid.clone(), memo);
                }
                Record::PodForgotten { uid } => {
                    out.pods.remove(uid);
                    out.before.remove(uid);
                }
                Record::PodAdmitted { uid, .. } | Record::PodFinished { uid, .. } => {
                    out.before.insert(uid.clone());
                }
                Record::PodEnded { .. } | Record::PodAllocated { .. } | Record::PodActuated { .. } => {}
            }
        }
        out
    }

    /// What the API server has of a pod that an earlier run of a kubelet showed.
    pub fn learn(&mut self, uid: &PodUid, status: &PodStatus) {
        self.before.insert(uid.clone());
        let Some(shown) = status.conditions.iter().find(|c| c.kind == ConditionKind::Ready) else { return };
        let runs = |report: &ContainerReport| {
            if !matches!(report.state, ReportedState::Running { .. }) {
                return None;
            }
            let id = report.container_id.split_once("://").map(|(_, id)| ContainerId::from(id))?;
            let started = report.started == Some(true);
            Some(ProbedContainer { id, started, ready: report.ready })
        };
        let containers = status.containers.iter().chain(&status.init_containers).filter_map(runs).collect();
        let memo = Memo { containers, ready: shown.status, ready_since: shown.since };
        self.pods.entry(uid.clone()).or_insert(memo);
    }

    pub(super) fn of(&self, uid: &PodUid) -> Option<&Memo> {
        self.pods.get(uid)
    }

    /// True for a pod of an earlier run: before the runtime was looked at nothing may be shown of it.
    #[must_use]
    pub fn knows(&self, uid: &PodUid) -> bool {
        self.before.contains(uid)
    }

    /// When condition `Ready` took this status, as an earlier run showed it.
    #[must_use]
    pub fn ready_since(&self, uid: &PodUid, ready: bool) -> Option<Wall> {
        self.pods.get(uid).filter(|memo| memo.ready == ready).map(|memo| memo.ready_since)
    }
}

/// After a status was shown: notes what would be lost, and writes it down when its time has come.
pub(super) fn note(
    clock: Res<Clock>,
    touched: Res<Touched>,
    index: Res<PodIndex>,
    pods: Query<(&PodKey, &Desired, &Observed, &Probes, &Reported)>,
    mut memos: ResMut<ProbeMemos>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    for pod in touched.iter() {
        let Ok((key, desired, observed, probes, reported)) = pods.get(pod) else { continue };
        let asked = |kind| matches!(kind, ProbeKind::Startup | ProbeKind::Readiness);
        if desired.spec.is_none() || !probes.list.iter().any(|p| asked(p.kind)) || observed.inspection.is_none() {
            continue;
        }
        let Some(memo) = memo(probes, observed, &reported.status) else { continue };
        if memos.pods.get(&key.uid) != Some(&memo) {
            memos.pods.insert(key.uid.clone(), memo);
            memos.changed.insert(key.uid.clone());
            timers.arm_no_later(TimerKind::ProbeMemo, Owner::Node, clock.now.mono.after(GATHER));
        }
    }
    if !timers.node_due(TimerKind::ProbeMemo) {
        return;
    }
    let ProbeMemos { pods: known, before, .. } = &mut *memos;
    // A pod that is gone must leave no record behind its last one.
    known.retain(|uid, _| index.by_uid.contains_key(uid) || before.contains(uid));
    for uid in std::mem::take(&mut memos.changed) {
        if !index.by_uid.contains_key(&uid) {
            continue;
        }
        if let Some(memo) = memos.pods.get(&uid) {
            let (containers, ready, ready_since) = (memo.containers.clone(), memo.ready, memo.ready_since);
            outbox.record(Record::PodProbed { uid, containers, ready_since, ready });
        }
    }
}

fn memo(probes: &Probes, observed: &Observed, status: &PodStatus) -> Option<Memo> {
    let condition = status.conditions.iter().find(|c| c.kind == ConditionKind::Ready)?;
    let seen = observed.inspection.as_ref()?;
    let mut containers = Vec::new();
    for probe in &probes.list {
        let Some(id) = &probe.target else { continue };
        let runs = seen.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Running);
        if runs && !containers.iter().any(|c: &ProbedContainer| c.id == *id) {
            let health = probes.health(usize::from(probe.container), id);
            containers.push(ProbedContainer { id: id.clone(), started: health.started, ready: health.ready });
        }
    }
    Some(Memo { containers, ready: condition.status, ready_since: condition.since })
}
