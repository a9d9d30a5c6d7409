//! What a status write says: the difference between what the server has and what is so, as a strategic merge patch.
//!
//! Conditions are merged by type and those of others are left alone; addresses are replaced whole; every other field is
//! written where it differs and taken away where it is no more.

use components::ids::PodUid;
use components::spec::PodSpec;
use components::status::json::{Declared, status_json};
use components::status::{ConditionKind, PodStatus};
use serde_json::{Map, Value, json};

/// Fields that this node writes. Others in the server's status are someone else's.
const FIELDS: [&str; 15] = [
    "observedGeneration",
    "phase",
    "message",
    "reason",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "qosClass",
    "allocatedResources",
    "resources",
];
/// Lists that a strategic merge patch would merge by `ip`.
const ADDRESSES: [&str; 2] = ["hostIPs", "podIPs"];

/// Body of the write; `None` when the server has it all.
pub(super) fn body(uid: &PodUid, known: &str, status: &PodStatus, spec: &PodSpec) -> Option<String> {
    let declared: Declared<'_> = serde_json::from_str(&spec.json).unwrap_or_default();
    let mut wanted: Value = serde_json::from_str(&status_json(status, &declared)).ok()?;
    let mut known: Value = serde_json::from_str(known).unwrap_or_default();
    drop_nulls(&mut wanted);
    drop_nulls(&mut known);
    let change = difference(&known, &wanted);
    (!change.is_empty()).then(|| json!({"metadata": {"uid": uid.as_str()}, "status": change}).to_string())
}

/// A field that is null and one that is missing are the same to the API.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Body of the last deletion.
pub(super) fn deletion(uid: &PodUid) -> String {
    let preconditions = json!({"uid": uid.as_str()});
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": preconditions})
        .to_string()
}

fn difference(known: &Value, wanted: &Value) -> Map<String, Value> {
    let mut change = Map::new();
    for field in FIELDS {
        match (known.get(field), wanted.get(field)) {
            (known, Some(wanted)) if known != Some(wanted) => {
                let replaced = ADDRESSES.contains(&field) && known.is_some();
                let value = if replaced { replace(wanted) } else { wanted.clone() };
                change.insert(field.to_owned(), value);
            }
            (Some(_), None) => {
                change.insert(field.to_owned(), Value::Null);
            }
            _ => {}
        }
    }
    let (items, order) = conditions(known.get("conditions"), wanted.get("conditions"));
    if !items.is_empty() {
        change.insert("$setElementOrder/conditions".to_owned(), Value::Array(order));
        change.insert("conditions".to_owned(), Value::Array(items));
    }
    change
}

/// A list that is to be as it stands here, whatever the server's has.
fn replace(list: &Value) -> Value {
    let items = list.as_array().into_iter().flatten().cloned();
    Value::Array(std::iter::once(json!({"$patch": "replace"})).chain(items).collect())
}

/// Conditions that differ, and the order in which all of them are to stand.
fn conditions(known: Option<&Value>, wanted: Option<&Value>) -> (Vec<Value>, Vec<Value>) {
    fn list(value: Option<&Value>) -> &[Value] {
        value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
    let (known, wanted) = (list(known), list(wanted));
    let same = |a: &Value, b: &Value| a.get("type") == b.get("type");
    let own = |c: &Value| c["type"].as_str().is_some_and(ConditionKind::is_own);
    let mut items: Vec<Value> = wanted.iter().filter(|w| !known.contains(w)).cloned().collect();
    for old in known.iter().filter(|old| own(old) && !wanted.iter().any(|w| same(w, old))) {
        items.push(json!({"$patch": "delete", "type": old["type"]}));
    }
    for item in &mut items {
        // A field that is gone must be taken away by name: items are merged.
        let Some(old) = known.iter().find(|old| same(old, item)).and_then(Value::as_object) else { continue };
        let Some(fields) = item.as_object_mut().filter(|fields| !fields.contains_key("$patch")) else { continue };
        for field in old.keys() {
            fields.entry(field.clone()).or_insert(Value::Null);
        }
    }
    let foreign = known.iter().filter(|c| !own(c));
    let order = foreign.chain(wanted).map(|c| json!({"type": c["type"]})).collect();
    (items, order)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(known: &Value, wanted: &Value, expect: &Value) {
        assert_eq!(Value::Object(difference(known, wanted)), *expect);
    }

    #[test]
    fn equal_statuses_need_no_write_and_foreign_fields_stay() {
        let wanted = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
        let mut known = wanted.clone();
        known["nominatedNodeName"] = json!("n");
        known["conditions"].as_array_mut().unwrap().push(json!({"type": "example.com/gate", "status": "True"}));
        check(&known, &wanted, &json!({}));
    }

    #[test]
    fn fields_are_written_where_they_differ_and_taken_away_where_they_are_no_more() {
        check(
            &json!({"phase": "Pending", "message": "m", "qosClass": "Burstable", "podIPs": [{"ip": "1"}]}),
            &json!({"phase": "Running", "qosClass": "Burstable", "podIPs": [{"ip": "2"}], "hostIPs": [{"ip": "3"}]}),
            &json!({"phase": "Running", "message": null, "podIPs": [{"$patch": "replace"}, {"ip": "2"}],
                "hostIPs": [{"ip": "3"}]}),
        );
    }

    #[test]
    fn conditions_are_merged_by_type() {
        let gate = json!({"type": "example.com/gate", "status": "False"});
        check(
            &json!({"conditions": [
                gate, {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
                {"type": "AllContainersRestarting", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}),
            &json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "PodScheduled", "status": "True"}]}),
            &json!({
                "$setElementOrder/conditions": [{"type": "example.com/gate"}, {"type": "Ready"}, {"type": "PodScheduled"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": null},
                    {"$patch": "delete", "type": "AllContainersRestarting"}]}),
        );
    }
}
