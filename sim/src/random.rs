//! Seeded random histories: manifests come, change and go while everything that can go wrong does; then faults stop
//! and the node must reach what is wanted.
//!
//! One seed is one history. [`run`] plays it; a failure is played again with its log and inputs kept.

mod cluster;
mod converge;
mod plan;
mod save;

pub use save::{encode, save};

use crate::checks::Violation;
use crate::node::faults::{Chances, Faults};
use crate::node::probes::Mood;
use crate::node::{LogLine, Node, Options};
use crate::recorder::RunRecord;
use crate::rng::Rng;
use components::edge::sources::Source;
use components::node::ApiConfig;
use components::planted::Bug;
use components::pulls::PullVerification;
use components::time::Mono;
use engine::Engine;
use plan::Slot;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

/// Longest virtual time from the end of the faults to the wanted state: the longest back-off, a lost answer and a
/// slow relist one after the other, twice.
const SETTLE: Duration = Duration::from_secs(240);
/// Time between two looks at whether the wanted state is reached.
const LOOK: Duration = Duration::from_secs(5);
/// Log lines that a failure shows.
const SHOWN: usize = 120;

/// How histories are played.
#[derive(Clone, Copy)]
pub struct Setup {
    /// What the engine runs.
    pub plugin: fn(&mut Engine),
    /// A bug planted on purpose.
    pub bug: Option<Bug>,
}

/// What a history came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Played {
    /// Ticks.
    pub ticks: u64,
    /// Starts of the agent.
    pub boots: u64,
    /// Virtual time.
    pub time: Duration,
}

/// A history in which something did not hold.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its seed.
    pub seed: u64,
    /// Tick, counted over all starts of the agent.
    pub tick: u64,
    /// What did not hold.
    pub violation: Violation,
    /// What happened, oldest first.
    pub log: Vec<LogLine>,
    /// Inputs and decisions of every tick.
    pub runs: Vec<RunRecord>,
}

impl Display for Failure {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let at = self.violation.at.since(Mono(0)).as_secs_f64();
        writeln!(f, "seed {}, tick {}, at {at:.3} s: {}", self.seed, self.tick, self.violation.text)?;
        writeln!(f, "what happened until then:")?;
        let told: Vec<&LogLine> =
            self.log.iter().filter(|l| l.at <= self.violation.at && !is_routine(&l.text)).collect();
        for line in &told[told.len().saturating_sub(SHOWN)..] {
            writeln!(f, "  {:>12.3} s  {}", line.at.since(Mono(0)).as_secs_f64(), line.text)?;
        }
        Ok(())
    }
}

/// Reads that went as they always do.
fn is_routine(line: &str) -> bool {
    ["ReadRuntime", "ListRuntime", "ReadManifests", "FetchManifestUrl"].into_iter().any(|read| {
        line.strip_prefix("start ").is_some_and(|l| l == read)
            || line.strip_prefix("end ").is_some_and(|l| l.strip_prefix(read) == Some(" done"))
    })
}

/// Plays the history of a seed.
///
/// # Errors
/// What did not hold, with log and inputs.
pub fn run(seed: u64, setup: Setup) -> Result<Played, Box<Failure>> {
    let mut history = History::new(seed, setup, false);
    if history.play().is_none() {
        let node = &history.node;
        return Ok(Played { ticks: node.ticks, boots: node.boots, time: node.now().mono.since(Mono(0)) });
    }
    let mut again = History::new(seed, setup, true);
    let (tick, violation) = again.play().unwrap_or_else(|| {
        let text = "the history went another way when it was played again".to_owned();
        (0, Violation { at: Mono(0), text })
    });
    let runs = std::mem::take(&mut again.node.checks.recorder.runs);
    Err(Box::new(Failure { seed, tick, violation, log: again.node.log, runs }))
}

/// Plays the history of a seed and returns the inputs and decisions of every tick, one record per start of the agent.
#[must_use]
pub fn record(seed: u64, setup: Setup) -> Vec<RunRecord> {
    let mut history = History::new(seed, setup, true);
    history.play();
    std::mem::take(&mut history.node.checks.recorder.runs)
}

struct History {
    rng: Rng,
    node: Node,
    slots: Vec<Slot>,
    /// Chance of the cluster, where there is one.
    cluster: Option<Rng>,
    actions: u64,
    horizon: Mono,
}

