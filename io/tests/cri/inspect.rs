//! Inspections: which objects are asked for, in which order they come back, what is left out.

use std::time::Duration;

use components::edge::cri::{CriAnswer, CriEffect, KnownObjects, PodInspection};
use components::edge::{Answer, Failure, FailureClass, Outcome};
use prost::Message;
use proto::runtime::v1 as pb;
use tonic::Code;

use crate::fake::{Reply, Rig, answer};

fn inspect(known: Option<KnownObjects>) -> CriEffect {
    CriEffect::InspectPod { uid: "u".into(), known }
}

fn inspected(outcome: Outcome) -> PodInspection {
    match outcome {
        Outcome::Done(Answer::Cri(CriAnswer::PodSeen { pod, .. })) => pod,
        other => panic!("{other:?}"),
    }
}

/// Ids say everything: `name-attempt-created`.
fn parts(id: &str) -> (String, u32, i64) {
    let mut parts = id.split('-');
    let name = parts.next().unwrap().to_owned();
    (name, parts.next().unwrap().parse().unwrap(), parts.next().unwrap().parse().unwrap())
}

fn statuses(name: &str, request: &[u8]) -> Reply {
    if name == "PodSandboxStatus" {
        let id = pb::PodSandboxStatusRequest::decode(request).unwrap().pod_sandbox_id;
        let (name, attempt, created_at) = parts(&id);
        let namespace = ("io.kubernetes.pod.namespace".to_owned(), format!("ns{attempt}"));
        let name = ("io.kubernetes.pod.name".to_owned(), name);
        let metadata = Some(pb::PodSandboxMetadata { attempt, ..Default::default() });
        let labels = [namespace, name].into_iter().collect();
        let status = pb::PodSandboxStatus { id, metadata, created_at, labels, ..Default::default() };
        answer(&pb::PodSandboxStatusResponse { status: Some(status), ..Default::default() })
    } else {
        let id = pb::ContainerStatusRequest::decode(request).unwrap().container_id;
        let (name, attempt, created_at) = parts(&id);
        let metadata = Some(pb::ContainerMetadata { name, attempt });
        let status = pb::ContainerStatus { id, metadata, created_at, state: 1, ..Default::default() };
        answer(&pb::ContainerStatusResponse { status: Some(status), ..Default::default() })
    }
}

fn order(inspection: &PodInspection) -> (Vec<&str>, Vec<&str>) {
    (
        inspection.sandboxes.iter().map(|sandbox| sandbox.id.as_str()).collect(),
        inspection.containers.iter().map(|container| container.id.as_str()).collect(),
    )
}

#[tokio::test]
async fn known_objects_are_read_and_sorted_and_nothing_is_listed() {
    let rig = Rig::new(|name, request| statuses(name, request));
    let known = KnownObjects {
        sandboxes: ["web-0-10", "web-2-20", "web-1-20"].map(Into::into).into(),
        containers: ["b-0-11", "a-1-22", "a-3-15", "a-2-22"].map(|id| (id.into(), "web-2-20".into())).into(),
    };
    let found = inspected(rig.run(inspect(Some(known))).await);
    let expect = (vec!["web-2-20", "web-1-20", "web-0-10"], vec!["a-3-15", "a-2-22", "a-1-22", "b-0-11"]);
    assert_eq!(order(&found), expect);
    assert_eq!((found.namespace.as_str(), found.name.as_str()), ("ns2", "web"));
    assert_eq!(found.containers[0].sandbox.as_str(), "web-2-20");
    let counts: Vec<(String, usize)> = rig.seen.counts().into_iter().collect();
    assert_eq!(counts, [("ContainerStatus".to_owned(), 4), ("PodSandboxStatus".to_owned(), 3)]);
}

#[tokio::test]
async fn unknown_objects_are_listed_by_the_uid_of_their_pod() {
    let rig = Rig::new(|name, request| match name {
        "ListPodSandbox" => {
            let item = pb::PodSandbox { id: "web-0-10".into(), ..Default::default() };
            answer(&pb::ListPodSandboxResponse { items: vec![item] })
        }
        "ListContainers" => {
            let item = pb::Container { id: "c-0-11".into(), pod_sandbox_id: "web-0-10".into(), ..Default::default() };
            answer(&pb::ListContainersResponse { containers: vec![item] })
        }
        _ => statuses(name, request),
    });
    let found = inspected(rig.run(inspect(None)).await);
    assert_eq!(order(&found), (vec!["web-0-10"], vec!["c-0-11"]));
    assert_eq!(found.containers[0].sandbox.as_str(), "web-0-10");
    let selector = [("io.kubernetes.pod.uid".to_owned(), "u".to_owned())].into_iter().collect();
    let sandboxes: pb::ListPodSandboxRequest = rig.seen.request("ListPodSandbox");
    assert_eq!(sandboxes.filter.unwrap().label_selector, selector);
    let containers: pb::ListContainersRequest = rig.seen.request("ListContainers");
    assert_eq!(containers.filter.unwrap().label_selector, selector);
}

#[tokio::test]
async fn what_is_gone_is_left_out_and_any_other_refusal_fails_the_inspection() {
    let gone = |code| {
        move |name: &str, request: &bytes::Bytes| {
            if request.ends_with(b"-99") { Reply::Refuse(code, "no") } else { statuses(name, request) }
        }
    };
    let known = KnownObjects {
        sandboxes: ["web-0-99", "web-1-20"].map(Into::into).into(),
        containers: ["a-0-99", "b-0-11"].map(|id| (id.into(), "web-1-20".into())).into(),
    };
    let rig = Rig::new(gone(Code::NotFound));
    let found = inspected(rig.run(inspect(Some(known.clone()))).await);
    assert_eq!(order(&found), (vec!["web-1-20"], vec!["b-0-11"]));

    let rig = Rig::new(gone(Code::Unknown));
    let failure = Failure { class: FailureClass::Other, message: "rpc error: code = Unknown desc = no".into() };
    assert_eq!(rig.run(inspect(Some(known))).await, Outcome::Failed(failure));
}

#[tokio::test]
async fn one_inspection_asks_in_parallel_but_not_without_limit() {
    let rig = Rig::new(|name, request| match statuses(name, request) {
        Reply::Answer(bytes) => Reply::Late(Duration::from_millis(20), bytes),
        other => other,
    });
    let containers = (0..60).map(|n| (format!("c{n:02}-0-1").as_str().into(), "s".into())).collect();
    let known = KnownObjects { sandboxes: Vec::new(), containers };
    let found = inspected(rig.run(inspect(Some(known))).await);
    assert_eq!(found.containers.len(), 60);
    assert!(found.containers.is_sorted_by(|a, b| a.name < b.name));
    assert!((2..=8).contains(&rig.seen.most()), "{}", rig.seen.most());
}
