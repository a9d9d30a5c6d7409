//! Mirror pods: what the API server shows of static pods.
//!
//! Decides which mirror is made, which is deleted because it stands for something else or for nothing, and when that is
//! tried again. Reads static pods, [`ApiPods`] and the inbox; writes its own [`Mirrors`]. A mirror never ends or starts
//! a container; its status is written by `systems::apistatus`.

mod object;

pub(crate) use object::hash;

#[cfg(test)]
mod tests;

use crate::apicall::{self, Backoff, Verdict, verdict};
use crate::sources::bound;
use bevy_ecs::prelude::*;
use components::apipods::{ApiPod, ApiPods};
use components::edge::api::{ApiRequest, Class, Method};
use components::edge::sources::Source;
use components::edge::{Outcome, Why};
use components::ids::{PodUid, Ticket};
use components::node::NodeConfig;
use components::spec::PodSpec;
use components::time::Mono;
use components::world::{Desired, Lifecycle, PodIndex, SourceStates, Stage};
use engine::{Clock, Engine, Inbox, Outbox, Owner, Phase, Seed, TimerKind, Timers, Touched};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// Waits between failures.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct MirrorSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Mirrors>();
    engine.add_systems(
        Phase::Report,
        (take_answers, keep_mirrors)
            .chain_ignore_deferred()
            .in_set(MirrorSystems)
            .after(crate::apistatus::ApiStatusSystems)
            .before(crate::report::ReportSystems),
    );
}

/// What is under way and what is to be looked at.
#[derive(Resource, Default, Debug)]
pub struct Mirrors {
    /// uid of the node's object, which owns the mirrors.
    node: Option<String>,
    asking: Option<Ticket>,
    /// Nothing of it is asked for before this.
    retry_at: Option<Mono>,
    failures: u32,
    /// Writes under way: full name, and the mirror that is deleted.
    flying: BTreeMap<Ticket, (String, Option<PodUid>)>,
    /// Full names to look at.
    open: BTreeSet<String>,
    /// What was wrong when it was told last.
    told: Option<String>,
    /// All mirrors were looked at once every source was read.
    swept: bool,
}

fn take_answers(
    clock: Res<Clock>,
    seed: Res<Seed>,
    inbox: Res<Inbox>,
    mut pods: ResMut<ApiPods>,
    mut mirrors: ResMut<Mirrors>,
) {
    for done in inbox.completions.iter().filter(|done| done.owner == Owner::Node) {
        let chance = seed.0 ^ done.ticket.0;
        if mirrors.asking == Some(done.ticket) {
            mirrors.asking = None;
            mirrors.take_node(&done.outcome, clock.now.mono, chance);
        } else if let Some((name, deleted)) = mirrors.flying.remove(&done.ticket) {
            learn(&mut pods, deleted.as_ref(), &done.outcome);
            mirrors.take_write(name, &done.outcome, clock.now.mono, chance);
        }
    }
}

/// Takes in what a write has brought about, which the watch may tell later.
fn learn(pods: &mut ApiPods, deleted: Option<&PodUid>, outcome: &Outcome) {
    match (verdict(outcome), deleted) {
        (Verdict::Good(_), Some(uid)) => pods.forget(uid),
        (Verdict::Refused(refusal), Some(uid)) if refusal.status == 404 => pods.forget(uid),
        (Verdict::Good(answered), None) => {
            let object: Value = serde_json::from_str(&answered.body).unwrap_or_default();
            let uid = object.pointer("/metadata/uid").and_then(Value::as_str);
            if let (Some(uid), Some(pod)) = (uid, bound::object::api_pod(&object)) {
                pods.learn(&PodUid::from(uid), pod);
            }
        }
        _ => {}
    }
}

impl Mirrors {
    fn take_node(&mut self, outcome: &Outcome, now: Mono, chance: u64) {
        match verdict(outcome) {
            Verdict::Good(answered) => match object::node_uid(&answered.body) {
                Some(uid) => {
                    self.node = Some(uid);
                    self.well();
                }
                None => self.fail("the node's object has no uid or is being deleted".to_owned(), now, chance),
            },
            Verdict::Refused(refusal) => self.fail(format!("{} {}", refusal.status, refusal.message), now, chance),
            Verdict::Silent(message) => self.fail(message, now, chance),
        }
    }

    fn take_write(&mut self, name: String, outcome: &Outcome, now: Mono, chance: u64) {
        match verdict(outcome) {
            Verdict::Good(_) => self.well(),
            Verdict::Refused(refusal) if refusal.status == 404 => self.well(),
            Verdict::Refused(refusal) => {
                // The node may have been made anew, or another object has the name.
                self.node = None;
                self.fail(format!("{} {}", refusal.status, refusal.message), now, chance);
            }
            Verdict::Silent(message) => self.fail(message, now, chance),
        }
        self.open.insert(name);
    }

    fn well(&mut self) {
        self.failures = 0;
        self.retry_at = None;
        self.told = None;
    }

    fn fail(&mut self, message: String, now: Mono, chance: u64) {
        self.failures += 1;
        self.retry_at = Some(now.after(BACKOFF.wait(self.failures, chance)));
        if self.told.as_ref() != Some(&message) {
            tracing::warn!("mirror pods: {message}");
            self.told = Some(message);
        }
    }
}

