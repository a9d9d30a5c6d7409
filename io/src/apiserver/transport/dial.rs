//! How a connection to the API server comes about: straight, or through an HTTP proxy.

use super::super::proxy::Proxy;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tower::Service;

/// Time in which a proxy must have connected.
const PROXY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest head of a proxy's answer.
const MAX_HEAD: usize = 8 << 10;

/// A way to connect.
#[derive(Clone)]
pub(in crate::apiserver) enum Dial {
    /// Straight.
    Straight(HttpConnector),
    /// Through a proxy.
    Tunnel(HttpsConnector<HttpConnector>, Arc<Proxy>),
}

impl std::fmt::Debug for Dial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Straight(_) => f.write_str("Straight"),
            Self::Tunnel(_, proxy) => write!(f, "Tunnel({})", proxy.address),
        }
    }
}

type Wire = MaybeHttpsStream<TokioIo<TcpStream>>;
type Failure = Box<dyn Error + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<Wire, Failure>> + Send>>;

impl Dial {
    /// Through this proxy, on these terms if it is spoken to over TLS.
    pub(super) fn through(proxy: Proxy, http: HttpConnector, tls: ClientConfig) -> Self {
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Self::Tunnel(connector.wrap_connector(http), Arc::new(proxy))
    }
}

impl Service<Uri> for Dial {
    type Response = Wire;
    type Error = Failure;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        match self {
            Self::Straight(http) => http.poll_ready(cx).map_err(Into::into),
            Self::Tunnel(connector, _) => connector.poll_ready(cx),
        }
    }

    fn call(&mut self, server: Uri) -> Connecting {
        match self {
            Self::Straight(http) => {
                let connecting = http.call(server);
                Box::pin(async move { Ok(MaybeHttpsStream::Http(connecting.await?)) })
            }
            Self::Tunnel(connector, proxy) => {
                let connecting = connector.call(proxy.address.clone());
                let question = question(&server, proxy);
                let talk = async move { tunnel(connecting.await?, &question).await };
                Box::pin(async move {
                    match tokio::time::timeout(PROXY_TIMEOUT, talk).await {
                        Ok(wire) => wire.map_err(|error| format!("proxy: {error}").into()),
                        Err(_) => Err("proxy: no connection in time".into()),
                    }
                })
            }
        }
    }
}

/// The head that asks a proxy for a connection to a server.
fn question(server: &Uri, proxy: &Proxy) -> String {
    let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
    let place = format!("{}:{port}", server.host().unwrap_or_default());
    let login = proxy.login.as_ref().map(|(user, password)| {
        let login = STANDARD.encode(format!("{user}:{}", password.0));
        format!("Proxy-Authorization: Basic {login}\r\n")
    });
    format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{}\r\n", login.unwrap_or_default())
}

async fn tunnel(wire: Wire, question: &str) -> Result<Wire, Failure> {
    let mut wire = TokioIo::new(wire);
    wire.write_all(question.as_bytes()).await?;
    wire.flush().await?;
    let mut head = Vec::new();
    // Byte by byte: what follows the head is the server's.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err("its answer is too long".into());
        }
        head.push(wire.read_u8().await?);
    }
    let line = String::from_utf8_lossy(&head);
    let line = line.lines().next().unwrap_or_default();
    let code = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    if code.is_some_and(|code| code.starts_with('2')) { Ok(wire.into_inner()) } else { Err(line.into()) }
}
