//! The lab itself: it runs a pod with the runtime alone, and leaves nothing.

use std::fs;

use serde_json::json;
use tests::crictl::Crictl;
use tests::lab::{BUSYBOX_IMAGE, Lab};

/// Runs a pod with one container by crictl; returns the container's id.
fn run_pod(lab: &Lab, crictl: &Crictl, name: &str, command: &[&str]) -> String {
    let pod = json!({
        "metadata": { "name": name, "namespace": "default", "uid": format!("uid-{name}"), "attempt": 0 },
        "log_directory": lab.dir().join("pods").join(name),
        "port_mappings": [{ "protocol": 0, "container_port": 80, "host_port": 0 }],
        "linux": { "cgroup_parent": lab.cgroup() },
    });
    let container = json!({
        "metadata": { "name": "c", "attempt": 0 },
        "image": { "image": BUSYBOX_IMAGE },
        "command": command,
        "log_path": "c.log",
        "labels": { "io.kubernetes.pod.name": name, "io.kubernetes.pod.uid": format!("uid-{name}") },
        "linux": {},
    });
    let (pod_file, container_file) =
        (lab.dir().join(format!("{name}-p.json")), lab.dir().join(format!("{name}-c.json")));
    fs::write(&pod_file, pod.to_string()).unwrap();
    fs::write(&container_file, container.to_string()).unwrap();
    crictl
        .run(&["run", "--no-pull", &container_file.display().to_string(), &pod_file.display().to_string()])
        .unwrap()
        .trim()
        .to_owned()
}

/// Whether the process lives; one that nobody has reaped yet does not.
fn runs(pid: i32) -> bool {
    tests::process::all().unwrap().iter().any(|process| process.pid == pid)
}

#[test]
fn a_lab_runs_pods_and_leaves_nothing() {
    let Some(mut lab) = super::chosen_lab() else {
        return;
    };
    let crictl = lab.crictl().unwrap();
    let id = run_pod(&lab, &crictl, "web", &["sh", "-c", "echo hello > /tmp/index.html; exec httpd -f -h /tmp"]);
    let containers = crictl.containers_of("web").unwrap();
    assert_eq!(containers.len(), 1);
    assert!(containers[0].is_running());
    assert_eq!(containers[0].id, id);
    assert!(crictl.pid_of(&id).unwrap() > 0);
    assert_eq!(crictl.exec(&id, &["cat", "/tmp/index.html"]).unwrap(), "hello");
    assert_eq!(lab.teardown().unwrap(), Vec::<String>::new());
    assert!(!lab.dir().exists());
}

#[test]
fn a_lab_cleans_up_after_its_containerd_crashed() {
    let Some(mut lab) = super::chosen_lab() else {
        return;
    };
    let crictl = lab.crictl().unwrap();
    let id = run_pod(&lab, &crictl, "sleeper", &["sleep", "1000"]);
    let pid = crictl.pid_of(&id).unwrap();
    lab.kill_containerd().unwrap();
    assert!(runs(pid), "a container outlives its containerd");
    assert_eq!(lab.teardown().unwrap(), Vec::<String>::new());
    assert!(!runs(pid));
}
