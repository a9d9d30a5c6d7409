//! A client of the kubelet's TLS port: certificates, plain requests, upgrades.

use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// A CA for client certificates.
pub(super) struct Ca(CertifiedIssuer<'static, KeyPair>);

impl Ca {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "lab-ca");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    fn client(&self) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(DnType::CommonName, "admin");
        params.distinguished_name.push(DnType::OrganizationName, "system:masters");
        let signed = params.signed_by(&key, &self.0).unwrap();
        (signed.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

/// What was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: u16,
    pub(super) head: String,
    pub(super) body: String,
}

/// Speaks to one kubelet as one client.
#[derive(Clone)]
pub(super) struct Client {
    port: u16,
    connector: TlsConnector,
}

impl Client {
    /// With a certificate of the CA, or with none.
    pub(super) fn new(port: u16, serving: &Path, ca: Option<&Ca>) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let serving = CertificateDer::from_pem_file(serving).unwrap();
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(pinned::Pinned(serving)));
        let mut config = match ca {
            Some(ca) => {
                let (own, key) = ca.client();
                config.with_client_auth_cert(vec![own], key).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Self { port, connector: TlsConnector::from(Arc::new(config)) }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        self.connector.connect(ServerName::try_from("lab").unwrap(), stream).await.unwrap()
    }

    /// One request and its answer.
    pub(super) async fn ask(&self, method: &str, path: &str) -> Answer {
        let (code, head, mut stream) = self.upgrade(method, path, &[("Connection", "close")]).await;
        let mut body = Vec::new();
        stream.read_to_end(&mut body).await.unwrap();
        Answer { code, head, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// One request; the head of its answer, and the connection behind it.
    pub(super) async fn upgrade(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> (u16, String, TlsStream<TcpStream>) {
        let mut stream = self.connect().await;
        let mut request = format!("{method} {path} HTTP/1.1\r\nHost: lab\r\nContent-Length: 0\r\n");
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream.flush().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let code = head.split(' ').nth(1).unwrap().parse().unwrap();
        (code, head, stream)
    }
}

/// Either of two connections.
pub(super) enum Either<A, B> {
    Plain(A),
    Tunnel(B),
}

impl<A: AsyncRead + Unpin, B: AsyncRead + Unpin> AsyncRead for Either<A, B> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tunnel(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<A: AsyncWrite + Unpin, B: AsyncWrite + Unpin> AsyncWrite for Either<A, B> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tunnel(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tunnel(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tunnel(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

mod pinned {
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    use rustls::crypto::{aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
    use rustls::{DigitallySignedStruct, Error, SignatureScheme};

    /// Trusts the one certificate that lies in the node's folder, whatever names it carries.
    #[derive(Debug)]
    pub(super) struct Pinned(pub(super) CertificateDer<'static>);

    impl ServerCertVerifier for Pinned {
        fn verify_server_cert(
            &self,
            shown: &CertificateDer<'_>,
            _others: &[CertificateDer<'_>],
            _name: &ServerName<'_>,
            _ocsp: &[u8],
            _now: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            if *shown == self.0 {
                Ok(ServerCertVerified::assertion())
            } else {
                Err(Error::General("another certificate than the node's".to_owned()))
            }
        }

        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
            verify_tls12_signature(message, cert, signed, &algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            signed: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            let algorithms = aws_lc_rs::default_provider().signature_verification_algorithms;
            verify_tls13_signature(message, cert, signed, &algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
        }
    }
}
