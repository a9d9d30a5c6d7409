//! Pod statuses for the API server: what is written, when, and in which order; and the last deletion of a pod that ended.
//!
//! Reads [`Reported`], stages and [`ApiPods`]; writes its own [`StatusWrites`] and, from answers, [`ApiPods`]. One write
//! per pod is under way at a time and always says the newest; a bounded number runs at once, ends of pods and changes of
//! readiness first. A write says what differs from what the server has, so a repeated one changes nothing.

mod order;
mod patch;
#[cfg(test)]
mod tests;

use crate::apicall::{self, Backoff, Refusal, Verdict, verdict};
use crate::mirrors;
use crate::sources::bound::object;
use bevy_ecs::prelude::*;
use components::apipods::{ApiPod, ApiPods};
use components::edge::api::{ApiRequest, Class, Method};
use components::edge::sources::Source;
use components::edge::{Outcome, Why};
use components::ids::{PodUid, Ticket};
use components::node::NodeConfig;
use components::spec::PodSpec;
use components::status::PodStatus;
use components::time::Mono;
use components::world::{Desired, Lifecycle, Observed, PodIndex, PodKey, Reported, Stage};
use engine::{Clock, Engine, Inbox, Outbox, Owner, Phase, Seed, TimerKind, Timers, Touched};
use order::{Order, Urgency};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Waits between failures.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(10) };
/// A change that nobody waits for is written this long after it came about, together with what follows it.
const LINGER: Duration = Duration::from_millis(250);
/// What others made of a status is put right this seldom, as the reference does.
const RECONCILE: Duration = Duration::from_secs(10);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApiStatusSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<StatusWrites>();
    engine.add_systems(
        Phase::Report,
        (take_answers, notice, write)
            .chain_ignore_deferred()
            .in_set(ApiStatusSystems)
            .after(crate::status::StatusSystems)
            .after(crate::events::EventSystems)
            .before(crate::report::ReportSystems),
    );
}

/// What is to be written and what is under way.
#[derive(Resource, Default, Debug)]
pub struct StatusWrites {
    pods: BTreeMap<PodUid, Entry>,
    flying: BTreeMap<Ticket, (PodUid, Kind)>,
    order: Order,
    /// The server does not answer: nothing before this, and then one write alone.
    pause: Option<Mono>,
    failures: u32,
    /// Writes sent, for metrics.
    pub sent: u64,
}

/// What is known of one pod's writes.
#[derive(Default, Debug)]
struct Entry {
    status: Option<Arc<PodStatus>>,
    spec: Option<Arc<PodSpec>>,
    /// Version of [`Reported`] that was noticed last.
    version: u64,
    /// Nothing of it runs and its volumes are gone.
    finished: bool,
    flying: bool,
    failures: u32,
    retry_at: Option<Mono>,
    /// Last time it was written.
    written: Option<Mono>,
    /// The server refused this status for good.
    given_up: bool,
    /// Digest of what was written last and taken: if the server keeps something else, saying it again at once is idle.
    taken: Option<u128>,
    saying: u128,
}

/// Kinds of write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Patch,
    Delete,
}

// === answers ===

fn take_answers(
    clock: Res<Clock>,
    seed: Res<Seed>,
    inbox: Res<Inbox>,
    mut pods: ResMut<ApiPods>,
    mut writes: ResMut<StatusWrites>,
) {
    for done in inbox.completions.iter().filter(|done| done.owner == Owner::Node) {
        let Some((uid, kind)) = writes.flying.remove(&done.ticket) else { continue };
        let chance = seed.0 ^ done.ticket.0;
        writes.take(&uid, kind, &done.outcome, &mut pods, (clock.now.mono, chance));
    }
}

