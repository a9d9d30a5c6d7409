//! One certificate: what is done next to have a good one, and what an answer means.

use super::request::{self, Csr, Progress};
use super::{ask, host};
use crate::apicall::{Verdict, verdict};
use crate::node_object::chance;
use components::certificates::CertificateNumbers;
use components::edge::host::HostAnswer;
use components::edge::host::identity::{
    CertificateFacts, CertificateStore, CertificateTemplate, IdentityAnswer, IdentityEffect, Otherwise,
};
use components::edge::{Answer, Effect, FailureClass, Outcome};
use components::ids::Ticket;
use components::node::identity::IdentityConfig;
use components::time::{Mono, Now, Wall};
use serde_json::Value;
use std::time::Duration;

/// First and longest wait after a failure, as the kubelet's.
const WAITS: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(32));
/// Share of a wait that chance adds.
const JITTER: f64 = 0.1;
/// A request that is not signed by then is given up.
const SIGNED_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How often a certificate is looked at at least: the wall clock, by which it ends, may step.
const LOOK: Duration = Duration::from_secs(600);
/// How often the node's addresses are compared with those of the serving certificate.
const ADDRESSES: Duration = Duration::from_secs(10);

/// Which certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Shown to the API server.
    Client,
    /// Shown by the node's own port.
    Serving,
}

impl Kind {
    /// For people.
    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Serving => "serving",
        }
    }

    const fn store(self) -> &'static str {
        match self {
            Self::Client => "kubelet-client",
            Self::Serving => "kubelet-server",
        }
    }

    const fn signer(self) -> &'static str {
        match self {
            Self::Client => "kubernetes.io/kube-apiserver-client-kubelet",
            Self::Serving => "kubernetes.io/kubelet-serving",
        }
    }

    const fn usages(self) -> [&'static str; 2] {
        match self {
            Self::Client => ["digital signature", "client auth"],
            Self::Serving => ["digital signature", "server auth"],
        }
    }
}

/// What is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// Nothing: the certificate is good, as far as is known.
    Rest,
    Look,
    Make,
    Send,
    Poll,
    Keep,
}

impl Step {
    /// The rule that asks for it.
    pub(super) const fn rule(self) -> &'static str {
        match self {
            Self::Rest | Self::Look => "the certificate in use is not known yet",
            Self::Make => "there is no good certificate, or it ends soon",
            Self::Send => "a certificate is asked for",
            Self::Poll => "a certificate was asked for",
            Self::Keep => "a certificate was issued",
        }
    }
}

/// What is worth a line in the log.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Say {
    /// A request was made, by this name.
    Asked(String),
    /// A new certificate is in use until then.
    Kept(String),
    /// It will be tried again.
    Trouble(String),
}

/// What decisions read.
pub(super) struct Facts<'a> {
    pub(super) config: &'a IdentityConfig,
    pub(super) node: &'a str,
    /// The node's own object.
    pub(super) object: Option<&'a Value>,
    pub(super) now: Now,
}

/// A request that was made.
#[derive(Debug)]
struct Pending {
    wanted: CertificateTemplate,
    /// PEM in base64.
    request: String,
    /// Name for the server; `None` when it makes one.
    name: Option<String>,
    /// With bootstrap credentials.
    bootstrap: bool,
    /// Name and uid, where they are known, once the server has it.
    sent: Option<(String, String)>,
    give_up: Mono,
    polls: u32,
    certificate: String,
}

/// State of one certificate.
#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) kind: Kind,
    pub(super) numbers: CertificateNumbers,
    next: Step,
    doing: Option<(Ticket, Step)>,
    due: Option<Mono>,
    current: Option<CertificateFacts>,
    renew_at: Option<Wall>,
    pending: Option<Pending>,
    /// The next request gets a new key.
    new_key: bool,
    failures: u32,
    seed: u64,
    drawn: u64,
}

impl Keeper {
    pub(super) fn new(kind: Kind, seed: u64) -> Self {
        Self {
            kind,
            numbers: CertificateNumbers::default(),
            next: Step::Look,
            doing: None,
            due: Some(Mono(0)),
            current: None,
            renew_at: None,
            pending: None,
            new_key: false,
            failures: 0,
            seed: seed ^ if matches!(kind, Kind::Client) { 0x6365_7274 } else { 0x7365_7276 },
            drawn: 0,
        }
    }

