//! Probes on a real runtime: every kind of question, restarts, hanging commands, pods that end, restarts of ticklet.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::node::{NODE, Node};

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// A pod whose container has these probes (YAML, indented by four).
fn probed(name: &str, script: &str, more: &str, probes: &str) -> String {
    format!("{}{probes}", shell_pod(name, script, more))
}

/// Serves `/ok` and `/moved` over HTTP on port 80.
const SERVE: &str = "mkdir -p /tmp/w/cgi-bin; cd /tmp/w; echo fine > ok; \
    printf '#!/bin/sh\\nprintf \"Status: 302 Found\\\\r\\\\nLocation: /ok\\\\r\\\\n\\\\r\\\\n\"\\n' > cgi-bin/moved; \
    chmod +x cgi-bin/moved; exec httpd -f -p 80";

/// The pod as the kubelet port shows it.
fn pod(node: &Node, name: &str) -> anyhow::Result<Option<Value>> {
    let pods = node.pods()?;
    let named = |pod: &&Value| pod["metadata"]["name"] == format!("{name}-{NODE}");
    Ok(pods["items"].as_array().into_iter().flatten().find(named).cloned())
}

fn ready(pod: &Value) -> Option<(bool, String)> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    Some((ready["status"] == "True", ready["lastTransitionTime"].as_str()?.to_owned()))
}

fn wait_ready(node: &mut Node, name: &str, wanted: bool, deadline: Duration) {
    node.wait(&format!("{name} is ready: {wanted}"), deadline, |node| {
        let now = pod(node, name)?.as_ref().and_then(ready);
        Ok(now.filter(|(ready, _)| *ready == wanted).map(|_| ()))
    })
    .unwrap();
}

#[test]
fn readiness_follows_http_tcp_and_exec() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let http = |path: &str| format!("    readinessProbe: {{httpGet: {{path: {path}, port: 80}}, periodSeconds: 1}}\n");
    node.put("http.yaml", probed("http", SERVE, "", &http("/ok"))).unwrap();
    node.put("moved.yaml", probed("moved", SERVE, "", &http("/cgi-bin/moved"))).unwrap();
    node.put("gone.yaml", probed("gone", SERVE, "", &http("/nothing"))).unwrap();
    let tcp = "    readinessProbe: {tcpSocket: {port: 80}, periodSeconds: 1}\n";
    node.put("tcp.yaml", probed("tcp", SERVE, "", tcp)).unwrap();
    node.put("deaf.yaml", probed("deaf", WAIT, "", tcp)).unwrap();
    let exec = "    readinessProbe: {exec: {command: [cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 1}\n";
    let script = format!("(touch /tmp/ok; sleep 15; rm /tmp/ok) & {WAIT}");
    node.put("exec.yaml", probed("exec", &script, "", exec)).unwrap();
    for name in ["http", "moved", "tcp", "exec"] {
        wait_ready(&mut node, name, true, SOON);
    }
    wait_ready(&mut node, "exec", false, SOON);
    for name in ["gone", "deaf"] {
        node.wait_running(name, SOON).unwrap();
        let (ready, _) = ready(&pod(&node, name).unwrap().unwrap()).unwrap();
        assert!(!ready, "{name}");
    }
    let metrics = node.get("/metrics/probes").unwrap();
    let line = |pod: &str, result: &str| {
        let mut lines = metrics.lines().filter(|l| l.starts_with("prober_probe_total{"));
        lines.any(|l| l.contains(&format!("pod=\"{pod}-{NODE}\"")) && l.contains(&format!("result=\"{result}\"")))
    };
    assert!(line("http", "successful") && line("gone", "failed") && line("deaf", "failed"), "{metrics}");
}

