//! The runtime's event stream: opened where the runtime has one, opened again with back-off when it ends.
//!
//! An event is a hint to inspect the pod: events can be late, doubled or out of order. Only what it says of an object
//! that just started is taken at its word, where nothing speaks against it (`started`).

use super::{RELIST, started};
use bevy_ecs::prelude::*;
use components::edge::cri::{ContainerChange, ContainerState, CriEffect, CriIngress, PodInspection, SandboxState};
use components::edge::{Effect, FailureClass, Lane, Outcome, Why};
use components::node::NodeConfig;
use components::world::{Flow, InspectRequests, Observed, Pleg, PodIndex, Step};
use engine::{Clock, Inbox, NewWork, Outbox, Owner, TimerKind, Timers, Touched};
use std::time::Duration;

/// Longest wait between two attempts to open the stream.
const LONGEST_WAIT: Duration = Duration::from_secs(30);

pub(super) fn take_stream_state(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    mut pleg: ResMut<Pleg>,
    mut timers: ResMut<Timers>,
) {
    for fact in &inbox.cri {
        match fact {
            CriIngress::EventsOpened => {
                pleg.events_open = true;
                pleg.event_attempts = 0;
                // What happened before the stream opened is caught by one relist now.
                timers.arm(TimerKind::Relist, Owner::Node, clock.now.mono);
            }
            CriIngress::EventsClosed { unsupported, message } => {
                tracing::debug!(error = %message, unsupported, "Event stream closed");
                closed(&mut pleg, &mut timers, &clock, *unsupported);
            }
            CriIngress::ContainerChanged { .. } | CriIngress::ObjectStarted { .. } => {}
        }
    }
    let Some(opening) = pleg.opening else { return };
    for arrived in inbox.completions.iter().filter(|a| a.ticket == opening) {
        pleg.opening = None;
        match &arrived.outcome {
            Outcome::Done(_) => {}
            Outcome::Failed(failure) => {
                closed(&mut pleg, &mut timers, &clock, failure.class == FailureClass::Unimplemented);
            }
            Outcome::TimedOut | Outcome::Cancelled => closed(&mut pleg, &mut timers, &clock, false),
        }
    }
}

fn closed(pleg: &mut Pleg, timers: &mut Timers, clock: &Clock, unsupported: bool) {
    pleg.events_open = false;
    pleg.events_unsupported = unsupported;
    timers.arm_no_later(TimerKind::Relist, Owner::Node, clock.now.mono.after(RELIST));
    // A runtime without the call is asked again at the longest wait: it may be upgraded under us.
    let wait = if unsupported { LONGEST_WAIT } else { wait(pleg.event_attempts) };
    pleg.event_attempts = pleg.event_attempts.saturating_add(1);
    timers.arm(TimerKind::Events, Owner::Node, clock.now.mono.after(wait));
}

fn wait(attempts: u32) -> Duration {
    Duration::from_secs(1 << attempts.min(5)).min(LONGEST_WAIT)
}

pub(super) fn take_events(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    mut pods: Query<(&mut Observed, &Flow)>,
    mut pleg: ResMut<Pleg>,
    mut timers: ResMut<Timers>,
    mut requests: ResMut<InspectRequests>,
    mut touched: ResMut<Touched>,
) {
    for fact in &inbox.cri {
        let (pod, id, change, object) = match fact {
            CriIngress::ContainerChanged { pod, id, change } => (pod, id.as_str(), *change, None),
            CriIngress::ObjectStarted { pod, object } => (pod, object.id(), ContainerChange::Started, Some(object)),
            CriIngress::EventsOpened | CriIngress::EventsClosed { .. } => continue,
        };
        if pleg.events_open {
            pleg.relisted = pleg.relisted.map(|_| clock.now.mono);
        }
        let Some(&entity) = index.by_uid.get(pod) else {
            // A pod that nobody knows yet: the relist tells.
            timers.arm_no_later(TimerKind::Relist, Owner::Node, clock.now.mono.after(RELIST));
            continue;
        };
        let Ok((mut observed, flow)) = pods.get_mut(entity) else { continue };
        if object.is_some_and(|object| started::take(&mut observed, flow, object)) {
            requests.shown(entity, id);
            touched.add(entity);
            continue;
        }
        if matches!(change, ContainerChange::Stopped | ContainerChange::Deleted) && !is_known(&observed, id) {
            observed.unsure = true;
        }
        let unnamed = change == ContainerChange::Started && is_unnamed_sandbox(&observed, flow, id);
        if unnamed {
            observed.early = object.cloned();
        }
        let expected = unnamed || (change == ContainerChange::Started && observed.will_show_started(id));
        if expected || !observed.settled().is_none_or(|seen| is_news(seen, flow, id, change)) {
            continue;
        }
        if change == ContainerChange::Started && is_container(&observed, flow, id) {
            requests.container_started(entity, id.into());
        } else {
            requests.look(entity);
        }
        touched.add(entity);
    }
    take_early(&mut pods, &mut requests);
}

