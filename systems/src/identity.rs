//! The node's certificates: the one it shows to the API server, asked for with bootstrap credentials at first and renewed
//! before it ends, and the one that its own port shows (contract 4.1).
//!
//! Reads the node's addresses from [`NodeAgent`]; writes its own [`Identity`]. Keys never come here: the host makes
//! them, and this domain carries requests to the cluster and certificates back.

mod keeper;
mod request;
#[cfg(test)]
mod tests;

use crate::node_object::{NodeAgent, NodeObjectSystems};
use crate::report::ReportSystems;
use bevy_ecs::prelude::*;
use components::certificates::Certificates;
use components::edge::api::ApiEffect;
use components::edge::host::HostEffect;
use components::edge::{Effect, Lane, Why};
use components::node::NodeConfig;
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, Seed, TimerKind, Timers};
use keeper::{Facts, Keeper, Kind, Say};
use std::sync::Arc;
use std::time::Duration;

/// Longest time for work with files and keys.
const HOST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest wait for an answer of the API server.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct IdentitySystems;

/// The certificates.
#[derive(Resource, Debug, Default)]
pub(crate) struct Identity {
    keepers: Vec<Keeper>,
    numbers: Arc<Certificates>,
}

impl Identity {
    /// Numbers of the certificates.
    pub(crate) fn numbers(&self) -> Arc<Certificates> {
        Arc::clone(&self.numbers)
    }
}

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let seed = engine.world().resource::<Seed>().0;
    let world = engine.world_mut();
    let mut keepers = Vec::new();
    if let Some(config) = &world.resource::<NodeConfig>().identity {
        if config.rotate || config.bootstrapping {
            keepers.push(Keeper::new(Kind::Client, seed));
        }
        if config.serving.is_some() {
            keepers.push(Keeper::new(Kind::Serving, seed));
        }
    }
    if !keepers.is_empty() {
        world.resource_mut::<Timers>().arm(TimerKind::Certificates, Owner::Node, components::time::Mono(0));
    }
    world.insert_resource(Identity { keepers, numbers: Arc::default() });
    engine.add_systems(
        Phase::Report,
        keep_certificates.in_set(IdentitySystems).after(NodeObjectSystems).before(ReportSystems),
    );
}

fn keep_certificates(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    agent: Res<NodeAgent>,
    identity: ResMut<Identity>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let Some(settings) = &config.identity else { return };
    let identity = identity.into_inner();
    let facts = Facts { config: settings, node: &config.node_name, object: agent.known.as_ref(), now: clock.now };
    let mut changed = false;
    for keeper in &mut identity.keepers {
        for arrived in inbox.completions.iter().filter(|arrived| arrived.owner == Owner::Node) {
            if keeper.awaits(arrived.ticket) {
                changed = true;
                tell(keeper.kind, keeper.take(&arrived.outcome, &facts));
            }
        }
        if let Some((step, effect)) = keeper.act(&facts) {
            let timeout = if matches!(effect, Effect::Host(_)) { HOST_TIMEOUT } else { API_TIMEOUT };
            let why = Why { system: "identity", rule: step.rule() };
            let ticket =
                outbox.emit(NewWork { owner: Owner::Node, lane: Lane::Free, chained: false, timeout, why, effect });
            keeper.asked(ticket, step);
        }
        if let Some(due) = keeper.due() {
            timers.arm_no_later(TimerKind::Certificates, Owner::Node, due);
        }
    }
    if changed {
        let of = |kind| identity.keepers.iter().find(|it| it.kind == kind).map(|it| it.numbers.clone());
        identity.numbers = Arc::new(Certificates { client: of(Kind::Client), serving: of(Kind::Serving) });
    }
}

/// Says what happened, once.
fn tell(kind: Kind, say: Option<Say>) {
    let certificate = kind.word();
    match say {
        None => {}
        Some(Say::Asked(csr)) => tracing::info!(certificate, %csr, "Asked the cluster for a certificate"),
        Some(Say::Kept(until)) => tracing::info!(certificate, %until, "A new certificate is in use"),
        Some(Say::Trouble(error)) => tracing::error!(certificate, %error, "The node got no certificate; it asks again"),
    }
}

/// The effect of a request with or without bootstrap credentials.
fn ask(request: components::edge::api::ApiRequest, bootstrap: bool) -> Effect {
    let request = Box::new(request);
    Effect::Api(if bootstrap { ApiEffect::Bootstrap(request) } else { ApiEffect::Request(request) })
}

/// The effect of work with files and keys.
fn host(effect: components::edge::host::identity::IdentityEffect) -> Effect {
    Effect::Host(HostEffect::Identity(Box::new(effect)))
}
