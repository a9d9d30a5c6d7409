//! What must hold whatever goes wrong, checked after every tick, call and change: the invariants of the design.
//!
//! Reads the world, the runtime and every work; writes only its own list of violations.

mod order;
mod probes;
mod restarts;
mod terminal;
mod wanted;
mod works;

use crate::node::Options;
use crate::node::sources::Content;
use crate::recorder::Recorder;
use crate::runtime::Runtime;
use crate::runtime::model::RuntimeEvent;
use components::edge::cri::{ContainerChange, SandboxState};
use components::ids::{ContainerId, PodUid, SandboxId, Ticket};
use components::time::Mono;
use engine::InvariantCount;
use restarts::Restarts;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use terminal::Terminal;
use wanted::Wanted;

/// Violations kept; a broken run makes many.
const KEPT: usize = 8;

/// An invariant that did not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// When.
    pub at: Mono,
    /// What, with names.
    pub text: String,
}

/// The checkers and what they remember.
#[derive(Debug)]
pub struct Checks {
    /// What was violated, first things first.
    pub violations: Vec<Violation>,
    /// Inputs and decisions, when they are kept.
    pub recorder: Recorder,
    wanted: Wanted,
    terminal: Terminal,
    restarts: Restarts,
    tickets: BTreeSet<Ticket>,
    graces: BTreeMap<ContainerId, u32>,
    endings: BTreeMap<PodUid, (Mono, u32)>,
    admitted: BTreeSet<PodUid>,
    finished: BTreeMap<PodUid, bool>,
    /// Pods whose remains were removed and not made again.
    cleaned: BTreeSet<PodUid>,
    /// Running containers that a restart of the agent must leave alone.
    protected: BTreeMap<ContainerId, (PodUid, SandboxId)>,
    /// Change count of its pod's manifest when each container was made.
    made_at: BTreeMap<ContainerId, u64>,
    /// Containers whose start took effect after nobody waited for it any more: none can give them their grace.
    started_late: BTreeSet<ContainerId>,
    draining: bool,
}

impl Checks {
    /// Checkers for a node.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            violations: Vec::new(),
            recorder: Recorder::default(),
            wanted: Wanted::new(&options.config),
            terminal: Terminal::default(),
            restarts: Restarts::new(options.config.max_restart_period),
            tickets: BTreeSet::new(),
            graces: BTreeMap::new(),
            endings: BTreeMap::new(),
            admitted: BTreeSet::new(),
            finished: BTreeMap::new(),
            cleaned: BTreeSet::new(),
            protected: BTreeMap::new(),
            made_at: BTreeMap::new(),
            started_late: BTreeSet::new(),
            draining: false,
        }
    }

    /// Notes a violation.
    pub fn violate(&mut self, text: impl Into<String>, at: Mono) {
        if self.violations.len() < KEPT {
            self.violations.push(Violation { at, text: text.into() });
        }
    }

    /// Uids that the manifests want now, where they name them.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<PodUid> {
        self.wanted.uids()
    }

    /// The agent starts: what runs well now must be left alone.
    pub fn on_boot(&mut self, runtime: &Runtime) {
        self.tickets.clear();
        self.graces.clear();
        self.endings.clear();
        self.restarts.forget();
        self.wanted.forget_told();
        self.protected.clear();
        for container in runtime.containers().values() {
            let ready: Vec<&SandboxId> = runtime
                .sandboxes_of(&container.pod)
                .filter(|s| s.state == SandboxState::Ready)
                .map(|s| &s.id)
                .collect();
            let as_made = self.made_at.get(&container.id).copied() == self.wanted.changes(&container.pod);
            let request = &container.request;
            let main = self.wanted.wants(&container.pod, &request.name, &request.user_image);
            let alone = ready == [&container.sandbox];
            let lives = !self.finished.contains_key(&container.pod) && !self.draining;
            let lives = lives && !self.wanted.limited(&container.pod);
            if runtime.is_running(&container.id) && as_made && main && alone && lives {
                let value = (container.pod.clone(), container.sandbox.clone());
                self.protected.insert(container.id.clone(), value);
            }
        }
    }

    /// The manifests changed.
    pub fn on_manifests(&mut self, files: &Content, url: &Content) {
        let changed = self.wanted.update(files, url);
        self.protected.retain(|_, (pod, _)| !changed.contains(pod));
        for uid in &changed {
            self.restarts.reset(uid);
        }
    }

    /// The API server may have other pods for this node.
    pub fn on_bound(&mut self, pods: Vec<Arc<str>>, files: &Content, url: &Content) {
        if self.wanted.bind(pods) {
            self.on_manifests(files, url);
        }
    }

    /// The node is drained: everything may be stopped.
    pub fn on_drain(&mut self) {
        self.draining = true;
        self.protected.clear();
    }

    /// Something changed in the runtime.
    pub fn after_change(&mut self, runtime: &Runtime, events: &[RuntimeEvent], now: Mono) {
        for event in events {
            let is_sandbox = runtime.sandboxes().contains_key(&SandboxId(Arc::clone(&event.id.0)));
            match event.change {
                ContainerChange::Created if is_sandbox => {
                    self.protected.retain(|_, (pod, _)| *pod != event.pod);
                    self.restarts.reset(&event.pod);
                }
                ContainerChange::Created => {
                    let changes = self.wanted.changes(&event.pod).unwrap_or(0);
                    self.made_at.insert(event.id.clone(), changes);
                }
                ContainerChange::Stopped | ContainerChange::Deleted => {
                    self.protected.remove(&event.id);
                    self.protected.retain(|_, (_, sandbox)| sandbox.0 != event.id.0);
                }
                ContainerChange::Started => {}
            }
            if let Some(container) = runtime.containers().get(&event.id)
                && let Err(text) = self.restarts.event(container, event.change, now)
            {
                self.violate(text, now);
            }
        }
    }

    /// The engine counted a broken invariant of its own.
    fn check_engine(&mut self, broken: &InvariantCount, now: Mono) {
        if broken.0 > 0 {
            self.violate("the engine found an invariant of its own broken", now);
        }
    }
}
