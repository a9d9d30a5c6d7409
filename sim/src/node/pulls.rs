//! The simulated records of image pulls; they outlive the agent.

use components::edge::host::pulls::{
    Access, Compared, Coordinates, Credential, Proof, PulledImage, PullsAnswer, PullsEffect,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Intents, and records with the credentials behind them.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Images whose pull began.
    pub intents: BTreeSet<String>,
    /// What was pulled.
    pub images: BTreeMap<Arc<str>, PulledImage>,
    credentials: BTreeMap<(Arc<str>, String, Coordinates), Credential>,
}

/// Name of a work on them.
#[must_use]
pub const fn name(effect: &PullsEffect) -> &'static str {
    match effect {
        PullsEffect::Read { .. } => "ReadPullRecords",
        PullsEffect::WriteIntent { .. } => "WritePullIntent",
        PullsEffect::DropIntent { .. } => "DropPullIntent",
        PullsEffect::Record(_) => "RecordPull",
        PullsEffect::Compare { .. } => "CompareLogins",
        PullsEffect::Prune { .. } => "PrunePullRecords",
    }
}

impl Records {
    /// Runs one work.
    pub fn run(&mut self, effect: &PullsEffect) -> Option<PullsAnswer> {
        match effect {
            PullsEffect::Read { .. } => Some(PullsAnswer::Read {
                records: self.images.values().cloned().collect(),
                intents: self.intents.iter().cloned().collect(),
                unreadable: 0,
                problems: Vec::new(),
            }),
            PullsEffect::WriteIntent { image, .. } => {
                self.intents.insert(image.clone());
                None
            }
            PullsEffect::DropIntent { image, .. } => {
                self.intents.remove(image);
                None
            }
            PullsEffect::Record(asked) => {
                let empty =
                    PulledImage { image_ref: Arc::clone(&asked.image_ref), updated: asked.at, names: [].into() };
                let image = self.images.entry(Arc::clone(&asked.image_ref)).or_insert(empty);
                if let Some(proof) = &asked.proof {
                    let access = image.names.entry(asked.name.clone()).or_default();
                    let key = |of: &Coordinates| (Arc::clone(&asked.image_ref), asked.name.clone(), of.clone());
                    add(access, proof);
                    image.updated = asked.at;
                    if let Proof::Secret { of, credential } = proof {
                        self.credentials.insert(key(of), credential.clone());
                    }
                }
                if let Some(intent) = &asked.intent {
                    self.intents.remove(intent);
                }
                Some(PullsAnswer::Recorded(image.clone()))
            }
            PullsEffect::Compare { image_ref, name, credentials, .. } => {
                let recorded = |wanted: &Credential| {
                    self.credentials.iter().any(|((id, of, _), known)| id == image_ref && of == name && known == wanted)
                };
                let known = credentials.iter().position(recorded).and_then(|at| u32::try_from(at).ok());
                Some(PullsAnswer::Compared(Compared { unreadable: false, known }))
            }
            PullsEffect::Prune { image_refs, .. } => {
                self.images.retain(|id, _| !image_refs.contains(id));
                self.credentials.retain(|(id, ..), _| !image_refs.contains(id));
                None
            }
        }
    }
}

fn add(access: &mut Access, proof: &Proof) {
    if access.everyone {
        return;
    }
    let (list, of) = match proof {
        Proof::Everyone => {
            *access = Access { everyone: true, ..Access::default() };
            return;
        }
        Proof::Secret { of, .. } => (&mut access.secrets, of),
        Proof::Account(of) => (&mut access.accounts, of),
    };
    if !list.contains(of) {
        list.push(of.clone());
        list.sort();
    }
}
