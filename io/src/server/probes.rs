//! The page `/metrics/probes`: attempts of every probe by result, and how long they took.

use super::{Readers, process};
use crate::metrics::{Descriptor, Distribution, Exposition, Labels, as_f64};
use components::probes::{DURATION_BOUNDS, ProbeSeries};

/// Writes the page.
pub(super) fn page(readers: &Readers) -> String {
    let snapshot = readers.snapshot.load_full();
    let mut page = Exposition::default();
    durations(&snapshot.probes, &mut page);
    totals(&snapshot.probes, &mut page);
    process::write_start(&mut page);
    page.into_text()
}

fn container(series: &ProbeSeries) -> &str {
    series.spec.containers.get(usize::from(series.container)).map_or("", |c| &*c.name)
}

fn durations(all: &[ProbeSeries], page: &mut Exposition) {
    let help = "Time that probes took, those that failed not counted.";
    let mut family = page.family(Descriptor::histogram("prober_probe_duration_seconds", help));
    for series in all.iter().filter(|s| s.counts.timed > 0) {
        let labels: &Labels<'_> = &[
            ("container", container(series)),
            ("namespace", &series.spec.namespace),
            ("pod", &series.spec.name),
            ("probe_type", series.kind.as_str()),
        ];
        let counts = &series.counts;
        let (buckets, count, sum) = (counts.buckets.as_slice(), counts.timed, counts.seconds);
        family.histogram(labels, Distribution { bounds: &DURATION_BOUNDS, buckets, count, sum });
    }
}

fn totals(all: &[ProbeSeries], page: &mut Exposition) {
    let help = "Attempts of probes, by result.";
    let mut family = page.family(Descriptor::counter("prober_probe_total", help));
    for series in all {
        let counts = &series.counts;
        let results = [("failed", counts.failed), ("successful", counts.successful), ("unknown", counts.unknown)];
        for (result, count) in results.into_iter().filter(|(_, count)| *count > 0) {
            let labels: &Labels<'_> = &[
                ("container", container(series)),
                ("namespace", &series.spec.namespace),
                ("pod", &series.spec.name),
                ("pod_uid", series.spec.uid.as_str()),
                ("probe_type", series.kind.as_str()),
                ("result", result),
            ];
            family.sample(labels, as_f64(count));
        }
    }
}
