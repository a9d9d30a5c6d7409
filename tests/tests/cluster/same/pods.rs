//! The pods whose end states are compared: one for each way that a pod can go.

use serde_json::{Value, json};
use tests::lab::BUSYBOX_IMAGE;
use tests::node::NODE;

/// A pod, and what its status holds once it has got where it goes.
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) object: Value,
    /// Values by JSON pointer into the status.
    pub(super) settled: Vec<(&'static str, Value)>,
}

const WAIT: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";
const STATE: &str = "/containerStatuses/0/state/waiting/reason";
const READY: &str = "/containerStatuses/0/ready";

/// Pods that go round: how often something was told of them depends on the moment.
pub(super) const RESTLESS: [&str; 10] = [
    "crash",
    "on-failure",
    "no-image",
    "no-command",
    "init-loop",
    "sick",
    "hook-bad",
    "no-env",
    "runs-as-root",
    "no-handler",
];

fn subject(
    name: &'static str,
    script: &str,
    container: Value,
    spec: Value,
    settled: &[(&'static str, Value)],
) -> Subject {
    let mut c = json!({"name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script]});
    overlay(&mut c, container);
    let mut whole = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 2, "containers": [c]});
    overlay(&mut whole, spec);
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"set": "same"}}, "spec": whole});
    Subject { name, object, settled: settled.to_vec() }
}

/// Fields of `more` replace those of `base`.
fn overlay(base: &mut Value, more: Value) {
    if let (Value::Object(base), Value::Object(more)) = (base, more) {
        base.extend(more);
    }
}

