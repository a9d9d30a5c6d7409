//! Environment of a container and `$(NAME)` expansion (contract 3.8).

use components::ids::Sensitive;
use components::node::{Machine, NodeConfig};
use components::spec::{ContainerSpec, EnvSource, PodSpec, ResourceRequirements};
use std::collections::BTreeMap;

/// What environment values may refer to.
pub(super) struct EnvContext<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) config: &'a NodeConfig,
    pub(super) machine: &'a Machine,
    pub(super) pod_ips: &'a [String],
}

/// Variables in order, expanded in one pass: a variable sees those declared before it. Later ones of the same name
/// replace earlier ones in place.
///
/// # Errors
/// The reference that cannot be resolved, as a sentence.
pub(super) fn variables(
    context: &EnvContext<'_>,
    container: &ContainerSpec,
) -> Result<Vec<(String, Sensitive)>, String> {
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for var in &container.env {
        let value = match &var.source {
            EnvSource::Value(text) => expand(&text.0, &|name| known.get(name).cloned()),
            EnvSource::Field(path) => field(context, path)?,
            EnvSource::Resource { container: name, resource, divisor_milli } => {
                resource_field(context, name, resource, *divisor_milli)?
            }
        };
        if known.insert(var.name.clone(), value).is_none() {
            order.push(var.name.clone());
        }
    }
    Ok(order
        .into_iter()
        .map(|name| {
            let value = known.get(&name).cloned().unwrap_or_default();
            (name, Sensitive(value))
        })
        .collect())
}

/// Expands `$(NAME)`: known names to their value, unknown ones stay as written, `$$` is a `$`.
pub(super) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(tail) = rest.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = rest.strip_prefix('(').and_then(|r| r.split_once(')')) {
            match lookup(name) {
                Some(value) => out.push_str(&value),
                None => {
                    out.push_str("$(");
                    out.push_str(name);
                    out.push(')');
                }
            }
            rest = tail;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

fn field(context: &EnvContext<'_>, path: &str) -> Result<String, String> {
    let spec = context.spec;
    let keyed = |map: &BTreeMap<String, String>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    let value = match path {
        "metadata.name" => spec.name.to_string(),
        "metadata.namespace" => spec.namespace.to_string(),
        "metadata.uid" => spec.uid.to_string(),
        "spec.nodeName" => context.config.node_name.to_string(),
        "spec.serviceAccountName" => spec.service_account.clone(),
        "status.hostIP" => context.machine.node_ips.first().cloned().unwrap_or_default(),
        "status.hostIPs" => context.machine.node_ips.join(","),
        "status.podIP" => context.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => context.pod_ips.join(","),
        _ => keyed(&spec.labels, "metadata.labels['")
            .or_else(|| keyed(&spec.annotations, "metadata.annotations['"))
            .ok_or_else(|| format!("fieldRef {path:?} is not supported for environment variables"))?,
    };
    Ok(value)
}

fn resource_field(context: &EnvContext<'_>, name: &str, resource: &str, divisor_milli: i64) -> Result<String, String> {
    let wanted = context.spec.containers.iter().find(|c| &*c.name == name);
    let container = wanted.ok_or_else(|| format!("resourceFieldRef names the unknown container {name:?}"))?;
    let milli = resource_milli(context.machine, &container.resources, resource)
        .ok_or_else(|| format!("resourceFieldRef {resource:?} is not supported"))?;
    let divisor = i128::from(divisor_milli.max(1));
    // Rounded up, as the API documents.
    Ok(((milli + divisor - 1) / divisor).to_string())
}

/// The amount in thousandths; limits that are not set fall back on what the node has.
fn resource_milli(machine: &Machine, own: &ResourceRequirements, resource: &str) -> Option<i128> {
    let units = |bytes: i64| i128::from(bytes) * 1000;
    Some(match resource {
        "limits.cpu" => i128::from(own.limits.cpu_milli.unwrap_or_else(|| i64::from(machine.cpus) * 1000)),
        "requests.cpu" => i128::from(own.requests.cpu_milli.unwrap_or(0)),
        "limits.memory" => units(own.limits.memory_bytes.unwrap_or(machine.memory_bytes)),
        "requests.memory" => units(own.requests.memory_bytes.unwrap_or(0)),
        "limits.ephemeral-storage" => units(own.limits.ephemeral_storage_bytes.unwrap_or(0)),
        "requests.ephemeral-storage" => units(own.requests.ephemeral_storage_bytes.unwrap_or(0)),
        _ => {
            let (which, name) = resource.split_once('.')?;
            let set = if which == "limits" { &own.limits } else { &own.requests };
            name.starts_with("hugepages-").then(|| units(set.hugepages.get(name).copied().unwrap_or(0)))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expect: &str) {
        let lookup = |name: &str| (name == "A").then(|| "1".to_owned());
        assert_eq!(expand(text, &lookup), expect);
    }

    #[test]
    fn references_expand_and_escapes_stay() {
        check("$(A)-x", "1-x");
        check("$(B)", "$(B)");
        check("$$(A)", "$(A)");
        check("$$$(A)", "$1");
        check("cost 5$", "cost 5$");
        check("$(A", "$(A");
        check("$A $", "$A $");
        check("", "");
    }
}
