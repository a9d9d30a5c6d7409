//! The trace of a real run replays without a difference; with one input altered it differs at that very tick.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use components::edge::cri::CriAnswer;
use components::edge::sources::SourcesAnswer;
use components::edge::{Answer, Completion, Ingress, Outcome};
use tests::node::{Node, ticklet};
use tests::process;
use trace::{Item, Reader};

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// A run with starts, a crash of a container, a restart of ticklet and a removal.
fn eventful_run(node: &mut Node) {
    node.put("a.yaml", shell_pod("a", WAIT, "")).unwrap();
    node.put("b.yaml", shell_pod("b", WAIT, "")).unwrap();
    let a = node.wait_running("a", SOON).unwrap();
    node.wait_running("b", SOON).unwrap();
    process::kill_pid(node.crictl().pid_of(&a.id).unwrap()).unwrap();
    node.wait("a runs again", SOON, |node| Ok(node.running("a")?.into_iter().find(|new| new.id != a.id))).unwrap();
    node.kill9().unwrap();
    node.start().unwrap();
    node.wait("ticklet is healthy", SOON, |node| Ok((node.healthz()? == 200).then_some(()))).unwrap();
    node.put("late.yaml", shell_pod("late", WAIT, "")).unwrap();
    node.wait_running("late", SOON).unwrap();
    node.remove("b.yaml").unwrap();
    node.wait_gone("b", SOON).unwrap();
    node.stop().unwrap();
}

/// The files of the ring, oldest first.
fn traces(node: &Node) -> Vec<PathBuf> {
    let entries = fs::read_dir(node.traces()).unwrap();
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// Replays a file; tells whether it was the same, and what was said.
fn replay(file: &Path) -> (bool, String) {
    let mut command = Command::new(ticklet().unwrap());
    let output = process::run(command.arg("replay").arg(file), Duration::from_secs(120)).unwrap();
    (output.status.success(), output.stdout + &output.stderr)
}

/// The manifests that an input brings, if it brings any.
fn manifests_read(input: &mut Ingress) -> Option<&mut Vec<components::edge::sources::Manifest>> {
    let Ingress::Completed(Completion { outcome: Outcome::Done(Answer::Sources(answer)), .. }) = input else {
        return None;
    };
    let SourcesAnswer::ManifestsRead { manifests, .. } = answer else { return None };
    Some(manifests)
}

/// Whether a manifest is that of the pod that came last.
fn is_late(manifest: &components::edge::sources::Manifest) -> bool {
    manifest.origin.ends_with("/late.yaml")
}

/// The first tick that learned of the last pod, and the one that acted on it: nothing is admitted before the runtime was
/// listed for the first time, which matters when the node learned of the pod at its start.
fn ticks_of_late_manifest(trace: &[u8]) -> Option<(u64, u64)> {
    let mut reader = Reader::open(trace).unwrap();
    let (mut learned, mut listed) = (None, false);
    while let Some(item) = reader.next_item().unwrap() {
        let Item::Frame(mut frame) = item else { continue };
        listed |= frame.inputs.iter().any(is_listing);
        if frame.inputs.iter_mut().filter_map(manifests_read).any(|manifests| manifests.iter().any(is_late)) {
            learned.get_or_insert(frame.tick);
        }
        if let Some(learned) = learned.filter(|_| listed) {
            return Some((learned, frame.tick));
        }
    }
    None
}

fn is_listing(input: &Ingress) -> bool {
    let Ingress::Completed(done) = input else { return false };
    matches!(done.outcome, Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(_))))
}

#[test]
fn a_real_run_replays_and_an_altered_one_differs_at_the_right_tick() {
    let Some(mut node) = chosen_node() else { return };
    eventful_run(&mut node);
    let files = traces(&node);
    assert!(!files.is_empty(), "nothing in {}", node.traces().display());
    for file in &files {
        let (same, said) = replay(file);
        assert!(same, "{} differs:\n{said}", file.display());
    }
    let (file, (learned, acted)) = files
        .iter()
        .find_map(|file| Some((file, ticks_of_late_manifest(&fs::read(file).unwrap())?)))
        .expect("some trace learned of the last pod");
    let altered = trace::cut::alter(&fs::read(file).unwrap(), learned, |inputs| {
        inputs.iter_mut().filter_map(manifests_read).for_each(|manifests| manifests.retain(|found| !is_late(found)));
    });
    let path = node.lab.dir().join("altered.trace");
    fs::write(&path, altered.unwrap()).unwrap();
    let (same, said) = replay(&path);
    assert!(!same, "a run without a pod was taken for the same:\n{said}");
    assert!(said.contains(&format!("tick {acted}")), "the difference is in tick {acted}, but it says:\n{said}");
}
