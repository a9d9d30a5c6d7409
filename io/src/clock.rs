//! The clocks of this machine. The only place that reads them for the core.

use components::time::{Mono, Now, Wall};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Reads both clocks; monotonic time counts from when it was made.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock {
    /// Both clocks now.
    #[must_use]
    pub fn now(&self) -> Now {
        let mono = u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono: Mono(mono), wall: Wall(i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX)) }
    }
}
