//! Trust bundles of the cluster (`ClusterTrustBundle`): one copy of all, kept while some pod has a volume that shows them.
//!
//! Reads the copy's answers; writes [`Bundles`]. The file that a volume shows is made here too.

use crate::admission::holds;
use crate::apicall;
use crate::reflector::{Change, Reflector, Target};
use bevy_ecs::prelude::Entity;
use components::edge::Outcome;
use components::edge::api::{ApiIngress, Class};
use components::objects::{Bundle, Bundles};
use components::spec::BundleSource;
use components::time::Mono;
use engine::Outbox;
use std::collections::BTreeSet;

const PATH: &str = "/apis/certificates.k8s.io/v1/clustertrustbundles";
/// Characters of a line of a certificate.
const LINE: usize = 64;

/// A pod needs them: from the first one on they are copied.
pub(super) fn refer(pod: Entity, cluster: bool, seed: u64, copy: &mut Option<Reflector>, known: &mut Bundles) {
    known.users.insert(pod);
    if !cluster {
        known.error = Some("ClusterTrustBundle projection is not supported in static kubelet mode".to_owned());
    } else if copy.is_none() {
        let target = Target { path: PATH.to_owned(), query: String::new(), class: Class::Object, secret: false };
        *copy = Some(Reflector::new(target, apicall::mix(seed ^ 0x6275_6e64)));
    }
}

/// A pod needs them no more; after the last one nothing is copied.
pub(super) fn release(pod: Entity, copy: &mut Option<Reflector>, known: &mut Bundles, outbox: &mut Outbox) {
    known.users.remove(&pod);
    if known.users.is_empty() {
        if let Some(mut reflector) = copy.take() {
            reflector.stop(outbox);
        }
        *known = Bundles::default();
    }
}

/// Takes a fact of the watch; the pods that it concerns.
pub(super) fn told(
    copy: &mut Option<Reflector>,
    known: &mut Bundles,
    fact: &ApiIngress,
    now: Mono,
    outbox: &mut Outbox,
) -> Vec<Entity> {
    let changes = copy.as_mut().map(|reflector| reflector.told(fact, now, outbox)).unwrap_or_default();
    let mut changed = false;
    for change in changes {
        changed |= apply(known, change);
    }
    if changed { known.users.iter().copied().collect() } else { Vec::new() }
}

/// Takes the answer to a question of the copy; the pods that it concerns.
pub(super) fn answered(copy: &mut Option<Reflector>, known: &mut Bundles, outcome: &Outcome, now: Mono) -> Vec<Entity> {
    let Some(reflector) = copy.as_mut() else { return Vec::new() };
    let change = reflector.completed(outcome, now);
    let error = reflector.error().map(str::to_owned);
    let mut changed = known.error != error && !known.synced;
    known.error = error;
    if let Some(change) = change {
        changed |= apply(known, change);
    }
    if changed { known.users.iter().copied().collect() } else { Vec::new() }
}

/// True when it changed something.
fn apply(known: &mut Bundles, change: Change) -> bool {
    let read = |text: &str| match podspec::objects::bundle(text) {
        Ok(named) => Some(named),
        Err(why) => {
            tracing::warn!(error = %why, "A trust bundle cannot be read");
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
            let Some((name, bundle)) = read(&text) else { return false };
            known.list.insert(name.clone(), bundle) != known.list.get(&name).cloned()
        }
        Change::Gone(text) => read(&text).and_then(|(name, _)| known.list.remove(&name)).is_some(),
    }
}

/// True while they were asked for and nothing went wrong yet.
pub(crate) const fn pending(known: &Bundles) -> bool {
    !known.synced && known.error.is_none()
}

/// The certificates that a source selects, each once.
///
/// # Errors
/// Why there are none, in the kubelet's words.
pub(crate) fn file(source: &BundleSource, known: &Bundles) -> Result<String, String> {
    if !known.synced {
        let unread = || "ClusterTrustBundle informer has not yet synced".to_owned();
        return Err(known.error.clone().unwrap_or_else(unread));
    }
    let chosen: Vec<&Bundle> = match &source.name {
        Some(name) => known.list.get(name).into_iter().collect(),
        None => known.list.values().filter(|bundle| selected(source, bundle)).collect(),
    };
    if chosen.is_empty() && !source.optional {
        return Err(match &source.name {
            Some(name) => {
                let missing = format!("clustertrustbundle.certificates.k8s.io {name:?} not found");
                format!("while getting ClusterTrustBundle: {missing}")
            }
            None => "combination of signerName and labelSelector matched zero ClusterTrustBundles".to_owned(),
        });
    }
    let anchors: BTreeSet<&str> = chosen.iter().flat_map(|bundle| bundle.anchors.iter().map(String::as_str)).collect();
    Ok(anchors.into_iter().map(pem).collect())
}

