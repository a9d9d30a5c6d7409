//! The steps of a run and their report: how long each took, what failed, how many tests ran on each rung.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How many tests passed and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Counts {
    /// Adds the other's tests to these.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// What happened so far in a run of `cargo xtask test`.
#[derive(Default)]
pub(crate) struct Report {
    only: Vec<String>,
    steps: Vec<Done>,
    rungs: Vec<(&'static str, Counts)>,
}

struct Done {
    name: &'static str,
    took: Duration,
    failure: Option<String>,
}

impl Report {
    /// A report that takes only the named steps, or every step if none is named.
    pub(crate) fn new(only: Vec<String>) -> Self {
        Self { only, ..Self::default() }
    }

    /// Whether the step was asked for.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.names(name)
    }

    /// Whether the step was asked for by its name.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.only.iter().any(|wanted| wanted == name)
    }

    /// A step that was asked for and did not come up in the run.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.only.iter().map(String::as_str).find(|wanted| !self.steps.iter().any(|step| step.name == *wanted))
    }

    /// Runs one step and notes its end; `remedy` is printed when it fails.
    pub(crate) fn step(&mut self, name: &'static str, remedy: &str, work: impl FnOnce(&mut Self) -> Result<()>) {
        if self.wants(name) {
            self.always(name, remedy, work);
        }
    }

    /// Like [`Report::step`], for what other steps need: it runs whatever was asked for.
    pub(crate) fn always(&mut self, name: &'static str, remedy: &str, work: impl FnOnce(&mut Self) -> Result<()>) {
        println!("\n=== {name}");
        let start = Instant::now();
        let failure = work(self).err().map(|error| format!("{error:#}"));
        if let Some(failure) = &failure {
            println!("{name} FAILED: {failure}\n  {remedy}");
        }
        self.steps.push(Done { name, took: start.elapsed(), failure });
    }

    /// Adds tests that ran to a rung's count.
    pub(crate) fn count(&mut self, rung: &'static str, counts: Counts) {
        match self.rungs.iter_mut().find(|(name, _)| *name == rung) {
            Some((_, sum)) => sum.add(counts),
            None => self.rungs.push((rung, counts)),
        }
    }

    /// Prints the tables and the plain last line; true when nothing failed.
    pub(crate) fn finish(&self) -> bool {
        println!("\n{:<16} {:>8}", "step", "time");
        for step in &self.steps {
            let end = if step.failure.is_some() { "FAILED" } else { "ok" };
            println!("{:<16} {:>7.1}s  {end}", step.name, step.took.as_secs_f64());
        }
        println!("\n{:<16} {:>8} {:>8}", "rung", "passed", "failed");
        for (rung, counts) in &self.rungs {
            println!("{rung:<16} {:>8} {:>8}", counts.passed, counts.failed);
        }
        let total = self.total();
        for step in self.steps.iter().filter_map(|step| step.failure.as_ref().map(|why| (step.name, why))) {
            println!("\n{} FAILED: {}", step.0, step.1);
        }
        println!("\n{} passed, {} failed", total.passed, total.failed);
        total.failed == 0
    }

    /// Tests of all rungs, and each step that failed without a failed test of its own.
    fn total(&self) -> Counts {
        let mut total = Counts::default();
        for (_, counts) in &self.rungs {
            total.add(*counts);
        }
        let broken_steps = self.steps.iter().filter(|step| step.failure.is_some()).count();
        total.failed = total.failed.max(broken_steps);
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_step_fails_the_run_even_if_every_test_passed() {
        let mut report = Report::new(vec![]);
        report.count("unit", Counts { passed: 3, failed: 0 });
        assert!(report.finish());
        report.step("fmt", "run cargo fmt", |_| anyhow::bail!("not formatted"));
        assert_eq!(report.total(), Counts { passed: 3, failed: 1 });
        assert!(!report.finish());
    }

    #[test]
    fn only_named_steps_run() {
        let mut report = Report::new(vec!["tidy".to_owned()]);
        report.step("fmt", "", |_| anyhow::bail!("must not run"));
        report.step("tidy", "", |report| {
            report.count("unit", Counts { passed: 1, failed: 0 });
            Ok(())
        });
        assert_eq!(report.total(), Counts { passed: 1, failed: 0 });
        assert_eq!(report.unknown(), None);
        assert_eq!(Report::new(vec!["tydi".to_owned()]).unknown(), Some("tydi"));
    }
}
