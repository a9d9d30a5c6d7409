//! Drives the engine: waits for facts or the next deadline, ticks, writes durable records, hands out the works.
//!
//! Owns the order that crash safety rests on: records of a tick are durable before any of its works starts. A panic
//! in a tick is contained: nothing of that tick leaves, and a fresh engine starts from observed state.

use arc_swap::ArcSwap;
use components::edge::store::{Record, StoreIngress};
use components::edge::{Completion, Ingress, Outcome};
use components::ids::Ticket;
use components::node::Boot;
use components::snapshot::Snapshot;
use components::time::Mono;
use engine::{Engine, TickOutput};
use io::clock::Clock;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Most facts taken into one tick; the rest waits for the next.
const MAX_BATCH: usize = 16_384;
/// Panics after which the process gives up, within [`PANIC_WINDOW`].
const MAX_PANICS: usize = 5;
/// See [`MAX_PANICS`].
const PANIC_WINDOW: Duration = Duration::from_secs(600);

/// Shortest time from one tick to the next while many follow each other: a tick for some dozens of facts costs little
/// more than one for a single fact, and what it asks for leaves together.
const PACE: Duration = Duration::from_millis(2);
/// Ticks that may follow each other at once, so that a single pod's steps never wait.
const SPRINT: u32 = 16;

/// Facts after which the allocator's free memory is worth giving back.
const BURST: usize = 1000;
/// Quiet after which there is time for it.
const QUIET: Duration = Duration::from_millis(500);
/// Memory is given back again so long after a burst, then after twice as long, and so on.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(640);

/// Where works go.
pub(crate) trait Works: Send {
    /// Runs works; each answers with one completion.
    fn submit(&mut self, works: Vec<components::edge::Work>);
    /// Cancels works.
    fn cancel(&mut self, tickets: &[Ticket]);
}

/// Where durable records go.
pub(crate) trait Records: Send {
    /// Writes records in one group.
    ///
    /// # Errors
    /// What the file system said; nothing of the group is durable then.
    fn commit(&mut self, records: &[Record]) -> Result<(), String>;
    /// Everything that is durable, to start anew from.
    fn all(&mut self) -> Vec<Record>;
}

/// Sees every tick go by.
pub(crate) trait Observer: Send {
    /// Before the tick: what goes in.
    fn begin(&mut self, tick: u64, now: components::time::Now, inputs: &[Ingress]);
    /// After the tick: what came out.
    fn end(&mut self, output: &TickOutput);
    /// The engine panicked in this tick and starts anew.
    fn restarted(&mut self, boot: &Boot);
}

/// Numbers of the driver, for metrics.
#[derive(Default, Debug)]
pub(crate) struct DriverStats {
    /// Ticks run.
    pub(crate) ticks: AtomicU64,
    /// Nanoseconds spent in ticks.
    pub(crate) tick_nanos: AtomicU64,
    /// Longest tick in nanoseconds.
    pub(crate) longest_tick_nanos: AtomicU64,
    /// Largest batch.
    pub(crate) largest_batch: AtomicU64,
    /// Engine panics.
    pub(crate) panics: AtomicU64,
    /// Failed group commits.
    pub(crate) failed_commits: AtomicU64,
}

/// What the driver is made of.
pub(crate) struct Driver {
    /// Boot facts; kept to start anew after a panic.
    pub(crate) boot: Boot,
    /// Adds the systems.
    pub(crate) plugin: fn(&mut Engine),
    /// Facts.
    pub(crate) ingress: mpsc::Receiver<Ingress>,
    /// Works.
    pub(crate) works: Box<dyn Works>,
    /// Durable records.
    pub(crate) records: Box<dyn Records>,
    /// Recorder.
    pub(crate) observer: Option<Box<dyn Observer>>,
    /// Clocks.
    pub(crate) clock: Clock,
    /// Published snapshots.
    pub(crate) snapshots: Arc<ArcSwap<Snapshot>>,
    /// Numbers.
    pub(crate) stats: Arc<DriverStats>,
    /// Set to stop.
    pub(crate) stop: tokio_util::sync::CancellationToken,
}

/// Why the driver stopped.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It was asked to.
    Asked,
    /// The core panicked too often.
    Broken,
}

