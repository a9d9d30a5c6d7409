//! Containers that end: back-off, restart policies, and restarts of ticklet that touch nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tests::node::{NODE, Node};
use tests::process;

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// Kills the pod's container and returns how long it took until the next one ran.
fn kill_and_time(node: &mut Node, pod: &str, deadline: Duration) -> Duration {
    let old = node.wait_running(pod, SOON).unwrap();
    process::kill_pid(node.crictl().pid_of(&old.id).unwrap()).unwrap();
    let killed = Instant::now();
    node.wait("the next container runs", deadline, |node| {
        Ok(node.running(pod)?.into_iter().find(|new| new.id != old.id))
    })
    .unwrap();
    killed.elapsed()
}

#[test]
fn a_killed_process_restarts_with_the_right_back_off() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("crash.yaml", shell_pod("crash", WAIT, "")).unwrap();
    let gaps: Vec<f64> =
        (0..3).map(|_| kill_and_time(&mut node, "crash", Duration::from_secs(60)).as_secs_f64()).collect();
    println!("from kill to running: {gaps:?} s");
    // The first restart is at once, the next ones wait 10 s and 20 s from the end of the one before.
    assert!(gaps[0] < 5.0, "{gaps:?}");
    assert!((9.5..17.0).contains(&gaps[1]), "{gaps:?}");
    assert!((19.5..30.0).contains(&gaps[2]), "{gaps:?}");
    let now = node.wait_running("crash", SOON).unwrap();
    assert_eq!(now.attempt, 3);
    assert_eq!(now.annotations["io.kubernetes.container.restartCount"], "3");
}

#[test]
fn restart_policies_are_kept() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("never.yaml", shell_pod("never", "exit 3", "  restartPolicy: Never\n")).unwrap();
    node.put("done.yaml", shell_pod("done", "exit 0", "  restartPolicy: OnFailure\n")).unwrap();
    node.put("again.yaml", shell_pod("again", "exit 1", "  restartPolicy: OnFailure\n")).unwrap();
    let count =
        |node: &Node, pod: &str| Ok::<_, anyhow::Error>(node.crictl().containers_of(&format!("{pod}-{NODE}"))?.len());
    node.wait("the failing one is tried again", SOON, |node| Ok((count(node, "again")? >= 2).then_some(()))).unwrap();
    // As long again as the restart took: the others had every chance to be restarted wrongly.
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(count(&node, "never").unwrap(), 1);
    assert_eq!(count(&node, "done").unwrap(), 1);
    node.check_alive().unwrap();
}

#[test]
fn a_manifest_removed_and_written_again_at_once_restarts_its_pod() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let manifest = shell_pod("web", "trap 'exit 0' TERM; while :; do sleep 0.1; done", "");
    let path = node.manifests().join("web.yaml");
    std::fs::write(&path, &manifest).unwrap();
    let first = node.wait_running("web", SOON).unwrap();
    // Put over what is there: nothing was ever gone.
    node.put("web.yaml", manifest.clone()).unwrap();
    crate::input::check_undisturbed(&mut node, "web", &first.id, Duration::from_secs(2));
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, &manifest).unwrap();
    let next = |node: &Node| Ok(node.running("web")?.into_iter().find(|new| new.id != first.id));
    let second = node.wait("the pod runs again", SOON, next).unwrap();
    assert_eq!(second.annotations["io.kubernetes.container.restartCount"], "1");
    crate::input::check_undisturbed(&mut node, "web", &second.id, Duration::from_secs(2));
}

/// The id and try of every container that should last, with the name of its pod.
fn snapshot(node: &Node) -> BTreeMap<String, (String, u64)> {
    let containers = node.crictl().containers().unwrap();
    let lasting = containers.into_iter().filter(|container| !container.pod.starts_with("probe"));
    lasting.map(|container| (container.id, (container.pod, container.attempt))).collect()
}

#[test]
fn a_restart_of_ticklet_touches_no_container() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    for name in ["a", "b", "c"] {
        node.put(&format!("{name}.yaml"), shell_pod(name, WAIT, "")).unwrap();
    }
    node.put("job.yaml", shell_pod("job", "exit 0", "  restartPolicy: Never\n")).unwrap();
    for name in ["a", "b", "c"] {
        node.wait_running(name, SOON).unwrap();
    }
    node.wait("the job is done", SOON, |node| {
        let job = node.crictl().containers_of(&format!("job-{NODE}"))?;
        Ok(job.iter().any(|container| container.state == "CONTAINER_EXITED").then_some(()))
    })
    .unwrap();
    let before = snapshot(&node);
    for crash in [false, true, false] {
        if crash { node.kill9() } else { node.stop() }.unwrap();
        assert_eq!(snapshot(&node), before, "ending ticklet touched a container");
        node.start().unwrap();
        node.wait("ticklet is healthy", SOON, |node| Ok((node.healthz()? == 200).then_some(()))).unwrap();
        // A new pod that runs proves that this ticklet works; then the others had their chance to be touched.
        let probe = format!("probe{}", u8::from(crash));
        node.put("probe.yaml", shell_pod(&probe, WAIT, "")).unwrap();
        node.wait_running(&probe, SOON).unwrap();
        node.remove("probe.yaml").unwrap();
        node.wait_gone(&probe, SOON).unwrap();
        assert_eq!(snapshot(&node), before, "a restart of ticklet touched a container");
    }
}
