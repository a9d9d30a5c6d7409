//! Order within a pod: init containers one after the other and before what follows, sidecars before what follows; at the
//! end the main containers first, then sidecars from the last to the first.

use super::Checks;
use super::wanted::Role;
use crate::runtime::Runtime;
use crate::runtime::model::Container;
use bevy_ecs::prelude::World;
use components::edge::cri::ContainerState;
use components::ids::{ContainerId, PodUid};
use components::time::Mono;
use components::world::{Lifecycle, PodIndex};

/// A stop with no more than this is past the pod's grace period: then the rest dies together.
const PAST_GRACE: u32 = 2;

impl Checks {
    /// A container is about to be started.
    pub(super) fn check_start_order(&mut self, container: &Container, runtime: &Runtime, now: Mono) {
        if container.state != ContainerState::Created {
            return;
        }
        let Some(order) = self.wanted.order(&container.pod).map(<[(String, Role)]>::to_vec) else { return };
        let name = &container.request.name;
        let Some(at) = order.iter().position(|(n, _)| n == name) else { return };
        let role = order[at].1;
        let beside = || {
            let others = runtime.containers_of(&container.pod).filter(|c| c.id != container.id);
            others.filter(|c| c.sandbox == container.sandbox)
        };
        let role_of = |c: &Container| order.iter().find(|(n, _)| *n == c.request.name).map(|(_, role)| *role);
        if role != Role::Sidecar
            && let Some(init) = beside().find(|c| role_of(c) == Some(Role::Init) && runtime.is_running(&c.id))
        {
            let text = format!("{name} of {} starts beside init container {}", container.pod, init.request.name);
            self.violate(text, now);
        }
        // A main container of the sandbox proves that initialisation is done.
        if beside().any(|c| role_of(c) == Some(Role::Main)) {
            if role == Role::Init {
                let text =
                    format!("init container {name} of {} runs again although the pod is initialised", container.pod);
                self.violate(text, now);
            }
            return;
        }
        let before = if role == Role::Main { order.len() } else { at };
        for (earlier, kind) in order[..before].iter().filter(|(_, kind)| *kind != Role::Main) {
            let mut instances = beside().filter(|c| c.request.name == *earlier);
            let through = match kind {
                Role::Init => instances.any(|c| c.state == ContainerState::Exited && c.exit_code == 0),
                _ => instances.any(|c| c.state != ContainerState::Created),
            };
            if !through {
                let text = format!("{name} of {} starts before {earlier}", container.pod);
                self.violate(text, now);
            }
        }
    }

    /// A container is told to stop for the first time.
    pub(super) fn check_stop_order(
        &mut self,
        id: &ContainerId,
        uid: &PodUid,
        grace_seconds: u32,
        world: &World,
        runtime: &Runtime,
        now: Mono,
    ) {
        let entity = world.get_resource::<PodIndex>().and_then(|index| index.by_uid.get(uid).copied());
        let ends = entity.and_then(|e| world.get::<Lifecycle>(e)).is_some_and(|life| life.ending.is_some());
        let Some(container) = runtime.containers().get(id).filter(|_| ends && grace_seconds > PAST_GRACE) else {
            return;
        };
        let Some(order) = self.wanted.order(uid).map(<[(String, Role)]>::to_vec) else { return };
        let place = |name: &str| order.iter().position(|(n, _)| n == name);
        let Some(at) = place(&container.request.name).filter(|at| order[*at].1 == Role::Sidecar) else { return };
        let goes_before = |c: &Container| {
            place(&c.request.name).is_some_and(|other| match order[other].1 {
                Role::Main => true,
                Role::Sidecar => other > at,
                Role::Init => false,
            })
        };
        let lives = |c: &Container| runtime.is_running(&c.id) && !self.started_late.contains(&c.id);
        if let Some(other) = runtime.containers_of(uid).find(|c| lives(c) && goes_before(c)) {
            let (name, other) = (&container.request.name, &other.request.name);
            self.violate(format!("sidecar {name} of {uid} is stopped while {other} runs"), now);
        }
    }
}
