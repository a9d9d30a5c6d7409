//! The read-only picture of the node that is published at the end of a tick.
//!
//! Readers (HTTP server, metrics, the live table) never see the world. Publishing costs the pods that changed, not
//! all pods: the picture is a list of shared chunks, and only touched chunks are copied.

use crate::edge::cri::RuntimeInfo;
use crate::probes::ProbeSeries;
use crate::spec::PodSpec;
use crate::status::PodStatus;
use crate::time::{Mono, Wall};
use crate::world::Stage;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pods per chunk.
pub const CHUNK: usize = 64;

/// A chunk of pod slots.
pub type Chunk = Vec<Option<Arc<PodView>>>;

/// The node at the end of one tick.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Tick number.
    pub tick: u64,
    /// Monotonic time of that tick.
    pub mono: Mono,
    /// Wall time of that tick.
    pub wall: Wall,
    /// Pods by slot.
    pub chunks: Vec<Arc<Chunk>>,
    /// What the runtime last said of itself.
    pub runtime: Option<Arc<RuntimeInfo>>,
    /// Health of the parts.
    pub health: Health,
    /// Counters and gauges of the core: (metric name, label pairs, value).
    pub metrics: Arc<CoreMetrics>,
    /// Numbers of the probes, by pod in a stable order; up to a second old.
    pub probes: Arc<Vec<ProbeSeries>>,
    /// Numbers of the node's certificates.
    pub certificates: Arc<crate::certificates::Certificates>,
    /// Certificates of pods.
    pub pod_certificates: Arc<crate::podcerts::CertificateStates>,
}

impl Snapshot {
    /// Every pod, in slot order.
    pub fn pods(&self) -> impl Iterator<Item = &Arc<PodView>> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().flatten())
    }
}

/// One pod as readers see it.
#[derive(Clone, Debug)]
pub struct PodView {
    /// Its spec; `None` for a pod that only the runtime knows.
    pub spec: Option<Arc<PodSpec>>,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Uid.
    pub uid: crate::ids::PodUid,
    /// Lifecycle stage.
    pub stage: Stage,
    /// Everything of it is removed from this host and the runtime.
    pub buried: bool,
    /// Status.
    pub status: Arc<PodStatus>,
    /// Last notable thing that happened, for the live table.
    pub last_event: Arc<str>,
}

/// Health of the parts that `/healthz` and the node's Ready condition look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    /// Last successful look at the runtime's status with `RuntimeReady`.
    pub runtime_seen: Option<Mono>,
    /// Last successful relist, or event stream sign of life.
    pub pleg_seen: Option<Mono>,
    /// Every configured source was read at least once.
    pub sources_ready: bool,
    /// The event stream delivers.
    pub events_open: bool,
}

/// Numbers of the core, by family.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CoreMetrics {
    /// Monotonic counters: (family, label value or empty, value).
    pub counters: Vec<(&'static str, &'static str, u64)>,
    /// Gauges: (family, label value or empty, value).
    pub gauges: Vec<(&'static str, &'static str, f64)>,
    /// What happened to pods since this process began.
    pub pods: Arc<PodCounts>,
    /// What was counted of images that pods wanted; `None` where pulls are not recorded.
    pub pulls: Option<Arc<crate::pulls::PullCounts>>,
}

/// Upper bounds of the times that pods took to start, in seconds; those of the kubelet.
pub const START_BOUNDS: [f64; 25] = [
    0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 20.0, 30.0, 45.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 480.0,
    600.0, 900.0, 1200.0, 1800.0, 2700.0, 3600.0,
];

/// What happened to pods.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PodCounts {
    /// Containers that were started, by what the kubelet calls their type.
    pub started: BTreeMap<&'static str, u64>,
    /// Containers that ended: by type, exit code and reason.
    pub ended: BTreeMap<(&'static str, i32, String), u64>,
    /// Times from when a pod was first seen until all its containers ran.
    pub starts: StartTimes,
}

/// A histogram over [`START_BOUNDS`].
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StartTimes {
    /// Pods between each bound and the one before.
    pub buckets: [u64; START_BOUNDS.len()],
    /// Pods in all.
    pub count: u64,
    /// Sum of their times in seconds.
    pub seconds: f64,
}
