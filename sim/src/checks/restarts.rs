//! A container that ends again and again is restarted no sooner than its back-off allows.

use crate::runtime::model::Container;
use components::edge::cri::ContainerChange;
use components::ids::PodUid;
use components::time::Mono;
use std::collections::BTreeMap;
use std::time::Duration;

/// First delay.
const INITIAL: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Record {
    /// The end that led to the last restart.
    counted: Mono,
    ended: Option<Mono>,
    /// Restarts in a row.
    restarts: u32,
}

/// Restarts of each container of each pod.
#[derive(Debug)]
pub(super) struct Restarts {
    max: Duration,
    containers: BTreeMap<(PodUid, String), Record>,
}

impl Restarts {
    pub(super) fn new(max: Duration) -> Self {
        Self { max, containers: BTreeMap::new() }
    }

    /// The agent forgets its back-offs when it starts anew.
    pub(super) fn forget(&mut self) {
        self.containers.clear();
    }

    /// Everything about this pod may start over.
    pub(super) fn reset(&mut self, uid: &PodUid) {
        self.containers.retain(|(pod, _), _| pod != uid);
    }

    pub(super) fn event(&mut self, container: &Container, change: ContainerChange, now: Mono) -> Result<(), String> {
        let key = (container.pod.clone(), container.request.name.clone());
        match change {
            ContainerChange::Stopped => {
                if let Some(record) = self.containers.get_mut(&key) {
                    record.ended = Some(now);
                }
                Ok(())
            }
            ContainerChange::Started => {
                let record = self.containers.entry(key).or_default();
                let Some(ended) = record.ended.take() else { return Ok(()) };
                // The agent counts from one decision to the next, and may learn of an end late.
                let seems_long = now.since(record.counted) >= self.max * 2;
                record.restarts = if seems_long { 0 } else { record.restarts };
                record.counted = ended;
                record.restarts += 1;
                let restarts = record.restarts;
                let (waited, least) = (now.since(ended), self.least(restarts));
                if waited < least {
                    let name = &container.request.name;
                    return Err(format!(
                        "container {name} of {} restarted after {waited:?} although its back-off is {least:?}",
                        container.pod
                    ));
                }
                Ok(())
            }
            ContainerChange::Created | ContainerChange::Deleted => Ok(()),
        }
    }

    fn least(&self, restart: u32) -> Duration {
        match restart {
            0 | 1 => Duration::ZERO,
            n => (INITIAL.min(self.max) * (1 << (n - 2).min(10))).min(self.max),
        }
    }
}
