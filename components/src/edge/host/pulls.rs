//! Records of image pulls below the root directory: which images were pulled, and with whose credentials.
//!
//! The core knows no hash of a credential: comparisons are asked for, and the answer is a fact that a trace holds.

use crate::ids::Sensitive;
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Works on the records in `dir`, the kubelet's `image_manager`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum PullsEffect {
    /// Read all of them; makes the directories when they are missing.
    Read {
        /// The directory.
        dir: String,
    },
    /// Note durably that an image is about to be pulled. Idempotent.
    WriteIntent {
        /// The directory.
        dir: String,
        /// The image as the pod names it.
        image: String,
    },
    /// Drop that note. A missing one counts as dropped.
    DropIntent {
        /// The directory.
        dir: String,
        /// The image as the pod names it.
        image: String,
    },
    /// Add to the record of an image. Idempotent.
    Record(Box<RecordPull>),
    /// See whether one of these credentials is among those that an image is recorded with.
    Compare {
        /// The directory.
        dir: String,
        /// The image's id in the runtime.
        image_ref: Arc<str>,
        /// The image's name without tag and digest.
        name: String,
        /// The credentials.
        credentials: Vec<Credential>,
    },
    /// Remove the records of images that are gone. Missing ones count as removed.
    Prune {
        /// The directory.
        dir: String,
        /// The images' ids in the runtime.
        image_refs: Vec<Arc<str>>,
    },
}

/// Input of [`PullsEffect::Record`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RecordPull {
    /// The directory.
    pub dir: String,
    /// The image's id in the runtime.
    pub image_ref: Arc<str>,
    /// The image's name without tag and digest.
    pub name: String,
    /// Who may use it under this name; `None` when that is not known.
    pub proof: Option<Proof>,
    /// Now.
    pub at: Wall,
    /// The image as the pod names it, whose intent is dropped once the record is there.
    pub intent: Option<String>,
}

/// What a pull has proved.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum Proof {
    /// All pods of the node may use the image.
    Everyone,
    /// Whoever has this secret, or another with the same credential.
    Secret {
        /// The secret.
        of: Coordinates,
        /// What it holds for the registry; only a hash of it is written.
        credential: Credential,
    },
    /// Pods of this service account.
    Account(Coordinates),
}

/// What is hashed of a login, as the kubelet does it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Credential {
    /// User name.
    pub username: Sensitive,
    /// Password.
    pub password: Sensitive,
    /// `email`, which old configurations have.
    pub email: Sensitive,
}

/// A secret or a service account.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Coordinates {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: String,
}

/// What came of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PullsAnswer {
    /// To [`PullsEffect::Read`].
    Read {
        /// Records, by image.
        records: Vec<PulledImage>,
        /// Images whose pull began and of which nothing else is known, sorted.
        intents: Vec<String>,
        /// Records that cannot be read; each may be of any image.
        unreadable: u32,
        /// What is wrong with them, one line each.
        problems: Vec<String>,
    },
    /// To [`PullsEffect::Record`]: the record as it is now.
    Recorded(PulledImage),
    /// To [`PullsEffect::Compare`].
    Compared(Compared),
}

/// What a comparison showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Compared {
    /// The image has a record that cannot be read.
    pub unreadable: bool,
    /// Position of the first credential that is recorded.
    pub known: Option<u32>,
}

/// What is recorded of one image.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PulledImage {
    /// The image's id in the runtime.
    pub image_ref: Arc<str>,
    /// When the record changed last.
    pub updated: Wall,
    /// Who may use it, by the name under which it was pulled, without tag and digest.
    pub names: BTreeMap<String, Access>,
}

/// Who may use an image under one name.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Access {
    /// All pods of the node.
    pub everyone: bool,
    /// Pods with one of these secrets.
    pub secrets: Vec<Coordinates>,
    /// Pods of one of these service accounts.
    pub accounts: Vec<Coordinates>,
}
