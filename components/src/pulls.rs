//! Who may use the images on the node: what is recorded of pulls, and what is under way.
//!
//! [`PullRecords`] is part of [`NodeLogins`](crate::registry::NodeLogins) and written by `systems::registry` and, where
//! a pull begins, by `systems::runtime`.

use crate::edge::host::pulls::{Coordinates, Credential, PulledImage};
use crate::ids::Ticket;
use crate::registry::RegistryLogin;
use crate::time::Wall;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// When a pod has to prove that it may use an image that is here (`KubeletEnsureSecretPulledImages`).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PullVerification {
    /// `imagePullCredentialsVerificationPolicy`.
    pub policy: VerifyPolicy,
    /// `preloadedImagesVerificationAllowlist`.
    pub allowlist: Vec<String>,
}

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum VerifyPolicy {
    /// Whatever is here may be used.
    NeverVerify,
    /// What no kubelet pulled may be used.
    #[default]
    NeverVerifyPreloadedImages,
    /// What the list names may be used.
    NeverVerifyAllowlistedImages,
    /// Nothing may be used without proof.
    AlwaysVerify,
}

impl VerifyPolicy {
    /// The policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "NeverVerify" => Self::NeverVerify,
            "NeverVerifyPreloadedImages" => Self::NeverVerifyPreloadedImages,
            "NeverVerifyAllowlistedImages" => Self::NeverVerifyAllowlistedImages,
            "AlwaysVerify" => Self::AlwaysVerify,
            _ => return None,
        })
    }
}

/// Where a login comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LoginSource {
    /// The node's own: all of its pods may use it.
    #[default]
    Node,
    /// A pull secret, and its version.
    Secret(Coordinates, Arc<str>),
    /// A credential provider that was told of this service account.
    Account(Coordinates),
}

/// A login and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TrackedLogin {
    /// The login.
    pub login: RegistryLogin,
    /// What is hashed of it.
    pub credential: Credential,
    /// Where it comes from.
    pub source: LoginSource,
}

impl TrackedLogin {
    /// A login that all pods of the node may use.
    #[must_use]
    pub fn of_node(login: &RegistryLogin) -> Self {
        Self { login: login.clone(), ..Self::default() }
    }
}

/// A pull under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pulling {
    /// The image as its pod names it.
    pub image: String,
    /// The login that it is pulled with; `None` without.
    pub login: Option<TrackedLogin>,
}

/// What is known of pulls on this node.
#[derive(Clone, Debug, Default)]
pub struct PullRecords {
    /// The records were read, as far as they can be. Nothing is said of images before.
    pub read: bool,
    /// The read under way.
    pub reading: Option<Ticket>,
    /// The last read failed.
    pub failed: bool,
    /// Records by image id.
    pub images: BTreeMap<Arc<str>, PulledImage>,
    /// Images with an intent.
    pub intents: BTreeSet<String>,
    /// Those of them that an earlier run has left.
    pub left: BTreeSet<String>,
    /// Records that cannot be read.
    pub unreadable: u32,
    /// Pulls under way.
    pub pulling: BTreeMap<Ticket, Pulling>,
    /// Changes of records under way; an intent that one of them drops is not written again before it is done.
    pub writing: BTreeMap<Ticket, Option<String>>,
    /// The list of images under way, and since when.
    pub listing: Option<(Ticket, Wall)>,
    /// Records that are being removed.
    pub pruning: BTreeMap<Ticket, Vec<Arc<str>>>,
    /// Secrets whose present version is recorded, by image, name and version: each is written once.
    pub confirmed: BTreeSet<(Arc<str>, String, Coordinates, Arc<str>)>,
    /// What was counted.
    pub counts: Arc<PullCounts>,
}

impl PullRecords {
    /// True while the intent of this image is being dropped.
    #[must_use]
    pub fn drops(&self, image: &str) -> bool {
        self.writing.values().flatten().any(|dropped| dropped == image)
    }

    /// True while this image is pulled.
    #[must_use]
    pub fn pulls(&self, image: &str) -> bool {
        self.pulling.values().any(|pulling| pulling.image == image)
    }
}

/// What was counted of images that pods wanted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PullCounts {
    /// Images wanted: by pull policy, whether they were here, and whether they were pulled.
    pub wanted: BTreeMap<(&'static str, &'static str, &'static str), u64>,
    /// Questions whether an image that is here may be used, by what was found.
    pub checks: BTreeMap<&'static str, u64>,
    /// Intents on disk.
    pub intents: u64,
    /// Records on disk.
    pub records: u64,
    /// Most pods of the node, of which the kubelet's caches are multiples.
    pub max_pods: u32,
}
