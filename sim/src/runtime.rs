//! A container runtime as a pure model: sandboxes, containers, images and their rules, in whatever time it is told.
//!
//! Decides what a CRI runtime like containerd would do with a call at an instant; reads only its arguments; writes
//! only itself. No clock, no files, no randomness: two models given the same calls are equal. `sim::node` drives it
//! in virtual time, `sim::serve` in real time.

pub mod behaviour;
pub mod images;
pub mod model;

use crate::runtime::behaviour::Behaviour;
use crate::runtime::images::{Image, Images};
use crate::runtime::model::{Container, ContainerRequest, Refusal, RuntimeEvent, Sandbox, SandboxRequest};
use components::edge::FailureClass;
use components::edge::cri::{ContainerChange, ContainerState, LinuxResources, NamespaceMode, SandboxState};
use components::ids::{ContainerId, PodUid, SandboxId};
use components::time::{Mono, Now, Wall};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Names of its runtimes; the empty one is the default.
pub(crate) const HANDLERS: [&str; 2] = ["", "runc"];
/// Exit code of a process that ended by SIGTERM.
const TERMINATED: i32 = 143;
/// Exit code of a process that ended by SIGKILL.
const KILLED: i32 = 137;
/// Events kept for a reader that does not come.
const EVENTS_KEPT: usize = 65_536;

/// The model.
#[derive(Debug, Clone)]
pub struct Runtime {
    seed: u64,
    counter: u64,
    /// 64 hexadecimal digits as a real runtime gives, instead of short readable ids.
    long_ids: bool,
    sandboxes: BTreeMap<SandboxId, Sandbox>,
    containers: BTreeMap<ContainerId, Container>,
    by_pod: BTreeMap<PodUid, BTreeSet<SandboxId>>,
    names: BTreeMap<String, String>,
    due: BTreeSet<(Mono, ContainerId)>,
    addresses: BTreeSet<u32>,
    next_address: u32,
    events: Vec<RuntimeEvent>,
    /// Images that are here and those that can be pulled.
    pub images: Images,
    /// Condition `NetworkReady`.
    pub network_ready: bool,
}

impl Runtime {
    /// An empty runtime. `seed` makes its ids differ from those of another one.
    #[must_use]
    pub fn new(seed: u64, long_ids: bool) -> Self {
        Self {
            seed,
            counter: 0,
            long_ids,
            sandboxes: BTreeMap::new(),
            containers: BTreeMap::new(),
            by_pod: BTreeMap::new(),
            names: BTreeMap::new(),
            due: BTreeSet::new(),
            addresses: BTreeSet::new(),
            next_address: 0,
            events: Vec::new(),
            images: Images::default(),
            network_ready: true,
        }
    }

    // === time ===

    /// When the next container ends by itself or is killed at the end of its grace.
    #[must_use]
    pub fn next_due(&self) -> Option<Mono> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Lets everything happen that is due by now.
    pub fn advance(&mut self, now: Now) {
        while let Some((at, id)) = self.due.first().cloned() {
            if at > now.mono {
                break;
            }
            self.due.pop_first();
            let Some(container) = self.containers.get(&id) else {
                continue;
            };
            let code = match container.kill_at {
                Some(kill) if kill == at => KILLED,
                _ => container.behaviour.exit_code,
            };
            self.end(now, &id, code);
        }
    }

    // === sandboxes ===

