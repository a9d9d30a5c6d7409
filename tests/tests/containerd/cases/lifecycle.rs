//! Cases about the life of a pod: hooks, order of sidecars, init containers, terminal phases, termination messages.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::lab::BUSYBOX_IMAGE;
use tests::node::{NODE, Node};

use crate::{SOON, WAIT, chosen_node, shell_pod, shell_pod_with_uid};

/// Ends three seconds after SIGTERM, and says so in the pod's file.
fn polite(name: &str) -> String {
    format!("trap 'echo {name} $(date +%s) >> /o/order; sleep 3; exit 0' TERM; while :; do sleep 0.1; done")
}

fn quoted(script: &str) -> String {
    Value::from(script).to_string()
}

/// The status of a static pod as the kubelet's port shows it.
pub(crate) fn status(node: &Node, pod: &str) -> anyhow::Result<Option<Value>> {
    let name = format!("{pod}-{NODE}");
    let pods = node.pods()?;
    let found = pods["items"].as_array().and_then(|all| all.iter().find(|p| p["metadata"]["name"] == name.as_str()));
    Ok(found.map(|pod| pod["status"].clone()))
}

fn wait_phase(node: &mut Node, pod: &str, phase: &str) -> Value {
    let what = format!("pod {pod} is {phase}");
    node.wait(&what, SOON, |node| Ok(status(node, pod)?.filter(|status| status["phase"] == phase))).unwrap()
}

fn kill_times(file: &Path) -> Vec<(String, u64)> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = |line: &str| line.split_once(' ').map(|(name, time)| (name.to_owned(), time.trim().parse().unwrap()));
    text.lines().filter_map(line).collect()
}

#[test]
fn lif_1a_a_pod_taken_away_and_put_back_never_runs_twice() {
    let Some(mut node) = chosen_node() else { return };
    let manifest = |round: u32| {
        let script = format!("echo round {round}; trap 'sleep 3; exit 0' TERM; while :; do sleep 0.1; done");
        shell_pod_with_uid("back", "fixed-uid-back", &script)
    };
    node.put("back.yaml", manifest(0)).unwrap();
    node.wait_running("back", SOON).unwrap();
    for round in 1..=3 {
        node.remove("back.yaml").unwrap();
        std::thread::sleep(Duration::from_secs(1));
        node.put("back.yaml", manifest(round)).unwrap();
        let wanted = format!("round {round}");
        node.wait(&format!("{wanted} runs"), Duration::from_secs(40), |node| {
            let running = node.running("back")?;
            assert!(running.len() <= 1, "two at once: {running:?}");
            let Some(container) = running.first() else { return Ok(None) };
            Ok(node.container_log(container)?.contains(&wanted).then_some(()))
        })
        .unwrap();
    }
}

#[test]
fn lif_2_a_hook_that_never_ends_does_not_double_the_grace_period() {
    let Some(mut node) = chosen_node() else { return };
    let deaf = "trap '' TERM; while :; do sleep 1; done";
    let hook = "    lifecycle: {preStop: {exec: {command: [sleep, \"600\"]}}}\n";
    let manifest = shell_pod("hook", deaf, "  terminationGracePeriodSeconds: 6\n") + hook;
    node.put("hook.yaml", manifest).unwrap();
    let container = node.wait_running("hook", SOON).unwrap();
    node.remove("hook.yaml").unwrap();
    let removed = Instant::now();
    node.wait("the hook runs in the container", SOON, |node| {
        Ok(node.crictl().exec(&container.id, &["ps"]).ok().filter(|ps| ps.contains("sleep 600")))
    })
    .unwrap();
    node.wait_gone("hook", SOON).unwrap();
    let took = removed.elapsed().as_secs_f64();
    println!("grace 6 s, hook without end: gone after {took:.1} s");
    assert!((7.5..13.0).contains(&took), "{took}");
}

/// The pod of LIF-4: sidecars `s1` and `s2`, main container `m`; each ends three seconds after SIGTERM.
fn order(folder: &Path, first: &str) -> String {
    let container = |name: &str, more: &str| {
        let script = quoted(&polite(name));
        format!(
            "  - name: {name}\n    image: {BUSYBOX_IMAGE}\n{more}    command: [sh, -c, {script}]\n    volumeMounts: [{{name: o, mountPath: /o}}]\n"
        )
    };
    let sidecar = "    restartPolicy: Always\n";
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: order}}\nspec:\n  terminationGracePeriodSeconds: 60\n  volumes: [{{name: o, hostPath: {{path: {folder}}}}}]\n  initContainers:\n{s1}{s2}  containers:\n{m}",
        folder = folder.display(),
        s1 = container("s1", &format!("{sidecar}{first}")),
        s2 = container("s2", sidecar),
        m = container("m", ""),
    )
}

