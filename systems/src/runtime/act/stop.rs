//! Ending containers: pre-stop hook, turn, stop signal, all within one grace period.
//!
//! The end of an instance has a deadline that only ever comes nearer. Up to it the hook may run and the order is kept;
//! then, or when both are through, the runtime is asked to stop what is left with the rest, two seconds at least.

use super::super::{actions, order};
use super::Pod;
use components::edge::Effect;
use components::edge::cri::{ContainerState, ContainerStatus, CriEffect, PodInspection};
use components::hooks::{HookKind, HookRun, HookState, Kill};
use components::ids::ContainerId;
use components::planted::Bug;
use components::spec::PodSpec;
use components::time::Mono;
use components::world::Step;
use std::sync::Arc;
use std::time::Duration;

/// Least time between the stop signal and the kill (contract 3.10).
pub(super) const LEAST: Duration = Duration::from_secs(2);

/// How one instance is to end.
#[derive(Clone, Copy)]
pub(super) struct End {
    /// The grace period is over then.
    pub(super) deadline: Mono,
    /// Hooks may run: there is a grace period at all.
    pub(super) graceful: bool,
    /// It waits for those that end before it.
    pub(super) waits: bool,
    /// Why.
    pub(super) rule: &'static str,
}

impl Pod<'_, '_> {
    /// Decides that an instance ends although its pod lives on.
    pub(super) fn kill(&mut self, id: &ContainerId, grace_seconds: u32, in_order: bool, rule: &'static str) {
        let began = self.node.now();
        let kill = Kill { began, grace_seconds, in_order, rule };
        match self.flow.kills.get_mut(id) {
            None => {
                self.flow.kills.insert(id.clone(), kill);
            }
            // Grace only shrinks.
            Some(known) => {
                let left = |k: &Kill| k.began.after(Duration::from_secs(u64::from(k.grace_seconds)));
                if left(&kill) < left(known) {
                    let spent = began.since(known.began).as_secs();
                    known.grace_seconds = u32::try_from(spent).unwrap_or(u32::MAX).saturating_add(grace_seconds);
                }
            }
        }
    }

    /// Takes every instance that was decided to end one step further.
    pub(super) fn carry_out_kills(&mut self, spec: &PodSpec, seen: &PodInspection) {
        for container in seen.containers.iter().filter(|c| actions::may_run(c.state)) {
            let Some(kill) = self.flow.kills.get(&container.id).cloned() else { continue };
            let end = End {
                deadline: kill.began.after(Duration::from_secs(u64::from(kill.grace_seconds))),
                graceful: kill.grace_seconds > 0,
                waits: kill.in_order && order::waits(spec, &container.name, |name| self.lives(spec, seen, name)),
                rule: kill.rule,
            };
            self.end(Some(spec), seen, container, end);
        }
    }

    /// True while an instance of this name may run or is being started.
    pub(super) fn lives(&self, spec: &PodSpec, seen: &PodInspection, name: &str) -> bool {
        let runs = seen.containers.iter().any(|c| *c.name == *name && actions::may_run(c.state));
        let starts = self.flow.in_flight.iter().any(|(_, step)| match step {
            Step::CreateContainer(i) | Step::StartContainer(i, _) => {
                spec.containers.get(usize::from(*i)).is_some_and(|c| *c.name == *name)
            }
            _ => false,
        });
        runs || starts
    }

    /// Takes the end of one instance one step further.
    pub(super) fn end(&mut self, spec: Option<&PodSpec>, seen: &PodInspection, container: &ContainerStatus, end: End) {
        let now = self.node.now();
        let asked = self.flow.stopping.get(&container.id).copied();
        if asked.is_none() {
            self.tell_end(spec, container);
            if !self.pre_stop_is_over(spec, seen, container, end) {
                return;
            }
            if end.waits && now < end.deadline {
                self.wake_at(end.deadline);
                return;
            }
        }
        let kill_at = end.deadline.max(now.after(LEAST));
        // Asked again only to shorten what is left.
        if asked.is_some_and(|at| at <= kill_at) {
            return;
        }
        self.flow.last_event = format!("Stopping container {}", container.name).into();
        self.stop(container.id.clone(), kill_at, end.rule);
    }

