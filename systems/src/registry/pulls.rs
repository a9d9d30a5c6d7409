//! Who may use images that are here: decided from what is recorded of pulls, and the keeping of these records.
//!
//! Decides as the kubelet's image pull manager does. Writes [`PullRecords`], a part of the node's logins: they are read
//! at start, an intent stands while an image is pulled, a record follows, and records of images that are gone go too.

use components::edge::cri::{CriAnswer, CriEffect, ListedImage};
use components::edge::host::pulls::{
    Access, Compared, Coordinates, Proof, PulledImage, PullsAnswer, PullsEffect, RecordPull,
};
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::ids::Ticket;
use components::pulls::{LoginSource, PullCounts, PullRecords, PullVerification, Pulling, TrackedLogin, VerifyPolicy};
use components::time::{Now, Wall};
use engine::{NewWork, Outbox, Owner};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks for records of images that are gone, as between two collections of images.
pub(super) const PERIOD: Duration = Duration::from_secs(300);
/// Time after which a read that failed is tried again.
pub(super) const RETRY: Duration = Duration::from_secs(10);
/// Longest time for one change of the records.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(30);
/// Secrets of one image beyond which none is added by a look at it.
const MOST_SECRETS: usize = 100;
/// Versions of secrets that are remembered as recorded.
const MOST_CONFIRMED: usize = 4096;

/// `ROOT/image_manager`.
pub(crate) fn dir(root: &str) -> String {
    format!("{root}/image_manager")
}

// === deciding ===

/// An image's name without tag and digest, otherwise as the pod has it.
pub(crate) fn name_of(image: &str) -> &str {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rfind('/').map_or(0, |at| at + 1);
    name[last..].find(':').map_or(name, |at| &name[..last + at])
}

/// Whether an image that is here has to be proved to be the pod's to use. `pulled` says that a kubelet pulled it.
fn must_prove(rule: &PullVerification, image: &str, pulled: bool) -> bool {
    match rule.policy {
        VerifyPolicy::NeverVerify => false,
        VerifyPolicy::NeverVerifyPreloadedImages => pulled,
        VerifyPolicy::NeverVerifyAllowlistedImages => {
            let name = name_of(image);
            !rule.allowlist.iter().any(|entry| match entry.strip_suffix('*') {
                Some(start) => name.starts_with(start),
                None => entry == name,
            })
        }
        VerifyPolicy::AlwaysVerify => true,
    }
}

/// What was found out, in the words of the kubelet's metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// No proof is asked for.
    PolicyAllows,
    /// It is recorded.
    Recorded,
    /// It has to be pulled.
    Unknown,
    /// The records cannot tell.
    Error,
}

impl Found {
    /// Value of the metric's label.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::PolicyAllows => "credentialPolicyAllowed",
            Self::Recorded => "credentialRecordFound",
            Self::Unknown => "mustAuthenticate",
            Self::Error => "error",
        }
    }

    /// True when the image may be used as it is.
    pub(crate) const fn allows(self) -> bool {
        matches!(self, Self::PolicyAllows | Self::Recorded)
    }
}

/// What follows from the records alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum First<'a> {
    /// This.
    Known(Found),
    /// It depends on the pod's credentials.
    Depends(&'a Access),
    /// A record that cannot be read may be this image's.
    Look,
}

/// Looks at the records of an image that is here; `image` is its name as the pod has it.
pub(crate) fn first<'a>(
    rule: &PullVerification,
    records: &'a PullRecords,
    image: &str,
    image_ref: &str,
    compared: Option<Compared>,
) -> First<'a> {
    let record = records.images.get(image_ref);
    match compared {
        None if record.is_none() && records.unreadable > 0 && rule.policy != VerifyPolicy::NeverVerify => {
            return First::Look;
        }
        Some(Compared { unreadable: true, .. }) => return First::Known(Found::Error),
        _ => {}
    }
    let pulled = record.is_some() || records.intents.contains(image);
    if !must_prove(rule, image, pulled) {
        return First::Known(Found::PolicyAllows);
    }
    match record.and_then(|record| record.names.get(name_of(image))) {
        None => First::Known(Found::Unknown),
        Some(access) if access.everyone => First::Known(Found::Recorded),
        Some(access) if access.secrets.is_empty() && access.accounts.is_empty() => First::Known(Found::Unknown),
        Some(access) => First::Depends(access),
    }
}

/// Which of a pod's logins shows that it may use an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shows {
    /// The secret of this login is recorded.
    Secret(usize),
    /// The pod's service account is recorded.
    Account,
    /// Only a comparison of credentials can tell.
    Compare,
    /// None.
    Nothing,
}

