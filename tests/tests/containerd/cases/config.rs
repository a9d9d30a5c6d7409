//! Cases about the manifest directory and what a container is given.

use std::fs;
use std::time::{Duration, Instant};

use tests::node::NODE;

use crate::input::check_undisturbed;
use crate::{SOON, WAIT, chosen_node, shell_pod};

#[test]
fn cfg_1_spare_hidden_and_broken_files_beside_a_manifest() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let sleep = |seconds: u32| shell_pod("web", &format!("trap 'exit 0' TERM; sleep {seconds} & wait"), "");
    node.put("web.yaml", sleep(1000)).unwrap();
    let first = node.wait_running("web", SOON).unwrap();
    fs::write(node.manifests().join(".web.yaml.swp"), b"b0VIM 9.0\0\x01garbage").unwrap();
    check_undisturbed(&mut node, "web", &first.id, Duration::from_secs(2));

    node.put("web.yaml", sleep(2000)).unwrap();
    let second = node
        .wait("the replacement runs", SOON, |node| {
            let running = node.running("web")?;
            assert!(running.len() <= 1, "two web pods: {running:?}");
            Ok(running.into_iter().find(|container| container.id != first.id))
        })
        .unwrap();

    fs::write(node.manifests().join("aa.yaml"), "").unwrap();
    fs::write(node.manifests().join("bb.yaml"), "apiVersion: v1\nkind: Pod\nmetadata:\n  name: [cut").unwrap();
    fs::create_dir(node.manifests().join("cc")).unwrap();
    check_undisturbed(&mut node, "web", &second.id, Duration::from_secs(3));

    fs::write(node.manifests().join("web.yaml.bak"), sleep(3000)).unwrap();
    let end = Instant::now() + Duration::from_secs(6);
    while Instant::now() < end {
        let name = format!("web-{NODE}");
        let ready =
            node.crictl().pods().unwrap().into_iter().filter(|sandbox| sandbox.name == name && sandbox.ready).count();
        assert!(ready <= 1, "{ready} web pods at once");
        std::thread::sleep(Duration::from_millis(250));
    }
    node.wait_running("web", SOON).unwrap();
}

/// The variables of CFG-3 that need no API server.
const ENV: &str = "    env:
    - {name: LATE, value: \"$(POD)-x\"}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: EARLY, value: \"$(POD)-y\"}
    - {name: ESC, value: \"$$(POD)\"}
    - {name: A, value: first}
    - {name: A, value: mine}
    - {name: odd.key-1, value: x}
    args: [\"$(EARLY)\", \"$(NOPE)\"]
";

#[test]
fn cfg_3_order_escapes_and_odd_keys_of_variables() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    // The shell itself would leave out names that it can't use.
    let script = format!("tr '\\0' '\\n' < /proc/1/environ; echo \"last $0 $1\"; {WAIT}");
    node.put("envs.yaml", shell_pod("envs", &script, "") + ENV).unwrap();
    let container = node.wait_running("envs", SOON).unwrap();
    let log = node
        .wait("the script has written its last line", SOON, |node| {
            let log = node.container_log(&container)?;
            Ok(log.contains(" last ").then_some(log))
        })
        .unwrap();
    let lines: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    let pod = format!("envs-{NODE}");
    let early = format!("EARLY={pod}-y");
    let last = format!("last {pod}-y $(NOPE)");
    for expect in ["LATE=$(POD)-x", &early, "ESC=$(POD)", "A=mine", "odd.key-1=x", &last] {
        assert!(lines.contains(&expect), "no line {expect:?} in {lines:#?}");
    }
    assert!(!lines.contains(&"A=first"), "{lines:#?}");
}
