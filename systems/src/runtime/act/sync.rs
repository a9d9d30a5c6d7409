//! A pod that is made to run: preparation, sandbox, then containers.

use super::super::actions::{self, PodActions};
use super::super::steps::{HOST_TIMEOUT, starts_container, whole_pod};
use super::super::{cgroups, config, dns, paths, resize, users};
use super::Pod;
use crate::objects::copied;
use crate::restart;
use components::edge::Effect;
use components::edge::cri::{ContainerState, CriEffect, PodInspection, RuntimeHandler};
use components::edge::host::{Dir, File, HostEffect, PreparePod};
use components::hooks::HookKind;
use components::ids::ContainerId;
use components::planted::Bug;
use components::probes::ContainerHealth;
use components::spec::PodSpec;
use components::world::{Progress, Step};
use std::sync::Arc;
use std::time::Duration;

/// Wait while the runtime's network is not ready (contract 7).
const NETWORK_RETRY: Duration = Duration::from_secs(1);

/// Wait before a configuration that cannot be made is tried again.
const CONFIG_RETRY: Duration = Duration::from_secs(10);

impl Pod<'_, '_> {
    pub(super) fn sync(&mut self) {
        let Some(spec) = self.spec else { return };
        let Some(seen) = self.observed.settled().map(Arc::clone) else { return };
        if !self.node.may_start() || self.flow.in_flight.iter().any(|(_, step)| whole_pod(step)) {
            return;
        }
        if let Some(at) = self.flow.retry_at.filter(|at| *at > self.node.now()) {
            self.wake_at(at);
            return;
        }
        if !self.flow.prepared {
            if !self.has_users(spec) {
                return;
            }
            let preparation = self.preparation(spec);
            self.flow.limits = preparation.cgroup.as_ref().map(resize::limits).unwrap_or_default();
            let effect = Effect::Host(HostEffect::PreparePod(Box::new(preparation)));
            self.emit(Step::PreparePod, effect, HOST_TIMEOUT, "directories, volumes and cgroup come first");
            return;
        }
        if !self.set_up_volumes(spec) {
            return;
        }
        self.tend_post_start(spec, &seen);
        self.note_sizes(spec, &seen);
        let resized = self.resized(spec, &seen);
        let (in_progress, health, replaced) = (self.in_progress(), self.health(spec, &seen), self.replaced());
        let kept = self.node.config.reclaim.kept_per_container();
        let known =
            actions::Known { in_progress: &in_progress, health: &health, replaced: &replaced, resized: &resized, kept };
        let mut actions = actions::compute(spec, &seen, known);
        self.plant(spec, &seen, &mut actions);
        self.decide_kills(spec, &seen, &actions);
        self.carry_out_kills(spec, &seen);
        if actions.sandbox.is_none() {
            self.change_sandbox(spec, &seen, &actions);
            return;
        }
        self.spare_what_is_made(spec, &seen, &mut actions);
        self.hold_restart_all(spec, &seen, &mut actions);
        self.remove_containers(&seen, &actions);
        let resizes = self.resize(spec, &seen, &resized);
        if !resizes && !self.post_start_pending() {
            self.start_containers(spec, &seen, &actions);
        }
    }

    /// The instance whose end restarts all is removed, and so everything started anew, when its back-off is over.
    fn hold_restart_all(&mut self, spec: &PodSpec, seen: &PodInspection, actions: &mut PodActions) {
        let Some(cause) = restart::restart_cause(spec, seen).filter(|c| actions.remove.contains(&c.id)) else { return };
        let Some(index) = spec.containers.iter().position(|c| c.name == cause.name) else { return };
        if !self.back_off_is_over(spec, index, &cause.id) {
            actions.remove.retain(|id| *id != cause.id);
        }
    }

