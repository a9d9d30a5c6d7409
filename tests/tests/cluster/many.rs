//! Many objects and big ones: a secret as large as the API server takes, and a thousand config maps of one node.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tests::lab::BUSYBOX_IMAGE;
use tests::node::NODE;

use crate::{Rig, SOON, WAIT};

/// Config maps of a pod, and pods.
const EACH: usize = 250;
const PODS: usize = 4;
/// A thousand lists and as many watches, on a machine that builds beside it.
const ALL: Duration = Duration::from_secs(150);

#[test]
fn a_secret_of_one_mebibyte_and_a_thousand_config_maps_reach_their_pods() {
    let Some(rig) = Rig::new() else { return };
    rig.node.configure("kubeAPIQPS: 400\nkubeAPIBurst: 800").unwrap();
    let mut rig = rig.registered();
    let blob: Vec<u8> = (0..1_u32 << 18).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    assert_eq!(blob.len(), 1 << 20);
    std::fs::write(rig.cluster.file("blob"), &blob).unwrap();
    let from = format!("--from-file=blob={}", rig.cluster.file("blob").display());
    rig.cluster.kubectl(&["create", "secret", "generic", "big", &from]).unwrap();
    create_maps(&rig);
    let big = json!([{"name": "m", "secret": {"secretName": "big"}}]);
    rig.cluster.apply(&holder("big", &big)).unwrap();
    for pod in 0..PODS {
        let sources: Vec<Value> = maps(pod).map(|name| json!({"configMap": {"name": name}})).collect();
        let volume = json!([{"name": "m", "projected": {"sources": sources}}]);
        rig.cluster.apply(&holder(&format!("many-{pod}"), &volume)).unwrap();
    }
    rig.cluster.wait_field("pod/big", ".status.phase", "Running", SOON).unwrap();
    let said = rig.cluster.kubectl(&["exec", "big", "--", "sha256sum", "/m/blob"]).unwrap();
    let sum: String = Sha256::digest(&blob).iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(said.starts_with(&sum), "the secret changed on its way: {said}");
    for pod in 0..PODS {
        rig.cluster.wait_field(&format!("pod/many-{pod}"), ".status.phase", "Running", ALL).unwrap();
        let said = rig.cluster.kubectl(&["exec", &format!("many-{pod}"), "--", "sh", "-c", "cat /m/*"]).unwrap();
        assert_eq!(said.lines().count(), EACH, "many-{pod}");
    }
    // Everything is watched now, and what else the node says is still heard.
    let lease = || {
        let path = "jsonpath={.spec.renewTime}";
        rig.cluster.kubectl(&["-n", "kube-node-lease", "get", "lease", NODE, "-o", path]).unwrap()
    };
    let first = lease();
    std::thread::sleep(Duration::from_secs(12));
    assert_ne!(lease(), first, "the lease is not renewed beside a thousand watches");
    let last = format!("cm-{}-{}", PODS - 1, EACH - 1);
    let change = json!({"data": {last.as_str(): "changed\n"}}).to_string();
    rig.cluster.kubectl(&["patch", "configmap", &last, "--type=merge", "-p", &change]).unwrap();
    let (cluster, pod, path) = (&rig.cluster, format!("many-{}", PODS - 1), format!("/m/{last}"));
    rig.node
        .wait("the volume follows", Duration::from_secs(90), |_| {
            let said = cluster.kubectl(&["exec", &pod, "--", "cat", &path])?;
            Ok((said.trim() == "changed").then_some(()))
        })
        .unwrap();
    rig.cluster.kubectl(&["delete", "pod", "--all", "--wait=false"]).unwrap();
    rig.cluster.wait_gone("pod/big", SOON).unwrap();
    for pod in 0..PODS {
        rig.cluster.wait_gone(&format!("pod/many-{pod}"), SOON).unwrap();
    }
    rig.node.check_alive().unwrap();
}

/// Names of a pod's config maps, which are those of their only key too.
fn maps(pod: usize) -> impl Iterator<Item = String> {
    (0..EACH).map(move |index| format!("cm-{pod}-{index}"))
}

/// Creates all, in several processes: each may send a burst before it is slowed down.
fn create_maps(rig: &Rig) {
    let mut children = Vec::new();
    for pod in 0..PODS {
        let items: Vec<Value> = maps(pod)
            .map(|name| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {name.as_str(): "one\n"}}))
            .collect();
        let file = rig.cluster.file(&format!("maps-{pod}.json"));
        std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()).unwrap();
        children.push(rig.cluster.spawn_kubectl(&["create", "-o", "name", "-f", &file.display().to_string()]).unwrap());
    }
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "config maps could not be created: {}", output.status);
    }
}

/// A pod that holds a volume `m`.
fn holder(name: &str, volumes: &Value) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": NODE, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 2, "volumes": volumes,
        "containers": [{"name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", WAIT], "volumeMounts": [{"name": "m", "mountPath": "/m"}]}]}});
    pod.to_string()
}
