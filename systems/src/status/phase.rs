//! The pod's phase from its containers' states (contract 6.5).

use super::containers::{Kept, StateKind};
use crate::restart;
use components::spec::{ContainerKind, PodSpec};
use components::status::Phase;

/// Computes the phase. Terminal phases that were reached before are the caller's business.
pub(super) fn of(spec: &PodSpec, states: &[Kept]) -> Phase {
    if let Some(phase) = before_main(spec, states) {
        return phase;
    }
    let mut waiting = 0;
    let mut running = 0;
    let mut stopped = 0;
    let mut failed = 0;
    let mut again = false;
    for (container, kept) in spec.containers.iter().zip(states) {
        if container.kind != ContainerKind::Main {
            continue;
        }
        match kept.kind() {
            _ if kept.replaced => running += 1,
            StateKind::Running => running += 1,
            StateKind::Ended { exit_code } | StateKind::Waiting { ended_before: Some(exit_code) } => {
                stopped += 1;
                failed += usize::from(exit_code != 0);
                again |= restart::restarts(spec, container, exit_code) || kept.is_restarting();
            }
            StateKind::Waiting { ended_before: None } => waiting += 1,
        }
    }
    if waiting > 0 {
        Phase::Pending
    } else if running > 0 {
        Phase::Running
    } else if stopped == 0 {
        Phase::Pending
    } else if again {
        Phase::Running
    } else if failed == 0 {
        Phase::Succeeded
    } else {
        Phase::Failed
    }
}

/// The phase of a pod that was ended before it had finished: its containers are not started again.
pub(super) fn at_end(spec: &PodSpec, states: &[Kept]) -> Phase {
    let mut main = spec.containers.iter().zip(states).filter(|(c, _)| c.kind == ContainerKind::Main);
    let well = |kept: &Kept| {
        matches!(kept.kind(), StateKind::Ended { exit_code: 0 } | StateKind::Waiting { ended_before: Some(0) })
    };
    if main.all(|(_, kept)| well(kept)) { Phase::Succeeded } else { Phase::Failed }
}

/// The phase while init containers have not let the main containers begin.
fn before_main(spec: &PodSpec, states: &[Kept]) -> Option<Phase> {
    let main_began = spec
        .containers
        .iter()
        .zip(states)
        .any(|(c, kept)| c.kind == ContainerKind::Main && kept.kind() != StateKind::Waiting { ended_before: None });
    if main_began {
        return None;
    }
    for (container, kept) in spec.containers.iter().zip(states) {
        match (container.kind, kept.kind()) {
            (ContainerKind::Init, StateKind::Ended { exit_code: 0 }) => {}
            (ContainerKind::Init, StateKind::Ended { exit_code })
                if !restart::restarts(spec, container, exit_code) && !kept.is_restarting() =>
            {
                return Some(Phase::Failed);
            }
            (ContainerKind::Init, _) => return Some(Phase::Pending),
            (ContainerKind::Sidecar, StateKind::Waiting { ended_before: None }) => return Some(Phase::Pending),
            (ContainerKind::Sidecar, StateKind::Running) if kept.report.started != Some(true) => {
                return Some(Phase::Pending);
            }
            _ => {}
        }
    }
    None
}
