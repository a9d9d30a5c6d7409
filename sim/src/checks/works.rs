//! Checks on what the core asks for, and on what is done when it takes effect.

use super::{Checks, probes};
use crate::node::host::Host;
use crate::runtime::Runtime;
use crate::runtime::model::Container;
use bevy_ecs::prelude::World;
use components::edge::cri::{CriEffect, SandboxState};
use components::edge::host::HostEffect;
use components::edge::store::Record;
use components::edge::{Effect, Ingress, Lane, Work};
use components::ids::{ContainerId, PodUid, SandboxId, Ticket};
use components::snapshot::Snapshot;
use components::time::Mono;
use components::world::{Desired, Flow, Lifecycle, PodIndex};
use engine::{InvariantCount, Outbox};
use std::sync::Arc;
use std::time::Duration;

/// Shortest grace period that a stop carries (contract 3.10).
const LEAST_GRACE: Duration = Duration::from_secs(2);

impl Checks {
    /// A batch is about to be handed to the engine.
    pub fn on_batch(&mut self, batch: &[Ingress]) {
        self.wanted.tell(batch);
    }

    /// Records became durable.
    pub fn on_commit(&mut self, records: &[Record]) {
        for record in records {
            match record {
                Record::PodAdmitted { uid, .. } => {
                    self.admitted.insert(uid.clone());
                }
                Record::PodFinished { uid, succeeded } => {
                    self.finished.insert(uid.clone(), *succeeded);
                }
                Record::PodEnded { .. } => {}
                Record::PodForgotten { uid } => {
                    self.terminal.forget(uid);
                    self.admitted.remove(uid);
                    self.finished.remove(uid);
                }
                Record::PodProbed { .. } | Record::PodAllocated { .. } | Record::PodActuated { .. } => {}
            }
        }
    }

    /// Records could not be written. The burials among them have happened all the same.
    pub fn on_refused(&mut self, records: &[Record]) {
        for record in records {
            if let Record::PodForgotten { uid } = record {
                self.terminal.forget(uid);
            }
        }
    }

    /// Every ticket is given out once.
    pub fn on_ticket(&mut self, ticket: Ticket, now: Mono) {
        if !self.tickets.insert(ticket) {
            self.violate(format!("ticket {} was given out twice", ticket.0), now);
        }
    }

    /// The core asks for a work.
    pub fn on_work(&mut self, work: &Work, world: Option<&World>, runtime: &Runtime, now: Mono) {
        self.on_ticket(work.ticket, now);
        let Lane::Pod { uid, .. } = &work.lane else { return };
        if let Some(owner) = owner(&work.effect, runtime)
            && owner != *uid
        {
            self.violate(format!("an effect of pod {uid} touches pod {owner}: {:?}", work.effect), now);
        }
        if let Effect::Cri(CriEffect::StopContainer { id, grace_seconds }) = &work.effect
            && work.why.rule == probes::CONDEMNED
        {
            self.check_condemned(id, uid, *grace_seconds, world, now);
            return;
        }
        match &work.effect {
            Effect::Cri(effect) => self.on_call(effect, uid, world, runtime, now),
            Effect::Host(HostEffect::CleanPod(_) | HostEffect::RemoveRemains(_)) => {
                self.check_sources_read(uid, "its remains are removed", now);
            }
            Effect::Host(HostEffect::RemoveLogs(_)) => self.check_sources_read(uid, "a log is removed", now),
            Effect::Host(_) | Effect::Sources(_) | Effect::Probes(_) | Effect::Hooks(_) | Effect::Api(_) => {}
        }
    }

