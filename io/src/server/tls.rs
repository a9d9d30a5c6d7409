//! The serving certificate: given files, or a self-signed pair that is made once and kept.

mod terms;

pub(super) use self::terms::Terms;

use super::ServerError;
use crate::files;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the serving certificate comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSource {
    /// `tlsCertFile` and `tlsPrivateKeyFile`, both or none.
    pub files: Option<(PathBuf, PathBuf)>,
    /// `serverTLSBootstrap`: the cluster gives a certificate in its time. Until then handshakes fail, unless there are
    /// `files`.
    pub requested: bool,
    /// `--cert-dir`, where a self-signed pair is made otherwise.
    pub cert_dir: PathBuf,
    /// Host name in a self-signed certificate.
    pub hostname: String,
    /// Addresses in a self-signed certificate.
    pub ips: Vec<IpAddr>,
}

/// Which connections are taken.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsPolicy {
    /// `tlsMinVersion`; empty is the default.
    pub min_version: String,
    /// `tlsCipherSuites`; empty is the default.
    pub cipher_suites: Vec<String>,
    /// `tlsCurvePreferences`; empty is the default.
    pub curves: Vec<i32>,
}

/// The files of the serving certificate, the first that are there count. A pair is made first when none is given, none
/// was made before and none is to come.
pub(super) fn files(source: &TlsSource) -> Result<Vec<(PathBuf, PathBuf)>, ServerError> {
    let mut all: Vec<_> = source.files.iter().cloned().collect();
    if source.requested {
        let current = source.cert_dir.join("kubelet-server-current.pem");
        all.insert(0, (current.clone(), current));
    } else if all.is_empty() {
        all.push(self_signed(source)?);
    }
    Ok(all)
}

/// Shows no certificate, so that every handshake fails.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        None
    }
}

/// While there is no certificate.
pub(super) fn without_certificate(
    terms: &Terms,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<Arc<rustls::ServerConfig>, ServerError> {
    let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&terms.provider))
        .with_protocol_versions(terms.versions)
        .map_err(|error| ServerError::Terms { message: error.to_string() })?;
    let config = config.with_client_cert_verifier(clients).with_cert_resolver(Arc::new(NoCertificate));
    Ok(Arc::new(config))
}

/// Loads a certificate and its key.
pub(super) fn server_config(
    (cert, key): (&Path, &Path),
    terms: &Terms,
    clients: Arc<dyn ClientCertVerifier>,
) -> Result<Arc<rustls::ServerConfig>, ServerError> {
    let unusable = |path: &Path, error: &dyn std::fmt::Display| ServerError::Certificate {
        path: path.to_owned(),
        message: error.to_string(),
    };
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(cert).and_then(Iterator::collect).map_err(|error| unusable(cert, &error))?;
    if chain.is_empty() {
        return Err(unusable(cert, &"it holds no certificate"));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, &error))?;
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::clone(&terms.provider))
        .with_protocol_versions(terms.versions)
        .map_err(|error| unusable(cert, &error))?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, private)
        .map_err(|error| unusable(cert, &format!("{error} (key {})", key.display())))?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The pair in the certificate directory; made when both files are missing.
fn self_signed(source: &TlsSource) -> Result<(PathBuf, PathBuf), ServerError> {
    let cert = source.cert_dir.join("kubelet.crt");
    let key = source.cert_dir.join("kubelet.key");
    match (cert.exists(), key.exists()) {
        (true, true) => return Ok((cert, key)),
        (false, false) => {}
        (found, _) => {
            let (there, missing) = if found { (&cert, &key) } else { (&key, &cert) };
            return Err(ServerError::Certificate {
                path: missing.clone(),
                message: format!("it is missing while {} is there; remove that one or restore both", there.display()),
            });
        }
    }
    let failed = |path: &Path, error: &dyn std::fmt::Display| ServerError::Certificate {
        path: path.to_owned(),
        message: format!("it could not be made: {error}"),
    };
    let (cert_pem, key_pem) = generate(source).map_err(|error| failed(&cert, &error))?;
    fs::create_dir_all(&source.cert_dir).map_err(|error| failed(&source.cert_dir, &error))?;
    // The key first: a crash in between leaves an error that names the files, not a certificate without its key.
    for (path, mode, content) in [(&key, 0o600, key_pem), (&cert, 0o644, cert_pem)] {
        files::put(path, mode, &content).map_err(|error| failed(path, &error))?;
    }
    Ok((cert, key))
}

fn generate(source: &TlsSource) -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![source.hostname.clone()])?;
    params.subject_alt_names.extend(source.ips.iter().map(|ip| SanType::IpAddress(*ip)));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, source.hostname.clone());
    let certificate = params.self_signed(&key)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn source(dir: &Path) -> TlsSource {
        TlsSource {
            files: None,
            requested: false,
            cert_dir: dir.join("pki"),
            hostname: "node-1".to_owned(),
            ips: vec!["127.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
        }
    }

    fn load(source: &TlsSource) -> Result<Arc<rustls::ServerConfig>, ServerError> {
        let (cert, key) = files(source)?.remove(0);
        let terms = Terms::new(&TlsPolicy::default())?;
        server_config((&cert, &key), &terms, rustls::server::WebPkiClientVerifier::no_client_auth())
    }

    #[test]
    fn a_self_signed_pair_is_made_once_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let source = source(dir.path());
        load(&source).unwrap();
        let key = dir.path().join("pki/kubelet.key");
        let before = fs::read(&key).unwrap();
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        load(&source).unwrap();
        assert_eq!(fs::read(&key).unwrap(), before);
        assert_eq!(fs::read_dir(dir.path().join("pki")).unwrap().count(), 2);
        fs::remove_file(&key).unwrap();
        let error = load(&source).unwrap_err().to_string();
        assert!(error.contains("kubelet.key") && error.contains("kubelet.crt is there"), "{error}");
    }

    #[test]
    fn unusable_files_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let made = source(dir.path());
        load(&made).unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("empty"), "").unwrap();
        let pki = |name: &str| at("pki").join(name);
        let cases = [
            (at("none"), pki("kubelet.key"), "none"),
            (at("empty"), pki("kubelet.key"), "empty: it holds no certificate"),
            (pki("kubelet.crt"), at("empty"), "empty"),
        ];
        for (cert, key, expect) in cases {
            let error = load(&TlsSource { files: Some((cert, key)), ..made.clone() }).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
        let other = TlsSource { cert_dir: at("other"), ..made.clone() };
        load(&other).unwrap();
        let mixed = Some((pki("kubelet.crt"), at("other").join("kubelet.key")));
        let error = load(&TlsSource { files: mixed, ..made }).unwrap_err().to_string();
        assert!(error.contains("kubelet.crt") && error.contains("kubelet.key"), "{error}");
    }
}
