//! Links to container logs where log collectors look for them (`/var/log/containers`).
//!
//! Reads the inspections of touched pods; writes its own [`Linked`]. A link is made once for each running container
//! that this process sees; links of containers that are gone are collected by `systems::gc`.
//! One work makes all links that are due: the kernel lets only one thread at a time write a directory, others would spin.

use crate::turns::ReclaimTurn;
use bevy_ecs::prelude::*;
use components::edge::cri::{ContainerState, ContainerStatus, PodInspection};
use components::edge::host::HostEffect;
use components::edge::host::reclaim::LinkLogs;
use components::edge::{Effect, Lane, Why};
use components::ids::{ContainerId, Ticket};
use components::node::NodeConfig;
use components::world::Observed;
use engine::{Engine, Inbox, NewWork, Outbox, Owner, Phase, Touched};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Longest time for making a few links.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longest file name that file systems take.
const LONGEST_NAME: usize = 255;

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct LinkSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Linked>();
    engine.add_systems(
        Phase::Reclaim,
        link_logs.in_set(LinkSystems).after(ReclaimTurn::Collection).before(ReclaimTurn::Burial),
    );
}

/// Most links that one work makes; the rest follows it.
const MOST_LINKS: usize = 1000;

/// Containers whose links were asked for, by pod.
#[derive(Resource, Default, Debug)]
pub(crate) struct Linked {
    known: BTreeMap<Entity, BTreeSet<ContainerId>>,
    /// Links to make, with what they lead to.
    due: BTreeMap<String, Arc<str>>,
    /// The work under way.
    making: Option<Ticket>,
}

/// The link of a container's log: `POD_NAMESPACE_CONTAINER-ID.log`.
pub(crate) fn path(dir: &str, seen: &PodInspection, container: &ContainerStatus) -> String {
    let mut name = format!("{}_{}_{}-{}", seen.name, seen.namespace, container.name, container.id);
    name.truncate(LONGEST_NAME - ".log".len());
    format!("{dir}/{name}.log")
}

fn link_logs(
    config: Res<NodeConfig>,
    touched: Res<Touched>,
    inbox: Res<Inbox>,
    pods: Query<&Observed>,
    mut linked: ResMut<Linked>,
    mut outbox: ResMut<Outbox>,
) {
    let Some(dir) = &config.reclaim.log_links else { return };
    let linked = &mut *linked;
    if inbox.completions.iter().any(|arrived| linked.making == Some(arrived.ticket)) {
        linked.making = None;
    }
    for pod in touched.iter() {
        let seen = pods.get(pod).ok().and_then(|observed| observed.settled());
        let Some(seen) = seen else { continue };
        let running = || seen.containers.iter().filter(|c| c.state == ContainerState::Running);
        if seen.name.is_empty() || running().next().is_none() {
            linked.known.remove(&pod);
            continue;
        }
        let known = linked.known.entry(pod).or_default();
        known.retain(|id| running().any(|container| container.id == *id));
        let fresh = running().filter(|c| !c.log_path.is_empty() && known.insert(c.id.clone()));
        linked.due.extend(fresh.map(|c| (path(dir, seen, c), c.log_path.as_str().into())));
    }
    if linked.making.is_none() && !linked.due.is_empty() {
        linked.making = Some(outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: TIMEOUT,
            why: Why { system: "links", rule: "log collectors look for logs by pod and container name" },
            effect: Effect::Host(HostEffect::LinkLogs(Box::new(LinkLogs {
                dir: dir.clone(),
                links: next_links(&mut linked.due),
            }))),
        }));
    }
}

/// Takes as many links as one work makes.
fn next_links(due: &mut BTreeMap<String, Arc<str>>) -> Vec<(String, Arc<str>)> {
    let rest = due.keys().nth(MOST_LINKS).cloned().map(|at| due.split_off(&at)).unwrap_or_default();
    std::mem::replace(due, rest).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_link_names_pod_namespace_container_and_id_and_fits_a_file_name() {
        let spec = fixtures::spec("always a");
        let mut seen = fixtures::inspection(&spec, "s0+ a0:run");
        assert_eq!(path("/l", &seen, &seen.containers[0]), "/l/pod_default_a-a0.log");
        seen.name = "p".repeat(253);
        let long = path("/l", &seen, &seen.containers[0]);
        assert_eq!(long.len(), "/l/".len() + LONGEST_NAME);
        assert!(long.ends_with(".log"));
    }

    #[test]
    fn links_are_made_in_bounded_batches_and_none_is_lost() {
        let mut due: BTreeMap<String, Arc<str>> = (0..2500).map(|n| (format!("/l/{n:04}"), "/t".into())).collect();
        let taken: Vec<usize> = std::iter::from_fn(|| Some(next_links(&mut due).len()).filter(|n| *n > 0)).collect();
        assert_eq!(taken, [1000, 1000, 500]);
    }
}
