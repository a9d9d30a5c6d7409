//! What a pod asks of the node that it is placed on, compiled from its spec.

use std::collections::BTreeMap;

/// Node selection and tolerations of a pod.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scheduling {
    /// `spec.nodeSelector`.
    pub node_selector: BTreeMap<String, String>,
    /// Terms of the required node affinity, one of which must fit; `None` when there is no such affinity.
    pub affinity: Option<Vec<SelectorTerm>>,
    /// `spec.tolerations`.
    pub tolerations: Vec<Toleration>,
}

/// Requirements that must all be met. One without any fits no node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SelectorTerm {
    /// `matchExpressions`.
    pub labels: Vec<Requirement>,
    /// `matchFields`; only `metadata.name` is known.
    pub fields: Vec<Requirement>,
}

/// One requirement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Requirement {
    /// Label or field.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    pub operator: String,
    /// Values.
    pub values: Vec<String>,
}

/// A toleration.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Toleration {
    /// Key; empty for all.
    pub key: String,
    /// `Equal` (or empty), `Exists`, `Lt` or `Gt`.
    pub operator: String,
    /// Value.
    pub value: String,
    /// Effect; empty for all.
    pub effect: String,
}