    /// `RunPodSandbox`.
    ///
    /// # Errors
    /// When the name is taken or the network is not ready.
    pub fn run_sandbox(&mut self, now: Now, request: SandboxRequest) -> Result<SandboxId, Refusal> {
        self.advance(now);
        let key = format!("{}_{}_{}_{}", request.name, request.namespace, request.uid, request.attempt);
        self.check_name("sandbox", &key)?;
        if !HANDLERS.contains(&request.handler.as_str()) {
            let message = format!("failed to get sandbox runtime: no runtime for {:?} is configured", request.handler);
            return Err(Refusal::new(FailureClass::Other, message));
        }
        let host_network = request.namespaces.network == NamespaceMode::Node;
        if !host_network && !self.network_ready {
            return Err(Refusal::new(
                FailureClass::Other,
                "network plugin is not initialized: no network configuration found",
            ));
        }
        let id = SandboxId::from(self.new_id("s"));
        self.names.insert(key.clone(), id.to_string());
        let address = (!host_network).then(|| self.take_address());
        let pod = PodUid::from(request.uid.as_str());
        self.by_pod.entry(pod.clone()).or_default().insert(id.clone());
        self.sandboxes.insert(
            id.clone(),
            Sandbox {
                id: id.clone(),
                pod,
                request,
                key,
                state: SandboxState::Ready,
                created: now.wall,
                address,
                containers: BTreeSet::new(),
            },
        );
        self.sandbox_event(now, &id, ContainerChange::Created);
        self.sandbox_event(now, &id, ContainerChange::Started);
        Ok(id)
    }

    /// `StopPodSandbox`: its containers are killed at once, its network is taken down.
    ///
    /// # Errors
    /// When there is no such sandbox.
    pub fn stop_sandbox(&mut self, now: Now, id: &SandboxId) -> Result<(), Refusal> {
        self.advance(now);
        let sandbox = self.sandboxes.get(id).ok_or_else(|| missing("sandbox", id))?;
        for container in sandbox.containers.clone() {
            self.end(now, &container, KILLED);
        }
        self.make_not_ready(now, id);
        Ok(())
    }

    /// `RemovePodSandbox`: with everything in it.
    ///
    /// # Errors
    /// When there is no such sandbox.
    pub fn remove_sandbox(&mut self, now: Now, id: &SandboxId) -> Result<(), Refusal> {
        self.stop_sandbox(now, id)?;
        let inner = self.sandboxes.get(id).map(|s| s.containers.clone()).unwrap_or_default();
        for container in inner {
            self.remove_container(now, &container)?;
        }
        self.sandbox_event(now, id, ContainerChange::Deleted);
        if let Some(sandbox) = self.sandboxes.remove(id) {
            self.names.remove(&sandbox.key);
            if let Some(address) = sandbox.address {
                self.addresses.remove(&address);
            }
            if let Some(of_pod) = self.by_pod.get_mut(&sandbox.pod) {
                of_pod.remove(id);
                if of_pod.is_empty() {
                    self.by_pod.remove(&sandbox.pod);
                }
            }
        }
        Ok(())
    }

    /// The sandbox dies by itself (its pause process was killed); its containers live on unless they share its
    /// process namespace.
    pub fn lose_sandbox(&mut self, now: Now, id: &SandboxId) {
        self.advance(now);
        let shared = self
            .sandboxes
            .get(id)
            .is_some_and(|s| s.request.namespaces.pid == NamespaceMode::Pod && s.state == SandboxState::Ready);
        if shared {
            for container in self.sandboxes[id].containers.clone() {
                self.end(now, &container, KILLED);
            }
        }
        self.make_not_ready(now, id);
    }

    // === containers ===

