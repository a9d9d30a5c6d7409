//! The Node object as it should be, laid over the one that is there (contract 6.1 and 6.2).
//!
//! Reads facts, returns JSON and what happened. Fields that others own are left as they are.

use super::conditions;
use components::edge::cri::{ListedImage, RuntimeHandler, RuntimeInfo};
use components::node::object::NodeObjectConfig;
use components::node::{Machine, NodeConfig};
use components::quantity::{Format, Quantity};
use components::time::Wall;
use serde_json::{Map, Value, json};

/// Annotation that lets the controller manager attach and detach volumes.
pub(super) const ATTACH_DETACH: &str = "volumes.kubernetes.io/controller-managed-attach-detach";
/// Annotation that tells an external cloud provider the addresses given by flag.
const PROVIDED_IP: &str = "alpha.kubernetes.io/provided-node-ip";
/// Names of one image that are told.
const MAX_NAMES: usize = 5;

/// What the Node object is made from.
pub(crate) struct Facts<'a> {
    pub(crate) config: &'a NodeObjectConfig,
    pub(crate) node: &'a NodeConfig,
    pub(crate) machine: &'a Machine,
    pub(crate) runtime: Option<&'a RuntimeInfo>,
    pub(crate) handlers: &'a [RuntimeHandler],
    pub(crate) supplemental_groups: Option<bool>,
    /// Images on the node, the largest first; `None` before they were listed.
    pub(crate) images: Option<&'a [ListedImage]>,
    /// Why the node is not ready; empty when it is.
    pub(crate) unready: &'a [String],
    /// Pressure of memory, disk and processes.
    pub(crate) pressure: [bool; 3],
    pub(crate) now: Wall,
}

/// Something worth an event of the node: type, reason and message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct NodeEvent {
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

/// The object that is registered when there is none.
pub(crate) fn initial(facts: &Facts<'_>) -> (Value, Vec<NodeEvent>) {
    let config = facts.config;
    let mut labels = Map::new();
    for (key, value) in default_labels(facts) {
        labels.insert(key.to_owned(), value.into());
    }
    for (key, value) in &config.labels {
        labels.insert(key.clone(), value.as_str().into());
    }
    let mut taints: Vec<Value> = config.taints.iter().map(taint).collect();
    if config.external_cloud {
        taints.push(json!({
            "key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"
        }));
    }
    let mut spec = Map::new();
    if !taints.is_empty() {
        spec.insert("taints".into(), taints.into());
    }
    if !config.provider_id.is_empty() {
        spec.insert("providerID".into(), config.provider_id.as_str().into());
    }
    let mut metadata = json!({ "name": &*facts.node.node_name, "labels": labels });
    if config.controller_attach_detach {
        metadata["annotations"] = json!({ ATTACH_DETACH: "true" });
    }
    let mut node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {} });
    let events = fill(&mut node, facts);
    (node, events)
}

fn taint(taint: &components::node::object::NodeTaint) -> Value {
    let mut out = json!({ "key": taint.key, "effect": taint.effect });
    if !taint.value.is_empty() {
        out["value"] = taint.value.as_str().into();
    }
    out
}

