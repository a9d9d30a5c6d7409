//! One object of the API server as the node keeps it, by the strategy that the configuration names.
//!
//! `Watch` keeps a copy per object: the API server lets a node look at single objects only. `Cache` and `Get` read the
//! object again when what is known is too old. An immutable object is never asked for again.

use crate::apicall::{self, Backoff, Verdict, verdict};
use crate::reflector::{Change, Reflector, Target};
use components::edge::api::{ApiIngress, ApiRequest, Class};
use components::edge::{Outcome, Why};
use components::ids::Ticket;
use components::node::ObjectStrategy;
use components::objects::{ObjectKey, ObjectKind, ObjectState};
use components::time::Mono;
use engine::{Outbox, Owner};
use std::sync::Arc;
use std::time::Duration;

/// Age at which `Cache` reads again.
const CACHE_AGE: Duration = Duration::from_secs(60);
/// Age at which `Get` reads again: pods are looked at about that often.
const GET_AGE: Duration = Duration::from_secs(20);
/// Waits while an object is missing or cannot be read.
const RETRY: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };

/// The copy of one object.
#[derive(Debug)]
pub(super) struct Keeper {
    key: ObjectKey,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Watched(Reflector),
    Polled(Poll),
    /// It will never change.
    Final,
}

#[derive(Debug)]
struct Poll {
    asking: Option<Ticket>,
    due: Mono,
    age: Duration,
    failures: u32,
    seed: u64,
}

/// What a fact changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Nothing.
    None,
    /// This is how it is.
    State(ObjectState),
    /// It could not be read, which counts only while nothing is known.
    Trouble(String),
}

impl Keeper {
    pub(super) fn new(key: ObjectKey, strategy: ObjectStrategy, now: Mono, seed: u64) -> Self {
        let poll = |age| Way::Polled(Poll { asking: None, due: now, age, failures: 0, seed });
        let way = match strategy {
            ObjectStrategy::Watch => {
                let secret = key.kind == ObjectKind::Secret;
                Way::Watched(Reflector::new(Target::single(&collection(&key), &key.name, Class::Object, secret), seed))
            }
            ObjectStrategy::Cache => poll(CACHE_AGE),
            ObjectStrategy::Get => poll(GET_AGE),
        };
        Self { key, way }
    }

    /// When [`Self::drive`] has something to do.
    pub(super) const fn due(&self) -> Option<Mono> {
        match &self.way {
            Way::Watched(reflector) => reflector.due(),
            Way::Polled(Poll { asking: None, due, .. }) => Some(*due),
            Way::Polled(_) | Way::Final => None,
        }
    }

    /// Asks what is due; the ticket of the question.
    pub(super) fn drive(&mut self, now: Mono, outbox: &mut Outbox) -> Option<Ticket> {
        if self.due().is_none_or(|at| at > now) {
            return None;
        }
        match &mut self.way {
            Way::Watched(reflector) => {
                reflector.drive(now, "objects", outbox);
                outbox.emitted().last().map(|work| work.ticket)
            }
            Way::Polled(poll) => {
                let path = format!("{}/{}", collection(&self.key), apicall::encode(&self.key.name));
                let secret = self.key.kind == ObjectKind::Secret;
                let request = ApiRequest { secret, ..ApiRequest::get(path, Class::Object) };
                let why = Why { system: "objects", rule: "what is known of it is too old" };
                let ticket = outbox.emit(apicall::work(Owner::Node, why, request));
                poll.asking = Some(ticket);
                poll.seed = apicall::mix(poll.seed);
                Some(ticket)
            }
            Way::Final => None,
        }
    }

    /// A pod that is new may need what is newer than the copy.
    pub(super) const fn refresh(&mut self, now: Mono) {
        if let Way::Polled(poll) = &mut self.way {
            poll.due = now;
        }
    }

    /// Nobody needs it any more.
    pub(super) fn stop(&mut self, outbox: &mut Outbox) {
        match &mut self.way {
            Way::Watched(reflector) => reflector.stop(outbox),
            Way::Polled(Poll { asking: Some(ticket), .. }) => outbox.cancel(*ticket),
            Way::Polled(_) | Way::Final => {}
        }
        self.way = Way::Final;
    }

