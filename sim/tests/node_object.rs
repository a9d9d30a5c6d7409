//! The node in a simulated cluster: its object, its lease, its events; in virtual time, with trouble.

use components::edge::api::{ApiRequest, Class};
use components::edge::sources::Source;
use components::time::Mono;
use serde_json::{Value, json};
use sim::node::faults::Faults;
use sim::node::{Node, Options};
use std::time::Duration;

const NODE: &str = "/api/v1/nodes/sim";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/sim";

fn options() -> Options {
    let mut options = Options::in_a_cluster(7, systems::plugin);
    options.log = true;
    options.images = vec!["busybox:1".into()];
    options.config.object.as_mut().expect("a node of a cluster").labels = [("zone".to_owned(), "a".to_owned())].into();
    options
}

const fn at(seconds: u64) -> Mono {
    Mono(seconds * 1_000_000_000)
}

fn ready(node: &Node) -> Option<&Value> {
    let conditions = node.api.get(NODE)?["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready").map(|condition| &condition["status"])
}

fn renewed(node: &Node) -> String {
    let lease = node.api.get(LEASE).expect("a lease");
    lease["spec"]["renewTime"].as_str().expect("a time").to_owned()
}

fn count(node: &Node, what: &str) -> u64 {
    node.api.counts.get(what).copied().unwrap_or(0)
}

#[test]
fn a_node_registers_stays_ready_and_writes_little() {
    let mut node = Node::new(options(), Faults::none(1));
    node.run_until(at(5));
    assert_eq!(ready(&node), Some(&json!("True")), "{:?}", node.api.get(NODE));
    let object = node.api.get(NODE).unwrap();
    assert_eq!(object["metadata"]["labels"]["zone"], "a");
    assert_eq!(object["status"]["images"][0]["names"], json!(["busybox:1"]));
    let owner = &node.api.get(LEASE).unwrap()["metadata"]["ownerReferences"][0];
    assert_eq!(owner["uid"], object["metadata"]["uid"]);
    let before = (renewed(&node), count(&node, "PATCH nodes/status"), count(&node, "PUT leases"));
    node.run_until(at(65));
    assert!(renewed(&node) > before.0);
    assert_eq!(count(&node, "PATCH nodes/status"), before.1, "nothing changed");
    assert_eq!(count(&node, "PUT leases") - before.2, 6);
    node.run_until(at(965));
    let written = count(&node, "PATCH nodes/status") - before.1;
    assert!((2..=4).contains(&written), "{written} reports in 15 minutes");
    assert_eq!(count(&node, "POST nodes"), 1);
    assert!(node.checks.violations.is_empty(), "{:?}", node.checks.violations.first().map(|v| &v.text));
}

#[test]
fn an_api_server_that_is_gone_is_outlasted() {
    let mut node = Node::new(options(), Faults::none(2));
    node.run_until(at(20));
    node.api_down(Duration::from_secs(600));
    node.run_until(at(619));
    let before = renewed(&node);
    node.run_until(at(650));
    assert!(renewed(&node) > before, "renewed soon after it is back");
    assert_eq!(ready(&node), Some(&json!("True")));
    // A label that somebody set meanwhile is kept, and a status that somebody spoilt is mended.
    let spoilt = json!({ "metadata": { "labels": { "mine": "1" } }, "status": { "daemonEndpoints": null } });
    node.api_patch(NODE, &spoilt).unwrap();
    node.run_until(at(665));
    let object = node.api.get(NODE).unwrap();
    assert_eq!(object["metadata"]["labels"]["mine"], "1");
    assert_eq!(object["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    assert!(node.checks.violations.is_empty());
}

#[test]
fn a_restart_finds_its_object_and_its_lease() {
    let mut node = Node::new(options(), Faults::none(3));
    node.run_until(at(20));
    let uid = node.api.get(NODE).unwrap()["metadata"]["uid"].clone();
    node.crash(Duration::from_secs(3));
    node.run_until(at(60));
    assert_eq!(node.api.get(NODE).unwrap()["metadata"]["uid"], uid);
    assert_eq!(count(&node, "POST leases"), 1);
    assert_eq!(ready(&node), Some(&json!("True")));
    assert!(node.checks.violations.is_empty());
}

#[test]
fn events_tell_the_life_of_a_container() {
    let mut node = Node::new(options(), Faults::none(4));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "web" },
        "spec": { "containers": [{ "name": "c", "image": "busybox:1" }, { "name": "d", "image": "missing:1" }] },
    });
    node.put(Source::File, "/etc/kubernetes/manifests/web.yaml", &pod.to_string());
    node.run_until(at(40));
    node.remove(Source::File, "/etc/kubernetes/manifests/web.yaml");
    node.run_until(at(120));
    let list = ApiRequest::get("/api/v1/namespaces/default/events".into(), Class::Event);
    let now = node.now();
    let list: Value = serde_json::from_str(&node.api.request(now.mono, now.wall, &list).body).unwrap();
    let told = |reason: &str| {
        let events = list["items"].as_array().unwrap().iter().filter(|event| event["reason"] == reason);
        events.map(|event| event["message"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(told("Created"), ["Container created"]);
    assert_eq!(told("Started"), ["Container started"]);
    assert_eq!(told("Killing"), ["Stopping container c"]);
    let pulled = "Container image \"busybox:1\" already present on machine and can be accessed by the pod";
    assert_eq!(told("Pulled"), [pulled]);
    assert_eq!(told("Pulling"), ["Pulling image \"missing:1\""]);
    assert_eq!(told("BackOff"), ["Back-off pulling image \"missing:1\""]);
    assert_eq!(told("Failed").len(), 3, "{:?}", told("Failed"));
    assert_eq!(told("Starting"), ["Starting kubelet."]);
    assert_eq!(told("NodeReady"), ["Node sim status is now: NodeReady"]);
    assert!(node.checks.violations.is_empty(), "{:?}", node.checks.violations.first().map(|v| &v.text));
}
