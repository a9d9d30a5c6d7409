//! The rich pod: what it becomes against what the Go kubelet 1.37.2 sent for it, and decisions of security contexts.

use super::*;
use crate::fixtures;
use components::edge::cri::{
    AppArmor, ContainerSecurity, DnsConfig, GroupsPolicy, NamespaceMode, SandboxSecurity, Seccomp,
};
use components::edge::sources::Source;
use components::time::Wall;
use serde_json::Value;
use std::sync::{Arc, LazyLock};

/// What the Go kubelet sent, as crictl printed it; the io layer checks its own conversion against the same file.
const RECORDED: &str = include_str!("../../../../io/testdata/cri/rich.json");
const POD: &str = include_str!("../../../testdata/rich-pod.json");
const IMAGE: &str = "sha256:da0209acd02d9f3bf203394fb83e15e6dfccd1a956d16d4612bfbb9ac96ae952";

fn recorded(object: &str) -> Value {
    serde_json::from_str::<Value>(RECORDED).unwrap()[object]["config"].take()
}

/// A runtime without special abilities, and volumes of which nothing is known.
/// The first attempt at a pod's first container.
fn first<'a>(spec: &'a PodSpec, image: &'a FoundImage, node: &'a NodeConfig) -> Attempt<'a> {
    let (container, mounting) = (&spec.containers[0], mounting(node));
    Attempt { spec, container, attempt: 0, image, pod_ips: &[], mounting, env_files: &[], target: None }
}

fn mounting(config: &NodeConfig) -> volumes::Mounting<'_> {
    static NONE: components::volumes::PodVolumes =
        components::volumes::PodVolumes { planned: 0, refs: 0, volumes: Vec::new() };
    volumes::Mounting { config, selinux: false, recursive_read_only: false, volumes: &NONE }
}

/// A plain site with no objects.
fn site<'a>(config: &'a NodeConfig, machine: &'a Machine) -> Site<'a> {
    static OBJECTS: LazyLock<Objects> = LazyLock::new(Objects::default);
    static SERVICES: Services = Services { watched: false, synced: false, failed: false, list: BTreeMap::new() };
    Site { config, machine, strict_groups: false, users: None, systemd: false, objects: &OBJECTS, services: &SERVICES }
}

/// The pod under the name it had in the recording: that one came from an API server, which adds no node name.
fn rich() -> PodSpec {
    let origin =
        podspec::Origin { node_name: "lab", source: Source::File, path: "/m/rich.yaml", digest: 1, seen: Wall(0) };
    let mut spec = podspec::compile(POD, &origin).unwrap().spec;
    spec.name = Arc::from("rich");
    spec
}

fn node() -> NodeConfig {
    let mut node = fixtures::node();
    (node.root_dir, node.pod_logs_dir) = ("ROOT".to_owned(), "NODE/logs".to_owned());
    (node.cgroup_root, node.cluster_domain) = ("/labnode".to_owned(), "cluster.local".to_owned());
    node.cluster_dns = vec!["10.96.0.10".to_owned()];
    node
}