    fn on_call(&mut self, effect: &CriEffect, uid: &PodUid, world: Option<&World>, runtime: &Runtime, now: Mono) {
        match effect {
            CriEffect::RunSandbox { .. } | CriEffect::CreateContainer { .. } | CriEffect::StartContainer { .. }
                if !self.admitted.contains(uid) =>
            {
                self.violate(format!("{uid} is started before its admission is durable"), now);
            }
            CriEffect::StopContainer { id, grace_seconds } => {
                self.check_sources_read(uid, "a container is stopped", now);
                if let Some(world) = world.filter(|_| !self.graces.contains_key(id)) {
                    self.check_stop_order(id, uid, *grace_seconds, world, runtime, now);
                }
                self.check_untouched(id, now);
                self.check_grace(id, uid, *grace_seconds, world, runtime, now);
            }
            CriEffect::RemoveContainer { id } => {
                self.check_sources_read(uid, "a container is removed", now);
                self.check_untouched(id, now);
            }
            CriEffect::StopSandbox { id } | CriEffect::RemoveSandbox { id } => {
                self.check_sources_read(uid, "a sandbox is stopped or removed", now);
                let inside = self.protected.iter().find(|(_, (_, sandbox))| sandbox == id);
                if let Some(container) = inside.map(|(container, _)| container.clone()) {
                    self.check_untouched(&container, now);
                }
            }
            _ => {}
        }
    }

    fn check_sources_read(&mut self, uid: &PodUid, what: &str, now: Mono) {
        if !self.wanted.all_read() && !self.wanted.was_told(uid) && !self.draining {
            self.violate(format!("{what} for {uid}, which no source has named, before every source was read"), now);
        }
    }

    fn check_untouched(&mut self, id: &ContainerId, now: Mono) {
        if let Some((pod, _)) = self.protected.get(id) {
            let text = format!("running container {id} of {pod} is touched after a restart without a cause");
            self.violate(text, now);
        }
    }

    fn check_grace(
        &mut self,
        id: &ContainerId,
        uid: &PodUid,
        grace: u32,
        world: Option<&World>,
        runtime: &Runtime,
        now: Mono,
    ) {
        if let Some(before) = self.graces.insert(id.clone(), grace)
            && grace > before
        {
            self.violate(format!("grace period of {id} grew from {before} s to {grace} s"), now);
        }
        let Some(deadline) = world.and_then(|w| deadline_of(w, uid, id, now)) else { return };
        let expected = deadline.max(now.after(LEAST_GRACE));
        let asked = now.after(Duration::from_secs(u64::from(grace)));
        let slack = Duration::from_secs(1);
        if runtime.is_running(id) && (asked.after(slack) < expected || expected.after(slack) < asked) {
            let left = expected.since(now);
            self.violate(format!("{id} of {uid} is stopped with {grace} s of grace although {left:?} are left"), now);
        }
    }

    /// A call takes effect now. `lane` is `None` when nobody waits for its answer any more.
    pub fn before_call(&mut self, runtime: &Runtime, lane: Option<&Lane>, effect: &CriEffect, now: Mono) {
        match effect {
            CriEffect::StartContainer { id } => {
                if lane.is_none() {
                    self.started_late.insert(id.clone());
                }
                if let Some(container) = runtime.containers().get(id) {
                    self.check_start(container, runtime, now);
                    self.check_start_order(container, runtime, now);
                }
            }
            CriEffect::StopSandbox { id } | CriEffect::RemoveSandbox { id } if lane.is_some() => {
                let runs = |id: &ContainerId| runtime.is_running(id) && !self.started_late.contains(id);
                let inside = runtime.containers().values().find(|c| c.sandbox == *id && runs(&c.id));
                if let Some(container) = inside {
                    let text =
                        format!("sandbox {id} is stopped under running container {} without a grace", container.id);
                    self.violate(text, now);
                }
            }
            CriEffect::RemoveContainer { id }
                if lane.is_some() && runtime.is_running(id) && !self.started_late.contains(id) =>
            {
                self.violate(format!("container {id} is removed while it runs"), now);
            }
            _ => {}
        }
    }

