//! What a certificate is asked for with, when it is renewed, and what the cluster says of a request. Plain functions.

use components::edge::api::{ApiRequest, Class, Method};
use components::edge::host::identity::{CertificateFacts, CertificateTemplate};
use components::time::Wall;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Where requests for certificates are.
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Creates a request. Without a name the server makes one.
pub(super) fn create(name: Option<&str>, request: &str, signer: &str, usages: &[&str]) -> ApiRequest {
    let metadata = name.map_or_else(|| json!({ "generateName": "csr-" }), |name| json!({ "name": name }));
    let body = json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": { "request": request, "signerName": signer, "usages": usages },
    });
    ApiRequest::send(Method::Post, REQUESTS.to_owned(), body.to_string(), Class::Review)
}

/// Reads a request.
pub(super) fn read(name: &str) -> ApiRequest {
    ApiRequest::get(format!("{REQUESTS}/{}", crate::apicall::encode(name)), Class::Review)
}

/// The fields of a request that are read.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct Csr {
    pub(super) metadata: Metadata,
    status: Status,
}

/// Its name and uid.
#[derive(Deserialize, Debug, Default)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) uid: String,
}

#[derive(Deserialize, Debug, Default)]
#[serde(default)]
struct Status {
    conditions: Vec<Condition>,
    certificate: String,
}

#[derive(Deserialize, Debug, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    reason: String,
    message: String,
}

/// How far the cluster has come with a request.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Progress {
    /// Not approved, or not signed yet.
    Waits,
    /// The certificate, PEM in base64.
    Issued(String),
    /// There will be none.
    Refused(String),
}

impl Csr {
    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        let conditions = &self.status.conditions;
        for (kind, word) in [("Denied", "is denied"), ("Failed", "failed")] {
            if let Some(found) = conditions.iter().find(|condition| condition.kind == kind) {
                let (reason, message) = (&found.reason, &found.message);
                let text = format!("certificate signing request {} {word}", self.metadata.name);
                return Progress::Refused(format!("{text}, reason: {reason}, message: {message}"));
            }
        }
        let approved = conditions.iter().any(|condition| condition.kind == "Approved");
        match self.status.certificate.as_str() {
            certificate if approved && !certificate.is_empty() => Progress::Issued(certificate.to_owned()),
            _ => Progress::Waits,
        }
    }
}

/// Whom a node's certificates are given to.
pub(super) fn subject(node: &str) -> CertificateTemplate {
    CertificateTemplate {
        common_name: format!("system:node:{node}"),
        organizations: vec!["system:nodes".to_owned()],
        ..CertificateTemplate::default()
    }
}

/// The same with the names and addresses of a node's object; `None` until it has what a serving certificate needs.
pub(super) fn serving(node: &str, object: Option<&Value>, dns_only: bool) -> Option<CertificateTemplate> {
    let list = object?.pointer("/status/addresses")?.as_array()?;
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    for entry in list {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default();
        let address = text("address");
        let parsed = address.parse::<IpAddr>().ok();
        match (text("type"), parsed) {
            _ if address.is_empty() => {}
            ("Hostname" | "ExternalIP" | "InternalIP", Some(ip)) => addresses.push(ip.to_string()),
            ("Hostname" | "ExternalDNS" | "InternalDNS", _) => names.push(address.to_owned()),
            _ => {}
        }
    }
    if addresses.is_empty() && (!dns_only || names.is_empty()) {
        return None;
    }
    for list in [&mut names, &mut addresses] {
        list.sort();
        list.dedup();
    }
    Some(CertificateTemplate { dns_names: names, addresses, ..subject(node) })
}

/// True when a certificate says everything that is wanted.
pub(super) fn satisfies(has: &CertificateTemplate, wanted: &CertificateTemplate) -> bool {
    let all = |has: &[String], wanted: &[String]| wanted.iter().all(|one| has.contains(one));
    has.common_name == wanted.common_name
        && all(&has.organizations, &wanted.organizations)
        && all(&has.dns_names, &wanted.dns_names)
        && all(&has.addresses, &wanted.addresses)
}

