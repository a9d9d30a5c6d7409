//! What the node, its pods and their containers use: looked at when somebody asks, kept for a moment for the next.
//!
//! Reads the published snapshot, cgroup files, disks and the runtime; changes nothing. However many ask at once, one
//! look is under way; a look is never older than [`FRESH`]. What is dear is refreshed at most a part of the time.

mod cadvisor;
mod cgroup;
mod disk;
mod du;
#[cfg(test)]
mod fixtures;
mod machine;
mod model;
mod parse;
mod picture;
mod rates;
mod resource;
mod sample;
mod summary;

use self::cgroup::Hierarchies;
use self::disk::FileSystem;
use self::du::{DiskUse, Places};
use self::picture::{Camera, Picture};
use self::rates::Rates;
use self::sample::Depth;
use self::summary::{Disks, UsedFs};
use crate::clock::Clock;
use crate::cri::usage::{ImageFileSystems, LayerUsage, UsageCalls};
use arc_swap::ArcSwap;
use components::ids::ContainerId;
use components::node::NodeConfig;
use components::snapshot::Snapshot;
use components::spec::VolumeSource;
use components::time::{Mono, Wall};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// A look this young is good for everybody.
const FRESH: Duration = Duration::from_secs(1);
/// Longest that a request waits for anything.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest that a request waits for disks to be measured; it is answered without those that took longer.
const DISK_WAIT: Duration = Duration::from_secs(1);
/// What the runtime says of disks is kept at least this long.
const RUNTIME_FRESH: Duration = Duration::from_secs(10);
/// Asking the runtime may take this part of the time at most.
const SHARE: u32 = 20;

/// What there is to know before the first look.
#[derive(Clone, Debug)]
pub struct StatsConfig {
    /// The core's configuration: where things lie.
    pub node: NodeConfig,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// When the machine was started.
    pub booted: Wall,
    /// `kubeletCgroups`, else our own cgroup; empty for the root's.
    pub kubelet_cgroup: String,
    /// `--runtime-cgroups`.
    pub runtime_cgroup: String,
    /// `systemCgroups`.
    pub system_cgroup: String,
    /// `volumeStatsAggPeriod`; `None` when volumes are not measured.
    pub volume_period: Option<Duration>,
}

impl StatsConfig {
    /// With facts of this machine filled in.
    #[must_use]
    pub fn of_machine(node: NodeConfig, memory_bytes: i64) -> Self {
        Self {
            node,
            memory_bytes: u64::try_from(memory_bytes).unwrap_or(0),
            booted: machine::booted().unwrap_or_default(),
            kubelet_cgroup: machine::own_cgroup().unwrap_or_default(),
            runtime_cgroup: String::new(),
            system_cgroup: String::new(),
            volume_period: Some(Duration::from_secs(60)),
        }
    }
}

/// Why there is no answer.
#[derive(thiserror::Error, Clone, PartialEq, Eq, Debug)]
pub enum StatsError {
    /// No cgroup hierarchy is mounted.
    #[error("no cgroup hierarchy is mounted on this machine")]
    NoCgroups,
    /// It took too long.
    #[error("usage could not be read within {} s", LIMIT.as_secs())]
    TooLong,
    /// The look failed.
    #[error("usage could not be read: {0}")]
    Broken(String),
}

/// Answers questions about usage.
#[derive(Clone, Debug)]
pub struct Stats {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: StatsConfig,
    hierarchies: Option<Hierarchies>,
    clock: Clock,
    snapshots: Arc<ArcSwap<Snapshot>>,
    runtime: UsageCalls,
    looks: Arc<Mutex<Looks>>,
    said: Mutex<Said>,
    disks: DiskUse,
    machine: machine::Machine,
}

/// The last look, and what rates need of earlier ones.
#[derive(Default, Debug)]
struct Looks {
    last: Option<Arc<Picture>>,
    rates: Rates,
}

