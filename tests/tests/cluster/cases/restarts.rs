//! Cases about restarts of the kubelet and of the runtime, as the API server sees them.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::cluster::Cluster;

use super::{POLITE, bound, condition, container, delete, exec, wait_object, wait_ready};
use crate::{NODE, Rig, SOON};

/// A watch that writes what it hears into a file.
struct Watch {
    curl: Child,
    file: std::path::PathBuf,
}

impl Watch {
    fn start(cluster: &Cluster, path: &str, name: &str) -> Self {
        let file = cluster.file(name);
        let mut curl = cluster.curl();
        curl.arg("--no-buffer").arg(format!("{}{path}", cluster.server())).stdin(Stdio::null());
        let curl = curl.stdout(fs::File::create(&file).unwrap()).spawn().unwrap();
        Self { curl, file }
    }

    /// All objects that were told so far.
    fn objects(&self) -> Vec<Value> {
        let text = fs::read_to_string(&self.file).unwrap();
        text.lines().filter_map(|line| Some(serde_json::from_str::<Value>(line).ok()?["object"].take())).collect()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // It may have ended with its server.
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

#[test]
fn rst_1_ready_stays_as_it_was_over_restarts() {
    let Some(mut rig) = Rig::register() else { return };
    let starts = rig.node.lab.dir().join("starts");
    fs::create_dir_all(&starts).unwrap();
    let volume = format!(
        "  terminationGracePeriodSeconds: 2\n  volumes: [{{name: o, hostPath: {{path: {}}}}}]\n",
        starts.display()
    );
    let up = "    readinessProbe: {exec: {command: ['true']}, periodSeconds: 30}
    startupProbe: {exec: {command: [sh, -c, 'echo up >> /o/starts']}}
    volumeMounts: [{name: o, mountPath: /o}]
";
    let down = "    readinessProbe: {exec: {command: ['false']}, periodSeconds: 5}\n";
    rig.cluster.apply(&bound("up", "", &volume, &container("c", POLITE, up))).unwrap();
    rig.cluster
        .apply(&bound("down", "", "  terminationGracePeriodSeconds: 2\n", &container("c", POLITE, down)))
        .unwrap();
    rig.cluster.apply(&bound("none", "", "  terminationGracePeriodSeconds: 2\n", &container("c", POLITE, ""))).unwrap();
    wait_ready(&rig, "up", Duration::from_secs(90));
    wait_ready(&rig, "none", SOON);
    wait_object(&rig, "pod/down", SOON, "down runs", |pod| pod["status"]["phase"] == "Running");
    // Older than the ten seconds in which the reference still looks anew.
    std::thread::sleep(Duration::from_secs(30));
    let watch =
        Watch::start(&rig.cluster, "/api/v1/namespaces/default/pods?watch=true&resourceVersion=0", "watch.json");
    let essence = |pod: &Value| {
        let ready = pod["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
        let c = &pod["status"]["containerStatuses"][0];
        [
            &ready["status"],
            &ready["lastTransitionTime"],
            &c["containerID"],
            &c["restartCount"],
            &c["ready"],
            &c["started"],
        ]
        .map(Value::to_string)
    };
    let get = |rig: &Rig, name: &str| rig.cluster.get(&format!("pod/{name}")).unwrap();
    let before = ["up", "down", "none"].map(|name| essence(&get(&rig, name)));
    for _ in 0..5 {
        rig.node.stop().unwrap();
        rig.node.start().unwrap();
        std::thread::sleep(Duration::from_secs(8));
    }
    assert_eq!(fs::read_to_string(starts.join("starts")).unwrap(), "up\n", "the startup probe ran again");
    for (name, before) in ["up", "down", "none"].iter().zip(&before) {
        for told in watch.objects().iter().filter(|pod| pod["metadata"]["name"] == *name) {
            assert_eq!(&essence(told), before, "{name} at {}", told["metadata"]["resourceVersion"]);
        }
        assert_eq!(&essence(&get(&rig, name)), before, "{name}");
    }
}

#[test]
fn rst_4_restart_counts_go_on_after_the_runtime_lost_everything() {
    let Some(mut rig) = Rig::register() else { return };
    let init = format!("  terminationGracePeriodSeconds: 2\n  initContainers:\n{}", container("i", "echo init", ""));
    rig.cluster.apply(&bound("k", "", &init, &container("c", POLITE, ""))).unwrap();
    let counts = |rig: &Rig, wanted: u64| {
        // Back-off makes the third one wait.
        wait_object(rig, "pod/k", Duration::from_secs(120), &format!("restart count {wanted}"), |pod| {
            let c = &pod["status"]["containerStatuses"][0];
            c["restartCount"] == wanted && c["ready"] == true
        })
    };
    for round in 0..3 {
        let pod = counts(&rig, round);
        let uid = pod["metadata"]["uid"].as_str().unwrap().to_owned();
        assert!(!uid.is_empty());
        exec(&rig, "k", &["kill", "1"]).unwrap();
    }
    let pod = counts(&rig, 3);
    let uid = pod["metadata"]["uid"].as_str().unwrap();
    let logs = rig.node.logs().join(format!("default_k_{uid}"));
    rig.node.stop().unwrap();
    rig.node.crictl().remove_all_pods().unwrap();
    rig.node.start().unwrap();
    let pod = counts(&rig, 4);
    assert!(logs.join("c/4.log").exists(), "{:?}", fs::read_dir(logs.join("c")).unwrap().collect::<Vec<_>>());
    let ran = pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"].clone();
    assert_eq!(ran, 0, "{}", pod["status"]);
    rig.node.stop().unwrap();
    rig.node.crictl().remove_all_pods().unwrap();
    fs::remove_dir_all(&logs).unwrap();
    rig.node.start().unwrap();
    counts(&rig, 0);
    assert!(logs.join("c/0.log").exists());
}

#[test]
fn rst_5_a_runtime_that_hangs_makes_the_node_not_ready_once() {
    let Some(mut rig) = Rig::register() else { return };
    let grace = "  terminationGracePeriodSeconds: 3\n";
    for pod in ["a", "b", "late"] {
        rig.cluster.apply(&bound(pod, "", grace, &container("c", POLITE, ""))).unwrap();
    }
    for pod in ["a", "b", "late"] {
        wait_ready(&rig, pod, SOON);
    }
    let node = format!("node/{NODE}");
    wait_object(&rig, &node, SOON, "the node is ready", |node| condition(node, "Ready") == "True");
    let ids = |rig: &Rig| {
        ["a", "b"].map(|pod| {
            let pod = rig.cluster.get(&format!("pod/{pod}")).unwrap();
            let c = &pod["status"]["containerStatuses"][0];
            (c["containerID"].clone(), c["restartCount"].clone())
        })
    };
    let before = ids(&rig);
    let watch = Watch::start(
        &rig.cluster,
        &format!("/api/v1/nodes?watch=true&resourceVersion=0&fieldSelector=metadata.name={NODE}"),
        "node.json",
    );
    rig.node.lab.hang_containerd().unwrap();
    let hung = Instant::now();
    std::thread::sleep(Duration::from_secs(20));
    delete(&rig, "late");
    let seen = wait_object(&rig, &node, Duration::from_secs(235), "the node is not ready", |node| {
        condition(node, "Ready") == "False"
    });
    println!("not ready {:?} after the hang", hung.elapsed());
    let ready = seen["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
    assert_eq!(ready["reason"], "KubeletNotReady", "{ready}");
    let message = ready["message"].as_str().unwrap();
    assert!(message.contains("PLEG") || message.contains("runtime"), "{message}");
    assert_eq!(rig.node.healthz().unwrap(), 200);
    rig.node.lab.wake_containerd().unwrap();
    wait_object(&rig, &node, Duration::from_secs(65), "the node is ready again", |node| {
        condition(node, "Ready") == "True"
    });
    rig.cluster.wait_gone("pod/late", Duration::from_secs(68)).unwrap();
    let told: Vec<String> = watch.objects().iter().map(|node| condition(node, "Ready").to_owned()).collect();
    assert!(told.len() > 2, "the watch heard too little: {:?}", watch.objects());
    let mut turns = told.clone();
    turns.dedup();
    assert_eq!(turns, ["True", "False", "True"], "it flapped: {told:?}");
    assert_eq!(ids(&rig), before, "containers were touched");
    rig.node.check_alive().unwrap();
}
