//! Workloads as people run them, made into pods by the controllers and bound by the scheduler.

use super::{Rig, SOON};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::lab::BUSYBOX_IMAGE;

/// Thirty pods at once, on a machine that builds beside it.
const LONG: Duration = Duration::from_secs(300);
/// Waits and ends at once when it is told to.
const SLEEP: &str = "trap 'exit 0' TERM; sleep 3600 & wait";

fn template(name: &str, script: &str, rest: &Value) -> Value {
    let mut spec = json!({"terminationGracePeriodSeconds": 5, "containers": [{
        "name": "c", "image": BUSYBOX_IMAGE, "imagePullPolicy": "IfNotPresent", "command": ["sh", "-c", script]}]});
    merge(&mut spec, rest);
    json!({"metadata": {"labels": {"app": name}}, "spec": spec})
}

/// Fields of `more` go into `base`; containers are merged one by one.
fn merge(base: &mut Value, more: &Value) {
    match (base, more) {
        (Value::Object(base), Value::Object(more)) => {
            for (key, value) in more {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (Value::Array(base), Value::Array(more)) if base.len() == more.len() => {
            base.iter_mut().zip(more).for_each(|(base, more)| merge(base, more));
        }
        (base, more) => *base = more.clone(),
    }
}

fn workload(kind: &str, name: &str, spec: &Value, template: &Value) -> String {
    let mut whole = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template}});
    merge(&mut whole["spec"], spec);
    whole.to_string()
}

fn names_of(rig: &Rig, app: &str) -> Vec<String> {
    let label = format!("app={app}");
    let names = rig.cluster.kubectl(&["get", "pods", "-l", &label, "-o", "jsonpath={.items[*].metadata.name}"]);
    names.unwrap().split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_deployment_of_thirty_comes_rolls_and_goes() {
    let Some(mut rig) = Rig::whole() else { return };
    let version = |value: &str| {
        let rest = json!({"containers": [{"env": [{"name": "VERSION", "value": value}]}]});
        let spec = json!({"replicas": 30, "strategy": {"rollingUpdate": {"maxSurge": 5, "maxUnavailable": 5}}});
        workload("Deployment", "web", &spec, &template("web", SLEEP, &rest))
    };
    rig.cluster.apply(&version("one")).unwrap();
    rig.cluster.wait_field("deployment/web", ".status.readyReplicas", "30", LONG).unwrap();
    let before = names_of(&rig, "web");
    assert_eq!(before.len(), 30);
    rig.cluster.apply(&version("two")).unwrap();
    rig.cluster.wait_field("deployment/web", ".status.updatedReplicas", "30", LONG).unwrap();
    rig.cluster.wait_field("deployment/web", ".status.replicas", "30", LONG).unwrap();
    rig.cluster.wait_field("deployment/web", ".status.readyReplicas", "30", LONG).unwrap();
    // Those that were replaced are counted no more but still end.
    let replaced = |rig: &Rig| names_of(rig, "web").iter().all(|name| !before.contains(name));
    let end = Instant::now() + SOON;
    while !replaced(&rig) {
        assert!(Instant::now() < end, "some of {before:?} are still there: {:?}", names_of(&rig, "web"));
        std::thread::sleep(Duration::from_millis(300));
    }
    let after = names_of(&rig, "web");
    assert_eq!(after.len(), 30);
    let said = rig.cluster.kubectl(&["exec", &after[0], "--", "sh", "-c", "echo $VERSION"]).unwrap();
    assert_eq!(said.trim(), "two");
    let restarts = "jsonpath={.items[*].status.containerStatuses[0].restartCount}";
    let restarts = rig.cluster.kubectl(&["get", "pods", "-l", "app=web", "-o", restarts]).unwrap();
    assert!(restarts.split_whitespace().all(|count| count == "0"), "{restarts}");
    rig.cluster.kubectl(&["scale", "deployment/web", "--replicas=0"]).unwrap();
    rig.node
        .wait("the pods are gone", LONG, |_| Ok(names_of_cluster(&rig.cluster, "web").is_empty().then_some(())))
        .unwrap();
    rig.cluster.kubectl(&["delete", "deployment/web"]).unwrap();
    rig.wait_empty();
}

fn names_of_cluster(cluster: &tests::cluster::Cluster, app: &str) -> String {
    let label = format!("app={app}");
    cluster.kubectl(&["get", "pods", "-l", &label, "-o", "name"]).unwrap_or_else(|error| error.to_string())
}

#[test]
fn daemons_jobs_and_sets_do_what_they_say() {
    let Some(mut rig) = Rig::whole() else { return };
    let daemon = template("agent", SLEEP, &json!({}));
    rig.cluster.apply(&workload("DaemonSet", "agent", &json!({}), &daemon)).unwrap();
    let job = |name: &str, script: &str, spec: &Value| {
        let template = template(name, script, &json!({"restartPolicy": "Never"}));
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": template}});
        merge(&mut job["spec"], spec);
        job
    };
    let sums = job("sums", "echo 42", &json!({"completions": 4, "parallelism": 2}));
    rig.cluster.apply(&sums.to_string()).unwrap();
    rig.cluster.apply(&job("broken", "exit 3", &json!({"backoffLimit": 1})).to_string()).unwrap();
    let cron = job("tick", "echo tick", &json!({}));
    let cron = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": cron["spec"]}}});
    rig.cluster.apply(&cron.to_string()).unwrap();
    set_with_objects(&mut rig);
    rig.cluster.wait_field("daemonset/agent", ".status.numberReady", "1", SOON).unwrap();
    rig.cluster.wait_field("job/sums", ".status.succeeded", "4", LONG).unwrap();
    rig.cluster.wait_field("job/sums", ".status.conditions[?(@.type==\"Complete\")].status", "True", SOON).unwrap();
    for name in names_of(&rig, "sums") {
        assert_eq!(rig.cluster.kubectl(&["logs", &name]).unwrap(), "42\n");
    }
    rig.cluster.wait_field("job/broken", ".status.conditions[?(@.type==\"Failed\")].status", "True", LONG).unwrap();
    let broken = rig.cluster.get("job/broken").unwrap();
    assert_eq!(broken["status"]["failed"], 2, "{broken}");
    let code = "jsonpath={.items[*].status.containerStatuses[0].state.terminated.exitCode}";
    assert_eq!(rig.cluster.kubectl(&["get", "pods", "-l", "app=broken", "-o", code]).unwrap(), "3 3");
    rig.node
        .wait("the cron job ran", LONG, |_| {
            let done = "jsonpath={.items[*].status.phase}";
            let phases = rig.cluster.kubectl(&["get", "pods", "-l", "app=tick", "-o", done])?;
            Ok(phases.contains("Succeeded").then_some(()))
        })
        .unwrap();
    let all = "daemonset/agent job/sums job/broken cronjob/tick statefulset/db";
    let mut delete = vec!["delete"];
    delete.extend(all.split(' '));
    rig.cluster.kubectl(&delete).unwrap();
    rig.wait_empty();
}

/// Two pods one after the other, with a config map, a secret and a token.
fn set_with_objects(rig: &mut Rig) {
    rig.cluster.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: cfg}, data: {k: one}}").unwrap();
    rig.cluster.apply("{apiVersion: v1, kind: Secret, metadata: {name: sec}, stringData: {p: hush}}").unwrap();
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "db"},
        "spec": {"clusterIP": "None", "selector": {"app": "db"}, "ports": [{"port": 80}]}});
    rig.cluster.apply(&service.to_string()).unwrap();
    let script = format!("echo $(hostname) $(cat /cfg/k) $(cat /sec/p) $(head -c 3 /token/t); {SLEEP}");
    let mounts = ["cfg", "sec", "token"].map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    let rest = json!({"containers": [{"volumeMounts": mounts}], "volumes": [
        {"name": "cfg", "configMap": {"name": "cfg"}}, {"name": "sec", "secret": {"secretName": "sec"}},
        {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}]}}]});
    let template = template("db", &script, &rest);
    rig.cluster.apply(&workload("StatefulSet", "db", &json!({"replicas": 2, "serviceName": "db"}), &template)).unwrap();
    rig.cluster.wait_field("statefulset/db", ".status.readyReplicas", "2", LONG).unwrap();
    for name in ["db-0", "db-1"] {
        assert_eq!(rig.cluster.kubectl(&["logs", name]).unwrap(), format!("{name} one hush eyJ\n"));
    }
}

