//! Pod lifecycle event generator: relists the runtime, takes its events, inspects the pods that changed.
//!
//! Reads relists, events and inspections. Writes [`Observed`], [`RuntimeIndex`], [`Pleg`]; pods that only the
//! runtime knows become entities here. With a healthy event stream the relist is only a safety net.

mod diff;
mod events;
mod inspect;
mod relist;
mod started;

use crate::turns::ObserveTurn;
use bevy_ecs::prelude::*;
use components::time::Mono;
use components::world::{InspectRequests, Pleg, RuntimeIndex};
use engine::{Engine, Owner, Phase, TimerKind, Timers};
use std::time::Duration;

/// Relist period without events (contract 7).
const RELIST: Duration = Duration::from_secs(1);
/// Relist period while the event stream delivers: events can be lost without a sign, so it stays finite.
const RELIST_WITH_EVENTS: Duration = Duration::from_secs(30);
/// The PLEG is unhealthy when the last relist (or sign of life of the stream) is older than this (contract 7).
pub const HEALTH_LIMIT: Duration = Duration::from_secs(180);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct PlegSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let world = engine.world_mut();
    world.init_resource::<Pleg>();
    world.init_resource::<RuntimeIndex>();
    world.init_resource::<InspectRequests>();
    world.resource_mut::<Timers>().arm(TimerKind::Relist, Owner::Node, Mono(0));
    world.resource_mut::<Timers>().arm(TimerKind::Events, Owner::Node, Mono(0));
    engine.add_systems(
        Phase::Observe,
        (
            events::take_stream_state,
            events::take_events,
            relist::take_relist,
            inspect::take_inspections,
            inspect::request_inspections,
            relist::request_relist,
            events::open_stream,
        )
            .chain_ignore_deferred()
            .in_set(PlegSystems)
            .in_set(ObserveTurn::Pleg)
            .after(ObserveTurn::Health),
    );
}
