//! Events as API objects, sent one after the other: made once, then only their counts are patched.

use super::correlate::{About, COMBINED, Sendable};
use crate::node_object::{answered, trouble};
use components::edge::Outcome;
use components::edge::api::{ApiRequest, Class, Method};
use components::ids::Ticket;
use components::time::Mono;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;

/// Events that may wait; what comes on top is lost.
const MOST: usize = 1000;
/// Times one event is tried, and the wait in between.
const TRIES: u32 = 12;
const WAIT: Duration = Duration::from_secs(10);
/// Namespace of events about objects that have none.
const DEFAULT: &str = "default";

/// Events on their way.
#[derive(Default, Debug)]
pub(super) struct Queue {
    waiting: VecDeque<Sendable>,
    doing: Option<(Ticket, Sendable, Way)>,
    tries: u32,
    /// The next one must be made, whatever its count says.
    anew: bool,
    /// Nothing is sent before this.
    pub(super) not_before: Option<Mono>,
    lost: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Make,
    Count,
}

impl Queue {
    pub(super) fn push(&mut self, event: Sendable) {
        if self.waiting.len() < MOST {
            self.waiting.push_back(event);
            return;
        }
        self.lost += 1;
        if self.lost.is_power_of_two() {
            tracing::warn!(lost = self.lost, "Too many events wait; new ones are lost");
        }
    }

    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.doing.as_ref().is_some_and(|(awaited, ..)| *awaited == ticket)
    }

    /// The next request, where one is due.
    pub(super) fn next(&mut self, node: &str, now: Mono) -> Option<(Sendable, Way, ApiRequest)> {
        if self.doing.is_some() || self.not_before.is_some_and(|at| at > now) {
            return None;
        }
        self.not_before = None;
        let event = self.waiting.pop_front()?;
        let way = if event.count == 1 || self.anew { Way::Make } else { Way::Count };
        let request = request(&event, way, node);
        Some((event, way, request))
    }

    pub(super) fn sent(&mut self, ticket: Ticket, event: Sendable, way: Way) {
        self.doing = Some((ticket, event, way));
    }

    /// Takes the answer; an event that could not be sent for want of a server is tried again.
    pub(super) fn take(&mut self, outcome: &Outcome, now: Mono) {
        let Some((_, event, way)) = self.doing.take() else { return };
        let answer = answered(outcome);
        let status = answer.map(|answer| answer.status);
        let done = answer.is_some_and(|answer| answer.is_success());
        self.anew = false;
        if way == Way::Count && status == Some(404) {
            // Its object has expired: it is made again.
            self.anew = true;
            self.waiting.push_front(event);
            return;
        }
        let busy = status == Some(429);
        if done || (status.is_some() && !busy) || self.tries + 1 >= TRIES {
            if !done {
                let (reason, error) = (&*event.event.reason, trouble(outcome));
                tracing::warn!(reason, %error, "An event was not taken and is lost");
            }
            self.tries = 0;
            return;
        }
        self.tries += 1;
        self.anew = way == Way::Make;
        let asked = answer.and_then(|answer| answer.retry_after).map(|s| Duration::from_secs(u64::from(s)));
        self.not_before = Some(now.after(asked.unwrap_or(WAIT)));
        self.waiting.push_front(event);
    }
}

fn namespace(about: &About) -> &str {
    if about.namespace.is_empty() { DEFAULT } else { &about.namespace }
}

fn request(sent: &Sendable, way: Way, node: &str) -> ApiRequest {
    let events = format!("/api/v1/namespaces/{}/events", namespace(&sent.event.about));
    match way {
        Way::Make => ApiRequest::send(Method::Post, events, object(sent, node).to_string(), Class::Event),
        Way::Count => {
            let mut patch = json!({ "count": sent.count, "lastTimestamp": sent.last.rfc3339() });
            if sent.reworded {
                patch["message"] = sent.event.message.as_str().into();
            }
            let path = format!("{events}/{}", sent.name);
            ApiRequest::send(Method::PatchStrategic, path, patch.to_string(), Class::Event)
        }
    }
}

