//! Calls that the HTTP server makes for a request: who runs, where a stream is served, one command and its output.
//!
//! Decides nothing and never retries. These calls are no effects: they change nothing that the core knows of, and
//! their answers go to whoever asked over HTTP. Reads the runtime's socket on a connection of its own, so that a
//! command that runs for hours holds up nobody.

use super::client::Client;
use super::failure::CallError;
use super::{CriOptions, EndpointError};
use components::edge::FailureClass;
use components::ids::PodUid;
use prost::Message;
use proto::runtime::v1 as pb;
use std::collections::BTreeMap;
use std::time::Duration;
use thiserror::Error;

const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const CONTAINER_NAME: &str = "io.kubernetes.container.name";

/// Asks a runtime on behalf of HTTP requests.
#[derive(Clone, Debug)]
pub struct StreamCalls {
    client: Client,
    limit: Duration,
}

/// Why the runtime gave no answer.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{message}")]
pub struct StreamCallError {
    /// What kind of refusal it was.
    pub class: FailureClass,
    /// Text for people, as Go clients print it.
    pub message: String,
}

/// Which of a process's streams are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Standard input.
    pub stdin: bool,
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// A terminal.
    pub tty: bool,
}

/// A pod as the runtime has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RunningPod {
    /// Name.
    pub name: String,
    /// Namespace.
    pub namespace: String,
    /// Uid.
    pub uid: String,
    /// Names and images of its running containers.
    pub containers: Vec<(String, String)>,
}

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommandEnd {
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Exit code.
    pub exit_code: i32,
}

impl StreamCalls {
    /// Makes the client without connecting. `limit` is the longest wait for any answer but a command's.
    ///
    /// # Errors
    /// When the endpoint can't be used at all.
    pub fn new(options: &CriOptions, limit: Duration) -> Result<Self, EndpointError> {
        Ok(Self { client: Client::new(&options.runtime_endpoint)?, limit })
    }

    /// The id of a pod's running container, the newest if there are more.
    ///
    /// # Errors
    /// When the runtime can't tell.
    pub async fn container(&self, pod_uid: &PodUid, name: &str) -> Result<Option<String>, StreamCallError> {
        let labels = [(POD_UID, pod_uid.as_str()), (CONTAINER_NAME, name)];
        let mut found = self.containers(&labels).await?;
        found.sort_by_key(|container| container.created_at);
        Ok(found.pop().map(|container| container.id))
    }

    /// Where a container's log lies; `None` when there is no such container.
    ///
    /// # Errors
    /// When the runtime can't tell.
    pub async fn log_path(&self, id: &str) -> Result<Option<String>, StreamCallError> {
        let request = pb::ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        match self.ask("/runtime.v1.RuntimeService/ContainerStatus", request).await {
            Ok(pb::ContainerStatusResponse { status, .. }) => Ok(status.map(|status| status.log_path)),
            Err(error) if error.class == FailureClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The id of a pod's ready sandbox, the newest if there are more.
    ///
    /// # Errors
    /// When the runtime can't tell.
    pub async fn sandbox(&self, pod_uid: &PodUid) -> Result<Option<String>, StreamCallError> {
        let mut found = self.sandboxes(&[(POD_UID, pod_uid.as_str())]).await?;
        found.sort_by_key(|sandbox| sandbox.created_at);
        Ok(found.pop().map(|sandbox| sandbox.id))
    }

    /// Every pod with a ready sandbox or a running container, by uid.
    ///
    /// # Errors
    /// When the runtime can't tell.
    pub async fn running_pods(&self) -> Result<Vec<RunningPod>, StreamCallError> {
        let (sandboxes, containers) = (self.sandboxes(&[]).await?, self.containers(&[]).await?);
        let mut pods = BTreeMap::<String, RunningPod>::new();
        let mut pod = |labels: &BTreeMap<String, String>, named: Option<String>| {
            let label = |key: &str| labels.get(key).cloned().unwrap_or_default();
            let uid = label(POD_UID);
            // Without a uid it is no pod of a kubelet.
            if uid.is_empty() {
                return;
            }
            let pod = pods.entry(uid.clone()).or_insert_with(|| RunningPod {
                name: label(POD_NAME),
                namespace: label(POD_NAMESPACE),
                uid,
                containers: Vec::new(),
            });
            if let Some(image) = named {
                pod.containers.push((label(CONTAINER_NAME), image));
            }
        };
        for sandbox in sandboxes {
            pod(&sandbox.labels.into_iter().collect(), None);
        }
        for container in containers {
            let image = container.image.unwrap_or_default().image;
            pod(&container.labels.into_iter().collect(), Some(image));
        }
        let mut pods: Vec<_> = pods.into_values().collect();
        for pod in &mut pods {
            pod.containers.sort();
        }
        Ok(pods)
    }

    /// Where a command's streams are served.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub async fn exec(&self, container: &str, cmd: Vec<String>, wanted: Wanted) -> Result<String, StreamCallError> {
        let Wanted { stdin, stdout, stderr, tty } = wanted;
        let request = pb::ExecRequest { container_id: container.to_owned(), cmd, tty, stdin, stdout, stderr };
        let answer: pb::ExecResponse = self.ask("/runtime.v1.RuntimeService/Exec", request).await?;
        Ok(answer.url)
    }

    /// Where a container's own streams are served.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub async fn attach(&self, container: &str, wanted: Wanted) -> Result<String, StreamCallError> {
        let Wanted { stdin, stdout, stderr, tty } = wanted;
        let request = pb::AttachRequest { container_id: container.to_owned(), stdin, tty, stdout, stderr };
        let answer: pb::AttachResponse = self.ask("/runtime.v1.RuntimeService/Attach", request).await?;
        Ok(answer.url)
    }

