//! A node changes from ticklet to the reference kubelet and back, on the same root folder, without touching a container.
//!
//! Needs the reference's program in `TICKLET_REFERENCE`; `cargo xtask test --only reference` builds it and sets that.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tests::lab::{Lab, Runtime};
use tests::manifest::{WAIT, shell_pod_with_uid};
use tests::node::{Node, ticklet};
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
