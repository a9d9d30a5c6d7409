//! Conversions against a pod that the Go kubelet 1.37.2 ran on containerd: `testdata/cri/rich.json` holds the
//! configurations it sent and the statuses the runtime gave back, as crictl printed them.

use components::edge::cri::{
    ContainerConfig, ContainerSecurity, ContainerState, CriAnswer, CriEffect, DnsConfig, KnownObjects, LinuxResources,
    Mount, PortMapping, Protocol, SandboxConfig, SandboxSecurity, SandboxState, Seccomp,
};
use components::edge::{Answer, Outcome};
use components::ids::Sensitive;
use components::time::Wall;
use proto::runtime::v1 as pb;
use serde_json::{Map, Value, json};

use crate::fake::{Reply, Rig, answer};

fn rich(object: &str, part: &str) -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/cri/rich.json");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()[object][part].take()
}

/// Builds an object the way Go prints protobuf messages: what is zero is left out.
#[derive(Default)]
struct Object(Map<String, Value>);

impl Object {
    fn put(mut self, key: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        let zero = match &value {
            Value::Null => true,
            Value::Bool(b) => !b,
            Value::Number(n) => n.as_i64() == Some(0),
            Value::String(s) => s.is_empty(),
            Value::Array(a) => a.is_empty(),
            Value::Object(_) => false,
        };
        if !zero {
            self.0.insert(key.to_owned(), value);
        }
        self
    }

    /// Maps are left out when empty, messages are not.
    fn map(self, key: &str, map: std::collections::BTreeMap<String, String>) -> Self {
        if map.is_empty() { self } else { self.put(key, json!(map)) }
    }

    fn end(self) -> Value {
        Value::Object(self.0)
    }
}

fn list<T>(items: Vec<T>, print: impl Fn(T) -> Value) -> Value {
    items.into_iter().map(print).collect()
}

fn int64(value: Option<pb::Int64Value>) -> Option<Value> {
    value.map(|value| Object::default().put("value", value.value).end())
}

fn profile(profile: Option<pb::SecurityProfile>) -> Option<Value> {
    profile.map(|p| Object::default().put("profile_type", p.profile_type).put("localhost_ref", p.localhost_ref).end())
}

fn namespaces(options: Option<pb::NamespaceOption>) -> Option<Value> {
    options.map(|o| {
        let userns = o.userns_options.map(|u| Object::default().put("mode", u.mode).end());
        let object = Object::default().put("network", o.network).put("pid", o.pid).put("ipc", o.ipc);
        object.put("target_id", o.target_id).put("userns_options", userns).end()
    })
}

fn resources(resources: Option<pb::LinuxContainerResources>) -> Option<Value> {
    let hugepage = |h: pb::HugepageLimit| Object::default().put("page_size", h.page_size).put("limit", h.limit).end();
    resources.map(|r| {
        Object::default()
            .put("cpu_period", r.cpu_period)
            .put("cpu_quota", r.cpu_quota)
            .put("cpu_shares", r.cpu_shares)
            .put("memory_limit_in_bytes", r.memory_limit_in_bytes)
            .put("oom_score_adj", r.oom_score_adj)
            .put("cpuset_cpus", r.cpuset_cpus)
            .put("cpuset_mems", r.cpuset_mems)
            .put("hugepage_limits", list(r.hugepage_limits, hugepage))
            .map("unified", r.unified)
            .put("memory_swap_limit_in_bytes", r.memory_swap_limit_in_bytes)
            .end()
    })
}

fn sandbox_json(config: pb::PodSandboxConfig) -> Value {
    let metadata = config.metadata.map(|m| {
        let object = Object::default().put("name", m.name).put("uid", m.uid);
        object.put("namespace", m.namespace).put("attempt", m.attempt).end()
    });
    let dns = config.dns_config.map(|d| {
        Object::default().put("servers", d.servers).put("searches", d.searches).put("options", d.options).end()
    });
    let port = |p: pb::PortMapping| {
        let object = Object::default().put("protocol", p.protocol).put("container_port", p.container_port);
        object.put("host_port", p.host_port).put("host_ip", p.host_ip).end()
    };
    let security = |s: pb::LinuxSandboxSecurityContext| {
        Object::default()
            .put("namespace_options", namespaces(s.namespace_options))
            .put("run_as_user", int64(s.run_as_user))
            .put("run_as_group", int64(s.run_as_group))
            .put("supplemental_groups", s.supplemental_groups)
            .put("privileged", s.privileged)
            .put("seccomp", profile(s.seccomp))
            .put("apparmor", profile(s.apparmor))
            .end()
    };
    let linux = config.linux.map(|l| {
        Object::default()
            .put("cgroup_parent", l.cgroup_parent)
            .put("security_context", l.security_context.map(security))
            .map("sysctls", l.sysctls)
            .put("overhead", resources(l.overhead))
            .put("resources", resources(l.resources))
            .end()
    });
    Object::default()
        .put("metadata", metadata)
        .put("hostname", config.hostname)
        .put("log_directory", config.log_directory)
        .put("dns_config", dns)
        .put("port_mappings", list(config.port_mappings, port))
        .map("labels", config.labels)
        .map("annotations", config.annotations)
        .put("linux", linux)
        .end()
}

