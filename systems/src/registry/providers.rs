//! Logins of exec credential providers: which are asked for an image, with whose token, and how long an answer is good.
//!
//! Plain functions on [`ProviderRuns`]; what must be asked is returned as effects.

use super::keyring;
use crate::apicall::{self, Verdict, verdict};
use components::edge::api::{ApiEffect, ApiRequest, Body, Class, Method};
use components::edge::host::provider::{KeyType, RunProvider};
use components::edge::host::pulls::Coordinates;
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::{Answer, Effect, Outcome};
use components::fnv::fnv1a_128;
use components::objects::Token;
use components::providers::{
    Account, AnswerKey, CacheType, Provider, ProviderAnswer, ProviderAsk, ProviderRuns, Providers, TokenAttributes,
};
use components::pulls::{LoginSource, TrackedLogin};
use components::registry::RegistryLogin;
use components::spec::PodSpec;
use components::time::Mono;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// An answer that may not be kept serves the pulls that waited for it this long; a failure too.
const ONE_PULL: Duration = Duration::from_secs(5);
/// Age at which a service account is read again.
const ACCOUNT_AGE: Duration = Duration::from_secs(30);
/// Lifetime of tokens that are asked for.
const TOKEN_SECONDS: i64 = 3600;
/// Most answers that are kept.
const MAX_ANSWERS: usize = 4096;

/// Logins for an image, and what must be asked before they are known; a question under way is not asked again.
pub(super) fn find(
    image: &str,
    spec: &PodSpec,
    providers: &Providers,
    runs: &ProviderRuns,
    now: Mono,
) -> Result<Vec<TrackedLogin>, Vec<(ProviderAsk, Effect)>> {
    let repository = keyring::repository(image);
    let (mut logins, mut asks, mut waits) = (Vec::new(), Vec::new(), false);
    for (index, provider) in (0_u16..).zip(&providers.list) {
        if !provider.match_images.iter().any(|pattern| keyring::matches(pattern, &repository)) {
            continue;
        }
        match one(index, provider, &providers.dir, &repository, spec, runs, now) {
            Found::Logins(found, source) => {
                let source =
                    |login: &RegistryLogin| TrackedLogin { source: source.clone(), ..TrackedLogin::of_node(login) };
                logins.extend(found.iter().map(source));
            }
            Found::Nothing => {}
            Found::Ask(ask, effect) => {
                waits = true;
                if !runs.asking.values().any(|under_way| *under_way == ask) {
                    asks.push((ask, effect));
                }
            }
        }
    }
    if waits { Err(asks) } else { Ok(keyring::fitting(image, &logins)) }
}

enum Found<'a> {
    Logins(&'a [RegistryLogin], LoginSource),
    Nothing,
    Ask(ProviderAsk, Effect),
}

fn one<'a>(
    index: u16,
    provider: &Provider,
    dir: &str,
    repository: &str,
    spec: &PodSpec,
    runs: &'a ProviderRuns,
    now: Mono,
) -> Found<'a> {
    let whose = match &provider.token {
        None => Whose::default(),
        Some(token) if spec.service_account.is_empty() && token.require_service_account => return Found::Nothing,
        Some(_) if spec.service_account.is_empty() => Whose::default(),
        Some(token) => match whose(index, token, spec, runs, now) {
            Ok(Some(whose)) => whose,
            Ok(None) => return Found::Nothing,
            Err(asked) => {
                let (ask, effect) = *asked;
                return Found::Ask(ask, effect);
            }
        },
    };
    let registry = repository.split('/').next().unwrap_or_default();
    for part in [repository, registry, ""] {
        let key = AnswerKey { provider: index, image: part.to_owned(), account: whose.key.clone() };
        if let Some(answer) = runs.answers.get(&key).filter(|answer| answer.until > now) {
            return Found::Logins(&answer.logins, whose.of.map_or(LoginSource::Node, LoginSource::Account));
        }
    }
    if let (Some(token), None) = (&provider.token, &whose.token)
        && !whose.key.is_empty()
    {
        let (ask, effect) = ask_token(index, token, spec);
        return Found::Ask(ask, effect);
    }
    let key = AnswerKey { provider: index, image: repository.to_owned(), account: whose.key.clone() };
    Found::Ask(ProviderAsk::Run(key), run(provider, dir, repository, &whose))
}

