//! The one source of chance in the simulator: a seeded generator.

use crate::runtime::splitmix;
use components::time::Mono;
use std::time::Duration;

/// A seeded generator; equal seeds give equal sequences.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator for this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = seed ^ 0x005e_ed0f_71c4_1e70;
        Self(splitmix(&mut state))
    }

    /// Another generator, whose use leaves this one as it is.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(self.clone().below(u64::MAX))
    }

    /// A number below `limit`; 0 when the limit is 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { splitmix(&mut self.0) % limit }
    }

    /// True in `permille` of a thousand cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1000) < permille
    }

    /// One of the items; `None` when there is none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        let index = usize::try_from(self.below(items.len() as u64)).unwrap_or(0);
        items.get(index)
    }

    /// A duration between the two, both included, in whole microseconds.
    pub fn duration(&mut self, from: Duration, to: Duration) -> Duration {
        let span = to.saturating_sub(from).as_micros();
        let span = u64::try_from(span).unwrap_or(u64::MAX - 1);
        from + Duration::from_micros(self.below(span + 1))
    }

    /// An instant after `now` by a duration between the two.
    pub fn instant(&mut self, now: Mono, from: Duration, to: Duration) -> Mono {
        now.after(self.duration(from, to))
    }
}
