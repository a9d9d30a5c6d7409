//! Volumes of a pod: what is wanted of each, and what was set up. Written by `systems::volumes` only.

use crate::time::Mono;
use crate::world::Backoff;
use bevy_ecs::prelude::Component;
use std::sync::Arc;

/// The volumes of a pod, in spec order.
#[derive(Component, Default, Debug, Clone)]
pub struct PodVolumes {
    /// Version of the pod's desire that the list was made from; 0 before the first.
    pub planned: u64,
    /// Version of what the pod refers to ([`PodRefs`](crate::objects::PodRefs)) that it was made with.
    pub refs: u64,
    /// The volumes.
    pub volumes: Vec<VolumeRun>,
}

impl PodVolumes {
    /// True when every volume was set up, so that containers may be started.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.volumes.iter().all(|volume| volume.actual.is_some())
    }

    /// Names of the volumes that are not set up, with what keeps the first of them.
    #[must_use]
    pub fn missing(&self) -> Option<(Vec<&str>, &str)> {
        let missing: Vec<&VolumeRun> = self.volumes.iter().filter(|volume| volume.actual.is_none()).collect();
        let why = missing.iter().find_map(|volume| volume.error.as_deref())?;
        Some((missing.iter().map(|volume| &*volume.name).collect(), why))
    }
}

/// How far the image of a volume has come.
#[derive(Default, Debug, Clone, PartialEq, Eq)]
pub enum ImageState {
    /// Nothing was asked.
    #[default]
    Unknown,
    /// It is not here and may be pulled.
    Missing,
    /// It was pulled and has to be found.
    Pulled,
    /// It is here under this id; whether the pod may use it is not known yet.
    Found(Arc<str>),
    /// It is here under this id.
    Here(Arc<str>),
    /// It could not be had.
    Failed {
        /// Reason that a waiting container shows.
        reason: &'static str,
        /// Message.
        message: String,
        /// Nothing is tried before this.
        until: Mono,
    },
}

/// What is known of one volume.
#[derive(Default, Debug, Clone)]
pub struct VolumeRun {
    /// Name.
    pub name: Arc<str>,
    /// Fingerprint of the set-up that is wanted; `None` when there can be none (`error` says why).
    pub wanted: Option<u128>,
    /// Fingerprint of the set-up that was done last; what it made stays until the pod is cleaned.
    pub actual: Option<u128>,
    /// How far its image has come, where it is one.
    pub image: ImageState,
    /// Back-off of pulls of that image.
    pub pull_backoff: Backoff,
    /// What went wrong last.
    pub error: Option<String>,
    /// What of it the cluster is still to be told.
    pub untold: Option<String>,
    /// Consecutive failures.
    pub failures: u32,
    /// Nothing is tried before this.
    pub retry_at: Option<Mono>,
}

impl VolumeRun {
    /// True when something is to be done now.
    #[must_use]
    pub fn due(&self, now: Mono) -> bool {
        self.wanted.is_some() && self.wanted != self.actual && self.retry_at.is_none_or(|at| at <= now)
    }
}
