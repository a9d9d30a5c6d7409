//! The pod compiler: one object of a pod source to a [`PodSpec`], or everything that is wrong with it.
//!
//! Decides whether an object is a pod this node can run, and what it means once defaults are filled in. Reads only its
//! arguments. Steps: decode, default, static pod rules, validate, convert.

mod apparmor;
mod convert;
mod decode;
mod defaults;
mod go_json;
mod hull;
pub mod image;
mod issues;
pub mod objects;
pub mod podcerts;
mod resources;
mod statics;
mod tight;
mod unsupported;
mod validate;
mod volumes;

use crate::issues::Issues;
use components::edge::sources::Source;
use components::spec::PodSpec;
use components::time::Wall;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;
use std::fmt;

/// Where an object comes from and where it is to run.
#[derive(Clone, Copy, Debug)]
pub struct Origin<'a> {
    /// Name of this node, lower case.
    pub node_name: &'a str,
    /// The source.
    pub source: Source,
    /// File path or URL.
    pub path: &'a str,
    /// Digest of the object's content.
    pub digest: u128,
    /// When the pod was first seen.
    pub seen: Wall,
}

/// A compiled pod and what should be said about it once.
#[derive(Debug)]
pub struct Compiled {
    /// The pod.
    pub spec: PodSpec,
    /// One line each.
    pub warnings: Vec<String>,
    /// `metadata.deletionTimestamp` is set: the pod is to end.
    pub deleting: bool,
    /// Digest of the object's `status`; 0 without one.
    pub status_digest: u128,
}

/// Everything that is wrong with an object; displays as one line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// One entry per breach, each beginning with the field's path.
    pub errors: Vec<String>,
}

impl Refusal {
    fn one(error: impl Into<String>) -> Self {
        Self { errors: vec![error.into()] }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.errors.join("; "))
    }
}

impl std::error::Error for Refusal {}

/// Compiles one object, given as JSON text.
///
/// # Errors
/// Everything that is wrong with the object.
pub fn compile(json: &str, origin: &Origin<'_>) -> Result<Compiled, Refusal> {
    // The parser bounds the depth of nesting, so that a hostile object cannot exhaust the stack.
    let value: Value = serde_json::from_str(json).map_err(|e| Refusal::one(format!("not valid JSON: {e}")))?;
    if origin.source == Source::Api {
        return compile_bound(&value, origin);
    }
    check_kind(&value)?;
    let (mut pod, unknown) = decode::decode::<Pod>(&value).map_err(Refusal::one)?;
    drop(value);
    let status_digest = pod.status.take().map_or(0, |status| status_digest(&status));
    defaults::apply(&mut pod);
    if let Some(kind) = pod.spec.as_ref().and_then(statics::api_reference) {
        return Err(Refusal::one(format!("static pods may not reference {kind}")));
    }
    statics::apply(&mut pod, origin);
    let mut issues = Issues::default();
    validate::check(&pod, &mut issues);
    if let Some(spec) = &pod.spec {
        unsupported::refuse(spec, &mut issues);
    }
    let errors = issues.into_list();
    if !errors.is_empty() {
        return Err(Refusal { errors });
    }
    let warnings = warnings(&pod, &unknown);
    let deleting = pod.metadata.deletion_timestamp.is_some();
    let mut spec = convert::convert(&pod, origin).map_err(Refusal::one)?;
    tight::tighten(&mut spec);
    Ok(Compiled { spec, warnings, deleting, status_digest })
}

/// Compiles a pod of the API server, which has filled in defaults and validated it.
fn compile_bound(value: &Value, origin: &Origin<'_>) -> Result<Compiled, Refusal> {
    let (mut pod, unknown) = decode::decode::<Pod>(value).map_err(Refusal::one)?;
    let status_digest = pod.status.take().map_or(0, |status| status_digest(&status));
    let deleting = pod.metadata.deletion_timestamp.is_some();
    pod.metadata.managed_fields = None;
    defaults::apply(&mut pod);
    statics::mark(&mut pod, origin);
    let mut spec = match hull::refusal(&pod) {
        None => convert::convert(&pod, origin),
        Some(refused) => hull::convert(&pod, refused, origin),
    }
    .map_err(Refusal::one)?;
    let warnings = warnings(&pod, &unknown);
    tight::tighten(&mut spec);
    Ok(Compiled { spec, warnings, deleting, status_digest })
}

/// Requests and limits from their JSON text, as state files hold them; `None` when it is no such text.
#[must_use]
pub fn resources_of(text: &str) -> Option<components::spec::ResourceRequirements> {
    resources::from_text(text)
}

fn check_kind(value: &Value) -> Result<(), Refusal> {
    let Some(object) = value.as_object() else { return Err(Refusal::one("must be an object of kind Pod")) };
    let mut issues = Issues::default();
    for (field, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
        match object.get(field) {
            None | Some(Value::Null) => issues.required(field, &format!("must be {wanted}")),
            Some(Value::String(found)) if found == wanted => {}
            Some(Value::String(found)) => issues.unsupported(field, found, &[wanted]),
            Some(_) => issues.invalid(field, "", &format!("must be {wanted}")),
        }
    }
    match issues.into_list() {
        errors if errors.is_empty() => Ok(()),
        errors => Err(Refusal { errors }),
    }
}

/// Digest of the `status` in an object's JSON text; 0 without one, or when the text cannot be read.
#[must_use]
pub fn status_digest_of(json: &str) -> u128 {
    if !json.contains("\"status\"") {
        return 0;
    }
    let status =
        serde_json::from_str::<Value>(json).ok().and_then(|mut value| value.get_mut("status").map(Value::take));
    let decoded = status.and_then(|status| decode::decode(&status).ok());
    decoded.map_or(0, |(status, _)| status_digest(&status))
}

fn status_digest(status: &k8s_openapi::api::core::v1::PodStatus) -> u128 {
    let text = serde_json::to_string(status).unwrap_or_default();
    if text == "{}" { 0 } else { components::fnv::fnv1a_128(text.as_bytes()) }
}

fn warnings(pod: &Pod, unknown: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        warnings.push(format!("unknown fields are ignored: {}", unknown.join(", ")));
    }
    let left_out = unsupported::left_out(pod);
    if !left_out.is_empty() {
        warnings.push(format!("accepted but not acted on by this version of ticklet: {}", left_out.join(", ")));
    }
    warnings
}

#[cfg(test)]
mod tests;
