//! Each effect makes its call and gives its answer.

use components::edge::cri::{CriAnswer, CriEffect, FoundImage, RuntimeInfo, SandboxState};
use components::edge::{Answer, Failure, FailureClass, Outcome};
use proto::runtime::v1 as pb;
use tonic::Code;

use crate::fake::{Reply, Rig, answer};

fn failed(class: FailureClass, message: &str) -> Outcome {
    Outcome::Failed(Failure { class, message: message.to_owned() })
}

fn done(answer: CriAnswer) -> Outcome {
    Outcome::Done(Answer::Cri(answer))
}

fn runtime(name: &str) -> Reply {
    match name {
        "RunPodSandbox" => answer(&pb::RunPodSandboxResponse { pod_sandbox_id: "s1".into() }),
        "CreateContainer" => answer(&pb::CreateContainerResponse { container_id: "c1".into() }),
        "PullImage" => answer(&pb::PullImageResponse { image_ref: "sha256:2".into() }),
        "ImageStatus" => answer(&pb::ImageStatusResponse {
            image: Some(pb::Image { id: "sha256:1".into(), username: "nobody".into(), ..Default::default() }),
            ..Default::default()
        }),
        // All other answers are empty messages.
        _ => Reply::Answer(Default::default()),
    }
}

#[tokio::test]
async fn effects_become_calls_and_answers() {
    let rig = Rig::new(|name, _| runtime(name));
    let run = CriEffect::RunSandbox { config: Box::default(), handler: "kata".into() };
    assert_eq!(rig.run(run).await, done(CriAnswer::SandboxStarted { id: "s1".into() }));
    assert_eq!(rig.seen.request::<pb::RunPodSandboxRequest>("RunPodSandbox").runtime_handler, "kata");

    let create =
        CriEffect::CreateContainer { sandbox: "s1".into(), config: Box::default(), sandbox_config: Box::default() };
    assert_eq!(rig.run(create).await, done(CriAnswer::ContainerCreated { id: "c1".into() }));
    assert_eq!(rig.seen.request::<pb::CreateContainerRequest>("CreateContainer").pod_sandbox_id, "s1");

    let nothing = Outcome::Done(Answer::Nothing);
    assert_eq!(rig.run(CriEffect::StartContainer { id: "c1".into() }).await, nothing);
    assert_eq!(rig.seen.request::<pb::StartContainerRequest>("StartContainer").container_id, "c1");
    assert_eq!(rig.run(CriEffect::StopContainer { id: "c1".into(), grace_seconds: 7 }).await, nothing);
    let stop: pb::StopContainerRequest = rig.seen.request("StopContainer");
    assert_eq!((stop.container_id.as_str(), stop.timeout), ("c1", 7));
    assert_eq!(rig.run(CriEffect::RemoveContainer { id: "c1".into() }).await, nothing);
    assert_eq!(rig.seen.request::<pb::RemoveContainerRequest>("RemoveContainer").container_id, "c1");
    assert_eq!(rig.run(CriEffect::StopSandbox { id: "s1".into() }).await, nothing);
    assert_eq!(rig.seen.request::<pb::StopPodSandboxRequest>("StopPodSandbox").pod_sandbox_id, "s1");
    assert_eq!(rig.run(CriEffect::RemoveSandbox { id: "s1".into() }).await, nothing);
    assert_eq!(rig.seen.request::<pb::RemovePodSandboxRequest>("RemovePodSandbox").pod_sandbox_id, "s1");
    assert_eq!(rig.seen.names().len(), 7, "one call per effect, none repeated");
}

#[tokio::test]
async fn images_are_found_missed_and_pulled() {
    let rig = Rig::new(|name, request| match name {
        "ImageStatus" if request.ends_with(b"absent") => Reply::Answer(Default::default()),
        "ImageStatus" if request.ends_with(b"gone") => Reply::Refuse(Code::NotFound, "no such image"),
        name => runtime(name),
    });
    let find = |image: &str| CriEffect::FindImage { image: image.into() };
    let image = FoundImage { image_ref: "sha256:1".into(), uid: None, username: "nobody".into() };
    assert_eq!(rig.run(find("busybox:1")).await, done(CriAnswer::ImageFound(Some(image))));
    assert_eq!(rig.run(find("absent")).await, done(CriAnswer::ImageFound(None)));
    assert_eq!(rig.run(find("gone")).await, done(CriAnswer::ImageFound(None)));
    let pull = CriEffect::PullImage { image: "busybox:1".into(), config: Box::default(), login: None };
    assert_eq!(rig.run(pull).await, done(CriAnswer::ImagePulled { image_ref: "sha256:2".into() }));
    let request: pb::PullImageRequest = rig.seen.request("PullImage");
    assert_eq!(request.image.unwrap().image, "busybox:1");
    assert!(request.sandbox_config.is_some());
}

