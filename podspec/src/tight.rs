//! Gives back the room that lists were grown with: a compiled pod lives long and never changes.

use components::spec::PodSpec;

/// Shrinks every list of the pod to its length.
pub(crate) fn tighten(spec: &mut PodSpec) {
    spec.host_aliases.shrink_to_fit();
    spec.volumes.shrink_to_fit();
    spec.containers.shrink_to_fit();
    spec.pull_secrets.shrink_to_fit();
    spec.security.supplemental_groups.shrink_to_fit();
    for container in &mut spec.containers {
        container.command.shrink_to_fit();
        container.args.shrink_to_fit();
        container.env.shrink_to_fit();
        container.env_from.shrink_to_fit();
        container.ports.shrink_to_fit();
        container.mounts.shrink_to_fit();
        container.security.add_capabilities.shrink_to_fit();
        container.security.drop_capabilities.shrink_to_fit();
    }
}
