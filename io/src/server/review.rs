//! Who a token belongs to and what a user may do, as the API server says (TokenReview and SubjectAccessReview).
//!
//! Answers are kept for as long as configured, at most [`MOST`] of each kind; questions are asked again a few times
//! when the API server is busy, because a client waits for this one answer.

use super::identity::Identity;
use components::duration::GoDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Answers kept of one kind.
const MOST: usize = 4096;
/// Questions asked for one answer at most, and the wait after the first; it grows by half each time.
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Requests with more to them are not worth being kept.
const LONGEST_QUESTION: usize = 10_000;
const TOKEN_REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// What comes back from [`AskReview::ask`]: status and body, or what went wrong.
pub type ReviewAnswer<'a> = Pin<Box<dyn Future<Output = Result<(u16, String), String>> + Send + 'a>>;

/// Asks the API server: one POST of JSON to a path.
pub trait AskReview: Send + Sync + 'static {
    /// Sends one question once. The body may hold a token.
    fn ask<'a>(&'a self, path: &'static str, body: String) -> ReviewAnswer<'a>;
}

/// For how long answers are kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReviewTimes {
    /// `authentication.webhook.cacheTTL`.
    pub tokens: Duration,
    /// `authorization.webhook.cacheAuthorizedTTL`.
    pub allowed: Duration,
    /// `authorization.webhook.cacheUnauthorizedTTL`.
    pub refused: Duration,
}

impl ReviewTimes {
    /// From the settings of the same names.
    #[must_use]
    pub fn new(tokens: GoDuration, allowed: GoDuration, refused: GoDuration) -> Self {
        let time = |it: GoDuration| Duration::from_nanos(u64::try_from(it.0).unwrap_or(0));
        Self { tokens: time(tokens), allowed: time(allowed), refused: time(refused) }
    }
}

/// Questions to the API server and the answers kept.
pub struct Reviews {
    asker: Box<dyn AskReview>,
    times: ReviewTimes,
    tokens: Mutex<Kept<Option<Identity>>>,
    access: Mutex<Kept<bool>>,
}

impl fmt::Debug for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The kept answers are known by tokens.
        f.debug_struct("Reviews").field("times", &self.times).finish_non_exhaustive()
    }
}

impl Reviews {
    /// With nothing kept yet.
    #[must_use]
    pub fn new(asker: Box<dyn AskReview>, times: ReviewTimes) -> Self {
        Self { asker, times, tokens: Mutex::default(), access: Mutex::default() }
    }

    /// Whom a token belongs to; `None` when it is no good.
    ///
    /// # Errors
    /// When the API server gave no usable answer.
    pub(super) async fn identify(&self, token: &str) -> Result<Option<Identity>, String> {
        if let Some(known) = lock(&self.tokens).get(token) {
            return Ok(known);
        }
        let question = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token }
        });
        let status: TokenStatus = self.review(TOKEN_REVIEWS, question.to_string()).await?;
        if !status.authenticated {
            if !status.error.is_empty() {
                // It may be the reviewer that is not well: asked again next time.
                return Err(status.error);
            }
            lock(&self.tokens).put(token.to_owned(), None, self.times.tokens);
            return Ok(None);
        }
        let TokenUser { username, uid, mut groups, extra } = status.user;
        if !groups.iter().any(|group| group == AUTHENTICATED) {
            groups.push(AUTHENTICATED.to_owned());
        }
        let identity = Identity { user: username, uid, groups, extra };
        lock(&self.tokens).put(token.to_owned(), Some(identity.clone()), self.times.tokens);
        Ok(Some(identity))
    }

    /// Whether a user may use a verb on a subresource of the node.
    ///
    /// # Errors
    /// When the API server gave no usable answer.
    pub(super) async fn may(&self, who: &Identity, verb: &str, subresource: &str, node: &str) -> Result<bool, String> {
        let spec = access(who, verb, subresource, node).to_string();
        if let Some(known) = lock(&self.access).get(&spec) {
            return Ok(known);
        }
        let question =
            format!("{{\"apiVersion\":\"authorization.k8s.io/v1\",\"kind\":\"SubjectAccessReview\",\"spec\":{spec}}}");
        let status: AccessStatus = self.review(ACCESS_REVIEWS, question).await?;
        if status.allowed && status.denied {
            return Err("the access review both allows and denies".to_owned());
        }
        let keep = if status.allowed { self.times.allowed } else { self.times.refused };
        if spec.len() <= LONGEST_QUESTION {
            lock(&self.access).put(spec, status.allowed, keep);
        }
        Ok(status.allowed)
    }

    /// The status of a review; asked again while the API server is busy or away.
    async fn review<T: for<'de> Deserialize<'de>>(&self, path: &'static str, question: String) -> Result<T, String> {
        let mut wait = FIRST_WAIT;
        for last in 1..=TRIES {
            let message = match self.asker.ask(path, question.clone()).await {
                Ok((200..=299, body)) => {
                    let review: Review<T> =
                        serde_json::from_str(&body).map_err(|error| format!("unusable answer to {path}: {error}"))?;
                    return Ok(review.status);
                }
                Ok((status, _)) if status != 429 && status < 500 => return Err(format!("{path}: HTTP {status}")),
                Ok((status, _)) => format!("{path}: HTTP {status}"),
                Err(message) => message,
            };
            if last == TRIES {
                return Err(message);
            }
            tokio::time::sleep(wait).await;
            wait = wait * 3 / 2;
        }
        Err(format!("{path}: no answer"))
    }
}

