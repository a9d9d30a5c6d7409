//! Cases about config maps and secrets: variables, files that change, keys that vanish.

use std::time::Duration;

use super::{POLITE, bound, container, delete, exec, wait_object, wait_phase, wait_ready};
use crate::{Rig, SOON};

/// Longest time until a changed object is in a volume, as the documentation says.
const CHANGE: Duration = Duration::from_secs(100);

#[test]
fn cfg_3_variables_from_a_config_map_in_order_with_odd_keys() {
    let Some(rig) = Rig::register() else { return };
    rig.cluster
        .apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: envs}\ndata: {A: from-cm, odd.key-1: x}\n")
        .unwrap();
    let more = "    args: ['$(EARLY)', '$(NOPE)']
    envFrom: [{configMapRef: {name: envs}}]
    env:
    - {name: LATE, value: '$(POD)-x'}
    - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: EARLY, value: '$(POD)-y'}
    - {name: ESC, value: '$$(POD)'}
    - {name: A, value: mine}
";
    // The image's shell drops names that it cannot use, so the variables are read where the kernel keeps them.
    let script = "tr '\\0' '\\n' < /proc/self/environ; echo $0 $1";
    rig.cluster.apply(&bound("envs", "", "  restartPolicy: Never\n", &container("c", script, more))).unwrap();
    wait_phase(&rig, "envs", "Succeeded");
    let container = rig.node.crictl().containers_of("envs").unwrap().remove(0);
    let log = rig.node.container_log(&container).unwrap();
    let said: Vec<&str> = log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).collect();
    for wanted in ["LATE=$(POD)-x", "EARLY=envs-y", "ESC=$(POD)", "A=mine", "envs-y $(NOPE)"] {
        assert!(said.contains(&wanted), "{wanted} is not in {said:?}");
    }
    let config = rig.node.crictl().inspect(&container.id).unwrap();
    let envs = config["info"]["config"]["envs"].to_string();
    assert!(envs.contains("odd.key-1"), "{envs}");
}

#[test]
fn vol_1_a_sub_path_of_a_config_map_follows_only_a_restart() {
    let Some(mut rig) = Rig::register() else { return };
    let map = |value: &str| format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: cfg}}\ndata: {{k: {value}}}\n");
    rig.cluster.apply(&map("one")).unwrap();
    let mounts =
        "    volumeMounts:\n    - {name: v, mountPath: /cfg/k, subPath: k}\n    - {name: v, mountPath: /all}\n";
    let spec = "  terminationGracePeriodSeconds: 5\n  volumes: [{name: v, configMap: {name: cfg}}]\n";
    rig.cluster.apply(&bound("sp", "", spec, &container("c", POLITE, mounts))).unwrap();
    wait_ready(&rig, "sp", SOON);
    rig.cluster.apply(&map("two")).unwrap();
    rig.node
        .wait("the whole volume follows", CHANGE, |node| {
            let all = node.crictl().containers_of("sp")?;
            let first = all.first().ok_or_else(|| anyhow::anyhow!("no container"))?;
            Ok((node.crictl().exec(&first.id, &["cat", "/all/k"])? == "two").then_some(()))
        })
        .unwrap();
    assert_eq!(exec(&rig, "sp", &["cat", "/cfg/k"]).unwrap(), "one", "a sub-path does not follow");
    exec(&rig, "sp", &["kill", "1"]).unwrap();
    wait_object(&rig, "pod/sp", SOON, "it was restarted", |pod| {
        let status = &pod["status"]["containerStatuses"][0];
        status["restartCount"] == 1 && status["ready"] == true
    });
    assert_eq!(exec(&rig, "sp", &["cat", "/cfg/k"]).unwrap(), "two");
    delete(&rig, "sp");
    rig.cluster.wait_gone("pod/sp", Duration::from_secs(20)).unwrap();
    let root = rig.node.root().display().to_string();
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let left: Vec<_> = mounts.lines().filter(|line| line.contains(&root) && line.contains("volume-subpaths")).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn vol_2_a_key_that_vanishes_keeps_the_old_content_unless_it_is_optional() {
    let Some(mut rig) = Rig::register() else { return };
    let secret = |data: &str| format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: s}}\nstringData: {{{data}}}\n");
    rig.cluster.apply(&secret("a: one, b: x")).unwrap();
    let loop_ = "while :; do cat /s/f 2>/dev/null || echo none; echo; sleep 0.05; done";
    for (name, optional) in [("p", false), ("q", true)] {
        let spec = format!(
            "  terminationGracePeriodSeconds: 2\n  volumes: [{{name: s, secret: {{secretName: s, optional: {optional}, items: [{{key: a, path: f}}]}}}}]\n"
        );
        let mount = "    volumeMounts: [{name: s, mountPath: /s}]\n";
        rig.cluster.apply(&bound(name, "", &spec, &container("c", loop_, mount))).unwrap();
    }
    wait_ready(&rig, "p", SOON);
    wait_ready(&rig, "q", SOON);
    let reads = |rig: &mut Rig, pod: &str, wanted: &str, deadline: Duration| {
        let what = format!("{pod} reads {wanted}");
        rig.node
            .wait(&what, deadline, |node| {
                let all = node.crictl().containers_of(pod)?;
                let first = all.first().ok_or_else(|| anyhow::anyhow!("no container"))?;
                let script = "cat /s/f 2>/dev/null || echo none";
                Ok((node.crictl().exec(&first.id, &["sh", "-c", script])? == wanted).then_some(()))
            })
            .unwrap();
    };
    rig.cluster.apply(&secret("a: two, b: x")).unwrap();
    reads(&mut rig, "p", "two", CHANGE);
    reads(&mut rig, "q", "two", CHANGE);
    rig.cluster.kubectl(&["patch", "secret/s", "--type=json", "-p", r#"[{"op":"remove","path":"/data/a"}]"#]).unwrap();
    reads(&mut rig, "q", "none", CHANGE);
    let told = |events: &serde_json::Value| {
        let all = events["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().any(|event| {
            event["involvedObject"]["name"] == "p"
                && event["reason"] == "FailedMount"
                && event["message"].as_str().is_some_and(|text| text.contains("non-existent secret key: a"))
        })
    };
    wait_object(&rig, "events", CHANGE, "a warning names the key", told);
    reads(&mut rig, "p", "two", SOON);
    assert_eq!(rig.cluster.get("pod/p").unwrap()["status"]["phase"], "Running");
    rig.cluster.apply(&secret("a: three, b: x")).unwrap();
    let back = Duration::from_secs(190);
    reads(&mut rig, "p", "three", back);
    reads(&mut rig, "q", "three", back);
    for pod in ["p", "q"] {
        let all = rig.node.crictl().containers_of(pod).unwrap();
        assert_eq!(all.len(), 1, "{pod} was restarted: {all:?}");
        let log = rig.node.container_log(&all[0]).unwrap();
        let said: std::collections::BTreeSet<_> =
            log.lines().filter_map(|line| line.splitn(4, ' ').nth(3)).filter(|text| !text.is_empty()).collect();
        let mut right: std::collections::BTreeSet<_> = ["one", "two", "three"].into();
        if pod == "q" {
            right.insert("none");
        }
        assert_eq!(said, right, "{pod} read something that never was");
    }
}

