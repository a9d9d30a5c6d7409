//! Defaults of a v1 Pod, as the API server (and the kubelet for its own sources) fills them in.

use crate::{image, resources, volumes};
use k8s_openapi::api::core::v1::{
    Container, EnvVar, HTTPGetAction, LifecycleHandler, Pod, PodSecurityContext, PodSpec, Probe, ResourceRequirements,
};

/// Fills in everything that is not set and has a default.
pub(super) fn apply(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    spec.enable_service_links.get_or_insert(true);
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.termination_grace_period_seconds.get_or_insert(30);
    spec.security_context.get_or_insert_with(PodSecurityContext::default);
    // The older name of the field is an alias of the newer one.
    let account = spec.service_account_name.take().filter(|n| !n.is_empty()).or_else(|| spec.service_account.take());
    let account = account.filter(|n| !n.is_empty());
    spec.service_account_name.clone_from(&account);
    spec.service_account = account;
    for volume in spec.volumes.iter_mut().flatten() {
        volumes::default(volume);
    }
    let host_network = spec.host_network == Some(true);
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        self::container(container, host_network);
    }
    default_pod_resources(spec);
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_deref().is_none_or(str::is_empty) {
        *field = Some(default.to_owned());
    }
}

/// Defaults of one container.
pub(super) fn container(container: &mut Container, host_network: bool) {
    let latest = image::is_latest(container.image.as_deref().unwrap_or_default());
    text(&mut container.image_pull_policy, if latest { "Always" } else { "IfNotPresent" });
    text(&mut container.termination_message_path, "/dev/termination-log");
    text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
        // In the node's network a port is the node's port.
        if host_network && port.host_port.unwrap_or(0) == 0 {
            port.host_port = Some(port.container_port);
        }
    }
    for env in container.env.iter_mut().flatten() {
        default_env(env);
    }
    for probe in [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe]
        .into_iter()
        .flatten()
    {
        default_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            default_handler(handler);
        }
    }
    default_requests(container.resources.get_or_insert_default());
}

/// What is limited is requested, unless a request is given.
fn default_requests(resources: &mut ResourceRequirements) {
    let Some(limits) = resources.limits.as_ref().filter(|l| !l.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

fn default_env(env: &mut EnvVar) {
    if let Some(field) = env.value_from.as_mut().and_then(|from| from.field_ref.as_mut()) {
        text(&mut field.api_version, "v1");
    }
}

fn default_probe(probe: &mut Probe) {
    number(&mut probe.timeout_seconds, 1);
    number(&mut probe.period_seconds, 10);
    number(&mut probe.success_threshold, 1);
    number(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        default_http_get(get);
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

/// The API takes 0 for "not set" here.
fn number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or(0) == 0 {
        *field = Some(default);
    }
}

fn default_handler(handler: &mut LifecycleHandler) {
    if let Some(get) = &mut handler.http_get {
        default_http_get(get);
    }
}

fn default_http_get(get: &mut HTTPGetAction) {
    text(&mut get.path, "/");
    text(&mut get.scheme, "HTTP");
}

/// Pod-level requests: what the containers request together, else the pod's limit.
fn default_pod_resources(spec: &mut PodSpec) {
    let Some(mut resources) = spec.resources.take() else { return };
    let requests = resources.requests.get_or_insert_default();
    for name in ["cpu", "memory"] {
        if let Some(sum) = resources::requested_together(spec, name) {
            requests.entry(name.to_owned()).or_insert(sum);
        }
    }
    for (name, limit) in resources.limits.iter().flatten() {
        if name == "cpu" || name == "memory" || name.starts_with("hugepages-") {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    if requests.is_empty() {
        resources.requests = None;
    }
    spec.resources = Some(resources);
}