/// What the runtime said last, and when it may be asked again.
#[derive(Default, Debug)]
struct Said {
    due: Mono,
    file_systems: ImageFileSystems,
    layers: Arc<HashMap<ContainerId, LayerUsage>>,
}

impl Stats {
    /// Looks for the cgroup hierarchies; nothing else is read before somebody asks.
    ///
    /// # Errors
    /// When no thread can be had.
    pub fn new(
        config: StatsConfig,
        snapshots: Arc<ArcSwap<Snapshot>>,
        clock: Clock,
        runtime: UsageCalls,
    ) -> std::io::Result<Self> {
        let hierarchies = Hierarchies::of_machine();
        let disks = DiskUse::start(clock, config.volume_period)?;
        let (looks, said) = (Arc::default(), Mutex::default());
        let machine = machine::Machine::read();
        let inner = Inner { config, hierarchies, clock, snapshots, runtime, looks, said, disks, machine };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The body of `/stats/summary`.
    ///
    /// # Errors
    /// When cgroups can't be read, or not in time.
    pub async fn summary(&self, only_cpu_and_memory: bool) -> Result<String, StatsError> {
        let picture = self.picture(Depth::Summary).await?;
        let disks = if only_cpu_and_memory { None } else { Some(self.disks(&picture).await) };
        let name = Arc::clone(&self.inner.config.node.node_name);
        let write = move || serde_json::to_string(&summary::build(&name, &picture, disks.as_ref()));
        match tokio::task::spawn_blocking(write).await {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) => Err(StatsError::Broken(error.to_string())),
            Err(error) => Err(StatsError::Broken(error.to_string())),
        }
    }

    /// The page `/metrics/resource`. It says itself when there is nothing to say.
    pub async fn resource_page(&self) -> String {
        let picture = self.picture(Depth::Usage).await;
        if let Err(error) = &picture {
            tracing::warn!(%error, "Usage could not be read for /metrics/resource");
        }
        resource::page(picture.ok().as_deref())
    }

    /// The page `/metrics/cadvisor`.
    pub async fn cadvisor_page(&self) -> String {
        let picture = self.picture(Depth::Detail).await;
        if let Err(error) = &picture {
            tracing::warn!(%error, "Usage could not be read for /metrics/cadvisor");
        }
        let layers = Arc::clone(&self.said().await.layers);
        let image_fs = self.image_fs().await;
        let inner = Arc::clone(&self.inner);
        let root_fs = disk::file_system(Path::new(&inner.config.node.root_dir));
        let write = move || {
            let disks = cadvisor::Disks { layers: &layers, container: image_fs, node: root_fs };
            cadvisor::page(picture.ok().as_deref(), &disks, &inner.machine)
        };
        tokio::task::spawn_blocking(write).await.unwrap_or_default()
    }

    /// A look that is deep and young enough.
    async fn picture(&self, depth: Depth) -> Result<Arc<Picture>, StatsError> {
        if self.inner.hierarchies.is_none() {
            return Err(StatsError::NoCgroups);
        }
        let look = async {
            let looks = Arc::clone(&self.inner.looks).lock_owned().await;
            let young = |picture: &Arc<Picture>| {
                picture.depth >= depth && self.inner.clock.now().mono.since(picture.now.mono) < FRESH
            };
            if let Some(last) = looks.last.clone().filter(young) {
                return Ok(last);
            }
            let inner = Arc::clone(&self.inner);
            // The lock goes along: a look that its asker no longer waits for is still the only one.
            tokio::task::spawn_blocking(move || inner.take(looks, depth))
                .await
                .map_err(|error| StatsError::Broken(error.to_string()))
        };
        tokio::time::timeout(LIMIT, look).await.unwrap_or(Err(StatsError::TooLong))
    }

