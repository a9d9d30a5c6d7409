//! Tables of the numbers that requests and limits become.

use super::*;
use crate::fixtures;
use components::edge::sources::Source;

const MIB: i64 = 1 << 20;

#[test]
fn shares_and_quotas_follow_the_contract() {
    assert_eq!(shares(0), 2);
    assert_eq!(shares(1), 2);
    assert_eq!(shares(100), 102);
    assert_eq!(shares(1000), 1024);
    assert_eq!(shares(i64::MAX), 262_144);
    assert_eq!(quota(0, 100_000), 0);
    assert_eq!(quota(250, 100_000), 25_000);
    assert_eq!(quota(1, 100_000), 1000);
}

fn machine(v2: bool) -> Machine {
    Machine { memory_bytes: 1000 * MIB, cgroup_v2: v2, swap_controller: true, ..Machine::default() }
}

fn memory(spec: &mut PodSpec, index: usize, request: i64, limit: Option<i64>) {
    spec.containers[index].resources.requests.memory_bytes = Some(request);
    spec.containers[index].resources.limits.memory_bytes = limit;
    spec.qos = QosClass::Burstable;
}

#[test]
fn who_asked_for_more_memory_is_killed_later() {
    let mut spec = fixtures::spec("always side:s a b");
    let adj = |spec: &PodSpec, index: usize| oom::score_adj(spec, &spec.containers[index], &machine(false));
    assert_eq!(adj(&spec, 1), 1000, "best effort goes first");
    memory(&mut spec, 1, 100 * MIB, None);
    memory(&mut spec, 2, 999 * MIB, None);
    assert_eq!([adj(&spec, 1), adj(&spec, 2)], [900, 3]);
    assert_eq!(adj(&spec, 0), 900, "a sidecar stays as long as the least of the main containers");
    memory(&mut spec, 1, 0, None);
    assert_eq!([adj(&spec, 0), adj(&spec, 1)], [999, 999]);
    spec.resources = Some(ResourceRequirements::default());
    if let Some(own) = &mut spec.resources {
        own.requests.memory_bytes = Some(1299 * MIB);
    }
    assert_eq!([adj(&spec, 0), adj(&spec, 1)], [900, 900], "each gets a third of the 300 that nobody claimed");
    spec.priority_class = "system-node-critical".to_owned();
    assert_eq!(adj(&spec, 1), -997);
    spec.source = Source::Api;
    assert_eq!(adj(&spec, 1), 900, "the class counts only with its priority");
    spec.priority = 2_000_001_000;
    assert_eq!(adj(&spec, 1), -997);
    (spec.priority_class, spec.qos) = (String::new(), QosClass::Guaranteed);
    assert_eq!(adj(&spec, 1), -997);
}

#[test]
fn no_pod_swaps() {
    let mut spec = fixtures::spec("always a");
    memory(&mut spec, 0, 16 * MIB, Some(64 * MIB));
    let of = |spec: &PodSpec, machine: &Machine| of_container(spec, &spec.containers[0], &fixtures::node(), machine);
    let v1 = of(&spec, &machine(false));
    assert_eq!((v1.memory_swap_limit_bytes, v1.unified.len()), (64 * MIB, 0));
    let v2 = of(&spec, &machine(true));
    assert_eq!((v2.memory_swap_limit_bytes, v2.unified.get("memory.swap.max").map(String::as_str)), (0, Some("0")));
    let without = Machine { swap_controller: false, ..machine(true) };
    assert!(of(&spec, &without).unified.is_empty());
    memory(&mut spec, 0, 16 * MIB, None);
    assert_eq!(of(&spec, &machine(false)).memory_swap_limit_bytes, 0);
}

