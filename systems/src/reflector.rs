//! A copy of a collection of the API server: list, watch from there, list anew when the server no longer knows the way.
//!
//! A plain state machine for any domain: it emits its own works, takes its answers and the facts of its watch, and
//! hands out changes. It asks again after a wait that grows with each failure, and keeps what it knows while the server
//! is gone. It does not keep the objects: who uses it does.

use crate::apicall::{self, Backoff, Verdict, verdict};
use components::edge::api::{ApiAnswer, ApiEffect, ApiEvent, ApiIngress, ApiRequest, ApiWatch, Class, EventKind};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::ids::Ticket;
use components::time::Mono;
use engine::{NewWork, Outbox, Owner};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Duration;

/// Waits between failures, as clients of the reference do.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(800), most: Duration::from_secs(30) };
/// Shortest time after which the server ends a watch; up to twice as long, by chance.
const WATCH_SECONDS: u64 = 300;
/// Time beyond that in which it must have ended.
const WATCH_SLACK: Duration = Duration::from_secs(60);
/// The server sends bookmarks about once a minute.
const SILENCE: Duration = Duration::from_secs(180);
/// A watch that ended sooner than this without a word has failed.
const SHORT: Duration = Duration::from_secs(1);

/// Objects of one part of a list that does not come from the server's cache, as clients of the reference ask.
const PAGE: u32 = 500;

/// What is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Path of the collection, for example `/api/v1/pods`.
    pub path: String,
    /// Selectors as part of a query, percent-encoded, without `&` at the ends; may be empty.
    pub query: String,
    /// Class of its requests.
    pub class: Class,
    /// The objects hold secrets.
    pub secret: bool,
}

impl Target {
    /// One object of a collection.
    #[must_use]
    pub fn single(collection: &str, name: &str, class: Class, secret: bool) -> Self {
        let query = format!("fieldSelector={}", apicall::encode(&format!("metadata.name={name}")));
        Self { path: collection.to_owned(), query, class, secret }
    }
}

/// A change of the copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// These are all there are; anything else is gone. Objects of a list do not say their kind.
    Replaced(Vec<Arc<str>>),
    /// One is new or changed.
    Put(Arc<str>),
    /// One is gone; its last state.
    Gone(Arc<str>),
}

/// The state machine.
#[derive(Debug)]
pub struct Reflector {
    target: Target,
    state: State,
    /// Up to where the server's history is known; `None`: list.
    version: Option<String>,
    /// The next list must not come from a cache, which may be older than what is known.
    consistent: bool,
    /// Parts of a list that has more of them, and where the next one begins.
    parts: Option<(Vec<Arc<str>>, String)>,
    synced: bool,
    failures: u32,
    seed: u64,
    error: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// Nothing is asked; the next question is due.
    Due(Mono),
    Listing(Ticket),
    Watching {
        ticket: Ticket,
        since: Mono,
        /// It told something.
        told: bool,
    },
    Stopped,
}

impl Reflector {
    /// A copy that begins at once.
    #[must_use]
    pub const fn new(target: Target, seed: u64) -> Self {
        Self {
            target,
            state: State::Due(Mono(0)),
            version: None,
            consistent: false,
            parts: None,
            synced: false,
            failures: 0,
            seed,
            error: None,
        }
    }

    /// True once a list was received; it stays true while the server is gone.
    #[must_use]
    pub const fn synced(&self) -> bool {
        self.synced
    }

    /// What went wrong last, while it does.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// When [`Self::drive`] has something to do.
    #[must_use]
    pub const fn due(&self) -> Option<Mono> {
        match self.state {
            State::Due(at) => Some(at),
            _ => None,
        }
    }

    /// True for the ticket of what is under way.
    #[must_use]
    pub fn owns(&self, ticket: Ticket) -> bool {
        matches!(&self.state, State::Listing(own) | State::Watching { ticket: own, .. } if *own == ticket)
    }

