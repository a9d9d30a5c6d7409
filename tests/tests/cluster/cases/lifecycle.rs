//! Cases about the life of pods of the API: their phase at the end, hooks, order of sidecars, mirrors of static pods.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{POLITE, bound, container, delete, wait_object, wait_phase, wait_ready};
use crate::{Rig, SOON};

#[test]
fn lif_1d_a_static_pod_changed_while_nobody_looked_converges_when_the_server_is_back() {
    let Some(mut rig) = Rig::register() else { return };
    let manifest = |round: u32| {
        let script = format!("echo round {round}; trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done");
        tests::manifest::shell_pod("s", &script, "  terminationGracePeriodSeconds: 20\n")
    };
    rig.node.put("s.yaml", manifest(0)).unwrap();
    rig.node.wait_running("s", SOON).unwrap();
    let mirror = wait_ready(&rig, "s-lab", SOON);
    rig.node.stop().unwrap();
    rig.cluster.stop_apiserver().unwrap();
    rig.node.put("s.yaml", manifest(1)).unwrap();
    rig.node.start().unwrap();
    std::thread::sleep(Duration::from_secs(30));
    rig.cluster.start_apiserver().unwrap();
    rig.node
        .wait("only the newest runs", SOON, |node| {
            let running = node.running("s")?;
            let [only] = &running[..] else { return Ok(None) };
            Ok(node.container_log(only)?.contains("round 1").then_some(()))
        })
        .unwrap();
    let old = mirror["metadata"]["uid"].clone();
    let new = wait_object(&rig, "pod/s-lab", SOON, "the mirror is the new pod's", |pod| {
        pod["metadata"]["uid"] != old && pod["status"]["phase"] == "Running"
    });
    assert!(new["metadata"]["deletionTimestamp"].is_null(), "{new}");
    rig.node.remove("s.yaml").unwrap();
    rig.cluster.wait_gone("pod/s-lab", SOON).unwrap();
}

#[test]
fn lif_2_a_hook_that_never_ends_does_not_double_the_grace_period() {
    let Some(mut rig) = Rig::register() else { return };
    let hook = "    lifecycle: {preStop: {exec: {command: [sleep, '600']}}}\n";
    let deaf = container("c", "trap '' TERM; while :; do sleep 1; done", hook);
    rig.cluster.apply(&bound("hook", "", "  terminationGracePeriodSeconds: 10\n", &deaf)).unwrap();
    wait_ready(&rig, "hook", SOON);
    let began = Instant::now();
    delete(&rig, "hook");
    rig.node
        .wait("nothing of it runs", SOON, |node| {
            let all = node.crictl().containers_of("hook")?;
            Ok(all.iter().all(|container| !container.is_running()).then_some(()))
        })
        .unwrap();
    let took = began.elapsed().as_secs_f64();
    assert!((9.0..17.0).contains(&took), "it took {took:.1} s; 12 are right, and up to 5 more on a busy machine");
    rig.cluster.wait_gone("pod/hook", Duration::from_secs(15)).unwrap();
}

#[test]
fn lif_4a_sidecars_stop_after_the_main_container_in_reverse() {
    let Some(mut rig) = Rig::register() else { return };
    let order = rig.node.lab.dir().join("order");
    std::fs::create_dir_all(&order).unwrap();
    let mount = "    volumeMounts: [{name: o, mountPath: /o}]\n";
    let said =
        |name: &str| format!("trap 'echo {name} >> /o/order; sleep 3; exit 0' TERM; while :; do sleep 0.1; done");
    let sidecar = |name: &str| container(name, &said(name), &format!("    restartPolicy: Always\n{mount}"));
    let spec = format!(
        "  terminationGracePeriodSeconds: 60\n  volumes: [{{name: o, hostPath: {{path: {}}}}}]\n  initContainers:\n{}{}",
        order.display(),
        sidecar("s1"),
        sidecar("s2"),
    );
    rig.cluster.apply(&bound("order", "", &spec, &container("m", &said("m"), mount))).unwrap();
    wait_ready(&rig, "order", SOON);
    let began = Instant::now();
    delete(&rig, "order");
    rig.cluster.wait_gone("pod/order", SOON).unwrap();
    let took = began.elapsed().as_secs_f64();
    assert_eq!(std::fs::read_to_string(order.join("order")).unwrap(), "m\ns2\ns1\n");
    assert!((8.5..20.0).contains(&took), "{took:.1} s instead of about nine");
    rig.node.check_alive().unwrap();
}

