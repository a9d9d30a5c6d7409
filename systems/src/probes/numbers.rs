//! Numbers of all probes for metrics, copied for readers at most once a second.

use bevy_ecs::prelude::*;
use components::probes::{ProbeSeries, Probes};
use components::time::Mono;
use components::world::Desired;
use engine::Clock;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Shortest time between two copies: a scrape every 15 s wants no more, and each costs a walk over all probes.
const REFRESH: Duration = Duration::from_secs(1);

/// The numbers as readers see them.
#[derive(Resource, Default, Debug)]
pub struct ProbeNumbers {
    /// All probes, by pod in a stable order.
    pub series: Arc<Vec<ProbeSeries>>,
    /// Something changed since they were copied.
    pub(super) changed: bool,
    pods: BTreeSet<Entity>,
    copied: Option<Mono>,
}

impl ProbeNumbers {
    /// Notes whether a pod has probes.
    pub(super) fn note(&mut self, pod: Entity, any: bool) {
        if any {
            self.pods.insert(pod);
        } else {
            self.pods.remove(&pod);
        }
    }
}

pub(super) fn gather(clock: Res<Clock>, pods: Query<(&Desired, &Probes)>, mut numbers: ResMut<ProbeNumbers>) {
    let now = clock.now.mono;
    if !numbers.changed || numbers.copied.is_some_and(|at| now.since(at) < REFRESH) {
        return;
    }
    let ProbeNumbers { pods: known, .. } = &mut *numbers;
    known.retain(|pod| pods.get(*pod).is_ok());
    let mut series = Vec::new();
    for (desired, probes) in known.iter().filter_map(|pod| pods.get(*pod).ok()) {
        let Some(spec) = &desired.spec else { continue };
        series.extend(probes.list.iter().map(|probe| ProbeSeries {
            spec: Arc::clone(spec),
            container: probe.container,
            kind: probe.kind,
            counts: probe.counts,
        }));
    }
    numbers.series = Arc::new(series);
    numbers.changed = false;
    numbers.copied = Some(now);
}
