//! A node whose runtime, host and manifest directory answer every work at once and never fail.
//!
//! Only the ticks are timed: what the answers cost is not the core's. Time moves only when asked to.

use crate::measure::{Samples, thread_cpu};
use components::edge::cri::{
    ContainerBrief, ContainerChange, ContainerState, ContainerStatus, CriAnswer, CriEffect, CriIngress, FoundImage,
    PodInspection, RuntimeInfo, RuntimeList, SandboxBrief, SandboxState, SandboxStatus,
};
use components::edge::hooks::HooksAnswer;
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::probes::ProbesAnswer;
use components::edge::sources::{Manifest, Source, SourcesAnswer, SourcesEffect};
use components::edge::{Answer, Completion, Effect, Ingress, Outcome, Work};
use components::ids::{ContainerId, PodUid, SandboxId, Ticket};
use components::node::{Boot, Machine, NodeConfig};
use components::time::{Mono, Now, Wall};
use engine::Engine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Wall time at the start of every run.
const WALL_START: i64 = 1_780_000_000_000_000_000;
/// Ticks at one instant after which the core is taken to run in circles.
const CIRCLE: usize = 10_000;

/// One container with its sandbox, as the runtime has it.
#[derive(Debug, Clone)]
struct Made {
    uid: PodUid,
    name: String,
    sandbox: SandboxId,
    container: Option<(ContainerId, Arc<str>, u32)>,
    hash: Option<u32>,
    state: ContainerState,
    ended: Wall,
    log_path: String,
}

/// The node.
pub struct InstantNode {
    engine: Engine,
    now: Now,
    manifests: Option<Vec<Manifest>>,
    pods: BTreeMap<PodUid, Made>,
    containers: u64,
    inputs: Vec<Ingress>,
    /// CPU time of every tick since it was last taken.
    pub samples: Samples,
}

impl InstantNode {
    /// A node with `pods` manifests of one container each, before its first tick.
    #[must_use]
    pub fn new(pods: usize) -> Self {
        let mut engine = Engine::new(boot());
        systems::plugin(&mut engine);
        Self {
            engine,
            now: Now { mono: Mono(0), wall: Wall(WALL_START) },
            manifests: Some((0..pods).map(manifest).collect()),
            pods: BTreeMap::new(),
            containers: 0,
            inputs: Vec::new(),
            samples: Samples::default(),
        }
    }

