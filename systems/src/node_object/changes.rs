//! What changed between two states of the Node object: whether it is worth a write, and the patch that carries it.

use super::build::{self, ATTACH_DETACH, Facts};
use serde_json::{Map, Value, json};

/// Labels that a registered node gets again when they differ, where this kubelet sets them.
const KEPT_LABELS: [&str; 11] = [
    "kubernetes.io/hostname",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
];

/// True when anything but heartbeat times differs.
pub(super) fn differs(old: &Value, new: &Value) -> bool {
    let labels = |node: &Value| node.pointer("/metadata/labels").cloned();
    let annotations = |node: &Value| node.pointer("/metadata/annotations").cloned();
    labels(old) != labels(new)
        || empty_as_none(annotations(old)) != empty_as_none(annotations(new))
        || still(old) != still(new)
}

fn empty_as_none(value: Option<Value>) -> Option<Value> {
    value.filter(|value| value.as_object().is_none_or(|map| !map.is_empty()))
}

/// The status without heartbeat times, its conditions by type.
fn still(node: &Value) -> Value {
    let mut status = node.get("status").cloned().unwrap_or_default();
    if let Some(Value::Array(conditions)) = status.get_mut("conditions") {
        for condition in conditions.iter_mut().filter_map(Value::as_object_mut) {
            condition.remove("lastHeartbeatTime");
        }
        let kind = |condition: &Value| condition.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
        conditions.sort_by_key(kind);
    }
    status
}

/// The strategic merge patch from one state to another; `None` when there is nothing to say.
pub(super) fn patch(old: &Value, new: &Value) -> Option<Value> {
    let mut out = Map::new();
    for part in ["metadata", "status"] {
        let (Some(before), Some(after)) = (old.get(part), new.get(part)) else { continue };
        if let Some(difference) = difference(before, after) {
            out.insert(part.to_owned(), difference);
        }
    }
    let status = |node: &Value, key: &str| node.pointer(&format!("/status/{key}")).cloned().unwrap_or_default();
    if let Some(Value::Object(changed)) = out.get_mut("status") {
        if changed.contains_key("conditions") {
            let list = conditions(&status(old, "conditions"), &status(new, "conditions"));
            changed.insert("conditions".to_owned(), list);
        }
        if let Some(Value::Array(addresses)) = changed.get_mut("addresses") {
            // Addresses of one type would be merged into one.
            addresses.push(json!({ "$patch": "replace" }));
        }
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// What must be merged into `old` to make it `new`; lists are replaced whole.
fn difference(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(before), Value::Object(after)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut out = Map::new();
    for (key, value) in after {
        match before.get(key) {
            Some(known) => {
                if let Some(inner) = difference(known, value) {
                    out.insert(key.clone(), inner);
                }
            }
            None => {
                out.insert(key.clone(), value.clone());
            }
        }
    }
    for key in before.keys().filter(|key| !after.contains_key(*key)) {
        out.insert(key.clone(), Value::Null);
    }
    (!out.is_empty()).then_some(Value::Object(out))
}

/// Conditions are merged by their type: of each, only what changed.
fn conditions(old: &Value, new: &Value) -> Value {
    let none = Vec::new();
    let old = old.as_array().unwrap_or(&none);
    let kind = |condition: &Value| condition.get("type").cloned().unwrap_or_default();
    let mut out = Vec::new();
    for condition in new.as_array().unwrap_or(&none) {
        let before = old.iter().find(|known| kind(known) == kind(condition));
        let changed = before.map_or_else(|| Some(condition.clone()), |before| difference(before, condition));
        if let Some(mut changed) = changed {
            changed["type"] = kind(condition);
            out.push(changed);
        }
    }
    out.into()
}

/// A node that was registered before, as this kubelet wants it: its own annotation, labels and hugepages.
pub(super) fn reconciled(existing: &Value, initial: &Value) -> Value {
    let mut out = existing.clone();
    let of_initial = |path: &str| initial.pointer(path);
    let metadata = out.get_mut("metadata").and_then(Value::as_object_mut);
    if let Some(metadata) = metadata {
        let wanted = of_initial("/metadata/annotations").and_then(|list| list.get(ATTACH_DETACH));
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            match wanted {
                Some(value) => annotations.insert(ATTACH_DETACH.to_owned(), value.clone()),
                None => annotations.remove(ATTACH_DETACH),
            };
        }
        if metadata.get("annotations").and_then(Value::as_object).is_some_and(Map::is_empty) {
            metadata.remove("annotations");
        }
        let labels = metadata.entry("labels").or_insert_with(|| json!({}));
        if let (Some(labels), Some(wanted)) =
            (labels.as_object_mut(), of_initial("/metadata/labels").and_then(Value::as_object))
        {
            for label in KEPT_LABELS {
                match wanted.get(label) {
                    Some(value) if value.as_str() == Some("") => labels.remove(label),
                    Some(value) => labels.insert(label.to_owned(), value.clone()),
                    None => continue,
                };
            }
        }
    }
    hugepages(&mut out, initial);
    out
}

/// Hugepages of the existing node become those of the machine; other resources wait for the next status.
fn hugepages(existing: &mut Value, initial: &Value) {
    for list in ["capacity", "allocatable"] {
        let Some(wanted) = initial.pointer(&format!("/status/{list}")).and_then(Value::as_object) else { continue };
        let Some(status) = existing.get_mut("status").and_then(Value::as_object_mut) else { continue };
        let there = status.get(list).is_some_and(Value::is_object);
        if !there {
            status.insert(list.to_owned(), Value::Object(wanted.clone()));
            continue;
        }
        let Some(known) = status.get_mut(list).and_then(Value::as_object_mut) else { continue };
        let huge = |name: &str| name.starts_with("hugepages-");
        known.retain(|name, _| !huge(name) || wanted.contains_key(name));
        for (name, value) in wanted.iter().filter(|(name, _)| huge(name)) {
            known.insert(name.clone(), value.clone());
        }
    }
}

/// An object brought up to date, with what happened.
pub(super) fn updated(known: &Value, facts: &Facts<'_>) -> (Value, Vec<build::NodeEvent>) {
    let mut new = known.clone();
    let events = build::fill(&mut new, facts);
    (new, events)
}
