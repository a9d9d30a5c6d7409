//! The pod sources: when each is read, and what a read changes among the pods.
//!
//! Decides when to read the manifest directory and the manifest URL, which of their objects count, and which pods are
//! added, updated or removed. Reads the inbox and the node configuration; writes [`SourceStates`], and [`Desired`] and
//! the pod entities through [`pods`]. A source that cannot be read keeps its pods.

pub(crate) mod bound;
mod merge;

use crate::pods;
use crate::sources::merge::{Judged, Op, Read, judge, merge, part};
use crate::turns::IngestTurn;
use bevy_ecs::prelude::*;
use components::edge::sources::{Manifest, ManifestProblem, Source, SourcesAnswer, SourcesEffect, SourcesIngress};
use components::edge::{Answer, Effect, Failure, FailureClass, Lane, Outcome, Why};
use components::ids::PodUid;
use components::node::NodeConfig;
use components::spec::PodSpec;
use components::time::{Mono, Now};
use components::world::{Desired, Lifecycle, PodContainers, PodIndex, SourceState, SourceStates, Stage};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Deadline of a read of the manifest directory: local, but it may lie on a slow network file system.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Deadline of one fetch of the manifest URL, as the reference's client has it.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// A period of zero must not make the node spin.
const SHORTEST_PERIOD: Duration = Duration::from_secs(1);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct SourcesSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let world = engine.world_mut();
    let config = world.resource::<NodeConfig>();
    let mut configured = Vec::new();
    if config.file_source {
        configured.push(Source::File);
    }
    if config.url_source.is_some() {
        configured.push(Source::Http);
    }
    let states = configured.iter().map(|source| (*source, SourceState::default())).collect();
    world.insert_resource(SourceStates { states });
    world.init_resource::<PodIndex>();
    crate::resize::set_up(world);
    bound::set_up(world);
    for source in configured {
        // Due in the first tick.
        world.resource_mut::<Timers>().arm(timer(source), Owner::Node, Mono(0));
    }
    engine.add_systems(
        Phase::Ingest,
        (take_reads, ask_for_reads, bound::follow)
            .chain_ignore_deferred()
            .in_set(SourcesSystems)
            .in_set(IngestTurn::Sources)
            .after(IngestTurn::Health)
            .after(IngestTurn::Completions),
    );
}

const fn timer(source: Source) -> TimerKind {
    match source {
        Source::Http => TimerKind::ManifestUrl,
        Source::File | Source::Api => TimerKind::Manifests,
    }
}

fn period(source: Source, config: &NodeConfig) -> Duration {
    let period = if source == Source::Http { config.url_check } else { config.file_check };
    period.max(SHORTEST_PERIOD)
}

// === asking ===

/// Emits a read for each source that is due or was touched; one at a time per source.
fn ask_for_reads(
    inbox: Res<Inbox>,
    mut states: ResMut<SourceStates>,
    mut timers: ResMut<Timers>,
    mut outbox: ResMut<Outbox>,
) {
    let touched = !inbox.sources.is_empty();
    let removed = inbox.sources.iter().flat_map(|fact| match fact {
        SourcesIngress::ManifestsTouched => &[],
        SourcesIngress::ManifestsRemoved { origins } => origins.as_slice(),
    });
    if let Some(state) = states.states.get_mut(&Source::File) {
        state.removed.extend(removed.cloned());
    }
    // Pods of the API server are not read but followed.
    for (&source, state) in states.states.iter_mut().filter(|(source, _)| **source != Source::Api) {
        let touched = touched && source == Source::File;
        let Some(rule) = wants_read(state, touched, timers.node_due(timer(source))) else { continue };
        timers.disarm(timer(source), Owner::Node);
        state.reading = Some(outbox.emit(read(source, rule)));
        state.again = false;
        state.removed_before.append(&mut state.removed);
    }
}

/// Whether a source is to be read now, and why.
fn wants_read(state: &mut SourceState, touched: bool, due: bool) -> Option<&'static str> {
    if state.reading.is_some() {
        // What is being read may be older than the touch.
        state.again |= touched;
        return None;
    }
    if touched || state.again {
        Some("something in the manifest directory changed")
    } else {
        due.then_some("its check period passed")
    }
}

fn read(source: Source, rule: &'static str) -> NewWork {
    let (effect, timeout) = match source {
        Source::Http => (SourcesEffect::FetchManifestUrl, FETCH_TIMEOUT),
        Source::File | Source::Api => (SourcesEffect::ReadManifests, READ_TIMEOUT),
    };
    NewWork {
        owner: Owner::Node,
        lane: Lane::Free,
        chained: false,
        timeout,
        why: Why { system: "sources::ask_for_reads", rule },
        effect: Effect::Sources(effect),
    }
}

// === taking ===

