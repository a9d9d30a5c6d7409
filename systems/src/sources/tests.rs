//! The domain in the engine: facts in, works and pod entities out.

use super::*;
use crate::pods;
use components::edge::{Completion, Ingress, Work};
use components::ids::Ticket;
use components::node::{Boot, Machine};
use components::time::Wall;
use components::world::ContainerRun;

fn config(file: bool, url: Option<&str>) -> NodeConfig {
    NodeConfig {
        node_name: "lab".into(),
        root_dir: "/r".to_owned(),
        pod_logs_dir: "/l".to_owned(),
        file_source: file,
        url_source: url.map(ToOwned::to_owned),
        url_check: Duration::from_secs(5),
        ..NodeConfig::default()
    }
}

struct Node {
    engine: Engine,
    now: Now,
    works: Vec<Work>,
}

impl Node {
    fn new(file: bool, url: Option<&str>) -> Self {
        let boot =
            Boot { config: config(file, url), machine: Machine::default(), records: Vec::new(), seed: 0, tickets: 0 };
        let mut engine = Engine::new(boot);
        pods::plugin(&mut engine);
        plugin(&mut engine);
        engine.set_checks(true);
        Self { engine, now: Now::default(), works: Vec::new() }
    }

    fn tick(&mut self, seconds: u64, batch: Vec<Ingress>) -> &[Work] {
        self.now = Now {
            mono: self.now.mono.after(Duration::from_secs(seconds)),
            wall: Wall(self.now.wall.0 + 1_000_000_000 * i64::try_from(seconds).unwrap()),
        };
        self.works = self.engine.tick(self.now, batch).works;
        &self.works
    }

    /// Ticks, and tells which reads were asked for.
    fn asked(&mut self, seconds: u64, batch: Vec<Ingress>) -> Vec<SourcesEffect> {
        let effects = self.tick(seconds, batch).iter().map(|work| match &work.effect {
            Effect::Sources(effect) => effect.clone(),
            other => panic!("unexpected {other:?}"),
        });
        effects.collect()
    }

    fn ticket(&self) -> Ticket {
        self.works.last().unwrap().ticket
    }

    fn done(&self, manifests: &[(&str, &str)]) -> Ingress {
        let manifests = manifests.iter().map(|(origin, fields)| manifest(origin, fields)).collect();
        self.answer(SourcesAnswer::ManifestsRead { source: Source::File, manifests, problems: Vec::new() })
    }

    fn answer(&self, answer: SourcesAnswer) -> Ingress {
        self.ended(Outcome::Done(Answer::Sources(answer)))
    }

    fn failed(&self, class: FailureClass) -> Ingress {
        self.ended(Outcome::Failed(Failure { class, message: "it says no".to_owned() }))
    }

    fn ended(&self, outcome: Outcome) -> Ingress {
        Ingress::Completed(Completion { ticket: self.ticket(), outcome })
    }

    /// Touches the directory, lets it be read, and answers with `manifests`.
    fn read(&mut self, manifests: &[(&str, &str)]) {
        if self.works.is_empty() {
            self.tick(1, vec![Ingress::Sources(SourcesIngress::ManifestsTouched)]);
        }
        let answer = self.done(manifests);
        self.tick(1, vec![answer]);
    }

    /// Every pod: uid, name, `removed`, name of the successor's container, names of its containers' indexes.
    fn pods(&self) -> String {
        let world = self.engine.world();
        let mut all = Vec::new();
        for (uid, pod) in &world.resource::<PodIndex>().by_uid {
            let desired = world.get::<Desired>(*pod).unwrap();
            let spec = desired.spec.as_ref().unwrap();
            let containers = world.get::<PodContainers>(*pod).unwrap().entities();
            let indexes: Vec<u16> = containers.iter().map(|c| world.get::<ContainerRun>(*c).unwrap().index).collect();
            assert!(indexes.iter().enumerate().all(|(at, index)| at == usize::from(*index)));
            assert_eq!(indexes.len(), spec.containers.len());
            let removed = if desired.removed { " removed" } else { "" };
            let image = |spec: &PodSpec| spec.containers[0].image.to_string();
            let next = desired.successor.as_ref().map(|spec| format!(" then {}", image(spec))).unwrap_or_default();
            all.push(format!("{uid} {} {}{removed}{next}", spec.name, image(spec)));
        }
        all.join(", ")
    }

    fn pod(&self, uid: &str) -> Entity {
        self.engine.world().resource::<PodIndex>().by_uid[&PodUid::from(uid)]
    }

    fn state(&self, source: Source) -> &SourceState {
        &self.engine.world().resource::<SourceStates>().states[&source]
    }
}

/// `NAME UID IMAGE` as an object.
fn manifest(origin: &str, fields: &str) -> Manifest {
    let mut words = fields.split_whitespace();
    let (name, uid, image) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let json = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","uid":"{uid}"}},"spec":{{"containers":[{{"name":"c","image":"{image}"}}]}}}}"#
    );
    let digest = components::fnv::fnv1a_128(json.as_bytes());
    Manifest { origin: origin.into(), index: 0, digest, json: json.into() }
}

