//! Tables: pod, what the runtime has, what is done next.

use super::*;
use crate::fixtures::{inspection, spec};

/// As [`check`], with what probes say of the containers: `-` has not started, `L` and `S` are condemned, `+` is well;
/// `replaced` was stopped to be replaced.
#[track_caller]
fn check_probed(pod: &str, seen: &str, health: &str, replaced: &str, expect: &str) {
    let spec = spec(pod);
    let health: Vec<ContainerHealth> = health
        .chars()
        .map(|c| match c {
            '-' => ContainerHealth { started: false, ready: false, condemned: None },
            'L' => ContainerHealth { condemned: Some(ProbeKind::Liveness), ..ContainerHealth::WELL },
            'S' => ContainerHealth { started: false, ready: false, condemned: Some(ProbeKind::Startup) },
            _ => ContainerHealth::WELL,
        })
        .collect();
    let replaced: Vec<ContainerId> = replaced.split_whitespace().map(ContainerId::from).collect();
    let known = Known { in_progress: &[], health: &health, replaced: &replaced, ..Known::default() };
    let actions = compute(&spec, &inspection(&spec, seen), known);
    let mut out: Vec<String> = actions.stop.iter().map(|(id, why)| format!("{id}: {why}")).collect();
    out.extend(actions.start.iter().map(|i| format!("start:{}", spec.containers[*i].name)));
    assert_eq!(out.join(" "), expect);
}

#[test]
fn a_failed_probe_condemns_its_container() {
    check_probed("always a", "s0+ a0:run", "L", "", "a0: Container a failed liveness probe, will be restarted");
    check_probed("always a", "s0+ a0:run", "S", "", "a0: Container a failed startup probe, will be restarted");
    check_probed("never a", "s0+ a0:run", "L", "", "a0: Container a failed liveness probe");
    check_probed(
        "never side:s a",
        "s0+ s0:run a0:run",
        "L+",
        "",
        "s0: Container s failed liveness probe, will be restarted",
    );
    check_probed("onfailure a", "s0+ a0:exit0", "+", "", "");
    check_probed("onfailure a", "s0+ a0:exit0", "+", "a0", "start:a");
}

#[test]
fn a_sidecar_is_not_started_beside_the_end_of_the_last_main_container() {
    let condemned = "a0: Container a failed liveness probe";
    check_probed("never side:s a", "s0+ s0:exit1 a0:run", "+L", "", condemned);
    check_probed("never side:s a b", "s0+ s0:exit1 a0:run b0:run", "+L", "", &format!("{condemned} start:s"));
    check_probed("never side:s a", "s0+ s0:exit1 a0:exit0", "++", "", "");
    check_probed(
        "always side:s a",
        "s0+ s0:exit1 a0:run",
        "+L",
        "",
        &format!("{condemned}, will be restarted start:s"),
    );
}

#[test]
fn a_sidecar_lets_others_begin_once_it_has_started() {
    check_probed("always side:s a", "s0+ s0:run", "-+", "", "");
    check_probed("always side:s a", "s0+ s0:run", "++", "", "start:a");
    check_probed("always side:s a", "s0+ s1:run s0:exit1 a0:exit1", "-+", "", "start:a");
}

/// `pod` as in `fixtures::spec`, `seen` as in `fixtures::inspection`; the expectation names containers.
#[track_caller]
fn check(pod: &str, seen: &str, expect: &str) {
    let spec = spec(pod);
    let actions = compute(&spec, &inspection(&spec, seen), Known::default());
    assert_eq!(text(&spec, &actions), expect);
}

fn text(spec: &PodSpec, actions: &PodActions) -> String {
    let mut out: Vec<String> = Vec::new();
    out.extend(actions.stop.iter().map(|(id, _)| format!("stop:{id}")));
    out.extend(actions.stop_sandboxes.iter().map(|id| format!("stopsandbox:{id}")));
    out.extend(actions.new_sandbox.map(|n| format!("sandbox#{n}")));
    out.extend(actions.remove.iter().map(|id| format!("remove:{id}")));
    out.extend(actions.start.iter().map(|i| format!("start:{}", spec.containers[*i].name)));
    out.join(" ")
}

#[test]
fn what_follows_a_sidecar_waits_until_it_has_started() {
    let spec = spec("always side:car init:i a");
    let next = |seen: &str, started: bool| {
        let health = [ContainerHealth { started, ..ContainerHealth::WELL }];
        let known = Known { health: &health, ..Known::default() };
        text(&spec, &compute(&spec, &inspection(&spec, seen), known))
    };
    assert_eq!(next("s0+ car0:run", false), "");
    assert_eq!(next("s0+ car0:run", true), "start:i");
    // Once the main containers were made, nothing waits any more.
    assert_eq!(next("s0+ car1:run i0:exit0 a0:exit1", false), "start:a");
}

