//! The compiler as a whole: text in, compiled pod or list of errors out.

use super::*;
use components::edge::cri::{Propagation, Protocol, Seccomp};
use components::spec::{ContainerKind, EnvSource, FileSource, FilesKind, PullPolicy, QosClass, VolumeSource};
use serde_json::json;

fn origin() -> Origin<'static> {
    Origin {
        node_name: "lab",
        source: Source::File,
        path: "/etc/kubernetes/manifests/web.yaml",
        digest: 7,
        seen: Wall(1_700_000_000_120_000_000),
    }
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A good pod with `extra` merged into it.
fn pod(extra: Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    });
    merge(&mut pod, extra);
    pod
}

/// A good pod whose one container has `fields`.
fn with(fields: Value) -> Value {
    let mut container = json!({"name": "c", "image": "busybox"});
    merge(&mut container, fields);
    pod(
        json!({"spec": {"containers": [container], "volumes": [{"name": "e"}, {"name": "h", "hostPath": {"path": "/h"}}]}}),
    )
}

#[track_caller]
fn good(pod: &Value) -> Compiled {
    compile(&pod.to_string(), &origin()).unwrap_or_else(|refusal| panic!("refused: {refusal}"))
}

/// Checks that `pod` is refused with exactly these errors (each given by its beginning).
#[track_caller]
fn bad(pod: &Value, expect: &[&str]) {
    let errors = match compile(&pod.to_string(), &origin()) {
        Ok(_) => panic!("compiled, but should be refused with {expect:?}"),
        Err(refusal) => refusal.errors,
    };
    assert_eq!(errors.len(), expect.len(), "{errors:#?}");
    for (error, expect) in errors.iter().zip(expect) {
        assert!(error.starts_with(expect), "{error:?} should begin with {expect:?}");
    }
}

#[track_caller]
fn bad_text(text: &str, expect: &str) {
    let refusal = compile(text, &origin()).err().map(|r| r.to_string()).unwrap_or_default();
    assert!(refusal.starts_with(expect), "{refusal:?} should begin with {expect:?}");
}

#[test]
fn broken_input_is_one_clear_line() {
    bad_text("", "not valid JSON: EOF while parsing a value at line 1 column 0");
    bad_text("{\"apiVersion\":\"v1\",\"ki", "not valid JSON: EOF while parsing a string");
    bad_text("\u{0}\u{1}\u{2}", "not valid JSON: expected value");
    bad_text("[]", "must be an object of kind Pod");
    bad_text("7", "must be an object of kind Pod");
    bad_text(&"[".repeat(100_000), "not valid JSON: recursion limit exceeded");
    let deep = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"x\":{}", "{\"x\":".repeat(50_000));
    bad_text(&deep, "not valid JSON: recursion limit exceeded");
    bad(&json!({"kind": "Pod"}), &["apiVersion: Required value"]);
    bad(
        &json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
        &[
            "apiVersion: Unsupported value: \"apps/v1\": supported values: \"v1\"",
            "kind: Unsupported value: \"Deployment\"",
        ],
    );
    bad(&pod(json!({"kind": 7})), &["kind: Invalid value"]);
    bad(
        &json!({"apiVersion": "v1", "kind": "Pod"}),
        &["metadata.name: Required value", "spec.containers: Required value"],
    );
}

#[test]
fn ten_mebibytes_of_containers_are_listed_up_to_a_bound() {
    let container = json!({"name": "", "image": ""});
    let many = pod(json!({"spec": {"containers": vec![container; 300_000]}}));
    let text = many.to_string();
    assert!(text.len() > 6 << 20);
    let errors = compile(&text, &origin()).unwrap_err().errors;
    assert_eq!(errors.len(), 51);
    assert_eq!(errors[50], "and 599950 more");
}

#[test]
fn static_pod_rules() {
    let spec = good(&pod(json!({}))).spec;
    assert_eq!((&*spec.name, &*spec.namespace), ("web-lab", "default"));
    assert_eq!(spec.uid.as_str().len(), 32);
    assert!(spec.uid.as_str().bytes().all(|b| b.is_ascii_hexdigit()));
    assert_eq!(spec.annotations["kubernetes.io/config.hash"], spec.uid.as_str());
    assert_eq!(spec.annotations["kubernetes.io/config.source"], "file");
    assert_eq!(spec.annotations["kubernetes.io/config.seen"], "2023-11-14T22:13:20.12Z");
    let json: Value = serde_json::from_str(&spec.json).unwrap();
    assert_eq!(json["spec"]["nodeName"], "lab");
    assert_eq!(json["spec"]["tolerations"], json!([{"operator": "Exists", "effect": "NoExecute"}]));
    assert_eq!(json["metadata"]["uid"], spec.uid.as_str());

    let fixed = good(&pod(json!({"metadata": {"uid": "abc-1", "namespace": "kube-system"}}))).spec;
    assert_eq!((fixed.uid.as_str(), &*fixed.namespace), ("abc-1", "kube-system"));
    assert_eq!(fixed.full_name(), "web-lab_kube-system");
}

