//! `cargo xtask test --reference`: the acceptance cases on ticklet and on the reference kubelet, and a table of both.
//!
//! A case is a test of the module `cases` of the containerd rung, or one of the cluster rung's that asks only for what any
//! kubelet must do: it asserts the right value and does not ask who is tested. Fails when ticklet fails one; what the
//! reference fails is shown and is no failure. Results of the cluster rung are written into `docs/cases.md`.

#[path = "cases/page.rs"]
mod page;

use std::collections::BTreeMap;
use std::ffi::OsString;

use ::tests::lab::Runtime;
use ::tests::tunables::Tunables;
use anyhow::{Result, bail};

use crate::rungs;

/// What the tests on ticklet and on the reference ended with, by case.
type Results = BTreeMap<String, [Option<bool>; 2]>;

/// Modules of test programs whose tests are cases.
const CASES: &[&str] = &["cases::"];
/// The same in the cluster rung, where `same::` compares the two kubelets itself.
const CLUSTER_CASES: &[&str] = &["cases::", "workloads::", "kubectl::", "top::"];
/// The module of the cluster rung that runs both kubelets.
const SAME: &str = "same::";

/// Runs the cases: all, those of the cluster rung only after `--cluster`, or those whose names contain one of the words.
pub(crate) fn task(args: &[String]) -> Result<()> {
    let (cluster_only, words) = match args.split_first() {
        Some((first, rest)) if first == "--cluster" => (true, rest),
        _ => (false, args),
    };
    let words = words.strip_prefix(&["--".to_owned()][..]).unwrap_or(words);
    ::tests::tools::ensure_lab()?;
    let reference = ::tests::tools::kubelet()?.into_os_string();
    // The reference sets kernel parameters at start; they are put back when this ends.
    let _tunables = Tunables::save();
    let mut programs = rungs::case_programs()?;
    programs.retain(|program| !cluster_only || program.is_cluster());
    let report = std::env::temp_dir().join(format!("ticklet-same-{}", std::process::id()));
    let mut results = Results::new();
    for (column, name) in ["ticklet", "reference"].into_iter().enumerate() {
        println!("\n=== cases on the {name}");
        for program in &programs {
            let mut filter: Vec<String> = words.to_vec();
            let mut env = vec![
                (Runtime::VARIABLE, OsString::from(Runtime::Containerd2.name())),
                (rungs::CLUSTER_VARIABLE, OsString::from("1")),
            ];
            if words.is_empty() {
                let modules = if program.is_cluster() { CLUSTER_CASES } else { CASES };
                filter.extend(modules.iter().map(|&module| module.to_owned()));
            }
            if column == 0 {
                env.push((rungs::REFERENCE_VARIABLE, reference.clone()));
                env.push(("TICKLET_REPORT", report.clone().into_os_string()));
                filter.extend((words.is_empty() && program.is_cluster()).then(|| SAME.to_owned()));
            } else {
                env.push(("TICKLET_BIN", reference.clone()));
                filter.extend(["--skip".to_owned(), SAME.to_owned()]);
            }
            for line in rungs::run_and_list(program, &filter, &env)? {
                if let Some((case, passed)) = outcome(&line, program.is_cluster()) {
                    results.entry(program.case(case)).or_default()[column] = Some(passed);
                }
            }
        }
    }
    print!("\n{}", table(&results));
    page::write(&results, &report)?;
    let failed = results.values().filter(|[ticklet, _]| *ticklet != Some(true)).count();
    if results.is_empty() || failed > 0 {
        bail!("{failed} of {} cases failed on ticklet", results.len());
    }
    Ok(())
}

/// The case that a line of the test harness tells the end of.
fn outcome(line: &str, cluster: bool) -> Option<(&str, bool)> {
    let (case, end) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let modules = if cluster { CLUSTER_CASES } else { CASES };
    if !modules.iter().chain(&[SAME]).any(|module| case.starts_with(module)) {
        return None;
    }
    let case = case.strip_prefix("cases::").unwrap_or(case);
    match end {
        "ok" => Some((case, true)),
        "FAILED" => Some((case, false)),
        _ => None,
    }
}

fn table(results: &Results) -> String {
    let width = results.keys().map(String::len).max().unwrap_or_default();
    let mut out = format!("{:<width$}  {:<8}  reference\n", "case", "ticklet");
    for (case, [ticklet, reference]) in results {
        out += &format!("{case:<width$}  {:<8}  {}\n", page::word(*ticklet), page::word(*reference));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_says_how_a_case_ended() {
        assert_eq!(outcome("test cases::lifecycle::lif_2 ... ok", false), Some(("lifecycle::lif_2", true)));
        assert_eq!(outcome("test cases::lifecycle::lif_2 ... FAILED", true), Some(("lifecycle::lif_2", false)));
        for other in ["test pods::runs ... ok", "running 3 tests", "test cases::x has been running"] {
            assert_eq!(outcome(other, true), None);
        }
        assert_eq!(outcome("test top::x ... ok", true), Some(("top::x", true)));
        assert_eq!(outcome("test top::x ... ok", false), None);
    }

    #[test]
    fn the_table_shows_both() {
        let results = [("a".to_owned(), [Some(true), Some(false)]), ("long".to_owned(), [Some(false), None])];
        let expect = "case  ticklet   reference\na     right     wrong\nlong  wrong     not run\n";
        assert_eq!(table(&BTreeMap::from(results)), expect);
    }
}