/// In whose name a provider is asked.
#[derive(Default)]
struct Whose {
    /// The service account, where there is one.
    of: Option<Coordinates>,
    key: String,
    token: Option<String>,
    annotations: BTreeMap<String, String>,
}

/// `None` when the account lacks an annotation.
fn whose(
    index: u16,
    token: &TokenAttributes,
    spec: &PodSpec,
    runs: &ProviderRuns,
    now: Mono,
) -> Result<Option<Whose>, Box<(ProviderAsk, Effect)>> {
    let place = (spec.namespace.to_string(), spec.service_account.to_string());
    let good_for = |account: &Result<Account, String>| if account.is_ok() { ACCOUNT_AGE } else { ONE_PULL };
    let known = runs.accounts.get(&place).filter(|(read, account)| now.since(*read) < good_for(account));
    let Some((_, account)) = known else {
        let path =
            format!("/api/v1/namespaces/{}/serviceaccounts/{}", apicall::encode(&place.0), apicall::encode(&place.1));
        let request = Box::new(ApiRequest::get(path, Class::Object));
        return Err(Box::new((ProviderAsk::Account(place.0, place.1), Effect::Api(ApiEffect::Request(request)))));
    };
    let Ok(account) = account else { return Ok(None) };
    let mut annotations = BTreeMap::new();
    for key in &token.required_service_account_annotation_keys {
        match account.annotations.get(key) {
            Some(value) => annotations.insert(key.clone(), value.clone()),
            None => return Ok(None),
        };
    }
    for key in &token.optional_service_account_annotation_keys {
        annotations.extend(account.annotations.get(key).map(|value| (key.clone(), value.clone())));
    }
    let held = match runs.tokens.get(&(index, spec.uid.clone())) {
        Some(Err(until)) if *until > now => return Ok(None),
        Some(Ok(held)) if now.since(held.came) < lifetime(held) => {
            Some(String::from_utf8_lossy(&held.text.0).into_owned())
        }
        _ => None,
    };
    let mut key = vec![json!(place.0), json!(place.1), json!(account.uid), json!(annotations)];
    if token.cache_type == CacheType::Token {
        match &held {
            Some(text) => key.push(Value::from(format!("{:032x}", fnv1a_128(text.as_bytes())))),
            None => return Err(Box::new(ask_token(index, token, spec))),
        }
    }
    let of = Some(Coordinates { namespace: place.0, name: place.1, uid: account.uid.clone() });
    Ok(Some(Whose { of, key: Value::from(key).to_string(), token: held, annotations }))
}

/// How long a token is used.
fn lifetime(token: &Token) -> Duration {
    Duration::from_secs(u64::try_from(token.seconds).unwrap_or(0)) * 4 / 5
}

fn ask_token(index: u16, token: &TokenAttributes, spec: &PodSpec) -> (ProviderAsk, Effect) {
    let (namespace, account) = (apicall::encode(&spec.namespace), apicall::encode(&spec.service_account));
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let audience = &token.service_account_token_audience;
    let body = podspec::objects::token_request(audience, TOKEN_SECONDS, &spec.name, spec.uid.as_str());
    let request = ApiRequest { method: Method::Post, path, body: Body::Json(body), class: Class::Object, secret: true };
    (ProviderAsk::Token(index, spec.uid.clone()), Effect::Api(ApiEffect::Request(Box::new(request))))
}

fn run(provider: &Provider, dir: &str, image: &str, whose: &Whose) -> Effect {
    let mut request =
        json!({ "kind": "CredentialProviderRequest", "apiVersion": provider.api_version, "image": image });
    if let Some(token) = &whose.token {
        request["serviceAccountToken"] = token.as_str().into();
    }
    if !whose.annotations.is_empty() {
        request["serviceAccountAnnotations"] = json!(whose.annotations);
    }
    Effect::Host(HostEffect::RunProvider(Box::new(RunProvider {
        program: format!("{}/{}", dir.trim_end_matches('/'), provider.name),
        args: provider.args.clone(),
        env: provider.env.clone(),
        api_version: provider.api_version.clone(),
        request: components::ids::Sensitive(request.to_string()),
    })))
}