/// Labels that every kubelet sets, by key.
pub(super) fn default_labels<'a>(facts: &Facts<'a>) -> [(&'static str, &'a str); 5] {
    let architecture = facts.config.machine.architecture.as_str();
    [
        ("beta.kubernetes.io/arch", architecture),
        ("beta.kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture),
        ("kubernetes.io/hostname", &facts.machine.hostname),
        ("kubernetes.io/os", "linux"),
    ]
}

/// Brings an object up to date, and says what happened.
pub(crate) fn fill(node: &mut Value, facts: &Facts<'_>) -> Vec<NodeEvent> {
    let Some(node) = node.as_object_mut() else { return Vec::new() };
    within(node, "metadata", |metadata| {
        within(metadata, "labels", |labels| {
            labels.insert("kubernetes.io/os".into(), "linux".into());
            labels.insert("kubernetes.io/arch".into(), facts.config.machine.architecture.as_str().into());
        });
        provided_ip(metadata, facts);
    });
    within(node, "status", |status| fill_status(status, facts))
}

fn fill_status(status: &mut Map<String, Value>, facts: &Facts<'_>) -> Vec<NodeEvent> {
    let mut events = Vec::new();
    addresses(status, facts);
    capacity(status, facts);
    events.extend(info(status, facts));
    status.insert("daemonEndpoints".into(), json!({ "kubeletEndpoint": { "Port": facts.config.port } }));
    if let Some(images) = facts.images {
        set(status, "images", image_list(images, facts.config.max_images).into());
    }
    let handlers: Vec<Value> = facts.handlers.iter().map(handler).collect();
    set(status, "runtimeHandlers", handlers.into());
    if let Some(groups) = facts.supplemental_groups {
        status.insert("features".into(), json!({ "supplementalGroupsPolicy": groups }));
    }
    set(status, "declaredFeatures", facts.config.declared_features.clone().into());
    // No volume of this node is one that is attached: what an earlier kubelet had would hold up its detachment for ever.
    status.remove("volumesInUse");
    events.extend(conditions::fill(status, facts));
    events
}

/// Inserts a list, or removes it when it is empty: both are the same to the API.
fn set(into: &mut Map<String, Value>, key: &str, value: Value) {
    if value.as_array().is_some_and(Vec::is_empty) {
        into.remove(key);
    } else {
        into.insert(key.to_owned(), value);
    }
}

/// Works on an inner object, which is made when it is missing or something else.
fn within<T>(map: &mut Map<String, Value>, key: &str, act: impl FnOnce(&mut Map<String, Value>) -> T) -> T {
    let mut inner = match map.remove(key) {
        Some(Value::Object(inner)) => inner,
        _ => Map::new(),
    };
    let out = act(&mut inner);
    map.insert(key.to_owned(), Value::Object(inner));
    out
}

fn provided_ip(metadata: &mut Map<String, Value>, facts: &Facts<'_>) {
    if facts.config.external_cloud && facts.config.node_ip_given {
        let addresses = facts.machine.node_ips.join(",");
        within(metadata, "annotations", |list| list.insert(PROVIDED_IP.into(), addresses.into()));
    } else if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(PROVIDED_IP);
    }
}

fn addresses(status: &mut Map<String, Value>, facts: &Facts<'_>) {
    let there = status.get("addresses").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if facts.config.external_cloud && there {
        // What the cloud provider wrote counts.
        return;
    }
    let mut list: Vec<Value> = Vec::new();
    if !facts.config.external_cloud || facts.config.node_ip_given {
        list.extend(facts.machine.node_ips.iter().map(|ip| json!({ "type": "InternalIP", "address": ip })));
    }
    list.push(json!({ "type": "Hostname", "address": facts.machine.hostname }));
    status.insert("addresses".into(), list.into());
}