fn container_security(s: pb::LinuxContainerSecurityContext) -> Value {
    let capabilities = s.capabilities.map(|c| {
        let object = Object::default().put("add_capabilities", c.add_capabilities);
        object.put("drop_capabilities", c.drop_capabilities).end()
    });
    Object::default()
        .put("capabilities", capabilities)
        .put("privileged", s.privileged)
        .put("namespace_options", namespaces(s.namespace_options))
        .put("run_as_user", int64(s.run_as_user))
        .put("run_as_group", int64(s.run_as_group))
        .put("run_as_username", s.run_as_username)
        .put("readonly_rootfs", s.readonly_rootfs)
        .put("supplemental_groups", s.supplemental_groups)
        .put("no_new_privs", s.no_new_privs)
        .put("masked_paths", s.masked_paths)
        .put("readonly_paths", s.readonly_paths)
        .put("seccomp", profile(s.seccomp))
        .put("apparmor", profile(s.apparmor))
        .end()
}

fn container_json(config: pb::ContainerConfig) -> Value {
    let metadata = config.metadata.map(|m| Object::default().put("name", m.name).put("attempt", m.attempt).end());
    let image = config.image.map(|i| {
        let object = Object::default().put("image", i.image).map("annotations", i.annotations);
        object.put("user_specified_image", i.user_specified_image).end()
    });
    let variable = |v: pb::KeyValue| json!({"key": v.key, "value": String::from_utf8(v.value.into()).unwrap()});
    let mount = |m: pb::Mount| {
        Object::default()
            .put("container_path", m.container_path)
            .put("host_path", m.host_path)
            .put("readonly", m.readonly)
            .put("propagation", m.propagation)
            .put("recursive_read_only", m.recursive_read_only)
            .put("selinux_relabel", m.selinux_relabel)
            .end()
    };
    let linux = config.linux.map(|l| {
        let object = Object::default().put("resources", resources(l.resources));
        object.put("security_context", l.security_context.map(container_security)).end()
    });
    Object::default()
        .put("metadata", metadata)
        .put("image", image)
        .put("command", config.command)
        .put("args", config.args)
        .put("working_dir", config.working_dir)
        .put("envs", list(config.envs, variable))
        .put("mounts", list(config.mounts, mount))
        .map("labels", config.labels)
        .map("annotations", config.annotations)
        .put("log_path", config.log_path)
        .put("stdin", config.stdin)
        .put("stdin_once", config.stdin_once)
        .put("tty", config.tty)
        .put("linux", linux)
        .end()
}

const UID: &str = "4862689f-ace7-4d4d-a607-8442c0f45d0c";
const IMAGE_ID: &str = "sha256:da0209acd02d9f3bf203394fb83e15e6dfccd1a956d16d4612bfbb9ac96ae952";

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

fn map(value: &Value) -> std::collections::BTreeMap<String, String> {
    serde_json::from_value(value.clone()).unwrap()
}

fn sandbox_config(expect: &Value) -> SandboxConfig {
    SandboxConfig {
        name: "rich".into(),
        uid: UID.into(),
        namespace: "default".into(),
        attempt: 0,
        hostname: "richhost".into(),
        log_directory: format!("NODE/logs/default_rich_{UID}"),
        dns: Some(DnsConfig {
            servers: texts(&["10.96.0.10"]),
            searches: texts(&["default.svc.cluster.local", "svc.cluster.local", "cluster.local"]),
            options: texts(&["ndots:5"]),
        }),
        ports: vec![PortMapping {
            protocol: Protocol::Tcp,
            container_port: 8080,
            host_port: 18099,
            host_ip: String::new(),
        }],
        labels: map(&expect["labels"]),
        annotations: map(&expect["annotations"]),
        cgroup_parent: format!("/labnode/kubepods/burstable/pod{UID}"),
        sysctls: map(&expect["linux"]["sysctls"]),
        security: SandboxSecurity {
            supplemental_groups: vec![2000, 3000],
            seccomp: Seccomp::RuntimeDefault,
            ..Default::default()
        },
        overhead: LinuxResources::default(),
        resources: LinuxResources {
            cpu_period: 100_000,
            cpu_quota: 25_000,
            cpu_shares: 102,
            memory_limit_bytes: 64 << 20,
            ..Default::default()
        },
    }
}

