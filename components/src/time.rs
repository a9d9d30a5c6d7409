//! The two clocks of a tick: monotonic for every duration, wall for what is shown or compared with others.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Monotonic time in nanoseconds since an arbitrary start; never steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Mono(pub u64);

/// Wall time in nanoseconds since 1970-01-01T00:00:00Z; may step either way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Wall(pub i64);

const COMPACT: &str = "%Y%m%d-%H%M%S";

/// Both clocks, read together when a tick begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Now {
    /// Monotonic clock.
    pub mono: Mono,
    /// Wall clock.
    pub wall: Wall,
}

impl Mono {
    /// The instant `duration` later; saturates at the end of time.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }

    /// Time that has passed since `earlier`; zero when `earlier` lies ahead.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Wall {
    /// RFC 3339 in UTC with whole seconds, as the API shows times.
    #[must_use]
    pub fn rfc3339(self) -> String {
        timestamp(self).map_or_else(String::new, |t| t.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
    }

    /// RFC 3339 in UTC with nanoseconds, trailing zeros dropped, as Go prints `RFC3339Nano`.
    #[must_use]
    pub fn rfc3339_nano(self) -> String {
        timestamp(self).map_or_else(String::new, |t| t.strftime("%Y-%m-%dT%H:%M:%S%.fZ").to_string())
    }

    /// RFC 3339 in UTC with microseconds, as the API's `MicroTime` is written.
    #[must_use]
    pub fn rfc3339_micro(self) -> String {
        timestamp(self).map_or_else(String::new, |t| t.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string())
    }

    /// `YYYYMMDD-HHMMSS` in UTC, as rotated logs are named.
    #[must_use]
    pub fn compact(self) -> String {
        timestamp(self).map_or_else(String::new, |t| t.strftime(COMPACT).to_string())
    }

    /// The time that [`Self::compact`] prints so.
    #[must_use]
    pub fn from_compact(text: &str) -> Option<Self> {
        let civil = jiff::civil::DateTime::strptime(COMPACT, text).ok()?;
        let time = jiff::tz::TimeZone::UTC.to_timestamp(civil).ok()?;
        i64::try_from(time.as_nanosecond()).ok().map(Self)
    }

    /// The time that [`Self::rfc3339`] or [`Self::rfc3339_nano`] prints so.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let time: jiff::Timestamp = text.parse().ok()?;
        i64::try_from(time.as_nanosecond()).ok().map(Self)
    }

    /// Cut down to whole seconds, as API timestamps are.
    #[must_use]
    pub fn whole_seconds(self) -> Self {
        Self(self.0.div_euclid(1_000_000_000) * 1_000_000_000)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn timestamp(wall: Wall) -> Option<jiff::Timestamp> {
    jiff::Timestamp::from_nanosecond(i128::from(wall.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(nanos: i64, seconds: &str, full: &str) {
        assert_eq!(Wall(nanos).rfc3339(), seconds);
        assert_eq!(Wall(nanos).rfc3339_nano(), full);
    }

    #[test]
    fn wall_time_prints_as_go_does() {
        check(0, "1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z");
        check(1_700_000_000_120_000_000, "2023-11-14T22:13:20Z", "2023-11-14T22:13:20.12Z");
        assert_eq!(Wall(1_700_000_000_120_000_000).rfc3339_micro(), "2023-11-14T22:13:20.120000Z");
    }

    #[test]
    fn compact_times_can_be_read_again() {
        let time = Wall(1_700_000_000_120_000_000);
        assert_eq!(time.compact(), "20231114-221320");
        assert_eq!(Wall::from_compact("20231114-221320"), Some(time.whole_seconds()));
        assert_eq!(Wall::from_compact("20231314-221320"), None);
        assert_eq!(Wall::from_compact("old"), None);
    }

    #[test]
    fn monotonic_differences_never_go_negative() {
        assert_eq!(Mono(5).since(Mono(9)), Duration::ZERO);
        assert_eq!(Mono(u64::MAX).after(Duration::from_secs(1)), Mono(u64::MAX));
    }
}
