//! Decisions about images that are here, and what is kept of pulls.

use super::*;
use components::edge::host::pulls::Credential;
use components::edge::{Failure, FailureClass};
use components::time::Mono;

const ID: &str = "sha256:1";

fn of(name: &str) -> Coordinates {
    Coordinates { namespace: "ns".to_owned(), name: name.to_owned(), uid: format!("uid-{name}") }
}

fn secret(name: &str, version: &str) -> TrackedLogin {
    TrackedLogin { source: LoginSource::Secret(of(name), version.into()), ..TrackedLogin::default() }
}

fn account(name: &str) -> TrackedLogin {
    TrackedLogin { source: LoginSource::Account(of(name)), ..TrackedLogin::default() }
}

fn access(everyone: bool, secrets: &[&str], accounts: &[&str]) -> Access {
    let all = |names: &[&str]| names.iter().map(|name| of(name)).collect();
    Access { everyone, secrets: all(secrets), accounts: all(accounts) }
}

/// Records with one image, pulled as `reg/app` by whom `access` says.
fn records(access: Option<Access>) -> PullRecords {
    let names = access.into_iter().map(|access| ("reg/app".to_owned(), access)).collect();
    let image = PulledImage { image_ref: ID.into(), updated: Wall(0), names };
    PullRecords { read: true, images: [(image.image_ref.clone(), image)].into(), ..PullRecords::default() }
}

fn rule(policy: VerifyPolicy, allowlist: &[&str]) -> PullVerification {
    PullVerification { policy, allowlist: allowlist.iter().map(|&entry| entry.to_owned()).collect() }
}

#[test]
fn names_lose_tag_and_digest() {
    for (image, name) in [
        ("reg:5000/app:1", "reg:5000/app"),
        ("reg:5000/app", "reg:5000/app"),
        ("app:1@sha256:0", "app"),
        ("app@sha256:0", "app"),
    ] {
        assert_eq!(name_of(image), name);
    }
}

#[test]
fn policies_say_what_has_to_be_proved() {
    use VerifyPolicy::{AlwaysVerify, NeverVerify, NeverVerifyAllowlistedImages, NeverVerifyPreloadedImages};
    #[track_caller]
    fn check(policy: VerifyPolicy, list: &[&str], image: &str, expect: [bool; 2]) {
        assert_eq!([false, true].map(|pulled| must_prove(&rule(policy, list), image, pulled)), expect);
    }
    check(NeverVerify, &[], "reg/app:1", [false, false]);
    check(NeverVerifyPreloadedImages, &[], "reg/app:1", [false, true]);
    check(AlwaysVerify, &[], "reg/app:1", [true, true]);
    let list = ["reg/app", "other/team/*"];
    check(NeverVerifyAllowlistedImages, &list, "reg/app:1", [false, false]);
    check(NeverVerifyAllowlistedImages, &list, "reg/app/more:1", [true, true]);
    check(NeverVerifyAllowlistedImages, &list, "other/team/x@sha256:0", [false, false]);
    check(NeverVerifyAllowlistedImages, &list, "other/teams/x", [true, true]);
}

#[test]
fn records_decide_before_credentials_are_looked_at() {
    let rule = rule(VerifyPolicy::default(), &[]);
    let check = |records: &PullRecords, image: &str, expect: First<'_>| {
        assert_eq!(first(&rule, records, image, ID, None), expect);
    };
    check(&PullRecords::default(), "reg/app:1", First::Known(Found::PolicyAllows));
    let intent = PullRecords { intents: ["reg/app:1".to_owned()].into(), ..PullRecords::default() };
    check(&intent, "reg/app:1", First::Known(Found::Unknown));
    check(&intent, "reg/app:2", First::Known(Found::PolicyAllows));
    check(&records(None), "reg/app:1", First::Known(Found::Unknown));
    check(&records(Some(Access::default())), "reg/app:1", First::Known(Found::Unknown));
    check(&records(Some(access(true, &[], &[]))), "reg/app:1", First::Known(Found::Recorded));
    check(&records(Some(access(true, &[], &[]))), "reg/alias:1", First::Known(Found::Unknown));
    let some = access(false, &["a"], &[]);
    check(&records(Some(some.clone())), "reg/app@sha256:0", First::Depends(&some));
    // A record that nobody can read may be this one.
    let broken = PullRecords { unreadable: 1, ..PullRecords::default() };
    check(&broken, "reg/app:1", First::Look);
    let look = |unreadable| first(&rule, &broken, "reg/app:1", ID, Some(Compared { unreadable, known: None }));
    assert_eq!(look(true), First::Known(Found::Error));
    assert_eq!(look(false), First::Known(Found::PolicyAllows));
}

