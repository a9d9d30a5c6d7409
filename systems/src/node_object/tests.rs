//! The node's object step by step: registered, reconciled, kept up to date, and what it tells.

use super::build::{self, Facts};
use super::conditions::{self, Heard};
use super::steps::{Doing, NodeAgent};
use super::{changes, timeout};
use crate::fixtures;
use components::edge::api::{Answered, ApiAnswer, ApiRequest, Method};
use components::edge::cri::{ListedImage, RuntimeHandler, RuntimeInfo};
use components::edge::{Answer, Failure, FailureClass, Outcome};
use components::ids::Ticket;
use components::node::object::{MachineIdentity, NodeObjectConfig, NodeTaint};
use components::node::{Machine, NodeConfig};
use components::time::{Mono, Wall};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

pub(crate) fn object() -> NodeObjectConfig {
    NodeObjectConfig {
        register: true,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        provider_id: String::new(),
        external_cloud: false,
        node_ip_given: true,
        controller_attach_detach: true,
        update_period: Duration::from_secs(10),
        report_period: Duration::from_secs(300),
        lease_seconds: 40,
        max_images: Some(2),
        pods: 110,
        port: 10250,
        version: "v1.37.2".into(),
        declared_features: vec!["ExtendWebSocketsToKubelet".into()],
        disk_bytes: Some(270_553_174_016),
        machine: MachineIdentity {
            machine_id: "m1".into(),
            system_uuid: "u1".into(),
            kernel: "6.18.44".into(),
            os_image: "Debian GNU/Linux 12 (bookworm)".into(),
            architecture: "amd64".into(),
            hugepages: vec![(2 << 20, 0), (1 << 30, 2 << 30)],
            ..MachineIdentity::default()
        },
    }
}

struct Rig {
    config: NodeObjectConfig,
    node: NodeConfig,
    machine: Machine,
    runtime: RuntimeInfo,
    images: Vec<ListedImage>,
    unready: Vec<String>,
    agent: NodeAgent,
    seconds: u64,
    tickets: u64,
}

impl Rig {
    fn new() -> Self {
        let mut node = fixtures::node();
        node.limits.cpu_milli = 1750;
        node.limits.allocatable_memory_bytes = (24_683_656 - 102_400) << 10;
        node.limits.allocatable_disk_bytes = 265_142_110_657;
        let mut agent = NodeAgent::new(7);
        agent.due = Some(Mono(0));
        Self {
            config: object(),
            node,
            machine: Machine {
                hostname: "lab".into(),
                node_ips: vec!["10.88.0.1".into()],
                cpus: 2,
                memory_bytes: 24_683_656 << 10,
                boot_id: "b1".into(),
                ..Machine::default()
            },
            runtime: RuntimeInfo {
                name: "containerd".into(),
                version: "v2.4.2".into(),
                runtime_ready: true,
                network_ready: true,
                ..RuntimeInfo::default()
            },
            images: Vec::new(),
            unready: Vec::new(),
            agent,
            seconds: 0,
            tickets: 0,
        }
    }

