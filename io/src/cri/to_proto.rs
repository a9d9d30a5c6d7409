//! From the edge's own types to CRI messages. Takes configurations by value: nothing is copied.

use bytes::Bytes;
use components::edge::cri::{
    AppArmor, ContainerConfig, ContainerSecurity, Device, DnsConfig, GroupsPolicy, IdRange, LinuxResources, Mount,
    NamespaceMode, Namespaces, PortMapping, Propagation, Protocol, SandboxConfig, SandboxSecurity, Seccomp,
};
use components::ids::{ContainerId, SandboxId, Sensitive};
use components::registry::RegistryLogin;
use proto::runtime::v1 as pb;

pub(super) fn create_container(
    sandbox: &SandboxId,
    config: ContainerConfig,
    sandbox_of: SandboxConfig,
) -> pb::CreateContainerRequest {
    pb::CreateContainerRequest {
        pod_sandbox_id: sandbox.to_string(),
        config: Some(container_config(config)),
        sandbox_config: Some(sandbox_config(sandbox_of)),
    }
}

/// The image carries the pod's annotations, for runtimes that choose a snapshotter or a registry by them.
pub(super) fn pull_image(image: String, config: SandboxConfig, login: Option<RegistryLogin>) -> pb::PullImageRequest {
    let annotations = config.annotations.clone();
    let auth = login.map(|login| pb::AuthConfig {
        username: login.username.0,
        password: login.password.0,
        ..Default::default()
    });
    pb::PullImageRequest {
        image: Some(pb::ImageSpec { image, annotations, ..Default::default() }),
        auth,
        sandbox_config: Some(sandbox_config(config)),
    }
}

pub(super) fn sandbox_config(config: SandboxConfig) -> pb::PodSandboxConfig {
    pb::PodSandboxConfig {
        metadata: Some(pb::PodSandboxMetadata {
            name: config.name,
            uid: config.uid,
            namespace: config.namespace,
            attempt: config.attempt,
        }),
        hostname: config.hostname,
        log_directory: config.log_directory,
        dns_config: config.dns.map(|DnsConfig { servers, searches, options }| pb::DnsConfig {
            servers,
            searches,
            options,
        }),
        port_mappings: config.ports.into_iter().map(port_mapping).collect(),
        labels: config.labels,
        annotations: config.annotations,
        linux: Some(pb::LinuxPodSandboxConfig {
            cgroup_parent: config.cgroup_parent,
            security_context: Some(sandbox_security(config.security)),
            sysctls: config.sysctls,
            overhead: Some(resources(config.overhead)),
            resources: Some(resources(config.resources)),
        }),
    }
}

pub(super) fn update_container(id: &ContainerId, wanted: LinuxResources) -> pb::UpdateContainerResourcesRequest {
    pb::UpdateContainerResourcesRequest {
        container_id: id.to_string(),
        linux: Some(resources(wanted)),
        ..Default::default()
    }
}

fn container_config(config: ContainerConfig) -> pb::ContainerConfig {
    let texts = |list: Vec<Sensitive>| list.into_iter().map(|Sensitive(text)| text).collect();
    let variable = |(key, Sensitive(value))| pb::KeyValue { key, value: Bytes::from(value) };
    let users = config.security.namespaces.users;
    pb::ContainerConfig {
        metadata: Some(pb::ContainerMetadata { name: config.name, attempt: config.attempt }),
        image: Some(pb::ImageSpec {
            image: config.image_ref,
            user_specified_image: config.user_specified_image,
            ..Default::default()
        }),
        command: texts(config.command),
        args: texts(config.args),
        working_dir: config.working_dir,
        envs: config.envs.into_iter().map(variable).collect(),
        mounts: config.mounts.into_iter().map(|m| mount(m, users)).collect(),
        devices: config.devices.into_iter().map(device).collect(),
        cdi_devices: config.cdi_devices.into_iter().map(|name| pb::CdiDevice { name }).collect(),
        labels: config.labels,
        annotations: config.annotations,
        log_path: config.log_path,
        stdin: config.stdin,
        stdin_once: config.stdin_once,
        tty: config.tty,
        linux: Some(pb::LinuxContainerConfig {
            resources: Some(resources(config.resources)),
            security_context: Some(container_security(config.security)),
        }),
        stop_signal: config.stop_signal.map_or(0, |name| signal(&name)),
    }
}

