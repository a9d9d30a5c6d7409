//! The ports on real sockets: what each path answers, and to whom.

use super::*;
use crate::cri::CriOptions;
use crate::cri::usage::UsageCalls;
use crate::metrics::Descriptor;
use crate::stats::StatsConfig;
use components::ids::PodUid;
use components::node::NodeConfig;
use components::pulls::PullCounts;
use components::snapshot::{Chunk, CoreMetrics, Health, PodView};
use components::status::{ContainerReport, Phase, PodStatus, ReportedState};
use components::time::{Mono, Wall};
use components::world::Stage;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use std::net::Ipv4Addr;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

struct Rig {
    dir: tempfile::TempDir,
    running: Running,
}

impl Rig {
    async fn new(change: impl FnOnce(&mut ServerConfig)) -> Self {
        Self::with(change, snapshot()).await
    }

    async fn with(change: impl FnOnce(&mut ServerConfig), snapshot: Snapshot) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir);
        change(&mut config);
        let running = serve(config, readers(snapshot)).await.unwrap();
        Self { dir, running }
    }

    async fn tls(&self, alpn: &[u8]) -> tokio_rustls::client::TlsStream<TcpStream> {
        self.tls_as(alpn, None).await.unwrap()
    }

    async fn tls_as(
        &self,
        alpn: &[u8],
        own: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.dir.path().join("kubelet.crt")).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match own {
            Some((own, key)) => config.with_client_auth_cert(vec![own], key).unwrap(),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.running.kubelet).await.unwrap();
        let name = ServerName::from(Ipv4Addr::LOCALHOST.to_owned());
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    /// A server that knows clients of the first authority, whose certificate is in the file.
    async fn knowing(change: impl FnOnce(&mut ServerConfig)) -> (Self, [Ca; 2], PathBuf) {
        let (ca, other) = (Ca::new("ca"), Ca::new("other"));
        let mut path = PathBuf::new();
        let rig = Self::new(|config| {
            path = config.tls.cert_dir.join("ca.crt");
            std::fs::write(&path, ca.0.pem()).unwrap();
            config.client_ca = Some(path.clone());
            change(config);
        })
        .await;
        (rig, [ca, other], path)
    }

    /// What is wrong with a server of this configuration.
    async fn refused(change: impl FnOnce(&mut ServerConfig)) -> String {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(&dir);
        change(&mut config);
        serve(config, readers(Snapshot::default())).await.unwrap_err().to_string()
    }

    /// `code`, headers and body of one request on the TLS port.
    async fn ask(&self, method: &str, path: &str) -> (u16, String, String) {
        exchange(self.tls(b"http/1.1").await, method, path).await
    }

    async fn check(&self, method: &str, path: &str, code: u16, part: &str) {
        let (got, headers, body) = self.ask(method, path).await;
        assert_eq!(got, code, "{method} {path}: {body}");
        assert!(body.contains(part) || headers.contains(part), "{method} {path}: {headers}\n{body}");
    }
}

fn config(dir: &tempfile::TempDir) -> ServerConfig {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let tls = TlsSource {
        files: None,
        requested: false,
        cert_dir: dir.path().to_owned(),
        hostname: "node-1".to_owned(),
        ips: vec![local],
    };
    ServerConfig {
        address: local,
        port: 0,
        healthz_address: local,
        healthz_port: Some(0),
        read_only_port: Some(0),
        tls,
        tls_policy: TlsPolicy::default(),
        client_ca: None,
        anonymous: true,
        token_webhook: false,
        always_allow: true,
        split_log_streams: false,
        debugging_handlers: true,
        checkpoints: Some(dir.path().join("checkpoints")),
        switches: Switches { system_logs: true, profiling: true, debug_flags: true, log_query: false },
        configz: r#"{"kubeletconfig":{}}"#.to_owned(),
        node_name: "node-1".to_owned(),
        syncloop_limit: Duration::from_secs(120),
    }
}

