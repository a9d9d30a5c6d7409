//! Whether a node is one that a pod asks for, and that tolerates it: labels, name and taints.

use components::node::object::NodeTaint;
use components::scheduling::{Requirement, Scheduling, SelectorTerm, Toleration};
use std::collections::BTreeMap;

/// True when the node's labels and name are what the pod requires.
pub(super) fn fits(asked: &Scheduling, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let selected = asked.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    selected && asked.affinity.as_ref().is_none_or(|terms| terms.iter().any(|term| met(term, labels, name)))
}

fn met(term: &SelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    // A term that asks for nothing fits nothing.
    let empty = term.labels.is_empty() && term.fields.is_empty();
    let field = |key: &str| (key == "metadata.name").then_some(name);
    !empty
        && term.labels.iter().all(|it| holds(it, labels.get(&it.key).map(String::as_str)))
        && term.fields.iter().all(|it| it.values.len() == 1 && holds(it, field(&it.key)))
}

/// True when the value of a label, or its absence, is what is asked for.
pub(crate) fn holds(asked: &Requirement, value: Option<&str>) -> bool {
    let listed = |value: &str| asked.values.iter().any(|v| v == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let compared = |fits: fn(i64, i64) -> bool| {
        let limit = match &asked.values[..] {
            [only] => number(only),
            _ => None,
        };
        value.and_then(number).zip(limit).is_some_and(|(value, limit)| fits(value, limit))
    };
    match asked.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared(|value, limit| value > limit),
        "Lt" => compared(|value, limit| value < limit),
        _ => false,
    }
}

/// True when the pod may stay on a node with these taints: only `NoExecute` is the node's business.
pub(super) fn tolerated(asked: &Scheduling, taints: &[NodeTaint]) -> bool {
    let own = taints.iter().filter(|taint| taint.effect == "NoExecute");
    own.into_iter().all(|taint| asked.tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

fn tolerates(toleration: &Toleration, taint: &NodeTaint) -> bool {
    if !toleration.effect.is_empty() && toleration.effect != taint.effect {
        return false;
    }
    if !toleration.key.is_empty() && toleration.key != taint.key {
        return false;
    }
    match toleration.operator.as_str() {
        "" | "Equal" => toleration.value == taint.value,
        "Exists" => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels() -> BTreeMap<String, String> {
        [("zone", "a"), ("cores", "8")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
    }

    /// `KEY OPERATOR [VALUE…]`.
    fn requirement(text: &str) -> Requirement {
        let mut words = text.split_whitespace().map(str::to_owned);
        let (key, operator) = (words.next().unwrap(), words.next().unwrap());
        Requirement { key, operator, values: words.collect() }
    }

    #[track_caller]
    fn check(text: &str, expect: bool) {
        let term = SelectorTerm { labels: vec![requirement(text)], fields: Vec::new() };
        let asked = Scheduling { affinity: Some(vec![term]), ..Scheduling::default() };
        assert_eq!(fits(&asked, &labels(), "n"), expect, "{text}");
    }

    #[test]
    fn operators_compare_labels() {
        check("zone In a b", true);
        check("zone In b", false);
        check("none In a", false);
        check("zone NotIn b", true);
        check("zone NotIn a", false);
        check("none NotIn a", true);
        check("zone Exists", true);
        check("none Exists", false);
        check("none DoesNotExist", true);
        check("zone DoesNotExist", false);
        check("cores Gt 7", true);
        check("cores Gt 8", false);
        check("cores Lt 9", true);
        check("zone Lt 9", false);
        check("zone Like a", false);
    }

    #[test]
    fn one_term_is_enough_and_an_empty_one_is_none() {
        let term = |label: &str, name: &str| {
            let list = |text: &str| if text.is_empty() { Vec::new() } else { vec![requirement(text)] };
            SelectorTerm { labels: list(label), fields: list(name) }
        };
        let asked = |terms: Vec<SelectorTerm>| Scheduling { affinity: Some(terms), ..Scheduling::default() };
        let fit = |terms| fits(&asked(terms), &labels(), "n");
        assert!(fit(vec![term("zone In b", ""), term("zone In a", "")]));
        assert!(fit(vec![term("zone In a", "metadata.name In n")]));
        assert!(!fit(vec![term("zone In a", "metadata.name In m")]));
        assert!(!fit(vec![term("", "")]));
        assert!(!fit(Vec::new()));
        let mut selector = Scheduling::default();
        assert!(fits(&selector, &labels(), "n"));
        selector.node_selector.insert("zone".into(), "b".into());
        assert!(!fits(&selector, &labels(), "n"));
    }

    #[test]
    fn only_taints_that_end_pods_matter() {
        let taint = |key: &str, effect: &str| NodeTaint { key: key.into(), value: "v".into(), effect: effect.into() };
        let toleration = |key: &str, operator: &str, value: &str, effect: &str| {
            let [key, operator, value, effect] = [key, operator, value, effect].map(str::to_owned);
            Toleration { key, operator, value, effect }
        };
        let with = |list: Vec<Toleration>| Scheduling { tolerations: list, ..Scheduling::default() };
        assert!(tolerated(&with(Vec::new()), &[taint("k", "NoSchedule")]));
        let taints = [taint("k", "NoExecute")];
        assert!(!tolerated(&with(Vec::new()), &taints));
        for (key, operator, value, effect, expect) in [
            ("k", "Equal", "v", "NoExecute", true),
            ("k", "", "v", "", true),
            ("k", "Equal", "w", "", false),
            ("k", "Exists", "", "NoSchedule", false),
            ("", "Exists", "", "", true),
            ("j", "Exists", "", "", false),
        ] {
            assert_eq!(tolerated(&with(vec![toleration(key, operator, value, effect)]), &taints), expect, "{key}");
        }
    }
}