#[test]
fn secrets_and_accounts_show_that_an_image_may_be_used() {
    let some = access(false, &["a"], &["robot"]);
    assert_eq!(shows(&some, &[]), Shows::Nothing);
    assert_eq!(shows(&some, &[TrackedLogin::default()]), Shows::Nothing);
    assert_eq!(shows(&some, &[TrackedLogin::default(), secret("a", "1")]), Shows::Secret(1));
    assert_eq!(shows(&some, &[secret("b", "1")]), Shows::Compare);
    assert_eq!(shows(&some, &[secret("b", "1"), account("robot")]), Shows::Account);
    assert_eq!(shows(&some, &[account("other")]), Shows::Nothing);
    assert_eq!(shows(&access(false, &[], &["robot"]), &[secret("b", "1")]), Shows::Nothing);
}

#[test]
fn a_secret_is_confirmed_once_per_version() {
    let mut all = records(Some(access(false, &["a"], &[])));
    let image = ("reg/app:1", &Arc::from(ID));
    let mut confirm = |login: &TrackedLogin| confirmation(&mut all, "/r", image, login, Wall(1)).is_some();
    assert!(confirm(&secret("a", "1")));
    assert!(!confirm(&secret("a", "1")));
    assert!(confirm(&secret("a", "2")));
    assert!(!confirm(&account("robot")));
    let names: Vec<String> = (0..MOST_SECRETS).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut full = records(Some(access(false, &names, &[])));
    assert_eq!(confirmation(&mut full, "/r", image, &secret("a", "1"), Wall(1)), None);
}

struct Rig {
    records: PullRecords,
    outbox: Outbox,
    seen: usize,
}

impl Rig {
    fn new(records: PullRecords) -> Self {
        Self { records, outbox: Outbox::default(), seen: 0 }
    }

    fn take(&mut self, ticket: Ticket, outcome: &Outcome) -> bool {
        let now = Now { mono: Mono(1), wall: Wall(100_000_000_000) };
        take(&mut self.records, "/r", ticket, outcome, now, &mut self.outbox)
    }

    fn done(&mut self, ticket: Ticket, answer: PullsAnswer) -> bool {
        self.take(ticket, &Outcome::Done(Answer::Host(HostAnswer::Pulls(Box::new(answer)))))
    }

    /// The one work that was asked for since this was called last.
    fn asked(&mut self) -> Option<(Ticket, Effect)> {
        let new = &self.outbox.emitted()[self.seen..];
        assert!(new.len() <= 1, "{new:?}");
        self.seen = self.outbox.emitted().len();
        new.first().map(|work| (work.ticket, work.effect.clone()))
    }

    fn effect(&mut self) -> (Ticket, PullsEffect) {
        match self.asked() {
            Some((ticket, Effect::Host(HostEffect::Pulls(effect)))) => (ticket, *effect),
            other => panic!("{other:?}"),
        }
    }

    fn pull(&mut self, ticket: u64, login: Option<TrackedLogin>) {
        self.records.pulling.insert(Ticket(ticket), Pulling { image: "reg/app:1".to_owned(), login });
        self.records.intents.insert("reg/app:1".to_owned());
    }
}

fn pulled_as(id: &str) -> Outcome {
    Outcome::Done(Answer::Cri(CriAnswer::ImagePulled { image_ref: id.into() }))
}

#[test]
fn records_are_read_once_and_after_a_failure_again() {
    let mut rig = Rig::new(PullRecords::default());
    for _ in 0..2 {
        ask(&mut rig.records, "/r", false, Wall(0), &mut rig.outbox);
    }
    let (ticket, effect) = rig.effect();
    assert_eq!(effect, PullsEffect::Read { dir: "/r".to_owned() });
    let intents = vec!["reg/app:1".to_owned()];
    let found = PullsAnswer::Read { records: Vec::new(), intents, unreadable: 0, problems: Vec::new() };
    assert!(rig.done(ticket, found));
    assert!(rig.records.read && rig.records.left.contains("reg/app:1"));
    let mut rig = Rig::new(PullRecords::default());
    ask(&mut rig.records, "/r", false, Wall(0), &mut rig.outbox);
    assert!(rig.take(Ticket(1), &Outcome::TimedOut));
    ask(&mut rig.records, "/r", false, Wall(0), &mut rig.outbox);
    assert!(!rig.records.read && rig.outbox.emitted().len() == 1);
    ask(&mut rig.records, "/r", true, Wall(0), &mut rig.outbox);
    assert_eq!(rig.outbox.emitted().len(), 2);
}

