//! The conditions of the Node object, in the kubelet's order, and whether the node is ready.

use super::build::{Facts, NodeEvent};
use components::duration::GoDuration;
use components::edge::cri::RuntimeInfo;
use components::time::{Mono, Wall};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// Silence of the runtime after which it counts as down (contract 7).
const RUNTIME_DOWN: Duration = Duration::from_secs(30);
/// Without a relist for this long the node is not ready.
const PLEG_DOWN: Duration = Duration::from_secs(180);

/// One kind of pressure: condition type, then reason and message without and with pressure, then their events.
struct Pressure {
    kind: &'static str,
    without: [&'static str; 3],
    with: [&'static str; 3],
}

const PRESSURES: [Pressure; 3] = [
    Pressure {
        kind: "MemoryPressure",
        without: ["KubeletHasSufficientMemory", "kubelet has sufficient memory available", "NodeHasSufficientMemory"],
        with: [
            "KubeletHasInsufficientMemory",
            "kubelet has insufficient memory available",
            "NodeHasInsufficientMemory",
        ],
    },
    Pressure {
        kind: "DiskPressure",
        without: ["KubeletHasNoDiskPressure", "kubelet has no disk pressure", "NodeHasNoDiskPressure"],
        with: ["KubeletHasDiskPressure", "kubelet has disk pressure", "NodeHasDiskPressure"],
    },
    Pressure {
        kind: "PIDPressure",
        without: ["KubeletHasSufficientPID", "kubelet has sufficient PID available", "NodeHasSufficientPID"],
        with: ["KubeletHasInsufficientPID", "kubelet has insufficient PID available", "NodeHasInsufficientPID"],
    },
];

/// Writes the conditions of the kubelet; those of others are kept.
pub(super) fn fill(status: &mut Map<String, Value>, facts: &Facts<'_>) -> Vec<NodeEvent> {
    let name = &facts.node.node_name;
    let mut events = Vec::new();
    let mut tell = |reason: &'static str| {
        let message = format!("Node {name} status is now: {reason}");
        events.push(NodeEvent { warning: false, reason, message });
    };
    let list = match status.entry("conditions").or_insert_with(|| json!([])) {
        Value::Array(list) => list,
        other => {
            *other = json!([]);
            match other {
                Value::Array(list) => list,
                _ => return Vec::new(),
            }
        }
    };
    for (pressure, on) in PRESSURES.iter().zip(facts.pressure) {
        let [reason, message, event] = if on { pressure.with } else { pressure.without };
        let old = find(list, pressure.kind).and_then(|at| list.get(at));
        let (reason, message) = match old {
            // As long as it stands, its words are left alone.
            Some(old) if holds(old, on) => (text(old, "reason").to_owned(), text(old, "message").to_owned()),
            _ => (reason.to_owned(), message.to_owned()),
        };
        if put(list, pressure.kind, on, &reason, &message, facts.now) != Change::None {
            tell(event);
        }
    }
    let ready = facts.unready.is_empty();
    let (reason, message) = if ready {
        ("KubeletReady", "kubelet is posting ready status".to_owned())
    } else {
        ("KubeletNotReady", joined(facts.unready))
    };
    if put(list, "Ready", ready, reason, &message, facts.now) == Change::Flipped {
        tell(if ready { "NodeReady" } else { "NodeNotReady" });
    }
    events
}

#[derive(PartialEq, Eq)]
enum Change {
    None,
    New,
    Flipped,
}

fn find(list: &[Value], kind: &str) -> Option<usize> {
    list.iter().position(|condition| text(condition, "type") == kind)
}

fn text<'a>(condition: &'a Value, key: &str) -> &'a str {
    condition.get(key).and_then(Value::as_str).unwrap_or_default()
}

fn holds(condition: &Value, on: bool) -> bool {
    text(condition, "status") == spelled(on)
}

const fn spelled(on: bool) -> &'static str {
    if on { "True" } else { "False" }
}

fn put(list: &mut Vec<Value>, kind: &str, on: bool, reason: &str, message: &str, now: Wall) -> Change {
    let now = now.rfc3339();
    let at = find(list, kind);
    let old = at.and_then(|at| list.get(at));
    let since = old.filter(|old| holds(old, on)).map(|old| text(old, "lastTransitionTime"));
    let change = match (old.is_some(), since) {
        (false, _) => Change::New,
        (true, None) => Change::Flipped,
        (true, Some(_)) => Change::None,
    };
    let since = since.filter(|since| !since.is_empty()).unwrap_or(&now);
    let condition = json!({
        "type": kind,
        "status": spelled(on),
        "lastHeartbeatTime": now,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    });
    match at {
        Some(at) => list[at] = condition,
        None => list.push(condition),
    }
    change
}

/// Several complaints as one text, each said once.
fn joined(complaints: &[String]) -> String {
    let mut said: Vec<&str> = Vec::new();
    for complaint in complaints {
        if !said.contains(&complaint.as_str()) {
            said.push(complaint);
        }
    }
    match said[..] {
        [only] => only.to_owned(),
        _ => format!("[{}]", said.join(", ")),
    }
}

/// What is known of the runtime, for the Ready condition.
pub(crate) struct Heard<'a> {
    pub(crate) info: Option<&'a RuntimeInfo>,
    /// When it last said that it is ready.
    pub(crate) ready_seen: Option<Mono>,
    /// When it was last relisted.
    pub(crate) relisted: Option<Mono>,
    /// A graceful shutdown has begun.
    pub(crate) shutting_down: bool,
    pub(crate) now: Mono,
}

/// Why the node is not ready; empty when it is.
pub(crate) fn unready(heard: &Heard<'_>) -> Vec<String> {
    let mut out = Vec::new();
    match heard.ready_seen {
        None => out.push("container runtime status check may not have completed yet".to_owned()),
        Some(seen) if heard.now.since(seen) >= RUNTIME_DOWN => out.push("container runtime is down".to_owned()),
        Some(_) => {}
    }
    match heard.relisted {
        None => out.push("PLEG is not healthy: pleg has yet to be successful".to_owned()),
        Some(relisted) if heard.now.since(relisted) > PLEG_DOWN => {
            let ago = go(heard.now.since(relisted));
            let limit = go(PLEG_DOWN);
            out.push(format!("PLEG is not healthy: pleg was last seen active {ago} ago; threshold is {limit}"));
        }
        Some(_) => {}
    }
    if let Some(info) = heard.info {
        if !info.runtime_ready {
            out.push(format!("container runtime not ready: {}", complaint(info, "RuntimeReady")));
        }
        if !info.network_ready {
            out.push(format!("container runtime network not ready: {}", complaint(info, "NetworkReady")));
        }
    } else {
        out.push("network state unknown".to_owned());
    }
    if heard.shutting_down {
        out.push("node is shutting down".to_owned());
    }
    out
}

/// What the runtime says of one of its conditions; it tells those that are not met, one after the other.
fn complaint<'a>(info: &'a RuntimeInfo, kind: &str) -> &'a str {
    let all = info.message.as_str();
    let Some(at) = all.find(&format!("{kind}=false")) else { return all };
    let own = &all[at..];
    let other = if kind == "RuntimeReady" { ", NetworkReady=false" } else { ", RuntimeReady=false" };
    own.find(other).map_or(own, |end| &own[..end])
}

fn go(duration: Duration) -> GoDuration {
    GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
}