#[test]
fn lif_4a_sidecars_stop_after_the_main_container_in_reverse() {
    let Some(mut node) = chosen_node() else { return };
    let folder = node.lab.dir().join("order");
    std::fs::create_dir_all(&folder).unwrap();
    node.put("order.yaml", order(&folder, "")).unwrap();
    node.wait("all three run", SOON, |node| Ok((node.running("order")?.len() == 3).then_some(()))).unwrap();
    // Each has set its trap by now.
    std::thread::sleep(Duration::from_secs(2));
    node.remove("order.yaml").unwrap();
    let removed = Instant::now();
    node.wait_gone("order", Duration::from_secs(40)).unwrap();
    let took = removed.elapsed().as_secs_f64();
    let times = kill_times(&folder.join("order"));
    println!("stopped {times:?}, gone after {took:.1} s");
    let names: Vec<&str> = times.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["m", "s2", "s1"]);
    assert!(times.windows(2).all(|pair| pair[1].1 >= pair[0].1 + 2), "{times:?}");
    assert!((8.0..25.0).contains(&took), "{took}");
}

#[test]
fn lif_4b_a_sidecar_that_never_started_keeps_no_other_from_its_signal() {
    let Some(mut node) = chosen_node() else { return };
    let folder = node.lab.dir().join("order");
    std::fs::create_dir_all(&folder).unwrap();
    let never = "    startupProbe: {exec: {command: [\"false\"]}, failureThreshold: 999}\n";
    node.put("order.yaml", order(&folder, never)).unwrap();
    node.wait("the first sidecar runs", SOON, |node| Ok((node.running("order")?.len() == 1).then_some(()))).unwrap();
    std::thread::sleep(Duration::from_secs(10));
    assert_eq!(node.running("order").unwrap().len(), 1, "nothing starts before the first sidecar has");
    node.remove("order.yaml").unwrap();
    let removed = std::time::SystemTime::now();
    let began = Instant::now();
    node.wait_gone("order", Duration::from_secs(40)).unwrap();
    let took = began.elapsed().as_secs_f64();
    let times = kill_times(&folder.join("order"));
    println!("stopped {times:?}, gone after {took:.1} s");
    let removed = removed.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!(matches!(&times[..], [(name, at)] if name == "s1" && *at <= removed + 5), "{times:?}, removed {removed}");
    assert!(took < 15.0, "{took}");
}