    /// `CreateContainer`.
    ///
    /// # Errors
    /// When the sandbox is missing or not ready, the image is not here or the name is taken.
    pub fn create_container(
        &mut self,
        now: Now,
        sandbox_id: &SandboxId,
        request: ContainerRequest,
    ) -> Result<ContainerId, Refusal> {
        self.advance(now);
        let sandbox = self.sandboxes.get(sandbox_id).ok_or_else(|| missing("sandbox", sandbox_id))?;
        if sandbox.state != SandboxState::Ready {
            return Err(Refusal::new(FailureClass::Other, format!("sandbox container {sandbox_id} is not running")));
        }
        if self.images.find(&request.image_ref).is_none() {
            return Err(Refusal::new(FailureClass::NotFound, format!("image {:?} not found", request.image_ref)));
        }
        let key = format!(
            "{}_{}_{}_{}_{}",
            request.name, sandbox.request.name, sandbox.request.namespace, sandbox.request.uid, request.attempt
        );
        let pod = sandbox.pod.clone();
        self.check_name("container", &key)?;
        let id = ContainerId::from(self.new_id("c"));
        self.names.insert(key.clone(), id.to_string());
        let behaviour = Behaviour::of(&request.command, &request.args);
        self.containers.insert(
            id.clone(),
            Container {
                id: id.clone(),
                pod,
                sandbox: sandbox_id.clone(),
                request,
                key,
                behaviour,
                state: ContainerState::Created,
                created: now.wall,
                started: Wall(0),
                finished: Wall(0),
                exit_code: 0,
                reason: String::new(),
                ends_at: None,
                kill_at: None,
            },
        );
        if let Some(sandbox) = self.sandboxes.get_mut(sandbox_id) {
            sandbox.containers.insert(id.clone());
        }
        self.container_event(now, &id, ContainerChange::Created);
        Ok(id)
    }

    /// `UpdateContainerResources`: what is zero stays as it is.
    ///
    /// # Errors
    /// When the container is missing or has ended.
    pub fn update_container(&mut self, now: Now, id: &ContainerId, wanted: &LinuxResources) -> Result<(), Refusal> {
        self.advance(now);
        let container = self.containers.get_mut(id).ok_or_else(|| missing("container", id))?;
        if !matches!(container.state, ContainerState::Created | ContainerState::Running) {
            let message = format!("rpc error: code = Unknown desc = container is in state {:?}", container.state);
            return Err(Refusal::new(FailureClass::Other, message));
        }
        let has = &mut container.request.resources;
        for (field, value) in [
            (&mut has.cpu_period, wanted.cpu_period),
            (&mut has.cpu_quota, wanted.cpu_quota),
            (&mut has.cpu_shares, wanted.cpu_shares),
            (&mut has.memory_limit_bytes, wanted.memory_limit_bytes),
            (&mut has.memory_swap_limit_bytes, wanted.memory_swap_limit_bytes),
            (&mut has.oom_score_adj, wanted.oom_score_adj),
        ] {
            if value != 0 {
                *field = value;
            }
        }
        has.unified.extend(wanted.unified.clone());
        Ok(())
    }

    /// `StartContainer`.
    ///
    /// # Errors
    /// When the container is missing or was started before, or its sandbox is not ready.
    pub fn start_container(&mut self, now: Now, id: &ContainerId) -> Result<(), Refusal> {
        self.advance(now);
        let container = self.containers.get_mut(id).ok_or_else(|| missing("container", id))?;
        if container.state != ContainerState::Created {
            return Err(Refusal::new(FailureClass::Other, format!("container is in state {:?}", container.state)));
        }
        let ready = self.sandboxes.get(&container.sandbox).is_some_and(|s| s.state == SandboxState::Ready);
        if !ready {
            return Err(Refusal::new(
                FailureClass::Other,
                format!("sandbox container {} is not running", container.sandbox),
            ));
        }
        container.state = ContainerState::Running;
        container.started = now.wall;
        if let Some(runs) = container.behaviour.runs_for {
            let at = now.mono.after(runs);
            container.ends_at = Some(at);
            self.due.insert((at, id.clone()));
        }
        self.container_event(now, id, ContainerChange::Started);
        Ok(())
    }