/// The CRI's number of a signal; 0, the image's own, for a name that it does not have.
fn signal(name: &str) -> i32 {
    // The CRI spells `SIGRTMIN+3` as `SIGRTMINPLUS3`.
    let name = format!("SIGNAL_{}", name.replace('+', "PLUS").replace('-', "MINUS"));
    pb::Signal::from_str_name(&name).map_or(0, Into::into)
}

fn port_mapping(port: PortMapping) -> pb::PortMapping {
    let protocol = match port.protocol {
        Protocol::Tcp => pb::Protocol::Tcp,
        Protocol::Udp => pb::Protocol::Udp,
        Protocol::Sctp => pb::Protocol::Sctp,
    };
    pb::PortMapping {
        protocol: protocol.into(),
        container_port: port.container_port,
        host_port: port.host_port,
        host_ip: port.host_ip,
    }
}

fn device(device: Device) -> pb::Device {
    pb::Device { container_path: device.container_path, host_path: device.host_path, permissions: device.permissions }
}

/// With a user namespace each mount is mapped as the namespace is: its files keep the ids they have on disk.
fn mount(mount: Mount, users: Option<IdRange>) -> pb::Mount {
    let propagation = match mount.propagation {
        Propagation::Private => pb::MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => pb::MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => pb::MountPropagation::PropagationBidirectional,
    };
    pb::Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        readonly: mount.readonly,
        propagation: propagation.into(),
        recursive_read_only: mount.recursive_read_only,
        uid_mappings: users.map(mapping).into_iter().collect(),
        gid_mappings: users.map(mapping).into_iter().collect(),
        selinux_relabel: mount.selinux_relabel,
        image_sub_path: mount.image.as_ref().map(|image| image.sub_path.clone()).unwrap_or_default(),
        image: mount.image.map(|image| pb::ImageSpec {
            image: image.image_ref,
            user_specified_image: image.user_specified,
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn resources(resources: LinuxResources) -> pb::LinuxContainerResources {
    let hugepage = |(page_size, limit)| pb::HugepageLimit { page_size, limit };
    pb::LinuxContainerResources {
        cpu_period: resources.cpu_period,
        cpu_quota: resources.cpu_quota,
        cpu_shares: resources.cpu_shares,
        memory_limit_in_bytes: resources.memory_limit_bytes,
        oom_score_adj: resources.oom_score_adj,
        hugepage_limits: resources.hugepage_limits.into_iter().map(hugepage).collect(),
        unified: resources.unified,
        memory_swap_limit_in_bytes: resources.memory_swap_limit_bytes,
        ..Default::default()
    }
}

fn sandbox_security(security: SandboxSecurity) -> pb::LinuxSandboxSecurityContext {
    pb::LinuxSandboxSecurityContext {
        namespace_options: Some(namespaces(security.namespaces)),
        selinux_options: security.selinux.map(selinux),
        run_as_user: security.run_as_user.map(int64),
        run_as_group: security.run_as_group.map(int64),
        supplemental_groups: security.supplemental_groups,
        privileged: security.privileged,
        seccomp: Some(seccomp(security.seccomp)),
        supplemental_groups_policy: groups_policy(security.groups_policy),
        ..Default::default()
    }
}

fn container_security(security: ContainerSecurity) -> pb::LinuxContainerSecurityContext {
    let (add, drop) = (security.add_capabilities, security.drop_capabilities);
    pb::LinuxContainerSecurityContext {
        capabilities: (!add.is_empty() || !drop.is_empty()).then_some(pb::Capability {
            add_capabilities: add,
            drop_capabilities: drop,
            add_ambient_capabilities: Vec::new(),
        }),
        privileged: security.privileged,
        namespace_options: Some(namespaces(security.namespaces)),
        selinux_options: security.selinux.map(selinux),
        // The two exclude each other on the wire.
        run_as_username: if security.run_as_user.is_none() { security.run_as_username } else { String::new() },
        run_as_user: security.run_as_user.map(int64),
        run_as_group: security.run_as_group.map(int64),
        readonly_rootfs: security.readonly_rootfs,
        supplemental_groups: security.supplemental_groups,
        no_new_privs: security.no_new_privs,
        masked_paths: security.masked_paths,
        readonly_paths: security.readonly_paths,
        seccomp: Some(seccomp(security.seccomp)),
        apparmor: security.apparmor.map(apparmor),
        supplemental_groups_policy: groups_policy(security.groups_policy),
    }
}

fn namespaces(namespaces: Namespaces) -> pb::NamespaceOption {
    let mode = |mode| match mode {
        NamespaceMode::Pod => pb::NamespaceMode::Pod.into(),
        NamespaceMode::Container => pb::NamespaceMode::Container.into(),
        NamespaceMode::Node => pb::NamespaceMode::Node.into(),
        NamespaceMode::Target => pb::NamespaceMode::Target.into(),
    };
    pb::NamespaceOption {
        network: mode(namespaces.network),
        pid: mode(namespaces.pid),
        ipc: mode(namespaces.ipc),
        target_id: namespaces.target.map(|id| id.to_string()).unwrap_or_default(),
        // Said in so many words, as the Go kubelet does: left out, it would mean a user namespace of the pod's own.
        userns_options: Some(match namespaces.users {
            None => pb::UserNamespace { mode: pb::NamespaceMode::Node.into(), ..Default::default() },
            Some(range) => pb::UserNamespace {
                mode: pb::NamespaceMode::Pod.into(),
                uids: vec![mapping(range)],
                gids: vec![mapping(range)],
            },
        }),
    }
}

const fn mapping(range: IdRange) -> pb::IdMapping {
    pb::IdMapping { host_id: range.first, container_id: 0, length: range.length }
}

fn groups_policy(policy: Option<GroupsPolicy>) -> i32 {
    match policy {
        None | Some(GroupsPolicy::Merge) => pb::SupplementalGroupsPolicy::Merge.into(),
        Some(GroupsPolicy::Strict) => pb::SupplementalGroupsPolicy::Strict.into(),
    }
}

fn seccomp(profile: Seccomp) -> pb::SecurityProfile {
    use pb::security_profile::ProfileType;
    match profile {
        Seccomp::Unconfined => security_profile(ProfileType::Unconfined, String::new()),
        Seccomp::RuntimeDefault => security_profile(ProfileType::RuntimeDefault, String::new()),
        Seccomp::Localhost(path) => security_profile(ProfileType::Localhost, path),
    }
}

fn apparmor(profile: AppArmor) -> pb::SecurityProfile {
    use pb::security_profile::ProfileType;
    match profile {
        AppArmor::Unconfined => security_profile(ProfileType::Unconfined, String::new()),
        AppArmor::RuntimeDefault => security_profile(ProfileType::RuntimeDefault, String::new()),
        AppArmor::Localhost(name) => security_profile(ProfileType::Localhost, name),
    }
}

fn security_profile(kind: pb::security_profile::ProfileType, localhost_ref: String) -> pb::SecurityProfile {
    pb::SecurityProfile { profile_type: kind.into(), localhost_ref }
}

fn selinux([user, role, r#type, level]: [String; 4]) -> pb::SeLinuxOption {
    pb::SeLinuxOption { user, role, r#type, level }
}

const fn int64(value: i64) -> pb::Int64Value {
    pb::Int64Value { value }
}
