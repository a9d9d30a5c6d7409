//! A node changes from ticklet to the reference kubelet and back, on the same root folder, without touching a container:
//! with static pods alone, and with pods of a real API server.
//!
//! Needs the reference's program in `TICKLET_REFERENCE`; `cargo xtask test --only reference` builds it and the control
//! plane, and sets that.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tests::cluster::Cluster;
use tests::lab::{BUSYBOX_IMAGE, Lab, Runtime};
use tests::manifest::{WAIT, shell_pod_with_uid};
use tests::node::{NODE, Node, ticklet};
use tests::tunables::Tunables;

const SOON: Duration = Duration::from_secs(60);

/// The reference's program and the runtime; `None`, said aloud, when this rung was not selected.
fn selected() -> Option<(PathBuf, Lab)> {
    let (Some(program), Some(runtime)) = (std::env::var_os("TICKLET_REFERENCE"), Runtime::from_environment().unwrap())
    else {
        eprintln!("TICKLET_REFERENCE or {} is not set: this rung was not selected", Runtime::VARIABLE);
        return None;
    };
    Some((program.into(), Lab::start(runtime).unwrap()))
}

/// Id and try of each running container of the lasting pods.
fn lasting(node: &Node) -> BTreeMap<String, (String, u64)> {
    let containers = node.crictl().containers().unwrap();
    let lasting =
        containers.into_iter().filter(|container| container.pod.starts_with("keep") && container.is_running());
    lasting.map(|container| (container.id, (container.pod, container.attempt))).collect()
}

/// Runs a kubelet until it has started a pod of its own, so had its chance to touch the others.
fn take_over(node: &mut Node, program: &Path, probe: &str) {
    node.start_program(program).unwrap();
    node.put("probe.yaml", shell_pod_with_uid(probe, &format!("uid-{probe}"), WAIT)).unwrap();
    node.wait_running(probe, SOON).unwrap();
    std::thread::sleep(Duration::from_secs(10));
    node.stop().unwrap();
    node.remove("probe.yaml").unwrap();
}

#[test]
fn ticklet_and_the_reference_hand_the_node_over() {
    let Some((reference, lab)) = selected() else { return };
    let _tunables = Tunables::save();
    let mut node = Node::start_new(lab).unwrap();
    for pod in ["keep1", "keep2", "keep3"] {
        node.put(&format!("{pod}.yaml"), shell_pod_with_uid(pod, &format!("uid-{pod}"), WAIT)).unwrap();
    }
    for pod in ["keep1", "keep2", "keep3"] {
        node.wait_running(pod, SOON).unwrap();
    }
    node.stop().unwrap();
    let before = lasting(&node);
    assert_eq!(before.len(), 3);
    take_over(&mut node, &reference, "by-reference");
    assert_eq!(lasting(&node), before, "the reference restarted a container of ticklet's");
    take_over(&mut node, &ticklet().unwrap(), "by-ticklet");
    assert_eq!(lasting(&node), before, "ticklet restarted a container it had handed over");
}

/// Pods that live through the swap.
const LASTING: usize = 20;

/// What pods of the swap use besides their image.
const OBJECTS: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue, size: '7'}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {password: swordfish}
";

/// One of the lasting pods: every second one has a probe, every third one an init container and limits, all have variables
/// and files of objects and a token.
fn lasting_pod(index: usize) -> String {
    let probe = if index.is_multiple_of(2) {
        "    readinessProbe:\n      exec: {command: [cat, /cfg/color]}\n      periodSeconds: 2\n"
    } else {
        ""
    };
    let extra = if index.is_multiple_of(3) {
        format!(
            "    resources: {{requests: {{cpu: 10m, memory: 8Mi}}, limits: {{memory: 32Mi}}}}
  initContainers:
  - {{name: first, image: {BUSYBOX_IMAGE}, imagePullPolicy: IfNotPresent, command: [sh, -c, 'echo first > /data/first']
    , volumeMounts: [{{name: data, mountPath: /data}}]}}
"
        )
    } else {
        String::new()
    };
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: keep{index}, labels: {{app: keep}}, annotations: {{note: 'a swap'}}}}
spec:
  nodeName: {NODE}
  terminationGracePeriodSeconds: 1
  volumes:
  - {{name: cfg, configMap: {{name: settings}}}}
  - {{name: data, emptyDir: {{}}}}
  containers:
  - name: c
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {WAIT:?}]
    env:
    - {{name: COLOR, valueFrom: {{configMapKeyRef: {{name: settings, key: color}}}}}}
    - {{name: PASSWORD, valueFrom: {{secretKeyRef: {{name: login, key: password}}}}}}
    - {{name: IP, valueFrom: {{fieldRef: {{fieldPath: status.podIP}}}}}}
    volumeMounts:
    - {{name: cfg, mountPath: /cfg}}
    - {{name: data, mountPath: /data}}
{probe}{extra}"
    )
}