/// When a certificate is renewed: after 70 to 90 percent of its life, by `share`, a random number from 0 to 1.
pub(super) fn renewal(facts: &CertificateFacts, share: f64) -> Wall {
    let life = facts.not_after.0.saturating_sub(facts.not_before.0).max(0) as f64;
    let used = life * (0.7 + 0.2 * share.clamp(0.0, 1.0));
    Wall(facts.not_before.0.saturating_add(used.round() as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn progress(status: Value, expect: Progress) {
        let object = json!({ "metadata": { "name": "csr-1" }, "status": status }).to_string();
        assert_eq!(serde_json::from_str::<Csr>(&object).unwrap().progress(), expect);
    }

    #[test]
    fn a_request_is_issued_only_when_it_is_approved() {
        progress(json!({}), Progress::Waits);
        progress(json!({ "certificate": "eA==" }), Progress::Waits);
        progress(json!({ "conditions": [{ "type": "Approved" }] }), Progress::Waits);
        let issued = json!({ "conditions": [{ "type": "Approved" }], "certificate": "eA==" });
        progress(issued, Progress::Issued("eA==".to_owned()));
        let denied =
            json!({ "conditions": [{ "type": "Approved" }, { "type": "Denied", "reason": "R", "message": "m" }] });
        let why = "certificate signing request csr-1 is denied, reason: R, message: m";
        progress(denied, Progress::Refused(why.to_owned()));
        let failed = json!({ "conditions": [{ "type": "Failed", "reason": "R", "message": "m" }] });
        let why = "certificate signing request csr-1 failed, reason: R, message: m";
        progress(failed, Progress::Refused(why.to_owned()));
    }

    #[test]
    fn a_serving_certificate_needs_an_address() {
        let object = |list: Value| json!({ "status": { "addresses": list } });
        let full = object(json!([
            { "type": "InternalIP", "address": "10.0.0.2" },
            { "type": "InternalIP", "address": "10.0.0.1" },
            { "type": "Hostname", "address": "n" },
            { "type": "InternalDNS", "address": "n" },
            { "type": "Other", "address": "x" },
        ]));
        let wanted = serving("n", Some(&full), false).unwrap();
        assert_eq!(
            (wanted.common_name.as_str(), wanted.dns_names.as_slice()),
            ("system:node:n", ["n".to_owned()].as_slice())
        );
        assert_eq!(wanted.addresses, ["10.0.0.1", "10.0.0.2"]);
        let names = object(json!([{ "type": "Hostname", "address": "n" }]));
        assert_eq!(serving("n", Some(&names), false), None);
        assert_eq!(serving("n", Some(&names), true).unwrap().dns_names, ["n"]);
        let by_address = object(json!([{ "type": "Hostname", "address": "fd00::1" }]));
        assert_eq!(serving("n", Some(&by_address), false).unwrap().addresses, ["fd00::1"]);
        for nothing in [None, Some(&json!({})), Some(&object(json!([])))] {
            assert_eq!(serving("n", nothing, true), None);
        }
    }

    #[test]
    fn more_than_is_wanted_satisfies() {
        let wanted = subject("n");
        let mut has = subject("n");
        has.dns_names.push("n".to_owned());
        assert!(satisfies(&has, &wanted) && !satisfies(&wanted, &has));
        assert!(!satisfies(&subject("m"), &wanted));
    }

    #[test]
    fn renewal_lies_between_70_and_90_percent() {
        let facts = CertificateFacts { subject: subject("n"), not_before: Wall(1000), not_after: Wall(2000) };
        assert_eq!([0.0, 0.5, 1.0].map(|share| renewal(&facts, share).0), [1700, 1800, 1900]);
    }
}