/// Takes the answer to a question. False when it was none of these.
pub(super) fn take(
    ticket: components::ids::Ticket,
    outcome: &Outcome,
    providers: &Providers,
    runs: &mut ProviderRuns,
    now: Mono,
) -> bool {
    let Some(ask) = runs.asking.remove(&ticket) else { return false };
    match ask {
        ProviderAsk::Account(namespace, name) => {
            let account = account(outcome);
            if let Err(error) = &account {
                tracing::error!(%namespace, %name, %error, "No logins for its pods: the service account cannot be read");
            }
            runs.accounts.insert((namespace, name), (now, account));
        }
        ProviderAsk::Token(index, pod) => match token(outcome, now) {
            Ok(token) => {
                runs.tokens.retain(|_, held| held.as_ref().is_ok_and(|held| now.since(held.came) < lifetime(held)));
                runs.tokens.insert((index, pod), Ok(token));
            }
            Err(error) => {
                tracing::error!(%error, "No token for a credential provider");
                // Pulls of the pod go on without this provider.
                runs.tokens.insert((index, pod), Err(now.after(ONE_PULL)));
            }
        },
        ProviderAsk::Run(key) => take_run(key, outcome, providers, runs, now),
    }
    true
}

fn take_run(key: AnswerKey, outcome: &Outcome, providers: &Providers, runs: &mut ProviderRuns, now: Mono) {
    let Some(provider) = providers.list.get(usize::from(key.provider)) else { return };
    let Outcome::Done(Answer::Host(HostAnswer::Provided(provided))) = outcome else {
        let error = match outcome {
            Outcome::Failed(failure) => failure.message.as_str(),
            Outcome::TimedOut => "it did not end in time",
            _ => "it was not run",
        };
        tracing::error!(provider = %provider.name, image = %key.image, %error, "No logins from a credential provider");
        return refuse(runs, key, now);
    };
    let registry = key.image.split('/').next().unwrap_or_default().to_owned();
    let part = match provided.key {
        KeyType::Image => key.image.clone(),
        KeyType::Registry => registry,
        KeyType::Global => String::new(),
    };
    let kept = Duration::from_nanos(provided.cache_nanos.unwrap_or(provider.default_cache_nanos));
    // What may not be kept is good for this image only.
    let part = if kept.is_zero() { key.image.clone() } else { part };
    let until = now.after(kept.max(ONE_PULL));
    put(runs, AnswerKey { image: part, ..key }, ProviderAnswer { logins: provided.logins.clone(), until }, now);
}

fn refuse(runs: &mut ProviderRuns, key: AnswerKey, now: Mono) {
    put(runs, key, ProviderAnswer { logins: Vec::new(), until: now.after(ONE_PULL) }, now);
}

fn put(runs: &mut ProviderRuns, key: AnswerKey, answer: ProviderAnswer, now: Mono) {
    if runs.answers.len() >= MAX_ANSWERS {
        runs.answers.retain(|_, answer| answer.until > now);
    }
    if runs.answers.len() >= MAX_ANSWERS {
        // Whoever needs one of them asks again.
        runs.answers.clear();
    }
    runs.answers.insert(key, answer);
}

fn account(outcome: &Outcome) -> Result<Account, String> {
    match verdict(outcome) {
        Verdict::Good(answered) => {
            let object: Value = serde_json::from_str(&answered.body).map_err(|error| error.to_string())?;
            let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
            let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
            Ok(Account {
                uid: object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
                annotations: annotations.into_iter().flatten().filter_map(text).collect(),
            })
        }
        Verdict::Refused(refusal) => Err(refusal.message),
        Verdict::Silent(error) => Err(error),
    }
}

