//! Cases about probes: pods that end, commands that hang, restarts of the kubelet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use tests::node::{NODE, Node};

use crate::probes::{SERVE, pod, probed, ready, wait_ready};
use crate::{SOON, WAIT, chosen_node, shell_pod};

#[test]
fn prb_1_readiness_goes_on_while_a_pod_ends() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let script = "trap 'rm /tmp/ok; sleep 12; exit 0' TERM; touch /tmp/ok; while :; do sleep 1; done";
    let check = "{exec: {command: [cat, /tmp/ok]}, periodSeconds: 2, failureThreshold: 1}";
    let probes = format!("    readinessProbe: {check}\n    livenessProbe: {check}\n");
    let more = "  terminationGracePeriodSeconds: 40\n  restartPolicy: Never\n";
    node.put("drain.yaml", probed("drain", script, more, &probes)).unwrap();
    wait_ready(&mut node, "drain", true, SOON);
    let container = node.wait_running("drain", SOON).unwrap();
    node.remove("drain.yaml").unwrap();
    let removed = Instant::now();
    wait_ready(&mut node, "drain", false, Duration::from_secs(9));
    let unready = removed.elapsed();
    assert!(node.running("drain").unwrap().iter().any(|c| c.id == container.id), "it ended before it was unready");
    node.wait_gone("drain", SOON).unwrap();
    let gone = removed.elapsed();
    println!("unready after {unready:?}, gone after {gone:?}");
    assert!(gone >= Duration::from_secs(11), "the grace was cut to {gone:?}");
}

#[test]
fn prb_3_hanging_commands_time_out_and_do_not_pile_up() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let hang = |kind: &str| {
        format!(
            "    {kind}: {{exec: {{command: [sleep, \"60\"]}}, timeoutSeconds: 2, periodSeconds: 5, failureThreshold: 1}}\n"
        )
    };
    node.put(
        "hang.yaml",
        probed("hang", "sleep 9999", "  terminationGracePeriodSeconds: 2\n", &hang("readinessProbe")),
    )
    .unwrap();
    node.put("twin.yaml", probed("twin", "sleep 9999", "  terminationGracePeriodSeconds: 2\n", &hang("livenessProbe")))
        .unwrap();
    let beat = "    readinessProbe: {httpGet: {path: /ok, port: 80}, periodSeconds: 1, failureThreshold: 1}\n";
    node.put("beat.yaml", probed("beat", SERVE, "", beat)).unwrap();
    let twin = node.wait_running("twin", SOON).unwrap();
    wait_ready(&mut node, "beat", true, SOON);
    let began = Instant::now();
    let before = successes(&node, "beat");
    node.wait("the twin is restarted", Duration::from_secs(60), |node| {
        Ok(node.running("twin")?.into_iter().find(|c| c.id != twin.id).map(|_| ()))
    })
    .unwrap();
    while began.elapsed() < Duration::from_secs(40) {
        let hang = pod(&node, "hang").unwrap().unwrap();
        assert!(!ready(&hang).unwrap().0, "a command that hangs made its pod ready");
        let beat = pod(&node, "beat").unwrap().unwrap();
        assert!(ready(&beat).unwrap().0, "the beat was lost");
        std::thread::sleep(Duration::from_millis(500));
    }
    let beats = successes(&node, "beat") - before;
    let seconds = began.elapsed().as_secs_f64();
    println!("{beats} beats in {seconds:.1} s");
    assert!(beats >= seconds * 0.8, "{beats} beats in {seconds} s");
    let hang = node.wait_running("hang", SOON).unwrap();
    let inside = node.crictl().exec(&hang.id, &["ps"]).unwrap();
    let hanging = inside.lines().filter(|line| line.contains("sleep 60")).count();
    assert!(hanging <= 2, "{hanging} commands hang:\n{inside}");
    assert!(node.log().unwrap().contains("timed out"));
}

/// Attempts of a pod's probe that passed, by its metric.
fn successes(node: &Node, name: &str) -> f64 {
    let metrics = node.get("/metrics/probes").unwrap();
    let own = |l: &&str| {
        l.starts_with("prober_probe_total{")
            && l.contains(&format!("pod=\"{name}-{NODE}\""))
            && l.contains("result=\"successful\"")
    };
    metrics.lines().find(own).and_then(|l| l.rsplit(' ').next()?.parse().ok()).unwrap_or(0.0)
}

#[test]
fn rst_1_ready_stays_as_it_was_over_restarts() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let probes = "    startupProbe: {exec: {command: [sh, -c, \"echo x >> /tmp/started\"]}, periodSeconds: 1}\n    \
                  readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 30}\n";
    node.put("up.yaml", probed("up", WAIT, "", probes)).unwrap();
    let probes = "    readinessProbe: {exec: {command: [\"false\"]}, periodSeconds: 30}\n";
    node.put("down.yaml", probed("down", WAIT, "", probes)).unwrap();
    node.put("none.yaml", shell_pod("none", WAIT, "")).unwrap();
    wait_ready(&mut node, "up", true, SOON);
    wait_ready(&mut node, "none", true, SOON);
    let up = node.wait_running("up", SOON).unwrap();
    node.wait_running("down", SOON).unwrap();
    // What is known is written down within a second.
    std::thread::sleep(Duration::from_secs(3));
    let state = |node: &Node| -> BTreeSet<(String, bool, String)> {
        let of = |name: &str| pod(node, name).ok()?.as_ref().and_then(ready).map(|(r, t)| (name.to_owned(), r, t));
        ["up", "down", "none"].into_iter().filter_map(of).collect()
    };
    let before = state(&node);
    assert_eq!(before.len(), 3);
    for crash in [false, true, false, true, false] {
        if crash { node.kill9() } else { node.stop() }.unwrap();
        node.start().unwrap();
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(8) {
            let now = state(&node);
            assert!(now.is_subset(&before), "Ready flapped: {now:?} instead of {before:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(state(&node), before);
    }
    let started = node.crictl().exec(&up.id, &["cat", "/tmp/started"]).unwrap();
    assert_eq!(started.lines().count(), 1, "it was asked again whether it has started");
}
