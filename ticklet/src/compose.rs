//! Puts the parts of a node together: the only place that names them all.
//!
//! Opens the store, makes the ports and the dispatcher, starts the driver's thread. Decides nothing.

pub(crate) mod identity;
pub(crate) mod limits;
pub(crate) mod node;
pub(crate) mod object;
pub(crate) mod providers;

use crate::driver::{Driver, DriverStats, Observer, Records, Stopped, Works};
use crate::recorder::{Recorder, TraceStats};
use anyhow::Context;
use arc_swap::ArcSwap;
use components::edge::Ingress;
use components::edge::store::Record;
use components::ids::Ticket;
use components::node::{Boot, Machine, NodeConfig};
use components::snapshot::Snapshot;
use io::apiserver::{Access, ApiCounts, ApiPort, Rates};
use io::clock::Clock;
use io::cri::{CriOptions, CriPort};
use io::dispatch::{Dispatcher, Limits, Ports};
use io::host::{Host, HostConfig};
use io::logind::{self, LogindConfig, ShutdownLock};
use io::probes::ProbesPort;
use io::sources::{SourcesOptions, SourcesPort};
use io::store::Store;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Facts that may wait for the driver. Past that, ports wait; the driver takes everything at each tick.
const INGRESS_BOUND: usize = 65_536;
/// How long works under way may go on after a stop.
const STOP_GRACE: Duration = Duration::from_millis(200);

/// What a node is made of.
pub(crate) struct Plan {
    /// The core's configuration.
    pub(crate) config: NodeConfig,
    /// Facts of this machine.
    pub(crate) machine: Machine,
    /// The root directory.
    pub(crate) root: PathBuf,
    /// Where the runtime is.
    pub(crate) cri: CriOptions,
    /// Where pods come from.
    pub(crate) sources: SourcesOptions,
    /// Who the node is to the API server and how much may be asked; `None` for a node that works on its own.
    pub(crate) api: Option<(Access, Rates)>,
    /// How much runs at a time.
    pub(crate) limits: Limits,
    /// What to ask logind for; `None` when it is none of this node's business.
    pub(crate) logind: Option<LogindConfig>,
    /// Record ticks below `ROOT/traces`.
    pub(crate) record: bool,
}

/// The dispatcher of a real node.
pub(crate) type NodeDispatcher = Dispatcher<CriPort, Host, SourcesPort, ProbesPort, ApiPort>;

/// A node that runs.
pub(crate) struct Running {
    /// What the node looks like.
    pub(crate) snapshots: Arc<ArcSwap<Snapshot>>,
    /// Facts for the core.
    pub(crate) ingress: mpsc::Sender<Ingress>,
    /// Numbers of the driver.
    pub(crate) stats: Arc<DriverStats>,
    /// The dispatcher, for its numbers.
    pub(crate) dispatcher: NodeDispatcher,
    /// The clock of the snapshots.
    pub(crate) clock: Clock,
    /// Numbers of the requests to the API server, where there is one.
    pub(crate) api: Option<Arc<ApiCounts>>,
    /// Numbers of the recording, where there is one.
    pub(crate) traces: Option<Arc<TraceStats>>,
    /// Stops the driver.
    pub(crate) stop: CancellationToken,
    /// Cancelled when the driver has stopped by itself.
    pub(crate) ended: CancellationToken,
    thread: std::thread::JoinHandle<Stopped>,
}

/// Opens the store of a root directory.
///
/// # Errors
/// One line that names the file and what to do.
pub(crate) fn open_store(root: &std::path::Path) -> anyhow::Result<(Store, Vec<Record>)> {
    Store::open(root).with_context(|| format!("failed to open the journal below {}", root.display()))
}

/// Starts a node. Call within a tokio runtime.
///
/// # Errors
/// When a part cannot be made.
pub(crate) fn start(plan: Plan, store: Store, records: Vec<Record>) -> anyhow::Result<Running> {
    let (ingress, receiver) = mpsc::channel(INGRESS_BOUND);
    let host = HostConfig {
        pods_dir: format!("{}/pods", plan.config.root_dir),
        pod_logs_dir: plan.config.pod_logs_dir.clone(),
        cgroup_root: plan.config.cgroup_root.clone(),
        shutdown_lock: ShutdownLock::default(),
    };
    if let Some(logind) = plan.logind {
        tokio::spawn(logind::watch(logind, host.shutdown_lock.clone(), ingress.clone()));
    }
    let ports = Ports {
        cri: CriPort::new(&plan.cri, ingress.clone())?,
        host: Host::new(host)?,
        sources: SourcesPort::new(plan.sources, ingress.clone()),
        probes: ProbesPort::new(),
        api: match &plan.api {
            Some((access, rates)) => ApiPort::from_files(access, *rates, ingress.clone())?,
            None => ApiPort::absent(ingress.clone()),
        },
    };
    let api = ports.api.counts();
    let dispatcher = Dispatcher::new(ports, plan.limits, ingress.clone());
    let snapshots = Arc::new(ArcSwap::from_pointee(Snapshot::default()));
    let stats = Arc::new(DriverStats::default());
    let (stop, ended) = (CancellationToken::new(), CancellationToken::new());
    let clock = Clock::default();
    // Recorded with the run: it only spreads what would else happen in one instant.
    let seed = clock.now().wall.0.cast_unsigned() ^ (u64::from(std::process::id()) << 32);
    let boot = Boot { config: plan.config, machine: plan.machine, records: records.clone(), seed, tickets: 0 };
    let recorder = if plan.record { record(&plan.root, &boot, &clock) } else { None };
    let traces = recorder.as_ref().map(Recorder::stats);
    let driver = Driver {
        boot,
        plugin: systems::plugin,
        ingress: receiver,
        works: Box::new(Dispatch { dispatcher: dispatcher.clone(), runtime: tokio::runtime::Handle::current() }),
        records: Box::new(Journal { store: Mutex::new(store), all: records }),
        observer: recorder.map(|r| Box::new(r) as Box<dyn Observer>),
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
    Ok(Running { snapshots, ingress, stats, dispatcher, clock, api, traces, stop, ended, thread })
}

/// Starts the recording; the node runs without one rather than not at all.
fn record(root: &std::path::Path, boot: &Boot, clock: &Clock) -> Option<Recorder> {
    let started = Recorder::start(&root.join("traces"), boot.clone(), clock.now(), trace::Limits::default());
    started.map_err(|error| tracing::warn!(%error, "Ticks are not recorded")).ok()
}

impl Running {
    /// Stops the driver, then what is under way. Containers go on running.
    pub(crate) async fn finish(self) -> Stopped {
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
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