fn machine() -> Machine {
    Machine {
        cpus: 2,
        memory_bytes: 25_276_063_744,
        hugepage_sizes: vec!["2MB".into(), "1GB".into()],
        swap_controller: true,
        resolver: Some(DnsConfig::default()),
        ..Machine::default()
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Of the recorded annotations those that the pod itself has.
fn check_sandbox(made: &SandboxConfig, want: &Value) {
    let linux = &want["linux"];
    let meta = &want["metadata"];
    assert_eq!(
        [&*made.name, &*made.namespace, &*made.uid],
        ["name", "namespace", "uid"].map(|key| meta[key].as_str().unwrap())
    );
    assert_eq!(made.hostname, want["hostname"].as_str().unwrap());
    assert_eq!(made.log_directory, want["log_directory"].as_str().unwrap());
    assert_eq!(made.cgroup_parent, linux["cgroup_parent"].as_str().unwrap());
    assert_eq!(serde_json::to_value(&made.labels).unwrap(), want["labels"]);
    assert_eq!(made.annotations["note"], want["annotations"]["note"].as_str().unwrap());
    let dns = made.dns.as_ref().unwrap();
    for (ours, key) in [(&dns.servers, "servers"), (&dns.searches, "searches"), (&dns.options, "options")] {
        assert_eq!(*ours, texts(&want["dns_config"][key]), "{key}");
    }
    assert_eq!((made.ports.len(), want["port_mappings"].as_array().unwrap().len()), (1, 1));
    let port = &want["port_mappings"][0];
    assert_eq!(i64::from(made.ports[0].container_port), number(&port["container_port"]));
    assert_eq!(i64::from(made.ports[0].host_port), number(&port["host_port"]));
    // The other two recorded ones are the runtime's own addition.
    assert_eq!(made.sysctls.len(), 1);
    assert_eq!(made.sysctls["net.ipv4.ip_local_port_range"], linux["sysctls"]["net.ipv4.ip_local_port_range"]);
    check_resources(&made.resources, &linux["resources"]);
    check_resources(&made.overhead, &linux["overhead"]);
    let groups: Vec<i64> =
        linux["security_context"]["supplemental_groups"].as_array().unwrap().iter().map(number).collect();
    let security =
        SandboxSecurity { supplemental_groups: groups, seccomp: Seccomp::RuntimeDefault, ..Default::default() };
    assert_eq!(made.security, security);
}

fn check_resources(made: &components::edge::cri::LinuxResources, want: &Value) {
    let huge: Vec<(String, u64)> = want["hugepage_limits"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (one["page_size"].as_str().unwrap().to_owned(), one["limit"].as_u64().unwrap_or(0)))
        .collect();
    let expect = components::edge::cri::LinuxResources {
        cpu_period: number(&want["cpu_period"]),
        cpu_quota: number(&want["cpu_quota"]),
        cpu_shares: number(&want["cpu_shares"]),
        memory_limit_bytes: number(&want["memory_limit_in_bytes"]),
        memory_swap_limit_bytes: number(&want["memory_swap_limit_in_bytes"]),
        oom_score_adj: number(&want["oom_score_adj"]),
        hugepage_limits: huge,
        ..Default::default()
    };
    assert_eq!(*made, expect);
}

/// Recorded mounts that a pod without an API server has, and that our copy of the pod asks for.
fn mounts_of(want: &Value) -> Vec<(String, String, bool)> {
    let left_out = ["/var/run/secrets/kubernetes.io/serviceaccount", "/d", "/sub"];
    let mount = |m: &Value| {
        let text = |key: &str| m[key].as_str().unwrap_or_default().to_owned();
        (text("container_path"), text("host_path"), m["readonly"].as_bool().unwrap_or(false))
    };
    want["mounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(mount)
        .filter(|(path, ..)| !left_out.contains(&path.as_str()))
        .collect()
}

fn check_container(made: &ContainerConfig, want: &Value) {
    assert_eq!((made.name.as_str(), made.attempt), (want["metadata"]["name"].as_str().unwrap(), 0));
    assert_eq!(made.image_ref, want["image"]["image"].as_str().unwrap());
    assert_eq!(made.user_specified_image, want["image"]["user_specified_image"].as_str().unwrap());
    let command: Vec<String> = made.command.iter().map(|word| word.0.clone()).collect();
    assert_eq!(command, texts(&want["command"]));
    // Variables of services come from an API server.
    let pair = |env: &Value| (env["key"].as_str().unwrap().to_owned(), env["value"].as_str().unwrap().to_owned());
    let envs: Vec<_> =
        want["envs"].as_array().unwrap().iter().map(pair).filter(|(key, _)| !key.starts_with("KUBERNETES_")).collect();
    assert_eq!(made.envs.iter().map(|(key, value)| (key.clone(), value.0.clone())).collect::<Vec<_>>(), envs);
    assert_eq!(serde_json::to_value(&made.labels).unwrap(), want["labels"]);
    assert_eq!(serde_json::to_value(&made.annotations).unwrap(), want["annotations"]);
    assert_eq!(made.log_path, want["log_path"].as_str().unwrap());
    let ours = made.mounts.iter().map(|m| (m.container_path.clone(), m.host_path.clone(), m.readonly));
    for (ours, theirs) in ours.zip(mounts_of(want)) {
        // The last part of a termination log's path is a random name.
        let place = |path: &str| path.rsplit_once('/').map(|(place, _)| place.to_owned());
        assert_eq!((&ours.0, place(&ours.1), ours.2), (&theirs.0, place(&theirs.1), theirs.2));
        assert!(ours.1 == theirs.1 || ours.0 == "/dev/termination-log", "{ours:?} {theirs:?}");
    }
    assert_eq!(made.mounts.len(), mounts_of(want).len());
    check_resources(&made.resources, &want["linux"]["resources"]);
    check_security(&made.security, &want["linux"]["security_context"]);
}

fn check_security(made: &ContainerSecurity, want: &Value) {
    let id = |value: &Value| value.is_object().then(|| number(&value["value"]));
    let expect = ContainerSecurity {
        add_capabilities: texts(&want["capabilities"]["add_capabilities"]),
        drop_capabilities: texts(&want["capabilities"]["drop_capabilities"]),
        run_as_user: id(&want["run_as_user"]),
        run_as_group: id(&want["run_as_group"]),
        supplemental_groups: want["supplemental_groups"].as_array().unwrap().iter().map(number).collect(),
        no_new_privs: want["no_new_privs"].as_bool().unwrap_or(false),
        masked_paths: texts(&want["masked_paths"]),
        readonly_paths: texts(&want["readonly_paths"]),
        seccomp: match number(&want["seccomp"]["profile_type"]) {
            0 => Seccomp::RuntimeDefault,
            _ => Seccomp::Unconfined,
        },
        ..ContainerSecurity::default()
    };
    assert_eq!(*made, expect);
}

#[test]
fn the_rich_pod_is_described_as_the_go_kubelet_does() {
    let (spec, node, machine) = (rich(), node(), machine());
    let site = site(&node, &machine);
    check_sandbox(&sandbox(&spec, site, 0).unwrap(), &recorded("sandbox"));
    let image = FoundImage { image_ref: IMAGE.into(), uid: None, username: String::new() };
    let ips = ["10.88.0.99".to_owned()];
    for container in &spec.containers {
        let mounting = mounting(&node);
        let attempt = Attempt {
            spec: &spec,
            container,
            attempt: 0,
            image: &image,
            pod_ips: &ips,
            mounting,
            env_files: &[],
            target: None,
        };
        check_container(&super::container(&attempt, site).unwrap(), &recorded(&container.name));
    }
}

// === users ===

/// The user of a container with these settings, `uid` or `name`, or why it may not run.
#[track_caller]
fn check_user(pod: (Option<i64>, Option<bool>), own: (Option<i64>, Option<bool>), image: &str, expect: &str) {
    let mut spec = fixtures::spec("always a");
    (spec.security.run_as_user, spec.security.run_as_non_root) = pod;
    let container = &mut spec.containers[0].security;
    (container.run_as_user, container.run_as_non_root) = own;
    let numeric = image.parse().ok();
    let username = if numeric.is_some() { String::new() } else { image.to_owned() };
    let image = FoundImage { image_ref: "i".into(), uid: numeric, username };
    let node = fixtures::node();
    let attempt = first(&spec, &image, &node);
    let said = match security::of_container(&attempt, &node, None) {
        Ok(made) => made.run_as_user.map_or(made.run_as_username, |uid| uid.to_string()),
        Err(error) => error,
    };
    assert_eq!(said, expect);
}

#[test]
fn users_come_from_the_container_the_pod_or_the_image() {
    check_user((None, None), (None, None), "", "0");
    check_user((None, None), (None, None), "33", "33");
    check_user((None, None), (None, None), "www-data", "www-data");
    check_user((Some(1), None), (None, None), "www-data", "1");
    check_user((Some(1), None), (Some(2), None), "33", "2");
}

#[test]
fn root_is_refused_where_non_root_is_asked_for() {
    let root = "container's runAsUser breaks non-root policy (pod: \"pod_default(uid)\", container: a)";
    check_user((None, Some(true)), (Some(0), None), "33", root);
    check_user((Some(0), None), (None, Some(true)), "33", root);
    let image = "container has runAsNonRoot and image will run as root (pod: \"pod_default(uid)\", container: a)";
    check_user((None, Some(true)), (None, None), "", image);
    check_user((None, Some(true)), (None, None), "0", image);
    let named = "container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root \
                 (pod: \"pod_default(uid)\", container: a)";
    check_user((None, Some(true)), (None, None), "www", named);
    check_user((None, Some(true)), (None, Some(false)), "www", "www");
    check_user((None, Some(true)), (None, None), "33", "33");
    check_user((None, Some(true)), (Some(5), None), "www", "5");
}

// === profiles and namespaces ===

fn secured(change: impl FnOnce(&mut PodSpec, &mut NodeConfig)) -> (ContainerSecurity, SandboxSecurity) {
    let (mut spec, mut node) = (fixtures::spec("always a"), fixtures::node());
    change(&mut spec, &mut node);
    let image = FoundImage { image_ref: "i".into(), uid: None, username: String::new() };
    let attempt = first(&spec, &image, &node);
    (security::of_container(&attempt, &node, None).unwrap(), security::of_sandbox(&spec, None))
}

#[test]
fn seccomp_comes_from_the_container_the_pod_or_the_node() {
    let of = |pod: Option<Seccomp>, own: Option<Seccomp>, default: bool| {
        secured(|spec, node| {
            (spec.security.seccomp, spec.containers[0].security.seccomp) = (pod, own);
            node.seccomp_default = default;
        })
        .0
        .seccomp
    };
    assert_eq!(of(None, None, false), Seccomp::Unconfined);
    assert_eq!(of(None, None, true), Seccomp::RuntimeDefault);
    assert_eq!(of(Some(Seccomp::Unconfined), None, true), Seccomp::Unconfined);
    assert_eq!(of(Some(Seccomp::Unconfined), Some(Seccomp::RuntimeDefault), false), Seccomp::RuntimeDefault);
    let local = Some(Seccomp::Localhost("a//./b.json".to_owned()));
    assert_eq!(of(local, None, true), Seccomp::Localhost("/r/seccomp/a/b.json".to_owned()));
}

#[test]
fn profiles_and_groups_are_passed_on() {
    let (made, sandbox) = secured(|spec, _| {
        spec.security.apparmor = Some(AppArmor::RuntimeDefault);
        spec.security.groups_policy = Some(GroupsPolicy::Strict);
        spec.security.selinux = Some(["u", "r", "t", "s0"].map(str::to_owned));
        let own = &mut spec.containers[0].security;
        own.apparmor = Some(AppArmor::Localhost("web".to_owned()));
        own.selinux = Some(["", "", "", "s1"].map(str::to_owned));
        own.unmasked_proc = true;
        own.privileged = true;
    });
    assert_eq!(made.apparmor, Some(AppArmor::Localhost("web".to_owned())));
    assert_eq!(made.selinux.as_ref().map(|label| label.join(":")).as_deref(), Some(":::s1"), "not mixed");
    assert_eq!(sandbox.selinux.as_ref().map(|label| label.join(":")).as_deref(), Some("u:r:t:s0"));
    assert_eq!([made.groups_policy, sandbox.groups_policy], [Some(GroupsPolicy::Strict); 2]);
    assert!(made.masked_paths.is_empty() && made.readonly_paths.is_empty());
    assert!(made.privileged && sandbox.privileged);
}

#[test]
fn namespaces_are_the_pods_the_containers_or_the_nodes() {
    let of = |change: fn(&mut PodSpec)| {
        let made = secured(|spec, _| change(spec)).0.namespaces;
        [made.network, made.pid, made.ipc]
    };
    use NamespaceMode::{Container, Node, Pod};
    assert_eq!(of(|_| {}), [Pod, Container, Pod]);
    assert_eq!(of(|spec| spec.share_process_namespace = true), [Pod, Pod, Pod]);
    assert_eq!(of(|spec| spec.host_network = true), [Node, Container, Pod]);
    assert_eq!(of(|spec| spec.host_pid = true), [Pod, Node, Pod]);
    assert_eq!(of(|spec| spec.host_ipc = true), [Pod, Container, Node]);
}

#[test]
fn what_cannot_be_kept_is_refused() {
    let (node, machine) = (node(), machine());
    let said = |change: fn(&mut PodSpec), can: bool| {
        let mut spec = fixtures::spec("always a");
        change(&mut spec);
        let site = Site { strict_groups: can, ..site(&node, &machine) };
        sandbox(&spec, site, 0).map(|made| made.name)
    };
    let strict: fn(&mut PodSpec) = |spec| spec.security.groups_policy = Some(GroupsPolicy::Strict);
    assert_eq!(said(strict, true), Ok("pod".to_owned()));
    assert_eq!(said(strict, false), Err("SupplementalGroupsPolicy=Strict is not supported in this node".to_owned()));
}

#[test]
fn a_user_namespace_reaches_sandbox_and_containers() {
    let (mut spec, node, machine) = (fixtures::spec("always a"), node(), machine());
    spec.host_users = false;
    let users = Some(IdRange { first: 65_536, length: 65_536 });
    let site = Site { users, ..site(&node, &machine) };
    let image = FoundImage { image_ref: "i".into(), uid: None, username: String::new() };
    let attempt = first(&spec, &image, &node);
    assert_eq!(sandbox(&spec, site, 0).unwrap().security.namespaces.users, users);
    assert_eq!(container(&attempt, site).unwrap().security.namespaces.users, users);
}
