//! Hashes of what was decided: FNV-1a 64 over the postcard bytes, streamed, without a buffer.
//!
//! Not covered, so that they may differ between recording and replay: secrets (see [`components::ids::Sensitive`]),
//! the wording of reasons, and the one annotation that repeats a whole manifest.

use components::edge::cri::CriEffect;
use components::edge::store::Record;
use components::edge::{Effect, Work};
use components::ids::Ticket;
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::frame::TickEffects;
use crate::redact::LAST_APPLIED;

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

/// A running FNV-1a 64 hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fnv(pub u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(OFFSET)
    }
}

impl Fnv {
    /// Takes in the bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
}

impl Flavor for Fnv {
    type Output = u64;

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.write(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.write(&[data]);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<u64> {
        Ok(self.0)
    }
}

/// Hash of everything that a work does, in its order and with its ticket.
#[must_use]
pub fn work_hash(work: &Work) -> u64 {
    let effect = scrubbed(&work.effect);
    let parts = (&work.ticket, &work.lane, work.chained, work.timeout);
    hash_of(&(1u8, parts, effect.as_ref()))
}

/// Hash of a cancel.
#[must_use]
pub fn cancel_hash(ticket: Ticket) -> u64 {
    hash_of(&(2u8, ticket))
}

/// Hash of a durable record.
#[must_use]
pub fn record_hash(record: &Record) -> u64 {
    hash_of(&(3u8, record))
}

/// Hash of all that a tick decided: of the hashes of its records, works and cancels, in this order.
#[must_use]
pub fn effects_hash(effects: &TickEffects<'_>) -> u64 {
    let mut all = Fnv::default();
    for record in effects.durable {
        all.write(&record_hash(record).to_le_bytes());
    }
    for work in effects.works {
        all.write(&work_hash(work).to_le_bytes());
    }
    for ticket in effects.cancels {
        all.write(&cancel_hash(*ticket).to_le_bytes());
    }
    all.0
}

fn hash_of<T: Serialize>(value: &T) -> u64 {
    // Postcard only refuses sequences of unknown length, which no edge type has (the all-variants test shows it);
    // if one ever appears, the constant makes recording and replay agree instead of failing the node.
    postcard::serialize_with_flavor(value, Fnv::default()).unwrap_or(OFFSET)
}

/// The effect without the annotation whose text is redacted in inputs.
fn scrubbed(effect: &Effect) -> Cow<'_, Effect> {
    let has = |annotations: &BTreeMap<String, String>| annotations.contains_key(LAST_APPLIED);
    let dirty = match effect {
        Effect::Cri(CriEffect::RunSandbox { config, .. } | CriEffect::PullImage { config, .. }) => {
            has(&config.annotations)
        }
        Effect::Cri(CriEffect::CreateContainer { config, sandbox_config, .. }) => {
            has(&config.annotations) || has(&sandbox_config.annotations)
        }
        _ => false,
    };
    if !dirty {
        return Cow::Borrowed(effect);
    }
    let mut clean = effect.clone();
    match &mut clean {
        Effect::Cri(CriEffect::RunSandbox { config, .. } | CriEffect::PullImage { config, .. }) => {
            config.annotations.remove(LAST_APPLIED);
        }
        Effect::Cri(CriEffect::CreateContainer { config, sandbox_config, .. }) => {
            config.annotations.remove(LAST_APPLIED);
            sandbox_config.annotations.remove(LAST_APPLIED);
        }
        _ => {}
    }
    Cow::Owned(clean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::tests::{create, work};

    #[test]
    fn known_vectors() {
        let mut hash = Fnv::default();
        hash.write(b"");
        assert_eq!(hash.0, 0xcbf2_9ce4_8422_2325);
        hash.write(b"foobar");
        assert_eq!(hash.0, 0x8594_4171_f739_67e8);
    }

    #[test]
    fn secrets_and_wording_do_not_count_but_all_else_does() {
        let base = create("secret-1", "v1");
        let same = create("secret-2", "v1");
        assert_eq!(work_hash(&base), work_hash(&same));
        let mut reworded = base.clone();
        reworded.why.rule = "another wording";
        assert_eq!(work_hash(&base), work_hash(&reworded));
        assert_ne!(work_hash(&base), work_hash(&create("secret-1", "v2")));
        let mut later = base.clone();
        later.ticket = Ticket(99);
        assert_ne!(work_hash(&base), work_hash(&later));
        let mut chained = base.clone();
        chained.chained = !chained.chained;
        assert_ne!(work_hash(&base), work_hash(&chained));
    }

    #[test]
    fn the_redacted_annotation_does_not_count() {
        let (mut one, mut two) = (create("s", "v"), create("s", "v"));
        for (work, text) in [(&mut one, "a"), (&mut two, "b")] {
            let Effect::Cri(CriEffect::CreateContainer { sandbox_config, .. }) = &mut work.effect else {
                panic!("not a create")
            };
            let annotations = &mut sandbox_config.annotations;
            annotations.insert(LAST_APPLIED.to_owned(), text.to_owned());
        }
        assert_ne!(one, two);
        assert_eq!(work_hash(&one), work_hash(&two));
    }

    #[test]
    fn order_counts() {
        let (a, b) = (work(1), work(2));
        let effects = |works: &[Work]| effects_hash(&TickEffects { works, cancels: &[], durable: &[] });
        assert_ne!(effects(&[a.clone(), b.clone()]), effects(&[b, a]));
    }
}
