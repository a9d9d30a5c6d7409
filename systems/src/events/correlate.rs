//! Keeps the cluster from being flooded: equal events are counted, similar ones combined, and an object that never
//! stops is heard less and less. Same numbers as every Kubernetes component has.

use components::time::{Mono, Now, Wall};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Entries of each memory.
const MEMORY: usize = 4096;
/// Different messages of one reason within [`SIMILAR_FOR`] after which they are combined.
const SIMILAR: usize = 10;
const SIMILAR_FOR: Duration = Duration::from_secs(600);
/// Events about one object at once, and the time after which one more may come.
const BURST: f64 = 25.0;
const REFILL: Duration = Duration::from_secs(300);
/// What a combined message begins with.
pub(super) const COMBINED: &str = "(combined from similar events): ";

/// The object an event is about.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct About {
    pub(crate) kind: &'static str,
    /// Empty for objects that belong to no namespace.
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// Its version when the event was told; empty where the node does not know it.
    pub(crate) resource_version: String,
    /// For example `spec.containers{c}`; empty for the whole.
    pub(crate) field_path: String,
}

/// An event as it happened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Happened {
    pub(crate) about: About,
    pub(crate) warning: bool,
    pub(crate) reason: Cow<'static, str>,
    pub(crate) message: String,
}

/// An event as it is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sendable {
    pub(crate) event: Happened,
    /// Name of the API object.
    pub(crate) name: String,
    pub(crate) count: u32,
    pub(crate) first: Wall,
    pub(crate) last: Wall,
    /// The message differs from the one that was sent under this name.
    pub(crate) reworded: bool,
}

/// Memory of what was told.
#[derive(Default, Debug)]
pub(crate) struct Correlator {
    similar: Memory<Similar>,
    seen: Memory<Seen>,
    budgets: Memory<Budget>,
    /// The newest number in a name.
    stamp: i64,
}

#[derive(Debug)]
struct Similar {
    messages: BTreeSet<String>,
    last: Mono,
}

#[derive(Debug)]
struct Seen {
    name: String,
    count: u32,
    first: Wall,
}

#[derive(Debug)]
struct Budget {
    left: f64,
    at: Mono,
}

impl Correlator {
    /// How an event is to be sent; `None` when it is not.
    pub(crate) fn correlate(&mut self, mut event: Happened, now: Now) -> Option<Sendable> {
        let kind = kind_key(&event);
        let key = self.combine(&mut event, &kind, now);
        let about = &event.about;
        // Names are made of the time; events of one tick have one time.
        let stamp = now.wall.0.max(self.stamp + 1);
        let used = &mut self.stamp;
        let fresh = || {
            *used = stamp;
            Seen { name: format!("{}.{stamp:x}", about.name), count: 0, first: now.wall }
        };
        let combined = key == kind;
        let seen = self.seen.entry(key, fresh);
        seen.count = seen.count.saturating_add(1);
        let (name, count, first) = (seen.name.clone(), seen.count, seen.first);
        let budget = self.budgets.entry(object_key(&event), || Budget { left: BURST, at: now.mono });
        if !budget.take(now.mono) {
            return None;
        }
        Some(Sendable { event, name, count, first, last: now.wall, reworded: combined && count > 1 })
    }

    /// The key under which an event is counted; combines it with similar ones where there are many.
    fn combine(&mut self, event: &mut Happened, kind: &str, now: Now) -> String {
        let similar = self.similar.entry(kind.to_owned(), || Similar { messages: BTreeSet::new(), last: now.mono });
        if now.mono.since(similar.last) > SIMILAR_FOR {
            similar.messages.clear();
        }
        similar.messages.insert(event.message.clone());
        similar.last = now.mono;
        if similar.messages.len() < SIMILAR {
            return format!("{kind}\0{}\0{}", event.about.field_path, event.message);
        }
        similar.messages.pop_first();
        event.message.insert_str(0, COMBINED);
        kind.to_owned()
    }
}

