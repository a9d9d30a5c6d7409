//! One certificate of a pod: what is asked for next, and what an answer means. Plain functions.
//!
//! First a key is made, then the service account's uid is read, then the request is sent; a failure goes on from the
//! account, with the same key. What is shown stays until something newer comes, or the signer refuses.

use crate::apicall::{self, Backoff, Verdict, verdict};
use components::edge::host::HostAnswer;
use components::edge::{Answer, Outcome};
use components::podcerts::{CertificateRun, CertificateStep, Credential};
use components::time::{Now, Wall};
use podspec::podcerts::{Progress, Why};
use serde_json::Value;
use std::time::Duration;

/// A request that is not seen for so long, and up to [`SPREAD`] more, was deleted.
const ABANDONED: Duration = Duration::from_secs(600);
/// Renewals spread over this.
const SPREAD: Duration = Duration::from_secs(300);
/// A renewal that takes longer is overdue.
const OVERDUE: Duration = Duration::from_secs(600);
/// How often a certificate is looked at at least: the wall clock, by which it ends, may step.
const LOOK: Duration = Duration::from_secs(600);
/// Shortest wait for a time of the wall clock.
const SOONEST: Duration = Duration::from_secs(1);
/// A signer that answers within this is waited for without a word.
const SLOW: Duration = Duration::from_secs(5);
/// One that is old when it comes is not renewed in a circle without a pause.
const PAUSE: Duration = Duration::from_secs(60);
/// Waits after failures.
const RETRY: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(60) };
/// What volumes say that have nothing to show.
pub(crate) const NOT_YET: &str = "credential bundle is not issued yet";

/// What is asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// A new key.
    Key,
    /// The uid of the service account.
    Account,
    /// A certificate.
    Send {
        /// PKCS#10 in base64.
        request: String,
        /// Uid of the service account.
        account: String,
    },
}

/// What is to be asked now. Times that passed are taken in: true when volumes are to look again.
pub(super) fn advance(run: &mut CertificateRun, namespace: &str, now: Now, chance: u64) -> (Option<Ask>, bool) {
    let changed = look(run, namespace, now, chance);
    if run.asking.is_some() || run.due.is_some_and(|at| at > now.mono) {
        return (None, changed);
    }
    if run.step == CertificateStep::Rest && run.shown.as_ref().is_none_or(|shown| shown.refresh_at <= now.wall) {
        run.step = CertificateStep::Key;
    }
    let ask = match &run.step {
        CertificateStep::Key => Some(Ask::Key),
        CertificateStep::Account { .. } => Some(Ask::Account),
        CertificateStep::Send { request, account } => {
            Some(Ask::Send { request: request.clone(), account: account.clone() })
        }
        CertificateStep::Rest | CertificateStep::Wait { .. } | CertificateStep::Refused { .. } => None,
    };
    (ask, changed)
}

/// Takes in which times have passed.
fn look(run: &mut CertificateRun, namespace: &str, now: Now, chance: u64) -> bool {
    if let Some(shown) = &mut run.shown {
        if !shown.late_told && now.wall > later(shown.refresh_at, OVERDUE) {
            shown.late_told = true;
            run.untold.push(("CertificateOverdueForRefresh", "PodCertificate refresh overdue".to_owned()));
        }
        if !shown.end_told && now.wall > shown.not_after {
            shown.end_told = true;
            run.untold.push(("CertificateExpired", "PodCertificate expired".to_owned()));
        }
    }
    let CertificateStep::Wait { name, give_up, slow } = &run.step else { return false };
    if now.mono >= *give_up {
        let name = format!("{namespace}/{name}");
        deleted(run, &name, now, chance);
        return true;
    }
    let silent = run.shown.is_none() && run.error.is_none() && now.mono >= *slow;
    if silent {
        run.error = Some(NOT_YET.to_owned());
    }
    silent
}

/// When [`advance`] has something to do without an answer.
pub(super) fn due(run: &CertificateRun, now: Now) -> Option<components::time::Mono> {
    let at = |wall: Wall| {
        let left = u64::try_from(wall.0.saturating_sub(now.wall.0)).unwrap_or_default();
        now.mono.after(Duration::from_nanos(left).clamp(SOONEST, LOOK))
    };
    let step = match &run.step {
        CertificateStep::Rest => {
            let refresh = run.shown.as_ref().map_or(now.mono, |shown| at(shown.refresh_at));
            Some(run.due.map_or(refresh, |due| due.max(refresh)))
        }
        CertificateStep::Key | CertificateStep::Account { .. } | CertificateStep::Send { .. } => {
            run.asking.is_none().then(|| run.due.unwrap_or(now.mono))
        }
        CertificateStep::Wait { slow, .. } if run.shown.is_none() && run.error.is_none() => Some(*slow),
        CertificateStep::Wait { give_up, .. } => Some(*give_up),
        CertificateStep::Refused { .. } => None,
    };
    let late = run.shown.as_ref().filter(|shown| !shown.late_told).map(|shown| at(later(shown.refresh_at, OVERDUE)));
    let end = run.shown.as_ref().filter(|shown| !shown.end_told).map(|shown| at(shown.not_after));
    [step, late, end].into_iter().flatten().min()
}

