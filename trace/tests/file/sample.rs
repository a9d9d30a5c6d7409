//! Hand-made frames with every kind of input and of decision.

use components::edge::control::ControlIngress;
use components::edge::cri::started::StartedObject;
use components::edge::cri::*;
use components::edge::host::HostAnswer;
use components::edge::sources::*;
use components::edge::store::{Record, StoreIngress};
use components::edge::*;
use components::ids::{PodUid, Sensitive, Ticket};
use components::node::{Boot, Machine, NodeConfig};
use components::time::{Mono, Now, Wall};
use std::time::Duration;
use trace::{Builder, Ending, Header, TickEffects};

pub(crate) const SECRET: &str = "hunter2-hunter2";
pub(crate) const TOOL: &str = "0.1.0-golden";

pub(crate) fn header() -> Header {
    let config = NodeConfig {
        node_name: "node-1".into(),
        cluster_dns: vec!["10.96.0.10".into()],
        cluster_domain: "cluster.local".into(),
        ..NodeConfig::default()
    };
    Header {
        ticklet: TOOL.into(),
        started: Wall(1_700_000_000_000_000_000),
        segment: 0,
        from_boot: true,
        boot: Boot {
            config,
            machine: Machine { hostname: "node-1".into(), cpus: 4, ..Machine::default() },
            records: records(),
            seed: u64::MAX,
            tickets: 17,
        },
    }
}

pub(crate) fn now(seconds: u64) -> Now {
    let nanos = seconds * 1_000_000_000;
    Now { mono: Mono(nanos), wall: Wall(1_700_000_000_000_000_000 + nanos.cast_signed()) }
}

pub(crate) fn records() -> Vec<Record> {
    let uid: PodUid = "uid-1".into();
    vec![
        Record::PodAdmitted { uid: uid.clone(), name: "default/web".into(), cpu_milli: 100, memory_bytes: 1 << 20 },
        Record::PodFinished { uid: uid.clone(), succeeded: true },
        Record::PodForgotten { uid },
    ]
}

/// Every kind of input, a tick each for the relists, so that one tick refers to another.
pub(crate) fn ticks() -> Vec<Vec<Ingress>> {
    let manifest = |n: u32, value: &str| Manifest {
        origin: format!("/etc/kubernetes/manifests/{n}.yaml").into(),
        index: n,
        digest: u128::MAX - u128::from(n),
        json: format!(
            r#"{{"kind":"Pod","spec":{{"containers":[{{"name":"c","env":[{{"name":"T","value":"{value}"}}]}}]}}}}"#
        )
        .into(),
    };
    let read = |value: &str| {
        done(Answer::Sources(SourcesAnswer::ManifestsRead {
            source: Source::File,
            manifests: (0..3).map(|n| manifest(n, value)).collect(),
            problems: vec![ManifestProblem {
                origin: "/etc/kubernetes/manifests/bad.yaml".into(),
                message: "line 1: no object".into(),
            }],
        }))
    };
    let listed = |state| done(Answer::Cri(CriAnswer::RuntimeListed(list(state))));
    vec![
        asked(),
        vec![read(SECRET), listed(ContainerState::Created)],
        vec![listed(ContainerState::Created), read(SECRET)],
        vec![listed(ContainerState::Running), unchanged(Source::Http)],
        answers(),
    ]
}

/// What a reader gives back.
pub(crate) fn redacted_inputs() -> Vec<Ingress> {
    let mut inputs: Vec<_> = ticks().into_iter().flatten().collect();
    for input in &mut inputs {
        if let Ingress::Completed(completion) = input
            && let Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsRead { manifests, .. })) =
                &mut completion.outcome
        {
            for manifest in manifests {
                manifest.json = manifest.json.replace(SECRET, "<redacted>").into();
            }
        }
    }
    inputs
}

/// A work that stops a container.
pub(crate) fn stop(ticket: u64, timeout: u64, grace_seconds: u32) -> Work {
    Work {
        ticket: Ticket(ticket),
        lane: Lane::Pod { uid: "uid-1".into(), strand: 1 },
        chained: true,
        timeout: Duration::from_secs(timeout),
        why: Why { system: "stop_containers", rule: "the pod is terminating" },
        effect: Effect::Cri(CriEffect::StopContainer { id: "c".into(), grace_seconds }),
    }
}

pub(crate) fn build() -> Builder {
    let mut builder = Builder::new(&header()).unwrap();
    fill(&mut builder, |_| {});
    builder
}

/// The same frames, each in a block of its own.
pub(crate) fn small_blocks() -> Vec<u8> {
    let mut builder = Builder::new(&header()).unwrap();
    fill(&mut builder, Builder::flush);
    builder.finish(Ending::Closed).unwrap()
}

fn fill(builder: &mut Builder, mut after: impl FnMut(&mut Builder)) {
    let works = [stop(1, 30, 2), create()];
    for (n, inputs) in ticks().into_iter().enumerate() {
        let tick = n as u64 + 1;
        builder.begin(tick, now(tick), &inputs).unwrap();
        let effects = TickEffects { works: &works[..n % 3], cancels: &[Ticket(9)], durable: &records() };
        builder.end(&effects).unwrap();
        after(builder);
    }
}

