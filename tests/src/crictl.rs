//! crictl as the tests' eye: what the runtime says, as JSON, independent of ticklet's own code.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{process, tools};

/// A single question to the runtime never takes this long, unless the runtime hangs.
const DEADLINE: Duration = Duration::from_secs(60);

/// crictl bound to one runtime.
#[derive(Debug, Clone)]
pub struct Crictl {
    program: PathBuf,
    endpoint: String,
}

/// A sandbox as the runtime lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Sandbox id.
    pub id: String,
    /// Pod name.
    pub name: String,
    /// Pod UID.
    pub uid: String,
    /// Whether it is ready.
    pub ready: bool,
    /// Which try of this pod's sandbox it is.
    pub attempt: u64,
}

/// A container as the runtime lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Container id.
    pub id: String,
    /// Sandbox id.
    pub sandbox: String,
    /// Container name.
    pub name: String,
    /// Name of its pod.
    pub pod: String,
    /// UID of its pod.
    pub uid: String,
    /// `CONTAINER_RUNNING`, `CONTAINER_EXITED`, `CONTAINER_CREATED` or `CONTAINER_UNKNOWN`.
    pub state: String,
    /// Which try of this container it is.
    pub attempt: u64,
    /// When it was made, in nanoseconds since 1970.
    pub created: u64,
    /// The labels it carries.
    pub labels: serde_json::Map<String, Value>,
    /// The annotations it carries.
    pub annotations: serde_json::Map<String, Value>,
}

impl Container {
    /// Whether its process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == "CONTAINER_RUNNING"
    }
}

impl Crictl {
    /// crictl for the runtime behind a socket.
    pub fn new(socket: &Path) -> Result<Self> {
        Ok(Self { program: tools::crictl()?, endpoint: format!("unix://{}", socket.display()) })
    }

    /// Runs crictl with these arguments and returns what it printed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        command
            .args(["--runtime-endpoint", &self.endpoint, "--image-endpoint", &self.endpoint, "--timeout", "30s"])
            .args(args);
        // No file of the machine may change what is asked.
        command.env("CRI_CONFIG_FILE", "/dev/null");
        process::run(&mut command, DEADLINE)?.success().with_context(|| format!("crictl {}", args.join(" ")))
    }

    /// Runs crictl and reads its output as JSON.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.run(args)?;
        serde_json::from_str(&text).with_context(|| format!("crictl {} printed no JSON: {text}", args.join(" ")))
    }

    /// All sandboxes, ready or not.
    pub fn pods(&self) -> Result<Vec<Pod>> {
        let answer = self.json(&["pods", "--output", "json"])?;
        answer["items"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(pod).collect()
    }

    /// All containers, running or not.
    pub fn containers(&self) -> Result<Vec<Container>> {
        let answer = self.json(&["ps", "--all", "--output", "json"])?;
        answer["containers"].as_array().map(Vec::as_slice).unwrap_or_default().iter().map(container).collect()
    }

    /// The containers of one pod, newest first.
    pub fn containers_of(&self, pod: &str) -> Result<Vec<Container>> {
        let mut containers = self.containers()?;
        containers.retain(|container| container.pod == pod);
        containers.sort_by_key(|container| std::cmp::Reverse(container.created));
        Ok(containers)
    }

    /// Everything the runtime knows of a container.
    pub fn inspect(&self, id: &str) -> Result<Value> {
        self.json(&["inspect", "--output", "json", id])
    }

    /// The process id of a running container.
    pub fn pid_of(&self, id: &str) -> Result<i32> {
        let answer = self.inspect(id)?;
        let pid = answer["info"]["pid"].as_i64().with_context(|| format!("container {id} has no process"))?;
        Ok(i32::try_from(pid)?)
    }

    /// Runs a command in a container and returns what it printed, without blank ends.
    pub fn exec(&self, id: &str, command: &[&str]) -> Result<String> {
        let mut args = vec!["exec", "--sync", id];
        args.extend(command);
        Ok(self.run(&args)?.trim_end().to_owned())
    }

    /// Stops and removes all pods; a pod that resists is left to the lab's teardown.
    pub fn remove_all_pods(&self) -> Result<()> {
        self.run(&["rmp", "--all", "--force"]).map(drop)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// crictl prints 64-bit numbers as strings.
fn number(value: &Value) -> u64 {
    value.as_u64().or_else(|| value.as_str()?.parse().ok()).unwrap_or_default()
}

fn pod(item: &Value) -> Result<Pod> {
    let metadata = &item["metadata"];
    Ok(Pod {
        id: item["id"].as_str().context("a sandbox without id")?.to_owned(),
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        ready: item["state"] == "SANDBOX_READY",
        attempt: number(&metadata["attempt"]),
    })
}

fn container(item: &Value) -> Result<Container> {
    let labels = item["labels"].as_object().cloned().unwrap_or_default();
    let label = |key: &str| labels.get(key).map(text).unwrap_or_default();
    Ok(Container {
        id: item["id"].as_str().context("a container without id")?.to_owned(),
        sandbox: text(&item["podSandboxId"]),
        name: text(&item["metadata"]["name"]),
        pod: label("io.kubernetes.pod.name"),
        uid: label("io.kubernetes.pod.uid"),
        state: text(&item["state"]),
        attempt: number(&item["metadata"]["attempt"]),
        created: number(&item["createdAt"]),
        annotations: item["annotations"].as_object().cloned().unwrap_or_default(),
        labels,
    })
}
