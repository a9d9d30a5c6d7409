//! A runtime that is missing, refuses, hangs, restarts or talks nonsense: each is one failure of its class.

use std::time::Duration;

use components::edge::cri::{CriAnswer, CriEffect, KnownObjects};
use components::edge::{Answer, FailureClass, Outcome};
use io::port::Port;
use proto::runtime::v1 as pb;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fake::{Reply, Rig, answer, raw_socket, until};

fn start() -> CriEffect {
    CriEffect::StartContainer { id: "c".into() }
}

fn ok(name: &str) -> Reply {
    assert_eq!(name, "StartContainer");
    Reply::Answer(Default::default())
}

#[track_caller]
fn check(outcome: &Outcome, class: FailureClass, message: &str) {
    let Outcome::Failed(failure) = outcome else { panic!("not failed: {outcome:?}") };
    assert_eq!(failure.class, class, "{failure:?}");
    assert!(failure.message.contains(message), "{failure:?}");
}

#[tokio::test]
async fn a_missing_socket_is_unavailable_until_the_runtime_comes() {
    let mut rig = Rig::alone();
    for _ in 0..3 {
        check(&rig.run(start()).await, FailureClass::Unavailable, "No such file or directory");
    }
    rig.serve(|name, _| ok(name));
    assert_eq!(rig.run(start()).await, Outcome::Done(Answer::Nothing));
}

#[tokio::test]
async fn a_socket_without_a_listener_refuses() {
    let rig = Rig::alone();
    drop(raw_socket(&rig.socket));
    check(&rig.run(start()).await, FailureClass::Unavailable, "Connection refused");
}

#[tokio::test]
async fn a_restarted_runtime_is_found_again() {
    let mut rig = Rig::new(|name, _| ok(name));
    assert_eq!(rig.run(start()).await, Outcome::Done(Answer::Nothing));
    rig.stop().await;
    check(&rig.run(start()).await, FailureClass::Unavailable, "");
    rig.serve(|name, _| ok(name));
    assert_eq!(rig.run(start()).await, Outcome::Done(Answer::Nothing));
}

#[tokio::test]
async fn a_runtime_that_dies_during_a_call_is_unavailable() {
    let mut rig = Rig::new(|_, _| Reply::Hang);
    let mut call = Box::pin(rig.port.run(start()));
    tokio::select! {
        outcome = &mut call => panic!("answered: {outcome:?}"),
        () = until("the call", || !rig.seen.names().is_empty()) => {}
    }
    drop(call);
    until("the client gives up", || rig.seen.dropped() == 1).await;
    let seen = std::sync::Arc::clone(&rig.seen);
    let server = rig.take_server();
    let (outcome, ()) = tokio::join!(rig.run(start()), async move {
        until("the second call", || seen.names().len() == 2).await;
        server.kill().await;
    });
    check(&outcome, FailureClass::Unavailable, "");
}

#[tokio::test]
async fn a_hanging_call_blocks_no_other_and_is_given_up_when_dropped() {
    let rig = Rig::new(|name, _| match name {
        "StartContainer" => Reply::Hang,
        _ => Reply::Answer(Default::default()),
    });
    let hanging = tokio::time::timeout(Duration::from_millis(300), rig.port.run(start()));
    let others = async {
        for _ in 0..20 {
            let stop = CriEffect::StopSandbox { id: "s".into() };
            assert_eq!(rig.run(stop).await, Outcome::Done(Answer::Nothing));
        }
    };
    let (hanging, ()) = tokio::join!(hanging, others);
    assert!(hanging.is_err());
    until("the runtime sees that nobody waits", || rig.seen.dropped() == 1).await;
}

#[tokio::test]
async fn answers_that_come_in_another_order_reach_their_callers() {
    let rig = Rig::new(|name, request| {
        let id = String::from_utf8_lossy(request).chars().last().unwrap();
        let delay = Duration::from_millis(50 * u64::from('9' as u32 - id as u32));
        assert_eq!(name, "ImageStatus");
        let image = Some(pb::Image { id: id.into(), ..Default::default() });
        let Reply::Answer(bytes) = answer(&pb::ImageStatusResponse { image, ..Default::default() }) else {
            unreachable!()
        };
        Reply::Late(delay, bytes)
    });
    let calls = (5..10).map(|id| rig.run(CriEffect::FindImage { image: format!("image{id}") }));
    let outcomes = futures_util::future::join_all(calls).await;
    for (id, outcome) in (5..10).zip(outcomes) {
        let Outcome::Done(Answer::Cri(CriAnswer::ImageFound(Some(image)))) = outcome else { panic!("{outcome:?}") };
        assert_eq!(&*image.image_ref, id.to_string());
    }
}

/// Serves every connection with the same bytes.
fn talk(rig: &Rig, words: &'static [u8]) {
    let listener = raw_socket(&rig.socket);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(words).await;
                // Stays open: only what was said can end the call.
                tokio::time::sleep(Duration::from_secs(30)).await;
            });
        }
    });
}

#[tokio::test]
async fn a_server_that_is_no_runtime_gives_garbage() {
    let rig = Rig::alone();
    talk(&rig, b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
    check(&rig.run(start()).await, FailureClass::Garbage, "");

    let rig = Rig::alone();
    talk(&rig, &[0xff; 64]);
    check(&rig.run(start()).await, FailureClass::Garbage, "");
}

#[tokio::test]
async fn a_server_that_closes_every_connection_is_unavailable() {
    let rig = Rig::alone();
    let listener = raw_socket(&rig.socket);
    tokio::spawn(async move { while listener.accept().await.is_ok() {} });
    check(&rig.run(start()).await, FailureClass::Unavailable, "");
}

#[tokio::test]
async fn answers_that_make_no_sense_are_garbage_and_named() {
    let rig = Rig::new(|name, _| match name {
        "RunPodSandbox" | "PodSandboxStatus" | "CreateContainer" | "PullImage" => Reply::Answer(Default::default()),
        _ => Reply::Answer((&b"\xff\xff\xff"[..]).into()),
    });
    let run = CriEffect::RunSandbox { config: Box::default(), handler: String::new() };
    check(&rig.run(run).await, FailureClass::Garbage, "unusable answer to RunPodSandbox: no id");
    let pull = CriEffect::PullImage { image: "x".into(), config: Box::default(), login: None };
    check(&rig.run(pull).await, FailureClass::Garbage, "unusable answer to PullImage: no id");
    let create =
        CriEffect::CreateContainer { sandbox: "s".into(), config: Box::default(), sandbox_config: Box::default() };
    check(&rig.run(create).await, FailureClass::Garbage, "unusable answer to CreateContainer: no id");
    let known = KnownObjects { sandboxes: vec!["s".into()], containers: Vec::new() };
    let inspect = CriEffect::InspectPod { uid: "u".into(), known: Some(known) };
    check(&rig.run(inspect).await, FailureClass::Garbage, "unusable answer to PodSandboxStatus: no status");
    check(&rig.run(CriEffect::ListRuntime).await, FailureClass::Garbage, "unusable answer to List");
    check(&rig.run(CriEffect::ReadRuntime).await, FailureClass::Garbage, "unusable answer to Version");
    let find = CriEffect::FindImage { image: "x".into() };
    check(&rig.run(find).await, FailureClass::Garbage, "unusable answer to ImageStatus");
    check(&rig.run(start()).await, FailureClass::Garbage, "unusable answer to StartContainer");
}