#[test]
fn an_end_can_restart_all_containers() {
    let mut spec = spec("never init:i side:car a b");
    spec.containers[2].lifecycle.restart_rules = vec![components::hooks::RestartRule {
        action: components::hooks::RestartAction::RestartAll,
        is_in: true,
        codes: vec![42],
    }];
    let next = |seen: &str| text(&spec, &compute(&spec, &inspection(&spec, seen), Known::default()));
    assert_eq!(next("s0+ i0:exit0 car0:run a0:exit42 b0:run"), "stop:b0 stop:car0 remove:i0");
    assert_eq!(next("s0+ car0:exit137 a0:exit42 b0:exit0"), "remove:b0 remove:car0");
    assert_eq!(next("s0+ a0:exit42"), "remove:a0");
    assert_eq!(next("s0+"), "start:i");
    assert_eq!(next("s0+ a0:exit1 b0:exit0 i0:exit0 car0:run"), "");
}

#[test]
fn ephemeral_containers_start_whatever_the_others_do_and_once() {
    let mut spec = spec("always init:i a e");
    spec.containers[2].kind = ContainerKind::Ephemeral;
    let next = |seen: &str| text(&spec, &compute(&spec, &inspection(&spec, seen), Known::default()));
    assert_eq!(next("s0+ i0:run"), "start:e");
    assert_eq!(next("s0+ i0:run e0:exit1"), "");
}

#[test]
fn an_empty_runtime_gets_a_sandbox_and_then_containers() {
    check("always a b", "", "sandbox#0");
    check("always a b", "s0+", "start:a start:b");
    check("always a b", "s0+ a0:run", "start:b");
    check("always a b", "s0+ a0:run b0:run", "");
}

#[test]
fn restart_policies_decide_on_ended_containers() {
    check("always a", "s0+ a0:exit0", "start:a");
    check("onfailure a", "s0+ a0:exit0", "");
    check("onfailure a", "s0+ a0:exit1", "start:a");
    check("never a", "s0+ a0:exit1", "");
    check("never a b", "s0+ a0:exit1 b0:run", "");
}

#[test]
fn a_lost_sandbox_is_replaced_and_everything_started_anew() {
    check("always a", "s0- a0:exit137", "sandbox#1");
    check("always a", "s0- a0:run", "stop:a0 sandbox#1");
    check("always a", "s1+ s0- a0:exit137", "start:a");
    check("always a", "s1+ s0+ a0:run", "stop:a0 stopsandbox:s1 stopsandbox:s0 sandbox#2");
    check("never a", "s0- a0:exit0", "");
    check("onfailure a b", "s0- a0:exit0 b0:exit1", "sandbox#1");
}

#[test]
fn a_sandbox_without_an_address_is_not_usable() {
    check("always a", "s0+noip", "stopsandbox:s0 sandbox#1");
}

#[test]
fn init_containers_run_in_order_and_once() {
    check("always init:i init:j a", "s0+", "start:i");
    check("always init:i init:j a", "s0+ i0:run", "");
    check("always init:i init:j a", "s0+ i0:exit0", "start:j");
    check("always init:i init:j a", "s0+ i0:exit0 j0:exit0", "start:a");
    check("always init:i a", "s0+ i0:exit1", "start:i");
    check("never init:i a", "s0+ i0:exit1", "");
    check("always init:i a", "s0+ a0:run", "");
    check("always init:i a", "s1+ s0- i0:exit0@s0 a0:exit137@s0", "start:i");
}

#[test]
fn sidecars_start_before_and_are_kept_beside_main_containers() {
    check("always side:car a", "s0+", "start:car");
    check("always side:car a", "s0+ car0:run", "start:a");
    check("always side:car a", "s0+ car0:exit0 a0:run", "start:car");
}

#[test]
fn a_changed_definition_replaces_the_container() {
    check("always a", "s0+ a0:run#changed", "stop:a0");
    check("never a", "s0+ a0:run#changed", "stop:a0");
}

#[test]
fn half_made_and_surplus_instances_are_removed() {
    check("always a", "s0+ a0:created", "remove:a0 start:a");
    check("always a", "s0+ a2:run a1:exit1 a0:exit1", "remove:a0");
    check("always a", "s0+ a0:unknown", "stop:a0");
}
