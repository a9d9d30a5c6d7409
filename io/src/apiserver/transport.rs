//! The HTTP client: HTTP/2 where the server speaks it, few connections, checked by pings when quiet.

use super::counts::ApiCounts;
use super::identity::{Bearer, Identity, certificates};
use super::kubeconfig::Kubeconfig;
use super::pool::{Http, Place, Pools};
use bytes::Bytes;
use components::edge::FailureClass;
use components::edge::api::{Answered, ApiRequest, Body, Method};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Largest answer that is taken; the server itself refuses objects of more than a few MiB.
const MAX_BODY: usize = 256 << 20;
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

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallError {
    pub(super) class: FailureClass,
    pub(super) message: String,
}

/// A ready client for one API server.
#[derive(Debug)]
pub(super) struct Transport {
    /// Scheme and authority, with the path prefix where there is one, without a slash at the end.
    base: String,
    pools: Pools,
    bearer: Option<Bearer>,
    counts: Arc<ApiCounts>,
}

impl Transport {
    /// Makes the client; the error says what is wrong with the kubeconfig.
    pub(super) fn new(kubeconfig: &Kubeconfig) -> Result<Self, String> {
        let mut builder = Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_initial_stream_window_size(CONNECTION_WINDOW / 4);
        let pools = Pools::new(builder, connector(kubeconfig)?);
        let bearer = kubeconfig.token.clone().map(Bearer::new).transpose()?;
        let host = kubeconfig.server.authority().map(ToString::to_string).unwrap_or_default();
        let base = kubeconfig.server.to_string().trim_end_matches('/').to_owned();
        Ok(Self { base, pools, bearer, counts: Arc::new(ApiCounts::new(host)) })
    }

    /// Counts of its requests.
    pub(super) fn counts(&self) -> Arc<ApiCounts> {
        Arc::clone(&self.counts)
    }

    /// Sends one request and reads its whole answer.
    pub(super) async fn request(&self, request: &ApiRequest) -> Result<Answered, CallError> {
        let client = self.pools.request(request.class);
        let response = self.send(client, request.method, &request.path, &request.body).await?;
        let answer = collect(response, request.secret).await?;
        self.counts.sizes(request.method.as_str(), request.body.text().len(), answer.body.len());
        Ok(answer)
    }

    /// Begins a watch; its place on the connection is kept as long as its answer is read.
    pub(super) async fn watch(&self, path: &str) -> Result<(Response<Incoming>, Place), CallError> {
        let (client, place) = self.pools.watch();
        Ok((self.send(&client, Method::Get, path, &Body::Empty).await?, place))
    }

    /// Sends one request; the answer's body is still to be read.
    async fn send(
        &self,
        client: &Http,
        method: Method,
        path: &str,
        body: &Body,
    ) -> Result<Response<Incoming>, CallError> {
        let uri: Uri = format!("{}{path}", self.base).parse().map_err(|e| invalid(format!("{path}: {e}")))?;
        let mut builder = Request::builder().method(method.as_str()).uri(uri).header(ACCEPT, "application/json");
        builder = builder.header(USER_AGENT, concat!("ticklet/", env!("CARGO_PKG_VERSION")));
        if let Some(bearer) = &self.bearer {
            builder = builder.header(AUTHORIZATION, bearer.value());
        }
        let bytes = match body {
            Body::Empty => Bytes::new(),
            Body::Json(_) | Body::Secret(_) => {
                builder = builder.header(CONTENT_TYPE, HeaderValue::from_static(method.media_type()));
                Bytes::copy_from_slice(body.text().as_bytes())
            }
        };
        let request = builder.body(Full::new(bytes)).map_err(|e| invalid(e.to_string()))?;
        let begun = Instant::now();
        let answer = client.request(request).await;
        let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
        self.counts.note(method.as_str(), code, begun.elapsed());
        answer.map_err(|e| unavailable(&e))
    }
}

/// Reads the whole answer.
pub(super) async fn collect(response: Response<Incoming>, secret: bool) -> Result<Answered, CallError> {
    let status = response.status().as_u16();
    let retry_after = response.headers().get(RETRY_AFTER).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    let body = Limited::new(response.into_body(), MAX_BODY).collect().await.map_err(|e| {
        if e.downcast_ref::<LengthLimitError>().is_some() {
            let message = format!("the answer is larger than {} MiB", MAX_BODY >> 20);
            return CallError { class: FailureClass::Exhausted, message };
        }
        unavailable(&*e)
    })?;
    let body = body.to_bytes();
    Ok(Answered { status, secret, body: String::from_utf8_lossy(&body).into(), retry_after })
}

/// The connection failed.
pub(super) fn unavailable(error: &dyn Error) -> CallError {
    let mut message = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        message = format!("{message}: {cause}");
        next = cause.source();
    }
    CallError { class: FailureClass::Unavailable, message }
}

const fn invalid(message: String) -> CallError {
    CallError { class: FailureClass::Invalid, message }
}

fn connector(kubeconfig: &Kubeconfig) -> Result<HttpsConnector<HttpConnector>, String> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_keepalive(Some(PING_EVERY));
    http.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls(kubeconfig)?).https_or_http();
    let builder = match &kubeconfig.server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|e| format!("tls-server-name: {e}"))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    Ok(builder.enable_http1().enable_http2().wrap_connector(http))
}

fn tls(kubeconfig: &Kubeconfig) -> Result<ClientConfig, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be set up: {e}"))?;
    let builder = if kubeconfig.insecure {
        builder.dangerous().with_custom_certificate_verifier(crate::probes::anyone())
    } else {
        builder.with_root_certificates(roots(kubeconfig)?)
    };
    Ok(match &kubeconfig.identity {
        Some((certificate, key)) => {
            let identity = Identity::new(certificate.clone(), key.clone(), provider)?;
            let mut config = builder.with_client_cert_resolver(Arc::new(identity));
            // A resumed session would go on with the certificate that it began with, also after a rotation.
            config.resumption = rustls::client::Resumption::disabled();
            config
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
