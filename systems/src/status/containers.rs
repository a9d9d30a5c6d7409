//! Container statuses (contract 6.7).

use super::sizes;
use crate::restart;
use components::edge::cri::{ContainerState, ContainerStatus, PodInspection};
use components::hooks::HookKind;
use components::probes::ContainerHealth;
use components::spec::{ContainerKind, ContainerSpec, PodSpec};
use components::status::{ContainerReport, ReportedState};
use components::time::Wall;
use components::world::{ContainerRun, Flow};

/// Exit code and reason of what is removed because all containers restart.
pub(super) const RESTARTING: &str = "RestartingAllContainers";

/// A container's report.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) report: ContainerReport,
    /// It ended because it is replaced: its exit code says nothing of the pod.
    pub(super) replaced: bool,
}

/// Coarse state that phase and conditions branch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StateKind {
    /// Waiting; with the exit code of the instance before, if there was one.
    Waiting {
        ended_before: Option<i32>,
    },
    Running,
    Ended {
        exit_code: i32,
    },
}

impl Kept {
    /// It was removed because all containers restart, and is made again.
    pub(super) fn is_restarting(&self) -> bool {
        matches!(&self.report.state, ReportedState::Terminated { reason, .. } if reason == RESTARTING)
    }

    pub(super) fn kind(&self) -> StateKind {
        match &self.report.state {
            ReportedState::Running { .. } => StateKind::Running,
            ReportedState::Terminated { exit_code, .. } => StateKind::Ended { exit_code: *exit_code },
            ReportedState::Waiting { .. } => {
                let before = match &self.report.last {
                    Some(ReportedState::Terminated { exit_code, .. }) => Some(*exit_code),
                    _ => None,
                };
                StateKind::Waiting { ended_before: before }
            }
        }
    }
}

/// What a report is made from.
pub(super) struct Facts<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) seen: Option<&'a PodInspection>,
    pub(super) runtime: &'a str,
    /// The report before this one.
    pub(super) old: Option<&'a ContainerReport>,
    /// The pod was decided to be over.
    pub(super) ending: bool,
    /// What probes say, given that the container runs.
    pub(super) health: ContainerHealth,
    /// What is under way.
    pub(super) flow: &'a Flow,
}

/// The report of one container.
pub(super) fn report(facts: &Facts<'_>, container: &ContainerSpec, run: Option<&ContainerRun>) -> Kept {
    let instances = instances(facts, container);
    let newest = instances.first().copied();
    let mut report = blank(facts, container);
    match newest {
        None => lost(facts, container, &mut report),
        Some(newest) => {
            // Never fewer than were shown: instances go away one by one when a pod is removed. One that runs is right
            // by itself: the count begins anew when the runtime and the logs have lost everything before it.
            let shown = facts.old.map_or(0, |old| old.restart_count);
            let runs = newest.state == ContainerState::Running;
            report.restart_count = if runs { newest.restart_count } else { newest.restart_count.max(shown) };
            report.container_id = id(facts.runtime, newest);
            if !newest.image.is_empty() {
                report.image.clone_from(&newest.image);
            }
            report.image_id.clone_from(&newest.image_ref);
            report.user.clone_from(&newest.user);
            report.actual = sizes::actual(facts.spec, container, newest, run.and_then(|run| run.size)).map(Box::new);
            report.state = state(facts, newest);
            report.last = instances.get(1).filter(|i| i.state == ContainerState::Exited).map(|i| state(facts, i));
            if report.last.is_none() {
                report.last = facts.old.and_then(|old| before(old, &report.container_id));
            }
        }
    }
    let running = matches!(report.state, ReportedState::Running { .. });
    let replaced = !running
        && !facts.ending
        && run.is_some_and(|run| run.replaced.is_some() && run.replaced.as_ref() == newest.map(|n| &n.id));
    waiting_again(facts, container, (run, replaced), &mut report);
    hooked(facts, container, newest, &mut report);
    flags(facts, container, &mut report);
    Kept { report, replaced }
}

/// What an earlier report says of the instance before `id`.
fn before(old: &ContainerReport, id: &str) -> Option<ReportedState> {
    let ended = |state: &&ReportedState| matches!(state, ReportedState::Terminated { .. });
    if old.container_id == id {
        old.last.clone()
    } else {
        Some(&old.state).filter(ended).or(old.last.as_ref()).cloned()
    }
}

fn instances<'a>(facts: &Facts<'a>, container: &ContainerSpec) -> Vec<&'a ContainerStatus> {
    let all = facts.seen.map(|seen| seen.containers.as_slice()).unwrap_or_default();
    all.iter().filter(|c| c.name == container.name && c.state != ContainerState::Created).collect()
}

fn blank(facts: &Facts<'_>, container: &ContainerSpec) -> ContainerReport {
    let has_init = facts.spec.containers.iter().any(|c| matches!(c.kind, ContainerKind::Init | ContainerKind::Sidecar));
    let reason = if has_init { "PodInitializing" } else { "ContainerCreating" };
    ContainerReport {
        name: std::sync::Arc::clone(&container.name),
        state: ReportedState::Waiting { reason: reason.to_owned(), message: String::new() },
        last: None,
        ready: false,
        started: None,
        restart_count: 0,
        image: container.image.to_string(),
        image_id: String::new(),
        container_id: String::new(),
        user: None,
        actual: None,
    }
}

