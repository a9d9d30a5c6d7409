//! Runtime health: asks the runtime how it is every 5 s and keeps what it said.
//!
//! Writes [`RuntimeHealth`]. When the runtime comes (back), every pod is looked at again.

use crate::turns::{IngestTurn, ObserveTurn};
use bevy_ecs::prelude::*;
use components::edge::cri::{CriAnswer, CriEffect, RuntimeInfo};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::node::NodeConfig;
use components::world::{PodIndex, RuntimeHealth};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::sync::Arc;
use std::time::Duration;

/// Time between two questions (contract 7: runtime health poll).
const PERIOD: Duration = Duration::from_secs(5);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct HealthSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<RuntimeHealth>();
    engine.world_mut().resource_mut::<Timers>().arm(TimerKind::RuntimeHealth, Owner::Node, components::time::Mono(0));
    engine.add_systems(Phase::Ingest, take_runtime_info.in_set(HealthSystems).in_set(IngestTurn::Health));
    engine.add_systems(Phase::Observe, ask_runtime.in_set(HealthSystems).in_set(ObserveTurn::Health));
}

/// True when pods may be started: the runtime was heard and says it is ready.
#[must_use]
pub fn runtime_usable(health: &RuntimeHealth) -> bool {
    health.info.as_ref().is_some_and(|info| info.runtime_ready) && health.problem.is_none()
}

fn take_runtime_info(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    mut health: ResMut<RuntimeHealth>,
    mut timers: ResMut<Timers>,
    mut touched: ResMut<Touched>,
) {
    for arrived in &inbox.completions {
        if health.asking != Some(arrived.ticket) {
            continue;
        }
        health.asking = None;
        timers.arm(TimerKind::RuntimeHealth, Owner::Node, clock.now.mono.after(PERIOD));
        let usable_before = runtime_usable(&health);
        let network_before = health.info.as_ref().is_some_and(|i| i.network_ready);
        match &arrived.outcome {
            Outcome::Done(Answer::Cri(
                answer @ (CriAnswer::RuntimeRead(info)
                | CriAnswer::RuntimeSeen { info, .. }
                | CriAnswer::RuntimeDescribed { info, .. }),
            )) => {
                if let CriAnswer::RuntimeSeen { handlers, .. } | CriAnswer::RuntimeDescribed { handlers, .. } = answer
                    && *health.handlers != **handlers
                {
                    health.handlers = handlers.as_slice().into();
                }
                if let CriAnswer::RuntimeDescribed { supplemental_groups, .. } = answer {
                    health.supplemental_groups = *supplemental_groups;
                }
                if info.runtime_ready {
                    health.ready_seen = Some(clock.now.mono);
                }
                note_problem(&mut health, describe(info));
                if health.info.as_deref() != Some(info) {
                    health.info = Some(Arc::new(info.clone()));
                }
            }
            Outcome::Failed(failure) => note_problem(&mut health, Some(failure.message.clone())),
            Outcome::TimedOut => note_problem(&mut health, Some("no answer in time".to_owned())),
            Outcome::Cancelled | Outcome::Done(_) => {}
        }
        let network = health.info.as_ref().is_some_and(|i| i.network_ready);
        if (runtime_usable(&health) && !usable_before) || (network && !network_before) {
            for pod in index.by_uid.values() {
                touched.add(*pod);
            }
        }
    }
}

/// Notes what is wrong with the runtime and logs each change of it once.
fn note_problem(health: &mut RuntimeHealth, problem: Option<String>) {
    if health.problem != problem {
        match &problem {
            Some(text) => tracing::warn!(problem = %text, "Container runtime is not usable"),
            None => tracing::info!("Container runtime is usable"),
        }
        health.problem = problem;
    }
}

fn describe(info: &RuntimeInfo) -> Option<String> {
    (!info.runtime_ready).then(|| format!("runtime not ready: {}", info.message))
}

fn ask_runtime(
    config: Res<NodeConfig>,
    timers: Res<Timers>,
    mut health: ResMut<RuntimeHealth>,
    mut outbox: ResMut<Outbox>,
) {
    if timers.node_due(TimerKind::RuntimeHealth) && health.asking.is_none() {
        health.asking = Some(outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: config.runtime_timeout,
            why: Why { system: "health", rule: "the runtime is asked every 5 s" },
            effect: Effect::Cri(CriEffect::ReadRuntime),
        }));
    }
}
