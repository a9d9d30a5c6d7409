//! From no object to a current one: what is asked next, and what an answer means.

use super::build::{self, Facts, NodeEvent};
use super::changes;
use crate::reflector::Change;
use bevy_ecs::prelude::Resource;
use components::edge::api::{Answered, ApiAnswer, ApiRequest, Class, Method};
use components::edge::cri::ListedImage;
use components::edge::{Answer, Outcome};
use components::ids::Ticket;
use components::node::NodeConfig;
use components::node::object::{NodeObjectConfig, NodeTaint};
use components::time::Mono;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// First and longest wait between two attempts to register.
const REGISTER_WAITS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(7));
/// Attempts to write one status before the next period.
const STATUS_TRIES: u32 = 5;
/// Share of the period by which the time of the next look varies.
const JITTER: f64 = 0.04;

/// What is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Doing {
    /// The object is made.
    Create,
    /// It may exist already.
    ReadExisting,
    /// It exists and is changed to what this kubelet needs of it.
    Reconcile,
    /// The cached state was refused: the real one is read.
    ReadLive,
    /// The status is written.
    Report,
}

impl Doing {
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Create => "the node registers itself",
            Self::ReadExisting => "the node may be registered already",
            Self::Reconcile => "the registered node is brought in line",
            Self::ReadLive => "the status is written onto the object as it is",
            Self::Report => "the status changed or was not told for long",
        }
    }
}

/// What is to be done when the time has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Create,
    ReadExisting,
    Reconcile,
    Check,
    ReadLive,
}

/// The range of pod addresses that the runtime knows.
#[derive(Debug, Default)]
pub(super) struct Cidr {
    told: String,
    telling: Option<(Ticket, String)>,
    retry_at: Option<Mono>,
}

impl Cidr {
    /// The range to tell the runtime now, if it does not know it.
    pub(super) fn next(&self, known: Option<&Value>, now: Mono) -> Option<String> {
        let ranges = known?.pointer("/spec/podCIDRs")?.as_array()?;
        let ranges = ranges.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        let due = self.telling.is_none() && self.retry_at.is_none_or(|at| at <= now);
        (due && !ranges.is_empty() && ranges != self.told).then_some(ranges)
    }

    pub(super) fn asked(&mut self, ticket: Ticket, cidr: String) {
        self.telling = Some((ticket, cidr));
    }

    /// Takes the answer; a runtime that could not be told is told again.
    pub(super) fn take(&mut self, ticket: Ticket, outcome: &Outcome, again: Mono) {
        if self.telling.as_ref().is_none_or(|(awaited, _)| *awaited != ticket) {
            return;
        }
        let Some((_, cidr)) = self.telling.take() else { return };
        self.retry_at = None;
        match outcome {
            Outcome::Done(_) => {
                tracing::info!(%cidr, "Told the runtime the range of pod addresses");
                self.told = cidr;
            }
            other => {
                tracing::warn!(%cidr, error = %trouble(other), "The runtime could not be told the range of pod addresses");
                self.retry_at = Some(again);
            }
        }
    }
}

/// State of the node's object.
#[derive(Resource, Debug)]
pub(crate) struct NodeAgent {
    /// The object as last seen.
    pub(crate) known: Option<Value>,
    /// Images on the node, the largest first.
    pub(super) images: Option<Vec<ListedImage>>,
    /// The listing of images under way.
    pub(super) listing: Option<Ticket>,
    /// Whether it was ready when last looked at.
    pub(super) ready: Option<bool>,
    /// When the next step is due.
    pub(super) due: Option<Mono>,
    /// Events of the node that wait to be told.
    pub(crate) events: Vec<NodeEvent>,
    next: Next,
    doing: Option<(Ticket, Doing)>,
    /// It was registered, or need not be.
    registered: bool,
    failures: u32,
    tries: u32,
    reported: Option<Mono>,
    /// Share of the report period by which the next report comes later, or sooner when negative.
    spread: f64,
    /// A reboot is told once.
    reboot_told: bool,
    /// What is told the runtime of pod addresses.
    pub(super) cidr: Cidr,
    /// `spec.unschedulable` as last told.
    unschedulable: bool,
    /// Whether a shutdown of the machine was told last.
    shutting_down: bool,
    seed: u64,
    drawn: u64,
}

impl NodeAgent {
    pub(crate) const fn new(seed: u64) -> Self {
        Self {
            known: None,
            images: None,
            listing: None,
            ready: None,
            due: None,
            events: Vec::new(),
            next: Next::Create,
            doing: None,
            registered: false,
            failures: 0,
            tries: 0,
            reported: None,
            spread: 0.0,
            reboot_told: false,
            cidr: Cidr { told: String::new(), telling: None, retry_at: None },
            unschedulable: false,
            shutting_down: false,
            seed,
            drawn: 0,
        }
    }

    /// `metadata.uid` of the node's object, once it is known.
    pub(crate) fn uid(&self) -> Option<&str> {
        self.known.as_ref()?.pointer("/metadata/uid")?.as_str()
    }

