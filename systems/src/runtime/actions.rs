//! What a pod needs next: a pure function of its spec, its inspection and what was tried before.
//!
//! Matches upstream's computation of pod actions (`kuberuntime`): sandbox first, then init containers in order,
//! sidecars, main containers; a changed image or name replaces a container; a lost sandbox starts everything anew.

use crate::restart;
use components::edge::cri::{ContainerState, ContainerStatus, PodInspection, SandboxState, SandboxStatus};
use components::ids::{ContainerId, SandboxId};
use components::probes::{ContainerHealth, ProbeKind};
use components::spec::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy};

/// What to do next for a running pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PodActions {
    /// Containers to stop, with the reason shown to users.
    pub(super) stop: Vec<(ContainerId, String)>,
    /// Those of them that a failed probe condemns, with the probe.
    pub(super) condemned: Vec<(ContainerId, usize, ProbeKind)>,
    /// Those of them whose successor is started whatever their exit code will say.
    pub(super) replaced: Vec<(ContainerId, usize)>,
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
    /// Stops keep the order of a pod that ends: everything is stopped.
    pub(super) stop_in_order: bool,
    /// An ended container restarts all: everything is stopped without a grace period and removed.
    pub(super) restart_all: bool,
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

/// What is known of a pod's containers besides what the runtime shows.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    /// Containers that are made but not started by us.
    pub(super) in_progress: &'a [ContainerId],
    /// What probes say of the newest instance of each container, by index; well when missing.
    pub(super) health: &'a [ContainerHealth],
    /// Instances that were stopped to be replaced.
    pub(super) replaced: &'a [ContainerId],
    /// Instances that are restarted to get other resources.
    pub(super) resized: &'a [ContainerId],
    /// Ended instances that stay per container.
    pub(super) kept: usize,
}

impl Default for Known<'_> {
    fn default() -> Self {
        Self { in_progress: &[], health: &[], replaced: &[], resized: &[], kept: 1 }
    }
}

impl Known<'_> {
    fn health(&self, index: usize) -> ContainerHealth {
        self.health.get(index).copied().unwrap_or(ContainerHealth::WELL)
    }

    /// Whether a container that does not run is started (again).
    fn restarts(&self, spec: &PodSpec, container: &ContainerSpec, status: &ContainerStatus) -> bool {
        restarts(spec, container, status) || self.replaced.contains(&status.id)
    }
}

