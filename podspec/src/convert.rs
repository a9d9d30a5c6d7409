//! A validated Pod to the compact form that decisions use.

mod ephemeral;
mod lifecycle;
mod probes;
mod scheduling;

use crate::resources::parse;
use crate::validate::dotted;
use crate::{Origin, apparmor, go_json, image, resources, volumes};
use components::edge::cri::{DnsConfig, GroupsPolicy, Propagation, Protocol, Seccomp};
use components::fnv::fnv1a_32;
use components::ids::{PodUid, Sensitive};
use components::objects::ObjectKind;
use components::spec::{
    ContainerKind, ContainerPort, ContainerSecuritySpec, ContainerSpec, DnsPolicy, EnvFrom, EnvSource, EnvVar,
    PodSecurity, PodSpec, RecursiveReadOnly, RestartPolicy, Volume, VolumeMount,
};
use k8s_openapi::api::core::v1 as api;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Converts a pod that [`validate`](super::validate) found to be good.
pub(super) fn convert(pod: &api::Pod, origin: &Origin<'_>) -> Result<PodSpec, String> {
    let json = serde_json::to_string(pod).map_err(|e| format!("cannot be written as JSON: {e}"))?;
    let unset = api::PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&unset);
    let name = text(&pod.metadata.name);
    let set = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let overridden = set(&spec.hostname_override);
    // A name that overrides is the whole name: there is no other one to go with it.
    let subdomain = if overridden.is_some() { String::new() } else { text(&spec.subdomain) };
    let hostname = overridden.or_else(|| set(&spec.hostname)).unwrap_or_else(|| name.clone());
    let containers = containers(pod, spec);
    Ok(PodSpec {
        uid: PodUid::from(text(&pod.metadata.uid)),
        namespace: text(&pod.metadata.namespace).into(),
        source: origin.source,
        seen: origin.seen,
        digest: origin.digest,
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        restart_policy: match spec.restart_policy.as_deref() {
            Some("Never") => RestartPolicy::Never,
            Some("OnFailure") => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        },
        grace_seconds: seconds(spec.termination_grace_period_seconds).unwrap_or(30),
        active_deadline_seconds: seconds(spec.active_deadline_seconds),
        hostname,
        subdomain,
        hostname_as_fqdn: spec.set_hostname_as_fqdn == Some(true),
        host_network: spec.host_network == Some(true),
        host_pid: spec.host_pid == Some(true),
        host_ipc: spec.host_ipc == Some(true),
        host_users: spec.host_users != Some(false),
        share_process_namespace: spec.share_process_namespace == Some(true),
        host_aliases: host_aliases(spec),
        dns_policy: match spec.dns_policy.as_deref() {
            Some("ClusterFirstWithHostNet") => DnsPolicy::ClusterFirstWithHostNet,
            Some("Default") => DnsPolicy::Default,
            Some("None") => DnsPolicy::None,
            _ => DnsPolicy::ClusterFirst,
        },
        dns_config: spec.dns_config.as_ref().map(dns_config),
        security: spec.security_context.as_ref().map(pod_security).unwrap_or_default(),
        service_account: text(&spec.service_account_name),
        service_links: spec.enable_service_links != Some(false),
        pull_secrets: spec.image_pull_secrets.iter().flatten().map(|it| it.name.as_str().into()).collect(),
        runtime_class: set(&spec.runtime_class_name),
        priority: spec.priority.unwrap_or(0),
        priority_class: text(&spec.priority_class_name),
        qos: resources::qos(spec),
        overhead: spec.overhead.as_ref().map(resources::list).unwrap_or_default(),
        resources: spec.resources.as_ref().map(resources::requirements),
        scheduling: scheduling::scheduling(spec),
        volumes: used_volumes(spec, &containers),
        containers,
        readiness_gates: spec
            .readiness_gates
            .iter()
            .flatten()
            .map(|gate| gate.condition_type.as_str().into())
            .collect(),
        generation: pod.metadata.generation.unwrap_or(0),
        refused: None,
        name: name.into(),
        json: json.into(),
    })
}

fn text(field: &Option<String>) -> String {
    field.clone().unwrap_or_default()
}