    /// Asks what is due. `system` names the one that calls.
    pub fn drive(&mut self, now: Mono, system: &'static str, outbox: &mut Outbox) {
        if self.due().is_none_or(|at| at > now) {
            return;
        }
        self.state = match &self.version {
            None => State::Listing(outbox.emit(self.list(system))),
            Some(version) => {
                let work = self.watch(version, system);
                State::Watching { ticket: outbox.emit(work), since: now, told: false }
            }
        };
        self.seed = apicall::mix(self.seed);
    }

    /// Ends it: what is under way is cancelled and nothing more is asked.
    pub fn stop(&mut self, outbox: &mut Outbox) {
        if let State::Listing(ticket) | State::Watching { ticket, .. } = self.state {
            outbox.cancel(ticket);
        }
        self.state = State::Stopped;
    }

    /// Asks anew without waiting, after the way to the server has changed.
    pub fn hurry(&mut self, now: Mono) {
        if let State::Due(at) = &mut self.state {
            *at = now.min(*at);
        }
    }

    /// Takes the answer to the list or the end of the watch. Only for a ticket that [`Self::owns`].
    pub fn completed(&mut self, outcome: &Outcome, now: Mono) -> Option<Change> {
        match self.state {
            State::Listing(_) => self.listed(outcome, now),
            State::Watching { since, told, .. } => {
                self.watch_ended(outcome, told || now.since(since) >= SHORT, now);
                None
            }
            State::Due(_) | State::Stopped => None,
        }
    }

    /// Takes a fact of the watch; facts of others change nothing.
    pub fn told(&mut self, fact: &ApiIngress, now: Mono, outbox: &mut Outbox) -> Vec<Change> {
        let (ApiIngress::WatchOpened { watch } | ApiIngress::WatchEvents { watch, .. }) = fact;
        if !self.owns(*watch) {
            return Vec::new();
        }
        match fact {
            ApiIngress::WatchOpened { .. } => {
                self.failures = 0;
                self.error = None;
                Vec::new()
            }
            ApiIngress::WatchEvents { events, .. } => {
                if let State::Watching { told, .. } = &mut self.state {
                    *told = true;
                }
                let mut changes = Vec::new();
                for event in events {
                    if let Err(message) = self.take(event, &mut changes) {
                        // What comes after is unknown: everything is asked for again.
                        outbox.cancel(*watch);
                        self.version = None;
                        self.fail(message, None, now);
                        break;
                    }
                }
                changes
            }
        }
    }

    fn take(&mut self, event: &ApiEvent, changes: &mut Vec<Change>) -> Result<(), String> {
        if event.kind == EventKind::Error {
            let status: StatusHead = serde_json::from_str(&event.object).unwrap_or_default();
            return Err(format!("the watch cannot go on: {} {}", status.code, status.message));
        }
        let head: Head<'_> = serde_json::from_str(&event.object).map_err(|e| format!("not an object: {e}"))?;
        self.version = Some(head.metadata.resource_version.into_owned());
        match event.kind {
            EventKind::Added | EventKind::Modified => changes.push(Change::Put(Arc::clone(&event.object))),
            EventKind::Deleted => changes.push(Change::Gone(Arc::clone(&event.object))),
            EventKind::Bookmark | EventKind::Error => {}
        }
        Ok(())
    }

