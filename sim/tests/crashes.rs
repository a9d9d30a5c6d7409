//! The agent dies before and after each of its writes, durable ones and those to the API server: whatever the moment, the node
//! and the server end as if it had not died.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use components::edge::sources::Source;
use components::time::Mono;
use serde_json::{Value, json};
use sim::node::faults::Faults;
use sim::node::{Node, Options};

const PODS: &str = "/api/v1/namespaces/default/pods";
const STATIC: &str = "/etc/kubernetes/manifests/static.yaml";

fn options() -> Options {
    let mut options = Options::in_a_cluster(7, systems::plugin);
    options.images = vec!["busybox:1".into()];
    options
}

const fn at(seconds: u64) -> Mono {
    Mono(seconds * 1_000_000_000)
}

fn pod(node: &mut Node, name: &str, uid: &str, script: &str, spec: Value) {
    let mut object = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"nodeName": &*node.options.config.node_name, "terminationGracePeriodSeconds": 3,
            "containers": [{"name": "c", "image": "busybox:1", "command": ["sh", "-c", script]}]},
    });
    for (key, value) in spec.as_object().unwrap() {
        if key == "c" {
            object["spec"]["containers"][0].as_object_mut().unwrap().extend(value.as_object().unwrap().clone());
        } else {
            object["spec"][key] = value.clone();
        }
    }
    node.api_create(PODS, &object).unwrap();
}

/// Pods that come, end, fail, are refused, are replaced and deleted, with everything that is written for them.
fn play(crash: Option<(u64, bool)>) -> Node {
    let mut node = Node::new(options(), Faults::none(1));
    node.faults.crash_at = crash;
    let map = json!({"metadata": {"name": "cfg"}, "data": {"k": "v"}});
    node.api_create("/api/v1/namespaces/default/configmaps", &map).unwrap();
    let mirror = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "static", "annotations": {"kubernetes.io/config.hash": "h1"}},
        "spec": {"containers": [{"name": "c", "image": "busybox:1"}]}});
    node.put(Source::File, STATIC, &mirror.to_string());
    node.run_until(at(2));
    let never = json!({"restartPolicy": "Never"});
    pod(&mut node, "job", "uid-job", "sleep 2; exit 3", never.clone());
    pod(&mut node, "done", "uid-done", "sleep 1", json!({"restartPolicy": "OnFailure"}));
    let rich = json!({
        "c": {"env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "k"}}}],
            "readinessProbe": {"tcpSocket": {"port": 80}, "periodSeconds": 2},
            "volumeMounts": [{"name": "t", "mountPath": "/t"}]},
        "initContainers": [{"name": "i", "image": "busybox:1", "command": ["sh", "-c", "sleep 1"]}],
        "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
    });
    pod(&mut node, "web", "uid-web", "serve", rich);
    pod(&mut node, "name", "uid-first", "serve", json!({}));
    pod(&mut node, "stays", "uid-stays", "serve", json!({}));
    pod(&mut node, "huge", "uid-huge", "serve", json!({"c": {"resources": {"requests": {"cpu": "9000"}}}}));
    node.run_until(at(20));
    node.api_delete(&format!("{PODS}/web"), None).unwrap();
    node.api_delete(&format!("{PODS}/job"), None).unwrap();
    node.run_until(at(25));
    node.api_delete(&format!("{PODS}/name"), Some(0)).unwrap();
    pod(&mut node, "name", "uid-second", "serve", json!({}));
    node.run_until(at(40));
    node.kill("default/stays", Some("c"), 1);
    node.run_until(at(60));
    node.remove(Source::File, STATIC);
    node.run_until(at(70));
    pod(&mut node, "last", "uid-last", "sleep 2", never);
    node.run_until(at(160));
    node
}