    /// Containers that run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.pods.values().filter(|pod| pod.state == ContainerState::Running && pod.container.is_some()).count()
    }

    /// Pods that the core reports as running.
    #[must_use]
    pub fn reported_running(&self) -> usize {
        let snapshot = &self.engine.world().resource::<engine::Published>().0;
        snapshot.pods().filter(|pod| pod.status.phase == components::status::Phase::Running).count()
    }

    /// Containers made since the start.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.containers
    }

    /// Ticks until nothing is left to answer; deadlines that have passed are met.
    ///
    /// # Panics
    /// When the core goes round in circles.
    pub fn settle(&mut self) {
        for _ in 0..CIRCLE {
            if self.inputs.is_empty() && self.engine.next_deadline().is_none_or(|at| at > self.now.mono) {
                return;
            }
            self.tick();
        }
        panic!("no rest after {CIRCLE} ticks");
    }

    /// Lets time pass: ticks at every deadline on the way, and answers what they ask.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now.mono.after(time);
        while let Some(due) = self.engine.next_deadline().filter(|due| *due <= end) {
            self.go_to(due.max(self.now.mono));
            self.settle();
        }
        self.go_to(end);
    }

    /// One tick with what has come in, if anything.
    pub fn tick(&mut self) {
        let batch = std::mem::take(&mut self.inputs);
        let before = thread_cpu();
        let output = self.engine.tick(self.now, batch);
        self.samples.push(thread_cpu().saturating_sub(before));
        for work in output.works {
            self.answer(work);
        }
    }

    /// Ends the container of the `nth` pod (of those that exist) and lets the event come in.
    pub fn kill(&mut self, nth: usize) {
        let now = self.now.wall;
        let Some(pod) = self.pods.values_mut().nth(nth) else { return };
        let Some((id, _, _)) = &pod.container else { return };
        let id = id.clone();
        pod.state = ContainerState::Exited;
        pod.ended = now;
        let change = ContainerChange::Stopped;
        self.inputs.push(Ingress::Cri(CriIngress::ContainerChanged { pod: pod.uid.clone(), id, change }));
    }

    fn go_to(&mut self, mono: Mono) {
        let passed = mono.since(self.now.mono);
        let nanos = i64::try_from(passed.as_nanos()).unwrap_or(i64::MAX);
        self.now = Now { mono, wall: Wall(self.now.wall.0 + nanos) };
    }

    fn answer(&mut self, work: Work) {
        let answer = match work.effect {
            Effect::Cri(call) => self.cri(call),
            Effect::Host(HostEffect::PreparePod(_)) => {
                Answer::Host(HostAnswer::PodPrepared { log_attempts: Vec::new() })
            }
            Effect::Host(_) => Answer::Nothing,
            Effect::Hooks(_) => Answer::Hooks(HooksAnswer::Called { status: 200, fell_back: false }),
            Effect::Sources(SourcesEffect::ReadManifests | SourcesEffect::FetchManifestUrl) => {
                Answer::Sources(self.read_manifests())
            }
            Effect::Probes(_) => Answer::Probes(ProbesAnswer::Passed),
            // The measured node works on its own and asks no API server.
            Effect::Api(_) => Answer::Nothing,
        };
        self.complete(work.ticket, answer);
    }

    /// The content once, then that it did not change, as the real reader says.
    fn read_manifests(&mut self) -> SourcesAnswer {
        let source = Source::File;
        match self.manifests.take() {
            Some(manifests) => SourcesAnswer::ManifestsRead { source, manifests, problems: Vec::new() },
            None => SourcesAnswer::ManifestsUnchanged { source },
        }
    }

    fn complete(&mut self, ticket: Ticket, answer: Answer) {
        self.inputs.push(Ingress::Completed(Completion { ticket, outcome: Outcome::Done(answer) }));
    }

    fn cri(&mut self, call: CriEffect) -> Answer {
        Answer::Cri(match call {
            CriEffect::ReadRuntime => CriAnswer::RuntimeRead(RuntimeInfo {
                name: "instant".to_owned(),
                version: "1".to_owned(),
                runtime_ready: true,
                network_ready: true,
                ..RuntimeInfo::default()
            }),
            CriEffect::ListRuntime => CriAnswer::RuntimeListed(self.list()),
            CriEffect::InspectPod { uid, .. } => CriAnswer::PodInspected(self.inspect(&uid)),
            CriEffect::RunSandbox { config, .. } => CriAnswer::SandboxStarted { id: self.run_sandbox(&config) },
            CriEffect::FindImage { .. } => CriAnswer::ImageFound(Some(FoundImage {
                image_ref: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".into(),
                uid: None,
                username: String::new(),
            })),
            CriEffect::SetPodCidr { .. } | CriEffect::UpdateContainer { .. } => return Answer::Nothing,
            CriEffect::ListImages => CriAnswer::ImagesListed(Vec::new()),
            CriEffect::PullImage { image, .. } => CriAnswer::ImagePulled { image_ref: image.as_str().into() },
            CriEffect::CreateContainer { sandbox_config, config, .. } => {
                CriAnswer::ContainerCreated { id: self.create(&sandbox_config, &config) }
            }
            CriEffect::StartContainer { id } => {
                if let Some(pod) = self.pod_of(&id) {
                    pod.state = ContainerState::Running;
                }
                return Answer::Nothing;
            }
            CriEffect::StopContainer { id, .. } => {
                if let Some(pod) = self.pod_of(&id) {
                    pod.state = ContainerState::Exited;
                }
                return Answer::Nothing;
            }
            CriEffect::RemoveSandbox { id } => {
                self.pods.retain(|_, pod| pod.sandbox != id);
                return Answer::Nothing;
            }
            CriEffect::StopSandbox { .. } | CriEffect::RemoveContainer { .. } | CriEffect::ReopenLog { .. } => {
                return Answer::Nothing;
            }
            CriEffect::ExecSync { .. } => CriAnswer::Executed { exit_code: 0, output: String::new() },
            CriEffect::WatchEvents => {
                self.inputs.push(Ingress::Cri(CriIngress::EventsOpened));
                return Answer::Nothing;
            }
        })
    }

    /// Ids tell the pod, so that no second index is needed: `c<number>-<uid>`.
    fn pod_of(&mut self, id: &ContainerId) -> Option<&mut Made> {
        let (_, uid) = id.as_str().split_once('-')?;
        self.pods.get_mut(&PodUid::from(uid))
    }

    fn run_sandbox(&mut self, config: &components::edge::cri::SandboxConfig) -> SandboxId {
        let uid = PodUid::from(config.uid.as_str());
        let sandbox = SandboxId::from(format!("s-{uid}"));
        let made = Made {
            uid: uid.clone(),
            name: config.name.clone(),
            sandbox: sandbox.clone(),
            container: None,
            hash: None,
            state: ContainerState::Created,
            ended: Wall(0),
            log_path: String::new(),
        };
        self.pods.insert(uid, made);
        sandbox
    }

    fn create(
        &mut self,
        sandbox: &components::edge::cri::SandboxConfig,
        config: &components::edge::cri::ContainerConfig,
    ) -> ContainerId {
        self.containers += 1;
        let id = ContainerId::from(format!("c{}-{}", self.containers, sandbox.uid));
        if let Some(pod) = self.pods.get_mut(&PodUid::from(sandbox.uid.as_str())) {
            pod.container = Some((id.clone(), config.name.as_str().into(), config.attempt));
            let hash = config.annotations.get("io.kubernetes.container.hash");
            pod.hash = hash.and_then(|text| u32::from_str_radix(text, 16).ok());
            pod.state = ContainerState::Created;
            pod.ended = Wall(0);
            pod.log_path = format!("{}/{}", sandbox.log_directory, config.log_path);
        }
        id
    }

    fn list(&self) -> RuntimeList {
        let mut list = RuntimeList::default();
        for pod in self.pods.values() {
            let (id, uid) = (pod.sandbox.clone(), pod.uid.clone());
            list.sandboxes.push(SandboxBrief { id, pod: uid, state: SandboxState::Ready });
            if let Some((id, _, _)) = &pod.container {
                let (id, sandbox) = (id.clone(), pod.sandbox.clone());
                list.containers.push(ContainerBrief { id, sandbox, state: pod.state });
            }
        }
        list.sandboxes.sort_by(|a, b| a.id.cmp(&b.id));
        list.containers.sort_by(|a, b| a.id.cmp(&b.id));
        list
    }

    fn inspect(&self, uid: &PodUid) -> PodInspection {
        let Some(pod) = self.pods.get(uid) else { return PodInspection::default() };
        let wall = Wall(WALL_START);
        PodInspection {
            namespace: "default".to_owned(),
            name: pod.name.clone(),
            sandboxes: vec![SandboxStatus {
                id: pod.sandbox.clone(),
                attempt: 0,
                state: SandboxState::Ready,
                created_at: wall,
                host_network: false,
                ips: vec!["10.1.2.3".to_owned()],
            }],
            containers: pod.container.iter().map(|(id, name, attempt)| status(pod, id, name, *attempt)).collect(),
        }
    }
}

