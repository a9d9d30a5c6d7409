//! Cases about log files: rotation, collection, counts that go on.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tests::node::{NODE, Node};

use crate::{SOON, WAIT, chosen_node, shell_pod};

/// The log directory of container `c` of a static pod.
fn log_dir(node: &Node, pod: &str) -> Option<PathBuf> {
    let prefix = format!("default_{pod}-{NODE}_");
    let mut dirs = fs::read_dir(node.logs()).ok()?.flatten();
    dirs.find(|dir| dir.file_name().to_string_lossy().starts_with(&prefix)).map(|dir| dir.path().join("c"))
}

fn files(node: &Node, pod: &str) -> Vec<String> {
    let Some(dir) = log_dir(node, pod) else { return Vec::new() };
    let mut names: Vec<_> = fs::read_dir(dir)
        .map(|files| files.flatten().map(|file| file.file_name().to_string_lossy().into_owned()).collect())
        .unwrap_or_default();
    names.sort();
    names
}

#[test]
fn log_1_a_log_is_rotated_and_older_files_are_compressed() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.stop().unwrap();
    node.configure("containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 3\ncontainerLogMonitorInterval: 3s").unwrap();
    node.start().unwrap();
    let line = "x".repeat(200);
    let script =
        format!("i=0; while :; do i=$((i+1)); echo $i {line}; done | while read l; do echo $l; usleep 1000; done");
    node.put("loud.yaml", shell_pod("loud", &script, "")).unwrap();
    node.wait_running("loud", SOON).unwrap();
    let mut rotations = BTreeSet::new();
    node.wait("five rotations", Duration::from_secs(90), |node| {
        let files = files(node, "loud");
        let packed = files.iter().filter(|name| name.ends_with(".gz")).count();
        let being_packed = files.iter().any(|name| name.ends_with(".tmp"));
        assert!(being_packed || files.len() <= 3, "{files:?}");
        assert!(being_packed || files.len() < 3 || packed >= 1, "{files:?}");
        let rotated = files.iter().filter_map(|name| name.strip_prefix("0.log."));
        rotations.extend(rotated.map(|name| name.split('.').next().unwrap_or(name).to_owned()));
        Ok((rotations.len() >= 5).then_some(()))
    })
    .unwrap();
    // In the middle of a rotation it is away for a moment.
    node.wait("the log goes on", SOON, |node| Ok(files(node, "loud").contains(&"0.log".to_owned()).then_some(())))
        .unwrap();
}

/// A client that reads a container's log into a file until the log ends.
fn follow(node: &Node, query: &str, file: &Path) -> Child {
    let url = format!("https://127.0.0.1:{}/containerLogs/default/{query}", node.port());
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--insecure", "--fail", "--no-buffer", "--max-time", "170", "--output"]);
    curl.arg(file).arg(url).stdin(Stdio::null()).spawn().unwrap()
}

/// The numbers at the start of lines.
fn numbers(file: &Path) -> Vec<u64> {
    let text = fs::read_to_string(file).unwrap();
    text.lines().map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn log_1_followers_see_every_line_over_rotations() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.stop().unwrap();
    node.configure("containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 3\ncontainerLogMonitorInterval: 3s").unwrap();
    node.start().unwrap();
    let pad = "x".repeat(1000);
    let script = format!("trap 'exit 0' TERM; i=0; while :; do i=$((i+1)); echo $i {pad}; usleep 10000; done");
    node.put("count.yaml", shell_pod("count", &script, "  restartPolicy: Never\n")).unwrap();
    node.wait_running("count", SOON).unwrap();
    let path = format!("count-{NODE}/c?follow=true");
    let (all, tail) = (node.lab.dir().join("all"), node.lab.dir().join("tail"));
    let mut followers = [follow(&node, &path, &all), follow(&node, &format!("{path}&tailLines=10"), &tail)];
    let mut rotations = BTreeSet::new();
    node.wait("five rotations", Duration::from_secs(90), |node| {
        let rotated = files(node, "count");
        let rotated = rotated.iter().filter_map(|name| name.strip_prefix("0.log."));
        rotations.extend(rotated.map(|name| name.split('.').next().unwrap_or(name).to_owned()));
        Ok((rotations.len() >= 5).then_some(()))
    })
    .unwrap();
    node.remove("count.yaml").unwrap();
    for follower in &mut followers {
        let ended = tests::process::wait(follower, Duration::from_secs(60)).unwrap();
        assert!(ended.expect("the stream ends with the pod").success(), "a stream was cut");
    }
    let (all, tail) = (numbers(&all), numbers(&tail));
    println!("{} and {} lines over {} rotations", all.len(), tail.len(), rotations.len());
    for numbers in [&all, &tail] {
        assert!(numbers.len() > 400, "{}", numbers.len());
        // Between two rotations about a hundred lines are written.
        let gap = numbers.windows(2).find(|pair| pair[1] <= pair[0] || pair[1] > pair[0] + 100);
        assert_eq!(gap, None, "a repeat or a gap");
    }
    assert_eq!(all.first(), Some(&1));
}

