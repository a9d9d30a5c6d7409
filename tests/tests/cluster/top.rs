//! `kubectl top` through metrics-server, which asks the node for what is used.

use std::time::Duration;

use tests::lab::BUSYBOX_IMAGE;

use crate::{NODE, Rig, SOON};

/// It needs two looks at each container, ten seconds apart, and one of them before that.
const MEASURED: Duration = Duration::from_secs(90);

/// A pod that takes all the CPU it may, a fifth of a core, and keeps 50 MiB.
fn busy() -> String {
    let script = "head -c 52428800 /dev/zero > /m/zeros; trap 'exit 0' TERM; while :; do :; done";
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: busy}}
spec:
  nodeName: {NODE}
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 2
  volumes: [{{name: m, emptyDir: {{medium: Memory}}}}]
  containers:
  - name: c
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {script:?}]
    resources: {{limits: {{cpu: 200m, memory: 128Mi}}}}
    volumeMounts: [{{name: m, mountPath: /m}}]
"
    )
}

/// The number before a unit, in the column of the line that begins with a name.
fn column(table: &str, name: &str, column: usize, unit: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name))?;
    line.split_whitespace().nth(column)?.strip_suffix(unit)?.parse().ok()
}

#[test]
fn kubectl_top_tells_what_a_pod_and_the_node_use() {
    let Some(mut rig) = Rig::register() else { return };
    rig.cluster.apply(&busy()).unwrap();
    rig.cluster.wait_field("pod/busy", ".status.phase", "Running", SOON).unwrap();
    rig.cluster.start_metrics_server().unwrap();
    let cluster = &rig.cluster;
    let pods = rig
        .node
        .wait("kubectl top knows the pod", MEASURED, |_| {
            let table = cluster.kubectl(&["top", "pod", "busy"])?;
            Ok(column(&table, "busy", 1, "m").filter(|milli| *milli > 0.0).map(|_| table))
        })
        .unwrap_or_else(|error| {
            let service = cluster.kubectl(&["get", "apiservice", "v1beta1.metrics.k8s.io", "-o", "yaml"]);
            panic!("{error:#}\n{service:?}\n{}", cluster.log_tail("metrics-server"));
        });
    let (milli, mebi) = (column(&pods, "busy", 1, "m").unwrap(), column(&pods, "busy", 2, "Mi").unwrap());
    assert!((100.0..=240.0).contains(&milli), "a limit of 200m, {milli}m used:\n{pods}");
    assert!((50.0..=70.0).contains(&mebi), "50 MiB are kept:\n{pods}");
    let containers = cluster.kubectl(&["top", "pod", "busy", "--containers"]).unwrap();
    assert!(column(&containers, "busy", 2, "m").is_some_and(|milli| milli > 0.0), "{containers}");
    let nodes = cluster.kubectl(&["top", "node"]).unwrap();
    assert!(column(&nodes, NODE, 1, "m").is_some_and(|used| used >= milli), "{nodes}");
    assert!(column(&nodes, NODE, 3, "Mi").is_some_and(|used| used > mebi), "{nodes}");
    rig.node.check_alive().unwrap();
}
