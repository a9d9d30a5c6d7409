//! A whole node in virtual time: the engine with its systems, the simulated runtime, host and sources behind the
//! edge enums, a journal that survives crashes, faults, and checks after every tick.
//!
//! Nothing here waits: time jumps from one event to the next. Equal seeds give equal runs.

mod api;
pub mod bridge;
pub mod faults;
pub mod host;
pub mod lanes;
mod options;
pub mod probes;
pub mod pulls;
pub mod sources;
mod works;

pub use options::Options;
pub(crate) use options::object;

use crate::api::{ApiServer, WatchState};
use crate::checks::Checks;
use crate::node::faults::{CommitFate, Faults};
use crate::node::host::Host;
use crate::node::lanes::Lanes;
use crate::node::probes::Moods;
use crate::node::sources::Content;
use crate::node::works::Flying;
use crate::runtime::Runtime;
use components::edge::control::ControlIngress;
use components::edge::cri::{ContainerState, CriEffect, CriIngress, SandboxState};
use components::edge::sources::{Source, SourcesIngress};
use components::edge::store::{Record, StoreIngress};
use components::edge::{Completion, Ingress, Outcome};
use components::hooks::HookKind;
use components::ids::{ContainerId, PodUid, SandboxId, Ticket};
use components::node::Boot;
use components::planted::Planted;
use components::snapshot::{PodView, Snapshot};
use components::status::ConditionKind;
use components::time::{Mono, Now, Wall};
use components::world::{ContainerRun, Desired, Flow, Lifecycle, Observed, PodContainers, PodIndex};
use engine::{Engine, TickOutput};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// Wall time at the start of a run: 2026-01-01T00:00:00Z.
const WALL_START: i64 = 1_767_225_600_000_000_000;
/// A file change is noticed after this long.
const TOUCH_DELAY: Duration = Duration::from_millis(2);
/// Ticks at one instant from which on the core is taken to run in circles.
const CIRCLE: u32 = 1000;

/// Something that will happen.
#[derive(Debug)]
enum Event {
    /// A work takes effect.
    Apply(Ticket),
    /// A work is answered.
    Answer(Ticket),
    /// A work's time is over.
    Deadline(Ticket),
    /// A call takes effect although nobody waits for its answer any more.
    Late(Box<CriEffect>),
    /// A fact reaches the agent, if it still runs.
    Fact(u64, Ingress),
    /// A fact of the event stream with this number.
    StreamFact(u64, Ingress),
    /// The API server ends a watch.
    EndWatch(Ticket),
    /// The agent starts.
    Boot,
    /// The agent dies.
    Crash,
}

/// One line of what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// When.
    pub at: Mono,
    /// What.
    pub text: String,
}

/// The node.
pub struct Node {
    /// As made.
    pub options: Options,
    /// The runtime.
    pub runtime: Runtime,
    /// The host.
    pub host: Host,
    /// The manifest directory.
    pub files: Content,
    /// The manifest URL.
    pub url: Content,
    /// The API server.
    pub api: ApiServer,
    /// What goes wrong.
    pub faults: Faults,
    /// How targets of probes answer.
    pub moods: Moods,
    /// What must hold.
    pub checks: Checks,
    /// Durable records, oldest first.
    pub journal: Vec<Record>,
    /// What happened, if asked for.
    pub log: Vec<LogLine>,
    /// Ticks run since the start, over all runs of the agent.
    pub ticks: u64,
    /// The agent was started this often.
    pub boots: u64,
    engine: Option<Engine>,
    snapshot: Arc<Snapshot>,
    now: Mono,
    wall_offset: i64,
    sequence: u64,
    events: BTreeMap<(Mono, u64), Event>,
    lanes: Lanes,
    flying: BTreeMap<Ticket, Flying>,
    batch: Vec<Ingress>,
    /// Watches that were accepted, by the ticket of their work.
    watches: BTreeMap<Ticket, WatchState>,
    /// Number of the open event stream.
    stream: Option<u64>,
    streams: u64,
    down_until: Mono,
    ticks_now: u32,
    /// Condition Ready of each pod as logged last.
    shown_ready: BTreeMap<String, String>,
}