    fn facts(&self) -> Facts<'_> {
        const HANDLERS: &[RuntimeHandler] = &[];
        Facts {
            config: &self.config,
            node: &self.node,
            machine: &self.machine,
            runtime: Some(&self.runtime),
            handlers: HANDLERS,
            supplemental_groups: Some(true),
            images: Some(&self.images),
            unready: &self.unready,
            pressure: [false; 3],
            now: Wall(1_700_000_000_000_000_000 + i64::try_from(self.seconds).unwrap() * 1_000_000_000),
        }
    }

    fn mono(&self) -> Mono {
        Mono(self.seconds * 1_000_000_000)
    }

    /// The next request, in virtual time; `None` when none is due within `wait` seconds.
    fn next(&mut self, wait: u64) -> Option<(Doing, ApiRequest)> {
        let until = self.seconds + wait;
        loop {
            let mut agent = std::mem::replace(&mut self.agent, NodeAgent::new(0));
            let asked = agent.act(&self.facts(), self.mono());
            self.agent = agent;
            if let Some((doing, request)) = asked {
                self.tickets += 1;
                self.agent.asked(Ticket(self.tickets), doing);
                return Some((doing, request));
            }
            self.seconds += 1;
            if self.seconds > until {
                return None;
            }
        }
    }

    fn answer(&mut self, status: u16, body: &Value) {
        let answered = Answered { status, secret: false, body: body.to_string().into(), retry_after: None };
        let outcome = Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))));
        let config = self.config.clone();
        self.agent.take(&outcome, &config, self.mono());
    }

    fn unreachable(&mut self) {
        let failure = Failure { class: FailureClass::Unavailable, message: "connection refused".into() };
        let config = self.config.clone();
        self.agent.take(&Outcome::Failed(failure), &config, self.mono());
    }

    fn events(&mut self) -> Vec<&'static str> {
        self.agent.events.drain(..).map(|event| event.reason).collect()
    }

    /// A node that was registered and told its first status.
    fn registered() -> Self {
        let mut rig = Self::new();
        let (doing, request) = rig.next(0).unwrap();
        assert_eq!(doing, Doing::Create);
        let mut node: Value = serde_json::from_str(request.body.text()).unwrap();
        node["metadata"]["uid"] = "uid-1".into();
        rig.answer(201, &node);
        rig.seconds += 1;
        let (doing, _) = rig.next(0).unwrap();
        assert_eq!(doing, Doing::Report);
        let now = changes::updated(&node, &rig.facts()).0;
        rig.answer(200, &now);
        rig.events();
        rig
    }
}

fn body(request: &ApiRequest) -> Value {
    serde_json::from_str(request.body.text()).unwrap()
}

#[test]
fn the_object_is_what_the_reference_registers() {
    let mut rig = Rig::new();
    rig.config.labels = BTreeMap::from([("zone".into(), "a".into()), ("kubernetes.io/hostname".into(), "x".into())]);
    rig.config.taints = vec![NodeTaint { key: "k".into(), value: String::new(), effect: "NoSchedule".into() }];
    rig.config.provider_id = "lab://1".into();
    rig.images = vec![
        ListedImage { id: "i1".into(), digests: vec![], tags: vec!["a:1".into()], size: 9, pinned: false },
        ListedImage { id: "i2".into(), digests: vec![], tags: vec![], size: 8, pinned: false },
        ListedImage { id: "i3".into(), digests: vec![], tags: vec!["c:1".into()], size: 7, pinned: false },
    ];
    let (node, events) = build::initial(&rig.facts());
    assert_eq!(
        node["metadata"],
        json!({
            "name": "node",
            "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
            "labels": {
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": "x", "kubernetes.io/os": "linux", "zone": "a",
            },
        })
    );
    let taints = json!([{ "key": "k", "effect": "NoSchedule" }]);
    assert_eq!(node["spec"], json!({ "providerID": "lab://1", "taints": taints }));
    let status = &node["status"];
    assert_eq!(
        status["capacity"],
        json!({
            "cpu": "2", "ephemeral-storage": "270553174016", "hugepages-1Gi": "2Gi", "hugepages-2Mi": "0",
            "memory": "24683656Ki", "pods": "110",
        })
    );
    assert_eq!(
        status["allocatable"],
        json!({
            "cpu": "1750m", "ephemeral-storage": "265142110657", "hugepages-1Gi": "2Gi", "hugepages-2Mi": "0",
            "memory": "22484104Ki", "pods": "110",
        })
    );
    assert_eq!(status["images"], json!([{ "names": ["a:1"], "sizeBytes": 9 }, { "names": null, "sizeBytes": 8 }]));
    assert_eq!(status["nodeInfo"]["containerRuntimeVersion"], "containerd://2.4.2");
    assert_eq!(status["features"], json!({ "supplementalGroupsPolicy": true }));
    let kinds: Vec<&Value> = status["conditions"].as_array().unwrap().iter().map(|c| &c["type"]).collect();
    assert_eq!(kinds, ["MemoryPressure", "DiskPressure", "PIDPressure", "Ready"]);
    assert_eq!(
        status["addresses"],
        json!([{ "type": "InternalIP", "address": "10.88.0.1" }, { "type": "Hostname", "address": "lab" }])
    );
    let reasons: Vec<_> = events.iter().map(|event| event.reason).collect();
    assert_eq!(reasons, ["NodeHasSufficientMemory", "NodeHasNoDiskPressure", "NodeHasSufficientPID"]);
}

