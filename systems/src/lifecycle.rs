//! Pod life on this node: one stage machine, one transition table.
//!
//! Reads what is desired, observed and under way; writes [`Lifecycle`], [`Draining`] and, through `pods`, the end of
//! an entity. Pods of the same full name take turns: the next one waits until the one before is gone.

mod count;
mod deadline;
mod table;

use crate::admission::{self, Admitted, Judgement};
use crate::node_object::NodeAgent;
use crate::planted;
use crate::pods;
use crate::resize;
use crate::turns::{PlanTurn, ReclaimTurn};
use bevy_ecs::prelude::*;
use components::edge::control::ControlIngress;
use components::edge::cri::{ContainerState, PodInspection, SandboxState};
use components::edge::store::Record;
use components::ids::PodUid;
use components::node::{Machine, NodeConfig};
use components::planted::{Bug, Planted};
use components::resize::Resizing;
use components::time::Mono;
use components::world::{
    Desired, Draining, EndCause, Ended, Ending, Finished, Flow, JournalBacklog, Lifecycle, NodeShutdown, Observed,
    Pleg, PodIndex, PodKey, Reported, RuntimeHealth, SourceStates, Stage,
};
use engine::{Clock, Engine, Inbox, InvariantCount, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::collections::BTreeSet;
use std::time::Duration;

/// Grace period of a pod that only the runtime knows (contract 3.10).
const ORPHAN_GRACE: u32 = 1;

/// How soon a pod is judged again that could not be.
const JUDGE_AGAIN: Duration = Duration::from_secs(1);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct LifecycleSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Draining>();
    engine.world_mut().init_resource::<Admitted>();
    engine.world_mut().init_resource::<Leaving>();
    engine.add_systems(
        Phase::Plan,
        (take_drain, touch_when_sources_are_read, count::count_what_runs, advance_stages)
            .chain_ignore_deferred()
            .in_set(LifecycleSystems)
            .in_set(PlanTurn::Stages),
    );
    engine.add_systems(
        Phase::Reclaim,
        bury_pods.in_set(LifecycleSystems).in_set(ReclaimTurn::Burial).after(ReclaimTurn::Collection),
    );
}

fn take_drain(inbox: Res<Inbox>, index: Res<PodIndex>, mut draining: ResMut<Draining>, mut touched: ResMut<Touched>) {
    for fact in &inbox.control {
        let ControlIngress::DrainRequested { grace_seconds } = fact else { continue };
        let bound = match (draining.requested.flatten(), grace_seconds) {
            (Some(a), Some(b)) => Some(a.min(*b)),
            (a, b) => a.or(*b),
        };
        draining.requested = Some(bound);
        index.by_uid.values().for_each(|pod| touched.add(*pod));
    }
}

/// Orphans may be ended once every source was read: look at everything when that happens.
fn touch_when_sources_are_read(
    sources: Res<SourceStates>,
    index: Res<PodIndex>,
    mut touched: ResMut<Touched>,
    mut known: Local<bool>,
) {
    if !*known && sources.all_read() {
        *known = true;
        index.by_uid.values().for_each(|pod| touched.add(*pod));
    }
}

/// What a pod's stage is decided from.
struct Facts<'a> {
    desired: &'a Desired,
    stage: Stage,
    observed: &'a Observed,
    flow: &'a Flow,
    finished: Option<bool>,
    first_of_name: bool,
    names_known: bool,
    all_sources_read: bool,
    end_orphans: bool,
    drain: Option<Option<u32>>,
    backlog: bool,
    /// Whether the node takes it; only asked of a pod that is to begin.
    judged: Judgement,
    /// Bound on the grace period that a shutdown of the node sets; `None` while the pod may run.
    shutdown: Option<u32>,
    /// The node shuts down: nothing new is started.
    shutting_down: bool,
    /// `activeDeadlineSeconds` have passed.
    past_deadline: bool,
    /// It makes way for a critical pod.
    preempted: bool,
    /// A planted bug: everything counts as stopped.
    stopped: bool,
}

/// Pods that make way for a critical one.
#[derive(Resource, Default, Debug)]
struct Leaving(BTreeSet<PodUid>);

/// Who takes what of the node, and who makes way.
#[derive(bevy_ecs::system::SystemParam)]
struct Room<'w> {
    admitted: ResMut<'w, Admitted>,
    leaving: ResMut<'w, Leaving>,
}

impl Room<'_> {
    /// Notes what a pod takes in its stage.
    fn count(&mut self, uid: &PodUid, desired: &Desired, life: &Lifecycle, observed: &Observed) {
        match (life.stage, &desired.spec) {
            (Stage::Syncing, Some(spec)) => self.admitted.0.put(spec),
            // One that ended before this run took nothing of it, and one that was refused never did.
            (Stage::Terminating, Some(spec)) if life.refused.is_none() => {
                if may_run(observed) {
                    self.admitted.0.put(spec);
                }
            }
            // It runs since before the start, or waits and was never counted.
            (Stage::Queued, Some(_)) => {}
            _ => {
                self.admitted.0.remove(uid);
                self.leaving.0.remove(uid);
            }
        }
    }
}

