//! A simulated API server: a store of objects with the rules that a kubelet meets, in virtual time.
//!
//! Knows resource versions, list and watch with field selectors, conflicts, preconditions, the status subresource,
//! strategic and merge patches, graceful deletion of pods, and trouble on demand. It does not validate objects and has
//! no admission, no authorization and no controllers. `sim::node` puts it behind the edge.

mod patch;
mod place;
#[cfg(test)]
mod tests;
mod token;

use self::place::{Place, Selector};
use components::edge::api::{Answered, ApiEvent, ApiRequest, EventKind, Method};
use components::time::{Mono, Wall};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The server.
#[derive(Debug, Default)]
pub struct ApiServer {
    /// Nothing is answered and no watch lives until then.
    pub down_until: Mono,
    /// Every request is refused with this status until then.
    pub refuses: Option<(u16, Mono)>,
    /// What a refused request is told to wait, in seconds.
    pub retry_after: Option<u32>,
    /// How far its wall clock is ahead of the node's, in nanoseconds.
    pub skew: i64,
    /// A status write that took a pod back from where it had ended.
    pub regressed: Option<String>,
    /// Requests by method and resource, for example `PATCH pods/status`; watches as `WATCH pods`.
    pub counts: BTreeMap<String, u64>,
    objects: BTreeMap<Place, Value>,
    version: u64,
    history: Vec<Entry>,
    /// History up to here is forgotten.
    compacted: u64,
    uids: u64,
    /// Names made so far.
    generated: u64,
    /// Most objects of a part of a list.
    pub page: Option<usize>,
    /// Tokens issued so far.
    pub tokens: u64,
}

/// A change as the history keeps it.
#[derive(Debug)]
struct Entry {
    version: u64,
    place: Place,
    before: Option<Value>,
    after: Option<Value>,
}

/// A watch that was accepted.
#[derive(Debug, Clone)]
pub struct WatchState {
    place: Place,
    selector: Selector,
    secret: bool,
    seen: u64,
    /// The server ends it after this long.
    pub timeout: Duration,
}

impl WatchState {
    /// The objects hold secrets.
    #[must_use]
    pub const fn secret(&self) -> bool {
        self.secret
    }
}

impl ApiServer {
    /// Answers one request.
    pub fn request(&mut self, now: Mono, wall: Wall, request: &ApiRequest) -> Answered {
        let mut retry_after = None;
        let (status, body) = match Place::parse(&request.path) {
            Ok((place, query)) => {
                *self.counts.entry(format!("{} {}", request.method.as_str(), place.kind())).or_default() += 1;
                match self.refusal(now) {
                    Some(refused) => {
                        retry_after = self.retry_after;
                        refused
                    }
                    None => self.answer(wall, request, &place, &query),
                }
            }
            Err(message) => failure(404, "NotFound", &message),
        };
        Answered { status, secret: request.secret, body: Arc::from(body.to_string()), retry_after }
    }

    /// Accepts a watch, or says why not.
    ///
    /// # Errors
    /// The answer to give.
    pub fn watch(&mut self, now: Mono, path: &str, secret: bool) -> Result<WatchState, Answered> {
        let retry_after = self.retry_after.filter(|_| self.refusal(now).is_some());
        let refuse = |(status, body): (u16, Value)| Answered {
            status,
            secret: false,
            body: Arc::from(body.to_string()),
            retry_after,
        };
        let (place, query) = Place::parse(path).map_err(|e| refuse(failure(404, "NotFound", &e)))?;
        *self.counts.entry(format!("WATCH {}", place.kind())).or_default() += 1;
        if let Some(refused) = self.refusal(now) {
            return Err(refuse(refused));
        }
        let number = |name: &str| query.get(name).and_then(|v| v.parse::<u64>().ok());
        let seen = number("resourceVersion").unwrap_or(0);
        if seen < self.compacted {
            return Err(refuse(failure(410, "Expired", "too old resource version")));
        }
        let selector = Selector::parse(&query).map_err(|e| refuse(failure(400, "BadRequest", &e)))?;
        let timeout = Duration::from_secs(number("timeoutSeconds").unwrap_or(1800));
        Ok(WatchState { place, selector, secret, seen, timeout })
    }

