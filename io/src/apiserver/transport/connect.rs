//! Makes the HTTP client of a kubeconfig: addresses, TLS, whom to trust, and the client certificate.

use super::super::identity::{certificates, load};
use super::super::kubeconfig::{Kubeconfig, Pem};
use super::super::pool::Pools;
use super::super::proxy::Proxy;
use super::dial::Dial;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use std::sync::Arc;
use std::time::Duration;

/// A connection that is quiet for this long is asked whether it still is one.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Time in which it must answer.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// Time in which a connection must come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes on their way per connection: many watches share one.
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Where distributions keep the certificates of authorities.
const AUTHORITIES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Connections of their own, with the certificate given or else the kubeconfig's.
pub(super) fn pools(kubeconfig: &Kubeconfig, identity: Option<&(Pem, Pem)>) -> Result<Arc<Pools>, String> {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_EVERY)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_initial_stream_window_size(CONNECTION_WINDOW / 4);
    Ok(Arc::new(Pools::new(builder, connector(kubeconfig, identity.or(kubeconfig.identity.as_ref()))?)))
}

fn connector(kubeconfig: &Kubeconfig, identity: Option<&(Pem, Pem)>) -> Result<HttpsConnector<Dial>, String> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(PING_EVERY));
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let proxy = match &kubeconfig.proxy {
        Some(proxy) => Some(proxy.clone()),
        None => Proxy::of_environment(&kubeconfig.server, |name| std::env::var(name).ok())?,
    };
    let tls = tls(kubeconfig, identity)?;
    let dial = match proxy {
        Some(proxy) => Dial::through(proxy, http, tls.clone()),
        None => Dial::Straight(http),
    };
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match &kubeconfig.server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|e| format!("tls-server-name: {e}"))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    Ok(builder.enable_http1().enable_http2().wrap_connector(dial))
}

fn tls(kubeconfig: &Kubeconfig, identity: Option<&(Pem, Pem)>) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be set up: {e}"))?;
    let builder = if kubeconfig.insecure {
        builder.dangerous().with_custom_certificate_verifier(crate::probes::anyone())
    } else {
        builder.with_root_certificates(roots(kubeconfig)?)
    };
    Ok(match identity {
        Some((certificate, key)) => {
            let pair = load(certificate, key, &provider)?;
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(pair)))
        }
        None => builder.with_no_client_auth(),
    })
}

fn roots(kubeconfig: &Kubeconfig) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    if let Some(authority) = &kubeconfig.authority {
        let (added, _ignored) = roots.add_parsable_certificates(certificates(authority, "certificate-authority")?);
        return if added > 0 { Ok(roots) } else { Err("certificate-authority: no usable certificate".to_owned()) };
    }
    let found = AUTHORITIES.iter().find_map(|file| CertificateDer::pem_file_iter(file).ok());
    roots.add_parsable_certificates(found.into_iter().flatten().flatten());
    Ok(roots)
}