/// Sandboxes whose event came before the end of the work that makes them.
fn take_early(pods: &mut Query<(&mut Observed, &Flow)>, requests: &mut InspectRequests) {
    let asked: Vec<Entity> =
        requests.pods.iter().filter(|(_, look)| !look.started.is_empty()).map(|(p, _)| *p).collect();
    for pod in asked {
        let Ok((mut observed, flow)) = pods.get_mut(pod) else { continue };
        let Some(object) = observed.early.take() else { continue };
        if started::take(&mut observed, flow, &object) {
            requests.shown(pod, object.id());
        }
    }
}

fn is_known(observed: &Observed, id: &str) -> bool {
    observed.inspection.as_ref().is_some_and(|seen| {
        seen.containers.iter().any(|c| c.id.as_str() == id) || seen.sandboxes.iter().any(|s| s.id.as_str() == id)
    })
}

/// True for what may be the sandbox that is being made: until its id comes back it can't be asked for.
fn is_unnamed_sandbox(observed: &Observed, flow: &Flow, id: &str) -> bool {
    flow.in_flight.iter().any(|(_, step)| matches!(step, Step::RunSandbox)) && !is_container(observed, flow, id)
}

/// True for a container that the pod is known to have.
fn is_container(observed: &Observed, flow: &Flow, id: &str) -> bool {
    let seen = || observed.inspection.as_ref().is_some_and(|seen| seen.containers.iter().any(|c| c.id.as_str() == id));
    flow.new_containers.iter().any(|(made, _)| made.as_str() == id) || seen()
}

/// True for an object that we made and have not seen yet.
fn is_made(flow: &Flow, id: &str) -> bool {
    flow.new_containers.iter().any(|(made, _)| made.as_str() == id)
        || flow.new_sandboxes.iter().any(|made| made.as_str() == id)
}

/// False when the inspection already shows what the event says. `Created` is never news: whoever made the container
/// knows, and a foreign one shows in the next relist.
fn is_news(seen: &PodInspection, flow: &Flow, id: &str, change: ContainerChange) -> bool {
    let container = seen.containers.iter().find(|c| c.id.as_str() == id).map(|c| c.state);
    let sandbox = seen.sandboxes.iter().find(|s| s.id.as_str() == id).map(|s| s.state);
    match change {
        ContainerChange::Created => false,
        ContainerChange::Started => {
            !matches!(container, Some(ContainerState::Running | ContainerState::Exited)) && sandbox.is_none()
        }
        ContainerChange::Stopped => match sandbox {
            Some(state) => state == SandboxState::Ready,
            None => container.map_or_else(|| is_made(flow, id), |state| state != ContainerState::Exited),
        },
        ContainerChange::Deleted => container.is_some() || sandbox.is_some(),
    }
}

pub(super) fn open_stream(
    config: Res<NodeConfig>,
    timers: Res<Timers>,
    mut pleg: ResMut<Pleg>,
    mut outbox: ResMut<Outbox>,
) {
    if timers.node_due(TimerKind::Events) && !pleg.events_open && pleg.opening.is_none() {
        pleg.opening = Some(outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: config.runtime_timeout,
            why: Why { system: "pleg", rule: "events make the relist a safety net" },
            effect: Effect::Cri(CriEffect::WatchEvents),
        }));
    }
}
