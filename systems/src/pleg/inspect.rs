//! Inspections: a full look at one pod, asked for when something may have changed, one at a time per pod.

use crate::pods;
use bevy_ecs::prelude::*;
use components::edge::cri::{ContainerState, CriAnswer, CriEffect, KnownObjects, PodInspection};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::ids::SandboxId;
use components::node::NodeConfig;
use components::time::Mono;
use components::world::{Desired, Flow, InspectRequests, Observed, Pleg, PodKey, RuntimeIndex};
use engine::{Clock, Inbox, NewWork, Outbox, Owner, TimerKind, Timers, Touched};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Failed inspections, about twenty seconds of them, after which an unnamed pod no longer holds others back.
const GIVE_UP_NAMING: u32 = 6;

pub(super) fn take_inspections(world: &mut World) {
    let arrived: Vec<(Entity, Outcome)> = world
        .resource::<Inbox>()
        .completions
        .iter()
        .filter_map(|a| match a.owner {
            Owner::Pod(pod) if world.get::<Observed>(pod)?.inspecting == Some(a.ticket) => {
                Some((pod, a.outcome.clone()))
            }
            _ => None,
        })
        .collect();
    for (pod, outcome) in arrived {
        let now = world.resource::<Clock>().now.mono;
        match outcome {
            Outcome::Done(Answer::Cri(CriAnswer::PodInspected(inspection))) => take(world, pod, inspection, now),
            Outcome::Done(Answer::Cri(CriAnswer::PodSeen { pod: mut inspection, sizes })) => {
                for (container, size) in inspection.containers.iter_mut().zip(sizes) {
                    container.size = size;
                }
                take(world, pod, inspection, now);
            }
            _ => failed(world, pod, now),
        }
        world.resource_mut::<Touched>().add(pod);
    }
}

fn take(world: &mut World, pod: Entity, mut inspection: PodInspection, now: Mono) {
    let Some(mut observed) = world.get_mut::<Observed>(pod) else { return };
    if observed.containers_only
        && let Some(before) = &observed.inspection
    {
        inspection.sandboxes.clone_from(&before.sandboxes);
        inspection.namespace.clone_from(&before.namespace);
        inspection.name.clone_from(&before.name);
    }
    observed.inspecting = None;
    observed.early = None;
    observed.unsure = false;
    observed.failures = 0;
    observed.retry_at = None;
    observed.version += 1;
    observed.exits = exits(&observed.exits, &inspection, now);
    observed.inspection = Some(Arc::new(inspection));
    if world.resource_mut::<Pleg>().unnamed.remove(&pod) {
        name(world, pod);
    }
}

/// Ended containers with the time at which each was first seen ended.
fn exits(
    old: &BTreeMap<components::ids::ContainerId, Mono>,
    inspection: &PodInspection,
    now: Mono,
) -> BTreeMap<components::ids::ContainerId, Mono> {
    let ended = inspection.containers.iter().filter(|c| c.state == ContainerState::Exited);
    ended.map(|c| (c.id.clone(), old.get(&c.id).copied().unwrap_or(now))).collect()
}

/// Enters a pod that only the runtime knows under its full name, and lets pods go on that waited for all names.
fn name(world: &mut World, pod: Entity) {
    if let Some(full_name) = pods::full_name(world, pod) {
        pods::enlist(world, pod, &full_name, true);
    }
    if world.resource::<Pleg>().unnamed.is_empty() {
        let all: Vec<Entity> = world.resource::<components::world::PodIndex>().by_uid.values().copied().collect();
        let mut touched = world.resource_mut::<Touched>();
        all.into_iter().for_each(|pod| touched.add(pod));
    }
}

fn failed(world: &mut World, pod: Entity, now: Mono) {
    let Some(mut observed) = world.get_mut::<Observed>(pod) else { return };
    observed.inspecting = None;
    observed.stale = true;
    observed.sandboxes |= !observed.containers_only;
    observed.list |= observed.listing;
    observed.failures = observed.failures.saturating_add(1);
    let failures = observed.failures;
    let wait = Duration::from_secs(1 << (failures - 1).min(2));
    observed.retry_at = Some(now.after(wait));
    world.resource_mut::<Timers>().arm_no_later(TimerKind::Pod, Owner::Pod(pod), now.after(wait));
    if failures >= GIVE_UP_NAMING && world.resource_mut::<Pleg>().unnamed.remove(&pod) {
        name(world, pod);
    }
}

