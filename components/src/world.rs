//! Components and resources of the world, with their one writer each.
//!
//! | data | written by |
//! |---|---|
//! | [`PodKey`], [`Desired`], [`PodIndex`], [`SourceStates`] | `systems::sources` |
//! | [`Lifecycle`] | `systems::lifecycle` |
//! | [`Observed`], [`RuntimeIndex`], [`Pleg`] | `systems::pleg` |
//! | [`Flow`], [`ContainerRun`] | `systems::runtime` |
//! | [`Reported`] | `systems::status` |
//! | [`Resizing`](crate::resize::Resizing) | `systems::resize` |
//! | [`Probes`](crate::probes::Probes) | `systems::probes` |
//! | [`RuntimeHealth`] | `systems::health` |

use crate::edge::cri::started::StartedObject;
use crate::edge::cri::{ContainerState, PodInspection, RuntimeInfo, RuntimeList, SandboxState};
use crate::edge::sources::Source;
use crate::hooks::{HookKind, HookRun, Kill};
use crate::ids::{ContainerId, PodUid, SandboxId, Sensitive, Ticket};
use crate::resize::Size;
use crate::spec::PodSpec;
use crate::status::PodStatus;
use crate::time::{Mono, Wall};
use bevy_ecs::prelude::{Component, Entity, Resource};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

// === pod: identity and desire ===

/// Identity of a pod entity; never changes.
#[derive(Component, Clone, Debug)]
pub struct PodKey {
    /// Uid.
    pub uid: PodUid,
    /// Slot in published snapshots; reused after the pod is gone.
    pub slot: u32,
}

/// What is wanted of a pod.
#[derive(Component, Clone, Debug)]
pub struct Desired {
    /// Compiled spec; `None` for a pod that only the runtime knows (an orphan, to be ended).
    pub spec: Option<Arc<PodSpec>>,
    /// Counts every change of this component's content; 1 for the first.
    pub version: u64,
    /// No source has it any more (REMOVE).
    pub removed: bool,
    /// Its deletion was asked for, with this grace period in seconds, while its source still has it.
    pub delete: Option<u32>,
    /// The same uid was added again while this one ends: it starts anew with this spec once this one is gone.
    pub successor: Option<Arc<PodSpec>>,
}

impl Desired {
    /// The pod ends only to be started anew under its name, and none of its containers may end for good: what the
    /// runtime has of it stays, so that restarts go on to be counted.
    #[must_use]
    pub fn comes_back(&self) -> bool {
        let (Some(spec), Some(next)) = (&self.spec, &self.successor) else { return false };
        self.removed && spec.full_name() == next.full_name() && next.always_restarts()
    }
}

/// Pods by uid and by full name.
#[derive(Resource, Default, Debug)]
pub struct PodIndex {
    /// Entity of each uid.
    pub by_uid: BTreeMap<PodUid, Entity>,
    /// Entities of each full name (`name_namespace`), oldest first: only the first may run.
    pub by_full_name: BTreeMap<String, Vec<Entity>>,
    /// Slots that are free again, lowest first.
    pub free_slots: BTreeSet<u32>,
    /// Slots handed out so far.
    pub slots: u32,
}

/// What is known of each configured source.
#[derive(Resource, Default, Debug)]
pub struct SourceStates {
    /// Configured sources.
    pub states: BTreeMap<Source, SourceState>,
}

impl SourceStates {
    /// True when every configured source was read at least once: only then may unknown things be cleaned up.
    #[must_use]
    pub fn all_read(&self) -> bool {
        self.states.values().all(|s| s.read)
    }
}

