//! The same objects on ticklet and on the reference kubelet: what both leave in the API server is compared field by field.
//!
//! Times, ids and addresses are blanked. A difference is a fault of ticklet unless the list `KNOWN` says why it is right.
//! Runs where `TICKLET_REFERENCE` names the reference's program; `cargo xtask test --reference` sets it, and with
//! `TICKLET_REPORT` it gets the table for the page.

#[path = "same/blank.rs"]
mod blank;
#[path = "same/metrics.rs"]
mod metrics;
#[path = "same/pods.rs"]
mod pods;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::tunables::Tunables;

use self::blank::{Lines, blank, flatten};
use self::pods::{RESTLESS, Subject};
use crate::{NODE, Rig, SOON};

/// Everything together, on a machine that builds beside it.
const SETTLE: Duration = Duration::from_secs(240);

/// Differences that are right, by a part of their line, and why.
const KNOWN: [(&str, &str); 7] = [
    (".managers[", "ticklet writes under its own name"),
    (".status.resources", "on cgroup v1 the kubelet takes the lack of a limit for a limit"),
    ("MissingClusterDNS kubelet does not have", "told of each pod, not of the node once more"),
    ("MissingClusterDNS of Node", "told of each pod, not of the node once more"),
    ("prober_probe_duration_seconds", "ticklet tells how long probes took, the kubelet has no buckets"),
    ("container_fs_", "what containers read and write of disks is not told yet"),
    ("metrics /metrics", "families of Go, of its libraries and of parts that ticklet has not: `docs/metrics.md`"),
];

#[test]
fn both_kubelets_leave_the_same() {
    let Some(reference) = std::env::var_os("TICKLET_REFERENCE") else {
        eprintln!("TICKLET_REFERENCE is not set: this rung was not selected");
        return;
    };
    let _tunables = Tunables::save();
    let Some(expected) = observe(Some(reference.into())) else { return };
    let Some(found) = observe(None) else { return };
    let mut unknown = Vec::new();
    let mut report = String::from("| compared | values | different | why |\n|---|---|---|---|\n");
    for (group, expected) in &expected {
        let found = &found[group];
        let differences = differences(expected, found);
        let known = |line: &str| KNOWN.iter().find(|(part, _)| line.contains(part)).map(|(_, why)| *why);
        let reasons: std::collections::BTreeSet<_> = differences.iter().filter_map(|line| known(line)).collect();
        let reasons: Vec<_> = reasons.into_iter().collect();
        let (count, different) = (expected.len(), differences.len());
        writeln!(report, "| {group} | {count} | {different} | {} |", reasons.join("; ")).unwrap();
        unknown.extend(differences.into_iter().filter(|line| known(line).is_none()));
    }
    if let Some(file) = std::env::var_os("TICKLET_REPORT") {
        std::fs::write(file, &report).unwrap();
    }
    println!("{report}");
    assert!(unknown.is_empty(), "{} differences:\n{}", unknown.len(), unknown.join("\n"));
}

/// Values that are not the same, one line each.
fn differences(expected: &Lines, found: &Lines) -> Vec<String> {
    let paths: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    let differ = paths.into_iter().filter(|path| expected.get(*path) != found.get(*path));
    differ.map(|path| format!("{path}: reference {:?}, ticklet {:?}", expected.get(path), found.get(path))).collect()
}

/// Runs everything on one kubelet; what it left, by what is compared.
fn observe(program: Option<PathBuf>) -> Option<BTreeMap<&'static str, Lines>> {
    let mut rig = Rig::new()?;
    rig.node.program = program;
    rig.node.put("static.yaml", tests::manifest::shell_pod("static", "while :; do sleep 1; done", "")).unwrap();
    let mut rig = rig.completed();
    rig.cluster.wait_field("serviceaccount/default", ".metadata.name", "default", SOON).unwrap();
    rig.cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {k: one}}").unwrap();
    rig.cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {p: hush}}").unwrap();
    for (name, handler) in [("boxed", "runc"), ("odd", "none")] {
        let class = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler});
        rig.cluster.apply(&class.to_string()).unwrap();
    }
    let mut all = pods::running();
    all.extend(pods::stuck());
    create(&rig, &all);
    settle(&rig, &all);
    let ended = pods::ended();
    create(&rig, &ended);
    let deleted = pods::deleted();
    create(&rig, &deleted);
    for subject in &deleted {
        let ready = ".status.conditions[?(@.type==\"Ready\")].status";
        rig.cluster.wait_field(&format!("pod/{}", subject.name), ready, "True", SETTLE).unwrap();
        rig.cluster.kubectl(&["delete", &format!("pod/{}", subject.name), "--wait=false"]).unwrap();
    }
    all.extend(ended);
    all.extend(deleted);
    settle(&rig, &all);
    // The last writes and events are over.
    std::thread::sleep(Duration::from_secs(15));
    let pods = settle(&rig, &all);
    let mut seen = BTreeMap::from([
        ("pods", Lines::new()),
        ("events", events(&rig)),
        ("node", node(&rig)),
        ("metrics", metrics::families(&rig)),
    ]);
    for (name, pod) in &pods {
        flatten(seen.get_mut("pods").unwrap(), &format!("pod {name}"), &essence(name, pod));
    }
    rig.node.check_alive().unwrap();
    for name in ["held", "held-deaf", "held-hook"] {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        rig.cluster.kubectl(&["patch", &format!("pod/{name}"), "--type=merge", "-p", patch]).unwrap();
    }
    rig.cluster.kubectl(&["delete", "pod", "--all", "--wait=false"]).unwrap();
    rig.node.remove("static.yaml").unwrap();
    rig.wait_empty();
    Some(seen)
}

