//! In-place resize of pods: which resources are allocated when others are wanted, and what is shown of it.
//!
//! A pod that was taken keeps what is allocated to it until the node grants what is wanted: then its spec says so, the
//! allocation is recorded before anything relies on it, and `runtime` brings it into force. Reads what is wanted, what
//! runs and [`Admitted`]; writes [`Resizing`], what admitted pods take, and through `pods` the spec.

mod order;
pub(crate) mod texts;
mod wait;

use crate::pods;
use crate::turns::PlanTurn;
use bevy_ecs::prelude::*;
use components::edge::store::Record;
use components::ids::PodUid;
use components::node::{Machine, NodeConfig};
use components::resize::{RecordedSizes, ResizeCondition, ResizeConditions, Resizing, Size};
use components::spec::{ContainerKind, PodSpec};
use components::time::Wall;
use components::world::{
    ContainerRun, Desired, Finished, Flow, Lifecycle, Observed, Pleg, PodContainers, PodIndex, PodKey, RuntimeHealth,
    SourceStates, Stage,
};
use engine::{Clock, Engine, Outbox, Phase, Recovered, Touched};
use std::sync::Arc;
pub(crate) use wait::PendingResizes;

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResizeSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let recorded = recorded(&engine.world().resource::<Recovered>().0);
    let world = engine.world_mut();
    world.insert_resource(recorded);
    world.init_resource::<PendingResizes>();
    set_up(world);
    engine.add_systems(
        Phase::Plan,
        (forget_the_gone, wait::decide)
            .chain_ignore_deferred()
            .in_set(ResizeSystems)
            .in_set(PlanTurn::Resizes)
            .after(PlanTurn::Stages)
            .before(PlanTurn::Probes),
    );
    engine.add_systems(
        Phase::Report,
        follow.in_set(ResizeSystems).before(crate::status::StatusSystems).before(crate::report::ReportSystems),
    );
}

/// What taking pods up looks into; empty without this domain.
pub(crate) fn set_up(world: &mut World) {
    world.init_resource::<RecordedSizes>();
    world.init_resource::<ShownResizes>();
}

/// What earlier runs recorded.
fn recorded(records: &[Record]) -> RecordedSizes {
    let mut out = RecordedSizes::default();
    for record in records {
        match record {
            Record::PodAllocated { uid, sizes } => {
                out.allocated.insert(uid.clone(), sizes.clone());
            }
            Record::PodActuated { uid, sizes } => {
                out.actuated.insert(uid.clone(), sizes.clone());
            }
            Record::PodForgotten { uid } => {
                out.allocated.remove(uid);
                out.actuated.remove(uid);
            }
            Record::PodAdmitted { .. }
            | Record::PodFinished { .. }
            | Record::PodProbed { .. }
            | Record::PodEnded { .. } => {}
        }
    }
    out
}

/// What an earlier run of a kubelet showed of resizes, until the pod is taken up.
#[derive(Resource, Default, Debug)]
pub(crate) struct ShownResizes(pub(crate) std::collections::BTreeMap<PodUid, Box<ResizeConditions>>);

/// Drops what is recorded of pods that nobody has any more, once every source was read and the runtime was listed.
fn forget_the_gone(
    sources: Res<SourceStates>,
    pleg: Res<Pleg>,
    index: Res<PodIndex>,
    finished: Res<Finished>,
    mut recorded: ResMut<RecordedSizes>,
    mut outbox: ResMut<Outbox>,
    mut done: Local<bool>,
) {
    if *done || !sources.all_read() || pleg.relisted.is_none() {
        return;
    }
    *done = true;
    let recorded = std::mem::take(&mut *recorded);
    // One that is known to have finished may come back, and must not run again.
    let known = |uid: &PodUid| index.by_uid.contains_key(uid) || finished.0.contains_key(uid);
    for uid in recorded.allocated.into_keys().filter(|uid| !known(uid)) {
        outbox.record(Record::PodForgotten { uid });
    }
}

// === what is allocated ===

