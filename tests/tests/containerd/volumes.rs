//! Volumes on a real runtime: what containers see of each kind, what an attacker does not, and what is left afterwards.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use nix::mount::{MsFlags, mount, umount};
use tests::crictl::Container;
use tests::lab::{BUSYBOX_IMAGE, Runtime, SAME_IMAGE};
use tests::node::{NODE, Node};
use tests::process;

use crate::{SOON, WAIT, chosen_node};

/// A pod with a fixed UID; `meta` and `spec` are YAML flow fragments, `container` too.
pub(crate) fn pod(name: &str, meta: &str, spec: &str, container: &str, script: &str) -> String {
    let script = serde_json::Value::from(script);
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}, uid: uid-{name}{meta}}}
spec:
  terminationGracePeriodSeconds: 3
{spec}
  containers:
  - {{name: c, image: {BUSYBOX_IMAGE}, imagePullPolicy: IfNotPresent, command: [sh, -c, {script}]{container}}}
"
    )
}

/// What the container says when it is asked.
pub(crate) fn ask(node: &Node, container: &Container, script: &str) -> String {
    node.crictl().exec(&container.id, &["sh", "-c", script]).unwrap()
}

/// Mount points at or below a path, as the kernel has them.
pub(crate) fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4).map(PathBuf::from));
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    points.filter(|point| point.starts_with(&path)).collect()
}

pub(crate) fn wait_cleaned(node: &mut Node, dir: &Path) {
    let gone = node.wait("the pod's directory is gone", SOON, |_| Ok((!dir.exists()).then_some(())));
    gone.unwrap();
    assert!(mounts_below(dir).is_empty());
}

#[test]
fn volumes_of_each_kind_are_as_the_kubelet_makes_them() {
    let Some(mut node) = chosen_node() else { return };
    let spec = "  securityContext: {fsGroup: 4321}
  volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 3Mi}}
  - {name: whole, emptyDir: {medium: Memory}}
  - {name: down, downwardAPI: {defaultMode: 256, items: [
      {path: deep/labels, fieldRef: {fieldPath: metadata.labels}},
      {path: limit, mode: 420, resourceFieldRef: {containerName: c, resource: limits.memory, divisor: 1Mi}}]}}
  - {name: proj, projected: {sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}}";
    let container = ", resources: {limits: {memory: 64Mi}}, securityContext: {runAsUser: 1000}, volumeMounts: [
      {name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: whole, mountPath: /whole},
      {name: down, mountPath: /down}, {name: proj, mountPath: /proj},
      {name: disk, mountPath: /sub, subPath: a/b}, {name: disk, mountPath: /expr, subPathExpr: $(WHO)/x},
      {name: down, mountPath: /limit, subPath: limit}], env: [{name: WHO, value: me}]";
    let meta = ", labels: {app: web, zone: \"b\"}";
    node.put("kinds.yaml", pod("kinds", meta, spec, container, WAIT)).unwrap();
    let running = node.wait_running("kinds", SOON).unwrap();
    let say = |script: &str| ask(&node, &running, script);
    assert_eq!(say("stat -c '%a %g' /disk"), "2777 4321");
    assert_eq!(say("touch /disk/x && stat -c '%u %g' /disk/x"), "1000 4321");
    assert_eq!(say("stat -c '%a %g' /memory"), "3777 4321");
    assert_eq!(say("df -k /memory | tail -1 | awk '{print $2}'"), "3072");
    assert_eq!(say("df -k /whole | tail -1 | awk '{print $2}'"), "65536", "the pod's memory limit");
    assert_eq!(say("dd if=/dev/zero of=/memory/big bs=1M count=9 2>/dev/null || echo full"), "full");
    assert_eq!(say("cat /down/deep/labels"), "app=\"web\"\nzone=\"b\"");
    assert_eq!(say("cat /down/limit /limit /proj/name"), format!("6464kinds-{NODE}"));
    // Readable by the pod's group, which the plain mode would not allow.
    assert_eq!(say("stat -L -c '%a %g' /down/deep/labels /down/limit /proj/name"), "440 4321\n644 4321\n644 4321");
    assert_eq!(say("touch /down/x 2>/dev/null || echo read-only"), "read-only");
    assert_eq!(say("readlink /down/deep"), "..data/deep");
    assert_eq!(say("stat -c '%a %g' /sub /expr"), "2777 4321\n2777 4321");
    assert_eq!(say("touch /sub/y /expr/z && ls /disk/a/b /disk/me/x"), "/disk/a/b:\ny\n\n/disk/me/x:\nz");
    let dir = node.root().join("pods/uid-kinds");
    for place in ["plugins/kubernetes.io~empty-dir/disk/ready", "plugins/kubernetes.io~empty-dir/wrapped_down/ready"] {
        assert!(dir.join(place).is_file(), "{place}");
    }
    assert!(dir.join("volumes/kubernetes.io~downward-api/down/..data").is_symlink());
    assert!(dir.join("volume-subpaths/disk/c/5").is_dir() && dir.join("volume-subpaths/down/c/7").is_file());
    node.remove("kinds.yaml").unwrap();
    wait_cleaned(&mut node, &dir);
}