/// Takes what came of the step under way. True when volumes are to look again.
pub(super) fn answered(run: &mut CertificateRun, outcome: &Outcome, now: Now, chance: u64) -> bool {
    run.asking = None;
    run.due = None;
    let step = std::mem::take(&mut run.step);
    match step {
        CertificateStep::Key => match outcome {
            Outcome::Done(Answer::Host(HostAnswer::PodKeyMade { request })) => {
                run.step = CertificateStep::Account { request: request.clone() };
                false
            }
            Outcome::Failed(failure) => {
                fail(run, &format!("while generating keypair: {}", failure.message), now, chance)
            }
            _ => fail(run, "while generating keypair: not done in time", now, chance),
        },
        CertificateStep::Account { request } => {
            let uid = good(outcome).and_then(|object| field(&object, "/metadata/uid"));
            match uid {
                Ok(account) => {
                    run.step = CertificateStep::Send { request, account };
                    false
                }
                Err(why) => {
                    run.step = CertificateStep::Account { request };
                    fail(run, &format!("while fetching service account: {why}"), now, chance)
                }
            }
        }
        CertificateStep::Send { request, .. } => {
            match good(outcome).and_then(|object| field(&object, "/metadata/name")) {
                Ok(name) => {
                    let give_up = now.mono.after(ABANDONED + spread(chance));
                    run.step = CertificateStep::Wait { name, give_up, slow: now.mono.after(SLOW) };
                    run.failures = 0;
                    false
                }
                Err(why) => {
                    // The account may be another one by now.
                    run.step = CertificateStep::Account { request };
                    fail(run, &format!("while creating PodCertificateRequest: {why}"), now, chance)
                }
            }
        }
        other => {
            run.step = other;
            false
        }
    }
}

fn good(outcome: &Outcome) -> Result<Value, String> {
    match verdict(outcome) {
        Verdict::Good(answered) => {
            serde_json::from_str(&answered.body).map_err(|error| format!("the answer is unusable: {error}"))
        }
        Verdict::Refused(refusal) => Err(refusal.message),
        Verdict::Silent(why) => Err(why),
    }
}

fn field(object: &Value, path: &str) -> Result<String, String> {
    let found = object.pointer(path).and_then(Value::as_str).filter(|text| !text.is_empty());
    found.map(str::to_owned).ok_or_else(|| format!("the answer has no {path}"))
}

/// Tries the step again later.
fn fail(run: &mut CertificateRun, why: &str, now: Now, chance: u64) -> bool {
    tracing::warn!(error = %why, "No certificate for a pod; it is asked for again");
    run.failures = run.failures.saturating_add(1);
    run.due = Some(now.mono.after(RETRY.wait(run.failures, chance)));
    let text = run.shown.is_none().then(|| format!("{NOT_YET}: {why}"));
    let changed = run.error != text;
    run.error = text;
    changed
}

/// The request that was waited for is gone: another is made, with a new key.
pub(super) fn deleted(run: &mut CertificateRun, name: &str, now: Now, chance: u64) {
    run.step = CertificateStep::Key;
    fail(run, &format!("PodCertificateRequest {name:?} appears to have been deleted"), now, chance);
}

/// Takes how far the request that is waited for has come. True when volumes are to look again.
pub(super) fn settle(run: &mut CertificateRun, name: &str, progress: &Progress, now: Now, chance: u64) -> bool {
    match progress {
        Progress::Waits => return false,
        Progress::Denied(why) => refuse(run, name, why, true),
        Progress::Failed(why) => refuse(run, name, why, false),
        Progress::Issued(issued) => {
            let refresh_at = later(issued.refresh_at, spread(chance));
            run.shown = Some(Credential {
                turn: run.turn,
                chain: std::sync::Arc::clone(&issued.chain),
                refresh_at,
                not_after: issued.not_after,
                late_told: false,
                end_told: false,
            });
            run.step = CertificateStep::Rest;
            run.error = None;
            run.failures = 0;
            run.due = Some(now.mono.after(PAUSE));
        }
    }
    true
}

