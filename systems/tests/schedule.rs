//! The whole schedule: no unordered conflicts, and an order of unordered systems that nobody depends on.

use components::node::reclaim::{CollectionConfig, ReclaimConfig, RotationConfig};
use components::node::{Boot, Machine, NodeConfig};
use engine::Engine;
use std::time::Duration;

fn boot() -> Boot {
    Boot {
        config: NodeConfig {
            node_name: "node".into(),
            root_dir: "/root-dir".to_owned(),
            pod_logs_dir: "/logs".to_owned(),
            file_source: true,
            url_source: None,
            file_check: Duration::from_secs(20),
            url_check: Duration::from_secs(20),
            sync_frequency: Duration::from_secs(60),
            max_restart_period: Duration::from_secs(300),
            runtime_timeout: Duration::from_secs(120),
            pull_qps: 5,
            pull_burst: 10,
            cgroups_per_qos: true,
            cgroup_root: String::new(),
            cgroup_driver_systemd: false,
            cpu_cfs_quota: true,
            cpu_cfs_period_us: 100_000,
            pod_pids_limit: None,
            single_process_oom_kill: false,
            cluster_dns: Vec::new(),
            cluster_domain: String::new(),
            seccomp_default: false,
            max_pods: 110,
            end_orphans: true,
            limits: components::node::NodeLimits::default(),
            shutdown_bands: Vec::new(),
            stop_signals: false,
            reclaim: reclaim(),
        },
        machine: Machine::default(),
        records: Vec::new(),
        seed: 0,
        tickets: 0,
    }
}

/// Everything is reclaimed, with the kubelet's defaults.
fn reclaim() -> ReclaimConfig {
    let period = Duration::from_secs(10);
    ReclaimConfig {
        rotation: Some(RotationConfig { max_bytes: 10 << 20, max_files: 5, workers: 1, period }),
        collection: Some(CollectionConfig {
            period: Duration::from_secs(60),
            min_age: Duration::ZERO,
            per_container: Some(1),
            total: None,
        }),
        log_links: Some("/var/log/containers".to_owned()),
    }
}

#[test]
fn no_two_systems_conflict_without_an_order() {
    let mut engine = Engine::new(boot());
    systems::plugin(&mut engine);
    engine.set_checks(true);
    if let Err(why) = engine.build_schedule() {
        panic!("{why}");
    }
}
