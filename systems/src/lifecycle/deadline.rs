//! `activeDeadlineSeconds`: since when a pod is active, and when that has been long enough.

use components::edge::cri::PodInspection;
use components::spec::PodSpec;
use components::time::{Mono, Now};
use std::time::Duration;

/// Since when a pod is active: now, or since its oldest sandbox was made by an earlier run of this process. Only that
/// age is taken from the wall clock; from here on the monotonic one counts.
pub(super) fn active_since(seen: &PodInspection, now: Now) -> Mono {
    let oldest = seen.sandboxes.iter().map(|s| s.created_at.0).filter(|at| *at > 0).min();
    let age = oldest.map_or(0, |at| now.wall.0.saturating_sub(at).max(0));
    Mono(now.mono.0.saturating_sub(u64::try_from(age).unwrap_or(0)))
}

/// When the pod's time is over; `None` when it has no limit or was not looked at yet.
pub(super) fn of(spec: Option<&PodSpec>, active: Option<Mono>) -> Option<Mono> {
    let seconds = spec?.active_deadline_seconds?;
    Some(active?.after(Duration::from_secs(u64::from(seconds))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{inspection, spec};
    use components::time::Wall;

    #[test]
    fn time_counts_from_the_oldest_sandbox() {
        let mut pod = spec("never a");
        pod.active_deadline_seconds = Some(60);
        let mut seen = inspection(&pod, "s1+ s0-");
        seen.sandboxes[1].created_at = Wall(40_000_000_000);
        seen.sandboxes[0].created_at = Wall(90_000_000_000);
        let now = Now { mono: Mono(500_000_000_000), wall: Wall(100_000_000_000) };
        assert_eq!(of(Some(&pod), Some(active_since(&seen, now))), Some(Mono(500_000_000_000)));
        let none = inspection(&pod, "");
        assert_eq!(of(Some(&pod), Some(active_since(&none, now))), Some(Mono(560_000_000_000)));
        pod.active_deadline_seconds = None;
        assert_eq!(of(Some(&pod), Some(Mono(0))), None);
    }

    #[test]
    fn a_clock_that_went_back_makes_nothing_older() {
        let pod = spec("never a");
        let mut seen = inspection(&pod, "s0+");
        seen.sandboxes[0].created_at = Wall(200);
        assert_eq!(active_since(&seen, Now { mono: Mono(7), wall: Wall(100) }), Mono(7));
    }
}
