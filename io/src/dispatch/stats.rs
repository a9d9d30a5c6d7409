//! Counts of the dispatcher: written under its lock, read as a copy.

use components::edge::cri::CriEffect;
use components::edge::{Effect, Outcome};
use std::time::Duration;

/// Upper bounds of the duration histogram, in seconds; those of the kubelet's runtime operations.
pub(crate) const BOUNDS: [f64; 14] = [
    0.005,
    0.0125,
    0.031_25,
    0.078_125,
    0.195_312_5,
    0.488_281_25,
    1.220_703_125,
    3.051_757_812_5,
    7.629_394_531_25,
    19.073_486_328_125,
    47.683_715_820_312_5,
    119.209_289_550_781_25,
    298.023_223_876_953_1,
    745.058_059_692_382_8,
];

/// Numbers of the dispatcher at one moment.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct DispatchStats {
    /// Per kind, in the order of [`super::Kind::ALL`].
    pub kinds: Vec<KindStats>,
    /// Per runtime operation, sorted by name; only those that ran.
    pub operations: Vec<OperationStats>,
    /// Lanes with something in them.
    pub lanes: usize,
}

/// Numbers of one kind of work.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct KindStats {
    /// Label value.
    pub kind: &'static str,
    /// Works that wait.
    pub waiting: usize,
    /// Works that run.
    pub running: usize,
    /// Ended `Done`.
    pub done: u64,
    /// Ended `Failed`.
    pub failed: u64,
    /// Ended `TimedOut`.
    pub timed_out: u64,
    /// Ended `Cancelled`.
    pub cancelled: u64,
    /// Longest time a work of this kind waited before it ran.
    pub longest_wait: Duration,
}

impl KindStats {
    pub(super) fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Done(_) => self.done += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::TimedOut => self.timed_out += 1,
            Outcome::Cancelled => self.cancelled += 1,
        }
    }
}

/// Numbers of one call to the runtime.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct OperationStats {
    /// Value of the label `operation_type`.
    pub operation: &'static str,
    /// How often it failed or timed out.
    pub errors: u64,
    /// How often it ended.
    pub count: u64,
    /// Sum of the times it took, in seconds.
    pub seconds: f64,
    /// Calls at or under each bound, not cumulative.
    pub buckets: Vec<u64>,
}

impl OperationStats {
    pub(super) fn new(operation: &'static str) -> Self {
        Self { operation, buckets: vec![0; BOUNDS.len()], ..Self::default() }
    }

    pub(super) fn observe(&mut self, took: Duration, failed: bool) {
        let seconds = took.as_secs_f64();
        self.count += 1;
        self.errors += u64::from(failed);
        self.seconds += seconds;
        if let Some(bucket) =
            BOUNDS.iter().position(|bound| seconds <= *bound).and_then(|index| self.buckets.get_mut(index))
        {
            *bucket += 1;
        }
    }
}

/// The runtime operations that an effect stands for, as the kubelet's metrics name them.
pub(super) const fn operations(effect: &Effect) -> &'static [&'static str] {
    let Effect::Cri(call) = effect else {
        return &[];
    };
    match call {
        CriEffect::ReadRuntime => &["status", "version"],
        CriEffect::ListRuntime => &["list_containers", "list_podsandbox"],
        CriEffect::InspectPod { .. } => &["container_status", "podsandbox_status"],
        CriEffect::RunSandbox { .. } => &["run_podsandbox"],
        CriEffect::StopSandbox { .. } => &["stop_podsandbox"],
        CriEffect::RemoveSandbox { .. } => &["remove_podsandbox"],
        CriEffect::FindImage { .. } => &["image_status"],
        CriEffect::PullImage { .. } => &["pull_image"],
        CriEffect::CreateContainer { .. } => &["create_container"],
        CriEffect::StartContainer { .. } => &["start_container"],
        CriEffect::StopContainer { .. } => &["stop_container"],
        CriEffect::RemoveContainer { .. } => &["remove_container"],
        CriEffect::WatchEvents => &["get_container_events"],
    }
}
