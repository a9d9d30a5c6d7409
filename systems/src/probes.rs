//! Probes: when each is due, what its attempts lead to, which containers serve and which must be restarted.
//!
//! Reads spec, stage, inspection and answers; writes [`Probes`] and asks through the outbox. `status` and `runtime`
//! read the verdicts. All probes of a pod share one deadline, and all that are due in a tick leave in one batch.

mod attempt;
mod follow;
mod judge;
mod memo;
mod numbers;

use crate::report::ReportSystems;
use crate::turns::PlanTurn;
use bevy_ecs::prelude::*;
use components::edge::{Lane, Outcome, Why};
use components::node::{Machine, NodeConfig};
use components::probes::{Probe, Probes};
use components::spec::PodSpec;
use components::time::{Mono, Now};
use components::world::{Desired, Flow, Lifecycle, Observed, PodKey};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, Recovered, Seed, TimerKind, Timers, Touched};
use std::time::Duration;

pub use memo::ProbeMemos;
pub use numbers::ProbeNumbers;

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProbeSystems;

/// Deadlines lie on a grid, so that many probes share a tick. It shifts when a probe begins, never its period.
const GRID: Duration = Duration::from_millis(50);

/// When this run of the agent began.
#[derive(Resource, Default, Debug)]
struct Began(Option<Now>);

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Began>();
    engine.world_mut().init_resource::<ProbeNumbers>();
    let memos = ProbeMemos::recovered(&engine.world().resource::<Recovered>().0);
    engine.world_mut().insert_resource(memos);
    engine.add_systems(
        Phase::Plan,
        (take_answers, follow_containers, ask_what_is_due)
            .chain_ignore_deferred()
            .in_set(ProbeSystems)
            .in_set(PlanTurn::Probes)
            .after(PlanTurn::Stages),
    );
    engine.add_systems(Phase::Report, numbers::gather.in_set(ProbeSystems).before(ReportSystems));
    engine.add_systems(Phase::Report, memo::note.in_set(ProbeSystems).after(ReportSystems));
}

/// The first instant of the grid at or after `at`.
fn on_grid(at: Mono) -> Mono {
    let step = u64::try_from(GRID.as_nanos()).unwrap_or(1);
    Mono(at.0.div_ceil(step).saturating_mul(step))
}

fn take_answers(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    config: Res<NodeConfig>,
    mut pods: Query<(&PodKey, &Desired, &mut Probes, &mut Flow)>,
    mut touched: ResMut<Touched>,
    mut numbers: ResMut<ProbeNumbers>,
) {
    for arrived in &inbox.completions {
        let Owner::Pod(pod) = arrived.owner else { continue };
        let Ok((key, desired, mut probes, mut flow)) = pods.get_mut(pod) else { continue };
        let asked = |p: &Probe| p.in_flight.as_ref().is_some_and(|(ticket, ..)| *ticket == arrived.ticket);
        let Some(at) = probes.list.iter().position(asked) else { continue };
        let Some(spec) = &desired.spec else { continue };
        let probe = &mut probes.list[at];
        let Some((_, since, _)) = probe.in_flight.take() else { continue };
        let Some(set) = attempt::spec_of(spec, probe) else { continue };
        let result = attempt::result(set, &arrived.outcome);
        if matches!(arrived.outcome, Outcome::Cancelled) {
            continue;
        }
        judge::count(probe, &result, clock.now.mono.since(since));
        numbers.changed = true;
        let change = judge::take(probe, set, &result);
        let told = config.object.is_some() && attempt::tell(&mut flow.events, probe, &result, &arrived.outcome);
        if change.said {
            let container = spec.containers.get(usize::from(probe.container)).map_or("", |c| &*c.name);
            let (kind, output) = (probe.kind.as_str(), &*probe.message);
            tracing::info!(pod = %spec.full_name(), uid = %key.uid, container, probe = kind, output, "Probe failed");
        }
        if change.verdict || told {
            touched.add(pod);
        }
    }
}