fn readers(snapshot: Snapshot) -> Readers {
    let own: MetricsWriter = Box::new(|page| page.single(Descriptor::gauge("ticklet_test", "A test."), 7.0));
    let nobody = CriOptions { runtime_endpoint: "/nonexistent.sock".to_owned(), image_endpoint: String::new() };
    let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
    let node = NodeConfig { node_name: "node-1".into(), ..NodeConfig::default() };
    let config = StatsConfig::of_machine(node, 1 << 40);
    let calls = UsageCalls::new(&nobody).unwrap();
    let stats = Stats::new(config, Arc::clone(&snapshot), Clock::default(), calls).unwrap();
    Readers {
        snapshot,
        stats,
        clock: Clock::default(),
        metrics: vec![own],
        runtime: StreamCalls::new(&nobody, Duration::from_secs(5)).unwrap(),
        reviews: None,
    }
}

fn snapshot() -> Snapshot {
    let report = |name: &str, state| ContainerReport {
        name: name.into(),
        state,
        last: None,
        ready: true,
        started: Some(true),
        restart_count: 0,
        image: String::new(),
        image_id: String::new(),
        container_id: format!("containerd://{name}"),
        user: None,
        actual: None,
    };
    let status = PodStatus {
        phase: Phase::Running,
        containers: vec![
            report("a", ReportedState::Running { started_at: Wall(1) }),
            report("b", ReportedState::Waiting { reason: String::new(), message: String::new() }),
        ],
        ..PodStatus::default()
    };
    let pod = PodView {
        spec: None,
        namespace: "ns".into(),
        name: "orphan".into(),
        uid: PodUid::from("u"),
        stage: Stage::Syncing,
        buried: false,
        status: Arc::new(status),
        last_event: "".into(),
    };
    let chunk: Chunk = vec![None, Some(Arc::new(pod))];
    Snapshot {
        chunks: vec![Arc::new(chunk)],
        wall: Wall(1_700_000_000_000_000_000),
        health: Health { pleg_seen: Some(Mono(0)), ..Health::default() },
        metrics: Arc::new(CoreMetrics {
            counters: vec![("ticklet_ticks_total", "", 5), ("x_total", "b", 2), ("x_total", "a", 1)],
            gauges: vec![("ticklet_works_awaited", "", 3.0)],
            pods: Arc::default(),
            pulls: Some(Arc::new(PullCounts {
                wanted: [(("never", "true", "false"), 2)].into(),
                checks: [("mustAuthenticate", 1)].into(),
                intents: 1,
                records: 4,
                max_pods: 10,
            })),
        }),
        ..Snapshot::default()
    }
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, method: &str, path: &str) -> (u16, String, String) {
    let request = format!("{method} {path} HTTP/1.1\r\nHost: node-1\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let code = head.split(' ').nth(1).unwrap().parse().unwrap();
    (code, head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn the_tls_port_answers_each_path_as_a_kubelet_does() {
    let rig = Rig::new(|_| {}).await;
    rig.check("GET", "/healthz", 200, "ok").await;
    rig.check("GET", "/healthz?verbose", 200, "[+]syncloop ok\nhealthz check passed").await;
    rig.check("GET", "/healthz/syncloop", 200, "ok").await;
    rig.check("GET", "/healthz/other", 404, "404 page not found").await;
    rig.check("GET", "/pods", 200, r#"{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}"#).await;
    rig.check("POST", "/pods", 405, "allow: GET").await;
    rig.check("GET", "/configz", 200, r#"{"kubeletconfig":{}}"#).await;
    rig.check("GET", "/stats/summary?only_cpu_and_memory=true", 200, "\"nodeName\":\"node-1\"").await;
    rig.check("GET", "/stats/summary", 200, "\"rlimit\":{").await;
    rig.check("GET", "/metrics/resource", 200, "node_memory_working_set_bytes ").await;
    rig.check("GET", "/metrics/cadvisor", 200, "container_scrape_error 0").await;
    rig.check("DELETE", "/metrics/cadvisor", 405, "allow: GET").await;
    rig.check("GET", "/logs", 301, "location: logs/").await;
    rig.check("GET", "/logs/", 200, "<pre>").await;
    rig.check("GET", "/logs/../etc/passwd", 400, "invalid URL path").await;
    rig.check(
        "GET",
        "/metrics",
        200,
        "kubelet_http_requests_total{long_running=\"false\",method=\"GET\",path=\"logs\"",
    )
    .await;
    rig.check("POST", "/exec/ns/p/c?command=sh", 400, "you must specify at least 1 of stdin, stdout, stderr").await;
    rig.check("POST", "/exec/ns/p/c?command=sh&output=1", 404, "pod does not exist").await;
    rig.check("GET", "/attach/ns/p/uid/c?input=1", 404, "pod does not exist").await;
    rig.check("POST", "/portForward/ns/p", 404, "pod does not exist").await;
    rig.check("POST", "/run/ns/p/c?cmd=id", 404, "pod does not exist").await;
    rig.check("GET", "/exec/ns/p", 404, "404: Page Not Found").await;
    rig.check("GET", "/portForward/ns/p/u/more", 404, "404: Page Not Found").await;
    rig.check("DELETE", "/exec/ns/p/c", 405, "allow: GET, POST").await;
    rig.check("GET", "/run/ns/p/c", 405, "allow: POST").await;
    rig.check("PUT", "/runningpods/", 405, "allow: GET").await;
    rig.check("GET", "/runningpods/", 500, "No such file").await;
    rig.check("GET", "/metrics/probes", 200, "process_start_time_seconds").await;
    rig.check("GET", "/", 404, "404 page not found").await;
    rig.check("GET", "/podsx", 404, "404 page not found").await;
    rig.running.stop(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn metrics_tell_of_pods_core_process_and_parts() {
    let rig = Rig::new(|_| {}).await;
    let (code, headers, body) = rig.ask("GET", "/metrics").await;
    assert_eq!(code, 200);
    assert!(headers.contains("text/plain; version=0.0.4; charset=utf-8"), "{headers}");
    for line in [
        "kubelet_node_name{node=\"node-1\"} 1",
        "kubelet_running_pods 1",
        "kubelet_running_containers{container_state=\"running\"} 1",
        "kubelet_running_containers{container_state=\"created\"} 1",
        "kubelet_desired_pods{static=\"true\"} 0",
        "kubelet_pleg_last_seen_seconds 1700000000",
        "ticklet_ticks_total 5",
        "x_total{kind=\"a\"} 1",
        "kubelet_image_manager_ensure_image_requests_total{pull_policy=\"never\",present_locally=\"true\",pull_required=\"false\"} 2",
        "kubelet_imagemanager_image_mustpull_checks_total{result=\"mustAuthenticate\"} 1",
        "kubelet_imagemanager_ondisk_pullintents 1",
        "kubelet_imagemanager_inmemory_pullintents_usage_percent 5",
        "kubelet_imagemanager_ondisk_pulledrecords 4",
        "kubelet_imagemanager_inmemory_pulledrecords_usage_percent 8",
        "ticklet_test 7",
    ] {
        assert!(body.lines().any(|found| found == line), "{line}\nnot in\n{body}");
    }
    let types = body.lines().filter(|line| line.starts_with("# TYPE")).collect::<Vec<_>>();
    let names: std::collections::BTreeSet<_> = types.iter().collect();
    assert_eq!(types.len(), names.len(), "a family is written twice");
    assert!(body.contains("process_cpu_seconds_total "));
}

#[tokio::test]
async fn http2_is_spoken_when_asked_for() {
    let rig = Rig::new(|_| {}).await;
    let stream = TokioIo::new(rig.tls(b"h2").await);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let driver = tokio::spawn(connection);
    let request = http::Request::get("https://node-1/healthz").body(Empty::<bytes::Bytes>::new()).unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.version()), (200, http::Version::HTTP_2));
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "ok");
    drop(sender);
    driver.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_plain_ports_show_less() {
    let rig = Rig::new(|config| config.always_allow = false).await;
    let plain = async |address: Option<SocketAddr>, path: &str| {
        let stream = TcpStream::connect(address.unwrap()).await.unwrap();
        exchange(stream, "GET", path).await.0
    };
    for (path, healthz, read_only) in [
        ("/healthz", 200, 200),
        ("/pods", 404, 200),
        ("/metrics", 404, 200),
        ("/configz", 404, 404),
        ("/exec/a/b/c", 404, 404),
        ("/runningpods/", 404, 404),
        ("/metrics/probes", 404, 200),
        ("/stats/summary", 404, 200),
    ] {
        assert_eq!(plain(rig.running.healthz, path).await, healthz, "{path}");
        assert_eq!(plain(rig.running.read_only, path).await, read_only, "{path}");
    }
}

#[tokio::test]
async fn who_may_not_ask_is_told_so() {
    let rig = Rig::new(|config| config.always_allow = false).await;
    let forbidden = "Forbidden (user=system:anonymous, verb=get, resource=nodes, subresource(s)=[pods proxy])";
    rig.check("GET", "/pods", 403, forbidden).await;
    rig.check("POST", "/nothing", 403, "verb=create, resource=nodes, subresource(s)=[proxy])").await;
    let rig = Rig::new(|config| config.anonymous = false).await;
    rig.check("GET", "/healthz", 401, "Unauthorized").await;
    let rig = Rig::new(|config| config.debugging_handlers = false).await;
    rig.check("POST", "/exec/ns/p/c", 405, "Debug endpoints are disabled.").await;
    rig.check("GET", "/configz", 404, "404 page not found").await;
    let off = Switches { system_logs: false, profiling: false, debug_flags: false, log_query: false };
    let rig = Rig::new(|config| config.switches = off).await;
    rig.check("GET", "/logs/", 405, "logs endpoint is disabled.").await;
    rig.check("GET", "/debug/pprof/heap", 405, "profiling endpoint is disabled.").await;
    rig.check("PUT", "/debug/flags/v", 405, "flags endpoint is disabled.").await;
}

#[tokio::test]
async fn debuggers_and_checkpoints_are_answered() {
    let rig = Rig::new(|_| {}).await;
    rig.check("GET", "/debug/pprof/", 200, "cmdline").await;
    let me = std::env::args().next().unwrap();
    rig.check("GET", "/debug/pprof/cmdline", 200, &me).await;
    rig.check("GET", "/debug/pprof/symbol", 200, "num_symbols: 0").await;
    rig.check("GET", "/debug/pprof/heap", 501, "no Go program").await;
    rig.check("GET", "/debug/pprof/none", 404, "Unknown profile").await;
    rig.check("POST", "/debug/pprof/heap", 405, "405: Method Not Allowed").await;
    rig.check("GET", "/debug/flags/v", 406, "unsupported http method").await;
    rig.check("PUT", "/debug/flags/v", 400, "strconv.ParseUint: parsing \"\": invalid syntax").await;
    rig.check("GET", "/checkpoint/ns/p/c", 405, "405: Method Not Allowed").await;
    rig.check("POST", "/checkpoint/ns/none/c", 404, "pod does not exist").await;
    rig.check("POST", "/checkpoint/ns", 404, "404").await;
    let rig = Rig::new(|config| config.checkpoints = None).await;
    rig.check("POST", "/checkpoint/ns/p/c", 404, "404 page not found").await;
}

#[tokio::test]
async fn a_taken_port_is_named_with_its_field_and_bad_requests_end_their_connection_only() {
    let rig = Rig::new(|_| {}).await;
    let error = Rig::refused(|config| config.port = rig.running.kubelet.port()).await;
    let expect = format!("listen on {} (address and port, --address and --port): Address", rig.running.kubelet);
    assert!(error.starts_with(&expect), "{error}");
    // No TLS where TLS is spoken, garbage where HTTP is, a head beyond every bound.
    let mut plain = TcpStream::connect(rig.running.kubelet).await.unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    drop(plain.read_to_end(&mut rest).await);
    let mut garbage = rig.tls(b"http/1.1").await;
    garbage.write_all(b"\x00\xff\r\n\r\n").await.unwrap();
    garbage.read_to_end(&mut rest).await.unwrap();
    let mut endless = rig.tls(b"http/1.1").await;
    let head = format!("GET / HTTP/1.1\r\nX: {}", "y".repeat(64 << 10));
    let mut written = Ok(());
    for _ in 0..40 {
        written = endless.write_all(head.as_bytes()).await;
        if written.is_err() {
            break;
        }
    }
    rest.clear();
    let read = endless.read_to_end(&mut rest).await;
    let refused = String::from_utf8_lossy(&rest).starts_with("HTTP/1.1 431");
    assert!(refused || written.is_err() || read.is_err());
    rig.check("GET", "/healthz", 200, "ok").await;
}

#[tokio::test]
async fn stopping_closes_idle_connections_at_once() {
    let rig = Rig::new(|_| {}).await;
    let mut idle = rig.tls(b"http/1.1").await;
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: n\r\n\r\n").await.unwrap();
    let mut first = [0; 12];
    idle.read_exact(&mut first).await.unwrap();
    let address = rig.running.kubelet;
    let began = std::time::Instant::now();
    rig.running.stop(Duration::from_secs(30)).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    TcpStream::connect(address).await.unwrap_err();
}

/// A CA with its key.
struct Ca(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Ca {
    fn new(name: &str) -> Self {
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Self(rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().unwrap()).unwrap())
    }

    fn client(&self, user: &str, groups: &[&str]) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name.push(rcgen::DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(rcgen::DnType::OrganizationName, *group);
        }
        let signed = params.signed_by(&key, &self.0).unwrap();
        (signed.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}

#[tokio::test]
async fn a_client_is_who_its_certificate_says() {
    let (rig, [ca, other], path) = Rig::knowing(|config| {
        config.anonymous = false;
        config.always_allow = false;
    })
    .await;
    let ask = async |own| exchange(rig.tls_as(b"http/1.1", own).await.unwrap(), "GET", "/pods").await;
    let (code, _, body) = ask(Some(ca.client("admin", &["system:masters"]))).await;
    assert_eq!((code, body.contains("user=admin,")), (403, true), "{body}");
    // A certificate of somebody else ends no handshake; the request is refused.
    let (code, _, body) = ask(Some(other.client("admin", &["system:masters"]))).await;
    assert_eq!((code, body.as_str()), (401, "Unauthorized"));
    assert_eq!(ask(None).await.0, 401);

    // The CA changes on disk: from then on the other one's clients are known, also on an open connection.
    std::fs::write(&path, other.0.pem()).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(ask(Some(other.client("admin", &[]))).await.0, 403);
    assert_eq!(ask(Some(ca.client("admin", &[]))).await.0, 401);
    // What became unusable changes nothing.
    std::fs::write(&path, "no certificate").unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(ask(Some(other.client("admin", &[]))).await.0, 403);
}

#[tokio::test]
async fn a_bad_certificate_is_refused_even_where_nobody_is_welcome_and_tokens_are_never_nobody() {
    let (rig, [ca, other], path) = Rig::knowing(|config| config.token_webhook = true).await;
    let ask = async |own| exchange(rig.tls_as(b"http/1.1", own).await.unwrap(), "GET", "/healthz").await.0;
    assert_eq!(ask(None).await, 200);
    assert_eq!(ask(Some(ca.client("admin", &[]))).await, 200);
    assert_eq!(ask(Some(other.client("admin", &[]))).await, 401);
    let mut stream = rig.tls(b"http/1.1").await;
    let request = b"GET /healthz HTTP/1.1\r\nHost: n\r\nAuthorization: Bearer x\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");

    std::fs::write(&path, "").unwrap();
    let error = Rig::refused(|config| config.client_ca = Some(path.clone())).await;
    assert!(error.contains("ca.crt (authentication.x509.clientCAFile): it holds no certificate"), "{error}");
}

#[tokio::test]
async fn a_changed_serving_certificate_is_served_from_then_on() {
    let rig = Rig::new(|_| {}).await;
    let shown = async || {
        let stream = rig.tls(b"http/1.1").await;
        stream.get_ref().1.peer_certificates().unwrap()[0].clone()
    };
    let before = shown().await;
    assert_eq!(shown().await, before);
    let made = tempfile::tempdir().unwrap();
    let source = TlsSource { cert_dir: made.path().to_owned(), ..config(&made).tls };
    let (cert, key) = tls::files(&source).unwrap().remove(0);
    std::fs::copy(cert, rig.dir.path().join("kubelet.crt")).unwrap();
    std::fs::copy(key, rig.dir.path().join("kubelet.key")).unwrap();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_ne!(shown().await, before);
}

#[tokio::test]
async fn the_oldest_version_is_honoured() {
    let rig = Rig::new(|config| config.tls_policy.min_version = "VersionTLS13".to_owned()).await;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let old = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let stream = TcpStream::connect(rig.running.kubelet).await.unwrap();
    let name = ServerName::from(Ipv4Addr::LOCALHOST.to_owned());
    let error = TlsConnector::from(Arc::new(old)).connect(name, stream).await.unwrap_err().to_string();
    assert!(error.contains("ProtocolVersion") || error.contains("HandshakeFailure"), "{error}");
    rig.check("GET", "/healthz", 200, "ok").await;
}
