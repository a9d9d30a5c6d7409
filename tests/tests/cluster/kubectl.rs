//! What people do with kubectl to a pod that runs.

use super::{Rig, SOON};
use serde_json::json;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tests::lab::BUSYBOX_IMAGE;

/// Answers each connection with a word, and says what it reads.
const SCRIPT: &str = "mkdir -p /www; echo here > /www/index.html; httpd -p 8080 -h /www; \
                      while read line; do echo got $line; done; sleep 3600";

#[test]
fn kubectl_debugs_attaches_copies_forwards_and_describes() {
    let Some(mut rig) = Rig::whole() else { return };
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": {
        "terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": BUSYBOX_IMAGE,
            "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", SCRIPT], "stdin": true}]}});
    rig.cluster.apply(&pod.to_string()).unwrap();
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    rig.cluster.wait_field("pod/web", ready, "True", SOON).unwrap();
    debug(&mut rig);
    attach(&rig);
    copy(&rig);
    forward(&rig);
    // Columns are as wide as their widest text.
    let words = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let said = words(rig.cluster.kubectl(&["describe", "pod/web"]).unwrap());
    for part in ["Node: lab/", "Started", "Ephemeral Containers:", "Normal Created", "QoS Class:"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    let said = rig.cluster.kubectl(&["describe", "node/lab"]).unwrap();
    for part in ["KubeletReady", "cpu", "default", "web"] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    rig.cluster.kubectl(&["delete", "pod/web", "--wait=false"]).unwrap();
    rig.cluster.wait_gone("pod/web", SOON).unwrap();
    rig.wait_empty();
}

/// A container added to the pod sees the processes of the one it is aimed at, and is never started again.
fn debug(rig: &mut Rig) {
    let image = format!("--image={BUSYBOX_IMAGE}");
    let script = "ps; echo done; sleep 5; exit 4";
    let base = ["debug", "web", "--profile=general", "-c", "tool", "--target=c", "--image-pull-policy=IfNotPresent"];
    let mut args = base.to_vec();
    args.extend([image.as_str(), "--", "sh", "-c", script]);
    rig.cluster.kubectl(&args).unwrap();
    let state = ".status.ephemeralContainerStatuses[0].state";
    rig.cluster.wait_field("pod/web", &format!("{state}.terminated.exitCode"), "4", SOON).unwrap();
    let log = rig.cluster.kubectl(&["logs", "web", "-c", "tool"]).unwrap();
    assert!(log.contains("httpd -p 8080") && log.ends_with("done\n"), "{log}");
    std::thread::sleep(Duration::from_secs(5));
    let pod = rig.cluster.get("pod/web").unwrap();
    let tool = &pod["status"]["ephemeralContainerStatuses"][0];
    assert_eq!((&tool["name"], &tool["restartCount"], &tool["ready"]), (&json!("tool"), &json!(0), &json!(false)));
    assert_eq!(pod["status"]["containerStatuses"][0]["restartCount"], 0, "{pod}");
    // A second one, which exec reaches.
    let mut args = base.to_vec();
    args[4] = "shell";
    args.extend([image.as_str(), "--", "sleep", "3600"]);
    rig.cluster.kubectl(&args).unwrap();
    // Statuses are in the order of names.
    let state = ".status.ephemeralContainerStatuses[0].state.running.startedAt";
    let cluster = &rig.cluster;
    rig.node
        .wait("the second one runs", SOON, |_| {
            let path = format!("jsonpath={{{state}}}");
            Ok((!cluster.kubectl(&["get", "pod/web", "-o", &path])?.is_empty()).then_some(()))
        })
        .unwrap();
    let said = rig.cluster.kubectl(&["exec", "web", "-c", "shell", "--", "cat", "/proc/1/cmdline"]).unwrap();
    assert!(said.contains("httpd"), "{said}");
}

fn attach(rig: &Rig) {
    let mut child = rig.cluster.spawn_kubectl(&["attach", "-i", "web", "-c", "c", "--quiet"]).unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    input.write_all(b"word\n").unwrap();
    input.flush().unwrap();
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line.trim_end(), "got word");
}

fn copy(rig: &Rig) {
    let (there, back) = (rig.cluster.file("there.txt"), rig.cluster.file("back.txt"));
    let text = "line\n".repeat(20_000);
    std::fs::write(&there, &text).unwrap();
    rig.cluster.kubectl(&["cp", &there.display().to_string(), "web:/tmp/copied", "-c", "c"]).unwrap();
    rig.cluster.kubectl(&["cp", "web:/tmp/copied", &back.display().to_string(), "-c", "c"]).unwrap();
    assert!(std::fs::read_to_string(&back).unwrap() == text, "the file came back changed");
}

fn forward(rig: &Rig) {
    let mut child = rig.cluster.spawn_kubectl(&["port-forward", "pod/web", ":8080"]).unwrap();
    let mut said = String::new();
    // It ends when nobody reads what it says.
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    let port: u16 = said.split("127.0.0.1:").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET /index.html HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    drop(output);
    assert!(answer.ends_with("here\n"), "{answer}");
}
