//! Requests and limits: compiled numbers, sums over containers, and the QoS class.

use components::quantity::Quantity;
use components::resize::ResizePolicy;
use components::spec::{QosClass, ResourceRequirements, Resources};
use k8s_openapi::api::core::v1::{Container, PodSpec, ResourceRequirements as ApiRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use std::collections::BTreeMap;

/// A list of resources as the API has it.
pub(super) type List = BTreeMap<String, ApiQuantity>;

/// A quantity's amount; `None` when the text is none.
pub(super) fn parse(text: &str) -> Option<Quantity> {
    Quantity::parse(text).ok()
}

/// Compiles requests and limits. Validation has refused what does not parse.
pub(super) fn requirements(api: &ApiRequirements) -> ResourceRequirements {
    ResourceRequirements {
        requests: api.requests.as_ref().map(list).unwrap_or_default(),
        limits: api.limits.as_ref().map(list).unwrap_or_default(),
    }
}

/// Requests and limits from their JSON text; `None` when it is no such text.
pub(super) fn from_text(text: &str) -> Option<ResourceRequirements> {
    serde_json::from_str::<ApiRequirements>(text).ok().map(|api| requirements(&api))
}

/// What a change of its resources does to a container that runs.
pub(super) fn resize_policy(container: &Container) -> ResizePolicy {
    let restarts = |name: &str| {
        let policies = container.resize_policy.iter().flatten();
        policies.into_iter().any(|policy| policy.resource_name == name && policy.restart_policy == "RestartContainer")
    };
    ResizePolicy { cpu_restarts: restarts("cpu"), memory_restarts: restarts("memory") }
}

/// Compiles one list.
pub(super) fn list(api: &List) -> Resources {
    let mut compiled = Resources::default();
    for (name, quantity) in api {
        let Some(amount) = parse(&quantity.0) else { continue };
        match name.as_str() {
            "cpu" => compiled.cpu_milli = Some(amount.milli_value()),
            "memory" => compiled.memory_bytes = Some(amount.value()),
            "ephemeral-storage" => compiled.ephemeral_storage_bytes = Some(amount.value()),
            _ if name.starts_with("hugepages-") => {
                compiled.hugepages.insert(name.clone(), amount.value());
            }
            _ => {
                compiled.extended.insert(name.clone(), amount.value());
            }
        }
    }
    compiled
}

/// True for an init container that keeps running beside the main ones.
pub(super) fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// What all containers request of `name` when the most is needed: all main ones and sidecars together, or one init
/// container with the sidecars before it. `None` when none requests it.
pub(super) fn requested_together(spec: &PodSpec, name: &str) -> Option<ApiQuantity> {
    let request = |container: &Container| {
        container.resources.as_ref()?.requests.as_ref()?.get(name).and_then(|quantity| parse(&quantity.0))
    };
    let mut any = false;
    let (mut sidecars, mut peak) = (Quantity::ZERO, Quantity::ZERO);
    for container in spec.init_containers.iter().flatten() {
        let own = request(container);
        any |= own.is_some();
        let with_sidecars = own.unwrap_or(Quantity::ZERO) + sidecars;
        peak = peak.max(with_sidecars);
        if is_sidecar(container) {
            sidecars = with_sidecars;
        }
    }
    let mut main = sidecars;
    for container in &spec.containers {
        let own = request(container);
        any |= own.is_some();
        main += own.unwrap_or(Quantity::ZERO);
    }
    any.then(|| ApiQuantity(peak.max(main).to_string()))
}

/// The QoS class: only cpu and memory count, and only amounts above zero.
pub(super) fn qos(spec: &PodSpec) -> QosClass {
    if let Some(resources) = &spec.resources {
        return class([resources].into_iter());
    }
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let unset = ApiRequirements::default();
    class(containers.map(|c| c.resources.as_ref().unwrap_or(&unset)))
}

fn class<'a>(all: impl Iterator<Item = &'a ApiRequirements>) -> QosClass {
    let (mut nothing, mut guaranteed) = (true, true);
    for one in all {
        for name in ["cpu", "memory"] {
            let limit = positive(one.limits.as_ref(), name);
            let request = positive(one.requests.as_ref(), name);
            nothing &= limit.is_none() && request.is_none();
            guaranteed &= limit.is_some() && limit == request;
        }
    }
    match (nothing, guaranteed) {
        (true, _) => QosClass::BestEffort,
        (false, true) => QosClass::Guaranteed,
        (false, false) => QosClass::Burstable,
    }
}

fn positive(list: Option<&List>, name: &str) -> Option<Quantity> {
    parse(&list?.get(name)?.0).filter(|amount| *amount > Quantity::ZERO)
}
