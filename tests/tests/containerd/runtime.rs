//! The runtime goes away and comes back: ticklet waits, says so, and goes on by itself.

use std::time::Duration;

use tests::node::Node;

use crate::{SOON, WAIT, chosen_lab, chosen_node, shell_pod};

#[test]
fn a_runtime_that_comes_later_is_waited_for() {
    let Some(mut lab) = chosen_lab() else { return };
    lab.stop_containerd().unwrap();
    let _ = std::fs::remove_file(lab.socket());
    let mut node = Node::start_new(lab).unwrap();
    node.put("web.yaml", shell_pod("web", WAIT, "")).unwrap();
    node.wait("the log names the socket", SOON, |node| Ok(node.log()?.contains("containerd.sock").then_some(())))
        .unwrap();
    std::thread::sleep(Duration::from_secs(3));
    node.check_alive().unwrap();
    node.lab.start_containerd().unwrap();
    node.wait_running("web", Duration::from_secs(60)).unwrap();
}

#[test]
fn a_restart_of_the_runtime_touches_no_container() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("a.yaml", shell_pod("a", WAIT, "")).unwrap();
    let a = node.wait_running("a", SOON).unwrap();
    for crash in [false, true] {
        if crash { node.lab.kill_containerd() } else { node.lab.stop_containerd() }.unwrap();
        let late = format!("late{}", u8::from(crash));
        node.put(&format!("{late}.yaml"), shell_pod(&late, WAIT, "")).unwrap();
        std::thread::sleep(Duration::from_secs(2));
        node.check_alive().unwrap();
        node.lab.start_containerd().unwrap();
        node.wait_running(&late, Duration::from_secs(60)).unwrap();
        assert_eq!(node.wait_running("a", SOON).unwrap().id, a.id, "the restart replaced a container");
    }
}

#[test]
fn a_manifest_removed_while_the_runtime_is_away_is_removed_afterwards() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("web.yaml", shell_pod("web", WAIT, "")).unwrap();
    node.wait_running("web", SOON).unwrap();
    node.lab.kill_containerd().unwrap();
    node.remove("web.yaml").unwrap();
    std::thread::sleep(Duration::from_secs(2));
    node.lab.start_containerd().unwrap();
    node.wait_gone("web", Duration::from_secs(60)).unwrap();
}