/// State of one source.
#[derive(Default, Debug, Clone)]
pub struct SourceState {
    /// It was read at least once.
    pub read: bool,
    /// The read that is under way.
    pub reading: Option<Ticket>,
    /// It was touched while the read was under way: read again.
    pub again: bool,
    /// Places whose files were gone at some time since the read under way was asked for.
    pub removed: BTreeSet<Arc<str>>,
    /// The same before that: what the read under way shows in these places is new there.
    pub removed_before: BTreeSet<Arc<str>>,
    /// The objects that count, by uid, as last merged.
    pub items: BTreeMap<PodUid, SourceItem>,
    /// Problems as last reported, so that each is logged once: (origin, message).
    pub problems: BTreeSet<(Arc<str>, String)>,
    /// Problems reported so far.
    pub problems_total: u64,
}

/// One object of a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceItem {
    /// File path or URL.
    pub origin: Arc<str>,
    /// Position within a list.
    pub index: u32,
    /// Digest of its content.
    pub digest: u128,
    /// Digest of its status; 0 without one.
    pub status_digest: u128,
    /// It is asked to end (`metadata.deletionTimestamp`).
    pub deleting: bool,
    /// Its pod's full name.
    pub full_name: String,
}

// === pod: life ===

/// Stage of a pod's life on this node. Separate from the API's phase.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Stage {
    /// Waits for its turn: another pod of the same full name still lives.
    Queued,
    /// Is made to run.
    Syncing,
    /// Is made to stop.
    Terminating,
    /// Everything has stopped; its remains are cleaned up.
    Terminated,
    /// Cleaned up. Despawned once no source has it; kept while one has (a finished static pod).
    Done,
}

/// Where a pod is in its life.
#[derive(Component, Clone, Debug)]
pub struct Lifecycle {
    /// Stage.
    pub stage: Stage,
    /// Since.
    pub since: Mono,
    /// Since when it is active on this node, as far as can be told: `activeDeadlineSeconds` counts from here.
    pub active: Option<Mono>,
    /// How and why it ends, from `Terminating` on.
    pub ending: Option<Ending>,
    /// Reason and message, where the node does not take it.
    pub refused: Option<(String, String)>,
    /// Reasons of its transitions, oldest first, at most 16.
    pub history: Vec<Transition>,
}

/// How a pod ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ending {
    /// Why.
    pub cause: EndCause,
    /// Grace period in seconds; only ever shrinks.
    pub grace_seconds: u32,
    /// When the ending began.
    pub began: Mono,
}

/// Why a pod ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EndCause {
    /// Its containers ended and none will run again.
    Finished,
    /// No source has it any more.
    Removed,
    /// Its deletion was asked for.
    Deleted,
    /// Only the runtime knows it.
    Orphaned,
    /// The node is drained.
    Drained,
    /// `activeDeadlineSeconds` passed.
    DeadlineExceeded,
    /// The node does not take it.
    Refused,
    /// The node shuts down.
    NodeShutdown,
    /// It came while the node shuts down.
    ShutdownRejected,
    /// It makes way for a critical pod.
    Preempted,
}

/// One change of stage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// When.
    pub at: Wall,
    /// From.
    pub from: Stage,
    /// To.
    pub to: Stage,
    /// Why, as a short sentence.
    pub reason: &'static str,
}

// === pod: what is observed ===

/// What the runtime was last seen to have of a pod.
#[derive(Component, Default, Debug, Clone)]
pub struct Observed {
    /// The last complete inspection; `None` before the first.
    pub inspection: Option<Arc<PodInspection>>,
    /// Counts inspections.
    pub version: u64,
    /// The inspection under way.
    pub inspecting: Option<Ticket>,
    /// Something may have changed since the inspection under way was asked for: inspect again.
    pub stale: bool,
    /// The next inspection must list the pod's objects anew: one may exist whose id is not known.
    pub list: bool,
    /// The next inspection must look at the sandboxes too, not only at the containers.
    pub sandboxes: bool,
    /// Objects known to be started when the inspection under way was asked for: it shows them so, and later news of
    /// their start are none.
    pub started: Vec<Arc<str>>,
    /// The inspection under way lists the pod's objects anew.
    pub listing: bool,
    /// The inspection under way leaves the sandboxes out: they are as they were.
    pub containers_only: bool,
    /// A sandbox that started, as an event shows it, before the work that makes it has ended.
    pub early: Option<Box<StartedObject>>,
    /// Something ended of which nothing is known: until the next inspection, events are not taken at their word.
    pub unsure: bool,
    /// Consecutive failed inspections.
    pub failures: u32,
    /// No inspection before this, after a failed one.
    pub retry_at: Option<Mono>,
    /// When each ended container was first seen ended. Durations run from here, whatever the wall clock says.
    pub exits: BTreeMap<ContainerId, Mono>,
}