    fn listed(&mut self, outcome: &Outcome, now: Mono) -> Option<Change> {
        let answered = match verdict(outcome) {
            Verdict::Good(answered) => answered,
            Verdict::Refused(refusal) => {
                // A cache that cannot serve it is left out the next time; parts that are too old begin anew.
                self.consistent |= refusal.status == 410;
                if refusal.status == 410 || refusal.status == 400 {
                    self.parts = None;
                }
                self.fail(format!("list: {} {}", refusal.status, refusal.message), refusal.retry_after, now);
                return None;
            }
            Verdict::Silent(message) => {
                self.fail(format!("list: {message}"), None, now);
                return None;
            }
        };
        let list: List<'_> = match serde_json::from_str(&answered.body) {
            Ok(list) => list,
            Err(error) => {
                self.fail(format!("list: the answer is no list: {error}"), None, now);
                return None;
            }
        };
        let (mut items, _) = self.parts.take().unwrap_or_default();
        items.extend(list.items.iter().flatten().map(|item| Arc::from(item.get())));
        if !list.metadata.next.is_empty() {
            self.parts = Some((items, list.metadata.next.into_owned()));
            self.state = State::Due(now);
            return None;
        }
        self.version = Some(list.metadata.resource_version.into_owned());
        self.consistent = true;
        self.synced = true;
        self.state = State::Due(now);
        self.error = None;
        Some(Change::Replaced(items))
    }

    fn watch_ended(&mut self, outcome: &Outcome, was_good: bool, now: Mono) {
        match outcome {
            Outcome::Done(Answer::Api(ApiAnswer::WatchEnded { .. })) | Outcome::TimedOut if was_good => {
                self.state = State::Due(now);
            }
            Outcome::Done(Answer::Api(ApiAnswer::WatchEnded { message })) => {
                self.fail(format!("watch: ended at once: {message}"), None, now);
            }
            other => match verdict(other) {
                Verdict::Refused(refusal) => {
                    if refusal.status == 410 || refusal.status == 400 {
                        self.version = None;
                    }
                    let message = format!("watch: {} {}", refusal.status, refusal.message);
                    self.fail(message, refusal.retry_after, now);
                }
                Verdict::Silent(message) => self.fail(format!("watch: {message}"), None, now),
                Verdict::Good(_) => self.fail("watch: an answer that is no watch".to_owned(), None, now),
            },
        }
    }

    fn fail(&mut self, message: String, at_least: Option<Duration>, now: Mono) {
        self.failures += 1;
        self.error = Some(message);
        let wait = BACKOFF.wait(self.failures, self.seed).max(at_least.unwrap_or_default());
        self.state = State::Due(now.after(wait));
    }

    fn list(&self, system: &'static str) -> NewWork {
        // The first list may come from the server's cache. Later ones must not go back in time.
        let from = match &self.parts {
            Some((_, next)) => format!("limit={PAGE}&continue={}", apicall::encode(next)),
            None if self.consistent => format!("limit={PAGE}"),
            None => "resourceVersion=0".to_owned(),
        };
        let request =
            ApiRequest { secret: self.target.secret, ..ApiRequest::get(self.path(&[&from]), self.target.class) };
        apicall::work(Owner::Node, Why { system, rule: "its copy is not known to be complete" }, request)
    }

    fn watch(&self, version: &str, system: &'static str) -> NewWork {
        let seconds = WATCH_SECONDS + apicall::mix(self.seed) % WATCH_SECONDS;
        let version = format!("resourceVersion={}", apicall::encode(version));
        let timeout = format!("timeoutSeconds={seconds}");
        let watch = ApiWatch {
            path: self.path(&["watch=1&allowWatchBookmarks=true", &version, &timeout]),
            class: self.target.class,
            secret: self.target.secret,
            silence: SILENCE,
        };
        NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: Duration::from_secs(seconds) + WATCH_SLACK,
            why: Why { system, rule: "changes since the last known version" },
            effect: Effect::Api(ApiEffect::Watch(Box::new(watch))),
        }
    }

    fn path(&self, parts: &[&str]) -> String {
        let own = std::iter::once(self.target.query.as_str()).chain(parts.iter().copied());
        let query: Vec<&str> = own.filter(|part| !part.is_empty()).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{mark}{}", self.target.path, query.join("&"))
    }
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(rename = "resourceVersion", borrow)]
    resource_version: std::borrow::Cow<'a, str>,
    /// Where the next part of a list begins; empty for the last.
    #[serde(rename = "continue", borrow, default)]
    next: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    metadata: Meta<'a>,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusHead {
    code: u16,
    message: String,
}

#[cfg(test)]
mod tests;
