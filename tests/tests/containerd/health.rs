//! Targets of probes that a shell in a container cannot be: an HTTPS server with a certificate of its own, and a gRPC
//! server with the health protocol. They listen on the loopback and on the lab's own address.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// Both servers; they end when dropped.
pub(crate) struct Servers {
    /// Port of the HTTPS server on the loopback.
    pub(crate) https: u16,
    /// Port of the gRPC server on the given address.
    pub(crate) grpc: u16,
    _runtime: Runtime,
}

impl Servers {
    /// Starts both.
    pub(crate) fn start(address: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let acceptor = acceptor()?;
        let tls = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let health = runtime.block_on(TcpListener::bind(SocketAddr::new(address.parse()?, 0)))?;
        let (https, grpc) = (tls.local_addr()?.port(), health.local_addr()?.port());
        runtime.spawn(async move {
            while let Ok((stream, _)) = tls.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        runtime.spawn(async move {
            while let Ok((stream, _)) = health.accept().await {
                tokio::spawn(async move {
                    // A client that goes away is no trouble of the server.
                    let _ = serve_health(stream).await;
                });
            }
        });
        Ok(Self { https, grpc, _runtime: runtime })
    }
}

fn acceptor() -> Result<TlsAcceptor> {
    let made = rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()])?;
    let key =
        rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(anyhow::Error::msg)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The service `down` does not serve; every other does.
async fn serve_health(stream: TcpStream) -> Result<()> {
    let mut connection = h2::server::handshake(stream).await?;
    while let Some(accepted) = connection.accept().await {
        let (request, mut respond) = accepted?;
        tokio::spawn(async move {
            let mut body = request.into_body();
            let mut asked = Vec::new();
            while let Some(Ok(data)) = body.data().await {
                asked.extend_from_slice(&data);
            }
            let status = if asked.ends_with(b"down") { 2 } else { 1 };
            let head = http::Response::builder().header("content-type", "application/grpc").body(())?;
            let mut stream = respond.send_response(head, false)?;
            stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false)?;
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            stream.send_trailers(trailers)?;
            anyhow::Ok(())
        });
    }
    Ok(())
}
