//! What a pod's next write is, and what an answer does to the writes to come.

use super::*;
use crate::fixtures;
use components::edge::api::{Answered, ApiAnswer};
use components::edge::{Answer, Failure, FailureClass};
use components::status::Phase as PodPhase;
use serde_json::Value;

const NOW: Mono = Mono(1_000_000_000_000);

fn known(version: u64, status: &str, delete: Option<u32>) -> ApiPod {
    ApiPod {
        namespace: "default".into(),
        name: "p".into(),
        version,
        delete,
        phase: components::status::parse::status(status).phase,
        status: status.into(),
        mirror_of: None,
    }
}

fn entry(phase: PodPhase, finished: bool) -> Entry {
    let status = PodStatus { phase, qos: "BestEffort".into(), ..PodStatus::default() };
    let mut spec = fixtures::spec("p: c");
    spec.json = r#"{"metadata":{"generation":2}}"#.into();
    Entry { status: Some(Arc::new(status)), spec: Some(Arc::new(spec)), finished, ..Entry::default() }
}

#[track_caller]
fn check(entry: &Entry, known: &ApiPod, expect: &str) {
    let said = match due(&"u".into(), entry, known) {
        None => "nothing".to_owned(),
        Some((_, _, request)) => {
            let body: Value = serde_json::from_str(request.body.text()).unwrap();
            let uid = body.pointer("/metadata/uid").or_else(|| body.pointer("/preconditions/uid")).unwrap();
            assert_eq!(uid, "u");
            let what = body.get("status").unwrap_or(&body["gracePeriodSeconds"]);
            format!("{} {} {what}", request.method.as_str(), request.path)
        }
    };
    assert_eq!(said, expect);
}

#[test]
fn the_status_goes_first_and_the_deletion_last() {
    let path = "/api/v1/namespaces/default/pods/p";
    let whole = r#"{"observedGeneration":2,"phase":"Failed","qosClass":"BestEffort"}"#;
    let failed = entry(PodPhase::Failed, true);
    check(&failed, &known(1, "{}", Some(0)), &format!("PATCH {path}/status {whole}"));
    check(&failed, &known(1, whole, Some(0)), &format!("DELETE {path} 0"));
    // Nobody asked for its deletion, or something of it may still run.
    check(&failed, &known(1, whole, None), "nothing");
    check(&entry(PodPhase::Failed, false), &known(1, whole, Some(0)), "nothing");
}

fn answered(status: u16, retry_after: Option<u32>) -> Outcome {
    let body = r#"{"metadata":{"name":"p","namespace":"default","resourceVersion":"9"},"status":{"phase":"Failed"}}"#;
    let answered = Answered { status, secret: false, body: body.into(), retry_after };
    Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))))
}

/// What is known and what waits after an answer.
fn after(outcome: &Outcome) -> (StatusWrites, ApiPods) {
    let uid = PodUid::from("u");
    let (mut writes, mut pods) = (StatusWrites::default(), ApiPods::default());
    pods.learn(&uid, known(5, "{}", None));
    writes.pods.insert(uid.clone(), Entry { flying: true, ..entry(PodPhase::Failed, true) });
    writes.take(&uid, Kind::Patch, outcome, &mut pods, (NOW, 3));
    assert!(!writes.pods[&uid].flying);
    (writes, pods)
}

#[test]
fn a_good_answer_is_the_newest_state() {
    let (mut writes, pods) = after(&answered(200, None));
    let pod = &pods.pods[&PodUid::from("u")];
    assert_eq!((pod.version, pod.phase), (9, PodPhase::Failed));
    // What came meanwhile is looked at.
    assert_eq!(writes.order.next(NOW), Some("u".into()));
}

#[test]
fn a_pod_that_is_gone_is_left_alone() {
    let (mut writes, _) = after(&answered(404, None));
    assert!(writes.pods[&PodUid::from("u")].given_up);
    assert_eq!((writes.order.next(Mono(u64::MAX)), writes.pause), (None, None));
}

#[test]
fn what_is_refused_is_tried_again_seldom() {
    for status in [409, 410, 422] {
        let (mut writes, _) = after(&answered(status, None));
        assert_eq!((writes.order.next(NOW), writes.pause), (None, None));
        assert_eq!(writes.order.next(NOW.after(RECONCILE)), Some("u".into()));
    }
}

#[test]
fn a_busy_or_silent_server_holds_everything_back() {
    let failed = Failure { class: FailureClass::Unavailable, message: "connection refused".into() };
    for outcome in [answered(429, Some(30)), answered(500, None), Outcome::Failed(failed), Outcome::TimedOut] {
        let (mut writes, _) = after(&outcome);
        let pause = writes.pause.unwrap().since(NOW);
        assert!(pause >= Duration::from_millis(500), "{pause:?}");
        assert_eq!(writes.order.next(NOW), Some("u".into()));
    }
    let (writes, _) = after(&answered(429, Some(30)));
    assert!(writes.pause.unwrap().since(NOW) >= Duration::from_secs(30));
}

#[test]
fn missing_rights_make_one_pod_wait() {
    let (mut writes, _) = after(&answered(403, None));
    assert_eq!((writes.pause, writes.order.next(NOW)), (None, None));
    let later = NOW.after(Duration::from_secs(2));
    assert_eq!(writes.order.next(later), Some("u".into()));
}
