//! Bugs planted on purpose: a test plants each and shows that random histories find it.
//!
//! Production never inserts [`Planted`], so every question to it is answered with no.

use bevy_ecs::prelude::Resource;

/// The bug that is planted, if any.
#[derive(Resource, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Planted(pub Option<Bug>);

impl Planted {
    /// True when this bug is planted.
    #[must_use]
    pub fn is(&self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }
}

/// Bugs that can be planted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// A container that runs is started once more when its pod is looked at.
    StartSecondInstance,
    /// A container is stopped with another grace period than its pod's.
    IgnoreGrace,
    /// A pod's remains are removed while its containers still stop.
    CleanBeforeStopped,
    /// Pods that only the runtime knows are ended before every source was read.
    KillOrphansBeforeSourcesRead,
    /// A finished pod is computed anew from what the runtime still shows.
    TerminalPhaseFlips,
    /// What runs is not recognised after a restart and is replaced.
    RestartIgnoresObserved,
    /// A pod starts although another of its name still lives.
    SkipSameNameWait,
    /// A completion of a work that is no longer the pod's is taken for the current one's.
    StaleCompletionAccepted,
    /// A second wish to end lengthens the grace period.
    GraceGrows,
    /// A container that ends is restarted at once, always.
    BackoffIgnored,
    /// Works of a pod leave before its admission is durable.
    WorksBeforeDurable,
}

impl Bug {
    /// Every bug.
    pub const ALL: [Self; 11] = [
        Self::StartSecondInstance,
        Self::IgnoreGrace,
        Self::CleanBeforeStopped,
        Self::KillOrphansBeforeSourcesRead,
        Self::TerminalPhaseFlips,
        Self::RestartIgnoresObserved,
        Self::SkipSameNameWait,
        Self::StaleCompletionAccepted,
        Self::GraceGrows,
        Self::BackoffIgnored,
        Self::WorksBeforeDurable,
    ];
}
