//! The node's Lease (contract 6.3): its renewal every quarter of its duration tells the cluster that the node lives.
//!
//! Reads the node's uid from [`NodeAgent`]; writes its own [`LeaseKeeper`]. A node without an API server has none.

mod steps;

use crate::node_object::{NodeAgent, NodeObjectSystems};
use crate::report::ReportSystems;
use bevy_ecs::prelude::*;
use components::edge::api::ApiEffect;
use components::edge::{Effect, Lane, Why};
use components::node::NodeConfig;
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, Seed, TimerKind, Timers};
use std::time::Duration;
use steps::{Facts, LeaseKeeper};

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct LeaseSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let seed = engine.world().resource::<Seed>().0;
    let world = engine.world_mut();
    world.insert_resource(LeaseKeeper::new(seed));
    if world.resource::<NodeConfig>().object.is_some() {
        world.resource_mut::<Timers>().arm(TimerKind::Lease, Owner::Node, components::time::Mono(0));
    }
    engine.add_systems(
        Phase::Report,
        keep_lease
            .in_set(LeaseSystems)
            .after(NodeObjectSystems)
            .after(crate::identity::IdentitySystems)
            .before(ReportSystems),
    );
}

fn keep_lease(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    agent: Res<NodeAgent>,
    mut keeper: ResMut<LeaseKeeper>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let Some(object) = &config.object else { return };
    let facts = Facts {
        node: &config.node_name,
        uid: agent.uid(),
        seconds: object.lease_seconds,
        period: object.renew_period(),
        now: clock.now,
    };
    for arrived in &inbox.completions {
        if arrived.owner == Owner::Node && keeper.awaits(arrived.ticket) {
            keeper.take(&arrived.outcome, &facts);
        }
    }
    if timers.node_due(TimerKind::Lease) {
        keeper.due = Some(clock.now.mono);
    }
    if let Some((step, request)) = keeper.act(&facts) {
        let ticket = outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: object.update_period.min(Duration::from_secs(u64::from(object.lease_seconds.max(1)))),
            why: Why { system: "lease", rule: "the lease is renewed every quarter of its duration" },
            effect: Effect::Api(ApiEffect::Request(Box::new(request))),
        });
        keeper.asked(ticket, step);
    }
    if let Some(due) = keeper.due {
        timers.arm(TimerKind::Lease, Owner::Node, due);
    }
}
