//! The file that a volume shows of trust bundles of the cluster (`ClusterTrustBundle`). Reads only its arguments.

use crate::admission::holds;
use components::objects::{Bundle, Copied};
use components::spec::BundleSource;
use std::collections::BTreeSet;

/// Characters of a line of a certificate.
const LINE: usize = 64;

/// The certificates that a source selects, each once.
///
/// # Errors
/// Why there are none, in the kubelet's words.
pub(crate) fn file(source: &BundleSource, known: &Copied<Bundle>) -> Result<String, String> {
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
    use super::super::copied::{BUNDLES, apply};
    use super::*;
    use crate::reflector::Change;
    use components::scheduling::Requirement;

    fn bundle(name: &str, signer: &str, zone: &str, anchors: &[&str]) -> String {
        let pem: String = anchors.iter().map(|anchor| pem(anchor)).collect();
        serde_json::json!({"metadata": {"name": name, "labels": {"zone": zone}},
            "spec": {"signerName": signer, "trustBundle": pem}})
        .to_string()
    }

    fn known() -> Copied<Bundle> {
        let mut known = Copied::default();
        assert!(known.pending());
        let texts = [
            bundle("own", "", "x", &["QUFB"]),
            bundle("s:a", "s", "a", &["QkJC", "QUFB"]),
            bundle("s:b", "s", "b", &["Q0ND"]),
        ];
        assert!(apply(&BUNDLES, &mut known, Change::Replaced(texts.map(Into::into).to_vec())));
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
        assert!(!apply(&BUNDLES, &mut known, Change::Put(bundle("own", "", "x", &["QUFB"]).into())));
        assert!(apply(&BUNDLES, &mut known, Change::Put(bundle("own", "", "x", &["RERE"]).into())));
        assert!(apply(&BUNDLES, &mut known, Change::Gone(bundle("own", "", "x", &[]).into())));
        assert!(!apply(&BUNDLES, &mut known, Change::Gone(bundle("own", "", "x", &[]).into())));
        assert!(!apply(&BUNDLES, &mut known, Change::Put("{".into())));
    }

    #[test]
    fn long_certificates_are_broken_into_lines() {
        let text = pem(&"A".repeat(130));
        assert_eq!(text.lines().map(str::len).collect::<Vec<_>>(), [27, 64, 64, 2, 25]);
    }
}