/// Takes the answers of this tick.
fn take_reads(world: &mut World) {
    let mut answers = Vec::new();
    let states = world.resource::<SourceStates>();
    for done in &world.resource::<Inbox>().completions {
        let asked = states.states.iter().find(|(_, state)| state.reading == Some(done.ticket));
        if let Some((source, _)) = asked {
            answers.push((*source, done.outcome.clone()));
        }
    }
    for (source, outcome) in answers {
        take_read(world, source, outcome);
    }
}

fn take_read(world: &mut World, source: Source, outcome: Outcome) {
    let now = world.resource::<Clock>().now;
    let next = now.mono.after(period(source, world.resource::<NodeConfig>()));
    world.resource_mut::<Timers>().arm(timer(source), Owner::Node, next);
    if let Some(state) = world.resource_mut::<SourceStates>().states.get_mut(&source) {
        state.reading = None;
    }
    match outcome {
        Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsRead { source: from, manifests, problems }))
            if from == source =>
        {
            take_manifests(world, source, &manifests, &problems, now);
        }
        Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsUnchanged { source: from })) if from == source => {
            take_unchanged(world, source);
        }
        Outcome::Done(_) => fail(world, source, "the answer does not fit the question"),
        Outcome::Failed(failure) => take_failure(world, source, &failure, now),
        Outcome::TimedOut => fail(world, source, "no answer in time"),
        Outcome::Cancelled => fail(world, source, "the read was cancelled"),
    }
}

fn take_unchanged(world: &mut World, source: Source) {
    let read = world.resource::<SourceStates>().states.get(&source).is_some_and(|state| state.read);
    if !read {
        // Unchanged against what? Taking it for an empty source would end every pod.
        return fail(world, source, "the answer refers to an earlier one that is not known");
    }
    let origin = origin_of(source, world.resource::<NodeConfig>());
    with_state(world, source, |state| {
        // A failure in between is over; what was wrong with the content still is, and was said.
        let problems = state.problems.iter().filter(|(from, _)| *from != origin).cloned().collect();
        say(state, source, problems);
    });
}

/// A source that is missing from the start is an empty one, as on the reference: others must not wait for it. One that
/// vanishes later keeps its pods until it is back.
fn take_failure(world: &mut World, source: Source, failure: &Failure, now: Now) {
    let read = world.resource::<SourceStates>().states.get(&source).is_some_and(|state| state.read);
    if source == Source::File && failure.class == FailureClass::NotFound {
        // A directory that vanishes keeps its pods, whatever became of its files first.
        with_state(world, source, |state| state.removed_before.clear());
        if !read {
            take_manifests(world, source, &[], &[], now);
        }
    }
    fail(world, source, &failure.message);
}

fn fail(world: &mut World, source: Source, message: &str) {
    let origin = origin_of(source, world.resource::<NodeConfig>());
    with_state(world, source, |state| {
        let mut problems = state.problems.clone();
        // One line at a time for the source itself; what is known of its files stays.
        problems.retain(|(from, _)| *from != origin);
        problems.insert((Arc::clone(&origin), message.to_owned()));
        say(state, source, problems);
    });
}

/// Name under which failures of the source as a whole are reported.
fn origin_of(source: Source, config: &NodeConfig) -> Arc<str> {
    match (source, &config.url_source) {
        (Source::Http, Some(url)) => url.as_str().into(),
        _ => "the manifest path".into(),
    }
}

fn with_state(world: &mut World, source: Source, change: impl FnOnce(&mut SourceState)) {
    if let Some(state) = world.resource_mut::<SourceStates>().states.get_mut(&source) {
        change(state);
    }
}

/// Logs what is newly wrong, and that a place is fine again.
fn say(state: &mut SourceState, source: Source, problems: BTreeSet<(Arc<str>, String)>) {
    for (origin, message) in problems.difference(&state.problems) {
        tracing::warn!(source = source.annotation(), origin = %origin, "pod source: {message}");
        state.problems_total += 1;
    }
    let bad: BTreeSet<&Arc<str>> = problems.iter().map(|(origin, _)| origin).collect();
    let was_bad: BTreeSet<&Arc<str>> = state.problems.iter().map(|(origin, _)| origin).collect();
    for origin in was_bad.difference(&bad) {
        tracing::info!(source = source.annotation(), origin = %origin, "pod source: usable again");
    }
    state.problems = problems;
}

// === changing pods ===

fn take_manifests(world: &mut World, source: Source, manifests: &[Manifest], problems: &[ManifestProblem], now: Now) {
    let Some(state) = world.resource::<SourceStates>().states.get(&source) else { return };
    let node_name = Arc::clone(&world.resource::<NodeConfig>().node_name);
    let (gone, old) = part(&state.items, &state.removed_before);
    for uid in gone.keys() {
        if let Some(pod) = remove(world, uid) {
            world.resource_mut::<Touched>().add(pod);
            tracing::info!(pod = %uid, "pod source: its file was removed");
        }
    }
    let read = Read { source, node_name: &node_name, now: now.wall, old: &old, manifests, problems };
    let judged = judge(&read, |uid| wanted(world, uid).map(|spec| spec.seen), |uid| taken_by_other(world, uid, source));
    let ops = merge(&old, &judged.items);
    for (op, uid) in &ops {
        if *op == Op::Add && gone.contains_key(uid) {
            begin_anew(world, uid, &judged);
        } else {
            apply(world, *op, uid, &judged, now);
        }
    }
    let Judged { items, complaints, .. } = judged;
    with_state(world, source, |state| {
        state.read = true;
        state.removed_before.clear();
        state.items = items;
        say(state, source, complaints);
    });
}

