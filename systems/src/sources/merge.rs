//! What a read of a source means: which objects count, and what changed against the last read.
//!
//! Plain functions. A file that cannot be used keeps the pods it had; of several objects with one pod name, or one uid,
//! the last in order of path and position counts.

use components::edge::sources::{Manifest, ManifestProblem, Source};
use components::ids::PodUid;
use components::spec::PodSpec;
use components::time::Wall;
use components::world::SourceItem;
use podspec::{Origin, Refusal, compile, status_digest_of};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects of a source by uid.
pub(super) type Items = BTreeMap<PodUid, SourceItem>;

/// A kind of change.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Op {
    /// No longer in the source.
    Remove,
    /// Still in the source, but asked to end.
    Delete,
    /// New in the source.
    Add,
    /// Its content changed.
    Update,
    /// Only its status changed.
    Reconcile,
}

/// The changes from `old` to `new`: what ends comes first, then by uid.
pub(super) fn merge(old: &Items, new: &Items) -> Vec<(Op, PodUid)> {
    let uids: BTreeSet<&PodUid> = old.keys().chain(new.keys()).collect();
    let mut ops: Vec<(Op, PodUid)> = Vec::new();
    for uid in uids {
        let (before, now) = (old.get(uid), new.get(uid));
        let op = match (before.filter(|item| !item.deleting), now.filter(|item| !item.deleting)) {
            (Some(_), None) if now.is_some() => Op::Delete,
            (Some(_), None) => Op::Remove,
            (None, Some(_)) => Op::Add,
            (Some(before), Some(now)) if before.digest != now.digest => Op::Update,
            (Some(before), Some(now)) if before.status_digest != now.status_digest => Op::Reconcile,
            (Some(_), Some(_)) | (None, None) => continue,
        };
        ops.push((op, uid.clone()));
    }
    ops.sort();
    ops
}

/// The objects whose files were gone for a while, and the others.
pub(super) fn part(items: &Items, removed: &BTreeSet<Arc<str>>) -> (Items, Items) {
    items.clone().into_iter().partition(|(_, item)| removed.contains(&item.origin))
}

/// A read of a source, to be judged.
pub(super) struct Read<'a> {
    /// The source.
    pub(super) source: Source,
    /// Name of this node.
    pub(super) node_name: &'a str,
    /// Now.
    pub(super) now: Wall,
    /// What counted after the last read.
    pub(super) old: &'a Items,
    /// Every object, sorted by path and position.
    pub(super) manifests: &'a [Manifest],
    /// What could not be read.
    pub(super) problems: &'a [ManifestProblem],
}

/// What a read means.
#[derive(Default)]
pub(super) struct Judged {
    /// What counts now.
    pub(super) items: Items,
    /// Compiled specs of the objects that are new or changed.
    pub(super) specs: BTreeMap<PodUid, Arc<PodSpec>>,
    /// What to say once about each of `specs`.
    pub(super) warnings: BTreeMap<PodUid, Vec<String>>,
    /// What is wrong: (origin, message).
    pub(super) complaints: BTreeSet<(Arc<str>, String)>,
}

/// Where each object of the last read lay.
type Places<'a> = BTreeMap<(&'a str, u32), (&'a PodUid, &'a SourceItem)>;

struct Candidate {
    uid: PodUid,
    item: SourceItem,
    fresh: Option<(PodSpec, Vec<String>)>,
}