pub(super) fn request_inspections(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    index: Res<RuntimeIndex>,
    pleg: Res<Pleg>,
    timers: Res<Timers>,
    mut pods: Query<(&PodKey, &Desired, &Flow, &mut Observed)>,
    mut requests: ResMut<InspectRequests>,
    mut touched: ResMut<Touched>,
    mut outbox: ResMut<Outbox>,
) {
    for timer in timers.due() {
        if let (TimerKind::Pod, Owner::Pod(pod)) = (timer.kind, timer.owner) {
            touched.add(pod);
        }
    }
    for (pod, look) in std::mem::take(&mut requests.pods) {
        if let Ok((_, _, _, mut observed)) = pods.get_mut(pod) {
            observed.stale = true;
            observed.list |= look.list;
            observed.sandboxes |= look.sandboxes;
            if observed.inspecting.is_none() {
                observed.started.clear();
            }
            observed.started.extend(look.started);
        }
        touched.add(pod);
    }
    for pod in touched.iter() {
        let Ok((key, _, flow, mut observed)) = pods.get_mut(pod) else { continue };
        if observed.inspecting.is_some() || (observed.inspection.is_some() && !observed.stale) {
            continue;
        }
        if observed.retry_at.is_some_and(|at| at > clock.now.mono) {
            // A runtime that is away refuses at once: asking again at once would burn the node's time.
            continue;
        }
        let objects = index.pods.get(&key.uid);
        let nothing_made = flow.new_sandboxes.is_empty() && !observed.list;
        if observed.inspection.is_none() && objects.is_none() && nothing_made {
            // The relist says the runtime has nothing of it: no call needed.
            if pleg.relisted.is_some() {
                observed.inspection = Some(Arc::default());
                observed.version += 1;
                observed.stale = false;
            }
            continue;
        }
        let known = (!observed.list).then(|| known(&observed, flow, objects));
        let (known, containers_only) = match known {
            Some(known) if !observed.sandboxes => without_sandboxes(known, observed.inspection.as_deref()),
            known => (known, false),
        };
        observed.stale = false;
        observed.listing = observed.list;
        observed.list = false;
        observed.sandboxes = false;
        observed.containers_only = containers_only;
        observed.inspecting = Some(outbox.emit(NewWork {
            owner: Owner::Pod(pod),
            lane: Lane::Free,
            chained: false,
            timeout: config.runtime_timeout,
            why: Why { system: "pleg", rule: "something of the pod may have changed" },
            effect: Effect::Cri(CriEffect::InspectPod { uid: key.uid.clone(), known }),
        }));
    }
}

/// Leaves the sandboxes out when each of them was seen before: nothing says that one of them changed.
fn without_sandboxes(mut known: KnownObjects, seen: Option<&PodInspection>) -> (Option<KnownObjects>, bool) {
    let seen = |id: &SandboxId| seen.is_some_and(|seen| seen.sandboxes.iter().any(|s| s.id == *id));
    let spared = !known.sandboxes.is_empty() && known.sandboxes.iter().all(seen);
    if spared {
        known.sandboxes.clear();
    }
    (Some(known), spared)
}

fn known(observed: &Observed, flow: &Flow, listed: Option<&components::world::PodObjects>) -> KnownObjects {
    let mut known = KnownObjects::default();
    if let Some(seen) = &observed.inspection {
        known.sandboxes.extend(seen.sandboxes.iter().map(|s| s.id.clone()));
        known.containers.extend(seen.containers.iter().map(|c| (c.id.clone(), c.sandbox.clone())));
    }
    if let Some(listed) = listed {
        known.sandboxes.extend(listed.sandboxes.iter().map(|(id, _)| id.clone()));
        known.containers.extend(listed.containers.iter().map(|(id, sandbox, _)| (id.clone(), sandbox.clone())));
    }
    known.sandboxes.extend(flow.new_sandboxes.iter().cloned());
    known.containers.extend(flow.new_containers.iter().cloned());
    known.sandboxes.sort();
    known.sandboxes.dedup();
    known.containers.sort();
    known.containers.dedup();
    known
}