/// The spec that a pod is taken up with: with what is recorded as allocated to it, where that differs.
pub(crate) fn take_up(world: &mut World, pod: Entity, wanted: &Arc<PodSpec>) -> Arc<PodSpec> {
    let allocated = world.resource_mut::<RecordedSizes>().allocated.remove(&wanted.uid);
    let shown = world.resource_mut::<ShownResizes>().0.remove(&wanted.uid);
    let held = allocated.as_ref().and_then(|texts| texts::with_allocation(wanted, texts)).map(Arc::new);
    if let Some(mut resizing) = world.get_mut::<Resizing>(pod) {
        resizing.recorded = allocated.is_some();
        resizing.wanted = held.is_some().then(|| Arc::clone(wanted));
        resizing.shown = shown;
    }
    held.unwrap_or_else(|| Arc::clone(wanted))
}

/// Tells the containers of a pod that is taken up what is in force for them, as an earlier run recorded.
pub(crate) fn recall_sizes(world: &mut World, pod: Entity, spec: &PodSpec) {
    let actuated = world.resource_mut::<RecordedSizes>().actuated.remove(&spec.uid);
    let recorded = world.get::<Resizing>(pod).is_some_and(|resizing| resizing.recorded);
    if !recorded && actuated.is_none() {
        return;
    }
    let in_force = actuated.and_then(|texts| texts::with_allocation(spec, &texts));
    let in_force = in_force.as_ref().unwrap_or(spec);
    let children = world.get::<PodContainers>(pod).map(|c| c.entities().to_vec()).unwrap_or_default();
    for entity in children {
        if let Some(mut run) = world.get_mut::<ContainerRun>(entity) {
            run.size = Some(Size::of_container(in_force, usize::from(run.index)));
        }
    }
}

/// The spec of a pod that changed: with what is allocated to it, where other resources are wanted now.
pub(crate) fn hold(world: &mut World, pod: Entity, wanted: &Arc<PodSpec>) -> Arc<PodSpec> {
    let taken = world.get::<Lifecycle>(pod).is_some_and(|life| life.stage > Stage::Queued);
    let taken = taken || world.get::<Resizing>(pod).is_some_and(|resizing| resizing.recorded);
    let old = world.get::<Desired>(pod).and_then(|desired| desired.spec.clone()).filter(|_| taken);
    let held = old.filter(|old| differ(old, wanted)).and_then(|old| {
        let allocated = texts::of_object(&old.json);
        texts::with_allocation(wanted, &allocated).map(Arc::new)
    });
    if let Some(mut resizing) = world.get_mut::<Resizing>(pod) {
        resizing.wanted = held.is_some().then(|| Arc::clone(wanted));
    }
    held.unwrap_or_else(|| Arc::clone(wanted))
}

/// True when containers that may be resized, or the pod as a whole, have other resources.
fn differ(old: &PodSpec, new: &PodSpec) -> bool {
    let own = |spec: &PodSpec, name: &str| {
        let found = spec.containers.iter().find(|c| *c.name == *name && texts::resizable(c.kind));
        found.map(|container| container.resources.clone())
    };
    old.resources != new.resources
        || new.containers.iter().any(|c| {
            let before = own(old, &c.name);
            texts::resizable(c.kind) && before.is_some_and(|before| before != c.resources)
        })
}

/// The record of what is allocated to a pod.
pub(crate) fn allocated(spec: &PodSpec) -> Record {
    Record::PodAllocated { uid: spec.uid.clone(), sizes: texts::of_object(&spec.json) }
}

// === what is shown ===

/// What a look at what is in force needs of the node.
#[derive(bevy_ecs::system::SystemParam)]
struct Site<'w> {
    clock: Res<'w, Clock>,
    config: Res<'w, NodeConfig>,
    machine: Res<'w, Machine>,
    health: Res<'w, RuntimeHealth>,
}