/// Looks for a recorded secret or service account among the logins that fit an image.
pub(crate) fn shows(access: &Access, logins: &[TrackedLogin]) -> Shows {
    let recorded = |of: &Coordinates| access.secrets.contains(of);
    let secret = |login: &TrackedLogin| matches!(&login.source, LoginSource::Secret(of, _) if recorded(of));
    if let Some(at) = logins.iter().position(secret) {
        return Shows::Secret(at);
    }
    // Providers are told of one account per pod.
    let account = logins.iter().find_map(|login| match &login.source {
        LoginSource::Account(of) => Some(of),
        _ => None,
    });
    if account.is_some_and(|of| access.accounts.contains(of)) {
        return Shows::Account;
    }
    let has_secret = logins.iter().any(|login| matches!(login.source, LoginSource::Secret(..)));
    if has_secret && !access.secrets.is_empty() { Shows::Compare } else { Shows::Nothing }
}

/// The logins that come from secrets.
pub(crate) fn of_secrets(logins: &[TrackedLogin]) -> impl Iterator<Item = &TrackedLogin> {
    logins.iter().filter(|login| matches!(login.source, LoginSource::Secret(..)))
}

/// What a pull with this login proves.
fn proof(login: Option<&TrackedLogin>) -> Proof {
    match login.map(|login| (&login.source, &login.credential)) {
        None | Some((LoginSource::Node, _)) => Proof::Everyone,
        Some((LoginSource::Secret(of, _), credential)) => {
            Proof::Secret { of: of.clone(), credential: credential.clone() }
        }
        Some((LoginSource::Account(of), _)) => Proof::Account(of.clone()),
    }
}

/// The record that follows from a pod's use of an image with this login, unless it is known to be there.
pub(crate) fn confirmation(
    records: &mut PullRecords,
    dir: &str,
    (image, image_ref): (&str, &Arc<str>),
    login: &TrackedLogin,
    at: Wall,
) -> Option<PullsEffect> {
    let LoginSource::Secret(of, version) = &login.source else { return None };
    let name = name_of(image);
    let known = records.images.get(image_ref).and_then(|record| record.names.get(name));
    if known.is_none_or(|access| access.secrets.len() >= MOST_SECRETS) {
        return None;
    }
    if records.confirmed.len() >= MOST_CONFIRMED {
        // What is there is found to be so once more.
        records.confirmed.clear();
    }
    let key = (Arc::clone(image_ref), name.to_owned(), of.clone(), Arc::clone(version));
    records.confirmed.insert(key).then(|| {
        PullsEffect::Record(Box::new(RecordPull {
            dir: dir.to_owned(),
            image_ref: Arc::clone(image_ref),
            name: name.to_owned(),
            proof: Some(proof(Some(login))),
            at,
            intent: None,
        }))
    })
}

/// Counts an image that a container wanted.
pub(crate) fn count_wanted(records: &mut PullRecords, policy: &'static str, here: &'static str, pull: &'static str) {
    *Arc::make_mut(&mut records.counts).wanted.entry((policy, here, pull)).or_default() += 1;
}

/// Counts a question whether an image may be used.
pub(crate) fn count_check(records: &mut PullRecords, found: Found) {
    *Arc::make_mut(&mut records.counts).checks.entry(found.label()).or_default() += 1;
}

// === keeping ===

/// A work on the records that belongs to no pod.
pub(crate) fn work(effect: PullsEffect, rule: &'static str) -> NewWork {
    NewWork {
        owner: Owner::Node,
        lane: Lane::Free,
        chained: false,
        timeout: TIMEOUT,
        why: Why { system: "registry::pulls", rule },
        effect: Effect::Host(HostEffect::Pulls(Box::new(effect))),
    }
}

/// Takes one answer; true when pods may wait for it.
pub(super) fn take(
    records: &mut PullRecords,
    dir: &str,
    ticket: Ticket,
    outcome: &Outcome,
    now: Now,
    outbox: &mut Outbox,
) -> bool {
    if records.reading == Some(ticket) {
        records.reading = None;
        take_read(records, outcome);
        return true;
    }
    if let Some(pulling) = records.pulling.remove(&ticket) {
        pulled(records, dir, &pulling, outcome, now.wall, outbox);
        return false;
    }
    if let Some(dropped) = records.writing.remove(&ticket) {
        take_written(records, dropped.as_deref(), outcome);
        return dropped.is_some();
    }
    if let Some(gone) = records.pruning.remove(&ticket) {
        if let Outcome::Done(_) = outcome {
            records.images.retain(|image_ref, _| !gone.contains(image_ref));
            records.confirmed.retain(|(image_ref, ..)| !gone.contains(image_ref));
        }
    } else if let Some((_, asked)) = records.listing.filter(|(asked, _)| *asked == ticket) {
        records.listing = None;
        if let Outcome::Done(Answer::Cri(CriAnswer::ImagesListed(images))) = outcome {
            take_list(records, dir, images, asked, now.wall, outbox);
        }
    }
    false
}

fn take_read(records: &mut PullRecords, outcome: &Outcome) {
    let answer = match outcome {
        Outcome::Done(Answer::Host(HostAnswer::Pulls(answer))) => Some(&**answer),
        _ => None,
    };
    let Some(PullsAnswer::Read { records: images, intents, unreadable, problems }) = answer else {
        tracing::warn!(outcome = ?outcome, "The records of image pulls cannot be read; no image is used before they are");
        records.failed = true;
        return;
    };
    records.read = true;
    for problem in problems {
        tracing::warn!(error = %problem, "A record of an image pull cannot be read");
    }
    records.images = images.iter().map(|image| (Arc::clone(&image.image_ref), image.clone())).collect();
    records.intents = intents.iter().cloned().collect();
    records.left.clone_from(&records.intents);
    records.unreadable = *unreadable;
}

