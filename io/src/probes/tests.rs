//! Attempts against real servers on the loopback.

use super::*;
use bytes::Bytes;
use components::edge::probes::{GrpcTarget, HttpTarget};
use std::future::Future;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

async fn serve<F>(answer: impl Fn(TcpStream) -> F + Send + 'static) -> u16
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    port
}

/// A server that answers each request with this text and closes.
async fn text(answer: &'static str) -> u16 {
    serve(move |mut stream| async move {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(answer.as_bytes()).await;
    })
    .await
}

fn http(port: u16, path: &str) -> ProbesEffect {
    target(port, path, false)
}

fn target(port: u16, path: &str, tls: bool) -> ProbesEffect {
    ProbesEffect::ProbeHttp(Arc::new(HttpTarget {
        tls,
        host: "127.0.0.1".to_owned(),
        port,
        path: path.to_owned(),
        host_header: format!("127.0.0.1:{port}"),
        headers: vec![("User-Agent".to_owned(), "kube-probe/1.37".into())],
    }))
}

async fn said(effect: ProbesEffect) -> String {
    let port = ProbesPort::new();
    let outcome = tokio::time::timeout(Duration::from_secs(20), port.run(effect)).await.expect("hangs");
    match outcome {
        Outcome::Done(Answer::Probes(ProbesAnswer::Passed)) => "passed".to_owned(),
        Outcome::Done(Answer::Probes(ProbesAnswer::PassedWithWarning { message })) => format!("passed: {message}"),
        Outcome::Done(Answer::Probes(ProbesAnswer::NotPassed { message })) => message,
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn statuses_from_200_to_399_pass() {
    let ok = text("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
    assert_eq!(said(http(ok, "/")).await, "passed");
    let bad = text("HTTP/1.1 503 No\r\nContent-Length: 6\r\n\r\nsecret").await;
    assert_eq!(said(http(bad, "/")).await, "HTTP probe failed with statuscode: 503");
    let odd = text("HTTP/1.1 304 Same\r\n\r\n").await;
    assert_eq!(said(http(odd, "/")).await, "passed: Probe terminated redirects, Response body: ");
    let noise = text("hello\r\n\r\n").await;
    assert!(said(http(noise, "/")).await.contains("malformed HTTP response"));
    let silent = text("").await;
    assert_eq!(said(http(silent, "/x")).await, format!("Get \"http://127.0.0.1:{silent}/x\": EOF"));
}

#[tokio::test]
async fn redirects_to_itself_end_after_ten_and_elsewhere_at_once() {
    let port = text("HTTP/1.1 302 Found\r\nLocation: /again\r\nContent-Length: 0\r\n\r\n").await;
    let message = format!("Get \"http://127.0.0.1:{port}/again\": stopped after 10 redirects");
    assert_eq!(said(http(port, "/")).await, message);
    let away = text("HTTP/1.1 302 Found\r\nLocation: http://192.0.2.1/\r\nContent-Length: 5\r\n\r\nthere").await;
    assert_eq!(said(http(away, "/")).await, "passed: Probe terminated redirects, Response body: there");
    let nowhere = text("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!(said(http(nowhere, "/")).await, "passed: Probe terminated redirects, Response body: ");
}

#[tokio::test]
async fn a_stream_without_end_passes() {
    let port = serve(|mut stream| async move {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 1024]).await.is_ok() {}
    })
    .await;
    assert_eq!(said(http(port, "/")).await, "passed");
}

#[tokio::test]
async fn nobody_there_is_said_as_the_kubelet_says_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let refused = format!("dial tcp 127.0.0.1:{port}: connect: connection refused");
    assert_eq!(said(http(port, "/a?b=c")).await, format!("Get \"http://127.0.0.1:{port}/a\": {refused}"));
    let tcp = ProbesEffect::ProbeTcp(Arc::new(TcpTarget { host: "127.0.0.1".to_owned(), port }));
    assert_eq!(said(tcp).await, refused);
    let none = ProbesEffect::ProbeTcp(Arc::new(TcpTarget { host: "127.0.0.1".to_owned(), port: 0 }));
    assert_eq!(said(none).await, "the container has no port of the probe's name");
    let grpc = GrpcTarget { host: "127.0.0.1".to_owned(), port, service: String::new() };
    let message = said(ProbesEffect::ProbeGrpc(Arc::new(grpc))).await;
    assert_eq!(message, format!("error: failed to connect service at \"127.0.0.1:{port}\": {refused}"));
}

#[tokio::test]
async fn a_connection_is_enough_for_tcp() {
    let port = text("").await;
    let tcp = ProbesEffect::ProbeTcp(Arc::new(TcpTarget { host: "localhost".to_owned(), port }));
    assert_eq!(said(tcp).await, "passed");
}

#[tokio::test]
async fn any_certificate_is_taken() {
    let made = rcgen::generate_simple_self_signed(vec!["elsewhere.example".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let port = serve(move |stream| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else { return };
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
            let _ = stream.shutdown().await;
        }
    })
    .await;
    assert_eq!(said(target(port, "/", true)).await, "passed");
    let plain = text("HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n").await;
    assert!(said(target(plain, "/", true)).await.contains("tls: "));
}

/// A health server: `down` is not serving, `gone` is unknown, `raw` answers with trailers only.
async fn health() -> u16 {
    serve(|stream| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((request, mut respond))) = connection.accept().await {
            let mut body = request.into_body();
            tokio::spawn(async move {
                let mut asked = Vec::new();
                while let Some(Ok(data)) = body.data().await {
                    asked.extend_from_slice(&data);
                }
                let service = String::from_utf8_lossy(asked.get(7..).unwrap_or_default()).into_owned();
                let head = ::http::Response::builder().header("content-type", "application/grpc");
                if service == "gone" || service == "raw" {
                    let code = if service == "gone" { "5" } else { "12" };
                    let head = head.header("grpc-status", code).header("grpc-message", "unknown service");
                    let _ = respond.send_response(head.body(()).unwrap(), true);
                    return;
                }
                let status = if service == "down" { 2 } else { 1 };
                let mut stream = respond.send_response(head.body(()).unwrap(), false).unwrap();
                let _ = stream.send_data(Bytes::from(vec![0, 0, 0, 0, 2, 8, status]), false);
                let mut trailers = ::http::HeaderMap::new();
                trailers.insert("grpc-status", "0".parse().unwrap());
                let _ = stream.send_trailers(trailers);
            });
        }
    })
    .await
}

#[tokio::test]
async fn grpc_asks_the_health_service() {
    let port = health().await;
    let ask = |service: &str| {
        let target = GrpcTarget { host: "127.0.0.1".to_owned(), port, service: service.to_owned() };
        said(ProbesEffect::ProbeGrpc(Arc::new(target)))
    };
    assert_eq!(ask("").await, "passed");
    assert_eq!(ask("down").await, "service unhealthy (responded with \"NOT_SERVING\")");
    let gone = "error: health rpc probe failed: rpc error: code = NotFound desc = unknown service";
    assert_eq!(ask("gone").await, gone);
    assert!(ask("raw").await.contains("does not implement the grpc health protocol"));
}
