//! The page `/metrics`: what the published snapshot says, then the parts' own families.

use super::routes::Site;
use super::{certificates, process};
use crate::metrics::{Descriptor, Distribution, Exposition, as_f64};
use components::edge::sources::Source;
use components::pulls::PullCounts;
use components::snapshot::{PodCounts, PodView, START_BOUNDS, Snapshot};
use components::status::{ContainerReport, ReportedState};
use components::world::Stage;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Families of the core with their help; one that is not listed here is still served.
const CORE: [(&str, &str); 9] = [
    ("ticklet_inputs_total", "Facts taken in by ticks."),
    ("ticklet_invariants_broken_total", "Rules of the core that were found broken."),
    ("ticklet_journal_records_total", "Durable records that ticks asked for."),
    ("ticklet_relists_total", "Relists of the runtime."),
    ("ticklet_relists_with_changes_total", "Relists that showed a change."),
    ("ticklet_stale_completions_total", "Answers that nobody waited for any more."),
    ("ticklet_ticks_total", "Ticks run."),
    ("ticklet_works_awaited", "Works whose answer is awaited."),
    ("ticklet_works_total", "Works that ticks asked for."),
];

/// Writes the page.
pub(super) fn metrics(site: &Site) -> String {
    let (readers, node_name, streams) = (&site.readers, site.config.node_name.as_str(), &site.streams);
    let snapshot = readers.snapshot.load_full();
    let mut page = Exposition::default();
    page.family(Descriptor::gauge("kubelet_node_name", "Name of the node; the value is always 1."))
        .sample(&[("node", node_name)], 1.0);
    pods(&snapshot, &mut page);
    working(&snapshot, &mut page);
    containers(&snapshot, &mut page);
    pleg(&snapshot, &mut page);
    core(&snapshot, &mut page);
    certificates::write(&snapshot.certificates, readers.clock.now().wall, &mut page);
    certificates::write_states(&snapshot.pod_certificates, &mut page);
    process::write(&mut page);
    streams.write(&mut page);
    site.requests.write(&mut page);
    happened(&snapshot.metrics.pods, &mut page);
    if let Some(counts) = &snapshot.metrics.pulls {
        pulls(counts, &mut page);
    }
    for write in &readers.metrics {
        write(&mut page);
    }
    page.into_text()
}

fn pods(snapshot: &Snapshot, page: &mut Exposition) {
    let is_static = |pod: &PodView| pod.spec.as_ref().map(|spec| spec.source != Source::Api);
    let mut desired = BTreeMap::from([("", 0_u64), ("true", 0)]);
    let mut active = desired.clone();
    let mut running = 0_u64;
    for pod in snapshot.pods() {
        running += u64::from(all(pod).any(|report| matches!(report.state, ReportedState::Running { .. })));
        let Some(is_static) = is_static(pod) else { continue };
        let label = if is_static { "true" } else { "" };
        *desired.entry(label).or_default() += 1;
        if !pod.status.phase.is_terminal() {
            *active.entry(label).or_default() += 1;
        }
    }
    let families = [
        (Descriptor::gauge("kubelet_desired_pods", "Pods that this node is to run."), desired),
        (Descriptor::gauge("kubelet_active_pods", "Pods that this node is to run and that have not ended."), active),
    ];
    for (descriptor, counts) in families {
        let mut family = page.family(descriptor);
        for (label, count) in counts {
            family.sample(&[("static", label)], as_f64(count));
        }
    }
    let debuggers = snapshot.pods().map(|pod| pod.status.ephemeral_containers.len() as u64).sum();
    let help = "Ephemeral containers of pods.";
    page.single(Descriptor::gauge("kubelet_managed_ephemeral_containers", help), as_f64(debuggers));
    page.single(Descriptor::gauge("kubelet_running_pods", "Pods with a running container."), as_f64(running));
}

/// Pods by where they come from and how far they are.
fn working(snapshot: &Snapshot, page: &mut Exposition) {
    let origins = [("desired", "true"), ("desired", ""), ("runtime_only", "unknown")];
    let stages = ["sync", "terminating", "terminated"];
    let mut counts: BTreeMap<_, u64> = BTreeMap::new();
    for (config, is_static) in origins {
        counts.extend(stages.map(|stage| ((config, stage, is_static), 0)));
    }
    for pod in snapshot.pods().filter(|pod| !pod.buried) {
        let (config, is_static) = match &pod.spec {
            None => ("runtime_only", "unknown"),
            Some(spec) if spec.source == Source::Api => ("desired", ""),
            Some(_) => ("desired", "true"),
        };
        let stage = match pod.stage {
            Stage::Queued | Stage::Syncing => "sync",
            Stage::Terminating => "terminating",
            Stage::Terminated | Stage::Done => "terminated",
        };
        *counts.entry((config, stage, is_static)).or_default() += 1;
    }
    let help = "Pods that the node works on, by where they are known from and how far they are.";
    let mut family = page.family(Descriptor::gauge("kubelet_working_pods", help));
    for ((config, lifecycle, is_static), count) in counts {
        let labels = [("config", config), ("lifecycle", lifecycle), ("static", is_static)];
        family.sample(&labels, as_f64(count));
    }
}

