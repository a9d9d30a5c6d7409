//! Pod status: computed for touched pods, compared with the last, kept when it changed.
//!
//! Reads spec, stage, inspection and what containers wait for. Writes [`Reported`] and, when a terminal phase is
//! reached, its durable record. A terminal phase never changes again.

mod build;
mod containers;
mod gates;
mod messages;
mod phase;
mod sizes;
#[cfg(test)]
mod tests;

pub(crate) use self::build::in_order;

use crate::admission;
use crate::planted;
use crate::probes::ProbeMemos;
use bevy_ecs::prelude::*;
use components::apipods::ApiPods;
use components::edge::cri::ContainerState;
use components::edge::store::{Record, StoreIngress};
use components::ids::PodUid;
use components::node::{Machine, NodeConfig};
use components::planted::{Bug, Planted};
use components::probes::Probes;
use components::resize::Resizing;
use components::spec::PodSpec;
use components::status::{Phase as PodPhase, PodStatus, WholeResources};
use components::world::{
    ContainerRun, Desired, EndCause, Ended, Finished, Flow, JournalBacklog, Lifecycle, Observed, PodContainers, PodKey,
    Reported, RuntimeHealth, Stage,
};
use engine::{Clock, Engine, Inbox, Outbox, Owner, Phase as TickPhase, TimerKind, Timers, Touched};
use std::sync::Arc;

/// How the message of a pod begins that its node did not take.
const REJECTED: &str = "Pod was rejected: ";

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct StatusSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.add_systems(TickPhase::Report, report_status.in_set(StatusSystems));
}

/// What a status is computed from besides the pod.
#[derive(bevy_ecs::system::SystemParam)]
struct Node<'w> {
    clock: Res<'w, Clock>,
    machine: Res<'w, Machine>,
    config: Res<'w, NodeConfig>,
    health: Res<'w, RuntimeHealth>,
    inbox: Res<'w, Inbox>,
    api: Res<'w, ApiPods>,
    backlog: Res<'w, JournalBacklog>,
}

impl Node<'_> {
    /// Resources of a pod as a whole, as they are told to a cluster.
    fn whole(&self, spec: &PodSpec, flow: &Flow, old: &PodStatus) -> Option<WholeResources> {
        self.config.api.as_ref().filter(|_| self.config.resize.pod_level)?;
        let made = flow.prepared.then_some(flow.limits);
        let limits =
            made.unwrap_or_else(|| crate::runtime::pod_limits(spec, &self.config, &self.machine, &self.health));
        Some(sizes::whole(spec, old.phase == PodPhase::Running, limits, self.config.cpu_cfs_period_us))
    }

    /// True while the record of a pod's end could not be written.
    fn waits(&self, pod: &PodUid) -> bool {
        let of_pod = |r: &Record| matches!(r, Record::PodFinished { uid, .. } if uid == pod);
        let failed = self.inbox.store.iter().flat_map(|StoreIngress::CommitFailed { records, .. }| records);
        self.backlog.records.iter().chain(failed).any(of_pod)
    }
}

