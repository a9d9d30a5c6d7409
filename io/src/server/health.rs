//! `/healthz` and its checks.

use components::snapshot::Snapshot;
use components::time::Mono;
use std::time::Duration;

/// Checks in the order in which they are listed.
pub(super) const CHECKS: [&str; 3] = ["ping", "log", "syncloop"];

/// Why a check fails; `None` when it passes.
pub(super) fn problem(check: &str, snapshot: &Snapshot, now: Mono, limit: Duration) -> Option<String> {
    // Being able to answer is all that `ping` and `log` can show: logs are written without a queue.
    (check == "syncloop").then(|| syncloop_problem(snapshot, now, limit)).flatten()
}

/// Why the core counts as stuck; `None` while its last tick is no older than `limit`.
#[must_use]
pub fn syncloop_problem(snapshot: &Snapshot, now: Mono, limit: Duration) -> Option<String> {
    let since = now.since(snapshot.mono);
    (since > limit).then(|| format!("no tick for {} s", since.as_secs()))
}

/// Status code and body for a set of checks.
pub(super) fn report(
    checks: &[&'static str],
    verbose: bool,
    problem: impl Fn(&'static str) -> Option<String>,
) -> (u16, String) {
    let results: Vec<_> = checks.iter().map(|check| (check, problem(check))).collect();
    let healthy = results.iter().all(|(_, problem)| problem.is_none());
    if healthy && !verbose {
        return (200, "ok".to_owned());
    }
    let mut body = String::new();
    for (check, problem) in results {
        match problem {
            None => body.push_str(&format!("[+]{check} ok\n")),
            Some(problem) => body.push_str(&format!("[-]{check} failed: {problem}\n")),
        }
    }
    body.push_str(if healthy { "healthz check passed\n" } else { "healthz check failed\n" });
    (if healthy { 200 } else { 500 }, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(seconds: u64, verbose: bool, expect: (u16, &str)) {
        let snapshot = Snapshot::default();
        let now = Mono(seconds * 1_000_000_000);
        let (code, body) = report(&CHECKS, verbose, |check| problem(check, &snapshot, now, Duration::from_secs(120)));
        assert_eq!((code, body.as_str()), expect);
    }

    #[test]
    fn health_follows_the_last_tick() {
        check(120, false, (200, "ok"));
        check(120, true, (200, "[+]ping ok\n[+]log ok\n[+]syncloop ok\nhealthz check passed\n"));
        let failed = "[+]ping ok\n[+]log ok\n[-]syncloop failed: no tick for 121 s\nhealthz check failed\n";
        check(121, false, (500, failed));
    }
}
