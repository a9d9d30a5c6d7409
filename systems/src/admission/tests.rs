//! Pods that are taken, refused and kept waiting.

use super::*;
use crate::fixtures;
use components::scheduling::{Requirement, SelectorTerm};
use serde_json::{Value, json};

#[test]
fn profiles_need_a_kernel_that_enforces_them() {
    let mut spec = fixtures::spec("always a b");
    let said = |spec: &PodSpec, apparmor: bool| {
        let machine = Machine { apparmor, ..Machine::default() };
        refusal(spec, &fixtures::node(), &machine).map(|(reason, _)| reason)
    };
    assert_eq!(said(&spec, false), None);
    spec.security.apparmor = Some(AppArmor::RuntimeDefault);
    assert_eq!((said(&spec, false), said(&spec, true)), (Some("AppArmor"), None));
    for container in &mut spec.containers {
        container.security.apparmor = Some(AppArmor::Unconfined);
    }
    assert_eq!(said(&spec, false), None);
    spec.containers[1].security.apparmor = Some(AppArmor::Localhost("web".into()));
    assert_eq!(said(&spec, false), Some("AppArmor"));
}

struct Rig {
    config: NodeConfig,
    agent: NodeAgent,
    admitted: Admitted,
    groups: Option<bool>,
}

impl Rig {
    fn new() -> Self {
        let mut config = fixtures::node();
        config.object = Some(Box::new(crate::node_object::tests_object()));
        config.limits.cpu_milli = 1000;
        config.limits.allocatable_memory_bytes = 4 << 30;
        let mut agent = NodeAgent::new(1);
        agent.known = Some(node(json!({ "zone": "a" }), json!([])));
        Self { config, agent, admitted: Admitted::default(), groups: Some(true) }
    }

    /// Reason of a refusal; `wait` or `take` else.
    fn judge(&self, spec: &PodSpec, seconds: u64) -> String {
        let (config, agent, admitted) = (&self.config, &self.agent, &self.admitted);
        let node = Node { config, agent, admitted, leaving: &BTreeSet::new(), groups: self.groups };
        match judge(spec, &node, Duration::from_secs(seconds)) {
            Judgement::Take => "take".to_owned(),
            Judgement::Wait => "wait".to_owned(),
            Judgement::Refuse(reason, _) => reason,
            Judgement::Preempt(pods) => format!("preempt {pods:?}"),
        }
    }
}

fn node(labels: Value, taints: Value) -> Value {
    json!({ "metadata": { "labels": labels }, "spec": { "taints": taints } })
}

fn pod() -> PodSpec {
    PodSpec { source: Source::Api, ..fixtures::spec("always a") }
}

#[test]
fn a_pod_that_fits_is_taken_once_the_node_is_known() {
    let mut rig = Rig::new();
    assert_eq!(rig.judge(&pod(), 0), "take");
    rig.agent.known = None;
    assert_eq!(rig.judge(&pod(), 60), "wait");
    // Static pods start without an API server.
    assert_eq!(rig.judge(&fixtures::spec("always a"), 0), "take");
}

#[test]
fn resources_are_refused_to_all_but_critical_pods() {
    let rig = Rig::new();
    let mut spec = pod();
    spec.containers[0].resources.requests.cpu_milli = Some(1500);
    assert_eq!(rig.judge(&spec, 0), "OutOfcpu");
    let leaving = BTreeSet::new();
    let node =
        Node { config: &rig.config, agent: &rig.agent, admitted: &rig.admitted, leaving: &leaving, groups: None };
    let said = judge(&spec, &node, Duration::ZERO);
    let text = "Node didn't have enough resource: cpu, requested: 1500, used: 0, capacity: 1000";
    assert_eq!(said, Judgement::Refuse("OutOfcpu".into(), text.into()));
    // There is nobody who could make way.
    spec.priority = CRITICAL;
    assert_eq!(rig.judge(&spec, 0), "UnexpectedAdmissionError");
    spec = pod();
    // Huge pages are no ordinary memory.
    spec.containers[0].resources.requests.memory_bytes = Some(3 << 30);
    assert_eq!(rig.judge(&spec, 0), "OutOfmemory");
    spec = pod();
    spec.containers[0].resources.requests.hugepages.insert("hugepages-1Gi".into(), 2 << 30);
    assert_eq!(rig.judge(&spec, 0), "take");
    spec.containers[0].resources.requests.hugepages.insert("hugepages-1Gi".into(), 3 << 30);
    assert_eq!(rig.judge(&spec, 0), "OutOfhugepages-1Gi");
}

