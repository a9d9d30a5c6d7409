//! A whole pod status from its parts (contract 6.4 to 6.7).

use super::containers::{self, Kept};
use super::{gates, messages, phase};
use crate::restart;
use components::edge::cri::{ContainerState, PodInspection, SandboxState};
use components::edge::sources::Source;
use components::probes::{ContainerHealth, Probes};
use components::resize::ResizeConditions;
use components::spec::{ContainerKind, PodSpec};
use components::status::{Condition, ConditionKind, Phase, PodStatus, ReportedState, WholeResources};
use components::time::Wall;
use components::world::{ContainerRun, EndCause, Flow, Lifecycle, Stage};

/// Reason and message of a pod that was active for too long (contract 6.5).
const DEADLINE: (&str, &str) = ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline");

/// The same of a pod that ended with its node (contract 6.5, 6.7).
const SHUTDOWN: (&str, &str) = ("Terminated", "Pod was terminated in response to imminent node shutdown.");
/// The same of a pod that came too late for that.
const REJECTED: (&str, &str) = ("NodeShutdown", "Pod was rejected as the node is shutting down.");

/// The same of a pod that made way for a critical one, and what its condition says.
const PREEMPTED: (&str, &str) = ("Preempting", "Preempted in order to admit critical pod");
const MADE_WAY: &str = "Pod was preempted by Kubelet to accommodate a critical pod.";

/// Reason and message of a pod that failed because of what ended it.
const fn said_of(cause: EndCause) -> Option<(&'static str, &'static str)> {
    match cause {
        EndCause::DeadlineExceeded => Some(DEADLINE),
        EndCause::NodeShutdown => Some(SHUTDOWN),
        EndCause::ShutdownRejected => Some(REJECTED),
        EndCause::Preempted => Some(PREEMPTED),
        EndCause::Finished
        | EndCause::Removed
        | EndCause::Deleted
        | EndCause::Orphaned
        | EndCause::Drained
        | EndCause::Refused => None,
    }
}

/// What a status is computed from.
pub(super) struct Input<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) life: &'a Lifecycle,
    pub(super) seen: Option<&'a PodInspection>,
    pub(super) flow: &'a Flow,
    pub(super) resize: Option<&'a ResizeConditions>,
    /// Resources of the pod as a whole, where they are shown.
    pub(super) whole: Option<WholeResources>,
    pub(super) runs: &'a [&'a ContainerRun],
    pub(super) probes: &'a Probes,
    /// Since when an earlier run of the agent showed condition `Ready` false, and true.
    pub(super) ready_since: [Option<Wall>; 2],
    /// Statuses of the pod's readiness gates.
    pub(super) gates: &'a [Option<String>],
    pub(super) old: &'a PodStatus,
    pub(super) terminal: Option<bool>,
    /// Reason and message of a pod that the node does not take.
    pub(super) refused: Option<(String, String)>,
    pub(super) runtime: &'a str,
    pub(super) node_ips: &'a [String],
    pub(super) now: Wall,
}

/// Computes the status.
pub(super) fn status(input: &Input<'_>) -> PodStatus {
    let ending = input.life.stage >= Stage::Terminating || input.terminal.is_some();
    let states: Vec<Kept> = input
        .spec
        .containers
        .iter()
        .enumerate()
        .map(|(index, container)| {
            let facts = containers::Facts {
                spec: input.spec,
                seen: input.seen,
                runtime: input.runtime,
                old: old_report(input.old, &container.name),
                ending,
                health: health(input, index, &container.name),
                flow: input.flow,
            };
            containers::report(&facts, container, input.runs.get(index).copied())
        })
        .collect();
    let said = input.life.ending.as_ref().and_then(|ending| said_of(ending.cause));
    let phase = match input.terminal {
        Some(true) => Phase::Succeeded,
        Some(false) => Phase::Failed,
        None if said.is_some() => Phase::Failed,
        None => whole_phase(input, &states),
    };
    let (reason, message) = match (said, phase) {
        (Some((reason, message)), Phase::Failed) => (reason.to_owned(), message.to_owned()),
        // A pod that ended keeps what was said of its end.
        (_, Phase::Failed) => (input.old.reason.clone(), input.old.message.clone()),
        _ => Default::default(),
    };
    let mut out = PodStatus {
        phase,
        reason,
        message,
        host_ip: input.node_ips.join(","),
        pod_ips: ips(input),
        start_time: if input.old.start_time == Wall(0) { input.now.whole_seconds() } else { input.old.start_time },
        qos: input.spec.qos.as_str().to_owned(),
        ..PodStatus::default()
    };
    if let Some((reason, message)) = &input.refused {
        // Nothing of it was ever looked at: it has neither conditions nor containers nor addresses.
        out.reason.clone_from(reason);
        out.message.clone_from(message);
        out.host_ip.clear();
        out.pod_ips.clear();
        return out;
    }
    out.conditions = conditions(input, &states, phase);
    // A pod that has ended is not resized any more.
    let lives = input.life.stage < Stage::Terminated && !phase.is_terminal();
    out.whole = input.whole.clone().map(Box::new);
    out.resize = input.resize.filter(|_| lives).map(|shown| Box::new(shown.clone()));
    for (container, kept) in input.spec.containers.iter().zip(states) {
        match container.kind {
            ContainerKind::Init | ContainerKind::Sidecar => out.init_containers.push(kept.report),
            ContainerKind::Main => out.containers.push(kept.report),
            ContainerKind::Ephemeral => out.ephemeral_containers.push(kept.report),
        }
    }
    messages::limit(&mut out);
    // As upstream's `status_manager.go` does; init containers stay in the order of the spec.
    for list in [&mut out.containers, &mut out.ephemeral_containers] {
        list.sort_by(|a, b| a.name.cmp(&b.name));
    }
    out
}

