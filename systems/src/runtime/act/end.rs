//! A pod that ends: containers, then sandboxes, then what is left of it.

use super::super::steps::{HOST_TIMEOUT, starts_container};
use super::super::{actions, order, paths};
use super::Pod;
use super::resize::is_resize;
use super::stop::End;
use components::edge::Effect;
use components::edge::cri::CriEffect;
use components::edge::host::{CleanPod, HostEffect};
use components::spec::QosClass;
use components::world::Step;
use std::sync::Arc;
use std::time::Duration;

impl Pod<'_, '_> {
    /// Drops what was remembered of objects that the runtime no longer has.
    pub(super) fn forget_what_is_gone(&mut self) {
        let Some(seen) = self.observed.settled() else { return };
        let seen = Arc::clone(seen);
        let flow = &mut *self.flow;
        // An inspection that was under way when they were made may lack them; the one after it cannot.
        let settled = self.observed.version >= flow.new_since + 2;
        flow.new_sandboxes.retain(|id| !settled && !seen.sandboxes.iter().any(|s| s.id == *id));
        flow.new_containers.retain(|(id, _)| !settled && !seen.containers.iter().any(|c| c.id == *id));
        flow.stopped_sandboxes.retain(|id| seen.sandboxes.iter().any(|s| s.id == *id));
        self.forget_ended(&seen);
    }

    pub(super) fn terminate(&mut self) {
        self.cancel_pulls();
        let Some(seen) = self.observed.settled().map(Arc::clone) else { return };
        let Some(ending) = &self.life.ending else { return };
        if let Some(at) = self.flow.retry_at.filter(|at| *at > self.node.now()) {
            self.wake_at(at);
            return;
        }
        let deadline = ending.began.after(Duration::from_secs(u64::from(ending.grace_seconds)));
        let graceful = ending.grace_seconds > 0;
        self.abandon_post_start();
        let spec = self.spec;
        for container in actions::to_stop(&seen) {
            let sooner = self.flow.kills.get(&container.id);
            let sooner = sooner.map(|k| k.began.after(Duration::from_secs(u64::from(k.grace_seconds))));
            let waits =
                spec.is_some_and(|spec| order::waits(spec, &container.name, |name| self.lives(spec, &seen, name)));
            let deadline = sooner.map_or(deadline, |at| at.min(deadline));
            self.end(spec, &seen, container, End { deadline, graceful, waits, rule: "the pod ends" });
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

    /// A pull can take an hour, and a mount may hang; nobody waits for them any more.
    fn cancel_pulls(&mut self) {
        let long = |step: &Step| {
            matches!(step, Step::PullImage(_) | Step::SetUpVolume(_) | Step::PullVolumeImage(_)) || is_resize(step)
        };
        let pulls: Vec<_> = self.flow.in_flight.iter().filter(|(_, s)| long(s)).map(|(t, _)| *t).collect();
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
            pod_dir: Some(config.pod_dir(uid.as_str())),
            log_dir: log_dir.filter(|_| all),
            cgroup: own_cgroup.then(|| config.pod_cgroup(qos, uid.as_str())),
        };
        let effect = Effect::Host(HostEffect::CleanPod(Box::new(clean)));
        self.emit(Step::CleanPod(all), effect, HOST_TIMEOUT, "nothing of the pod runs");
    }
}