fn status(pod: &Made, id: &ContainerId, name: &Arc<str>, attempt: u32) -> ContainerStatus {
    let ended = pod.state == ContainerState::Exited;
    ContainerStatus {
        id: id.clone(),
        sandbox: pod.sandbox.clone(),
        name: Arc::clone(name),
        attempt,
        restart_count: attempt,
        hash: pod.hash,
        grace_seconds: Some(30),
        state: pod.state,
        created_at: Wall(WALL_START),
        started_at: if pod.state == ContainerState::Created { Wall(0) } else { Wall(WALL_START) },
        finished_at: pod.ended,
        exit_code: i32::from(ended),
        reason: if ended { "Error".to_owned() } else { String::new() },
        message: String::new(),
        image: "registry.example/app/busybox:1.36".to_owned(),
        image_ref: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef".to_owned(),
        user: None,
        log_path: pod.log_path.clone(),
        size: None,
    }
}

/// A manifest as a node's administrator writes them: one container, some labels, an emptyDir.
fn manifest(index: usize) -> Manifest {
    let json = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("app-{index:05}"),
            "namespace": "default",
            "uid": format!("00000000-0000-4000-8000-{index:012}"),
            "labels": {"app": format!("app-{}", index % 50), "tier": "backend", "version": "v1"},
        },
        "spec": {
            "containers": [{
                "name": "main",
                "image": "registry.example/app/busybox:1.36",
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sleep", "100000"],
                "env": [{"name": "ROLE", "value": "backend"}, {"name": "NUMBER", "value": index.to_string()}],
                "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
            }],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    });
    let digest = index as u128 + 1;
    Manifest {
        origin: format!("/manifests/app-{index:05}.json").into(),
        index: 0,
        digest,
        json: json.to_string().into(),
    }
}

fn boot() -> Boot {
    let config = NodeConfig {
        node_name: "bench".into(),
        pull_qps: 0,
        cgroups_per_qos: false,
        max_pods: 10_000,
        ..NodeConfig::default()
    };
    let machine = Machine {
        hostname: "bench".to_owned(),
        node_ips: vec!["192.0.2.1".to_owned()],
        cpus: 2,
        memory_bytes: 8 << 30,
        ..Machine::default()
    };
    Boot { config, machine, records: Vec::new(), seed: 1, tickets: 0 }
}
