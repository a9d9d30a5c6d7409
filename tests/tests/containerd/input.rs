//! Bad input: spare, hidden, broken and hostile files in the manifest directory disturb no pod.

use std::fs;
use std::time::{Duration, Instant};

use tests::node::Node;

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// Watches for a while that the pod keeps its one container.
pub(crate) fn check_undisturbed(node: &mut Node, pod: &str, id: &str, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let running = node.running(pod).unwrap();
        assert!(running.len() == 1 && running[0].id == id, "{pod} was disturbed: {running:?}");
        node.check_alive().unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Files that no kubelet should fall over.
fn hostile_files() -> Vec<(&'static str, Vec<u8>)> {
    let bomb = "a: &a [x,x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e,*e]\n\
                g: &g [*f,*f,*f,*f,*f,*f,*f,*f,*f,*f]\nh: [*g,*g,*g,*g,*g,*g,*g,*g,*g,*g]\n";
    let big = format!("# {}\n{}", "x".repeat(10 << 20), shell_pod("big", WAIT, ""));
    vec![
        ("binary.yaml", (0..=255_u8).cycle().take(4096).collect()),
        ("big.yaml", big.into_bytes()),
        ("bomb.yaml", bomb.as_bytes().to_vec()),
        ("deep.json", [vec![b'['; 100_000], vec![b']'; 100_000]].concat()),
        ("deep.yaml", [b"a: ".as_slice(), &b"{a: ".repeat(50_000)].concat()),
        ("kind.yaml", b"apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n".to_vec()),
        ("noname.yaml", shell_pod("x", WAIT, "").replacen("  name: x\n", "  labels: {a: b}\n", 1).into_bytes()),
        ("twice.yaml", shell_pod("Bad_Name", WAIT, "").into_bytes()),
    ]
}

#[test]
fn hostile_manifests_disturb_nobody_and_each_is_named() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("web.yaml", shell_pod("web", WAIT, "")).unwrap();
    let web = node.wait_running("web", SOON).unwrap();
    for (file, content) in hostile_files() {
        node.put(file, content).unwrap();
        node.wait(&format!("the log names {file}"), SOON, |node| Ok(node.log()?.contains(file).then_some(()))).unwrap();
    }
    check_undisturbed(&mut node, "web", &web.id, Duration::from_secs(2));
    node.put("later.yaml", shell_pod("later", WAIT, "")).unwrap();
    node.wait_running("later", SOON).unwrap();
    for (file, _) in hostile_files() {
        node.remove(file).unwrap();
    }
    check_undisturbed(&mut node, "web", &web.id, Duration::from_secs(2));
}

#[test]
fn a_manifest_with_unknown_fields_still_runs() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("odd.yaml", shell_pod("odd", WAIT, "  colour: green\n")).unwrap();
    node.wait_running("odd", SOON).unwrap();
}

#[test]
fn a_manifest_directory_that_vanishes_keeps_the_pods() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("web.yaml", shell_pod("web", WAIT, "")).unwrap();
    let web = node.wait_running("web", SOON).unwrap();
    let away = node.lab.dir().join("manifests.away");
    fs::rename(node.manifests(), &away).unwrap();
    check_undisturbed(&mut node, "web", &web.id, Duration::from_secs(5));
    fs::rename(&away, node.manifests()).unwrap();
    node.put("new.yaml", shell_pod("new", WAIT, "")).unwrap();
    // A watch of the old folder tells nothing: the periodic look, every 20 s, must find it.
    node.wait_running("new", Duration::from_secs(60)).unwrap();
    check_undisturbed(&mut node, "web", &web.id, Duration::from_secs(1));
}
