//! Bad input: spare, hidden, broken and hostile files in the manifest directory disturb no pod.

use std::fs;
use std::time::{Duration, Instant};

use tests::node::{NODE, Node};

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// Watches for a while that the pod keeps its one container.
fn check_undisturbed(node: &mut Node, pod: &str, id: &str, time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        let running = node.running(pod).unwrap();
        assert!(running.len() == 1 && running[0].id == id, "{pod} was disturbed: {running:?}");
        node.check_alive().unwrap();
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn spare_hidden_and_broken_files_beside_a_manifest() {
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
