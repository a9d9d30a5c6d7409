//! CPU time of this thread, resident memory of this process, and what a list of samples comes to.

use nix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use std::time::Duration;

/// CPU time that this thread has used.
#[must_use]
pub fn thread_cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

/// Resident memory of this process in bytes; 0 where `/proc` does not tell.
#[must_use]
pub fn resident_bytes() -> u64 {
    let Ok(text) = std::fs::read_to_string("/proc/self/status") else { return 0 };
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// CPU times of many ticks.
#[derive(Debug, Default, Clone)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All together.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    /// Mean in microseconds; 0 without samples.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.0.is_empty() { 0.0 } else { self.total().as_secs_f64() * 1e6 / self.0.len() as f64 }
    }

    /// The sample below which `share` of all lie, in microseconds.
    #[must_use]
    pub fn quantile_us(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let last = sorted.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        sorted.get(at).map_or(0.0, |sample| sample.as_secs_f64() * 1e6)
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "ticks": self.len(),
            "mean_us": self.mean_us(),
            "p50_us": self.quantile_us(0.5),
            "p99_us": self.quantile_us(0.99),
            "max_us": self.quantile_us(1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let mut samples = Samples::default();
        assert_eq!((samples.mean_us(), samples.quantile_us(0.5)), (0.0, 0.0));
        for micros in [3, 1, 2] {
            samples.push(Duration::from_micros(micros));
        }
        assert!((samples.mean_us() - 2.0).abs() < 1e-9);
        assert!((samples.quantile_us(0.5) - 2.0).abs() < 1e-9);
        assert!((samples.quantile_us(1.0) - 3.0).abs() < 1e-9);
    }

    #[test]
    fn work_takes_cpu_time_and_memory_is_told() {
        let before = thread_cpu();
        let mut sum = 0_u64;
        while thread_cpu() - before < Duration::from_millis(2) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(sum > 0);
        assert!(resident_bytes() > 0);
    }
}
