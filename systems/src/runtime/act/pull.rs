//! The login for a pull: of the pod's secrets and the node's configuration the one whose turn it is.

use super::Pod;
use crate::registry;
use components::registry::{PullTries, RegistryLogin};
use components::spec::PodSpec;

/// What a pull is to be made with.
pub(super) enum Login {
    /// The answer to a question comes first; it touches the pod.
    Wait,
    /// This one, or none; more of them follow.
    With(Option<RegistryLogin>, bool),
    /// A pull secret cannot be understood.
    Broken(String),
}

impl Pod<'_, '_> {
    /// The login for the next attempt to pull an image.
    pub(super) fn login(&mut self, spec: &PodSpec, image: &str, tries: &PullTries) -> Login {
        let known = registry::ready(self.logins, &self.node.config, self.node.now(), self.emitter.outbox);
        if !known || registry::pending(spec, &self.node.objects) {
            return Login::Wait;
        }
        let now = self.node.now();
        let provided = registry::provided(image, spec, self.logins, &self.node.config, now, self.emitter.outbox);
        let Some(provided) = provided else { return Login::Wait };
        let (mut logins, missing) = match registry::for_image(image, spec, &self.node.objects, self.logins) {
            Ok(found) => found,
            Err(why) => return Login::Broken(why),
        };
        if !missing.is_empty() && tries.tried == 0 {
            let text = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.flow.last_event = format!("FailedToRetrieveImagePullSecret: {text}").into();
            self.flow.events.warning("FailedToRetrieveImagePullSecret", text, None);
        }
        logins.extend(provided);
        if logins.is_empty() {
            return Login::With(None, false);
        }
        // What there are may have changed since the first attempt.
        let at = tries.tried.min(logins.len() - 1);
        let more = at + 1 < logins.len();
        Login::With(Some(logins.swap_remove(at)), more)
    }
}
