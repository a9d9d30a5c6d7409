//! Cases about the runtime: one that hangs and comes back.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tests::lab::Runtime;
use tests::node::Node;

use crate::probes::{SERVE, probed, wait_ready};
use crate::{SOON, WAIT, chosen_node, shell_pod};

/// Longer than the three minutes that a relist may take.
const HANG: Duration = Duration::from_secs(200);
/// How long the runtime is away after it hung.
const AWAY: Duration = Duration::from_secs(30);

/// Containers that run, by pod: their ids.
fn ids(node: &Node) -> BTreeMap<String, String> {
    let running = node.crictl().containers().unwrap().into_iter().filter(tests::crictl::Container::is_running);
    running.map(|container| (container.pod.clone(), container.id)).collect()
}

fn healthy_for(node: &mut Node, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert_eq!(node.healthz().unwrap(), 200, "the kubelet's own health is not the runtime's");
        node.check_alive().unwrap();
        std::thread::sleep(Duration::from_secs(5).min(end.saturating_duration_since(Instant::now())));
    }
}

#[test]
fn rst_5_a_runtime_that_hangs_and_comes_back_costs_no_container() {
    let Some(mut node) = chosen_node() else { return };
    // Minutes of waiting: once is enough.
    if node.lab.runtime() != Runtime::Containerd2 {
        return;
    }
    for pod in ["a", "b", "c", "late"] {
        let more = "  terminationGracePeriodSeconds: 3\n";
        node.put(&format!("{pod}.yaml"), shell_pod(pod, WAIT, more)).unwrap();
    }
    let beat = "    readinessProbe: {httpGet: {path: /ok, port: 80}, periodSeconds: 1, failureThreshold: 1}\n";
    node.put("beat.yaml", probed("beat", SERVE, "", beat)).unwrap();
    wait_ready(&mut node, "beat", true, SOON);
    for pod in ["a", "b", "c", "late"] {
        node.wait_running(pod, SOON).unwrap();
    }
    let before = ids(&node);
    let asked = |node: &Node| -> usize {
        let log = node.running("beat").ok().and_then(|all| node.container_log(all.first()?).ok());
        log.map_or(0, |log| log.lines().count())
    };
    let beats = asked(&node);
    node.lab.hang_containerd().unwrap();
    healthy_for(&mut node, Duration::from_secs(20));
    node.remove("late.yaml").unwrap();
    healthy_for(&mut node, HANG);
    node.lab.wake_containerd().unwrap();
    let woken = Instant::now();
    node.wait_gone("late", Duration::from_secs(63)).unwrap();
    println!("the pod removed during the hang was gone {:?} after it", woken.elapsed());
    println!("probes answered: {beats} before, {} after", asked(&node));
    node.lab.stop_containerd().unwrap();
    healthy_for(&mut node, AWAY);
    node.lab.start_containerd().unwrap();
    // A new pod shows that the node works again.
    node.put("after.yaml", shell_pod("after", WAIT, "")).unwrap();
    node.wait_running("after", Duration::from_secs(60)).unwrap();
    let after = ids(&node);
    for (pod, id) in before.iter().filter(|(pod, _)| !pod.starts_with("late-")) {
        assert_eq!(after.get(pod), Some(id), "{pod} was touched");
    }
    wait_ready(&mut node, "beat", true, SOON);
}
