//! Whether this node takes a pod at all. A pod that is not taken fails at once, with a reason.
//!
//! Reads the spec, the node's configuration and the machine; writes nothing, so that a status can be computed from it
//! again.

use crate::sysctls;
use components::edge::cri::AppArmor;
use components::node::{Machine, NodeConfig};
use components::spec::PodSpec;

/// Why the pod is not taken: reason and message of its status.
pub(crate) fn refusal(spec: &PodSpec, config: &NodeConfig, machine: &Machine) -> Option<(&'static str, String)> {
    if let Some(why) = sysctls::refusal(spec, &config.limits.unsafe_sysctls) {
        return Some(("SysctlForbidden", format!("Pod was rejected: {why}")));
    }
    if wants_apparmor(spec) && !machine.apparmor {
        let why = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        return Some(("AppArmor", format!("Pod was rejected: {why}")));
    }
    None
}

/// A container has a profile that confines it.
fn wants_apparmor(spec: &PodSpec) -> bool {
    let confines = |profile: &AppArmor| *profile != AppArmor::Unconfined;
    let of_pod = spec.security.apparmor.as_ref();
    spec.containers.iter().any(|c| c.security.apparmor.as_ref().or(of_pod).is_some_and(confines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn profiles_need_a_kernel_that_enforces_them() {
        let mut spec = fixtures::spec("always a b");
        let said = |spec: &PodSpec, apparmor: bool| {
            let machine = Machine { apparmor, ..Machine::default() };
            refusal(spec, &fixtures::node(), &machine).map(|(reason, _)| reason)
        };
        assert_eq!(said(&spec, false), None);
        spec.security.apparmor = Some(AppArmor::RuntimeDefault);
        assert_eq!((said(&spec, false), said(&spec, true)), (Some("AppArmor"), None));
        for container in &mut spec.containers {
            container.security.apparmor = Some(AppArmor::Unconfined);
        }
        assert_eq!(said(&spec, false), None);
        spec.containers[1].security.apparmor = Some(AppArmor::Localhost("web".into()));
        assert_eq!(said(&spec, false), Some("AppArmor"));
    }
}