fn refuse(run: &mut CertificateRun, name: &str, why: &Why, denied: bool) {
    let Why { reason, message } = why;
    let (state, event, told) = if denied { ("denied", "Denied", "was denied") } else { ("failed", "Failed", "failed") };
    run.step = CertificateStep::Refused { denied };
    run.shown = None;
    run.error = Some(format!("PodCertificateRequest was permanently {state}: reason={reason:?} message={message:?}"));
    let text = format!("PodCertificateRequest {name} {told}, reason={reason:?}, message={message:?}");
    run.untold.push((event, text));
}

/// As what it counts.
pub(super) fn state(run: &CertificateRun, now: Wall) -> &'static str {
    match (&run.step, &run.shown) {
        (CertificateStep::Refused { denied: true }, _) => "denied",
        (CertificateStep::Refused { denied: false }, _) => "failed",
        (_, None) => "not_yet_issued",
        (_, Some(shown)) if now > shown.not_after => "expired",
        (_, Some(shown)) if now > later(shown.refresh_at, OVERDUE) => "overdue_for_refresh",
        _ => "fresh",
    }
}

fn later(wall: Wall, by: Duration) -> Wall {
    Wall(wall.0.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX)))
}

fn spread(chance: u64) -> Duration {
    SPREAD * u32::try_from(apicall::mix(chance) % 4096).unwrap_or(0) / 4096
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::api::{Answered, ApiAnswer};
    use components::edge::{Failure, FailureClass};
    use components::ids::Ticket;
    use components::time::Mono;
    use podspec::podcerts::Issued;
    use std::sync::Arc;

    const SECOND: i64 = 1_000_000_000;

    fn at(seconds: i64) -> Now {
        Now { mono: Mono(u64::try_from(seconds * SECOND).unwrap()), wall: Wall(seconds * SECOND) }
    }

    fn answer(status: u16, body: &str) -> Outcome {
        let answered = Answered { status, secret: false, body: Arc::from(body), retry_after: None };
        Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))))
    }

    /// Asks what is due, which must be asked.
    fn ask(run: &mut CertificateRun, now: Now) -> Ask {
        let asked = advance(run, "n", now, 1).0.expect("something is asked");
        if asked == Ask::Key {
            run.turn += 1;
        }
        run.asking = Some(Ticket(1));
        assert_eq!(advance(run, "n", now, 1).0, None, "one at a time");
        asked
    }

    fn sent(run: &mut CertificateRun, now: Now) {
        assert_eq!(ask(run, now), Ask::Key);
        let made = HostAnswer::PodKeyMade { request: "cmVx".to_owned() };
        answered(run, &Outcome::Done(Answer::Host(made)), now, 1);
        assert_eq!(ask(run, now), Ask::Account);
        answered(run, &answer(200, r#"{"metadata":{"uid":"sa-uid"}}"#), now, 1);
        let send = Ask::Send { request: "cmVx".to_owned(), account: "sa-uid".to_owned() };
        assert_eq!(ask(run, now), send);
        answered(run, &answer(201, r#"{"metadata":{"name":"req-1"}}"#), now, 1);
        assert_eq!(advance(run, "n", now, 1).0, None);
    }

    fn issued(refresh: i64, end: i64) -> Progress {
        let chain = "CERT".into();
        Progress::Issued(Issued { chain, refresh_at: Wall(refresh * SECOND), not_after: Wall(end * SECOND) })
    }

    #[test]
    fn a_certificate_is_asked_for_shown_and_renewed() {
        let mut run = CertificateRun::default();
        sent(&mut run, at(0));
        assert!(!settle(&mut run, "n/req-1", &Progress::Waits, at(1), 1));
        assert!(settle(&mut run, "n/req-1", &issued(1000, 5000), at(2), 1));
        let refresh = run.shown.as_ref().unwrap().refresh_at.0 / SECOND;
        assert!((1000..1300).contains(&refresh), "{refresh}");
        assert_eq!((state(&run, at(3).wall), run.error.clone()), ("fresh", None));
        assert_eq!(advance(&mut run, "n", at(refresh - 1), 1), (None, false));
        sent(&mut run, at(refresh + 1));
        assert_eq!((run.turn, run.shown.as_ref().map(|shown| shown.turn)), (2, Some(1)), "the old one stays");
        assert!(settle(&mut run, "n/req-2", &issued(9000, 9900), at(refresh + 2), 1));
        assert_eq!(run.shown.as_ref().map(|shown| shown.turn), Some(2));
        assert!(run.untold.is_empty());
    }

    #[test]
    fn a_signer_that_refuses_is_not_asked_again() {
        for (progress, state_is, event, error) in [
            (
                Progress::Denied as fn(Why) -> Progress,
                "denied",
                ("Denied", "PodCertificateRequest n/req-1 was denied, reason=\"R\", message=\"m\""),
                "PodCertificateRequest was permanently denied: reason=\"R\" message=\"m\"",
            ),
            (
                Progress::Failed,
                "failed",
                ("Failed", "PodCertificateRequest n/req-1 failed, reason=\"R\", message=\"m\""),
                "PodCertificateRequest was permanently failed: reason=\"R\" message=\"m\"",
            ),
        ] {
            let mut run = CertificateRun::default();
            sent(&mut run, at(0));
            let why = Why { reason: "R".to_owned(), message: "m".to_owned() };
            assert!(settle(&mut run, "n/req-1", &progress(why), at(1), 1));
            assert_eq!(run.error.as_deref(), Some(error));
            assert_eq!(run.untold, [(event.0, event.1.to_owned())]);
            assert_eq!(state(&run, at(1).wall), state_is);
            assert_eq!((advance(&mut run, "n", at(90_000), 1), due(&run, at(1))), ((None, false), None));
        }
    }

    #[test]
    fn failures_are_told_and_the_key_is_kept() {
        let mut run = CertificateRun::default();
        assert_eq!(ask(&mut run, at(0)), Ask::Key);
        let broken = Failure { class: FailureClass::Other, message: "no entropy".to_owned() };
        assert!(answered(&mut run, &Outcome::Failed(broken), at(0), 1));
        let told = "credential bundle is not issued yet: while generating keypair: no entropy";
        assert_eq!(run.error.as_deref(), Some(told));
        assert_eq!(advance(&mut run, "n", at(0), 1).0, None, "not at once");
        run = CertificateRun::default();
        sent(&mut run, at(0));
        run.step = CertificateStep::Send { request: "cmVx".to_owned(), account: "old".to_owned() };
        assert!(answered(&mut run, &answer(403, r#"{"message":"no such account"}"#), at(1), 1));
        let told = "credential bundle is not issued yet: while creating PodCertificateRequest: no such account";
        assert_eq!(run.error.as_deref(), Some(told));
        assert_eq!(run.step, CertificateStep::Account { request: "cmVx".to_owned() });
        assert!(due(&run, at(1)).is_some_and(|due| due > at(1).mono && due <= at(2).mono));
        assert!(!answered(&mut run, &answer(404, r#"{"message":"x"}"#), at(2), 1) || run.failures == 2);
    }

    #[test]
    fn who_waits_long_is_told_and_a_request_that_is_gone_is_made_anew() {
        let mut run = CertificateRun::default();
        sent(&mut run, at(0));
        assert_eq!(due(&run, at(0)), Some(at(5).mono));
        assert_eq!(advance(&mut run, "n", at(4), 1), (None, false));
        assert_eq!(advance(&mut run, "n", at(5), 1), (None, true));
        assert_eq!(run.error.as_deref(), Some(NOT_YET));
        let give_up = due(&run, at(6)).unwrap();
        assert!(give_up >= at(600).mono && give_up < at(900).mono);
        assert_eq!(advance(&mut run, "n", at(599), 1), (None, false));
        assert_eq!(advance(&mut run, "n", at(900), 1), (None, true));
        assert_eq!(run.step, CertificateStep::Key);
        assert!(run.error.as_ref().is_some_and(|error| error.contains("\"n/req-1\" appears to have been deleted")));
        assert_eq!(ask(&mut run, at(902)), Ask::Key);
    }

    #[test]
    fn a_renewal_that_does_not_come_is_told_once() {
        let mut run = CertificateRun::default();
        sent(&mut run, at(0));
        settle(&mut run, "n/req-1", &issued(1000, 5000), at(1), 1);
        sent(&mut run, at(1300));
        for (now, events, state_is) in [(1500, 0, "fresh"), (2000, 1, "overdue_for_refresh"), (5001, 2, "expired")] {
            // A request that is gone is made anew; that is of no interest here.
            run.step = CertificateStep::Wait { name: "r".to_owned(), give_up: at(9000).mono, slow: at(9000).mono };
            advance(&mut run, "n", at(now), 1);
            advance(&mut run, "n", at(now), 1);
            assert_eq!((run.untold.len(), state(&run, at(now).wall)), (events, state_is));
        }
        let reasons: Vec<_> = run.untold.iter().map(|(reason, _)| *reason).collect();
        assert_eq!(reasons, ["CertificateOverdueForRefresh", "CertificateExpired"]);
        assert!(run.shown.is_some(), "it is all that there is");
    }

    #[test]
    fn a_certificate_that_is_old_when_it_comes_is_not_renewed_in_a_circle() {
        let mut run = CertificateRun::default();
        sent(&mut run, at(1000));
        settle(&mut run, "n/req-1", &issued(0, 5000), at(1000), 1);
        assert_eq!(advance(&mut run, "n", at(1001), 1).0, None);
        assert!(due(&run, at(1001)).is_some_and(|due| due >= at(1002).mono));
        assert_eq!(ask(&mut run, at(1061)), Ask::Key);
    }
}