#[test]
fn log_2_one_huge_line_is_one_line() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let script = "head -c 100000 /dev/zero | tr '\\0' a; echo; echo end; printf tail-without-newline";
    node.put("wide.yaml", shell_pod("wide", script, "  restartPolicy: Never\n")).unwrap();
    let path = |query: &str| format!("/containerLogs/default/wide-{NODE}/c{query}");
    node.wait("the log is whole", SOON, |node| {
        Ok(node.get(&path("")).ok().filter(|log| log.ends_with("tail-without-newline")))
    })
    .unwrap();
    let get = |query: &str| node.get(&path(query)).unwrap();
    let log = get("");
    assert_eq!(log.len(), 100_001 + 4 + 20);
    assert_eq!(get("?sinceSeconds=3600"), log);
    assert_eq!(get("?limitBytes=100"), "a".repeat(100));
    assert_eq!(get("?tailLines=1"), "tail-without-newline");
    assert_eq!(get("?tailLines=3"), log, "whole lines");
    let stamped = get("?timestamps=true");
    let stamps = stamped.lines().filter(|line| line.get(..31).is_some_and(|start| start.contains("T"))).count();
    assert_eq!((stamps, stamped.matches("Z ").count()), (3, 3), "{}", &stamped[..60]);
    let raw = fs::read_to_string(log_dir(&node, "wide").unwrap().join("0.log")).unwrap();
    assert!(raw.contains(" stdout P ") && raw.contains(" stdout F "));
}

#[test]
fn rst_4_restart_counts_go_on_after_the_runtime_lost_everything() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    node.put("s.yaml", shell_pod("s", WAIT, "")).unwrap();
    let count = |container: &tests::crictl::Container| {
        container.annotations.get("io.kubernetes.container.restartCount").and_then(|v| v.as_str()).map(str::to_owned)
    };
    let mut last = node.wait_running("s", SOON).unwrap();
    // The third restart waits for its back-off.
    for round in 1..=2 {
        node.crictl().run(&["stop", "--timeout", "0", &last.id]).unwrap();
        last = node
            .wait(&format!("restart {round}"), Duration::from_secs(60), |node| {
                Ok(node.running("s")?.into_iter().find(|container| container.id != last.id))
            })
            .unwrap();
    }
    assert_eq!(count(&last).as_deref(), Some("2"));
    node.stop().unwrap();
    node.crictl().run(&["rmp", "-f", "-a"]).unwrap();
    let before = files(&node, "s");
    node.start().unwrap();
    let next = node.wait_running("s", Duration::from_secs(60)).unwrap();
    assert_eq!(count(&next).as_deref(), Some("3"), "{before:?}");
    let after = files(&node, "s");
    assert!(after.contains(&"3.log".to_owned()) && after.contains(&"2.log".to_owned()), "{after:?}");
    // Without logs nobody knows of earlier runs.
    node.stop().unwrap();
    node.crictl().run(&["rmp", "-f", "-a"]).unwrap();
    fs::remove_dir_all(log_dir(&node, "s").unwrap()).unwrap();
    node.start().unwrap();
    let fresh = node.wait_running("s", Duration::from_secs(60)).unwrap();
    assert_eq!(count(&fresh).as_deref(), Some("0"));
}

#[test]
fn dead_containers_and_remains_are_collected() {
    let Some(mut node) = chosen_node() else {
        return;
    };
    let ghost = node.root().join("pods/11111111-2222-3333-4444-555555555555");
    fs::create_dir_all(ghost.join("volumes")).unwrap();
    let ghost_logs = node.logs().join("default_ghost_11111111-2222-3333-4444-555555555555");
    fs::create_dir_all(ghost_logs.join("c")).unwrap();
    let foreign = node.logs().join("not-a-pod");
    fs::create_dir_all(&foreign).unwrap();
    node.put("loop.yaml", shell_pod("loop", "exit 1", "")).unwrap();
    node.wait("remains are gone", Duration::from_secs(150), |_| {
        Ok((!ghost.exists() && !ghost_logs.exists()).then_some(()))
    })
    .unwrap();
    assert!(foreign.exists());
    let name = format!("loop-{NODE}");
    node.wait("one dead container and its log are kept", Duration::from_secs(60), |node| {
        let dead = node.crictl().containers_of(&name)?.into_iter().filter(|c| !c.is_running()).count();
        let logs = files(node, "loop");
        Ok((dead == 1 && logs.len() == 1 && logs != ["0.log"]).then_some(()))
    })
    .unwrap();
}
