//! The node's own object in the API: registered when there is none, reconciled when there is one, and its status kept
//! up to date: looked at every `nodeStatusUpdateFrequency`, written when something changed or
//! `nodeStatusReportFrequency` has passed.
//!
//! Reads the machine, the runtime's health and images, and follows the object as others change it. Writes
//! [`NodeAgent`]. A node without an API server does nothing.

mod build;
mod changes;
mod conditions;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use build::NodeEvent;
#[cfg(test)]
pub(crate) use tests::object as tests_object;

pub(crate) use steps::{NodeAgent, answered, chance, trouble};

use crate::reflector::{Reflector, Target};
use crate::report::ReportSystems;
use crate::status::StatusSystems;
use bevy_ecs::prelude::*;
use build::Facts;
use components::edge::api::{ApiEffect, Class};
use components::edge::cri::{CriAnswer, CriEffect};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::node::object::NodeObjectConfig;
use components::node::{Machine, NodeConfig};
use components::world::{NodeShutdown, Pleg, RuntimeHealth};
use conditions::Heard;
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, Seed, TimerKind, Timers};
use std::time::Duration;

/// Time between two looks at the images, as the kubelet's.
const IMAGES_PERIOD: Duration = Duration::from_secs(30);
/// How soon images are listed again when the runtime could not say.
const IMAGES_RETRY: Duration = Duration::from_secs(5);

/// The warning that goes with the older hierarchy.
const CGROUP_V1: &str = "cgroup v1 detected. cgroup v1 support is deprecated and will be removed in a future release. \
    Please migrate to cgroup v2. More information at \
    https://git.k8s.io/enhancements/keps/sig-node/5573-remove-cgroup-v1";

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct NodeObjectSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let seed = engine.world().resource::<Seed>().0;
    let world = engine.world_mut();
    let mut agent = NodeAgent::new(seed);
    agent.events = first_events(world.resource::<NodeConfig>(), world.resource::<Machine>());
    let name = world.resource::<NodeConfig>().node_name.to_string();
    world.insert_resource(agent);
    let target = Target::single("/api/v1/nodes", &name, Class::Node, false);
    world.insert_resource(NodeWatch(Reflector::new(target, seed)));
    let start = components::time::Mono(0);
    if world.resource::<NodeConfig>().object.is_some() {
        let mut timers = world.resource_mut::<Timers>();
        timers.arm(TimerKind::NodeStatus, Owner::Node, start);
        timers.arm(TimerKind::Images, Owner::Node, start);
    }
    engine.add_systems(
        Phase::Report,
        (follow_node, tell_cidr, list_images, keep_node)
            .chain_ignore_deferred()
            .in_set(NodeObjectSystems)
            .after(StatusSystems)
            .before(ReportSystems),
    );
}

/// The node's object as others change it.
#[derive(Resource, Debug)]
struct NodeWatch(Reflector);

/// Follows the object once it is there: labels, taints, addresses of pods and conditions of others come this way.
fn follow_node(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    mut agent: ResMut<NodeAgent>,
    mut watch: ResMut<NodeWatch>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    if config.object.is_none() || !agent.is_registered() {
        return;
    }
    let now = clock.now.mono;
    for fact in &inbox.api {
        for change in watch.0.told(fact, now, &mut outbox) {
            agent.follow(&change);
        }
    }
    for arrived in inbox.completions.iter().filter(|arrived| arrived.owner == Owner::Node) {
        if watch.0.owns(arrived.ticket)
            && let Some(change) = watch.0.completed(&arrived.outcome, now)
        {
            agent.follow(&change);
        }
    }
    watch.0.drive(now, "node_object", &mut outbox);
    if let Some(due) = watch.0.due() {
        timers.arm(TimerKind::NodeWatch, Owner::Node, due);
    }
}

/// Tells the runtime the range of addresses of this node's pods when it changes.
fn tell_cidr(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    mut agent: ResMut<NodeAgent>,
    mut outbox: ResMut<Outbox>,
) {
    let Some(object) = &config.object else { return };
    let now = clock.now.mono;
    for arrived in inbox.completions.iter().filter(|arrived| arrived.owner == Owner::Node) {
        agent.cidr.take(arrived.ticket, &arrived.outcome, now.after(object.update_period));
    }
    if let Some(cidr) = agent.cidr.next(agent.known.as_ref(), now) {
        let ticket = outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: config.runtime_timeout,
            why: Why { system: "node_object", rule: "the node's range of pod addresses changed" },
            effect: Effect::Cri(CriEffect::SetPodCidr { cidr: cidr.clone() }),
        });
        agent.cidr.asked(ticket, cidr);
    }
}