/// What decisions read of the node.
#[derive(bevy_ecs::system::SystemParam)]
struct Node<'w> {
    clock: Res<'w, Clock>,
    config: Res<'w, NodeConfig>,
    machine: Res<'w, Machine>,
    seed: Res<'w, Seed>,
}

/// Makes the probes of touched pods fit what is wanted of them and what runs.
fn follow_containers(
    node: Node<'_>,
    touched: Res<Touched>,
    mut pods: Query<(&PodKey, &Desired, &Lifecycle, &Observed, &mut Probes)>,
    memos: Res<ProbeMemos>,
    mut began: ResMut<Began>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
    mut numbers: ResMut<ProbeNumbers>,
) {
    let began = *began.0.get_or_insert(node.clock.now);
    for pod in touched.iter() {
        let Ok((key, desired, life, observed, mut probes)) = pods.get_mut(pod) else { continue };
        let Some(spec) = desired.spec.as_ref() else { continue };
        if probes.made_from != desired.version {
            follow::rebuild(&mut probes, spec, desired.version);
            numbers.changed = true;
            numbers.note(pod, !probes.list.is_empty());
        }
        if probes.list.is_empty() {
            continue;
        }
        let facts = follow::Facts {
            spec,
            seen: observed.inspection.as_deref(),
            stage: life.stage,
            now: node.clock.now,
            began,
            memo: memos.of(&key.uid),
            seed: node.seed.0 ^ u64::from(components::fnv::fnv1a_32(key.uid.as_str().as_bytes())),
        };
        for ticket in follow::follow(&mut probes, &facts) {
            outbox.cancel(ticket);
        }
        arm(&mut timers, pod, &probes);
    }
}

fn ask_what_is_due(
    node: Node<'_>,
    mut pods: Query<(&Desired, &Observed, &mut Probes)>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let due: Vec<Entity> = timers
        .due()
        .iter()
        .filter_map(|t| match (t.kind, t.owner) {
            (TimerKind::Probes, Owner::Pod(pod)) => Some(pod),
            _ => None,
        })
        .collect();
    let now = node.clock.now.mono;
    for pod in due {
        let Ok((desired, observed, mut probes)) = pods.get_mut(pod) else { continue };
        let Some(spec) = &desired.spec else { continue };
        for at in 0..probes.list.len() {
            ask(&node, pod, spec, observed, &mut probes.list[at], &mut outbox, now);
        }
        arm(&mut timers, pod, &probes);
    }
}

/// Asks one probe if it is due, and sets when it is due next.
fn ask(
    node: &Node<'_>,
    pod: Entity,
    spec: &PodSpec,
    observed: &Observed,
    probe: &mut Probe,
    outbox: &mut Outbox,
    now: Mono,
) {
    let (Some(due), Some(target)) = (probe.due.filter(|due| *due <= now), probe.target.clone()) else { return };
    let Some(set) = attempt::spec_of(spec, probe) else { return };
    probe.due = Some(follow::next(due, set.period, now));
    if probe.in_flight.is_some() {
        // It takes longer than its period: this beat is left out.
        return;
    }
    if probe.attempt.is_none() {
        let site = attempt::Site { spec, seen: observed.inspection.as_deref(), machine: &node.machine };
        probe.attempt = attempt::effect(set, &target, &site);
    }
    // Without an address there is nobody to ask yet.
    let Some(effect) = probe.attempt.clone() else { return };
    let ticket = outbox.emit(NewWork {
        owner: Owner::Pod(pod),
        lane: Lane::Free,
        chained: false,
        timeout: attempt::deadline(set, node.config.runtime_timeout),
        why: Why { system: "probes", rule: "its period has passed" },
        effect,
    });
    probe.in_flight = Some((ticket, now, target));
}

fn arm(timers: &mut Timers, pod: Entity, probes: &Probes) {
    match probes.list.iter().filter_map(|p| p.due).min() {
        Some(at) => timers.arm(TimerKind::Probes, Owner::Pod(pod), at),
        None => timers.disarm(TimerKind::Probes, Owner::Pod(pod)),
    }
}
