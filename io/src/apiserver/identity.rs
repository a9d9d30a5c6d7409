//! Who we are to the API server: a client certificate with its key, and a bearer token that is read again.

use super::kubeconfig::{Pem, Token};
use arc_swap::ArcSwap;
use http::HeaderValue;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long a token that was read from a file is used.
const TOKEN_AGE: Duration = Duration::from_secs(60);

/// A certificate with its key, which must belong together.
pub(super) fn load(certificate: &Pem, key: &Pem, provider: &CryptoProvider) -> Result<CertifiedKey, String> {
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
        let header = read(&token)?;
        Ok(Self { token, current: ArcSwap::from_pointee((header, Instant::now())) })
    }

    /// The header's value now.
    pub(super) fn value(&self) -> HeaderValue {
        let current = self.current.load();
        if matches!(self.token, Token::File(_)) && current.1.elapsed() > TOKEN_AGE {
            match read(&self.token) {
                Ok(header) => self.current.store(Arc::new((header, Instant::now()))),
                Err(message) => tracing::warn!("{message}; the former token is used"),
            }
        }
        self.current.load().0.clone()
    }
}

fn read(token: &Token) -> Result<HeaderValue, String> {
    match token {
        Token::Inline(text) => bearer(&text.0),
        Token::File(path) => bearer(&read_token(path)?),
    }
}

/// A header with a token.
pub(super) fn bearer(token: &str) -> Result<HeaderValue, String> {
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    let mut value = value.map_err(|_| "the token holds characters that cannot be sent".to_owned())?;
    value.set_sensitive(true);
    Ok(value)
}

fn read_token(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    if text.trim().is_empty() { Err(format!("{}: the token file is empty", path.display())) } else { Ok(text) }
}