impl Driver {
    /// Runs until asked to stop. Blocks its thread.
    pub(crate) fn run(mut self) -> Stopped {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_time().build() else {
            return Stopped::Broken;
        };
        let mut engine = self.fresh_engine();
        let mut carried: Vec<Ingress> = Vec::new();
        let mut panics: Vec<Instant> = Vec::new();
        let mut ticks = 0;
        let mut thrift = Thrift::default();
        let mut pace = Pace::new(Instant::now());
        loop {
            let mut batch = std::mem::take(&mut carried);
            let gives_back = thrift.is_due(Instant::now());
            if runtime.block_on(self.wait(engine.next_deadline(), gives_back, &mut batch)) {
                thrift.gave_back(Instant::now());
            }
            if !self.stop.is_cancelled() {
                // The thread has nothing else to do, and nobody needs to wake it.
                std::thread::sleep(pace.pause(Instant::now()));
                self.take_waiting(&mut batch);
            }
            thrift.took(batch.len());
            if self.stop.is_cancelled() {
                return Stopped::Asked;
            }
            ticks += 1;
            match self.tick(&mut engine, ticks, batch) {
                Some(output) => carried = self.hand_out(output),
                None => {
                    panics.retain(|at| at.elapsed() < PANIC_WINDOW);
                    panics.push(Instant::now());
                    self.stats.panics.fetch_add(1, Ordering::Relaxed);
                    if panics.len() >= MAX_PANICS {
                        return Stopped::Broken;
                    }
                    self.boot.records = self.records.all();
                    self.boot.tickets = engine.tickets_issued();
                    engine = self.fresh_engine();
                    ticks = 0;
                    if let Some(observer) = &mut self.observer {
                        observer.restarted(&self.boot);
                    }
                }
            }
        }
    }

    fn fresh_engine(&self) -> Engine {
        let mut engine = Engine::new(self.boot.clone());
        (self.plugin)(&mut engine);
        engine
    }

    /// Waits for a fact or for `deadline`. If memory is to be given back, the first
    /// quiet moment is used for it; true when that was done.
    async fn wait(&mut self, deadline: Option<Mono>, gives_back: bool, batch: &mut Vec<Ingress>) -> bool {
        let mut gave_back = false;
        if batch.is_empty() {
            let wait = deadline.map_or(Duration::from_secs(3600), |at| at.since(self.clock.now().mono));
            if gives_back && wait > QUIET {
                self.receive(QUIET, batch).await;
                if batch.is_empty() && !self.stop.is_cancelled() {
                    io::host::memory::give_back();
                    gave_back = true;
                    self.receive(wait.saturating_sub(QUIET), batch).await;
                }
            } else if wait > Duration::ZERO {
                self.receive(wait, batch).await;
            }
        }
        gave_back
    }

    fn take_waiting(&mut self, batch: &mut Vec<Ingress>) {
        while batch.len() < MAX_BATCH
            && let Ok(fact) = self.ingress.try_recv()
        {
            batch.push(fact);
        }
    }

    /// Waits for facts, `wait` at most.
    async fn receive(&mut self, wait: Duration, batch: &mut Vec<Ingress>) {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => {}
            // A closed channel would return at once and for ever; the senders live as long as we do.
            _ = self.ingress.recv_many(batch, MAX_BATCH) => {}
            () = tokio::time::sleep(wait) => {}
        }
    }

    /// One tick; `None` when it panicked.
    fn tick(&mut self, engine: &mut Engine, tick: u64, batch: Vec<Ingress>) -> Option<TickOutput> {
        let now = self.clock.now();
        self.stats.largest_batch.fetch_max(batch.len() as u64, Ordering::Relaxed);
        if let Some(observer) = &mut self.observer {
            observer.begin(tick, now, &batch);
        }
        let started = Instant::now();
        let output = catch_unwind(AssertUnwindSafe(|| engine.tick(now, batch)));
        let spent = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.stats.ticks.fetch_add(1, Ordering::Relaxed);
        self.stats.tick_nanos.fetch_add(spent, Ordering::Relaxed);
        self.stats.longest_tick_nanos.fetch_max(spent, Ordering::Relaxed);
        match output {
            Ok(output) => {
                if let Some(observer) = &mut self.observer {
                    observer.end(&output);
                }
                Some(output)
            }
            Err(_) => {
                tracing::error!(tick, "The core panicked; starting anew from observed state");
                None
            }
        }
    }

    /// Writes records, then hands out works. Returns facts for the next tick.
    fn hand_out(&mut self, output: TickOutput) -> Vec<Ingress> {
        let mut carried = Vec::new();
        self.works.cancel(&output.cancels);
        let durable = if output.durable.is_empty() { Ok(()) } else { self.records.commit(&output.durable) };
        match durable {
            Ok(()) => self.works.submit(output.works),
            Err(message) => {
                self.stats.failed_commits.fetch_add(1, Ordering::Relaxed);
                for work in output.works {
                    carried.push(Ingress::Completed(Completion { ticket: work.ticket, outcome: Outcome::Cancelled }));
                }
                carried.push(Ingress::Store(StoreIngress::CommitFailed { records: output.durable, message }));
            }
        }
        self.snapshots.store(output.snapshot);
        carried
    }
}