/// The phase; a terminal one only when nothing can be running or be started.
fn whole_phase(input: &Input<'_>, states: &[Kept]) -> Phase {
    let phase = if input.refused.is_some() { Phase::Failed } else { phase::of(input.spec, states) };
    let unsettled = !input.flow.in_flight.is_empty() || input.seen.is_none();
    let bound = input.spec.source == Source::Api && input.life.stage >= Stage::Terminated;
    if bound && !phase.is_terminal() && input.life.ending.is_some() {
        // Whoever waits for it must see its end; a static pod may begin anew instead.
        return phase::at_end(input.spec, states);
    }
    if phase.is_terminal() && unsettled {
        return if input.old.phase == Phase::Pending { Phase::Pending } else { Phase::Running };
    }
    phase
}

fn health(input: &Input<'_>, index: usize, name: &str) -> ContainerHealth {
    let newest = input.seen.and_then(|seen| seen.containers.iter().find(|c| *c.name == *name));
    newest.map_or(ContainerHealth::WELL, |status| input.probes.health(index, &status.id))
}

fn old_report<'a>(old: &'a PodStatus, name: &str) -> Option<&'a components::status::ContainerReport> {
    old.containers.iter().chain(&old.init_containers).chain(&old.ephemeral_containers).find(|r| *r.name == *name)
}

fn ips(input: &Input<'_>) -> Vec<String> {
    if input.spec.host_network {
        return input.node_ips.to_vec();
    }
    let newest = input.seen.and_then(|seen| seen.sandboxes.first());
    match newest.filter(|s| s.state == SandboxState::Ready && !s.ips.is_empty()) {
        Some(sandbox) => in_order(&sandbox.ips, input.node_ips),
        None => input.old.pod_ips.clone(),
    }
}

/// At most one address of each family, that of the node's first address in front.
pub(crate) fn in_order(ips: &[String], node_ips: &[String]) -> Vec<String> {
    let family = |ip: &String| ip.contains(':');
    let first = node_ips.first().is_some_and(family);
    let of = |wanted: bool| ips.iter().find(|ip| family(ip) == wanted).cloned();
    of(first).into_iter().chain(of(!first)).collect()
}

