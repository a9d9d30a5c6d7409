//! Tables: pod, what the runtime has, what is done next.

use super::*;
use crate::fixtures::{inspection, spec};

/// `pod` as in `fixtures::spec`, `seen` as in `fixtures::inspection`; the expectation names containers.
#[track_caller]
fn check(pod: &str, seen: &str, expect: &str) {
    let spec = spec(pod);
    let actions = compute(&spec, &inspection(&spec, seen), &[], 1);
    let mut out: Vec<String> = Vec::new();
    out.extend(actions.stop.iter().map(|(id, _)| format!("stop:{id}")));
    out.extend(actions.stop_sandboxes.iter().map(|id| format!("stopsandbox:{id}")));
    out.extend(actions.new_sandbox.map(|n| format!("sandbox#{n}")));
    out.extend(actions.remove.iter().map(|id| format!("remove:{id}")));
    out.extend(actions.start.iter().map(|i| format!("start:{}", spec.containers[*i].name)));
    assert_eq!(out.join(" "), expect);
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