fn object(sent: &Sendable, node: &str) -> Value {
    let event = &sent.event;
    let about = &event.about;
    let mut involved = json!({ "kind": about.kind, "name": about.name });
    for (key, value) in [
        ("namespace", about.namespace.as_str()),
        ("uid", &about.uid),
        ("apiVersion", "v1"),
        ("resourceVersion", &about.resource_version),
        ("fieldPath", &about.field_path),
    ] {
        if !value.is_empty() {
            involved[key] = value.into();
        }
    }
    // As upstream's aggregator makes them.
    let combined = event.message.starts_with(COMBINED);
    json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": sent.name, "namespace": namespace(about) },
        "involvedObject": involved,
        "reason": event.reason,
        "message": event.message,
        "source": { "component": "kubelet", "host": node },
        "firstTimestamp": sent.first.rfc3339(),
        "lastTimestamp": sent.last.rfc3339(),
        "count": sent.count,
        "type": if event.warning { "Warning" } else { "Normal" },
        "eventTime": null,
        "reportingComponent": if combined { "" } else { "kubelet" },
        "reportingInstance": if combined { "" } else { node },
    })
}

#[cfg(test)]
mod tests {
    use super::super::correlate::Happened;
    use super::*;
    use components::edge::api::{Answered, ApiAnswer};
    use components::edge::{Answer, Failure, FailureClass};
    use components::time::Wall;

    fn event(count: u32) -> Sendable {
        let about = About {
            kind: "Pod",
            namespace: "ns".into(),
            name: "p".into(),
            uid: "u".into(),
            field_path: "spec.containers{c}".into(),
            resource_version: "7".to_owned(),
        };
        let event = Happened { about, warning: true, reason: "BackOff".into(), message: "m".into() };
        Sendable { event, name: "p.1".into(), count, first: Wall(0), last: Wall(7_000_000_000), reworded: false }
    }

    fn answer(status: u16) -> Outcome {
        let answered = Answered { status, secret: false, body: "{}".into(), retry_after: None };
        Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))))
    }

    /// Sends the next one; its method.
    fn send(queue: &mut Queue, now: u64) -> Option<Method> {
        let (event, way, request) = queue.next("n", Mono(now * 1_000_000_000))?;
        queue.sent(Ticket(1), event, way);
        Some(request.method)
    }

    #[test]
    fn an_event_is_made_once_and_counted_then() {
        let (sent, way, made) = {
            let mut queue = Queue::default();
            queue.push(event(1));
            queue.next("n", Mono(0)).unwrap()
        };
        assert_eq!((way, made.path.as_str(), sent.count), (Way::Make, "/api/v1/namespaces/ns/events", 1));
        let body: Value = serde_json::from_str(made.body.text()).unwrap();
        let involved = json!({
            "kind": "Pod", "namespace": "ns", "name": "p", "uid": "u", "apiVersion": "v1", "resourceVersion": "7",
            "fieldPath": "spec.containers{c}",
        });
        assert_eq!(body["involvedObject"], involved);
        assert_eq!(body["source"], json!({ "component": "kubelet", "host": "n" }));
        assert_eq!(body["lastTimestamp"], "1970-01-01T00:00:07Z");
        let counted = request(&event(3), Way::Count, "n");
        assert_eq!(counted.path, "/api/v1/namespaces/ns/events/p.1");
        assert_eq!(counted.body.text(), r#"{"count":3,"lastTimestamp":"1970-01-01T00:00:07Z"}"#);
    }

    #[test]
    fn one_that_expired_is_made_again() {
        let mut queue = Queue::default();
        queue.push(event(2));
        assert_eq!(send(&mut queue, 0), Some(Method::PatchStrategic));
        queue.take(&answer(404), Mono(0));
        assert_eq!(send(&mut queue, 0), Some(Method::Post));
        queue.take(&answer(201), Mono(0));
        assert_eq!(send(&mut queue, 0), None);
    }

    #[test]
    fn events_wait_for_a_server_but_not_for_ever_and_refusals_are_final() {
        let mut queue = Queue::default();
        queue.push(event(1));
        let away = Outcome::Failed(Failure { class: FailureClass::Unavailable, message: "refused".into() });
        for round in 0..12 {
            assert_eq!(send(&mut queue, round * 10), Some(Method::Post), "{round}");
            queue.take(&away, Mono(round * 10_000_000_000));
            assert_eq!(send(&mut queue, round * 10 + 9), None);
        }
        assert_eq!(send(&mut queue, 1000), None);
        queue.push(event(1));
        queue.push(event(1));
        send(&mut queue, 1000);
        queue.take(&answer(403), Mono(0));
        assert_eq!(send(&mut queue, 1000), Some(Method::Post));
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut queue = Queue::default();
        for _ in 0..MOST + 5 {
            queue.push(event(1));
        }
        assert_eq!((queue.waiting.len(), queue.lost), (MOST, 5));
    }
}
