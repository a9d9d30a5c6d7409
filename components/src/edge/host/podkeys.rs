//! Keys of pods on this host: they are made and kept in its memory, and only requests made with them come out.

use crate::ids::PodUid;
use crate::podcerts::{KeyType, PodKey};
use serde::Serialize;

/// What is done with keys of pods.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum PodKeyEffect {
    /// Make a key, and a request for a certificate that proves that it is here.
    Make {
        /// The name to keep it under.
        key: PodKey,
        /// Its kind.
        kind: KeyType,
        /// The turn that is in use: of the keys of the same slot, all others are forgotten.
        in_use: Option<u32>,
    },
    /// Forget all keys of a pod.
    Forget {
        /// The pod.
        pod: PodUid,
    },
}

impl PodKeyEffect {
    /// Its name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Make { .. } => "MakePodKey",
            Self::Forget { .. } => "ForgetPodKeys",
        }
    }
}