/// What must be the same whatever happened on the way.
fn essence(node: &Node) -> Value {
    let pod = |name: &str| {
        let Some(pod) = node.api.get(&format!("{PODS}/{name}")) else { return Value::Null };
        let status = &pod["status"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let conditions: Vec<_> = conditions.iter().map(|c| json!([c["type"], c["status"], c["reason"]])).collect();
        let containers = status["containerStatuses"].as_array().cloned().unwrap_or_default();
        let containers: Vec<_> = containers
            .iter()
            .map(|c| {
                let state = c["state"].as_object().and_then(|state| state.keys().next().cloned());
                let ended = &c["state"]["terminated"];
                json!([c["name"], c["ready"], c["restartCount"], state, ended["exitCode"], ended["reason"]])
            })
            .collect();
        let running = node.running(&format!("default/{name}"), None).len();
        json!({"uid": pod["metadata"]["uid"], "phase": status["phase"], "reason": status["reason"],
            "conditions": conditions, "containers": containers, "running": running})
    };
    let names = ["job", "done", "web", "name", "stays", "huge", "last", "static-sim"];
    let pods: serde_json::Map<_, _> = names.map(|name| (name.to_owned(), pod(name))).into_iter().collect();
    let ready = node.api.get("/api/v1/nodes/sim").and_then(|node| {
        let all = node["status"]["conditions"].as_array()?;
        all.iter().find(|c| c["type"] == "Ready").map(|c| c["status"].clone())
    });
    let count = |kind: &str| node.api.counts.get(kind).copied().unwrap_or(0) > 0;
    json!({"pods": pods, "ready": ready, "lease": count("POST leases"), "directories": node.host.paths.len()})
}

#[test]
fn a_crash_around_any_write_changes_nothing_in_the_end() {
    let whole = play(None);
    assert!(whole.checks.violations.is_empty(), "{:?}", whole.checks.violations.first().map(|v| &v.text));
    let expect = essence(&whole);
    assert_eq!(expect["pods"]["job"], Value::Null, "{expect:#}");
    assert_eq!(expect["pods"]["name"]["uid"], "uid-second", "{expect:#}");
    assert_eq!(expect["pods"]["last"]["phase"], "Succeeded", "{expect:#}");
    assert_eq!(expect["pods"]["huge"]["reason"], "OutOfcpu", "{expect:#}");
    assert_eq!(expect["pods"]["stays"]["containers"][0][2], 1, "{expect:#}");
    let writes = whole.faults.writes;
    assert!(writes > 60, "only {writes} writes");
    let all =
        |after: bool| -> Vec<String> { (0..writes).filter_map(|number| differs(number, after, &expect)).collect() };
    let wrong = std::thread::scope(|scope| {
        let before = scope.spawn(|| all(false));
        let mut wrong = all(true);
        wrong.extend(before.join().unwrap());
        wrong
    });
    assert!(wrong.is_empty(), "{} of {} crashes:\n{}", wrong.len(), 2 * writes, wrong.join("\n"));
    println!("{writes} writes, a crash before and after each");
}

/// What is not as it should be after a crash at this write.
fn differs(number: u64, after: bool, expect: &Value) -> Option<String> {
    let node = play(Some((number, after)));
    let found = essence(&node);
    let broken = node.checks.violations.first().map(|v| v.text.clone());
    if found == *expect && broken.is_none() {
        return None;
    }
    let when = if after { "after" } else { "before" };
    Some(format!("{when} write {number}: {broken:?}\n{}", difference(expect, &found)))
}

fn difference(expect: &Value, found: &Value) -> String {
    let (Some(a), Some(b)) = (expect["pods"].as_object(), found["pods"].as_object()) else { return String::new() };
    let mut lines: Vec<_> = a
        .iter()
        .filter(|(name, pod)| b[*name] != **pod)
        .map(|(name, pod)| format!("  {name}: {pod}\n    not {}", b[name]))
        .collect();
    for key in ["ready", "lease", "directories"] {
        if expect[key] != found[key] {
            lines.push(format!("  {key}: {} not {}", expect[key], found[key]));
        }
    }
    lines.join("\n")
}