#[test]
fn an_external_cloud_provider_owns_the_addresses() {
    let mut rig = Rig::new();
    rig.config.external_cloud = true;
    let (mut node, _) = build::initial(&rig.facts());
    assert_eq!(node["metadata"]["annotations"]["alpha.kubernetes.io/provided-node-ip"], "10.88.0.1");
    assert_eq!(node["spec"]["taints"][0]["key"], "node.cloudprovider.kubernetes.io/uninitialized");
    node["status"]["addresses"] = json!([{ "type": "ExternalIP", "address": "1.2.3.4" }]);
    build::fill(&mut node, &rig.facts());
    assert_eq!(node["status"]["addresses"][0]["address"], "1.2.3.4");
    rig.config.node_ip_given = false;
    let (node, _) = build::initial(&rig.facts());
    assert_eq!(node["status"]["addresses"], json!([{ "type": "Hostname", "address": "lab" }]));
}

#[test]
fn a_status_is_written_when_it_changes_or_was_not_for_long() {
    let mut rig = Rig::registered();
    // Nothing changes: nothing is written, for two and a half minutes at the least.
    assert_eq!(rig.next(140), None);
    let (doing, request) = rig.next(330).unwrap();
    assert_eq!((doing, request.method), (Doing::Report, Method::PatchStrategic));
    assert_eq!(request.path, "/api/v1/nodes/node/status");
    // Only heartbeats are told.
    let patch = body(&request);
    assert_eq!(patch["status"].as_object().unwrap().len(), 1);
    assert_eq!(patch["status"]["conditions"].as_array().unwrap().len(), 4);
    assert_eq!(patch["status"]["conditions"][0].as_object().unwrap().len(), 2);
    let now = changes::updated(&rig.agent.known.clone().unwrap(), &rig.facts()).0;
    rig.answer(200, &now);
    // From here on the period is as configured.
    let before = rig.seconds;
    assert!(rig.next(400).is_some());
    assert!((300..=312).contains(&(rig.seconds - before)), "{}", rig.seconds - before);
    rig.answer(200, &now);
    rig.unready = vec!["container runtime is down".into()];
    let (_, request) = rig.next(11).unwrap();
    let ready = body(&request)["status"]["conditions"][3].clone();
    assert_eq!((&ready["status"], &ready["reason"]), (&json!("False"), &json!("KubeletNotReady")));
    assert_eq!(rig.events(), ["NodeNotReady"]);
}

#[test]
fn a_shutdown_and_its_end_are_told_once_each() {
    let mut rig = Rig::new();
    for shutting_down in [false, true, true, false, false] {
        rig.agent.tell_shutdown(shutting_down);
    }
    let told: Vec<String> = rig.agent.events.drain(..).map(|e| format!("{}: {}", e.reason, e.message)).collect();
    assert_eq!(
        told,
        [
            "NodeShutdown: Shutdown manager detected shutdown event",
            "NodeShutdown: Shutdown manager detected shutdown cancellation"
        ]
    );
}

#[test]
fn a_node_that_exists_is_reconciled() {
    let mut rig = Rig::new();
    rig.next(0).unwrap();
    rig.answer(409, &json!({ "message": "already exists" }));
    assert_eq!(rig.next(0).unwrap().0, Doing::ReadExisting);
    let mut existing = build::initial(&rig.facts()).0;
    existing["metadata"]["labels"] = json!({ "kubernetes.io/hostname": "old", "mine": "kept" });
    existing["metadata"]["annotations"] = json!({});
    existing["status"]["capacity"]["hugepages-64Ki"] = "0".into();
    existing["status"]["capacity"]["example.com/gpu"] = "4".into();
    rig.answer(200, &existing);
    let (doing, request) = rig.next(0).unwrap();
    assert_eq!(doing, Doing::Reconcile);
    let patch = body(&request);
    assert_eq!(patch["metadata"]["labels"]["kubernetes.io/hostname"], "lab");
    assert_eq!(patch["metadata"]["annotations"][build::ATTACH_DETACH], "true");
    assert_eq!(patch["status"], json!({ "capacity": { "hugepages-64Ki": null } }));
    assert!(patch["metadata"]["labels"].get("mine").is_none());
    // One that fits needs no write.
    let wanted = changes::reconciled(&existing, &build::initial(&rig.facts()).0);
    rig.answer(200, &wanted);
    assert_eq!(changes::patch(&wanted, &changes::reconciled(&wanted, &build::initial(&rig.facts()).0)), None);
    assert_eq!(wanted["status"]["capacity"]["example.com/gpu"], "4");
}

