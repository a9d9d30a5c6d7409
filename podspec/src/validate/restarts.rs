//! Rules of a container's own restart policy, its restart rules and its stop signal.

use super::pod::one_of;
use crate::issues::Issues;
use k8s_openapi::api::core::v1::Container;

const POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
/// Rules of one container, and exit codes of one rule, that may be given.
const MAX_RULES: usize = 20;
const MAX_CODES: usize = 255;

/// Checks one container.
pub(super) fn check(path: &str, container: &Container, issues: &mut Issues) {
    let policy = container.restart_policy.as_deref();
    if policy.is_some() {
        one_of(&format!("{path}.restartPolicy"), policy, &POLICIES, issues);
    }
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    if rules.is_empty() {
        return;
    }
    if policy.is_none() {
        issues.required(&format!("{path}.restartPolicy"), "must be set with restartPolicyRules");
    }
    if rules.len() > MAX_RULES {
        let what = format!("must have at most {MAX_RULES} rules");
        issues.invalid(&format!("{path}.restartPolicyRules"), rules.len(), &what);
    }
    for (i, rule) in rules.iter().enumerate() {
        let path = format!("{path}.restartPolicyRules[{i}]");
        one_of(&format!("{path}.action"), Some(&rule.action), &ACTIONS, issues);
        let Some(on) = &rule.exit_codes else {
            issues.required(&format!("{path}.exitCodes"), "must be set");
            continue;
        };
        one_of(&format!("{path}.exitCodes.operator"), Some(&on.operator), &OPERATORS, issues);
        let count = on.values.as_ref().map_or(0, Vec::len);
        if !(1..=MAX_CODES).contains(&count) {
            let what = format!("must name 1 to {MAX_CODES} exit codes");
            issues.invalid(&format!("{path}.exitCodes.values"), count, &what);
        }
    }
}
