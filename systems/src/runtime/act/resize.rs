//! Bringing a resize into force, one step at a time: the pod's cgroup and the containers that change as they run.

use super::super::steps::HOST_TIMEOUT;
use super::super::{actions, cgroups, resize};
use super::Pod;
use crate::resize::texts;
use components::edge::Effect;
use components::edge::cri::{CriEffect, PodInspection};
use components::edge::host::HostEffect;
use components::edge::store::Record;
use components::ids::ContainerId;
use components::resize::Size;
use components::spec::PodSpec;
use components::world::{PodLimits, ResizeFlow, Step};
use std::time::Duration;

/// Wait before a resize is tried again that takes away what is in use.
const RETRY: Duration = Duration::from_secs(10);

impl Pod<'_, '_> {
    /// Notes what is in force for containers that were made before this process began.
    pub(super) fn note_sizes(&mut self, spec: &PodSpec, seen: &PodInspection) {
        for (index, container) in spec.containers.iter().enumerate() {
            if let Some(run) = self.runs.get_mut(index)
                && run.size.is_none()
                && resize::runs(seen, &container.name)
            {
                run.size = Some(Size::of_container(spec, index));
            }
        }
    }

    /// Instances that are restarted to get what is allocated to them.
    pub(super) fn resized(&self, spec: &PodSpec, seen: &PodInspection) -> Vec<ContainerId> {
        let mut found = Vec::new();
        for (index, container) in spec.containers.iter().enumerate() {
            let Some(has) = self.runs.get(index).and_then(|run| run.size) else { continue };
            let restarts = container.resize_policy.restarts(has, Size::of_container(spec, index));
            if restarts && resize::changes_live(container.kind) && resize::runs(seen, &container.name) {
                found.extend(actions::newest(seen, &container.name).map(|newest| newest.id.clone()));
            }
        }
        found
    }

    /// Takes a resize one step further. True while nothing may be started beside it.
    pub(super) fn resize(&mut self, spec: &PodSpec, seen: &PodInspection, restarting: &[ContainerId]) -> bool {
        self.record_sizes(spec);
        if self.flow.in_flight.iter().any(|(_, step)| is_resize(step)) {
            return true;
        }
        let site = self.node.site();
        let cgroup = cgroups::of_pod(spec, site.config, site.machine, site.systemd);
        // Without a cgroup of ours there is nothing to set.
        let gets = cgroup.as_ref().map_or(self.flow.limits, resize::limits);
        let members = self.members(spec, seen, restarting);
        let facts =
            resize::Facts { has: self.flow.limits, gets, members: &members, restarting: !restarting.is_empty() };
        let next = resize::next(facts);
        if matches!(next, resize::Next::Nothing | resize::Next::Wait) {
            return false;
        }
        let now = self.node.now();
        let flow = self.flow.resize.get_or_insert_default();
        if flow.generation != spec.generation {
            **flow = ResizeFlow { generation: spec.generation, ..ResizeFlow::default() };
        }
        if let Some(at) = flow.retry_at.filter(|at| *at > now) {
            self.wake_at(at);
            return false;
        }
        if let Some((pod, used)) = flow.memory.take() {
            let names: Vec<&str> = members.iter().map(|m| &*spec.containers[m.index].name).collect();
            if let Some(why) = resize::too_low(facts, &names, pod, &used) {
                let at = now.after(RETRY);
                flow.error = Some(why);
                flow.retry_at = Some(at);
                self.wake_at(at);
                return false;
            }
            flow.checked = true;
        }
        let checked = flow.checked;
        if resize::lowers_memory(facts) && !checked {
            let containers = members.iter().filter_map(|m| actions::newest(seen, &spec.containers[m.index].name));
            let pod = cgroups::parent(site.config, site.systemd, spec.qos, spec.uid.as_str());
            let below = |id: &ContainerId| cgroups::of_container(&pod, site.systemd, self.node.runtime(), id);
            let containers = containers.map(|container| below(&container.id)).collect();
            let effect = Effect::Host(HostEffect::ReadMemory { pod, containers });
            self.emit(Step::ReadMemory, effect, HOST_TIMEOUT, "what is used is not taken away");
            return true;
        }
        match (next, cgroup) {
            (resize::Next::Limit(part), Some(whole)) => self.limit_pod(part, resize::cgroup(&whole, part)),
            (resize::Next::Update(index, size), _) => self.update(spec, seen, index, size),
            _ => {}
        }
        true
    }

    fn limit_pod(&mut self, part: PodLimits, cgroup: components::edge::host::Cgroup) {
        let effect = Effect::Host(HostEffect::SetCgroups(vec![cgroup]));
        self.emit(Step::LimitPod(part), effect, HOST_TIMEOUT, "the pod was resized");
    }

    fn update(&mut self, spec: &PodSpec, seen: &PodInspection, index: usize, size: Size) {
        let site = self.node.site();
        let resources = resize::update(spec, index, size, site.config, site.machine);
        let newest = spec.containers.get(index).and_then(|container| actions::newest(seen, &container.name));
        let (Some(resources), Some(newest)) = (resources, newest) else { return };
        let (id, at) = (newest.id.clone(), u16::try_from(index).unwrap_or(u16::MAX));
        let effect = Effect::Cri(CriEffect::UpdateContainer { id: id.clone(), resources: Box::new(resources) });
        self.emit(Step::UpdateContainer(at, id, size), effect, self.node.timeout(), "its pod was resized");
    }

    /// Running containers that get another size without a restart.
    fn members(&self, spec: &PodSpec, seen: &PodInspection, restarting: &[ContainerId]) -> Vec<resize::Member> {
        let mut members = Vec::new();
        for (index, container) in spec.containers.iter().enumerate() {
            let gets = Size::of_container(spec, index);
            let has = self.runs.get(index).and_then(|run| run.size).filter(|has| *has != gets);
            let (Some(has), true) = (has, resize::changes_live(container.kind)) else { continue };
            let Some(newest) = actions::newest(seen, &container.name) else { continue };
            if resize::runs(seen, &container.name) && !restarting.contains(&newest.id) && !self.ends(&newest.id) {
                members.push(resize::Member { index, has, gets });
            }
        }
        members
    }

    /// True for an instance that is on its way out.
    fn ends(&self, id: &ContainerId) -> bool {
        self.flow.kills.contains_key(id) || self.flow.stopping.contains_key(id)
    }

    /// Records what has come into force.
    fn record_sizes(&mut self, spec: &PodSpec) {
        let unrecorded = self.flow.resize.as_mut().is_some_and(|resize| std::mem::take(&mut resize.unrecorded));
        if unrecorded {
            let sizes = texts::with_sizes(spec, |index| self.runs.get(index).and_then(|run| run.size));
            self.emitter.outbox.record(Record::PodActuated { uid: spec.uid.clone(), sizes });
        }
    }

    /// A new instance gets what is allocated.
    pub(super) fn note_new_size(&mut self, spec: &PodSpec, index: usize) {
        let gets = Size::of_container(spec, index);
        let Some(run) = self.runs.get_mut(index) else { return };
        let before = run.size.replace(gets);
        if before.is_some_and(|before| before != gets) {
            self.flow.resize.get_or_insert_default().unrecorded = true;
            self.record_sizes(spec);
        }
    }
}

/// True for steps of a resize.
pub(super) const fn is_resize(step: &Step) -> bool {
    matches!(step, Step::LimitPod(_) | Step::UpdateContainer(..) | Step::ReadMemory)
}
