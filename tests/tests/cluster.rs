//! A node of a real cluster: kube-apiserver and etcd on loopback, ticklet on containerd, kubectl as the witness.
//!
//! Needs the control plane; `cargo xtask test --only cluster` builds it and sets `TICKLET_CLUSTER`.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "cluster/cases.rs"]
mod cases;
#[path = "cluster/identity.rs"]
mod identity;
#[path = "cluster/images.rs"]
mod images;
#[path = "cluster/kubectl.rs"]
mod kubectl;
#[path = "cluster/many.rs"]
mod many;
#[path = "cluster/registry.rs"]
mod registry;
#[path = "cluster/same.rs"]
mod same;
#[path = "cluster/top.rs"]
mod top;
#[path = "cluster/workloads.rs"]
mod workloads;

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
    /// A cluster and a node that does not run yet; `None`, said aloud, when this rung was not selected.
    fn new() -> Option<Self> {
        let selected = std::env::var_os("TICKLET_CLUSTER").is_some();
        let Some(runtime) = Runtime::from_environment().unwrap().filter(|_| selected) else {
            eprintln!("TICKLET_CLUSTER or {} is not set: this rung was not selected", Runtime::VARIABLE);
            return None;
        };
        let lab = Lab::start(runtime).unwrap();
        lab.make_bridge().unwrap();
        let cluster = Cluster::start(&lab.dir().join("cluster")).unwrap();
        let mut node = Node::new(lab).unwrap();
        node.kubeconfig = Some(cluster.kubeconfig("node"));
        let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: default}\n";
        cluster.apply(account).unwrap();
        Some(Self { cluster, node })
    }

    /// A cluster and a node that registers itself and asks the API server who may do what.
    fn register() -> Option<Self> {
        let mut rig = Self::configured()?;
        rig.node.start().unwrap();
        Some(rig)
    }

    /// The same before the node runs.
    fn configured() -> Option<Self> {
        Some(Self::new()?.set_up())
    }

    /// The same from a cluster and a node that does not run yet.
    fn registered(self) -> Self {
        let mut rig = self.set_up();
        rig.node.start().unwrap();
        rig
    }

    fn set_up(self) -> Self {
        let Self { cluster, node } = self;
        let file = node.lab.dir().join("kubelet-config.yaml");
        let config = std::fs::read_to_string(&file).unwrap();
        let ca = cluster.file("ca.crt");
        let config = config
            // The bridge of pods has its address only once there is a pod.
            .replace("address: 127.0.0.1\nport", "address: 0.0.0.0\nport")
            .replace("  webhook:\n    enabled: false", "  webhook:\n    enabled: true")
            .replace(
                "  anonymous:\n    enabled: true",
                &format!("  x509:\n    clientCAFile: {}\n  anonymous:\n    enabled: false", ca.display()),
            )
            .replace("mode: AlwaysAllow", "mode: Webhook");
        std::fs::write(&file, config).unwrap();
        let authority = std::fs::read_to_string(&ca).unwrap();
        let authority = serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "kube-root-ca.crt", "namespace": "default"}, "data": {"ca.crt": authority}});
        cluster.apply(&authority.to_string()).unwrap();
        Self { cluster, node }
    }

    /// A cluster and a node in it that runs.
    fn start() -> Option<Self> {
        let Self { cluster, mut node } = Self::new()?;
        // Bound pods are the node's to see only once its object is there.
        let object = format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {NODE}}}\n");
        cluster.apply(&object).unwrap();
        node.start().unwrap();
        Some(Self { cluster, node })
    }
}

impl Rig {
    /// The same with controller manager and scheduler: a whole cluster of one node that is ready.
    fn whole() -> Option<Self> {
        Some(Self::new()?.completed())
    }

    /// The same from a cluster and a node that does not run yet.
    fn completed(self) -> Self {
        let mut rig = self.registered();
        rig.cluster.start_controllers().unwrap();
        let ready = ".status.conditions[?(@.type==\"Ready\")].status";
        rig.cluster.wait_field("node/lab", ready, "True", SOON).unwrap();
        rig.cluster.wait_field("node/lab", ".spec.taints", "", SOON).unwrap();
        rig
    }

    /// Waits until nothing of any pod is left on the node.
    fn wait_empty(&mut self) {
        self.node
            .wait("nothing is left", Duration::from_secs(120), |node| {
                let pods = node.root().join("pods");
                let folders = std::fs::read_dir(pods).map(Iterator::count).unwrap_or(0);
                let logs = std::fs::read_dir(node.logs()).map(Iterator::count).unwrap_or(0);
                let none = node.crictl().pods()?.is_empty() && node.crictl().containers()?.is_empty();
                Ok((none && folders == 0 && logs == 0).then_some(()))
            })
            .unwrap();
        self.node.check_alive().unwrap();
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

#[test]
fn a_node_registers_itself_and_stays_ready() {
    let Some(mut rig) = Rig::register() else { return };
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    rig.cluster.wait_field("node/lab", ready, "True", SOON).unwrap();
    let node = rig.cluster.get("node/lab").unwrap();
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], NODE, "{node}");
    assert_eq!(node["status"]["nodeInfo"]["kubeletVersion"], "v1.37.2", "{node}");
    assert_eq!(node["status"]["allocatable"]["pods"], "110", "{node}");
    let holder = || {
        rig.cluster.kubectl(&[
            "-n",
            "kube-node-lease",
            "get",
            "lease",
            NODE,
            "-o",
            "jsonpath={.spec.holderIdentity} {.spec.renewTime}",
        ])
    };
    let first = holder().unwrap();
    assert!(first.starts_with("lab "), "{first}");
    std::thread::sleep(Duration::from_secs(12));
    let renewed = holder().unwrap();
    assert!(renewed.starts_with("lab ") && renewed != first, "{first} then {renewed}");
    rig.node.check_alive().unwrap();
}

