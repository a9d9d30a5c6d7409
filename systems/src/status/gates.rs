//! Readiness gates: conditions that others write to the pod's object, and that count for `Ready`.

use components::spec::PodSpec;
use serde::Deserialize;
use std::sync::Arc;

/// Reason of a pod that only its gates hold back.
const REASON: &str = "ReadinessGatesNotReady";

/// Statuses of the pod's gates, in the spec's order; `None` for a condition that nobody has written.
pub(super) fn read(spec: &PodSpec, server: Option<&Arc<str>>) -> Vec<Option<String>> {
    if spec.readiness_gates.is_empty() {
        return Vec::new();
    }
    let status: Status = server.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let of = |gate: &Arc<str>| status.conditions.iter().find(|c| *c.kind == **gate).map(|c| c.status.clone());
    spec.readiness_gates.iter().map(of).collect()
}

/// Reason and message of condition `Ready` while a gate holds it back.
pub(super) fn closed(spec: &PodSpec, gates: &[Option<String>]) -> Option<(&'static str, String)> {
    let said: Vec<String> = spec
        .readiness_gates
        .iter()
        .enumerate()
        .filter_map(|(index, gate)| match gates.get(index).and_then(Option::as_ref) {
            None => Some(format!("corresponding condition of pod readiness gate {gate:?} does not exist.")),
            Some(status) if status != "True" => {
                Some(format!("the status of pod readiness gate {gate:?} is not \"True\", but {status}"))
            }
            Some(_) => None,
        })
        .collect();
    (!said.is_empty()).then(|| (REASON, said.join(", ")))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn each_gate_must_be_open() {
        let mut spec = fixtures::spec("always a");
        assert_eq!(closed(&spec, &read(&spec, None)), None);
        spec.readiness_gates = vec!["x/a".into(), "x/b".into()];
        let check = |text: &str, expect: Option<&str>| {
            let found = closed(&spec, &read(&spec, Some(&text.into())));
            assert_eq!(found.as_ref().map(|(_, message)| message.as_str()), expect);
        };
        let (a, b) = ("corresponding condition of pod readiness gate", "does not exist.");
        check("", Some(&format!("{a} \"x/a\" {b}, {a} \"x/b\" {b}")));
        let no = "the status of pod readiness gate \"x/b\" is not \"True\", but False";
        check(r#"{"conditions":[{"type":"x/b","status":"False"},{"type":"x/a","status":"True"}]}"#, Some(no));
        check(r#"{"conditions":[{"type":"x/b","status":"True"},{"type":"x/a","status":"True"}]}"#, None);
    }
}
