//! What a pod needs next: a pure function of its spec, its inspection and what was tried before.
//!
//! Matches upstream's computation of pod actions (`kuberuntime`): sandbox first, then init containers in order,
//! sidecars, main containers; a changed image or name replaces a container; a lost sandbox starts everything anew.

use components::edge::cri::{ContainerState, ContainerStatus, PodInspection, SandboxState, SandboxStatus};
use components::ids::{ContainerId, SandboxId};
use components::spec::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy};
use components::world::Stage;

/// What to do next for a running pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PodActions {
    /// Containers to stop, with the reason shown to users.
    pub(super) stop: Vec<(ContainerId, String)>,
    /// Sandboxes to stop, once nothing runs in them.
    pub(super) stop_sandboxes: Vec<SandboxId>,
    /// Make a sandbox with this attempt, once everything above is done.
    pub(super) new_sandbox: Option<u32>,
    /// Half-made or surplus containers to remove.
    pub(super) remove: Vec<ContainerId>,
    /// Containers to start in this sandbox, in this order, by index in the spec.
    pub(super) start: Vec<usize>,
    /// The sandbox to start them in.
    pub(super) sandbox: Option<SandboxId>,
}

/// The newest status of a container name, whatever its sandbox.
pub(super) fn newest<'a>(seen: &'a PodInspection, name: &str) -> Option<&'a ContainerStatus> {
    seen.containers.iter().find(|c| &*c.name == name)
}

fn newest_in<'a>(seen: &'a PodInspection, name: &str, sandbox: &SandboxId) -> Option<&'a ContainerStatus> {
    seen.containers.iter().find(|c| &*c.name == name && c.sandbox == *sandbox)
}

/// A container in one of these states may be running code.
pub(super) const fn may_run(state: ContainerState) -> bool {
    matches!(state, ContainerState::Running | ContainerState::Unknown)
}

/// Computes what a pod in stage `Syncing` needs. `in_progress` are containers that are made but not started by us.
/// Of ended instances `kept` stay per container.
pub(super) fn compute(spec: &PodSpec, seen: &PodInspection, in_progress: &[ContainerId], kept: usize) -> PodActions {
    let mut actions = PodActions::default();
    match usable_sandbox(spec, seen) {
        Some(sandbox) => {
            actions.sandbox = Some(sandbox.id.clone());
            within_sandbox(spec, seen, sandbox, (in_progress, kept), &mut actions);
        }
        None => replace_sandbox(spec, seen, &mut actions),
    }
    actions
}

/// The newest sandbox, if containers can be started in it (contract 3.1).
fn usable_sandbox<'a>(spec: &PodSpec, seen: &'a PodInspection) -> Option<&'a SandboxStatus> {
    let newest = seen.sandboxes.first()?;
    let ready = seen.sandboxes.iter().filter(|s| s.state == SandboxState::Ready).count();
    let fits = newest.host_network == spec.host_network && (spec.host_network || !newest.ips.is_empty());
    (ready == 1 && newest.state == SandboxState::Ready && fits).then_some(newest)
}

fn replace_sandbox(spec: &PodSpec, seen: &PodInspection, actions: &mut PodActions) {
    for container in seen.containers.iter().filter(|c| may_run(c.state)) {
        let why = "Pod sandbox changed, it will be killed and re-created.".to_owned();
        actions.stop.push((container.id.clone(), why));
    }
    actions.stop_sandboxes =
        seen.sandboxes.iter().filter(|s| s.state == SandboxState::Ready).map(|s| s.id.clone()).collect();
    if anything_to_start(spec, seen) {
        actions.new_sandbox = Some(seen.sandboxes.first().map_or(0, |s| s.attempt + 1));
    }
}

/// False when every main container has ended for good, so that a sandbox would hold nothing.
fn anything_to_start(spec: &PodSpec, seen: &PodInspection) -> bool {
    if seen.sandboxes.is_empty() {
        return true;
    }
    let mut main = spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
    main.any(|c| match newest(seen, &c.name) {
        None => true,
        Some(status) => restarts(spec, c, status),
    })
}

/// Whether a container that does not run is started (again).
pub(super) fn restarts(spec: &PodSpec, container: &ContainerSpec, status: &ContainerStatus) -> bool {
    if matches!(status.state, ContainerState::Created | ContainerState::Unknown) {
        return true;
    }
    if container.kind == ContainerKind::Sidecar {
        return true;
    }
    match spec.restart_policy {
        RestartPolicy::Always => container.kind != ContainerKind::Init || status.exit_code != 0,
        RestartPolicy::OnFailure => status.exit_code != 0,
        RestartPolicy::Never => false,
    }
}