    /// Where connections to a sandbox's ports are served.
    ///
    /// # Errors
    /// When the runtime refuses.
    pub async fn port_forward(&self, sandbox: &str, port: Vec<i32>) -> Result<String, StreamCallError> {
        let request = pb::PortForwardRequest { pod_sandbox_id: sandbox.to_owned(), port };
        let answer: pb::PortForwardResponse = self.ask("/runtime.v1.RuntimeService/PortForward", request).await?;
        Ok(answer.url)
    }

    /// Runs a command to its end, for at most `limit`.
    ///
    /// # Errors
    /// When the runtime refuses, or the time is over.
    pub async fn exec_sync(
        &self,
        container: &str,
        cmd: Vec<String>,
        limit: Duration,
    ) -> Result<CommandEnd, StreamCallError> {
        let request = pb::ExecSyncRequest { container_id: container.to_owned(), cmd, timeout: 0 };
        let path = "/runtime.v1.RuntimeService/ExecSync";
        let answer: pb::ExecSyncResponse = self.ask_within(limit, path, request).await?;
        Ok(CommandEnd { stdout: answer.stdout.to_vec(), stderr: answer.stderr.to_vec(), exit_code: answer.exit_code })
    }

    /// Makes the runtime write a container's state into a file; `longer` is a limit of the caller's own.
    ///
    /// # Errors
    /// When the runtime refuses, or the time is over.
    pub async fn checkpoint(
        &self,
        container: &str,
        file: &str,
        timeout: i64,
        longer: Option<Duration>,
    ) -> Result<(), StreamCallError> {
        let request =
            pb::CheckpointContainerRequest { container_id: container.to_owned(), location: file.to_owned(), timeout };
        let path = "/runtime.v1.RuntimeService/CheckpointContainer";
        let answer: Result<pb::CheckpointContainerResponse, _> =
            self.ask_within(longer.unwrap_or(self.limit), path, request).await;
        answer.map(drop)
    }

    async fn containers(&self, labels: &[(&str, &str)]) -> Result<Vec<pb::Container>, StreamCallError> {
        let running = pb::ContainerStateValue { state: pb::ContainerState::ContainerRunning.into() };
        let filter =
            pb::ContainerFilter { state: Some(running), label_selector: selector(labels), ..Default::default() };
        let request = pb::ListContainersRequest { filter: Some(filter) };
        let answer: pb::ListContainersResponse = self.ask("/runtime.v1.RuntimeService/ListContainers", request).await?;
        Ok(answer.containers)
    }

    async fn sandboxes(&self, labels: &[(&str, &str)]) -> Result<Vec<pb::PodSandbox>, StreamCallError> {
        let ready = pb::PodSandboxStateValue { state: pb::PodSandboxState::SandboxReady.into() };
        let filter =
            pb::PodSandboxFilter { state: Some(ready), label_selector: selector(labels), ..Default::default() };
        let request = pb::ListPodSandboxRequest { filter: Some(filter) };
        let answer: pb::ListPodSandboxResponse = self.ask("/runtime.v1.RuntimeService/ListPodSandbox", request).await?;
        Ok(answer.items)
    }

    async fn ask<Q, A>(&self, path: &'static str, request: Q) -> Result<A, StreamCallError>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        self.ask_within(self.limit, path, request).await
    }

    async fn ask_within<Q, A>(&self, limit: Duration, path: &'static str, request: Q) -> Result<A, StreamCallError>
    where
        Q: Message + 'static,
        A: Message + Default,
    {
        match tokio::time::timeout(limit, self.client.call(path, request)).await {
            Ok(answer) => {
                answer.map_err(|error: CallError| StreamCallError { class: error.class(), message: error.message() })
            }
            Err(_) => Err(StreamCallError {
                class: FailureClass::Unavailable,
                message: "rpc error: code = DeadlineExceeded desc = context deadline exceeded".to_owned(),
            }),
        }
    }
}

fn selector<M: FromIterator<(String, String)>>(labels: &[(&str, &str)]) -> M {
    labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