impl Node {
    /// A node whose agent starts at once.
    #[must_use]
    pub fn new(options: Options, faults: Faults) -> Self {
        let mut runtime = Runtime::new(options.seed, false);
        for image in &options.images {
            runtime.images.add(image);
        }
        let mut node = Self {
            checks: Checks::new(&options),
            runtime,
            host: Host { log_rate: options.log_rate, ..Host::default() },
            files: Content::default(),
            url: Content::default(),
            api: ApiServer::default(),
            faults,
            moods: Moods::default(),
            journal: Vec::new(),
            log: Vec::new(),
            ticks: 0,
            boots: 0,
            engine: None,
            snapshot: Arc::default(),
            now: Mono(0),
            wall_offset: WALL_START,
            sequence: 0,
            events: BTreeMap::new(),
            lanes: Lanes::default(),
            flying: BTreeMap::new(),
            batch: Vec::new(),
            watches: BTreeMap::new(),
            stream: None,
            streams: 0,
            down_until: Mono(0),
            ticks_now: 0,
            shown_ready: BTreeMap::new(),
            options,
        };
        node.at(Mono(0), Event::Boot);
        node
    }

    // === time ===

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        let mono = i64::try_from(self.now.0).unwrap_or(i64::MAX);
        Now { mono: self.now, wall: Wall(self.wall_offset.saturating_add(mono)) }
    }

    /// Runs until nothing more happens at or before `until`.
    pub fn run_until(&mut self, until: Mono) {
        while self.step(until) {}
        if self.now < until {
            self.move_to(until);
        }
    }

    /// Jumps to the next thing that happens at or before `until`; false when there is none.
    pub fn step(&mut self, until: Mono) -> bool {
        let deadline = self.engine.as_ref().and_then(Engine::next_deadline);
        let carried = (self.engine.is_some() && !self.batch.is_empty()).then_some(self.now);
        let next = [self.events.keys().next().map(|(at, _)| *at), self.runtime.next_due(), deadline, carried];
        let Some(next) = next.into_iter().flatten().min().filter(|n| *n <= until) else {
            return false;
        };
        self.move_to(next.max(self.now));
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > self.now {
                break;
            }
            let event = entry.remove();
            self.happen(event);
            self.settle_runtime();
        }
        let due = self.engine.as_ref().and_then(Engine::next_deadline).is_some_and(|at| at <= self.now);
        if self.engine.is_some() && (due || !self.batch.is_empty()) {
            self.tick();
        }
        true
    }

    fn move_to(&mut self, at: Mono) {
        if at > self.now {
            self.now = at;
            self.ticks_now = 0;
        }
        self.runtime.advance(self.now());
        self.settle_runtime();
    }

    fn at(&mut self, at: Mono, event: Event) {
        self.sequence += 1;
        self.events.insert((at, self.sequence), event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Apply(ticket) => self.apply(ticket),
            Event::Answer(ticket) => self.answer(ticket),
            Event::Deadline(ticket) => self.run_out(ticket),
            Event::Late(effect) => {
                self.note(|n| format!("late {}", n.describe_cri(&effect)));
                self.checks.before_call(&self.runtime, None, &effect, self.now);
                let now = self.now();
                let _ = bridge::call(&mut self.runtime, now, &effect);
            }
            Event::Fact(boot, fact) if boot == self.boots => self.batch.push(fact),
            Event::StreamFact(stream, fact) if Some(stream) == self.stream => self.batch.push(fact),
            Event::Fact(..) | Event::StreamFact(..) => {}
            Event::EndWatch(ticket) => self.end_watch(ticket, "the server ended it"),
            Event::Boot => self.boot(),
            Event::Crash if self.engine.is_some() => self.crash(Duration::from_millis(100)),
            Event::Crash => {}
        }
    }

    /// Passes on what the runtime says and ends stops whose container has ended.
    fn settle_runtime(&mut self) {
        let events = self.runtime.take_events();
        for event in &events {
            self.note(|_| format!("event {:?} {}", event.change, event.id));
            let Some(stream) = self.stream else { continue };
            let fact = bridge::event(&self.runtime, event, self.options.event_statuses);
            for delay in self.faults.event(self.now) {
                self.at(self.now.after(delay), Event::StreamFact(stream, Ingress::Cri(fact.clone())));
            }
        }
        if !events.is_empty() {
            self.checks.after_change(&self.runtime, &events, self.now);
            self.end_stops();
        }
    }

    // === the agent ===

    fn boot(&mut self) {
        self.boots += 1;
        self.note(|_| "boot".into());
        let boot = Boot {
            config: self.options.config.clone(),
            machine: self.options.machine.clone(),
            records: self.journal.clone(),
            seed: self.options.seed,
            tickets: 0,
        };
        self.checks.on_boot(&self.runtime);
        self.checks.recorder.boot(&boot);
        let mut engine = Engine::new(boot);
        (self.options.plugin)(&mut engine);
        if self.options.bug.is_some() {
            engine.world_mut().insert_resource(Planted(self.options.bug));
        }
        self.engine = Some(engine);
        self.tick();
    }

    /// The agent dies now and starts again after `pause`. What it had asked for may still be done.
    pub fn crash(&mut self, pause: Duration) {
        self.note(|_| "crash".into());
        self.engine = None;
        self.batch.clear();
        self.stream = None;
        self.watches.clear();
        self.host.keys.clear();
        self.lanes = Lanes::default();
        self.files.forget();
        self.url.forget();
        for flying in std::mem::take(&mut self.flying).into_values() {
            self.abandon(flying);
        }
        self.at(self.now.after(pause), Event::Boot);
    }

    fn tick(&mut self) {
        let now = self.now();
        let Some(engine) = self.engine.as_mut() else { return };
        let batch = std::mem::take(&mut self.batch);
        self.checks.recorder.tick(now, &batch);
        self.checks.on_batch(&batch);
        let output = engine.tick(now, batch);
        self.checks.recorder.output(&output);
        self.ticks += 1;
        self.ticks_now += 1;
        if self.ticks_now > CIRCLE {
            self.checks.violate("the core runs in circles: its deadlines do not move on", self.now);
        }
        self.take_output(output);
        if let Some(engine) = self.engine.as_ref() {
            self.checks.after_tick(engine.world(), self.now);
        }
    }

    fn take_output(&mut self, output: TickOutput) {
        if !output.durable.is_empty() {
            match self.faults.commit(self.now) {
                CommitFate::Written => self.commit(output.durable),
                CommitFate::Refused => return self.refuse_commit(output),
                CommitFate::CrashBefore => return self.crash(Duration::from_millis(100)),
                CommitFate::CrashAfter => {
                    self.commit(output.durable);
                    return self.crash(Duration::from_millis(100));
                }
            }
        }
        for ticket in output.cancels {
            self.cancel(ticket);
        }
        for work in output.works {
            let world = self.engine.as_ref().map(Engine::world);
            self.checks.on_work(&work, world, &self.runtime, self.now);
            self.submit(work);
        }
        self.checks.on_publish(&self.snapshot, &output.snapshot, &self.runtime, self.now);
        self.note_ready(&output.snapshot);
        self.snapshot = output.snapshot;
    }

    fn commit(&mut self, records: Vec<Record>) {
        for record in &records {
            self.note(|_| format!("commit {record:?}"));
        }
        self.checks.on_commit(&records);
        self.journal.extend(records);
    }

    fn refuse_commit(&mut self, output: TickOutput) {
        self.note(|_| "commit refused".into());
        self.checks.on_refused(&output.durable);
        // Carried into the next tick, before anything else.
        for work in output.works {
            self.checks.on_ticket(work.ticket, self.now);
            let cancelled = Completion { ticket: work.ticket, outcome: Outcome::Cancelled };
            self.batch.push(Ingress::Completed(cancelled));
        }
        let message = "no space left on device".into();
        self.batch.push(Ingress::Store(StoreIngress::CommitFailed { records: output.durable, message }));
        for ticket in output.cancels {
            self.cancel(ticket);
        }
    }

    fn fact(&mut self, delay: Duration, fact: Ingress) {
        self.at(self.now.after(delay), Event::Fact(self.boots, fact));
    }

    // === what a script does ===

    /// Puts a manifest (JSON of a pod) into the directory or the URL.
    pub fn put(&mut self, source: Source, origin: &str, json: &str) {
        self.note(|_| format!("put {origin}"));
        self.content(source).put(origin, json);
        self.touched(source);
    }

    /// Makes a manifest unusable.
    pub fn spoil(&mut self, source: Source, origin: &str, problem: &str) {
        self.note(|_| format!("spoil {origin}"));
        self.content(source).spoil(origin, problem);
        self.touched(source);
    }

    /// Takes a manifest out of the directory or the URL.
    pub fn remove(&mut self, source: Source, origin: &str) {
        self.note(|_| format!("remove {origin}"));
        self.content(source).remove(origin);
        self.checks.on_manifests(&self.files, &self.url);
        let gone = SourcesIngress::ManifestsRemoved { origins: vec![origin.into()] };
        self.told(source, gone);
    }

    fn content(&mut self, source: Source) -> &mut Content {
        if source == Source::Http { &mut self.url } else { &mut self.files }
    }

    fn touched(&mut self, source: Source) {
        self.checks.on_manifests(&self.files, &self.url);
        self.told(source, SourcesIngress::ManifestsTouched);
    }

    fn told(&mut self, source: Source, fact: SourcesIngress) {
        if source == Source::File && self.options.watch {
            self.fact(TOUCH_DELAY, Ingress::Sources(fact));
        }
    }

    /// A shutdown of the node is announced, or called off.
    pub fn shut_down(&mut self, announced: bool) {
        self.checks.on_drain();
        let fact = if announced { ControlIngress::ShutdownAnnounced } else { ControlIngress::ShutdownCancelled };
        self.fact(TOUCH_DELAY, Ingress::Control(fact));
    }

    /// Asks the agent to end all pods.
    pub fn drain(&mut self, grace_seconds: Option<u32>) {
        self.checks.on_drain();
        self.fact(TOUCH_DELAY, Ingress::Control(ControlIngress::DrainRequested { grace_seconds }));
    }

    /// A running container of this pod ends with `code`; false when none runs.
    pub fn kill(&mut self, pod: &str, container: Option<&str>, code: i32) -> bool {
        let ids = self.running(pod, container);
        for id in &ids {
            self.note(|_| format!("kill {pod} {id}"));
            self.runtime.kill_container(self.now(), id, code);
        }
        self.settle_runtime();
        !ids.is_empty()
    }

    /// The ready sandboxes of this pod die; false when there is none.
    pub fn lose_sandbox(&mut self, pod: &str) -> bool {
        let ready = self.runtime.sandboxes().values().filter(|s| s.state == SandboxState::Ready);
        let ids: Vec<SandboxId> = ready
            .filter(|s| self.pod_name(&s.request.namespace, &s.request.name) == pod)
            .map(|s| s.id.clone())
            .collect();
        for id in &ids {
            self.note(|_| format!("lose {pod} {id}"));
            self.runtime.lose_sandbox(self.now(), id);
        }
        self.settle_runtime();
        !ids.is_empty()
    }

    /// Someone removes everything of this pod from the runtime; false when there is nothing.
    pub fn prune(&mut self, pod: &str) -> bool {
        let all = self.runtime.sandboxes().values();
        let own = all.filter(|s| self.pod_name(&s.request.namespace, &s.request.name) == pod);
        let ids: Vec<SandboxId> = own.map(|s| s.id.clone()).collect();
        for id in &ids {
            self.note(|_| format!("prune {pod} {id}"));
            let now = self.now();
            // It was there a moment ago.
            let _ = self.runtime.remove_sandbox(now, id);
        }
        self.settle_runtime();
        !ids.is_empty()
    }

    /// The machine goes down and comes up again: every process ends, the agent starts anew.
    pub fn reboot(&mut self, pause: Duration) {
        self.note(|_| "reboot".into());
        let running: Vec<ContainerId> = self
            .runtime
            .containers()
            .values()
            .filter(|c| c.state == ContainerState::Running)
            .map(|c| c.id.clone())
            .collect();
        let sandboxes: Vec<SandboxId> = self.runtime.sandboxes().keys().cloned().collect();
        self.crash(pause);
        for id in &running {
            self.runtime.kill_container(self.now(), id, 255);
        }
        for id in &sandboxes {
            self.runtime.lose_sandbox(self.now(), id);
        }
        self.settle_runtime();
    }

    /// The runtime restarts: containers live on, every call fails for `pause`, the event stream ends.
    pub fn restart_runtime(&mut self, pause: Duration) {
        self.note(|_| "runtime restart".into());
        self.down_until = self.down_until.max(self.now.after(pause));
        self.close_events();
        self.fail_calls();
    }

    /// The runtime loses everything, as when its state is wiped.
    pub fn wipe_runtime(&mut self) {
        self.note(|_| "runtime wiped".into());
        let all: Vec<SandboxId> = self.runtime.sandboxes().keys().cloned().collect();
        for id in all {
            // Only a missing sandbox is refused.
            let _ = self.runtime.remove_sandbox(self.now(), &id);
        }
        self.settle_runtime();
    }

    /// Directories of a pod that no source and no runtime knows are on the host.
    pub fn ghost(&mut self, uid: &str) {
        self.note(|_| format!("ghost {uid}"));
        let config = &self.options.config;
        for path in ["", "/volumes", "/volumes/kubernetes.io~empty-dir"] {
            self.host.paths.insert(format!("{}/pods/{uid}{path}", config.root_dir));
        }
        let log = format!("{}/default_ghost_{uid}/c/0.log", config.pod_logs_dir);
        self.host.logged(&log);
    }

    /// The event stream ends.
    pub fn close_events(&mut self) {
        if self.stream.take().is_some() {
            let closed = CriIngress::EventsClosed { unsupported: false, message: "stream ended".into() };
            self.fact(Duration::from_millis(1), Ingress::Cri(closed));
        }
    }

    /// The wall clock steps; nothing else does.
    pub fn step_wall(&mut self, nanos: i64) {
        self.note(|_| format!("wall clock steps by {} s", nanos / 1_000_000_000));
        self.wall_offset = self.wall_offset.saturating_add(nanos);
    }

    // === reading ===

    /// The pods as published last.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The pod of this `namespace/name` as published last; of several the one that is not queued.
    #[must_use]
    pub fn view(&self, pod: &str) -> Option<&Arc<PodView>> {
        let of_name = self.snapshot.pods().filter(|p| self.pod_name(&p.namespace, &p.name) == pod);
        of_name.min_by_key(|p| (p.stage == components::world::Stage::Queued, p.spec.is_none()))
    }

    /// Running containers of a pod.
    #[must_use]
    pub fn running(&self, pod: &str, container: Option<&str>) -> Vec<ContainerId> {
        let sandboxes = self.runtime.sandboxes();
        let of_pod = |id: &SandboxId| {
            sandboxes.get(id).is_some_and(|s| self.pod_name(&s.request.namespace, &s.request.name) == pod)
        };
        let all = self.runtime.containers().values().filter(|c| c.state == ContainerState::Running);
        all.filter(|c| container.is_none_or(|name| c.request.name == name) && of_pod(&c.sandbox))
            .map(|c| c.id.clone())
            .collect()
    }

    /// `namespace/name` of a pod without the node's name that static pods get appended.
    #[must_use]
    pub fn pod_name(&self, namespace: &str, name: &str) -> String {
        let suffix = format!("-{}", self.options.config.node_name);
        format!("{namespace}/{}", name.strip_suffix(suffix.as_str()).unwrap_or(name))
    }

    /// Logs each pod's condition Ready with its time, when it is not as shown before.
    fn note_ready(&mut self, after: &Snapshot) {
        if !self.options.log {
            return;
        }
        let ready = |pods: &Snapshot| -> BTreeMap<String, String> {
            let of = |p: &Arc<PodView>| {
                let c = p.status.conditions.iter().find(|c| c.kind == ConditionKind::Ready)?;
                Some((self.pod_name(&p.namespace, &p.name), format!("{} since {}", c.status, c.since.rfc3339())))
            };
            pods.pods().filter_map(of).collect()
        };
        let changed: Vec<_> =
            ready(after).into_iter().filter(|(pod, now)| self.shown_ready.get(pod) != Some(now)).collect();
        for (pod, now) in changed {
            self.note(|_| format!("ready {pod} {now}"));
            self.shown_ready.insert(pod, now);
        }
    }

    /// True while the answer of a hook that follows a start is waited for.
    #[must_use]
    pub fn awaits_post_start(&self, uid: &PodUid) -> bool {
        let Some(world) = self.engine.as_ref().map(Engine::world) else { return false };
        let entity = world.get_resource::<PodIndex>().and_then(|index| index.by_uid.get(uid)).copied();
        let flow = entity.and_then(|entity| world.get::<Flow>(entity));
        flow.is_some_and(|flow| flow.hooks.values().any(|h| h.kind == HookKind::PostStart && h.state.is_pending()))
    }

    /// What the core holds of each pod, for messages.
    #[must_use]
    pub fn describe_pods(&self) -> String {
        let Some(world) = self.engine.as_ref().map(Engine::world) else { return "the agent is down".into() };
        let mut out = String::new();
        for (uid, entity) in world.get_resource::<PodIndex>().iter().flat_map(|i| &i.by_uid) {
            let life = world.get::<Lifecycle>(*entity).map(|l| (l.stage, l.ending.clone()));
            let desired = world.get::<Desired>(*entity);
            let wish = desired.map(|d| (d.spec.is_some(), d.removed, d.successor.is_some()));
            let observed = world.get::<Observed>(*entity);
            let look = observed.map(|o| (o.version, o.inspecting, o.stale, o.list, o.failures));
            let _ = writeln!(
                out,
                "  {uid}: {life:?}, (spec, removed, successor) {wish:?}, (version, inspecting, stale, list, failures) {look:?}"
            );
            let _ = writeln!(out, "    {:?}", world.get::<Flow>(*entity));
            for run in world.get::<PodContainers>(*entity).iter().flat_map(|c| c.entities()) {
                let _ = writeln!(out, "    {:?}", world.get::<ContainerRun>(*run));
            }
            for s in self.runtime.sandboxes_of(uid) {
                let _ = writeln!(out, "    sandbox {} attempt {} {:?}", s.id, s.request.attempt, s.state);
            }
            for c in self.runtime.containers_of(uid) {
                let _ = writeln!(
                    out,
                    "    container {} {} attempt {} in {} {:?} {}",
                    c.id, c.request.name, c.request.attempt, c.sandbox, c.state, c.exit_code
                );
            }
        }
        out
    }

    /// Works under way or waiting, the opening of the event stream and watches not counted.
    #[must_use]
    pub fn busy(&self) -> usize {
        self.flying.len() - self.watches.len() + self.lanes.waiting()
    }

    /// True while the agent runs.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.engine.is_some()
    }

    /// The engine, while the agent runs.
    #[must_use]
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    fn name_of(&self, uid: &PodUid) -> String {
        let spec = self.engine.as_ref().and_then(|engine| {
            let world = engine.world();
            let entity = *world.get_resource::<PodIndex>()?.by_uid.get(uid)?;
            world.get::<Desired>(entity)?.spec.clone()
        });
        if let Some(spec) = spec {
            return self.pod_name(&spec.namespace, &spec.name);
        }
        let sandbox = self.runtime.sandboxes_of(uid).next();
        sandbox.map_or_else(|| uid.to_string(), |s| self.pod_name(&s.request.namespace, &s.request.name))
    }

    fn note(&mut self, text: impl FnOnce(&Self) -> String) {
        if self.options.log {
            let text = text(self);
            self.log.push(LogLine { at: self.now, text });
        }
    }
}
