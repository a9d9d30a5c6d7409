//! Integration tests on a real containerd, one program for all of them.
//!
//! `cargo xtask test` runs it once per runtime, named in `TICKLET_RUNTIME`. Without the variable no runtime was
//! chosen: every test says so and ends, and nothing is counted for this rung.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail the test")]

#[path = "containerd/crashes.rs"]
mod crashes;
#[path = "containerd/input.rs"]
mod input;
#[path = "containerd/lab.rs"]
mod lab;
#[path = "containerd/pods.rs"]
mod pods;
#[path = "containerd/restarts.rs"]
mod restarts;
#[path = "containerd/runtime.rs"]
mod runtime;
#[path = "containerd/traces.rs"]
mod traces;

use std::time::Duration;

use tests::lab::{BUSYBOX_IMAGE, Lab, Runtime};
use tests::node::Node;

/// Long enough for anything that should happen soon, also on a busy machine.
const SOON: Duration = Duration::from_secs(30);

/// A lab on the chosen runtime; `None`, said aloud, when none was chosen.
fn chosen_lab() -> Option<Lab> {
    let Some(runtime) = Runtime::from_environment().unwrap() else {
        eprintln!("{} is not set: this rung was not selected", Runtime::VARIABLE);
        return None;
    };
    Some(Lab::start(runtime).unwrap())
}

/// A node with a running ticklet on the chosen runtime.
fn chosen_node() -> Option<Node> {
    Some(Node::start_new(chosen_lab()?).unwrap())
}

/// A static pod with one container `c` that runs a shell script; `more` is YAML for the pod's spec.
fn shell_pod(name: &str, script: &str, more: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
{more}  containers:
  - name: c
    image: {BUSYBOX_IMAGE}
    imagePullPolicy: IfNotPresent
    command: [sh, -c, {}]
",
        serde_json::Value::from(script)
    )
}

/// The same with a UID that stays the same when the manifest changes.
fn shell_pod_with_uid(name: &str, uid: &str, script: &str) -> String {
    shell_pod(name, script, "").replacen(&format!("  name: {name}\n"), &format!("  name: {name}\n  uid: {uid}\n"), 1)
}

/// A script that waits and ends at once when it is told to.
const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";