    pub(super) fn awaits(&self, ticket: Ticket) -> bool {
        self.doing.is_some_and(|(awaited, _)| awaited == ticket)
    }

    pub(super) const fn asked(&mut self, ticket: Ticket, step: Step) {
        self.doing = Some((ticket, step));
    }

    /// When there is something to do without an answer.
    pub(super) const fn due(&self) -> Option<Mono> {
        if self.doing.is_some() { None } else { self.due }
    }

    fn store(&self, facts: &Facts<'_>) -> CertificateStore {
        CertificateStore { dir: facts.config.cert_dir.clone(), name: self.kind.store().to_owned() }
    }

    fn wanted(&self, facts: &Facts<'_>) -> Option<CertificateTemplate> {
        match self.kind {
            Kind::Client => Some(request::subject(facts.node)),
            Kind::Serving => {
                let dns_only = facts.config.serving.as_ref().is_some_and(|serving| serving.dns_only);
                request::serving(facts.node, facts.object, dns_only)
            }
        }
    }

    /// Does the next step if it is due.
    pub(super) fn act(&mut self, facts: &Facts<'_>) -> Option<(Step, Effect)> {
        let now = facts.now.mono;
        if self.doing.is_some() || self.due.is_none_or(|due| due > now) {
            return None;
        }
        self.due = None;
        if self.next == Step::Rest {
            self.rest(facts);
        }
        if self.due.is_some() {
            return None;
        }
        if matches!(self.next, Step::Send | Step::Poll) && self.outdated(facts) {
            // Nobody needs that certificate any more.
            self.start_over(true);
        }
        let store = self.store(facts);
        let usages = self.kind.usages();
        let step = self.next;
        let effect = match (step, &mut self.pending) {
            (Step::Send, Some(pending)) => {
                let name = pending.name.as_deref();
                ask(request::create(name, &pending.request, self.kind.signer(), &usages), pending.bootstrap)
            }
            (Step::Poll, Some(Pending { sent: Some((name, _)), bootstrap, .. })) => {
                ask(request::read(name), *bootstrap)
            }
            (Step::Keep, Some(pending)) => {
                let certificate = std::mem::take(&mut pending.certificate);
                host(IdentityEffect::Keep { store, certificate, time: stamp(facts.now.wall) })
            }
            (Step::Rest, _) => return None,
            (Step::Look, _) => host(IdentityEffect::Look { store, otherwise: self.otherwise(facts) }),
            (Step::Make | Step::Send | Step::Poll | Step::Keep, _) => {
                let Some(wanted) = self.wanted(facts) else {
                    self.due = Some(now.after(Duration::from_secs(1)));
                    self.next = Step::Make;
                    return None;
                };
                let usages = usages.iter().map(|usage| (*usage).to_owned()).collect();
                self.pending = None;
                // While it bootstraps, a node that is started again goes on with the request that it has made.
                let new_key = self.new_key || !self.bootstraps(facts);
                let make = host(IdentityEffect::MakeRequest { store, wanted, usages, new_key });
                return Some((Step::Make, make));
            }
        };
        Some((step, effect))
    }

    fn otherwise(&self, facts: &Facts<'_>) -> Otherwise {
        let config = facts.config;
        match (self.kind, config.serving.as_ref().and_then(|serving| serving.files.clone())) {
            (Kind::Client, _) if config.bootstrapping => Otherwise::Nowhere,
            (Kind::Client, _) => Otherwise::Kubeconfig(config.kubeconfig.clone()),
            (Kind::Serving, Some((certificate, key))) => Otherwise::Files(certificate, key),
            (Kind::Serving, None) => Otherwise::Nowhere,
        }
    }

    /// True when the bootstrap credentials are the only ones.
    fn bootstraps(&self, facts: &Facts<'_>) -> bool {
        let valid = self.current.as_ref().is_some_and(|current| current.not_after > facts.now.wall);
        self.kind == Kind::Client && facts.config.bootstrap && !valid
    }