impl History {
    fn new(seed: u64, setup: Setup, keep: bool) -> Self {
        let mut rng = Rng::new(seed);
        let mut options = Options::new(seed, setup.plugin);
        options.bug = setup.bug;
        options.log = keep;
        options.events = rng.chance(700);
        options.event_statuses = !seed.is_multiple_of(3);
        options.watch = rng.chance(800);
        options.images = vec!["busybox:1".into(), "busybox:2".into()];
        let config = &mut options.config;
        config.max_restart_period = Duration::from_secs(15);
        config.file_check = Duration::from_secs(10);
        config.url_check = Duration::from_secs(7);
        config.runtime_timeout = Duration::from_secs(if rng.chance(500) { 4 } else { 9 });
        config.url_source = rng.chance(300).then(|| "http://manifests.example/pods".to_owned());
        let url = config.url_source.is_some();
        options.log_rate = rng.below(3) * 1000;
        let config = &mut options.config;
        if let (Some(rotation), Some(collection)) = (&mut config.reclaim.rotation, &mut config.reclaim.collection) {
            rotation.max_bytes = 5000;
            rotation.period = Duration::from_secs(3);
            rotation.max_files = 2 + u32::try_from(rng.below(3)).unwrap_or(0);
            collection.period = Duration::from_secs(10);
            collection.per_container = Some(u32::try_from(rng.below(3)).unwrap_or(0));
            collection.total = rng.chance(300).then_some(2);
        }
        let horizon = rng.instant(Mono(0), Duration::from_secs(15), Duration::from_secs(60));
        let mut faults = Faults::none(rng.below(u64::MAX));
        faults.chances = chances(&mut rng);
        faults.until = horizon;
        let slots = 2 + rng.below(3);
        let mut slots: Vec<Slot> = (0..slots)
            .map(|n| {
                let source = if url && rng.chance(400) { Source::Http } else { Source::File };
                Slot::new(source, &format!("p{n}"))
            })
            .collect();
        let mut more = rng.fork();
        let cluster = more.chance(350).then(|| {
            options.config.api = Some(ApiConfig::default());
            for slot in &mut slots {
                if more.chance(600) {
                    slot.source = Source::Api;
                }
            }
            more
        });
        // Images are here from the start: what is kept of pulls must stand in nobody's way.
        options.config.pulls = rng.fork().chance(500).then(PullVerification::default);
        let actions = 8 + rng.below(22);
        let mut node = Node::new(options, faults);
        node.checks.recorder.on = keep;
        Self { rng, node, slots, cluster, actions, horizon }
    }

    /// The first violation, if any, with its tick.
    fn play(&mut self) -> Option<(u64, Violation)> {
        let mut times: Vec<Mono> = (0..self.actions).map(|_| Mono(self.rng.below(self.horizon.0))).collect();
        times.sort();
        // Something is wanted from the start, and something is left from before.
        self.begin();
        if self.rng.chance(300) {
            self.node.ghost("ghost");
        }
        for at in times {
            if let Some(found) = self.run_to(at) {
                return Some(found);
            }
            self.act();
        }
        if let Some(found) = self.run_to(self.horizon) {
            return Some(found);
        }
        self.repair();
        self.settle()
    }

    fn run_to(&mut self, until: Mono) -> Option<(u64, Violation)> {
        loop {
            let more = self.node.step(until);
            if let Some(violation) = self.node.checks.violations.first() {
                return Some((self.node.ticks, violation.clone()));
            }
            if !more {
                break;
            }
        }
        self.node.run_until(until);
        None
    }

    /// Faults are over; sooner or later everything is as wanted, and stays so.
    fn settle(&mut self) -> Option<(u64, Violation)> {
        let last = self.horizon.after(SETTLE);
        let mut look = self.horizon;
        loop {
            look = look.after(LOOK);
            if let Some(found) = self.run_to(look) {
                return Some(found);
            }
            match converge::check(&self.node, &self.slots) {
                Ok(()) => return None,
                Err(text) if look >= last => {
                    let pods = self.node.describe_pods();
                    let text = format!("{SETTLE:?} after the faults ended, {text}\n{pods}");
                    return Some((self.node.ticks, Violation { at: self.node.now().mono, text }));
                }
                Err(_) => {}
            }
        }
    }

    fn begin(&mut self) {
        for index in 0..self.slots.len() {
            if self.rng.chance(700) {
                self.slots[index].renew(&mut self.rng);
                self.write(index);
            }
        }
    }

