//! Durable records that could not be written: kept, and offered again with back-off until they are.
//!
//! Writes [`JournalBacklog`]. While it is not empty nothing new is started: what a start relies on is not durable.

use crate::turns::IngestTurn;
use bevy_ecs::prelude::*;
use components::edge::store::StoreIngress;
use components::world::{Ended, Finished, JournalBacklog, PodIndex};
use engine::{Clock, Engine, Inbox, Outbox, Owner, Phase, Recovered, TimerKind, Timers, Touched};
use std::sync::Arc;
use std::time::Duration;

/// Longest wait between two tries.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct JournalSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let recovered = engine.world().resource::<Recovered>().0.clone();
    let world = engine.world_mut();
    world.init_resource::<JournalBacklog>();
    world.insert_resource(finished(&recovered));
    world.insert_resource(ended(&recovered));
    engine.add_systems(
        Phase::Ingest,
        take_failures
            .in_set(JournalSystems)
            .in_set(IngestTurn::Journal)
            .before(IngestTurn::Health)
            .before(IngestTurn::Completions)
            .before(IngestTurn::Sources),
    );
    engine.add_systems(Phase::Emit, offer_again.in_set(JournalSystems));
}

/// The pods that earlier runs saw finished.
fn finished(records: &[components::edge::store::Record]) -> Finished {
    use components::edge::store::Record;
    let mut out = Finished::default();
    for record in records {
        match record {
            Record::PodFinished { uid, succeeded } => {
                out.0.insert(uid.clone(), *succeeded);
            }
            Record::PodForgotten { uid } => {
                out.0.remove(uid);
            }
            Record::PodAdmitted { .. }
            | Record::PodProbed { .. }
            | Record::PodEnded { .. }
            | Record::PodAllocated { .. }
            | Record::PodActuated { .. } => {}
        }
    }
    out
}

/// What earlier runs showed of them.
fn ended(records: &[components::edge::store::Record]) -> Ended {
    use components::edge::store::Record;
    let mut out = Ended::default();
    for record in records {
        match record {
            Record::PodEnded { uid, status } => {
                out.0.insert(uid.clone(), Arc::new((**status).clone()));
            }
            Record::PodForgotten { uid } => {
                out.0.remove(uid);
            }
            Record::PodAdmitted { .. }
            | Record::PodProbed { .. }
            | Record::PodFinished { .. }
            | Record::PodAllocated { .. }
            | Record::PodActuated { .. } => {}
        }
    }
    // A record that was offered again can come after the one that the pod is forgotten.
    let finished = finished(records);
    out.0.retain(|uid, _| finished.0.contains_key(uid));
    out
}

/// Before any decision of the tick: what relies on a lost record must see it lost.
fn take_failures(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    mut backlog: ResMut<JournalBacklog>,
    mut timers: ResMut<Timers>,
) {
    for fact in &inbox.store {
        let StoreIngress::CommitFailed { records, message } = fact;
        if backlog.failures == 0 {
            tracing::error!(error = %message, "Durable records could not be written; nothing new is started until they are");
        }
        backlog.records.extend(records.iter().cloned());
        backlog.failures = backlog.failures.saturating_add(1);
        let wait = Duration::from_secs(1 << backlog.failures.min(5)).min(LONGEST_WAIT);
        timers.arm(TimerKind::Journal, Owner::Node, clock.now.mono.after(wait));
    }
}

fn offer_again(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    mut backlog: ResMut<JournalBacklog>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
    mut touched: ResMut<Touched>,
) {
    if timers.node_due(TimerKind::Journal) && inbox.store.is_empty() {
        // Offered once; a failure brings them back, silence means they are durable.
        for record in std::mem::take(&mut backlog.records) {
            outbox.record(record);
        }
        for pod in index.by_uid.values() {
            touched.add(*pod);
            timers.arm_no_later(TimerKind::Pod, Owner::Pod(*pod), clock.now.mono.after(Duration::from_secs(1)));
        }
    } else if backlog.records.is_empty() {
        backlog.failures = 0;
    }
}
