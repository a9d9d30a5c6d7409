//! The domain in the engine: pods in, questions out, answers into environments and volumes.

use super::*;
use crate::{fixtures, pods};
use components::edge::api::{Answered, ApiAnswer, ApiEffect, ApiEvent, ApiIngress, EventKind};
use components::edge::{Answer, Completion, Effect, Ingress, Outcome, Work};
use components::node::{ApiConfig, Boot, Machine, ObjectStrategy};
use components::objects::{ObjectKind, TokenKey};
use components::spec::{EnvFrom, FileSource, FilesKind, PodSpec, Volume, VolumeSource};
use components::time::{Now, Wall};
use std::sync::Arc;
use std::time::Duration;

struct Node {
    engine: Engine,
    now: Now,
    works: Vec<Work>,
    cancels: Vec<Ticket>,
}

impl Node {
    fn new(strategy: Option<ObjectStrategy>) -> Self {
        let mut config = fixtures::node();
        config.api = strategy.map(|objects| ApiConfig { objects, ..ApiConfig::default() });
        let boot = Boot { config, machine: Machine::default(), records: Vec::new(), seed: 7, tickets: 0 };
        let mut engine = Engine::new(boot);
        crate::plugin(&mut engine);
        engine.set_checks(true);
        Self { engine, now: Now { mono: Mono(0), wall: Wall(0) }, works: Vec::new(), cancels: Vec::new() }
    }

    fn tick(&mut self, seconds: u64, batch: Vec<Ingress>) {
        self.now.mono = self.now.mono.after(Duration::from_secs(seconds));
        self.now.wall.0 += i64::try_from(seconds).unwrap() * 1_000_000_000;
        let out = self.engine.tick(self.now, batch);
        self.works.extend(out.works.into_iter().filter(|work| matches!(work.effect, Effect::Api(_))));
        self.cancels.extend(out.cancels);
    }

    fn spawn(&mut self, spec: &PodSpec) -> Entity {
        let now = self.now;
        let pod = pods::spawn_pod(self.engine.world_mut(), &Arc::new(spec.clone()), now);
        self.touch(pod);
        pod
    }

    fn touch(&mut self, pod: Entity) {
        self.engine.world_mut().resource_mut::<Touched>().add(pod);
        self.tick(0, Vec::new());
    }

    /// Questions since the last call whose path holds this, as method and path without its version.
    fn asked(&mut self, part: &str) -> Vec<(Ticket, String)> {
        let shown = |work: &Work| {
            let Effect::Api(effect) = &work.effect else { return None };
            let verb = match effect {
                ApiEffect::Request(request) | ApiEffect::Bootstrap(request) => request.method.as_str(),
                ApiEffect::Watch(_) => "WATCH",
            };
            effect.path().contains(part).then(|| (work.ticket, format!("{verb} {}", effect.path())))
        };
        let found = self.works.iter().filter_map(shown).collect();
        self.works.retain(|work| shown(work).is_none());
        found
    }

    fn answer(&mut self, ticket: Ticket, status: u16, body: &str) {
        let answered = Answered { status, secret: false, body: Arc::from(body), retry_after: None };
        let outcome = Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))));
        self.tick(0, vec![Ingress::Completed(Completion { ticket, outcome })]);
    }

    fn state(&self, text: &str) -> Option<&ObjectState> {
        self.engine.world().resource::<Objects>().entries.get(&fixtures::place(text)).map(|entry| &entry.state)
    }

    fn refs(&self, pod: Entity) -> &PodRefs {
        self.engine.world().get::<PodRefs>(pod).unwrap()
    }

    fn end(&mut self, pod: Entity, stage: Stage) {
        self.engine.world_mut().get_mut::<Lifecycle>(pod).unwrap().stage = stage;
        self.touch(pod);
    }
}

fn pod(uid: &str, object: &str) -> PodSpec {
    let mut spec = fixtures::spec("always a");
    spec.uid = uid.into();
    spec.name = uid.into();
    spec.containers[0].env_from = vec![EnvFrom { prefix: String::new(), object: fixtures::reference(object) }];
    spec
}

fn list(items: &str) -> String {
    format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#)
}