/// Computes what a pod in stage `Syncing` needs.
pub(super) fn compute(spec: &PodSpec, seen: &PodInspection, known: Known<'_>) -> PodActions {
    let mut actions = PodActions::default();
    match usable_sandbox(spec, seen) {
        Some(sandbox) => {
            actions.sandbox = Some(sandbox.id.clone());
            within_sandbox(spec, seen, sandbox, known, &mut actions);
        }
        None => replace_sandbox(spec, seen, known, &mut actions),
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

fn replace_sandbox(spec: &PodSpec, seen: &PodInspection, known: Known<'_>, actions: &mut PodActions) {
    for container in seen.containers.iter().filter(|c| may_run(c.state)) {
        let why = "Pod sandbox changed, it will be killed and re-created.".to_owned();
        actions.stop.push((container.id.clone(), why));
    }
    actions.stop_in_order = true;
    actions.stop_sandboxes =
        seen.sandboxes.iter().filter(|s| s.state == SandboxState::Ready).map(|s| s.id.clone()).collect();
    if anything_to_start(spec, seen, known) {
        actions.new_sandbox = Some(seen.sandboxes.first().map_or(0, |s| s.attempt + 1));
    }
}

/// False when every main container has ended for good, so that a sandbox would hold nothing.
fn anything_to_start(spec: &PodSpec, seen: &PodInspection, known: Known<'_>) -> bool {
    if seen.sandboxes.is_empty() {
        return true;
    }
    let mut main = spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
    main.any(|c| match newest(seen, &c.name) {
        None => true,
        Some(status) => known.restarts(spec, c, status),
    })
}

/// Whether a container that does not run is started (again).
pub(super) fn restarts(spec: &PodSpec, container: &ContainerSpec, status: &ContainerStatus) -> bool {
    if matches!(status.state, ContainerState::Created | ContainerState::Unknown) {
        return true;
    }
    restart::restarts(spec, container, status.exit_code)
}

fn within_sandbox(
    spec: &PodSpec,
    seen: &PodInspection,
    sandbox: &SandboxStatus,
    known: Known<'_>,
    actions: &mut PodActions,
) {
    if restart_all(spec, seen, actions) {
        return;
    }
    for stray in seen.containers.iter().filter(|c| may_run(c.state) && c.sandbox != sandbox.id) {
        actions.stop.push((stray.id.clone(), "it belongs to an older sandbox".to_owned()));
    }
    for half in seen.containers.iter().filter(|c| c.state == ContainerState::Created) {
        if !known.in_progress.contains(&half.id) {
            actions.remove.push(half.id.clone());
        }
    }
    surplus(seen, known.kept, actions);
    if init_in_order(spec, seen, sandbox, known, actions) {
        for (index, container) in spec.containers.iter().enumerate() {
            if container.kind == ContainerKind::Main {
                main_container(spec, seen, sandbox, (index, known), actions);
            }
        }
        if !any_main_goes_on(spec, seen, actions) {
            // The last of them may still be stopping: nothing is started beside it that would end with it.
            actions.start.retain(|index| spec.containers[*index].kind != ContainerKind::Sidecar);
        }
    }
    for (index, container) in spec.containers.iter().enumerate() {
        // Whatever the others do, and once in the pod's life. One that we made is still to be started.
        let made = |status: &ContainerStatus| known.in_progress.contains(&status.id);
        if container.kind == ContainerKind::Ephemeral && newest(seen, &container.name).is_none_or(made) {
            actions.start.push(index);
        }
    }
}

/// Whether a main container runs and stays, or is about to run.
fn any_main_goes_on(spec: &PodSpec, seen: &PodInspection, actions: &PodActions) -> bool {
    let stops = |status: &ContainerStatus| actions.stop.iter().any(|(id, _)| *id == status.id);
    let mut main = spec.containers.iter().enumerate().filter(|(_, c)| c.kind == ContainerKind::Main);
    main.any(|(index, container)| {
        let comes = actions.start.contains(&index) || actions.replaced.iter().any(|(_, replaced)| *replaced == index);
        comes
            || newest(seen, &container.name).is_some_and(|s| match s.state {
                ContainerState::Running => !stops(s),
                ContainerState::Unknown => true,
                ContainerState::Created | ContainerState::Exited => false,
            })
    })
}

/// An end that restarts all of the pod in its sandbox: what runs is stopped, then everything is removed, the instance
/// that says so last. True while there is one.
fn restart_all(spec: &PodSpec, seen: &PodInspection, actions: &mut PodActions) -> bool {
    let cause = restart::restart_cause(spec, seen);
    let Some(cause) = cause else { return false };
    actions.restart_all = true;
    let ephemeral = |name: &str| spec.containers.iter().any(|c| *c.name == *name && c.kind == ContainerKind::Ephemeral);
    for container in seen.containers.iter().filter(|c| !ephemeral(&c.name) && c.id != cause.id) {
        if may_run(container.state) {
            let why = "it restarts with all containers of its pod".to_owned();
            actions.stop.push((container.id.clone(), why));
        } else {
            actions.remove.push(container.id.clone());
        }
    }
    if actions.stop.is_empty() && actions.remove.is_empty() {
        actions.remove.push(cause.id.clone());
    }
    true
}

/// Ended instances of each name beyond the newest `kept`.
fn surplus(seen: &PodInspection, kept: usize, actions: &mut PodActions) {
    let ended: Vec<_> = seen.containers.iter().filter(|c| c.state == ContainerState::Exited).collect();
    for instances in ended.chunk_by(|a, b| a.name == b.name) {
        actions.remove.extend(instances.iter().skip(kept).map(|container| container.id.clone()));
    }
}

/// Handles init containers and sidecars; true when the main containers may start.
fn init_in_order(
    spec: &PodSpec,
    seen: &PodInspection,
    sandbox: &SandboxStatus,
    known: Known<'_>,
    actions: &mut PodActions,
) -> bool {
    // A main container that was ever made in this sandbox proves that initialisation is done.
    let main = || spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
    let initialized = main().any(|c| newest_in(seen, &c.name, &sandbox.id).is_some());
    for (index, container) in spec.containers.iter().enumerate() {
        let status = newest_in(seen, &container.name, &sandbox.id);
        match container.kind {
            ContainerKind::Sidecar => match status {
                Some(s) if s.state == ContainerState::Running => {
                    keep_or_replace(spec, (index, known), s, actions);
                    if !initialized && !known.health(index).started {
                        // Its startup probe and its postStart hook let the next one begin.
                        return false;
                    }
                }
                Some(s) if s.state == ContainerState::Unknown => {
                    actions.stop.push(unknown(s));
                    if !initialized {
                        return false;
                    }
                }
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
                Some(s) if s.state == ContainerState::Exited && !known.restarts(spec, container, s) => return false,
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
    (index, known): (usize, Known<'_>),
    actions: &mut PodActions,
) {
    let container = &spec.containers[index];
    // The newest instance counts even from an older sandbox: a container that ended for good stays ended.
    let status = newest_in(seen, &container.name, &sandbox.id).or_else(|| newest(seen, &container.name));
    match status {
        None => actions.start.push(index),
        Some(s) if s.state == ContainerState::Running && s.sandbox == sandbox.id => {
            keep_or_replace(spec, (index, known), s, actions);
        }
        // Stopped above, as a stray of an older sandbox.
        Some(s) if s.state == ContainerState::Running => {}
        Some(s) if s.state == ContainerState::Unknown => actions.stop.push(unknown(s)),
        Some(s) if known.restarts(spec, container, s) => actions.start.push(index),
        Some(_) => {}
    }
}

/// Stops a running container whose definition changed, or which a probe condemns.
fn keep_or_replace(
    spec: &PodSpec,
    (index, known): (usize, Known<'_>),
    status: &ContainerStatus,
    actions: &mut PodActions,
) {
    let container = &spec.containers[index];
    if status.hash.is_some_and(|hash| hash != container.hash) {
        let why = format!("Container {} definition changed, will be restarted", container.name);
        actions.stop.push((status.id.clone(), why));
        actions.replaced.push((status.id.clone(), index));
        return;
    }
    let Some(probe) = known.health(index).condemned else {
        if known.resized.contains(&status.id) {
            actions.stop.push((status.id.clone(), format!("Container {} resize requires restart", container.name)));
            actions.replaced.push((status.id.clone(), index));
        }
        return;
    };
    let mut why = format!("Container {} failed {} probe", container.name, probe.as_str().to_lowercase());
    let policy = container.lifecycle.restart_policy.unwrap_or(spec.restart_policy);
    if container.kind == ContainerKind::Sidecar || policy != RestartPolicy::Never {
        why.push_str(", will be restarted");
        actions.replaced.push((status.id.clone(), index));
    }
    actions.stop.push((status.id.clone(), why));
    actions.condemned.push((status.id.clone(), index, probe));
}

fn unknown(status: &ContainerStatus) -> (ContainerId, String) {
    (status.id.clone(), format!("Container {} is in unknown state, try killing it before restart", status.name))
}

/// Containers of a pod that ends which may be running.
pub(super) fn to_stop(seen: &PodInspection) -> Vec<&ContainerStatus> {
    seen.containers.iter().filter(|c| may_run(c.state)).collect()
}

#[cfg(test)]
#[path = "actions_tests.rs"]
mod tests;
