//! Relists: asks for the whole list, compares it with the last, marks the pods that changed.

use super::{RELIST, RELIST_WITH_EVENTS, diff};
use crate::pods;
use bevy_ecs::prelude::*;
use components::edge::cri::{CriAnswer, CriEffect, PodInspection, RuntimeList};
use components::edge::store::Record;
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::ids::PodUid;
use components::node::NodeConfig;
use components::time::Now;
use components::world::{InspectRequests, Observed, Pleg, PodIndex, RuntimeIndex};
use engine::{Clock, Inbox, NewWork, Outbox, Owner, Recovered, TimerKind, Timers, Touched};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn take_relist(world: &mut World) {
    let Some(asked) = world.resource::<Pleg>().relisting else { return };
    let outcome = world.resource::<Inbox>().completions.iter().find(|a| a.ticket == asked).map(|a| a.outcome.clone());
    let Some(outcome) = outcome else { return };
    let now = world.resource::<Clock>().now;
    let mut pleg = world.resource_mut::<Pleg>();
    pleg.relisting = None;
    let period = if pleg.events_open { RELIST_WITH_EVENTS } else { RELIST };
    world.resource_mut::<Timers>().arm(TimerKind::Relist, Owner::Node, now.mono.after(period));
    match outcome {
        Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(list))) => {
            let mut pleg = world.resource_mut::<Pleg>();
            pleg.relists += 1;
            let first = pleg.relisted.replace(now.mono).is_none();
            apply(world, list, first);
        }
        Outcome::Failed(failure) => {
            // Asked again after a second whatever the usual period: the stream may be gone with the runtime.
            world.resource_mut::<Timers>().arm(TimerKind::Relist, Owner::Node, now.mono.after(RELIST));
            tracing::debug!(error = %failure.message, "Relist failed");
        }
        Outcome::TimedOut | Outcome::Cancelled | Outcome::Done(_) => {
            world.resource_mut::<Timers>().arm(TimerKind::Relist, Owner::Node, now.mono.after(RELIST));
        }
    }
}

fn apply(world: &mut World, list: RuntimeList, first: bool) {
    if first {
        // Pods that waited for a first look at the runtime.
        let waiting: Vec<Entity> = world.resource::<PodIndex>().by_uid.values().copied().collect();
        let mut touched = world.resource_mut::<Touched>();
        waiting.into_iter().for_each(|pod| touched.add(pod));
    } else if world.resource::<RuntimeIndex>().list == list {
        return;
    }
    let groups = diff::group(&list);
    let changed = diff::changed(&world.resource::<RuntimeIndex>().pods, &groups);
    let now = world.resource::<Clock>().now;
    if !changed.is_empty() {
        world.resource_mut::<Pleg>().changes += 1;
    }
    for uid in &changed {
        let known = world.resource::<PodIndex>().by_uid.get(uid).copied();
        let pod = match known {
            Some(pod) => pod,
            None if groups.contains_key(uid) => {
                let pod = pods::spawn_unclaimed(world, uid, now);
                match admitted(world).get(uid).and_then(|name| full_name(name)) {
                    Some(name) => pods::enlist(world, pod, &name, true),
                    None => {
                        world.resource_mut::<Pleg>().unnamed.insert(pod);
                    }
                }
                pod
            }
            None => continue,
        };
        if needs_inspection(world, pod, groups.get(uid)) {
            world.resource_mut::<InspectRequests>().look(pod);
        }
        world.resource_mut::<Touched>().add(pod);
    }
    let mut index = world.resource_mut::<RuntimeIndex>();
    index.list = list;
    index.pods = groups;
    if first {
        claim_leftovers(world, now);
    }
}

/// Pods that an earlier run admitted and never buried, and of which the runtime has nothing: their directories may
/// still be there, so they end like any pod that nobody wants.
fn claim_leftovers(world: &mut World, now: Now) {
    if !world.resource::<NodeConfig>().end_orphans {
        return;
    }
    let mut left = admitted(world);
    left.retain(|uid, _| !world.resource::<PodIndex>().by_uid.contains_key(uid));
    for (uid, name) in left {
        let Some((namespace, name)) = name.split_once('/') else { continue };
        let pod = pods::spawn_unclaimed(world, &uid, now);
        if let Some(mut observed) = world.get_mut::<Observed>(pod) {
            let nothing = PodInspection { namespace: namespace.into(), name: name.into(), ..PodInspection::default() };
            observed.inspection = Some(Arc::new(nothing));
            observed.version = 1;
        }
        pods::enlist(world, pod, &format!("{name}_{namespace}"), true);
        world.resource_mut::<Touched>().add(pod);
    }
}

/// `namespace/name` of the pods that earlier runs admitted and never buried.
fn admitted(world: &World) -> BTreeMap<PodUid, String> {
    let mut out = BTreeMap::new();
    for record in &world.resource::<Recovered>().0 {
        match record {
            Record::PodAdmitted { uid, name, .. } => {
                out.insert(uid.clone(), name.clone());
            }
            Record::PodForgotten { uid } => {
                out.remove(uid);
            }
            Record::PodFinished { .. }
            | Record::PodProbed { .. }
            | Record::PodEnded { .. }
            | Record::PodAllocated { .. }
            | Record::PodActuated { .. } => {}
        }
    }
    out
}

fn full_name(recorded: &str) -> Option<String> {
    recorded.split_once('/').map(|(namespace, name)| format!("{name}_{namespace}"))
}

/// False when the last inspection already shows exactly what the relist shows.
fn needs_inspection(world: &World, pod: Entity, objects: Option<&components::world::PodObjects>) -> bool {
    let Some(inspection) = world.get::<Observed>(pod).and_then(Observed::settled) else { return true };
    let mut sandboxes: Vec<_> = inspection.sandboxes.iter().map(|s| (s.id.clone(), s.state)).collect();
    let mut containers: Vec<_> =
        inspection.containers.iter().map(|c| (c.id.clone(), c.sandbox.clone(), c.state)).collect();
    sandboxes.sort();
    containers.sort();
    let empty = components::world::PodObjects::default();
    let objects = objects.unwrap_or(&empty);
    objects.sandboxes != sandboxes || objects.containers != containers
}

pub(super) fn request_relist(
    config: Res<NodeConfig>,
    timers: Res<Timers>,
    mut pleg: ResMut<Pleg>,
    mut outbox: ResMut<Outbox>,
) {
    if timers.node_due(TimerKind::Relist) && pleg.relisting.is_none() {
        pleg.relisting = Some(outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: config.runtime_timeout,
            why: Why { system: "pleg", rule: "the runtime is relisted periodically" },
            effect: Effect::Cri(CriEffect::ListRuntime),
        }));
    }
}
