//! Emitting one work of a pod and remembering it as a step under way.

use bevy_ecs::prelude::Entity;
use components::edge::{Effect, Lane, Why};
use components::fnv::fnv1a_32;
use components::ids::PodUid;
use components::world::{Flow, Step};
use engine::{NewWork, Outbox, Owner};
use std::time::Duration;

/// Longest image pull; upstream sets no bound, but every wait needs one.
pub(super) const PULL_TIMEOUT: Duration = Duration::from_secs(3600);
/// Longest time for files, mounts and cgroups.
pub(super) const HOST_TIMEOUT: Duration = Duration::from_secs(60);

/// The pod for which works are emitted.
pub(super) struct Emitter<'a> {
    pub(super) pod: Entity,
    pub(super) uid: &'a PodUid,
    pub(super) outbox: &'a mut Outbox,
}

/// One work, before it is emitted.
pub(super) struct Next {
    pub(super) step: Step,
    pub(super) effect: Effect,
    pub(super) timeout: Duration,
    pub(super) chained: bool,
    pub(super) rule: &'static str,
}

impl Emitter<'_> {
    /// Emits the work in the strand of its step.
    pub(super) fn emit(&mut self, flow: &mut Flow, next: Next) {
        let ticket = self.outbox.emit(NewWork {
            owner: Owner::Pod(self.pod),
            lane: Lane::Pod { uid: self.uid.clone(), strand: strand(&next.step) },
            chained: next.chained,
            timeout: next.timeout,
            why: Why { system: "runtime", rule: next.rule },
            effect: next.effect,
        });
        flow.in_flight.push((ticket, next.step));
    }
}

/// Strands of volumes begin here; a pod has fewer containers.
const VOLUME_STRANDS: u16 = 0x2000;

/// The strand of resizes; a pod has fewer containers.
const RESIZE_STRAND: u16 = 0x1fff;

/// Strand 0 is the pod's; each volume has its own; a container's start has its own; stops, removals and hooks have one
/// each, so that they run in parallel and overtake a start that hangs.
fn strand(step: &Step) -> u16 {
    match step {
        Step::PreparePod | Step::RunSandbox | Step::StopSandbox(_) | Step::RemoveSandbox(_) | Step::CleanPod(_) => 0,
        Step::FindImage(i)
        | Step::WriteIntent(i)
        | Step::CompareLogins(i)
        | Step::PullImage(i)
        | Step::PrepareContainer(i)
        | Step::ReadEnvFiles(i)
        | Step::CreateContainer(i)
        | Step::StartContainer(i, _) => i.saturating_add(1),
        Step::LimitPod(_) | Step::UpdateContainer(..) | Step::ReadMemory => RESIZE_STRAND,
        Step::SetUpVolume(i) | Step::FindVolumeImage(i) | Step::WriteVolumeIntent(i) | Step::PullVolumeImage(i) => {
            VOLUME_STRANDS | (i & (VOLUME_STRANDS - 1))
        }
        Step::StopContainer(id) | Step::RemoveContainer(id) | Step::RemoveLogs(id) => 0x8000 | hash(id.as_str()),
        // A hook may go on while its container is told to stop.
        Step::RunHook(_, id, _) => 0x4000 | (hash(id.as_str()) & 0x3fff),
    }
}

fn hash(text: &str) -> u16 {
    u16::try_from(fnv1a_32(text.as_bytes()) & 0x7fff).unwrap_or_default()
}

/// True for steps of a container's start.
pub(super) const fn starts_container(step: &Step) -> bool {
    matches!(
        step,
        Step::FindImage(_)
            | Step::PullImage(_)
            | Step::PrepareContainer(_)
            | Step::ReadEnvFiles(_)
            | Step::CreateContainer(_)
            | Step::StartContainer(_, _)
            | Step::FindVolumeImage(_)
            | Step::PullVolumeImage(_)
            | Step::WriteIntent(_)
            | Step::WriteVolumeIntent(_)
            | Step::CompareLogins(_)
    )
}

/// True for steps of the pod as a whole, during which nothing else is decided.
pub(super) const fn whole_pod(step: &Step) -> bool {
    matches!(
        step,
        Step::PreparePod | Step::RunSandbox | Step::StopSandbox(_) | Step::RemoveSandbox(_) | Step::CleanPod(_)
    )
}
