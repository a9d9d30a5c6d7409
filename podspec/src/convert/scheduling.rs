//! Node selection and tolerations in their compact form.

use components::scheduling::{Requirement, Scheduling, SelectorTerm, Toleration};
use k8s_openapi::api::core::v1 as api;

/// What the spec asks of its node.
pub(super) fn scheduling(spec: &api::PodSpec) -> Scheduling {
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|it| it.required_during_scheduling_ignored_during_execution.as_ref());
    Scheduling {
        node_selector: spec.node_selector.clone().unwrap_or_default(),
        affinity: required.map(|selector| selector.node_selector_terms.iter().map(term).collect()),
        tolerations: spec.tolerations.iter().flatten().map(toleration).collect(),
    }
}

fn term(term: &api::NodeSelectorTerm) -> SelectorTerm {
    let all = |list: &Option<Vec<api::NodeSelectorRequirement>>| list.iter().flatten().map(requirement).collect();
    SelectorTerm { labels: all(&term.match_expressions), fields: all(&term.match_fields) }
}

fn requirement(it: &api::NodeSelectorRequirement) -> Requirement {
    Requirement { key: it.key.clone(), operator: it.operator.clone(), values: it.values.clone().unwrap_or_default() }
}

fn toleration(it: &api::Toleration) -> Toleration {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    Toleration { key: text(&it.key), operator: text(&it.operator), value: text(&it.value), effect: text(&it.effect) }
}