fn create(rig: &Rig, subjects: &[Subject]) {
    let items: Vec<_> = subjects.iter().map(|subject| &subject.object).collect();
    rig.cluster.apply(&json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
}

/// Waits until every pod has been where it goes; the pods as they were then. Those that go round are there for a while only.
fn settle(rig: &Rig, subjects: &[Subject]) -> BTreeMap<String, Value> {
    let end = Instant::now() + SETTLE;
    let mut there: BTreeMap<String, Value> = BTreeMap::new();
    loop {
        let list = rig.cluster.kubectl(&["get", "pods", "-o", "json", "--show-managed-fields"]).unwrap();
        let mut list: Value = serde_json::from_str(&list).unwrap();
        let items = list["items"].as_array_mut().unwrap().drain(..);
        let pods: BTreeMap<String, Value> =
            items.map(|pod| (pod["metadata"]["name"].as_str().unwrap().to_owned(), pod)).collect();
        for subject in subjects {
            let status = &pods[subject.name]["status"];
            if subject.settled.iter().all(|(path, value)| status.pointer(path) == Some(value)) {
                there.insert(subject.name.to_owned(), pods[subject.name].clone());
            }
        }
        match subjects.iter().find(|subject| !there.contains_key(subject.name)) {
            None => return pods.into_iter().chain(there).collect(),
            // What it is instead is compared: one run shows all differences.
            Some(subject) if Instant::now() > end => {
                println!("{} does not get to {:?}: {:#}", subject.name, subject.settled, pods[subject.name]["status"]);
                let mut pod = pods[subject.name].clone();
                pod["unsettled"] = json!(true);
                there.insert(subject.name.to_owned(), pod);
            }
            Some(_) => std::thread::sleep(Duration::from_millis(500)),
        }
    }
}

/// What is compared of a pod.
fn essence(name: &str, pod: &Value) -> Value {
    let mut status = pod["status"].clone();
    if RESTLESS.contains(&name) {
        for list in ["containerStatuses", "initContainerStatuses"] {
            for container in status[list].as_array_mut().into_iter().flatten() {
                let restarts = container["restartCount"].as_u64().unwrap();
                container["restartCount"] = if restarts > 0 { json!("some") } else { json!(0) };
            }
        }
    }
    // A refused pod has none.
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let order: Vec<_> = conditions.iter().map(|c| c["type"].clone()).collect();
    let metadata = &pod["metadata"];
    json!({"status": status, "order": order, "labels": metadata["labels"], "annotations": essential(&metadata["annotations"]),
        "owners": metadata["ownerReferences"], "finalizers": metadata["finalizers"], "generation": metadata["generation"],
        "deleting": metadata["deletionTimestamp"].is_string(), "grace": metadata["deletionGracePeriodSeconds"],
        "spec": if name.starts_with("static") { pod["spec"].clone() } else { Value::Null },
        "managers": managers(metadata), "unsettled": pod["unsettled"]})
}

/// Annotations without the hash of a folder's name and what kubectl keeps for itself.
fn essential(annotations: &Value) -> Value {
    let mut annotations = annotations.clone();
    if let Some(all) = annotations.as_object_mut() {
        all.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    annotations
}

/// Who wrote what of an object, in the words of the API server.
fn managers(metadata: &Value) -> Value {
    let all = metadata["managedFields"].as_array().map(Vec::as_slice).unwrap_or_default();
    let kubelets = all.iter().filter(|fields| fields["manager"] != "kubectl-client-side-apply");
    let mut names: Vec<String> = kubelets
        .map(|f| format!("{} {} {}", f["manager"], f["operation"], f["subresource"]).replace('"', ""))
        .collect();
    names.sort();
    json!(names)
}

/// What the kubelet told, once or more often.
fn events(rig: &Rig) -> Lines {
    let mut lines = Lines::new();
    let list = rig.cluster.get("events").unwrap();
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let own = |event: &&Value| event["source"]["component"] == "kubelet";
    // A busy machine makes probes late now and then.
    let timely = |event: &&Value| !event["message"].as_str().unwrap_or_default().contains("timed out after");
    for event in list["items"].as_array().unwrap().iter().filter(own).filter(timely) {
        let (about, text) = (&event["involvedObject"], |value: &Value| value.as_str().unwrap_or("-").to_owned());
        let name = text(&about["name"]);
        let place = format!("{} {name} {}", text(&about["kind"]), text(&about["fieldPath"]));
        let [kind, reason] = [&event["type"], &event["reason"]].map(text);
        let message = blank(&text(&event["message"]).replace(&rig.node.lab.dir().display().to_string(), "LAB"));
        let path = format!("event {place} {kind} {reason} {message}");
        *counts.entry(path).or_default() += event["count"].as_u64().unwrap_or(1);
        let mut shape = event.clone();
        for field in ["message", "count", "firstTimestamp", "lastTimestamp", "reason", "type"] {
            shape.as_object_mut().unwrap().remove(field);
        }
        shape["involvedObject"]["resourceVersion"] = json!(about["resourceVersion"].is_string());
        shape["involvedObject"]["uid"] = json!(blank(&text(&about["uid"])));
        let own_name = text(&event["metadata"]["name"]);
        shape["metadata"] = json!({"named after": own_name.starts_with(&format!("{name}."))});
        flatten(&mut lines, &format!("event {kind} {reason} of {}: ", text(&about["kind"])), &{
            shape["involvedObject"].as_object_mut().unwrap().remove("name");
            shape["involvedObject"].as_object_mut().unwrap().remove("fieldPath");
            shape
        });
    }
    for (path, count) in counts {
        let restless = RESTLESS.iter().any(|name| path.starts_with(&format!("event Pod {name} ")));
        let repeats = [
            "Unhealthy",
            "FailedMount",
            "ErrImageNeverPull",
            "InspectFailed",
            "BackOff",
            "Failed ",
            "MissingClusterDNS",
            "DeadlineExceeded",
            "NodeHas",
        ];
        let often = restless || repeats.iter().any(|reason| path.contains(reason));
        lines.insert(path, if often { "some".to_owned() } else { count.to_string() });
    }
    lines
}

/// The node's object, its Lease and what it is set to.
fn node(rig: &Rig) -> Lines {
    let mut lines = Lines::new();
    let get = |args: &[&str]| -> Value { serde_json::from_str(&rig.cluster.kubectl(args).unwrap()).unwrap() };
    let mut node = get(&["get", "node", NODE, "-o", "json", "--show-managed-fields"]);
    let managers = managers(&node["metadata"]);
    let metadata = json!({"labels": node["metadata"]["labels"], "annotations": node["metadata"]["annotations"]});
    node["metadata"] = metadata;
    node["managers"] = managers;
    // It is what is free at the moment of the start.
    for list in ["capacity", "allocatable"] {
        for value in node["status"][list].as_object_mut().unwrap().values_mut() {
            let text = value.as_str().unwrap().to_owned();
            *value = json!(text);
        }
    }
    node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] = json!("PORT");
    flatten(&mut lines, "node ", &node);
    let mut lease = get(&["-n", "kube-node-lease", "get", "lease", NODE, "-o", "json", "--show-managed-fields"]);
    let managers = self::managers(&lease["metadata"]);
    let owners = lease["metadata"]["ownerReferences"].clone();
    lease["metadata"] = json!({"owners": owners});
    lease["managers"] = managers;
    flatten(&mut lines, "lease ", &lease);
    let config = get(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/configz")]);
    let text = config.to_string().replace(&rig.node.lab.dir().display().to_string(), "LAB");
    let mut config: Value = serde_json::from_str(&text).unwrap();
    for port in ["port", "healthzPort"] {
        config["kubeletconfig"][port] = json!("PORT");
    }
    flatten(&mut lines, "configz ", &config);
    lines
}