/// Group of everybody who is somebody.
pub(super) const AUTHENTICATED: &str = "system:authenticated";

fn access(who: &Identity, verb: &str, subresource: &str, node: &str) -> Value {
    let mut spec = json!({
        "user": who.user,
        "groups": who.groups,
        "resourceAttributes": {
            "verb": verb, "version": "v1", "resource": "nodes", "subresource": subresource, "name": node,
        },
    });
    if !who.uid.is_empty() {
        spec["uid"] = who.uid.as_str().into();
    }
    if !who.extra.is_empty() {
        spec["extra"] = json!(who.extra);
    }
    spec
}

#[derive(Deserialize)]
struct Review<T> {
    status: T,
}

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct TokenStatus {
    authenticated: bool,
    user: TokenUser,
    error: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct TokenUser {
    username: String,
    uid: String,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AccessStatus {
    allowed: bool,
    denied: bool,
}

/// Answers by question, each with the time until which it counts.
struct Kept<T> {
    answers: HashMap<String, (Instant, T)>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { answers: HashMap::new() }
    }
}

impl<T: Clone> Kept<T> {
    fn get(&self, question: &str) -> Option<T> {
        self.answers.get(question).filter(|(until, _)| *until > Instant::now()).map(|(_, answer)| answer.clone())
    }

    fn put(&mut self, question: String, answer: T, keep: Duration) {
        if keep.is_zero() {
            return;
        }
        let now = Instant::now();
        if self.answers.len() >= MOST {
            self.answers.retain(|_, (until, _)| *until > now);
        }
        if self.answers.len() >= MOST {
            // Rare, and any of them may be asked for again: it is cheaper than an order of use.
            self.answers.clear();
        }
        self.answers.insert(question, (now + keep, answer));
    }
}

fn lock<T>(kept: &Mutex<Kept<T>>) -> std::sync::MutexGuard<'_, Kept<T>> {
    // Nothing in there can be half done.
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bearer token of a request's `Authorization` header; `None` when it holds none.
pub(super) fn bearer(header: &str) -> Option<&str> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Answers in turn, the last one for ever; counts and keeps the questions.
    struct Script {
        answers: Vec<Result<(u16, &'static str), &'static str>>,
        asked: Arc<Mutex<Vec<(String, String)>>>,
    }

    impl AskReview for Script {
        fn ask<'a>(&'a self, path: &'static str, body: String) -> ReviewAnswer<'a> {
            let mut asked = self.asked.lock().unwrap();
            let answer = self.answers[asked.len().min(self.answers.len() - 1)];
            asked.push((path.to_owned(), body));
            let answer = answer.map(|(status, body)| (status, body.to_owned())).map_err(str::to_owned);
            Box::pin(async move { answer })
        }
    }

    type Asked = Arc<Mutex<Vec<(String, String)>>>;

    fn reviews(answers: Vec<Result<(u16, &'static str), &'static str>>) -> (Reviews, Asked) {
        let asked = Asked::default();
        let times = ReviewTimes {
            tokens: Duration::from_secs(120),
            allowed: Duration::from_secs(300),
            refused: Duration::from_millis(30),
        };
        (Reviews::new(Box::new(Script { answers, asked: Arc::clone(&asked) }), times), asked)
    }

    fn user(name: &str) -> Identity {
        Identity { user: name.to_owned(), groups: vec!["g".to_owned()], ..Identity::default() }
    }

    #[tokio::test]
    async fn a_token_is_asked_for_once() {
        let body = r#"{"status":{"authenticated":true,"user":{"username":"u","uid":"7","groups":["g"],
            "extra":{"k":["v"]}}}}"#;
        let (reviews, asked) = reviews(vec![Ok((201, body))]);
        for _ in 0..2 {
            let found = reviews.identify("secret").await.unwrap().unwrap();
            assert_eq!((found.user.as_str(), found.uid.as_str()), ("u", "7"));
            assert_eq!(found.groups, ["g", AUTHENTICATED]);
            assert_eq!(found.extra["k"], ["v"]);
        }
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].0, TOKEN_REVIEWS);
        assert!(asked[0].1.contains(r#""spec":{"token":"secret"}"#));
        assert!(!format!("{reviews:?}").contains("secret"));
    }

    #[tokio::test]
    async fn a_wrong_token_is_nobody_and_a_failed_review_is_an_error() {
        let refused = r#"{"status":{"authenticated":false}}"#;
        let ill = r#"{"status":{"authenticated":false,"error":"no issuer"}}"#;
        let (reviews, asked) = reviews(vec![Ok((201, refused)), Ok((201, ill))]);
        assert_eq!(reviews.identify("a").await, Ok(None));
        assert_eq!(reviews.identify("a").await, Ok(None));
        assert_eq!(reviews.identify("b").await, Err("no issuer".to_owned()));
        assert_eq!(asked.lock().unwrap().len(), 2);
    }

    #[tokio::test]
    async fn access_is_kept_by_who_what_and_where() {
        let yes = r#"{"status":{"allowed":true}}"#;
        let no = r#"{"status":{"allowed":false,"reason":"no"}}"#;
        let (reviews, asked) = reviews(vec![Ok((201, yes)), Ok((201, no)), Ok((201, no))]);
        assert_eq!(reviews.may(&user("a"), "get", "stats", "n").await, Ok(true));
        assert_eq!(reviews.may(&user("a"), "get", "stats", "n").await, Ok(true));
        assert_eq!(reviews.may(&user("a"), "get", "proxy", "n").await, Ok(false));
        assert_eq!(reviews.may(&user("a"), "get", "proxy", "n").await, Ok(false));
        assert_eq!(asked.lock().unwrap().len(), 2);
        // What was refused is forgotten sooner.
        tokio::time::sleep(Duration::from_millis(40)).await;
        assert_eq!(reviews.may(&user("a"), "get", "proxy", "n").await, Ok(false));
        assert_eq!(asked.lock().unwrap().len(), 3);
        let spec: Value = serde_json::from_str(&asked.lock().unwrap()[0].1).unwrap();
        let attributes =
            json!({ "verb": "get", "version": "v1", "resource": "nodes", "subresource": "stats", "name": "n" });
        assert_eq!(spec["spec"]["resourceAttributes"], attributes);
        assert_eq!(spec["spec"]["groups"], json!(["g"]));
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_api_server_is_asked_again_and_a_refusal_is_not() {
        let yes = r#"{"status":{"allowed":true}}"#;
        let (busy, asked) = reviews(vec![Err("connection refused"), Ok((503, "")), Ok((201, yes))]);
        assert_eq!(busy.may(&user("a"), "get", "stats", "n").await, Ok(true));
        assert_eq!(asked.lock().unwrap().len(), 3);
        let (away, asked) = reviews(vec![Err("connection refused")]);
        assert_eq!(away.may(&user("a"), "get", "stats", "n").await, Err("connection refused".to_owned()));
        assert_eq!(asked.lock().unwrap().len(), 5);
        let (forbidden, asked) = reviews(vec![Ok((403, "{}"))]);
        assert!(forbidden.may(&user("a"), "get", "stats", "n").await.is_err());
        assert_eq!(asked.lock().unwrap().len(), 1);
    }

    #[test]
    fn headers_with_a_bearer_token_are_told_from_others() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer(" bearer abc more"), Some("abc"));
        assert_eq!(bearer("Basic abc"), None);
        assert_eq!(bearer("Bearer "), None);
        assert_eq!(bearer("abc"), None);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut kept = Kept::default();
        for number in 0..MOST + 10 {
            kept.put(number.to_string(), number, Duration::from_secs(60));
        }
        assert!(kept.answers.len() <= MOST);
        assert_eq!(kept.get(&(MOST + 9).to_string()), Some(MOST + 9));
        kept.put("none".to_owned(), 1, Duration::ZERO);
        assert_eq!(kept.get("none"), None);
    }
}
