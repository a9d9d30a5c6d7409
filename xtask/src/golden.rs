//! `cargo xtask golden`: records the golden trace anew on a private containerd, for a decision that was changed on purpose.
//!
//! Three pods: one that is changed and then removed, a crash loop, and a run to completion after an init container.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tests::lab::{BUSYBOX_IMAGE, Lab, Runtime};
use tests::manifest::WAIT;
use tests::node::Node;

use crate::run::{cargo, command, root, run};
use crate::{install, lab};

/// The trace, from the repository's root.
const GOLDEN: &str = "tests/golden/v1-containerd2.trace";

/// How long each stage of the run is recorded: two restarts of the crash loop, or the end of a pod.
const STAGE: Duration = Duration::from_secs(8);

/// Records, replaces the trace, and replays it once.
pub(crate) fn task() -> Result<()> {
    install::tools()?;
    run(cargo(&["build", "--bins", "--locked"]))?;
    let mut node = Node::new(Lab::start(Runtime::Containerd2)?)?;
    let result = record(&mut node);
    lab::clean(&mut node.lab)?;
    result?;
    run(command(tests::node::ticklet()?, &["replay", GOLDEN]))
}

fn record(node: &mut Node) -> Result<()> {
    node.put("web.json", web("one").to_string())?;
    node.put("crash.json", shell("crash", json!({}), "exit 3").to_string())?;
    let init = json!([container("i", "true")]);
    node.put(
        "job.json",
        shell("job", json!({"restartPolicy": "Never", "initContainers": init}), "echo done").to_string(),
    )?;
    node.start()?;
    sleep(STAGE);
    node.put("web.json", web("two").to_string())?;
    sleep(STAGE);
    node.remove("web.json")?;
    sleep(STAGE);
    node.stop()?;
    let recorded = first_trace(&node.traces())?;
    fs::copy(&recorded, root().join(GOLDEN)).map(drop).with_context(|| format!("cannot copy {}", recorded.display()))
}

fn first_trace(dir: &Path) -> Result<std::path::PathBuf> {
    let files = fs::read_dir(dir).with_context(|| format!("cannot read {}", dir.display()))?;
    let mut files: Vec<_> = files.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| path.extension().is_some_and(|end| end == "trace"));
    files.sort();
    files.into_iter().next().with_context(|| format!("no trace in {}", dir.display()))
}

fn container(name: &str, script: &str) -> Value {
    json!({
        "name": name,
        "image": BUSYBOX_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", script],
    })
}

fn shell(name: &str, mut spec: Value, script: &str) -> Value {
    spec["containers"] = json!([container("c", script)]);
    let metadata = json!({"name": name, "uid": format!("uid-{name}")});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
}

/// The pod that changes: with a secret in its environment, a probe and a hook.
fn web(round: &str) -> Value {
    let mut pod = shell("web", json!({"terminationGracePeriodSeconds": 5}), WAIT);
    pod["metadata"]["labels"] = json!({"app": "web", "round": round});
    let container = &mut pod["spec"]["containers"][0];
    container["env"] = json!([{"name": "PASSWORD", "value": "hush"}, {"name": "ROUND", "value": round}]);
    container["readinessProbe"] = json!({"exec": {"command": ["true"]}, "periodSeconds": 5});
    container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
    pod
}
