//! A node of a real cluster: kube-apiserver and etcd on loopback, ticklet on containerd, kubectl as the witness.
//!
//! Needs the control plane; `cargo xtask test --only cluster` builds it and sets `TICKLET_CLUSTER`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::time::Duration;

use tests::cluster::Cluster;
use tests::lab::{Lab, Runtime};
use tests::node::{NODE, Node};

const SOON: Duration = Duration::from_secs(60);

/// A node of a cluster.
struct Rig {
    cluster: Cluster,
    node: Node,
}

impl Rig {
    /// A cluster and a node in it that runs; `None`, said aloud, when this rung was not selected.
    fn start() -> Option<Self> {
        let selected = std::env::var_os("TICKLET_CLUSTER").is_some();
        let Some(runtime) = Runtime::from_environment().unwrap().filter(|_| selected) else {
            eprintln!("TICKLET_CLUSTER or {} is not set: this rung was not selected", Runtime::VARIABLE);
            return None;
        };
        let lab = Lab::start(runtime).unwrap();
        let cluster = Cluster::start(&lab.dir().join("cluster")).unwrap();
        let mut node = Node::new(lab).unwrap();
        node.kubeconfig = Some(cluster.kubeconfig("node"));
        // Bound pods are the node's to see only once its object is there.
        let object = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {NODE}}}\n");
        cluster.apply(&object).unwrap();
        let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: default}\n";
        cluster.apply(account).unwrap();
        node.start().unwrap();
        Some(Self { cluster, node })
    }
}

/// A pod that is bound to the node and needs nothing of the cluster.
fn pod(name: &str, script: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  nodeName: {NODE}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 3
  containers:
  - name: c
    image: {image}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {script:?}]
{rest}",
        image = tests::lab::BUSYBOX_IMAGE,
    )
}

const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

#[test]
fn a_bound_pod_runs_is_seen_by_kubectl_and_goes() {
    let Some(mut rig) = Rig::start() else { return };
    rig.cluster.apply(&pod("web", WAIT, "")).unwrap();
    rig.cluster.wait_field("pod/web", ".status.phase", "Running", SOON).unwrap();
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    rig.cluster.wait_field("pod/web", ready, "True", SOON).unwrap();
    let seen = rig.cluster.get("pod/web").unwrap();
    assert_eq!(seen["status"]["observedGeneration"], seen["metadata"]["generation"], "{seen}");
    assert!(seen["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.213.")), "{seen}");
    assert_eq!(seen["status"]["containerStatuses"][0]["ready"], true, "{seen}");
    rig.cluster.kubectl(&["delete", "pod/web", "--wait=false"]).unwrap();
    rig.cluster.wait_gone("pod/web", SOON).unwrap();
    let left = rig.node.crictl().containers_of("web").unwrap();
    assert!(left.iter().all(|container| !container.is_running()), "{left:?}");
    rig.node.check_alive().unwrap();
}

#[test]
fn a_job_ends_and_stays_ended_over_restarts_of_ticklet() {
    let Some(mut rig) = Rig::start() else { return };
    rig.cluster.apply(&pod("good", "exit 0", "  restartPolicy: Never\n")).unwrap();
    rig.cluster.apply(&pod("bad", "exit 7", "  restartPolicy: Never\n")).unwrap();
    rig.cluster.apply(&pod("web", WAIT, "")).unwrap();
    rig.cluster.wait_field("pod/good", ".status.phase", "Succeeded", SOON).unwrap();
    rig.cluster.wait_field("pod/bad", ".status.phase", "Failed", SOON).unwrap();
    let code = ".status.containerStatuses[0].state.terminated.exitCode";
    rig.cluster.wait_field("pod/bad", code, "7", SOON).unwrap();
    rig.cluster.wait_field("pod/web", ".status.phase", "Running", SOON).unwrap();
    let versions = |rig: &Rig| {
        ["good", "bad", "web"].map(|name| {
            rig.cluster.get(&format!("pod/{name}")).unwrap()["metadata"]["resourceVersion"].as_str().unwrap().to_owned()
        })
    };
    std::thread::sleep(Duration::from_secs(3));
    let before = versions(&rig);
    let running = rig.node.crictl().containers_of("web").unwrap();
    rig.node.kill9().unwrap();
    rig.node.start().unwrap();
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(versions(&rig), before, "a restart wrote what was known already");
    assert_eq!(rig.node.crictl().containers_of("web").unwrap().len(), running.len());
    rig.cluster.kubectl(&["delete", "pod", "--all", "--wait=false"]).unwrap();
    for name in ["good", "bad", "web"] {
        rig.cluster.wait_gone(&format!("pod/{name}"), SOON).unwrap();
    }
}

#[test]
fn pods_outlive_an_outage_of_the_api_server() {
    let Some(mut rig) = Rig::start() else { return };
    rig.cluster.apply(&pod("web", WAIT, "")).unwrap();
    rig.cluster.wait_field("pod/web", ".status.phase", "Running", SOON).unwrap();
    rig.cluster.stop_apiserver().unwrap();
    let before = rig.node.crictl().containers_of("web").unwrap();
    let first = before.iter().find(|container| container.is_running()).unwrap().id.clone();
    rig.node.crictl().run(&["stop", "--timeout", "1", &first]).unwrap();
    rig.node
        .wait("the container runs again", SOON, |node| {
            let all = node.crictl().containers_of("web")?;
            Ok(all.iter().any(|container| container.is_running() && container.id != first).then_some(()))
        })
        .unwrap();
    rig.cluster.start_apiserver().unwrap();
    rig.cluster.wait_field("pod/web", ".status.containerStatuses[0].restartCount", "1", SOON).unwrap();
    rig.cluster.kubectl(&["delete", "pod/web", "--wait=false"]).unwrap();
    rig.cluster.wait_gone("pod/web", SOON).unwrap();
}