#[test]
fn a_generated_uid_follows_content_node_and_place() {
    let text = pod(json!({})).to_string();
    let uid = |change: &dyn Fn(&mut Origin<'static>)| {
        let mut origin = origin();
        change(&mut origin);
        compile(&text, &origin).unwrap().spec.uid
    };
    let base = uid(&|_| {});
    assert_eq!(base, uid(&|o| o.seen = Wall(0)));
    assert_ne!(base, uid(&|o| o.digest = 8));
    assert_ne!(base, uid(&|o| o.node_name = "other"));
    assert_ne!(base, uid(&|o| o.path = "/other"));
    let http = uid(&|o| o.source = Source::Http);
    assert_ne!(base, http);
    assert_eq!(http, uid(&|o| (o.source, o.node_name) = (Source::Http, "other")));
}

#[test]
fn url_pods_get_no_toleration() {
    let http = Origin { source: Source::Http, path: "http://h/p", ..origin() };
    let spec = compile(&pod(json!({})).to_string(), &http).unwrap().spec;
    assert!(!spec.json.contains("tolerations"));
    assert_eq!(spec.annotations["kubernetes.io/config.source"], "http");
}

#[test]
fn defaults_are_those_of_the_api_server() {
    let spec = good(&pod(json!({}))).spec;
    let mut json: Value = serde_json::from_str(&spec.json).unwrap();
    json["spec"].as_object_mut().unwrap().remove("tolerations");
    assert_eq!(
        json["spec"],
        json!({
            "containers": [{
                "name": "c", "image": "busybox", "imagePullPolicy": "Always", "resources": {},
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst", "enableServiceLinks": true, "nodeName": "lab", "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {}, "terminationGracePeriodSeconds": 30,
        })
    );
    let json: Value = serde_json::from_str(
        &good(&with(json!({
            "image": "a/b:1",
            "ports": [{"containerPort": 80}],
            "livenessProbe": {"httpGet": {"port": 80}, "periodSeconds": 2},
            "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            "resources": {"limits": {"cpu": 1, "memory": "64Mi"}, "requests": {"cpu": "100m"}},
        })))
        .spec
        .json,
    )
    .unwrap();
    let container = &json["spec"]["containers"][0];
    assert_eq!(container["imagePullPolicy"], "IfNotPresent");
    assert_eq!(container["ports"], json!([{"containerPort": 80, "protocol": "TCP"}]));
    assert_eq!(
        container["livenessProbe"],
        json!({
            "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 2, "timeoutSeconds": 1,
            "successThreshold": 1, "failureThreshold": 3,
        })
    );
    assert_eq!(container["env"][0]["valueFrom"]["fieldRef"], json!({"apiVersion": "v1", "fieldPath": "metadata.name"}));
    assert_eq!(container["resources"]["requests"], json!({"cpu": "100m", "memory": "64Mi"}));
    assert_eq!(
        json["spec"]["volumes"],
        json!([{"name": "e", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/h", "type": ""}}])
    );
}

#[test]
fn ports_are_host_ports_in_the_nodes_network() {
    let mut host = with(json!({"ports": [{"containerPort": 80}]}));
    merge(&mut host, json!({"spec": {"hostNetwork": true}}));
    let spec = good(&host).spec;
    assert_eq!(spec.containers[0].ports[0].host_port, 80);
    assert_eq!(spec.containers[0].ports_json, r#"[{"hostPort":80,"containerPort":80,"protocol":"TCP"}]"#);
}

#[test]
fn container_hashes_equal_the_reference() {
    assert_eq!(convert::container_hash("test_container", "foo/image:v1"), 0x8e45_cbd0);
    assert_eq!(convert::container_hash("c", "localhost/busybox:1"), 0xdd60_9c43);
    assert_eq!(convert::container_hash("side", "localhost/busybox:1"), 0x1037_2b09);
}

/// The pod of the reference capture, less its downwardAPI volume.
fn rich() -> Value {
    let image = json!({"image": "localhost/busybox:1", "imagePullPolicy": "IfNotPresent"});
    let mut init = image.clone();
    merge(&mut init, json!({"name": "i", "volumeMounts": [{"name": "e", "mountPath": "/e"}]}));
    let mut side = image.clone();
    merge(&mut side, json!({"name": "side", "restartPolicy": "Always"}));
    let mut main = image;
    merge(
        &mut main,
        json!({
            "name": "c",
            "ports": [{"containerPort": 8080, "hostPort": 18099, "protocol": "TCP", "name": "web"}],
            "env": [
                {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)-$(POD)"},
                {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "LIM", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory"}}},
            ],
            "resources": {"requests": {"cpu": "100m", "memory": "16Mi"}, "limits": {"cpu": "250m", "memory": "64Mi"}},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", "1"]}}},
            "securityContext": {
                "runAsUser": 1000, "runAsGroup": 1000, "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "volumeMounts": [
                {"name": "e", "mountPath": "/e"}, {"name": "m", "mountPath": "/m", "readOnly": true},
                {"name": "e", "mountPath": "/sub", "subPath": "s"},
            ],
        }),
    );
    pod(json!({
        "metadata": {"name": "rich", "labels": {"app": "rich"}, "annotations": {"note": "x"}},
        "spec": {
            "terminationGracePeriodSeconds": 20, "shareProcessNamespace": true, "hostname": "richhost", "subdomain": "sub",
            "hostAliases": [{"ip": "10.9.9.9", "hostnames": ["alias.example"]}],
            "securityContext": {
                "fsGroup": 2000, "supplementalGroups": [3000],
                "sysctls": [{"name": "net.ipv4.ip_local_port_range", "value": "32000 61000"}],
            },
            "volumes": [{"name": "e", "emptyDir": {}}, {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}],
            "initContainers": [init, side], "containers": [main],
        },
    }))
}

#[test]
fn a_rich_pod_compiles_as_the_reference_ran_it() {
    let compiled = good(&rich());
    let spec = &compiled.spec;
    let kinds: Vec<_> = spec.containers.iter().map(|c| (&*c.name, c.kind)).collect();
    assert_eq!(kinds, [("i", ContainerKind::Init), ("side", ContainerKind::Sidecar), ("c", ContainerKind::Main)]);
    assert_eq!(spec.qos, QosClass::Burstable);
    assert_eq!((spec.grace_seconds, spec.hostname.as_str(), spec.subdomain.as_str()), (20, "richhost", "sub"));
    assert_eq!(spec.security.fs_group, Some(2000));
    assert_eq!(spec.security.sysctls["net.ipv4.ip_local_port_range"], "32000 61000");
    assert_eq!(spec.volumes[1].source, VolumeSource::EmptyDirMemory { size_bytes: Some(8 << 20) });
    let c = &spec.containers[2];
    assert_eq!(c.hash, 0xdd60_9c43);
    assert_eq!(c.ports_json, r#"[{"name":"web","hostPort":18099,"containerPort":8080,"protocol":"TCP"}]"#);
    assert_eq!(c.pre_stop_json, r#"{"exec":{"command":["sleep","1"]}}"#);
    assert_eq!((c.resources.requests.cpu_milli, c.resources.limits.cpu_milli), (Some(100), Some(250)));
    assert_eq!(c.resources.limits.memory_bytes, Some(64 << 20));
    assert_eq!(c.ports[0].protocol, Protocol::Tcp);
    assert_eq!(c.pull_policy, PullPolicy::IfNotPresent);
    assert_eq!(c.security.seccomp, Some(Seccomp::RuntimeDefault));
    assert_eq!(c.mounts[2].sub_path, "s");
    assert_eq!(c.mounts[2].propagation, Propagation::Private);
    let lim = EnvSource::Resource { container: "c".into(), resource: "limits.memory".into(), divisor_milli: 1000 };
    assert_eq!(c.env[3].source, lim);
    assert_eq!(spec.containers[0].ports_json, "");
    assert!(c.lifecycle.pre_stop.is_some());
    assert_eq!(compiled.warnings, Vec::<String>::new());
}

#[test]
fn qos_classes() {
    let class = |resources: Value| good(&with(json!({"resources": resources}))).spec.qos;
    assert_eq!(class(json!({})), QosClass::BestEffort);
    assert_eq!(class(json!({"requests": {"cpu": 0}})), QosClass::BestEffort);
    assert_eq!(class(json!({"limits": {"cpu": 1, "memory": "1Gi"}})), QosClass::Guaranteed);
    assert_eq!(
        class(json!({"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "1000m"}})),
        QosClass::Guaranteed
    );
    assert_eq!(class(json!({"limits": {"cpu": 1}})), QosClass::Burstable);
    assert_eq!(class(json!({"limits": {"ephemeral-storage": "1Gi"}})), QosClass::BestEffort);
}

#[test]
fn pod_level_resources_get_their_requests() {
    let mut both = with(json!({"resources": {"requests": {"cpu": "250m"}}}));
    merge(&mut both, json!({"spec": {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}}));
    let spec = good(&both).spec;
    let resources = spec.resources.unwrap();
    assert_eq!(resources.requests.cpu_milli, Some(250));
    assert_eq!(resources.requests.memory_bytes, Some(1 << 30));
    assert_eq!(spec.qos, QosClass::Burstable);
}

#[test]
fn api_objects_may_not_be_referenced() {
    let reference = |extra: Value, kind: &str| bad(&pod(extra), &[&format!("static pods may not reference {kind}")]);
    let volume = |source: Value| {
        let mut volume = json!({"name": "v"});
        merge(&mut volume, source);
        json!({"spec": {"volumes": [volume]}})
    };
    reference(json!({"spec": {"serviceAccountName": "x"}}), "serviceaccounts");
    reference(json!({"spec": {"serviceAccount": "x"}}), "serviceaccounts");
    reference(json!({"spec": {"imagePullSecrets": [{"name": "x"}]}}), "secrets");
    reference(json!({"spec": {"resourceClaims": [{"name": "x"}]}}), "resourceclaims");
    reference(volume(json!({"secret": {"secretName": "x"}})), "secrets");
    reference(volume(json!({"configMap": {"name": "x"}})), "configmaps");
    reference(volume(json!({"persistentVolumeClaim": {"claimName": "x"}})), "persistentvolumeclaims");
    reference(volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})), "serviceaccounts");
    let env = |from: Value| with(json!({"env": [{"name": "A", "valueFrom": from}]}));
    bad(&env(json!({"secretKeyRef": {"name": "x", "key": "k"}})), &["static pods may not reference secrets"]);
    bad(&env(json!({"configMapKeyRef": {"name": "x", "key": "k"}})), &["static pods may not reference configmaps"]);
    bad(&with(json!({"envFrom": [{"configMapRef": {"name": "x"}}]})), &["static pods may not reference configmaps"]);
}

#[test]
fn what_is_not_supported_yet_is_refused_by_name() {
    bad(
        &pod(json!({"spec": {"volumes": [{"name": "n", "nfs": {"server": "s", "path": "/"}}]}})),
        &["spec.volumes[0].nfs: Forbidden: volume \"n\" is of a kind not supported by this version of ticklet yet"],
    );
    let shared = json!({"spec": {"hostUsers": false, "hostNetwork": true, "hostPID": true}});
    bad(&pod(shared), &["spec.hostNetwork: Forbidden: when `hostUsers` is false", "spec.hostPID: Forbidden"]);
    bad(&pod(json!({"spec": {"os": {"name": "windows"}}})), &["spec.os.name: Unsupported value: \"windows\""]);
    let rules = json!([{"action": "Jump", "exitCodes": {"operator": "In", "values": []}}]);
    bad(
        &with(json!({"restartPolicyRules": rules})),
        &[
            "spec.containers[0].restartPolicy: Required",
            "spec.containers[0].restartPolicyRules[0].action: Unsupported value",
            "spec.containers[0].restartPolicyRules[0].exitCodes.values: Invalid",
        ],
    );
    bad(&pod(json!({"spec": {"ephemeralContainers": [{"name": "x"}]}})), &["spec.ephemeralContainers: Forbidden"]);
}

#[test]
fn warnings_name_unknown_and_unused_fields_once() {
    let limits = json!({"limits": {"example.com/gpu": "1", "example.com/fpga": "1"}});
    let compiled = good(&with(json!({"resources": limits, "imagePullPolcy": "x"})));
    assert_eq!(
        compiled.warnings,
        [
            "unknown fields are ignored: spec.containers[0].imagePullPolcy",
            "accepted but not acted on by this version of ticklet: extended resources",
        ]
    );
}

#[test]
fn names_are_checked() {
    bad(&pod(json!({"metadata": {"name": "Web"}})), &["metadata.name: Invalid value: \"Web-lab\""]);
    bad(&pod(json!({"metadata": {"name": ""}})), &["metadata.name: Required value"]);
    bad(&pod(json!({"metadata": {"namespace": "a.b"}})), &["metadata.namespace: Invalid value"]);
    bad(&pod(json!({"metadata": {"uid": "../../x"}})), &["metadata.uid: Invalid value"]);
    bad(
        &pod(json!({"metadata": {"labels": {"a b": "c", "d": "e f"}}})),
        &["metadata.labels: Invalid value: \"a b\"", "metadata.labels: Invalid value: \"e f\""],
    );
    bad(&pod(json!({"metadata": {"annotations": {"/x": "c"}}})), &["metadata.annotations: Invalid value: \"/x\""]);
    bad(&with(json!({"name": "C_1"})), &["spec.containers[0].name: Invalid value: \"C_1\""]);
    let two = json!([{"name": "c", "image": "a"}, {"name": "c", "image": "b"}]);
    bad(&pod(json!({"spec": {"containers": two}})), &["spec.containers[1].name: Duplicate value: \"c\""]);
    let init = json!([{"name": "c", "image": "a"}]);
    bad(&pod(json!({"spec": {"initContainers": init}})), &["spec.containers[0].name: Duplicate value: \"c\""]);
}

#[test]
fn pod_fields_are_checked() {
    bad(&pod(json!({"spec": {"containers": []}})), &["spec.containers: Required value"]);
    bad(&with(json!({"image": ""})), &["spec.containers[0].image: Required value"]);
    bad(&with(json!({"image": " a"})), &["spec.containers[0].image: Invalid value"]);
    bad(
        &with(json!({"imagePullPolicy": "Sometimes"})),
        &[
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
        ],
    );
    bad(&pod(json!({"spec": {"restartPolicy": "Maybe"}})), &["spec.restartPolicy: Unsupported value"]);
    bad(
        &pod(json!({"spec": {"terminationGracePeriodSeconds": -1}})),
        &["spec.terminationGracePeriodSeconds: Invalid value"],
    );
    bad(&pod(json!({"spec": {"activeDeadlineSeconds": 0}})), &["spec.activeDeadlineSeconds: Invalid value"]);
    bad(&pod(json!({"spec": {"dnsPolicy": "None"}})), &["spec.dnsConfig.nameservers: Required value"]);
    bad(
        &pod(json!({"spec": {"dnsConfig": {"nameservers": ["x"]}}})),
        &["spec.dnsConfig.nameservers[0]: Invalid value"],
    );
    bad(&pod(json!({"spec": {"hostname": "a.b"}})), &["spec.hostname: Invalid value"]);
    bad(
        &pod(json!({"spec": {"hostPID": true, "shareProcessNamespace": true}})),
        &["spec.shareProcessNamespace: Invalid value"],
    );
    bad(&pod(json!({"spec": {"schedulingGates": [{"name": "x"}]}})), &["spec.schedulingGates: Forbidden"]);
    bad(
        &pod(json!({"spec": {"hostAliases": [{"ip": "x", "hostnames": ["a_b"]}]}})),
        &["spec.hostAliases[0].ip", "spec.hostAliases[0].hostnames[0]"],
    );
    bad(
        &pod(json!({"spec": {"tolerations": [{"operator": "Exists", "value": "x"}]}})),
        &["spec.tolerations[0].value: Invalid value"],
    );
    good(&pod(
        json!({"spec": {"dnsConfig": {"searches": [".", "a.b.", "x_y"], "options": [{"name": "ndots", "value": "2"}, {"name": "debug"}]}}}),
    ));
}

#[test]
fn ports_are_checked() {
    let ports = |ports: Value, expect: &[&str]| bad(&with(json!({"ports": ports})), expect);
    ports(json!([{"hostPort": 80}]), &["spec.containers[0].ports[0].containerPort: Required value"]);
    ports(
        json!([{"containerPort": 70000, "hostPort": -1}]),
        &["spec.containers[0].ports[0].containerPort: Invalid", "spec.containers[0].ports[0].hostPort: Invalid"],
    );
    ports(json!([{"containerPort": 1, "protocol": "tcp"}]), &["spec.containers[0].ports[0].protocol: Unsupported"]);
    ports(
        json!([{"containerPort": 1, "name": "a"}, {"containerPort": 2, "name": "a"}]),
        &["spec.containers[0].ports[1].name: Duplicate"],
    );
    ports(
        json!([{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9}]),
        &["spec.containers[0].ports[1].hostPort: Duplicate value: \"TCP//9\""],
    );
    ports(json!([{"containerPort": 1, "hostIP": "x"}]), &["spec.containers[0].ports[0].hostIP: Invalid"]);
    good(&with(
        json!({"ports": [{"containerPort": 1, "hostPort": 9}, {"containerPort": 2, "hostPort": 9, "protocol": "UDP"}]}),
    ));
}

#[test]
fn volumes_and_mounts_are_checked() {
    let volumes = |volumes: Value, expect: &[&str]| bad(&pod(json!({"spec": {"volumes": volumes}})), expect);
    volumes(json!([{"name": "a"}, {"name": "a"}]), &["spec.volumes[1].name: Duplicate value: \"a\""]);
    volumes(json!([{"emptyDir": {}}]), &["spec.volumes[0].name: Required value"]);
    volumes(
        json!([{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
        &["spec.volumes[0]: Forbidden: may not have more than one"],
    );
    volumes(json!([{"name": "a", "hostPath": {"path": "x"}}]), &["spec.volumes[0].hostPath.path: Invalid value"]);
    volumes(json!([{"name": "a", "hostPath": {"path": "/x/../y"}}]), &["spec.volumes[0].hostPath.path: Invalid value"]);
    volumes(
        json!([{"name": "a", "hostPath": {"path": "/x", "type": "Dir"}}]),
        &["spec.volumes[0].hostPath.type: Unsupported"],
    );
    volumes(json!([{"name": "a", "emptyDir": {"sizeLimit": "-1"}}]), &["spec.volumes[0].emptyDir.sizeLimit: Invalid"]);
    volumes(json!([{"name": "a", "emptyDir": {"medium": "Disk"}}]), &["spec.volumes[0].emptyDir.medium: Unsupported"]);
    for medium in ["HugePages-", "HugePages-x", "HugePages-0"] {
        volumes(
            json!([{"name": "a", "emptyDir": {"medium": medium}}]),
            &["spec.volumes[0].emptyDir.medium: Invalid value"],
        );
    }
    volumes(json!([{"name": "a", "image": {}}]), &["spec.volumes[0].image.reference: Required value"]);
    volumes(
        json!([{"name": "a", "image": {"reference": "x", "pullPolicy": "Maybe"}}]),
        &["spec.volumes[0].image.pullPolicy: Unsupported"],
    );
    let mounts = |mounts: Value, expect: &[&str]| bad(&with(json!({"volumeMounts": mounts})), expect);
    let at = "spec.containers[0].volumeMounts";
    mounts(json!([{"name": "x", "mountPath": "/a"}]), &[&format!("{at}[0].name: Not found: \"x\"")]);
    mounts(json!([{"name": "e"}]), &[&format!("{at}[0].mountPath: Required value")]);
    mounts(json!([{"name": "e", "mountPath": "/a:b"}]), &[&format!("{at}[0].mountPath: Invalid value")]);
    mounts(
        json!([{"name": "e", "mountPath": "/a"}, {"name": "h", "mountPath": "/a"}]),
        &[&format!("{at}[1].mountPath: Invalid value: \"/a\": must be unique")],
    );
    mounts(json!([{"name": "e", "mountPath": "/a", "subPath": "../x"}]), &[&format!("{at}[0].subPath: Invalid")]);
    mounts(json!([{"name": "e", "mountPath": "/a", "subPath": "/x"}]), &[&format!("{at}[0].subPath: Invalid")]);
    mounts(
        json!([{"name": "e", "mountPath": "/a", "subPath": "x", "subPathExpr": "y"}]),
        &[&format!("{at}[0].subPathExpr: Invalid")],
    );
    mounts(
        json!([{"name": "e", "mountPath": "/a", "mountPropagation": "Bidirectional"}]),
        &[&format!("{at}[0].mountPropagation: Forbidden")],
    );
    mounts(
        json!([{"name": "e", "mountPath": "/a", "recursiveReadOnly": "Enabled"}]),
        &[&format!("{at}[0].recursiveReadOnly: Forbidden")],
    );
}

#[test]
fn files_of_volumes_are_checked() {
    let items = |items: Value, expect: &[&str]| {
        let expect: Vec<String> =
            expect.iter().map(|text| format!("spec.volumes[0].downwardAPI.items[{text}")).collect();
        let expect: Vec<&str> = expect.iter().map(String::as_str).collect();
        bad(&pod(json!({"spec": {"volumes": [{"name": "d", "downwardAPI": {"items": items}}]}})), &expect);
    };
    let name = json!({"fieldPath": "metadata.name"});
    items(json!([{"path": "", "fieldRef": name}]), &["0].path: Required"]);
    for path in ["/x", "a/../b", "..", "..data", "a/..", "x\u{0}"] {
        items(json!([{"path": path, "fieldRef": name}]), &["0].path: Invalid"]);
    }
    items(json!([{"path": "a"}]), &["0]: Required"]);
    items(
        json!([{"path": "a", "fieldRef": name}, {"path": "a", "fieldRef": name}]),
        &["1].path: Invalid value: \"a\": conflicting duplicate paths"],
    );
    items(json!([{"path": "a", "fieldRef": {"fieldPath": "status.podIP"}}]), &["0].fieldRef.fieldPath: Unsupported"]);
    items(json!([{"path": "a", "mode": 512, "fieldRef": name}]), &["0].mode: Invalid"]);
    items(
        json!([{"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}}]),
        &["0].resourceFieldRef.containerName: Required"],
    );
    items(
        json!([{"path": "a", "resourceFieldRef": {"resource": "limits.cpu", "containerName": "z"}}]),
        &["0].resourceFieldRef.containerName: Not found"],
    );
    bad(
        &pod(json!({"spec": {"volumes": [{"name": "p", "projected": {"sources": [{}]}}]}})),
        &["spec.volumes[0].projected.sources[0]: Required"],
    );
}

#[test]
fn volumes_have_their_compact_form() {
    let mounts = ["h", "d", "p"].map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    let user = json!({"name": "user", "image": "busybox", "volumeMounts": mounts});
    let spec = good(&pod(json!({"spec": {"securityContext": {"fsGroupChangePolicy": "OnRootMismatch"}, "initContainers": [user], "volumes": [
        {"name": "h", "emptyDir": {"medium": "HugePages-2Mi"}},
        {"name": "d", "downwardAPI": {"defaultMode": 256, "items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "cpu", "mode": 420, "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}},
        ]}},
        {"name": "p", "projected": {"sources": [{"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}},
        {"name": "i", "image": {"reference": "reg.example/data"}},
        {"name": "j", "image": {"reference": "reg.example/data:2"}},
    ]}}))).spec;
    assert!(spec.security.fs_group_on_mismatch);
    let sources: Vec<_> = spec.volumes.iter().map(|volume| &volume.source).collect();
    assert_eq!(*sources[0], VolumeSource::EmptyDirHugePages { page_bytes: Some(2 << 20) });
    let known = |source: &VolumeSource| match source {
        VolumeSource::Files { kind, sources } => {
            let file = |source: &FileSource| match source {
                FileSource::Known(file) => file.clone(),
                other => panic!("{other:?}"),
            };
            (*kind, sources.iter().map(file).collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    };
    let (kind, items) = known(sources[1]);
    assert_eq!(kind, FilesKind::DownwardApi);
    assert_eq!((items[0].mode, &items[0].source), (0o400, &EnvSource::Field("metadata.labels".to_owned())));
    assert_eq!(items[1].mode, 0o644);
    assert!(matches!(&items[1].source, EnvSource::Resource { divisor_milli: 1, .. }), "{:?}", items[1]);
    let (kind, items) = known(sources[2]);
    assert_eq!(kind, FilesKind::Projected);
    assert_eq!((items[0].path.as_str(), items[0].mode), ("n", 0o644));
    let image = |reference: &str, to_pull: &str, pull_policy| VolumeSource::Image {
        reference: reference.into(),
        to_pull: to_pull.into(),
        pull_policy,
    };
    assert_eq!(*sources[3], image("reg.example/data", "reg.example/data:latest", PullPolicy::Always));
    assert_eq!(*sources[4], image("reg.example/data:2", "reg.example/data:2", PullPolicy::IfNotPresent));
}

#[test]
fn environments_are_checked() {
    let env = |env: Value, expect: &[&str]| bad(&with(json!({"env": [env]})), expect);
    let at = "spec.containers[0].env[0]";
    env(json!({"name": ""}), &[&format!("{at}.name: Required value")]);
    env(json!({"name": "A=B"}), &[&format!("{at}.name: Invalid value")]);
    env(json!({"name": "A", "valueFrom": {}}), &[&format!("{at}.valueFrom: Invalid value")]);
    env(
        json!({"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}),
        &[&format!("{at}.valueFrom: Invalid value")],
    );
    env(
        json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.x"}}}),
        &[&format!("{at}.valueFrom.fieldRef.fieldPath: Unsupported")],
    );
    env(
        json!({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "x"}}}),
        &[&format!("{at}.valueFrom.resourceFieldRef.resource: Unsupported")],
    );
    env(
        json!({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "containerName": "z"}}}),
        &[&format!("{at}.valueFrom.resourceFieldRef.containerName: Not found")],
    );
    good(&with(json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['a/b']"}}}]})));
    bad(&with(json!({"envFrom": [{"prefix": "x"}]})), &["spec.containers[0].envFrom[0]: Invalid value"]);
}

#[test]
fn resources_are_checked() {
    let resources = |r: Value, expect: &[&str]| bad(&with(json!({"resources": r})), expect);
    let at = "spec.containers[0].resources";
    resources(
        json!({"limits": {"cpu": "x"}}),
        &[&format!("{at}.limits[cpu]: Invalid value"), &format!("{at}.requests[cpu]: Invalid value")],
    );
    resources(
        json!({"requests": {"cpu": -1}}),
        &[&format!("{at}.requests[cpu]: Invalid value: \"-1\": must be greater")],
    );
    resources(
        json!({"requests": {"cpu": 2}, "limits": {"cpu": "1500m"}}),
        &[&format!("{at}.requests[cpu]: Invalid value: \"2\": must be less than or equal to the limit of 1500m")],
    );
    resources(json!({"requests": {"foo": 2}}), &[&format!("{at}.requests[foo]: Invalid value")]);
    resources(json!({"requests": {"a.b/foo": 2}}), &[&format!("{at}.limits: Required value")]);
    resources(
        json!({"limits": {"a.b/foo": "1.5"}}),
        &[&format!("{at}.limits[a.b/foo]: Invalid value"), &format!("{at}.requests[a.b/foo]: Invalid value")],
    );
    resources(json!({"limits": {"hugepages-2Mi": "4Mi"}}), &[&format!("{at}: Forbidden: hugepages need")]);
}

#[test]
fn security_contexts_are_checked() {
    let container = |s: Value, expect: &[&str]| bad(&with(json!({"securityContext": s})), expect);
    let at = "spec.containers[0].securityContext";
    container(json!({"runAsUser": -1}), &[&format!("{at}.runAsUser: Invalid value")]);
    container(
        json!({"privileged": true, "allowPrivilegeEscalation": false}),
        &[&format!("{at}.allowPrivilegeEscalation: Invalid")],
    );
    container(
        json!({"seccompProfile": {"type": "Localhost"}}),
        &[&format!("{at}.seccompProfile.localhostProfile: Required")],
    );
    container(
        json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}),
        &[&format!("{at}.seccompProfile.localhostProfile: Invalid")],
    );
    container(json!({"seccompProfile": {"type": "x"}}), &[&format!("{at}.seccompProfile.type: Unsupported")]);
    container(json!({"procMount": "Unmasked"}), &[&format!("{at}.procMount: Invalid")]);
    let pod_level =
        |s: Value, expect: &[&str]| bad(&pod(json!({"spec": {"hostNetwork": true, "securityContext": s}})), expect);
    pod_level(json!({"fsGroup": 4_294_967_296_i64}), &["spec.securityContext.fsGroup: Invalid value"]);
    pod_level(json!({"sysctls": [{"name": "A", "value": "1"}]}), &["spec.securityContext.sysctls[0].name: Invalid"]);
    pod_level(
        json!({"sysctls": [{"name": "net/ipv4/x", "value": "1"}]}),
        &["spec.securityContext.sysctls[0].name: Invalid value: \"net/ipv4/x\": must not be set when hostNetwork"],
    );
    pod_level(
        json!({"sysctls": [{"name": "kernel.sem", "value": "1"}, {"name": "kernel/sem", "value": "1"}]}),
        &["spec.securityContext.sysctls[1].name: Duplicate"],
    );
}

#[test]
fn probes_and_hooks_are_checked() {
    bad(&with(json!({"livenessProbe": {}})), &["spec.containers[0].livenessProbe: Required value"]);
    bad(
        &with(json!({"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}})),
        &["spec.containers[0].livenessProbe.successThreshold: Invalid"],
    );
    bad(
        &with(json!({"readinessProbe": {"tcpSocket": {"port": 0}}})),
        &["spec.containers[0].readinessProbe.tcpSocket.port: Invalid"],
    );
    bad(
        &with(json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}})),
        &["spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid"],
    );
    let init = json!([{"name": "i", "image": "a", "livenessProbe": {"exec": {"command": ["x"]}}}]);
    bad(&pod(json!({"spec": {"initContainers": init}})), &["spec.initContainers[0].livenessProbe: Forbidden"]);
}

#[test]
fn status_and_deletion_are_noted_and_left_out() {
    let compiled = good(&pod(json!({"status": {"phase": "Running"}})));
    assert_ne!(compiled.status_digest, 0);
    assert!(!compiled.spec.json.contains("Running"));
    assert_eq!(good(&pod(json!({"status": {}}))).status_digest, 0);
    assert!(!compiled.deleting);
    assert!(good(&pod(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}))).deleting);
}
