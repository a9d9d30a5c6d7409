//! Pods that the API server has bound to this node: a copy of them is kept, and what changes in it changes pods.
//!
//! Reads the inbox; writes [`ApiPods`], the state of the source, and pods through the parent module. The source counts
//! as read after the first list, and keeps its pods while the server is gone. A pod whose deletion was asked for stays
//! until the server has it no more.

pub(crate) mod object;

use super::{add, remove, said, update};
use crate::apicall;
use crate::probes::ProbeMemos;
use crate::reflector::{Change, Reflector, Target};
use crate::resize::ShownResizes;
use crate::sources::merge::Op;
use bevy_ecs::prelude::*;
use components::apipods::{ApiPod, ApiPods};
use components::edge::api::Class;
use components::edge::sources::Source;
use components::ids::PodUid;
use components::node::NodeConfig;
use components::spec::PodSpec;
use components::status::Phase;
use components::time::{Mono, Now, Wall};
use components::world::{Desired, Ended, Finished, PodIndex, SourceItem, SourceState, SourceStates};
use engine::{Clock, Inbox, Outbox, Owner, Seed, TimerKind, Timers, Touched};
use object::Object;
use podspec::{Origin, compile};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Place of these pods in messages.
const ORIGIN: &str = "the API server";

/// The copy.
#[derive(Resource, Debug)]
pub(crate) struct BoundPods {
    reflector: Reflector,
    /// Trouble that was told, so that each is told once.
    told: Option<String>,
}

/// Makes the source, when the node takes part in a cluster.
pub(super) fn set_up(world: &mut World) {
    world.init_resource::<ApiPods>();
    let config = world.resource::<NodeConfig>();
    if config.api.is_none() {
        return;
    }
    let field = apicall::encode(&format!("spec.nodeName={}", config.node_name));
    let query = format!("fieldSelector={field}");
    let target = Target { path: "/api/v1/pods".to_owned(), query, class: Class::Pod, secret: false };
    let reflector = Reflector::new(target, world.resource::<Seed>().0);
    world.insert_resource(BoundPods { reflector, told: None });
    world.resource_mut::<SourceStates>().states.insert(Source::Api, SourceState::default());
    world.resource_mut::<Timers>().arm(TimerKind::BoundPods, Owner::Node, Mono(0));
}

/// Takes what the server said, then asks what is due.
pub(super) fn follow(world: &mut World) {
    world.resource_mut::<ApiPods>().settle();
    if !world.contains_resource::<BoundPods>() {
        return;
    }
    let now = world.resource::<Clock>().now;
    for change in changes(world, now.mono) {
        take(world, change, now);
    }
    world.resource_scope::<BoundPods, ()>(|world, mut bound| {
        let error = bound.reflector.error().map(str::to_owned);
        if bound.told != error {
            match &error {
                Some(message) => tracing::warn!("pods of the API server: {message}"),
                None => tracing::info!("pods of the API server: followed again"),
            }
            bound.told = error;
        }
        bound.reflector.drive(now.mono, "sources::follow", &mut world.resource_mut::<Outbox>());
        if let Some(due) = bound.reflector.due() {
            world.resource_mut::<Timers>().arm(TimerKind::BoundPods, Owner::Node, due);
        }
    });
}

/// What the copy has heard in this tick. Facts come before completions: a watch ends after what it told.
fn changes(world: &mut World, now: Mono) -> Vec<Change> {
    world.resource_scope::<BoundPods, _>(|world, mut bound| {
        world.resource_scope::<Inbox, _>(|world, inbox| {
            let mut changes = Vec::new();
            for fact in &inbox.api {
                changes.extend(bound.reflector.told(fact, now, &mut world.resource_mut::<Outbox>()));
            }
            for done in inbox.completions.iter().filter(|done| done.owner == Owner::Node) {
                if bound.reflector.owns(done.ticket) {
                    changes.extend(bound.reflector.completed(&done.outcome, now));
                }
            }
            changes
        })
    })
}

fn take(world: &mut World, change: Change, now: Now) {
    match change {
        Change::Replaced(objects) => {
            let mut seen = BTreeSet::new();
            // The oldest first: where there is not room for all, they were promised theirs before.
            let mut read: Vec<_> = objects.iter().map(|json| (json, Object::read(json))).collect();
            read.sort_by(|(_, a), (_, b)| a.as_ref().map(|a| &a.created).cmp(&b.as_ref().map(|b| &b.created)));
            for (json, object) in read {
                seen.extend(put(world, json, object, now));
            }
            let known = world.resource::<ApiPods>().pods.keys().cloned();
            let gone: Vec<PodUid> = known.filter(|uid| !seen.contains(uid)).collect();
            gone.iter().for_each(|uid| drop_pod(world, uid));
            if let Some(state) = world.resource_mut::<SourceStates>().states.get_mut(&Source::Api) {
                state.read = true;
            }
        }
        Change::Put(json) => {
            let object = Object::read(&json);
            put(world, &json, object, now);
        }
        Change::Gone(json) => {
            if let Some(object) = Object::read(&json) {
                drop_pod(world, &object.uid);
            }
        }
    }
}