#[test]
fn lif_5_finished_init_containers_run_again_only_after_the_sandbox_is_lost() {
    let Some(mut node) = chosen_node() else { return };
    let folder = node.lab.dir().join("once");
    std::fs::create_dir_all(&folder).unwrap();
    let init = format!(
        "  volumes: [{{name: h, hostPath: {{path: {}}}}}]\n  initContainers:\n  - {{name: i, image: {BUSYBOX_IMAGE}, command: [sh, -c, \"date >> /h/runs\"], volumeMounts: [{{name: h, mountPath: /h}}]}}\n",
        folder.display()
    );
    node.put("once.yaml", shell_pod("once", WAIT, &init)).unwrap();
    let main = node.wait("the main container runs", SOON, |node| {
        Ok(node.running("once")?.into_iter().find(|container| container.name == "c"))
    });
    let main = main.unwrap();
    let runs = || std::fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count();
    assert_eq!(runs(), 1);
    let ended = node.crictl().containers_of(&format!("once-{NODE}")).unwrap();
    let ended = ended.into_iter().find(|c| c.name == "i").unwrap();
    node.crictl().run(&["rm", &ended.id]).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let seen = wait_phase(&mut node, "once", "Running");
    assert_eq!(seen["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0, "{seen}");
    node.kill9().unwrap();
    node.start().unwrap();
    node.wait("ticklet answers", SOON, |node| Ok(node.pods().ok())).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    let now = node.wait_running("once", SOON).unwrap();
    assert_eq!((now.id.as_str(), now.attempt, runs()), (main.id.as_str(), 0, 1));
    node.crictl().run(&["stopp", &main.sandbox]).unwrap();
    let again = node
        .wait("it runs in another sandbox", Duration::from_secs(60), |node| {
            Ok(node.running("once")?.into_iter().find(|c| c.name == "c" && c.sandbox != main.sandbox))
        })
        .unwrap();
    // Its end can be seen before the sandbox's: then it is tried once more where it was.
    assert!(runs() == 2 && again.attempt >= 1, "{} runs, attempt {}", runs(), again.attempt);
}

#[test]
fn sta_1_a_finished_pod_stays_finished() {
    let Some(mut node) = chosen_node() else { return };
    let never = "  restartPolicy: Never\n";
    for (name, script) in [("good", "exit 0"), ("bad", "exit 3"), ("later", "exit 3")] {
        node.put(&format!("{name}.yaml"), shell_pod(name, script, never)).unwrap();
    }
    let ended = |status: &Value| status["containerStatuses"][0]["state"]["terminated"].clone();
    let good = ended(&wait_phase(&mut node, "good", "Succeeded"));
    let bad = ended(&wait_phase(&mut node, "bad", "Failed"));
    let later = ended(&wait_phase(&mut node, "later", "Failed"));
    assert_eq!([&good["exitCode"], &bad["exitCode"]], [0, 3]);
    let prune = |node: &Node, pod: &str| {
        let name = format!("{pod}-{NODE}");
        for container in node.crictl().containers_of(&name).unwrap() {
            node.crictl().run(&["rm", &container.id]).unwrap();
        }
        for sandbox in node.crictl().pods().unwrap().iter().filter(|sandbox| sandbox.name == name) {
            node.crictl().run(&["rmp", "-f", &sandbox.id]).unwrap();
        }
    };
    prune(&node, "good");
    prune(&node, "bad");
    node.stop().unwrap();
    prune(&node, "later");
    node.start().unwrap();
    node.wait("ticklet answers", SOON, |node| status(node, "later")).unwrap();
    std::thread::sleep(Duration::from_secs(10));
    for (pod, phase, before) in [("good", "Succeeded", &good), ("bad", "Failed", &bad), ("later", "Failed", &later)] {
        let now = wait_phase(&mut node, pod, phase);
        assert_eq!(&ended(&now), before, "{pod}");
        let name = format!("{pod}-{NODE}");
        assert!(node.crictl().containers_of(&name).unwrap().is_empty(), "{pod} was run again");
    }
}

#[test]
fn sta_2c_a_pod_that_is_active_for_too_long_fails() {
    let Some(mut node) = chosen_node() else { return };
    let limits = "  restartPolicy: Never\n  activeDeadlineSeconds: 15\n  terminationGracePeriodSeconds: 10\n";
    node.put("late.yaml", shell_pod("late", WAIT, limits)).unwrap();
    node.wait_running("late", SOON).unwrap();
    let seen = wait_phase(&mut node, "late", "Failed");
    assert_eq!(seen["reason"], "DeadlineExceeded", "{seen}");
    assert_eq!(seen["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0, "{seen}");
}

#[test]
fn containers_leave_messages_behind() {
    let Some(mut node) = chosen_node() else { return };
    let script = "printf 'bye \\377!' > /dev/termination-log; exit 1";
    node.put("file.yaml", shell_pod("file", script, "  restartPolicy: Never\n")).unwrap();
    let fallback = "    terminationMessagePolicy: FallbackToLogsOnError\n";
    // Two streams reach the log by two pipes: the second writes when the first is through.
    let manifest = shell_pod("log", "seq 1 100; sleep 1; echo last >&2; exit 1", "  restartPolicy: Never\n") + fallback;
    node.put("log.yaml", manifest).unwrap();
    let message = |status: &Value| {
        status["containerStatuses"][0]["state"]["terminated"]["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(message(&wait_phase(&mut node, "file", "Failed")), "bye \u{fffd}!");
    let log = message(&wait_phase(&mut node, "log", "Failed"));
    assert!(log.contains("last\n") && log.contains("\n100\n") && log.lines().count() == 80, "{log}");
}

#[test]
fn a_post_start_hook_that_fails_ends_its_container() {
    let Some(mut node) = chosen_node() else { return };
    let hook = "    lifecycle: {postStart: {exec: {command: [sh, -c, \"exit 4\"]}}}\n";
    node.put("hooked.yaml", shell_pod("hooked", WAIT, "") + hook).unwrap();
    node.wait("it is in back-off", SOON, |node| {
        let status = status(node, "hooked")?.unwrap_or_default();
        Ok((status["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff").then_some(()))
    })
    .unwrap();
    let log = node.log().unwrap();
    assert!(!log.contains("panicked"), "{log}");
}
