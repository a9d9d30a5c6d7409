//! Events of the node and of its pods: counted, combined and bounded, then sent one after the other.
//!
//! Reads and empties what other domains noted: `Flow::events` of touched pods and the node's own. Writes [`Events`].
//! A node without an API server tells nobody.

mod correlate;
mod send;

use crate::lease::LeaseSystems;
use crate::node_object::{NodeAgent, NodeObjectSystems};
use crate::report::ReportSystems;
use crate::status::StatusSystems;
use bevy_ecs::prelude::*;
use components::edge::api::ApiEffect;
use components::edge::{Effect, Lane, Why};
use components::events::PodEvent;
use components::node::NodeConfig;
use components::spec::{ContainerKind, PodSpec};
use components::time::Mono;
use components::world::{Desired, EndCause, Flow, Lifecycle};
use correlate::{About, Correlator, Happened};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::time::Duration;

/// Longest wait for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct EventSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Events>();
    engine.add_systems(
        Phase::Report,
        tell_events
            .in_set(EventSystems)
            .after(StatusSystems)
            .after(NodeObjectSystems)
            .after(LeaseSystems)
            .before(ReportSystems),
    );
}

/// What was told and what is still to be.
#[derive(Resource, Default, Debug)]
struct Events {
    memory: Correlator,
    queue: send::Queue,
}

fn tell_events(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    touched: Res<Touched>,
    mut pods: Query<(&Desired, &Lifecycle, &mut Flow)>,
    mut agent: ResMut<NodeAgent>,
    mut events: ResMut<Events>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let events = &mut *events;
    let now = clock.now;
    let sends = config.object.is_some();
    for event in std::mem::take(&mut agent.events) {
        let (reason, message) = (event.reason, event.message);
        tracing::info!(reason, message = %message, "Event of the node");
        let about = node(&config, agent.uid());
        let happened = Happened { about, warning: event.warning, reason: reason.into(), message };
        if sends && let Some(event) = events.memory.correlate(happened, now) {
            events.queue.push(event);
        }
    }
    for entity in touched.iter() {
        let Ok((desired, life, mut flow)) = pods.get_mut(entity) else { continue };
        note_end(&mut flow, life, now.mono);
        if flow.events.is_empty() {
            continue;
        }
        let noted = flow.events.take();
        // What only the runtime knows of has no object to tell of.
        let Some(spec) = desired.spec.as_ref().filter(|_| sends) else { continue };
        for event in noted {
            if let Some(event) = events.memory.correlate(of_pod(spec, event), now) {
                events.queue.push(event);
            }
        }
    }
    if !sends {
        return;
    }
    for arrived in &inbox.completions {
        if events.queue.awaits(arrived.ticket) {
            events.queue.take(&arrived.outcome, now.mono);
        }
    }
    if let Some((event, way, request)) = events.queue.next(&config.node_name, now.mono) {
        let ticket = outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: TIMEOUT,
            why: Why { system: "events", rule: "the cluster is told what happens" },
            effect: Effect::Api(ApiEffect::Request(Box::new(request))),
        });
        events.queue.sent(ticket, event, way);
    }
    if let Some(at) = events.queue.not_before {
        timers.arm(TimerKind::ClusterEvents, Owner::Node, at);
    }
}

/// Notes why a pod ends, in the tick that decided it.
fn note_end(flow: &mut Flow, life: &Lifecycle, now: Mono) {
    let ending = life.ending.as_ref().filter(|ending| ending.began == now && life.since == now);
    match (ending.map(|ending| ending.cause), &life.refused) {
        (Some(EndCause::Refused), Some((reason, message))) => {
            flow.events.warning(reason.clone(), message.clone(), None);
        }
        (Some(EndCause::Preempted), _) => {
            flow.events.warning("Preempting", "Preempted in order to admit critical pod", None);
        }
        (Some(EndCause::DeadlineExceeded), _) => {
            let message = "Pod was active on the node longer than the specified deadline";
            flow.events.normal("DeadlineExceeded", message, None);
        }
        _ => {}
    }
}

fn node(config: &NodeConfig, uid: Option<&str>) -> About {
    let name = config.node_name.to_string();
    About { kind: "Node", name, uid: uid.unwrap_or_default().to_owned(), ..About::default() }
}

fn of_pod(spec: &PodSpec, event: PodEvent) -> Happened {
    let container = event.container.and_then(|index| spec.containers.get(usize::from(index)));
    let field_path = container.map_or_else(String::new, |container| {
        let list = match container.kind {
            ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
            ContainerKind::Main => "containers",
            ContainerKind::Ephemeral => "ephemeralContainers",
        };
        format!("spec.{list}{{{}}}", container.name)
    });
    let about = About {
        kind: "Pod",
        namespace: spec.namespace.to_string(),
        name: spec.name.to_string(),
        uid: spec.uid.to_string(),
        resource_version: podspec::objects::version_of(spec.json.as_ref()).unwrap_or_default().to_owned(),
        field_path,
    };
    Happened { about, warning: event.warning, reason: event.reason, message: event.message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn events_name_the_container_they_are_about() {
        let spec = fixtures::spec("always init:i side:s a");
        let path = |container| {
            let event = PodEvent { warning: false, reason: "Started".into(), message: String::new(), container };
            of_pod(&spec, event).about.field_path
        };
        assert_eq!(path(None), "");
        assert_eq!(path(Some(0)), "spec.initContainers{i}");
        assert_eq!(path(Some(1)), "spec.initContainers{s}");
        assert_eq!(path(Some(2)), "spec.containers{a}");
        assert_eq!(path(Some(9)), "");
    }
}
