//! Requests a second, by class: token buckets that make a request wait its turn, first in, first out.

use components::edge::api::Class;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Limits as configured; a rate of zero or less is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rates {
    /// `kubeAPIQPS`.
    pub qps: i32,
    /// `kubeAPIBurst`.
    pub burst: i32,
    /// `eventRecordQPS`.
    pub event_qps: i32,
    /// `eventBurst`.
    pub event_burst: i32,
}

/// The buckets.
#[derive(Debug)]
pub(super) struct Limits {
    general: Bucket,
    events: Bucket,
}

impl Limits {
    pub(super) fn new(rates: Rates) -> Self {
        Self { general: Bucket::new(rates.qps, rates.burst), events: Bucket::new(rates.event_qps, rates.event_burst) }
    }

    /// Returns when a request of this class may be sent.
    pub(super) async fn wait(&self, class: Class) {
        match class {
            // The node must not seem dead because its pods have much to say.
            Class::Lease | Class::Node => {}
            Class::Event => self.events.take().await,
            Class::Pod | Class::Object | Class::Review => self.general.take().await,
        }
    }
}

/// One bucket. Waiters queue at the lock, which is fair.
#[derive(Debug)]
struct Bucket {
    /// Time in which one token comes; `None` for no limit.
    every: Option<Duration>,
    burst: u32,
    /// When the bucket would have been empty had it run dry: tokens are the time since, in units of `every`.
    empty_at: Mutex<Instant>,
}

impl Bucket {
    fn new(qps: i32, burst: i32) -> Self {
        let every = u32::try_from(qps).ok().filter(|qps| *qps > 0).map(|qps| Duration::from_secs(1) / qps);
        let burst = u32::try_from(burst).unwrap_or(0).max(1);
        let full = Instant::now().checked_sub(every.unwrap_or_default() * burst).unwrap_or_else(Instant::now);
        Self { every, burst, empty_at: Mutex::new(full) }
    }

    async fn take(&self) {
        let Some(every) = self.every else { return };
        let mut empty_at = self.empty_at.lock().await;
        let now = Instant::now();
        if let Some(full) = now.checked_sub(every * self.burst)
            && *empty_at < full
        {
            *empty_at = full;
        }
        let due = *empty_at + every;
        // Dropped while it waits, a request leaves its token to the next one.
        tokio::time::sleep_until(due).await;
        *empty_at = due;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let limits = Limits::new(Rates { qps: 10, burst: 3, event_qps: 0, event_burst: 0 });
        tokio::time::advance(Duration::from_secs(5)).await;
        let began = Instant::now();
        for (n, expect) in [(3, 0), (1, 100), (4, 500)] {
            for _ in 0..n {
                limits.wait(Class::Pod).await;
            }
            let millis = began.elapsed().as_millis();
            assert!((expect..expect + 10).contains(&millis), "{millis}");
        }
        for _ in 0..1000 {
            limits.wait(Class::Lease).await;
            limits.wait(Class::Event).await;
        }
        assert!(began.elapsed().as_millis() < 510);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_is_given_up_takes_nothing() {
        let bucket = Bucket::new(1, 1);
        tokio::time::advance(Duration::from_secs(5)).await;
        bucket.take().await;
        let began = Instant::now();
        let gave_up = tokio::time::timeout(Duration::from_millis(500), bucket.take()).await;
        assert!(gave_up.is_err());
        bucket.take().await;
        assert!((1000..1010).contains(&began.elapsed().as_millis()));
    }
}