    /// Tells the cluster once that an instance is ended.
    fn tell_end(&mut self, spec: Option<&PodSpec>, container: &ContainerStatus) {
        if self.flow.told_ends.insert(container.id.clone()) {
            let index = spec.and_then(|spec| spec.containers.iter().position(|c| c.name == container.name));
            let why = self.flow.kill_reasons.remove(&container.id);
            let text = why.unwrap_or_else(|| format!("Stopping container {}", container.name));
            self.flow.events.normal("Killing", text, index.and_then(|index| u16::try_from(index).ok()));
        }
    }

    fn stop(&mut self, id: ContainerId, kill_at: Mono, rule: &'static str) {
        let left = kill_at.since(self.node.now());
        let whole = left.as_secs() + u64::from(left.subsec_nanos() > 0);
        let grace_seconds = u32::try_from(whole).unwrap_or(u32::MAX);
        let grace_seconds = if self.node.planted(Bug::IgnoreGrace) { 0 } else { grace_seconds };
        let timeout = self.node.timeout() + Duration::from_secs(u64::from(grace_seconds));
        // Works of one strand wait for each other: the longer stop must not hold the shorter one up.
        let known = Step::StopContainer(id.clone());
        for (ticket, _) in self.flow.in_flight.iter().filter(|(_, step)| *step == known) {
            self.emitter.outbox.cancel(*ticket);
        }
        self.flow.stopping.insert(id.clone(), kill_at);
        let effect = Effect::Cri(CriEffect::StopContainer { id: id.clone(), grace_seconds });
        self.emit(Step::StopContainer(id), effect, timeout, rule);
    }

    /// Runs the pre-stop hook of a running instance once; true when nothing is to be waited for any more.
    fn pre_stop_is_over(
        &mut self,
        spec: Option<&PodSpec>,
        seen: &PodInspection,
        container: &ContainerStatus,
        end: End,
    ) -> bool {
        let now = self.node.now();
        let index = spec.and_then(|spec| spec.containers.iter().position(|c| c.name == container.name));
        let known = self.flow.hooks.get(&container.id).cloned();
        if let Some(HookRun { kind: HookKind::PreStop, state }) = &known {
            return match state {
                HookState::Running { ticket, until } if now < end.deadline && (ticket.is_some() || now < *until) => {
                    self.wake_at(if ticket.is_some() { end.deadline } else { end.deadline.min(*until) });
                    false
                }
                // Out of time. It is not cut off: it ends with its container.
                HookState::Running { .. } => {
                    self.set_hook(&container.id, HookKind::PreStop, HookState::Over);
                    true
                }
                _ => true,
            };
        }
        // It ends: nobody waits for what was to follow its start.
        self.give_hook_up(&container.id);
        let hook = index.zip(spec).and_then(|(i, spec)| Some((i, spec.containers[i].lifecycle.pre_stop.clone()?)));
        let runs = container.state == ContainerState::Running && end.graceful && now < end.deadline;
        match hook.filter(|_| runs) {
            Some((index, action)) => self.begin_hook(seen, container, index, HookKind::PreStop, &action, end.deadline),
            None => true,
        }
    }

    /// Stops waiting for the hook of an instance; what it still does is cut off.
    pub(super) fn give_hook_up(&mut self, id: &ContainerId) {
        let Some(hook) = self.flow.hooks.get_mut(id) else { return };
        if let HookState::Running { ticket: Some(ticket), .. } = hook.state {
            self.emitter.outbox.cancel(ticket);
        }
        hook.state = HookState::Over;
    }

