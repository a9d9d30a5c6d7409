//! A pod that ends: containers, then sandboxes, then what is left of it.

use super::super::steps::{HOST_TIMEOUT, starts_container};
use super::super::{actions, cgroups, paths};
use super::Pod;
use components::edge::Effect;
use components::edge::cri::CriEffect;
use components::edge::host::{CleanPod, HostEffect};
use components::spec::QosClass;
use components::world::Step;
use std::sync::Arc;
use std::time::Duration;

/// Shortest grace period given to the runtime (contract 3.10).
const MIN_GRACE: u32 = 2;

impl Pod<'_, '_> {
    /// Drops what was remembered of objects that the runtime no longer has.
    pub(super) fn forget_what_is_gone(&mut self) {
        let Some(seen) = self.observed.settled() else { return };
        let flow = &mut *self.flow;
        // An inspection that was under way when they were made may lack them; the one after it cannot.
        let settled = self.observed.version >= flow.new_since + 2;
        flow.new_sandboxes.retain(|id| !settled && !seen.sandboxes.iter().any(|s| s.id == *id));
        flow.new_containers.retain(|(id, _)| !settled && !seen.containers.iter().any(|c| c.id == *id));
        flow.stopped_sandboxes.retain(|id| seen.sandboxes.iter().any(|s| s.id == *id));
        flow.stopping.retain(|id, _| seen.containers.iter().any(|c| c.id == *id && actions::may_run(c.state)));
    }

    pub(super) fn terminate(&mut self) {
        self.cancel_pulls();
        let Some(seen) = self.observed.settled().map(Arc::clone) else { return };
        let Some(ending) = &self.life.ending else { return };
        if let Some(at) = self.flow.retry_at.filter(|at| *at > self.node.now()) {
            self.wake_at(at);
            return;
        }
        let spent = self.node.now().since(ending.began);
        let left = Duration::from_secs(u64::from(ending.grace_seconds)).saturating_sub(spent);
        let grace = u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(MIN_GRACE.min(ending.grace_seconds.max(1)));
        let whole = ending.grace_seconds;
        for container in actions::to_stop(&seen, self.life.stage) {
            let asked = self.flow.stopping.get(&container.id).copied();
            // Asked again only when the whole grace period has been shortened since.
            if asked.is_some_and(|a| a <= whole) {
                continue;
            }
            self.flow.last_event = format!("Stopping container {}", container.name).into();
            self.stop(container.id.clone(), grace.min(whole.max(1)), "the pod ends");
        }
        let busy = self
            .flow
            .in_flight
            .iter()
            .any(|(_, s)| starts_container(s) || !matches!(s, Step::RemoveContainer(_) | Step::RemoveLogs(_)));
        if busy || seen.containers.iter().any(|c| actions::may_run(c.state)) {
            return;
        }
        for sandbox in &seen.sandboxes {
            if !self.flow.stopped_sandboxes.contains(&sandbox.id) {
                let effect = Effect::Cri(CriEffect::StopSandbox { id: sandbox.id.clone() });
                self.emit(Step::StopSandbox(sandbox.id.clone()), effect, self.node.timeout(), "nothing runs in it");
            }
        }
    }

    /// A pull can take an hour; nobody waits for it any more.
    fn cancel_pulls(&mut self) {
        let pulls: Vec<_> =
            self.flow.in_flight.iter().filter(|(_, s)| matches!(s, Step::PullImage(_))).map(|(t, _)| *t).collect();
        for ticket in pulls {
            self.emitter.outbox.cancel(ticket);
        }
    }

    /// Removes what is left: everything when no source has the pod, else only volumes and cgroup.
    pub(super) fn clean(&mut self) {
        if !self.flow.in_flight.is_empty() {
            return;
        }
        if let Some(at) = self.flow.retry_at.filter(|at| *at > self.node.now()) {
            self.wake_at(at);
            return;
        }
        if self.removed && !self.flow.buried {
            let Some(seen) = self.observed.settled().map(Arc::clone) else { return };
            for sandbox in &seen.sandboxes {
                let effect = Effect::Cri(CriEffect::RemoveSandbox { id: sandbox.id.clone() });
                let rule = "no source has the pod any more";
                self.emit(Step::RemoveSandbox(sandbox.id.clone()), effect, self.node.timeout(), rule);
            }
            if seen.sandboxes.is_empty() {
                self.emit_clean(true);
            }
        } else if !self.removed && !self.flow.cleaned {
            self.emit_clean(false);
        }
    }

    fn emit_clean(&mut self, all: bool) {
        let config = &self.node.config;
        let uid = self.emitter.uid.clone();
        let log_dir = match (self.spec, &self.observed.inspection) {
            (Some(spec), _) => Some(paths::log_dir(config, spec)),
            (None, Some(seen)) if !seen.name.is_empty() => {
                Some(paths::log_dir_of(config, &seen.namespace, &seen.name, uid.as_str()))
            }
            _ => None,
        };
        let qos = self.spec.map_or(QosClass::BestEffort, |spec| spec.qos);
        let own_cgroup = config.cgroups_per_qos && !self.node.site().systemd && self.spec.is_some();
        let clean = CleanPod {
            pod_dir: Some(paths::pod_dir(config, uid.as_str())),
            log_dir: log_dir.filter(|_| all),
            cgroup: own_cgroup.then(|| cgroups::path(config, qos, uid.as_str())),
        };
        let effect = Effect::Host(HostEffect::CleanPod(Box::new(clean)));
        self.emit(Step::CleanPod(all), effect, HOST_TIMEOUT, "nothing of the pod runs");
    }
}
