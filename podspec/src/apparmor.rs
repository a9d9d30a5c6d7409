//! AppArmor profiles: the field, and the annotation that came before it.

use components::edge::cri::AppArmor;
use k8s_openapi::api::core::v1::{AppArmorProfile, Pod};

/// Annotation of one container's profile, before its name.
const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";

/// A profile given by the field.
pub(super) fn field(profile: &AppArmorProfile) -> AppArmor {
    match profile.type_.as_str() {
        "RuntimeDefault" => AppArmor::RuntimeDefault,
        "Localhost" => AppArmor::Localhost(profile.localhost_profile.clone().unwrap_or_default()),
        _ => AppArmor::Unconfined,
    }
}

/// What the annotation says of a container. No API server has turned it into the field of a static pod.
pub(super) fn annotated(pod: &Pod, container: &str) -> Option<AppArmor> {
    let annotations = pod.metadata.annotations.as_ref()?;
    profile(annotations.get(&format!("{ANNOTATION}{container}"))?)
}

fn profile(text: &str) -> Option<AppArmor> {
    match text {
        "runtime/default" => Some(AppArmor::RuntimeDefault),
        "unconfined" => Some(AppArmor::Unconfined),
        _ => {
            let name = text.strip_prefix("localhost/").filter(|name| !name.is_empty())?;
            Some(AppArmor::Localhost(name.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_has_three_forms() {
        assert_eq!(profile("runtime/default"), Some(AppArmor::RuntimeDefault));
        assert_eq!(profile("unconfined"), Some(AppArmor::Unconfined));
        assert_eq!(profile("localhost/k8s-web"), Some(AppArmor::Localhost("k8s-web".to_owned())));
        for bad in ["", "localhost/", "default", "runtime/other"] {
            assert_eq!(profile(bad), None, "{bad:?}");
        }
    }
}