/// The file of a pod was removed and one of the same uid is there again: it ends, and then starts anew.
fn begin_anew(world: &mut World, uid: &PodUid, judged: &Judged) {
    let pod = world.resource::<PodIndex>().by_uid.get(uid).copied();
    if let (Some(pod), Some(spec)) = (pod, judged.specs.get(uid)) {
        succeed(world, pod, spec);
        tracing::info!(pod = %uid, "pod source: added again");
    }
}

/// The spec that is wanted of a pod in the end.
fn wanted(world: &World, uid: &PodUid) -> Option<Arc<PodSpec>> {
    let desired = world.get::<Desired>(*world.resource::<PodIndex>().by_uid.get(uid)?)?;
    desired.successor.clone().or_else(|| desired.spec.clone().filter(|_| !desired.removed))
}

fn taken_by_other(world: &World, uid: &PodUid, source: Source) -> Option<Source> {
    wanted(world, uid).map(|spec| spec.source).filter(|other| *other != source)
}

fn apply(world: &mut World, op: Op, uid: &PodUid, judged: &Judged, now: Now) {
    let pod = match (op, judged.specs.get(uid)) {
        (Op::Add, Some(spec)) => Some(add(world, spec, now)),
        (Op::Update, Some(spec)) => update(world, spec),
        (Op::Remove | Op::Delete, _) => remove(world, uid),
        (Op::Reconcile, _) => world.resource::<PodIndex>().by_uid.get(uid).copied(),
        (Op::Add | Op::Update, None) => None,
    };
    let Some(pod) = pod else { return };
    world.resource_mut::<Touched>().add(pod);
    tracing::info!(pod = %uid, "pod source: {}", said(op));
    for warning in judged.warnings.get(uid).into_iter().flatten() {
        let name = judged.items.get(uid).map_or("", |item| item.full_name.as_str());
        tracing::warn!(pod = name, "pod source: {warning}");
    }
}

const fn said(op: Op) -> &'static str {
    match op {
        Op::Remove => "removed",
        Op::Delete => "asked to end",
        Op::Add => "added",
        Op::Update => "updated",
        Op::Reconcile => "status changed",
    }
}

/// How far a pod that is added again has got.
fn ends(world: &World, pod: Entity) -> bool {
    world.get::<Lifecycle>(pod).is_some_and(|life| life.stage >= Stage::Terminating)
}

fn add(world: &mut World, spec: &Arc<PodSpec>, now: Now) -> Entity {
    let Some(pod) = world.resource::<PodIndex>().by_uid.get(&spec.uid).copied() else {
        return pods::spawn_pod(world, spec, now);
    };
    let renamed = pods::full_name(world, pod).is_some_and(|name| name != spec.full_name());
    if ends(world, pod) || renamed {
        succeed(world, pod, spec);
    } else if world.get::<PodContainers>(pod).is_some() {
        // Taken away and put back before anything was done about it.
        if let Some(mut desired) = world.get_mut::<Desired>(pod) {
            desired.removed = false;
        }
        pods::respec(world, pod, spec);
    } else {
        pods::spawn_pod(world, spec, now);
    }
    pod
}

/// Lets `spec` follow once what stands for its uid now is gone.
fn succeed(world: &mut World, pod: Entity, spec: &Arc<PodSpec>) {
    if let Some(mut desired) = world.get_mut::<Desired>(pod) {
        desired.removed = true;
        desired.successor = Some(Arc::clone(spec));
        desired.version += 1;
    }
}

fn update(world: &mut World, spec: &Arc<PodSpec>) -> Option<Entity> {
    let pod = *world.resource::<PodIndex>().by_uid.get(&spec.uid)?;
    let desired = world.get::<Desired>(pod)?;
    let renamed = desired.spec.as_ref().is_some_and(|old| old.full_name() != spec.full_name());
    if desired.removed || renamed {
        // A pod's name is part of its containers' identity: another name is another pod.
        succeed(world, pod, spec);
    } else {
        pods::respec(world, pod, spec);
    }
    Some(pod)
}

fn remove(world: &mut World, uid: &PodUid) -> Option<Entity> {
    let pod = *world.resource::<PodIndex>().by_uid.get(uid)?;
    let mut desired = world.get_mut::<Desired>(pod)?;
    desired.removed = true;
    desired.successor = None;
    desired.version += 1;
    Some(pod)
}

#[cfg(test)]
mod tests;
