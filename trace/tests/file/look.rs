//! Looking into traces: numbers, one pod's story, the page.

use crate::sample;
use components::edge::cri::*;
use components::edge::sources::*;
use components::edge::*;
use components::ids::Ticket;
use trace::info::info;
use trace::page::page;
use trace::story::{Story, story};
use trace::{Builder, Ending, TickEffects};

fn work(ticket: u64, effect: CriEffect) -> Work {
    Work { effect: Effect::Cri(effect), ..sample::stop(ticket, 30, 0) }
}

fn answer(ticket: u64, answer: CriAnswer) -> Ingress {
    let outcome = Outcome::Done(Answer::Cri(answer));
    Ingress::Completed(Completion { ticket: Ticket(ticket), outcome })
}

fn read(objects: &[(&str, u128)]) -> Ingress {
    let manifest = |(name, digest): &(&str, u128)| Manifest {
        origin: format!("/m/{name}.yaml").into(),
        index: 0,
        digest: *digest,
        json: format!(r#"{{"kind":"Pod","metadata":{{"name":"{name}"}}}}"#).into(),
    };
    let manifests = objects.iter().map(manifest).collect();
    let answer = SourcesAnswer::ManifestsRead { source: Source::File, manifests, problems: Vec::new() };
    let outcome = Outcome::Done(Answer::Sources(answer));
    Ingress::Completed(Completion { ticket: Ticket(1), outcome })
}

fn listed(ticket: u64, state: ContainerState) -> Ingress {
    let sandbox = |id: &str, pod: &str| SandboxBrief { id: id.into(), pod: pod.into(), state: SandboxState::Ready };
    let container = |id: &str, sandbox: &str, state| ContainerBrief { id: id.into(), sandbox: sandbox.into(), state };
    answer(
        ticket,
        CriAnswer::RuntimeListed(RuntimeList {
            sandboxes: vec![sandbox("s-other", "uid-2"), sandbox("sandbox-of-web-1", "uid-1")],
            containers: vec![
                container("c-other", "s-other", ContainerState::Exited),
                container("container-of-web-1", "sandbox-of-web-1", state),
            ],
        }),
    )
}

/// The life of pod `default/web-node-1`, beside another.
fn life() -> Vec<u8> {
    let sandbox = || {
        Box::new(SandboxConfig { name: "web-node-1".into(), namespace: "default".into(), ..SandboxConfig::default() })
    };
    let container = Box::new(ContainerConfig { name: "c".into(), ..ContainerConfig::default() });
    let run = CriEffect::RunSandbox { config: sandbox(), handler: String::new() };
    let create =
        CriEffect::CreateContainer { sandbox: "sandbox-of-web-1".into(), config: container, sandbox_config: sandbox() };
    let start = CriEffect::StartContainer { id: "container-of-web-1".into() };
    let stop = CriEffect::StopContainer { id: "container-of-web-1".into(), grace_seconds: 30 };
    let other = Work {
        lane: Lane::Pod { uid: "uid-2".into(), strand: 0 },
        ..work(9, CriEffect::StopSandbox { id: "s-other".into() })
    };
    let ticks: Vec<(Vec<Ingress>, Vec<Work>)> = vec![
        (vec![read(&[("db", 1), ("web", 1)])], vec![work(2, run), other]),
        (vec![answer(2, CriAnswer::SandboxStarted { id: "sandbox-of-web-1".into() })], vec![work(3, create)]),
        (vec![answer(3, CriAnswer::ContainerCreated { id: "container-of-web-1".into() })], vec![work(4, start)]),
        (vec![listed(5, ContainerState::Running)], vec![]),
        (vec![listed(6, ContainerState::Running), read(&[("db", 2), ("web", 1)])], vec![]),
        (vec![listed(7, ContainerState::Exited), read(&[("db", 2)])], vec![work(8, stop)]),
    ];
    let mut builder = Builder::new(&sample::header()).unwrap();
    for (n, (inputs, works)) in ticks.iter().enumerate() {
        let tick = n as u64 + 1;
        builder.begin(tick, sample::now(tick), inputs).unwrap();
        builder.end(&TickEffects { works, ..TickEffects::default() }).unwrap();
    }
    builder.finish(Ending::Closed).unwrap()
}

#[test]
fn a_pod_has_its_story_by_any_of_its_names() {
    let data = life();
    let why = "(stop_containers: the pod is terminating)";
    let expect = [
        "1 < manifest /m/web.yaml appeared".to_owned(),
        format!("1 > #2 RunSandbox default/web-node-1 attempt 0 {why}"),
        "2 < Completed #2 SandboxStarted sandbox-of-w default/web-node-1 to RunSandbox default/web-node-1 attempt 0"
            .to_owned(),
        format!("2 > #3 CreateContainer default/web-node-1/c attempt 0 {why}"),
        "3 < Completed #3 ContainerCreated container-of default/web-node-1/c to CreateContainer \
         default/web-node-1/c attempt 0"
            .to_owned(),
        format!("3 > #4 StartContainer container-of default/web-node-1/c {why}"),
        "4 < listed container-of default/web-node-1/c: container Running".to_owned(),
        "4 < listed sandbox-of-w default/web-node-1: sandbox Ready".to_owned(),
        "6 < listed container-of default/web-node-1/c: container Exited, was container Running".to_owned(),
        "6 < manifest /m/web.yaml is gone".to_owned(),
        format!("6 > #8 StopContainer container-of grace 30s default/web-node-1/c {why}"),
    ];
    for name in ["web", "web-node-1", "default/web", "default/web-node-1", "uid-1"] {
        let Story::Told { pods, events } = story(&data, name).unwrap() else { panic!("{name} is not known") };
        assert_eq!(pods, ["default/web-node-1 (uid-1)"]);
        let told: Vec<_> = events
            .iter()
            .map(|event| format!("{} {} {}", event.tick, if event.came_in { '<' } else { '>' }, event.text))
            .collect();
        assert_eq!(told, expect);
    }
    for name in ["we", "eb", "kube-system/web", ""] {
        let pods = vec!["default/web-node-1 (uid-1)".to_owned()];
        assert_eq!(story(&data, name).unwrap(), Story::Unknown(pods), "{name}");
    }
}

#[test]
fn numbers_count_every_kind() {
    let info = info(&life()).unwrap();
    assert_eq!((info.ticks, info.not_ended, info.gaps), (6, 0, (0, 0)));
    assert_eq!(info.inputs["RuntimeListed"], 3);
    assert_eq!(info.inputs["ManifestsRead"], 3);
    assert_eq!(info.decisions["StartContainer"], 1);
    assert_eq!(info.decisions.values().sum::<u64>(), 5);
    let text = info.to_string();
    assert!(text.contains("ticks      6 (1 to 6) over 5.000 s"), "{text}");
    assert!(text.contains("from boot, can be replayed"), "{text}");
}

#[test]
fn numbers_of_a_damaged_file_say_where() {
    let mut data = sample::small_blocks();
    let at = data.len() - 200;
    data[at] ^= 1;
    let info = info(&data).unwrap();
    assert!(info.ticks > 0);
    assert!(info.damage.unwrap().contains("damaged at byte"));
}

#[test]
fn the_page_stands_alone_and_shows_what_happened() {
    let page = page(&life(), "no divergence <ok>").unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.trim_end().ends_with("</html>"));
    for part in ["no divergence &lt;ok&gt;", "<svg", "default/web-node-1 (uid-1)", "StartContainer", "tick 3 +2.000 s"]
    {
        assert!(page.contains(part), "{part}");
    }
    for outside in ["http", "src=", "href=", "url(", "@import", "<script"] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(!page.contains("<details><summary>tick 4 "), "a relist alone is not news");
}