    /// Bugs for tests of the tests.
    fn plant(&self, spec: &PodSpec, seen: &PodInspection, actions: &mut PodActions) {
        let running = || seen.containers.iter().filter(|c| actions::may_run(c.state));
        if self.node.planted(Bug::RestartIgnoresObserved) && !self.flow.made_sandbox {
            actions.stop.extend(running().map(|c| (c.id.clone(), "planted".to_owned())));
        }
        if self.node.planted(Bug::StartSecondInstance) {
            let again = spec.containers.iter().position(|c| running().any(|r| r.name == c.name));
            actions.start.extend(again);
        }
    }

    /// Containers that we made and have not started yet.
    fn in_progress(&self) -> Vec<ContainerId> {
        self.runs
            .iter()
            .filter_map(|run| match &run.progress {
                Progress::Created(id) => Some(id.clone()),
                _ => None,
            })
            .collect()
    }

    /// Instances that were stopped to be replaced.
    fn replaced(&self) -> Vec<ContainerId> {
        self.runs.iter().filter_map(|run| run.replaced.clone()).collect()
    }

    /// What probes and the hooks that follow a start say of each container that runs.
    fn health(&self, spec: &PodSpec, seen: &PodInspection) -> Vec<ContainerHealth> {
        if self.probes.list.is_empty() && self.flow.hooks.is_empty() {
            return Vec::new();
        }
        let starts = |id: &ContainerId| {
            self.flow.hooks.get(id).is_some_and(|h| h.kind == HookKind::PostStart && h.state.is_pending())
        };
        let of = |(index, container): (usize, &components::spec::ContainerSpec)| {
            let newest = actions::newest(seen, &container.name).filter(|c| c.state == ContainerState::Running);
            newest.map_or(ContainerHealth::WELL, |c| {
                let mut health = self.probes.health(index, &c.id);
                health.started &= !starts(&c.id);
                health
            })
        };
        spec.containers.iter().enumerate().map(of).collect()
    }

    /// There is no sandbox that would be what the pod asks for.
    fn cannot_describe(&mut self, text: String) {
        self.flow.last_event = format!("FailedCreatePodSandBox: {text}").into();
        if self.flow.error.as_ref().is_none_or(|(_, known)| *known != text) {
            let told = format!("Failed to create pod sandbox: {text}");
            self.flow.events.warning("FailedCreatePodSandBox", told, None);
        }
        self.flow.error = Some(("FailedCreatePodSandBox", text));
        // Nothing but another configuration can mend it, so there is no hurry.
        self.wake_at(self.node.now().after(CONFIG_RETRY));
    }

    /// The runtime's handler for the pod's class; `None` when the pod waits for it, noted why.
    fn handler(&mut self, spec: &PodSpec) -> Option<String> {
        copied::handler(spec.runtime_class.as_deref(), &self.node.objects.classes).unwrap_or_else(|text| {
            self.cannot_describe(text);
            None
        })
    }

