//! The order in which containers of an ending pod stop: all but sidecars at once, then sidecars from the last to the
//! first. Pure; reads the spec and who still lives.

use components::spec::{ContainerKind, PodSpec};

/// True when a container must wait with its stop signal for others. `lives` says who may still run; a container that
/// does not run has ended as far as the order is concerned.
pub(super) fn waits(spec: &PodSpec, name: &str, lives: impl Fn(&str) -> bool) -> bool {
    let Some(at) = spec.containers.iter().position(|c| *c.name == *name) else { return false };
    if spec.containers[at].kind != ContainerKind::Sidecar {
        return false;
    }
    let before_it = |index: usize, kind| match kind {
        ContainerKind::Main => true,
        ContainerKind::Sidecar => index > at,
        ContainerKind::Init | ContainerKind::Ephemeral => false,
    };
    spec.containers.iter().enumerate().any(|(index, c)| before_it(index, c.kind) && lives(&c.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::spec;

    #[track_caller]
    fn check(pod: &str, living: &str, may_stop: &str) {
        let spec = spec(pod);
        let lives = |name: &str| living.split_whitespace().any(|l| l == name);
        let free: Vec<&str> = living.split_whitespace().filter(|name| !waits(&spec, name, lives)).collect();
        assert_eq!(free.join(" "), may_stop, "{pod}: {living}");
    }

    #[test]
    fn sidecars_stop_last_and_in_reverse() {
        let pod = "always side:s1 init:i side:s2 a b";
        check(pod, "s1 s2 a b", "a b");
        check(pod, "s1 s2 b", "b");
        check(pod, "s1 s2", "s2");
        check(pod, "s1", "s1");
        check(pod, "s1 i", "s1 i");
    }

    #[test]
    fn what_does_not_run_holds_nobody_up() {
        check("always side:s1 side:s2 a", "s1", "s1");
        check("always a b", "a b", "a b");
    }
}
