//! In-place resize: amounts that may change while a container runs, and what is known of a pod's resize.

use crate::spec::{PodSpec, ResourceRequirements};
use crate::time::Wall;
use bevy_ecs::prelude::{Component, Resource};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::ids::PodUid;

/// CPU and memory of one container, as they are asked of the runtime: 0 where nothing is set.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Size {
    /// Requested CPU in thousandths.
    pub cpu_request: i64,
    /// Limit of CPU in thousandths.
    pub cpu_limit: i64,
    /// Requested memory in bytes.
    pub memory_request: i64,
    /// Limit of memory in bytes.
    pub memory_limit: i64,
}

impl Size {
    /// Of requests and limits; a limit that is not set is that of the pod as a whole.
    #[must_use]
    pub fn of(own: &ResourceRequirements, pod: Option<&ResourceRequirements>) -> Self {
        let cpu = own.limits.cpu_milli.or_else(|| pod?.limits.cpu_milli);
        let memory = own.limits.memory_bytes.or_else(|| pod?.limits.memory_bytes);
        Self {
            cpu_request: own.requests.cpu_milli.unwrap_or(0),
            cpu_limit: cpu.unwrap_or(0),
            memory_request: own.requests.memory_bytes.unwrap_or(0),
            memory_limit: memory.unwrap_or(0),
        }
    }

    /// Of a container of a spec.
    #[must_use]
    pub fn of_container(spec: &PodSpec, index: usize) -> Self {
        spec.containers.get(index).map(|c| Self::of(&c.resources, spec.resources.as_ref())).unwrap_or_default()
    }

    /// This CPU with that one's memory.
    #[must_use]
    pub const fn with_memory_of(self, other: Self) -> Self {
        Self { memory_request: other.memory_request, memory_limit: other.memory_limit, ..self }
    }

    /// This memory with that one's CPU.
    #[must_use]
    pub const fn with_cpu_of(self, other: Self) -> Self {
        Self { cpu_request: other.cpu_request, cpu_limit: other.cpu_limit, ..self }
    }
}

/// Which changes of a running container's resources need a restart (`resizePolicy`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResizePolicy {
    /// Changes of CPU.
    pub cpu_restarts: bool,
    /// Changes of memory.
    pub memory_restarts: bool,
}

impl ResizePolicy {
    /// True when a container of this policy is restarted to get from one size to the other.
    #[must_use]
    pub fn restarts(self, from: Size, to: Size) -> bool {
        let cpu = (from.cpu_request, from.cpu_limit) != (to.cpu_request, to.cpu_limit);
        let memory = (from.memory_request, from.memory_limit) != (to.memory_request, to.memory_limit);
        (cpu && self.cpu_restarts) || (memory && self.memory_restarts)
    }
}

/// Resources as texts of the API, by container and for the pod as a whole: what state files hold.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct SizeTexts {
    /// `spec.resources`, where it is set.
    pub pod: Option<String>,
    /// `resources` of each container that may be resized, by name.
    pub containers: BTreeMap<String, String>,
}

/// A condition of a pod's resize.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ResizeCondition {
    /// `Deferred`, `Infeasible`, `Error` or empty.
    pub reason: String,
    /// What is in the way; may be empty.
    pub message: String,
    /// The generation of the pod that it is about.
    pub generation: i64,
    /// When its reason last changed, whole seconds.
    pub since: Wall,
    /// When it was last found so, whole seconds.
    pub probed: Wall,
}

/// What is shown of a pod's resize; both are absent while nothing is to be done.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct ResizeConditions {
    /// `PodResizePending`: what is wanted was not granted.
    pub pending: Option<ResizeCondition>,
    /// `PodResizeInProgress`: what was granted is not in force everywhere.
    pub in_progress: Option<ResizeCondition>,
}

/// Where a pod's resize stands. While nothing is pending its spec is what is wanted; else its spec holds what is
/// allocated, and what is wanted is here. Written by `systems::resize`.
#[derive(Component, Clone, Debug, Default)]
pub struct Resizing {
    /// The spec as its source wants it, where other resources are allocated.
    pub wanted: Option<Arc<PodSpec>>,
    /// What is allocated is recorded.
    pub recorded: bool,
    /// Conditions; boxed because few pods have any.
    pub shown: Option<Box<ResizeConditions>>,
}

impl Resizing {
    /// Condition `PodResizePending`.
    #[must_use]
    pub fn pending(&self) -> Option<&ResizeCondition> {
        self.shown.as_ref()?.pending.as_ref()
    }

    /// Condition `PodResizeInProgress`.
    #[must_use]
    pub fn in_progress(&self) -> Option<&ResizeCondition> {
        self.shown.as_ref()?.in_progress.as_ref()
    }

    /// Sets condition `PodResizePending`, or takes it away.
    pub fn set_pending(&mut self, condition: Option<ResizeCondition>) {
        if condition.is_some() || self.shown.is_some() {
            self.shown.get_or_insert_default().pending = condition;
            self.tidy();
        }
    }

    /// Sets condition `PodResizeInProgress`, or takes it away.
    pub fn set_in_progress(&mut self, condition: Option<ResizeCondition>) {
        if condition.is_some() || self.shown.is_some() {
            self.shown.get_or_insert_default().in_progress = condition;
            self.tidy();
        }
    }

    fn tidy(&mut self) {
        self.shown.take_if(|shown| shown.pending.is_none() && shown.in_progress.is_none());
    }
}

/// What earlier runs had allocated to pods and brought into force, until the pod is taken up.
#[derive(Resource, Clone, Debug, Default)]
pub struct RecordedSizes {
    /// What is allocated.
    pub allocated: BTreeMap<PodUid, SizeTexts>,
    /// What is in force, where it differs from what is allocated.
    pub actuated: BTreeMap<PodUid, SizeTexts>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Resources;

    #[test]
    fn limits_of_the_pod_bound_a_container_that_has_none() {
        let list = |cpu_milli, memory_bytes| Resources { cpu_milli, memory_bytes, ..Resources::default() };
        let own = ResourceRequirements { requests: list(Some(100), None), limits: list(None, Some(5)) };
        let pod = ResourceRequirements { requests: list(Some(900), Some(9)), limits: list(Some(800), Some(8)) };
        let size = Size { cpu_request: 100, cpu_limit: 800, memory_request: 0, memory_limit: 5 };
        assert_eq!(Size::of(&own, Some(&pod)), size);
        assert_eq!(Size::of(&own, None), Size { cpu_limit: 0, ..size });
    }

    #[test]
    fn only_a_change_of_what_the_policy_names_restarts() {
        let old = Size { cpu_request: 1, cpu_limit: 2, memory_request: 3, memory_limit: 4 };
        let policy = ResizePolicy { cpu_restarts: false, memory_restarts: true };
        assert!(!policy.restarts(old, old));
        assert!(!policy.restarts(old, Size { cpu_limit: 9, ..old }));
        assert!(policy.restarts(old, Size { memory_request: 9, ..old }));
        assert!(!ResizePolicy::default().restarts(old, Size::default()));
    }

    #[test]
    fn conditions_that_are_gone_leave_nothing() {
        let mut resizing = Resizing::default();
        resizing.set_pending(None);
        assert!(resizing.shown.is_none());
        resizing.set_pending(Some(ResizeCondition::default()));
        resizing.set_in_progress(Some(ResizeCondition::default()));
        resizing.set_pending(None);
        assert!(resizing.pending().is_none() && resizing.in_progress().is_some());
        resizing.set_in_progress(None);
        assert!(resizing.shown.is_none());
    }
}