#[test]
fn a_label_may_come_a_little_late() {
    let mut rig = Rig::new();
    let mut spec = pod();
    let requirement = Requirement { key: "zone".into(), operator: "In".into(), values: vec!["b".into()] };
    spec.scheduling.affinity = Some(vec![SelectorTerm { labels: vec![requirement], fields: Vec::new() }]);
    assert_eq!(rig.judge(&spec, 0), "wait");
    assert_eq!(rig.judge(&spec, 2), "NodeAffinity");
    rig.agent.known = Some(node(json!({ "zone": "b" }), json!([])));
    assert_eq!(rig.judge(&spec, 0), "take");
    // Without an object the labels are those that would be registered.
    rig.agent.known = None;
    spec.source = Source::File;
    assert_eq!(rig.judge(&spec, 0), "NodeAffinity");
    spec.scheduling.affinity = None;
    spec.scheduling.node_selector.insert("kubernetes.io/os".into(), "linux".into());
    assert_eq!(rig.judge(&spec, 0), "take");
}

#[test]
fn taints_ports_and_systems_are_looked_at() {
    let mut rig = Rig::new();
    rig.agent.known = Some(node(json!({}), json!([{ "key": "k", "effect": "NoExecute" }])));
    assert_eq!(rig.judge(&pod(), 0), "TaintToleration");
    assert_eq!(rig.judge(&fixtures::spec("always a"), 0), "take");
    let mut rig = Rig::new();
    let mut spec = pod();
    spec.labels.insert("kubernetes.io/os".into(), "windows".into());
    assert_eq!(rig.judge(&spec, 0), "PodOSSelectorNodeLabelDoesNotMatch");
    let mut spec = pod();
    spec.security.groups_policy = Some(GroupsPolicy::Strict);
    assert_eq!(rig.judge(&spec, 0), "take");
    rig.groups = Some(false);
    assert_eq!(rig.judge(&spec, 0), "SupplementalGroupsPolicyNotSupported");
    let mut listening = pod();
    listening.containers[0].ports = vec![components::spec::ContainerPort {
        name: String::new(),
        container_port: 80,
        host_port: 80,
        host_ip: String::new(),
        protocol: components::edge::cri::Protocol::Tcp,
    }];
    rig.admitted.0.put(&listening);
    listening.uid = "other".into();
    assert_eq!(rig.judge(&listening, 0), "NodePorts");
}

#[test]
fn others_make_way_for_a_critical_pod() {
    let mut rig = Rig::new();
    let asking = |uid: &str, cpu: i64, priority: i32| {
        let mut spec = pod();
        (spec.uid, spec.priority, spec.qos) = (uid.into(), priority, components::spec::QosClass::Burstable);
        spec.containers[0].resources.requests.cpu_milli = Some(cpu);
        spec
    };
    for (uid, cpu, priority) in [("low", 300, 0), ("lower", 400, -5), ("peer", 200, CRITICAL)] {
        rig.admitted.0.put(&asking(uid, cpu, priority));
    }
    let urgent = asking("urgent", 400, CRITICAL);
    let said = |leaving: &[&str], spec: &PodSpec| {
        let leaving = leaving.iter().map(|uid| PodUid::from(*uid)).collect();
        let node =
            Node { config: &rig.config, agent: &rig.agent, admitted: &rig.admitted, leaving: &leaving, groups: None };
        judge(spec, &node, Duration::ZERO)
    };
    assert_eq!(said(&[], &urgent), Judgement::Preempt(vec!["low".into()]));
    // It is on its way out already.
    assert_eq!(said(&["low"], &urgent), Judgement::Wait);
    assert_eq!(said(&[], &asking("urgent", 100, CRITICAL)), Judgement::Take);
    let text = "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of \
                pods to preempt: no set of running pods found to reclaim resources: [(res: cpu, q: 100), ]";
    let refused = Judgement::Refuse("UnexpectedAdmissionError".into(), text.into());
    assert_eq!(said(&[], &asking("urgent", 900, CRITICAL)), refused);
    // Static pods are critical.
    let fixed = PodSpec { source: Source::File, ..asking("fixed", 600, 0) };
    assert_eq!(said(&[], &fixed), Judgement::Preempt(vec!["lower".into(), "low".into()]));
    // What ending pods could not mend is said first.
    let mut picky = urgent;
    picky.scheduling.node_selector.insert("zone".into(), "x".into());
    assert_eq!(said(&[], &picky), Judgement::Wait);
}
