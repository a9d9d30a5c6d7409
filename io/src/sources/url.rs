//! Fetches the manifest URL: one GET, no redirects, a bounded body. Header values never appear in messages.

use super::parse::{MAX_BYTES, parse};
use bytes::Bytes;
use components::edge::sources::{ManifestProblem, Source, SourcesAnswer};
use components::edge::{Failure, FailureClass};
use http::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

/// Where distributions keep the certificates of authorities.
const AUTHORITIES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The manifest URL and the headers to send with it.
#[derive(Clone, Default)]
pub struct UrlSource {
    /// `staticPodURL`.
    pub url: String,
    /// `staticPodURLHeader`.
    pub headers: BTreeMap<String, Vec<String>>,
}

impl std::fmt::Debug for UrlSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Values may be credentials.
        f.debug_struct("UrlSource").field("headers", &self.headers.keys().collect::<Vec<_>>()).finish_non_exhaustive()
    }
}

/// A ready client for one URL.
pub(super) struct Fetcher {
    origin: Arc<str>,
    uri: Uri,
    headers: HeaderMap,
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
}

impl Fetcher {
    /// Makes the client; the error says what is wrong with the configuration.
    pub(super) fn new(source: &UrlSource) -> Result<Self, String> {
        let uri: Uri = source.url.parse().map_err(|e| format!("staticPodURL is not a URL: {e}"))?;
        if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none_or(str::is_empty) {
            return Err("staticPodURL must begin with http:// or https:// and a host".to_owned());
        }
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("staticPodURL must not hold credentials: use staticPodURLHeader".to_owned());
        }
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector()?);
        Ok(Self { origin: source.url.as_str().into(), uri, headers: headers(&source.headers)?, client })
    }

    /// Fetches once.
    pub(super) async fn fetch(&self) -> Result<SourcesAnswer, Failure> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        let response =
            self.client.request(request).await.map_err(|e| failure(FailureClass::Unavailable, &chain(&e)))?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(failure(class_of(status), &format!("the server answered {status}")));
        }
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await.map_err(|e| {
            if e.downcast_ref::<LengthLimitError>().is_some() {
                failure(FailureClass::Exhausted, "the answer is larger than 10 MiB")
            } else {
                failure(FailureClass::Unavailable, &chain(&*e))
            }
        })?;
        self.understand(&body.to_bytes())
    }

    fn understand(&self, body: &[u8]) -> Result<SourcesAnswer, Failure> {
        let (manifests, problems) = if body.is_empty() {
            let message = "zero-length data received".to_owned();
            (Vec::new(), vec![ManifestProblem { origin: Arc::clone(&self.origin), message }])
        } else {
            let content = parse(&self.origin, body).map_err(|e| failure(FailureClass::Garbage, &e))?;
            (content.manifests, content.remarks)
        };
        Ok(SourcesAnswer::ManifestsRead { source: Source::Http, manifests, problems })
    }
}

fn failure(class: FailureClass, message: &str) -> Failure {
    Failure { class, message: message.to_owned() }
}

fn class_of(status: StatusCode) -> FailureClass {
    match status {
        StatusCode::NOT_FOUND => FailureClass::NotFound,
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => FailureClass::Denied,
        status if status.is_server_error() => FailureClass::Unavailable,
        _ => FailureClass::Other,
    }
}

