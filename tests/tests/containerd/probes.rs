//! Probes on a real runtime: every kind of question, and restarts of containers that fail.

use std::time::Duration;

use serde_json::Value;
use tests::node::{NODE, Node};

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// A pod whose container has these probes (YAML, indented by four).
pub(crate) fn probed(name: &str, script: &str, more: &str, probes: &str) -> String {
    format!("{}{probes}", shell_pod(name, script, more))
}

/// Serves `/ok` and `/moved` over HTTP on port 80.
pub(crate) const SERVE: &str = "mkdir -p /tmp/w/cgi-bin; cd /tmp/w; echo fine > ok; \
    printf '#!/bin/sh\\nprintf \"Status: 302 Found\\\\r\\\\nLocation: /ok\\\\r\\\\n\\\\r\\\\n\"\\n' > cgi-bin/moved; \
    chmod +x cgi-bin/moved; exec httpd -f -p 80";

/// The pod as the kubelet port shows it.
pub(crate) fn pod(node: &Node, name: &str) -> anyhow::Result<Option<Value>> {
    let pods = node.pods()?;
    let named = |pod: &&Value| pod["metadata"]["name"] == format!("{name}-{NODE}");
    Ok(pods["items"].as_array().into_iter().flatten().find(named).cloned())
}

pub(crate) fn ready(pod: &Value) -> Option<(bool, String)> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().find(|c| c["type"] == "Ready")?;
    Some((ready["status"] == "True", ready["lastTransitionTime"].as_str()?.to_owned()))
}

pub(crate) fn wait_ready(node: &mut Node, name: &str, wanted: bool, deadline: Duration) {
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

/// A server for HTTPS and gRPC health in the network that pods reach, as a target of probes on another host.
#[test]
fn https_and_grpc_are_asked() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    // The lab's own address comes with its first pod.
    node.put("first.yaml", shell_pod("first", WAIT, "")).unwrap();
    node.wait_running("first", SOON).unwrap();
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
