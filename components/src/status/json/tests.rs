//! Statuses as JSON, against those of the reference.

use super::*;
use crate::status::{ConditionKind, Phase};
use serde_json::{Value, json};

fn wall(text: &str) -> Wall {
    let parsed: jiff::Timestamp = text.parse().unwrap();
    Wall(i64::try_from(parsed.as_nanosecond()).unwrap())
}

/// The reference's mirror pod: its status from ours, compared as JSON.
#[test]
fn a_running_pod_looks_as_on_the_reference() {
    let since = |time: &str| wall(&format!("2026-11-29T17:20:{time}Z"));
    let condition = |kind, time| Condition {
        kind,
        status: true,
        reason: String::new(),
        message: String::new(),
        since: since(time),
    };
    let id = "containerd://ef79b1160ef567ad8c8a042f25ab34a84b1bea6a13a3a188b3b69b63c72f24be";
    let status = PodStatus {
        phase: Phase::Running,
        conditions: vec![
            condition(ConditionKind::PodReadyToStartContainers, "30"),
            condition(ConditionKind::Initialized, "28"),
            condition(ConditionKind::Ready, "30"),
            condition(ConditionKind::ContainersReady, "30"),
            condition(ConditionKind::PodScheduled, "28"),
        ],
        host_ip: "10.88.0.1".to_owned(),
        pod_ips: vec!["10.88.0.98".to_owned()],
        start_time: since("28"),
        qos: "BestEffort".to_owned(),
        containers: vec![ContainerReport {
            name: "c".into(),
            state: ReportedState::Running { started_at: since("30") },
            last: None,
            ready: true,
            started: Some(true),
            restart_count: 0,
            image: "localhost/busybox:1".to_owned(),
            image_id: "sha256:da0209acd02d9f3bf203394fb83e15e6dfccd1a956d16d4612bfbb9ac96ae952".to_owned(),
            container_id: id.to_owned(),
            user: Some((0, 0, vec![0])),
            actual: None,
        }],
        ..PodStatus::default()
    };
    let mut expect: Value = serde_json::from_str(include_str!("../../../testdata/mirror-pod.json")).unwrap();
    let mut object = expect.clone();
    object.as_object_mut().unwrap().remove("status");
    // The server gave it one; a static pod has none.
    object["metadata"].as_object_mut().unwrap().remove("generation");
    expect["metadata"].as_object_mut().unwrap().remove("generation");
    // Pod-level resources are not served yet.
    expect["status"].as_object_mut().unwrap().remove("resources");
    let got: Value = serde_json::from_str(&pod_json(&object.to_string(), &status).unwrap()).unwrap();
    assert_eq!(got, expect);
}

#[track_caller]
fn check(container: ContainerReport, spec: &Value, expect: &Value) {
    let object = json!({"spec": {"containers": [spec]}}).to_string();
    let status = PodStatus { containers: vec![container], ..PodStatus::default() };
    let got: Value = serde_json::from_str(&pod_json(&object, &status).unwrap()).unwrap();
    assert_eq!(got["status"]["containerStatuses"][0], *expect);
}

#[test]
fn containers_show_states_resources_and_mounts() {
    let report = ContainerReport {
        name: "c".into(),
        state: ReportedState::Waiting { reason: "CrashLoopBackOff".to_owned(), message: "back-off \"x\"".to_owned() },
        last: Some(ReportedState::Terminated {
            exit_code: 137,
            reason: "Error".to_owned(),
            message: String::new(),
            started_at: Wall::default(),
            finished_at: wall("2026-11-29T17:20:30Z"),
            container_id: "containerd://1".to_owned(),
        }),
        ready: false,
        started: Some(false),
        restart_count: 3,
        image: "i".to_owned(),
        image_id: String::new(),
        container_id: "containerd://1".to_owned(),
        user: None,
        actual: None,
    };
    let resources = json!({"limits": {"cpu": "250m"}, "requests": {"cpu": "100m"}});
    let spec = json!({"name": "c", "resources": resources, "volumeMounts": [
        {"name": "e", "mountPath": "/e"},
        {"name": "m", "mountPath": "/m", "readOnly": true},
        {"name": "r", "mountPath": "/r", "readOnly": true, "recursiveReadOnly": "IfPossible"},
    ]});
    let expect = json!({
        "name": "c", "ready": false, "restartCount": 3, "image": "i", "imageID": "", "containerID": "containerd://1",
        "started": false, "allocatedResources": {"cpu": "100m"}, "resources": resources,
        "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off \"x\""}},
        "lastState": {"terminated": {"exitCode": 137, "reason": "Error", "startedAt": "1970-01-01T00:00:00Z",
            "finishedAt": "2026-11-29T17:20:30Z", "containerID": "containerd://1"}},
        "volumeMounts": [
            {"name": "e", "mountPath": "/e"},
            {"name": "m", "mountPath": "/m", "readOnly": true, "recursiveReadOnly": "Disabled"},
            {"name": "r", "mountPath": "/r", "readOnly": true, "recursiveReadOnly": "Enabled"},
        ],
    });
    check(report.clone(), &spec, &expect);
    let size = ActualSize { cpu_limit: Some(1500), memory_limit: Some(64 << 20), ..ActualSize::default() };
    let mut differs = expect.clone();
    differs["resources"]["limits"] = json!({"cpu": "1500m", "memory": "64Mi"});
    check(ContainerReport { actual: Some(Box::new(size)), ..report.clone() }, &spec, &differs);
    let waiting = ContainerReport { container_id: String::new(), last: None, ..report };
    let mut expect = expect;
    let shown = expect.as_object_mut().unwrap();
    for field in ["containerID", "allocatedResources", "resources"] {
        shown.remove(field);
    }
    shown["lastState"] = json!({});
    check(waiting, &spec, &expect);
}

#[test]
fn conditions_of_a_resize_come_first_with_the_generation_they_are_about() {
    let since = wall("2026-11-29T17:20:30Z");
    let pending =
        ResizeCondition { reason: "Deferred".to_owned(), message: "m".to_owned(), generation: 3, since, probed: since };
    let status = PodStatus {
        resize: Some(Box::new(ResizeConditions { pending: Some(pending), in_progress: None })),
        conditions: vec![Condition {
            kind: ConditionKind::Ready,
            status: true,
            reason: String::new(),
            message: String::new(),
            since,
        }],
        ..PodStatus::default()
    };
    let text = pod_json(r#"{"metadata":{"generation":4}}"#, &status).unwrap();
    let got: Value = serde_json::from_str(&text).unwrap();
    let time = "2026-11-29T17:20:30Z";
    let expect = json!([
        {"type": "PodResizePending", "observedGeneration": 3, "status": "True", "lastProbeTime": time,
            "lastTransitionTime": time, "reason": "Deferred", "message": "m"},
        {"type": "Ready", "observedGeneration": 4, "status": "True", "lastProbeTime": null, "lastTransitionTime": time},
    ]);
    assert_eq!(got["status"]["conditions"], expect);
    assert_eq!(crate::status::parse::status(&got["status"].to_string()).resize, status.resize);
}

#[test]
fn an_object_that_is_none_is_left_out() {
    assert_eq!(pod_json("", &PodStatus::default()), None);
    assert_eq!(pod_json("{}", &PodStatus::default()).unwrap(), r#"{"status":{"phase":"Pending"}}"#);
}
