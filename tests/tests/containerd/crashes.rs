//! Ticklet is killed at random moments while pods start, restart and go; the node must be right each time.

use std::time::Duration;

use tests::node::{NODE, Node};
use tests::process;

use crate::{SOON, WAIT, chosen_node, shell_pod};

const PODS: usize = 20;
const KILLS: usize = 50;

/// What the pods are doing while ticklet is killed.
const STAGES: [&str; 3] = ["start", "restart", "deletion"];

/// A small generator of the test's own, so that a failure can be repeated from its seed.
struct Random(u64);

impl Random {
    /// The next number below a bound.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

fn name(pod: usize) -> String {
    format!("p{pod:02}")
}

/// Never two running containers of one name in a pod, nor two ready sandboxes of one pod.
fn check_no_twins(node: &Node) {
    let mut running: Vec<(String, String)> = node
        .crictl()
        .containers()
        .unwrap()
        .into_iter()
        .filter(tests::crictl::Container::is_running)
        .map(|container| (container.pod, container.name))
        .collect();
    running.sort();
    let mut ready: Vec<String> =
        node.crictl().pods().unwrap().into_iter().filter(|sandbox| sandbox.ready).map(|sandbox| sandbox.name).collect();
    ready.sort();
    assert!(running.windows(2).all(|pair| pair[0] != pair[1]), "one container runs twice: {running:?}");
    assert!(ready.windows(2).all(|pair| pair[0] != pair[1]), "one pod has two ready sandboxes: {ready:?}");
}

/// Waits until exactly the pods below `first` are gone and all others run once.
fn check_settled(node: &mut Node, first: usize) {
    let expect: Vec<String> = (first..PODS).map(|pod| format!("{}-{NODE}", name(pod))).collect();
    let settled = node.wait("all pods are as their manifests say", Duration::from_secs(90), |node| {
        let mut running: Vec<String> = node
            .crictl()
            .containers()?
            .into_iter()
            .filter(tests::crictl::Container::is_running)
            .map(|found| found.pod)
            .collect();
        running.sort();
        let mut ready: Vec<String> =
            node.crictl().pods()?.into_iter().filter(|sandbox| sandbox.ready).map(|sandbox| sandbox.name).collect();
        ready.sort();
        Ok((running == expect && ready == expect).then_some(()))
    });
    settled.unwrap();
}

/// Disturbs some pods as the stage says; returns from which pod on they should live.
fn disturb(node: &Node, random: &mut Random, stage: &str, step: usize, steps: usize) -> usize {
    match stage {
        "start" => {
            for pod in (step * PODS / steps)..((step + 1) * PODS / steps) {
                node.put(
                    &format!("{}.yaml", name(pod)),
                    shell_pod(&name(pod), WAIT, "  terminationGracePeriodSeconds: 5\n"),
                )
                .unwrap();
            }
            0
        }
        "restart" => {
            let pod = usize::try_from(random.below(PODS as u64)).unwrap();
            for container in node.running(&name(pod)).unwrap() {
                process::kill_pid(node.crictl().pid_of(&container.id).unwrap()).unwrap();
            }
            0
        }
        _ => {
            let end = (step + 1) * PODS / steps;
            for pod in (step * PODS / steps)..end {
                node.remove(&format!("{}.yaml", name(pod))).unwrap();
            }
            end
        }
    }
}

#[test]
fn kill9_at_random_moments_leaves_a_correct_node() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let seed = std::env::var("TICKLET_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(20_261_129);
    println!("seed {seed} (TICKLET_SEED repeats it)");
    let mut random = Random(seed);
    let mut kills = 0;
    for stage in STAGES {
        let steps = if stage == "deletion" { KILLS - kills } else { KILLS / STAGES.len() };
        let mut first = 0;
        for step in 0..steps {
            first = disturb(&node, &mut random, stage, step, steps);
            std::thread::sleep(Duration::from_millis(random.below(900)));
            node.kill9().unwrap();
            kills += 1;
            check_no_twins(&node);
            node.start().unwrap();
        }
        check_settled(&mut node, first);
        println!("{kills} kills, right after {stage}");
    }
    assert_eq!(kills, KILLS);
    node.put("last.yaml", shell_pod("last", WAIT, "")).unwrap();
    node.wait_running("last", SOON).unwrap();
}
