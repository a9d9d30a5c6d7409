//! Pods as the API shows them: the spec's own JSON with the status added.

use super::{ActualSize, Condition, ContainerReport, PodStatus, RESIZE_IN_PROGRESS, RESIZE_PENDING, ReportedState};
use crate::quantity::{Format, Quantity};
use crate::resize::{ResizeCondition, ResizeConditions};
use crate::snapshot::PodView;
use crate::spec::Resources;
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A `PodList` of every pod that has a spec, in slot order.
#[must_use]
pub fn pod_list<'a>(pods: impl Iterator<Item = &'a Arc<PodView>>) -> String {
    let mut text = r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":["#.to_owned();
    let mut first = true;
    for pod in pods {
        let Some(json) = pod.spec.as_ref().and_then(|spec| pod_json(&spec.json, &pod.status)) else {
            continue;
        };
        if !first {
            text.push(',');
        }
        first = false;
        text.push_str(&json);
    }
    text.push_str("]}");
    text
}

/// A pod's JSON from its JSON without status; `None` when that is no object.
#[must_use]
pub fn pod_json(object: &str, status: &PodStatus) -> Option<String> {
    let open = object.trim_end().strip_suffix('}')?;
    let separator = if open.trim_end().ends_with('{') { "" } else { "," };
    let declared: Declared<'_> = serde_json::from_str(object).unwrap_or_default();
    Some(format!("{open}{separator}\"status\":{}}}", status_json(status, &declared)))
}

/// The part of a pod's object that its status repeats.
#[derive(Deserialize, Default, Debug)]
pub struct Declared<'a> {
    #[serde(default)]
    metadata: DeclaredMeta,
    #[serde(borrow, default)]
    spec: DeclaredSpec<'a>,
}

#[derive(Deserialize, Default, Debug)]
struct DeclaredMeta {
    /// Only objects of the API server have one.
    generation: Option<i64>,
}

#[derive(Deserialize, Default, Debug)]
#[serde(rename_all = "camelCase")]
struct DeclaredSpec<'a> {
    #[serde(borrow, default)]
    init_containers: Vec<DeclaredContainer<'a>>,
    #[serde(borrow, default)]
    containers: Vec<DeclaredContainer<'a>>,
    #[serde(borrow, default)]
    ephemeral_containers: Vec<DeclaredContainer<'a>>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct DeclaredContainer<'a> {
    name: String,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(default)]
    volume_mounts: Vec<DeclaredMount>,
}

#[derive(Deserialize, Debug)]
#[serde(rename_all = "camelCase")]
struct DeclaredMount {
    name: String,
    mount_path: String,
    #[serde(default)]
    read_only: bool,
    recursive_read_only: Option<String>,
}

/// A status in the API's shape.
#[must_use]
pub fn status_json(status: &PodStatus, declared: &Declared<'_>) -> String {
    let generation = declared.metadata.generation;
    let shown = ShownStatus {
        observed_generation: generation,
        phase: status.phase.as_str(),
        conditions: resize_conditions(status.resize.as_deref())
            .chain(status.conditions.iter().map(|it| condition(it, generation)))
            .collect(),
        message: &status.message,
        reason: &status.reason,
        host_ip: status.host_ips().next().unwrap_or_default(),
        host_ips: status.host_ips().map(|ip| Ip { ip }).collect(),
        pod_ip: status.pod_ips.first().map_or("", String::as_str),
        pod_ips: status.pod_ips.iter().map(|ip| Ip { ip }).collect(),
        start_time: time(status.start_time),
        init_container_statuses: containers(&status.init_containers, &declared.spec.init_containers),
        container_statuses: containers(&status.containers, &declared.spec.containers),
        ephemeral_container_statuses: containers(&status.ephemeral_containers, &declared.spec.ephemeral_containers),
        qos_class: &status.qos,
        allocated_resources: status.whole.as_ref().map(|whole| list(&whole.allocated)).filter(|list| !list.is_empty()),
        resources: status.whole.as_ref().map(|whole| ShownWhole {
            limits: list(&whole.resources.limits),
            requests: list(&whole.resources.requests),
        }),
    };
    // Only maps with keys that are no strings can fail here, and there are none.
    serde_json::to_string(&shown).unwrap_or_else(|_| "{}".to_owned())
}

