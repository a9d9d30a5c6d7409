//! Turns within a phase: which domain goes before which, where they touch the same data.

use bevy_ecs::prelude::SystemSet;

/// Turns of `Phase::Ingest`, in order.
#[derive(SystemSet, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IngestTurn {
    /// Durable records that were lost.
    Journal,
    /// What the runtime says of itself.
    Health,
    /// What came of works for pods.
    Completions,
    /// What the pod sources say.
    Sources,
    /// What the API server says of objects.
    Objects,
}

/// Turns of `Phase::Plan`, in order.
#[derive(SystemSet, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PlanTurn {
    /// What pods refer to is followed.
    Objects,
    /// Stages move on.
    Stages,
    /// Resizes are granted or wait.
    Resizes,
    /// Probes follow what runs.
    Probes,
}

/// Turns of `Phase::Observe`, in order.
#[derive(SystemSet, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ObserveTurn {
    /// Asking the runtime how it is.
    Health,
    /// Relists, events, inspections.
    Pleg,
}

/// Turns of `Phase::Reclaim`, in order.
#[derive(SystemSet, Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReclaimTurn {
    /// Rotation of logs.
    Rotation,
    /// Collection of dead containers and of what pods left.
    Collection,
    /// Pods that are cleaned up leave the world.
    Burial,
}
