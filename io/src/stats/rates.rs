//! CPU use as a rate: what was spent between two looks that lie far enough apart. Pure.

use components::time::Mono;
use std::collections::HashMap;
use std::time::Duration;

/// Looks closer to each other than this make no rate that means anything.
const SHORTEST: Duration = Duration::from_millis(500);
/// A look becomes the one to compare with once it is this old, however often somebody asks: the kubelet's rhythm.
const WINDOW: Duration = Duration::from_secs(10);

/// Earlier looks at each cgroup.
#[derive(Default, Debug)]
pub(super) struct Rates {
    known: HashMap<String, Track>,
    round: u64,
}

#[derive(Debug)]
struct Track {
    base: (Mono, u64),
    next: (Mono, u64),
    rate: Option<u64>,
    round: u64,
}

impl Rates {
    /// Begins a round of looks.
    pub(super) fn begin(&mut self) {
        self.round += 1;
    }

    /// Ends it: what was not looked at since the round before is gone.
    pub(super) fn end(&mut self) {
        let round = self.round;
        self.known.retain(|_, track| track.round + 1 >= round);
    }

    /// Takes a look at a cgroup; nanoseconds of CPU time a second, once there are two looks.
    pub(super) fn note(&mut self, path: &str, at: Mono, spent: u64) -> Option<u64> {
        let round = self.round;
        let Some(track) = self.known.get_mut(path) else {
            let look = (at, spent);
            self.known.insert(path.to_owned(), Track { base: look, next: look, rate: None, round });
            return None;
        };
        track.round = round;
        if spent < track.base.1 {
            // Another cgroup of the same name.
            (track.base, track.next, track.rate) = ((at, spent), (at, spent), None);
            return None;
        }
        let passed = at.since(track.base.0);
        if passed >= SHORTEST {
            let nanos = u128::from(spent - track.base.1) * 1_000_000_000 / passed.as_nanos();
            track.rate = u64::try_from(nanos).ok();
        }
        if at.since(track.next.0) >= WINDOW {
            track.base = track.next;
            track.next = (at, spent);
        }
        track.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_rate_needs_two_looks_and_survives_many_askers() {
        let mut rates = Rates::default();
        let mut look = |tenths: u64, spent: u64| {
            rates.begin();
            let rate = rates.note("/a", Mono(tenths * SECOND / 10), spent);
            rates.end();
            rate
        };
        assert_eq!(look(0, 0), None);
        assert_eq!(look(1, 50), None, "too close");
        assert_eq!(look(10, SECOND / 2), Some(SECOND / 2));
        assert_eq!(look(11, SECOND / 2), Some(454_545_454), "an asker soon after compares with the same base");
        // From here on nothing is spent: after two windows the rate says so.
        assert_eq!(look(120, SECOND / 2), Some(SECOND / 24));
        look(230, SECOND / 2);
        assert_eq!(look(330, SECOND / 2), Some(0));
        assert_eq!(look(340, 7), None, "a counter that went back belongs to another cgroup");
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut rates = Rates::default();
        rates.begin();
        rates.note("/a", Mono(0), 1);
        rates.end();
        for _ in 0..2 {
            rates.begin();
            rates.end();
        }
        assert!(rates.known.is_empty());
    }
}
