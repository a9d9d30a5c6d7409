//! The first start of a node: whether its kubeconfig can be used as it is, and if not, one that points to where its
//! certificate will be.

use crate::apiserver::kubeconfig::{Kubeconfig, KubeconfigError, Pem};
use crate::files;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a node cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum FirstError {
    /// The bootstrap credentials are unusable.
    #[error("--bootstrap-kubeconfig: {0}")]
    Bootstrap(#[source] KubeconfigError),
    /// The kubeconfig cannot be looked at or written.
    #[error("--kubeconfig {path}: {message}", path = path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// Looks at the kubeconfig. When it is missing or its client certificate is, or has ended, a new one is written with
/// the server of the bootstrap kubeconfig and the place of the client certificate in `cert_dir`; true then.
///
/// # Errors
/// When the bootstrap credentials are unusable, or the kubeconfig cannot be written.
pub fn first_start(kubeconfig: &Path, bootstrap: &Path, cert_dir: &Path) -> Result<bool, FirstError> {
    let failed = |message: String| FirstError::Kubeconfig { path: kubeconfig.to_owned(), message };
    if kubeconfig.try_exists().map_err(|error| failed(error.to_string()))? {
        match usable(kubeconfig, SystemTime::now()) {
            Ok(()) => return Ok(false),
            Err(why) => tracing::info!(%why, "The kubeconfig cannot be used as it is; the node asks for a certificate"),
        }
    }
    let source = Kubeconfig::read(bootstrap).map_err(FirstError::Bootstrap)?;
    let certificate = std::path::absolute(cert_dir.join("kubelet-client-current.pem"));
    let certificate = certificate.map_err(|error| failed(error.to_string()))?;
    let text = text(&source, &certificate).map_err(failed)?;
    let dir = kubeconfig.parent().filter(|dir| !dir.as_os_str().is_empty());
    dir.map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| files::put(kubeconfig, 0o600, &text))
        .map_err(|error| failed(error.to_string()))?;
    Ok(true)
}

/// Whether a kubeconfig has a client certificate that has not ended.
fn usable(path: &Path, now: SystemTime) -> Result<(), String> {
    let found = Kubeconfig::read(path).map_err(|error| error.to_string())?;
    let (certificate, key) = found.identity.ok_or("it names no client certificate")?;
    key.read()?;
    let pem = certificate.read()?;
    let now = now.duration_since(UNIX_EPOCH).map_or(0, |since| i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    let mut count = 0;
    for der in CertificateDer::pem_slice_iter(&pem) {
        let der = der.map_err(|error| format!("its client certificate is unusable: {error}"))?;
        let (_, parsed) =
            X509Certificate::from_der(&der).map_err(|error| format!("its client certificate is unusable: {error}"))?;
        let end = parsed.validity().not_after;
        if now > end.timestamp() {
            return Err(format!("its client certificate ended at {end}"));
        }
        count += 1;
    }
    if count == 0 { Err("its client certificate is empty".to_owned()) } else { Ok(()) }
}

/// YAML as other clients write it; JSON is YAML too, but people read this file.
fn text(source: &Kubeconfig, certificate: &Path) -> Result<String, String> {
    let mut cluster = Map::new();
    cluster.insert("server".to_owned(), source.server.to_string().trim_end_matches('/').into());
    match &source.authority {
        Some(Pem::File(path)) => {
            let path = std::path::absolute(path).map_err(|error| error.to_string())?;
            cluster.insert("certificate-authority".to_owned(), path.display().to_string().into());
        }
        Some(Pem::Inline(pem)) => {
            cluster.insert("certificate-authority-data".to_owned(), STANDARD.encode(&pem.0).into());
        }
        None => {}
    }
    if source.insecure {
        cluster.insert("insecure-skip-tls-verify".to_owned(), true.into());
    }
    if let Some(proxy) = &source.proxy {
        cluster.insert("proxy-url".to_owned(), proxy.given.0.as_str().into());
    }
    if let Some(name) = &source.server_name {
        cluster.insert("tls-server-name".to_owned(), name.as_str().into());
    }
    let pem = certificate.display().to_string();
    let config: Value = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "default-cluster", "cluster": cluster }],
        "users": [{ "name": "default-auth", "user": { "client-certificate": pem, "client-key": pem } }],
        "contexts": [{
            "name": "default-context",
            "context": { "cluster": "default-cluster", "user": "default-auth", "namespace": "default" },
        }],
        "current-context": "default-context",
    });
    serde_saphyr::to_string(&config).map_err(|error| error.to_string())
}
