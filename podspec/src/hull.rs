//! A pod of the API server that cannot be run here. Whoever made it must be told, so what names it is compiled all the
//! same, with the reason; nothing of what it holds is ever looked at.

use crate::issues::Issues;
use crate::{Origin, convert, unsupported};
use components::spec::PodSpec;
use k8s_openapi::api::core::v1::{self as api, Container, Pod};

/// Reason and message, if this node cannot run the pod whatever its state.
pub(super) fn refusal(pod: &Pod) -> Option<(&'static str, String)> {
    let spec = pod.spec.as_ref()?;
    if spec.os.as_ref().is_some_and(|os| os.name != "linux") {
        let message = "Failed to admit pod as the OS field doesn't match node OS";
        return Some(("PodOSNotSupported", message.to_owned()));
    }
    let mut issues = Issues::default();
    unsupported::refuse_bound(spec, &mut issues);
    let errors = issues.into_list();
    (!errors.is_empty()).then(|| ("UnexpectedAdmissionError", errors.join("; ")))
}

/// What is known of a refused pod: who it is, its containers' names and images, its resources.
pub(super) fn convert(pod: &Pod, refused: (&'static str, String), origin: &Origin<'_>) -> Result<PodSpec, String> {
    let json = serde_json::to_string(pod).map_err(|e| format!("cannot be written as JSON: {e}"))?;
    let whole = pod.spec.clone().unwrap_or_default();
    let bare = |c: &Container| Container {
        name: c.name.clone(),
        image: c.image.clone(),
        resources: c.resources.clone(),
        restart_policy: c.restart_policy.clone(),
        ..Container::default()
    };
    let spec = api::PodSpec {
        init_containers: whole.init_containers.map(|list| list.iter().map(bare).collect()),
        containers: whole.containers.iter().map(bare).collect(),
        node_name: whole.node_name,
        restart_policy: whole.restart_policy,
        termination_grace_period_seconds: whole.termination_grace_period_seconds,
        priority: whole.priority,
        resources: whole.resources,
        ..api::PodSpec::default()
    };
    let mut spec = convert::convert(&Pod { spec: Some(spec), metadata: pod.metadata.clone(), status: None }, origin)?;
    spec.refused = Some(refused);
    spec.json = json.into();
    Ok(spec)
}
