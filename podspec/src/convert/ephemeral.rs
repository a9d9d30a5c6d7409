//! An ephemeral container has the fields of any other, in a type of its own.

use crate::defaults;
use k8s_openapi::api::core::v1::{Container, EphemeralContainer};

/// The container, with its defaults and without what only ephemeral ones have.
pub(super) fn plain(ephemeral: &EphemeralContainer) -> Container {
    let it = ephemeral.clone();
    let mut container = Container {
        name: it.name,
        image: it.image,
        image_pull_policy: it.image_pull_policy,
        command: it.command,
        args: it.args,
        working_dir: it.working_dir,
        env: it.env,
        env_from: it.env_from,
        volume_mounts: it.volume_mounts,
        termination_message_path: it.termination_message_path,
        termination_message_policy: it.termination_message_policy,
        security_context: it.security_context,
        stdin: it.stdin,
        stdin_once: it.stdin_once,
        tty: it.tty,
        // The API takes neither ports, probes, hooks nor resources of one.
        ..Container::default()
    };
    defaults::container(&mut container, false);
    container
}