impl Observed {
    /// The last inspection, if nothing may have changed since it was asked for.
    #[must_use]
    pub fn settled(&self) -> Option<&Arc<PodInspection>> {
        if self.stale || self.inspecting.is_some() { None } else { self.inspection.as_ref() }
    }

    /// True when the inspection under way was asked for after this object was known to have started.
    #[must_use]
    pub fn will_show_started(&self, id: &str) -> bool {
        self.inspecting.is_some() && self.started.iter().any(|known| **known == *id)
    }
}

/// What the last relist said, for the diff with the next.
#[derive(Resource, Default, Debug)]
pub struct RuntimeIndex {
    /// The last list.
    pub list: RuntimeList,
    /// Each pod's objects in it, and a fingerprint of their states.
    pub pods: BTreeMap<PodUid, PodObjects>,
}

/// A pod's objects in the last relist.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct PodObjects {
    /// Sandboxes with their states, sorted.
    pub sandboxes: Vec<(SandboxId, SandboxState)>,
    /// Containers with their sandboxes and states, sorted.
    pub containers: Vec<(ContainerId, SandboxId, ContainerState)>,
}

/// Pods whose runtime state must be looked at again. Any domain adds; `systems::pleg` drains it in the same tick.
#[derive(Resource, Default, Debug)]
pub struct InspectRequests {
    /// What is asked for, by pod.
    pub pods: BTreeMap<Entity, Look>,
}

impl InspectRequests {
    /// Something may have changed: look at everything that is known of the pod.
    pub fn look(&mut self, pod: Entity) {
        let look = self.pods.entry(pod).or_default();
        look.sandboxes = true;
        look.all = true;
    }

    /// As [`Self::look`], and list the pod's objects anew.
    pub fn list(&mut self, pod: Entity) {
        let look = self.pods.entry(pod).or_default();
        look.sandboxes = true;
        look.all = true;
        look.list = true;
    }

    /// This container is known to have started: look at the containers.
    pub fn container_started(&mut self, pod: Entity, id: Arc<str>) {
        self.pods.entry(pod).or_default().started.push(id);
    }

    /// This sandbox is known to have started: look at everything.
    pub fn sandbox_started(&mut self, pod: Entity, id: Arc<str>) {
        let look = self.pods.entry(pod).or_default();
        look.sandboxes = true;
        look.started.push(id);
    }

    /// It is known how this object started: that alone is no reason to look.
    pub fn shown(&mut self, pod: Entity, id: &str) {
        let Some(look) = self.pods.get_mut(&pod) else { return };
        look.started.retain(|started| **started != *id);
        if look.started.is_empty() && !look.all {
            self.pods.remove(&pod);
        }
    }
}

/// What to look at.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Look {
    /// List the pod's objects anew.
    pub list: bool,
    /// Look at the sandboxes too.
    pub sandboxes: bool,
    /// There are other reasons than what has started.
    pub all: bool,
    /// Objects known to have started.
    pub started: Vec<Arc<str>>,
}

/// Dead containers and sandboxes that are to be removed. `systems::gc` asks; `systems::runtime` carries it out.
#[derive(Resource, Default, Debug)]
pub struct RemovalRequests {
    /// By pod.
    pub pods: BTreeMap<Entity, Removals>,
}