#[test]
fn a_failing_liveness_probe_restarts_the_container_and_startup_holds_it_back() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let probes = "    livenessProbe: {exec: {command: [cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 2, terminationGracePeriodSeconds: 2}\n";
    let deaf = "trap '' TERM; touch /tmp/ok; sleep 6; rm /tmp/ok; while :; do sleep 1; done";
    node.put("life.yaml", probed("life", deaf, "  terminationGracePeriodSeconds: 600\n", probes)).unwrap();
    // Liveness would end this one within two seconds; the startup probe gives it time.
    let slow = format!("(sleep 8; touch /tmp/ok) & {WAIT}");
    let probes = "    startupProbe: {exec: {command: [cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 60}\n    \
                  livenessProbe: {exec: {command: [cat, /tmp/ok]}, periodSeconds: 1, failureThreshold: 1}\n";
    node.put("slow.yaml", probed("slow", &slow, "", probes)).unwrap();
    let first = node.wait_running("life", SOON).unwrap();
    wait_ready(&mut node, "slow", true, SOON);
    let restarted = node.wait("the container is restarted", Duration::from_secs(60), |node| {
        Ok(node.running("life")?.into_iter().find(|c| c.id != first.id))
    });
    assert_eq!(restarted.unwrap().annotations["io.kubernetes.container.restartCount"], "1");
    assert!(node.log().unwrap().contains("Probe failed"));
    let slow = node.wait_running("slow", SOON).unwrap();
    assert_eq!(slow.attempt, 0, "the startup probe did not hold liveness back");
}

/// PRB-3: commands that hang fail at their timeout, do not pile up, and hold up nobody else.
#[test]
fn hanging_commands_time_out_and_do_not_pile_up() {
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
    assert!(node.log().unwrap().contains("command timed out after 2s"));
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

/// PRB-1: while a pod ends it becomes unready, and its liveness does not cut its grace.
#[test]
fn readiness_goes_on_while_a_pod_ends() {
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

/// RST-1: a restart of ticklet changes neither Ready nor its time, and asks nobody to start again.
#[test]
fn ready_stays_as_it_was_over_restarts() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let probes = "    startupProbe: {exec: {command: [sh, -c, \"echo x >> /tmp/started\"]}, periodSeconds: 1}\n    \
                  readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 30}\n";
    node.put("up.yaml", probed("up", WAIT, "", probes)).unwrap();
    let probes = "    readinessProbe: {exec: {command: [\"false\"]}, periodSeconds: 30}\n";
    node.put("down.yaml", probed("down", WAIT, "", probes)).unwrap();
    node.put("n.yaml", shell_pod("n", WAIT, "")).unwrap();
    wait_ready(&mut node, "up", true, SOON);
    wait_ready(&mut node, "n", true, SOON);
    let up = node.wait_running("up", SOON).unwrap();
    node.wait_running("down", SOON).unwrap();
    // What is known is written down within a second.
    std::thread::sleep(Duration::from_secs(3));
    let state = |node: &Node| -> BTreeSet<(String, bool, String)> {
        let of = |name: &str| pod(node, name).ok()?.as_ref().and_then(ready).map(|(r, t)| (name.to_owned(), r, t));
        ["up", "down", "n"].into_iter().filter_map(of).collect()
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

/// A server for HTTPS and gRPC health in the network that pods reach, as a target of probes on another host.
#[test]
fn https_and_grpc_are_asked() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let server = crate::health::Servers::start(&node.address()).unwrap();
    let (https, grpc) = (server.https, server.grpc);
    let over_tls = format!(
        "    readinessProbe: {{httpGet: {{scheme: HTTPS, host: 127.0.0.1, path: /, port: {https}}}, periodSeconds: 1}}\n"
    );
    node.put("tls.yaml", probed("tls", WAIT, "", &over_tls)).unwrap();
    let health = |service: &str| {
        format!("    readinessProbe: {{grpc: {{port: {grpc}, service: {service:?}}}, periodSeconds: 1}}\n")
    };
    // In the node's network the pod's address is the node's, where the server listens.
    node.put("rpc.yaml", probed("rpc", WAIT, "  hostNetwork: true\n", &health("up"))).unwrap();
    node.put("sick.yaml", probed("sick", WAIT, "  hostNetwork: true\n", &health("down"))).unwrap();
    wait_ready(&mut node, "tls", true, SOON);
    wait_ready(&mut node, "rpc", true, SOON);
    node.wait_running("sick", SOON).unwrap();
    let said = node.wait("the sick one is told", SOON, |node| {
        Ok(node.log()?.lines().find(|l| l.contains("NOT_SERVING")).map(str::to_owned))
    });
    println!("{}", said.unwrap());
    assert!(!ready(&pod(&node, "sick").unwrap().unwrap()).unwrap().0);
}