#[test]
fn a_pod_that_does_not_fit_fails_with_the_reason() {
    let Some(mut rig) = Rig::whole() else { return };
    let rest = json!({"nodeName": tests::node::NODE, "containers": [{"resources": {"requests": {"cpu": "900"}}}]});
    let mut huge = template("huge", SLEEP, &rest);
    merge(&mut huge, &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "huge"}}));
    rig.cluster.apply(&huge.to_string()).unwrap();
    rig.cluster.wait_field("pod/huge", ".status.phase", "Failed", SOON).unwrap();
    rig.cluster.wait_field("pod/huge", ".status.reason", "OutOfcpu", SOON).unwrap();
    let message = rig.cluster.get("pod/huge").unwrap()["status"]["message"].as_str().unwrap().to_owned();
    let text = "Pod was rejected: Node didn't have enough resource: cpu, requested: 900000, used: 0, capacity: ";
    assert!(message.starts_with(text), "{message}");
    let events = ["get", "events", "--field-selector", "reason=OutOfcpu", "-o", "jsonpath={.items[*].type}"];
    let cluster = &rig.cluster;
    rig.node.wait("the event", SOON, |_| Ok((cluster.kubectl(&events)? == "Warning").then_some(()))).unwrap();
    let version = |rig: &Rig| rig.cluster.get("pod/huge").unwrap()["metadata"]["resourceVersion"].clone();
    let before = version(&rig);
    rig.node.kill9().unwrap();
    rig.node.start().unwrap();
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(version(&rig), before, "a restart wrote what was known already");
    rig.cluster.kubectl(&["delete", "pod/huge", "--wait=false"]).unwrap();
    rig.cluster.wait_gone("pod/huge", SOON).unwrap();
    rig.wait_empty();
}
