//! How a simulated node is set up.

use components::edge::cri::DnsConfig;
use components::node::object::{MachineIdentity, NodeObjectConfig};
use components::node::reclaim::ReclaimConfig;
use components::node::{ApiConfig, Machine, NodeConfig};
use components::planted::Bug;
use engine::Engine;
use std::collections::BTreeMap;
use std::time::Duration;

/// Set-up of a simulated node.
#[derive(Clone)]
pub struct Options {
    /// Node configuration.
    pub config: NodeConfig,
    /// Machine facts.
    pub machine: Machine,
    /// Seed of ids and chance.
    pub seed: u64,
    /// The runtime has an event stream.
    pub events: bool,
    /// Its events carry what has started.
    pub event_statuses: bool,
    /// Changes of the manifest directory are noticed at once.
    pub watch: bool,
    /// Keep a log of what happens.
    pub log: bool,
    /// Images that are here from the start.
    pub images: Vec<String>,
    /// Bytes that each container writes to its log a second.
    pub log_rate: u64,
    /// A bug planted on purpose.
    pub bug: Option<Bug>,
    /// What the engine runs.
    pub plugin: fn(&mut Engine),
}

impl Options {
    /// A node with a manifest directory, the kubelet's defaults and these systems.
    #[must_use]
    pub fn new(seed: u64, plugin: fn(&mut Engine)) -> Self {
        Self {
            config: config(),
            machine: machine(),
            seed,
            events: true,
            event_statuses: true,
            watch: true,
            log: false,
            images: Vec::new(),
            log_rate: 0,
            bug: None,
            plugin,
        }
    }

    /// The same as a node of a cluster, which registers itself.
    #[must_use]
    pub fn in_a_cluster(seed: u64, plugin: fn(&mut Engine)) -> Self {
        let mut options = Self::new(seed, plugin);
        options.config.api = Some(ApiConfig::default());
        options.config.object = Some(Box::new(object()));
        options
    }
}

/// What a simulated node tells of itself.
pub(crate) fn object() -> NodeObjectConfig {
    NodeObjectConfig {
        register: true,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        provider_id: String::new(),
        external_cloud: false,
        node_ip_given: true,
        controller_attach_detach: true,
        update_period: Duration::from_secs(10),
        report_period: Duration::from_secs(300),
        lease_seconds: 40,
        max_images: Some(50),
        pods: 110,
        port: 10250,
        version: "v1.37.2".into(),
        declared_features: Vec::new(),
        disk_bytes: Some(1 << 40),
        machine: MachineIdentity { architecture: "amd64".into(), ..MachineIdentity::default() },
    }
}

fn config() -> NodeConfig {
    NodeConfig {
        node_name: "sim".into(),
        limits: components::node::NodeLimits {
            cpu_milli: 4000,
            memory_bytes: 8 << 30,
            enforced: true,
            ..components::node::NodeLimits::default()
        },
        reclaim: ReclaimConfig::usual(),
        ..NodeConfig::default()
    }
}

fn machine() -> Machine {
    Machine {
        hostname: "sim".into(),
        node_ips: vec!["10.88.0.1".into()],
        cpus: 4,
        memory_bytes: 8 << 30,
        hugepage_sizes: Vec::new(),
        shutting_down: false,
        cgroup_v2: true,
        apparmor: true,
        swap_controller: false,
        swap_bytes: 0,
        user_ranges: Vec::new(),
        resolver: Some(DnsConfig::default()),
        etc_hosts: "127.0.0.1 localhost\n".into(),
        selinux: false,
        boot_id: "00000000-0000-4000-8000-000000000000".into(),
    }
}
