//! Removing ended containers with their logs, and stopped sandboxes that hold nothing.

use super::super::steps::{HOST_TIMEOUT, Next, whole_pod};
use super::Pod;
use crate::links;
use components::edge::Effect;
use components::edge::cri::{ContainerState, ContainerStatus, CriEffect, PodInspection, SandboxState};
use components::edge::host::HostEffect;
use components::edge::host::reclaim::RemoveLogs;
use components::ids::{ContainerId, SandboxId};
use components::world::{Removals, Stage, Step};
use std::sync::Arc;

impl Pod<'_, '_> {
    /// Carries out what the collection asked for, as far as it still holds.
    pub(super) fn collect(&mut self, removals: &Removals) {
        if !matches!(self.life.stage, Stage::Syncing | Stage::Done) || self.removed {
            return;
        }
        let Some(seen) = self.observed.settled().map(Arc::clone) else { return };
        for id in &removals.containers {
            if seen.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Exited) {
                self.remove_container(&seen, id, "so many dead containers are kept");
            }
        }
        let busy = self.flow.in_flight.iter().any(|(_, step)| whole_pod(step));
        for id in removals.sandboxes.iter().filter(|_| !busy) {
            let stopped = seen.sandboxes.iter().skip(1).any(|s| s.id == *id && s.state == SandboxState::NotReady);
            if stopped && !seen.containers.iter().any(|c| c.sandbox == *id) {
                self.remove_sandbox(id);
            }
        }
    }

    /// Its logs go first: afterwards nobody knows where they are.
    pub(super) fn remove_container(&mut self, seen: &PodInspection, id: &ContainerId, rule: &'static str) {
        let gone = |step: &Step| matches!(step, Step::RemoveContainer(other) if other == id);
        if self.flow.in_flight.iter().any(|(_, step)| gone(step)) {
            return;
        }
        let reclaim = &self.node.config.reclaim;
        // One that never ran has written nothing, and gives its number and so its log's name to the next one.
        let ended = |c: &&ContainerStatus| c.state == ContainerState::Exited && !c.log_path.is_empty();
        let shared = |c: &ContainerStatus| seen.containers.iter().any(|o| o.id != c.id && o.log_path == c.log_path);
        let container = seen.containers.iter().find(|c| c.id == *id).filter(ended).filter(|c| !shared(c));
        let logs = container.filter(|_| reclaim.collection.is_some()).map(|container| RemoveLogs {
            path: container.log_path.as_str().into(),
            link: reclaim.log_links.as_ref().map(|dir| links::path(dir, seen, container)),
        });
        let chained = logs.is_some();
        if let Some(logs) = logs {
            let effect = Effect::Host(HostEffect::RemoveLogs(Box::new(logs)));
            self.emit(Step::RemoveLogs(id.clone()), effect, HOST_TIMEOUT, "logs go with their container");
        }
        let effect = Effect::Cri(CriEffect::RemoveContainer { id: id.clone() });
        let step = Step::RemoveContainer(id.clone());
        self.emitter.emit(self.flow, Next { step, effect, timeout: self.node.timeout(), chained, rule });
    }

    /// Stopped once more: its network may never have been taken down.
    fn remove_sandbox(&mut self, id: &SandboxId) {
        let effect = Effect::Cri(CriEffect::StopSandbox { id: id.clone() });
        self.emit(Step::StopSandbox(id.clone()), effect, self.node.timeout(), "a newer sandbox took its place");
        let next = Next {
            step: Step::RemoveSandbox(id.clone()),
            effect: Effect::Cri(CriEffect::RemoveSandbox { id: id.clone() }),
            timeout: self.node.timeout(),
            chained: true,
            rule: "a newer sandbox took its place",
        };
        self.emitter.emit(self.flow, next);
    }
}
