//! Rules of requests and limits.

use super::names;
use crate::issues::Issues;
use crate::resources::{List, parse};
use components::quantity::Quantity;
use k8s_openapi::api::core::v1::ResourceRequirements;

/// Native resources a container may name; others need a domain.
const NATIVE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Whose resources are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    /// A container's.
    Container,
    /// The pod's as a whole.
    Pod,
}

/// Checks requests, limits and how they relate.
pub(super) fn check(path: &str, of: Of, resources: &ResourceRequirements, issues: &mut Issues) {
    let empty = List::new();
    let limits = resources.limits.as_ref().unwrap_or(&empty);
    let requests = resources.requests.as_ref().unwrap_or(&empty);
    check_list(&format!("{path}.limits"), of, limits, issues);
    check_list(&format!("{path}.requests"), of, requests, issues);
    for (name, request) in requests {
        let field = format!("{path}.requests[{name}]");
        let Some(wanted) = parse(&request.0) else { continue };
        let limit = limits.get(name).and_then(|limit| Some((parse(&limit.0)?, &limit.0)));
        let Some((limit, shown)) = limit else {
            if !may_overcommit(name) {
                issues.required(&format!("{path}.limits"), "a limit must be set as well");
            }
            continue;
        };
        if may_overcommit(name) && wanted > limit {
            issues.invalid(&field, &request.0, &format!("must be less than or equal to the limit of {shown}"));
        } else if !may_overcommit(name) && wanted != limit {
            issues.invalid(&field, &request.0, &format!("must be equal to the limit of {shown}"));
        }
    }
    let has = |name: &str| limits.contains_key(name) || requests.contains_key(name);
    let huge = limits.keys().chain(requests.keys()).any(|name| name.starts_with("hugepages-"));
    if of == Of::Container && huge && !has("cpu") && !has("memory") {
        issues.forbidden(path, "hugepages need a cpu or memory request or limit beside them");
    }
    if resources.claims.as_ref().is_some_and(|claims| !claims.is_empty()) {
        issues.forbidden(&format!("{path}.claims"), "a static pod has no resource claims");
    }
}

/// Checks amounts without relation to others.
pub(super) fn check_list(path: &str, of: Of, list: &List, issues: &mut Issues) {
    for (name, quantity) in list {
        let path = format!("{path}[{name}]");
        let huge = name.starts_with("hugepages-");
        if of == Of::Pod && !(name == "cpu" || name == "memory" || huge) {
            issues.unsupported(&path, name, &["cpu", "memory", "hugepages-<size>"]);
        } else if let Some(wrong) = names::qualified(name) {
            issues.invalid(&path, name, wrong);
        } else if !(NATIVE.contains(&name.as_str()) || huge || name.contains('/')) {
            issues.invalid(&path, name, "must be a standard resource or have a domain and '/' before it");
        }
        let Some(amount) = parse(&quantity.0) else {
            issues.invalid(&path, &quantity.0, "must be a quantity, such as 100m, 64Mi or 2");
            continue;
        };
        if amount.is_negative() {
            issues.invalid(&path, &quantity.0, "must be greater than or equal to 0");
        } else if Quantity::from_units(amount.value(), amount.format()) != amount && (huge || name.contains('/')) {
            issues.invalid(&path, &quantity.0, "must be a whole number");
        }
    }
}

/// True for resources whose request may be below their limit.
fn may_overcommit(name: &str) -> bool {
    !name.starts_with("hugepages-") && !name.contains('/')
}