    /// True for the ticket of the question or watch under way.
    pub(super) fn owns(&self, ticket: Ticket) -> bool {
        match &self.way {
            Way::Watched(reflector) => reflector.owns(ticket),
            Way::Polled(poll) => poll.asking == Some(ticket),
            Way::Final => false,
        }
    }

    /// Takes the answer to a question that it [`Self::owns`].
    pub(super) fn completed(&mut self, outcome: &Outcome, now: Mono, outbox: &mut Outbox) -> News {
        let news = match &mut self.way {
            Way::Watched(reflector) => match reflector.completed(outcome, now) {
                Some(change) => take(self.key.kind, change),
                None => reflector.error().map_or(News::None, |why| News::Trouble(why.to_owned())),
            },
            Way::Polled(poll) => poll.answered(self.key.kind, outcome, now),
            Way::Final => News::None,
        };
        self.settle(news, outbox)
    }

    /// Takes a fact of the watch of this copy.
    pub(super) fn told(&mut self, fact: &ApiIngress, now: Mono, outbox: &mut Outbox) -> News {
        let Way::Watched(reflector) = &mut self.way else { return News::None };
        let last = reflector.told(fact, now, outbox).pop();
        let news = last.map_or(News::None, |change| take(self.key.kind, change));
        self.settle(news, outbox)
    }

    fn settle(&mut self, news: News, outbox: &mut Outbox) -> News {
        if let News::State(ObjectState::Here(data)) = &news
            && data.immutable
        {
            self.stop(outbox);
        }
        news
    }
}

impl Poll {
    fn answered(&mut self, kind: ObjectKind, outcome: &Outcome, now: Mono) -> News {
        self.asking = None;
        let news = match verdict(outcome) {
            Verdict::Good(answered) => read(kind, &answered.body),
            Verdict::Refused(refusal) if refusal.status == 404 => News::State(ObjectState::Missing),
            Verdict::Refused(refusal) => News::Trouble(refusal.message),
            Verdict::Silent(why) => News::Trouble(why),
        };
        let wait = if matches!(news, News::State(ObjectState::Here(_))) {
            self.failures = 0;
            // Up to a tenth more by chance, so that many objects are not asked for in step.
            self.age + self.age / 10 * u32::try_from(self.seed % 8).unwrap_or(0) / 8
        } else {
            self.failures = self.failures.saturating_add(1);
            RETRY.wait(self.failures, self.seed).min(self.age)
        };
        self.due = now.after(wait);
        news
    }
}

/// Path of the collection that holds the object.
fn collection(key: &ObjectKey) -> String {
    format!("/api/v1/namespaces/{}/{}", apicall::encode(&key.namespace), key.kind.plural())
}

/// What a change of the one-object collection means.
fn take(kind: ObjectKind, change: Change) -> News {
    match change {
        Change::Replaced(items) => items.first().map_or(News::State(ObjectState::Missing), |text| read(kind, text)),
        Change::Put(text) => read(kind, &text),
        Change::Gone(_) => News::State(ObjectState::Missing),
    }
}