fn map(version: u32) -> String {
    format!(r#"{{"metadata":{{"name":"m","uid":"u","resourceVersion":"{version}"}},"data":{{"k":"v"}}}}"#)
}

#[test]
fn an_object_is_asked_for_once_whatever_the_number_of_pods() {
    let mut node = Node::new(Some(ObjectStrategy::Watch));
    let (a, b) = (node.spawn(&pod("a", "map:m")), node.spawn(&pod("b", "map:m")));
    let asked = node.asked("configmaps");
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert_eq!(node.state("map:m"), Some(&ObjectState::Unread));
    let versions = (node.refs(a).version, node.refs(b).version);
    node.answer(asked[0].0, 200, &list(&map(4)));
    assert!(matches!(node.state("map:m"), Some(ObjectState::Here(data)) if data.resource_version == "4"));
    assert_eq!((node.refs(a).version, node.refs(b).version), (versions.0 + 1, versions.1 + 1));
    let watch = node.asked("configmaps");
    assert!(watch.len() == 1 && watch[0].1.starts_with("WATCH"), "{watch:?}");
    let events = vec![ApiEvent { kind: EventKind::Deleted, object: map(6).into() }];
    let told = ApiIngress::WatchEvents { watch: watch[0].0, secret: false, events };
    node.tick(1, vec![Ingress::Api(told)]);
    assert_eq!(node.state("map:m"), Some(&ObjectState::Missing));
    node.end(a, Stage::Terminated);
    assert!(node.cancels.is_empty(), "the other pod still needs it");
    node.end(b, Stage::Terminated);
    assert_eq!((node.state("map:m"), node.cancels.as_slice()), (None, [watch[0].0].as_slice()));
    assert!(node.refs(b).objects.is_empty());
}

#[test]
fn what_was_known_stays_while_the_server_is_gone() {
    let mut node = Node::new(Some(ObjectStrategy::Cache));
    node.spawn(&pod("a", "map:m"));
    let asked = node.asked("configmaps");
    node.answer(asked[0].0, 500, "{}");
    let why = "failed to sync configmap cache: timed out waiting for the condition";
    assert_eq!(node.state("map:m"), Some(&ObjectState::Failed(why.to_owned())));
    node.tick(5, Vec::new());
    let asked = node.asked("configmaps");
    node.answer(asked[0].0, 200, &map(4));
    assert!(matches!(node.state("map:m"), Some(ObjectState::Here(_))));
    node.tick(70, Vec::new());
    let asked = node.asked("configmaps");
    node.answer(asked[0].0, 500, "{}");
    assert!(matches!(node.state("map:m"), Some(ObjectState::Here(_))));
}

#[test]
fn an_answer_that_comes_after_the_last_pod_changes_nothing() {
    let mut node = Node::new(Some(ObjectStrategy::Watch));
    let a = node.spawn(&pod("a", "secret:s"));
    let asked = node.asked("secrets");
    node.end(a, Stage::Terminated);
    node.spawn(&pod("b", "secret:s"));
    let again = node.asked("secrets");
    assert_eq!(again.len(), 1);
    node.answer(asked[0].0, 404, "{}");
    assert_eq!(node.state("secret:s"), Some(&ObjectState::Unread), "it was not the newer pod's question");
}

#[test]
fn a_node_without_a_cluster_asks_nothing_and_says_so() {
    let mut node = Node::new(None);
    node.spawn(&pod("a", "map:m"));
    assert!(node.works.is_empty());
    let why = "couldn't get configmap default/m, no kubeClient defined";
    assert_eq!(node.state("map:m"), Some(&ObjectState::Failed(why.to_owned())));
}

#[test]
fn services_are_followed_from_the_start() {
    let mut node = Node::new(Some(ObjectStrategy::Watch));
    node.tick(0, Vec::new());
    let asked = node.asked("services");
    assert_eq!(asked[0].1, "GET /api/v1/services?fieldSelector=spec.clusterIP%21%3DNone&resourceVersion=0");
    let service = r#"{"metadata":{"namespace":"n","name":"s","resourceVersion":"3"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80}]}}"#;
    node.answer(asked[0].0, 200, &list(service));
    let known = |node: &Node| {
        let services = node.engine.world().resource::<Services>();
        (services.synced, services.list.len())
    };
    assert_eq!(known(&node), (true, 1));
    let watch = node.asked("services")[0].0;
    let events = vec![ApiEvent { kind: EventKind::Deleted, object: service.into() }];
    node.tick(1, vec![Ingress::Api(ApiIngress::WatchEvents { watch, secret: false, events })]);
    assert_eq!(known(&node), (true, 0));
}

#[test]
fn a_token_is_fetched_renewed_and_kept_to_the_pod() {
    let mut node = Node::new(Some(ObjectStrategy::Watch));
    let mut spec = pod("a", "map:m");
    "robot".clone_into(&mut spec.service_account);
    let source = FileSource::Token { audience: String::new(), seconds: 3600, path: "token".to_owned(), mode: 0o644 };
    let source = VolumeSource::Files { kind: FilesKind::Projected, sources: vec![source] };
    spec.volumes = vec![Volume { name: "t".into(), source }];
    let a = node.spawn(&spec);
    let asked = node.asked("/token");
    assert_eq!(asked[0].1, "POST /api/v1/namespaces/default/serviceaccounts/robot/token");
    let body = |hours: u32, text: &str| {
        format!(
            r#"{{"spec":{{"expirationSeconds":3600}},"status":{{"token":"{text}","expirationTimestamp":"1970-01-01T0{hours}:00:00Z"}}}}"#
        )
    };
    let key = TokenKey { audience: String::new(), seconds: 3600 };
    let token = |node: &Node| {
        let token = node.refs(a).tokens[&key].token.clone();
        token.map(|token| String::from_utf8(token.text.0.to_vec()).unwrap())
    };
    node.answer(asked[0].0, 201, &body(1, "first"));
    assert_eq!(token(&node).as_deref(), Some("first"));
    node.tick(2800, Vec::new());
    assert!(node.asked("/token").is_empty());
    node.tick(80, Vec::new());
    let again = node.asked("/token");
    assert_eq!(again.len(), 1);
    node.answer(again[0].0, 500, "{}");
    assert_eq!(token(&node).as_deref(), Some("first"), "the old one is used until a newer one comes");
    node.tick(3, Vec::new());
    let again = node.asked("/token");
    node.answer(again[0].0, 201, &body(2, "second"));
    assert_eq!(token(&node).as_deref(), Some("second"));
    node.end(a, Stage::Terminated);
    node.tick(7200, Vec::new());
    assert!(node.asked("/token").is_empty());
}

#[test]
fn kinds_are_told_apart() {
    let mut node = Node::new(Some(ObjectStrategy::Get));
    node.spawn(&pod("a", "secret:m"));
    node.spawn(&pod("b", "map:m"));
    assert_eq!(node.asked("secrets")[0].1, "GET /api/v1/namespaces/default/secrets/m");
    assert_eq!(node.asked("configmaps")[0].1, "GET /api/v1/namespaces/default/configmaps/m");
    let kinds: Vec<ObjectKind> = node.engine.world().resource::<Objects>().entries.keys().map(|key| key.kind).collect();
    assert_eq!(kinds, [ObjectKind::ConfigMap, ObjectKind::Secret]);
}
