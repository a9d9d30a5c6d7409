//! Counts what happened to pods from what readers are shown: containers that started and ended, and how long pods took.
//!
//! Reads the views before and after; writes [`PodCounts`].

use bevy_ecs::prelude::Resource;
use components::histogram::count_in;
use components::snapshot::{PodCounts, PodView, START_BOUNDS};
use components::status::{ContainerReport, ReportedState};
use components::time::Wall;
use std::sync::Arc;

/// The counts, shared with the snapshots until they change.
#[derive(Resource, Default, Debug)]
pub(super) struct Tally {
    pub(super) counts: Arc<PodCounts>,
    /// The first tick: what happened before is not ours to count.
    pub(super) since: Option<Wall>,
}

impl Tally {
    /// Takes in what changed of one pod.
    pub(super) fn note(&mut self, before: Option<&PodView>, after: &PodView) {
        let Some(since) = self.since else { return };
        let mut news = Vec::new();
        for (kind, old, new) in lists(before, after) {
            for report in new {
                let known = old.iter().find(|known| known.name == report.name);
                for life in lives(report) {
                    let seen = known.and_then(|known| lives(known).find(|old| old.id == life.id));
                    let started = seen.is_none() && life.started >= since;
                    let ended = life.ended.filter(|_| life.started >= since || seen.is_some());
                    let ended = ended.filter(|_| seen.is_none_or(|seen| seen.ended.is_none()));
                    if started || ended.is_some() {
                        news.push((kind, started, ended.map(|(code, reason)| (code, reason.to_owned()))));
                    }
                }
            }
        }
        let start = start_seconds(before, after, since);
        if news.is_empty() && start.is_none() {
            return;
        }
        let counts = Arc::make_mut(&mut self.counts);
        for (kind, started, ended) in news {
            if started {
                *counts.started.entry(kind).or_default() += 1;
            }
            if let Some((code, reason)) = ended {
                *counts.ended.entry((kind, code, reason)).or_default() += 1;
            }
        }
        if let Some(seconds) = start {
            counts.starts.count += 1;
            counts.starts.seconds += seconds;
            count_in(&mut counts.starts.buckets, &START_BOUNDS, seconds);
        }
    }
}

type List<'a> = (&'static str, &'a [ContainerReport], &'a [ContainerReport]);

fn lists<'a>(before: Option<&'a PodView>, after: &'a PodView) -> [List<'a>; 3] {
    let old = before.map(|view| &view.status);
    [
        ("container", old.map_or(&[], |old| &old.containers), &after.status.containers),
        ("init_container", old.map_or(&[], |old| &old.init_containers), &after.status.init_containers),
        ("ephemeral_container", old.map_or(&[], |old| &old.ephemeral_containers), &after.status.ephemeral_containers),
    ]
}

/// One run of a container.
#[derive(Clone, Copy)]
struct Life<'a> {
    id: &'a str,
    started: Wall,
    ended: Option<(i32, &'a str)>,
}

/// The runs that a report shows.
fn lives(report: &ContainerReport) -> impl Iterator<Item = Life<'_>> {
    [Some(&report.state), report.last.as_ref()].into_iter().flatten().filter_map(move |state| match state {
        ReportedState::Waiting { .. } => None,
        ReportedState::Running { started_at } => {
            Some(Life { id: &report.container_id, started: *started_at, ended: None })
        }
        ReportedState::Terminated { exit_code, reason, started_at, container_id, .. } => {
            Some(Life { id: container_id, started: *started_at, ended: Some((*exit_code, reason.as_str())) })
        }
    })
}

/// Seconds from when a pod was first seen until all its containers ran, when this is the first time.
fn start_seconds(before: Option<&PodView>, after: &PodView, since: Wall) -> Option<f64> {
    let last_start = |view: &PodView| {
        let starts = view.status.containers.iter().map(|report| match report.state {
            ReportedState::Running { started_at } if report.restart_count == 0 => Some(started_at),
            _ => None,
        });
        starts.collect::<Option<Vec<Wall>>>()?.into_iter().max()
    };
    let started = last_start(after).filter(|started| *started >= since)?;
    let seen = after.spec.as_ref()?.seen;
    (before.and_then(last_start).is_none() && started >= seen).then(|| (started.0 - seen.0) as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::ids::PodUid;
    use components::status::PodStatus;
    use components::world::Stage;

    const SECOND: i64 = 1_000_000_000;

    fn report(id: &str, state: ReportedState, last: Option<ReportedState>, restart_count: u32) -> ContainerReport {
        ContainerReport {
            name: "a".into(),
            state,
            last,
            ready: true,
            started: Some(true),
            restart_count,
            image: String::new(),
            image_id: String::new(),
            container_id: id.to_owned(),
            user: None,
            actual: None,
        }
    }

    fn running(at: i64) -> ReportedState {
        ReportedState::Running { started_at: Wall(at * SECOND) }
    }

    fn ended(id: &str, at: i64) -> ReportedState {
        ReportedState::Terminated {
            exit_code: 7,
            reason: "Error".to_owned(),
            message: String::new(),
            started_at: Wall(at * SECOND),
            finished_at: Wall((at + 1) * SECOND),
            container_id: id.to_owned(),
        }
    }

    fn view(container: ContainerReport) -> PodView {
        let mut spec = fixtures::spec("always a");
        spec.seen = Wall(100 * SECOND);
        let status = PodStatus { containers: vec![container], ..PodStatus::default() };
        PodView {
            spec: Some(Arc::new(spec)),
            namespace: "ns".into(),
            name: "p".into(),
            uid: PodUid::from("u"),
            stage: Stage::Syncing,
            buried: false,
            status: Arc::new(status),
            last_event: "".into(),
        }
    }

    #[test]
    fn each_run_is_counted_once_and_a_pod_starts_once() {
        let mut tally = Tally { since: Some(Wall(100 * SECOND)), ..Tally::default() };
        let waiting = ReportedState::Waiting { reason: String::new(), message: String::new() };
        let first = view(report("one", running(103), None, 0));
        let crashed = view(report("one", waiting, Some(ended("one", 103)), 0));
        let second = view(report("two", running(110), Some(ended("one", 103)), 1));
        let mut before: Option<&PodView> = None;
        for after in [&first, &first, &crashed, &second, &second] {
            tally.note(before, after);
            before = Some(after);
        }
        assert_eq!(tally.counts.started.get("container"), Some(&2));
        assert_eq!(tally.counts.ended, [(("container", 7, "Error".to_owned()), 1)].into());
        assert_eq!((tally.counts.starts.count, tally.counts.starts.seconds), (1, 3.0));
        assert_eq!(tally.counts.starts.buckets.iter().sum::<u64>(), 1);
    }

    #[test]
    fn what_ran_before_is_not_counted_but_its_end_is() {
        let mut tally = Tally { since: Some(Wall(200 * SECOND)), ..Tally::default() };
        let old = view(report("one", running(103), None, 0));
        tally.note(None, &old);
        assert_eq!(*tally.counts, PodCounts::default());
        tally.note(Some(&old), &view(report("one", ended("one", 103), None, 0)));
        assert_eq!((tally.counts.started.len(), tally.counts.ended.len()), (0, 1));
    }
}