/// Judges a read. `first_seen` is when a pod was first seen; `taken` says who else holds a uid.
pub(super) fn judge(
    read: &Read<'_>,
    first_seen: impl Fn(&PodUid) -> Option<Wall>,
    taken: impl Fn(&PodUid) -> Option<Source>,
) -> Judged {
    let mut judged = Judged::default();
    let mut bad: BTreeSet<Arc<str>> = BTreeSet::new();
    for problem in read.problems {
        judged.complaints.insert((Arc::clone(&problem.origin), problem.message.clone()));
        // The content of a URL is one answer: what it does not hold is gone. A file's problem is its own.
        let has_objects = read.manifests.iter().any(|m| m.origin == problem.origin);
        if read.source == Source::File && !has_objects {
            bad.insert(Arc::clone(&problem.origin));
        }
    }
    let places: Places<'_> = read.old.iter().map(|(uid, item)| ((&*item.origin, item.index), (uid, item))).collect();
    let mut candidates = Vec::new();
    for manifest in read.manifests {
        match candidate(read, manifest, &places, &first_seen) {
            Ok(candidate) => candidates.push(candidate),
            Err(refusal) => {
                judged.complaints.insert((Arc::clone(&manifest.origin), refusal.to_string()));
                bad.insert(Arc::clone(&manifest.origin));
            }
        }
    }
    candidates.retain(|c| !bad.contains(&c.item.origin));
    let kept = read.old.iter().filter(|(_, item)| bad.contains(&item.origin));
    candidates.extend(kept.map(|(uid, item)| Candidate { uid: uid.clone(), item: item.clone(), fresh: None }));
    candidates.sort_by(|a, b| (&a.item.origin, a.item.index).cmp(&(&b.item.origin, b.item.index)));
    choose(candidates, taken, &mut judged);
    judged
}

/// Compiles an object unless it is the same as before in the same place.
fn candidate(
    read: &Read<'_>,
    manifest: &Manifest,
    places: &Places<'_>,
    first_seen: impl Fn(&PodUid) -> Option<Wall>,
) -> Result<Candidate, Refusal> {
    let same = places.get(&(&*manifest.origin, manifest.index)).filter(|(_, item)| item.digest == manifest.digest);
    if let Some((uid, item)) = same {
        let item = SourceItem { status_digest: status_digest_of(&manifest.json), ..(*item).clone() };
        return Ok(Candidate { uid: (*uid).clone(), item, fresh: None });
    }
    let mut origin = Origin {
        node_name: read.node_name,
        source: read.source,
        path: &manifest.origin,
        digest: manifest.digest,
        seen: read.now,
    };
    let mut compiled = compile(&manifest.json, &origin)?;
    // A pod that only changed keeps the time it was first seen at.
    if let Some(seen) = first_seen(&compiled.spec.uid).filter(|_| read.old.contains_key(&compiled.spec.uid)) {
        origin.seen = seen;
        compiled = compile(&manifest.json, &origin)?;
    }
    let item = SourceItem {
        origin: Arc::clone(&manifest.origin),
        index: manifest.index,
        digest: manifest.digest,
        status_digest: compiled.status_digest,
        deleting: compiled.deleting,
        full_name: compiled.spec.full_name(),
    };
    Ok(Candidate { uid: compiled.spec.uid.clone(), item, fresh: Some((compiled.spec, compiled.warnings)) })
}

/// Lets one object per pod name and uid through: the last.
fn choose(candidates: Vec<Candidate>, taken: impl Fn(&PodUid) -> Option<Source>, judged: &mut Judged) {
    let mut names: BTreeMap<String, Arc<str>> = BTreeMap::new();
    let mut uids: BTreeMap<PodUid, Arc<str>> = BTreeMap::new();
    for candidate in candidates.into_iter().rev() {
        let Candidate { uid, item, fresh } = candidate;
        let origin = Arc::clone(&item.origin);
        let mut complain = |message: String| {
            judged.complaints.insert((Arc::clone(&origin), message));
        };
        if let Some(other) = names.get(&item.full_name) {
            complain(format!(
                "pod {} is left out: {other} defines it as well, and the last one counts",
                item.full_name
            ));
        } else if let Some(other) = uids.get(&uid) {
            complain(format!("pod {} is left out: {other} has the same uid, and the last one counts", item.full_name));
        } else if let Some(source) = taken(&uid) {
            complain(format!(
                "pod {} is left out: its uid is in use by source {}",
                item.full_name,
                source.annotation()
            ));
        } else {
            names.insert(item.full_name.clone(), Arc::clone(&item.origin));
            uids.insert(uid.clone(), Arc::clone(&item.origin));
            if let Some((spec, warnings)) = fresh {
                judged.specs.insert(uid.clone(), Arc::new(spec));
                judged.warnings.insert(uid.clone(), warnings);
            }
            judged.items.insert(uid, item);
        }
    }
}

#[cfg(test)]
mod tests;