fn keep_mirrors(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    touched: Res<Touched>,
    api: Res<ApiPods>,
    index: Res<PodIndex>,
    sources: Res<SourceStates>,
    pods: Query<(&Desired, &Lifecycle)>,
    mut mirrors: ResMut<Mirrors>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    if config.api.is_none() {
        return;
    }
    let ready = sources.all_read();
    collect(&touched, &api, &pods, ready, &mut mirrors);
    let now = clock.now.mono;
    if !ready || mirrors.retry_at.is_some_and(|at| at > now) {
        if let Some(at) = mirrors.retry_at.filter(|at| ready && *at > now && !mirrors.open.is_empty()) {
            timers.arm(TimerKind::Mirrors, Owner::Node, at);
        }
        return;
    }
    for name in std::mem::take(&mut mirrors.open) {
        if mirrors.flying.values().any(|(flying, _)| *flying == name) {
            // Its answer opens it again.
            continue;
        }
        let spec = index.by_full_name.get(&name).into_iter().flatten().find_map(|pod| wanted(pods.get(*pod).ok()?));
        let mirror = api.mirrors.get(&name).and_then(|uid| Some((uid, api.pods.get(uid)?)));
        let of = mirror.and_then(|(_, mirror)| mirror.mirror_of.as_deref());
        let ends = index.by_full_name.get(&name).into_iter().flatten().any(|pod| ends(pods.get(*pod).ok(), of));
        match decide(spec.as_deref(), mirror, ends) {
            Step::Nothing => {}
            Step::Delete(uid, mirror, rule) => {
                let ticket = outbox.emit(apicall::work(Owner::Node, why(rule), object::deletion(uid, mirror)));
                mirrors.flying.insert(ticket, (name, Some(uid.clone())));
            }
            Step::Create(spec) => {
                let Some(node) = mirrors.node.clone() else {
                    mirrors.open.insert(name);
                    ask_for_node(&config, &mut mirrors, &mut outbox);
                    continue;
                };
                let Some(body) = object::mirror(spec, &config.node_name, &node) else { continue };
                let path = format!("/api/v1/namespaces/{}/pods", spec.namespace);
                let request = ApiRequest::send(Method::Post, path, body, Class::Pod);
                let rule = "the API server does not show a static pod";
                let ticket = outbox.emit(apicall::work(Owner::Node, why(rule), request));
                mirrors.flying.insert(ticket, (name, None));
            }
        }
    }
}

const fn why(rule: &'static str) -> Why {
    Why { system: "mirrors::keep_mirrors", rule }
}

fn ask_for_node(config: &NodeConfig, mirrors: &mut Mirrors, outbox: &mut Outbox) {
    if mirrors.asking.is_some() {
        return;
    }
    let request = ApiRequest::get(format!("/api/v1/nodes/{}", config.node_name), Class::Node);
    let work = apicall::work(Owner::Node, why("mirrors are owned by the node's object"), request);
    mirrors.asking = Some(outbox.emit(work));
}

/// Notes the full names that something has happened to.
fn collect(touched: &Touched, api: &ApiPods, pods: &Query<(&Desired, &Lifecycle)>, ready: bool, mirrors: &mut Mirrors) {
    for pod in touched.iter() {
        let Ok((desired, _)) = pods.get(pod) else { continue };
        if let Some(spec) = desired.spec.as_ref().filter(|spec| spec.source != Source::Api) {
            mirrors.open.insert(spec.full_name());
        }
    }
    let sweep = ready && !std::mem::replace(&mut mirrors.swept, ready);
    for (name, uid) in &api.mirrors {
        if sweep || api.changed.contains(uid) {
            mirrors.open.insert(name.clone());
        }
    }
    // One that went: its name is only known from what it stood for.
    for uid in api.changed.iter().filter(|uid| !api.pods.contains_key(*uid)) {
        if let Some(name) = api.gone_mirrors.get(uid) {
            mirrors.open.insert(name.clone());
        }
    }
}

/// The spec of a static pod that is to be shown.
fn wanted((desired, life): (&Desired, &Lifecycle)) -> Option<Arc<PodSpec>> {
    let spec = desired.spec.as_ref().filter(|spec| spec.source != Source::Api && !desired.removed)?;
    (life.stage == Stage::Syncing || life.stage == Stage::Done).then(|| Arc::clone(spec))
}

/// The static pod that a mirror stands for still has containers to stop: it is shown until they have, and where it
/// starts anew then also in between.
fn ends(pod: Option<(&Desired, &Lifecycle)>, mirror_of: Option<&str>) -> bool {
    pod.is_some_and(|(desired, life)| {
        let own = desired.spec.as_ref().filter(|spec| spec.source != Source::Api);
        let shown = match life.stage {
            Stage::Terminating => true,
            Stage::Queued => !desired.removed,
            Stage::Terminated | Stage::Done => desired.comes_back(),
            Stage::Syncing => false,
        };
        shown && own.is_some_and(|spec| Some(hash(spec)) == mirror_of)
    })
}

/// What is to be done for one full name.
#[derive(Debug, PartialEq)]
enum Step<'a> {
    Nothing,
    Create(&'a PodSpec),
    Delete(&'a PodUid, &'a ApiPod, &'static str),
}

fn decide<'a>(spec: Option<&'a PodSpec>, mirror: Option<(&'a PodUid, &'a ApiPod)>, ends: bool) -> Step<'a> {
    match (spec, mirror) {
        (None, None) => Step::Nothing,
        (None, Some((_, mirror))) if ends && mirror.delete.is_none() => Step::Nothing,
        (Some(spec), None) => Step::Create(spec),
        (None, Some((uid, mirror))) => Step::Delete(uid, mirror, "it stands for no static pod"),
        (Some(spec), Some((uid, mirror))) => {
            if mirror.delete.is_some() {
                Step::Delete(uid, mirror, "its deletion was asked for; it is made anew")
            } else if mirror.mirror_of.as_deref() != Some(hash(spec)) {
                Step::Delete(uid, mirror, "it stands for another static pod")
            } else {
                Step::Nothing
            }
        }
    }
}