/// What of a pod is to be removed.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub struct Removals {
    /// Ended containers.
    pub containers: BTreeSet<ContainerId>,
    /// Stopped sandboxes that hold nothing.
    pub sandboxes: BTreeSet<SandboxId>,
}

/// Pods known to be finished from earlier runs or this one: (uid, succeeded).
#[derive(Resource, Default, Debug)]
pub struct Finished(pub BTreeMap<PodUid, bool>);

/// What earlier runs showed of pods that had reached a terminal phase.
#[derive(Resource, Default, Debug)]
pub struct Ended(pub BTreeMap<PodUid, Arc<PodStatus>>);

/// Durable records that could not be written yet: nothing new is started while there are any.
#[derive(Resource, Default, Debug)]
pub struct JournalBacklog {
    /// Records, oldest first.
    pub records: Vec<crate::edge::store::Record>,
    /// Consecutive failures.
    pub failures: u32,
}

/// State of the pod lifecycle event generator.
#[derive(Resource, Default, Debug)]
pub struct Pleg {
    /// The relist under way.
    pub relisting: Option<Ticket>,
    /// Last successful relist.
    pub relisted: Option<Mono>,
    /// The event stream delivers.
    pub events_open: bool,
    /// The runtime has no event stream; do not ask again until it restarts.
    pub events_unsupported: bool,
    /// Attempts to open the stream since it last delivered.
    pub event_attempts: u32,
    /// The open attempt under way.
    pub opening: Option<Ticket>,
    /// Pods that only the runtime knows and whose names are not known yet: no pod starts before they are.
    pub unnamed: BTreeSet<Entity>,
    /// Relists that found a difference.
    pub changes: u64,
    /// Relists done.
    pub relists: u64,
}

// === pod: what is being done ===

/// What is under way for a pod, and what was found out by doing it.
#[derive(Component, Default, Debug)]
pub struct Flow {
    /// Works of the pod itself under way, in the order they were emitted.
    pub in_flight: Vec<(Ticket, Step)>,
    /// Directories, volumes and cgroup are there.
    pub prepared: bool,
    /// Highest log attempt per container at preparation.
    pub log_attempts: Vec<(Arc<str>, u32)>,
    /// This process made a sandbox for the pod.
    pub made_sandbox: bool,
    /// Last thing that went wrong for the pod as a whole: (reason, message).
    pub error: Option<(&'static str, String)>,
    /// Do nothing for the pod before this, after an error.
    pub retry_at: Option<Mono>,
    /// Consecutive errors.
    pub failures: u32,
    /// What the stage wants removed is removed: volumes and cgroup of a finished pod.
    pub cleaned: bool,
    /// Everything is removed: sandboxes, containers, logs, directories. Only for pods that no source has.
    pub buried: bool,
    /// Sandboxes already stopped by us.
    pub stopped_sandboxes: BTreeSet<SandboxId>,
    /// Containers for which a stop was asked, with the time at which the runtime kills them at the latest.
    pub stopping: BTreeMap<ContainerId, Mono>,
    /// Containers that are ended while the pod lives on.
    pub kills: BTreeMap<ContainerId, Kill>,
    /// Hooks of running containers, the last one of each.
    pub hooks: BTreeMap<ContainerId, HookRun>,
    /// Objects made by us since the last inspection.
    pub new_sandboxes: Vec<SandboxId>,
    /// See `new_sandboxes`.
    pub new_containers: Vec<(ContainerId, SandboxId)>,
    /// Version of the inspection that was known when the newest of them was made.
    pub new_since: u64,
    /// Last notable thing, for the live table.
    pub last_event: Arc<str>,
    /// What is to be told the cluster; any domain notes, `systems::events` empties it.
    pub events: crate::events::PodEvents,
    /// Instances whose end was told.
    pub told_ends: BTreeSet<ContainerId>,
    /// Why instances end although their pod lives on, until that is told.
    pub kill_reasons: BTreeMap<ContainerId, String>,
    /// Limits of the pod's cgroup as they were set last.
    pub limits: PodLimits,
    /// A resize that is being brought into force.
    pub resize: Option<Box<ResizeFlow>>,
}

/// Limits of a pod's cgroup; `None` where nothing was set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PodLimits {
    /// `cpu.shares`.
    pub shares: Option<u64>,
    /// CFS quota in microseconds.
    pub quota: Option<i64>,
    /// Memory in bytes.
    pub memory: Option<i64>,
}

