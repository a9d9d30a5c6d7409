//! The port against a server in this process, over plain HTTP and over TLS with client certificates.

mod proxy;

use super::*;
use axum::Router;
use axum::body::Body as HttpBody;
use axum::extract::Request as HttpRequest;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use components::edge::api::{ApiIngress, ApiRequest, ApiWatch, Body, Class, EventKind, Method};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

const RATES: Rates = Rates { qps: 0, burst: 0, event_qps: 0, event_burst: 0 };

/// Says what was asked; `/watch` tells two events, `/busy` is busy.
async fn answer(request: HttpRequest) -> Response {
    let (head, body) = request.into_parts();
    let header = |name: &str| head.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or("-").to_owned();
    let text = match head.uri.path() {
        "/busy" => {
            let busy = Response::builder().status(429).header("Retry-After", "7");
            return busy.body(HttpBody::from("{}")).unwrap();
        }
        "/watch" => {
            let event = |kind: &str| format!("{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"Pod\"}}}}\n");
            format!("{}{}", event("ADDED"), event("DELETED"))
        }
        "/hang" => {
            return Response::new(HttpBody::from_stream(futures_util::stream::pending::<Result<Bytes, Infallible>>()));
        }
        path => {
            let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
            let (kind, token) = (header("content-type"), header("authorization"));
            format!("{} {path} {kind} {token} {}", head.method, String::from_utf8_lossy(&body))
        }
    };
    Response::new(HttpBody::from(text))
}

struct Rig {
    port: ApiPort,
    /// Holds the kubeconfig.
    dir: tempfile::TempDir,
    ingress: mpsc::Receiver<Ingress>,
}

impl Rig {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, Router::new().fallback(any(answer))).await });
        Self::at(&format!("http://{address}"), "token: t0ken", "")
    }

    /// A port for a server.
    fn at(server: &str, user: &str, cluster: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kubeconfig");
        let text = format!(
            "current-context: c\ncontexts: [{{name: c, context: {{cluster: k, user: u}}}}]\n\
             clusters: [{{name: k, cluster: {{server: '{server}'{cluster}}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        std::fs::write(&path, text).unwrap();
        let (sender, ingress) = mpsc::channel(64);
        Self { port: ApiPort::from_files(&Access::ready(path), RATES, sender).unwrap(), dir, ingress }
    }

    async fn call(&self, effect: ApiEffect) -> Outcome {
        self.port.run(ApiCall { ticket: Ticket(5), effect }).await
    }

    async fn request(&self, method: Method, path: &str, body: Body) -> (u16, String, Option<u32>) {
        let request = ApiRequest { method, path: path.into(), body, class: Class::Pod, secret: false };
        match self.call(ApiEffect::Request(Box::new(request))).await {
            Outcome::Done(Answer::Api(ApiAnswer::Answered(it))) => (it.status, it.body.to_string(), it.retry_after),
            other => panic!("{other:?}"),
        }
    }
}

fn watch(path: &str, silence: Duration) -> ApiEffect {
    let watch = ApiWatch { path: path.into(), class: Class::Pod, secret: false, silence };
    ApiEffect::Watch(Box::new(watch))
}

#[tokio::test]
async fn requests_carry_method_type_token_and_body() {
    let rig = Rig::new().await;
    let body = || Body::Json("{}".into());
    for (method, expect) in [
        (Method::PatchStrategic, "PATCH /x application/strategic-merge-patch+json Bearer t0ken {}"),
        (Method::PatchMerge, "PATCH /x application/merge-patch+json Bearer t0ken {}"),
        (Method::Post, "POST /x application/json Bearer t0ken {}"),
    ] {
        assert_eq!(rig.request(method, "/x?fieldManager=k", body()).await, (200, expect.to_owned(), None));
    }
    let got = rig.request(Method::Get, "/x", Body::Empty).await;
    assert_eq!(got.1, "GET /x - Bearer t0ken ");
    assert_eq!(rig.request(Method::Get, "/busy", Body::Empty).await, (429, "{}".to_owned(), Some(7)));
}

#[tokio::test]
async fn a_watch_tells_its_events_before_its_end() {
    let mut rig = Rig::new().await;
    let ended = rig.call(watch("/watch", Duration::from_secs(9))).await;
    assert!(matches!(ended, Outcome::Done(Answer::Api(ApiAnswer::WatchEnded { .. }))), "{ended:?}");
    let opened = Ingress::Api(ApiIngress::WatchOpened { watch: Ticket(5) });
    assert_eq!(rig.ingress.try_recv().unwrap(), opened);
    let Ingress::Api(ApiIngress::WatchEvents { watch: Ticket(5), events, .. }) = rig.ingress.try_recv().unwrap() else {
        panic!("no events");
    };
    assert_eq!(events.iter().map(|e| e.kind).collect::<Vec<_>>(), [EventKind::Added, EventKind::Deleted]);
    let refused = rig.call(watch("/busy", Duration::from_secs(9))).await;
    let Outcome::Done(Answer::Api(ApiAnswer::Answered(refused))) = refused else { panic!("{refused:?}") };
    assert_eq!(refused.status, 429);
    assert!(rig.ingress.try_recv().is_err());
}