fn removed(origins: &[&str]) -> Vec<Ingress> {
    let origins = origins.iter().map(|origin| Arc::from(*origin)).collect();
    vec![Ingress::Sources(SourcesIngress::ManifestsRemoved { origins })]
}

fn touched() -> Vec<Ingress> {
    vec![Ingress::Sources(SourcesIngress::ManifestsTouched)]
}

#[test]
fn the_schedule_has_no_hidden_order() {
    Node::new(true, Some("http://h/")).engine.build_schedule().unwrap();
}

#[test]
fn every_source_is_read_at_start_and_then_by_its_period() {
    let mut node = Node::new(true, Some("http://h/"));
    assert_eq!(node.engine.next_deadline(), Some(Mono(0)));
    assert_eq!(node.asked(0, vec![]), [SourcesEffect::ReadManifests, SourcesEffect::FetchManifestUrl]);
    let [file, url] = [node.works[0].ticket, node.works[1].ticket];
    // Nothing more is asked while both are under way.
    assert_eq!(node.asked(100, vec![]), []);
    let failed = Outcome::Failed(Failure { class: FailureClass::Other, message: "no".to_owned() });
    let failures = [file, url].map(|ticket| Ingress::Completed(Completion { ticket, outcome: failed.clone() }));
    assert_eq!(node.asked(0, failures.to_vec()), []);
    assert_eq!(node.asked(4, vec![]), []);
    assert_eq!(node.asked(1, vec![]), [SourcesEffect::FetchManifestUrl]);
    assert_eq!(node.asked(15, vec![]), [SourcesEffect::ReadManifests]);
}

#[test]
fn without_a_source_nothing_is_asked_and_all_are_read() {
    let mut node = Node::new(false, None);
    assert_eq!(node.asked(1, touched()), []);
    assert!(node.engine.world().resource::<SourceStates>().all_read());
}

#[test]
fn a_touch_is_never_lost() {
    let mut node = Node::new(true, None);
    assert_eq!(node.asked(0, vec![]), [SourcesEffect::ReadManifests]);
    // Touched while a read is under way: read again as soon as it ends, once.
    assert_eq!(node.asked(0, touched()), []);
    assert_eq!(node.asked(0, touched()), []);
    let done = Ingress::Completed(Completion { ticket: Ticket(1), outcome: Outcome::TimedOut });
    assert_eq!(node.asked(0, vec![done]), [SourcesEffect::ReadManifests]);
    let done = node.done(&[]);
    assert_eq!(node.asked(0, vec![done]), []);
    // Touched in peace: read at once, and the period starts anew with the answer.
    assert_eq!(node.asked(10, touched()), [SourcesEffect::ReadManifests]);
    let done = node.done(&[]);
    assert_eq!(node.asked(5, vec![done]), []);
    assert_eq!(node.asked(19, vec![]), []);
    assert_eq!(node.asked(1, vec![]), [SourcesEffect::ReadManifests]);
}

#[test]
fn pods_follow_the_source() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    assert!(!node.state(Source::File).read);
    node.read(&[("a", "web 1 img:1"), ("b", "db 2 img:1")]);
    assert!(node.state(Source::File).read);
    assert_eq!(node.pods(), "1 web-lab img:1, 2 db-lab img:1");
    let (web, db) = (node.pod("1"), node.pod("2"));
    let version = |node: &Node, pod| node.engine.world().get::<Desired>(pod).unwrap().version;
    assert_eq!((version(&node, web), version(&node, db)), (1, 1));
    node.read(&[("a", "web 1 img:2"), ("b", "db 2 img:1")]);
    assert_eq!(node.pods(), "1 web-lab img:2, 2 db-lab img:1");
    assert_eq!((version(&node, web), version(&node, db)), (2, 1));
    node.read(&[("b", "db 2 img:1")]);
    assert_eq!(node.pods(), "1 web-lab img:2 removed, 2 db-lab img:1");
    assert_eq!(node.pod("1"), web);
}

#[test]
fn a_failed_read_keeps_every_pod() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 1 img:1")]);
    for class in [FailureClass::NotFound, FailureClass::Denied, FailureClass::Other] {
        node.tick(1, touched());
        let failed = node.failed(class);
        node.tick(1, vec![failed]);
        assert_eq!(node.pods(), "1 web-lab img:1");
    }
    // The same problem again is not reported again.
    assert_eq!(node.state(Source::File).problems_total, 1);
    node.tick(1, touched());
    let unchanged = node.answer(SourcesAnswer::ManifestsUnchanged { source: Source::File });
    node.tick(1, vec![unchanged]);
    assert!(node.state(Source::File).problems.is_empty());
    assert_eq!(node.pods(), "1 web-lab img:1");
}

#[test]
fn a_path_that_is_missing_from_the_start_is_an_empty_source() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    let failed = node.failed(FailureClass::Denied);
    node.tick(1, vec![failed]);
    assert!(!node.state(Source::File).read);
    node.tick(1, touched());
    let failed = node.failed(FailureClass::NotFound);
    node.tick(1, vec![failed]);
    assert!(node.state(Source::File).read);
    assert_eq!(node.state(Source::File).problems.len(), 1);
}