#[test]
fn registration_is_tried_until_it_works() {
    let mut rig = Rig::new();
    let mut waits = Vec::new();
    for _ in 0..8 {
        let before = rig.seconds;
        assert_eq!(rig.next(20).unwrap().0, Doing::Create);
        waits.push(rig.seconds - before);
        rig.unreachable();
    }
    assert_eq!(waits, [0, 1, 1, 1, 2, 4, 7, 7]);
    assert_eq!(rig.events().len(), 3, "each is told once");
    // A kubelet that may not create nodes uses the one that is there.
    rig.next(20).unwrap();
    rig.answer(403, &json!({ "message": "forbidden" }));
    assert_eq!(rig.next(0).unwrap().0, Doing::ReadExisting);
    rig.answer(404, &json!({ "message": "not found" }));
    assert_eq!(rig.next(20).unwrap().0, Doing::Create);
}

#[test]
fn without_registration_the_status_waits_for_the_object() {
    let mut rig = Rig::new();
    rig.config.register = false;
    let (doing, request) = rig.next(0).unwrap();
    assert_eq!((doing, request.method), (Doing::ReadLive, Method::Get));
    rig.answer(404, &json!({}));
    assert_eq!(rig.next(0).unwrap().0, Doing::ReadLive);
    rig.answer(200, &build::initial(&rig.facts()).0);
    rig.seconds += 1;
    assert_eq!(rig.next(0).unwrap().0, Doing::Report);
}

#[test]
fn a_refused_status_is_tried_on_the_live_object() {
    let mut rig = Rig::registered();
    rig.images = vec![ListedImage { id: "i".into(), digests: vec![], tags: vec![], size: 1, pinned: false }];
    assert_eq!(rig.next(11).unwrap().0, Doing::Report);
    let known = rig.agent.known.clone().unwrap();
    for _ in 0..4 {
        rig.answer(500, &json!({ "message": "busy" }));
        assert_eq!(rig.next(0).unwrap().0, Doing::ReadLive);
        rig.answer(200, &known);
        assert_eq!(rig.next(0).unwrap().0, Doing::Report);
    }
    rig.answer(500, &json!({ "message": "busy" }));
    assert_eq!(rig.next(8), None, "the next try has its own period");
    assert_eq!(rig.next(4).unwrap().0, Doing::ReadLive);
}

#[test]
fn a_reboot_and_a_cordon_are_told_once() {
    let mut rig = Rig::registered();
    let mut known = rig.agent.known.clone().unwrap();
    known["status"]["nodeInfo"]["bootID"] = "b0".into();
    known["spec"]["unschedulable"] = true.into();
    rig.agent.known = Some(known.clone());
    rig.next(11).unwrap();
    assert_eq!(rig.events(), ["Rebooted", "NodeNotSchedulable"]);
    rig.answer(200, &known);
    rig.next(11).unwrap();
    assert_eq!(rig.events(), [""; 0]);
}

#[test]
fn volumes_that_an_earlier_kubelet_used_are_let_go() {
    let rig = Rig::registered();
    let (mut node, _) = build::initial(&rig.facts());
    node["status"]["volumesInUse"] = json!(["kubernetes.io/csi/d^v"]);
    node["status"]["volumesAttached"] = json!([{ "name": "kubernetes.io/csi/d^v", "devicePath": "" }]);
    let before = node.clone();
    build::fill(&mut node, &rig.facts());
    let patch = changes::patch(&before, &node).unwrap();
    assert_eq!(patch["status"].get("volumesInUse"), Some(&Value::Null), "{patch}");
    assert_eq!(patch["status"].get("volumesAttached"), None, "the controller's");
}

