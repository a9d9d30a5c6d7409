//! Tables: pod and what the runtime has, phase and conditions that are reported.

use super::build::{self, Input};
use crate::fixtures::{inspection, spec};
use components::ids::Ticket;
use components::status::{ConditionKind, Phase, PodStatus, ReportedState};
use components::time::{Mono, Wall};
use components::world::{ContainerRun, EndCause, Ending, Flow, Lifecycle, Stage, Step};

fn life(stage: Stage) -> Lifecycle {
    let ending =
        (stage >= Stage::Terminating).then_some(Ending { cause: EndCause::Removed, grace_seconds: 30, began: Mono(0) });
    Lifecycle { stage, since: Mono(0), active: None, ending, refused: None, history: Vec::new() }
}

fn status(pod: &str, seen: &str, stage: Stage, old: &PodStatus, terminal: Option<bool>, flow: &Flow) -> PodStatus {
    let spec = spec(pod);
    let seen = inspection(&spec, seen);
    let runs: Vec<ContainerRun> =
        (0..).take(spec.containers.len()).map(|index| ContainerRun { index, ..ContainerRun::default() }).collect();
    build::status(&Input {
        spec: &spec,
        life: &life(stage),
        seen: Some(&seen),
        flow,
        resize: None,
        whole: None,
        runs: &runs.iter().collect::<Vec<_>>(),
        probes: &components::probes::Probes::default(),
        ready_since: [None, None],
        gates: &[],
        old,
        terminal,
        refused: None,
        runtime: "containerd",
        node_ips: &["10.0.0.9".to_owned()],
        now: Wall(7_500_000_000),
    })
}

