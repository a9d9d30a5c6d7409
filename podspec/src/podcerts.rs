//! Requests for certificates of pods (`PodCertificateRequest`): the object that asks, and what the cluster says of one.
//! Reads only its arguments.

use components::podcerts::CertificateSource;
use components::spec::PodSpec;
use components::time::Wall;
use serde_json::{Value, json};
use std::sync::Arc;

/// Characters of a line of a certificate.
const LINE: usize = 64;

/// Whom a certificate is asked for besides the pod.
#[derive(Debug, Clone, Copy)]
pub struct Bearer<'a> {
    /// Name of the node.
    pub node: &'a str,
    /// Uid of the node.
    pub node_uid: &'a str,
    /// Uid of the pod's service account.
    pub account_uid: &'a str,
}

/// The object that asks for a certificate. `request` is a PKCS#10 in base64.
#[must_use]
pub fn body(spec: &PodSpec, source: &CertificateSource, bearer: Bearer<'_>, request: &str) -> String {
    let mut asked = json!({
        "signerName": source.signer,
        "podName": &*spec.name,
        "podUID": spec.uid.as_str(),
        "serviceAccountName": spec.service_account,
        "serviceAccountUID": bearer.account_uid,
        "nodeName": bearer.node,
        "nodeUID": bearer.node_uid,
        "stubPKCS10Request": request,
    });
    if let Some(seconds) = source.seconds {
        asked["maxExpirationSeconds"] = json!(seconds);
    }
    if !source.annotations.is_empty() {
        asked["unverifiedUserAnnotations"] = json!(source.annotations);
    }
    let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": &*spec.name, "uid": spec.uid.as_str()});
    json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "PodCertificateRequest",
        "metadata": {"namespace": &*spec.namespace, "generateName": "req-", "ownerReferences": [owner]},
        "spec": asked,
    })
    .to_string()
}

/// How far the cluster has come with a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Progress {
    /// The signer has not decided.
    Waits,
    /// The signer will not issue it.
    Denied(Why),
    /// The signer could not issue it.
    Failed(Why),
    /// It is issued.
    Issued(Issued),
}

/// What a signer says about a request that it does not grant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Why {
    /// `reason`.
    pub reason: String,
    /// `message`.
    pub message: String,
}

/// An issued certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Issued {
    /// The certificates, PEM, with nothing besides.
    pub chain: Arc<str>,
    /// `beginRefreshAt`.
    pub refresh_at: Wall,
    /// `notAfter`.
    pub not_after: Wall,
}

/// Namespace and name of a request, and how far it is.
///
/// # Errors
/// What is wrong with the text.
pub fn read(text: &str) -> Result<((String, String), Progress), String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not valid JSON: {error}"))?;
    let field = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let conditions = value.pointer("/status/conditions").and_then(Value::as_array);
    let mut progress = Progress::Waits;
    for condition in conditions.into_iter().flatten() {
        let text = |key: &str| condition.get(key).and_then(Value::as_str).unwrap_or_default();
        let why = || Why { reason: text("reason").to_owned(), message: text("message").to_owned() };
        progress = match text("type") {
            "Denied" => Progress::Denied(why()),
            "Failed" => Progress::Failed(why()),
            "Issued" => Progress::Issued(Issued {
                chain: clean(field("/status/certificateChain")).into(),
                refresh_at: time(field("/status/beginRefreshAt"))?,
                not_after: time(field("/status/notAfter"))?,
            }),
            _ => continue,
        };
        break;
    }
    Ok(((field("/metadata/namespace").to_owned(), field("/metadata/name").to_owned()), progress))
}

fn time(text: &str) -> Result<Wall, String> {
    let time: jiff::Timestamp = text.parse().map_err(|_| format!("{text:?} is no time"))?;
    i64::try_from(time.as_nanosecond()).map(Wall).map_err(|_| format!("{text:?} is no possible time"))
}

/// The certificates alone: neither headers nor anything between them.
fn clean(text: &str) -> String {
    let mut out = String::new();
    for rest in text.split("-----BEGIN ").skip(1) {
        let Some((body, _)) = rest.split_once("-----END ") else { continue };
        let lines = body.lines().skip(1).filter(|line| !line.contains(':'));
        let body: String = lines.flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
        out.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = body.as_str();
        while !rest.is_empty() {
            let (line, more) = rest.split_at_checked(LINE).unwrap_or((rest, ""));
            out.push_str(line);
            out.push('\n');
            rest = more;
        }
        out.push_str("-----END CERTIFICATE-----\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn progress(status: &Value) -> Result<Progress, String> {
        let text = json!({"metadata": {"namespace": "n", "name": "req-1"}, "status": status}).to_string();
        let (name, progress) = read(&text)?;
        assert_eq!(name, ("n".to_owned(), "req-1".to_owned()));
        Ok(progress)
    }

    #[test]
    fn a_request_waits_until_one_condition_decides() {
        assert_eq!(progress(&json!({})), Ok(Progress::Waits));
        assert_eq!(progress(&json!({"conditions": [{"type": "Other"}]})), Ok(Progress::Waits));
        let why = || Why { reason: "R".to_owned(), message: "m".to_owned() };
        let said = |kind: &str| json!({"conditions": [{"type": kind, "reason": "R", "message": "m"}]});
        assert_eq!(progress(&said("Denied")), Ok(Progress::Denied(why())));
        assert_eq!(progress(&said("Failed")), Ok(Progress::Failed(why())));
        let mut issued = said("Issued");
        assert!(progress(&issued).is_err(), "without its times");
        issued["beginRefreshAt"] = json!("1970-01-01T00:00:01Z");
        issued["notAfter"] = json!("1970-01-01T00:00:02Z");
        issued["certificateChain"] = json!("-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n");
        let expect = Issued {
            chain: "-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n".into(),
            refresh_at: Wall(1_000_000_000),
            not_after: Wall(2_000_000_000),
        };
        assert_eq!(progress(&issued), Ok(Progress::Issued(expect)));
    }

    #[test]
    fn only_certificates_are_left_of_a_chain() {
        let long = "A".repeat(70);
        let text = format!(
            "noise\n-----BEGIN CERTIFICATE-----\nName: value\n\n{long}\n-----END CERTIFICATE-----\nmore noise\n\
             -----BEGIN CERTIFICATE-----\nQkJC\n-----END CERTIFICATE-----"
        );
        let expect = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n{}\n-----END CERTIFICATE-----\n-----BEGIN CERTIFICATE-----\nQkJC\n\
             -----END CERTIFICATE-----\n",
            "A".repeat(64),
            "A".repeat(6)
        );
        assert_eq!(clean(&text), expect);
        assert_eq!(clean("nothing"), "");
    }
}