#[test]
fn sta_1_a_finished_pod_stays_finished() {
    let Some(mut rig) = Rig::register() else { return };
    for (name, script) in [("good", "true"), ("bad", "exit 3"), ("third", "exit 3")] {
        rig.cluster.apply(&bound(name, "", "  restartPolicy: Never\n", &container("c", script, ""))).unwrap();
    }
    wait_phase(&rig, "good", "Succeeded");
    wait_phase(&rig, "bad", "Failed");
    wait_phase(&rig, "third", "Failed");
    // The last writes are over.
    std::thread::sleep(Duration::from_secs(5));
    let status = |rig: &Rig, name: &str| rig.cluster.get(&format!("pod/{name}")).unwrap()["status"].clone();
    let before = ["good", "bad", "third"].map(|name| status(&rig, name));
    let wipe = |rig: &Rig, names: &[&str]| {
        let crictl = rig.node.crictl();
        for container in crictl.containers().unwrap().iter().filter(|c| names.contains(&c.pod.as_str())) {
            crictl.run(&["rm", "--force", &container.id]).unwrap();
        }
        for pod in crictl.pods().unwrap().iter().filter(|p| names.contains(&p.name.as_str())) {
            crictl.run(&["rmp", "--force", &pod.id]).unwrap();
        }
    };
    wipe(&rig, &["good", "bad"]);
    std::thread::sleep(Duration::from_secs(10));
    rig.node.stop().unwrap();
    wipe(&rig, &["third"]);
    rig.node.start().unwrap();
    std::thread::sleep(Duration::from_secs(60));
    for (name, before) in ["good", "bad", "third"].iter().zip(&before) {
        assert_eq!(&status(&rig, name), before, "{name} changed");
    }
    let again: Vec<_> = rig.node.crictl().pods().unwrap();
    assert!(again.is_empty(), "a finished pod was started again: {again:?}");
    for name in ["good", "bad", "third"] {
        delete(&rig, name);
        rig.cluster.wait_gone(&format!("pod/{name}"), Duration::from_secs(15)).unwrap();
    }
}

#[test]
fn sta_2_exit_codes_decide_the_phase_of_a_pod_that_was_deleted() {
    let Some(mut rig) = Rig::register() else { return };
    let held = "  finalizers: [example.com/hold]\n";
    let mut pods = Vec::new();
    for policy in ["Never", "OnFailure", "Always"] {
        for (code, phase) in [(0, "Succeeded"), (3, "Failed")] {
            let name = format!("{}-{code}", policy.to_lowercase());
            let script = format!("trap 'exit {code}' TERM; while :; do sleep 0.1; done");
            let spec = format!("  restartPolicy: {policy}\n  terminationGracePeriodSeconds: 20\n");
            rig.cluster.apply(&bound(&name, held, &spec, &container("c", &script, ""))).unwrap();
            pods.push((name, code, phase));
        }
    }
    let deaf = container("c", "trap '' TERM; while :; do sleep 1; done", "");
    let short = "  restartPolicy: Never\n  terminationGracePeriodSeconds: 2\n";
    rig.cluster.apply(&bound("killed", held, short, &deaf)).unwrap();
    pods.push(("killed".to_owned(), 137, "Failed"));
    for (name, ..) in &pods {
        wait_ready(&rig, name, SOON);
    }
    for (name, ..) in &pods {
        delete(&rig, name);
    }
    for (name, code, phase) in &pods {
        let pod = wait_phase(&rig, name, phase);
        let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(end["exitCode"], json!(code), "{name}: {}", pod["status"]);
    }
    for (name, ..) in &pods {
        let patch = r#"{"metadata":{"finalizers":null}}"#;
        rig.cluster.kubectl(&["patch", &format!("pod/{name}"), "--type=merge", "-p", patch]).unwrap();
        rig.cluster.wait_gone(&format!("pod/{name}"), Duration::from_secs(15)).unwrap();
    }
    rig.node.check_alive().unwrap();
}

#[test]
fn sta_2c_a_pod_that_is_active_for_too_long_fails_with_its_exit_code() {
    let Some(rig) = Rig::register() else { return };
    let spec = "  restartPolicy: Never\n  activeDeadlineSeconds: 15\n";
    rig.cluster.apply(&bound("late", "", spec, &container("c", POLITE, ""))).unwrap();
    let pod = wait_phase(&rig, "late", "Failed");
    assert_eq!(pod["status"]["reason"], "DeadlineExceeded");
    let ended = wait_object(&rig, "pod/late", SOON, "its container is told ended", |pod| {
        pod["status"]["containerStatuses"][0]["state"]["terminated"].is_object()
    });
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0, "{ended}");
}
