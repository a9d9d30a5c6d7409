//! Objects of the API server that pods of this node refer to: their names, what is known of each, tokens and services.
//!
//! [`Objects`], [`PodRefs`] and [`Services`] are written by `systems::objects` only.

use crate::ids::Hidden;
use crate::podcerts::{CertificateRun, CertificateSlot};
use crate::time::{Mono, Wall};
use bevy_ecs::prelude::{Component, Entity, Resource};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Kinds of objects that hold data for pods.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// `ConfigMap`.
    ConfigMap,
    /// `Secret`.
    Secret,
}

impl ObjectKind {
    /// As the API server's paths name it.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmaps",
            Self::Secret => "secrets",
        }
    }

    /// As messages name it.
    #[must_use]
    pub const fn singular(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// A reference to an object of the pod's own namespace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectRef {
    /// Kind.
    pub kind: ObjectKind,
    /// Name.
    pub name: Arc<str>,
    /// The pod does without it.
    pub optional: bool,
}

/// An object's place in the API.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ObjectKey {
    /// Kind.
    pub kind: ObjectKind,
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

/// One version of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ObjectData {
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `immutable`: it will never change.
    pub immutable: bool,
    /// `type` of a secret.
    pub kind: String,
    /// `data`.
    pub data: BTreeMap<String, Hidden>,
    /// `binaryData` of a config map.
    pub binary: BTreeMap<String, Hidden>,
}

/// What is known of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum ObjectState {
    /// It was not read yet.
    #[default]
    Unread,
    /// It could not be read; nothing older is known.
    Failed(String),
    /// It does not exist.
    Missing,
    /// It is this.
    Here(Arc<ObjectData>),
}

/// An object and the pods that refer to it.
#[derive(Clone, Debug, Default)]
pub struct ObjectEntry {
    /// The pods.
    pub users: BTreeSet<Entity>,
    /// What is known.
    pub state: ObjectState,
}

/// Every object that some pod refers to.
#[derive(Resource, Default, Debug)]
pub struct Objects {
    /// By place.
    pub entries: BTreeMap<ObjectKey, ObjectEntry>,
    /// Trust bundles of the cluster, while some pod refers to one.
    pub bundles: Copied<Bundle>,
    /// Handlers of the runtime classes, while some pod names one.
    pub classes: Copied<String>,
}

/// What is known of a collection that is copied whole while some pod refers to it.
#[derive(Debug)]
pub struct Copied<T> {
    /// Pods that refer to some.
    pub users: BTreeSet<Entity>,
    /// They were read at least once.
    pub synced: bool,
    /// Why they could not be read.
    pub error: Option<String>,
    /// By name.
    pub list: BTreeMap<String, T>,
}

impl<T> Default for Copied<T> {
    fn default() -> Self {
        Self { users: BTreeSet::new(), synced: false, error: None, list: BTreeMap::new() }
    }
}

impl<T> Copied<T> {
    /// True while they were asked for and nothing went wrong yet.
    #[must_use]
    pub const fn pending(&self) -> bool {
        !self.synced && self.error.is_none()
    }
}

/// A `ClusterTrustBundle`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Bundle {
    /// `spec.signerName`; empty for none.
    pub signer: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The certificates of `spec.trustBundle`, each in base64 without line breaks.
    pub anchors: Vec<String>,
}

impl Objects {
    /// True while the object was asked for and nothing is known of it.
    #[must_use]
    pub fn pending(&self, object: &ObjectRef, namespace: &Arc<str>) -> bool {
        let key = ObjectKey { kind: object.kind, namespace: Arc::clone(namespace), name: Arc::clone(&object.name) };
        self.entries.get(&key).is_none_or(|entry| entry.state == ObjectState::Unread)
    }

    /// The object; `None` when it does not exist.
    ///
    /// # Errors
    /// Why it is not known whether it does, in the kubelet's words.
    pub fn get(&self, kind: ObjectKind, namespace: &Arc<str>, name: &Arc<str>) -> Result<Option<&ObjectData>, String> {
        let key = ObjectKey { kind, namespace: Arc::clone(namespace), name: Arc::clone(name) };
        match self.entries.get(&key).map(|entry| &entry.state) {
            None => Err(format!("object {namespace:?}/{name:?} not registered")),
            Some(ObjectState::Unread) => {
                let kind = kind.singular();
                Err(format!("failed to sync {kind} cache: timed out waiting for the condition"))
            }
            Some(ObjectState::Failed(why)) => Err(why.clone()),
            Some(ObjectState::Missing) => Ok(None),
            Some(ObjectState::Here(data)) => Ok(Some(data)),
        }
    }
}

/// What a token is asked for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TokenKey {
    /// `audience`; empty for that of the API server.
    pub audience: String,
    /// `expirationSeconds` as asked for.
    pub seconds: i64,
}

/// A token of a pod's service account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    /// The token.
    pub text: Hidden,
    /// `status.expirationTimestamp`.
    pub expires: Wall,
    /// `spec.expirationSeconds` as granted.
    pub seconds: i64,
    /// When it came.
    pub came: Mono,
}

/// How one token of a pod stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TokenRun {
    /// The last one that came.
    pub token: Option<Token>,
    /// Why there is none, or no newer one.
    pub error: Option<String>,
    /// Consecutive failures.
    pub failures: u32,
    /// Nothing is asked for before this.
    pub due: Option<Mono>,
    /// The request under way.
    pub asking: Option<crate::ids::Ticket>,
}

/// What a pod refers to.
#[derive(Component, Default, Debug, Clone)]
pub struct PodRefs {
    /// Version of the pod's desire that the lists were made from; 0 before the first.
    pub planned: u64,
    /// Counts every change of what the pod refers to.
    pub version: u64,
    /// Its objects, sorted.
    pub objects: BTreeSet<ObjectKey>,
    /// Its tokens.
    pub tokens: BTreeMap<TokenKey, TokenRun>,
    /// Its certificates.
    pub certificates: BTreeMap<CertificateSlot, CertificateRun>,
}

/// A service with an address.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Service {
    /// `spec.clusterIP`.
    pub address: String,
    /// Ports: name, number, protocol.
    pub ports: Vec<(String, i32, String)>,
}

/// Services of the cluster, for environments.
#[derive(Resource, Default, Debug)]
pub struct Services {
    /// The node has an API server to ask.
    pub watched: bool,
    /// They were read at least once.
    pub synced: bool,
    /// They could not be read the last time.
    pub failed: bool,
    /// By namespace and name.
    pub list: BTreeMap<(String, String), Service>,
}
