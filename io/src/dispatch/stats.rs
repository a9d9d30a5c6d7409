//! Counts of the dispatcher: written under its lock, read as a copy.

use crate::metrics::{Descriptor, Distribution, Exposition, as_f64};
use components::edge::cri::CriEffect;
use components::edge::{Effect, Outcome};
use components::histogram::count_in;
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

/// Upper bounds of the histograms of sandboxes and relists, in seconds.
const PLAIN_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

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
    /// The same over the bounds that sandboxes and relists have.
    pub plain_buckets: [u64; PLAIN_BOUNDS.len()],
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
        count_in(&mut self.buckets, &BOUNDS, seconds);
        count_in(&mut self.plain_buckets, &PLAIN_BOUNDS, seconds);
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
        CriEffect::SetPodCidr { .. } => &["update_runtime_config"],
        CriEffect::ListImages => &["list_images"],
        CriEffect::PullImage { .. } => &["pull_image"],
        CriEffect::CreateContainer { .. } => &["create_container"],
        CriEffect::StartContainer { .. } => &["start_container"],
        CriEffect::StopContainer { .. } => &["stop_container"],
        CriEffect::RemoveContainer { .. } => &["remove_container"],
        CriEffect::WatchEvents => &["get_container_events"],
        CriEffect::ExecSync { .. } => &["exec_sync"],
        CriEffect::ReopenLog { .. } => &["reopen_container_log"],
        CriEffect::UpdateContainer { .. } => &["update_container_resources"],
    }
}

impl DispatchStats {
    /// Writes the families of the lanes and of the runtime operations.
    pub fn write(&self, page: &mut Exposition) {
        self.write_kinds(page);
        self.write_operations(page);
        page.single(Descriptor::gauge("ticklet_lanes", "Lanes with waiting or running works."), self.lanes as f64);
    }

    fn write_kinds(&self, page: &mut Exposition) {
        type Value = fn(&KindStats) -> f64;
        let gauges: [(Descriptor, Value); 3] = [
            (Descriptor::gauge("ticklet_works_waiting", "Works that wait, by kind."), |kind| kind.waiting as f64),
            (Descriptor::gauge("ticklet_works_running", "Works that run, by kind."), |kind| kind.running as f64),
            (
                Descriptor::gauge(
                    "ticklet_work_longest_wait_seconds",
                    "Longest time a work waited before it ran, by kind.",
                ),
                |kind| kind.longest_wait.as_secs_f64(),
            ),
        ];
        for (descriptor, value) in gauges {
            let mut family = page.family(descriptor);
            for kind in &self.kinds {
                family.sample(&[("kind", kind.kind)], value(kind));
            }
        }
        let mut ended =
            page.family(Descriptor::counter("ticklet_works_ended_total", "Works that ended, by kind and outcome."));
        for kind in &self.kinds {
            let outcomes = [
                ("done", kind.done),
                ("failed", kind.failed),
                ("timed_out", kind.timed_out),
                ("cancelled", kind.cancelled),
            ];
            for (outcome, count) in outcomes {
                ended.sample(&[("kind", kind.kind), ("outcome", outcome)], as_f64(count));
            }
        }
    }

    fn write_operations(&self, page: &mut Exposition) {
        let mut total =
            page.family(Descriptor::counter("kubelet_runtime_operations_total", "Calls to the runtime, by operation."));
        for operation in &self.operations {
            total.sample(&[("operation_type", operation.operation)], as_f64(operation.count));
        }
        let mut errors = page.family(Descriptor::counter(
            "kubelet_runtime_operations_errors_total",
            "Failed calls to the runtime, by operation.",
        ));
        for operation in self.operations.iter().filter(|operation| operation.errors > 0) {
            errors.sample(&[("operation_type", operation.operation)], as_f64(operation.errors));
        }
        let mut durations = page.family(Descriptor::histogram(
            "kubelet_runtime_operations_duration_seconds",
            "Time that calls to the runtime took, by operation.",
        ));
        for operation in &self.operations {
            durations.histogram(&[("operation_type", operation.operation)], operation.distribution());
        }
        self.write_sandboxes(page);
        if let Some(relist) = self.operations.iter().find(|operation| operation.operation == "list_podsandbox") {
            page.family(Descriptor::histogram("kubelet_pleg_relist_duration_seconds", "Time that relists took."))
                .histogram(&[], relist.plain_distribution());
        }
    }
}

impl DispatchStats {
    /// The same of sandboxes, which are pods that began.
    fn write_sandboxes(&self, page: &mut Exposition) {
        let none = OperationStats::new("run_podsandbox");
        let run = self.operations.iter().find(|operation| operation.operation == none.operation).unwrap_or(&none);
        // The handler's name is not known here; that of the runtime's own has none.
        let labels = [("runtime_handler", "")];
        page.family(Descriptor::histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "Time that sandboxes took to run.",
        ))
        .histogram(&labels, run.plain_distribution());
        page.family(Descriptor::counter("kubelet_run_podsandbox_errors_total", "Sandboxes that failed to run."))
            .sample(&labels, as_f64(run.errors));
        page.single(Descriptor::counter("kubelet_started_pods_total", "Pods that were begun."), as_f64(run.count));
        let help = "Pods that failed to begin.";
        page.single(Descriptor::counter("kubelet_started_pods_errors_total", help), as_f64(run.errors));
    }
}

impl OperationStats {
    fn distribution(&self) -> Distribution<'_> {
        Distribution { bounds: &BOUNDS, buckets: &self.buckets, count: self.count, sum: self.seconds }
    }

    fn plain_distribution(&self) -> Distribution<'_> {
        Distribution { bounds: &PLAIN_BOUNDS, buckets: &self.plain_buckets, count: self.count, sum: self.seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_by_kind_and_operation() {
        let mut start = OperationStats::new("start_container");
        start.observe(Duration::from_millis(4), false);
        start.observe(Duration::from_secs(1), true);
        start.observe(Duration::from_secs(10_000), true);
        let kind = KindStats { kind: "start", waiting: 2, running: 1, failed: 2, ..KindStats::default() };
        let stats = DispatchStats { kinds: vec![kind], operations: vec![start], lanes: 3 };
        let mut page = Exposition::default();
        stats.write(&mut page);
        let text = page.into_text();
        for line in [
            "ticklet_works_waiting{kind=\"start\"} 2",
            "ticklet_works_ended_total{kind=\"start\",outcome=\"failed\"} 2",
            "kubelet_runtime_operations_total{operation_type=\"start_container\"} 3",
            "kubelet_runtime_operations_errors_total{operation_type=\"start_container\"} 2",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"start_container\",le=\"0.005\"} 1",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"start_container\",le=\"1.220703125\"} 2",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"start_container\",le=\"+Inf\"} 3",
            "ticklet_lanes 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
    }
}
