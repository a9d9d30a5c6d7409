//! Histories in a cluster: pods of the API server, and its troubles.
//!
//! A pod of the server is made, changed and deleted as users do it; another one of its name comes only after it, at once
//! if its deletion is forced. All chance is drawn from a stream of its own: histories without a cluster stay as they were.

use super::plan::{Pod, Slot};
use crate::node::Node;
use crate::rng::Rng;
use components::ids::PodUid;
use components::time::Mono;
use serde_json::Value;
use std::time::Duration;

/// Longest trouble of the server.
const LONGEST: Duration = Duration::from_secs(12);

/// Where a slot's pod lies on the server.
pub(super) fn path(slot: &Slot) -> String {
    format!("/api/v1/namespaces/default/pods/{}", slot.name)
}

/// Makes the server have the slot's pod.
pub(super) fn write(node: &mut Node, slot: &Slot, pod: &Pod) {
    let place = path(slot);
    let Ok(mut object) = serde_json::from_str::<Value>(&pod.json(&slot.name)) else { return };
    object["spec"]["nodeName"] = Value::from(&*node.options.config.node_name);
    let same = |known: &Value| {
        let text = |at: &str| known.pointer(at).and_then(Value::as_str);
        text("/metadata/uid") == Some(&pod.uid) && text("/metadata/deletionTimestamp").is_none()
    };
    let result = match node.api.get(&place) {
        Some(known) if same(known) => node.api_patch(&place, &object),
        Some(_) => {
            // The one before is forced out: a pod with the same name takes its place at once.
            let gone = node.api_delete(&place, Some(0));
            gone.and_then(|()| node.api_create("/api/v1/namespaces/default/pods", &object))
        }
        None => node.api_create("/api/v1/namespaces/default/pods", &object),
    };
    if let Err(text) = result {
        node.checks.violate(format!("the simulated server refused a user: {text}"), node.now().mono);
    }
}

/// Asks for the deletion of the slot's pod.
pub(super) fn delete(node: &mut Node, slot: &Slot, rng: &mut Rng) {
    let grace = if rng.chance(200) { Some(0) } else { None };
    // It may be gone already.
    let _ = node.api_delete(&path(slot), grace);
}

/// Something happens to the server.
pub(super) fn trouble(node: &mut Node, rng: &mut Rng) {
    let pause = rng.duration(Duration::from_millis(100), LONGEST);
    match rng.below(6) {
        0 => node.api_down(pause),
        1 => node.cut_watches(),
        2 => {
            node.api.compact();
            node.cut_watches();
        }
        3 => node.api.page = Some(1),
        _ => {
            let status = *rng.pick(&[401, 403, 409, 410, 429, 500]).unwrap_or(&500);
            node.api.refuses = Some((status, node.now().mono.after(pause)));
        }
    }
}

/// The server is well again.
pub(super) fn repair(node: &mut Node) {
    node.api.refuses = None;
    node.api.down_until = Mono(0);
}

/// What the server has is what the node shows, and what was deleted is gone.
pub(super) fn check(node: &Node, slot: &Slot) -> Result<(), String> {
    let known = node.api.get(&path(slot));
    let Some(pod) = &slot.pod else {
        return known.map_or(Ok(()), |object| Err(format!("{} is still on the server: {object}", slot.name)));
    };
    let known = known.ok_or_else(|| format!("the server has no {}", slot.name))?;
    let uid = PodUid::from(pod.uid.as_str());
    let view = node.snapshot().pods().find(|view| view.uid == uid).ok_or("it is not published")?;
    let phase = known.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    let told = known.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_u64);
    let shown = view.status.containers.first().map(|report| u64::from(report.restart_count));
    if phase != view.status.phase.as_str() || told != shown {
        let shown = (view.status.phase, shown);
        return Err(format!("the server says of {} {phase} and {told:?} restarts, the node {shown:?}", slot.name));
    }
    Ok(())
}
