//! Checks on probes: whom they ask, and whom they condemn.

use super::Checks;
use bevy_ecs::prelude::{Entity, World};
use components::edge::cri::ContainerState;
use components::ids::{ContainerId, PodUid};
use components::probes::{ProbeKind, Probes, Verdict};
use components::time::Mono;
use components::world::{Desired, Lifecycle, Observed, PodIndex, Stage};

/// Rule of a stop that a probe brought about.
pub(super) const CONDEMNED: &str = "a probe of it failed too often";

/// An attempt under way at a container that is not known to run, or of a kind that must rest.
pub(super) fn asked_in_vain(world: &World, pod: Entity) -> Option<String> {
    let probes = world.get::<Probes>(pod)?;
    let stage = world.get::<Lifecycle>(pod)?.stage;
    for probe in &probes.list {
        let Some((_, _, target)) = &probe.in_flight else { continue };
        let seen = world.get::<Observed>(pod)?.inspection.as_ref();
        let runs = |c: &components::edge::cri::ContainerStatus| c.id == *target && c.state == ContainerState::Running;
        if !seen.is_some_and(|seen| seen.containers.iter().any(runs)) {
            return Some(format!("container {target} is probed although it does not run"));
        }
        if stage >= Stage::Terminating && probe.kind != ProbeKind::Readiness {
            return Some(format!("{:?} of {target} is asked although its pod ends", probe.kind));
        }
        let started = probes.health(usize::from(probe.container), target).started;
        if probe.on_hold || (probe.kind != ProbeKind::Startup && !started) {
            return Some(format!("{:?} of {target} is asked out of turn", probe.kind));
        }
    }
    None
}

impl Checks {
    /// A container is stopped because of a probe: one must have failed as often as its threshold says.
    pub(super) fn check_condemned(
        &mut self,
        id: &ContainerId,
        uid: &PodUid,
        grace: u32,
        world: Option<&World>,
        now: Mono,
    ) {
        self.protected.remove(id);
        // A stop of the whole pod may come on top of it, with another grace.
        self.graces.remove(id);
        let Some(world) = world else { return };
        let Some(entity) = world.get_resource::<PodIndex>().and_then(|index| index.by_uid.get(uid)).copied() else {
            return;
        };
        let (Some(probes), Some(spec)) =
            (world.get::<Probes>(entity), world.get::<Desired>(entity).and_then(|d| d.spec.as_ref()))
        else {
            return;
        };
        let fits = |probe: &&components::probes::Probe| {
            probe.target.as_ref() == Some(id) && probe.verdict == Verdict::Failed && probe.kind != ProbeKind::Readiness
        };
        let Some(probe) = probes.list.iter().find(fits) else {
            return self.violate(format!("{id} of {uid} is stopped for a probe that has not failed"), now);
        };
        let set = spec
            .containers
            .get(usize::from(probe.container))
            .and_then(|c| c.probes.iter().find(|(kind, _)| *kind == probe.kind).map(|(_, set)| set));
        let Some(set) = set else { return };
        if probe.run.0 || probe.run.1 < set.failures {
            let text = format!("{id} of {uid} is stopped after {} failures of {}", probe.run.1, set.failures);
            self.violate(text, now);
        }
        // Two seconds at least; less than the whole where the end was decided before.
        if grace > set.grace_seconds.unwrap_or(spec.grace_seconds).max(2) {
            self.violate(format!("{id} of {uid} is stopped for a probe with {grace} s of grace"), now);
        }
    }
}