fn create() -> Work {
    let effect = CriEffect::CreateContainer {
        sandbox: "sandbox-1".into(),
        config: Box::new(ContainerConfig {
            name: "c".into(),
            command: vec![Sensitive::from(SECRET)],
            envs: vec![("T".into(), Sensitive::from(SECRET))],
            ..ContainerConfig::default()
        }),
        sandbox_config: Box::default(),
    };
    Work { effect: Effect::Cri(effect), ..stop(2, 120, 0) }
}

fn completed(outcome: Outcome) -> Ingress {
    let ticket = Ticket(300);
    Ingress::Completed(Completion { ticket, outcome })
}

fn done(answer: Answer) -> Ingress {
    completed(Outcome::Done(answer))
}

fn unchanged(source: Source) -> Ingress {
    done(Answer::Sources(SourcesAnswer::ManifestsUnchanged { source }))
}

fn list(state: ContainerState) -> RuntimeList {
    RuntimeList {
        sandboxes: vec![SandboxBrief { id: "sandbox-1".into(), pod: "uid-1".into(), state: SandboxState::Ready }],
        containers: vec![ContainerBrief { id: "container-1".into(), sandbox: "sandbox-1".into(), state }],
    }
}

fn asked() -> Vec<Ingress> {
    let drain = |grace_seconds| Ingress::Control(ControlIngress::DrainRequested { grace_seconds });
    let changes =
        [ContainerChange::Created, ContainerChange::Started, ContainerChange::Stopped, ContainerChange::Deleted];
    let changed = changes.map(|change| {
        Ingress::Cri(CriIngress::ContainerChanged { pod: "uid-1".into(), id: "container-1".into(), change })
    });
    let mut inputs = vec![
        drain(None),
        drain(Some(10)),
        Ingress::Cri(CriIngress::EventsOpened),
        Ingress::Cri(CriIngress::EventsClosed { unsupported: true, message: "unknown method".into() }),
        Ingress::Sources(SourcesIngress::ManifestsTouched),
        Ingress::Sources(SourcesIngress::ManifestsRemoved { origins: vec!["/m/a.yaml".into()] }),
        Ingress::Store(StoreIngress::CommitFailed { records: records(), message: "no space left on device".into() }),
    ];
    inputs.extend(changed);
    inputs.extend(started());
    inputs
}

fn started() -> [Ingress; 2] {
    let PodInspection { namespace, name, sandboxes, containers } = inspection();
    let sandbox = StartedObject::Sandbox { namespace, name, status: sandboxes[0].clone() };
    let container = StartedObject::Container { status: containers[0].clone(), size: Some(RuntimeSize::default()) };
    [sandbox, container]
        .map(|object| Ingress::Cri(CriIngress::ObjectStarted { pod: "uid-1".into(), object: Box::new(object) }))
}

fn answers() -> Vec<Ingress> {
    let cri = |answer| done(Answer::Cri(answer));
    let classes = [
        FailureClass::Unavailable,
        FailureClass::NotFound,
        FailureClass::AlreadyExists,
        FailureClass::Unimplemented,
        FailureClass::Exhausted,
        FailureClass::Invalid,
        FailureClass::Garbage,
        FailureClass::Denied,
        FailureClass::Other,
    ];
    let failed = classes.map(|class| completed(Outcome::Failed(Failure { class, message: "why".into() })));
    let mut inputs = vec![
        completed(Outcome::TimedOut),
        completed(Outcome::Cancelled),
        done(Answer::Nothing),
        cri(CriAnswer::RuntimeRead(RuntimeInfo {
            name: "containerd".into(),
            runtime_ready: true,
            cgroup_driver: Some("systemd".into()),
            ..RuntimeInfo::default()
        })),
        cri(CriAnswer::PodInspected(inspection())),
        cri(CriAnswer::PodSeen { pod: inspection(), sizes: vec![None, Some(RuntimeSize::default())] }),
        cri(CriAnswer::SandboxStarted { id: "sandbox-1".into() }),
        cri(CriAnswer::ImageFound(None)),
        cri(CriAnswer::ImageFound(Some(FoundImage {
            image_ref: "sha256:1".into(),
            uid: Some(65_534),
            username: "nobody".into(),
        }))),
        cri(CriAnswer::ImagePulled { image_ref: "sha256:1".into() }),
        cri(CriAnswer::ContainerCreated { id: "container-1".into() }),
        done(Answer::Host(HostAnswer::PodPrepared { log_attempts: vec![("c".into(), 3)] })),
        unchanged(Source::Api),
    ];
    inputs.extend(failed);
    inputs
}

fn inspection() -> PodInspection {
    let container = |state| ContainerStatus {
        id: "container-1".into(),
        sandbox: "sandbox-1".into(),
        name: "c".into(),
        attempt: 1,
        restart_count: 2,
        hash: Some(0x8e45_cbd0),
        grace_seconds: Some(30),
        state,
        created_at: Wall(1),
        started_at: Wall(2),
        finished_at: Wall(-3),
        exit_code: -1,
        reason: "Error".into(),
        message: "m".into(),
        image: "i".into(),
        image_ref: "sha256:1".into(),
        user: Some((0, -1, vec![4])),
        log_path: "/l".into(),
        size: None,
    };
    PodInspection {
        namespace: "default".into(),
        name: "web".into(),
        sandboxes: vec![SandboxStatus {
            id: "sandbox-1".into(),
            attempt: 0,
            state: SandboxState::NotReady,
            created_at: Wall(5),
            host_network: true,
            ips: vec!["10.0.0.1".into()],
        }],
        containers: vec![container(ContainerState::Exited), container(ContainerState::Unknown)],
    }
}