    /// What a container mounts of its pod's directory is there before the container is made.
    pub fn check_mounts(&mut self, host: &Host, effect: &CriEffect, now: Mono) {
        let CriEffect::CreateContainer { config, sandbox_config, .. } = effect else { return };
        let own = format!("/pods/{}/", sandbox_config.uid);
        for mount in config.mounts.iter().filter(|mount| mount.host_path.contains(&own)) {
            if !host.paths.contains(&mount.host_path) {
                let (name, path) = (&config.name, &mount.host_path);
                self.violate(format!("{name} of {} is made before {path} is there", sandbox_config.uid), now);
            }
        }
    }

    fn check_start(&mut self, container: &Container, runtime: &Runtime, now: Mono) {
        let starts = container.state == components::edge::cri::ContainerState::Created
            && runtime.sandboxes().get(&container.sandbox).is_some_and(|s| s.state == SandboxState::Ready);
        if !starts {
            return;
        }
        let name = &container.request.name;
        let sandbox_of = |c: &Container| runtime.sandboxes().get(&c.sandbox);
        let full_name = |c: &Container| sandbox_of(c).map(|s| (&s.request.namespace, &s.request.name));
        let running = || runtime.containers().values().filter(|c| c.id != container.id && runtime.is_running(&c.id));
        if let Some(other) = running().find(|c| c.pod == container.pod && c.request.name == *name) {
            let text = format!("second instance {} of {name} of {} beside {}", container.id, container.pod, other.id);
            self.violate(text, now);
        } else if let Some(other) = running().find(|c| c.pod != container.pod && full_name(c) == full_name(container)) {
            let text = format!("{name} of {} starts beside the older generation {}", container.pod, other.pod);
            self.violate(text, now);
        }
        if self.cleaned.contains(&container.pod) {
            let text = format!("{name} of {} starts although the pod's volumes were removed", container.pod);
            self.violate(text, now);
        }
    }

    /// A change to the host takes effect now.
    pub fn before_host(&mut self, runtime: &Runtime, lane: &Lane, effect: &HostEffect, now: Mono) {
        let Lane::Pod { uid, .. } = lane else { return };
        match effect {
            HostEffect::PreparePod(_) => {
                self.cleaned.remove(uid);
            }
            HostEffect::PrepareContainer(_)
            | HostEffect::SetCgroups(_)
            | HostEffect::ReadEnvFiles(_)
            | HostEffect::AllowShutdown
            | HostEffect::ReadMemory { .. }
            | HostEffect::ReadLogins { .. }
            | HostEffect::Identity(_)
            | HostEffect::PodKeys(_)
            | HostEffect::RunProvider(_)
            | HostEffect::Pulls(_) => {}
            HostEffect::SetUpVolume(setup) if self.cleaned.contains(uid) => {
                let text = format!("volume {} of {uid} is set up although its remains were removed", setup.name());
                self.violate(text, now);
            }
            HostEffect::SetUpVolume(_) => {}
            HostEffect::CleanPod(_) | HostEffect::RemoveRemains(_) => {
                self.cleaned.insert(uid.clone());
                if let Some(container) = runtime.containers_of(uid).find(|c| runtime.is_running(&c.id)) {
                    let text = format!("remains of {uid} are removed while container {} runs", container.id);
                    self.violate(text, now);
                }
            }
            HostEffect::RemoveLogs(it) => {
                let writes = |c: &&Container| runtime.is_running(&c.id) && it.path.ends_with(&c.request.log_path);
                if let Some(container) = runtime.containers_of(uid).find(writes) {
                    self.violate(format!("the log of {} is removed while it runs", container.id), now);
                }
            }
            _ => {}
        }
    }