fn seconds(field: Option<i64>) -> Option<u32> {
    field.and_then(|value| u32::try_from(value).ok())
}

fn host_aliases(spec: &api::PodSpec) -> Vec<(String, Vec<String>)> {
    let aliases = spec.host_aliases.iter().flatten();
    aliases.map(|alias| (alias.ip.clone(), alias.hostnames.clone().unwrap_or_default())).collect()
}

fn dns_config(config: &api::PodDNSConfig) -> DnsConfig {
    let option = |option: &api::PodDNSConfigOption| {
        let name = text(&option.name);
        match option.value.as_deref().filter(|value| !value.is_empty()) {
            Some(value) => format!("{name}:{value}"),
            None => name,
        }
    };
    DnsConfig {
        servers: config.nameservers.clone().unwrap_or_default(),
        searches: config.searches.clone().unwrap_or_default(),
        options: config.options.iter().flatten().map(option).collect(),
    }
}

fn containers(pod: &api::Pod, spec: &api::PodSpec) -> Vec<ContainerSpec> {
    let container = |c: &api::Container, kind| {
        let mut made = container(c, kind);
        made.security.apparmor = made.security.apparmor.or_else(|| apparmor::annotated(pod, &c.name));
        made
    };
    let init = spec.init_containers.iter().flatten().map(|c| {
        let kind = if resources::is_sidecar(c) { ContainerKind::Sidecar } else { ContainerKind::Init };
        container(c, kind)
    });
    let main = spec.containers.iter().map(|c| container(c, ContainerKind::Main));
    let ephemeral = spec.ephemeral_containers.iter().flatten().map(|c| {
        let mut made = container(&ephemeral::plain(c), ContainerKind::Ephemeral);
        made.target = c.target_container_name.as_deref().filter(|name| !name.is_empty()).map(Into::into);
        made
    });
    init.chain(main).chain(ephemeral).collect()
}

/// The volumes to set up: upstream leaves alone what no container mounts (`desired_state_of_world_populator.go`), but pulls
/// the images of all volumes.
fn used_volumes(spec: &api::PodSpec, containers: &[ContainerSpec]) -> Vec<Volume> {
    let mut names: BTreeSet<&str> =
        containers.iter().flat_map(|c| &c.mounts).map(|mount| mount.volume.as_str()).collect();
    for var in containers.iter().flat_map(|c| &c.env) {
        if let EnvSource::File { volume, .. } = &var.source {
            names.insert(volume);
        }
    }
    let used = |volume: &&api::Volume| volume.image.is_some() || names.contains(volume.name.as_str());
    spec.volumes.iter().flatten().filter(used).map(volumes::convert).collect()
}

fn container(c: &api::Container, kind: ContainerKind) -> ContainerSpec {
    let image = text(&c.image);
    let ports = c.ports.as_deref().unwrap_or_default();
    let pre_stop = c.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    ContainerSpec {
        name: c.name.as_str().into(),
        kind,
        image_to_pull: image::with_tag(&image).into(),
        pull_policy: volumes::pull_policy(c.image_pull_policy.as_deref()),
        hash: container_hash(&c.name, &image),
        image: image.into(),
        command: c.command.clone().unwrap_or_default(),
        args: c.args.clone().unwrap_or_default(),
        working_dir: text(&c.working_dir),
        env: c.env.iter().flatten().map(|env| env_var(env, &c.name)).collect(),
        env_from: c.env_from.iter().flatten().filter_map(env_from).collect(),
        ports: ports.iter().map(port).collect(),
        ports_json: go_json::ports(ports),
        pre_stop_json: pre_stop.map(go_json::handler).unwrap_or_default(),
        resources: c.resources.as_ref().map(resources::requirements).unwrap_or_default(),
        resize_policy: resources::resize_policy(c),
        mounts: c.volume_mounts.iter().flatten().map(mount).collect(),
        termination_message_path: text(&c.termination_message_path),
        termination_message_policy: text(&c.termination_message_policy),
        stdin: c.stdin == Some(true),
        stdin_once: c.stdin_once == Some(true),
        tty: c.tty == Some(true),
        security: c.security_context.as_ref().map(container_security).unwrap_or_default(),
        probes: probes::of(c),
        lifecycle: lifecycle::of(c),
        target: None,
    }
}

