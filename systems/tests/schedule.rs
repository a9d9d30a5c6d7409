//! The whole schedule: no unordered conflicts, and an order of unordered systems that nobody depends on.

use components::node::reclaim::ReclaimConfig;
use components::node::{Boot, Machine, NodeConfig};
use engine::Engine;

fn boot() -> Boot {
    Boot {
        config: NodeConfig {
            root_dir: "/root-dir".to_owned(),
            pod_logs_dir: "/logs".to_owned(),
            api: Some(components::node::ApiConfig::default()),
            reclaim: ReclaimConfig::usual(),
            ..NodeConfig::default()
        },
        machine: Machine::default(),
        records: Vec::new(),
        seed: 0,
        tickets: 0,
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
