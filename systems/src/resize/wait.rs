//! Resizes that wait for the node to grant them: when they are tried, in which order, and what follows.
//!
//! Tried when one comes or changes, when something of the node becomes free, and now and then. Each is judged by what
//! the other pods are allocated.

use super::order::{Turn, compare};
use super::{entity, grant, put_off, texts, uid};
use crate::admission::{self, Admitted};
use crate::node_object::NodeAgent;
use bevy_ecs::prelude::*;
use components::ids::PodUid;
use components::node::NodeConfig;
use components::resize::Resizing;
use components::spec::{PodSpec, QosClass};
use components::time::Mono;
use components::world::{
    ContainerRun, Desired, Lifecycle, NodeShutdown, Observed, PodContainers, RuntimeHealth, SourceStates, Stage,
};
use engine::{Clock, Owner, TimerKind, Timers, Touched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// How often resizes that wait are tried anyway (contract 7).
const RETRY: Duration = Duration::from_secs(180);
/// The same while a source was not read yet.
const EARLY_RETRY: Duration = Duration::from_secs(30);
/// How soon one is tried again that could not be judged.
const JUDGE_AGAIN: Duration = Duration::from_secs(1);

/// Pods whose resize waits.
#[derive(Resource, Default, Debug)]
pub(crate) struct PendingResizes {
    /// Digest of what each wanted when it was last tried; `None` for one that was not.
    waiting: BTreeMap<PodUid, Option<u128>>,
    /// Counter of what became free when they were last tried.
    freed: u64,
}

/// What came of a try.
enum Tried {
    /// Nothing is wanted any more, or it was granted, or it never will be.
    Over,
    /// It waits on.
    Waits,
    /// It could not be judged yet.
    Again,
}

/// Looks at the pods that were touched, and tries what waits when there is a reason to.
pub(super) fn decide(world: &mut World) {
    let news = collect(world);
    let freed = world.resource::<Admitted>().0.freed();
    let pending = world.resource::<PendingResizes>();
    if pending.waiting.is_empty() {
        world.resource_mut::<PendingResizes>().freed = freed;
        return;
    }
    let due = world.resource::<Timers>().node_due(TimerKind::Resizes);
    if !news && !due && pending.freed == freed {
        return;
    }
    let now = world.resource::<Clock>().now.mono;
    if !world.resource::<SourceStates>().all_read() {
        return arm(world, now.after(EARLY_RETRY));
    }
    let mut again = false;
    for pod in in_order(world) {
        let Some(uid) = uid(world, pod) else { continue };
        let tried = attempt(world, pod, &uid);
        let wanted = world.get::<Resizing>(pod).and_then(|resizing| resizing.wanted.as_ref()).map(|spec| spec.digest);
        let mut pending = world.resource_mut::<PendingResizes>();
        match tried {
            Tried::Over => {
                pending.waiting.remove(&uid);
            }
            Tried::Waits => {
                pending.waiting.insert(uid, wanted);
            }
            Tried::Again => again = true,
        }
    }
    let freed = world.resource::<Admitted>().0.freed();
    let mut pending = world.resource_mut::<PendingResizes>();
    pending.freed = freed;
    if !pending.waiting.is_empty() {
        arm(world, now.after(if again { JUDGE_AGAIN } else { RETRY }));
    }
}

fn arm(world: &mut World, at: Mono) {
    world.resource_mut::<Timers>().arm(TimerKind::Resizes, Owner::Node, at);
}

/// Takes touched pods in whose wishes changed; true when one is to be tried at once.
fn collect(world: &mut World) -> bool {
    let touched: Vec<Entity> = world.resource::<Touched>().iter().collect();
    let mut news = false;
    for pod in touched {
        let Some(resizing) = world.get::<Resizing>(pod) else { continue };
        let Some(wanted) = &resizing.wanted else {
            // It was taken back.
            if resizing.pending().is_some()
                && let Some(mut resizing) = world.get_mut::<Resizing>(pod)
            {
                resizing.set_pending(None);
            }
            continue;
        };
        let (digest, infeasible) = (wanted.digest, resizing.pending().filter(|it| it.reason == "Infeasible"));
        if infeasible.is_some_and(|it| it.generation == wanted.generation) {
            continue;
        }
        let Some(uid) = uid(world, pod) else { continue };
        let known = world.resource::<PendingResizes>().waiting.get(&uid).copied();
        if known != Some(Some(digest)) {
            world.resource_mut::<PendingResizes>().waiting.insert(uid, None);
            news = true;
        }
    }
    news
}

/// Who waits, in the order in which they are tried. Those that are gone no longer wait.
fn in_order(world: &mut World) -> Vec<Entity> {
    let uids: Vec<PodUid> = world.resource::<PendingResizes>().waiting.keys().cloned().collect();
    let mut turns = Vec::new();
    for uid in uids {
        let Some(pod) = entity(world, &uid) else {
            world.resource_mut::<PendingResizes>().waiting.remove(&uid);
            continue;
        };
        let resizing = world.get::<Resizing>(pod);
        let wanted = resizing.and_then(|resizing| resizing.wanted.as_ref());
        let allocated = world.get::<Desired>(pod).and_then(|desired| desired.spec.as_ref());
        let turn = wanted.zip(allocated).map(|(wanted, allocated)| Turn {
            grows: admission::grows(allocated, wanted),
            priority: wanted.priority,
            qos: wanted.qos,
            since: resizing.and_then(Resizing::pending).map(|it| it.since),
        });
        let nothing = Turn { grows: false, priority: 0, qos: QosClass::BestEffort, since: None };
        turns.push((turn.unwrap_or(nothing), pod));
    }
    turns.sort_by(|(a, _), (b, _)| compare(a, b));
    turns.into_iter().map(|(_, pod)| pod).collect()
}

fn attempt(world: &mut World, pod: Entity, uid: &PodUid) -> Tried {
    let Some(wanted) = world.get::<Resizing>(pod).and_then(|resizing| resizing.wanted.clone()) else {
        return Tried::Over;
    };
    let (Some(desired), Some(life)) = (world.get::<Desired>(pod), world.get::<Lifecycle>(pod)) else {
        return Tried::Over;
    };
    if desired.removed || desired.delete.is_some() || life.stage > Stage::Syncing {
        return Tried::Over;
    }
    let Some(allocated) = desired.spec.clone().filter(|_| life.stage == Stage::Syncing) else { return Tried::Again };
    if !sizes_known(world, pod) {
        return Tried::Again;
    }
    if let Some(why) = infeasible(&wanted, &allocated, world.resource::<NodeConfig>()) {
        put_off(world, pod, &wanted, "Infeasible", why);
        return Tried::Over;
    }
    match judge(world, uid, &wanted, &allocated) {
        Ok(()) => {
            grant(world, pod, &wanted);
            Tried::Over
        }
        Err(why) => {
            put_off(world, pod, &wanted, "Deferred", why);
            Tried::Waits
        }
    }
}

/// What is in force for everything that runs was noted; else it would be taken for what is allocated next.
fn sizes_known(world: &World, pod: Entity) -> bool {
    let (Some(observed), Some(desired)) = (world.get::<Observed>(pod), world.get::<Desired>(pod)) else { return false };
    let (Some(seen), Some(spec)) = (&observed.inspection, &desired.spec) else { return false };
    let runs = world.get::<PodContainers>(pod).map(PodContainers::entities).unwrap_or_default();
    let known = |run: &ContainerRun| {
        let container = spec.containers.get(usize::from(run.index));
        run.size.is_some() || container.is_none_or(|container| !crate::runtime::runs(seen, &container.name))
    };
    runs.iter().filter_map(|entity| world.get::<ContainerRun>(*entity)).all(known)
}

/// Why this node will never bring such a resize into force.
fn infeasible(wanted: &PodSpec, allocated: &PodSpec, config: &NodeConfig) -> Option<String> {
    if wanted.resources != allocated.resources && !config.resize.pod_level {
        return Some("InPlacePodLevelResourcesVerticalScaling is disabled".to_owned());
    }
    if wanted.qos != QosClass::Guaranteed {
        return None;
    }
    let differs = |f: fn(&components::spec::Resources) -> Option<i64>| {
        let pairs = wanted.containers.iter().zip(&allocated.containers);
        let mut pairs = pairs.filter(|(container, _)| texts::resizable(container.kind));
        pairs.any(|(new, old)| f(&new.resources.requests) != f(&old.resources.requests))
    };
    let pinned = |policy| Some(format!("Resize is infeasible for Guaranteed Pods alongside {policy}"));
    if config.resize.cpu_static && differs(|list| list.cpu_milli) {
        return pinned("CPU Manager policy \"static\"");
    }
    if config.resize.memory_static && differs(|list| list.memory_bytes) {
        return pinned("Memory Manager policy \"Static\"");
    }
    None
}

/// Whether there is room for what is wanted, beside what the others are allocated. What is granted is counted at once.
fn judge(world: &mut World, uid: &PodUid, wanted: &Arc<PodSpec>, allocated: &Arc<PodSpec>) -> Result<(), String> {
    if world.resource::<NodeShutdown>().began.is_some() {
        return Err("Pod was rejected as the node is shutting down.".to_owned());
    }
    world.resource_scope::<Admitted, _>(|world, mut admitted| {
        admitted.0.lift(uid);
        let nobody = BTreeSet::new();
        let node = admission::Node {
            config: world.resource::<NodeConfig>(),
            agent: world.resource::<NodeAgent>(),
            admitted: &admitted,
            leaving: &nobody,
            groups: world.resource::<RuntimeHealth>().supplemental_groups,
        };
        let verdict = admission::judge_resize(wanted, &node);
        admitted.0.put(if verdict.is_ok() { wanted } else { allocated });
        if verdict.is_ok() && admission::shrinks(allocated, wanted) {
            admitted.0.note_freed();
        }
        verdict
    })
}
