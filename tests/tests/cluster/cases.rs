//! Acceptance cases that need an API server: reports of people who run nodes, each with the right value asserted.
//!
//! They do not ask whether ticklet or the reference kubelet is under them: `cargo xtask test --reference` runs both.

#[path = "cases/certificates.rs"]
mod certificates;
#[path = "cases/lifecycle.rs"]
mod lifecycle;
#[path = "cases/objects.rs"]
mod objects;
#[path = "cases/resize.rs"]
mod resize;
#[path = "cases/restarts.rs"]
mod restarts;

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::lab::BUSYBOX_IMAGE;
use tests::node::NODE;

use crate::{Rig, SOON};

/// Ends at once when it is told to.
const POLITE: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

/// A pod bound to the node: its metadata beyond the name, its spec beyond the containers, both as YAML lines, and its
/// containers as a YAML list.
fn bound(name: &str, metadata: &str, spec: &str, containers: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata:
  name: {name}
{metadata}spec:
  nodeName: {NODE}
  automountServiceAccountToken: false
  enableServiceLinks: false
{spec}  containers:
{containers}"
    )
}

/// One container of a list, with a script and further YAML lines.
fn container(name: &str, script: &str, more: &str) -> String {
    format!(
        "  - name: {name}\n    image: {BUSYBOX_IMAGE}\n    imagePullPolicy: IfNotPresent\n    command: [sh, -c, {}]\n{more}",
        Value::from(script)
    )
}

/// Waits until an object holds what is asked for.
fn wait_object(rig: &Rig, object: &str, deadline: Duration, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let end = Instant::now() + deadline;
    loop {
        let seen = rig.cluster.get(object);
        match seen {
            Ok(seen) if holds(&seen) => return seen,
            Ok(_) if Instant::now() < end => {}
            Err(_) if Instant::now() < end => {}
            seen => panic!("not within {deadline:?}: {what}: {seen:?}"),
        }
        std::thread::sleep(Duration::from_millis(300));
    }
}

fn wait_phase(rig: &Rig, pod: &str, phase: &str) -> Value {
    wait_object(rig, &format!("pod/{pod}"), SOON, &format!("{pod} is {phase}"), |pod| pod["status"]["phase"] == phase)
}

fn wait_ready(rig: &Rig, pod: &str, deadline: Duration) -> Value {
    wait_object(rig, &format!("pod/{pod}"), deadline, &format!("{pod} is ready"), |pod| {
        condition(pod, "Ready") == "True"
    })
}

/// The status of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let all = object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|c| c["type"] == kind).and_then(|c| c["status"].as_str()).unwrap_or_default()
}

fn delete(rig: &Rig, pod: &str) {
    rig.cluster.kubectl(&["delete", &format!("pod/{pod}"), "--wait=false"]).unwrap();
}

/// Runs a command in the pod's first container, as crictl does.
fn exec(rig: &Rig, pod: &str, command: &[&str]) -> anyhow::Result<String> {
    let all = rig.node.crictl().containers_of(pod)?;
    let running = all.iter().find(|container| container.is_running());
    let running = running.ok_or_else(|| anyhow::anyhow!("nothing of {pod} runs"))?;
    rig.node.crictl().exec(&running.id, command)
}