/// What every start of the agent tells.
fn first_events(config: &NodeConfig, machine: &Machine) -> Vec<NodeEvent> {
    let event = |warning, reason, message: &str| NodeEvent { warning, reason, message: message.to_owned() };
    if config.object.is_none() {
        return Vec::new();
    }
    let mut events = vec![event(false, "Starting", "Starting kubelet.")];
    if !machine.cgroup_v2 {
        events.push(event(true, "CgroupV1", CGROUP_V1));
    }
    if config.limits.enforced && config.cgroups_per_qos {
        events.push(event(false, "NodeAllocatableEnforced", "Updated Node Allocatable limit across pods"));
    }
    events
}

/// Asks for the images from time to time: the status shows them.
fn list_images(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    mut agent: ResMut<NodeAgent>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    if config.object.is_none() {
        return;
    }
    for arrived in &inbox.completions {
        if agent.listing != Some(arrived.ticket) {
            continue;
        }
        agent.listing = None;
        let listed = match &arrived.outcome {
            Outcome::Done(Answer::Cri(CriAnswer::ImagesListed(images))) => {
                agent.images = Some(images.clone());
                true
            }
            _ => false,
        };
        let next = if listed { IMAGES_PERIOD } else { IMAGES_RETRY };
        timers.arm(TimerKind::Images, Owner::Node, clock.now.mono.after(next));
    }
    if timers.node_due(TimerKind::Images) && agent.listing.is_none() {
        agent.listing = Some(outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: config.runtime_timeout,
            why: Why { system: "node_object", rule: "the node's status shows its images" },
            effect: Effect::Cri(CriEffect::ListImages),
        }));
    }
}

/// What the object is made from besides the agent's own state.
#[derive(bevy_ecs::system::SystemParam)]
struct Sources<'w> {
    config: Res<'w, NodeConfig>,
    machine: Res<'w, Machine>,
    health: Res<'w, RuntimeHealth>,
    pleg: Res<'w, Pleg>,
    shutdown: Res<'w, NodeShutdown>,
}

fn keep_node(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    sources: Sources<'_>,
    mut agent: ResMut<NodeAgent>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let Some(config) = &sources.config.object else { return };
    let now = clock.now.mono;
    for arrived in &inbox.completions {
        if arrived.owner == Owner::Node && agent.awaits(arrived.ticket) {
            agent.take(&arrived.outcome, config, now);
        }
    }
    let unready = conditions::unready(&Heard {
        info: sources.health.info.as_deref(),
        ready_seen: sources.health.ready_seen,
        relisted: sources.pleg.relisted,
        shutting_down: sources.shutdown.began.is_some(),
        now,
    });
    agent.tell_shutdown(sources.shutdown.began.is_some());
    // Whether it is ready is told at once, the rest in its time.
    let flipped = agent.ready.replace(unready.is_empty()) != Some(unready.is_empty());
    if timers.node_due(TimerKind::NodeStatus) || flipped {
        agent.due = Some(now);
    }
    let images = agent.images.take();
    let facts = Facts {
        config,
        node: &sources.config,
        machine: &sources.machine,
        runtime: sources.health.info.as_deref(),
        handlers: &sources.health.handlers,
        supplemental_groups: sources.health.supplemental_groups,
        images: images.as_deref(),
        unready: &unready,
        pressure: [false; 3],
        now: clock.now.wall,
    };
    let asked = agent.act(&facts, now);
    agent.images = images;
    if let Some((doing, request)) = asked {
        let ticket = outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: timeout(config),
            why: Why { system: "node_object", rule: doing.rule() },
            effect: Effect::Api(ApiEffect::Request(Box::new(request))),
        });
        agent.asked(ticket, doing);
    }
    if let Some(due) = agent.due {
        timers.arm(TimerKind::NodeStatus, Owner::Node, due);
    }
}

/// Longest wait for an answer: a status that is older than the next one is of no use.
fn timeout(config: &NodeObjectConfig) -> Duration {
    config.update_period.min(Duration::from_secs(u64::from(config.lease_seconds.max(1))))
}
