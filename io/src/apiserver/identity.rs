//! Who we are to the API server: a client certificate that is read again when its files change, and a bearer token.

use super::kubeconfig::{Pem, Token};
use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// How long a token that was read from a file is used.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// A client certificate. New connections show what the files hold now, so a rotation needs no new client.
#[derive(Debug)]
pub(super) struct Identity {
    certificate: Pem,
    key: Pem,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    key: Arc<CertifiedKey>,
    stamps: [Option<SystemTime>; 2],
}

impl Identity {
    /// Reads certificate and key.
    pub(super) fn new(certificate: Pem, key: Pem, provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let stamps = [stamp(&certificate), stamp(&key)];
        let loaded = Loaded { key: Arc::new(load(&certificate, &key, &provider)?), stamps };
        Ok(Self { certificate, key, provider, current: ArcSwap::from_pointee(loaded) })
    }
}

impl ResolvesClientCert for Identity {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let stamps = [stamp(&self.certificate), stamp(&self.key)];
        if self.current.load().stamps != stamps {
            match load(&self.certificate, &self.key, &self.provider) {
                Ok(key) => self.current.store(Arc::new(Loaded { key: Arc::new(key), stamps })),
                // Half of a pair may have been written: the old one serves until the other half is there.
                Err(message) => tracing::warn!("client certificate: {message}; the former one is used"),
            }
        }
        Some(Arc::clone(&self.current.load().key))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

fn stamp(pem: &Pem) -> Option<SystemTime> {
    match pem {
        Pem::File(path) => std::fs::metadata(path).and_then(|meta| meta.modified()).ok(),
        Pem::Inline(_) => None,
    }
}

fn load(certificate: &Pem, key: &Pem, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
    let chain = certificates(certificate, "client-certificate")?;
    let bytes = key.read()?;
    let key = PrivateKeyDer::from_pem_slice(&bytes).map_err(|e| format!("client-key: {e}"))?;
    CertifiedKey::from_der(chain, key, provider).map_err(|e| format!("client-certificate and client-key: {e}"))
}

/// Every certificate of a PEM text, at least one.
pub(super) fn certificates(pem: &Pem, what: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem.read()?).collect();
    match found {
        Ok(list) if list.is_empty() => Err(format!("{what}: holds no certificate")),
        Ok(list) => Ok(list),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

/// The header `Authorization`.
#[derive(Debug)]
pub(super) struct Bearer {
    token: Token,
    current: ArcSwap<(HeaderValue, Instant)>,
}

impl Bearer {
    /// Reads the token.
    pub(super) fn new(token: Token) -> Result<Self, String> {
        let header = header(&token)?;
        Ok(Self { token, current: ArcSwap::from_pointee((header, Instant::now())) })
    }

    /// The header's value now.
    pub(super) fn value(&self) -> HeaderValue {
        let current = self.current.load();
        if matches!(self.token, Token::File(_)) && current.1.elapsed() > TOKEN_AGE {
            match header(&self.token) {
                Ok(header) => self.current.store(Arc::new((header, Instant::now()))),
                Err(message) => tracing::warn!("{message}; the former token is used"),
            }
        }
        self.current.load().0.clone()
    }
}

fn header(token: &Token) -> Result<HeaderValue, String> {
    let text = match token {
        Token::Inline(text) => text.0.clone(),
        Token::File(path) => read_token(path)?,
    };
    let value = HeaderValue::from_str(&format!("Bearer {}", text.trim()));
    let mut value = value.map_err(|_| "the token holds characters that cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if text.trim().is_empty() { Err(format!("{}: the token file is empty", path.display())) } else { Ok(text) }
}
