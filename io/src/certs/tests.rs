//! Stores and first starts in a folder; certificates are signed by their own keys.

use super::*;
use rcgen::CertificateParams;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, SystemTime};

struct Rig {
    top: tempfile::TempDir,
    store: CertificateStore,
}

impl Rig {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let store =
            CertificateStore { dir: top.path().join("pki").display().to_string(), name: "kubelet-client".to_owned() };
        Self { top, store }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.top.path().join(name)
    }

    fn make(&self, new_key: bool) -> (String, String) {
        let wanted = CertificateTemplate {
            common_name: "system:node:n".to_owned(),
            organizations: vec!["system:nodes".to_owned()],
            dns_names: vec!["n".to_owned()],
            addresses: vec!["10.0.0.1".to_owned(), "fd00::1".to_owned()],
        };
        let usages = vec!["digital signature".to_owned(), "client auth".to_owned()];
        let effect = IdentityEffect::MakeRequest { store: self.store.clone(), wanted, usages, new_key };
        let Ok(IdentityAnswer::Made { request, name }) = run(&effect) else { panic!("no request") };
        (String::from_utf8(STANDARD.decode(request).unwrap()).unwrap(), name)
    }

    /// A certificate for the key of the request, or for another one, in base64.
    fn sign(&self, key: Option<KeyPair>) -> String {
        let own = || KeyPair::from_pem(&fs::read_to_string(self.path("pki/kubelet-client.key.tmp")).unwrap()).unwrap();
        STANDARD.encode(certificate(&key.unwrap_or_else(own), 3600))
    }

    fn keep(&self, certificate: String, time: &str) -> Result<IdentityAnswer, Failure> {
        run(&IdentityEffect::Keep { store: self.store.clone(), certificate, time: time.to_owned() })
    }

    fn look(&self, otherwise: Otherwise) -> (Option<CertificateFacts>, bool) {
        match run(&IdentityEffect::Look { store: self.store.clone(), otherwise }).unwrap() {
            IdentityAnswer::Found { certificate, given_inline } => (certificate, given_inline),
            other => panic!("{other:?}"),
        }
    }
}

fn certificate(key: &KeyPair, seconds: i64) -> String {
    let mut params = CertificateParams::new(vec!["n".to_owned(), "10.0.0.1".to_owned()]).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, "system:node:n");
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(7200)).into();
    let end = if seconds < 0 { now - Duration::from_secs(3600) } else { now + Duration::from_secs(3600) };
    params.not_after = end.into();
    params.self_signed(key).unwrap().pem()
}

#[test]
fn a_request_keeps_its_key_until_a_new_one_is_wanted() {
    let rig = Rig::new();
    let (request, name) = rig.make(false);
    assert!(request.starts_with("-----BEGIN CERTIFICATE REQUEST-----"), "{request}");
    assert!(name.starts_with("node-csr-") && name.len() == "node-csr-".len() + 43, "{name}");
    let key = rig.path("pki/kubelet-client.key.tmp");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(rig.make(false).1, name);
    assert_ne!(rig.make(true).1, name);
}

#[test]
fn a_certificate_is_kept_with_its_key_and_replaced_at_once() {
    let rig = Rig::new();
    assert_eq!(rig.look(Otherwise::Nowhere), (None, false));
    for time in ["2026-11-30-09-00-00", "2026-11-30-09-00-01"] {
        rig.make(true);
        let Ok(IdentityAnswer::Kept(facts)) = rig.keep(rig.sign(None), time) else { panic!("not kept") };
        assert_eq!(facts.subject.common_name, "system:node:n");
        assert_eq!(facts.subject.organizations, ["system:nodes"]);
        assert_eq!(
            (facts.subject.dns_names, facts.subject.addresses),
            (vec!["n".to_owned()], vec!["10.0.0.1".to_owned()])
        );
        assert!(facts.not_after.0 - facts.not_before.0 >= 10_799_000_000_000);
        let file = rig.path("pki").join(format!("kubelet-client-{time}.pem"));
        assert_eq!(fs::read_link(rig.path("pki/kubelet-client-current.pem")).unwrap(), file);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        let pem = fs::read_to_string(&file).unwrap();
        assert!(pem.contains("BEGIN CERTIFICATE-") && pem.contains("BEGIN PRIVATE KEY-"), "both are in one file");
        assert!(rig.look(Otherwise::Nowhere).0.is_some());
        assert!(!rig.path("pki/kubelet-client.key.tmp").exists());
    }
    assert_eq!(fs::read_dir(rig.path("pki")).unwrap().count(), 3);
    // Stopped between the removal of the old link and the renaming of the new one.
    fs::rename(rig.path("pki/kubelet-client-current.pem"), rig.path("pki/kubelet-client-updated.pem")).unwrap();
    assert!(rig.look(Otherwise::Nowhere).0.is_some());
    assert!(rig.path("pki/kubelet-client-current.pem").exists());
}