#[test]
fn config_maps_secrets_and_a_token_reach_a_pod_and_kubectl_reaches_it() {
    let Some(mut rig) = Rig::register() else { return };
    rig.cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {k: one}}").unwrap();
    rig.cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {p: hush}}").unwrap();
    let script = "echo $K $P $(cat /cfg/k) $(cat /sec/p); cat /var/run/secrets/kubernetes.io/serviceaccount/namespace; echo; \
                  head -c 3 /var/run/secrets/kubernetes.io/serviceaccount/token; echo; echo $KUBERNETES_SERVICE_HOST; \
                  trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let manifest = serde_json::json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "sees"}, "spec": {
        "nodeName": NODE, "terminationGracePeriodSeconds": 3,
        "volumes": [{"name": "c", "configMap": {"name": "cfg"}}, {"name": "s", "secret": {"secretName": "sec"}}],
        "containers": [{"name": "c", "image": tests::lab::BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", script],
            "env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "k"}}},
                {"name": "P", "valueFrom": {"secretKeyRef": {"name": "sec", "key": "p"}}}],
            "volumeMounts": [{"name": "c", "mountPath": "/cfg"}, {"name": "s", "mountPath": "/sec"}]}]}});
    rig.cluster.wait_field("node/lab", ".status.conditions[?(@.type==\"Ready\")].status", "True", SOON).unwrap();
    rig.cluster.apply(&manifest.to_string()).unwrap();
    rig.cluster.wait_field("pod/sees", ".status.phase", "Running", SOON).unwrap();
    let log = rig.cluster.kubectl(&["logs", "sees"]).unwrap();
    assert_eq!(log, "one hush one hush\ndefault\neyJ\n10.96.0.1\n");
    let said = rig.cluster.kubectl(&["exec", "sees", "--", "cat", "/cfg/k"]).unwrap();
    assert_eq!(said.trim(), "one");
    rig.cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {k: two}}").unwrap();
    let cluster = &rig.cluster;
    rig.node
        .wait("the volume follows", Duration::from_secs(90), |_| {
            let said = cluster.kubectl(&["exec", "sees", "--", "cat", "/cfg/k"])?;
            Ok((said.trim() == "two").then_some(()))
        })
        .unwrap();
    let events = rig.cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).unwrap();
    for reason in ["Created", "Started"] {
        assert!(events.contains(reason), "{events}");
    }
    rig.cluster.kubectl(&["delete", "pod/sees", "--wait=false"]).unwrap();
    rig.cluster.wait_gone("pod/sees", SOON).unwrap();
}

/// What metrics-server and `kubectl top` are made from, asked for the way they ask: through the API server, which shows
/// its own certificate to the node.
#[test]
fn usage_is_had_through_the_api_server() {
    let Some(mut rig) = Rig::register() else { return };
    rig.cluster.wait_field("node/lab", ".status.conditions[?(@.type==\"Ready\")].status", "True", SOON).unwrap();
    rig.cluster.apply(&pod("busy", "trap 'exit 0' TERM; while :; do :; done", "")).unwrap();
    rig.cluster.wait_field("pod/busy", ".status.phase", "Running", SOON).unwrap();
    let cluster = &rig.cluster;
    let raw = |path: &str| cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy{path}")]);
    let value = |page: &str, name: &str| {
        let line = page.lines().find(|line| line.starts_with(name))?;
        line.rsplit_once('}')
            .map_or(line.split_once(' ')?.1, |(_, rest)| rest)
            .split_whitespace()
            .next()?
            .parse::<f64>()
            .ok()
    };
    let spent = |page: &str| {
        value(page, "container_cpu_usage_seconds_total{container=\"c\",namespace=\"default\",pod=\"busy\"}")
    };
    let first = rig
        .node
        .wait("the container is measured", SOON, |_| {
            Ok(spent(&raw("/metrics/resource")?).filter(|seconds| *seconds > 0.0))
        })
        .unwrap();
    // As metrics-server does: a rate from two looks.
    rig.node
        .wait("the loop spends CPU time", SOON, |_| {
            Ok(spent(&raw("/metrics/resource")?).filter(|seconds| *seconds > first + 0.1))
        })
        .unwrap();
    let page = raw("/metrics/resource").unwrap();
    assert!(value(&page, "node_memory_working_set_bytes").unwrap() > 1e8, "{page}");
    assert_eq!(value(&page, "resource_scrape_error"), Some(0.0), "{page}");
    let summary: serde_json::Value = serde_json::from_str(&raw("/stats/summary").unwrap()).unwrap();
    assert_eq!(summary["pods"][0]["podRef"]["name"], "busy", "{summary}");
    assert!(summary["node"]["cpu"]["usageCoreNanoSeconds"].as_u64().unwrap() > 0, "{summary}");
    rig.node.check_alive().unwrap();
}