/// Takes one object in; its uid.
fn put(world: &mut World, json: &str, object: Option<Object>, now: Now) -> Option<PodUid> {
    let Some(object) = object else {
        tracing::warn!("pods of the API server: an object without name or uid is left out");
        return None;
    };
    let uid = object.uid.clone();
    let known = world.resource::<ApiPods>().pods.get(&uid).map(|known| known.version);
    let first = known.is_none();
    // Older than the answer to a write of ours: the newer one is still to be told.
    if known.is_some_and(|known| known > object.pod.version) {
        return Some(uid);
    }
    // Such an answer makes what follows known, but only here does it become what is wanted.
    world.resource_mut::<ApiPods>().learn(&uid, object.pod.clone());
    if object.pod.mirror_of.is_none() {
        if first {
            remember(world, &uid, &object.pod);
        }
        desire(world, json, &object, now);
        touch_gated(world, &uid);
    }
    Some(uid)
}

/// What an earlier run of a kubelet showed of a pod goes on being shown until it changes.
fn remember(world: &mut World, uid: &PodUid, pod: &ApiPod) {
    if pod.phase.is_terminal() {
        world.resource_mut::<Finished>().0.entry(uid.clone()).or_insert(pod.phase == Phase::Succeeded);
    }
    let status = components::status::parse::status(&pod.status);
    // Without a start no kubelet has taken it up so far: what the scheduler said of it stays all the same.
    let started = status.start_time != Wall::default();
    if let Some(mut memos) = world.get_resource_mut::<ProbeMemos>().filter(|_| started) {
        memos.learn(uid, &status);
    }
    if let (Some(resize), Some(mut shown)) = (&status.resize, world.get_resource_mut::<ShownResizes>()) {
        shown.0.insert(uid.clone(), resize.clone());
    }
    world.resource_mut::<Ended>().0.entry(uid.clone()).or_insert_with(|| Arc::new(status));
}

/// Makes the pod be as the object wants it.
fn desire(world: &mut World, json: &str, object: &Object, now: Now) {
    let uid = &object.uid;
    let states = &world.resource::<SourceStates>().states;
    let known = states.get(&Source::Api).and_then(|state| state.items.get(uid)).cloned();
    let changed = known.as_ref().is_none_or(|item| item.digest != object.digest);
    if changed {
        let origin = Origin {
            node_name: &Arc::clone(&world.resource::<NodeConfig>().node_name),
            source: Source::Api,
            path: ORIGIN,
            digest: object.digest,
            seen: seen(world, uid).unwrap_or(now.wall),
        };
        match compile(json, &origin) {
            Ok(compiled) => {
                for warning in &compiled.warnings {
                    tracing::warn!(pod = %uid, "pod source: {warning}");
                }
                let op = if known.is_none() { Op::Add } else { Op::Update };
                enter(world, op, &Arc::new(compiled.spec), object, now);
            }
            Err(refusal) => {
                let (namespace, name) = (&object.pod.namespace, &object.pod.name);
                tracing::error!(pod = %uid, "pod source: {namespace}/{name} cannot be run: {refusal}");
                return;
            }
        }
    }
    delete(world, object);
}

/// Others' conditions count for a pod with readiness gates: it is looked at when its object changes.
fn touch_gated(world: &mut World, uid: &PodUid) {
    let Some(pod) = world.resource::<PodIndex>().by_uid.get(uid).copied() else { return };
    let spec = world.get::<Desired>(pod).and_then(|desired| desired.spec.as_ref());
    if spec.is_some_and(|spec| !spec.readiness_gates.is_empty()) {
        world.resource_mut::<Touched>().add(pod);
    }
}

fn seen(world: &World, uid: &PodUid) -> Option<Wall> {
    let pod = *world.resource::<PodIndex>().by_uid.get(uid)?;
    world.get::<Desired>(pod)?.spec.as_ref().map(|spec| spec.seen)
}

fn enter(world: &mut World, op: Op, spec: &Arc<PodSpec>, object: &Object, now: Now) {
    let pod = if op == Op::Add { Some(add(world, spec, now)) } else { update(world, spec) };
    let item = SourceItem {
        origin: ORIGIN.into(),
        index: 0,
        digest: object.digest,
        status_digest: 0,
        deleting: false,
        full_name: spec.full_name(),
    };
    if let Some(state) = world.resource_mut::<SourceStates>().states.get_mut(&Source::Api) {
        state.items.insert(spec.uid.clone(), item);
    }
    if let Some(pod) = pod {
        world.resource_mut::<Touched>().add(pod);
        tracing::info!(pod = %spec.uid, "pod source: {}", said(op));
    }
}

/// Passes a wish for its deletion on.
fn delete(world: &mut World, object: &Object) {
    let Some(grace) = object.pod.delete else { return };
    let Some(pod) = world.resource::<PodIndex>().by_uid.get(&object.uid).copied() else { return };
    let Some(mut desired) = world.get_mut::<Desired>(pod) else { return };
    if desired.delete.is_some_and(|known| known <= grace) {
        return;
    }
    desired.delete = Some(grace);
    desired.version += 1;
    world.resource_mut::<Touched>().add(pod);
    tracing::info!(pod = %object.uid, grace, "pod source: {}", said(Op::Delete));
}

/// The server has it no more.
fn drop_pod(world: &mut World, uid: &PodUid) {
    world.resource_mut::<ApiPods>().forget(uid);
    let mut states = world.resource_mut::<SourceStates>();
    let known = states.states.get_mut(&Source::Api).and_then(|state| state.items.remove(uid));
    if known.is_none() {
        return;
    }
    if let Some(pod) = remove(world, uid) {
        world.resource_mut::<Touched>().add(pod);
        tracing::info!(pod = %uid, "pod source: {}", said(Op::Remove));
    }
}
