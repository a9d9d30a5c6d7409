//! Manifests of small static pods on the lab's image.

use crate::lab::BUSYBOX_IMAGE;

/// A script that waits and ends at once when it is told to.
pub const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 1000 & wait; done";

/// A static pod with one container `c` that runs a shell script; `more` is YAML for the pod's spec.
#[must_use]
pub fn shell_pod(name: &str, script: &str, more: &str) -> String {
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
#[must_use]
pub fn shell_pod_with_uid(name: &str, uid: &str, script: &str) -> String {
    shell_pod(name, script, "").replacen(&format!("  name: {name}\n"), &format!("  name: {name}\n  uid: {uid}\n"), 1)
}