/// Outcome of one condition: status, reason, message.
type Verdict = (bool, &'static str, String);

fn conditions(input: &Input<'_>, states: &[Kept], phase: Phase) -> Vec<Condition> {
    let ready = containers_ready(input.spec, states, phase);
    let verdicts: [(ConditionKind, Verdict); 5] = [
        (ConditionKind::PodReadyToStartContainers, sandbox_ready(input, phase)),
        (ConditionKind::Initialized, initialized(input.spec, states, phase)),
        (ConditionKind::Ready, gated(input, ready.clone())),
        (ConditionKind::ContainersReady, ready),
        (ConditionKind::PodScheduled, (true, "", String::new())),
    ];
    let restarting = input.seen.and_then(|seen| restart::restart_cause(input.spec, seen)).map(|cause| {
        let message = format!("Container {} exited with code {}, restarting all", cause.name, cause.exit_code);
        (ConditionKind::AllContainersRestarting, (true, "ContainerExited", message))
    });
    let disruption = match input.life.ending.as_ref().map(|ending| ending.cause) {
        Some(EndCause::NodeShutdown) => Some(SHUTDOWN.1),
        Some(EndCause::Preempted) => Some(MADE_WAY),
        _ => None,
    };
    let disrupted =
        disruption.map(|why| (ConditionKind::DisruptionTarget, (true, "TerminationByKubelet", why.to_owned())));
    verdicts
        .into_iter()
        .chain(restarting)
        .chain(disrupted)
        .map(|(kind, (status, reason, message))| {
            let old = input.old.conditions.iter().find(|c| c.kind == kind && c.status == status);
            let since = old.map_or_else(|| since(input, kind, status), |c| c.since);
            Condition { kind, status, reason: reason.to_owned(), message, since }
        })
        .collect()
}

/// When a condition took its status, if it is new to this run of the agent: as an earlier run showed it; else, for what
/// follows from observation alone, when that came about, so that a restart computes the same; else now.
fn since(input: &Input<'_>, kind: ConditionKind, status: bool) -> Wall {
    let serves = matches!(kind, ConditionKind::Ready | ConditionKind::ContainersReady);
    let shown = input.ready_since[usize::from(status)].filter(|_| serves);
    let alone = kind != ConditionKind::Ready || input.spec.readiness_gates.is_empty();
    let seen = input.seen.filter(|_| status && alone && input.probes.list.is_empty());
    let observed = match kind {
        ConditionKind::Ready | ConditionKind::ContainersReady => {
            let running = seen.into_iter().flat_map(|seen| &seen.containers);
            running.filter(|c| c.state == ContainerState::Running).map(|c| c.started_at).max()
        }
        ConditionKind::PodReadyToStartContainers => {
            let newest = input.seen.filter(|_| status).and_then(|seen| seen.sandboxes.first());
            newest.map(|sandbox| sandbox.created_at)
        }
        ConditionKind::Initialized
        | ConditionKind::PodScheduled
        | ConditionKind::AllContainersRestarting
        | ConditionKind::DisruptionTarget => None,
    };
    // A clock that was set back meanwhile must not lead into the future.
    let observed = observed.filter(|at| at.whole_seconds() > Wall(0) && *at <= input.now);
    shown.or(observed).unwrap_or(input.now).whole_seconds()
}

/// Containers that serve are not enough where a gate is closed.
fn gated(input: &Input<'_>, ready: Verdict) -> Verdict {
    match gates::closed(input.spec, input.gates) {
        Some((reason, message)) if ready.0 => (false, reason, message),
        _ => ready,
    }
}

/// As upstream's `PodSandboxChanged` says it.
fn sandbox_ready(input: &Input<'_>, phase: Phase) -> Verdict {
    let sandboxes = input.seen.map(|seen| seen.sandboxes.as_slice()).unwrap_or_default();
    let ready = sandboxes.iter().filter(|s| s.state == SandboxState::Ready).count();
    let trouble = match sandboxes.first() {
        None => "no pod sandbox exists",
        Some(_) if ready > 1 => "multiple pod sandboxes are ready and need to be reconciled",
        Some(newest) if newest.state != SandboxState::Ready => "pod sandbox is not ready",
        Some(newest) if !input.spec.host_network && newest.ips.is_empty() => "pod sandbox has no IP address",
        Some(_) => return (true, "", String::new()),
    };
    // What became of the sandbox of a finished pod is no news: its status stays as it was written.
    let old = input.old.conditions.iter().find(|c| c.kind == ConditionKind::PodReadyToStartContainers);
    let old = old.filter(|c| phase.is_terminal() && input.old.phase == phase && !c.status && !c.message.is_empty());
    (false, "PodSandboxNotReady", old.map_or_else(|| trouble.to_owned(), |c| c.message.clone()))
}

fn initialized(spec: &PodSpec, states: &[Kept], phase: Phase) -> Verdict {
    if phase == Phase::Succeeded {
        return (true, "PodCompleted", String::new());
    }
    let began = |kept: &Kept| !matches!(kept.report.state, ReportedState::Waiting { .. }) || kept.report.last.is_some();
    if spec.containers.iter().zip(states).any(|(c, k)| c.kind == ContainerKind::Main && began(k)) {
        return (true, "", String::new());
    }
    let incomplete = names(spec, states, |kind, kept| match kind {
        ContainerKind::Init => !kept.report.ready,
        ContainerKind::Sidecar => kept.report.started != Some(true),
        ContainerKind::Main | ContainerKind::Ephemeral => false,
    });
    if incomplete.is_empty() {
        return (true, "", String::new());
    }
    (false, "ContainersNotInitialized", format!("containers with incomplete status: [{}]", incomplete.join(" ")))
}

fn containers_ready(spec: &PodSpec, states: &[Kept], phase: Phase) -> Verdict {
    match phase {
        Phase::Succeeded => return (false, "PodCompleted", String::new()),
        Phase::Failed => return (false, "PodFailed", String::new()),
        Phase::Pending | Phase::Running => {}
    }
    let unready = names(spec, states, |kind, kept| match kind {
        ContainerKind::Main | ContainerKind::Sidecar => !kept.report.ready,
        ContainerKind::Init | ContainerKind::Ephemeral => false,
    });
    if unready.is_empty() {
        return (true, "", String::new());
    }
    (false, "ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" ")))
}

fn names<'a>(spec: &'a PodSpec, states: &[Kept], f: impl Fn(ContainerKind, &Kept) -> bool) -> Vec<&'a str> {
    spec.containers.iter().zip(states).filter(|(c, kept)| f(c.kind, kept)).map(|(c, _)| &*c.name).collect()
}
