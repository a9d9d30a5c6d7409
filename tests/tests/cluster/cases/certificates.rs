//! Cases about certificates that a signer of the cluster issues to pods. The test is the signer.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tests::process;

use super::{POLITE, bound, container, delete, exec, wait_object, wait_ready};
use crate::{Rig, SOON};

const REQUESTS: &str = "podcertificaterequests.certificates.k8s.io";

fn run(program: &str, dir: &Path, args: &[&str]) -> String {
    process::run(Command::new(program).current_dir(dir).args(args), SOON).unwrap().success().unwrap()
}

/// A pod with one projected volume, given by its sources.
fn holder(name: &str, sources: &str) -> String {
    let spec =
        format!("  terminationGracePeriodSeconds: 2\n  volumes: [{{name: id, projected: {{sources: [{sources}]}}}}]\n");
    bound(name, "", &spec, &container("c", POLITE, "    volumeMounts: [{name: id, mountPath: /id}]\n"))
}

/// Waits for a request for this pod and signer that nobody decided.
fn wait_request(rig: &Rig, pod: &str, signer: &str) -> Value {
    let open = |item: &&Value| {
        item["spec"]["podName"] == pod
            && item["spec"]["signerName"] == signer
            && item["status"]["conditions"].as_array().is_none_or(Vec::is_empty)
    };
    let find = |list: &Value| list["items"].as_array().and_then(|all| all.iter().find(open).cloned());
    let what = format!("{pod} asks {signer}");
    let list = wait_object(rig, REQUESTS, SOON, &what, |list| find(list).is_some());
    find(&list).unwrap()
}

