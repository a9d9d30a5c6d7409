//! Puts the parts of a node together: the only place that names them all.
//!
//! Opens the store, makes the ports and the dispatcher, starts the driver's thread. Decides nothing.

pub mod node;

use crate::driver::{Driver, DriverStats, Observer, Records, Stopped, Works};
use crate::recorder::{Recorder, TraceStats};
use anyhow::Context;
use arc_swap::ArcSwap;
use components::edge::Ingress;
use components::edge::store::Record;
use components::ids::Ticket;
use components::node::{Boot, Machine, NodeConfig};
use components::snapshot::Snapshot;
use io::clock::Clock;
use io::cri::{CriOptions, CriPort};
use io::dispatch::{Dispatcher, Limits, Ports};
use io::host::{Host, HostConfig};
use io::sources::{SourcesOptions, SourcesPort};
use io::store::Store;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Facts that may wait for the driver. Past that, ports wait; the driver takes everything at each tick.
const INGRESS_BOUND: usize = 65_536;
/// How long works under way may go on after a stop.
const STOP_GRACE: Duration = Duration::from_millis(200);

/// What a node is made of.
pub struct Plan {
    /// The core's configuration.
    pub config: NodeConfig,
    /// Facts of this machine.
    pub machine: Machine,
    /// The root directory.
    pub root: PathBuf,
    /// Where the runtime is.
    pub cri: CriOptions,
    /// Where pods come from.
    pub sources: SourcesOptions,
    /// How much runs at a time.
    pub limits: Limits,
    /// How much of what happens is kept below the root directory, in `traces`; `None` records nothing.
    pub traces: Option<trace::Limits>,
}

/// The dispatcher of a real node.
pub type NodeDispatcher = Dispatcher<CriPort, Host, SourcesPort>;

/// A node that runs.
pub struct Running {
    /// What the node looks like.
    pub snapshots: Arc<ArcSwap<Snapshot>>,
    /// Facts for the core.
    pub ingress: mpsc::Sender<Ingress>,
    /// Numbers of the driver.
    pub stats: Arc<DriverStats>,
    /// Numbers of the recording; `None` without one.
    pub trace_stats: Option<Arc<TraceStats>>,
    /// The dispatcher, for its numbers.
    pub dispatcher: NodeDispatcher,
    /// Stops the driver.
    pub stop: CancellationToken,
    /// Cancelled when the driver has stopped by itself.
    pub ended: CancellationToken,
    thread: std::thread::JoinHandle<Stopped>,
}

/// Opens the store of a root directory.
///
/// # Errors
/// One line that names the file and what to do.
pub fn open_store(root: &Path) -> anyhow::Result<(Store, Vec<Record>)> {
    Store::open(root).with_context(|| format!("failed to open the journal below {}", root.display()))
}

/// Starts a node. Call within a tokio runtime.
///
/// # Errors
/// When a part cannot be made.
pub fn start(plan: Plan, store: Store, records: Vec<Record>) -> anyhow::Result<Running> {
    let (ingress, receiver) = mpsc::channel(INGRESS_BOUND);
    let host = HostConfig {
        pods_dir: format!("{}/pods", plan.config.root_dir),
        pod_logs_dir: plan.config.pod_logs_dir.clone(),
        cgroup_root: plan.config.cgroup_root.clone(),
    };
    let ports = Ports {
        cri: CriPort::new(&plan.cri, ingress.clone())?,
        host: Host::new(host)?,
        sources: SourcesPort::new(plan.sources, ingress.clone()),
    };
    let dispatcher = Dispatcher::new(ports, plan.limits, ingress.clone());
    let snapshots = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
    let stats = Arc::new(DriverStats::default());
    let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
    let boot = Boot { config: plan.config, machine: plan.machine, records: records.clone(), seed: 0, tickets: 0 };
    let clock = Clock::default();
    let recorder = plan.traces.and_then(|limits| recorder(&plan.root, &boot, &clock, limits));
    let trace_stats = recorder.as_ref().map(Recorder::stats);
    let driver = Driver {
        boot,
        plugin: systems::plugin,
        ingress: receiver,
        works: Box::new(Dispatch { dispatcher: dispatcher.clone(), runtime: tokio::runtime::Handle::current() }),
        records: Box::new(Journal { store: Mutex::new(store), all: records }),
        observer: recorder.map(|recorder| -> Box<dyn Observer> { Box::new(recorder) }),
        clock,
        snapshots: Arc::clone(&snapshots),
        stats: Arc::clone(&stats),
        stop: stop.clone(),
    };
    let over = ended.clone();
    let thread = std::thread::Builder::new()
        .name("driver".to_owned())
        .spawn(move || {
            let why = driver.run();
            over.cancel();
            why
        })
        .context("failed to start the driver's thread")?;
    Ok(Running { snapshots, ingress, stats, trace_stats, dispatcher, stop, ended, thread })
}

/// Starts the recording. A node that cannot record runs all the same.
fn recorder(root: &Path, boot: &Boot, clock: &Clock, limits: trace::Limits) -> Option<Recorder> {
    let dir = root.join("traces");
    match Recorder::start(&dir, boot.clone(), clock.now(), limits) {
        Ok(recorder) => Some(recorder),
        Err(error) => {
            let dir = dir.display();
            tracing::warn!(%dir, %error, "Nothing is recorded: the directory of traces cannot be used");
            None
        }
    }
}

impl Running {
    /// Stops the driver, then what is under way. Containers go on running.
    pub async fn finish(self) -> Stopped {
        self.stop.cancel();
        let thread = self.thread;
        let why = tokio::task::spawn_blocking(move || thread.join().unwrap_or(Stopped::Broken)).await;
        self.dispatcher.shutdown(STOP_GRACE).await;
        why.unwrap_or(Stopped::Broken)
    }
}

/// Works go to the dispatcher, which spawns on the runtime.
struct Dispatch {
    dispatcher: NodeDispatcher,
    runtime: tokio::runtime::Handle,
}

impl Works for Dispatch {
    fn submit(&mut self, works: Vec<components::edge::Work>) {
        if !works.is_empty() {
            let _inside = self.runtime.enter();
            self.dispatcher.submit(works);
        }
    }

    fn cancel(&mut self, tickets: &[Ticket]) {
        if !tickets.is_empty() {
            let _inside = self.runtime.enter();
            self.dispatcher.cancel(tickets);
        }
    }
}

/// Records go to the store.
struct Journal {
    store: Mutex<Store>,
    all: Vec<Record>,
}

impl Records for Journal {
    fn commit(&mut self, records: &[Record]) -> Result<(), String> {
        let mut store = self.store.lock().map_err(|_| "the journal is in an unknown state".to_owned())?;
        store.commit(records).map_err(|e| with_causes(&e))?;
        self.all.extend(records.iter().cloned());
        Ok(())
    }

    fn all(&mut self) -> Vec<Record> {
        self.all.clone()
    }
}

/// An error with its causes, on one line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