/// What is asked for, by the part of it that the edge spells differently; the long lists come from the file.
fn container_config(expect: &Value, name: &str) -> ContainerConfig {
    let mount = |m: &Value| Mount {
        container_path: m["container_path"].as_str().unwrap().into(),
        host_path: m["host_path"].as_str().unwrap().into(),
        readonly: m["readonly"].as_bool().unwrap_or_default(),
        ..Default::default()
    };
    let security = &expect["linux"]["security_context"];
    let paths = |key: &str| serde_json::from_value(security[key].clone()).unwrap();
    let main = name == "c";
    let user = if main { 1000 } else { 0 };
    ContainerConfig {
        name: name.into(),
        attempt: 0,
        image_ref: IMAGE_ID.into(),
        user_specified_image: "localhost/busybox:1".into(),
        command: expect["command"].as_array().unwrap().iter().map(|c| c.as_str().unwrap().into()).collect(),
        envs: expect["envs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["key"].as_str().unwrap().to_owned(), Sensitive::from(e["value"].as_str().unwrap())))
            .collect(),
        mounts: expect["mounts"].as_array().unwrap().iter().map(mount).collect(),
        labels: map(&expect["labels"]),
        annotations: map(&expect["annotations"]),
        log_path: format!("{name}/0.log"),
        resources: LinuxResources {
            cpu_period: 100_000,
            cpu_quota: if main { 25_000 } else { 0 },
            cpu_shares: if main { 102 } else { 2 },
            memory_limit_bytes: if main { 64 << 20 } else { 0 },
            memory_swap_limit_bytes: if main { 64 << 20 } else { 0 },
            oom_score_adj: 999,
            hugepage_limits: vec![("2MB".into(), 0), ("1GB".into(), 0)],
            ..Default::default()
        },
        security: ContainerSecurity {
            add_capabilities: texts(if main { &["NET_BIND_SERVICE"] } else { &[] }),
            drop_capabilities: texts(if main { &["ALL"] } else { &[] }),
            run_as_user: Some(user),
            run_as_group: main.then_some(1000),
            run_as_username: "never beside a number".into(),
            supplemental_groups: vec![2000, 3000],
            no_new_privs: main,
            masked_paths: paths("masked_paths"),
            readonly_paths: paths("readonly_paths"),
            seccomp: if main { Seccomp::RuntimeDefault } else { Seccomp::Unconfined },
            ..Default::default()
        },
        ..Default::default()
    }
}

#[tokio::test]
async fn the_requests_are_those_of_the_go_kubelet() {
    let rig = Rig::new(|name, _| match name {
        "RunPodSandbox" => answer(&pb::RunPodSandboxResponse { pod_sandbox_id: "s".into() }),
        _ => answer(&pb::CreateContainerResponse { container_id: "c".into() }),
    });
    let sandbox = rich("sandbox", "config");
    let config = Box::new(sandbox_config(&sandbox));
    let run = CriEffect::RunSandbox { config: config.clone(), handler: String::new() };
    assert!(matches!(rig.run(run).await, Outcome::Done(_)));
    let sent: pb::RunPodSandboxRequest = rig.seen.request("RunPodSandbox");
    assert_eq!(sandbox_json(sent.config.unwrap()), sandbox);

    for name in ["c", "i", "side"] {
        let expect = rich(name, "config");
        let create = CriEffect::CreateContainer {
            sandbox: "s".into(),
            config: Box::new(container_config(&expect, name)),
            sandbox_config: config.clone(),
        };
        assert!(matches!(rig.run(create).await, Outcome::Done(_)));
        let sent: pb::CreateContainerRequest = rig.seen.request("CreateContainer");
        assert_eq!(container_json(sent.config.unwrap()), expect);
        assert_eq!(sandbox_json(sent.sandbox_config.unwrap()), sandbox);
    }
}

fn nanos(time: &Value) -> i64 {
    let time: jiff::Timestamp = time.as_str().unwrap().parse().unwrap();
    time.as_nanosecond().try_into().unwrap_or(i64::MIN)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn container_answer(status: &Value) -> pb::ContainerStatusResponse {
    let user = &status["user"]["linux"];
    let number = |value: &Value| value.as_str().unwrap().parse::<i64>().unwrap();
    let status = pb::ContainerStatus {
        id: text(&status["id"]),
        metadata: Some(pb::ContainerMetadata { name: text(&status["metadata"]["name"]), attempt: 0 }),
        state: pb::ContainerState::from_str_name(status["state"].as_str().unwrap()).unwrap().into(),
        created_at: nanos(&status["createdAt"]),
        started_at: nanos(&status["startedAt"]),
        finished_at: nanos(&status["finishedAt"]),
        exit_code: 0,
        image: Some(pb::ImageSpec { image: text(&status["image"]["image"]), ..Default::default() }),
        image_ref: text(&status["imageRef"]),
        reason: text(&status["reason"]),
        message: text(&status["message"]),
        labels: map(&status["labels"]),
        annotations: map(&status["annotations"]),
        log_path: text(&status["logPath"]),
        user: Some(pb::ContainerUser {
            linux: Some(pb::LinuxContainerUser {
                uid: number(&user["uid"]),
                gid: number(&user["gid"]),
                supplemental_groups: user["supplementalGroups"].as_array().unwrap().iter().map(number).collect(),
            }),
        }),
        ..Default::default()
    };
    pb::ContainerStatusResponse { status: Some(status), ..Default::default() }
}

fn sandbox_answer(status: &Value) -> pb::PodSandboxStatusResponse {
    let options = pb::NamespaceOption::default();
    let status = pb::PodSandboxStatus {
        id: text(&status["id"]),
        metadata: Some(pb::PodSandboxMetadata { attempt: 2, ..Default::default() }),
        state: pb::PodSandboxState::from_str_name(status["state"].as_str().unwrap()).unwrap().into(),
        created_at: nanos(&status["createdAt"]),
        network: Some(pb::PodSandboxNetworkStatus {
            ip: text(&status["network"]["ip"]),
            additional_ips: vec![pb::PodIp { ip: "fd00::99".into() }],
        }),
        linux: Some(pb::LinuxPodSandboxStatus { namespaces: Some(pb::Namespace { options: Some(options) }) }),
        labels: map(&status["labels"]),
        annotations: map(&status["annotations"]),
        ..Default::default()
    };
    pb::PodSandboxStatusResponse { status: Some(status), ..Default::default() }
}

#[tokio::test]
async fn the_statuses_are_read_as_the_runtime_meant_them() {
    let rig = Rig::new(|name, request| {
        let asked = |object: &str| {
            let id = text(&rich(object, "status")["id"]);
            request.ends_with(id.as_bytes())
        };
        match name {
            "PodSandboxStatus" => answer(&sandbox_answer(&rich("sandbox", "status"))),
            _ => ["c", "i", "side"]
                .into_iter()
                .find(|object| asked(object))
                .map_or(Reply::Hang, |object| answer(&container_answer(&rich(object, "status")))),
        }
    });
    let id = |object: &str| text(&rich(object, "status")["id"]);
    let known = KnownObjects {
        sandboxes: vec![id("sandbox").into()],
        containers: ["side", "i", "c"].map(|name| (id(name).into(), id("sandbox").into())).into(),
    };
    let outcome = rig.run(CriEffect::InspectPod { uid: UID.into(), known: Some(known) }).await;
    let Outcome::Done(Answer::Cri(CriAnswer::PodSeen { pod, .. })) = outcome else { panic!("{outcome:?}") };
    assert_eq!((pod.namespace.as_str(), pod.name.as_str()), ("default", "rich"));
    let sandbox = &pod.sandboxes[0];
    assert_eq!((sandbox.state, sandbox.attempt, sandbox.host_network), (SandboxState::Ready, 2, false));
    assert_eq!(sandbox.ips, ["10.88.0.99", "fd00::99"]);
    assert_eq!(sandbox.created_at.rfc3339_nano(), "2026-11-29T17:20:29.875673261Z");

    let names: Vec<&str> = pod.containers.iter().map(|c| &*c.name).collect();
    assert_eq!(names, ["c", "i", "side"]);
    let (c, i) = (&pod.containers[0], &pod.containers[1]);
    assert_eq!((c.hash, c.restart_count, c.grace_seconds), (Some(0xdd60_9c43), 0, Some(20)));
    assert_eq!((c.state, i.state), (ContainerState::Running, ContainerState::Exited));
    assert_eq!(c.started_at.rfc3339_nano(), "2026-11-29T17:20:31.12984568Z");
    assert_eq!(c.finished_at, Wall(0), "never ended, however the runtime spells that");
    assert_eq!(i.finished_at.rfc3339_nano(), "2026-11-29T17:20:30.409973174Z");
    assert_eq!((i.exit_code, i.reason.as_str()), (0, "Completed"));
    assert_eq!(c.user, Some((1000, 1000, vec![1000, 2000, 3000])));
    assert_eq!((c.image.as_str(), c.image_ref.as_str()), ("localhost/busybox:1", IMAGE_ID));
    assert_eq!(c.log_path, format!("NODE/logs/default_rich_{UID}/c/0.log"));
    assert_eq!(c.sandbox.as_str(), id("sandbox"));
}
