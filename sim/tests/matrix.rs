//! A matrix of generated pods (main containers × init × sidecars × restart policy × hook × exit × deafness), each played on
//! the simulator in virtual time with every invariant checked, and compared with an oracle of its end.
//!
//! `tests/matrix.json` holds the sample that is played on a real runtime, with what is expected of it;
//! `TICKLET_WRITE_MATRIX=1` writes it anew.

#[path = "matrix/cases.rs"]
mod cases;

use cases::{Case, Expected};
use components::edge::sources::Source;
use components::status::ReportedState;
use components::time::Mono;
use serde_json::json;
use sim::node::faults::Faults;
use sim::node::{Node, Options};
use std::path::PathBuf;

/// When a pod is looked at, and then removed.
const LOOK: u64 = 120;

const fn at(seconds: u64) -> Mono {
    Mono(seconds * 1_000_000_000)
}

struct Played {
    node: Node,
    name: String,
}

impl Played {
    /// Seconds at which these effects start, for example `StartContainer default/m1/c0`.
    fn starts(&self, effect: &str, container: &str) -> Vec<f64> {
        let line = format!("start {effect} default/{}/{container}", self.name);
        let found = self.node.log.iter().filter(|l| l.text == line);
        found.map(|l| l.at.since(Mono(0)).as_secs_f64()).collect()
    }
}

fn play(case: &Case) -> Result<Played, String> {
    let mut options = Options::new(1, systems::plugin);
    options.log = true;
    options.images = vec!["busybox:1".into()];
    let mut node = Node::new(options, Faults::none(1));
    let origin = format!("/etc/kubernetes/manifests/{}.yaml", case.name);
    node.put(Source::File, &origin, &case.manifest("busybox:1").to_string());
    node.run_until(at(LOOK));
    let expected = case.expected();
    let mut played = Played { node, name: case.name.clone() };
    settled(&played, case, &expected)?;
    played.node.remove(Source::File, &origin);
    played.node.run_until(at(LOOK + expected.gone));
    ended(&played, &expected)?;
    match played.node.checks.violations.first() {
        Some(violation) => Err(format!("at {:?}: {}", violation.at, violation.text)),
        None => Ok(played),
    }
}

/// The pod after it was left alone.
fn settled(played: &Played, case: &Case, expected: &Expected) -> Result<(), String> {
    let pod = format!("default/{}", case.name);
    let view = played.node.view(&pod).ok_or("it is not published")?;
    let phase = view.status.phase.as_str();
    if phase != expected.phase {
        return Err(format!("phase {phase} instead of {}; {}", expected.phase, view.last_event));
    }
    for n in 0..case.main.len() {
        let name = format!("c{n}");
        let starts = played.starts("StartContainer", &name).len();
        let fits = match (expected.started, expected.loops[n]) {
            (false, _) => starts == 0,
            (true, true) => starts >= 3,
            (true, false) => starts == 1,
        };
        if !fits {
            return Err(format!("{name} was started {starts} times"));
        }
        let runs = !played.node.running(&pod, Some(&name)).is_empty();
        if expected.serves[n] && !runs {
            return Err(format!("{name} does not run"));
        }
        let report = view.status.containers.iter().find(|c| *c.name == *name).ok_or("a report is missing")?;
        if let Some(code) = expected.code[n] {
            match &report.state {
                ReportedState::Terminated { exit_code, .. } if *exit_code == code && !runs => {}
                state => return Err(format!("{name} is {state:?} instead of ended with {code}")),
            }
        }
        if starts > 0 && u64::from(report.restart_count) + 1 < starts as u64 {
            return Err(format!("{name} was started {starts} times and has restart count {}", report.restart_count));
        }
    }
    let over = matches!(expected.phase, "Succeeded" | "Failed");
    for n in 0..case.sidecars {
        let name = format!("s{n}");
        let (starts, running) =
            (played.starts("StartContainer", &name).len(), played.node.running(&pod, Some(&name)).len());
        if starts != 1 || running != usize::from(!over) {
            return Err(format!("sidecar {name}: {starts} starts, {running} run"));
        }
    }
    for (n, code) in case.init.iter().enumerate() {
        let starts = played.starts("StartContainer", &format!("i{n}")).len();
        if if *code != 0 && expected.init_loops { starts < 3 } else { starts != 1 } {
            return Err(format!("init container i{n} was started {starts} times"));
        }
    }
    let firsts: Vec<String> = (0..case.sidecars)
        .map(|n| format!("s{n}"))
        .chain((0..case.init.len()).map(|n| format!("i{n}")))
        .chain(expected.started.then(|| "c0".to_owned()))
        .collect();
    let times: Vec<f64> =
        firsts.iter().filter_map(|name| played.starts("StartContainer", name).first().copied()).collect();
    if !times.is_sorted() || times.len() != firsts.len() {
        return Err(format!("{firsts:?} start at {times:?}"));
    }
    Ok(())
}

/// The pod after it was removed.
fn ended(played: &Played, expected: &Expected) -> Result<(), String> {
    let pod = format!("default/{}", played.name);
    if let Some(signal) = expected.signal {
        let stops = played.starts("StopContainer", "c0");
        let wanted = (LOOK + signal) as f64;
        if !stops.first().is_some_and(|at| (at - wanted).abs() < 0.5) || stops.len() != 1 {
            return Err(format!("c0 is stopped at {stops:?} instead of {wanted}"));
        }
    }
    if let Some(id) = played.node.running(&pod, None).first() {
        return Err(format!("{id} still runs {} s after the removal", expected.gone));
    }
    if let Some(view) = played.node.view(&pod) {
        return Err(format!("it is still there, stage {:?}; {}", view.stage, view.last_event));
    }
    Ok(())
}

#[test]
fn every_pod_of_the_matrix_ends_as_the_oracle_says() {
    let cases = cases::all();
    assert!(cases.len() >= 300);
    let mut wrong = Vec::new();
    for case in &cases {
        if let Err(what) = play(case) {
            wrong.push(format!("{case:?}: {what}"));
        }
    }
    let few: Vec<_> = wrong.iter().take(5).collect();
    assert!(wrong.is_empty(), "{} of {} pods went wrong: {few:#?}", wrong.len(), cases.len());
}

#[test]
fn the_oracle_is_not_blind() {
    // A pod whose main container ends badly must not be taken for one that ends well.
    let case = cases::all().into_iter().find(|c| c.policy == "Never" && c.expected().phase == "Succeeded").unwrap();
    let other = Case { main: vec![cases::Does::Ends(7)], hook: cases::Hook::None, ..case.clone() };
    let played = play(&other).unwrap();
    assert!(settled(&played, &case, &case.expected()).is_err());
}

#[test]
fn the_sample_for_real_runtimes_is_that_of_the_matrix() {
    let sample: Vec<_> = cases::sample()
        .iter()
        .map(|case| {
            let expected = case.expected();
            json!({
                "name": case.name,
                "manifest": case.manifest("IMAGE"),
                "phase": expected.phase,
                "serves": expected.serves,
                "loops": expected.loops,
                "code": expected.code,
                "started": expected.started,
                "sidecars": case.sidecars,
                "init": case.init,
                "init_loops": expected.init_loops,
                "signal": expected.signal,
                "gone": expected.gone,
            })
        })
        .collect();
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/matrix.json");
    let text = serde_json::to_string_pretty(&sample).unwrap() + "\n";
    if std::env::var_os("TICKLET_WRITE_MATRIX").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == text, "{} is not the sample of the matrix", path.display());
    assert_eq!(sample.len(), 30);
}
