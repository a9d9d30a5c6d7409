//! Cases about volumes.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::Duration;

use tests::node::Node;
use tests::process;

use crate::volumes::{ask, mounts_below, pod, wait_cleaned};
use crate::{SOON, WAIT, chosen_lab};

/// The pod's own labels stand in for the ConfigMap, which only the API has.
#[test]
fn vol_1_sub_path_of_a_file_that_changed_below_a_symlinked_root() {
    let Some(lab) = chosen_lab() else { return };
    let mut node = Node::new(lab).unwrap();
    let real = node.lab.dir().join("elsewhere");
    fs::create_dir_all(&real).unwrap();
    symlink(&real, node.root()).unwrap();
    node.start().unwrap();
    let manifest = |value: &str| {
        let spec = "  volumes:
  - {name: v, downwardAPI: {items: [{path: k, fieldRef: {fieldPath: \"metadata.labels['k']\"}}]}}
  - {name: m, emptyDir: {medium: Memory}}";
        let container = ", volumeMounts: [{name: v, mountPath: /cfg/k, subPath: k}, {name: v, mountPath: /all},
      {name: m, mountPath: /m, subPath: in}]";
        pod("sp", &format!(", labels: {{k: {value}}}"), spec, container, WAIT)
    };
    node.put("sp.yaml", manifest("one")).unwrap();
    let first = node.wait_running("sp", SOON).unwrap();
    assert_eq!(ask(&node, &first, "cat /cfg/k"), "one");
    let dir = node.root().join("pods/uid-sp");
    let mounted = mounts_below(&dir);
    assert_eq!(mounted.len(), 4, "two memories and two sub-paths: {mounted:?}");
    node.put("sp.yaml", manifest("two")).unwrap();
    // The reference writes files anew when it next looks at the pod.
    node.wait("the volume has the new label", Duration::from_secs(150), |node| {
        Ok((node.crictl().exec(&first.id, &["cat", "/all/k"])? == "two").then_some(()))
    })
    .unwrap();
    assert_eq!(ask(&node, &first, "cat /cfg/k"), "one", "a sub-path does not follow");
    process::kill_pid(node.crictl().pid_of(&first.id).unwrap()).unwrap();
    let second = node
        .wait("the next instance runs", Duration::from_secs(60), |node| {
            Ok(node.running("sp")?.into_iter().find(|container| container.id != first.id))
        })
        .unwrap();
    assert_eq!(ask(&node, &second, "cat /cfg/k"), "two");
    assert_eq!(mounts_below(&dir).len(), 4, "the sub-path was bound anew, not once more");
    node.kill9().unwrap();
    node.start().unwrap();
    node.remove("sp.yaml").unwrap();
    wait_cleaned(&mut node, &real.join("pods/uid-sp"));
    assert!(node.root().is_symlink());
}
