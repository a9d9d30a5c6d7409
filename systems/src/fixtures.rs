//! Specs and inspections from one line of text, for tests.

use components::edge::cri::{ContainerState, ContainerStatus, PodInspection, SandboxState, SandboxStatus};
use components::edge::sources::Source;
use components::ids::Hidden;
use components::node::NodeConfig;
use components::objects::{ObjectData, ObjectEntry, ObjectKey, ObjectKind, ObjectRef, ObjectState, Objects};
use components::spec::{
    ContainerKind, ContainerSecuritySpec, ContainerSpec, DnsPolicy, PodSecurity, PodSpec, PullPolicy, QosClass,
    ResourceRequirements, Resources, RestartPolicy,
};
use components::time::Wall;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node with nothing special.
pub(crate) fn node() -> NodeConfig {
    NodeConfig {
        root_dir: "/r".into(),
        pod_logs_dir: "/l".into(),
        pull_qps: 0,
        pull_burst: 1,
        single_process_oom_kill: true,
        stop_signals: true,
        ..NodeConfig::default()
    }
}

/// `POLICY [init:NAME|side:NAME|NAME]…`, for example `always init:i a b`.
pub(crate) fn spec(text: &str) -> PodSpec {
    let mut words = text.split_whitespace();
    let restart_policy = match words.next() {
        Some("never") => RestartPolicy::Never,
        Some("onfailure") => RestartPolicy::OnFailure,
        _ => RestartPolicy::Always,
    };
    let containers = words
        .map(|word| match word.split_once(':') {
            Some(("init", name)) => container(name, ContainerKind::Init),
            Some(("side", name)) => container(name, ContainerKind::Sidecar),
            _ => container(word, ContainerKind::Main),
        })
        .collect();
    PodSpec {
        uid: "uid".into(),
        name: "pod".into(),
        namespace: "default".into(),
        source: Source::File,
        seen: Wall(0),
        digest: 0,
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        restart_policy,
        grace_seconds: 30,
        active_deadline_seconds: None,
        hostname: "pod".to_owned(),
        subdomain: String::new(),
        hostname_as_fqdn: false,
        host_network: false,
        host_pid: false,
        host_ipc: false,
        host_users: true,
        share_process_namespace: false,
        host_aliases: Vec::new(),
        dns_policy: DnsPolicy::ClusterFirst,
        dns_config: None,
        security: PodSecurity::default(),
        service_account: String::new(),
        service_links: true,
        pull_secrets: Vec::new(),
        runtime_class: None,
        priority: 0,
        priority_class: String::new(),
        qos: QosClass::BestEffort,
        overhead: Resources::default(),
        resources: None,
        scheduling: components::scheduling::Scheduling::default(),
        volumes: Vec::new(),
        containers,
        readiness_gates: Vec::new(),
        generation: 0,
        refused: None,
        json: "{}".into(),
    }
}

fn container(name: &str, kind: ContainerKind) -> ContainerSpec {
    ContainerSpec {
        name: name.into(),
        kind,
        image: "img".into(),
        image_to_pull: "img:latest".into(),
        pull_policy: PullPolicy::IfNotPresent,
        hash: 7,
        command: Vec::new(),
        args: Vec::new(),
        working_dir: String::new(),
        env: Vec::new(),
        env_from: Vec::new(),
        ports: Vec::new(),
        ports_json: String::new(),
        pre_stop_json: String::new(),
        resources: ResourceRequirements::default(),
        resize_policy: components::resize::ResizePolicy::default(),
        mounts: Vec::new(),
        termination_message_path: "/dev/termination-log".to_owned(),
        termination_message_policy: "File".to_owned(),
        stdin: false,
        stdin_once: false,
        tty: false,
        security: ContainerSecuritySpec::default(),
        probes: Vec::new(),
        lifecycle: components::hooks::LifecycleSpec::default(),
        target: None,
    }
}

