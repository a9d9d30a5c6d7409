//! Merge patches, and strategic ones for the lists that a kubelet patches.

use serde_json::{Map, Value};

/// Lists whose items are merged by a key; every other list is replaced.
const MERGED: [(&str, &str); 7] = [
    ("conditions", "type"),
    ("addresses", "type"),
    ("podIPs", "ip"),
    ("hostIPs", "ip"),
    ("ownerReferences", "uid"),
    ("volumesAttached", "name"),
    ("imagePullSecrets", "name"),
];

/// JSON merge patch.
pub(super) fn merge(object: &mut Value, change: &Value) {
    apply(object, change, false);
}

/// Strategic merge patch.
pub(super) fn strategic(object: &mut Value, change: &Value) {
    apply(object, change, true);
}

fn apply(object: &mut Value, change: &Value, strategic: bool) {
    let Some(change) = change.as_object() else {
        object.clone_from(change);
        return;
    };
    if strategic && change.get("$patch").is_some_and(|p| p == "replace") {
        let kept = change.iter().filter(|(key, _)| *key != "$patch").map(|(k, v)| (k.clone(), v.clone()));
        *object = Value::Object(kept.collect());
        return;
    }
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(fields) = object.as_object_mut() else { return };
    for (key, value) in change {
        if strategic && key.starts_with('$') {
            continue;
        }
        let by = MERGED.iter().find(|(list, _)| list == key).map(|(_, by)| *by);
        match (value, by) {
            (Value::Null, _) => {
                fields.remove(key);
            }
            (Value::Array(items), Some(by)) if strategic => {
                let order = change.get(&format!("$setElementOrder/{key}")).and_then(Value::as_array);
                let list = fields.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                items_by(list, items, by, order);
            }
            (Value::Object(_), _) => apply(fields.entry(key.clone()).or_insert(Value::Null), value, strategic),
            _ => {
                fields.insert(key.clone(), value.clone());
            }
        }
    }
}

/// Merges the items of a list by a key, then puts them into the order that was asked for.
fn items_by(list: &mut Value, items: &[Value], by: &str, order: Option<&Vec<Value>>) {
    if !list.is_array() {
        *list = Value::Array(Vec::new());
    }
    let Some(list) = list.as_array_mut() else { return };
    if items.iter().any(|item| item.get("$patch").is_some_and(|p| p == "replace")) {
        list.clear();
    }
    for item in items.iter().filter(|item| item.get(by).is_some()) {
        let at = list.iter().position(|old| old.get(by) == item.get(by));
        if item.get("$patch").is_some_and(|p| p == "delete") {
            list.retain(|old| old.get(by) != item.get(by));
        } else if let Some(old) = at.and_then(|at| list.get_mut(at)) {
            apply(old, item, true);
        } else {
            list.push(item.clone());
        }
    }
    if let Some(order) = order {
        let rank = |item: &Value| order.iter().position(|o| o.get(by) == item.get(by)).unwrap_or(order.len());
        list.sort_by_key(rank);
    }
}