#[tokio::test]
async fn a_silent_watch_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = Rig::at(&format!("http://{}", listener.local_addr().unwrap()), "token: t", "");
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        // An answer before its question would be an error of another kind.
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    let ended = rig.call(watch("/watch", Duration::from_millis(50))).await;
    server.abort();
    let Outcome::Done(Answer::Api(ApiAnswer::WatchEnded { message })) = ended else { panic!("{ended:?}") };
    assert_eq!(message, "nothing was heard for too long");
}

#[tokio::test]
async fn nobody_there_and_no_configuration_are_failures() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let rig = Rig::at(&format!("http://{}", listener.local_addr().unwrap()), "token: t", "");
    drop(listener);
    let get = || ApiEffect::Request(Box::new(ApiRequest::get("/x".into(), Class::Pod)));
    let failed = rig.call(get()).await;
    assert!(matches!(&failed, Outcome::Failed(f) if f.class == FailureClass::Unavailable), "{failed:?}");
    let absent = ApiPort::absent(mpsc::channel(1).0);
    let failed = absent.run(ApiCall { ticket: Ticket(1), effect: get() }).await;
    assert!(matches!(&failed, Outcome::Failed(f) if f.message.contains("no API server")), "{failed:?}");
}

/// A certificate authority, with what it signed.
struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Self(rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap())
    }

    /// PEM of a certificate and its key.
    fn sign(&self, names: &[&str]) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).unwrap();
        params.extended_key_usages =
            vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth, rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        (params.signed_by(&key, &self.0).unwrap().pem(), key.serialize_pem())
    }
}

/// A server that wants certificates of the authority, and tells which it saw, and whether HTTP/2 was agreed on.
async fn mutual(
    authority: &Authority,
    saw: mpsc::Sender<(rustls::pki_types::CertificateDer<'static>, bool)>,
) -> (std::net::SocketAddr, tokio::task::JoinHandle<()>) {
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use rustls::pki_types::pem::PemObject as _;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    let (shown, key) = authority.sign(&["localhost", "127.0.0.1"]);
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.0.pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier =
        rustls::server::WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.unwrap())
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(shown.as_bytes()).unwrap()],
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (
        address,
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(stream).await else { continue };
                let shown = stream.get_ref().1.peer_certificates().unwrap()[0].clone();
                let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                saw.send((shown, h2)).await.unwrap();
                let service = hyper::service::service_fn(|request: http::Request<hyper::body::Incoming>| async {
                    let (head, body) = request.into_parts();
                    Ok::<_, Infallible>(answer(HttpRequest::from_parts(head, HttpBody::new(body))).await)
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(async move { builder.serve_connection(TokioIo::new(stream), service).await });
            }
        }),
    )
}

#[tokio::test]
async fn a_client_certificate_is_shown_and_read_again_when_it_changes() {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    let (own, own_key) = authority.sign(&["first"]);
    write("ca.crt", &authority.0.pem());
    write("c.crt", &own);
    write("c.key", &own_key);
    let (saw, mut seen) = mpsc::channel(8);
    let (address, server) = mutual(&authority, saw).await;
    let path = |name: &str| dir.path().join(name).display().to_string();
    let rig = Rig::at(
        &format!("https://{address}"),
        &format!("client-certificate: {}, client-key: {}", path("c.crt"), path("c.key")),
        &format!(", certificate-authority: {}", path("ca.crt")),
    );
    assert_eq!(rig.request(Method::Get, "/x", Body::Empty).await.1, "GET /x - - ");
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    assert_eq!(seen.recv().await.unwrap(), (der(&own), true));
    let (renewed, renewed_key) = authority.sign(&["second"]);
    write("c.crt", &renewed);
    let look = Duration::from_millis(1100);
    tokio::time::sleep(look).await;
    assert_eq!(rig.request(Method::Get, "/x", Body::Empty).await.0, 200);
    assert!(seen.try_recv().is_err(), "half of a pair is not used");
    // A watch over the old connection is given up, and the old connection with it.
    let watching = rig.call(watch("/hang", Duration::from_secs(60)));
    let switch = async {
        tokio::time::sleep(look).await;
        write("c.key", &renewed_key);
        assert_eq!(rig.request(Method::Get, "/x", Body::Empty).await.0, 200);
    };
    let (ended, ()) =
        tokio::time::timeout(Duration::from_secs(10), async { tokio::join!(watching, switch) }).await.unwrap();
    let Outcome::Done(Answer::Api(ApiAnswer::WatchEnded { message })) = ended else { panic!("{ended:?}") };
    assert_eq!(message, "the credentials changed");
    // The watch had a connection of its own.
    assert_eq!(seen.recv().await.unwrap(), (der(&own), true));
    assert_eq!(seen.recv().await.unwrap(), (der(&renewed), true));
    // The kubeconfig itself changes.
    let kubeconfig = rig.dir.path().join("kubeconfig");
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    std::fs::write(&kubeconfig, text.replace("{client-certificate", "{token: t0ken, client-certificate")).unwrap();
    tokio::time::sleep(look).await;
    assert_eq!(rig.request(Method::Get, "/x", Body::Empty).await.1, "GET /x - Bearer t0ken ");
    server.abort();
}
