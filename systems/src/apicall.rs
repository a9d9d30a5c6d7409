//! What answers of the API server mean, and when to ask again. Plain functions for every domain that talks to it.

use components::edge::api::{Answered, ApiAnswer, ApiEffect, ApiRequest};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use engine::{NewWork, Owner};
use serde::Deserialize;
use std::time::Duration;

/// Deadline of a plain request, its wait for its turn included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict<'a> {
    /// 2xx.
    Good(&'a Answered),
    /// Any other status.
    Refused(Refusal),
    /// No answer: the server could not be reached, or did not answer in time. It may have done what was asked.
    Silent(String),
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    /// `reason` of the `Status` object, such as `NotFound`; empty without one.
    pub reason: String,
    /// Its message, or the beginning of the body.
    pub message: String,
    /// What the server asks to wait.
    pub retry_after: Option<Duration>,
}

/// The fields of a `Status` object that decisions read.
#[derive(Deserialize, Default)]
#[serde(default)]
struct StatusObject {
    reason: String,
    message: String,
}

/// Characters of a body that is no `Status` which are kept as its message.
const EXCERPT: usize = 200;

/// What came of a request.
#[must_use]
pub fn verdict(outcome: &Outcome) -> Verdict<'_> {
    match outcome {
        Outcome::Done(Answer::Api(ApiAnswer::Answered(it))) if it.is_success() => Verdict::Good(it),
        Outcome::Done(Answer::Api(ApiAnswer::Answered(it))) => Verdict::Refused(refusal(it)),
        Outcome::Done(_) => Verdict::Silent("the answer does not fit the question".to_owned()),
        Outcome::Failed(failure) => Verdict::Silent(failure.message.clone()),
        Outcome::TimedOut => Verdict::Silent("no answer in time".to_owned()),
        Outcome::Cancelled => Verdict::Silent("cancelled".to_owned()),
    }
}

/// What a refused request was told.
#[must_use]
pub fn refusal(answered: &Answered) -> Refusal {
    let status: StatusObject = serde_json::from_str(&answered.body).unwrap_or_default();
    let message =
        if status.message.is_empty() { answered.body.chars().take(EXCERPT).collect() } else { status.message };
    Refusal {
        status: answered.status,
        reason: status.reason,
        message,
        retry_after: answered.retry_after.map(|seconds| Duration::from_secs(u64::from(seconds))),
    }
}

/// The work of a request.
#[must_use]
pub fn work(owner: Owner, why: Why, request: ApiRequest) -> NewWork {
    let effect = Effect::Api(ApiEffect::Request(Box::new(request)));
    NewWork { owner, lane: Lane::Free, chained: false, timeout: REQUEST_TIMEOUT, why, effect }
}

/// Percent-encodes a value for a query or a path segment.
#[must_use]
pub fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            // A String never refuses to be written to.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// Grows from one failure to the next, with chance, so that many nodes do not ask in step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// Never longer than this, chance aside.
    pub most: Duration,
}

impl Backoff {
    /// Wait after `failures` failures in a row (1 or more): doubled from one to the next, and up to as long again by
    /// `chance`, a random number.
    #[must_use]
    pub fn wait(self, failures: u32, chance: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << failures.saturating_sub(1).min(20));
        let base = doubled.min(self.most);
        let share = u32::try_from(mix(chance) % 1024).unwrap_or(0);
        base + base * share / 1024
    }
}

/// Spreads the bits of a number.
#[must_use]
pub const fn mix(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::{Failure, FailureClass};
    use std::sync::Arc;

    fn answered(status: u16, body: &str) -> Outcome {
        let answered = Answered { status, secret: false, body: Arc::from(body), retry_after: Some(3) };
        Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))))
    }

    #[test]
    fn answers_are_told_apart() {
        assert!(matches!(verdict(&answered(201, "{}")), Verdict::Good(_)));
        let body = r#"{"kind":"Status","reason":"NotFound","message":"pods \"a\" not found","code":404}"#;
        let refused = Refusal {
            status: 404,
            reason: "NotFound".into(),
            message: "pods \"a\" not found".into(),
            retry_after: Some(Duration::from_secs(3)),
        };
        assert_eq!(verdict(&answered(404, body)), Verdict::Refused(refused));
        let Verdict::Refused(plain) = verdict(&answered(502, "<html>")) else { panic!("no refusal") };
        assert_eq!((plain.reason.as_str(), plain.message.as_str()), ("", "<html>"));
        let failed = Outcome::Failed(Failure { class: FailureClass::Unavailable, message: "refused".into() });
        assert_eq!(verdict(&failed), Verdict::Silent("refused".into()));
    }

    #[test]
    fn waits_double_up_to_a_bound_and_spread() {
        let backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(30) };
        let mut seen = std::collections::BTreeSet::new();
        for chance in 0..50 {
            for (failures, base) in [(1, 1), (2, 2), (5, 16), (6, 30), (99, 30)] {
                let wait = backoff.wait(failures, chance);
                assert!((base..2 * base + 1).contains(&wait.as_secs()), "{failures} {wait:?}");
                seen.insert(wait);
            }
        }
        assert!(seen.len() > 100);
    }

    #[test]
    fn values_are_percent_encoded() {
        assert_eq!(encode("spec.nodeName=a/b ä"), "spec.nodeName%3Da%2Fb%20%C3%A4");
    }
}
