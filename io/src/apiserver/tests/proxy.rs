//! The way through proxies, which the test plays.

use super::*;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

/// How a proxy is spoken to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Tls,
}

/// A proxy that leads everybody to one server, whatever was asked for, and tells what that was.
async fn proxy(
    kind: Kind,
    authority: &Authority,
    server: SocketAddr,
    asked: mpsc::Sender<String>,
) -> (SocketAddr, tokio::task::JoinHandle<()>) {
    let (shown, key) = authority.sign(&["localhost", "127.0.0.1"]);
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(shown.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serve = async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut client: Box<dyn Wire> =
                if kind == Kind::Tls { Box::new(acceptor.accept(stream).await.unwrap()) } else { Box::new(stream) };
            let wanted = connect(&mut client).await;
            let refused = wanted.contains("Basic") && !wanted.contains("dTpwdw==");
            asked.send(wanted).await.unwrap();
            if refused {
                client.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
                continue;
            }
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.unwrap();
            let mut target = TcpStream::connect(server).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut target).await });
        }
    };
    (address, tokio::spawn(serve))
}

/// Reads the head of a `CONNECT` request.
async fn connect(client: &mut Box<dyn Wire>) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Sends a request to `api.example` through a proxy. What the proxy was asked for, and the outcome.
async fn through(kind: Kind, scheme: &str, login: &str) -> (String, Outcome) {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let (own, own_key) = authority.sign(&["node"]);
    write("ca.crt", &authority.0.pem());
    write("c.crt", &own);
    write("c.key", &own_key);
    let (saw, mut seen) = mpsc::channel(8);
    let (server, serving) = mutual(&authority, saw).await;
    let (asked, mut questions) = mpsc::channel(8);
    let (address, leading) = proxy(kind, &authority, server, asked).await;
    let path = |name: &str| dir.path().join(name).display().to_string();
    let rig = Rig::at(
        "https://api.example:6443",
        &format!("client-certificate: {}, client-key: {}", path("c.crt"), path("c.key")),
        &format!(
            ", certificate-authority: {}, tls-server-name: localhost, proxy-url: '{scheme}://{login}{address}'",
            path("ca.crt")
        ),
    );
    let get = ApiEffect::Request(Box::new(ApiRequest::get("/x".into(), Class::Pod)));
    let outcome = tokio::time::timeout(Duration::from_secs(20), rig.call(get)).await.unwrap();
    if matches!(outcome, Outcome::Done(_)) {
        let shown = CertificateDer::from_pem_slice(own.as_bytes()).unwrap();
        assert_eq!(seen.recv().await.unwrap(), (shown, true), "the node's certificate, and HTTP/2");
    }
    leading.abort();
    serving.abort();
    (questions.recv().await.unwrap(), outcome)
}

#[track_caller]
fn good(outcome: &Outcome) {
    let Outcome::Done(Answer::Api(ApiAnswer::Answered(it))) = outcome else { panic!("{outcome:?}") };
    assert_eq!((it.status, &*it.body), (200, "GET /x - - "));
}

#[tokio::test]
async fn a_tunnel_leads_through_a_proxy_of_each_kind() {
    let (asked, outcome) = through(Kind::Plain, "http", "u:pw@").await;
    good(&outcome);
    assert!(asked.starts_with("CONNECT api.example:6443 HTTP/1.1\r\n"), "{asked}");
    assert!(asked.contains("Proxy-Authorization: Basic dTpwdw==\r\n"), "{asked}");
    let (asked, outcome) = through(Kind::Tls, "https", "").await;
    good(&outcome);
    assert!(asked.starts_with("CONNECT api.example:6443 ") && !asked.contains("Authorization"), "{asked}");
}

#[tokio::test]
async fn a_proxy_that_refuses_is_named_and_its_password_is_not() {
    let (_, outcome) = through(Kind::Plain, "http", "u:geheim@").await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure.class, FailureClass::Unavailable);
    assert!(failure.message.contains("proxy") && !failure.message.contains("geheim"), "{failure:?}");
}
