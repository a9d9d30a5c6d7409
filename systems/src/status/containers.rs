//! Container statuses (contract 6.7).

use components::edge::cri::{ContainerState, ContainerStatus, PodInspection};
use components::probes::ContainerHealth;
use components::spec::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy};
use components::status::{ContainerReport, ReportedState};
use components::time::Wall;
use components::world::ContainerRun;

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
}

/// The report of one container.
pub(super) fn report(facts: &Facts<'_>, container: &ContainerSpec, run: Option<&ContainerRun>) -> Kept {
    let instances = instances(facts, container);
    let newest = instances.first().copied();
    let mut report = blank(facts, container);
    match newest {
        None => lost(facts, container, &mut report),
        Some(newest) => {
            // Never fewer than were shown: instances go away one by one when a pod is removed.
            report.restart_count = newest.restart_count.max(facts.old.map_or(0, |old| old.restart_count));
            report.container_id = id(facts.runtime, newest);
            if !newest.image.is_empty() {
                report.image.clone_from(&newest.image);
            }
            report.image_id.clone_from(&newest.image_ref);
            report.user.clone_from(&newest.user);
            report.state = state(facts, newest);
            report.last = instances.get(1).filter(|i| i.state == ContainerState::Exited).map(|i| state(facts, i));
            if report.last.is_none() {
                report.last =
                    facts.old.filter(|old| old.container_id == report.container_id).and_then(|old| old.last.clone());
            }
        }
    }
    let running = matches!(report.state, ReportedState::Running { .. });
    let replaced = !running
        && !facts.ending
        && run.is_some_and(|run| run.replaced.is_some() && run.replaced.as_ref() == newest.map(|n| &n.id));
    waiting_again(facts, container, (run, replaced), &mut report);
    flags(facts, container, &mut report);
    Kept { report, replaced }
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
    }
}

/// The runtime has no instance: what was known is kept, one that ran is reported as lost.
fn lost(facts: &Facts<'_>, container: &ContainerSpec, report: &mut ContainerReport) {
    let Some(old) = facts.old else { return };
    match &old.state {
        ReportedState::Terminated { .. } => report.clone_from(old),
        ReportedState::Running { .. } => {
            let message = if facts.ending {
                "The container could not be located when the pod was terminated"
            } else {
                "The container could not be located when the pod was deleted.  The container used to be Running"
            };
            let gone = ReportedState::Terminated {
                exit_code: 137,
                reason: "ContainerStatusUnknown".to_owned(),
                message: message.to_owned(),
                started_at: Wall(0),
                finished_at: Wall(0),
                container_id: old.container_id.clone(),
            };
            let never = facts.spec.restart_policy == RestartPolicy::Never && container.kind == ContainerKind::Main;
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
    let Some((reason, message)) = run.and_then(|run| run.waiting.as_ref()) else { return };
    if let ReportedState::Terminated { exit_code, .. } = &report.state {
        let again = match (container.kind, facts.spec.restart_policy) {
            _ if replaced => true,
            (ContainerKind::Sidecar, _) => true,
            (ContainerKind::Init, RestartPolicy::Always) | (_, RestartPolicy::OnFailure) => *exit_code != 0,
            (_, RestartPolicy::Always) => true,
            (_, RestartPolicy::Never) => false,
        };
        if !again {
            return;
        }
        report.last = Some(report.state.clone());
    }
    report.state = ReportedState::Waiting { reason: (*reason).to_owned(), message: message.clone() };
}

fn flags(facts: &Facts<'_>, container: &ContainerSpec, report: &mut ContainerReport) {
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