/// Memory in use: of a pod, and of some of its containers.
pub type MemoryUse = (Option<u64>, Vec<Option<u64>>);

/// How far a resize has come.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ResizeFlow {
    /// Generation of the pod that it brings into force.
    pub generation: i64,
    /// What went wrong last.
    pub error: Option<String>,
    /// Nothing is tried before this, after an error.
    pub retry_at: Option<Mono>,
    /// What is used of memory was compared with lower limits.
    pub checked: bool,
    /// What was found to be used: of the pod, and of the containers that were asked for.
    pub memory: Option<MemoryUse>,
    /// Something came into force that is not recorded.
    pub unrecorded: bool,
}

/// Kind of a piece of work under way for a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// `PreparePod`.
    PreparePod,
    /// `RunSandbox`.
    RunSandbox,
    /// `StopSandbox`.
    StopSandbox(SandboxId),
    /// `RemoveSandbox`.
    RemoveSandbox(SandboxId),
    /// `CleanPod`; true when everything goes, logs too.
    CleanPod(bool),
    /// `FindImage` for a container index.
    FindImage(u16),
    /// `PullImage` for a container index.
    PullImage(u16),
    /// `PrepareContainer` for a container index.
    PrepareContainer(u16),
    /// `ReadEnvFiles` for a container index.
    ReadEnvFiles(u16),
    /// `CreateContainer` for a container index.
    CreateContainer(u16),
    /// `StartContainer` for a container index.
    StartContainer(u16, ContainerId),
    /// `StopContainer`.
    StopContainer(ContainerId),
    /// `RemoveContainer`.
    RemoveContainer(ContainerId),
    /// A hook of a container index.
    RunHook(u16, ContainerId, HookKind),
    /// `RemoveLogs` of a container that is removed next.
    RemoveLogs(ContainerId),
    /// `SetUpVolume` for a volume index.
    SetUpVolume(u16),
    /// `FindImage` for the image of a volume index.
    FindVolumeImage(u16),
    /// `PullImage` for the image of a volume index.
    PullVolumeImage(u16),
    /// `SetCgroups` with new limits of the pod.
    LimitPod(PodLimits),
    /// `UpdateContainer` of a container index, to this size.
    UpdateContainer(u16, ContainerId, Size),
    /// `ReadMemory` before limits of memory become lower.
    ReadMemory,
    /// A pull intent of a container index.
    WriteIntent(u16),
    /// The same for the image of a volume index.
    WriteVolumeIntent(u16),
    /// Comparison of the logins of a container index with those that its image is recorded with.
    CompareLogins(u16),
}

/// A container's entity belongs to its pod's.
#[derive(Component, Debug)]
#[relationship(relationship_target = PodContainers)]
pub struct ContainerOf(pub Entity);

/// The containers of a pod, in spec order.
#[derive(Component, Debug, Default)]
#[relationship_target(relationship = ContainerOf, linked_spawn)]
pub struct PodContainers(Vec<Entity>);

impl PodContainers {
    /// Entities in spec order.
    #[must_use]
    pub fn entities(&self) -> &[Entity] {
        &self.0
    }
}