    /// Labels of the node: those of its object, or those that it would be registered with.
    pub(crate) fn labels(&self, config: &NodeConfig) -> BTreeMap<String, String> {
        let of_object = self.known.as_ref().map(|known| known.pointer("/metadata/labels").and_then(Value::as_object));
        if let Some(labels) = of_object {
            let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            return labels.into_iter().flatten().filter_map(text).collect();
        }
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), config.node_name.to_string()),
            ("kubernetes.io/os".to_owned(), "linux".to_owned()),
            ("beta.kubernetes.io/os".to_owned(), "linux".to_owned()),
        ]);
        if let Some(object) = &config.object {
            labels.insert("kubernetes.io/arch".to_owned(), object.machine.architecture.clone());
            labels.insert("beta.kubernetes.io/arch".to_owned(), object.machine.architecture.clone());
            labels.extend(object.labels.clone());
        }
        labels
    }

    /// Taints of the node's object.
    pub(crate) fn taints(&self) -> Vec<NodeTaint> {
        let list = self.known.as_ref().and_then(|known| known.pointer("/spec/taints")).and_then(Value::as_array);
        let text = |taint: &Value, key: &str| taint.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let taint =
            |it: &Value| NodeTaint { key: text(it, "key"), value: text(it, "value"), effect: text(it, "effect") };
        list.into_iter().flatten().map(taint).collect()
    }

    /// True once there is an object, or need not be made one.
    pub(super) const fn is_registered(&self) -> bool {
        self.registered
    }

    /// Takes what somebody changed. News that are older than what is known are none.
    pub(super) fn follow(&mut self, change: &Change) {
        match change {
            Change::Replaced(all) => match all.first() {
                Some(object) => self.see(object),
                None => self.known = None,
            },
            Change::Put(object) => self.see(object),
            Change::Gone(_) => self.known = None,
        }
    }

    fn see(&mut self, object: &str) {
        let Ok(object) = serde_json::from_str::<Value>(object) else { return };
        let version = |object: &Value| object.pointer("/metadata/resourceVersion")?.as_str()?.parse::<u64>().ok();
        let known = self.known.as_ref().and_then(version);
        if known.is_none() || version(&object).is_none_or(|seen| known.is_some_and(|known| seen > known)) {
            self.known = Some(object);
        }
    }

    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.doing.is_some_and(|(awaited, _)| awaited == ticket)
    }

    pub(super) const fn asked(&mut self, ticket: Ticket, doing: Doing) {
        self.doing = Some((ticket, doing));
    }

    /// Does the next step if it is due; returns what must be asked for it.
    pub(super) fn act(&mut self, facts: &Facts<'_>, now: Mono) -> Option<(Doing, ApiRequest)> {
        if self.doing.is_some() || self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        if !self.registered && !facts.config.register {
            self.registered = true;
            self.next = Next::ReadLive;
        }
        let name = &facts.node.node_name;
        match self.next {
            Next::Create => {
                let (node, events) = build::initial(facts);
                if self.failures == 0 {
                    self.events.extend(events);
                }
                let request = ApiRequest::send(Method::Post, "/api/v1/nodes".into(), node.to_string(), Class::Node);
                Some((Doing::Create, request))
            }
            Next::ReadExisting => Some((Doing::ReadExisting, get(name))),
            Next::ReadLive => Some((Doing::ReadLive, get(name))),
            Next::Reconcile => {
                let known = self.known.as_ref()?;
                let (initial, _) = build::initial(facts);
                let wanted = changes::reconciled(known, &initial);
                match changes::patch(known, &wanted) {
                    Some(patch) => Some((Doing::Reconcile, write(name, &patch))),
                    None => {
                        self.register();
                        self.check(facts, now)
                    }
                }
            }
            Next::Check => self.check(facts, now),
        }
    }

    /// Compares the object with what it should be.
    fn check(&mut self, facts: &Facts<'_>, now: Mono) -> Option<(Doing, ApiRequest)> {
        let name = &facts.node.node_name;
        let Some(known) = &self.known else { return Some((Doing::ReadLive, get(name))) };
        let (new, events) = changes::updated(known, facts);
        let changed = changes::differs(known, &new);
        let expired = self.reported.is_none_or(|at| now.since(at) >= self.report_after(facts.config));
        let patch = (changed || expired).then(|| changes::patch(known, &new)).flatten();
        let cordoned = new.pointer("/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
        if self.tries == 0 {
            let told = self.reboot_told;
            self.reboot_told |= events.iter().any(|event| event.reason == "Rebooted");
            self.events.extend(events.into_iter().filter(|event| event.reason != "Rebooted" || !told));
            self.tell_cordon(cordoned, name);
        }
        let Some(patch) = patch else {
            self.tries = 0;
            self.due = Some(now.after(self.period(facts.config)));
            return None;
        };
        // Nodes that changed at one time must not report at one time for ever.
        let spread = if changed || self.reported.is_none() { self.draw() - 0.5 } else { 0.0 };
        self.spread = spread;
        Some((Doing::Report, write(name, &patch)))
    }

    /// Tells that a shutdown began, or was called off.
    pub(super) fn tell_shutdown(&mut self, shutting_down: bool) {
        if shutting_down != self.shutting_down {
            self.shutting_down = shutting_down;
            let what = if shutting_down { "event" } else { "cancellation" };
            let message = format!("Shutdown manager detected shutdown {what}");
            self.events.push(NodeEvent { warning: false, reason: "NodeShutdown", message });
        }
    }

    fn tell_cordon(&mut self, cordoned: bool, name: &str) {
        if cordoned != self.unschedulable {
            self.unschedulable = cordoned;
            let reason = if cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
            let message = format!("Node {name} status is now: {reason}");
            self.events.push(NodeEvent { warning: false, reason, message });
        }
    }

    /// Takes the answer to what was asked.
    pub(super) fn take(&mut self, outcome: &Outcome, config: &NodeObjectConfig, now: Mono) {
        let Some((_, doing)) = self.doing.take() else { return };
        let answer = answered(outcome);
        let object = answer.filter(|answer| answer.is_success()).and_then(|a| serde_json::from_str(&a.body).ok());
        if let Some(object) = object {
            self.known = Some(object);
            self.due = Some(now);
            match doing {
                Doing::Create | Doing::Reconcile => self.register(),
                Doing::ReadExisting => self.next = Next::Reconcile,
                Doing::ReadLive => self.next = Next::Check,
                Doing::Report => {
                    self.reported = Some(now);
                    self.tries = 0;
                    self.next = Next::Check;
                    self.due = Some(now.after(self.period(config)));
                }
            }
            return;
        }
        tracing::warn!(error = %trouble(outcome), doing = doing.rule(), "The node's object could not be kept");
        match doing {
            Doing::Create if matches!(answer.map(|a| a.status), Some(403 | 409)) => {
                // A kubelet that may not make nodes may still have one.
                self.next = Next::ReadExisting;
                self.due = Some(now);
            }
            Doing::Create | Doing::ReadExisting | Doing::Reconcile => {
                let wait = REGISTER_WAITS.0.saturating_mul(1 << self.failures.min(6)).min(REGISTER_WAITS.1);
                self.failures = self.failures.saturating_add(1);
                self.next = Next::Create;
                self.due = Some(now.after(wait));
            }
            Doing::ReadLive | Doing::Report => {
                self.tries += 1;
                let again = self.tries < STATUS_TRIES && answer.is_some();
                if !again {
                    self.tries = 0;
                }
                self.next = Next::ReadLive;
                self.due = Some(if again { now } else { now.after(self.period(config)) });
            }
        }
    }

    fn register(&mut self) {
        if !self.registered {
            tracing::info!("The node is registered");
        }
        self.registered = true;
        self.next = Next::Check;
    }

    fn report_after(&self, config: &NodeObjectConfig) -> Duration {
        config.report_period.mul_f64(1.0 + self.spread)
    }

    /// Time until the next look.
    fn period(&mut self, config: &NodeObjectConfig) -> Duration {
        let jitter = 1.0 + JITTER * self.draw();
        config.update_period.mul_f64(jitter)
    }

    /// A number in [0, 1).
    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        chance(self.seed, self.drawn)
    }
}