fn containers<'a>(reports: &'a [ContainerReport], specs: &'a [DeclaredContainer<'_>]) -> Vec<ShownContainer<'a>> {
    reports.iter().map(|report| container(report, specs.iter().find(|spec| *spec.name == *report.name))).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownStatus<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    phase: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<ShownCondition<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(rename = "hostIP", skip_serializing_if = "str::is_empty")]
    host_ip: &'a str,
    #[serde(rename = "hostIPs", skip_serializing_if = "Vec::is_empty")]
    host_ips: Vec<Ip<'a>>,
    #[serde(rename = "podIP", skip_serializing_if = "str::is_empty")]
    pod_ip: &'a str,
    #[serde(rename = "podIPs", skip_serializing_if = "Vec::is_empty")]
    pod_ips: Vec<Ip<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_time: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_container_statuses: Vec<ShownContainer<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    container_statuses: Vec<ShownContainer<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ephemeral_container_statuses: Vec<ShownContainer<'a>>,
    #[serde(skip_serializing_if = "str::is_empty")]
    qos_class: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_resources: Option<BTreeMap<&'a str, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ShownWhole<'a>>,
}

#[derive(Serialize)]
struct ShownWhole<'a> {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    limits: BTreeMap<&'a str, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    requests: BTreeMap<&'a str, String>,
}

/// A list of resources as the API has it.
fn list(of: &Resources) -> BTreeMap<&str, String> {
    let binary = |bytes: i64| Quantity::from_units(bytes, Format::BinarySi).to_string();
    let mut out = BTreeMap::new();
    out.extend(of.cpu_milli.map(|milli| ("cpu", Quantity::from_milli(milli, Format::DecimalSi).to_string())));
    out.extend(of.memory_bytes.map(|bytes| ("memory", binary(bytes))));
    out.extend(of.ephemeral_storage_bytes.map(|bytes| ("ephemeral-storage", binary(bytes))));
    out.extend(of.hugepages.iter().map(|(name, bytes)| (name.as_str(), binary(*bytes))));
    let whole = |units: &i64| Quantity::from_units(*units, Format::DecimalSi).to_string();
    out.extend(of.extended.iter().map(|(name, units)| (name.as_str(), whole(units))));
    out
}

#[derive(Serialize)]
struct Ip<'a> {
    ip: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownCondition<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_generation: Option<i64>,
    status: &'static str,
    last_probe_time: Option<String>,
    last_transition_time: Option<String>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
}

fn condition(condition: &Condition, observed_generation: Option<i64>) -> ShownCondition<'_> {
    ShownCondition {
        kind: condition.kind.as_str(),
        observed_generation,
        status: if condition.status { "True" } else { "False" },
        last_probe_time: None,
        last_transition_time: time(condition.since),
        reason: &condition.reason,
        message: &condition.message,
    }
}

/// Those of a resize come first, as on the reference.
fn resize_conditions(shown: Option<&ResizeConditions>) -> impl Iterator<Item = ShownCondition<'_>> {
    let one = |kind, of: fn(&ResizeConditions) -> Option<&ResizeCondition>| {
        shown.and_then(of).map(|condition| ShownCondition {
            kind,
            observed_generation: (condition.generation > 0).then_some(condition.generation),
            status: "True",
            last_probe_time: time(condition.probed),
            last_transition_time: time(condition.since),
            reason: &condition.reason,
            message: &condition.message,
        })
    };
    let pending = one(RESIZE_PENDING, |shown| shown.pending.as_ref());
    pending.into_iter().chain(one(RESIZE_IN_PROGRESS, |shown| shown.in_progress.as_ref()))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownContainer<'a> {
    name: &'a str,
    state: BTreeMap<&'static str, ShownState<'a>>,
    last_state: BTreeMap<&'static str, ShownState<'a>>,
    ready: bool,
    restart_count: u32,
    image: &'a str,
    #[serde(rename = "imageID")]
    image_id: &'a str,
    #[serde(rename = "containerID", skip_serializing_if = "str::is_empty")]
    container_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocated_resources: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<ShownResources<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    volume_mounts: Vec<ShownMount<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<ShownUser<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownResources<'a> {
    /// As they are allocated.
    Allocated(&'a RawValue),
    /// With what differs.
    Actual(serde_json::Value),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownMount<'a> {
    name: &'a str,
    mount_path: &'a str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    recursive_read_only: Option<&'a str>,
}