    /// The certificate was good when it was last looked at: whether it still is.
    fn rest(&mut self, facts: &Facts<'_>) {
        let renews = facts.config.rotate || self.kind == Kind::Serving;
        if !renews {
            return;
        }
        let wanted = self.wanted(facts);
        let fits = match (&self.current, &wanted) {
            (Some(current), Some(wanted)) => request::satisfies(&current.subject, wanted),
            (current, None) => current.is_some(),
            (None, Some(_)) => false,
        };
        let left = self.renew_at.map_or(0, |at| at.0.saturating_sub(facts.now.wall.0));
        if wanted.is_some() && (!fits || left <= 0) {
            self.next = Step::Make;
            return;
        }
        let longest = if self.kind == Kind::Serving { ADDRESSES } else { LOOK };
        let left = Duration::from_nanos(u64::try_from(left).unwrap_or(0)).max(Duration::from_secs(1));
        self.due = Some(facts.now.mono.after(left.min(longest)));
    }

    /// What was asked for is no longer what is wanted.
    fn outdated(&self, facts: &Facts<'_>) -> bool {
        let Some(pending) = &self.pending else { return true };
        self.wanted(facts).is_some_and(|wanted| !request::satisfies(&pending.wanted, &wanted))
    }

    fn start_over(&mut self, new_key: bool) {
        self.pending = None;
        self.new_key = new_key;
        self.next = Step::Make;
    }

    /// Takes the answer to what was asked.
    pub(super) fn take(&mut self, outcome: &Outcome, facts: &Facts<'_>) -> Option<Say> {
        let (_, step) = self.doing.take()?;
        let now = facts.now.mono;
        self.due = Some(now);
        match (step, outcome) {
            (Step::Look, Outcome::Done(Answer::Host(HostAnswer::Identity(answer)))) => match &**answer {
                IdentityAnswer::Found { certificate, given_inline } => {
                    self.found(certificate.clone(), *given_inline, facts);
                    None
                }
                _ => Some(self.fail(now, false, trouble(outcome))),
            },
            (Step::Make, Outcome::Done(Answer::Host(HostAnswer::Identity(answer)))) => match &**answer {
                IdentityAnswer::Made { request, name } => {
                    self.made(request.clone(), name, facts);
                    None
                }
                _ => Some(self.fail(now, false, trouble(outcome))),
            },
            (Step::Keep, Outcome::Done(Answer::Host(HostAnswer::Identity(answer)))) => match &**answer {
                IdentityAnswer::Kept(certificate) => Some(self.kept(certificate.clone(), facts)),
                _ => Some(self.fail(now, false, trouble(outcome))),
            },
            (Step::Look, _) => {
                // Whatever is wrong with it, a new one puts it right.
                self.next = Step::Make;
                Some(Say::Trouble(trouble(outcome)))
            }
            (Step::Keep, Outcome::Failed(failure)) => {
                let new_key = failure.class == FailureClass::Invalid;
                Some(self.fail(now, new_key, failure.message.clone()))
            }
            (Step::Send, _) => self.sent(outcome, now),
            (Step::Poll, _) => self.polled(outcome, now),
            (Step::Rest | Step::Make | Step::Keep, _) => Some(self.fail(now, false, trouble(outcome))),
        }
    }

    fn found(&mut self, certificate: Option<CertificateFacts>, given_inline: bool, facts: &Facts<'_>) {
        self.numbers.not_after = certificate.as_ref().map(|it| it.not_after);
        let valid = certificate.as_ref().is_some_and(|it| it.not_after > facts.now.wall);
        self.next = if valid && !given_inline { Step::Rest } else { Step::Make };
        self.renew_at = certificate.as_ref().map(|it| request::renewal(it, self.draw()));
        self.current = certificate;
    }

    fn made(&mut self, request: String, name: &str, facts: &Facts<'_>) {
        let bootstrap = self.bootstraps(facts);
        self.pending = self.wanted(facts).map(|wanted| Pending {
            wanted,
            request,
            name: bootstrap.then(|| name.to_owned()),
            bootstrap,
            sent: None,
            give_up: facts.now.mono.after(SIGNED_WITHIN),
            polls: 0,
            certificate: String::new(),
        });
        self.new_key = false;
        self.next = if self.pending.is_some() { Step::Send } else { Step::Make };
    }

