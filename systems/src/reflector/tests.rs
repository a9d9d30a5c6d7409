//! The reflector against answers as a server gives them.

use super::*;
use components::edge::api::Answered;
use components::edge::{Failure, FailureClass};

struct Rig {
    reflector: Reflector,
    outbox: Outbox,
    now: Mono,
    /// Works seen so far.
    seen: usize,
}

impl Rig {
    fn new() -> Self {
        let target = Target::single("/api/v1/namespaces/n/secrets", "s", Class::Object, true);
        Self { reflector: Reflector::new(target, 7), outbox: Outbox::default(), now: Mono(0), seen: 0 }
    }

    /// Goes to when the next question is due, at least `least` seconds from now; what is asked, with its ticket.
    #[track_caller]
    fn ask(&mut self, least: u64) -> (Ticket, String) {
        let due = self.reflector.due().expect("nothing is due");
        assert!(due.since(self.now) >= Duration::from_secs(least), "{due:?} {:?}", self.now);
        assert!(due.since(self.now) <= Duration::from_secs(61), "{due:?} {:?}", self.now);
        self.now = due.max(self.now);
        self.reflector.drive(self.now, "test", &mut self.outbox);
        let works = self.outbox.emitted();
        assert_eq!(works.len(), self.seen + 1);
        self.seen += 1;
        let work = &works[self.seen - 1];
        let Effect::Api(effect) = &work.effect else { panic!("{work:?}") };
        assert!(self.reflector.owns(work.ticket));
        (work.ticket, effect.path().to_owned())
    }

    fn answer(&mut self, status: u16, body: &str) -> Option<Change> {
        let answered = Answered { status, secret: true, body: body.into(), retry_after: None };
        let outcome = Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))));
        self.reflector.completed(&outcome, self.now)
    }

    fn listed(&mut self, version: &str) {
        let body = format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{{"a":1}},{{"a":2}}]}}"#);
        let all = Change::Replaced(vec![r#"{"a":1}"#.into(), r#"{"a":2}"#.into()]);
        assert_eq!(self.answer(200, &body), Some(all));
    }

    fn told(&mut self, watch: Ticket, kind: EventKind, object: &str) -> Vec<Change> {
        let events = vec![ApiEvent { kind, object: object.into() }];
        self.reflector.told(&ApiIngress::WatchEvents { watch, secret: true, events }, self.now, &mut self.outbox)
    }

    fn ended(&mut self) {
        let outcome = Outcome::Done(Answer::Api(ApiAnswer::WatchEnded { message: "over".into() }));
        assert_eq!(self.reflector.completed(&outcome, self.now), None);
    }

    fn down(&mut self) {
        let failure = Failure { class: FailureClass::Unavailable, message: "connection refused".into() };
        assert_eq!(self.reflector.completed(&Outcome::Failed(failure), self.now), None);
    }
}

