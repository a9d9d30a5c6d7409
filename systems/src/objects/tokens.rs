//! When a token of a service account is asked for, and what came of it (contract 3.7).
//!
//! A token is renewed after four fifths of its life or a day, whichever comes first, a little sooner by chance. Until
//! a newer one comes the old one stays in use. Times run on the monotonic clock from the moment it came.

use crate::apicall::{self, Backoff, Verdict, verdict};
use components::edge::Outcome;
use components::edge::api::{ApiRequest, Body, Class, Method};
use components::objects::{Token, TokenKey, TokenRun};
use components::spec::PodSpec;
use components::time::Now;
use std::time::Duration;

/// A token is not used longer than this.
const OLDEST: Duration = Duration::from_secs(24 * 3600);
/// Renewals spread over this.
const SPREAD: Duration = Duration::from_secs(10);
/// Whatever the clocks say, no token is renewed sooner than this.
const SOONEST: Duration = Duration::from_secs(5);
/// Waits after failures.
const RETRY: Backoff = Backoff { first: Duration::from_millis(500), most: Duration::from_secs(60) };

/// The request for a token.
pub(super) fn request(spec: &PodSpec, key: &TokenKey) -> ApiRequest {
    let (namespace, account) = (apicall::encode(&spec.namespace), apicall::encode(&spec.service_account));
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let body = podspec::objects::token_request(&key.audience, key.seconds, &spec.name, spec.uid.as_str());
    ApiRequest { method: Method::Post, path, body: Body::Json(body), class: Class::Object, secret: true }
}

/// Takes what came of a request. `chance` is a random number.
pub(super) fn answered(run: &mut TokenRun, outcome: &Outcome, now: Now, chance: u64) {
    run.asking = None;
    let result = match verdict(outcome) {
        Verdict::Good(answered) => podspec::objects::token(&answered.body, now.mono),
        Verdict::Refused(refusal) => Err(refusal.message),
        Verdict::Silent(why) => Err(why),
    };
    match result {
        Ok(token) => {
            run.due = Some(now.mono.after(good_for(&token, now, chance)));
            run.token = Some(token);
            run.error = None;
            run.failures = 0;
        }
        Err(why) => {
            run.failures = run.failures.saturating_add(1);
            run.due = Some(now.mono.after(RETRY.wait(run.failures, chance)));
            let text = format!("failed to fetch token: {why}");
            if run.error.as_ref() != Some(&text) {
                tracing::warn!(error = %text, "No token for a pod");
            }
            run.error = Some(text);
        }
    }
}

/// How long a token that just came is used.
fn good_for(token: &Token, now: Now, chance: u64) -> Duration {
    let seconds = u64::try_from(token.seconds).unwrap_or_default();
    let life = Duration::from_secs(seconds);
    let left = Duration::from_nanos(u64::try_from(token.expires.0.saturating_sub(now.wall.0)).unwrap_or_default());
    // Clocks of two machines differ: neither trusts it longer than it lives.
    let left = left.min(life);
    let age = life - left;
    let share = u32::try_from(apicall::mix(chance) % 1024).unwrap_or(0);
    let sooner = SPREAD * share / 1024;
    let until_old = OLDEST.saturating_sub(age);
    let until_late = left.saturating_sub(Duration::from_secs(seconds * 20 / 100));
    until_old.min(until_late).saturating_sub(sooner).max(SOONEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::edge::Answer;
    use components::edge::api::{Answered, ApiAnswer};
    use components::ids::Hidden;
    use components::time::{Mono, Wall};
    use std::sync::Arc;

    const HOUR: u64 = 3600;

    /// Seconds that a token of `life` seconds is used when the clock shows it `left` seconds before its end.
    #[track_caller]
    fn check(life: u64, left: i64, expect: std::ops::RangeInclusive<u64>) {
        let token = Token {
            text: Hidden::default(),
            expires: Wall(left * 1_000_000_000),
            seconds: i64::try_from(life).unwrap(),
            came: Mono(0),
        };
        for chance in 0..40 {
            let got = good_for(&token, Now { mono: Mono(0), wall: Wall(0) }, chance).as_secs();
            assert!(expect.contains(&got), "{got}");
        }
    }

    #[test]
    fn tokens_are_renewed_after_four_fifths_or_a_day() {
        check(HOUR, 3600, 2870..=2880);
        check(600, 600, 470..=480);
        check(48 * HOUR, 48 * 3600, 24 * HOUR - 10..=24 * HOUR);
        check(365 * 24 * HOUR, 365 * 24 * 3600, 24 * HOUR - 10..=24 * HOUR);
        check(HOUR, 1000, 270..=280);
        check(HOUR, 500, 5..=5);
        check(HOUR, -500, 5..=5);
        // The server's clock is ahead.
        check(HOUR, 9000, 2870..=2880);
    }

    fn answer(status: u16, body: &str) -> Outcome {
        let answered = Answered { status, secret: true, body: Arc::from(body), retry_after: None };
        Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))))
    }

    #[test]
    fn an_old_token_stays_while_no_newer_one_comes() {
        let now = Now { mono: Mono(0), wall: Wall(0) };
        let mut run = TokenRun::default();
        answered(&mut run, &answer(403, r#"{"message":"no relation to this node"}"#), now, 1);
        assert_eq!(run.error.as_deref(), Some("failed to fetch token: no relation to this node"));
        assert!(run.due.is_some_and(|at| at.since(now.mono) <= Duration::from_secs(1)));
        let good = r#"{"spec":{"expirationSeconds":3600},"status":{"token":"t","expirationTimestamp":"1970-01-01T01:00:00Z"}}"#;
        answered(&mut run, &answer(201, good), now, 1);
        assert_eq!((run.error.clone(), run.failures), (None, 0));
        let token = run.token.clone();
        answered(&mut run, &Outcome::TimedOut, now, 1);
        assert_eq!((run.token.clone(), run.failures), (token, 1));
        assert!(run.error.is_some());
    }

    #[test]
    fn a_token_is_asked_for_in_the_name_of_the_pod() {
        let mut spec = fixtures::spec("always a");
        "robot".clone_into(&mut spec.service_account);
        let made = request(&spec, &TokenKey { audience: "vault".to_owned(), seconds: 600 });
        assert_eq!(made.path, "/api/v1/namespaces/default/serviceaccounts/robot/token");
        assert!(made.secret && made.method == Method::Post);
        let body: serde_json::Value = serde_json::from_str(made.body.text()).unwrap();
        assert_eq!(body["spec"]["boundObjectRef"]["uid"], "uid");
        assert_eq!(body["spec"]["audiences"], serde_json::json!(["vault"]));
    }
}