    /// A tick is over.
    pub fn after_tick(&mut self, world: &World, now: Mono) {
        if let Some(broken) = world.get_resource::<InvariantCount>() {
            self.check_engine(broken, now);
        }
        let Some(index) = world.get_resource::<PodIndex>() else { return };
        for (uid, entity) in &index.by_uid {
            if let Some(text) = probes::asked_in_vain(world, *entity) {
                self.violate(format!("{uid}: {text}"), now);
            }
            let Some(ending) = world.get::<Lifecycle>(*entity).and_then(|l| l.ending.as_ref()) else {
                self.endings.remove(uid);
                continue;
            };
            match self.endings.get(uid) {
                Some((began, grace)) if *began == ending.began && ending.grace_seconds > *grace => {
                    let text = format!("grace period of {uid} grew from {grace} s to {} s", ending.grace_seconds);
                    self.violate(text, now);
                }
                _ => {}
            }
            self.endings.insert(uid.clone(), (ending.began, ending.grace_seconds));
        }
    }

    /// A snapshot is published.
    pub fn on_publish(&mut self, before: &Snapshot, after: &Snapshot, runtime: &Runtime, now: Mono) {
        if let Err(text) = self.terminal.check(before, after, runtime, &self.finished) {
            self.violate(text, now);
        }
    }

    /// Nothing is under way: the engine must await nothing either.
    pub fn at_rest(&mut self, world: &World, busy: usize, now: Mono) {
        let awaited = world.get_resource::<Outbox>().map_or(0, Outbox::awaited);
        if awaited != busy {
            self.violate(format!("the core awaits {awaited} works, {busy} are under way"), now);
        }
    }
}

/// The pod that an effect touches, as far as its ids tell.
fn owner(effect: &Effect, runtime: &Runtime) -> Option<PodUid> {
    let of_container = |id: &ContainerId| runtime.containers().get(id).map(|c| c.pod.clone());
    let of_sandbox = |id: &SandboxId| runtime.sandboxes().get(id).map(|s| s.pod.clone());
    match effect {
        Effect::Cri(call) => match call {
            CriEffect::InspectPod { uid, .. } => Some(uid.clone()),
            CriEffect::RunSandbox { config, .. } | CriEffect::PullImage { config, .. } => {
                Some(PodUid::from(config.uid.as_str()))
            }
            CriEffect::StopSandbox { id } | CriEffect::RemoveSandbox { id } => of_sandbox(id),
            CriEffect::CreateContainer { sandbox, .. } => of_sandbox(sandbox),
            CriEffect::StartContainer { id }
            | CriEffect::StopContainer { id, .. }
            | CriEffect::ExecSync { id, .. }
            | CriEffect::RemoveContainer { id }
            | CriEffect::UpdateContainer { id, .. }
            | CriEffect::ReopenLog { id } => of_container(id),
            CriEffect::ReadRuntime
            | CriEffect::ListRuntime
            | CriEffect::ListImages
            | CriEffect::SetPodCidr { .. }
            | CriEffect::FindImage { .. }
            | CriEffect::WatchEvents => None,
        },
        Effect::Host(_) | Effect::Sources(_) | Effect::Probes(_) | Effect::Hooks(_) | Effect::Api(_) => None,
    }
}

/// When the grace period of a container ends: its pod's, or its own where it is ended alone.
fn deadline_of(world: &World, uid: &PodUid, id: &ContainerId, now: Mono) -> Option<Mono> {
    let entity = *world.get_resource::<PodIndex>()?.by_uid.get(uid)?;
    let end = |began: Mono, seconds: u32| began.after(Duration::from_secs(u64::from(seconds)));
    let whole = world.get::<Lifecycle>(entity).and_then(|l| l.ending.as_ref()).map(|e| end(e.began, e.grace_seconds));
    let own = world.get::<Flow>(entity)?.kills.get(id).map(|kill| end(kill.began, kill.grace_seconds));
    if let Some(deadline) = whole.into_iter().chain(own).min() {
        return Some(deadline);
    }
    let spec = Arc::clone(world.get::<Desired>(entity)?.spec.as_ref()?);
    Some(end(now, spec.grace_seconds))
}