fn headers(configured: &BTreeMap<String, Vec<String>>) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("ticklet/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT, HeaderValue::from_static("*/*"));
    for (name, values) in configured {
        let key: HeaderName =
            name.parse().map_err(|_| format!("staticPodURLHeader: {name:?} is not the name of a header"))?;
        headers.remove(&key);
        for value in values {
            let mut value = HeaderValue::from_str(value)
                .map_err(|_| format!("staticPodURLHeader: a value of {name:?} is not the value of a header"))?;
            value.set_sensitive(true);
            headers.append(&key, value);
        }
    }
    Ok(headers)
}

fn connector() -> Result<HttpsConnector<HttpConnector>, String> {
    let mut roots = RootCertStore::empty();
    for file in AUTHORITIES {
        if let Ok(certificates) = CertificateDer::pem_file_iter(file) {
            roots.add_parsable_certificates(certificates.flatten());
            break;
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| format!("TLS cannot be set up: {e}"))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().build())
}

/// The error with what is behind it.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Serves one answer and returns the request it was given for.
    async fn serve(answer: &'static str) -> (String, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/pods?x=1", listener.local_addr().unwrap());
        let task = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                    break;
                }
                request.push(byte[0]);
            }
            let _ = stream.write_all(answer.as_bytes()).await;
            String::from_utf8_lossy(&request).into_owned()
        });
        (url, task)
    }

    async fn fetch(answer: &'static str) -> Result<SourcesAnswer, Failure> {
        let (url, task) = serve(answer).await;
        let fetched = Fetcher::new(&UrlSource { url, headers: BTreeMap::new() }).unwrap().fetch().await;
        task.await.unwrap();
        fetched
    }

    #[tokio::test]
    async fn a_pod_and_a_list_are_read() {
        let pod = fetch("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{kind: Pod, x: true}").await.unwrap();
        let SourcesAnswer::ManifestsRead { source, manifests, problems } = pod else { panic!("{pod:?}") };
        assert_eq!((source, manifests.len(), problems.len()), (Source::Http, 1, 0));
        assert_eq!(&*manifests[0].json, r#"{"kind":"Pod","x":true}"#);
        let list =
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{apiVersion: v1, kind: PodList, items: [{a: 1}, {a: 2}]}";
        let list = fetch(list).await.unwrap();
        assert!(matches!(list, SourcesAnswer::ManifestsRead { manifests, .. } if manifests.len() == 2));
    }

    #[tokio::test]
    async fn an_empty_list_and_an_empty_body_are_empty_sets() {
        let empty = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{apiVersion: v1, kind: PodList, items: []}";
        let nothing = SourcesAnswer::ManifestsRead { source: Source::Http, manifests: vec![], problems: vec![] };
        assert_eq!(fetch(empty).await.unwrap(), nothing);
        let bare = fetch("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        let SourcesAnswer::ManifestsRead { manifests, problems, .. } = bare else { panic!("{bare:?}") };
        assert!(manifests.is_empty());
        assert_eq!(problems[0].message, "zero-length data received");
    }

    #[tokio::test]
    async fn what_is_no_set_fails() {
        for (answer, class, message) in [
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", FailureClass::NotFound, "404"),
            ("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", FailureClass::Denied, "403"),
            ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", FailureClass::Unavailable, "503"),
            ("HTTP/1.1 204 No Content\r\n\r\n", FailureClass::Other, "204"),
            (
                "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                FailureClass::Other,
                "302",
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\na: [", FailureClass::Garbage, "not valid YAML or JSON"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\na: 1", FailureClass::Unavailable, ""),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\na: 1", FailureClass::Unavailable, ""),
            ("garbage\r\n\r\n", FailureClass::Unavailable, ""),
            ("", FailureClass::Unavailable, ""),
        ] {
            let failure = fetch(answer).await.unwrap_err();
            assert_eq!(failure.class, class, "{answer:?}: {failure:?}");
            assert!(failure.message.contains(message) && !failure.message.contains('\n'), "{failure:?}");
        }
    }

    #[tokio::test]
    async fn an_endless_answer_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            // An answer before the question would be a broken connection.
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await;
            let block = vec![b'x'; 1 << 20];
            while stream.write_all(&block).await.is_ok() {}
        });
        let failure = Fetcher::new(&UrlSource { url, headers: BTreeMap::new() }).unwrap().fetch().await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Exhausted, "{failure:?}");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn headers_are_sent_and_nobody_listening_is_said() {
        let (url, task) = serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        let headers = BTreeMap::from([
            ("X-Token".to_owned(), vec!["one".to_owned(), "two".to_owned()]),
            ("User-Agent".to_owned(), vec!["mine".to_owned()]),
        ]);
        let source = UrlSource { url: url.clone(), headers };
        assert!(!format!("{source:?}").contains("one"));
        Fetcher::new(&source).unwrap().fetch().await.unwrap();
        let request = task.await.unwrap();
        for expect in ["GET /pods?x=1 HTTP/1.1", "x-token: one", "x-token: two", "user-agent: mine"] {
            assert!(request.contains(expect), "{request}");
        }
        // The listener is gone now.
        let failure = Fetcher::new(&source).unwrap().fetch().await.unwrap_err();
        assert_eq!(failure.class, FailureClass::Unavailable);
        assert!(failure.message.contains("onnect"), "{failure:?}");
    }

    #[test]
    fn bad_configuration_is_said_without_values() {
        let make = |url: &str, name: &str, value: &str| {
            let headers = BTreeMap::from([(name.to_owned(), vec![value.to_owned()])]);
            Fetcher::new(&UrlSource { url: url.to_owned(), headers }).err().unwrap_or_default()
        };
        assert_eq!(make("http://h/", "A", "b"), "");
        assert!(make("/path", "A", "b").contains("must begin with http://"));
        assert!(make("ftp://h/", "A", "b").contains("must begin with http://"));
        assert!(make("http://", "A", "b").contains("staticPodURL"));
        let with_password = make("https://u:geheim@h/", "A", "b");
        assert!(with_password.contains("must not hold credentials") && !with_password.contains("geheim"));
        assert!(make("http://h/", "A B", "b").contains("is not the name of a header"));
        let bad_value = make("http://h/", "A", "geheim\n");
        assert!(bad_value.contains("is not the value of a header") && !bad_value.contains("geheim"));
    }
}