/// How closely ticks follow each other.
#[derive(Debug)]
struct Pace {
    /// When the last tick was let go.
    last: Instant,
    /// Ticks in a row that came within [`PACE`] of the one before.
    close: u32,
}

impl Pace {
    const fn new(now: Instant) -> Self {
        Self { last: now, close: 0 }
    }

    /// How long a tick that could begin now is to wait for more facts.
    fn pause(&mut self, now: Instant) -> Duration {
        let early = PACE.saturating_sub(now.saturating_duration_since(self.last));
        self.close = if early.is_zero() { 0 } else { self.close.saturating_add(1) };
        let pause = if self.close > SPRINT { early } else { Duration::ZERO };
        self.last = now + pause;
        pause
    }
}

/// When memory is given back: after a burst, and ever more seldom after that, since a burst is followed by what others
/// ask about it, such as lists of pods over TLS.
#[derive(Debug, Default)]
struct Thrift {
    /// Facts since it was last done.
    facts: usize,
    /// When it is done without a burst, and the pause that led there.
    next: Option<(Instant, Duration)>,
}

impl Thrift {
    fn is_due(&self, now: Instant) -> bool {
        self.facts >= BURST || self.next.is_some_and(|(at, _)| at <= now)
    }

    fn took(&mut self, facts: usize) {
        self.facts = self.facts.saturating_add(facts);
    }

    fn gave_back(&mut self, now: Instant) {
        let pause = match self.next {
            Some((_, pause)) if self.facts < BURST => (pause * 2).min(LONGEST_PAUSE),
            _ => FIRST_PAUSE,
        };
        self.next = Some((now + pause, pause));
        self.facts = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_that_follow_each_other_for_long_are_spread() {
        let (start, step) = (Instant::now(), PACE / 4);
        let mut pace = Pace::new(start);
        for n in 1..=SPRINT {
            assert_eq!(pace.pause(start + step * n), Duration::ZERO, "the first ones go at once");
        }
        let now = start + step * (SPRINT + 1);
        assert_eq!(pace.pause(now), PACE - step);
        // It began PACE after the one before, and took a step.
        let now = now + PACE;
        assert_eq!(pace.pause(now), PACE - step);
        let now = now + PACE * 3;
        assert_eq!(pace.pause(now), Duration::ZERO, "after a rest it may run again");
        assert_eq!(pace.pause(now + step), Duration::ZERO);
    }

    #[test]
    fn memory_is_given_back_after_a_burst_and_ever_more_seldom_then() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut thrift = Thrift::default();
        assert!(!thrift.is_due(start));
        thrift.took(BURST - 1);
        assert!(!thrift.is_due(start + second * 3600), "no burst, nothing to give back");
        thrift.took(1);
        assert!(thrift.is_due(start));
        thrift.gave_back(start);
        assert!(!thrift.is_due(start + second * 9));
        assert!(thrift.is_due(start + second * 10));
        thrift.gave_back(start + second * 10);
        assert!(!thrift.is_due(start + second * 29));
        assert!(thrift.is_due(start + second * 30));
        thrift.took(BURST);
        thrift.gave_back(start + second * 31);
        assert!(thrift.is_due(start + second * 41), "after a burst it begins anew");
    }
}
