//! Emits what each touched pod needs next, by its stage.

mod access;
mod collect;
mod end;
mod hooks;
mod images;
mod pull;
mod resize;
mod start;
mod stop;
mod sync;
mod volumes;

use super::PullBudget;
use super::config::Site;
use super::steps::Emitter;
use super::users::UserRanges;
use crate::planted;
use bevy_ecs::prelude::*;
use components::node::{Machine, NodeConfig};
use components::objects::{Objects, PodRefs, Services};
use components::planted::{Bug, Planted};
use components::probes::Probes;
use components::registry::NodeLogins;
use components::spec::PodSpec;
use components::time::Mono;
use components::volumes::PodVolumes;
use components::world::{
    ContainerRun, Desired, Draining, Flow, JournalBacklog, Lifecycle, Observed, PodContainers, PodIndex, PodKey,
    RemovalRequests, RuntimeHealth, Stage,
};
use engine::{Clock, Outbox, Owner, TimerKind, Timers, Touched};
use std::time::Duration;

/// What decisions about any pod read of the node.
#[derive(bevy_ecs::system::SystemParam)]
pub(super) struct Node<'w> {
    clock: Res<'w, Clock>,
    config: Res<'w, NodeConfig>,
    machine: Res<'w, Machine>,
    health: Res<'w, RuntimeHealth>,
    backlog: Res<'w, JournalBacklog>,
    draining: Res<'w, Draining>,
    planted: Option<Res<'w, Planted>>,
    objects: Res<'w, Objects>,
    services: Res<'w, Services>,
}

impl Node<'_> {
    fn now(&self) -> Mono {
        self.clock.now.mono
    }

    fn site(&self) -> Site<'_> {
        let said = self.health.info.as_ref().and_then(|info| info.cgroup_driver.as_deref());
        let systemd = said.map_or(self.config.cgroup_driver_systemd, |driver| driver == "systemd");
        // Runtimes tell of handlers since about the time they know the policy.
        let strict_groups = !self.health.handlers.is_empty();
        let (objects, services) = (&*self.objects, &*self.services);
        let (config, machine) = (&*self.config, &*self.machine);
        Site { config, machine, strict_groups, users: None, systemd, objects, services }
    }

    /// Name of the runtime.
    fn runtime(&self) -> &str {
        self.health.info.as_ref().map_or("", |info| info.name.as_str())
    }

    fn timeout(&self) -> Duration {
        self.config.runtime_timeout
    }

    fn network_ready(&self) -> bool {
        self.health.info.as_ref().is_some_and(|info| info.network_ready)
    }

    /// True when a test planted this bug.
    fn planted(&self, bug: Bug) -> bool {
        planted::is(&self.planted, bug)
    }

    /// Nothing new is started while the runtime is down or durable records wait to be written.
    fn may_start(&self) -> bool {
        crate::health::runtime_usable(&self.health) && self.backlog.records.is_empty()
    }
}

/// One pod at work.
pub(super) struct Pod<'a, 'n> {
    node: &'a Node<'n>,
    spec: Option<&'a PodSpec>,
    life: &'a Lifecycle,
    observed: &'a Observed,
    probes: &'a Probes,
    volumes: &'a PodVolumes,
    refs: &'a PodRefs,
    removed: bool,
    flow: &'a mut Flow,
    runs: Vec<Mut<'a, ContainerRun>>,
    emitter: Emitter<'a>,
    budget: &'a mut PullBudget,
    logins: &'a mut NodeLogins,
    users: &'a mut UserRanges,
    lives: &'a PodIndex,
    wake: Option<Mono>,
}

impl Pod<'_, '_> {
    /// What this pod's configurations are made from.
    fn site(&self) -> Site<'_> {
        Site { users: self.users.of(self.emitter.uid), ..self.node.site() }
    }

    /// Looks at the pod again at `at`, or sooner.
    fn wake_at(&mut self, at: Mono) {
        self.wake = Some(self.wake.map_or(at, |other| other.min(at)));
    }

    fn emit(
        &mut self,
        step: components::world::Step,
        effect: components::edge::Effect,
        timeout: Duration,
        rule: &'static str,
    ) {
        self.emitter.emit(self.flow, super::steps::Next { step, effect, timeout, chained: false, rule });
    }
}

pub(super) fn act_on_pods(
    node: Node<'_>,
    touched: Res<Touched>,
    mut pods: Query<(
        &PodKey,
        &Desired,
        &Lifecycle,
        &Observed,
        (&Probes, &PodVolumes, &PodRefs),
        &mut Flow,
        Option<&PodContainers>,
    )>,
    mut runs: Query<&mut ContainerRun>,
    mut budget: ResMut<PullBudget>,
    mut logins: ResMut<NodeLogins>,
    mut removals: ResMut<RemovalRequests>,
    mut users: ResMut<UserRanges>,
    index: Res<PodIndex>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    for entity in touched.iter() {
        let Ok((key, desired, life, observed, (probes, volumes, refs), mut flow, containers)) = pods.get_mut(entity)
        else {
            continue;
        };
        let children = containers.map(PodContainers::entities).unwrap_or_default();
        let mut pod = Pod {
            node: &node,
            spec: desired.spec.as_deref(),
            life,
            observed,
            probes,
            volumes,
            refs,
            removed: (desired.removed && !desired.comes_back())
                || desired.spec.is_none()
                || node.draining.requested.is_some(),
            flow: &mut flow,
            runs: runs_of(&mut runs, children),
            emitter: Emitter { pod: entity, uid: &key.uid, outbox: &mut outbox },
            budget: &mut budget,
            logins: &mut logins,
            users: &mut users,
            lives: &index,
            wake: None,
        };
        pod.forget_what_is_gone();
        match life.stage {
            Stage::Syncing => pod.sync(),
            Stage::Terminating => pod.terminate(),
            Stage::Terminated => pod.clean(),
            Stage::Queued | Stage::Done => {}
        }
        if let Some(removals) = removals.pods.remove(&entity) {
            pod.collect(&removals);
        }
        if let Some(at) = pod.wake {
            timers.arm_no_later(TimerKind::Pod, Owner::Pod(entity), at);
        }
    }
}

/// The pod's container components, by index in its spec.
fn runs_of<'a>(runs: &'a mut Query<&mut ContainerRun>, children: &[Entity]) -> Vec<Mut<'a, ContainerRun>> {
    let unique: bevy_ecs::entity::EntityHashSet = children.iter().copied().collect();
    let mut out: Vec<Mut<'a, ContainerRun>> = runs.iter_many_unique_mut(unique).flatten().collect();
    out.sort_by_key(|run| run.index);
    out
}
