//! The pods that something happened to in this tick: planning and reporting look at these and no others.

use bevy_ecs::prelude::*;
use std::collections::BTreeSet;

/// Set of touched pods, in a stable order.
#[derive(Resource, Default, Debug)]
pub struct Touched {
    pods: BTreeSet<Entity>,
}

impl Touched {
    /// Marks a pod.
    pub fn add(&mut self, pod: Entity) {
        self.pods.insert(pod);
    }

    /// The marked pods in a stable order.
    pub fn iter(&self) -> impl Iterator<Item = Entity> + '_ {
        self.pods.iter().copied()
    }

    /// How many are marked.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// True when none is marked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.pods.clear();
    }
}