    /// What a watch has not been told yet.
    pub fn events(&self, watch: &mut WatchState) -> Vec<ApiEvent> {
        let first = self.history.partition_point(|e| e.version <= watch.seen);
        watch.seen = watch.seen.max(self.version);
        let fits = |object: &Option<Value>| object.as_ref().is_some_and(|o| watch.selector.fits(o));
        let mut events = Vec::new();
        for entry in self.history.iter().skip(first).filter(|e| watch.place.holds(&e.place)) {
            let (kind, object) = match (fits(&entry.before), fits(&entry.after)) {
                (false, true) => (EventKind::Added, &entry.after),
                (true, true) => (EventKind::Modified, &entry.after),
                (true, false) => (EventKind::Deleted, &entry.before),
                (false, false) => continue,
            };
            let Some(mut object) = object.clone() else { continue };
            object["metadata"]["resourceVersion"] = json!(entry.version.to_string());
            events.push(ApiEvent { kind, object: Arc::from(object.to_string()) });
        }
        events
    }

    /// Forgets its history: watches from older versions are refused.
    pub fn compact(&mut self) {
        self.version += 1;
        self.compacted = self.version;
        self.history.clear();
    }

    /// An object by its path.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&Value> {
        self.objects.get(&Place::parse(path).ok()?.0)
    }

    /// Creates an object as a user does; its path.
    ///
    /// # Errors
    /// What the server answered.
    pub fn create(&mut self, wall: Wall, collection: &str, object: &Value) -> Result<(), String> {
        let (place, _) = Place::parse(collection)?;
        let (status, body) = self.post(wall, &place, object.clone());
        if status < 300 { Ok(()) } else { Err(body.to_string()) }
    }

    /// Patches an object as a user does (merge patch).
    ///
    /// # Errors
    /// What the server answered.
    pub fn patch(&mut self, path: &str, change: &Value) -> Result<(), String> {
        let (place, _) = Place::parse(path)?;
        let (status, body) = self.change(&place, |object| {
            let before = object.get("spec").cloned();
            patch::merge(object, change);
            count_generation(object, before.as_ref());
        });
        if status < 300 { Ok(()) } else { Err(body.to_string()) }
    }

    /// Patches an object's status as a controller does (strategic merge patch).
    ///
    /// # Errors
    /// What the server answered.
    pub fn patch_status(&mut self, path: &str, status: &Value) -> Result<(), String> {
        let (place, _) = Place::parse(&format!("{path}/status"))?;
        let (status, body) = self.change(&place, |object| patch::strategic(object, &json!({"status": status})));
        if status < 300 { Ok(()) } else { Err(body.to_string()) }
    }

    /// Deletes an object as a user does.
    ///
    /// # Errors
    /// What the server answered.
    pub fn delete(&mut self, wall: Wall, path: &str, grace: Option<i64>) -> Result<(), String> {
        let (place, _) = Place::parse(path)?;
        let options = grace.map_or_else(|| json!({}), |grace| json!({"gracePeriodSeconds": grace}));
        let (status, body) = self.remove(wall, &place, &options);
        if status < 300 { Ok(()) } else { Err(body.to_string()) }
    }

    /// Pods that are bound to a node and not asked to end, without what changes while they run.
    #[must_use]
    pub fn bound(&self, node: &str) -> Vec<Arc<str>> {
        let of_node = |object: &&Value| {
            let bound = object.pointer("/spec/nodeName").and_then(Value::as_str) == Some(node);
            let mirror = object.pointer("/metadata/annotations/kubernetes.io~1config.mirror").is_some();
            bound && !mirror && object.pointer("/metadata/deletionTimestamp").is_none()
        };
        let pods = self.objects.iter().filter(|(place, _)| place.resource == "pods").map(|(_, object)| object);
        let plain = pods.filter(of_node).map(|object| {
            let mut object = object.clone();
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
            if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.remove("resourceVersion");
            }
            Arc::from(object.to_string())
        });
        plain.collect()
    }

    fn refusal(&self, now: Mono) -> Option<(u16, Value)> {
        let (status, _) = self.refuses.filter(|(_, until)| now < *until)?;
        let reason = match status {
            401 => "Unauthorized",
            403 => "Forbidden",
            409 => "Conflict",
            410 => "Expired",
            429 => "TooManyRequests",
            _ => "InternalError",
        };
        Some(failure(status, reason, "simulated fault"))
    }

    fn answer(
        &mut self,
        wall: Wall,
        request: &ApiRequest,
        place: &Place,
        query: &BTreeMap<String, String>,
    ) -> (u16, Value) {
        let text = request.body.text();
        let body: Value = match text {
            "" => json!({}),
            text => match serde_json::from_str(text) {
                Ok(body) => body,
                Err(error) => return failure(400, "BadRequest", &error.to_string()),
            },
        };
        match request.method {
            Method::Get if place.name.is_empty() => self.list(place, query),
            Method::Get => self.objects.get(&place.object()).map_or_else(|| not_found(place), |o| (200, o.clone())),
            Method::Post if place.sub == "token" => self.issue_token(wall, place, body),
            Method::Post => self.post(wall, place, body),
            Method::Put => self.put(place, body),
            Method::PatchStrategic => self.change(place, |object| patch::strategic(object, &body)),
            Method::PatchMerge => self.change(place, |object| patch::merge(object, &body)),
            Method::PatchJson => failure(415, "UnsupportedMediaType", "JSON patches are not simulated"),
            Method::Delete => self.remove(wall, place, &body),
        }
    }

    fn list(&self, place: &Place, query: &BTreeMap<String, String>) -> (u16, Value) {
        let selector = match Selector::parse(query) {
            Ok(selector) => selector,
            Err(error) => return failure(400, "BadRequest", &error),
        };
        let own = self.objects.iter().filter(|(at, object)| place.holds(at) && selector.fits(object));
        let items: Vec<(String, &Value)> =
            own.map(|(at, object)| (format!("{}/{}", at.namespace, at.name), object)).collect();
        self.part(items, query)
    }

    /// A part of a list, as `limit` and `continue` ask. The cache (`resourceVersion=0`) gives everything at once. It goes
    /// on behind the last object by name, so that what comes and goes meanwhile hides no other.
    fn part(&self, mut items: Vec<(String, &Value)>, query: &BTreeMap<String, String>) -> (u16, Value) {
        let (version, after) = match query.get("continue").and_then(|token| token.split_once('-')) {
            Some((version, after)) => (version.parse().unwrap_or(0), Some(after)),
            None => (self.version, None),
        };
        if version < self.compacted {
            return failure(410, "Expired", "The provided continue parameter is too old");
        }
        let cached = query.get("resourceVersion").is_some_and(|version| version == "0");
        let asked = query.get("limit").filter(|_| !cached).and_then(|limit| limit.parse::<usize>().ok());
        let limit = asked.unwrap_or(usize::MAX).min(self.page.unwrap_or(usize::MAX));
        let limit = if asked.is_some() { limit } else { usize::MAX };
        items.sort_by(|(a, _), (b, _)| a.cmp(b));
        items.retain(|(name, _)| after.is_none_or(|after| name.as_str() > after));
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map_or_else(String::new, |(name, _)| format!("{version}-{name}"));
        let items: Vec<Value> = items.into_iter().map(|(_, object)| object.clone()).collect();
        (200, json!({"metadata": {"resourceVersion": version.to_string(), "continue": next}, "items": items}))
    }

    fn post(&mut self, wall: Wall, place: &Place, mut object: Value) -> (u16, Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut name, prefix) = (text("/metadata/name"), text("/metadata/generateName"));
        if name.is_empty() && !prefix.is_empty() {
            self.generated += 1;
            name = format!("{prefix}{}", self.generated);
            object["metadata"]["name"] = json!(name);
        }
        if name.is_empty() {
            return failure(422, "Invalid", "metadata.name: Required value");
        }
        let at = Place { name, ..place.clone() };
        if self.objects.contains_key(&at) {
            return failure(409, "AlreadyExists", &format!("{} {:?} already exists", at.resource, at.name));
        }
        self.uids += 1;
        let uid = format!("00000000-0000-0000-0000-{:012}", self.uids);
        let metadata = &mut object["metadata"];
        if metadata.get("uid").is_none() {
            metadata["uid"] = json!(uid);
        }
        metadata["creationTimestamp"] = json!(wall.rfc3339());
        if !at.namespace.is_empty() {
            metadata["namespace"] = json!(at.namespace);
        }
        if at.resource == "pods" && object.get("status").is_none() {
            object["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
        }
        (201, self.store(&at, Some(object)))
    }

    fn put(&mut self, place: &Place, object: Value) -> (u16, Value) {
        let known = self.objects.get(&place.object()).and_then(|o| o.pointer("/metadata/resourceVersion").cloned());
        let given = object.pointer("/metadata/resourceVersion").cloned();
        if given.is_some() && given != known {
            return failure(409, "Conflict", "the object has been modified");
        }
        self.change(place, |old| *old = object)
    }

    /// Changes an object; through the subresource `status` only its status.
    fn change(&mut self, place: &Place, change: impl FnOnce(&mut Value)) -> (u16, Value) {
        let at = place.object();
        let Some(old) = self.objects.get(&at).cloned() else { return not_found(place) };
        let mut new = old.clone();
        change(&mut new);
        let (uid, wanted) = (old.pointer("/metadata/uid"), new.pointer("/metadata/uid"));
        if uid != wanted {
            let message =
                format!("the UID in the precondition ({wanted:?}) does not match the UID in record ({uid:?})");
            return failure(409, "Conflict", &message);
        }
        if place.sub == "status" {
            let status = new.get("status").cloned().unwrap_or(Value::Null);
            new = old.clone();
            new["status"] = status;
            let phase = |pod: &Value| pod.pointer("/status/phase").and_then(Value::as_str).map(str::to_owned);
            let (was, is) = (phase(&old), phase(&new));
            if at.resource == "pods" && was != is && was.as_deref().is_some_and(|p| p == "Succeeded" || p == "Failed") {
                self.regressed = Some(format!("pod {} was told to be {was:?} and now {is:?}", at.name));
            }
        } else if at.resource == "pods" || at.resource == "nodes" {
            new["status"] = old.get("status").cloned().unwrap_or(Value::Null);
        }
        if new == old { (200, old) } else { (200, self.store(&at, Some(new))) }
    }

    fn remove(&mut self, wall: Wall, place: &Place, options: &Value) -> (u16, Value) {
        let Some(mut object) = self.objects.get(&place.object()).cloned() else { return not_found(place) };
        let uid = object.pointer("/metadata/uid");
        if let Some(wanted) = options.pointer("/preconditions/uid")
            && uid != Some(wanted)
        {
            let message = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {uid:?}");
            return failure(409, "Conflict", &message);
        }
        let bound = object.pointer("/spec/nodeName").is_some_and(|n| n != "");
        let phase = object.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
        let polite = place.resource == "pods" && bound && !matches!(phase, "Succeeded" | "Failed");
        let own = object.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(30);
        let grace = options.get("gracePeriodSeconds").and_then(Value::as_i64).unwrap_or(own);
        if polite && grace > 0 {
            let known = object.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64);
            if known.is_some_and(|known| known <= grace) {
                return (200, object);
            }
            let at = Wall(wall.0.saturating_add(grace.saturating_mul(1_000_000_000)));
            object["metadata"]["deletionTimestamp"] = json!(at.rfc3339());
            object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            return (200, self.store(&place.object(), Some(object)));
        }
        self.store(&place.object(), None);
        (200, object)
    }

    fn store(&mut self, at: &Place, object: Option<Value>) -> Value {
        self.version += 1;
        let version = json!(self.version.to_string());
        let after = object.map(|mut object| {
            object["metadata"]["resourceVersion"] = version;
            object
        });
        let before = match &after {
            Some(object) => self.objects.insert(at.clone(), object.clone()),
            None => self.objects.remove(at),
        };
        let stored = after.clone().unwrap_or(Value::Null);
        self.history.push(Entry { version: self.version, place: at.clone(), before, after });
        stored
    }
}

fn not_found(place: &Place) -> (u16, Value) {
    failure(404, "NotFound", &format!("{} {:?} not found", place.resource, place.name))
}

/// A change of the spec is a new generation, where the object has them.
fn count_generation(object: &mut Value, before: Option<&Value>) {
    if object.get("spec") != before
        && let Some(generation) = object.pointer_mut("/metadata/generation")
    {
        *generation = json!(generation.as_i64().unwrap_or(0) + 1);
    }
}

fn failure(status: u16, reason: &str, message: &str) -> (u16, Value) {
    (status, json!({"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": status}))
}