fn token(outcome: &Outcome, now: Mono) -> Result<Token, String> {
    match verdict(outcome) {
        Verdict::Good(answered) => podspec::objects::token(&answered.body, now),
        Verdict::Refused(refusal) => Err(refusal.message),
        Verdict::Silent(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::edge::api::{Answered, ApiAnswer};
    use components::edge::host::provider::Provided;
    use components::edge::{Failure, FailureClass};
    use components::ids::{Sensitive, Ticket};

    struct Rig {
        providers: Providers,
        runs: ProviderRuns,
        spec: PodSpec,
        now: u64,
        asked: Option<Effect>,
    }

    impl Rig {
        fn new(token: Option<CacheType>) -> Self {
            let token = token.map(|cache_type| TokenAttributes {
                service_account_token_audience: "reg".to_owned(),
                cache_type,
                require_service_account: true,
                required_service_account_annotation_keys: vec!["role".to_owned()],
                optional_service_account_annotation_keys: vec!["more".to_owned()],
            });
            let provider = Provider {
                name: "p".to_owned(),
                match_images: vec!["*.example.com".to_owned()],
                default_cache_nanos: 60_000_000_000,
                api_version: "v".to_owned(),
                args: Vec::new(),
                env: Vec::new(),
                token,
            };
            let mut spec = fixtures::spec("always a");
            "robot".clone_into(&mut spec.service_account);
            let providers = Providers { dir: "/bin/".to_owned(), list: vec![provider] };
            Self { providers, runs: ProviderRuns::default(), spec, now: 1, asked: None }
        }

        /// User names of the logins; `None` while something is asked.
        fn find(&mut self, image: &str) -> Option<Vec<String>> {
            match find(image, &self.spec, &self.providers, &self.runs, Mono(self.now * 1_000_000_000)) {
                Ok(logins) => Some(logins.into_iter().map(|tracked| tracked.login.username.0).collect()),
                Err(asks) => {
                    for (ask, effect) in asks {
                        assert!(self.runs.asking.is_empty(), "one after the other");
                        self.runs.asking.insert(Ticket(1), ask);
                        self.asked = Some(effect);
                    }
                    None
                }
            }
        }

        fn answer(&mut self, outcome: &Outcome) {
            let now = Mono(self.now * 1_000_000_000);
            assert!(take(Ticket(1), outcome, &self.providers, &mut self.runs, now));
            assert!(!take(Ticket(1), outcome, &self.providers, &mut self.runs, now));
        }

        fn provide(&mut self, key: KeyType, cache: Option<u64>) -> Value {
            let Some(Effect::Host(HostEffect::RunProvider(run))) = self.asked.take() else {
                panic!("{:?}", self.asked)
            };
            assert_eq!(run.program, "/bin/p");
            let login = RegistryLogin {
                server: "*.example.com".to_owned(),
                username: Sensitive(format!("u{}", self.now)),
                password: "p".into(),
            };
            let cache_nanos = cache.map(|seconds| seconds * 1_000_000_000);
            let provided = Provided { key, cache_nanos, logins: vec![login] };
            self.answer(&Outcome::Done(Answer::Host(HostAnswer::Provided(Box::new(provided)))));
            serde_json::from_str(&run.request.0).unwrap()
        }

        fn api(&mut self, path: &str, body: &Value) {
            let Some(Effect::Api(ApiEffect::Request(request))) = self.asked.take() else { panic!("{:?}", self.asked) };
            assert_eq!(request.path, path);
            let answered = Answered { status: 200, secret: false, body: body.to_string().into(), retry_after: None };
            self.answer(&Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered)))));
        }
    }

    #[test]
    fn an_answer_is_kept_for_what_it_says_it_is_good_for() {
        for (key, other_image, other_registry) in
            [(KeyType::Image, false, false), (KeyType::Registry, true, false), (KeyType::Global, true, true)]
        {
            let mut rig = Rig::new(None);
            assert_eq!(rig.find("elsewhere/a:1"), Some(Vec::new()), "not its image");
            assert_eq!(rig.find("a.example.com/x:1"), None);
            assert_eq!(rig.find("a.example.com/x:2"), None, "asked once for all tags");
            let request = rig.provide(key, None);
            assert_eq!(request["image"], "a.example.com/x");
            assert_eq!(rig.find("a.example.com/x:3"), Some(vec!["u1".to_owned()]));
            assert_eq!(rig.find("a.example.com/y").is_some(), other_image, "{key:?}");
            rig.runs.asking.clear();
            assert_eq!(rig.find("b.example.com/y").is_some(), other_registry, "{key:?}");
            rig.runs.asking.clear();
            rig.now += 61;
            assert_eq!(rig.find("a.example.com/x"), None, "too old");
        }
    }

    #[test]
    fn what_may_not_be_kept_serves_one_pull_and_a_failure_too() {
        let mut rig = Rig::new(None);
        rig.find("a.example.com/x");
        rig.provide(KeyType::Global, Some(0));
        assert_eq!(rig.find("a.example.com/x"), Some(vec!["u1".to_owned()]));
        assert_eq!(rig.find("a.example.com/y"), None);
        rig.answer(&Outcome::Failed(Failure { class: FailureClass::Other, message: "exit status 1".into() }));
        assert_eq!(rig.find("a.example.com/y"), Some(Vec::new()));
        rig.now += 6;
        assert_eq!(rig.find("a.example.com/y"), None);
    }

    #[test]
    fn a_token_of_the_service_account_is_passed_on() {
        let mut rig = Rig::new(Some(CacheType::ServiceAccount));
        assert_eq!(rig.find("a.example.com/x"), None);
        let account = "/api/v1/namespaces/default/serviceaccounts/robot";
        rig.api(account, &json!({ "metadata": { "uid": "u", "annotations": { "role": "r", "other": "o" } } }));
        assert_eq!(rig.find("a.example.com/x"), None);
        let granted = json!({ "spec": { "expirationSeconds": 3600 },
            "status": { "token": "jwt", "expirationTimestamp": "2100-01-01T00:00:00Z" } });
        rig.api(&format!("{account}/token"), &granted);
        assert_eq!(rig.find("a.example.com/x"), None);
        let request = rig.provide(KeyType::Registry, Some(3600));
        assert_eq!(request["serviceAccountToken"], "jwt");
        assert_eq!(request["serviceAccountAnnotations"], json!({ "role": "r" }));
        assert!(rig.find("a.example.com/y").is_some());
        // Another pod of the account needs no token, one of another account everything.
        rig.spec.uid = "other".into();
        assert!(rig.find("a.example.com/y").is_some());
        "else".clone_into(&mut rig.spec.service_account);
        assert_eq!(rig.find("a.example.com/y"), None);
        rig.api("/api/v1/namespaces/default/serviceaccounts/else", &json!({ "metadata": { "uid": "v" } }));
        assert_eq!(rig.find("a.example.com/y"), Some(Vec::new()), "it lacks the annotation");
        rig.spec.service_account = Default::default();
        assert_eq!(rig.find("a.example.com/y"), Some(Vec::new()), "it has no account");
    }

    #[test]
    fn answers_by_token_are_for_one_pod_and_a_refused_token_is_not_asked_for_at_once() {
        let mut rig = Rig::new(Some(CacheType::Token));
        rig.find("a.example.com/x");
        let account = "/api/v1/namespaces/default/serviceaccounts/robot";
        rig.api(account, &json!({ "metadata": { "uid": "u", "annotations": { "role": "r" } } }));
        assert_eq!(rig.find("a.example.com/x"), None);
        rig.answer(&Outcome::TimedOut);
        assert_eq!(rig.find("a.example.com/x"), Some(Vec::new()));
        rig.now += 6;
        assert_eq!(rig.find("a.example.com/x"), None);
        let granted = json!({ "spec": { "expirationSeconds": 3600 },
            "status": { "token": "jwt", "expirationTimestamp": "2100-01-01T00:00:00Z" } });
        rig.api(&format!("{account}/token"), &granted);
        assert_eq!(rig.find("a.example.com/x"), None);
        rig.provide(KeyType::Global, Some(3600));
        assert!(rig.find("a.example.com/x").is_some());
        rig.spec.uid = "other".into();
        assert_eq!(rig.find("a.example.com/x"), None);
    }
}
