//! The tables of `docs/cases.md` that the tool writes: the cases of the cluster rung, and the comparison of end states.
//!
//! A run of some cases replaces their rows and keeps the others. What a person added behind a result stays as long as the
//! result does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Results;
use crate::run::root;

const PAGE: &str = "docs/cases.md";
const CASES: (&str, &str) = ("<!-- cases of the cluster rung -->\n", "<!-- end of the cases -->");
const SAME: (&str, &str) = ("<!-- end states -->\n", "<!-- end of the end states -->");
const HEAD: &str = "| case | ticklet | kubelet 1.37.2 |\n|---|---|---|\n";

/// Puts the results into the page, and the report of the comparison if there is one.
pub(super) fn write(results: &Results, report: &Path) -> Result<()> {
    let file = root().join(PAGE);
    let mut page = fs::read_to_string(&file).with_context(|| format!("cannot read {PAGE}"))?;
    page = replace(&page, CASES, |old| cases(old, results))?;
    if let Ok(report) = fs::read_to_string(report) {
        page = replace(&page, SAME, |_| report.clone())?;
    }
    fs::write(&file, page).with_context(|| format!("cannot write {PAGE}"))
}

/// The page with what lies between two marks made anew.
fn replace(page: &str, (from, to): (&str, &str), with: impl FnOnce(&str) -> String) -> Result<String> {
    let (before, rest) = page.split_once(from).with_context(|| format!("{PAGE} has no {from}"))?;
    let (old, after) = rest.split_once(to).with_context(|| format!("{PAGE} has no {to}"))?;
    Ok(format!("{before}{from}{}{to}{after}", with(old)))
}

/// The old table with the rows of the results replaced.
fn cases(old: &str, results: &Results) -> String {
    let mut rows: BTreeMap<String, [String; 2]> = BTreeMap::new();
    for line in old.lines().skip(2) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [name, ticklet, reference] = cells[..] {
            rows.insert(name.to_owned(), [ticklet.to_owned(), reference.to_owned()]);
        }
    }
    for (case, outcomes) in results {
        // The comparison of end states has a table of its own.
        let Some(case) = case.strip_prefix("cluster: ").filter(|case| !case.starts_with("same::")) else { continue };
        let row = rows.entry(title(case)).or_default();
        for (cell, outcome) in row.iter_mut().zip(outcomes) {
            let word = word(*outcome);
            if outcome.is_some() && cell.split(':').next() != Some(word) {
                *cell = word.to_owned();
            }
        }
    }
    let lines = rows.iter().map(|(name, [ticklet, reference])| format!("| {name} | {ticklet} | {reference} |\n"));
    HEAD.to_owned() + &lines.collect::<String>()
}

/// How a case ended, in a word.
pub(super) fn word(passed: Option<bool>) -> &'static str {
    match passed {
        Some(true) => "right",
        Some(false) => "wrong",
        None => "not run",
    }
}

/// A test's name as a sentence; a number at its begin is written as in reports: `LIF-1d`.
fn title(case: &str) -> String {
    let name = case.rsplit("::").next().unwrap_or(case);
    let words: Vec<&str> = name.split('_').collect();
    match words[..] {
        [area, number, ref rest @ ..] if number.starts_with(|c: char| c.is_ascii_digit()) => {
            format!("{}-{number} {}", area.to_uppercase(), rest.join(" "))
        }
        _ => words.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_titles() {
        assert_eq!(title("lifecycle::lif_1d_a_pod_stays"), "LIF-1d a pod stays");
        assert_eq!(title("top::kubectl_top_tells"), "kubectl top tells");
    }

    #[test]
    fn rows_are_replaced_and_notes_stay_with_their_result() {
        let old = format!(
            "{HEAD}| LIF-1 x | right | wrong: it stops |\n| LIF-2 y | right | not run |\n| z | wrong: a | right |\n"
        );
        let results = [
            ("cluster: lifecycle::lif_1_x".to_owned(), [Some(true), Some(false)]),
            ("cluster: lifecycle::z".to_owned(), [Some(true), None]),
            ("of the containerd rung".to_owned(), [Some(true), Some(true)]),
        ];
        let new = format!(
            "{HEAD}| LIF-1 x | right | wrong: it stops |\n| LIF-2 y | right | not run |\n| z | right | right |\n"
        );
        assert_eq!(cases(&old, &Results::from(results)), new);
    }

    #[test]
    fn what_lies_between_the_marks_is_made_anew() {
        let page = "a\n<!-- end states -->\nold\n<!-- end of the end states -->\nb\n";
        let new = replace(page, SAME, |old| old.to_uppercase()).unwrap();
        assert_eq!(new, "a\n<!-- end states -->\nOLD\n<!-- end of the end states -->\nb\n");
        assert!(replace("nothing", SAME, str::to_owned).is_err());
    }
}