#[test]
fn a_link_out_of_a_volume_is_no_sub_path() {
    let Some(mut node) = chosen_node() else { return };
    let secret = node.lab.dir().join("secret");
    fs::create_dir_all(&secret).unwrap();
    fs::write(secret.join("key"), "hush").unwrap();
    // The init container is the attacker: it prepares what the main container is to mount.
    let spec = format!(
        "  volumes: [{{name: v, emptyDir: {{}}}}]
  initContainers:
  - {{name: i, image: {BUSYBOX_IMAGE}, imagePullPolicy: IfNotPresent, volumeMounts: [{{name: v, mountPath: /v}}],
     command: [sh, -c, \"ln -s {} /v/evil; ln -s ../../../../../../../.. /v/up\"]}}",
        secret.display()
    );
    let name = format!("attack-{NODE}");
    for (target, file) in [("evil", "attack.yaml"), ("evil/key", "attack.yaml"), ("up/etc", "attack.yaml")] {
        let container = format!(", volumeMounts: [{{name: v, mountPath: /got, subPath: {target}}}]");
        let manifest = pod("attack", "", &spec, &container, WAIT).replace("uid: uid-attack", "labels: {x: z}");
        let refusals =
            |node: &Node| Ok::<_, anyhow::Error>(node.log()?.matches("subPath could not be prepared").count());
        let before = refusals(&node).unwrap();
        node.put(file, manifest).unwrap();
        node.wait("the mount is refused", SOON, |node| {
            let done = node.crictl().containers_of(&name)?.iter().any(|c| c.name == "i" && !c.is_running());
            Ok((done && refusals(node)? > before).then_some(()))
        })
        .unwrap();
        assert!(node.crictl().containers_of(&name).unwrap().iter().all(|c| c.name != "c"), "{target} was mounted");
        node.remove(file).unwrap();
        node.wait("the pod is gone", SOON, |node| Ok(node.crictl().containers_of(&name)?.is_empty().then_some(())))
            .unwrap();
    }
    assert_eq!(fs::read_to_string(secret.join("key")).unwrap(), "hush");
}

#[test]
fn a_kill_between_mount_and_start_leaves_one_mount_and_one_container() {
    let Some(mut node) = chosen_node() else { return };
    let spec = "  volumes: [{name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]";
    let container = ", volumeMounts: [{name: m, mountPath: /m}, {name: m, mountPath: /sub, subPath: s}]";
    let dir = node.root().join("pods/uid-cut");
    for pause in [0, 30, 80, 150, 300] {
        node.put("cut.yaml", pod("cut", "", spec, container, &format!("date >> /m/starts; {WAIT}"))).unwrap();
        node.wait("the memory is mounted", SOON, |_| Ok((!mounts_below(&dir).is_empty()).then_some(()))).unwrap();
        std::thread::sleep(Duration::from_millis(pause));
        node.kill9().unwrap();
        node.start().unwrap();
        let running = node.wait_running("cut", SOON).unwrap();
        let starts = node.wait("it says that it started", SOON, |node| {
            Ok(node.crictl().exec(&running.id, &["sh", "-c", "wc -l < /m/starts"]).ok())
        });
        assert_eq!(starts.unwrap().trim(), "1", "killed {pause} ms after the mount");
        let mounted = mounts_below(&dir);
        assert_eq!(mounted.len(), 2, "{mounted:?}");
        node.remove("cut.yaml").unwrap();
        wait_cleaned(&mut node, &dir);
    }
}

#[test]
fn an_agent_that_was_away_cleans_a_pod_that_is_wanted_no_more() {
    let Some(mut node) = chosen_node() else { return };
    let spec = "  volumes: [{name: m, emptyDir: {medium: Memory}}, {name: d, emptyDir: {}}]";
    let container = ", volumeMounts: [{name: m, mountPath: /m}, {name: d, mountPath: /d, subPath: s}]";
    node.put("away.yaml", pod("away", "", spec, container, WAIT)).unwrap();
    node.wait_running("away", SOON).unwrap();
    let dir = node.root().join("pods/uid-away");
    node.kill9().unwrap();
    node.remove("away.yaml").unwrap();
    node.start().unwrap();
    wait_cleaned(&mut node, &dir);
    node.wait_gone("away", SOON).unwrap();
}

#[test]
fn a_host_path_that_comes_late_is_waited_for() -> Result<()> {
    let Some(mut node) = chosen_node() else { return Ok(()) };
    let late = node.lab.dir().join("late");
    let spec = format!("  volumes: [{{name: h, hostPath: {{path: {}, type: Directory}}}}]", late.display());
    node.put("late.yaml", pod("late", "", &spec, ", volumeMounts: [{name: h, mountPath: /h}]", WAIT))?;
    node.wait("the missing path is named", SOON, |node| {
        Ok(node.log()?.contains(&format!("hostPath {} doesn't exist", late.display())).then_some(()))
    })?;
    assert!(node.running("late")?.is_empty());
    fs::create_dir(&late)?;
    node.wait_running("late", SOON)?;
    Ok(())
}

/// The test's own shared mount, which goes with it.
struct Shared(PathBuf);

impl Drop for Shared {
    fn drop(&mut self) {
        for point in mounts_below(&self.0).into_iter().rev() {
            // What is still in use goes with the lab.
            let _ = umount(&point);
        }
    }
}

#[test]
fn mounts_propagate_as_the_volume_mount_says() {
    let Some(mut node) = chosen_node() else { return };
    let shared = Shared(node.lab.dir().join("shared"));
    fs::create_dir_all(&shared.0).unwrap();
    let none: Option<&str> = None;
    mount(Some("tmpfs"), &shared.0, Some("tmpfs"), MsFlags::empty(), Some("size=1m")).unwrap();
    mount(none, &shared.0, none, MsFlags::MS_SHARED, none).unwrap();
    for name in ["host", "both"] {
        fs::create_dir(shared.0.join(name)).unwrap();
    }
    let spec = format!("  volumes: [{{name: h, hostPath: {{path: {}}}}}]", shared.0.display());
    let manifest = |name: &str, more: &str| {
        pod(name, "", &spec, &format!(", volumeMounts: [{{name: h, mountPath: /h{more}}}]"), WAIT)
    };
    node.put("none.yaml", manifest("none", "")).unwrap();
    node.put("slave.yaml", manifest("slave", ", mountPropagation: HostToContainer")).unwrap();
    let both = manifest("both", ", mountPropagation: Bidirectional");
    let both = both.replace("name: c,", "name: c, securityContext: {privileged: true},");
    node.put("both.yaml", both).unwrap();
    let [none_pod, slave, both] = ["none", "slave", "both"].map(|name| node.wait_running(name, SOON).unwrap());
    mount(Some("tmpfs"), &shared.0.join("host"), Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
    fs::write(shared.0.join("host/seen"), "").unwrap();
    assert_eq!(ask(&node, &none_pod, "ls /h/host"), "");
    assert_eq!(ask(&node, &slave, "ls /h/host"), "seen");
    ask(&node, &both, "mount -t tmpfs none /h/both && touch /h/both/inside");
    assert!(shared.0.join("both/inside").exists(), "a mount of a Bidirectional container reaches the host");
    assert_eq!(ask(&node, &slave, "ls /h/both"), "inside");
    assert_eq!(fs::metadata(shared.0.join("both/inside")).unwrap().uid(), 0);
}

#[test]
fn an_image_is_a_read_only_volume() {
    let Some(mut node) = chosen_node() else { return };
    if Runtime::from_environment().unwrap() == Some(Runtime::Containerd1) {
        println!("containerd 1.6 knows no image volumes");
        return;
    }
    let spec = format!("  volumes: [{{name: i, image: {{reference: {SAME_IMAGE}, pullPolicy: IfNotPresent}}}}]");
    let container = ", volumeMounts: [{name: i, mountPath: /img}, {name: i, mountPath: /bins, subPath: bin}]";
    node.put("img.yaml", pod("img", "", &spec, container, WAIT)).unwrap();
    let first = node.wait_running("img", SOON).unwrap();
    assert_eq!(ask(&node, &first, "ls /img/bin/busybox /bins/busybox"), "/bins/busybox\n/img/bin/busybox");
    assert_eq!(ask(&node, &first, "touch /img/x 2>/dev/null || echo read-only"), "read-only");
    process::kill_pid(node.crictl().pid_of(&first.id).unwrap()).unwrap();
    node.wait("the next instance runs", Duration::from_secs(60), |node| {
        Ok(node.running("img")?.into_iter().find(|container| container.id != first.id))
    })
    .unwrap();
    let missing = spec.replace(SAME_IMAGE, "localhost/none:1").replace("IfNotPresent", "Never");
    node.put("none.yaml", pod("none", "", &missing, container, WAIT)).unwrap();
    node.wait("the missing image is named", SOON, |node| {
        Ok(node.log()?.contains("is not present with pull policy of Never").then_some(()))
    })
    .unwrap();
    assert!(node.running("none").unwrap().is_empty());
}

#[test]
fn recursive_read_only_is_what_the_runtime_can() {
    let Some(mut node) = chosen_node() else { return };
    let info = node.crictl().json(&["info"]).unwrap();
    let handlers = info["runtimeHandlers"].as_array().cloned().unwrap_or_default();
    let default = handlers.iter().find(|handler| handler["name"].as_str().unwrap_or_default().is_empty());
    let able = default.is_some_and(|handler| handler["features"]["recursive_read_only_mounts"] == true);
    println!("recursive read-only: {able}");
    let outer = Shared(node.lab.dir().join("outer"));
    fs::create_dir_all(outer.0.join("inner")).unwrap();
    mount(Some("tmpfs"), &outer.0.join("inner"), Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
    let spec = format!("  volumes: [{{name: h, hostPath: {{path: {}}}}}]", outer.0.display());
    let manifest = |name: &str, mode: &str| {
        let more = format!(", volumeMounts: [{{name: h, mountPath: /h, readOnly: true, recursiveReadOnly: {mode}}}]");
        pod(name, "", &spec, &more, WAIT)
    };
    node.put("possible.yaml", manifest("possible", "IfPossible")).unwrap();
    let running = node.wait_running("possible", SOON).unwrap();
    let wrote = ask(&node, &running, "touch /h/inner/x 2>/dev/null && echo wrote || echo read-only");
    assert_eq!(wrote, if able { "read-only" } else { "wrote" });
    assert_eq!(ask(&node, &running, "touch /h/x 2>/dev/null || echo read-only"), "read-only");
    node.put("enabled.yaml", manifest("enabled", "Enabled")).unwrap();
    if able {
        node.wait_running("enabled", SOON).unwrap();
    } else {
        node.wait("the refusal is said", SOON, |node| {
            Ok(node.log()?.contains("not supported by the runtime").then_some(()))
        })
        .unwrap();
        assert!(node.running("enabled").unwrap().is_empty());
    }
}