    async fn disks(&self, picture: &Picture) -> Disks {
        let inner = &self.inner;
        let places: Vec<Places> = picture.pods.iter().filter_map(|pod| inner.places(&pod.view)).collect();
        let pods = inner.disks.of(places, DISK_WAIT).await;
        let said = self.said().await;
        let used = |layer: &Option<LayerUsage>| {
            let layer = layer.clone()?;
            Some(UsedFs { on: disk::file_system(Path::new(&layer.mount))?, layer })
        };
        let node = &inner.config.node;
        Disks {
            at: inner.clock.now().wall,
            node: disk::file_system(Path::new(&node.root_dir)),
            logs: disk::file_system(Path::new(&node.pod_logs_dir)),
            images: used(&said.file_systems.images),
            containers: used(&said.file_systems.containers),
            layers: said.layers,
            pods,
            tasks: machine::tasks(),
        }
    }

    async fn image_fs(&self) -> Option<FileSystem> {
        let said = self.said().await.file_systems;
        let layer = said.containers.or(said.images)?;
        disk::file_system(Path::new(&layer.mount))
    }

    /// What the runtime says of disks, asked again when it is due. The last answer stands while it says nothing.
    async fn said(&self) -> SaidCopy {
        let mut said = self.inner.said.lock().await;
        let begun = self.inner.clock.now().mono;
        if said.due <= begun {
            let half = LIMIT / 2;
            let (places, layers) =
                tokio::join!(self.inner.runtime.image_file_systems(half), self.inner.runtime.writable_layers(half));
            match places {
                Ok(found) => said.file_systems = found,
                Err(error) => tracing::warn!(%error, "The runtime did not say where images lie"),
            }
            match layers {
                Ok(found) => said.layers = Arc::new(found),
                Err(error) => tracing::warn!(%error, "The runtime did not say what containers have on disk"),
            }
            let end = self.inner.clock.now().mono;
            said.due = end.after(RUNTIME_FRESH.max(end.since(begun) * SHARE));
        }
        SaidCopy { file_systems: said.file_systems.clone(), layers: Arc::clone(&said.layers) }
    }
}

struct SaidCopy {
    file_systems: ImageFileSystems,
    layers: Arc<HashMap<ContainerId, LayerUsage>>,
}

impl Inner {
    fn take(&self, mut looks: tokio::sync::OwnedMutexGuard<Looks>, depth: Depth) -> Arc<Picture> {
        let snapshot = self.snapshots.load_full();
        let looks = &mut *looks;
        let mounted = self.hierarchies.as_ref();
        let nothing = Hierarchies::V1(cgroup::V1::default());
        let hierarchies = mounted.unwrap_or(&nothing);
        let rates = &mut looks.rates;
        let mut camera = Camera { config: &self.config, hierarchies, clock: self.clock, depth, rates };
        let picture = Arc::new(camera.take(&snapshot));
        looks.last = Some(Arc::clone(&picture));
        picture
    }

    /// What a pod may have on disk.
    fn places(&self, view: &components::snapshot::PodView) -> Option<Places> {
        let (spec, node) = (view.spec.as_ref()?, &self.config.node);
        let uid = view.uid.as_str();
        let volumes = spec.volumes.iter().filter_map(|volume| {
            let plugin = volume.source.plugin()?;
            // As the kubelet counts: what only lies in memory takes no disk.
            let ephemeral = matches!(volume.source, VolumeSource::EmptyDir { .. }) || plugin == "configmap";
            Some((Arc::clone(&volume.name), PathBuf::from(node.volume_dir(uid, plugin, &volume.name)), ephemeral))
        });
        let logs = format!("{}/{}_{}_{uid}", node.pod_logs_dir, view.namespace, view.name);
        Some(Places {
            uid: view.uid.clone(),
            volumes: volumes.collect(),
            logs: logs.into(),
            containers: spec.containers.iter().map(|container| Arc::clone(&container.name)).collect(),
            hosts: format!("{}/etc-hosts", node.pod_dir(uid)).into(),
        })
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}