/// Conditions that are true, by their initials: `P`odReadyToStart, `I`nitialized, `R`eady, `C`ontainersReady.
#[track_caller]
fn check(pod: &str, seen: &str, phase: Phase, conditions: &str) {
    let status = status(pod, seen, Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    let letter = |kind| match kind {
        ConditionKind::PodReadyToStartContainers => 'P',
        ConditionKind::Initialized => 'I',
        ConditionKind::Ready => 'R',
        ConditionKind::ContainersReady => 'C',
        ConditionKind::PodScheduled => 'S',
        ConditionKind::AllContainersRestarting => 'A',
        ConditionKind::DisruptionTarget => 'D',
    };
    let shown: String = status.conditions.iter().filter(|c| c.status).map(|c| letter(c.kind)).collect();
    assert_eq!((status.phase, shown.trim_end_matches('S')), (phase, conditions));
}

#[test]
fn phases_follow_the_containers() {
    check("always a", "", Phase::Pending, "I");
    check("always a", "s0+", Phase::Pending, "PI");
    check("always a", "s0+ a0:run", Phase::Running, "PIRC");
    check("always a b", "s0+ a0:run", Phase::Pending, "PI");
    check("always a", "s0+ a0:exit1", Phase::Running, "PI");
    check("onfailure a", "s0+ a0:exit1", Phase::Running, "PI");
    check("onfailure a", "s0+ a0:exit0", Phase::Succeeded, "PI");
    check("never a b", "s0+ a0:exit0 b0:exit3", Phase::Failed, "PI");
    check("never a b", "s0+ a0:exit1 b0:run", Phase::Running, "PI");
}

#[test]
fn init_containers_hold_the_phase() {
    check("always init:i a", "s0+ i0:run", Phase::Pending, "P");
    check("always init:i a", "s0+ i0:exit0", Phase::Pending, "PI");
    check("never init:i a", "s0+ i0:exit1", Phase::Failed, "P");
    check("always init:i a", "s0+ i0:exit0 a0:run", Phase::Running, "PIRC");
    check("always side:car a", "s0+ car0:run a0:run", Phase::Running, "PIRC");
}

#[test]
fn a_terminal_phase_stays_whatever_is_seen() {
    let done = status("never a", "s0+ a0:exit0", Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    let later = status("never a", "", Stage::Done, &done, Some(true), &Flow::default());
    assert_eq!(later.phase, Phase::Succeeded);
    assert_eq!(later.containers[0].state, done.containers[0].state);
}

#[test]
fn a_terminal_phase_waits_for_what_is_under_way() {
    let mut flow = Flow::default();
    flow.in_flight.push((Ticket(1), Step::StartContainer(1, "b0".into())));
    let status = status("never a b", "s0+ a0:exit0 b0:exit0", Stage::Syncing, &PodStatus::default(), None, &flow);
    assert!(!status.phase.is_terminal());
}

#[test]
fn restarts_and_the_instance_before_are_shown() {
    let status =
        status("always a", "s0+ a2:run a1:exit7", Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    assert_eq!(status.containers[0].restart_count, 2);
    let last = status.containers[0].last.clone();
    assert!(matches!(last, Some(ReportedState::Terminated { exit_code: 7, .. })), "{last:?}");
    assert_eq!(status.containers[0].container_id, "containerd://a2");
}

#[test]
fn a_count_never_falls_but_where_everything_before_is_lost() {
    let old = status("always a", "s0+ a4:run", Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    let count =
        |seen: &str, stage| status("always a", seen, stage, &old, None, &Flow::default()).containers[0].restart_count;
    assert_eq!(count("s0+ a3:exit0", Stage::Terminating), 4, "the newest was removed before the one before it");
    assert_eq!(count("s0+", Stage::Syncing), 5, "lost, and started again soon");
    assert_eq!(count("s0+ a0:run", Stage::Syncing), 0, "neither the runtime nor the logs know of others");
}

#[test]
fn a_container_that_vanished_while_ending_is_reported_as_lost() {
    let old = status("always a", "s0+ a0:run", Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    let new = status("always a", "s0+", Stage::Terminating, &old, None, &Flow::default());
    let state = &new.containers[0].state;
    assert!(
        matches!(state, ReportedState::Terminated { exit_code: 137, reason, .. } if reason == "ContainerStatusUnknown")
    );
}

#[test]
fn transition_times_move_only_with_the_status() {
    let first = status("always a", "s0+ a0:run", Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    assert!(first.conditions.iter().all(|c| c.since == Wall(7_000_000_000)));
    let mut old = first.clone();
    old.conditions.iter_mut().for_each(|c| c.since = Wall(1_000_000_000));
    let second = status("always a", "s0+ a0:exit1", Stage::Syncing, &old, None, &Flow::default());
    let since = |kind| second.conditions.iter().find(|c| c.kind == kind).unwrap().since;
    assert_eq!(since(ConditionKind::Ready), Wall(7_000_000_000));
    assert_eq!(since(ConditionKind::PodScheduled), Wall(1_000_000_000));
}

#[test]
fn a_pod_that_is_not_taken_says_why_and_nothing_else() {
    let spec = spec("always a");
    let (flow, old) = (Flow::default(), PodStatus::default());
    let refused = Some(("SysctlForbidden", "Pod was rejected: x".to_owned()));
    let status = build::status(&Input {
        spec: &spec,
        life: &life(Stage::Terminating),
        seen: Some(&components::edge::cri::PodInspection::default()),
        flow: &flow,
        resize: None,
        whole: None,
        runs: &[],
        probes: &components::probes::Probes::default(),
        ready_since: [None, None],
        gates: &[],
        old: &old,
        terminal: None,
        refused: refused.map(|(reason, message): (&str, String)| (reason.to_owned(), message)),
        runtime: "containerd",
        node_ips: &["10.0.0.9".to_owned()],
        now: Wall(7_500_000_000),
    });
    let expect = PodStatus {
        phase: Phase::Failed,
        reason: "SysctlForbidden".into(),
        message: "Pod was rejected: x".into(),
        start_time: Wall(7_000_000_000),
        qos: "BestEffort".into(),
        ..PodStatus::default()
    };
    assert_eq!(status, expect);
}

#[test]
fn a_removed_init_container_counts_as_done_once_main_containers_were_made() {
    let status = status("always init:i a", "s0+ a0:run", Stage::Syncing, &PodStatus::default(), None, &Flow::default());
    let state = &status.init_containers[0].state;
    assert!(
        matches!(state, ReportedState::Terminated { exit_code: 0, reason, .. } if reason == "Completed"),
        "{state:?}"
    );
    assert!(status.init_containers[0].ready);
    assert_eq!(status.phase, Phase::Running);
}

#[test]
fn a_container_runs_only_once_its_post_start_hook_is_over() {
    use components::hooks::{HookKind, HookRun, HookState};
    let mut flow = Flow::default();
    flow.hooks.insert("a0".into(), HookRun { kind: HookKind::PostStart, state: HookState::Due });
    let during = status("always a", "s0+ a0:run", Stage::Syncing, &PodStatus::default(), None, &flow);
    assert_eq!(during.phase, Phase::Pending);
    assert_eq!(during.containers[0].started, Some(false));
    flow.hooks.insert("a0".into(), HookRun { kind: HookKind::PostStart, state: HookState::Over });
    let after = status("always a", "s0+ a0:run", Stage::Syncing, &during, None, &flow);
    assert_eq!(after.phase, Phase::Running);
}

#[test]
fn a_pod_past_its_deadline_has_failed_with_its_reason() {
    let spec = spec("never a");
    let seen = inspection(&spec, "s0- a0:exit0");
    let mut life = life(Stage::Terminated);
    life.ending = Some(Ending { cause: EndCause::DeadlineExceeded, grace_seconds: 30, began: Mono(0) });
    let status = build::status(&Input {
        spec: &spec,
        life: &life,
        seen: Some(&seen),
        flow: &Flow::default(),
        resize: None,
        whole: None,
        runs: &[&ContainerRun::default()],
        old: &PodStatus::default(),
        probes: &components::probes::Probes::default(),
        ready_since: [None; 2],
        gates: &[],
        terminal: Some(false),
        refused: None,
        runtime: "containerd",
        node_ips: &["10.0.0.9".to_owned()],
        now: Wall(7_500_000_000),
    });
    assert_eq!((status.phase, status.reason.as_str()), (Phase::Failed, "DeadlineExceeded"));
}

#[test]
fn what_is_replaced_waits_and_is_not_shown_as_ended() {
    let (spec, seen) = (spec("never a"), inspection(&spec("never a"), "s0+ a0:exit0"));
    let run = ContainerRun { index: 0, replaced: Some("a0".into()), ..ContainerRun::default() };
    let status = build::status(&Input {
        spec: &spec,
        life: &life(Stage::Syncing),
        seen: Some(&seen),
        flow: &Flow::default(),
        resize: None,
        whole: None,
        runs: &[&run],
        probes: &components::probes::Probes::default(),
        ready_since: [None, None],
        gates: &[],
        old: &PodStatus::default(),
        terminal: None,
        refused: None,
        runtime: "containerd",
        node_ips: &["10.0.0.9".to_owned()],
        now: Wall(7_500_000_000),
    });
    let a = &status.containers[0];
    assert!(
        matches!(&a.state, ReportedState::Waiting { reason, .. } if reason == "ContainerCreating"),
        "{:?}",
        a.state
    );
    assert!(matches!(a.last, Some(ReportedState::Terminated { exit_code: 0, .. })), "{:?}", a.last);
    assert_eq!(status.phase, Phase::Running);
}

#[test]
fn addresses_come_in_the_order_of_the_nodes_families() {
    let list = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    for (ips, node, expect) in [
        ("10.1.0.2 fd00::2", "10.0.0.9", "10.1.0.2 fd00::2"),
        ("10.1.0.2 fd00::2", "fd00::9 10.0.0.9", "fd00::2 10.1.0.2"),
        ("10.1.0.2 10.1.0.3", "fd00::9", "10.1.0.2"),
        ("", "10.0.0.9", ""),
    ] {
        assert_eq!(build::in_order(&list(ips), &list(node)), list(expect));
    }
}
