//! The event stream: opened, delivering, ended, unsupported, opened again, dropped.

use components::edge::cri::{ContainerChange, CriEffect, CriIngress};
use components::edge::{Answer, Ingress, Outcome};
use prost::Message;
use proto::runtime::v1 as pb;
use tonic::Code;

use crate::fake::{Reply, Rig, until};

fn event(id: usize, kind: pb::ContainerEventType) -> bytes::Bytes {
    let metadata = Some(pb::PodSandboxMetadata { uid: "u".into(), ..Default::default() });
    let event = pb::ContainerEventResponse {
        container_id: format!("c{id}"),
        container_event_type: kind.into(),
        pod_sandbox_status: Some(pb::PodSandboxStatus { metadata, ..Default::default() }),
        ..Default::default()
    };
    event.encode_to_vec().into()
}

fn changed(id: usize, change: ContainerChange) -> Ingress {
    Ingress::Cri(CriIngress::ContainerChanged { pod: "u".into(), id: format!("c{id}").as_str().into(), change })
}

fn opened() -> Ingress {
    Ingress::Cri(CriIngress::EventsOpened)
}

async fn watch(rig: &Rig) {
    assert_eq!(rig.run(CriEffect::WatchEvents).await, Outcome::Done(Answer::Nothing));
}

#[tokio::test]
async fn events_become_facts_until_the_runtime_ends_the_stream() {
    let messages = vec![
        event(1, pb::ContainerEventType::ContainerStartedEvent),
        event(2, pb::ContainerEventType::ContainerDeletedEvent),
    ];
    let mut rig = Rig::new(move |_, _| Reply::Stream { messages: messages.clone(), then_open: false });
    watch(&rig).await;
    assert_eq!(rig.fact().await, opened());
    assert_eq!(rig.fact().await, changed(1, ContainerChange::Started));
    assert_eq!(rig.fact().await, changed(2, ContainerChange::Deleted));
    let closed = CriIngress::EventsClosed { unsupported: false, message: "the runtime ended the stream".into() };
    assert_eq!(rig.fact().await, Ingress::Cri(closed));
    assert_eq!(rig.seen.names(), ["GetContainerEvents"], "not opened again by itself");
}

#[tokio::test]
async fn a_runtime_without_events_says_so() {
    let mut rig = Rig::new(|_, _| Reply::Refuse(Code::Unimplemented, "unknown method"));
    watch(&rig).await;
    let message = "rpc error: code = Unimplemented desc = unknown method".into();
    assert_eq!(rig.fact().await, Ingress::Cri(CriIngress::EventsClosed { unsupported: true, message }));
}

#[tokio::test]
async fn a_missing_runtime_closes_the_stream_at_once() {
    let mut rig = Rig::alone();
    watch(&rig).await;
    let Ingress::Cri(CriIngress::EventsClosed { unsupported: false, message }) = rig.fact().await else {
        panic!("not closed");
    };
    assert!(message.contains("No such file or directory"), "{message}");
}

#[tokio::test]
async fn a_stream_that_is_opened_again_replaces_the_one_before() {
    let messages = vec![event(1, pb::ContainerEventType::ContainerCreatedEvent)];
    let mut rig = Rig::new(move |_, _| Reply::Stream { messages: messages.clone(), then_open: true });
    for round in 0..2 {
        watch(&rig).await;
        assert_eq!(rig.fact().await, opened());
        assert_eq!(rig.fact().await, changed(1, ContainerChange::Created));
        until("the stream before is dropped", || rig.seen.dropped() == round).await;
    }
    drop(rig.port);
    until("the stream of a dropped port is closed", || rig.seen.dropped() == 2).await;
    assert_eq!(rig.ingress.recv().await, None);
}

#[tokio::test]
async fn garbage_ends_the_stream() {
    let messages = vec![event(1, pb::ContainerEventType::ContainerStoppedEvent), bytes::Bytes::from_static(&[0x0a, 9])];
    let mut rig = Rig::new(move |_, _| Reply::Stream { messages: messages.clone(), then_open: true });
    watch(&rig).await;
    assert_eq!(rig.fact().await, opened());
    assert_eq!(rig.fact().await, changed(1, ContainerChange::Stopped));
    let message = "unusable answer to GetContainerEvents: the message is cut off".into();
    assert_eq!(rig.fact().await, Ingress::Cri(CriIngress::EventsClosed { unsupported: false, message }));
}

/// More events than the channel holds, with nobody taking them: calls go on, and no event is lost.
#[tokio::test]
async fn a_slow_reader_blocks_no_call_and_loses_no_event() {
    const EVENTS: usize = 100_000;
    let messages: Vec<_> = (0..EVENTS).map(|id| event(id, pb::ContainerEventType::ContainerStoppedEvent)).collect();
    let mut rig = Rig::new(move |name, _| match name {
        "GetContainerEvents" => Reply::Stream { messages: messages.clone(), then_open: false },
        _ => Reply::Answer(Default::default()),
    });
    watch(&rig).await;
    until("the stream", || !rig.seen.names().is_empty()).await;
    for _ in 0..50 {
        let stop = CriEffect::StopSandbox { id: "s".into() };
        assert_eq!(rig.run(stop).await, Outcome::Done(Answer::Nothing));
    }
    assert_eq!(rig.fact().await, opened());
    for id in 0..EVENTS {
        assert_eq!(rig.fact().await, changed(id, ContainerChange::Stopped));
    }
}