/// A pull has ended: it is recorded, or nothing is left of it once no other pull of the same image runs.
fn pulled(records: &mut PullRecords, dir: &str, pulling: &Pulling, outcome: &Outcome, at: Wall, outbox: &mut Outbox) {
    let last = (!records.pulls(&pulling.image)).then(|| pulling.image.clone());
    let (effect, rule) = match outcome {
        Outcome::Done(Answer::Cri(CriAnswer::ImagePulled { image_ref })) => {
            let record = RecordPull {
                dir: dir.to_owned(),
                image_ref: Arc::clone(image_ref),
                name: name_of(&pulling.image).to_owned(),
                proof: Some(proof(pulling.login.as_ref())),
                at,
                intent: last.clone(),
            };
            (PullsEffect::Record(Box::new(record)), "an image was pulled")
        }
        // It may have been pulled all the same: the next start of the node looks.
        Outcome::TimedOut => return,
        _ => match &last {
            Some(image) => {
                let drop = PullsEffect::DropIntent { dir: dir.to_owned(), image: image.clone() };
                (drop, "an image was not pulled")
            }
            None => return,
        },
    };
    records.writing.insert(outbox.emit(work(effect, rule)), last);
}

fn take_written(records: &mut PullRecords, dropped: Option<&str>, outcome: &Outcome) {
    match outcome {
        Outcome::Done(answer) => {
            if let Answer::Host(HostAnswer::Pulls(answer)) = answer
                && let PullsAnswer::Recorded(image) = &**answer
            {
                records.images.insert(Arc::clone(&image.image_ref), image.clone());
            }
            if let Some(image) = dropped {
                records.intents.remove(image);
                records.left.remove(image);
            }
        }
        // The intent stays, and keeps the image from being anyone's.
        other => tracing::warn!(outcome = ?other, "A record of an image pull cannot be written"),
    }
}

/// Records what earlier runs began to pull and left unrecorded, and drops records of images that are gone.
fn take_list(records: &mut PullRecords, dir: &str, images: &[ListedImage], asked: Wall, at: Wall, outbox: &mut Outbox) {
    for image in images {
        for name in image.tags.iter().chain(&image.digests).filter(|name| records.left.contains(*name)) {
            let record = RecordPull {
                dir: dir.to_owned(),
                image_ref: Arc::clone(&image.id),
                name: name_of(name).to_owned(),
                proof: None,
                at,
                intent: Some(name.clone()).filter(|name| !records.pulls(name)),
            };
            let dropped = record.intent.clone();
            let effect = PullsEffect::Record(Box::new(record));
            let ticket = outbox.emit(work(effect, "an earlier run began to pull an image that is here"));
            records.writing.insert(ticket, dropped);
        }
    }
    let here: BTreeSet<&str> = images.iter().map(|image| &*image.id).collect();
    let gone = |record: &&PulledImage| record.updated < asked.whole_seconds() && !here.contains(&*record.image_ref);
    let gone: Vec<Arc<str>> =
        records.images.values().filter(gone).map(|record| Arc::clone(&record.image_ref)).collect();
    if !gone.is_empty() {
        let effect = PullsEffect::Prune { dir: dir.to_owned(), image_refs: gone.clone() };
        let ticket = outbox.emit(work(effect, "images that are gone need no record"));
        records.pruning.insert(ticket, gone);
    }
}

/// Asks for the records, or for the images that records are of.
pub(super) fn ask(records: &mut PullRecords, dir: &str, due: bool, at: Wall, outbox: &mut Outbox) {
    if !records.read {
        if records.reading.is_none() && (due || !records.failed) {
            records.failed = false;
            let read = PullsEffect::Read { dir: dir.to_owned() };
            records.reading = Some(outbox.emit(work(read, "what was pulled before must be known")));
        }
        return;
    }
    let wanted = !records.left.is_empty() || !records.images.is_empty();
    if due && wanted && records.listing.is_none() {
        let ticket = outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: TIMEOUT,
            why: Why { system: "registry::pulls", rule: "records of images that are gone go" },
            effect: Effect::Cri(CriEffect::ListImages),
        });
        records.listing = Some((ticket, at));
    }
}

/// Brings the numbers up to date.
pub(super) fn count(records: &mut PullRecords, max_pods: u32) {
    let number = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
    let (intents, images) = (number(records.intents.len()), number(records.images.len()));
    let now = (intents, images, max_pods);
    if (records.counts.intents, records.counts.records, records.counts.max_pods) != now {
        let counts: &mut PullCounts = Arc::make_mut(&mut records.counts);
        (counts.intents, counts.records, counts.max_pods) = now;
    }
}

#[cfg(test)]
mod tests;