fn within_sandbox(
    spec: &PodSpec,
    seen: &PodInspection,
    sandbox: &SandboxStatus,
    (in_progress, kept): (&[ContainerId], usize),
    actions: &mut PodActions,
) {
    for stray in seen.containers.iter().filter(|c| may_run(c.state) && c.sandbox != sandbox.id) {
        actions.stop.push((stray.id.clone(), "it belongs to an older sandbox".to_owned()));
    }
    for half in seen.containers.iter().filter(|c| c.state == ContainerState::Created) {
        if !in_progress.contains(&half.id) {
            actions.remove.push(half.id.clone());
        }
    }
    surplus(seen, kept, actions);
    if init_in_order(spec, seen, sandbox, actions) {
        for (index, container) in spec.containers.iter().enumerate() {
            if container.kind == ContainerKind::Main {
                main_container(spec, seen, sandbox, index, actions);
            }
        }
    }
}

/// Ended instances of each name beyond the newest `kept`.
fn surplus(seen: &PodInspection, kept: usize, actions: &mut PodActions) {
    let ended: Vec<_> = seen.containers.iter().filter(|c| c.state == ContainerState::Exited).collect();
    for instances in ended.chunk_by(|a, b| a.name == b.name) {
        actions.remove.extend(instances.iter().skip(kept).map(|container| container.id.clone()));
    }
}

/// Handles init containers and sidecars; true when the main containers may start.
fn init_in_order(spec: &PodSpec, seen: &PodInspection, sandbox: &SandboxStatus, actions: &mut PodActions) -> bool {
    // A main container that was ever made in this sandbox proves that initialisation is done.
    let main = || spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
    let initialized = main().any(|c| newest_in(seen, &c.name, &sandbox.id).is_some());
    for (index, container) in spec.containers.iter().enumerate() {
        let status = newest_in(seen, &container.name, &sandbox.id);
        match container.kind {
            ContainerKind::Sidecar => match status {
                Some(s) if s.state == ContainerState::Running => replace_if_changed(container, s, actions),
                Some(s) if s.state == ContainerState::Unknown => actions.stop.push(unknown(s)),
                _ => {
                    actions.start.push(index);
                    if !initialized {
                        return false;
                    }
                }
            },
            ContainerKind::Init if !initialized => match status {
                Some(s) if s.state == ContainerState::Exited && s.exit_code == 0 => {}
                Some(s) if s.state == ContainerState::Running => return false,
                Some(s) if s.state == ContainerState::Unknown => {
                    actions.stop.push(unknown(s));
                    return false;
                }
                Some(s) if s.state == ContainerState::Exited && !restarts(spec, container, s) => return false,
                _ => {
                    actions.start.push(index);
                    return false;
                }
            },
            _ => {}
        }
    }
    true
}

fn main_container(
    spec: &PodSpec,
    seen: &PodInspection,
    sandbox: &SandboxStatus,
    index: usize,
    actions: &mut PodActions,
) {
    let container = &spec.containers[index];
    // The newest instance counts even from an older sandbox: a container that ended for good stays ended.
    let status = newest_in(seen, &container.name, &sandbox.id).or_else(|| newest(seen, &container.name));
    match status {
        None => actions.start.push(index),
        Some(s) if s.state == ContainerState::Running && s.sandbox == sandbox.id => {
            replace_if_changed(container, s, actions);
        }
        // Stopped above, as a stray of an older sandbox.
        Some(s) if s.state == ContainerState::Running => {}
        Some(s) if s.state == ContainerState::Unknown => actions.stop.push(unknown(s)),
        Some(s) if restarts(spec, container, s) => actions.start.push(index),
        Some(_) => {}
    }
}

fn replace_if_changed(container: &ContainerSpec, status: &ContainerStatus, actions: &mut PodActions) {
    if status.hash.is_some_and(|hash| hash != container.hash) {
        let why = format!("Container {} definition changed, will be restarted", container.name);
        actions.stop.push((status.id.clone(), why));
    }
}

fn unknown(status: &ContainerStatus) -> (ContainerId, String) {
    (status.id.clone(), format!("Container {} is in unknown state, try killing it before restart", status.name))
}

/// Containers that may be running in a pod that ends, and its sandboxes not known to be stopped.
pub(super) fn to_stop(seen: &PodInspection, stage: Stage) -> Vec<&ContainerStatus> {
    if stage == Stage::Syncing {
        return Vec::new();
    }
    seen.containers.iter().filter(|c| may_run(c.state)).collect()
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
