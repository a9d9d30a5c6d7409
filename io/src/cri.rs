//! The bridge to the container runtime: runs one [`CriEffect`] as one or a few CRI calls and says how it ended.
//!
//! Decides nothing: no retry, no order, no limit but on the calls inside one inspection; the dispatcher has those, and
//! the deadline. The connection is made when a call needs it and made again after it broke; a call that finds none
//! fails as `Unavailable`. Reads the runtime's and the image service's socket; writes the facts of the event stream
//! to the bounded ingress channel.

mod client;
mod events;
mod failure;
mod flights;
mod from_proto;
mod inspect;
mod lean;
mod message;
pub mod streams;
mod to_proto;
pub mod usage;
mod wire;

use std::sync::{Arc, Mutex, PoisonError};

use components::edge::cri::{CriAnswer, CriEffect, RuntimeList};
use components::edge::{Answer, FailureClass, Ingress, Outcome};
use proto::runtime::v1 as pb;
use thiserror::Error;
use tokio::sync::mpsc;

use self::client::Client;
use self::events::Watch;
use self::failure::CallError;
use self::flights::Flights;
use crate::port::Port;

/// Where the runtime is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CriOptions {
    /// `containerRuntimeEndpoint`: `unix:///path`, or an absolute path.
    pub runtime_endpoint: String,
    /// `imageServiceEndpoint`; empty is the runtime's.
    pub image_endpoint: String,
}

/// Why an endpoint can't be used at all.
#[derive(Debug, Error)]
#[error("use runtime endpoint {endpoint:?}: {reason}")]
pub struct EndpointError {
    /// The endpoint as it was given.
    pub endpoint: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

/// The port of the container runtime.
#[derive(Debug)]
pub struct CriPort {
    runtime: Client,
    images: Client,
    /// Questions for images under way.
    flights: Flights<Answer, CallError>,
    /// The list before, whose ids the next one shares.
    before: Mutex<Arc<RuntimeList>>,
    events: Watch,
    endpoint: String,
    image_endpoint: String,
}

impl CriPort {
    /// Makes the port without connecting; facts of the event stream go to `ingress`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(options: &CriOptions, ingress: mpsc::Sender<Ingress>) -> Result<Self, EndpointError> {
        let image_endpoint = match options.image_endpoint.as_str() {
            "" => &options.runtime_endpoint,
            given => given,
        };
        let runtime = Client::new(&options.runtime_endpoint)?;
        Ok(Self {
            events: Watch::new(runtime.apart(), ingress),
            images: Client::new(image_endpoint)?,
            image_endpoint: image_endpoint.to_owned(),
            endpoint: options.runtime_endpoint.clone(),
            before: Mutex::default(),
            flights: Flights::default(),
            runtime,
        })
    }

    async fn answer(&self, effect: CriEffect) -> Result<Answer, CallError> {
        match effect {
            CriEffect::ReadRuntime => self.read_runtime().await.map(Answer::Cri),
            CriEffect::ListRuntime => self.list_runtime().await.map(CriAnswer::RuntimeListed).map(Answer::Cri),
            CriEffect::InspectPod { uid, known } => {
                let pod = inspect::inspect_pod(&self.runtime, &uid, known).await?;
                let sizes = pod.containers.iter().map(|container| container.size).collect();
                Ok(Answer::Cri(CriAnswer::PodSeen { pod, sizes }))
            }
            CriEffect::FindImage { .. } | CriEffect::ListImages | CriEffect::PullImage { .. } => {
                self.image(effect).await
            }
            CriEffect::ExecSync { .. } => self.exec(effect).await,
            CriEffect::SetPodCidr { cidr } => {
                let network_config = Some(pb::NetworkConfig { pod_cidr: cidr });
                let runtime_config = Some(pb::RuntimeConfig { network_config });
                let request = pb::UpdateRuntimeConfigRequest { runtime_config };
                let path = "/runtime.v1.RuntimeService/UpdateRuntimeConfig";
                self.runtime.call::<_, pb::UpdateRuntimeConfigResponse>(path, request).await?;
                Ok(Answer::Nothing)
            }
            CriEffect::WatchEvents => {
                self.events.open();
                Ok(Answer::Nothing)
            }
            CriEffect::RunSandbox { .. } | CriEffect::StopSandbox { .. } | CriEffect::RemoveSandbox { .. } => {
                self.sandbox(effect).await
            }
            CriEffect::CreateContainer { .. }
            | CriEffect::StartContainer { .. }
            | CriEffect::StopContainer { .. }
            | CriEffect::RemoveContainer { .. }
            | CriEffect::UpdateContainer { .. }
            | CriEffect::ReopenLog { .. } => self.container(effect).await,
        }
    }

