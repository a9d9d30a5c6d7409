//! Cases about the in-place resize of running pods.

use serde_json::{Value, json};

use super::{POLITE, bound, container, wait_object, wait_ready};
use crate::{Rig, SOON};

/// A pod of one container with these resources, as flow YAML.
fn pod(name: &str, resources: &str, policy: &str) -> String {
    let more = format!("    resources: {resources}\n{policy}");
    bound(name, "", "  terminationGracePeriodSeconds: 1\n", &container("c", POLITE, &more))
}

fn resize(rig: &Rig, name: &str, resources: &Value) {
    let patch = json!({"spec": {"containers": [{"name": "c", "resources": resources}]}}).to_string();
    rig.cluster.kubectl(&["patch", "pod", name, "--subresource", "resize", "--patch", &patch]).unwrap();
}

/// True when the pod shows no condition of a resize and what it has is this.
fn has(pod: &Value, resources: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    let open = |c: &Value| c["type"].as_str().is_some_and(|kind| kind.starts_with("PodResize"));
    let shown = &pod["status"]["containerStatuses"][0];
    let generation = &pod["metadata"]["generation"];
    pod["status"]["observedGeneration"] == *generation
        && !conditions.iter().any(open)
        && shown["resources"] == *resources
        && shown["allocatedResources"] == resources["requests"]
}

/// The memory limit that the container's processes see.
fn memory_limit(rig: &Rig, name: &str) -> String {
    let script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null || cat /sys/fs/cgroup/memory.max";
    rig.cluster.kubectl(&["exec", name, "--", "sh", "-c", script]).unwrap().trim().to_owned()
}

#[test]
fn res_1_a_pod_is_resized_while_it_runs() {
    let Some(rig) = Rig::register() else { return };
    let first = "{requests: {cpu: 100m, memory: 32Mi}, limits: {cpu: 200m, memory: 64Mi}}";
    rig.cluster.apply(&pod("grow", first, "")).unwrap();
    wait_ready(&rig, "grow", SOON);
    assert_eq!(memory_limit(&rig, "grow"), (64 << 20).to_string());
    let more = json!({"requests": {"cpu": "150m", "memory": "64Mi"}, "limits": {"cpu": "300m", "memory": "128Mi"}});
    resize(&rig, "grow", &more);
    wait_object(&rig, "pod/grow", SOON, "it has more", |pod| has(pod, &more));
    assert_eq!(memory_limit(&rig, "grow"), (128 << 20).to_string());
    let less = json!({"requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "48Mi"}});
    resize(&rig, "grow", &less);
    let pod = wait_object(&rig, "pod/grow", SOON, "it has less", |pod| has(pod, &less));
    assert_eq!(memory_limit(&rig, "grow"), (48 << 20).to_string());
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0);
}

#[test]
fn res_2_a_container_is_restarted_where_its_policy_says_so() {
    let Some(rig) = Rig::register() else { return };
    let first = "{requests: {memory: 32Mi}, limits: {memory: 64Mi}}";
    let policy = "    resizePolicy: [{resourceName: memory, restartPolicy: RestartContainer}]\n";
    rig.cluster.apply(&pod("anew", first, policy)).unwrap();
    wait_ready(&rig, "anew", SOON);
    let more = json!({"requests": {"memory": "48Mi"}, "limits": {"memory": "96Mi"}});
    resize(&rig, "anew", &more);
    let restarted = |pod: &Value| has(pod, &more) && pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    wait_object(&rig, "pod/anew", SOON, "it was restarted with more", restarted);
    wait_ready(&rig, "anew", SOON);
    assert_eq!(memory_limit(&rig, "anew"), (96 << 20).to_string());
}