/// The value by which running containers are recognised; it must equal the reference kubelet's (contract 3.3).
pub(super) fn container_hash(name: &str, image: &str) -> u32 {
    let mut dump = "([]uint8)[".to_owned();
    for (i, byte) in go_json::hashed_fields(name, image).bytes().enumerate() {
        let _ = write!(dump, "{}{byte}", if i == 0 { "" } else { " " });
    }
    dump.push(']');
    fnv1a_32(dump.as_bytes())
}

fn env_var(env: &api::EnvVar, container: &str) -> EnvVar {
    let from = env.value_from.as_ref();
    let source = if let Some(field) = from.and_then(|from| from.field_ref.as_ref()) {
        EnvSource::Field(field.field_path.clone())
    } else if let Some(resource) = from.and_then(|from| from.resource_field_ref.as_ref()) {
        resource_source(resource, container)
    } else if let Some(file) = from.and_then(|from| from.file_key_ref.as_ref()) {
        EnvSource::File {
            volume: file.volume_name.clone(),
            path: file.path.clone(),
            key: file.key.clone(),
            optional: file.optional == Some(true),
        }
    } else if let Some(key) = from.and_then(|from| from.config_map_key_ref.as_ref()) {
        let object = volumes::object(ObjectKind::ConfigMap, &key.name, key.optional);
        EnvSource::Key { object, key: key.key.clone() }
    } else if let Some(key) = from.and_then(|from| from.secret_key_ref.as_ref()) {
        let object = volumes::object(ObjectKind::Secret, &key.name, key.optional);
        EnvSource::Key { object, key: key.key.clone() }
    } else {
        EnvSource::Value(Sensitive(text(&env.value)))
    };
    EnvVar { name: env.name.clone(), source }
}

fn env_from(from: &api::EnvFromSource) -> Option<EnvFrom> {
    let object = match (&from.config_map_ref, &from.secret_ref) {
        (Some(it), _) => volumes::object(ObjectKind::ConfigMap, &it.name, it.optional),
        (None, Some(it)) => volumes::object(ObjectKind::Secret, &it.name, it.optional),
        (None, None) => return None,
    };
    Some(EnvFrom { prefix: text(&from.prefix), object })
}

/// `resourceFieldRef`, by default of the container that it stands in.
pub(super) fn resource_source(resource: &api::ResourceFieldSelector, container: &str) -> EnvSource {
    let divisor = resource.divisor.as_ref().and_then(|q| parse(&q.0)).map_or(0, |amount| amount.milli_value());
    let named = resource.container_name.clone().filter(|n| !n.is_empty());
    EnvSource::Resource {
        container: named.unwrap_or_else(|| container.to_owned()),
        resource: resource.resource.clone(),
        // Nothing, or zero, stands for one.
        divisor_milli: if divisor == 0 { 1000 } else { divisor },
    }
}

fn port(port: &api::ContainerPort) -> ContainerPort {
    ContainerPort {
        name: text(&port.name),
        container_port: port.container_port,
        host_port: port.host_port.unwrap_or(0),
        host_ip: text(&port.host_ip),
        protocol: match port.protocol.as_deref() {
            Some("UDP") => Protocol::Udp,
            Some("SCTP") => Protocol::Sctp,
            _ => Protocol::Tcp,
        },
    }
}

fn mount(mount: &api::VolumeMount) -> VolumeMount {
    VolumeMount {
        volume: mount.name.clone(),
        path: mount.mount_path.clone(),
        sub_path: text(&mount.sub_path),
        sub_path_expr: text(&mount.sub_path_expr),
        readonly: mount.read_only == Some(true),
        recursive_read_only: match mount.recursive_read_only.as_deref() {
            Some("Enabled") => RecursiveReadOnly::Enabled,
            Some("IfPossible") => RecursiveReadOnly::IfPossible,
            _ => RecursiveReadOnly::Disabled,
        },
        propagation: match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => Propagation::HostToContainer,
            Some("Bidirectional") => Propagation::Bidirectional,
            _ => Propagation::Private,
        },
    }
}

