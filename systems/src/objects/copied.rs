//! Collections of the cluster that are copied whole, each only while some pod needs it: trust bundles and runtime classes.
//!
//! Reads the copies' answers; writes [`Copied`].

use crate::apicall;
use crate::reflector::{Change, Reflector, Target};
use bevy_ecs::prelude::Entity;
use components::edge::Outcome;
use components::edge::api::{ApiIngress, Class};
use components::objects::{Bundle, Copied};
use components::time::Mono;
use engine::Outbox;

/// A collection.
pub(super) struct Kind<T> {
    path: &'static str,
    seed: u64,
    /// Why there are none without an API server.
    standalone: &'static str,
    /// Name and content of one of them.
    read: fn(&str) -> Result<(String, T), String>,
}

/// `ClusterTrustBundle`.
pub(super) const BUNDLES: Kind<Bundle> = Kind {
    path: "/apis/certificates.k8s.io/v1/clustertrustbundles",
    seed: 0x6275_6e64,
    standalone: "ClusterTrustBundle projection is not supported in static kubelet mode",
    read: podspec::objects::bundle,
};

/// `RuntimeClass`. Without an API server the default runtime might isolate less than the class that was asked for.
pub(super) const CLASSES: Kind<String> = Kind {
    path: "/apis/node.k8s.io/v1/runtimeclasses",
    seed: 0x636c_6173,
    standalone: "RuntimeClass cannot be looked up without an API server",
    read: podspec::objects::runtime_class,
};

/// A pod needs them, or no more: from the first one on they are copied, after the last one they are not. True when it changed.
pub(super) fn follow<T>(
    kind: &Kind<T>,
    (pod, needs): (Entity, bool),
    (cluster, seed): (bool, u64),
    copy: &mut Option<Reflector>,
    known: &mut Copied<T>,
    outbox: &mut Outbox,
) -> bool {
    if needs == known.users.contains(&pod) {
        return false;
    }
    if !needs {
        release(pod, copy, known, outbox);
        return true;
    }
    known.users.insert(pod);
    if !cluster {
        known.error = Some(kind.standalone.to_owned());
    } else if copy.is_none() {
        let target = Target { path: kind.path.to_owned(), query: String::new(), class: Class::Object, secret: false };
        *copy = Some(Reflector::new(target, apicall::mix(seed ^ kind.seed)));
    }
    true
}

/// A pod needs them no more; after the last one nothing is copied.
pub(super) fn release<T>(pod: Entity, copy: &mut Option<Reflector>, known: &mut Copied<T>, outbox: &mut Outbox) {
    if known.users.remove(&pod) && known.users.is_empty() {
        if let Some(mut reflector) = copy.take() {
            reflector.stop(outbox);
        }
        *known = Copied::default();
    }
}

/// Takes a fact of the watch; the pods that it concerns.
pub(super) fn told<T: Clone + PartialEq>(
    kind: &Kind<T>,
    copy: &mut Option<Reflector>,
    known: &mut Copied<T>,
    (fact, now): (&ApiIngress, Mono),
    outbox: &mut Outbox,
) -> Vec<Entity> {
    let changes = copy.as_mut().map(|reflector| reflector.told(fact, now, outbox)).unwrap_or_default();
    let mut changed = false;
    for change in changes {
        changed |= apply(kind, known, change);
    }
    if changed { known.users.iter().copied().collect() } else { Vec::new() }
}

/// Takes the answer to a question of the copy; the pods that it concerns.
pub(super) fn answered<T: Clone + PartialEq>(
    kind: &Kind<T>,
    copy: &mut Option<Reflector>,
    known: &mut Copied<T>,
    outcome: &Outcome,
    now: Mono,
) -> Vec<Entity> {
    let Some(reflector) = copy.as_mut() else { return Vec::new() };
    let change = reflector.completed(outcome, now);
    let error = reflector.error().map(str::to_owned);
    let mut changed = known.error != error && !known.synced;
    known.error = error;
    if let Some(change) = change {
        changed |= apply(kind, known, change);
    }
    if changed { known.users.iter().copied().collect() } else { Vec::new() }
}

/// True when it changed something.
pub(super) fn apply<T: Clone + PartialEq>(kind: &Kind<T>, known: &mut Copied<T>, change: Change) -> bool {
    let read = |text: &str| match (kind.read)(text) {
        Ok(named) => Some(named),
        Err(why) => {
            tracing::warn!(path = kind.path, error = %why, "An object of the cluster cannot be read");
            None
        }
    };
    match change {
        Change::Replaced(texts) => {
            let list = texts.iter().filter_map(|text| read(text)).collect();
            let first = !std::mem::replace(&mut known.synced, true);
            std::mem::replace(&mut known.list, list) != known.list || first
        }
        Change::Put(text) => {
            let Some((name, content)) = read(&text) else { return false };
            let old = known.list.insert(name.clone(), content);
            old.as_ref() != known.list.get(&name)
        }
        Change::Gone(text) => read(&text).and_then(|(name, _)| known.list.remove(&name)).is_some(),
    }
}

/// The handler that a class stands for; `None` while the classes were asked for.
///
/// # Errors
/// Why there is none, in the kubelet's words (`pkg/kubelet/runtimeclass`).
pub(crate) fn handler(class: Option<&str>, known: &Copied<String>) -> Result<Option<String>, String> {
    let Some(class) = class else { return Ok(Some(String::new())) };
    if known.pending() {
        return Ok(None);
    }
    match (known.list.get(class), &known.error) {
        (Some(handler), _) => Ok(Some(handler.clone())),
        (None, Some(why)) if !known.synced => Err(format!("failed to lookup RuntimeClass {class}: {why}")),
        (None, _) => Err(format!("runtimeclass.node.k8s.io {class:?} not found")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(name: &str, handler: &str) -> std::sync::Arc<str> {
        serde_json::json!({"metadata": {"name": name}, "handler": handler}).to_string().into()
    }

    #[test]
    fn a_class_stands_for_its_handler() {
        let mut known = Copied::default();
        assert_eq!(handler(None, &known), Ok(Some(String::new())));
        assert_eq!(handler(Some("a"), &known), Ok(None));
        assert!(apply(&CLASSES, &mut known, Change::Replaced(vec![class("a", "runc")])));
        assert_eq!(handler(Some("a"), &known), Ok(Some("runc".to_owned())));
        assert_eq!(handler(Some("b"), &known), Err("runtimeclass.node.k8s.io \"b\" not found".to_owned()));
        assert!(!apply(&CLASSES, &mut known, Change::Put(class("a", "runc"))));
        assert!(apply(&CLASSES, &mut known, Change::Put(class("b", "kata"))));
        assert_eq!(handler(Some("b"), &known), Ok(Some("kata".to_owned())));
        assert!(apply(&CLASSES, &mut known, Change::Gone(class("a", "runc"))));
        assert!(handler(Some("a"), &known).is_err());
    }

    #[test]
    fn classes_that_cannot_be_read_are_an_error_until_they_are() {
        let known = Copied { error: Some("no route".to_owned()), ..Copied::default() };
        let why = "failed to lookup RuntimeClass a: no route";
        assert_eq!(handler(Some("a"), &known), Err(why.to_owned()));
        let list = [("a".to_owned(), "runc".to_owned())].into();
        let known = Copied { error: Some("no route".to_owned()), synced: true, list, ..Copied::default() };
        assert_eq!(handler(Some("a"), &known), Ok(Some("runc".to_owned())));
    }
}
