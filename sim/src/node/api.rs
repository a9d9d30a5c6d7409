//! The simulated API server behind the edge: watches that live as long as their work, facts in order, trouble.

use super::works::Flying;
use super::{Event, Node};
use crate::api::WatchState;
use components::edge::api::{ApiAnswer, ApiEffect, ApiIngress, ApiRequest};
use components::edge::{Answer, Effect, FailureClass, Ingress};
use components::ids::Ticket;
use components::time::Wall;
use serde_json::Value;
use std::time::Duration;

/// A change reaches a watcher after this long.
const TELL_DELAY: Duration = Duration::from_millis(2);

impl Node {
    /// Answers a request and tells watchers what it changed.
    pub(super) fn ask_api(&mut self, request: &ApiRequest) -> Answer {
        let (now, wall) = (self.now().mono, self.server_wall());
        let answered = self.api.request(now, wall, request);
        if let Some(text) = self.api.regressed.take() {
            self.checks.violate(text, now);
        }
        self.note(|_| format!("api {} {} {}", request.method.as_str(), answered.status, request.path));
        self.tell_watches();
        Answer::Api(ApiAnswer::Answered(Box::new(answered)))
    }

    /// Opens a watch; a refused one is answered like a request.
    pub(super) fn open_watch(&mut self, ticket: Ticket, flying: &mut Flying) {
        let Effect::Api(ApiEffect::Watch(watch)) = flying.effect() else { return };
        match self.api.watch(self.now, &watch.path, watch.secret) {
            Err(refused) => {
                flying.bring(Answer::Api(ApiAnswer::Answered(Box::new(refused))));
                // Its answer waits for it.
                self.at(self.now, Event::Answer(ticket));
            }
            Ok(state) => {
                self.at(self.now.after(state.timeout), Event::EndWatch(ticket));
                self.watches.insert(ticket, state);
                self.fact(TELL_DELAY, Ingress::Api(ApiIngress::WatchOpened { watch: ticket }));
                self.tell_watches();
            }
        }
    }

    /// Tells every watch what it has not heard.
    fn tell_watches(&mut self) {
        let bound = self.api.bound(&self.options.config.node_name);
        self.checks.on_bound(bound, &self.files, &self.url);
        let mut facts = Vec::new();
        for (ticket, state) in &mut self.watches {
            let events = self.api.events(state);
            if !events.is_empty() {
                facts.push(ApiIngress::WatchEvents { watch: *ticket, secret: WatchState::secret(state), events });
            }
        }
        for fact in facts {
            self.fact(TELL_DELAY, Ingress::Api(fact));
        }
    }

    /// The server ends a watch.
    pub(super) fn end_watch(&mut self, ticket: Ticket, message: &str) {
        if self.watches.remove(&ticket).is_some() {
            let ended = ApiAnswer::WatchEnded { message: message.to_owned() };
            self.bring(ticket, Answer::Api(ended));
            // After what was told before.
            self.at(self.now.after(TELL_DELAY), Event::Answer(ticket));
        }
    }

    // === what a script does ===

    /// Creates an object.
    ///
    /// # Errors
    /// What the server answered.
    pub fn api_create(&mut self, collection: &str, object: &Value) -> Result<(), String> {
        self.note(|_| format!("api create in {collection}"));
        let wall = self.server_wall();
        let result = self.api.create(wall, collection, object);
        self.tell_watches();
        result
    }

    /// Changes an object by a merge patch.
    ///
    /// # Errors
    /// What the server answered.
    pub fn api_patch(&mut self, path: &str, change: &Value) -> Result<(), String> {
        self.note(|_| format!("api patch {path}"));
        let result = self.api.patch(path, change);
        self.tell_watches();
        result
    }

    /// Changes an object's status as a controller does.
    ///
    /// # Errors
    /// What the server answered.
    pub fn api_status(&mut self, path: &str, status: &Value) -> Result<(), String> {
        self.note(|_| format!("api status {path}"));
        let result = self.api.patch_status(path, status);
        self.tell_watches();
        result
    }

    /// Deletes an object as a user does.
    ///
    /// # Errors
    /// What the server answered.
    pub fn api_delete(&mut self, path: &str, grace: Option<i64>) -> Result<(), String> {
        self.note(|_| format!("api delete {path}"));
        let wall = self.server_wall();
        let result = self.api.delete(wall, path, grace);
        self.tell_watches();
        result
    }

    /// The server is gone for so long: watches end, requests under way fail.
    pub fn api_down(&mut self, pause: Duration) {
        self.note(|_| "api down".into());
        self.api.down_until = self.api.down_until.max(self.now.after(pause));
        self.cut_watches();
        self.fail_requests();
    }

    /// Every watch ends.
    pub fn cut_watches(&mut self) {
        let all: Vec<Ticket> = self.watches.keys().copied().collect();
        for ticket in all {
            self.end_watch(ticket, "connection lost");
        }
    }

    /// The server's wall clock, which need not be the node's.
    fn server_wall(&self) -> Wall {
        Wall(self.now().wall.0.saturating_add(self.api.skew))
    }

    /// True when a request that starts now finds nobody.
    pub(super) fn api_is_down(&self) -> bool {
        self.now < self.api.down_until
    }
}

/// What a request meets while the server is gone.
pub(super) fn refused() -> (FailureClass, String) {
    (FailureClass::Unavailable, "connection refused".into())
}