fn selected(source: &BundleSource, bundle: &Bundle) -> bool {
    let label = |key: &str| bundle.labels.get(key).map(String::as_str);
    let fits = source.labels.as_ref().is_some_and(|all| all.iter().all(|asked| holds(asked, label(&asked.key))));
    fits && bundle.signer == source.signer
}

fn pem(anchor: &str) -> String {
    let mut out = "-----BEGIN CERTIFICATE-----\n".to_owned();
    let mut rest = anchor;
    while !rest.is_empty() {
        let (line, more) = rest.split_at_checked(LINE).unwrap_or((rest, ""));
        out.push_str(line);
        out.push('\n');
        rest = more;
    }
    out + "-----END CERTIFICATE-----\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::scheduling::Requirement;

    fn bundle(name: &str, signer: &str, zone: &str, anchors: &[&str]) -> String {
        let pem: String = anchors.iter().map(|anchor| pem(anchor)).collect();
        serde_json::json!({"metadata": {"name": name, "labels": {"zone": zone}},
            "spec": {"signerName": signer, "trustBundle": pem}})
        .to_string()
    }

    fn known() -> Bundles {
        let mut known = Bundles::default();
        assert!(pending(&known));
        let texts = [
            bundle("own", "", "x", &["QUFB"]),
            bundle("s:a", "s", "a", &["QkJC", "QUFB"]),
            bundle("s:b", "s", "b", &["Q0ND"]),
        ];
        assert!(apply(&mut known, Change::Replaced(texts.map(Into::into).to_vec())));
        known
    }

    fn source(name: Option<&str>, labels: Option<&[&str]>, optional: bool) -> BundleSource {
        let requirement = |zone: &&str| Requirement {
            key: "zone".to_owned(),
            operator: "In".to_owned(),
            values: vec![(*zone).to_owned()],
        };
        BundleSource {
            name: name.map(str::to_owned),
            signer: "s".to_owned(),
            labels: labels.map(|all| all.iter().map(requirement).collect()),
            optional,
            path: "ca.pem".to_owned(),
            mode: 0o644,
        }
    }

    /// Bodies of the certificates in the file.
    #[track_caller]
    fn check(source: &BundleSource, expect: Result<&str, &str>) {
        let found = file(source, &known())
            .map(|text| text.lines().filter(|line| !line.starts_with("---")).collect::<Vec<_>>().join(" "));
        assert_eq!(found.as_deref().map_err(String::as_str), expect);
    }

    #[test]
    fn a_file_holds_each_selected_anchor_once() {
        check(&source(Some("own"), None, false), Ok("QUFB"));
        check(&source(None, Some(&[]), false), Ok("Q0ND QUFB QkJC"));
        check(&source(None, Some(&["b"]), false), Ok("Q0ND"));
        let none = Err("combination of signerName and labelSelector matched zero ClusterTrustBundles");
        check(&source(None, None, false), none);
        check(&source(None, Some(&["c"]), false), none);
        check(&source(None, Some(&["c"]), true), Ok(""));
        let missing = "while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io \"x\" not found";
        check(&source(Some("x"), None, false), Err(missing));
        check(&source(Some("x"), None, true), Ok(""));
    }

    #[test]
    fn changes_are_told_apart_from_what_is_known() {
        let mut known = known();
        assert!(!apply(&mut known, Change::Put(bundle("own", "", "x", &["QUFB"]).into())));
        assert!(apply(&mut known, Change::Put(bundle("own", "", "x", &["RERE"]).into())));
        assert!(apply(&mut known, Change::Gone(bundle("own", "", "x", &[]).into())));
        assert!(!apply(&mut known, Change::Gone(bundle("own", "", "x", &[]).into())));
        assert!(!apply(&mut known, Change::Put("{".into())));
    }

    #[test]
    fn long_certificates_are_broken_into_lines() {
        let text = pem(&"A".repeat(130));
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [27, 64, 64, 2, 25]);
    }
}