fn containers(snapshot: &Snapshot, page: &mut Exposition) {
    let mut states = BTreeMap::from([("created", 0_u64), ("exited", 0), ("running", 0)]);
    for report in snapshot.pods().flat_map(all) {
        let state = match report.state {
            ReportedState::Running { .. } => "running",
            ReportedState::Terminated { .. } => "exited",
            ReportedState::Waiting { .. } if report.last.is_some() => "exited",
            ReportedState::Waiting { .. } if !report.container_id.is_empty() => "created",
            ReportedState::Waiting { .. } => continue,
        };
        *states.entry(state).or_default() += 1;
    }
    let mut family =
        page.family(Descriptor::gauge("kubelet_running_containers", "Newest containers of pods, by state."));
    for (state, count) in states {
        family.sample(&[("container_state", state)], as_f64(count));
    }
}

/// What happened to pods since this process began.
fn happened(counts: &PodCounts, page: &mut Exposition) {
    let mut family =
        page.family(Descriptor::counter("kubelet_started_containers_total", "Containers started, by type."));
    for (kind, count) in &counts.started {
        family.sample(&[("container_type", kind)], as_f64(*count));
    }
    let help = "Containers that ended, by type, exit code and reason.";
    let mut family = page.family(Descriptor::counter("kubelet_terminated_containers_total", help));
    for ((kind, code, reason), count) in &counts.ended {
        let code = code.to_string();
        family.sample(&[("container_type", kind), ("exit_code", &code), ("reason", reason)], as_f64(*count));
    }
    let starts = &counts.starts;
    let help = "Time from when a pod was first seen until all its containers ran, pulls and init containers counted.";
    for name in ["kubelet_pod_start_duration_seconds", "kubelet_pod_start_total_duration_seconds"] {
        let seen =
            Distribution { bounds: &START_BOUNDS, buckets: &starts.buckets, count: starts.count, sum: starts.seconds };
        page.family(Descriptor::histogram(name, help)).histogram(&[], seen);
    }
}

/// Images that pods wanted, and the records of pulls.
fn pulls(counts: &PullCounts, page: &mut Exposition) {
    let help = "Images that containers wanted, by pull policy, whether they were here and whether a pull was needed.";
    let mut family = page.family(Descriptor::counter("kubelet_image_manager_ensure_image_requests_total", help));
    for ((policy, here, pull), count) in &counts.wanted {
        let labels = [("pull_policy", *policy), ("present_locally", *here), ("pull_required", *pull)];
        family.sample(&labels, as_f64(*count));
    }
    let help = "Checks whether a pod may use an image that is here, by what was found.";
    let mut family = page.family(Descriptor::counter("kubelet_imagemanager_image_mustpull_checks_total", help));
    for (result, count) in &counts.checks {
        family.sample(&[("result", result)], as_f64(*count));
    }
    let mut gauge = |name, help, value| page.single(Descriptor::gauge(name, help), value);
    gauge(
        "kubelet_imagemanager_ondisk_pullintents",
        "Pulls that began and have no record yet.",
        as_f64(counts.intents),
    );
    gauge("kubelet_imagemanager_ondisk_pulledrecords", "Records of pulled images.", as_f64(counts.records));
    // Everything is kept in memory; the kubelet keeps so many of each.
    let percent = |count: u64, kept: u32| (as_f64(count) * 100.0 / f64::from(kept.max(1))).min(100.0).floor();
    let name = "kubelet_imagemanager_inmemory_pullintents_usage_percent";
    gauge(
        name,
        "Part of the cache of intents that is used.",
        percent(counts.intents, counts.max_pods.saturating_mul(2)),
    );
    let name = "kubelet_imagemanager_inmemory_pulledrecords_usage_percent";
    gauge(
        name,
        "Part of the cache of records that is used.",
        percent(counts.records, counts.max_pods.saturating_mul(5)),
    );
}

fn all(pod: &Arc<PodView>) -> impl Iterator<Item = &ContainerReport> {
    pod.status.init_containers.iter().chain(&pod.status.containers)
}

fn pleg(snapshot: &Snapshot, page: &mut Exposition) {
    if let Some(seen) = snapshot.health.pleg_seen {
        let wall = snapshot.wall.0 as f64 / 1e9 - snapshot.mono.since(seen).as_secs_f64();
        let descriptor = Descriptor::gauge(
            "kubelet_pleg_last_seen_seconds",
            "When the runtime was last seen whole, in seconds since 1970.",
        );
        page.single(descriptor, wall);
    }
    let open = if snapshot.health.events_open { 1.0 } else { 0.0 };
    page.single(Descriptor::gauge("ticklet_runtime_events_open", "1 while the runtime's event stream delivers."), open);
}

fn core(snapshot: &Snapshot, page: &mut Exposition) {
    let help =
        |name: &str| CORE.iter().find(|(known, _)| *known == name).map_or("Number of the core.", |(_, help)| help);
    let counters = snapshot.metrics.counters.iter().map(|(name, label, value)| (*name, *label, as_f64(*value)));
    families(page, counters.collect(), |name| Descriptor::counter(name, help(name)));
    families(page, snapshot.metrics.gauges.clone(), |name| Descriptor::gauge(name, help(name)));
}

/// Writes samples by family, each family once wherever its samples stand.
fn families(
    page: &mut Exposition,
    mut samples: Vec<(&'static str, &'static str, f64)>,
    descriptor: impl Fn(&'static str) -> Descriptor,
) {
    samples.sort_by_key(|(name, label, _)| (*name, *label));
    for group in samples.chunk_by(|a, b| a.0 == b.0) {
        let Some((name, _, _)) = group.first() else { continue };
        let mut family = page.family(descriptor(name));
        for (_, label, value) in group {
            if label.is_empty() {
                family.sample(&[], *value);
            } else {
                family.sample(&[("kind", label)], *value);
            }
        }
    }
}