/// Newest first: `sN+` ready, `sN-` not ready, `sN+noip`; `NAMEn:run|exitC|created|unknown[#changed][@sN]`, where the
/// sandbox defaults to the newest (the oldest one when it is not ready any more and a newer exists).
pub(crate) fn inspection(spec: &PodSpec, text: &str) -> PodInspection {
    let mut seen = PodInspection { namespace: "default".into(), name: "pod".into(), ..PodInspection::default() };
    let is_sandbox = |w: &&str| w.starts_with('s') && !w.contains(':');
    for (order, word) in text.split_whitespace().filter(is_sandbox).enumerate() {
        let id = word.split(['+', '-']).next().unwrap_or_default();
        let attempt = id[1..].parse().unwrap_or(0);
        let state = if word.contains('+') { SandboxState::Ready } else { SandboxState::NotReady };
        let ips = if word.ends_with("noip") { Vec::new() } else { vec![format!("10.0.0.{}", order + 1)] };
        let created_at = Wall(100 - i64::try_from(order).unwrap_or(0));
        seen.sandboxes.push(SandboxStatus { id: id.into(), attempt, state, created_at, host_network: false, ips });
    }
    let oldest = seen.sandboxes.last().map(|s| s.id.to_string()).unwrap_or_default();
    for word in text.split_whitespace().filter(|w| w.contains(':')) {
        seen.containers.push(instance(spec, word, &oldest));
    }
    seen.containers.sort_by(|a, b| a.name.cmp(&b.name).then(b.attempt.cmp(&a.attempt)));
    seen
}

fn instance(spec: &PodSpec, word: &str, sandbox: &str) -> ContainerStatus {
    let (id, rest) = word.split_once(':').unwrap_or((word, ""));
    let (rest, sandbox) = rest.split_once('@').unwrap_or((rest, sandbox));
    let (state, changed) = rest.split_once('#').map_or((rest, false), |(state, _)| (state, true));
    let name = id.trim_end_matches(|c: char| c.is_ascii_digit());
    let attempt = id[name.len()..].parse().unwrap_or(0);
    let hash = spec.containers.iter().find(|c| &*c.name == name).map(|c| c.hash + u32::from(changed));
    let exit_code = state.strip_prefix("exit").and_then(|c| c.parse().ok()).unwrap_or(0);
    ContainerStatus {
        id: id.into(),
        sandbox: sandbox.into(),
        name: Arc::from(name),
        attempt,
        restart_count: attempt,
        hash,
        grace_seconds: None,
        state: match state {
            "run" => ContainerState::Running,
            "created" => ContainerState::Created,
            "unknown" => ContainerState::Unknown,
            _ => ContainerState::Exited,
        },
        created_at: Wall(0),
        started_at: Wall(0),
        finished_at: Wall(0),
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: String::new(),
        image_ref: String::new(),
        user: None,
        log_path: String::new(),
        size: None,
    }
}

/// `map:NAME` or `secret:NAME`, with `?` at its end when optional.
pub(crate) fn reference(text: &str) -> ObjectRef {
    let (kind, name) = text.split_once(':').unwrap_or_default();
    let kind = if kind == "secret" { ObjectKind::Secret } else { ObjectKind::ConfigMap };
    ObjectRef { kind, name: name.trim_end_matches('?').into(), optional: name.ends_with('?') }
}

/// The place of an object of the pod's namespace.
pub(crate) fn place(text: &str) -> ObjectKey {
    let of = reference(text);
    ObjectKey { kind: of.kind, namespace: "default".into(), name: of.name }
}

/// An object with these keys.
pub(crate) fn data(version: &str, keys: &[(&str, &str)]) -> ObjectData {
    let bytes = |text: &str| Hidden::from(text.as_bytes().to_vec());
    ObjectData {
        uid: "u".to_owned(),
        resource_version: version.to_owned(),
        data: keys.iter().map(|(key, value)| ((*key).to_owned(), bytes(value))).collect(),
        ..ObjectData::default()
    }
}

/// `map:m` and `secret:s` are there, `map:none` and `secret:none` are not, and `map:unread` was not read.
pub(crate) fn objects() -> Objects {
    let here = |data| ObjectState::Here(Arc::new(data));
    let all = [
        ("map:m", here(data("1", &[("A", "from-map"), ("odd.key-1", "x")]))),
        ("secret:s", here(data("2", &[("A", "from-secret")]))),
        ("map:none", ObjectState::Missing),
        ("secret:none", ObjectState::Missing),
        ("map:unread", ObjectState::Unread),
    ];
    let entry = |(text, state)| (place(text), ObjectEntry { state, ..ObjectEntry::default() });
    Objects { entries: all.into_iter().map(entry).collect(), ..Objects::default() }
}
