//! A terminal phase never changes and is never published while a container may run or before it is durable.

use crate::runtime::Runtime;
use components::ids::PodUid;
use components::snapshot::{PodView, Snapshot};
use components::status::Phase;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Phases as published.
#[derive(Debug, Default)]
pub(super) struct Terminal {
    reached: BTreeMap<PodUid, Phase>,
}

impl Terminal {
    /// The pod was buried: another of the same uid begins anew.
    pub(super) fn forget(&mut self, uid: &PodUid) {
        self.reached.remove(uid);
    }

    /// Compares two snapshots.
    pub(super) fn check(
        &mut self,
        before: &Snapshot,
        after: &Snapshot,
        runtime: &Runtime,
        finished: &BTreeMap<PodUid, bool>,
    ) -> Result<(), String> {
        for (chunk, pods) in after.chunks.iter().enumerate() {
            let old = before.chunks.get(chunk);
            if old.is_some_and(|old| Arc::ptr_eq(old, pods)) {
                continue;
            }
            for (slot, pod) in pods.iter().enumerate() {
                let was = old.and_then(|o| o.get(slot)).and_then(Option::as_ref);
                match pod {
                    Some(pod) if !was.is_some_and(|w| Arc::ptr_eq(w, pod)) => self.check_pod(pod, runtime, finished)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    fn check_pod(&mut self, pod: &PodView, runtime: &Runtime, finished: &BTreeMap<PodUid, bool>) -> Result<(), String> {
        let phase = pod.status.phase;
        let name = format!("{}/{} ({})", pod.namespace, pod.name, pod.uid);
        if let Some(reached) = self.reached.get(&pod.uid).copied()
            && reached != phase
        {
            if pod.spec.is_some() {
                return Err(format!("phase of {name} changed from {reached:?} to {phase:?}"));
            }
            self.reached.remove(&pod.uid);
        }
        if phase.is_terminal() && !self.reached.contains_key(&pod.uid) {
            self.reached.insert(pod.uid.clone(), phase);
            // What a shutdown of the node ended runs again after the next boot.
            let with_node = ["Terminated", "NodeShutdown"].contains(&pod.status.reason.as_str());
            if !with_node && finished.get(&pod.uid) != Some(&(phase == Phase::Succeeded)) {
                return Err(format!("phase {phase:?} of {name} was published before it was durable"));
            }
        }
        if phase.is_terminal() && runtime.containers_of(&pod.uid).any(|c| runtime.is_running(&c.id)) {
            return Err(format!("phase {phase:?} of {name} was published while a container runs"));
        }
        if pod.status.message.starts_with("Pod was rejected: ") && runtime.sandboxes_of(&pod.uid).next().is_some() {
            return Err(format!("{name} was rejected and has a sandbox"));
        }
        Ok(())
    }
}
