//! `cargo xtask test --reference`: the acceptance cases on ticklet and on the reference kubelet, and a table of both.
//!
//! A case is a test of the module `cases` of the containerd rung or of the cluster rung: it asserts the right value and does not ask who is
//! tested. Fails when ticklet fails one; what the reference fails is shown and is no failure.

use std::collections::BTreeMap;
use std::ffi::OsString;

use ::tests::lab::Runtime;
use ::tests::tunables::Tunables;
use anyhow::{Result, bail};

use crate::rungs;

/// Runs the cases, or those whose names contain one of `filter`.
pub(crate) fn task(filter: &[String]) -> Result<()> {
    ::tests::tools::ensure_lab()?;
    let reference = ::tests::tools::kubelet()?;
    // The reference sets kernel parameters at start; they are put back when this ends.
    let _tunables = Tunables::save();
    let programs = rungs::case_programs()?;
    let runtime = (Runtime::VARIABLE, OsString::from(Runtime::Containerd2.name()));
    let mut results: BTreeMap<String, [Option<bool>; 2]> = BTreeMap::new();
    let contenders = [("ticklet", None), ("reference", Some(reference.into_os_string()))];
    for (column, (name, binary)) in contenders.into_iter().enumerate() {
        println!("\n=== cases on the {name}");
        let mut env = vec![runtime.clone(), (rungs::CLUSTER_VARIABLE, OsString::from("1"))];
        env.extend(binary.map(|path| ("TICKLET_BIN", path)));
        let filter = if filter.is_empty() { &["cases::".to_owned()][..] } else { filter };
        for program in &programs {
            for line in rungs::run_and_list(program, filter, &env)? {
                if let Some((case, passed)) = outcome(&line) {
                    let case = program.case(case);
                    results.entry(case).or_default()[column] = Some(passed);
                }
            }
        }
    }
    print!("\n{}", table(&results));
    let failed = results.values().filter(|[ticklet, _]| *ticklet != Some(true)).count();
    if results.is_empty() || failed > 0 {
        bail!("{failed} of {} cases failed on ticklet", results.len());
    }
    Ok(())
}

/// The case that a line of the test harness tells the end of.
fn outcome(line: &str) -> Option<(&str, bool)> {
    let (case, end) = line.strip_prefix("test cases::")?.rsplit_once(" ... ")?;
    match end {
        "ok" => Some((case, true)),
        "FAILED" => Some((case, false)),
        _ => None,
    }
}

fn table(results: &BTreeMap<String, [Option<bool>; 2]>) -> String {
    let word = |passed: Option<bool>| match passed {
        Some(true) => "right",
        Some(false) => "wrong",
        None => "not run",
    };
    let width = results.keys().map(String::len).max().unwrap_or_default();
    let mut out = format!("{:<width$}  {:<8}  reference\n", "case", "ticklet");
    for (case, [ticklet, reference]) in results {
        out += &format!("{case:<width$}  {:<8}  {}\n", word(*ticklet), word(*reference));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_harness_says_how_a_case_ended() {
        assert_eq!(outcome("test cases::lifecycle::lif_2 ... ok"), Some(("lifecycle::lif_2", true)));
        assert_eq!(outcome("test cases::lifecycle::lif_2 ... FAILED"), Some(("lifecycle::lif_2", false)));
        for other in ["test pods::runs ... ok", "running 3 tests", "test cases::x has been running"] {
            assert_eq!(outcome(other), None);
        }
    }

    #[test]
    fn the_table_shows_both() {
        let results = [("a".to_owned(), [Some(true), Some(false)]), ("long".to_owned(), [Some(false), None])];
        let expect = "case  ticklet   reference\na     right     wrong\nlong  wrong     not run\n";
        assert_eq!(table(&BTreeMap::from(results)), expect);
    }
}
