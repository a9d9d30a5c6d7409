//! Exponential back-off of container restarts and image pulls, in monotonic time.

use components::time::Mono;
use components::world::Backoff;
use std::time::Duration;

/// First delay (contract 7: 10 s for restarts and for pulls).
pub(crate) const INITIAL: Duration = Duration::from_secs(10);
/// Longest delay of image pulls.
pub(crate) const PULL_MAX: Duration = Duration::from_secs(300);

/// Whether something that failed at `failed` may be tried again at `now`; if not, when.
///
/// The first failure is retried at once and arms the initial delay; each retry doubles it up to `max`. After twice
/// `max` without a failure it starts over. `max` below the initial delay lowers the initial delay too.
pub(super) fn try_again(backoff: &mut Backoff, failed: Mono, now: Mono, max: Duration) -> Result<(), Mono> {
    let delay = Duration::from_nanos(backoff.delay_nanos);
    let expired = failed.since(backoff.updated) > max * 2;
    if backoff.delay_nanos > 0 && !expired {
        let until = failed.after(delay);
        if now < until {
            backoff.until = Some(until);
            return Err(until);
        }
    }
    grow(backoff, failed, now, max);
    Ok(())
}

/// Notes a failure: the delay starts or doubles, counted from `now`.
pub(crate) fn fail(backoff: &mut Backoff, now: Mono, max: Duration) {
    grow(backoff, now, now, max);
    backoff.until = Some(now.after(Duration::from_nanos(backoff.delay_nanos)));
}

fn grow(backoff: &mut Backoff, event: Mono, now: Mono, max: Duration) {
    let initial = INITIAL.min(max);
    let delay = Duration::from_nanos(backoff.delay_nanos);
    let fresh = backoff.delay_nanos == 0 || event.since(backoff.updated) > max * 2;
    let next = if fresh { initial } else { (delay * 2).min(max) };
    backoff.delay_nanos = u64::try_from(next.as_nanos()).unwrap_or(u64::MAX);
    backoff.updated = now;
    backoff.until = None;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000_000)
    }

    /// Waits between a container's exit and its restart when it ends as soon as it is started.
    fn waits(n: usize, max: u64) -> Vec<u64> {
        let mut backoff = Backoff::default();
        let mut now = at(100);
        let mut waits = Vec::new();
        for _ in 0..n {
            let failed = now;
            if let Err(until) = try_again(&mut backoff, failed, now, Duration::from_secs(max)) {
                assert!(try_again(&mut backoff, failed, Mono(until.0 - 1), Duration::from_secs(max)).is_err());
                now = until;
                assert_eq!(try_again(&mut backoff, failed, now, Duration::from_secs(max)), Ok(()));
            }
            waits.push(now.since(failed).as_secs());
        }
        waits
    }

    #[test]
    fn restarts_wait_twice_as_long_each_time_up_to_the_cap() {
        assert_eq!(waits(8, 300), [0, 10, 20, 40, 80, 160, 300, 300]);
        assert_eq!(waits(4, 15), [0, 10, 15, 15]);
        assert_eq!(waits(3, 4), [0, 4, 4]);
    }

    #[test]
    fn ten_minutes_of_running_start_it_over() {
        let mut backoff = Backoff::default();
        let max = Duration::from_secs(300);
        assert_eq!(try_again(&mut backoff, at(0), at(0), max), Ok(()));
        assert_eq!(try_again(&mut backoff, at(1), at(11), max), Ok(()));
        assert_eq!(backoff.delay_nanos, 20_000_000_000);
        assert_eq!(try_again(&mut backoff, at(612), at(612), max), Ok(()));
        assert_eq!(backoff.delay_nanos, 10_000_000_000);
    }
}
