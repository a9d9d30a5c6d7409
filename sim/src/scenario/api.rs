//! What a scenario does with the simulated API server, and what it expects of it.
//!
//! ```text
//! option api on                                  the node takes part in a cluster
//! option node on                                 and registers itself there
//! at 1s api create web                           the pod of a block, bound to this node
//! at 1s api post /api/v1/nodes {"metadata":{"name":"sim"}}
//! at 5s api patch pods/web {"metadata":{"labels":{"a":"b"}}}
//! at 5s api status pods/web {"conditions":[]}    what others write to its status
//! at 9s api delete pods/web                      or `api delete pods/web grace 0`
//! at 9s api down 30s                             also: cut, compact, pages 1, `refuse 429 10s [retry-after 5]`
//! at 9s api ahead 600                            its clock is so many seconds ahead of the node's, or behind with `-`
//! expect at 5s api pods/web /status/phase Running
//! expect at 5s api condition pods/web Ready True
//! expect at 5s api absent pods/web
//! expect at 5s api count PATCH pods/status 2     or `at-most`
//! ```
//! `pods/web` is short for `/api/v1/namespaces/default/pods/web`.

use super::parse::{duration, number};
use crate::node::Node;
use serde_json::{Value, json};
use std::time::Duration;

/// Something that is done.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// A pod is created from a block.
    Create(String),
    /// An object is created in a collection.
    Post(String, Value),
    /// An object is changed by a merge patch.
    Patch(String, Value),
    /// An object's status is changed by a strategic merge patch.
    Status(String, Value),
    /// An object is deleted, with a grace period.
    Delete(String, Option<i64>),
    /// The server is gone for so long.
    Down(Duration),
    /// Lists come in parts of so many objects.
    Pages(usize),
    /// Every watch ends.
    Cut,
    /// The server forgets its history.
    Compact,
    /// Every request is refused with this status for so long, and told to wait.
    Refuse(u16, Duration, Option<u32>),
    /// The server's clock is so many seconds ahead of the node's.
    Ahead(i64),
}

/// Something that is expected at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// A field of an object has this text.
    Field(String, String, String),
    /// A condition has this status.
    Condition(String, String, String),
    /// There is no such object.
    Absent(String),
    /// Requests of this kind so far.
    Count(String, u64),
    /// Requests of this kind so far, at most.
    AtMost(String, u64),
}

pub(super) fn act(words: &[&str]) -> Result<Act, String> {
    let object = |words: &[&str]| serde_json::from_str(&words.join(" ")).map_err(|e| format!("bad JSON: {e}"));
    Ok(match words {
        ["create", name] => Act::Create((*name).to_owned()),
        ["post", path, rest @ ..] => Act::Post(full(path), object(rest)?),
        ["patch", path, rest @ ..] => Act::Patch(full(path), object(rest)?),
        ["status", path, rest @ ..] => Act::Status(full(path), object(rest)?),
        ["delete", path] => Act::Delete(full(path), None),
        ["delete", path, "grace", seconds] => Act::Delete(full(path), Some(number(seconds)?)),
        ["down", time] => Act::Down(duration(time)?),
        ["pages", count] => Act::Pages(number(count)?),
        ["cut"] => Act::Cut,
        ["compact"] => Act::Compact,
        ["refuse", status, time] => Act::Refuse(number(status)?, duration(time)?, None),
        ["refuse", status, time, "retry-after", wait] => {
            Act::Refuse(number(status)?, duration(time)?, Some(number(wait)?))
        }
        ["ahead", seconds] => Act::Ahead(number(seconds)?),
        _ => return Err("unknown action on the API server".into()),
    })
}

pub(super) fn seen(words: &[&str]) -> Result<Seen, String> {
    Ok(match words {
        ["absent", path] => Seen::Absent(full(path)),
        ["condition", path, kind, status] => Seen::Condition(full(path), (*kind).into(), (*status).into()),
        ["count", method, kind, count] => Seen::Count(format!("{method} {kind}"), number(count)?),
        ["at-most", method, kind, count] => Seen::AtMost(format!("{method} {kind}"), number(count)?),
        [path, field, text @ ..] => Seen::Field(full(path), (*field).to_owned(), text.join(" ")),
        _ => return Err("unknown expectation of the API server".into()),
    })
}

/// Does it; `manifest` gives the pod of a block.
pub(super) fn play(node: &mut Node, act: &Act, manifest: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    match act {
        Act::Create(name) => {
            let text = manifest(name).ok_or_else(|| format!("there is no manifest {name}"))?;
            let mut pod: Value = serde_json::from_str(&text).map_err(|e| e.to_string())?;
            if pod.pointer("/spec/nodeName").is_none() {
                pod["spec"]["nodeName"] = json!(&*node.options.config.node_name);
            }
            let namespace = pod["metadata"]["namespace"].as_str().unwrap_or("default").to_owned();
            node.api_create(&format!("/api/v1/namespaces/{namespace}/pods"), &pod)
        }
        Act::Post(path, object) => node.api_create(path, object),
        Act::Patch(path, change) => node.api_patch(path, change),
        Act::Status(path, status) => node.api_status(path, status),
        Act::Delete(path, grace) => node.api_delete(path, *grace),
        Act::Down(pause) => {
            node.api_down(*pause);
            Ok(())
        }
        Act::Pages(count) => {
            node.api.page = Some(*count);
            Ok(())
        }
        Act::Cut => {
            node.cut_watches();
            Ok(())
        }
        Act::Compact => {
            node.api.compact();
            Ok(())
        }
        Act::Refuse(status, pause, wait) => {
            node.api.refuses = Some((*status, node.now().mono.after(*pause)));
            node.api.retry_after = *wait;
            Ok(())
        }
        Act::Ahead(seconds) => {
            node.api.skew = seconds.saturating_mul(1_000_000_000);
            Ok(())
        }
    }
}

/// Compares with what the server has.
pub(super) fn check(node: &Node, seen: &Seen) -> Result<(), String> {
    match seen {
        Seen::Field(path, field, wanted) => {
            let Some(object) = node.api.get(path) else { return Err(format!("there is no {path}")) };
            let found = match object.pointer(field) {
                Some(Value::String(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => "absent".to_owned(),
            };
            if found == *wanted { Ok(()) } else { Err(format!("it is {found}")) }
        }
        Seen::Condition(path, kind, wanted) => {
            let Some(object) = node.api.get(path) else { return Err(format!("there is no {path}")) };
            let all = object.pointer("/status/conditions").and_then(Value::as_array);
            let found = all.into_iter().flatten().find(|c| c["type"] == **kind).map(|c| c["status"].clone());
            let found = found.as_ref().and_then(Value::as_str).unwrap_or("absent");
            if found == wanted { Ok(()) } else { Err(format!("it is {found}")) }
        }
        Seen::Absent(path) => node.api.get(path).map_or(Ok(()), |object| Err(format!("there is {object}"))),
        Seen::Count(kind, wanted) => {
            let found = node.api.counts.get(kind).copied().unwrap_or(0);
            if found == *wanted { Ok(()) } else { Err(format!("there were {found}")) }
        }
        Seen::AtMost(kind, most) => {
            let found = node.api.counts.get(kind).copied().unwrap_or(0);
            if found <= *most { Ok(()) } else { Err(format!("there were {found}")) }
        }
    }
}

fn full(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/api/v1/namespaces/default/{path}") }
}
