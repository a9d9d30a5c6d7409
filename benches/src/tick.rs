//! What a tick costs: filling a node, resting with many pods, and pods that change one at a time or in hundreds.

use crate::instant_node::InstantNode;
use crate::measure::{Samples, resident_bytes};
use serde_json::{Value, json};
use std::time::Duration;

/// Budget of a tick in which one pod of 5,000 changed, in microseconds.
pub const ONE_CHANGE_BUDGET_US: f64 = 100.0;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Pods on the node.
    pub pods: usize,
    /// Rounds with one changed pod.
    pub ones: usize,
    /// Rounds with one pod in a hundred changed.
    pub hundredths: usize,
    /// Minutes of rest.
    pub minutes: u32,
}

impl Size {
    /// The size for a number of pods.
    #[must_use]
    pub const fn of(pods: usize) -> Self {
        Self { pods, ones: 200, hundredths: 10, minutes: 2 }
    }
}

/// What was measured on one node.
#[derive(Debug)]
pub struct Figures {
    /// As asked.
    pub size: Size,
    /// From the first tick until every pod runs and is reported so.
    pub fill: Samples,
    /// Resident memory that came with the pods, in bytes per pod.
    pub bytes_per_pod: f64,
    /// Ticks at the deadlines of an idle node.
    pub idle: Samples,
    /// Ticks without any input or deadline.
    pub empty: Samples,
    /// Every tick of a container's death and restart, one pod at a time.
    pub one: Samples,
    /// The same for one pod in a hundred at a time.
    pub hundredth: Samples,
}

/// Runs the whole workload on one node.
///
/// # Panics
/// When the node does not do what the workload asks of it: then there is nothing to measure.
#[must_use]
pub fn run(size: Size) -> Figures {
    let memory = resident_bytes();
    let mut node = InstantNode::new(size.pods);
    node.settle();
    // The first questions to the runtime come at once; what they cost belongs to the fill.
    node.pass(Duration::from_secs(2));
    assert_eq!((node.running(), node.reported_running()), (size.pods, size.pods), "the node did not fill");
    let bytes_per_pod = resident_bytes().saturating_sub(memory) as f64 / size.pods as f64;
    let fill = std::mem::take(&mut node.samples);

    node.pass(Duration::from_secs(60) * size.minutes);
    let idle = std::mem::take(&mut node.samples);
    for _ in 0..size.ones {
        node.tick();
    }
    let empty = std::mem::take(&mut node.samples);

    let one = restart(&mut node, size.ones.min(size.pods / 2), 1);
    let hundredth = restart(&mut node, size.hundredths, (size.pods / 100).max(1));
    assert_eq!(node.reported_running(), size.pods, "a killed pod did not come back");
    Figures { size, fill, bytes_per_pod, idle, empty, one, hundredth }
}

/// Kills `width` containers at a time, `rounds` times, and takes every tick until they run again.
fn restart(node: &mut InstantNode, rounds: usize, width: usize) -> Samples {
    node.pass(Duration::from_secs(1200));
    node.samples = Samples::default();
    let pods = node.running();
    let made = node.made();
    for round in 0..rounds {
        for nth in 0..width {
            node.kill((round * width + nth) % pods);
        }
        node.settle();
    }
    let restarted = node.made() - made;
    assert_eq!(restarted, (rounds * width) as u64, "a killed container was not made anew at once");
    std::mem::take(&mut node.samples)
}

impl Figures {
    /// CPU time of the core per pod of the fill, in microseconds.
    #[must_use]
    pub fn fill_us_per_pod(&self) -> f64 {
        self.fill.total().as_secs_f64() * 1e6 / self.size.pods as f64
    }

    /// CPU time of the core per minute of rest, in milliseconds.
    #[must_use]
    pub fn idle_ms_per_minute(&self) -> f64 {
        self.idle.total().as_secs_f64() * 1e3 / f64::from(self.size.minutes.max(1))
    }

    /// As JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "pods": self.size.pods,
            "fill_us_per_pod": self.fill_us_per_pod(),
            "fill": self.fill.json(),
            "bytes_per_pod": self.bytes_per_pod,
            "idle_ms_per_minute": self.idle_ms_per_minute(),
            "idle": self.idle.json(),
            "empty": self.empty.json(),
            "one_changed": self.one.json(),
            "one_percent_changed": self.hundredth.json(),
        })
    }

    /// As lines for people.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let row = |name: &str, samples: &Samples| {
            format!(
                "  {name:<24} {:>7} ticks  mean {:>9.1} µs  p50 {:>9.1}  p99 {:>9.1}  max {:>9.1}",
                samples.len(),
                samples.mean_us(),
                samples.quantile_us(0.5),
                samples.quantile_us(0.99),
                samples.quantile_us(1.0),
            )
        };
        vec![
            format!(
                "{} pods: fill {:.1} µs of the core's CPU and {:.0} bytes per pod; rest {:.2} ms of CPU per minute",
                self.size.pods,
                self.fill_us_per_pod(),
                self.bytes_per_pod,
                self.idle_ms_per_minute()
            ),
            row("fill", &self.fill),
            row("idle, at deadlines", &self.idle),
            row("nothing changed", &self.empty),
            row("one pod changed", &self.one),
            row("1 % of pods changed", &self.hundredth),
        ]
    }

    /// Whether a tick with one changed pod keeps to its budget; in words.
    #[must_use]
    pub fn verdict(&self) -> String {
        let mean = self.one.mean_us();
        let met = if mean <= ONE_CHANGE_BUDGET_US { "met" } else { "missed" };
        format!("goal {met}: a tick with one changed pod of {} takes {mean:.1} µs (≤ 100 µs)", self.size.pods)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tick with one changed pod must not get dearer with the number of pods that did not change; the figure is
    /// generous because tests run unoptimised on busy machines.
    #[test]
    fn the_workload_runs_and_one_change_costs_one_pod() {
        let small = run(Size { pods: 20, ones: 5, hundredths: 2, minutes: 1 });
        let large = run(Size { pods: 400, ones: 5, hundredths: 2, minutes: 1 });
        assert_eq!(small.one.len(), large.one.len());
        assert!(large.one.quantile_us(0.5) < small.one.quantile_us(0.5) * 5.0, "{small:?} {large:?}");
        // A minute of rest: twelve questions to the runtime, two relists, two reads of the manifests, one resync.
        assert!(large.idle.len() < 60, "{}", large.idle.len());
        assert_eq!(large.json()["pods"], 400);
        assert_eq!(large.lines().len(), 6);
    }
}
