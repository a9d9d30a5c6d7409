//! Random histories: invariants hold in all of them, planted bugs are found by them, failures replay.
//!
//! `TICKLET_HISTORIES` sets how many are played (20,000), `TICKLET_SEED` the first seed (0).

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking")]

use components::edge::Ingress;
use components::planted::{Bug, Planted};
use components::time::Now;
use engine::{Engine, TickOutput};
use sim::random::{self, Failure, Setup};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use trace::{Effects, Reader, Replayed};

/// Failures after which the rest is not played.
const ENOUGH: usize = 3;
/// Histories in which a planted bug must show.
const PLANTED: u64 = 2000;

fn setup(bug: Option<Bug>) -> Setup {
    Setup { plugin: systems::plugin, bug }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn scratch() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("histories")
}

/// Plays the seeds on two threads; failures by seed.
fn play(seeds: &[u64], bug: Option<Bug>, enough: usize) -> Vec<Failure> {
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while failures.lock().unwrap().len() < enough {
                    let index = usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap();
                    let Some(seed) = seeds.get(index) else { break };
                    if let Err(failure) = random::run(*seed, setup(bug)) {
                        failures.lock().unwrap().push(*failure);
                    }
                }
            });
        }
    });
    let mut failures = failures.into_inner().unwrap();
    failures.sort_by_key(|f| f.seed);
    failures
}

#[track_caller]
fn check(seeds: &[u64]) {
    let failures = play(seeds, None, ENOUGH);
    let mut text = String::new();
    for failure in &failures {
        let saved = random::save(failure, &scratch()).unwrap();
        text.push_str(&format!("{failure}saved as {}\n\n", saved.last().unwrap().display()));
    }
    assert!(failures.is_empty(), "{text}add the seed to tests/seeds.txt once it is understood");
}

#[test]
fn histories_hold() {
    let first = number("TICKLET_SEED", 0);
    let seeds: Vec<u64> = (first..first + number("TICKLET_HISTORIES", 20_000)).collect();
    let begun = std::time::Instant::now();
    check(&seeds);
    println!("{} histories in {:?}", seeds.len(), begun.elapsed());
}

#[test]
fn seeds_that_failed_once_hold() {
    let seeds = include_str!("seeds.txt").lines().filter(|l| !l.starts_with('#'));
    let seeds: Vec<u64> = seeds.filter_map(|l| l.split_whitespace().next()).map(|n| n.parse().unwrap()).collect();
    check(&seeds);
}

#[test]
fn every_planted_bug_is_found() {
    let seeds: Vec<u64> = (0..PLANTED).collect();
    for bug in Bug::ALL {
        let found = play(&seeds, Some(bug), 1);
        let failure = found.first().unwrap_or_else(|| panic!("{bug:?} is not found in {PLANTED} histories"));
        let text = failure.violation.text.lines().next().unwrap_or_default();
        println!("{bug:?}: seed {}: {text}", failure.seed);
    }
}

struct Again(Engine);

impl Replayed for Again {
    fn tick(&mut self, now: Now, batch: Vec<Ingress>) -> Effects {
        let TickOutput { tick, works, cancels, durable, .. } = self.0.tick(now, batch);
        Effects { tick, works, cancels, durable }
    }
}

#[test]
fn a_failure_is_saved_as_a_trace_that_replays() {
    let seeds: Vec<u64> = (0..PLANTED).collect();
    let bug = Some(Bug::BackoffIgnored);
    let failure = play(&seeds, bug, 1).remove(0);
    for path in random::save(&failure, &scratch()).unwrap() {
        let bytes = std::fs::read(&path).unwrap();
        let mut reader = Reader::open(&bytes).unwrap();
        let mut engine = Engine::new(reader.header().boot.clone());
        systems::plugin(&mut engine);
        engine.world_mut().insert_resource(Planted(bug));
        let report = trace::replay(&mut reader, &mut Again(engine), 1).unwrap();
        assert!(report.differences.is_empty(), "{}: {:?}", path.display(), report.differences);
        assert_eq!(report.damage, None);
        assert!(report.ticks > 0);
    }
}