impl StatusWrites {
    fn take(&mut self, uid: &PodUid, kind: Kind, outcome: &Outcome, pods: &mut ApiPods, at: (Mono, u64)) {
        let (now, chance) = at;
        let Some(entry) = self.pods.get_mut(uid) else { return };
        entry.flying = false;
        match verdict(outcome) {
            Verdict::Good(answered) => {
                entry.failures = 0;
                entry.taken = Some(entry.saying);
                self.failures = 0;
                self.pause = None;
                if kind == Kind::Delete {
                    // The watch will say that it is gone.
                    entry.given_up = true;
                    return;
                }
                let object = serde_json::from_str(&answered.body).ok();
                if let Some(pod) = object.as_ref().and_then(object::api_pod) {
                    pods.learn(uid, pod);
                }
                self.order.add(now, Urgency::Usual, uid);
            }
            Verdict::Refused(refusal) => self.refused(uid, &refusal, now, chance),
            Verdict::Silent(message) => {
                if self.pause.is_none() {
                    tracing::warn!("pod statuses cannot be written: {message}");
                }
                self.hold(now, chance, None);
                self.order.add(now, Urgency::Soon, uid);
            }
        }
    }

    fn refused(&mut self, uid: &PodUid, refusal: &Refusal, now: Mono, chance: u64) {
        let Some(entry) = self.pods.get_mut(uid) else { return };
        let (status, message) = (refusal.status, &refusal.message);
        match status {
            // It is gone: the watch says so too.
            404 => entry.given_up = true,
            429 | 500.. => {
                tracing::warn!(pod = %uid, status, "pod status was not taken: {message}");
                self.hold(now, chance, refusal.retry_after);
                self.order.add(now, Urgency::Soon, uid);
            }
            // Rights may be granted at any time, and a rotated certificate may be known soon. Or another pod has its name,
            // which the watch will say, others wrote at the same time, or it is not valid for this server, which may be
            // upgraded.
            _ => {
                entry.failures += 1;
                if entry.failures == 1 {
                    tracing::warn!(pod = %uid, status, "pod status was refused, it is tried again: {message}");
                }
                let rights = matches!(status, 401 | 403);
                let wait = if rights { BACKOFF.wait(entry.failures, chance) } else { RECONCILE };
                let at = now.after(wait);
                entry.retry_at = Some(at);
                self.order.add(at, Urgency::Usual, uid);
            }
        }
    }

    fn hold(&mut self, now: Mono, chance: u64, at_least: Option<Duration>) {
        self.failures += 1;
        let wait = BACKOFF.wait(self.failures, chance).max(at_least.unwrap_or_default());
        self.pause = Some(now.after(wait));
    }
}

// === changes ===

fn notice(
    clock: Res<Clock>,
    touched: Res<Touched>,
    api: Res<ApiPods>,
    index: Res<PodIndex>,
    pods: Query<(&PodKey, &Desired, &Lifecycle, &Observed, &Reported)>,
    mut writes: ResMut<StatusWrites>,
) {
    if api.pods.is_empty() && api.changed.is_empty() {
        return;
    }
    let now = clock.now.mono;
    let changed = api.changed.iter().flat_map(|uid| shown_by(&api, &index, uid));
    for entity in touched.iter().chain(changed) {
        let Ok((key, desired, life, observed, reported)) = pods.get(entity) else { continue };
        let Some((uid, known)) = target(&api, &key.uid, desired.spec.as_deref()) else { continue };
        // Before it was looked at, what an earlier run showed stands.
        let looked_at = observed.inspection.is_some() || life.stage >= Stage::Terminated;
        if reported.version == 0 || !looked_at {
            continue;
        }
        let finished = life.stage == Stage::Done;
        let entry = writes.pods.entry(uid.clone()).or_default();
        let digest = |spec: &Option<Arc<PodSpec>>| spec.as_ref().map(|spec| spec.digest);
        // A new generation is observed although nothing else of the status changes.
        let respec = digest(&entry.spec) != digest(&desired.spec);
        let news = respec || entry.version != reported.version || entry.finished != finished;
        if news {
            let urgency = order::urgency(known, &reported.status, finished);
            entry.version = reported.version;
            entry.finished = finished;
            entry.status = Some(Arc::clone(&reported.status));
            entry.spec.clone_from(&desired.spec);
            entry.given_up = false;
            let at = if urgency == Urgency::Usual { now.after(LINGER) } else { now };
            writes.order.add(at, urgency, uid);
        } else if api.changed.contains(uid) {
            // A wish for its deletion, or a status that others have touched.
            let urgent = known.delete.is_some() && finished;
            let calm = entry.written.map_or_else(|| now.after(LINGER), |at| at.after(RECONCILE).max(now));
            let (at, urgency) = if urgent { (now, Urgency::Soon) } else { (calm, Urgency::Usual) };
            writes.order.add(at, urgency, uid);
        }
    }
    for uid in api.changed.iter().filter(|uid| !api.pods.contains_key(*uid)) {
        writes.pods.remove(uid);
        writes.order.remove(uid);
    }
}