#[test]
fn trust_anchors_of_the_cluster_are_a_file_that_follows() {
    let Some(mut rig) = Rig::register() else { return };
    let one = std::fs::read_to_string(rig.cluster.file("ca.crt")).unwrap();
    let mut other = rcgen::CertificateParams::new(Vec::new()).unwrap();
    other.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let other = other.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    let bundle = |text: &str| {
        let bundle = serde_json::json!({"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle",
            "metadata": {"name": "own"}, "spec": {"trustBundle": text}});
        bundle.to_string()
    };
    rig.cluster.apply(&bundle(&one)).unwrap();
    let spec = "  terminationGracePeriodSeconds: 2
  volumes:
  - name: t
    projected: {sources: [{clusterTrustBundle: {name: own, path: own.pem}},
      {clusterTrustBundle: {signerName: example.com/none, optional: true, labelSelector: {}, path: none.pem}}]}
";
    let mount = "    volumeMounts: [{name: t, mountPath: /t}]\n";
    rig.cluster.apply(&bound("trust", "", spec, &container("c", POLITE, mount))).unwrap();
    wait_ready(&rig, "trust", SOON);
    let bodies = |text: &str| {
        let bodies = text.split("-----BEGIN CERTIFICATE-----").skip(1);
        let mut bodies: Vec<String> = bodies.map(|body| body.split_whitespace().collect()).collect();
        bodies.sort();
        bodies
    };
    assert_eq!(bodies(&exec(&rig, "trust", &["cat", "/t/own.pem"]).unwrap()), bodies(&one));
    assert_eq!(exec(&rig, "trust", &["cat", "/t/none.pem"]).unwrap(), "");
    let both = format!("{one}{other}");
    rig.cluster.apply(&bundle(&both)).unwrap();
    rig.node
        .wait("the file follows", CHANGE, |node| {
            let all = node.crictl().containers_of("trust")?;
            let first = all.first().ok_or_else(|| anyhow::anyhow!("no container"))?;
            Ok((bodies(&node.crictl().exec(&first.id, &["cat", "/t/own.pem"])?) == bodies(&both)).then_some(()))
        })
        .unwrap();
    delete(&rig, "trust");
    rig.cluster.wait_gone("pod/trust", SOON).unwrap();
}
