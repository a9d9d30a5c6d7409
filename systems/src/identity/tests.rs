//! One certificate in virtual time: the host and the cluster are played by hand.

use super::keeper::{Facts, Keeper, Kind, Say, Step};
use components::edge::api::{Answered, ApiAnswer, ApiEffect, ApiRequest};
use components::edge::host::identity::{CertificateFacts, IdentityAnswer, IdentityEffect};
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::{Answer, Effect, Failure, FailureClass, Outcome};
use components::ids::Ticket;
use components::node::identity::{IdentityConfig, ServingConfig};
use components::time::{Mono, Now, Wall};
use serde_json::{Value, json};

const SECOND: u64 = 1_000_000_000;
/// Wall time when the monotonic clock is at zero.
const START: i64 = 1_800_000_000;

struct Rig {
    keeper: Keeper,
    config: IdentityConfig,
    object: Value,
    millis: u64,
    /// Seconds by which the wall clock was set forward.
    stepped: i64,
}

impl Rig {
    fn new(kind: Kind) -> Self {
        let config = IdentityConfig {
            cert_dir: "/pki".to_owned(),
            kubeconfig: "/k".to_owned(),
            bootstrap: true,
            bootstrapping: true,
            rotate: true,
            serving: Some(ServingConfig { files: None, dns_only: false }),
        };
        let object = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] } });
        Self { keeper: Keeper::new(kind, 7), config, object, millis: 0, stepped: 0 }
    }

    fn wall(&self) -> Wall {
        Wall((START + self.stepped) * 1_000_000_000 + i64::try_from(self.millis).unwrap() * 1_000_000)
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Keeper, &Facts<'_>) -> T) -> T {
        let now = Now { mono: Mono(self.millis * 1_000_000), wall: self.wall() };
        let facts = Facts { config: &self.config, node: "n", object: Some(&self.object), now };
        act(&mut self.keeper, &facts)
    }

    /// The next effect within so many seconds, and when it comes.
    fn next(&mut self, seconds: u64) -> Option<(u64, Step, Effect)> {
        let from = self.millis;
        loop {
            if let Some((step, effect)) = self.with(Keeper::act) {
                self.keeper.asked(Ticket(1), step);
                return Some(((self.millis - from) / 1000, step, effect));
            }
            // From one deadline to the next, as the engine does.
            let due = self.keeper.due().map(|due| due.0 / 1_000_000 + 1).filter(|due| *due <= from + seconds * 1000);
            self.millis = due?.max(self.millis + 1);
        }
    }

    #[track_caller]
    fn expect(&mut self, step: Step) -> Effect {
        let (_, got, effect) =
            self.next(60).unwrap_or_else(|| panic!("nothing instead of {step:?}: {:?}", self.keeper));
        assert_eq!(got, step);
        effect
    }

    fn take(&mut self, outcome: Outcome) -> Option<Say> {
        self.with(|keeper, facts| keeper.take(&outcome, facts))
    }

    fn host(&mut self, answer: IdentityAnswer) -> Option<Say> {
        self.take(Outcome::Done(Answer::Host(HostAnswer::Identity(Box::new(answer)))))
    }

    fn api(&mut self, status: u16, body: &Value) -> Option<Say> {
        let answered = Answered { status, secret: false, body: body.to_string().into(), retry_after: None };
        self.take(Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered)))))
    }

    fn certificate(&self, from: i64, to: i64) -> CertificateFacts {
        let subject = match self.keeper.kind {
            Kind::Client => super::request::subject("n"),
            Kind::Serving => super::request::serving("n", Some(&self.object), false).unwrap(),
        };
        let at = |seconds: i64| Wall((START + seconds) * 1_000_000_000);
        CertificateFacts { subject, not_before: at(from), not_after: at(to) }
    }

    fn found(&mut self, certificate: Option<CertificateFacts>) {
        self.expect(Step::Look);
        assert_eq!(self.host(IdentityAnswer::Found { certificate, given_inline: false }), None);
    }

    /// Makes and sends a request; whether with a new key and with bootstrap credentials.
    fn send(&mut self) -> (bool, bool, ApiRequest) {
        let Effect::Host(HostEffect::Identity(made)) = self.expect(Step::Make) else { panic!("no request") };
        let IdentityEffect::MakeRequest { new_key, .. } = *made else { panic!("{made:?}") };
        self.host(IdentityAnswer::Made { request: "cmVx".to_owned(), name: "node-csr-x".to_owned() });
        let (bootstrap, request) = requested(self.expect(Step::Send));
        (new_key, bootstrap, request)
    }

    /// From a request that was sent to the certificate.
    fn issue(&mut self, certificate: CertificateFacts) {
        self.api(201, &json!({ "metadata": { "name": "csr-1", "uid": "u" } }));
        self.expect(Step::Poll);
        self.api(200, &issued("u"));
        let Effect::Host(HostEffect::Identity(kept)) = self.expect(Step::Keep) else { panic!("nothing is kept") };
        let IdentityEffect::Keep { certificate: pem, time, .. } = *kept else { panic!("{kept:?}") };
        assert_eq!((pem.as_str(), time.len()), ("Y2VydA==", "2026-11-30-09-00-00".len()));
        assert!(matches!(self.host(IdentityAnswer::Kept(certificate)), Some(Say::Kept(_))));
    }
}