/// Follows what is in force: says when it begins to differ from what is allocated, when it fails, and when it is done.
fn follow(
    site: Site<'_>,
    touched: Res<Touched>,
    mut pods: Query<(&Desired, &Lifecycle, &Observed, &mut Flow, &mut Resizing, Option<&PodContainers>)>,
    runs: Query<&ContainerRun>,
) {
    for pod in touched.iter() {
        let Ok((desired, life, observed, mut flow, mut resizing, containers)) = pods.get_mut(pod) else { continue };
        if resizing.shown.is_none() && flow.resize.is_none() {
            continue;
        }
        if life.stage >= Stage::Terminated {
            resizing.shown = None;
            continue;
        }
        let (Some(spec), Some(seen)) = (&desired.spec, &observed.inspection) else { continue };
        let runs_of_pod = containers.map(PodContainers::entities).unwrap_or_default().iter();
        let sizes = sizes(runs_of_pod.filter_map(|run| runs.get(*run).ok()), spec.containers.len());
        let differs = |(index, container): (usize, &components::spec::ContainerSpec)| {
            let runs = crate::runtime::runs(seen, &container.name);
            let may = matches!(container.kind, ContainerKind::Main | ContainerKind::Sidecar);
            may && runs && sizes[index].is_some_and(|size| size != Size::of_container(spec, index))
        };
        let busy = flow.resize.as_ref().is_some_and(|resize| resize.unrecorded);
        let unsettled = busy
            || spec.containers.iter().enumerate().any(differs)
            || !crate::runtime::limits_in_force(spec, &flow, &site.config, &site.machine, &site.health);
        note(spec, unsettled, site.clock.now.wall.whole_seconds(), &mut flow, &mut resizing);
    }
}

/// Takes the outcome of a look into the conditions, and tells the cluster what changed.
fn note(spec: &PodSpec, unsettled: bool, now: Wall, flow: &mut Flow, resizing: &mut Resizing) {
    if !unsettled {
        flow.resize = None;
        if let Some(over) = resizing.in_progress().cloned() {
            let text = texts::message("Pod resize completed", spec, over.generation, "");
            flow.events.normal("ResizeCompleted", text, None);
            resizing.set_in_progress(None);
        }
        return;
    }
    let known = resizing.in_progress().cloned();
    let error = flow.resize.as_ref().and_then(|resize| resize.error.clone());
    let Some(message) = error else {
        if known.is_none() {
            let condition =
                ResizeCondition { generation: spec.generation, since: now, probed: now, ..ResizeCondition::default() };
            resizing.set_in_progress(Some(condition));
        }
        return;
    };
    if known.as_ref().is_some_and(|known| known.reason == ERROR && known.message == message) {
        return;
    }
    let before = known.unwrap_or(ResizeCondition { generation: spec.generation, since: now, ..Default::default() });
    let since = if before.reason == ERROR { before.since } else { now };
    let text = texts::message("Pod resize error", spec, before.generation, &message);
    flow.events.warning("ResizeError", text, None);
    let reason = ERROR.to_owned();
    let condition = ResizeCondition { reason, message, generation: before.generation, since, probed: now };
    resizing.set_in_progress(Some(condition));
}

/// Reason of a resize that could not be brought into force.
const ERROR: &str = "Error";

/// Lets a pod have what it wants: its spec says so from now on.
fn grant(world: &mut World, pod: Entity, wanted: &Arc<PodSpec>) {
    let now = world.resource::<Clock>().now.wall.whole_seconds();
    // What is in force is another thing from now on, and a crash must not forget it.
    if let Some(old) = world.get::<Desired>(pod).and_then(|desired| desired.spec.clone()) {
        let sizes = sizes_of(world, pod, old.containers.len());
        let sizes = texts::with_sizes(&old, |index| sizes.get(index).copied().flatten());
        let record = Record::PodActuated { uid: old.uid.clone(), sizes };
        world.resource_mut::<Outbox>().record(record);
    }
    pods::set_spec(world, pod, wanted);
    world.resource_mut::<Outbox>().record(allocated(wanted));
    if let Some(mut resizing) = world.get_mut::<Resizing>(pod) {
        resizing.wanted = None;
        resizing.recorded = true;
        resizing.set_pending(None);
        let condition =
            ResizeCondition { generation: wanted.generation, since: now, probed: now, ..ResizeCondition::default() };
        resizing.set_in_progress(Some(condition));
    }
    if let Some(mut flow) = world.get_mut::<Flow>(pod) {
        let text = texts::message("Pod resize started", wanted, wanted.generation, "");
        flow.events.normal("ResizeStarted", text, None);
    }
    world.resource_mut::<Touched>().add(pod);
}

