//! The page `docs/conformance.md`: a table of the groups, and the specs that do not pass.
//!
//! A run of some groups replaces their parts and keeps the others.

use std::fmt::Write;
use std::time::Duration;

use tests::suite::Group;
use tests::suite::report::{Outcome, Outcomes};

const HEAD: &str = "\
# Official conformance suite

Written by `cargo xtask conformance`: the node specs and the kubelet's volume specs of Kubernetes v1.37.2 on one node with
kube-apiserver, kube-controller-manager and kube-scheduler v1.37.2, containerd 2.4.2 and ticklet. Slow, serial, disruptive,
flaky and alpha specs are left out. \"Reference\" is the kubelet v1.37.2 on the same machine. Where reports of several runs were
put together (`--from`), the last result of a spec counts: it was run again after a fault was mended, or because the machine was
overloaded the first time; the seconds are those of all runs.

| group | specs | passed | failed | skipped | the reference passes | seconds |
|---|---|---|---|---|---|---|
";

/// One group of a run.
pub(super) struct Section<'a> {
    pub(super) group: &'a Group,
    pub(super) reference: Outcomes,
    pub(super) found: &'a Outcomes,
    pub(super) took: Duration,
    /// What the reference passes and this run did not, with why.
    pub(super) missed: Vec<(String, String)>,
}

impl Section<'_> {
    fn row(&self) -> String {
        let count = |outcomes: &Outcomes, wanted: fn(&Outcome) -> bool| outcomes.values().filter(|o| wanted(o)).count();
        let passed = |outcome: &Outcome| *outcome == Outcome::Passed;
        let name = self.group.name;
        format!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            self.found.len(),
            count(self.found, passed),
            count(self.found, |outcome| matches!(outcome, Outcome::Failed(_))),
            count(self.found, |outcome| *outcome == Outcome::Skipped),
            count(&self.reference, passed),
            self.took.as_secs()
        )
    }

    fn details(&self) -> String {
        let mut out = format!("## {}\n\n", self.group.name);
        let both = self.found.iter().filter_map(|(name, outcome)| match outcome {
            Outcome::Failed(why) if !self.missed.iter().any(|(missed, _)| missed == name) => Some((name, why)),
            _ => None,
        });
        let lines: Vec<String> = self
            .missed
            .iter()
            .map(|(name, why)| line("does not pass", name, why))
            .chain(both.map(|(name, why)| line("passes on neither kubelet here", name, why)))
            .collect();
        if lines.is_empty() {
            out += "Everything passes that the reference passes.\n";
        }
        for line in lines {
            let _ = writeln!(out, "{line}");
        }
        out
    }
}

fn line(how: &str, name: &str, why: &str) -> String {
    format!("- {how}: `{name}`: {}", why.replace('|', "/").replace('`', "'"))
}

/// The page with the parts of these groups replaced.
pub(super) fn update(old: &str, sections: &[Section<'_>]) -> String {
    let mut rows = Vec::new();
    let mut details = Vec::new();
    for group in &tests::suite::GROUPS {
        if let Some(section) = sections.iter().find(|section| section.group.name == group.name) {
            rows.push(section.row());
            details.push(section.details());
            continue;
        }
        let start = format!("| {} |", group.name);
        rows.extend(old.lines().find(|line| line.starts_with(&start)).map(str::to_owned));
        details.extend(old_details(old, group.name));
    }
    format!("{HEAD}{}\n\n{}", rows.join("\n"), details.join("\n"))
}

fn old_details(page: &str, name: &str) -> Option<String> {
    let (_, rest) = page.split_once(&format!("## {name}\n"))?;
    let end = rest.find("\n## ").map_or(rest.len(), |at| at);
    Some(format!("## {name}\n{}\n", rest[..end].trim_end_matches('\n')))
}

#[cfg(test)]
mod tests_of_page {
    use tests::suite::group;

    use super::*;

    fn section<'a>(name: &str, found: &'a Outcomes) -> Section<'a> {
        let reference = found.keys().map(|name| (name.clone(), Outcome::Passed)).collect();
        let missed = tests::suite::report::lost(&reference, found);
        Section { group: group(name).unwrap(), reference, found, took: Duration::from_secs(7), missed }
    }

    #[test]
    fn a_group_is_replaced_and_the_others_stay() {
        let good: Outcomes = [("spec a".to_owned(), Outcome::Passed)].into();
        let bad: Outcomes = [("spec b".to_owned(), Outcome::Failed("timed out".to_owned()))].into();
        let first = update("", &[section("storage", &good), section("node", &good)]);
        assert!(first.contains("| storage | 1 | 1 | 0 | 0 | 1 | 7 |"), "{first}");
        let second = update(&first, &[section("node", &bad)]);
        assert!(second.contains("| storage | 1 | 1 | 0 | 0 | 1 | 7 |"), "{second}");
        assert!(second.contains("| node | 1 | 0 | 1 | 0 | 1 | 7 |"), "{second}");
        assert!(second.contains("does not pass: `spec b`: timed out"), "{second}");
        assert_eq!(update(&second, &[section("node", &good)]), first);
    }
}
