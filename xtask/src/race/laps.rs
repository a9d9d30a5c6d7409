//! The laps of one racer: from empty to all running, a minute of rest, a crash and the way back.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tests::tunables::Tunables;

use super::racer::{Contender, Racer};
use super::runtime::{Counts, Runtime};
use super::site::Site;
use super::targets::Targets;

/// Longest wait until all containers run: the reference takes about 35 s for 500 on a quiet machine.
const FILL_DEADLINE: Duration = Duration::from_secs(600);
/// Longest wait until all pods are reported running.
const REPORT_DEADLINE: Duration = Duration::from_secs(300);
/// What a racer still does after the fill is over by then.
const SETTLE: Duration = Duration::from_secs(10);
/// Time between two looks at the runtime.
const LOOK: Duration = Duration::from_millis(20);
/// Time between two questions for the list of pods, which costs the racer something.
const ASK: Duration = Duration::from_millis(250);

/// What to run.
pub(super) struct Plan<'a> {
    pub(super) pods: usize,
    pub(super) steady_seconds: u64,
    pub(super) simulator: &'a Path,
    pub(super) stop: &'a AtomicBool,
    pub(super) keep: bool,
    pub(super) probes: bool,
    pub(super) qps: Option<usize>,
}

/// What was measured. CPU in seconds, memory in MiB.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Laps {
    pub(super) pods: f64,
    pub(super) fill_seconds: f64,
    pub(super) fill_cpu: f64,
    pub(super) fill_calls: f64,
    pub(super) steady_cpu_percent: f64,
    pub(super) steady_rss: f64,
    pub(super) peak_rss: f64,
    pub(super) steady_calls_per_second: f64,
    pub(super) threads: f64,
    pub(super) restart_seconds: f64,
    pub(super) restart_cpu: f64,
    pub(super) restart_touched: f64,
    pub(super) probes_per_second: f64,
}

/// Runs one contender through all laps on a fresh runtime.
pub(super) fn run(contender: &Contender, plan: &Plan<'_>) -> Result<Laps> {
    // The reference sets kernel parameters at start; they are put back when this ends.
    let _tunables = Tunables::save();
    let targets = if plan.probes { Some(Targets::start()?) } else { None };
    let site = Site::new(contender.name, plan.pods, targets.as_ref().map(|t| t.port), plan.keep)?;
    let mut runtime = Runtime::start(plan.simulator, &site)?;
    wait(plan, "the simulated runtime answers", Duration::from_secs(30), LOOK, || runtime.ready())?;

    let mut laps = Laps { pods: plan.pods as f64, ..Laps::default() };
    let began = Instant::now();
    let mut racer = Racer::start(contender, &site)?;
    fill(plan, &runtime, &mut racer, began, &mut laps)?;
    steady(plan, &runtime, &mut racer, targets.as_ref(), &mut laps)?;
    let (_, peak) = racer.memory()?;
    laps.peak_rss = peak;
    racer.kill()?;
    restart(plan, &runtime, contender, &site, &mut laps)?;
    Ok(laps)
}

/// From the start of the process until every container runs in the runtime.
fn fill(plan: &Plan<'_>, runtime: &Runtime, racer: &mut Racer, began: Instant, laps: &mut Laps) -> Result<()> {
    wait(plan, "every container runs", FILL_DEADLINE, LOOK, || {
        racer.check_alive()?;
        Ok(runtime.counts()?.running >= plan.pods)
    })
    .map_err(|error| error.context(format!("log of the racer:\n{}", racer.log_tail())))?;
    laps.fill_seconds = began.elapsed().as_secs_f64();
    laps.fill_cpu = racer.cpu()?;
    laps.fill_calls = runtime.counts()?.total() as f64;
    wait(plan, "every pod is reported running", REPORT_DEADLINE, ASK, || {
        racer.check_alive()?;
        Ok(racer.pods_reported() >= plan.pods)
    })
}

/// Nothing happens for a while.
fn steady(
    plan: &Plan<'_>,
    runtime: &Runtime,
    racer: &mut Racer,
    targets: Option<&Targets>,
    laps: &mut Laps,
) -> Result<()> {
    let answered = || {
        let (http, tcp) = targets.map_or((0, 0), Targets::answered);
        (http + tcp) as f64
    };
    pause(plan, SETTLE)?;
    let probes = answered();
    let (cpu, calls, began) = (racer.cpu()?, runtime.counts()?.total(), Instant::now());
    pause(plan, Duration::from_secs(plan.steady_seconds))?;
    racer.check_alive()?;
    let seconds = began.elapsed().as_secs_f64();
    laps.steady_cpu_percent = (racer.cpu()? - cpu) * 100.0 / seconds;
    laps.steady_calls_per_second = (runtime.counts()?.total() - calls) as f64 / seconds;
    laps.probes_per_second = (answered() - probes) / seconds;
    laps.steady_rss = racer.memory()?.0;
    laps.threads = racer.threads()? as f64;
    Ok(())
}

/// Starts it anew on what runs, until it says again that every pod runs.
fn restart(plan: &Plan<'_>, runtime: &Runtime, contender: &Contender, site: &Site, laps: &mut Laps) -> Result<()> {
    let before: Counts = runtime.counts()?;
    let began = Instant::now();
    let mut racer = Racer::start(contender, site)?;
    wait(plan, "every pod is reported running after the restart", REPORT_DEADLINE, ASK, || {
        racer.check_alive()?;
        Ok(racer.pods_reported() >= plan.pods)
    })?;
    laps.restart_seconds = began.elapsed().as_secs_f64();
    laps.restart_cpu = racer.cpu()?;
    // What it would still do to containers shows within its next rounds.
    pause(plan, SETTLE)?;
    let after = runtime.counts()?;
    laps.restart_touched = (after.changes() - before.changes()) as f64;
    if after.running != plan.pods {
        bail!("{} containers run after the restart instead of {}", after.running, plan.pods);
    }
    Ok(())
}

pub(super) fn pause(plan: &Plan<'_>, time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        stopped(plan)?;
        std::thread::sleep(left.min(Duration::from_millis(100)));
    }
    Ok(())
}

pub(super) fn wait(
    plan: &Plan<'_>,
    what: &str,
    deadline: Duration,
    every: Duration,
    mut done: impl FnMut() -> Result<bool>,
) -> Result<()> {
    let end = Instant::now() + deadline;
    while !done()? {
        stopped(plan)?;
        if Instant::now() >= end {
            bail!("not within {deadline:?}: {what}");
        }
        std::thread::sleep(every);
    }
    Ok(())
}

fn stopped(plan: &Plan<'_>) -> Result<()> {
    if plan.stop.load(Ordering::Relaxed) {
        bail!("stopped on request");
    }
    Ok(())
}

impl Laps {
    /// As JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "pods": self.pods,
            "fill_seconds": self.fill_seconds,
            "fill_cpu_seconds": self.fill_cpu,
            "fill_cri_calls": self.fill_calls,
            "steady_cpu_percent": self.steady_cpu_percent,
            "steady_rss_mib": self.steady_rss,
            "peak_rss_mib": self.peak_rss,
            "steady_cri_calls_per_second": self.steady_calls_per_second,
            "threads": self.threads,
            "restart_seconds": self.restart_seconds,
            "restart_cpu_seconds": self.restart_cpu,
            "restart_containers_touched": self.restart_touched,
            "probes_per_second": self.probes_per_second,
        })
    }
}
