//! The whole schedule: no unordered conflicts, and an order of unordered systems that nobody depends on.

use components::node::reclaim::{CollectionConfig, ReclaimConfig, RotationConfig};
use components::node::{Boot, Machine, NodeConfig};
use engine::Engine;
use std::time::Duration;

fn boot() -> Boot {
    Boot {
        config: NodeConfig {
            root_dir: "/root-dir".to_owned(),
            pod_logs_dir: "/logs".to_owned(),
            api: Some(components::node::ApiConfig::default()),
            reclaim: reclaim(),
            ..NodeConfig::default()
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
