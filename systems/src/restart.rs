//! Whether an ended container runs again: restart rules first, then the container's policy, then the pod's.

use components::edge::cri::{ContainerState, ContainerStatus, PodInspection};
use components::hooks::{RestartAction, RestartRule};
use components::spec::{ContainerKind, ContainerSpec, PodSpec, RestartPolicy};

/// Whether a container that ended with this code is started again.
pub(crate) fn restarts(spec: &PodSpec, container: &ContainerSpec, exit_code: i32) -> bool {
    match container.kind {
        ContainerKind::Sidecar => return true,
        ContainerKind::Ephemeral => return false,
        // Done for good.
        ContainerKind::Init if exit_code == 0 => return false,
        ContainerKind::Init | ContainerKind::Main => {}
    }
    if rule(container, exit_code).is_some() {
        return true;
    }
    match container.lifecycle.restart_policy.unwrap_or(spec.restart_policy) {
        RestartPolicy::Always => true,
        RestartPolicy::OnFailure => exit_code != 0,
        RestartPolicy::Never => false,
    }
}

/// Whether the end with this code restarts every container of the pod.
fn restarts_all(container: &ContainerSpec, exit_code: i32) -> bool {
    rule(container, exit_code).is_some_and(|rule| rule.action == RestartAction::RestartAll)
}

/// The ended instance in the newest sandbox that restarts every container of the pod, if there is one.
pub(crate) fn restart_cause<'a>(spec: &PodSpec, seen: &'a PodInspection) -> Option<&'a ContainerStatus> {
    let sandbox = &seen.sandboxes.first()?.id;
    spec.containers.iter().find_map(|container| {
        let own = |status: &&ContainerStatus| status.name == container.name && status.sandbox == *sandbox;
        let newest = seen.containers.iter().find(own)?;
        let ended = newest.state == ContainerState::Exited;
        (ended && restarts_all(container, newest.exit_code)).then_some(newest)
    })
}

/// The first rule that fits.
fn rule(container: &ContainerSpec, exit_code: i32) -> Option<&RestartRule> {
    container.lifecycle.restart_rules.iter().find(|rule| rule.codes.contains(&exit_code) == rule.is_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::spec;

    /// `pod` has one container; its own policy and rules are given.
    #[track_caller]
    fn check(pod: &str, own: Option<RestartPolicy>, rules: &[(RestartAction, bool, i32)], expect: [bool; 3]) {
        let mut spec = spec(pod);
        let container = &mut spec.containers[0];
        container.lifecycle.restart_policy = own;
        container.lifecycle.restart_rules = rules
            .iter()
            .map(|(action, is_in, code)| RestartRule { action: *action, is_in: *is_in, codes: vec![*code] })
            .collect();
        let found = [0, 1, 42].map(|code| restarts(&spec, &spec.containers[0], code));
        assert_eq!(found, expect, "{pod} {own:?}");
    }

    #[test]
    fn the_pods_policy_counts_where_nothing_else_does() {
        check("always a", None, &[], [true, true, true]);
        check("onfailure a", None, &[], [false, true, true]);
        check("never a", None, &[], [false, false, false]);
        check("always init:i", None, &[], [false, true, true]);
        check("never side:s", None, &[], [true, true, true]);
    }

    #[test]
    fn a_containers_own_policy_and_rules_go_before() {
        use RestartAction::{Restart, RestartAll};
        check("always a", Some(RestartPolicy::Never), &[], [false, false, false]);
        check("never a", Some(RestartPolicy::Never), &[(Restart, true, 42)], [false, false, true]);
        check("never a", Some(RestartPolicy::OnFailure), &[(RestartAll, false, 1)], [true, true, true]);
        check("never init:i", Some(RestartPolicy::Never), &[(Restart, false, 1)], [false, false, true]);
    }

    #[test]
    fn the_first_rule_that_fits_counts() {
        let mut spec = spec("never a");
        let rule = |action, code| RestartRule { action, is_in: true, codes: vec![code] };
        spec.containers[0].lifecycle.restart_rules = vec![
            rule(RestartAction::Restart, 1),
            rule(RestartAction::RestartAll, 1),
            rule(RestartAction::RestartAll, 2),
        ];
        assert_eq!([0, 1, 2].map(|code| restarts_all(&spec.containers[0], code)), [false, false, true]);
    }
}