/// What is to become of a pod.
#[derive(Debug, PartialEq, Eq)]
enum Move {
    Stay,
    To(Stage, &'static str),
    End(EndCause, u32, &'static str),
}

/// What a pod is judged by.
#[derive(bevy_ecs::system::SystemParam)]
struct Judging<'w> {
    config: Res<'w, NodeConfig>,
    machine: Res<'w, Machine>,
    agent: Res<'w, NodeAgent>,
    health: Res<'w, RuntimeHealth>,
}

fn advance_stages(
    clock: Res<Clock>,
    node: Judging<'_>,
    mut room: Room<'_>,
    touched: Res<Touched>,
    index: Res<PodIndex>,
    pleg: Res<Pleg>,
    sources: Res<SourceStates>,
    draining: Res<Draining>,
    shutdown: Res<NodeShutdown>,
    finished: Res<Finished>,
    backlog: Res<JournalBacklog>,
    mut pods: Query<(&PodKey, &Desired, &Observed, &Flow, &Reported, &mut Lifecycle, &mut Resizing)>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
    mut broken: ResMut<InvariantCount>,
    planted: Option<Res<Planted>>,
) {
    let planted = |bug| planted::is(&planted, bug);
    for pod in touched.iter() {
        let Ok((key, desired, observed, flow, reported, mut life, mut resizing)) = pods.get_mut(pod) else { continue };
        let first_of_name = desired
            .spec
            .as_ref()
            .is_none_or(|spec| index.by_full_name.get(&spec.full_name()).and_then(|pods| pods.first()) == Some(&pod));
        let limited = desired.spec.as_ref().is_some_and(|spec| spec.active_deadline_seconds.is_some());
        if let (true, None, Stage::Syncing, Some(seen)) = (limited, life.active, life.stage, observed.settled()) {
            life.active = Some(deadline::active_since(seen, clock.now));
        }
        let deadline = deadline::of(desired.spec.as_deref(), life.active);
        if let Some(at) = deadline.filter(|at| life.stage == Stage::Syncing && *at > clock.now.mono) {
            timers.arm_no_later(TimerKind::Pod, Owner::Pod(pod), at);
        }
        let facts = Facts {
            past_deadline: deadline.is_some_and(|at| at <= clock.now.mono),
            desired,
            stage: life.stage,
            observed,
            flow,
            finished: reported.terminal.or_else(|| finished.0.get(&key.uid).copied()),
            first_of_name: first_of_name || planted(Bug::SkipSameNameWait),
            names_known: pleg.relisted.is_some() && pleg.unnamed.is_empty(),
            all_sources_read: sources.all_read() || planted(Bug::KillOrphansBeforeSourcesRead),
            end_orphans: node.config.end_orphans,
            drain: draining.requested,
            backlog: !backlog.records.is_empty(),
            judged: judge(desired, &life, observed, &node, &room, clock.now.mono),
            preempted: room.leaving.0.contains(&key.uid),
            shutdown: bound_of(desired, &shutdown, &node.config),
            shutting_down: shutdown.began.is_some(),
            stopped: planted(Bug::CleanBeforeStopped),
        };
        let decision = decide(&facts);
        if let (Judgement::Preempt(pods), Move::Stay, true) = (&facts.judged, &decision, is_ready(&facts)) {
            // They are looked at in the next tick.
            for entity in pods.iter().filter_map(|uid| index.by_uid.get(uid)) {
                timers.arm(TimerKind::Pod, Owner::Pod(*entity), clock.now.mono);
            }
            room.leaving.0.extend(pods.iter().cloned());
        }
        if matches!(facts.judged, Judgement::Wait | Judgement::Preempt(_)) {
            timers.arm_no_later(TimerKind::Pod, Owner::Pod(pod), clock.now.mono.after(JUDGE_AGAIN));
        }
        if let (Move::End(EndCause::Refused, ..), Judgement::Refuse(reason, message)) = (&decision, facts.judged) {
            life.refused = Some((reason, message));
        }
        if let Move::To(Stage::Syncing, _) = decision
            && let Some(spec) = &desired.spec
            && !planted(Bug::WorksBeforeDurable)
        {
            outbox.record(admitted(spec));
            if !std::mem::replace(&mut resizing.recorded, true) {
                outbox.record(resize::allocated(spec));
            }
        }
        if apply(&mut life, decision, &clock, &mut broken) {
            timers.arm(TimerKind::Pod, Owner::Pod(pod), clock.now.mono);
        }
        room.count(&key.uid, desired, &life, observed);
        if let (Some(ending), true) = (&mut life.ending, planted(Bug::GraceGrows)) {
            ending.grace_seconds += 1;
        }
    }
}

/// True when something of it may run, as far as is known.
fn may_run(observed: &Observed) -> bool {
    let runs = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
    observed.inspection.as_ref().is_some_and(|seen| seen.containers.iter().any(|c| runs(c.state)))
}

fn bound_of(desired: &Desired, shutdown: &NodeShutdown, config: &NodeConfig) -> Option<u32> {
    let spec = desired.spec.as_ref()?;
    crate::shutdown::bound(shutdown, &config.shutdown_bands, spec.priority)
}

/// Whether the node takes a pod that waits for its turn. One that runs already was taken before.
fn judge(
    desired: &Desired,
    life: &Lifecycle,
    observed: &Observed,
    node: &Judging<'_>,
    room: &Room<'_>,
    now: Mono,
) -> Judgement {
    let Some(spec) = desired.spec.as_ref().filter(|_| life.stage == Stage::Queued) else { return Judgement::Take };
    if let Some((reason, message)) = admission::refusal(spec, &node.config, &node.machine) {
        return Judgement::Refuse(reason.to_owned(), message);
    }
    if observed.inspection.as_ref().is_some_and(|seen| !seen.sandboxes.is_empty()) {
        return Judgement::Take;
    }
    let (admitted, leaving, groups) = (&*room.admitted, &room.leaving.0, node.health.supplemental_groups);
    let facts = admission::Node { config: &node.config, agent: &node.agent, admitted, leaving, groups };
    admission::judge(spec, &facts, now.since(life.since))
}

fn admitted(spec: &components::spec::PodSpec) -> Record {
    let sum = |f: fn(&components::spec::Resources) -> Option<i64>| {
        spec.containers.iter().filter_map(|c| f(&c.resources.requests)).sum()
    };
    Record::PodAdmitted {
        uid: spec.uid.clone(),
        name: format!("{}/{}", spec.namespace, spec.name),
        cpu_milli: sum(|r| r.cpu_milli),
        memory_bytes: sum(|r| r.memory_bytes),
    }
}

/// Carries a decision out on the component; true when the stage or the ending changed.
fn apply(life: &mut Lifecycle, decision: Move, clock: &Clock, broken: &mut InvariantCount) -> bool {
    match decision {
        Move::Stay => false,
        Move::To(to, reason) => table::pass(life, to, reason, clock.now, broken),
        Move::End(cause, grace_seconds, reason) => {
            if let Some(ending) = &mut life.ending {
                // A second wish to end can only shorten the grace period: its own runs from now.
                let spent = clock.now.mono.since(ending.began);
                let spent = spent.as_secs() + u64::from(spent.subsec_nanos() > 0);
                let whole = u32::try_from(spent).unwrap_or(u32::MAX).saturating_add(grace_seconds);
                if whole >= ending.grace_seconds {
                    return false;
                }
                ending.grace_seconds = whole;
                return true;
            }
            life.ending = Some(Ending { cause, grace_seconds, began: clock.now.mono });
            table::pass(life, Stage::Terminating, reason, clock.now, broken)
        }
    }
}

fn decide(facts: &Facts<'_>) -> Move {
    match facts.stage {
        Stage::Queued => from_queued(facts),
        Stage::Syncing => wish_to_end(facts).unwrap_or(Move::Stay),
        Stage::Terminating => from_terminating(facts),
        Stage::Terminated => {
            let clean = if dropped(facts) { facts.flow.buried } else { facts.flow.cleaned };
            if clean && facts.flow.in_flight.is_empty() {
                Move::To(Stage::Done, "its remains are removed")
            } else {
                Move::Stay
            }
        }
        Stage::Done => {
            if dropped(facts) && !facts.flow.buried {
                Move::To(Stage::Terminated, "its source dropped it after it had finished")
            } else {
                Move::Stay
            }
        }
    }
}

/// True when nothing of the pod is to be kept.
fn dropped(facts: &Facts<'_>) -> bool {
    let removed = facts.desired.removed && !facts.desired.comes_back();
    removed || facts.desired.spec.is_none() || facts.drain.is_some()
}

/// Whether something wants the pod to end, with the grace period it then has.
fn wish_to_end(facts: &Facts<'_>) -> Option<Move> {
    let Some(spec) = &facts.desired.spec else {
        let orphaned = facts.all_sources_read || facts.drain.is_some();
        return (orphaned && facts.end_orphans).then_some(Move::End(
            EndCause::Orphaned,
            ORPHAN_GRACE,
            "only the runtime knows it",
        ));
    };
    // The bound of a drain holds for every end.
    let bounds = [facts.drain.flatten(), facts.shutdown];
    // The grace period of a deletion is the pod's; it may be shorter than what its spec says, or longer.
    let own = facts.desired.delete.unwrap_or(spec.grace_seconds);
    let grace = bounds.into_iter().flatten().fold(own, u32::min);
    let (cause, reason) = if facts.desired.removed {
        (EndCause::Removed, "no source has it any more")
    } else if facts.desired.delete.is_some() {
        (EndCause::Deleted, "its deletion was asked for")
    } else if facts.drain.is_some() {
        (EndCause::Drained, "the node is drained")
    } else if facts.finished.is_some() {
        (EndCause::Finished, "its containers ended for good")
    } else if facts.preempted {
        (EndCause::Preempted, "it makes way for a critical pod")
    } else if facts.past_deadline {
        (EndCause::DeadlineExceeded, "it was active for too long")
    } else if facts.shutting_down && facts.stage == Stage::Queued {
        (EndCause::ShutdownRejected, "it came while the node shuts down")
    } else if facts.shutdown.is_some() {
        (EndCause::NodeShutdown, "the node shuts down")
    } else {
        return None;
    };
    Some(Move::End(cause, grace, reason))
}

fn from_queued(facts: &Facts<'_>) -> Move {
    if let Some(end) = wish_to_end(facts) {
        return end;
    }
    let ready = is_ready(facts);
    if ready && matches!(facts.judged, Judgement::Refuse(..)) {
        return Move::End(EndCause::Refused, 0, "this node does not take it");
    }
    if ready && facts.judged == Judgement::Take { Move::To(Stage::Syncing, "it is its turn") } else { Move::Stay }
}

/// Whether a pod that waits may begin, or be refused. Not before the runtime was looked at: what runs under this name
/// must be known first.
fn is_ready(facts: &Facts<'_>) -> bool {
    facts.desired.spec.is_some()
        && facts.stage == Stage::Queued
        && facts.names_known
        && facts.first_of_name
        && facts.observed.inspection.is_some()
        && !facts.backlog
}

fn from_terminating(facts: &Facts<'_>) -> Move {
    let stopped =
        facts.flow.in_flight.is_empty() && facts.observed.settled().is_some_and(|seen| all_stopped(seen, facts.flow));
    if stopped || facts.stopped {
        return Move::To(Stage::Terminated, "nothing of it runs");
    }
    // A drain can shorten the grace period of a pod that already ends.
    match wish_to_end(facts) {
        Some(Move::End(cause, grace, reason)) => Move::End(cause, grace, reason),
        _ => Move::Stay,
    }
}

/// True when no container of the pod can be running and each of its sandboxes was stopped.
fn all_stopped(seen: &PodInspection, flow: &Flow) -> bool {
    let containers =
        seen.containers.iter().all(|c| matches!(c.state, ContainerState::Exited | ContainerState::Created));
    let sandboxes =
        seen.sandboxes.iter().all(|s| s.state == SandboxState::NotReady && flow.stopped_sandboxes.contains(&s.id));
    containers && sandboxes
}

fn bury_pods(world: &mut World) {
    let now = world.resource::<Clock>().now;
    let touched: Vec<Entity> = world.resource::<Touched>().iter().collect();
    for pod in touched {
        let done = world.get::<Lifecycle>(pod).is_some_and(|l| l.stage == Stage::Done);
        let Some(desired) = world.get::<Desired>(pod).filter(|_| done) else { continue };
        let keep = desired.spec.is_some() && !desired.removed;
        let successor = desired.successor.clone();
        let leaves = desired.comes_back();
        let over = world.get::<Flow>(pod).is_some_and(|f| f.buried || (leaves && f.cleaned));
        if keep || !over {
            continue;
        }
        let Some(key) = world.get::<PodKey>(pod).cloned() else { continue };
        let next = pods::bury(world, pod);
        world.resource_mut::<Finished>().0.remove(&key.uid);
        world.resource_mut::<Ended>().0.remove(&key.uid);
        world.resource_mut::<Outbox>().record(Record::PodForgotten { uid: key.uid });
        wake(world, next, now.mono);
        if let Some(spec) = successor {
            let heir = pods::spawn_pod(world, &spec, now);
            if let Some(mut observed) = world.get_mut::<Observed>(heir).filter(|_| leaves) {
                // It takes over what the runtime still has under its uid.
                observed.list = true;
                observed.sandboxes = true;
            }
            wake(world, Some(heir), now.mono);
        }
    }
}

fn wake(world: &mut World, pod: Option<Entity>, at: Mono) {
    if let Some(pod) = pod {
        world.resource_mut::<Timers>().arm(TimerKind::Pod, Owner::Pod(pod), at);
    }
}