    /// `StopContainer`, without the waiting: the signal is sent, the kill is set for the end of the grace. The call
    /// is over once [`Self::is_running`] is false.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn stop_container(&mut self, now: Now, id: &ContainerId, grace: Duration) -> Result<(), Refusal> {
        self.advance(now);
        let container = self.containers.get_mut(id).ok_or_else(|| missing("container", id))?;
        if container.state != ContainerState::Running {
            return Ok(());
        }
        let polite = container.behaviour.on_term(TERMINATED);
        if grace.is_zero() {
            self.end(now, id, KILLED);
        } else if let Some((code, Duration::ZERO)) = polite {
            self.end(now, id, code);
        } else {
            if let (Some((code, after)), None) = (polite, container.kill_at) {
                let at = now.mono.after(after);
                if container.ends_at.is_none_or(|sooner| at < sooner) {
                    container.behaviour.exit_code = code;
                    if let Some(later) = container.ends_at.replace(at) {
                        self.due.remove(&(later, id.clone()));
                    }
                    self.due.insert((at, id.clone()));
                }
            }
            let at = now.mono.after(grace);
            if container.kill_at.is_none_or(|earlier| at < earlier) {
                if let Some(earlier) = container.kill_at.replace(at) {
                    self.due.remove(&(earlier, id.clone()));
                }
                self.due.insert((at, id.clone()));
            }
        }
        Ok(())
    }

    /// Nobody waits for a stopped container's end any more: it is not killed at the end of its grace.
    pub fn forget_stop(&mut self, id: &ContainerId) {
        if let Some(at) = self.containers.get_mut(id).and_then(|c| c.kill_at.take()) {
            self.due.remove(&(at, id.clone()));
        }
    }

    /// `RemoveContainer`: a running one is killed first.
    ///
    /// # Errors
    /// When there is no such container.
    pub fn remove_container(&mut self, now: Now, id: &ContainerId) -> Result<(), Refusal> {
        self.advance(now);
        if !self.containers.contains_key(id) {
            return Err(missing("container", id));
        }
        self.end(now, id, KILLED);
        self.container_event(now, id, ContainerChange::Deleted);
        if let Some(container) = self.containers.remove(id) {
            self.names.remove(&container.key);
            if let Some(sandbox) = self.sandboxes.get_mut(&container.sandbox) {
                sandbox.containers.remove(id);
            }
        }
        Ok(())
    }

    /// `ReopenContainerLog`.
    ///
    /// # Errors
    /// When the container does not run.
    pub fn reopen_log(&mut self, now: Now, id: &ContainerId) -> Result<(), Refusal> {
        self.advance(now);
        match self.containers.get(id) {
            Some(container) if container.state == ContainerState::Running => Ok(()),
            Some(_) => Err(Refusal::new(FailureClass::Other, "container is not running")),
            None => Err(missing("container", id)),
        }
    }

    /// The container's process ends with `code`, whatever it was meant to do.
    pub fn kill_container(&mut self, now: Now, id: &ContainerId, code: i32) {
        self.advance(now);
        self.end(now, id, code);
    }

    /// `ExecSync`, without the waiting: what the command does in the running container.
    ///
    /// # Errors
    /// When there is no such container or it does not run.
    pub fn exec(&self, id: &ContainerId, command: &[String]) -> Result<Behaviour, Refusal> {
        let container = self.containers.get(id).ok_or_else(|| missing("container", id))?;
        if container.state != ContainerState::Running {
            let message = format!("container is in {:?} state", container.state);
            return Err(Refusal::new(FailureClass::Other, message));
        }
        Ok(Behaviour::of(command, &[]))
    }

    // === reading ===

    /// True while the container's process lives.
    #[must_use]
    pub fn is_running(&self, id: &ContainerId) -> bool {
        self.containers.get(id).is_some_and(|c| c.state == ContainerState::Running)
    }

    /// All sandboxes by id.
    #[must_use]
    pub fn sandboxes(&self) -> &BTreeMap<SandboxId, Sandbox> {
        &self.sandboxes
    }

    /// All containers by id.
    #[must_use]
    pub fn containers(&self) -> &BTreeMap<ContainerId, Container> {
        &self.containers
    }

    /// Sandboxes of a pod.
    pub fn sandboxes_of(&self, pod: &PodUid) -> impl Iterator<Item = &Sandbox> {
        self.by_pod.get(pod).into_iter().flatten().filter_map(|id| self.sandboxes.get(id))
    }

    /// Containers of a pod.
    pub fn containers_of(&self, pod: &PodUid) -> impl Iterator<Item = &Container> {
        self.sandboxes_of(pod).flat_map(|s| s.containers.iter()).filter_map(|id| self.containers.get(id))
    }

    /// Takes the events since the last call, oldest first.
    pub fn take_events(&mut self) -> Vec<RuntimeEvent> {
        std::mem::take(&mut self.events)
    }

    /// The image with this name or id, when it is here.
    #[must_use]
    pub fn find_image(&self, name: &str) -> Option<&Image> {
        self.images.find(name)
    }

    // === helpers ===

    fn end(&mut self, now: Now, id: &ContainerId, code: i32) {
        let Some(container) = self.containers.get_mut(id) else {
            return;
        };
        if container.state != ContainerState::Running {
            return;
        }
        container.state = ContainerState::Exited;
        container.exit_code = code;
        container.finished = now.wall;
        container.reason = if code == 0 { "Completed" } else { "Error" }.to_owned();
        for at in [container.ends_at.take(), container.kill_at.take()].into_iter().flatten() {
            self.due.remove(&(at, id.clone()));
        }
        self.container_event(now, id, ContainerChange::Stopped);
    }

    fn make_not_ready(&mut self, now: Now, id: &SandboxId) {
        let Some(sandbox) = self.sandboxes.get_mut(id) else {
            return;
        };
        if sandbox.state == SandboxState::Ready {
            sandbox.state = SandboxState::NotReady;
            if let Some(address) = sandbox.address.take() {
                self.addresses.remove(&address);
            }
            self.sandbox_event(now, id, ContainerChange::Stopped);
        }
    }

    fn check_name(&self, what: &str, key: &str) -> Result<(), Refusal> {
        self.names.get(key).map_or(Ok(()), |owner| {
            Err(Refusal::new(
                FailureClass::Other,
                format!("failed to reserve {what} name {key:?}: name {key:?} is reserved for {owner:?}"),
            ))
        })
    }

    fn take_address(&mut self) -> u32 {
        loop {
            self.next_address = self.next_address % 65_000 + 1;
            // 10.88.0.1 is the node's own.
            let address = self.next_address + 1;
            if self.addresses.insert(address) {
                return address;
            }
        }
    }

    fn new_id(&mut self, prefix: &str) -> String {
        self.counter += 1;
        if !self.long_ids {
            return format!("{prefix}{:05}", self.counter);
        }
        let mut state = self.seed ^ self.counter.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (0..4).map(|_| format!("{:016x}", splitmix(&mut state))).collect()
    }

    fn sandbox_event(&mut self, now: Now, id: &SandboxId, change: ContainerChange) {
        if let Some(sandbox) = self.sandboxes.get(id) {
            let event =
                RuntimeEvent { pod: sandbox.pod.clone(), id: ContainerId::from(id.as_str()), change, at: now.wall };
            self.push_event(event);
        }
    }

    fn container_event(&mut self, now: Now, id: &ContainerId, change: ContainerChange) {
        if let Some(container) = self.containers.get(id) {
            let event = RuntimeEvent { pod: container.pod.clone(), id: id.clone(), change, at: now.wall };
            self.push_event(event);
        }
    }

    fn push_event(&mut self, event: RuntimeEvent) {
        if self.events.len() < EVENTS_KEPT {
            self.events.push(event);
        }
    }
}

/// One step of the SplitMix64 generator.
#[must_use]
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn missing(what: &str, id: &impl std::fmt::Display) -> Refusal {
    Refusal::new(FailureClass::NotFound, format!("an error occurred when try to find {what} {id}: not found"))
}

#[cfg(test)]
mod tests;