    async fn read_runtime(&self) -> Result<CriAnswer, CallError> {
        let version = self.runtime.call::<_, pb::VersionResponse>(
            "/runtime.v1.RuntimeService/Version",
            pb::VersionRequest { version: "v1".to_owned() },
        );
        let status = self
            .runtime
            .call::<_, pb::StatusResponse>("/runtime.v1.RuntimeService/Status", pb::StatusRequest { verbose: false });
        let config = self.runtime.call::<_, pb::RuntimeConfigResponse>(
            "/runtime.v1.RuntimeService/RuntimeConfig",
            pb::RuntimeConfigRequest {},
        );
        let (version, status, config) = tokio::join!(version, status, config);
        let (version, status) = (version?, status?);
        let config = match config {
            // Runtimes older than CRI 1.28 have no such call; then the driver is not known from here.
            Err(error) if error.class() == FailureClass::Unimplemented => None,
            other => Some(other?),
        };
        let handlers = from_proto::handlers(&status);
        let supplemental_groups = status.features.map(|features| features.supplemental_groups_policy);
        let info = from_proto::runtime_info(version, status, config);
        Ok(CriAnswer::RuntimeDescribed { info, handlers, supplemental_groups })
    }

    async fn list_runtime(&self) -> Result<RuntimeList, CallError> {
        // Containers first: then the sandbox of each listed container was there before the sandboxes were listed.
        const CONTAINERS: &str = "/runtime.v1.RuntimeService/ListContainers";
        const SANDBOXES: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
        let containers = self.runtime.raw(CONTAINERS, pb::ListContainersRequest { filter: None }).await?;
        let sandboxes = self.runtime.raw(SANDBOXES, pb::ListPodSandboxRequest { filter: None }).await?;
        let before = Arc::clone(&self.before.lock().unwrap_or_else(PoisonError::into_inner));
        let list = RuntimeList {
            sandboxes: lean::sandboxes(&sandboxes, &before.sandboxes).map_err(|e| CallError::garbage(SANDBOXES, e))?,
            containers: lean::containers(&containers, &before.containers)
                .map_err(|e| CallError::garbage(CONTAINERS, e))?,
        };
        *self.before.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(list.clone());
        Ok(list)
    }

    async fn exec(&self, effect: CriEffect) -> Result<Answer, CallError> {
        const PATH: &str = "/runtime.v1.RuntimeService/ExecSync";
        let CriEffect::ExecSync { id, command, timeout_seconds, output_limit } = effect else {
            return Err(CallError::misrouted());
        };
        let cmd = command.iter().map(|word| word.0.clone()).collect();
        let request = pb::ExecSyncRequest { container_id: id.to_string(), cmd, timeout: i64::from(timeout_seconds) };
        let answer = self.runtime.call(PATH, request).await?;
        Ok(Answer::Cri(from_proto::executed(answer, output_limit)))
    }

    async fn image(&self, effect: CriEffect) -> Result<Answer, CallError> {
        match effect {
            CriEffect::FindImage { image } => {
                let ask = |image| find_image(self.images.clone(), image);
                self.flights.join(image, ask).await.map_err(Arc::unwrap_or_clone)
            }
            CriEffect::ListImages => {
                const PATH: &str = "/runtime.v1.ImageService/ListImages";
                let request = pb::ListImagesRequest { filter: None };
                let listed: pb::ListImagesResponse = self.images.call(PATH, request).await?;
                Ok(Answer::Cri(CriAnswer::ImagesListed(from_proto::listed_images(listed))))
            }
            CriEffect::PullImage { image, config, login } => {
                const PATH: &str = "/runtime.v1.ImageService/PullImage";
                let request = to_proto::pull_image(image, *config, login);
                let pulled: Result<pb::PullImageResponse, _> = self.images.call(PATH, request).await;
                self.flights.part();
                let pulled = pulled?;
                let image_ref = given(PATH, pulled.image_ref)?.into();
                Ok(Answer::Cri(CriAnswer::ImagePulled { image_ref }))
            }
            _ => Err(CallError::misrouted()),
        }
    }

    async fn sandbox(&self, effect: CriEffect) -> Result<Answer, CallError> {
        match effect {
            CriEffect::RunSandbox { config, handler } => {
                const PATH: &str = "/runtime.v1.RuntimeService/RunPodSandbox";
                let config = Some(to_proto::sandbox_config(*config));
                let request = pb::RunPodSandboxRequest { config, runtime_handler: handler };
                let started: pb::RunPodSandboxResponse = self.runtime.call(PATH, request).await?;
                let id = given(PATH, started.pod_sandbox_id)?.into();
                Ok(Answer::Cri(CriAnswer::SandboxStarted { id }))
            }
            CriEffect::StopSandbox { id } => {
                let request = pb::StopPodSandboxRequest { pod_sandbox_id: id.to_string() };
                let path = "/runtime.v1.RuntimeService/StopPodSandbox";
                gone_is_done(self.runtime.call::<_, pb::StopPodSandboxResponse>(path, request).await)
            }
            CriEffect::RemoveSandbox { id } => {
                let request = pb::RemovePodSandboxRequest { pod_sandbox_id: id.to_string() };
                let path = "/runtime.v1.RuntimeService/RemovePodSandbox";
                gone_is_done(self.runtime.call::<_, pb::RemovePodSandboxResponse>(path, request).await)
            }
            _ => Err(CallError::misrouted()),
        }
    }