#[test]
fn limited_swap_is_shared_out_by_memory() {
    let mut spec = fixtures::spec("always a");
    spec.source = Source::Api;
    let mut node = fixtures::node();
    node.limits.limited_swap = true;
    let machine = Machine { swap_bytes: 500 * MIB, ..machine(true) };
    let check = |spec: &PodSpec, node: &NodeConfig, expect: i64| {
        let found = of_container(spec, &spec.containers[0], node, &machine);
        assert_eq!(found.unified.get("memory.swap.max"), Some(&expect.to_string()));
    };
    check(&spec, &node, 0);
    memory(&mut spec, 0, 100 * MIB, Some(200 * MIB));
    check(&spec, &node, 50 * MIB);
    check(&spec, &fixtures::node(), 0);
    memory(&mut spec, 0, 100 * MIB, Some(100 * MIB));
    check(&spec, &node, 0);
    memory(&mut spec, 0, 1001 * MIB, None);
    check(&spec, &node, 0);
    memory(&mut spec, 0, 100 * MIB, None);
    check(&spec, &node, 50 * MIB);
    spec.qos = QosClass::Guaranteed;
    check(&spec, &node, 0);
    spec.qos = QosClass::Burstable;
    spec.priority = 2_000_000_000;
    check(&spec, &node, 0);
    spec.priority = 0;
    spec.source = Source::File;
    check(&spec, &node, 0);
}

#[test]
fn memory_is_protected_and_throttled_where_the_node_says_so() {
    let mut spec = fixtures::spec("always a");
    memory(&mut spec, 0, 16 * MIB, Some(64 * MIB));
    let mut node = fixtures::node();
    let files = |spec: &PodSpec, node: &NodeConfig| memory_protection(spec.qos, &spec.containers[0].resources, node);
    assert!(files(&spec, &node).is_empty());
    node.limits.memory_throttling_factor = Some(0.9);
    node.limits.allocatable_memory_bytes = 1000 * MIB;
    // 16 + 0.9 * 48 MiB, down to a page.
    assert_eq!(files(&spec, &node).get("memory.high").map(String::as_str), Some("62074880"));
    spec.containers[0].resources.limits.memory_bytes = None;
    assert_eq!(files(&spec, &node).get("memory.high").map(String::as_str), Some("945393664"));
    node.limits.tiered_memory = true;
    assert_eq!(files(&spec, &node).get("memory.low").map(String::as_str), Some("16777216"));
    spec.containers[0].resources.limits.memory_bytes = Some(16 * MIB);
    spec.qos = QosClass::Guaranteed;
    let guaranteed = files(&spec, &node);
    assert_eq!(guaranteed.into_iter().collect::<Vec<_>>(), [("memory.min".to_owned(), "16777216".to_owned())]);
}

#[test]
fn the_pods_own_limits_and_overhead_count() {
    let mut spec = fixtures::spec("always init:i a b");
    for (index, milli) in [(0, 500), (1, 100), (2, 200)] {
        spec.containers[index].resources.requests.cpu_milli = Some(milli);
    }
    assert_eq!(pod_requirements(&spec).requests.cpu_milli, Some(500), "the init container is larger");
    spec.overhead.cpu_milli = Some(50);
    let whole = pod_requirements(&spec);
    assert_eq!((whole.requests.cpu_milli, whole.limits.cpu_milli), (Some(550), None));
    let (node, machine) = (fixtures::node(), machine(false));
    assert_eq!(of_pod(&spec, &node, &machine).cpu_shares, 512, "the sandbox is told the overhead apart");
    let overhead = of_overhead(&spec, &node, &machine);
    assert_eq!((overhead.cpu_shares, overhead.cpu_quota), (51, 5000));
    assert!(!all_limited(&spec, &|limits| limits.cpu_milli));
    let mut own = ResourceRequirements::default();
    own.limits.cpu_milli = Some(1000);
    own.limits.hugepages.insert("hugepages-2Mi".to_owned(), 4 * MIB);
    spec.resources = Some(own);
    assert!(all_limited(&spec, &|limits| limits.cpu_milli));
    let huge = Machine { hugepage_sizes: vec!["2MB".into(), "1GB".into()], ..machine };
    let one = of_container(&spec, &spec.containers[1], &node, &huge);
    assert_eq!(one.cpu_quota, 100_000);
    assert_eq!(one.hugepage_limits, [("2MB".to_owned(), 4 << 20), ("1GB".to_owned(), 0)]);
}
