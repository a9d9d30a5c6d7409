//! Systems that nothing orders run in another order: every decision stays as it was.

use engine::Engine;
use sim::random::{self, Setup};
use sim::recorder::RunRecord;

/// Orders that are tried, each with a history of its own.
const ORDERS: u64 = 64;

/// Runs the recorded inputs once more; the number of ticks.
#[track_caller]
fn check(seed: u64, run: &RunRecord) -> usize {
    let mut engine = Engine::new(run.boot.clone());
    systems::plugin(&mut engine);
    engine.shuffle(seed);
    for tick in &run.ticks {
        let output = engine.tick(tick.now, tick.inputs.clone());
        let same = output.works == tick.works && output.cancels == tick.cancels && output.durable == tick.durable;
        if !same {
            let (now, before) = (output.works, &tick.works);
            panic!(
                "seed {seed}, tick {}: another order decides otherwise:\n{now:#?}\ninstead of\n{before:#?}",
                tick.tick
            );
        }
    }
    run.ticks.len()
}

#[test]
fn the_order_of_unordered_systems_decides_nothing() {
    let mut ticks = 0;
    for seed in 0..ORDERS {
        for run in random::record(seed, Setup { plugin: systems::plugin, bug: None }) {
            ticks += check(seed, &run);
        }
    }
    assert!(ticks > 5000, "only {ticks} ticks were compared");
}