    async fn container(&self, effect: CriEffect) -> Result<Answer, CallError> {
        match effect {
            CriEffect::CreateContainer { sandbox, config, sandbox_config } => {
                const PATH: &str = "/runtime.v1.RuntimeService/CreateContainer";
                let request = to_proto::create_container(&sandbox, *config, *sandbox_config);
                let created: pb::CreateContainerResponse = self.runtime.call(PATH, request).await?;
                let id = given(PATH, created.container_id)?.into();
                Ok(Answer::Cri(CriAnswer::ContainerCreated { id }))
            }
            CriEffect::StartContainer { id } => {
                let request = pb::StartContainerRequest { container_id: id.to_string() };
                let path = "/runtime.v1.RuntimeService/StartContainer";
                self.runtime.call::<_, pb::StartContainerResponse>(path, request).await?;
                Ok(Answer::Nothing)
            }
            CriEffect::StopContainer { id, grace_seconds } => {
                let timeout = i64::from(grace_seconds);
                let request = pb::StopContainerRequest { container_id: id.to_string(), timeout };
                let path = "/runtime.v1.RuntimeService/StopContainer";
                gone_is_done(self.runtime.call::<_, pb::StopContainerResponse>(path, request).await)
            }
            CriEffect::RemoveContainer { id } => {
                let request = pb::RemoveContainerRequest { container_id: id.to_string() };
                let path = "/runtime.v1.RuntimeService/RemoveContainer";
                gone_is_done(self.runtime.call::<_, pb::RemoveContainerResponse>(path, request).await)
            }
            CriEffect::UpdateContainer { id, resources } => {
                let request = to_proto::update_container(&id, *resources);
                let path = "/runtime.v1.RuntimeService/UpdateContainerResources";
                self.runtime.call::<_, pb::UpdateContainerResourcesResponse>(path, request).await?;
                Ok(Answer::Nothing)
            }
            CriEffect::ReopenLog { id } => {
                let request = pb::ReopenContainerLogRequest { container_id: id.to_string() };
                let path = "/runtime.v1.RuntimeService/ReopenContainerLog";
                self.runtime.call::<_, pb::ReopenContainerLogResponse>(path, request).await?;
                Ok(Answer::Nothing)
            }
            _ => Err(CallError::misrouted()),
        }
    }
}

impl Port<CriEffect> for CriPort {
    async fn run(&self, effect: CriEffect) -> Outcome {
        let images =
            matches!(effect, CriEffect::FindImage { .. } | CriEffect::ListImages | CriEffect::PullImage { .. });
        match self.answer(effect).await {
            Ok(answer) => Outcome::Done(answer),
            Err(error) => {
                // Nobody there: say where was looked.
                let unreachable = error.is_local();
                let outcome = Outcome::from(error);
                if unreachable {
                    named(outcome, if images { &self.image_endpoint } else { &self.endpoint })
                } else {
                    outcome
                }
            }
        }
    }
}

fn named(outcome: Outcome, endpoint: &str) -> Outcome {
    match outcome {
        Outcome::Failed(mut failure) => {
            failure.message = format!("container runtime at {endpoint}: {}", failure.message);
            Outcome::Failed(failure)
        }
        other => other,
    }
}

async fn find_image(images: Client, image: String) -> Result<Answer, CallError> {
    const PATH: &str = "/runtime.v1.ImageService/ImageStatus";
    let spec = pb::ImageSpec { image, ..Default::default() };
    let request = pb::ImageStatusRequest { image: Some(spec), verbose: false };
    let found = match images.call::<_, pb::ImageStatusResponse>(PATH, request).await {
        Err(error) if error.class() == FailureClass::NotFound => None,
        other => other?.image.map(from_proto::found_image),
    };
    Ok(Answer::Cri(CriAnswer::ImageFound(found)))
}

/// What is not there needs no stop and no removal.
fn gone_is_done<T>(result: Result<T, CallError>) -> Result<Answer, CallError> {
    match result {
        Err(error) if error.class() != FailureClass::NotFound => Err(error),
        _ => Ok(Answer::Nothing),
    }
}

/// An id the runtime must give.
fn given(path: &'static str, id: String) -> Result<String, CallError> {
    if id.is_empty() { Err(CallError::garbage(path, "no id")) } else { Ok(id) }
}