#[test]
fn the_last_pull_of_an_image_drops_its_intent() {
    let mut rig = Rig::new(PullRecords { read: true, ..PullRecords::default() });
    let login =
        TrackedLogin { credential: Credential { password: "p".into(), ..Credential::default() }, ..secret("a", "1") };
    rig.pull(91, Some(login));
    rig.pull(92, None);
    assert!(!rig.take(Ticket(91), &pulled_as(ID)));
    let (ticket, PullsEffect::Record(record)) = rig.effect() else { panic!("no record") };
    assert_eq!((record.name.as_str(), record.intent.clone()), ("reg/app", None));
    assert!(matches!(&record.proof, Some(Proof::Secret { of: it, .. }) if *it == of("a")));
    let image = PulledImage { image_ref: ID.into(), updated: Wall(0), names: [].into() };
    assert!(!rig.done(ticket, PullsAnswer::Recorded(image.clone())));
    assert_eq!(rig.records.images.len(), 1);
    assert!(!rig.records.drops("reg/app:1"));
    rig.take(Ticket(92), &pulled_as(ID));
    let (ticket, PullsEffect::Record(record)) = rig.effect() else { panic!("no record") };
    assert_eq!((record.proof.clone(), record.intent.as_deref()), (Some(Proof::Everyone), Some("reg/app:1")));
    assert!(rig.records.drops("reg/app:1"));
    assert!(rig.done(ticket, PullsAnswer::Recorded(image)));
    assert!(rig.records.intents.is_empty());
}

#[test]
fn a_failed_pull_leaves_nothing_and_an_unknown_end_its_intent() {
    let mut rig = Rig::new(PullRecords { read: true, ..PullRecords::default() });
    rig.pull(91, None);
    rig.take(Ticket(91), &Outcome::TimedOut);
    assert_eq!(rig.asked(), None);
    rig.pull(92, None);
    let refused = Outcome::Failed(Failure { class: FailureClass::Denied, message: "no".to_owned() });
    rig.take(Ticket(92), &refused);
    let (ticket, effect) = rig.effect();
    assert_eq!(effect, PullsEffect::DropIntent { dir: "/r".to_owned(), image: "reg/app:1".to_owned() });
    // What cannot be dropped stays.
    assert!(rig.take(ticket, &refused));
    assert!(rig.records.intents.contains("reg/app:1"));
}

#[test]
fn images_that_are_gone_lose_their_record_and_old_intents_become_records() {
    let mut all = records(None);
    all.left.insert("reg/old:1".to_owned());
    let mut rig = Rig::new(all);
    ask(&mut rig.records, "/r", true, Wall(50_000_000_000), &mut rig.outbox);
    let (ticket, _) = rig.asked().unwrap();
    let image = |id: &str, tags: &[&str]| ListedImage {
        id: id.into(),
        digests: Vec::new(),
        tags: tags.iter().map(|&tag| tag.to_owned()).collect(),
        size: 1,
        pinned: false,
    };
    let listed = |images| Outcome::Done(Answer::Cri(CriAnswer::ImagesListed(images)));
    rig.take(ticket, &listed(vec![image(ID, &["reg/app:1"]), image("sha256:2", &["reg/old:1"])]));
    let (ticket, PullsEffect::Record(record)) = rig.effect() else { panic!("no record") };
    assert_eq!((&*record.image_ref, record.name.as_str(), record.proof.clone()), ("sha256:2", "reg/old", None));
    let image = PulledImage { image_ref: "sha256:2".into(), updated: Wall(100_000_000_000), names: [].into() };
    rig.done(ticket, PullsAnswer::Recorded(image));
    assert!(rig.records.left.is_empty());
    // The new record is younger than the question.
    ask(&mut rig.records, "/r", true, Wall(50_000_000_000), &mut rig.outbox);
    let (ticket, _) = rig.asked().unwrap();
    rig.take(ticket, &listed(Vec::new()));
    let (ticket, effect) = rig.effect();
    assert_eq!(effect, PullsEffect::Prune { dir: "/r".to_owned(), image_refs: vec![ID.into()] });
    rig.take(ticket, &Outcome::Done(Answer::Nothing));
    assert_eq!(rig.records.images.keys().map(|id| &**id).collect::<Vec<_>>(), ["sha256:2"]);
}
