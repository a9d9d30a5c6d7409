//! The dashboard shows only what the page of metrics tells of.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

const BOARD: &str = "docs/dashboard.json";
const PAGE: &str = "docs/metrics.md";
/// What Prometheus adds to the name of a histogram.
const PARTS: [&str; 3] = ["_bucket", "_sum", "_count"];

/// Names metrics of the dashboard that are not on the page.
pub(super) fn check(root: &Path) -> Result<Vec<String>> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
    let board: Value = serde_json::from_str(&read(BOARD)?).with_context(|| format!("{BOARD} is no JSON"))?;
    let page = read(PAGE)?;
    let unknown = shown(&board).into_iter().filter(|name| !page.contains(&format!("`{name}`")));
    Ok(unknown.map(|name| format!("board: {BOARD} shows {name}, which {PAGE} does not tell of")).collect())
}

/// Names of metrics in the expressions of all panels.
fn shown(board: &Value) -> BTreeSet<String> {
    let targets = board["panels"].as_array().into_iter().flatten().flat_map(|panel| panel["targets"].as_array());
    let exprs = targets.flatten().filter_map(|target| target["expr"].as_str());
    exprs.flat_map(names).collect()
}

/// Words of an expression that select samples: a brace follows them.
fn names(expr: &str) -> impl Iterator<Item = String> {
    let before = expr.split('{').collect::<Vec<_>>();
    let (_, before) = before.split_last().unwrap_or((&"", &[]));
    let word = |text: &&str| {
        let start = text.rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let name = &text[start..];
        PARTS.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name).to_owned()
    };
    before.iter().map(word).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_metrics_are_taken_from_expressions() {
        let check = |expr: &str, expect: &[&str]| assert_eq!(names(expr).collect::<Vec<_>>(), expect, "{expr}");
        check("sum(rate(a_total{x=\"y\"}[5m])) / b{}", &["a_total", "b"]);
        check("histogram_quantile(0.9, sum by (le) (rate(c_seconds_bucket{}[5m])))", &["c_seconds"]);
        check("1", &[]);
    }
}
