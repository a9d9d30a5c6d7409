//! The phases of a tick and their order.

use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ScheduleLabel, SystemSet};

/// Label of the one schedule.
#[derive(ScheduleLabel, Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tick;

/// The phases, in the order they run. Structural changes of one phase are visible in the next.
#[derive(SystemSet, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Facts and source changes become components.
    Ingest,
    /// What the runtime shows is compared with what was seen before.
    Observe,
    /// Pods are let in or refused.
    Admit,
    /// Stages move on; what each pod needs next is computed.
    Plan,
    /// Plans become works.
    Act,
    /// The node's own reclaiming.
    Reclaim,
    /// Status and metrics are computed and published.
    Report,
    /// Durable records and works are put in their final order.
    Emit,
}

const ORDER: [Phase; 8] =
    [Phase::Ingest, Phase::Observe, Phase::Admit, Phase::Plan, Phase::Act, Phase::Reclaim, Phase::Report, Phase::Emit];

/// Chains the phases with a sync point between each two.
pub(crate) fn configure(schedule: &mut Schedule) {
    for pair in ORDER.windows(2) {
        schedule.configure_sets(pair[1].after(pair[0]));
        schedule.add_systems(crate::sync_point().after(pair[0]).before(pair[1]));
    }
}
