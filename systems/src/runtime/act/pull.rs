//! The logins for a pull: of the pod's secrets, the node's configuration and credential providers, one after the other.

use super::Pod;
use crate::registry;
use components::pulls::TrackedLogin;
use components::registry::PullTries;
use components::spec::PodSpec;

/// What a pull can be made with.
pub(super) enum Login {
    /// The answer to a question comes first; it touches the pod.
    Wait,
    /// These, in this order; without any when there is none.
    All(Vec<TrackedLogin>),
    /// A pull secret cannot be understood.
    Broken(String),
}

/// The login whose turn it is, and whether more follow.
pub(super) fn turn(mut logins: Vec<TrackedLogin>, tries: &PullTries) -> (Option<TrackedLogin>, bool) {
    if logins.is_empty() {
        return (None, false);
    }
    // What there are may have changed since the first attempt.
    let at = tries.tried.min(logins.len() - 1);
    let more = at + 1 < logins.len();
    (Some(logins.swap_remove(at)), more)
}

impl Pod<'_, '_> {
    /// The logins that fit an image. `tell` says that secrets which cannot be had are to be told.
    pub(super) fn all_logins(&mut self, spec: &PodSpec, image: &str, tell: bool) -> Login {
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
        if !missing.is_empty() && tell {
            let text = format!(
                "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
                missing.join(", ")
            );
            self.flow.last_event = format!("FailedToRetrieveImagePullSecret: {text}").into();
            self.flow.events.warning("FailedToRetrieveImagePullSecret", text, None);
        }
        logins.extend(provided);
        Login::All(logins)
    }
}