#[test]
fn a_certificate_of_another_key_is_refused_and_the_old_one_stays() {
    let rig = Rig::new();
    rig.make(false);
    rig.keep(rig.sign(None), "1").unwrap();
    rig.make(true);
    let error = rig.keep(rig.sign(Some(KeyPair::generate().unwrap())), "2").unwrap_err();
    assert_eq!(error.class, FailureClass::Invalid, "{error:?}");
    assert!(fs::read_link(rig.path("pki/kubelet-client-current.pem")).unwrap().ends_with("kubelet-client-1.pem"));
    assert_eq!(rig.keep("no base64".to_owned(), "2").unwrap_err().class, FailureClass::Invalid);
    // A file stands where the link must be.
    fs::remove_file(rig.path("pki/kubelet-client-current.pem")).unwrap();
    fs::write(rig.path("pki/kubelet-client-current.pem"), "x").unwrap();
    let error = rig.keep(rig.sign(None), "2").unwrap_err();
    assert!(error.message.contains("expected a symbolic link"), "{error:?}");
}

#[test]
fn a_certificate_outside_of_the_store_is_found() {
    let rig = Rig::new();
    let key = KeyPair::generate().unwrap();
    let (pem, config) = (rig.path("c.pem"), rig.path("config"));
    fs::write(&pem, certificate(&key, 1)).unwrap();
    fs::write(rig.path("c.key"), key.serialize_pem()).unwrap();
    let kubeconfig = |user: &str| {
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: 'https://h'}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        fs::write(&config, text).unwrap();
        rig.look(Otherwise::Kubeconfig(config.display().to_string()))
    };
    let (found, inline) = kubeconfig("client-certificate: c.pem, client-key: c.key");
    assert!(found.is_some() && !inline);
    let data = |text: String| STANDARD.encode(text);
    let (cert, private) = (data(fs::read_to_string(&pem).unwrap()), data(key.serialize_pem()));
    let (found, inline) = kubeconfig(&format!("client-certificate-data: {cert}, client-key-data: {private}"));
    assert!(found.is_some() && inline);
    assert_eq!(kubeconfig("token: t"), (None, false));
    assert_eq!(kubeconfig("client-certificate: none, client-key: none"), (None, false));
    let files = |name: &str| Otherwise::Files(rig.path(name).display().to_string(), pem.display().to_string());
    assert!(rig.look(files("c.pem")).0.is_some() && rig.look(files("none")).0.is_none());
}

#[test]
fn a_first_start_writes_a_kubeconfig_and_later_ones_leave_it() {
    let rig = Rig::new();
    let (kubeconfig, bootstrap, pki) = (rig.path("etc/kubelet.conf"), rig.path("bootstrap.conf"), rig.path("pki"));
    let first = || first_start(&kubeconfig, &bootstrap, &pki);
    let error = first().unwrap_err().to_string();
    assert!(error.contains("--bootstrap-kubeconfig") && !kubeconfig.exists(), "{error}");
    let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
                clusters: [{name: k, cluster: {server: 'https://h:6443', certificate-authority: ca.crt}}]\n\
                users: [{name: u, user: {token: geheim}}]\n";
    fs::write(&bootstrap, text).unwrap();
    assert!(first().unwrap());
    let written = Kubeconfig::read(&kubeconfig).unwrap();
    let pem = Pem::File(pki.join("kubelet-client-current.pem"));
    assert_eq!(written.identity, Some((pem.clone(), pem)));
    assert_eq!(written.authority, Some(Pem::File(rig.path("ca.crt"))));
    assert_eq!((written.server.to_string().as_str(), written.token), ("https://h:6443/", None));
    assert_eq!(fs::metadata(&kubeconfig).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(first().unwrap(), "there is no certificate yet");
    rig.make(false);
    let key = KeyPair::from_pem(&fs::read_to_string(rig.path("pki/kubelet-client.key.tmp")).unwrap()).unwrap();
    rig.keep(STANDARD.encode(certificate(&key, 1)), "1").unwrap();
    assert!(!first().unwrap());
    fs::remove_file(&bootstrap).unwrap();
    assert!(!first().unwrap(), "bootstrap credentials are not needed any more");
    fs::write(rig.path("pki/kubelet-client-1.pem"), certificate(&key, -1) + &key.serialize_pem()).unwrap();
    assert!(first().is_err(), "it has ended");
}