fn read(kind: ObjectKind, text: &str) -> News {
    match podspec::objects::object(kind, text) {
        Ok(data) => News::State(ObjectState::Here(Arc::new(data))),
        Err(why) => News::Trouble(format!("{}: {why}", kind.singular())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::edge::api::{Answered, ApiAnswer, ApiEffect, ApiEvent, EventKind};
    use components::edge::{Answer, Effect};

    const NOW: Mono = Mono(0);

    fn answer(status: u16, body: &str) -> Outcome {
        let answered = Answered { status, secret: false, body: Arc::from(body), retry_after: None };
        Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))))
    }

    fn object(version: u32, immutable: bool) -> String {
        format!(
            r#"{{"metadata":{{"name":"m","uid":"u","resourceVersion":"{version}"}},"immutable":{immutable},"data":{{"k":"v"}}}}"#
        )
    }

    fn list(items: &str) -> String {
        format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#)
    }

    fn paths(outbox: &Outbox) -> Vec<String> {
        let path = |effect: &Effect| match effect {
            Effect::Api(ApiEffect::Request(it)) => format!("{} {}", it.method.as_str(), it.path),
            Effect::Api(ApiEffect::Watch(it)) => format!("WATCH {}", it.path.split("&timeout").next().unwrap()),
            other => panic!("{other:?}"),
        };
        outbox.emitted().iter().map(|work| path(&work.effect)).collect()
    }

    fn version(news: &News) -> String {
        match news {
            News::State(ObjectState::Here(data)) => data.resource_version.clone(),
            News::State(other) => format!("{other:?}"),
            News::None => "nothing".to_owned(),
            News::Trouble(why) => format!("trouble {why}"),
        }
    }

    fn event(watch: Ticket, kind: EventKind, object: &str) -> ApiIngress {
        let events = vec![ApiEvent { kind, object: Arc::from(object) }];
        ApiIngress::WatchEvents { watch, secret: false, events }
    }

    #[test]
    fn a_watched_object_is_listed_and_followed_by_its_name() {
        let mut outbox = Outbox::default();
        let mut keeper = Keeper::new(fixtures::place("map:m"), ObjectStrategy::Watch, NOW, 1);
        assert!(keeper.drive(NOW, &mut outbox).is_some());
        assert!(keeper.drive(NOW, &mut outbox).is_none());
        assert_eq!(version(&keeper.completed(&answer(200, &list("")), NOW, &mut outbox)), "Missing");
        let watch = keeper.drive(NOW, &mut outbox).unwrap();
        let collection = "/api/v1/namespaces/default/configmaps?fieldSelector=metadata.name%3Dm";
        assert_eq!(paths(&outbox)[0], format!("GET {collection}&resourceVersion=0"));
        assert!(paths(&outbox)[1].starts_with(&format!("WATCH {collection}&watch=1")), "{:?}", paths(&outbox));
        let mut told = |kind, text: &str| version(&keeper.told(&event(watch, kind, text), NOW, &mut outbox));
        assert_eq!(told(EventKind::Added, &object(6, false)), "6");
        assert_eq!(told(EventKind::Modified, &object(7, false)), "7");
        assert_eq!(told(EventKind::Deleted, &object(8, false)), "Missing");
        assert_eq!(told(EventKind::Bookmark, &object(9, false)), "nothing");
    }

    #[test]
    fn an_immutable_object_is_not_asked_for_again() {
        for strategy in [ObjectStrategy::Watch, ObjectStrategy::Cache] {
            let mut outbox = Outbox::default();
            let mut keeper = Keeper::new(fixtures::place("secret:s"), strategy, NOW, 1);
            keeper.drive(NOW, &mut outbox);
            let text = object(3, true).replace("\"v\"", "\"dg==\"");
            let text = if strategy == ObjectStrategy::Watch { list(&text) } else { text };
            assert_eq!(version(&keeper.completed(&answer(200, &text), NOW, &mut outbox)), "3");
            assert_eq!(keeper.due(), None);
        }
    }

    #[test]
    fn a_read_object_is_read_again_when_it_is_old() {
        let mut outbox = Outbox::default();
        let mut keeper = Keeper::new(fixtures::place("map:m"), ObjectStrategy::Cache, NOW, 1);
        keeper.drive(NOW, &mut outbox);
        assert_eq!(paths(&outbox), ["GET /api/v1/namespaces/default/configmaps/m"]);
        assert_eq!(keeper.due(), None);
        assert_eq!(version(&keeper.completed(&answer(404, "{}"), NOW, &mut outbox)), "Missing");
        assert!(keeper.due().is_some_and(|at| at.since(NOW) < Duration::from_secs(3)), "{:?}", keeper.due());
        keeper.drive(Mono(3_000_000_000), &mut outbox);
        assert_eq!(version(&keeper.completed(&answer(200, &object(4, false)), NOW, &mut outbox)), "4");
        assert!(keeper.due().is_some_and(|at| at.since(NOW) >= CACHE_AGE));
        keeper.refresh(NOW);
        assert_eq!(keeper.due(), Some(NOW), "a new pod wants it fresh");
    }

    #[test]
    fn what_cannot_be_read_is_told_and_tried_again() {
        for strategy in [ObjectStrategy::Watch, ObjectStrategy::Get] {
            let mut outbox = Outbox::default();
            let mut keeper = Keeper::new(fixtures::place("map:m"), strategy, NOW, 1);
            keeper.drive(NOW, &mut outbox);
            let refused = answer(403, r#"{"message":"forbidden"}"#);
            let news = keeper.completed(&refused, NOW, &mut outbox);
            assert!(version(&news).starts_with("trouble") && version(&news).contains("forbidden"), "{news:?}");
            assert!(keeper.due().is_some());
        }
    }
}
