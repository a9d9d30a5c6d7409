//! What the API server has of the pods that are bound to this node.
//!
//! Written by `systems::sources` from the watch, and by `systems::apistatus` from answers to its own writes: whichever
//! is newer counts.

use crate::ids::PodUid;
use crate::status::Phase;
use bevy_ecs::prelude::Resource;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Pods of the API server by uid; mirror pods under their own uid, which is not that of the static pod.
#[derive(Resource, Default, Debug)]
pub struct ApiPods {
    /// What is known of each.
    pub pods: BTreeMap<PodUid, ApiPod>,
    /// Mirror pods by full name (`name_namespace`).
    pub mirrors: BTreeMap<String, PodUid>,
    /// Full names of mirror pods that went in this tick.
    pub gone_mirrors: BTreeMap<PodUid, String>,
    /// Those that changed in this tick.
    pub changed: BTreeSet<PodUid>,
}

/// One pod as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiPod {
    /// `metadata.namespace`.
    pub namespace: Arc<str>,
    /// `metadata.name`.
    pub name: Arc<str>,
    /// `metadata.resourceVersion` as a number; of two states the one with the higher is newer.
    pub version: u64,
    /// Its deletion was asked for, with this grace period.
    pub delete: Option<u32>,
    /// `status.phase`.
    pub phase: Phase,
    /// Its `status` as JSON text.
    pub status: Arc<str>,
    /// Of a mirror pod: the hash of the static pod it stands for.
    pub mirror_of: Option<Arc<str>>,
}

impl ApiPods {
    /// Takes a state in; false when a newer one is known.
    pub fn learn(&mut self, uid: &PodUid, pod: ApiPod) -> bool {
        if self.pods.get(uid).is_some_and(|known| known.version >= pod.version) {
            return false;
        }
        if pod.mirror_of.is_some() {
            self.mirrors.insert(format!("{}_{}", pod.name, pod.namespace), uid.clone());
        }
        self.pods.insert(uid.clone(), pod);
        self.changed.insert(uid.clone());
        true
    }

    /// A new tick: nothing has changed yet.
    pub fn settle(&mut self) {
        self.changed.clear();
        self.gone_mirrors.clear();
    }

    /// The server has it no more.
    pub fn forget(&mut self, uid: &PodUid) {
        if let Some(pod) = self.pods.remove(uid) {
            let full_name = format!("{}_{}", pod.name, pod.namespace);
            if self.mirrors.get(&full_name) == Some(uid) {
                self.mirrors.remove(&full_name);
                self.gone_mirrors.insert(uid.clone(), full_name);
            }
            self.changed.insert(uid.clone());
        }
    }
}