/// The server's object for a pod of this node: of a static pod its mirror, if that stands for this very one.
fn target<'a>(api: &'a ApiPods, uid: &PodUid, spec: Option<&PodSpec>) -> Option<(&'a PodUid, &'a ApiPod)> {
    let spec = spec?;
    if spec.source == Source::Api {
        return api.pods.get_key_value(uid).filter(|(_, pod)| pod.mirror_of.is_none());
    }
    let (uid, mirror) = api.pods.get_key_value(api.mirrors.get(&spec.full_name())?)?;
    (mirror.mirror_of.as_deref() == Some(mirrors::hash(spec))).then_some((uid, mirror))
}

/// The pods of this node that an object of the server shows.
fn shown_by(api: &ApiPods, index: &PodIndex, uid: &PodUid) -> Vec<Entity> {
    match api.pods.get(uid) {
        Some(pod) if pod.mirror_of.is_some() => {
            index.by_full_name.get(&format!("{}_{}", pod.name, pod.namespace)).cloned().unwrap_or_default()
        }
        _ => index.by_uid.get(uid).copied().into_iter().collect(),
    }
}

// === writing ===

fn write(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    api: Res<ApiPods>,
    mut writes: ResMut<StatusWrites>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let Some(limits) = &config.api else { return };
    let now = clock.now.mono;
    let most = if writes.pause.is_some() { 1 } else { usize::try_from(limits.status_writes).unwrap_or(1).max(1) };
    while writes.flying.len() < most && writes.pause.is_none_or(|at| at <= now) {
        let Some(uid) = writes.order.next(now) else { break };
        let Some(entry) = writes.pods.get_mut(&uid) else { continue };
        let Some(known) = api.pods.get(&uid) else { continue };
        // What is under way comes back and is looked at again then.
        if entry.flying || entry.given_up {
            continue;
        }
        if let Some(at) = entry.retry_at.filter(|at| *at > now) {
            // News came while it waits.
            writes.order.add(at, Urgency::Usual, &uid);
            continue;
        }
        let Some((kind, rule, request)) = due(&uid, entry, known) else { continue };
        let saying = components::fnv::fnv1a_128(request.body.text().as_bytes());
        let again = entry.written.map(|at| at.after(RECONCILE)).filter(|at| *at > now);
        if let Some(at) = again.filter(|_| entry.taken == Some(saying)) {
            writes.order.add(at, Urgency::Usual, &uid);
            continue;
        }
        entry.saying = saying;
        entry.taken = None;
        entry.flying = true;
        entry.written = Some(now);
        entry.retry_at = None;
        let why = Why { system: "apistatus::write", rule };
        let ticket = outbox.emit(apicall::work(Owner::Node, why, request));
        writes.flying.insert(ticket, (uid, kind));
        writes.sent += 1;
    }
    let free = writes.flying.len() < most;
    match writes.order.due().filter(|_| free).map(|at| at.max(writes.pause.unwrap_or(at))) {
        Some(at) => timers.arm(TimerKind::StatusWrites, Owner::Node, at),
        None => timers.disarm(TimerKind::StatusWrites, Owner::Node),
    }
}

/// The write that a pod needs, if any: first its status, then its deletion.
fn due(uid: &PodUid, entry: &Entry, known: &ApiPod) -> Option<(Kind, &'static str, ApiRequest)> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", known.namespace, known.name);
    let (status, spec) = (entry.status.as_ref()?, entry.spec.as_ref()?);
    if let Some(body) = patch::body(uid, &known.status, status, spec) {
        let request = ApiRequest::send(Method::PatchStrategic, format!("{path}/status"), body, Class::Pod);
        return Some((Kind::Patch, "its status differs from the server's", request));
    }
    let bound = known.mirror_of.is_none();
    let over = bound && known.delete.is_some() && entry.finished && known.phase.is_terminal();
    over.then(|| {
        let request = ApiRequest::send(Method::Delete, path, patch::deletion(uid), Class::Pod);
        (Kind::Delete, "its deletion was asked for and it has ended", request)
    })
}