/// A number in [0, 1) that depends on a seed and a count only.
pub(crate) fn chance(seed: u64, count: u64) -> f64 {
    let mut x = seed ^ count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^= x >> 31;
    f64::from(u32::try_from(x >> 40).unwrap_or(0)) / f64::from(1_u32 << 24)
}

fn get(name: &str) -> ApiRequest {
    ApiRequest::get(format!("/api/v1/nodes/{name}"), Class::Node)
}

fn write(name: &str, patch: &Value) -> ApiRequest {
    let path = format!("/api/v1/nodes/{name}/status");
    ApiRequest::send(Method::PatchStrategic, path, patch.to_string(), Class::Node)
}

/// The answer of the API server, where there is one.
pub(crate) fn answered(outcome: &Outcome) -> Option<&Answered> {
    match outcome {
        Outcome::Done(Answer::Api(ApiAnswer::Answered(answer))) => Some(answer),
        _ => None,
    }
}

/// What went wrong, as one line.
pub(crate) fn trouble(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(Answer::Api(ApiAnswer::Answered(answer))) => {
            let status: Option<Value> = serde_json::from_str(&answer.body).ok();
            let message = status.as_ref().and_then(|status| status.get("message")).and_then(Value::as_str);
            format!("HTTP {}: {}", answer.status, message.unwrap_or("no Status in the answer"))
        }
        Outcome::Done(_) => "an answer to something else".to_owned(),
        Outcome::Failed(failure) => failure.message.clone(),
        Outcome::TimedOut => "no answer in time".to_owned(),
        Outcome::Cancelled => "it was cancelled".to_owned(),
    }
}