/// Capacity and what of it is for pods. Resources that others offer are kept.
fn capacity(status: &mut Map<String, Value>, facts: &Facts<'_>) {
    let (config, limits) = (facts.config, &facts.node.limits);
    let amount = |value: i64, format| Value::from(Quantity::from_units(value, format).to_string());
    let cpu = |milli: i64| Value::from(Quantity::from_milli(milli, Format::DecimalSi).to_string());
    let hugepages: Vec<(String, i64)> = config
        .machine
        .hugepages
        .iter()
        .map(|(page, all)| (format!("hugepages-{}", Quantity::from_units(*page, Format::BinarySi)), *all))
        .collect();
    let of_hugepages = hugepages.iter().map(|(_, all)| *all).fold(0_i64, i64::saturating_add);
    let mut whole = Map::new();
    whole.insert("cpu".into(), cpu(i64::from(facts.machine.cpus) * 1000));
    whole.insert("memory".into(), amount(facts.machine.memory_bytes, Format::BinarySi));
    whole.insert("pods".into(), config.pods.to_string().into());
    let mut left = whole.clone();
    left.insert("cpu".into(), cpu(limits.cpu_milli));
    let memory = limits.allocatable_memory_bytes.saturating_sub(of_hugepages).max(0);
    left.insert("memory".into(), amount(memory, Format::BinarySi));
    if let Some(bytes) = config.disk_bytes {
        whole.insert("ephemeral-storage".into(), amount(bytes, Format::DecimalSi));
        left.insert("ephemeral-storage".into(), amount(limits.allocatable_disk_bytes, Format::DecimalSi));
    }
    for (name, all) in hugepages {
        whole.insert(name.clone(), amount(all, Format::BinarySi));
        left.insert(name, amount(all, Format::BinarySi));
    }
    let known = within(status, "capacity", |all| {
        // A page size that the kernel no longer has is no resource any more.
        all.retain(|name, _| !name.starts_with("hugepages-") || whole.contains_key(name));
        all.extend(whole);
        all.clone()
    });
    within(status, "allocatable", |all| {
        all.retain(|name, _| known.contains_key(name));
        for (name, value) in known {
            let value = left.remove(&name).unwrap_or(value);
            all.insert(name, value);
        }
    });
}

fn info(status: &mut Map<String, Value>, facts: &Facts<'_>) -> Option<NodeEvent> {
    within(status, "nodeInfo", |info| {
        let before = info.get("bootID").and_then(Value::as_str).unwrap_or_default();
        let rebooted = !before.is_empty() && before != facts.machine.boot_id;
        for (key, value) in told(facts) {
            info.insert(key.into(), value.into());
        }
        let (name, version) = facts.runtime.map_or(("", "Unknown"), |info| (&info.name, version(info)));
        info.insert("containerRuntimeVersion".into(), format!("{name}://{version}").into());
        info.insert("runningInUserNamespace".into(), facts.config.machine.in_user_namespace.into());
        if facts.machine.swap_bytes > 0 {
            info.insert("swap".into(), json!({ "capacity": facts.machine.swap_bytes }));
        }
        let (node, boot) = (&facts.node.node_name, &facts.machine.boot_id);
        let message = || format!("Node {node} has been rebooted, boot id: {boot}");
        rebooted.then(|| NodeEvent { warning: true, reason: "Rebooted", message: message() })
    })
}

/// Texts of `nodeInfo` that do not depend on the runtime.
fn told<'a>(facts: &Facts<'a>) -> [(&'static str, &'a str); 9] {
    let machine = &facts.config.machine;
    [
        ("machineID", &machine.machine_id),
        ("systemUUID", &machine.system_uuid),
        ("bootID", &facts.machine.boot_id),
        ("kernelVersion", &machine.kernel),
        ("osImage", &machine.os_image),
        ("kubeletVersion", &facts.config.version),
        ("kubeProxyVersion", ""),
        ("operatingSystem", "linux"),
        ("architecture", &machine.architecture),
    ]
}

/// The runtime's version without the `v` in front, as the kubelet prints it.
fn version(info: &RuntimeInfo) -> &str {
    info.version.strip_prefix('v').unwrap_or(&info.version)
}

fn image_list(images: &[ListedImage], max: Option<u32>) -> Vec<Value> {
    let max = max.map_or(usize::MAX, |max| usize::try_from(max).unwrap_or(usize::MAX));
    images
        .iter()
        .take(max)
        .map(|image| {
            let names: Vec<&String> = image.digests.iter().chain(&image.tags).take(MAX_NAMES).collect();
            let names = if names.is_empty() { Value::Null } else { json!(names) };
            let mut out = json!({ "names": names });
            if image.size > 0 {
                out["sizeBytes"] = image.size.into();
            }
            out
        })
        .collect()
}

fn handler(handler: &RuntimeHandler) -> Value {
    json!({
        "name": handler.name,
        "features": {
            "recursiveReadOnlyMounts": handler.recursive_read_only,
            "userNamespaces": handler.user_namespaces,
        },
    })
}
