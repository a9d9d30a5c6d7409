//! What a result does to its probe: counts in a row, thresholds, the verdict.

use super::attempt::Attempted;
use components::probes::{Probe, ProbeKind, ProbeSpec, Verdict};
use std::time::Duration;

/// What a result changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Change {
    /// The verdict.
    pub(super) verdict: bool,
    /// The message is worth a line in the log: it is new, or the verdict fell.
    pub(super) said: bool,
}

/// Takes the result of one attempt.
pub(super) fn take(probe: &mut Probe, set: &ProbeSpec, result: &Attempted) -> Change {
    let mut change = Change::default();
    let passed = match result {
        Attempted::Passed => {
            if !probe.message.is_empty() {
                probe.message = "".into();
            }
            true
        }
        Attempted::Failed(message) => {
            change.said = *probe.message != **message || probe.run.1 == 0;
            probe.message = message.as_str().into();
            false
        }
        Attempted::Unasked(message) => {
            change.said = *probe.message != **message;
            probe.message = message.as_str().into();
            return change;
        }
    };
    probe.run = if probe.run.0 == passed { (passed, probe.run.1.saturating_add(1)) } else { (passed, 1) };
    let needed = if passed { set.successes } else { set.failures };
    if probe.run.1 < needed {
        return change;
    }
    let verdict = if passed { Verdict::Passed } else { Verdict::Failed };
    change.verdict = probe.verdict != verdict;
    change.said |= change.verdict && !passed;
    probe.verdict = verdict;
    // A container that is condemned is not asked again, and one that has started is not asked whether it has.
    if probe.kind == ProbeKind::Startup || (probe.kind == ProbeKind::Liveness && !passed) {
        probe.on_hold = true;
        probe.due = None;
    }
    change
}

/// Counts an attempt that ended.
pub(super) fn count(probe: &mut Probe, result: &Attempted, took: Duration) {
    let counts = &mut probe.counts;
    match result {
        Attempted::Passed => {
            counts.successful += 1;
            counts.observe(took.as_secs_f64());
        }
        Attempted::Failed(_) => counts.failed += 1,
        Attempted::Unasked(_) => {
            counts.unknown += 1;
            counts.observe(took.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::follow::tests::{probe, set};
    use super::*;

    /// `+` passes, `-` fails, `?` could not be asked; what the verdict is after each: `+`, `-` or `?`.
    #[track_caller]
    fn check(kind: ProbeKind, successes: u32, failures: u32, results: &str, verdicts: &str) {
        let mut probe = probe(kind);
        let set = ProbeSpec { successes, failures, ..set() };
        let seen: String = results
            .chars()
            .map(|c| {
                let result = match c {
                    '+' => Attempted::Passed,
                    '-' => Attempted::Failed("no".to_owned()),
                    _ => Attempted::Unasked("away".to_owned()),
                };
                take(&mut probe, &set, &result);
                match probe.verdict {
                    Verdict::Passed => '+',
                    Verdict::Failed => '-',
                    Verdict::Unknown => '?',
                }
            })
            .collect();
        assert_eq!(seen, verdicts);
    }

    #[test]
    fn thresholds_count_in_a_row() {
        check(ProbeKind::Readiness, 1, 3, "+--+---+", "++++++-+");
        check(ProbeKind::Readiness, 2, 1, "+++-+-++", "?++----+");
        check(ProbeKind::Liveness, 1, 2, "-+--", "?++-");
    }

    #[test]
    fn what_could_not_be_asked_changes_nothing() {
        check(ProbeKind::Readiness, 1, 2, "+-?-", "+++-");
        check(ProbeKind::Startup, 1, 3, "??-+", "???+");
    }

    #[test]
    fn a_verdict_of_startup_or_against_life_ends_the_asking() {
        for (kind, passed, held) in [
            (ProbeKind::Startup, true, true),
            (ProbeKind::Startup, false, true),
            (ProbeKind::Liveness, true, false),
            (ProbeKind::Liveness, false, true),
            (ProbeKind::Readiness, false, false),
        ] {
            let mut probe = probe(kind);
            let result = if passed { Attempted::Passed } else { Attempted::Failed(String::new()) };
            take(&mut probe, &ProbeSpec { failures: 1, ..set() }, &result);
            assert_eq!(probe.on_hold, held, "{kind:?} {passed}");
        }
    }
}