#[derive(Serialize)]
struct ShownUser<'a> {
    linux: ShownLinuxUser<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownLinuxUser<'a> {
    uid: i64,
    gid: i64,
    #[serde(skip_serializing_if = "<[i64]>::is_empty")]
    supplemental_groups: &'a [i64],
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownState<'a> {
    Waiting {
        #[serde(skip_serializing_if = "str::is_empty")]
        reason: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        message: &'a str,
    },
    #[serde(rename_all = "camelCase")]
    Running { started_at: Option<String> },
    #[serde(rename_all = "camelCase")]
    Terminated {
        exit_code: i32,
        #[serde(skip_serializing_if = "str::is_empty")]
        reason: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        message: &'a str,
        started_at: Option<String>,
        finished_at: Option<String>,
        #[serde(rename = "containerID", skip_serializing_if = "str::is_empty")]
        container_id: &'a str,
    },
}

fn container<'a>(report: &'a ContainerReport, spec: Option<&'a DeclaredContainer<'_>>) -> ShownContainer<'a> {
    // Resources and user belong to a container that exists.
    let exists = !report.container_id.is_empty();
    let resources = spec.and_then(|spec| spec.resources);
    let recursion = |mount: &'a DeclaredMount| match mount.recursive_read_only.as_deref() {
        _ if !mount.read_only => None,
        Some("Enabled" | "IfPossible") => Some("Enabled"),
        _ => Some("Disabled"),
    };
    let mounts = spec.map(|spec| spec.volume_mounts.as_slice()).unwrap_or_default();
    ShownContainer {
        name: &report.name,
        state: state(&report.state),
        last_state: report.last.as_ref().map(state).unwrap_or_default(),
        ready: report.ready,
        restart_count: report.restart_count,
        image: &report.image,
        image_id: &report.image_id,
        container_id: &report.container_id,
        started: report.started,
        allocated_resources: resources.filter(|_| exists).and_then(requests),
        resources: resources.filter(|_| exists).map(|allocated| shown_resources(allocated, report.actual.as_deref())),
        volume_mounts: mounts
            .iter()
            .map(|mount| ShownMount {
                name: &mount.name,
                mount_path: &mount.mount_path,
                read_only: mount.read_only,
                recursive_read_only: recursion(mount),
            })
            .collect(),
        user: report.user.as_ref().map(|(uid, gid, groups)| ShownUser {
            linux: ShownLinuxUser { uid: *uid, gid: *gid, supplemental_groups: groups },
        }),
    }
}

fn shown_resources<'a>(allocated: &'a RawValue, actual: Option<&ActualSize>) -> ShownResources<'a> {
    let Some((actual, mut value)) = actual.zip(serde_json::from_str::<serde_json::Value>(allocated.get()).ok()) else {
        return ShownResources::Allocated(allocated);
    };
    let cpu = |milli: i64| Quantity::from_milli(milli, Format::DecimalSi).to_string();
    let memory = |bytes: i64| Quantity::from_units(bytes, Format::BinarySi).to_string();
    let entries = [
        ("requests", "cpu", actual.cpu_request.map(cpu)),
        ("requests", "memory", actual.memory_request.map(memory)),
        ("limits", "cpu", actual.cpu_limit.map(cpu)),
        ("limits", "memory", actual.memory_limit.map(memory)),
    ];
    for (list, name, amount) in entries {
        if let Some(amount) = amount {
            value[list][name] = amount.into();
        }
    }
    ShownResources::Actual(value)
}

fn requests(resources: &RawValue) -> Option<Box<RawValue>> {
    let mut parts: BTreeMap<String, Box<RawValue>> = serde_json::from_str(resources.get()).ok()?;
    parts.remove("requests").filter(|requests| requests.get() != "{}")
}

fn state(state: &ReportedState) -> BTreeMap<&'static str, ShownState<'_>> {
    let named = match state {
        ReportedState::Waiting { reason, message } => ("waiting", ShownState::Waiting { reason, message }),
        ReportedState::Running { started_at } => ("running", ShownState::Running { started_at: time(*started_at) }),
        ReportedState::Terminated { exit_code, reason, message, started_at, finished_at, container_id } => (
            "terminated",
            ShownState::Terminated {
                exit_code: *exit_code,
                reason,
                message,
                started_at: instant(*started_at, container_id),
                finished_at: instant(*finished_at, container_id),
                container_id,
            },
        ),
    };
    BTreeMap::from([named])
}

/// A time that the runtime says of an instance: one that never started shows the epoch, as upstream converts it.
fn instant(wall: Wall, id: &str) -> Option<String> {
    if id.is_empty() { time(wall) } else { Some(wall.rfc3339()) }
}

/// A time as the API shows it; `null` for one that is not set.
fn time(wall: Wall) -> Option<String> {
    (wall != Wall::default()).then(|| wall.rfc3339())
}

#[cfg(test)]
mod tests;
