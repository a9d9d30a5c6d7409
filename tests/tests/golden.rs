//! Golden traces: recordings that must always read, and replay without a difference as long as decisions stay the same.
//!
//! `v1-containerd2.trace` is a real run on containerd 2.4: three pods, a crash loop, a run to completion after an init
//! container, one manifest changed and then removed. When a decision is changed on purpose, `cargo xtask golden` records it
//! anew; when the format gets a new major version, the old file stays and must still read.

use std::path::PathBuf;
use std::process::{Command, Output};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden").join(name)
}

fn ticklet(words: &[&str]) -> Output {
    let program = tests::node::ticklet().expect("ticklet is built beside the tests");
    Command::new(program).args(words).output().expect("ticklet can be started")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_recorded_node_decides_the_same_again() {
    let file = golden("v1-containerd2.trace");
    let output = ticklet(&["replay", file.to_str().unwrap()]);
    let said = text(&output);
    assert!(output.status.success() && said.contains("no divergence"), "{said}");
}

#[test]
fn one_pods_story_is_told_from_start_to_end() {
    let file = golden("v1-containerd2.trace");
    let output = ticklet(&["replay", file.to_str().unwrap(), "--pod", "job-lab"]);
    let said = text(&output);
    let at = |what: &str| said.find(what).unwrap_or_else(|| panic!("no {what:?} in\n{said}"));
    assert!(output.status.success(), "{said}");
    let order = ["RunSandbox", "CreateContainer", "StartContainer", "PodFinished", "StopSandbox", "CleanPod"].map(at);
    assert!(order.is_sorted(), "{order:?}\n{said}");
}

#[test]
fn no_secret_of_the_recorded_manifests_is_in_it() {
    let file = golden("v1-containerd2.trace");
    let said = text(&ticklet(&["trace", "show", file.to_str().unwrap(), "--json"]));
    assert!(said.contains("<redacted>") && !said.contains("hush"));
}

#[test]
fn an_altered_input_is_found_at_its_tick() {
    use components::edge::cri::{CriAnswer, PodInspection};
    use components::edge::{Answer, Ingress, Outcome};
    let data = std::fs::read(golden("v1-containerd2.trace")).unwrap();
    let ended = |input: &Ingress| match input {
        Ingress::Completed(done) => match &done.outcome {
            Outcome::Done(Answer::Cri(CriAnswer::PodSeen { pod, .. })) => exit_code_3(pod),
            _ => false,
        },
        _ => false,
    };
    let mut reader = trace::Reader::open(&data).unwrap();
    let mut tick = None;
    while let Ok(Some(item)) = reader.next_item() {
        if let trace::Item::Frame(frame) = item
            && frame.inputs.iter().any(ended)
        {
            tick.get_or_insert(frame.tick);
        }
    }
    let tick = tick.expect("the crash loop is in the trace");
    let altered = trace::cut::alter(&data, tick, |inputs| inputs.retain(|input| !ended(input))).unwrap();
    let file = std::env::temp_dir().join(format!("ticklet-altered-{}.trace", std::process::id()));
    std::fs::write(&file, altered).unwrap();
    let output = ticklet(&["replay", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let said = text(&output);
    assert!(!output.status.success(), "{said}");
    assert!(said.contains(&format!("divergence at tick {tick}")), "expected tick {tick}:\n{said}");

    fn exit_code_3(seen: &PodInspection) -> bool {
        seen.containers.iter().any(|c| c.exit_code == 3)
    }
}