fn report_status(
    node: Node<'_>,
    touched: Res<Touched>,
    mut pods: Query<(
        &PodKey,
        &Desired,
        &Lifecycle,
        &Observed,
        (&Flow, &Resizing),
        &Probes,
        Option<&PodContainers>,
        &mut Reported,
    )>,
    runs: Query<&ContainerRun>,
    mut finished: ResMut<Finished>,
    mut ended_before: ResMut<Ended>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
    planted: Option<Res<Planted>>,
    memos: Res<ProbeMemos>,
) {
    let flips = planted::is(&planted, Bug::TerminalPhaseFlips);
    for entity in touched.iter() {
        let Ok((key, desired, life, observed, (flow, resizing), probes, containers, mut reported)) =
            pods.get_mut(entity)
        else {
            continue;
        };
        let Some(spec) = &desired.spec else { continue };
        if observed.inspection.is_none() && memos.knows(&key.uid) {
            // It may well serve: nothing is said of it before it was looked at.
            continue;
        }
        let mut own: Vec<&ContainerRun> = containers
            .map(PodContainers::entities)
            .unwrap_or_default()
            .iter()
            .filter_map(|e| runs.get(*e).ok())
            .collect();
        own.sort_by_key(|run| run.index);
        if reported.version == 0
            && let Some(known) = ended_before.0.remove(&key.uid)
        {
            reported.status = known;
            reported.version = 1;
        }
        let runtime = node.health.info.as_ref().map_or("", |info| info.name.as_str());
        let mut status = build::status(&build::Input {
            spec,
            life,
            seen: observed.inspection.as_deref().filter(|_| !flips || life.stage != Stage::Done),
            flow,
            resize: resizing.shown.as_deref(),
            whole: node.whole(spec, flow, &reported.status),
            runs: &own,
            probes,
            ready_since: [false, true]
                .map(|ready| memos.ready_since(&key.uid, ready).filter(|_| reported.version == 0)),
            gates: &gates::read(spec, node.api.pods.get(&key.uid).map(|pod| &pod.status)),
            old: &reported.status,
            terminal: reported.terminal.or_else(|| finished.0.get(&key.uid).copied()).filter(|_| !flips),
            refused: refused(life, spec, &node, &reported.status),
            runtime,
            node_ips: &node.machine.node_ips,
            now: node.clock.now.wall,
        });
        let known = reported.terminal.is_some() || finished.0.contains_key(&key.uid);
        let ended = status.phase.is_terminal();
        if ended && reported.terminal.is_none() && (known || observed.settled().is_some()) {
            let succeeded = status.phase == components::status::Phase::Succeeded;
            reported.terminal = Some(succeeded);
            if finished.0.insert(key.uid.clone(), succeeded).is_none() && !ends_with_node(life) {
                outbox.record(Record::PodFinished { uid: key.uid.clone(), succeeded });
                if status.message.starts_with(REJECTED) {
                    // Nobody decides again why it was not taken: both are durable together.
                    outbox.record(Record::PodEnded { uid: key.uid.clone(), status: Box::new(status.clone()) });
                }
            }
            // Its end is decided at the next tick, at once.
            timers.arm(TimerKind::Pod, Owner::Pod(entity), node.clock.now.mono);
        }
        if ended && !reported.status.phase.is_terminal() && (!known || node.waits(&key.uid) || may_run(observed)) {
            // Shown once it is durable and what outlives the main containers has ended too.
            let began = reported.status.phase != components::status::Phase::Pending;
            (status.reason, status.message) = (reported.status.reason.clone(), reported.status.message.clone());
            status.phase = if began { components::status::Phase::Running } else { components::status::Phase::Pending };
        }
        if *reported.status != status || reported.version == 0 {
            if status.phase.is_terminal() && life.stage < Stage::Done && !ends_with_node(life) {
                outbox.record(Record::PodEnded { uid: key.uid.clone(), status: Box::new(status.clone()) });
            }
            reported.status = Arc::new(status);
            reported.version += 1;
        }
    }
}

/// True for a pod that ended because of its node's shutdown: after the next boot it runs again.
fn ends_with_node(life: &Lifecycle) -> bool {
    let cause = life.ending.as_ref().map(|ending| ending.cause);
    matches!(cause, Some(EndCause::NodeShutdown | EndCause::ShutdownRejected))
}

/// Why the pod is not taken: as it was decided, as the node's settings say, or as an earlier run said. A pod that was
/// taken stays so.
fn refused(life: &Lifecycle, spec: &PodSpec, node: &Node<'_>, old: &PodStatus) -> Option<(String, String)> {
    if life.stage == Stage::Syncing {
        return None;
    }
    if let Some((reason, message)) = &life.refused {
        return Some((reason.clone(), format!("{REJECTED}{message}")));
    }
    if old.phase == PodPhase::Failed && old.message.starts_with(REJECTED) && old.containers.is_empty() {
        return Some((old.reason.clone(), old.message.clone()));
    }
    let (reason, message) = admission::refusal(spec, &node.config, &node.machine)?;
    Some((reason.to_owned(), format!("{REJECTED}{message}")))
}

/// True unless the last look showed that no container runs.
fn may_run(observed: &Observed) -> bool {
    let runs = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
    observed.inspection.as_ref().is_none_or(|seen| seen.containers.iter().any(|c| runs(c.state)))
}