/// What must not change while kubelets do: of each pod its containers and restarts, of all conditions the status and when it
/// came about.
fn steady_state(cluster: &Cluster) -> BTreeMap<String, Value> {
    let conditions = |object: &Value| -> Value {
        let all = object["status"]["conditions"].as_array().unwrap().iter();
        let mut all: Vec<_> = all.map(|c| [&c["type"], &c["status"], &c["lastTransitionTime"]]).collect();
        all.sort_by_key(|c| c[0].as_str().map(str::to_owned));
        serde_json::to_value(all).unwrap()
    };
    let pods = cluster.get("pods").unwrap();
    let mut state = BTreeMap::new();
    for pod in pods["items"].as_array().unwrap() {
        let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
        if !name.starts_with("keep") {
            continue;
        }
        let containers: Vec<_> = pod["status"]["containerStatuses"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| (c["containerID"].clone(), c["restartCount"].clone(), c["ready"].clone(), c["state"].clone()))
            .collect();
        let phase = &pod["status"]["phase"];
        state
            .insert(name, serde_json::json!({"phase": phase, "containers": containers, "conditions": conditions(pod)}));
    }
    state.insert("the node".to_owned(), conditions(&cluster.get(&format!("node/{NODE}")).unwrap()));
    state
}

/// Runs a kubelet until a new pod is ready, and some rounds more.
fn take_over_cluster(node: &mut Node, cluster: &Cluster, program: &Path, probe: &str) {
    node.start_program(program).unwrap();
    let new = lasting_pod(0).replace("name: keep0", &format!("name: {probe}"));
    cluster.apply(&new).unwrap();
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    cluster.wait_field(&format!("pod/{probe}"), ready, "True", SOON).unwrap();
    std::thread::sleep(Duration::from_secs(25));
    node.check_alive().unwrap();
}

#[test]
fn a_live_node_of_a_cluster_changes_its_kubelet_and_back() {
    let Some((reference, lab)) = selected() else { return };
    let _tunables = Tunables::save();
    let mut cluster = Cluster::start(&lab.dir().join("cluster")).unwrap();
    cluster.start_controllers().unwrap();
    cluster.wait_field("serviceaccount/default", ".metadata.name", "default", SOON).unwrap();
    cluster.wait_field("configmap/kube-root-ca.crt", ".metadata.name", "kube-root-ca.crt", SOON).unwrap();
    let mut node = Node::new(lab).unwrap();
    node.kubeconfig = Some(cluster.kubeconfig("node"));
    node.start_program(&reference).unwrap();
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    cluster.wait_field(&format!("node/{NODE}"), ready, "True", SOON).unwrap();
    let pods: Vec<String> = (1..=LASTING).map(lasting_pod).collect();
    cluster.apply(&format!("{OBJECTS}---\n{}", pods.join("---\n"))).unwrap();
    for index in 1..=LASTING {
        cluster.wait_field(&format!("pod/keep{index}"), ready, "True", SOON).unwrap();
    }
    // The last writes of the reference are over.
    std::thread::sleep(Duration::from_secs(15));
    node.stop().unwrap();
    let before = steady_state(&cluster);
    assert_eq!(before.len(), LASTING + 1);
    take_over_cluster(&mut node, &cluster, &ticklet().unwrap(), "by-ticklet");
    assert_eq!(steady_state(&cluster), before, "ticklet changed what the reference had left");
    node.stop().unwrap();
    take_over_cluster(&mut node, &cluster, &reference, "by-reference");
    assert_eq!(steady_state(&cluster), before, "the reference changed what ticklet had left");
    cluster.kubectl(&["delete", "pod", "--all", "--wait=false"]).unwrap();
    for index in 1..=LASTING {
        cluster.wait_gone(&format!("pod/keep{index}"), SOON).unwrap();
    }
    node.stop().unwrap();
}