    /// True when a pod that wants a user namespace has host ids, or none are wanted.
    fn has_users(&mut self, spec: &PodSpec) -> bool {
        if spec.host_users || self.users.of(self.emitter.uid).is_some() {
            return true;
        }
        let Some(handler) = self.handler(spec) else { return false };
        let can = |known: &RuntimeHandler| *known.name == *handler && known.user_namespaces;
        let made = if self.node.health.handlers.iter().any(can) {
            let (ids, lives) = (self.node.config.limits.users, self.lives);
            self.users.assign(&spec.uid, ids, |pod| lives.by_uid.contains_key(pod)).map(|_| ())
        } else {
            Err("can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned())
        };
        made.map_err(|text| self.cannot_describe(text)).is_ok()
    }

    fn preparation(&self, spec: &PodSpec) -> PreparePod {
        let site = self.site();
        let uid = spec.uid.as_str();
        let wide = resize::widest(spec, |index| self.runs.get(index).and_then(|run| run.size));
        let pod_dir = site.config.pod_dir(uid);
        let dir = |path: String, mode| Dir { path, mode };
        let log_dir = paths::log_dir(site.config, spec);
        let mut dirs = vec![
            dir(format!("{}/pods", site.config.root_dir), 0o750),
            dir(pod_dir.clone(), 0o750),
            dir(format!("{pod_dir}/volumes"), 0o750),
            dir(format!("{pod_dir}/plugins"), 0o750),
            dir(format!("{pod_dir}/containers"), 0o750),
        ];
        dirs.push(dir(site.config.pod_logs_dir.clone(), 0o755));
        dirs.push(dir(log_dir.clone(), 0o755));
        PreparePod {
            cgroup: cgroups::of_pod(wide.as_ref().unwrap_or(spec), site.config, site.machine, site.systemd),
            dirs,
            files: site
                .users
                .map(|range| File { path: format!("{pod_dir}/userns"), mode: 0o644, content: users::record(range) })
                .into_iter()
                .collect(),
            volumes: self.all_volumes(spec),
            log_dirs: spec.containers.iter().map(|c| (Arc::clone(&c.name), format!("{log_dir}/{}", c.name))).collect(),
        }
    }

    fn change_sandbox(&mut self, spec: &PodSpec, seen: &PodInspection, actions: &PodActions) {
        let busy = self.flow.in_flight.iter().any(|(_, s)| starts_container(s) || matches!(s, Step::StopContainer(_)));
        if busy || seen.containers.iter().any(|c| actions::may_run(c.state)) {
            return;
        }
        if !actions.stop_sandboxes.is_empty() {
            for id in &actions.stop_sandboxes {
                let effect = Effect::Cri(CriEffect::StopSandbox { id: id.clone() });
                self.emit(Step::StopSandbox(id.clone()), effect, self.node.timeout(), "it is to be replaced");
            }
            return;
        }
        let Some(attempt) = actions.new_sandbox else { return };
        if !spec.host_network && !self.node.network_ready() {
            let text = "container runtime network not ready".to_owned();
            if self.flow.error.as_ref().is_none_or(|(reason, _)| *reason != "NetworkNotReady") {
                let told = "network is not ready: container runtime network not ready";
                self.flow.events.warning("NetworkNotReady", told, None);
            }
            self.flow.last_event = format!("NetworkNotReady: {text}").into();
            self.flow.error = Some(("NetworkNotReady", text));
            self.wake_at(self.node.now().after(NETWORK_RETRY));
            return;
        }
        let Some(handler) = self.handler(spec) else { return };
        let made = match config::sandbox(spec, self.site(), attempt) {
            Ok(made) => made,
            Err(text) => return self.cannot_describe(text),
        };
        if let Some(told) = dns::missing(spec, self.site().config) {
            self.flow.events.warning("MissingClusterDNS", told, None);
        }
        self.flow.made_sandbox = true;
        for run in &mut self.runs {
            run.progress = Progress::Idle;
            run.image = None;
        }
        self.flow.last_event = "Creating sandbox".into();
        if !seen.sandboxes.is_empty() {
            let told = "Pod sandbox changed, it will be killed and re-created.";
            self.flow.events.normal("SandboxChanged", told, None);
        }
        let effect = Effect::Cri(CriEffect::RunSandbox { config: Box::new(made), handler });
        self.emit(Step::RunSandbox, effect, self.node.timeout() * 2, "the pod has no usable sandbox");
    }

    /// A container whose making is under way shows before we are told its id: it is not a half-made stray.
    fn spare_what_is_made(&self, spec: &PodSpec, seen: &PodInspection, actions: &mut PodActions) {
        let making = |name: &str| {
            self.flow.in_flight.iter().any(|(_, step)| match step {
                Step::CreateContainer(i) | Step::StartContainer(i, _) => {
                    spec.containers.get(usize::from(*i)).is_some_and(|c| *c.name == *name)
                }
                _ => false,
            })
        };
        let spared = |id: &ContainerId| {
            let container = seen.containers.iter().find(|c| c.id == *id);
            container.is_some_and(|c| c.state == ContainerState::Created && making(&c.name))
        };
        actions.remove.retain(|id| !spared(id));
    }

    fn remove_containers(&mut self, seen: &PodInspection, actions: &PodActions) {
        for id in &actions.remove {
            self.remove_container(seen, id, "one ended instance is kept per container");
        }
    }
}