    fn kept(&mut self, certificate: CertificateFacts, facts: &Facts<'_>) -> Say {
        let until = certificate.not_after.rfc3339();
        self.renew_at = Some(request::renewal(&certificate, self.draw()));
        self.numbers.not_after = Some(certificate.not_after);
        if let Some(old) = self.current.replace(certificate) {
            let age = facts.now.wall.0.saturating_sub(old.not_before.0).max(0);
            self.numbers.replaced(age as f64 / 1e9);
        }
        self.pending = None;
        self.failures = 0;
        self.next = Step::Rest;
        // One that is old when it comes is not renewed in a circle without a pause.
        self.due = Some(facts.now.mono.after(Duration::from_secs(1)));
        Say::Kept(until)
    }

    fn sent(&mut self, outcome: &Outcome, now: Mono) -> Option<Say> {
        let Some(pending) = &mut self.pending else { return None };
        let named = pending.name.clone();
        match (verdict(outcome), named) {
            (Verdict::Good(answered), _) => match serde_json::from_str::<Csr>(&answered.body) {
                Ok(csr) => {
                    pending.sent = Some((csr.metadata.name.clone(), csr.metadata.uid));
                    self.next = Step::Poll;
                    Some(Say::Asked(csr.metadata.name))
                }
                Err(error) => Some(self.fail(now, false, format!("the answer is no request: {error}"))),
            },
            // An earlier run, or an attempt whose answer was lost, has made it.
            (Verdict::Refused(refusal), Some(name)) if refusal.status == 409 => {
                pending.sent = Some((name.clone(), String::new()));
                self.next = Step::Poll;
                Some(Say::Asked(name))
            }
            (Verdict::Refused(refusal), _) => Some(self.fail(now, false, refusal.message)),
            (Verdict::Silent(error), _) => Some(self.fail(now, false, error)),
        }
    }

    fn polled(&mut self, outcome: &Outcome, now: Mono) -> Option<Say> {
        let Some(Pending { sent: Some((name, uid)), polls, give_up, certificate, .. }) = &mut self.pending else {
            return None;
        };
        match verdict(outcome) {
            Verdict::Good(answered) => {
                let csr: Csr = serde_json::from_str(&answered.body).unwrap_or_default();
                if !uid.is_empty() && csr.metadata.uid != *uid {
                    let error = format!("certificate signing request {name} was replaced by another");
                    return Some(self.fail(now, true, error));
                }
                match csr.progress() {
                    Progress::Issued(issued) => {
                        *certificate = issued;
                        self.next = Step::Keep;
                        return None;
                    }
                    Progress::Refused(why) => return Some(self.fail(now, true, why)),
                    Progress::Waits => {}
                }
            }
            Verdict::Refused(refusal) if refusal.status == 404 => {
                let error = format!("certificate signing request {name} was deleted");
                return Some(self.fail(now, false, error));
            }
            // It may be signed meanwhile.
            Verdict::Refused(_) | Verdict::Silent(_) => {}
        }
        if now >= *give_up {
            let error = format!("certificate signing request {name} was not signed within 15 minutes");
            return Some(self.fail(now, false, error));
        }
        *polls = polls.saturating_add(1);
        self.due = Some(now.after(poll_wait(*polls)));
        None
    }

    /// Tries it all again later.
    fn fail(&mut self, now: Mono, new_key: bool, error: String) -> Say {
        self.numbers.renew_errors += 1;
        self.start_over(new_key);
        let wait = WAITS.0.saturating_mul(1 << self.failures.min(6)).min(WAITS.1);
        self.failures = self.failures.saturating_add(1);
        self.due = Some(now.after(wait.mul_f64(1.0 + JITTER * self.draw())));
        Say::Trouble(error)
    }

    fn draw(&mut self) -> f64 {
        self.drawn += 1;
        chance(self.seed, self.drawn)
    }
}

/// Wait before the next look at a request: somebody may be about to approve it, or nobody.
const fn poll_wait(polls: u32) -> Duration {
    match polls {
        0..=4 => Duration::from_millis(300),
        5..=20 => Duration::from_secs(1),
        _ => Duration::from_secs(5),
    }
}

/// `YYYY-MM-DD-HH-MM-SS`.
fn stamp(wall: Wall) -> String {
    wall.rfc3339().replace([':', 'T'], "-").trim_end_matches('Z').to_owned()
}

fn trouble(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(_) => "the answer does not fit the question".to_owned(),
        Outcome::Failed(failure) => failure.message.clone(),
        Outcome::TimedOut => "not done in time".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
    }
}
