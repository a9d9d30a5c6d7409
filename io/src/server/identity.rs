//! Who asks: the certificate a client showed, or nobody in particular.
//!
//! A client certificate is only checked for being the client's own during the handshake. Whether it was signed by the
//! client CA is looked at for each request, so that a bad one is told 401 and a changed CA counts at once.

use super::ServerError;
use super::review::AUTHENTICATED;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use x509_parser::prelude::{FromDer, X509Certificate};

/// User of a request without any sign of who sends it.
pub(super) const ANONYMOUS: &str = "system:anonymous";

/// Who sends a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Identity {
    /// Name, the certificate's common name.
    pub(super) user: String,
    /// Uid, where a token told it.
    pub(super) uid: String,
    /// Groups, the certificate's organizations.
    pub(super) groups: Vec<String>,
    /// What else a token told.
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// The client CA.
#[derive(Clone, Debug)]
pub(super) struct ClientCa {
    chains: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// Reads `clientCAFile`.
    pub(super) fn load(path: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, ServerError> {
        let unusable = |message: String| ServerError::ClientCa { path: path.to_owned(), message };
        let mut roots = RootCertStore::empty();
        let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unusable(error.to_string()))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(unusable("it holds no certificate".to_owned()));
        }
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|error| unusable(error.to_string()))?;
        Ok(Self { chains })
    }

    /// What the handshake asks of a client: any certificate, if it is the client's.
    pub(super) fn handshake(&self, provider: &CryptoProvider) -> Arc<dyn ClientCertVerifier> {
        let hints = self.chains.root_hint_subjects().to_vec();
        Arc::new(OwnCertificate { hints, algorithms: provider.signature_verification_algorithms })
    }

    /// Whom a chain of certificates, the client's first, belongs to.
    pub(super) fn identify(&self, chain: &[CertificateDer<'_>]) -> Result<Identity, String> {
        let (own, others) = chain.split_first().ok_or("no certificate")?;
        self.chains.verify_client_cert(own, others, UnixTime::now()).map_err(|error| error.to_string())?;
        let (_, parsed) = X509Certificate::from_der(own).map_err(|error| error.to_string())?;
        let subject = parsed.subject();
        let text = |value: &x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok().map(str::to_owned);
        // As Go does, the last common name counts.
        let user = subject.iter_common_name().filter_map(text).last().unwrap_or_default();
        let groups = subject.iter_organization().filter_map(text).chain([AUTHENTICATED.to_owned()]).collect();
        Ok(Identity { user, groups, ..Identity::default() })
    }
}

/// Takes any certificate whose key the client has.
#[derive(Debug)]
struct OwnCertificate {
    /// Subjects of the client CA: clients choose by them which certificate to show.
    hints: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ClientCertVerifier for OwnCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        // Trust is decided for each request by `ClientCa::identify`.
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