    fn act(&mut self) {
        if let Some(rng) = &mut self.cluster
            && rng.chance(250)
        {
            cluster::trouble(&mut self.node, rng);
        }
        let index = usize::try_from(self.rng.below(self.slots.len() as u64)).unwrap_or(0);
        match self.rng.below(100) {
            0..=19 => self.change_manifest(index),
            20..=31 => self.remove(index),
            32..=51 => self.kill(index),
            52..=57 => {
                let pod = format!("default/{}", self.slots[index].name);
                self.node.lose_sandbox(&pod);
            }
            58..=64 => {
                let pause = self.rng.duration(Duration::from_millis(100), Duration::from_secs(5));
                self.node.restart_runtime(pause);
            }
            65..=70 => self.node.close_events(),
            71..=86 => {
                let pause = self.rng.duration(Duration::from_millis(1), Duration::from_secs(3));
                if self.node.is_up() {
                    self.node.crash(pause);
                }
            }
            87..=88 => {
                if self.node.is_up() {
                    self.node.reboot(Duration::from_secs(2));
                }
            }
            89..=92 => {
                let seconds = i64::try_from(self.rng.below(1200)).unwrap_or(0) - 600;
                self.node.step_wall(seconds * 1_000_000_000);
            }
            93..=93 => self.upset(index),
            94..=96 => {
                let slot = &self.slots[index];
                let (source, origin) = (slot.source, slot.origin());
                if slot.pod.is_some() && source == Source::File {
                    self.slots[index].spoiled = true;
                    self.node.spoil(source, &origin, "line 1: not a pod");
                }
            }
            _ => self.node.runtime.network_ready = self.rng.chance(500),
        }
    }

    fn change_manifest(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let bound = slot.source == Source::Api;
        match self.rng.below(4) {
            // Another pod of the same name, or the first.
            0 => slot.renew(&mut self.rng),
            // The pod as it was, or a new one: after a removal the same uid comes again.
            1 if !bound || slot.pod.is_some() => slot.bring_back(&mut self.rng),
            // The server gives no uid twice.
            _ if bound && slot.pod.is_none() => slot.renew(&mut self.rng),
            // The same pod with another image or label.
            _ => slot.alter(&mut self.rng),
        }
        self.write(index);
    }

    fn write(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.spoiled = false;
        let (source, origin) = (slot.source, slot.origin());
        if let (Source::Api, Some(pod)) = (source, &slot.pod) {
            return cluster::write(&mut self.node, slot, pod);
        }
        if let Some(pod) = &slot.pod {
            let json = pod.json(&slot.name);
            self.node.put(source, &origin, &json);
        }
    }

    fn remove(&mut self, index: usize) {
        // Chance of its own: what else happens in a history stays as it was.
        let back = self.rng.fork().chance(300);
        let slot = &mut self.slots[index];
        if back && slot.source == Source::File && slot.pod.is_some() {
            let origin = slot.origin();
            self.node.remove(Source::File, &origin);
            return self.write(index);
        }
        if slot.take() {
            if let (Source::Api, Some(rng)) = (slot.source, &mut self.cluster) {
                return cluster::delete(&mut self.node, slot, rng);
            }
            let (source, origin) = (slot.source, slot.origin());
            self.node.remove(source, &origin);
        }
    }

    fn kill(&mut self, index: usize) {
        let pod = format!("default/{}", self.slots[index].name);
        let running = self.node.running(&pod, None);
        if let Some(id) = self.rng.pick(&running).cloned() {
            let code = i32::try_from(self.rng.below(3)).unwrap_or(1);
            let name = self.node.runtime.containers().get(&id).map(|c| c.request.name.clone());
            self.node.kill(&pod, name.as_deref(), code);
        }
    }

    /// Targets of a pod's probes answer badly, not at all, or well again.
    fn upset(&mut self, index: usize) {
        let mood = [Mood::Fail, Mood::Hang, Mood::Pass][usize::try_from(self.rng.below(3)).unwrap_or(0)];
        let pod = format!("default/{}", self.slots[index].name);
        for target in [format!("{pod}/c0"), format!("{pod}:80")] {
            self.node.moods.0.insert(target, mood);
        }
    }

    /// Everything outside is well again.
    fn repair(&mut self) {
        self.node.moods.0.clear();
        self.node.runtime.network_ready = true;
        cluster::repair(&mut self.node);
        for index in 0..self.slots.len() {
            if self.slots[index].spoiled {
                self.write(index);
            }
        }
    }
}

fn chances(rng: &mut Rng) -> Chances {
    let level = rng.below(4);
    Chances {
        fast: Duration::from_millis(1),
        slow: Duration::from_millis(20 + rng.below(200)),
        very_slow: 10 * level,
        refused: 10 * level,
        done_but_failed: 6 * level,
        lost: 6 * level,
        commit_refused: 40 * level,
        commit_crash: 40 * level,
        event_lost: 50 * level,
        event_twice: 50 * level,
        event_late: 50 * level,
    }
}