fn object(version: &str) -> String {
    format!(r#"{{"metadata":{{"resourceVersion":"{version}"}}}}"#)
}

const LIST: &str = "/api/v1/namespaces/n/secrets?fieldSelector=metadata.name%3Ds";

#[test]
fn a_list_is_followed_by_a_watch_from_its_version() {
    let mut rig = Rig::new();
    assert!(!rig.reflector.synced());
    assert_eq!(rig.ask(0).1, format!("{LIST}&resourceVersion=0"));
    rig.listed("10");
    assert!(rig.reflector.synced());
    let (watch, path) = rig.ask(0);
    assert!(path.starts_with(&format!("{LIST}&watch=1&allowWatchBookmarks=true&resourceVersion=10&timeoutSeconds=")));
    assert_eq!(rig.told(watch, EventKind::Added, &object("11")), [Change::Put(object("11").into())]);
    assert_eq!(rig.told(watch, EventKind::Deleted, &object("12")), [Change::Gone(object("12").into())]);
    assert_eq!(rig.told(watch, EventKind::Bookmark, &object("99")), []);
    assert_eq!(rig.told(Ticket(777), EventKind::Added, &object("5")), []);
    // It ends as watches do; the next begins where this one was.
    rig.ended();
    assert!(rig.ask(0).1.contains("resourceVersion=99&"));
}

#[test]
fn an_outage_keeps_the_version_and_waits_longer_each_time() {
    let mut rig = Rig::new();
    rig.ask(0);
    rig.listed("10");
    let (watch, _) = rig.ask(0);
    rig.told(watch, EventKind::Modified, &object("20"));
    rig.ended();
    for least in [0, 0, 1, 3, 6, 12, 25, 30, 30] {
        assert!(rig.ask(least).1.contains("resourceVersion=20&"));
        rig.down();
        assert_eq!(rig.reflector.error(), Some("watch: connection refused"));
    }
    assert!(rig.reflector.synced());
    let (watch, _) = rig.ask(30);
    rig.reflector.told(&ApiIngress::WatchOpened { watch }, rig.now, &mut rig.outbox);
    assert_eq!(rig.reflector.error(), None);
    rig.now = rig.now.after(Duration::from_secs(100));
    rig.ended();
    // The good watch has put an end to the long waits.
    rig.ask(0);
    rig.down();
    assert!(rig.reflector.due().unwrap().since(rig.now) < Duration::from_secs(2));
}

#[test]
fn a_version_that_is_too_old_is_listed_anew_and_not_from_a_cache() {
    for as_event in [true, false] {
        let mut rig = Rig::new();
        rig.ask(0);
        rig.listed("10");
        let (watch, _) = rig.ask(0);
        let status = r#"{"kind":"Status","code":410,"message":"too old resource version"}"#;
        if as_event {
            assert_eq!(rig.told(watch, EventKind::Error, status), []);
            assert!(!rig.reflector.owns(watch));
        } else {
            rig.answer(410, status);
        }
        assert_eq!(rig.ask(0).1, format!("{LIST}&limit=500"));
        rig.listed("500");
        assert!(rig.ask(0).1.contains("resourceVersion=500&"));
    }
}

#[test]
fn a_watch_that_ends_at_once_is_a_failure() {
    let mut rig = Rig::new();
    rig.ask(0);
    rig.listed("10");
    rig.ask(0);
    rig.ended();
    assert!(rig.reflector.due().unwrap() > rig.now);
}

#[test]
fn refused_lists_are_asked_again_after_a_wait() {
    let mut rig = Rig::new();
    rig.ask(0);
    assert_eq!(rig.answer(403, r#"{"reason":"Forbidden","message":"no"}"#), None);
    assert_eq!(rig.reflector.error(), Some("list: 403 no"));
    assert!(rig.ask(0).1.ends_with("resourceVersion=0"));
    assert_eq!(rig.answer(200, "not json"), None);
    rig.ask(1);
    rig.answer(410, "{}");
    assert_eq!(rig.ask(3).1, format!("{LIST}&limit=500"));
    let answered = Answered { status: 429, secret: true, body: "{}".into(), retry_after: Some(50) };
    let outcome = Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))));
    rig.reflector.completed(&outcome, rig.now);
    rig.ask(50);
    assert!(!rig.reflector.synced());
}

#[test]
fn a_stopped_copy_asks_nothing() {
    let mut rig = Rig::new();
    let (ticket, _) = rig.ask(0);
    rig.reflector.stop(&mut rig.outbox);
    assert!(!rig.reflector.owns(ticket) && rig.reflector.due().is_none());
}

#[test]
fn a_long_list_comes_in_parts_and_counts_when_it_is_whole() {
    let mut rig = Rig::new();
    rig.ask(0);
    rig.listed("10");
    let (watch, _) = rig.ask(0);
    rig.told(watch, EventKind::Error, r#"{"code":410,"message":"too old"}"#);
    assert_eq!(rig.ask(0).1, format!("{LIST}&limit=500"));
    let part = |version: u32, item: u32, next: &str| {
        format!(r#"{{"metadata":{{"resourceVersion":"{version}","continue":"{next}"}},"items":[{{"a":{item}}}]}}"#)
    };
    assert_eq!(rig.answer(200, &part(30, 1, "x/y")), None);
    assert_eq!(rig.ask(0).1, format!("{LIST}&limit=500&continue=x%2Fy"));
    // A server that is gone for a while goes on with the part that is missing.
    rig.down();
    assert_eq!(rig.ask(0).1, format!("{LIST}&limit=500&continue=x%2Fy"));
    let whole = Change::Replaced(vec![r#"{"a":1}"#.into(), r#"{"a":2}"#.into()]);
    assert_eq!(rig.answer(200, &part(30, 2, "")), Some(whole));
    assert!(rig.ask(0).1.contains("resourceVersion=30&"));
    // One that has forgotten where the parts were begins anew.
    rig.ended();
    rig.ask(0);
    rig.answer(410, r#"{"code":410,"message":"too old"}"#);
    assert_eq!(rig.ask(0).1, format!("{LIST}&limit=500"));
    assert_eq!(rig.answer(200, &part(40, 1, "z")), None);
    rig.ask(0);
    rig.answer(410, r#"{"code":410,"message":"too old"}"#);
    assert_eq!(rig.ask(0).1, format!("{LIST}&limit=500"));
}