    /// Ends what a pod that lives on no longer wants: as its actions say, and where a start's hook failed.
    pub(super) fn decide_kills(&mut self, spec: &PodSpec, seen: &Arc<PodInspection>, actions: &actions::PodActions) {
        for (id, why) in &actions.stop {
            if !self.flow.kills.contains_key(id) {
                self.flow.last_event = why.as_str().into();
                self.flow.kill_reasons.insert(id.clone(), why.clone());
            }
            let replaced = actions.replaced.iter().find(|(replaced, _)| replaced == id);
            if let Some(run) = replaced.and_then(|(_, index)| self.runs.get_mut(*index)) {
                run.replaced = Some(id.clone());
            }
            let condemned = actions.condemned.iter().find(|(condemned, ..)| condemned == id);
            let (grace, rule) = match condemned {
                _ if actions.restart_all => (0, "an ended container restarts all of its pod"),
                Some((_, index, probe)) => (probe_grace(spec, *index, *probe), "a probe of it failed too often"),
                None => (spec.grace_seconds, "its definition or sandbox changed"),
            };
            self.kill(id, grace, actions.stop_in_order, rule);
        }
        let failed = |id: &ContainerId, hook: &HookRun| {
            let of = seen.containers.iter().any(|c| c.id == *id && actions::may_run(c.state));
            of && hook.kind == HookKind::PostStart && hook.state == HookState::Failed
        };
        let failed: Vec<ContainerId> =
            self.flow.hooks.iter().filter(|(id, hook)| failed(id, hook)).map(|(id, _)| id.clone()).collect();
        for id in failed {
            self.flow.kill_reasons.entry(id.clone()).or_insert_with(|| "FailedPostStartHook".to_owned());
            self.kill(&id, spec.grace_seconds, false, "its postStart hook failed");
        }
    }

    /// Begins the hooks of instances that were just started, and ends those that have slept enough.
    pub(super) fn tend_post_start(&mut self, spec: &PodSpec, seen: &PodInspection) {
        let now = self.node.now();
        for (index, container) in spec.containers.iter().enumerate() {
            let Some(action) = &container.lifecycle.post_start else { continue };
            for status in seen.containers.iter().filter(|c| c.name == container.name) {
                let Some(hook) = self.flow.hooks.get(&status.id).filter(|h| h.kind == HookKind::PostStart) else {
                    continue;
                };
                match hook.state {
                    HookState::Due if status.state == ContainerState::Running => {
                        let patience = now.after(super::hooks::PATIENCE);
                        self.begin_hook(seen, status, index, HookKind::PostStart, action, patience);
                    }
                    HookState::Running { ticket, until } if until <= now => {
                        self.give_hook_up(&status.id);
                        if ticket.is_some() {
                            self.set_hook(&status.id, HookKind::PostStart, HookState::Failed);
                        }
                    }
                    HookState::Running { until, .. } => self.wake_at(until),
                    _ => {}
                }
            }
        }
    }

    /// A hook that follows a start is under way: nothing else of the pod is started before it is over.
    pub(super) fn post_start_pending(&self) -> bool {
        let pending = |hook: &HookRun| hook.kind == HookKind::PostStart && hook.state.is_pending();
        self.flow.hooks.values().any(pending)
    }

    /// Forgets hooks and ends of instances that run no more.
    pub(super) fn forget_ended(&mut self, seen: &PodInspection) {
        let runs = |id: &ContainerId| seen.containers.iter().any(|c| c.id == *id && actions::may_run(c.state));
        let created =
            |id: &ContainerId| seen.containers.iter().any(|c| c.id == *id && c.state == ContainerState::Created);
        let new = |id: &ContainerId, flow: &components::world::Flow| flow.new_containers.iter().any(|(n, _)| n == id);
        let over: Vec<ContainerId> =
            self.flow.hooks.keys().filter(|id| !runs(id) && !created(id) && !new(id, self.flow)).cloned().collect();
        for id in over {
            self.give_hook_up(&id);
            self.flow.hooks.remove(&id);
        }
        self.flow.told_ends.retain(runs);
        self.flow.kill_reasons.retain(|id, _| runs(id));
        self.flow.kills.retain(|id, _| runs(id));
        self.flow.stopping.retain(|id, _| runs(id));
    }

    /// The pod ends: what was to follow a start is cut off.
    pub(super) fn abandon_post_start(&mut self) {
        let pending: Vec<ContainerId> = self
            .flow
            .hooks
            .iter()
            .filter(|(_, hook)| hook.kind == HookKind::PostStart && hook.state.is_pending())
            .map(|(id, _)| id.clone())
            .collect();
        for id in pending {
            self.give_hook_up(&id);
        }
    }
}

/// Grace period of a container that a probe condemns: the probe's own, where it has one.
fn probe_grace(spec: &PodSpec, index: usize, probe: components::probes::ProbeKind) -> u32 {
    let probes = spec.containers.get(index).map(|c| c.probes.as_slice()).unwrap_or_default();
    let own = probes.iter().find(|(kind, _)| *kind == probe).and_then(|(_, set)| set.grace_seconds);
    own.unwrap_or(spec.grace_seconds)
}
