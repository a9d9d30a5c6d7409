//! Pod entities: how they are made, claimed and buried. Shared by the domains, decides nothing.
//!
//! Writes [`PodIndex`]; the only place that spawns or despawns pods.

use crate::resize;
use bevy_ecs::prelude::*;
use components::edge::cri::RuntimeList;
use components::ids::PodUid;
use components::objects::PodRefs;
use components::resize::Resizing;
use components::spec::PodSpec;
use components::time::Now;
use components::volumes::PodVolumes;
use components::world::{
    ContainerOf, ContainerRun, Desired, Flow, Lifecycle, Observed, PodIndex, PodKey, Reported, RuntimeIndex, Stage,
};
use std::sync::Arc;

/// Makes the resources that all domains share.
pub fn plugin(engine: &mut engine::Engine) {
    engine.world_mut().init_resource::<PodIndex>();
    engine.world_mut().init_resource::<components::world::SourceStates>();
}

/// Spawns a pod for `spec`, or gives the spec to the entity that stands for the same uid in the runtime.
pub fn spawn_pod(world: &mut World, spec: &Arc<PodSpec>, now: Now) -> Entity {
    let known = world.resource::<PodIndex>().by_uid.get(&spec.uid).copied();
    let pod = known.unwrap_or_else(|| spawn_entity(world, &spec.uid, now));
    let spec = &resize::take_up(world, pod, spec);
    if let Some(mut desired) = world.get_mut::<Desired>(pod) {
        desired.spec = Some(Arc::clone(spec));
        desired.version += 1;
        desired.removed = false;
        desired.delete = None;
    }
    spawn_containers(world, pod, spec);
    resize::recall_sizes(world, pod, spec);
    enlist(world, pod, &spec.full_name(), false);
    pod
}

/// Spawns an entity for a pod that only the runtime knows.
pub fn spawn_unclaimed(world: &mut World, uid: &PodUid, now: Now) -> Entity {
    spawn_entity(world, uid, now)
}

/// Gives a pod a changed spec. Other resources are not had by asking for them: it keeps what is allocated to it.
pub fn respec(world: &mut World, pod: Entity, spec: &Arc<PodSpec>) {
    let held = resize::hold(world, pod, spec);
    set_spec(world, pod, &held);
}

/// Makes the container entities of a pod match a changed spec; containers of the same name keep what is known of them.
pub fn set_spec(world: &mut World, pod: Entity, spec: &Arc<PodSpec>) {
    let old: Vec<Entity> = children(world, pod);
    let mut kept: Vec<(Arc<str>, ContainerRun)> = Vec::new();
    let old_spec = world.get::<Desired>(pod).and_then(|d| d.spec.clone());
    for entity in old {
        if let (Some(run), Some(old_spec)) = (world.get::<ContainerRun>(entity), &old_spec)
            && let Some(container) = old_spec.containers.get(usize::from(run.index))
        {
            kept.push((Arc::clone(&container.name), run.clone()));
        }
        world.despawn(entity);
    }
    if let Some(mut desired) = world.get_mut::<Desired>(pod) {
        desired.spec = Some(Arc::clone(spec));
        desired.version += 1;
    }
    spawn_containers(world, pod, spec);
    for entity in children(world, pod) {
        let Some(mut run) = world.get_mut::<ContainerRun>(entity) else { continue };
        let index = run.index;
        let name = spec.containers.get(usize::from(index)).map(|c| &c.name);
        if let Some((_, known)) = kept.iter().find(|(n, _)| Some(n) == name) {
            *run = ContainerRun { index, ..known.clone() };
        }
    }
}

/// Enters a pod under its full name; pods found in the runtime are older than any that a source brought.
pub fn enlist(world: &mut World, pod: Entity, full_name: &str, oldest: bool) {
    let mut index = world.resource_mut::<PodIndex>();
    let pods = index.by_full_name.entry(full_name.to_owned()).or_default();
    if !pods.contains(&pod) {
        if oldest {
            pods.insert(0, pod);
        } else {
            pods.push(pod);
        }
    }
}

/// Removes a pod from the index and the world. Returns the pod that is now first under the same name, if any.
pub fn bury(world: &mut World, pod: Entity) -> Option<Entity> {
    let key = world.get::<PodKey>(pod)?.clone();
    let full_name = full_name(world, pod);
    let mut index = world.resource_mut::<PodIndex>();
    index.by_uid.remove(&key.uid);
    index.free_slots.insert(key.slot);
    let mut next = None;
    // A pod that only the runtime knew has lost its name together with its last sandbox.
    let full_name = full_name
        .or_else(|| index.by_full_name.iter().find(|(_, pods)| pods.contains(&pod)).map(|(name, _)| name.clone()));
    if let Some(name) = full_name
        && let Some(pods) = index.by_full_name.get_mut(&name)
    {
        pods.retain(|&p| p != pod);
        next = pods.first().copied();
        if pods.is_empty() {
            index.by_full_name.remove(&name);
        }
    }
    // What the runtime still has of it, or has again, is news to the next relist.
    let mut seen = world.resource_mut::<RuntimeIndex>();
    if seen.pods.remove(&key.uid).is_some() {
        seen.list = RuntimeList::default();
    }
    world.despawn(pod);
    next
}

/// The full name under which a pod is enlisted: its spec's, or what the runtime's labels say.
#[must_use]
pub fn full_name(world: &World, pod: Entity) -> Option<String> {
    if let Some(spec) = world.get::<Desired>(pod).and_then(|d| d.spec.as_ref()) {
        return Some(spec.full_name());
    }
    let inspection = world.get::<Observed>(pod)?.inspection.as_ref()?;
    (!inspection.name.is_empty()).then(|| format!("{}_{}", inspection.name, inspection.namespace))
}

fn spawn_entity(world: &mut World, uid: &PodUid, now: Now) -> Entity {
    let mut index = world.resource_mut::<PodIndex>();
    let slot = index.free_slots.pop_first().unwrap_or_else(|| {
        index.slots += 1;
        index.slots - 1
    });
    let lifecycle = Lifecycle {
        stage: Stage::Queued,
        since: now.mono,
        active: None,
        ending: None,
        refused: None,
        history: Vec::new(),
    };
    let desired = Desired { spec: None, version: 0, removed: false, delete: None, successor: None };
    let key = PodKey { uid: uid.clone(), slot };
    let probes = components::probes::Probes::default();
    let bundle = (key, desired, lifecycle, Observed::default(), Flow::default(), Reported::default(), probes);
    let pod = world.spawn((bundle, PodVolumes::default(), PodRefs::default(), Resizing::default())).id();
    world.resource_mut::<PodIndex>().by_uid.insert(uid.clone(), pod);
    pod
}

fn spawn_containers(world: &mut World, pod: Entity, spec: &PodSpec) {
    for (index, _) in spec.containers.iter().enumerate() {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        world.spawn((ContainerOf(pod), ContainerRun { index, ..ContainerRun::default() }));
    }
}

fn children(world: &World, pod: Entity) -> Vec<Entity> {
    world.get::<components::world::PodContainers>(pod).map(|c| c.entities().to_vec()).unwrap_or_default()
}
