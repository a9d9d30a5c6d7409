//! `RuntimeService`.

use super::state::{Shared, State, found_or_gone, status};
use super::wire::{self, UID_LABEL};
use crate::runtime::model::SandboxRequest;
use crate::runtime::model::{Container, Sandbox};
use components::ids::{ContainerId, PodUid, SandboxId};
use proto::runtime::v1 as cri;
use proto::runtime::v1::runtime_service_server::RuntimeService;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;
type Labels = BTreeMap<String, String>;

#[tonic::async_trait]
impl RuntimeService for Shared {
    type GetContainerEventsStream = ReceiverStream<Result<cri::ContainerEventResponse, Status>>;

    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        self.gate("Version").await?;
        Ok(Response::new(cri::VersionResponse {
            version: "0.1.0".into(),
            runtime_name: "containerd".into(),
            runtime_version: format!("v2.0.0-sim.{}", env!("CARGO_PKG_VERSION")),
            runtime_api_version: "v1".into(),
        }))
    }

    async fn status(&self, request: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        self.gate("Status").await?;
        let network_ready = self.lock().runtime.network_ready;
        let condition = |kind: &str, status: bool| cri::RuntimeCondition {
            r#type: kind.into(),
            status,
            reason: if status { String::new() } else { "NetworkPluginNotReady".into() },
            message: if status { String::new() } else { "cni plugin not initialized".into() },
        };
        let handler = |name: &str| cri::RuntimeHandler {
            name: name.into(),
            features: Some(cri::RuntimeHandlerFeatures { recursive_read_only_mounts: true, user_namespaces: true }),
        };
        let mut info = BTreeMap::new();
        if request.into_inner().verbose {
            info.insert("config".to_owned(), "{}".to_owned());
        }
        Ok(Response::new(cri::StatusResponse {
            status: Some(cri::RuntimeStatus {
                conditions: vec![condition("RuntimeReady", true), condition("NetworkReady", network_ready)],
            }),
            info,
            runtime_handlers: crate::runtime::HANDLERS.map(handler).to_vec(),
            features: Some(cri::RuntimeFeatures { supplemental_groups_policy: true, ..Default::default() }),
        }))
    }

    async fn runtime_config(&self, _: Request<cri::RuntimeConfigRequest>) -> Answer<cri::RuntimeConfigResponse> {
        self.gate("RuntimeConfig").await?;
        if !self.options.events {
            return Err(Status::unimplemented("unknown method RuntimeConfig"));
        }
        let driver =
            if self.options.systemd_cgroups { cri::CgroupDriver::Systemd } else { cri::CgroupDriver::Cgroupfs };
        Ok(Response::new(cri::RuntimeConfigResponse {
            linux: Some(cri::LinuxRuntimeConfiguration { cgroup_driver: driver.into() }),
        }))
    }

    async fn update_runtime_config(
        &self,
        _: Request<cri::UpdateRuntimeConfigRequest>,
    ) -> Answer<cri::UpdateRuntimeConfigResponse> {
        self.gate("UpdateRuntimeConfig").await?;
        Ok(Response::new(cri::UpdateRuntimeConfigResponse {}))
    }

    async fn run_pod_sandbox(&self, request: Request<cri::RunPodSandboxRequest>) -> Answer<cri::RunPodSandboxResponse> {
        self.gate("RunPodSandbox").await?;
        let request = request.into_inner();
        let handler = request.runtime_handler.clone();
        let wanted = request.config.as_ref().map(|config| SandboxRequest { handler, ..wire::sandbox_request(config) });
        let wanted = wanted.ok_or_else(|| Status::invalid_argument("sandbox config is missing"))?;
        let id = self.change(|state, now| {
            let id = state.runtime.run_sandbox(now, wanted)?;
            state.sandboxes.insert(id.clone(), Arc::new(request));
            Ok(id)
        });
        let pod_sandbox_id = id.map_err(status)?.to_string();
        Ok(Response::new(cri::RunPodSandboxResponse { pod_sandbox_id }))
    }

    async fn stop_pod_sandbox(
        &self,
        request: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        self.gate("StopPodSandbox").await?;
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        found_or_gone(self.change(|state, now| state.runtime.stop_sandbox(now, &id)))?;
        Ok(Response::new(cri::StopPodSandboxResponse {}))
    }

    async fn remove_pod_sandbox(
        &self,
        request: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        self.gate("RemovePodSandbox").await?;
        let id = SandboxId::from(request.into_inner().pod_sandbox_id);
        found_or_gone(self.change(|state, now| state.runtime.remove_sandbox(now, &id)))?;
        Ok(Response::new(cri::RemovePodSandboxResponse {}))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        self.gate("PodSandboxStatus").await?;
        let request = request.into_inner();
        let state = self.lock();
        let sandbox = find_sandbox(&state, &request.pod_sandbox_id)?;
        let info = if request.verbose { verbose("{\"pid\":0}") } else { BTreeMap::new() };
        let containers = sandbox.containers.iter().filter_map(|id| state.runtime.containers().get(id));
        Ok(Response::new(cri::PodSandboxStatusResponse {
            status: Some(wire::sandbox_status(&state, sandbox)),
            info,
            containers_statuses: containers.map(|c| wire::container_status(&state, c)).collect(),
            timestamp: self.now().wall.0,
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        self.gate("ListPodSandbox").await?;
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.lock();
        let items = sandboxes(&state, &filter.id, &filter.label_selector)
            .into_iter()
            .filter(|s| filter.state.is_none_or(|f| f.state == i32::from(wire::sandbox_state(s.state))))
            .map(|s| wire::sandbox(&state, s))
            .collect();
        Ok(Response::new(cri::ListPodSandboxResponse { items }))
    }

    async fn create_container(
        &self,
        request: Request<cri::CreateContainerRequest>,
    ) -> Answer<cri::CreateContainerResponse> {
        self.gate("CreateContainer").await?;
        let request = request.into_inner();
        let sandbox = SandboxId::from(request.pod_sandbox_id);
        let mut config = request.config.ok_or_else(|| Status::invalid_argument("container config is missing"))?;
        let wanted = wire::container_request(&config);
        // Values may be secrets and nothing reads them back.
        config.envs = Vec::new();
        let id = self.change(|state, now| {
            let id = state.runtime.create_container(now, &sandbox, wanted)?;
            state.containers.insert(id.clone(), Arc::new(config));
            Ok(id)
        });
        Ok(Response::new(cri::CreateContainerResponse { container_id: id.map_err(status)?.to_string() }))
    }

    async fn start_container(
        &self,
        request: Request<cri::StartContainerRequest>,
    ) -> Answer<cri::StartContainerResponse> {
        self.gate("StartContainer").await?;
        let id = ContainerId::from(request.into_inner().container_id);
        self.change(|state, now| state.runtime.start_container(now, &id)).map_err(status)?;
        Ok(Response::new(cri::StartContainerResponse {}))
    }

    async fn stop_container(&self, request: Request<cri::StopContainerRequest>) -> Answer<cri::StopContainerResponse> {
        self.gate("StopContainer").await?;
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        let grace = Duration::from_secs(u64::try_from(request.timeout).unwrap_or(0));
        let mut endings = self.endings.subscribe();
        found_or_gone(self.change(|state, now| state.runtime.stop_container(now, &id, grace)))?;
        while self.lock().runtime.is_running(&id) {
            if endings.changed().await.is_err() {
                break;
            }
        }
        Ok(Response::new(cri::StopContainerResponse {}))
    }

    async fn remove_container(
        &self,
        request: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        self.gate("RemoveContainer").await?;
        let id = ContainerId::from(request.into_inner().container_id);
        found_or_gone(self.change(|state, now| state.runtime.remove_container(now, &id)))?;
        Ok(Response::new(cri::RemoveContainerResponse {}))
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        self.gate("ListContainers").await?;
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.lock();
        let found = containers(&state, &filter.id, &filter.pod_sandbox_id, &filter.label_selector)
            .into_iter()
            .filter(|c| filter.state.is_none_or(|f| f.state == i32::from(wire::container_state(c.state))))
            .map(|c| wire::container(&state, c))
            .collect();
        Ok(Response::new(cri::ListContainersResponse { containers: found }))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        self.gate("ContainerStatus").await?;
        let request = request.into_inner();
        let state = self.lock();
        let container = find_container(&state, &request.container_id)?;
        let info = if request.verbose { verbose("{\"pid\":0}") } else { BTreeMap::new() };
        Ok(Response::new(cri::ContainerStatusResponse {
            status: Some(wire::container_status(&state, container)),
            info,
        }))
    }

    async fn update_container_resources(
        &self,
        request: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Answer<cri::UpdateContainerResourcesResponse> {
        self.gate("UpdateContainerResources").await?;
        let request = request.into_inner();
        let id = ContainerId::from(request.container_id);
        self.change(|state, _| {
            let config = state.containers.get_mut(&id).ok_or_else(|| not_found(id.as_str()))?;
            if let Some(resources) = request.linux {
                Arc::make_mut(config).linux.get_or_insert_default().resources = Some(resources);
            }
            Ok(Response::new(cri::UpdateContainerResourcesResponse {}))
        })
    }

    async fn checkpoint_container(
        &self,
        request: Request<cri::CheckpointContainerRequest>,
    ) -> Answer<cri::CheckpointContainerResponse> {
        self.gate("CheckpointContainer").await?;
        find_container(&self.lock(), &request.into_inner().container_id)?;
        Err(Status::unimplemented("a simulated container has no state to write"))
    }

    async fn reopen_container_log(
        &self,
        request: Request<cri::ReopenContainerLogRequest>,
    ) -> Answer<cri::ReopenContainerLogResponse> {
        self.gate("ReopenContainerLog").await?;
        let id = request.into_inner().container_id;
        let state = self.lock();
        find_container(&state, &id)?;
        if let Some(path) = state.log_path(&ContainerId::from(id)) {
            super::logs::append(&path, self.now().wall, "log reopened");
        }
        Ok(Response::new(cri::ReopenContainerLogResponse {}))
    }

    async fn exec_sync(&self, request: Request<cri::ExecSyncRequest>) -> Answer<cri::ExecSyncResponse> {
        self.gate("ExecSync").await?;
        let id = request.into_inner().container_id;
        let state = self.lock();
        find_container(&state, &id)?;
        if !state.runtime.is_running(&ContainerId::from(id.as_str())) {
            return Err(Status::failed_precondition(format!("container {id} is not running")));
        }
        Ok(Response::new(cri::ExecSyncResponse::default()))
    }

    async fn exec(&self, _: Request<cri::ExecRequest>) -> Answer<cri::ExecResponse> {
        Err(Status::unimplemented("a simulated container has nothing to run a command in"))
    }

    async fn attach(&self, _: Request<cri::AttachRequest>) -> Answer<cri::AttachResponse> {
        Err(Status::unimplemented("a simulated container has nothing to attach to"))
    }

    async fn port_forward(&self, _: Request<cri::PortForwardRequest>) -> Answer<cri::PortForwardResponse> {
        Err(Status::unimplemented("a simulated sandbox has no network to forward to"))
    }

    async fn container_stats(
        &self,
        request: Request<cri::ContainerStatsRequest>,
    ) -> Answer<cri::ContainerStatsResponse> {
        self.gate("ContainerStats").await?;
        let state = self.lock();
        let id = request.into_inner().container_id;
        let stats = wire::container_stats(&state, find_container(&state, &id)?, self.now().wall);
        Ok(Response::new(cri::ContainerStatsResponse { stats: Some(stats) }))
    }

    async fn list_container_stats(
        &self,
        request: Request<cri::ListContainerStatsRequest>,
    ) -> Answer<cri::ListContainerStatsResponse> {
        self.gate("ListContainerStats").await?;
        let filter = request.into_inner().filter.unwrap_or_default();
        let now = self.now().wall;
        let state = self.lock();
        let stats = containers(&state, &filter.id, &filter.pod_sandbox_id, &filter.label_selector)
            .into_iter()
            .map(|c| wire::container_stats(&state, c, now))
            .collect();
        Ok(Response::new(cri::ListContainerStatsResponse { stats }))
    }

    async fn list_pod_sandbox_stats(
        &self,
        request: Request<cri::ListPodSandboxStatsRequest>,
    ) -> Answer<cri::ListPodSandboxStatsResponse> {
        self.gate("ListPodSandboxStats").await?;
        let filter = request.into_inner().filter.unwrap_or_default();
        let now = self.now().wall;
        let state = self.lock();
        let stats = sandboxes(&state, &filter.id, &filter.label_selector)
            .into_iter()
            .map(|s| wire::sandbox_stats(&state, s, now))
            .collect();
        Ok(Response::new(cri::ListPodSandboxStatsResponse { stats }))
    }

    async fn get_container_events(&self, _: Request<cri::GetEventsRequest>) -> Answer<Self::GetContainerEventsStream> {
        self.gate("GetContainerEvents").await?;
        if !self.options.events {
            return Err(Status::unimplemented("unknown method GetContainerEvents"));
        }
        Ok(Response::new(ReceiverStream::new(self.subscribe())))
    }
}

/// The sandboxes that a filter lets through. An id may be given by its beginning, as crictl does.
fn sandboxes<'a>(state: &'a State, id: &str, labels: &Labels) -> Vec<&'a Sandbox> {
    let config = |s: &Sandbox| state.sandboxes.get(&s.id).and_then(|r| r.config.as_ref());
    let fits = |s: &&Sandbox| s.id.as_str().starts_with(id) && config(s).is_none_or(|c| selects(labels, &c.labels));
    match labels.get(UID_LABEL) {
        Some(uid) => state.runtime.sandboxes_of(&PodUid::from(uid.as_str())).filter(fits).collect(),
        None => state.runtime.sandboxes().values().filter(fits).collect(),
    }
}

/// See [`sandboxes`].
fn containers<'a>(state: &'a State, id: &str, sandbox: &str, labels: &Labels) -> Vec<&'a Container> {
    let fits = |c: &&Container| {
        c.id.as_str().starts_with(id)
            && c.sandbox.as_str().starts_with(sandbox)
            && state.containers.get(&c.id).is_none_or(|config| selects(labels, &config.labels))
    };
    match labels.get(UID_LABEL) {
        Some(uid) => state.runtime.containers_of(&PodUid::from(uid.as_str())).filter(fits).collect(),
        None => state.runtime.containers().values().filter(fits).collect(),
    }
}

fn selects(selector: &Labels, labels: &Labels) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

fn find_sandbox<'a>(state: &'a State, id: &str) -> Result<&'a Sandbox, Status> {
    let exact = state.runtime.sandboxes().get(&SandboxId::from(id));
    exact.or_else(|| only(sandboxes(state, id, &Labels::new()), id)).ok_or_else(|| not_found(id))
}

fn find_container<'a>(state: &'a State, id: &str) -> Result<&'a Container, Status> {
    let exact = state.runtime.containers().get(&ContainerId::from(id));
    exact.or_else(|| only(containers(state, id, "", &Labels::new()), id)).ok_or_else(|| not_found(id))
}

/// The one object whose id begins so.
fn only<T: Copy>(found: Vec<T>, id: &str) -> Option<T> {
    match found.as_slice() {
        [one] if !id.is_empty() => Some(*one),
        _ => None,
    }
}

fn not_found(id: &str) -> Status {
    Status::not_found(format!("an error occurred when try to find {id:?}: not found"))
}

fn verbose(info: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("info".to_owned(), info.to_owned())])
}