#[tokio::test]
async fn what_is_gone_counts_as_stopped_and_removed_but_not_as_started() {
    let rig = Rig::new(|_, _| Reply::Refuse(Code::NotFound, "no such thing"));
    let nothing = Outcome::Done(Answer::Nothing);
    let gone = [
        CriEffect::StopContainer { id: "c".into(), grace_seconds: 1 },
        CriEffect::RemoveContainer { id: "c".into() },
        CriEffect::StopSandbox { id: "s".into() },
        CriEffect::RemoveSandbox { id: "s".into() },
    ];
    for effect in gone {
        assert_eq!(rig.run(effect).await, nothing);
    }
    let text = "rpc error: code = NotFound desc = no such thing";
    let start = CriEffect::StartContainer { id: "c".into() };
    assert_eq!(rig.run(start).await, failed(FailureClass::NotFound, text));
    let run = CriEffect::RunSandbox { config: Box::default(), handler: String::new() };
    assert_eq!(rig.run(run).await, failed(FailureClass::NotFound, text));
}

#[tokio::test]
async fn other_refusals_of_stop_and_remove_stay_failures() {
    let rig = Rig::new(|_, _| Reply::Refuse(Code::Unknown, "busy"));
    let text = "rpc error: code = Unknown desc = busy";
    for effect in [
        CriEffect::StopContainer { id: "c".into(), grace_seconds: 1 },
        CriEffect::RemoveContainer { id: "c".into() },
        CriEffect::StopSandbox { id: "s".into() },
        CriEffect::RemoveSandbox { id: "s".into() },
    ] {
        assert_eq!(rig.run(effect).await, failed(FailureClass::Other, text));
    }
}

fn version() -> Reply {
    answer(&pb::VersionResponse {
        version: "0.1.0".into(),
        runtime_name: "containerd".into(),
        runtime_version: "v2.1.0".into(),
        runtime_api_version: "v1".into(),
    })
}

fn condition(kind: &str, status: bool) -> pb::RuntimeCondition {
    pb::RuntimeCondition { r#type: kind.into(), status, reason: "Why".into(), message: "because".into() }
}

#[tokio::test]
async fn a_healthy_runtime_says_who_it_is() {
    let rig = Rig::new(|name, _| match name {
        "Version" => version(),
        "Status" => {
            let extra = condition("ContainerdHasNoDeprecationWarnings", false);
            let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", true), extra];
            answer(&pb::StatusResponse { status: Some(pb::RuntimeStatus { conditions }), ..Default::default() })
        }
        _ => answer(&pb::RuntimeConfigResponse { linux: Some(pb::LinuxRuntimeConfiguration { cgroup_driver: 1 }) }),
    });
    let info = RuntimeInfo {
        name: "containerd".into(),
        version: "v2.1.0".into(),
        runtime_ready: true,
        network_ready: true,
        message: String::new(),
        cgroup_driver: Some("cgroupfs".into()),
    };
    let described = CriAnswer::RuntimeDescribed { info, handlers: Vec::new(), supplemental_groups: None };
    assert_eq!(rig.run(CriEffect::ReadRuntime).await, done(described));
}

#[tokio::test]
async fn an_old_runtime_without_runtime_config_is_tolerated_and_complaints_are_told() {
    let rig = Rig::new(|name, _| match name {
        "Version" => version(),
        "Status" => {
            let conditions = vec![condition("RuntimeReady", true), condition("NetworkReady", false)];
            answer(&pb::StatusResponse { status: Some(pb::RuntimeStatus { conditions }), ..Default::default() })
        }
        _ => Reply::Refuse(Code::Unimplemented, "unknown method"),
    });
    let info = RuntimeInfo {
        name: "containerd".into(),
        version: "v2.1.0".into(),
        runtime_ready: true,
        network_ready: false,
        message: "NetworkReady=false reason:Why message:because".into(),
        cgroup_driver: None,
    };
    let described = CriAnswer::RuntimeDescribed { info, handlers: Vec::new(), supplemental_groups: None };
    assert_eq!(rig.run(CriEffect::ReadRuntime).await, done(described));
}

fn sandbox(id: usize) -> pb::PodSandbox {
    let label = ("io.kubernetes.pod.uid".to_owned(), format!("u{id}"));
    pb::PodSandbox {
        id: format!("{id:064x}"),
        labels: [label].into_iter().collect(),
        annotations: [("filler".to_owned(), "x".repeat(1000))].into_iter().collect(),
        ..Default::default()
    }
}

#[tokio::test]
async fn a_relist_above_16_mib_works_and_one_above_the_limit_is_told() {
    let rig = Rig::new(|name, _| match name {
        "ListPodSandbox" => answer(&pb::ListPodSandboxResponse { items: (0..18_000).rev().map(sandbox).collect() }),
        _ => Reply::Answer(Default::default()),
    });
    for _ in 0..2 {
        let Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(list))) = rig.run(CriEffect::ListRuntime).await else {
            panic!("no list");
        };
        assert_eq!((list.sandboxes.len(), list.containers.len()), (18_000, 0));
        assert!(list.sandboxes.is_sorted_by(|a, b| a.id < b.id));
        let last = &list.sandboxes[17_999];
        assert_eq!((last.pod.as_str(), last.state), ("u17999", SandboxState::Ready));
    }

    let rig = Rig::new(|_, _| Reply::Answer(vec![0x0a; (64 << 20) + 1].into()));
    let Outcome::Failed(failure) = rig.run(CriEffect::ListRuntime).await else { panic!("not refused") };
    assert_eq!(failure.class, FailureClass::Exhausted);
    assert!(failure.message.contains("limit"), "{}", failure.message);
}