#[test]
fn addresses_are_replaced_as_a_whole() {
    let mut rig = Rig::registered();
    rig.machine.node_ips = vec!["10.88.0.9".into()];
    let patch = body(&rig.next(11).unwrap().1);
    let addresses = patch["status"]["addresses"].as_array().unwrap();
    assert_eq!(addresses.last().unwrap(), &json!({ "$patch": "replace" }));
    assert_eq!(addresses[0]["address"], "10.88.0.9");
}

#[test]
fn what_keeps_a_node_from_being_ready_is_said() {
    let second = |s: u64| Mono(s * 1_000_000_000);
    let well = RuntimeInfo { runtime_ready: true, network_ready: true, ..RuntimeInfo::default() };
    let heard = |info, ready, relisted, now| {
        let heard = Heard { info, ready_seen: ready, relisted, shutting_down: false, now: second(now) };
        conditions::unready(&heard).join("|")
    };
    assert_eq!(heard(Some(&well), Some(second(1)), Some(second(1)), 30), "");
    assert_eq!(heard(Some(&well), Some(second(1)), Some(second(1)), 31), "container runtime is down");
    let pleg = "PLEG is not healthy: pleg was last seen active 3m1s ago; threshold is 3m0s";
    assert_eq!(heard(Some(&well), Some(second(170)), Some(second(1)), 182), pleg);
    let message = "RuntimeReady=false reason:A message:b, NetworkReady=false reason:C message:d, e".to_owned();
    let ill = RuntimeInfo { message, ..RuntimeInfo::default() };
    let text = "container runtime not ready: RuntimeReady=false reason:A message:b|\
                container runtime network not ready: NetworkReady=false reason:C message:d, e";
    assert_eq!(heard(Some(&ill), Some(second(1)), Some(second(1)), 2), text);
    let start = "container runtime status check may not have completed yet|\
                 PLEG is not healthy: pleg has yet to be successful|network state unknown";
    assert_eq!(heard(None, None, None, 2), start);
    assert_eq!(timeout(&object()), Duration::from_secs(10));
}

#[test]
fn changes_of_others_count_and_old_news_do_not() {
    use crate::reflector::Change;
    let mut rig = Rig::registered();
    let mut known = rig.agent.known.clone().unwrap();
    known["metadata"]["resourceVersion"] = "9".into();
    rig.agent.known = Some(known.clone());
    let put = |version: &str, label: &str| {
        let mut object = known.clone();
        object["metadata"]["resourceVersion"] = version.into();
        object["metadata"]["labels"]["seen"] = label.into();
        Change::Put(object.to_string().into())
    };
    let seen = |rig: &Rig| rig.agent.known.as_ref().map(|known| known["metadata"]["labels"]["seen"].clone());
    rig.agent.follow(&put("8", "old"));
    assert_eq!(seen(&rig), Some(Value::Null));
    rig.agent.follow(&put("10", "new"));
    assert_eq!(seen(&rig), Some("new".into()));
    rig.agent.follow(&Change::Replaced(Vec::new()));
    assert_eq!(seen(&rig), None);
    // What is gone is asked for.
    assert_eq!(rig.next(11).unwrap().0, Doing::ReadLive);
}

#[test]
fn the_runtime_is_told_the_range_of_pod_addresses_once() {
    use super::steps::Cidr;
    let object = json!({ "spec": { "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"] } });
    let mut cidr = Cidr::default();
    assert_eq!(cidr.next(None, Mono(0)), None);
    assert_eq!(cidr.next(Some(&json!({ "spec": {} })), Mono(0)), None);
    let first = cidr.next(Some(&object), Mono(0)).unwrap();
    assert_eq!(first, "10.1.0.0/24,fd00::/64");
    cidr.asked(Ticket(1), first.clone());
    assert_eq!(cidr.next(Some(&object), Mono(0)), None);
    cidr.take(Ticket(1), &Outcome::TimedOut, Mono(10));
    assert_eq!(cidr.next(Some(&object), Mono(9)), None);
    cidr.asked(Ticket(2), cidr.next(Some(&object), Mono(10)).unwrap());
    cidr.take(Ticket(9), &Outcome::TimedOut, Mono(10));
    cidr.take(Ticket(2), &Outcome::Done(Answer::Nothing), Mono(10));
    assert_eq!(cidr.next(Some(&object), Mono(20)), None);
}