/// What is known of one container besides what the runtime shows.
#[derive(Component, Default, Debug, Clone)]
pub struct ContainerRun {
    /// Index in the pod spec.
    pub index: u16,
    /// Restart back-off.
    pub backoff: Backoff,
    /// The ended instance whose restart the back-off has let through.
    pub cleared: Option<ContainerId>,
    /// The instance that was stopped to be replaced: its successor is started whatever its exit code says.
    pub replaced: Option<ContainerId>,
    /// Image pull back-off.
    pub pull_backoff: Backoff,
    /// Last pull error, for the back-off message.
    pub pull_error: String,
    /// How far the pull has come with the logins that there are.
    pub pull: crate::registry::PullTries,
    /// What a comparison of its logins with recorded ones has shown.
    pub compared: Option<crate::edge::host::pulls::Compared>,
    /// Do nothing for this container before that, after an error that is no back-off.
    pub retry_at: Option<Mono>,
    /// Why it waits: (reason, message).
    pub waiting: Option<(&'static str, String)>,
    /// Version of what its pod refers to when it last could not be described.
    pub refused: Option<u64>,
    /// Restart count of the attempt being made.
    pub attempt: u32,
    /// Image of the attempt being made, as found.
    pub image: Option<crate::edge::cri::FoundImage>,
    /// Values of environment files for the attempt being made, in the order of its variables.
    pub env_files: Option<Vec<Result<Option<Sensitive>, String>>>,
    /// How far the attempt being made has come.
    pub progress: Progress,
    /// What is in force for the newest instance; `None` before it was made or noted.
    pub size: Option<Size>,
}

/// How far a container attempt has come.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Nothing is being made.
    #[default]
    Idle,
    /// The image is not here.
    ImageAbsent,
    /// The image must be pulled.
    ImageMissing,
    /// The image was pulled and has to be found.
    ImagePulled,
    /// The image is here (`ContainerRun::image`); whether the pod may use it is not known yet.
    ImageFound,
    /// The image is here (`ContainerRun::image`) and may be used.
    ImageReady,
    /// The container exists and is to be started.
    Created(ContainerId),
}

/// Exponential back-off state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    /// Current delay in nanoseconds; zero before the first.
    pub delay_nanos: u64,
    /// When the delay last grew.
    pub updated: Mono,
    /// Nothing happens before this.
    pub until: Option<Mono>,
}

/// The status last computed for a pod.
#[derive(Component, Default, Debug)]
pub struct Reported {
    /// The status.
    pub status: Arc<PodStatus>,
    /// Counts changes.
    pub version: u64,
    /// A terminal phase that was reached; never changes again.
    pub terminal: Option<bool>,
}

// === node ===

/// What the runtime said of itself, and when.
#[derive(Resource, Default, Debug)]
pub struct RuntimeHealth {
    /// Last answer.
    pub info: Option<Arc<RuntimeInfo>>,
    /// What its handlers can do, by name.
    pub handlers: Arc<[crate::edge::cri::RuntimeHandler]>,
    /// It acts on `supplementalGroupsPolicy`; `None` when it does not say.
    pub supplemental_groups: Option<bool>,
    /// When `RuntimeReady` was last seen true.
    pub ready_seen: Option<Mono>,
    /// The question under way.
    pub asking: Option<Ticket>,
    /// Last problem, so that it is logged once.
    pub problem: Option<String>,
}

/// Where a graceful shutdown of the node stands.
#[derive(Resource, Default, Debug)]
pub struct NodeShutdown {
    /// When it began; `None` while there is none.
    pub began: Option<Mono>,
    /// The same by the wall clock.
    pub started: Wall,
    /// The band whose pods end now; the ones before are over.
    pub band: usize,
    /// When that band began.
    pub band_began: Mono,
    /// All bands are over.
    pub done: bool,
}

/// The node is being drained.
#[derive(Resource, Default, Debug)]
pub struct Draining {
    /// Drain was requested, with this bound on grace periods.
    pub requested: Option<Option<u32>>,
}
