//! A pod that is made to run: preparation, sandbox, then containers.

use super::super::actions::{self, PodActions};
use super::super::steps::{HOST_TIMEOUT, starts_container, whole_pod};
use super::super::{cgroups, config, paths, users};
use super::Pod;
use components::edge::Effect;
use components::edge::cri::{ContainerState, CriEffect, PodInspection};
use components::edge::host::{Dir, File, HostEffect, PreparePod, VolumeSetup};
use components::ids::ContainerId;
use components::planted::Bug;
use components::spec::{PodSpec, VolumeSource};
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
            if let Err(text) = self.assign_users(spec) {
                self.cannot_describe(text);
                return;
            }
            let effect = Effect::Host(HostEffect::PreparePod(Box::new(self.preparation(spec))));
            self.emit(Step::PreparePod, effect, HOST_TIMEOUT, "directories, volumes and cgroup come first");
            return;
        }
        let mut actions = actions::compute(spec, &seen, &self.in_progress());
        self.plant(spec, &seen, &mut actions);
        self.stop_containers(spec, &actions);
        if actions.sandbox.is_none() {
            self.change_sandbox(spec, &seen, &actions);
            return;
        }
        self.spare_what_is_made(spec, &seen, &mut actions);
        self.remove_containers(&actions);
        self.start_containers(spec, &seen, &actions);
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

    /// There is no sandbox that would be what the pod asks for.
    fn cannot_describe(&mut self, text: String) {
        self.flow.last_event = format!("FailedCreatePodSandBox: {text}").into();
        self.flow.error = Some(("FailedCreatePodSandBox", text));
        // Nothing but another configuration can mend it, so there is no hurry.
        self.wake_at(self.node.now().after(CONFIG_RETRY));
    }

    /// Host ids for a pod that wants a user namespace.
    fn assign_users(&mut self, spec: &PodSpec) -> Result<(), String> {
        if spec.host_users {
            return Ok(());
        }
        if !self.node.health.features.user_namespaces {
            return Err("can't set `spec.hostUsers: false`, runtime does not support user namespaces".to_owned());
        }
        let (ids, lives) = (self.node.config.limits.users, self.lives);
        self.users.assign(&spec.uid, ids, |pod| lives.by_uid.contains_key(pod)).map(|_| ())
    }

    fn preparation(&self, spec: &PodSpec) -> PreparePod {
        let site = self.site();
        let uid = spec.uid.as_str();
        let pod_dir = paths::pod_dir(site.config, uid);
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
            cgroup: cgroups::of_pod(spec, site.config, site.machine, site.systemd),
            dirs,
            files: site
                .users
                .map(|range| File { path: format!("{pod_dir}/userns"), mode: 0o644, content: users::record(range) })
                .into_iter()
                .collect(),
            volumes: spec.volumes.iter().map(|v| volume(site.config, spec, v)).collect(),
            log_dirs: spec.containers.iter().map(|c| (Arc::clone(&c.name), format!("{log_dir}/{}", c.name))).collect(),
        }
    }

    fn stop_containers(&mut self, spec: &PodSpec, actions: &PodActions) {
        for (id, why) in &actions.stop {
            if self.flow.stopping.contains_key(id) {
                continue;
            }
            self.flow.last_event = why.as_str().into();
            self.stop(id.clone(), spec.grace_seconds, "its definition or sandbox changed");
        }
    }

    /// Stops one container; asked again only with a shorter grace period.
    pub(super) fn stop(&mut self, id: ContainerId, grace_seconds: u32, rule: &'static str) {
        let grace_seconds = if self.node.planted(Bug::IgnoreGrace) { 0 } else { grace_seconds };
        let timeout = self.node.timeout() + Duration::from_secs(u64::from(grace_seconds));
        self.flow.stopping.insert(id.clone(), grace_seconds);
        let effect = Effect::Cri(CriEffect::StopContainer { id: id.clone(), grace_seconds });
        self.emit(Step::StopContainer(id), effect, timeout, rule);
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
            self.flow.last_event = format!("NetworkNotReady: {text}").into();
            self.flow.error = Some(("NetworkNotReady", text));
            self.wake_at(self.node.now().after(NETWORK_RETRY));
            return;
        }
        let made = match config::sandbox(spec, self.site(), attempt) {
            Ok(made) => made,
            Err(text) => return self.cannot_describe(text),
        };
        self.flow.made_sandbox = true;
        for run in &mut self.runs {
            run.progress = Progress::Idle;
            run.image = None;
        }
        self.flow.last_event = "Creating sandbox".into();
        let handler = String::new();
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

    fn remove_containers(&mut self, actions: &PodActions) {
        for id in &actions.remove {
            let under_way = self.flow.in_flight.iter().any(|(_, s)| *s == Step::RemoveContainer(id.clone()));
            if !under_way {
                let effect = Effect::Cri(CriEffect::RemoveContainer { id: id.clone() });
                let rule = "one ended instance is kept per container";
                self.emit(Step::RemoveContainer(id.clone()), effect, self.node.timeout(), rule);
            }
        }
    }
}

fn volume(config: &components::node::NodeConfig, spec: &PodSpec, volume: &components::spec::Volume) -> VolumeSetup {
    let name = Arc::clone(&volume.name);
    let path = || paths::empty_dir(config, spec.uid.as_str(), &volume.name);
    let group = spec.security.fs_group;
    match &volume.source {
        VolumeSource::EmptyDir => VolumeSetup::EmptyDir { name, path: path(), group },
        VolumeSource::EmptyDirMemory { size_bytes } => {
            VolumeSetup::EmptyDirMemory { name, path: path(), size_bytes: *size_bytes, group }
        }
        VolumeSource::HostPath { path, kind } => VolumeSetup::HostPath { name, path: path.clone(), kind: *kind },
    }
}