fn helper(name: &str, script: &str, more: Value) -> Value {
    let mut c = json!({"name": name, "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script]});
    overlay(&mut c, more);
    c
}

/// Pods that run.
pub(super) fn running() -> Vec<Subject> {
    let ready = &[(READY, json!(true))][..];
    let none = || json!({});
    let mut all = vec![
        subject("plain", WAIT, none(), none(), ready),
        subject("scheduled", WAIT, none(), json!({"nodeName": null}), ready),
        subject(
            "burstable",
            WAIT,
            json!({"resources": {"requests": {"cpu": "10m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}}}),
            none(),
            ready,
        ),
        subject("guaranteed", WAIT, json!({"resources": {"limits": {"cpu": "50m", "memory": "32Mi"}}}), none(), ready),
        subject("host", WAIT, none(), json!({"hostNetwork": true, "hostPID": true}), ready),
        subject("port", WAIT, json!({"ports": [{"containerPort": 80, "hostPort": 31999}]}), none(), ready),
        subject("gate", WAIT, none(), json!({"readinessGates": [{"conditionType": "example.com/gate"}]}), ready),
        subject(
            "probed",
            WAIT,
            json!({"startupProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
            "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1},
            "livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}}),
            none(),
            ready,
        ),
        subject(
            "unready",
            WAIT,
            json!({"readinessProbe": {"exec": {"command": ["sh", "-c", "echo no; exit 1"]}, "periodSeconds": 2}}),
            none(),
            &[("/containerStatuses/0/started", json!(true)), (READY, json!(false))],
        ),
        subject(
            "slow",
            WAIT,
            json!({"startupProbe": {"exec": {"command": ["false"]}, "failureThreshold": 1000, "periodSeconds": 2}}),
            none(),
            &[("/containerStatuses/0/started", json!(false)), ("/phase", json!("Running"))],
        ),
        subject(
            "user",
            WAIT,
            none(),
            json!({"securityContext": {"runAsUser": 1000, "runAsGroup": 1001, "fsGroup": 1002,
            "supplementalGroups": [1003], "seccompProfile": {"type": "RuntimeDefault"}}}),
            ready,
        ),
    ];
    all.extend(furnished());
    all
}

/// Pods that run with volumes, init containers and hooks.
fn furnished() -> Vec<Subject> {
    let ready = &[(READY, json!(true))][..];
    let none = || json!({});
    let mut all = Vec::new();
    let mounts = ["scratch", "memory", "map", "secret", "all"]
        .map(|name| json!({"name": name, "mountPath": format!("/{name}"), "readOnly": name == "map"}));
    all.push(subject(
        "volumes",
        WAIT,
        json!({"volumeMounts": mounts}),
        json!({"volumes": [
        {"name": "scratch", "emptyDir": {}}, {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "map", "configMap": {"name": "cfg"}}, {"name": "secret", "secret": {"secretName": "sec"}},
        {"name": "all", "projected": {"sources": [{"configMap": {"name": "cfg"}}, {"downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}]}),
        ready,
    ));
    // What no container mounts need not be there.
    let nowhere = json!({"volumes": [{"name": "v", "configMap": {"name": "none"}}]});
    all.push(subject("unmounted", WAIT, none(), nowhere, ready));
    all.push(subject("classed", WAIT, none(), json!({"runtimeClassName": "boxed"}), ready));
    all.push(subject(
        "init",
        WAIT,
        none(),
        json!({"initContainers": [helper("first", "echo first", none()),
        helper("side", WAIT, json!({"restartPolicy": "Always"})), helper("second", "echo second", none())]}),
        ready,
    ));
    all.push(subject(
        "init-runs",
        WAIT,
        none(),
        json!({"initContainers": [helper("first", WAIT, none())]}),
        &[("/initContainerStatuses/0/started", json!(true))],
    ));
    all.push(subject(
        "hook",
        WAIT,
        json!({"lifecycle": {"postStart": {"exec": {"command": ["true"]}}}}),
        none(),
        ready,
    ));
    all
}

/// Pods that end.
pub(super) fn ended() -> Vec<Subject> {
    let never = || json!({"restartPolicy": "Never"});
    let failed = &[("/phase", json!("Failed"))][..];
    let none = || json!({});
    vec![
        subject("good", "echo done > /dev/termination-log", none(), never(), &[("/phase", json!("Succeeded"))]),
        subject(
            "bad",
            "echo why; exit 3",
            json!({"terminationMessagePolicy": "FallbackToLogsOnError"}),
            never(),
            failed,
        ),
        subject("late", WAIT, none(), json!({"restartPolicy": "Never", "activeDeadlineSeconds": 20}), failed),
        subject(
            "memory",
            "head -c 100m /dev/zero | tail",
            json!({"resources": {"limits": {"memory": "16Mi"}}}),
            never(),
            failed,
        ),
        subject(
            "init-bad",
            WAIT,
            none(),
            json!({"restartPolicy": "Never",
            "initContainers": [helper("first", "exit 4", none()), helper("second", "true", none())]}),
            failed,
        ),
        subject("huge", WAIT, json!({"resources": {"requests": {"cpu": "900"}}}), none(), failed),
        subject("elsewhere", WAIT, none(), json!({"nodeSelector": {"x": "y"}}), failed),
        subject("port-taken", WAIT, json!({"ports": [{"containerPort": 80, "hostPort": 31999}]}), none(), failed),
        subject(
            "sysctl",
            WAIT,
            none(),
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}}),
            failed,
        ),
    ]
}

/// Pods that do not get where they should.
pub(super) fn stuck() -> Vec<Subject> {
    let loops = &[(STATE, json!("CrashLoopBackOff"))][..];
    let none = || json!({});
    let waits = |reason: &str| [(STATE, json!(reason))];
    let env = json!({"env": [{"name": "K", "valueFrom": {"configMapKeyRef": {"name": "none", "key": "k"}}}]});
    vec![
        subject("crash", "exit 1", none(), none(), loops),
        subject("on-failure", "exit 1", none(), json!({"restartPolicy": "OnFailure"}), loops),
        subject("no-command", "", json!({"command": ["/nope"]}), none(), loops),
        subject(
            "sick",
            WAIT,
            json!({"livenessProbe": {"exec": {"command": ["sh", "-c", "echo ill; exit 1"]}, "failureThreshold": 1, "periodSeconds": 1}}),
            none(),
            loops,
        ),
        subject(
            "hook-bad",
            WAIT,
            json!({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo oh; exit 5"]}}}}),
            none(),
            loops,
        ),
        subject(
            "init-loop",
            WAIT,
            none(),
            json!({"initContainers": [helper("first", "exit 4", none())]}),
            &[("/initContainerStatuses/0/state/waiting/reason", json!("CrashLoopBackOff"))],
        ),
        subject(
            "never-image",
            "",
            json!({"image": "localhost/none:1", "imagePullPolicy": "Never"}),
            none(),
            &waits("ErrImageNeverPull"),
        ),
        subject("no-image", "", json!({"image": "127.0.0.1:1/none:1"}), none(), &waits("ImagePullBackOff")),
        subject("bad-name", "", json!({"image": "UPPER"}), none(), &waits("InvalidImageName")),
        subject("no-env", WAIT, env, none(), &waits("CreateContainerConfigError")),
        subject(
            "runs-as-root",
            WAIT,
            json!({"securityContext": {"runAsNonRoot": true}}),
            none(),
            &waits("CreateContainerConfigError"),
        ),
        subject("no-handler", WAIT, none(), json!({"runtimeClassName": "odd"}), &waits("ContainerCreating")),
        subject(
            "no-volume",
            WAIT,
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}),
            json!({"volumes": [{"name": "v", "configMap": {"name": "none"}}]}),
            &waits("ContainerCreating"),
        ),
    ]
}

/// Pods whose deletion is asked for and that a finalizer keeps.
pub(super) fn deleted() -> Vec<Subject> {
    let hook = json!({"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo oh; exit 6"]}}}});
    let mut all = vec![
        subject("held", WAIT, json!({}), json!({}), &[("/phase", json!("Succeeded"))]),
        subject(
            "held-deaf",
            "trap '' TERM; while :; do sleep 1; done",
            json!({}),
            json!({}),
            &[("/phase", json!("Failed"))],
        ),
        subject("held-hook", WAIT, hook, json!({}), &[("/phase", json!("Succeeded"))]),
    ];
    for subject in &mut all {
        subject.object["metadata"]["finalizers"] = json!(["example.com/hold"]);
    }
    all
}