fn requested(effect: Effect) -> (bool, ApiRequest) {
    match effect {
        Effect::Api(ApiEffect::Bootstrap(request)) => (true, *request),
        Effect::Api(ApiEffect::Request(request)) => (false, *request),
        other => panic!("{other:?}"),
    }
}

fn issued(uid: &str) -> Value {
    let status = json!({ "conditions": [{ "type": "Approved" }], "certificate": "Y2VydA==" });
    json!({ "metadata": { "name": "csr-1", "uid": uid }, "status": status })
}

#[test]
fn a_node_without_a_certificate_asks_with_its_bootstrap_credentials() {
    let mut rig = Rig::new(Kind::Client);
    rig.found(None);
    let (new_key, bootstrap, request) = rig.send();
    assert!(!new_key && bootstrap, "a key that is there is used again");
    let body: Value = serde_json::from_str(request.body.text()).unwrap();
    assert_eq!(body["metadata"]["name"], "node-csr-x");
    assert_eq!(body["spec"]["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(body["spec"]["usages"], json!(["digital signature", "client auth"]));
    assert_eq!(body["spec"]["request"], "cmVx");
    rig.api(201, &json!({ "metadata": { "name": "node-csr-x", "uid": "u" } }));
    let (bootstrap, read) = requested(rig.expect(Step::Poll));
    assert!(bootstrap && read.path.ends_with("/certificatesigningrequests/node-csr-x"), "{read:?}");
    rig.api(200, &json!({ "metadata": { "name": "node-csr-x", "uid": "u" } }));
    rig.expect(Step::Poll);
    rig.api(200, &issued("u"));
    rig.expect(Step::Keep);
    let certificate = rig.certificate(0, 1000);
    rig.host(IdentityAnswer::Kept(certificate));
    assert_eq!(rig.keeper.numbers.renew_errors, 0);
    let (after, step, _) = rig.next(1000).unwrap();
    assert_eq!(step, Step::Make);
    assert!((695..=900).contains(&after), "renewed after {after} s of 1000");
}

#[test]
fn a_restart_goes_on_with_the_request_that_is_there() {
    let mut rig = Rig::new(Kind::Client);
    rig.found(None);
    rig.send();
    assert_eq!(rig.api(409, &json!({ "reason": "AlreadyExists" })), Some(Say::Asked("node-csr-x".to_owned())));
    rig.expect(Step::Poll);
    rig.api(200, &issued("another"));
    rig.expect(Step::Keep);
    // Somebody else's certificate under this name: its key is not ours.
    let wrong = Failure { class: FailureClass::Invalid, message: "keys differ".into() };
    assert!(matches!(rig.take(Outcome::Failed(wrong)), Some(Say::Trouble(_))));
    assert!(rig.send().0, "with a new key");
}

#[test]
fn a_denied_request_is_told_and_tried_again_with_a_new_key() {
    let mut rig = Rig::new(Kind::Client);
    rig.found(None);
    let mut waits = Vec::new();
    for _ in 0..6 {
        rig.send();
        rig.api(201, &json!({ "metadata": { "name": "csr-1", "uid": "u" } }));
        rig.expect(Step::Poll);
        let denied = json!({ "conditions": [{ "type": "Denied", "reason": "No", "message": "never" }] });
        let said = rig.api(200, &json!({ "metadata": { "name": "csr-1", "uid": "u" }, "status": denied }));
        let Some(Say::Trouble(said)) = said else { panic!("{said:?}") };
        assert_eq!(said, "certificate signing request csr-1 is denied, reason: No, message: never");
        let before = rig.millis;
        let Effect::Host(HostEffect::Identity(made)) = rig.expect(Step::Make) else { panic!("no request") };
        assert!(matches!(*made, IdentityEffect::MakeRequest { new_key: true, .. }), "{made:?}");
        waits.push((rig.millis - before) / 1000);
        // The rig makes it anew.
        rig.take(Outcome::Cancelled);
    }
    // Two failures a round.
    let bounds = [(2, 2), (8, 9), (32, 35), (32, 35), (32, 35), (32, 35)];
    assert!(waits.iter().zip(bounds).all(|(wait, (least, most))| (least..=most).contains(wait)), "{waits:?}");
    assert_eq!(rig.keeper.numbers.renew_errors, 12);
}

#[test]
fn a_request_that_nobody_signs_is_given_up() {
    let mut rig = Rig::new(Kind::Client);
    rig.found(None);
    rig.send();
    rig.api(201, &json!({ "metadata": { "name": "node-csr-x", "uid": "u" } }));
    let mut polls = 0;
    let said = loop {
        rig.expect(Step::Poll);
        polls += 1;
        if let Some(said) = rig.api(200, &json!({ "metadata": { "uid": "u" } })) {
            break said;
        }
    };
    assert!(matches!(said, Say::Trouble(_)) && (100..300).contains(&polls), "{said:?} after {polls} looks");
    assert!(rig.millis >= 900_000 && rig.millis < 910_000);
    let (new_key, ..) = rig.send();
    assert!(!new_key, "the same request again");
}

#[test]
fn renewal_uses_the_current_identity_and_a_failure_keeps_it() {
    let mut rig = Rig::new(Kind::Client);
    rig.config.bootstrapping = false;
    let first = rig.certificate(-500, 1000);
    rig.found(Some(first));
    let (after, ..) = rig.next(1000).unwrap();
    assert!((545..=850).contains(&after), "{after}");
    rig.take(Outcome::TimedOut);
    let (new_key, bootstrap, request) = rig.send();
    assert!(new_key && !bootstrap);
    assert!(request.body.text().contains(r#""generateName":"csr-""#), "{request:?}");
    let down = Failure { class: FailureClass::Unavailable, message: "refused".into() };
    assert_eq!(rig.take(Outcome::Failed(down)), Some(Say::Trouble("refused".to_owned())));
    assert!(rig.keeper.numbers.not_after.is_some());
    rig.send();
    let second = rig.certificate(800, 3000);
    rig.issue(second);
    assert_eq!((rig.keeper.numbers.count, rig.keeper.numbers.renew_errors), (1, 2));
    assert!(rig.next(500).is_none(), "the new one is young");
}

#[test]
fn a_certificate_that_is_old_when_it_comes_is_renewed_after_a_pause() {
    let mut rig = Rig::new(Kind::Client);
    rig.config.bootstrapping = false;
    let first = rig.certificate(-500, 1000);
    rig.found(Some(first));
    rig.next(1000).unwrap();
    rig.take(Outcome::TimedOut);
    rig.send();
    let old = rig.certificate(-100_000, 5000);
    rig.issue(old);
    let (after, step, _) = rig.next(500).unwrap();
    assert!(after >= 1 && step == Step::Make, "{step:?} after {after} s");
}

#[test]
fn an_expired_certificate_is_replaced_with_bootstrap_credentials_where_there_are_some() {
    let mut rig = Rig::new(Kind::Client);
    rig.config.bootstrapping = false;
    let old = rig.certificate(-500, -1);
    rig.found(Some(old.clone()));
    assert!(rig.send().1);
    let mut rig = Rig::new(Kind::Client);
    (rig.config.bootstrap, rig.config.bootstrapping) = (false, false);
    rig.found(Some(old));
    assert!(!rig.send().1);
}

#[test]
fn a_step_of_the_wall_clock_is_noticed() {
    let mut rig = Rig::new(Kind::Client);
    rig.config.bootstrapping = false;
    let certificate = rig.certificate(0, 1_000_000);
    rig.found(Some(certificate));
    assert!(rig.next(3000).is_none());
    rig.stepped = 950_000;
    let (after, step, _) = rig.next(700).unwrap();
    assert!(step == Step::Make && after <= 600, "{after}");
}

#[test]
fn without_rotation_one_certificate_is_enough() {
    let mut rig = Rig::new(Kind::Client);
    rig.config.rotate = false;
    rig.found(None);
    rig.send();
    let certificate = rig.certificate(0, 100);
    rig.issue(certificate);
    assert!(rig.next(100_000).is_none() && rig.keeper.due().is_none());
}

#[test]
fn a_certificate_within_the_kubeconfig_is_for_the_start_only() {
    let mut rig = Rig::new(Kind::Client);
    rig.config.bootstrapping = false;
    rig.expect(Step::Look);
    let certificate = Some(rig.certificate(0, 100_000));
    rig.host(IdentityAnswer::Found { certificate, given_inline: true });
    assert!(!rig.send().1, "asked for with that very certificate");
}

#[test]
fn a_serving_certificate_follows_the_addresses_of_the_node() {
    let mut rig = Rig::new(Kind::Serving);
    rig.object = json!({});
    rig.found(None);
    assert!(rig.next(30).is_none(), "not before there is an address");
    rig.object = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": "10.0.0.1" }] } });
    let (_, bootstrap, request) = rig.send();
    let body: Value = serde_json::from_str(request.body.text()).unwrap();
    assert!(!bootstrap);
    assert_eq!(body["spec"]["signerName"], "kubernetes.io/kubelet-serving");
    assert_eq!(body["spec"]["usages"], json!(["digital signature", "server auth"]));
    let certificate = rig.certificate(0, 100_000);
    rig.issue(certificate);
    assert!(rig.next(60).is_none());
    // While a new one is on its way the addresses change once more.
    for address in ["10.0.0.2", "10.0.0.3"] {
        rig.object = json!({ "status": { "addresses": [{ "type": "InternalIP", "address": address }] } });
        rig.send();
        rig.api(201, &json!({ "metadata": { "name": "csr-2", "uid": "u" } }));
    }
    let certificate = rig.certificate(0, 100_000);
    rig.expect(Step::Poll);
    rig.api(200, &issued("u"));
    rig.expect(Step::Keep);
    rig.host(IdentityAnswer::Kept(certificate));
    assert!(rig.next(60).is_none());
    assert_eq!(rig.keeper.numbers.count, 1);
    assert!(rig.millis * 1_000_000 < 200 * SECOND);
}
