//! Links to container logs where log collectors look for them (`/var/log/containers`).
//!
//! Reads the inspections of touched pods; writes its own [`Linked`]. A link is made once for each running container
//! that this process sees; links of containers that are gone are collected by `systems::gc`.

use crate::turns::ReclaimTurn;
use bevy_ecs::prelude::*;
use components::edge::cri::{ContainerState, ContainerStatus, PodInspection};
use components::edge::host::HostEffect;
use components::edge::host::reclaim::LinkLogs;
use components::edge::{Effect, Lane, Why};
use components::ids::ContainerId;
use components::node::NodeConfig;
use components::world::Observed;
use engine::{Engine, NewWork, Outbox, Owner, Phase, Touched};
use std::collections::{BTreeMap, BTreeSet};
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

/// Containers whose links were asked for, by pod.
#[derive(Resource, Default, Debug)]
pub(crate) struct Linked(BTreeMap<Entity, BTreeSet<ContainerId>>);

/// The link of a container's log: `POD_NAMESPACE_CONTAINER-ID.log`.
pub(crate) fn path(dir: &str, seen: &PodInspection, container: &ContainerStatus) -> String {
    let mut name = format!("{}_{}_{}-{}", seen.name, seen.namespace, container.name, container.id);
    name.truncate(LONGEST_NAME - ".log".len());
    format!("{dir}/{name}.log")
}

fn link_logs(
    config: Res<NodeConfig>,
    touched: Res<Touched>,
    pods: Query<&Observed>,
    mut linked: ResMut<Linked>,
    mut outbox: ResMut<Outbox>,
) {
    let Some(dir) = &config.reclaim.log_links else { return };
    for pod in touched.iter() {
        let seen = pods.get(pod).ok().and_then(|observed| observed.settled());
        let Some(seen) = seen else { continue };
        let running = || seen.containers.iter().filter(|c| c.state == ContainerState::Running);
        if seen.name.is_empty() || running().next().is_none() {
            linked.0.remove(&pod);
            continue;
        }
        let known = linked.0.entry(pod).or_default();
        known.retain(|id| running().any(|container| container.id == *id));
        let fresh = running().filter(|c| !c.log_path.is_empty() && known.insert(c.id.clone()));
        let links: Vec<_> = fresh.map(|c| (path(dir, seen, c), c.log_path.as_str().into())).collect();
        if !links.is_empty() {
            outbox.emit(NewWork {
                owner: Owner::Node,
                lane: Lane::Free,
                chained: false,
                timeout: TIMEOUT,
                why: Why { system: "links", rule: "log collectors look for logs by pod and container name" },
                effect: Effect::Host(HostEffect::LinkLogs(Box::new(LinkLogs { dir: dir.clone(), links }))),
            });
        }
    }
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
}
