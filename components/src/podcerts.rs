//! Certificates of pods (`podCertificate`): what is asked for, which key belongs to what, and how far each has come.
//!
//! [`CertificateRun`] is written by `systems::objects` only. Keys never come here: the host keeps them under the name of
//! a [`PodKey`].

use crate::ids::{PodUid, Ticket};
use crate::time::{Mono, Wall};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kinds of keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub enum KeyType {
    /// `RSA3072`.
    Rsa3072,
    /// `RSA4096`.
    Rsa4096,
    /// `ECDSAP256`.
    EcdsaP256,
    /// `ECDSAP384`.
    EcdsaP384,
    /// `ECDSAP521`.
    EcdsaP521,
    /// `ED25519`.
    Ed25519,
}

impl KeyType {
    /// The names in the API.
    pub const NAMES: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];

    /// By the name in the API.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "RSA3072" => Self::Rsa3072,
            "RSA4096" => Self::Rsa4096,
            "ECDSAP256" => Self::EcdsaP256,
            "ECDSAP384" => Self::EcdsaP384,
            "ECDSAP521" => Self::EcdsaP521,
            "ED25519" => Self::Ed25519,
            _ => return None,
        })
    }
}

/// One source of a volume.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct CertificateSlot {
    /// The volume.
    pub volume: Arc<str>,
    /// The source's place among those of the volume.
    pub source: u16,
}

/// Name of a key that the host keeps.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub struct PodKey {
    /// The pod.
    pub pod: PodUid,
    /// What the key is for.
    pub slot: CertificateSlot,
    /// Counts the keys of one slot.
    pub turn: u32,
}

/// Key and certificates as files of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateSource {
    /// Which source it is.
    pub slot: CertificateSlot,
    /// `signerName`.
    pub signer: String,
    /// `keyType`.
    pub key_type: KeyType,
    /// `maxExpirationSeconds`.
    pub seconds: Option<i32>,
    /// `userAnnotations`.
    pub annotations: BTreeMap<String, String>,
    /// `credentialBundlePath`: key and certificates in one file; empty for none, as the others.
    pub bundle_path: String,
    /// `keyPath`.
    pub key_path: String,
    /// `certificateChainPath`.
    pub chain_path: String,
    /// Permission bits.
    pub mode: u32,
}

/// Certificates that were issued for a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credential {
    /// Turn of the key.
    pub turn: u32,
    /// The certificates, PEM.
    pub chain: Arc<str>,
    /// A newer one is asked for then.
    pub refresh_at: Wall,
    /// It is not valid after that.
    pub not_after: Wall,
    /// It was told that no newer one came in time.
    pub late_told: bool,
    /// It was told that it has ended.
    pub end_told: bool,
}

/// What is done next to have a certificate.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CertificateStep {
    /// There is a good one.
    Rest,
    /// A key is made.
    #[default]
    Key,
    /// The uid of the service account is read.
    Account {
        /// PKCS#10 in base64.
        request: String,
    },
    /// The request is sent.
    Send {
        /// PKCS#10 in base64.
        request: String,
        /// Uid of the service account.
        account: String,
    },
    /// The signer has it.
    Wait {
        /// Name of the request.
        name: String,
        /// From then on its absence means that it was deleted.
        give_up: Mono,
        /// Pods are told from then on that they wait.
        slow: Mono,
    },
    /// The signer will issue none.
    Refused {
        /// It was denied, and did not fail.
        denied: bool,
    },
}

/// How one certificate of a pod stands.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CertificateRun {
    /// What volumes show.
    pub shown: Option<Credential>,
    /// Why there is nothing to show.
    pub error: Option<String>,
    /// What is next.
    pub step: CertificateStep,
    /// What was asked for the step, while it is under way.
    pub asking: Option<Ticket>,
    /// Nothing is asked before this.
    pub due: Option<Mono>,
    /// Consecutive failures.
    pub failures: u32,
    /// Turn of the newest key; 0 before the first.
    pub turn: u32,
    /// Warnings that the cluster is still to be told: reason and message.
    pub untold: Vec<(&'static str, String)>,
    /// As what it is counted: signer and state.
    pub counted: Option<(Arc<str>, &'static str)>,
}

/// How many certificates are in each state, by signer.
pub type CertificateStates = BTreeMap<(Arc<str>, &'static str), u64>;