/// What is in force for each of a pod's containers.
fn sizes_of(world: &World, pod: Entity, count: usize) -> Vec<Option<Size>> {
    let runs = world.get::<PodContainers>(pod).map(PodContainers::entities).unwrap_or_default();
    sizes(runs.iter().filter_map(|run| world.get::<ContainerRun>(*run)), count)
}

/// The same, from what is known of the containers.
fn sizes<'a>(runs: impl Iterator<Item = &'a ContainerRun>, count: usize) -> Vec<Option<Size>> {
    let mut sizes = vec![None; count];
    for run in runs {
        if let Some(size) = sizes.get_mut(usize::from(run.index)) {
            *size = run.size;
        }
    }
    sizes
}

/// Notes that a pod cannot have what it wants now, or never.
fn put_off(world: &mut World, pod: Entity, wanted: &PodSpec, reason: &'static str, message: String) {
    let now = world.resource::<Clock>().now.wall.whole_seconds();
    let Some(mut resizing) = world.get_mut::<Resizing>(pod) else { return };
    let known = resizing.pending().cloned();
    let same = known.as_ref().is_some_and(|known| known.reason == reason && known.generation == wanted.generation);
    if same && known.as_ref().is_some_and(|known| known.message == message) {
        return;
    }
    let since = known.filter(|known| known.reason == reason).map_or(now, |known| known.since);
    let condition = ResizeCondition {
        reason: reason.to_owned(),
        message: message.clone(),
        generation: wanted.generation,
        since,
        probed: now,
    };
    resizing.set_pending(Some(condition));
    if !same && let Some(mut flow) = world.get_mut::<Flow>(pod) {
        let event = if reason == "Infeasible" { "ResizeInfeasible" } else { "ResizeDeferred" };
        let text = texts::message(&format!("Pod resize {reason}"), wanted, wanted.generation, &message);
        flow.events.warning(event, text, None);
    }
    world.resource_mut::<Touched>().add(pod);
}

/// The pod of a uid.
fn entity(world: &World, uid: &PodUid) -> Option<Entity> {
    world.resource::<PodIndex>().by_uid.get(uid).copied()
}

/// The uid of a pod.
fn uid(world: &World, pod: Entity) -> Option<PodUid> {
    world.get::<PodKey>(pod).map(|key| key.uid.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::world::ResizeFlow;

    fn said(flow: &mut Flow) -> Vec<String> {
        flow.events.take().into_iter().map(|event| event.reason.into_owned()).collect()
    }

    #[test]
    fn a_resize_is_shown_from_its_beginning_to_its_end() {
        let mut spec = fixtures::spec("always a");
        spec.generation = 2;
        let (mut flow, mut resizing) = (Flow::default(), Resizing::default());
        note(&spec, true, Wall(1), &mut flow, &mut resizing);
        assert_eq!(resizing.in_progress().map(|it| (it.generation, it.since)), Some((2, Wall(1))));
        spec.generation = 3;
        flow.resize = Some(Box::new(ResizeFlow { error: Some("no".to_owned()), ..ResizeFlow::default() }));
        for _ in 0..2 {
            note(&spec, true, Wall(5), &mut flow, &mut resizing);
        }
        assert_eq!(said(&mut flow), ["ResizeError"]);
        let shown = resizing.in_progress().unwrap();
        assert_eq!((shown.generation, shown.since, shown.reason.as_str()), (2, Wall(5), ERROR));
        // What went wrong stays until it is done.
        flow.resize = None;
        note(&spec, true, Wall(6), &mut flow, &mut resizing);
        assert_eq!(resizing.in_progress().unwrap().message, "no");
        note(&spec, false, Wall(7), &mut flow, &mut resizing);
        assert!(resizing.shown.is_none());
        assert_eq!(said(&mut flow), ["ResizeCompleted"]);
        note(&spec, false, Wall(8), &mut flow, &mut resizing);
        assert!(flow.events.is_empty());
    }
}