fn pod_security(security: &api::PodSecurityContext) -> PodSecurity {
    let sysctls = security.sysctls.iter().flatten();
    PodSecurity {
        run_as_user: security.run_as_user,
        run_as_group: security.run_as_group,
        run_as_non_root: security.run_as_non_root,
        fs_group: security.fs_group,
        fs_group_on_mismatch: security.fs_group_change_policy.as_deref() == Some("OnRootMismatch"),
        supplemental_groups: security.supplemental_groups.clone().unwrap_or_default(),
        groups_policy: security.supplemental_groups_policy.as_deref().map(|policy| match policy {
            "Strict" => GroupsPolicy::Strict,
            _ => GroupsPolicy::Merge,
        }),
        sysctls: sysctls.map(|s| (dotted(&s.name), s.value.clone())).collect(),
        seccomp: security.seccomp_profile.as_ref().map(seccomp),
        apparmor: security.app_armor_profile.as_ref().map(apparmor::field),
        selinux: security.se_linux_options.as_ref().map(selinux),
    }
}

fn container_security(security: &api::SecurityContext) -> ContainerSecuritySpec {
    let capabilities = security.capabilities.as_ref();
    ContainerSecuritySpec {
        run_as_user: security.run_as_user,
        run_as_group: security.run_as_group,
        run_as_non_root: security.run_as_non_root,
        privileged: security.privileged == Some(true),
        readonly_rootfs: security.read_only_root_filesystem == Some(true),
        allow_privilege_escalation: security.allow_privilege_escalation,
        add_capabilities: capabilities.and_then(|c| c.add.clone()).unwrap_or_default(),
        drop_capabilities: capabilities.and_then(|c| c.drop.clone()).unwrap_or_default(),
        unmasked_proc: security.proc_mount.as_deref() == Some("Unmasked"),
        seccomp: security.seccomp_profile.as_ref().map(seccomp),
        apparmor: security.app_armor_profile.as_ref().map(apparmor::field),
        selinux: security.se_linux_options.as_ref().map(selinux),
    }
}

fn seccomp(profile: &api::SeccompProfile) -> Seccomp {
    match profile.type_.as_str() {
        "RuntimeDefault" => Seccomp::RuntimeDefault,
        "Localhost" => Seccomp::Localhost(text(&profile.localhost_profile)),
        _ => Seccomp::Unconfined,
    }
}

fn selinux(options: &api::SELinuxOptions) -> [String; 4] {
    [text(&options.user), text(&options.role), text(&options.type_), text(&options.level)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn variables_name_their_objects() {
        let made: api::Container = serde_json::from_value(json!({
            "name": "c",
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "m", "optional": true}}, {"secretRef": {"name": "s"}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": true}}},
            ],
        }))
        .unwrap();
        let made = container(&made, ContainerKind::Main);
        let map = |optional| volumes::object(ObjectKind::ConfigMap, "m", Some(optional));
        let secret = |optional| volumes::object(ObjectKind::Secret, "s", Some(optional));
        let from = |prefix: &str, object| EnvFrom { prefix: prefix.to_owned(), object };
        assert_eq!(made.env_from, [from("P_", map(true)), from("", secret(false))]);
        let key = |object| EnvSource::Key { object, key: "k".to_owned() };
        assert_eq!((&made.env[0].source, &made.env[1].source), (&key(map(false)), &key(secret(true))));
    }
    #[test]
    fn volumes_that_nobody_mounts_are_left_out_but_for_images() {
        let spec: api::PodSpec = serde_json::from_value(json!({
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "none"}},
                {"name": "c", "image": {"reference": "r"}}, {"name": "d", "emptyDir": {}}, {"name": "e", "emptyDir": {}}],
            "initContainers": [{"name": "i", "volumeMounts": [{"name": "d", "mountPath": "/d"}]}],
            "containers": [{"name": "m", "volumeMounts": [{"name": "a", "mountPath": "/a"}],
                "env": [{"name": "K", "valueFrom": {"fileKeyRef": {"volumeName": "e", "path": "p", "key": "k"}}}]}],
        }))
        .unwrap();
        let made = used_volumes(&spec, &containers(&api::Pod::default(), &spec));
        let names: Vec<&str> = made.iter().map(|volume| volume.name.as_ref()).collect();
        assert_eq!(names, ["a", "c", "d", "e"]);
    }
}
