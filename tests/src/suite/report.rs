//! What a run of the suite found, and the record of what the reference kubelet passes.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// How one spec ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Passed,
    /// The spec itself says that it does not apply here.
    Skipped,
    /// It failed, with the first line of why.
    Failed(String),
}

/// Specs by name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// Reads the report of a run; specs that were not chosen are not in it.
///
/// # Errors
/// When it is not one.
pub fn read(text: &str) -> Result<Outcomes> {
    let suites: Value = serde_json::from_str(text).context("the report is no JSON")?;
    let mut outcomes = Outcomes::new();
    for spec in suites.as_array().into_iter().flatten().flat_map(|suite| suite["SpecReports"].as_array()).flatten() {
        let failure = spec["Failure"]["Message"].as_str().unwrap_or_default();
        let outcome = match spec["State"].as_str().unwrap_or_default() {
            "passed" => Outcome::Passed,
            "pending" => continue,
            // What no filter chose is skipped without a word.
            "skipped" if failure.is_empty() => continue,
            "skipped" => Outcome::Skipped,
            state => Outcome::Failed(format!("{state}: {}", first_words(failure))),
        };
        let is_spec = spec["LeafNodeType"] == "It";
        if is_spec || !matches!(outcome, Outcome::Passed | Outcome::Skipped) {
            outcomes.insert(name(spec), outcome);
        }
    }
    Ok(outcomes)
}

/// How long a run took.
///
/// # Errors
/// When the text is no report.
pub fn run_time(text: &str) -> Result<Duration> {
    let suites: Value = serde_json::from_str(text).context("the report is no JSON")?;
    let times = suites.as_array().into_iter().flatten().filter_map(|suite| suite["RunTime"].as_u64());
    Ok(Duration::from_nanos(times.sum()))
}

/// The full name without the labels that the suite writes into it.
fn name(spec: &Value) -> String {
    let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let texts: Vec<&str> = containers.chain(spec["LeafNodeText"].as_str()).filter(|text| !text.is_empty()).collect();
    let words = if texts.is_empty() { vec![spec["LeafNodeType"].as_str().unwrap_or("?")] } else { texts };
    let mut whole = words.join(" ");
    for label in ["[Conformance]", "[NodeConformance]"] {
        whole = whole.replace(label, " ");
    }
    whole.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn first_words(text: &str) -> String {
    let line: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
    line.join(" ").chars().take(240).collect()
}

/// The record of the reference: a line each, `passed` or `failed` or `skipped`, a tab, the spec's name.
///
/// # Errors
/// When a line is not of that form.
pub fn read_record(text: &str) -> Result<Outcomes> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (state, name) = line.split_once('\t').with_context(|| format!("no tab in `{line}`"))?;
            let outcome = match state {
                "passed" => Outcome::Passed,
                "skipped" => Outcome::Skipped,
                _ => Outcome::Failed(String::new()),
            };
            Ok((name.to_owned(), outcome))
        })
        .collect()
}

/// Writes outcomes as a record.
#[must_use]
pub fn write_record(outcomes: &Outcomes) -> String {
    let word = |outcome: &Outcome| match outcome {
        Outcome::Passed => "passed",
        Outcome::Skipped => "skipped",
        Outcome::Failed(_) => "failed",
    };
    outcomes.iter().map(|(name, outcome)| format!("{}\t{name}\n", word(outcome))).collect()
}

/// Specs that the reference passes and this run did not, with why.
#[must_use]
pub fn lost(reference: &Outcomes, run: &Outcomes) -> Vec<(String, String)> {
    let passed = reference.iter().filter(|(_, outcome)| **outcome == Outcome::Passed);
    let missed = passed.filter_map(|(name, _)| match run.get(name) {
        Some(Outcome::Passed) => None,
        Some(Outcome::Failed(why)) => Some((name.clone(), why.clone())),
        Some(Outcome::Skipped) => Some((name.clone(), "skipped".to_owned())),
        None => Some((name.clone(), "did not run".to_owned())),
    });
    missed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Outcomes {
        let spec = |state: &str, leaf: &str, message: &str| {
            serde_json::json!({
                "ContainerHierarchyTexts": ["[sig-node] Pods", ""],
                "LeafNodeType": "It",
                "LeafNodeText": leaf,
                "State": state,
                "Failure": { "Message": message },
            })
        };
        let text = serde_json::json!([{ "SpecReports": [
            spec("passed", "run [NodeConformance] [Conformance]", ""),
            spec("failed", "stop", "timed out\n\n  after 5 m"),
            spec("skipped", "not chosen", ""),
            spec("skipped", "needs a GPU", "no GPU"),
            { "LeafNodeType": "SynchronizedBeforeSuite", "State": "passed" },
        ] }]);
        read(&text.to_string()).unwrap()
    }

    #[test]
    fn a_report_is_read() {
        let outcomes = report();
        assert_eq!(outcomes["[sig-node] Pods run"], Outcome::Passed);
        assert_eq!(outcomes["[sig-node] Pods stop"], Outcome::Failed("failed: timed out after 5 m".to_owned()));
        assert_eq!(outcomes["[sig-node] Pods needs a GPU"], Outcome::Skipped);
        assert_eq!(outcomes.len(), 3);
    }

    #[test]
    fn what_the_reference_passes_is_asked_for() {
        let record =
            "# a comment\npassed\t[sig-node] Pods run\npassed\t[sig-node] Pods stop\nfailed\tx\npassed\tgone\n";
        let record = read_record(record).unwrap();
        let lost = lost(&record, &report());
        let names: Vec<&str> = lost.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["[sig-node] Pods stop", "gone"]);
        assert_eq!(read_record(&write_record(&record)).unwrap(), record);
        assert!(read_record("passed no tab").is_err());
    }
}