fn decide(rig: &Rig, request: &Value, status: &Value) {
    let name = request["metadata"]["name"].as_str().unwrap();
    let patch = json!({ "status": status }).to_string();
    let patch = ["patch", REQUESTS, name, "--subresource=status", "--type=merge", "-p", &patch];
    rig.cluster.kubectl(&patch).unwrap();
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    let now = run("date", Path::new("/"), &["-u", "+%FT%TZ"]);
    json!([{"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now.trim()}])
}

/// Signs a request with the cluster's authority; the chain.
fn issue(rig: &Rig, request: &Value) -> String {
    let name = request["metadata"]["name"].as_str().unwrap();
    let stub = request["spec"]["stubPKCS10Request"].as_str().unwrap();
    let lines: Vec<&str> = stub.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{}\n-----END CERTIFICATE REQUEST-----\n", lines.join("\n"));
    let dir = rig.cluster.file("");
    let (csr, certificate) = (format!("{name}.csr"), format!("{name}.crt"));
    fs::write(dir.join(&csr), pem).unwrap();
    let sign = ["x509", "-req", "-in", &csr, "-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", "77", "-days", "1"];
    run("openssl", &dir, &[sign.as_slice(), &["-subj", "/CN=pod", "-out", &certificate]].concat());
    let dates = ["x509", "-in", &certificate, "-noout", "-startdate", "-enddate", "-dateopt", "iso_8601"];
    let dates = run("openssl", &dir, &dates);
    let date = |prefix: &str| {
        let line = dates.lines().find_map(|line| line.strip_prefix(prefix)).unwrap();
        line.replacen(' ', "T", 1)
    };
    let refresh = run("date", &dir, &["-u", "-d", "+2 hours", "+%FT%TZ"]);
    let leaf = fs::read_to_string(dir.join(&certificate)).unwrap();
    let authority = fs::read_to_string(dir.join("ca.crt")).unwrap();
    let chain = format!("{leaf}between\n{authority}");
    let status = json!({
        "conditions": condition("Issued", "Issued", "as asked"),
        "certificateChain": chain,
        "notBefore": date("notBefore="),
        "notAfter": date("notAfter="),
        "beginRefreshAt": refresh.trim(),
    });
    decide(rig, request, &status);
    format!("{leaf}{authority}")
}

/// The public key of a private one, and that of the first certificate of a chain.
fn publics(rig: &Rig, key: &str, chain: &str) -> (String, String) {
    let dir = rig.cluster.file("");
    fs::write(dir.join("seen.key"), key).unwrap();
    fs::write(dir.join("seen.crt"), chain).unwrap();
    let of_key = run("openssl", &dir, &["pkey", "-in", "seen.key", "-pubout"]);
    (of_key, run("openssl", &dir, &["x509", "-in", "seen.crt", "-noout", "-pubkey"]))
}

#[test]
fn certificates_that_a_signer_issues_are_files_of_a_pod() {
    let Some(rig) = Rig::register() else { return };
    let sources = "{podCertificate: {signerName: example.com/one, keyType: ED25519, credentialBundlePath: both.pem,
      userAnnotations: {example.com/zone: a}}},
      {podCertificate: {signerName: example.com/two, keyType: RSA3072, keyPath: two/key.pem,
      certificateChainPath: two/chain.pem, maxExpirationSeconds: 100000}},
      {downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}";
    rig.cluster.apply(&holder("holder", sources)).unwrap();
    let one = wait_request(&rig, "holder", "example.com/one");
    assert_eq!(one["spec"]["unverifiedUserAnnotations"], json!({"example.com/zone": "a"}), "{one}");
    assert_eq!(one["spec"]["nodeName"], "lab", "{one}");
    assert_eq!(one["spec"]["maxExpirationSeconds"], 86_400, "{one}");
    assert_eq!(one["metadata"]["ownerReferences"][0]["name"], "holder", "{one}");
    let two = wait_request(&rig, "holder", "example.com/two");
    assert_eq!(two["spec"]["maxExpirationSeconds"], 100_000, "{two}");
    assert_eq!(rig.cluster.get("pod/holder").unwrap()["status"]["phase"], "Pending", "it waits for its certificates");
    let (first, second) = (issue(&rig, &one), issue(&rig, &two));
    wait_ready(&rig, "holder", Duration::from_secs(150));
    let read = |file: &str| exec(&rig, "holder", &["cat", file]).unwrap();
    let both = read("/id/both.pem");
    let (key, chain) = both.split_once("-----END PRIVATE KEY-----\n").unwrap();
    assert_eq!(chain.trim_end(), first.trim_end());
    let (of_key, of_certificate) = publics(&rig, &format!("{key}-----END PRIVATE KEY-----\n"), chain);
    assert_eq!(of_key, of_certificate);
    assert_eq!(read("/id/two/chain.pem").trim_end(), second.trim_end());
    let (of_key, of_certificate) = publics(&rig, &format!("{}\n", read("/id/two/key.pem")), &second);
    assert_eq!(of_key, of_certificate);
    assert_eq!(read("/id/name"), "holder");
    let page = rig.cluster.kubectl(&["get", "--raw", "/api/v1/nodes/lab/proxy/metrics"]).unwrap();
    for signer in ["one", "two"] {
        let line = format!("kubelet_podcertificate_states{{signer_name=\"example.com/{signer}\",state=\"fresh\"}} 1");
        assert!(page.lines().any(|found| found == line), "{line} is not in {page}");
    }
    delete(&rig, "holder");
    rig.cluster.wait_gone("pod/holder", SOON).unwrap();
}

#[test]
fn a_certificate_that_is_denied_is_told_and_not_asked_for_again() {
    let Some(rig) = Rig::register() else { return };
    let source = "{podCertificate: {signerName: example.com/s, keyType: ECDSAP521, keyPath: key.pem}}";
    rig.cluster.apply(&holder("outcast", source)).unwrap();
    let request = wait_request(&rig, "outcast", "example.com/s");
    let status = json!({"conditions": condition("Denied", "UnsupportedKeyType", "use ED25519")});
    decide(&rig, &request, &status);
    let told = |events: &Value, reason: &str, text: &str| {
        let all = events["items"].as_array().map(Vec::as_slice).unwrap_or_default();
        all.iter().any(|event| {
            event["involvedObject"]["name"] == "outcast"
                && event["reason"] == reason
                && event["message"].as_str().is_some_and(|message| message.contains(text))
        })
    };
    wait_object(&rig, "events", SOON, "the denial is told", |events| told(events, "Denied", "use ED25519"));
    let why = "PodCertificateRequest was permanently denied: reason=\"UnsupportedKeyType\" message=\"use ED25519\"";
    wait_object(&rig, "events", Duration::from_secs(150), "the volume says why", |it| told(it, "FailedMount", why));
    assert_eq!(rig.cluster.get(REQUESTS).unwrap()["items"].as_array().unwrap().len(), 1);
    assert_eq!(rig.cluster.get("pod/outcast").unwrap()["status"]["phase"], "Pending");
    delete(&rig, "outcast");
    rig.cluster.wait_gone("pod/outcast", SOON).unwrap();
}