impl Budget {
    fn take(&mut self, now: Mono) -> bool {
        let gained = now.since(self.at).as_secs_f64() / REFILL.as_secs_f64();
        self.left = (self.left + gained).min(BURST);
        self.at = now;
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

/// What events of one kind about one object have in common.
fn kind_key(event: &Happened) -> String {
    format!("{}\0{}", object_key(event), event.reason)
}

fn object_key(event: &Happened) -> String {
    let About { kind, namespace, name, uid, .. } = &event.about;
    let severity = if event.warning { "Warning" } else { "Normal" };
    format!("{kind}\0{namespace}\0{name}\0{uid}\0{severity}")
}

/// The entries used last, by key.
#[derive(Debug)]
struct Memory<T> {
    entries: BTreeMap<String, (u64, T)>,
    order: BTreeMap<u64, String>,
    uses: u64,
}

impl<T> Default for Memory<T> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), order: BTreeMap::new(), uses: 0 }
    }
}

impl<T> Memory<T> {
    fn entry(&mut self, key: String, fresh: impl FnOnce() -> T) -> &mut T {
        self.uses += 1;
        if let Some((used, _)) = self.entries.get(&key) {
            self.order.remove(used);
        } else if self.entries.len() >= MEMORY
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.order.insert(self.uses, key.clone());
        let entry = self.entries.entry(key).or_insert_with(|| (0, fresh()));
        entry.0 = self.uses;
        &mut entry.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(reason: &'static str, message: &str) -> Happened {
        let about = About { kind: "Pod", namespace: "ns".into(), name: "p".into(), ..About::default() };
        Happened { about, warning: true, reason: reason.into(), message: message.to_owned() }
    }

    fn at(seconds: u64) -> Now {
        let nanos = i64::try_from(seconds).unwrap() * 1_000_000_000;
        Now { mono: Mono(seconds * 1_000_000_000), wall: Wall(nanos) }
    }

    #[test]
    fn equal_events_are_counted_under_one_name() {
        let mut memory = Correlator::default();
        let first = memory.correlate(event("BackOff", "x"), at(5)).unwrap();
        assert_eq!((first.count, first.name.as_str()), (1, "p.12a05f200"));
        let again = memory.correlate(event("BackOff", "x"), at(9)).unwrap();
        assert_eq!((again.count, again.name, again.first, again.last), (2, first.name, at(5).wall, at(9).wall));
        assert!(!again.reworded);
        let third = memory.correlate(event("BackOff", "y"), at(9)).unwrap();
        let fourth = memory.correlate(event("BackOff", "z"), at(9)).unwrap();
        assert!(third.count == 1 && third.name != fourth.name);
        let mut other = event("BackOff", "x");
        other.about.field_path = "spec.containers{c}".into();
        assert_eq!(memory.correlate(other, at(9)).unwrap().count, 1);
    }

    #[test]
    fn similar_events_are_combined() {
        let mut memory = Correlator::default();
        for number in 0..9 {
            let sent = memory.correlate(event("Failed", &number.to_string()), at(1)).unwrap();
            assert_eq!((sent.count, sent.event.message), (1, number.to_string()));
        }
        let sent = memory.correlate(event("Failed", "9"), at(2)).unwrap();
        assert_eq!((sent.count, sent.event.message.as_str()), (1, "(combined from similar events): 9"));
        let sent = memory.correlate(event("Failed", "10"), at(3)).unwrap();
        assert_eq!((sent.count, sent.reworded), (2, true));
        // After ten quiet minutes each stands for itself again.
        let sent = memory.correlate(event("Failed", "11"), at(604)).unwrap();
        assert_eq!((sent.count, sent.event.message.as_str()), (1, "11"));
    }

    #[test]
    fn an_object_that_never_stops_is_heard_every_five_minutes() {
        let mut memory = Correlator::default();
        let heard = (0..40).filter(|_| memory.correlate(event("BackOff", "x"), at(1)).is_some()).count();
        assert_eq!(heard, 25);
        assert_eq!(memory.correlate(event("BackOff", "x"), at(290)), None);
        assert_eq!(memory.correlate(event("BackOff", "x"), at(302)).unwrap().count, 42);
        // Others are heard.
        let mut other = event("BackOff", "x");
        other.about.name = "q".into();
        assert!(memory.correlate(other, at(302)).is_some());
    }

    #[test]
    fn the_memory_is_bounded_and_forgets_what_was_not_used_for_long() {
        let mut memory = Memory::default();
        for number in 0..=MEMORY {
            memory.entry("kept".to_owned(), || 7);
            memory.entry(number.to_string(), || 0);
        }
        assert_eq!((memory.entries.len(), memory.order.len()), (MEMORY, MEMORY));
        assert_eq!(*memory.entry("kept".to_owned(), || 0), 7);
    }
}