#[test]
fn unchanged_against_nothing_is_no_answer() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    let unchanged = node.answer(SourcesAnswer::ManifestsUnchanged { source: Source::File });
    node.tick(1, vec![unchanged]);
    assert!(!node.state(Source::File).read);
    assert_eq!(node.state(Source::File).problems.len(), 1);
}

#[test]
fn an_empty_answer_of_the_url_removes_its_pods_and_is_reported() {
    let mut node = Node::new(false, Some("http://h/"));
    node.tick(0, vec![]);
    let read = |node: &Node, manifests, problems| {
        node.answer(SourcesAnswer::ManifestsRead { source: Source::Http, manifests, problems })
    };
    let full = read(&node, vec![manifest("http://h/", "web 1 img:1")], vec![]);
    node.tick(1, vec![full]);
    assert_eq!(node.pods(), "1 web-lab img:1");
    node.tick(5, vec![]);
    let problem = ManifestProblem { origin: "http://h/".into(), message: "zero-length data received".to_owned() };
    let empty = read(&node, vec![], vec![problem]);
    node.tick(1, vec![empty]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed");
    assert_eq!(node.state(Source::Http).problems.len(), 1);
}

#[test]
fn a_pod_put_back_before_it_began_to_end_goes_on() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 1 img:1")]);
    node.read(&[]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed");
    node.read(&[("a", "web 1 img:2")]);
    assert_eq!(node.pods(), "1 web-lab img:2");
}

#[test]
fn a_pod_put_back_while_it_ends_follows_itself() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 1 img:1")]);
    node.read(&[]);
    let web = node.pod("1");
    node.engine.world_mut().get_mut::<Lifecycle>(web).unwrap().stage = Stage::Terminating;
    node.read(&[("a", "web 1 img:2")]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:2");
    node.read(&[("a", "web 1 img:3")]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:3");
    node.read(&[]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed");
}

#[test]
fn a_file_that_was_gone_between_two_reads_begins_its_pod_anew() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    let both = [("a", "web 1 img:1"), ("b", "db 2 img:1")];
    node.read(&both);
    assert_eq!(node.asked(1, removed(&["a", "elsewhere"])), [SourcesEffect::ReadManifests]);
    node.read(&both);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:1, 2 db-lab img:1");
    // Once: later reads change nothing.
    node.read(&both);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:1, 2 db-lab img:1");
    // Not there again, or with another pod.
    node.tick(1, removed(&["b"]));
    node.read(&[("a", "web 1 img:1"), ("b", "db 3 img:1")]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:1, 2 db-lab img:1 removed, 3 db-lab img:1");
}

#[test]
fn a_file_that_went_during_a_read_counts_for_the_next_one() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 1 img:1")]);
    node.tick(1, touched());
    let old = node.done(&[("a", "web 1 img:1")]);
    assert_eq!(node.engine.tick(node.now, removed(&["a"])).works, []);
    // What is being read may be from before.
    assert_eq!(node.asked(1, vec![old]), [SourcesEffect::ReadManifests]);
    assert_eq!(node.pods(), "1 web-lab img:1");
    // A read that fails brings nothing to compare with; one without its directory keeps its pods for good.
    let failed = node.failed(FailureClass::Other);
    node.tick(1, vec![failed]);
    node.tick(1, touched());
    node.read(&[("a", "web 1 img:1")]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:1");
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 1 img:1")]);
    node.tick(1, removed(&["a"]));
    let missing = node.failed(FailureClass::NotFound);
    node.tick(1, vec![missing]);
    node.tick(1, touched());
    node.read(&[("a", "web 1 img:1")]);
    assert_eq!(node.pods(), "1 web-lab img:1");
}

#[test]
fn another_name_for_a_uid_is_another_pod() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 1 img:1")]);
    node.read(&[("a", "www 1 img:2")]);
    assert_eq!(node.pods(), "1 web-lab img:1 removed then img:2");
}

#[test]
fn a_pod_of_the_runtime_is_claimed() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    let now = node.now;
    let orphan = pods::spawn_unclaimed(node.engine.world_mut(), &"1".into(), now);
    node.read(&[("a", "web 1 img:1")]);
    assert_eq!(node.pod("1"), orphan);
    assert_eq!(node.pods(), "1 web-lab img:1");
    let names = &node.engine.world().resource::<PodIndex>().by_full_name;
    assert_eq!(names["web-lab_default"], [orphan]);
}

#[test]
fn a_replacement_of_the_same_name_stands_behind_the_old_pod() {
    let mut node = Node::new(true, None);
    node.tick(0, vec![]);
    node.read(&[("a", "web 2 img:1")]);
    node.read(&[("a", "web 1 img:2")]);
    assert_eq!(node.pods(), "1 web-lab img:2, 2 web-lab img:1 removed");
    let names = &node.engine.world().resource::<PodIndex>().by_full_name;
    assert_eq!(names["web-lab_default"], [node.pod("2"), node.pod("1")]);
}