/// The runtime has no instance: what was known is kept, one that ran is reported as lost.
fn lost(facts: &Facts<'_>, container: &ContainerSpec, report: &mut ContainerReport) {
    if container.kind == ContainerKind::Init && initialized(facts) && !facts.old.is_some_and(has_ended) {
        let message = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";
        report.state = gone(0, "Completed", message, "");
        return;
    }
    let Some(old) = facts.old else { return };
    let restarting = facts.seen.is_some_and(|seen| restart::restart_cause(facts.spec, seen).is_some());
    if restarting && !matches!(old.state, ReportedState::Waiting { .. }) && container.kind != ContainerKind::Ephemeral {
        report.clone_from(old);
        let message = "The container is removed because RestartAllContainers in place";
        report.state = gone(137, RESTARTING, message, &old.container_id);
        return;
    }
    match &old.state {
        ReportedState::Terminated { .. } => report.clone_from(old),
        ReportedState::Running { .. } => {
            let message = if facts.ending {
                "The container could not be located when the pod was terminated"
            } else {
                "The container could not be located when the pod was deleted.  The container used to be Running"
            };
            let gone = gone(137, "ContainerStatusUnknown", message, &old.container_id);
            let never = container.kind != ContainerKind::Init && !restart::restarts(facts.spec, container, 137);
            if facts.ending || never {
                report.clone_from(old);
                report.state = gone;
            } else {
                report.last = Some(gone);
                report.restart_count = old.restart_count + 1;
            }
        }
        ReportedState::Waiting { .. } => {
            report.last.clone_from(&old.last);
            report.restart_count = old.restart_count;
        }
    }
}

/// A main container that was ever made proves that the init containers are done.
fn initialized(facts: &Facts<'_>) -> bool {
    let main = |name: &str| facts.spec.containers.iter().any(|c| *c.name == *name && c.kind == ContainerKind::Main);
    let newest = facts.seen.and_then(|seen| seen.sandboxes.first()).map(|s| &s.id);
    let made = |c: &ContainerStatus| Some(&c.sandbox) == newest && main(&c.name);
    facts.seen.is_some_and(|seen| seen.containers.iter().any(made))
}

const fn has_ended(old: &ContainerReport) -> bool {
    matches!(old.state, ReportedState::Terminated { .. })
}

fn gone(exit_code: i32, reason: &str, message: &str, id: &str) -> ReportedState {
    ReportedState::Terminated {
        exit_code,
        reason: reason.to_owned(),
        message: message.to_owned(),
        started_at: Wall(0),
        finished_at: Wall(0),
        container_id: id.to_owned(),
    }
}

/// An ended container that is to run again waits; the ended state becomes the last one.
fn waiting_again(
    facts: &Facts<'_>,
    container: &ContainerSpec,
    (run, replaced): (Option<&ContainerRun>, bool),
    report: &mut ContainerReport,
) {
    if matches!(report.state, ReportedState::Running { .. }) || facts.ending {
        return;
    }
    // The API takes no way back from an end that the policy makes final: an instance that is replaced waits at once.
    let waiting = run.and_then(|run| run.waiting.as_ref()).map(|(reason, message)| (*reason, message.as_str()));
    let Some((reason, message)) = waiting.or(replaced.then_some(("ContainerCreating", ""))) else { return };
    if let ReportedState::Terminated { exit_code, .. } = &report.state {
        if !replaced && !restart::restarts(facts.spec, container, *exit_code) {
            return;
        }
        report.last = Some(report.state.clone());
    }
    report.state = ReportedState::Waiting { reason: reason.to_owned(), message: message.to_owned() };
}

/// A container counts as running only once the hook that follows its start is over.
fn hooked(
    facts: &Facts<'_>,
    container: &ContainerSpec,
    newest: Option<&ContainerStatus>,
    report: &mut ContainerReport,
) {
    let hook = newest.and_then(|status| facts.flow.hooks.get(&status.id));
    let pending = hook.is_some_and(|hook| hook.kind == HookKind::PostStart && hook.state.is_pending());
    if pending && matches!(report.state, ReportedState::Running { .. }) {
        report.state = blank(facts, container).state;
    }
}

fn flags(facts: &Facts<'_>, container: &ContainerSpec, report: &mut ContainerReport) {
    if container.kind == ContainerKind::Ephemeral {
        // Nobody asks whether it serves.
        (report.started, report.ready) = (None, false);
        return;
    }
    let running = matches!(report.state, ReportedState::Running { .. });
    report.started = Some(running && facts.health.started);
    report.ready = match container.kind {
        ContainerKind::Init => matches!(report.state, ReportedState::Terminated { exit_code: 0, .. }),
        _ => running && facts.health.ready,
    };
}

fn id(runtime: &str, status: &ContainerStatus) -> String {
    format!("{runtime}://{}", status.id)
}

fn state(facts: &Facts<'_>, status: &ContainerStatus) -> ReportedState {
    match status.state {
        ContainerState::Running => ReportedState::Running { started_at: status.started_at.whole_seconds() },
        ContainerState::Exited => ReportedState::Terminated {
            exit_code: status.exit_code,
            reason: status.reason.clone(),
            message: status.message.clone(),
            started_at: status.started_at.whole_seconds(),
            finished_at: status.finished_at.whole_seconds(),
            container_id: id(facts.runtime, status),
        },
        ContainerState::Created | ContainerState::Unknown => {
            ReportedState::Waiting { reason: "ContainerCreating".to_owned(), message: String::new() }
        }
    }
}
