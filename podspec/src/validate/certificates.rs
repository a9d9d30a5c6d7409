//! Rules of `podCertificate`, a source of projected volumes.

use super::names;
use super::projections::check_new_path;
use crate::issues::Issues;
use components::podcerts::KeyType;
use k8s_openapi::api::core::v1::PodCertificateProjection;
use std::collections::{BTreeMap, BTreeSet};

const MIN_SECONDS: i32 = 3600;
const MAX_SECONDS: i32 = 91 * 24 * 3600;
/// Signers of the project itself issue nothing that lives longer.
const MAX_SECONDS_OF_KUBERNETES: i32 = 24 * 3600;
const MAX_DOMAIN: usize = 253;
/// A domain, a slash, and what names an object with its namespace.
const MAX_SIGNER: usize = MAX_DOMAIN + 1 + 253 + 63 + 1;
const MAX_ANNOTATIONS: usize = 256 << 10;

/// Checks one source; `paths` are those that other sources of the volume write.
pub(super) fn check(path: &str, source: &PodCertificateProjection, paths: &mut BTreeSet<String>, issues: &mut Issues) {
    check_signer(&format!("{path}.signerName"), &source.signer_name, issues);
    check_annotations(&format!("{path}.userAnnotations"), source.user_annotations.as_ref(), issues);
    if KeyType::parse(&source.key_type).is_none() {
        issues.unsupported(&format!("{path}.keyType"), &source.key_type, &KeyType::NAMES);
    }
    if let Some(seconds) = source.max_expiration_seconds {
        let host = source.signer_name.split('/').next().unwrap_or_default();
        let own = host == "kubernetes.io" || host.ends_with(".kubernetes.io");
        let most = if own { MAX_SECONDS_OF_KUBERNETES } else { MAX_SECONDS };
        if !(MIN_SECONDS..=most).contains(&seconds) {
            let rule = format!("must be between {MIN_SECONDS} and {most}, both inclusive");
            issues.invalid(&format!("{path}.maxExpirationSeconds"), seconds, &rule);
        }
    }
    let files = [
        ("credentialBundlePath", &source.credential_bundle_path),
        ("keyPath", &source.key_path),
        ("certificateChainPath", &source.certificate_chain_path),
    ];
    let mut named = 0;
    for (field, value) in files {
        if let Some(value) = value.as_deref().filter(|value| !value.is_empty()) {
            named += 1;
            check_new_path(&format!("{path}.{field}"), value, paths, issues);
        }
    }
    if named == 0 {
        issues.required(path, "must name credentialBundlePath, keyPath or certificateChainPath");
    }
}

fn check_signer(path: &str, signer: &str, issues: &mut Issues) {
    if signer.is_empty() {
        return issues.required(path, "");
    }
    let parts: Vec<&str> = signer.split('/').collect();
    let &[domain, name] = parts.as_slice() else {
        return issues.invalid(path, signer, "must be a domain and a name, such as example.com/signer-name");
    };
    let labels = domain.split('.').all(|label| names::label(label).is_none());
    if !labels || domain.len() > MAX_DOMAIN || !domain.contains('.') {
        issues.invalid(path, signer, "must begin with a domain of at least two labels");
    }
    if name.split('.').any(|label| names::subdomain(label).is_some()) || signer.len() > MAX_SIGNER {
        issues.invalid(path, signer, "must end with a DNS subdomain");
    }
}

fn check_annotations(path: &str, annotations: Option<&BTreeMap<String, String>>, issues: &mut Issues) {
    let mut size = 0;
    for (key, value) in annotations.into_iter().flatten() {
        size += key.len() + value.len();
        if key.is_empty() {
            issues.required(path, "a key must not be empty");
        } else if let Some(wrong) = names::qualified(&key.to_lowercase()) {
            issues.invalid(path, key, wrong);
        } else if !key.contains('/') {
            issues.invalid(path, key, "must have a domain before it, such as example.com/key");
        }
    }
    if size > MAX_ANNOTATIONS {
        issues.invalid(path, size, "must have at most 262144 bytes in all");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks `example.com/s ECDSAP256 b` after a change.
    #[track_caller]
    fn check_with(change: impl FnOnce(&mut PodCertificateProjection), expect: &[&str]) {
        let mut source = PodCertificateProjection {
            signer_name: "example.com/s".to_owned(),
            key_type: "ECDSAP256".to_owned(),
            credential_bundle_path: Some("b".to_owned()),
            ..PodCertificateProjection::default()
        };
        change(&mut source);
        let mut issues = Issues::default();
        check("p", &source, &mut BTreeSet::from(["taken".to_owned()]), &mut issues);
        let found = issues.into_list();
        let fits = |(found, expect): (&String, &&str)| found.starts_with(*expect);
        assert!(found.len() == expect.len() && found.iter().zip(expect).all(fits), "{found:?}");
    }

    #[test]
    fn sources_are_checked_as_the_api_server_does() {
        check_with(|_| {}, &[]);
        for signer in ["a.b/x.y", "kubernetes.io/a"] {
            check_with(|it| signer.clone_into(&mut it.signer_name), &[]);
        }
        check_with(|it| it.signer_name.clear(), &["p.signerName: Required"]);
        for signer in ["a", "a/b", "a.b/c/d", "a.b/", "A.b/c", "a..b/c", "a.b/C"] {
            check_with(|it| signer.clone_into(&mut it.signer_name), &["p.signerName: Invalid"]);
        }
        check_with(|it| "RSA2048".clone_into(&mut it.key_type), &["p.keyType: Unsupported value: \"RSA2048\""]);
        for (seconds, own, good) in [
            (3600, false, true),
            (3599, false, false),
            (7_862_400, false, true),
            (7_862_401, false, false),
            (86_400, true, true),
            (86_401, true, false),
        ] {
            let change = |it: &mut PodCertificateProjection| {
                it.max_expiration_seconds = Some(seconds);
                if own {
                    "x.kubernetes.io/s".clone_into(&mut it.signer_name);
                }
            };
            check_with(change, if good { &[] } else { &["p.maxExpirationSeconds: Invalid"] });
        }
        check_with(|it| it.credential_bundle_path = None, &["p: Required"]);
        check_with(|it| it.key_path = Some("b".to_owned()), &["p.keyPath: Invalid value: \"b\": conflicting"]);
        check_with(|it| it.key_path = Some("taken".to_owned()), &["p.keyPath: Invalid value: \"taken\": conflicting"]);
        check_with(|it| it.certificate_chain_path = Some("../x".to_owned()), &["p.certificateChainPath: Invalid"]);
        let annotated = |key: &str, value: &str| Some(BTreeMap::from([(key.to_owned(), value.to_owned())]));
        check_with(|it| it.user_annotations = annotated("Example.com/Key", "any\nthing"), &[]);
        check_with(|it| it.user_annotations = annotated("key", ""), &["p.userAnnotations: Invalid"]);
        check_with(|it| it.user_annotations = annotated("a b/c", ""), &["p.userAnnotations: Invalid"]);
        let long = "x".repeat(MAX_ANNOTATIONS);
        check_with(|it| it.user_annotations = annotated("a.b/c", &long), &["p.userAnnotations: Invalid"]);
    }
}
