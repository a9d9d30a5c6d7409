//! The kubelet's HTTP ports: the TLS port, the read-only port, the healthz port.
//!
//! Reads published snapshots and counters, never the world; changes nothing. Every connection has a deadline for its
//! handshake and for idleness, and their number is bounded, so that nobody can keep the node's memory.

mod connection;
mod health;
mod page;
pub mod pod_json;
mod probes;
mod process;
mod routes;
mod tls;

pub use self::tls::TlsSource;

use self::connection::Acceptor;
use self::routes::{Listener, Site};
use crate::clock::Clock;
use crate::metrics::Exposition;
use arc_swap::ArcSwap;
use components::snapshot::Snapshot;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How the ports are served.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// `address`.
    pub address: IpAddr,
    /// `port`; 0 in tests for any free one.
    pub port: u16,
    /// `healthzBindAddress`.
    pub healthz_address: IpAddr,
    /// `healthzPort`; `None` when 0.
    pub healthz_port: Option<u16>,
    /// `readOnlyPort`; `None` when 0.
    pub read_only_port: Option<u16>,
    /// Serving certificate.
    pub tls: TlsSource,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// `authorization.mode` is `AlwaysAllow`.
    pub always_allow: bool,
    /// `enableDebuggingHandlers`.
    pub debugging_handlers: bool,
    /// The body of `/configz`: `{"kubeletconfig":{…}}`.
    pub configz: String,
    /// Node name.
    pub node_name: String,
    /// Without a tick for this long the node is not healthy: twice `syncFrequency`, at least two minutes.
    pub syncloop_limit: Duration,
}

/// What the pages are made from.
pub struct Readers {
    /// Published snapshots.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// The clock whose times are in the snapshots.
    pub clock: Clock,
    /// Parts that write their own metrics.
    pub metrics: Vec<MetricsWriter>,
}

/// Writes the metrics of one part.
pub type MetricsWriter = Box<dyn Fn(&mut Exposition) + Send + Sync>;

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("metrics", &self.metrics.len()).finish_non_exhaustive()
    }
}

/// Why the ports cannot be served.
#[derive(thiserror::Error, Debug)]
pub enum ServerError {
    /// A port could not be opened.
    #[error("listen on {address} ({setting}): {source}")]
    Bind {
        /// Address and port.
        address: SocketAddr,
        /// Fields and flags that say so.
        setting: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A certificate or key is unusable.
    #[error("serving certificate {path}: {message}", path = path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

/// The ports being served.
#[derive(Debug)]
pub struct Running {
    /// Address of the TLS port.
    pub kubelet: SocketAddr,
    /// Address of the healthz port.
    pub healthz: Option<SocketAddr>,
    /// Address of the read-only port.
    pub read_only: Option<SocketAddr>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl Running {
    /// Closes the ports; requests under way have `grace` to end.
    pub async fn stop(self, grace: Duration) {
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(grace, self.tasks.wait()).await.is_err() {
            tracing::warn!("Connections were still open when the ports were closed");
        }
    }
}

/// Opens the ports and serves them on the current tokio runtime.
///
/// # Errors
/// When a port is taken or the certificate is unusable; then none is served.
pub async fn serve(config: ServerConfig, readers: Readers) -> Result<Running, ServerError> {
    let tls = tls::server_config(&config.tls)?;
    let kubelet = bind(config.address, config.port, "address and port, --address and --port").await?;
    let healthz = match config.healthz_port {
        Some(port) => {
            let setting = "healthzBindAddress and healthzPort, --healthz-bind-address and --healthz-port";
            Some(bind(config.healthz_address, port, setting).await?)
        }
        None => None,
    };
    let read_only = match config.read_only_port {
        Some(port) => Some(bind(config.address, port, "address and readOnlyPort, --read-only-port").await?),
        None => None,
    };
    let site = Arc::new(Site { config, readers });
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let start = |bound: (TcpListener, SocketAddr), listener, tls| {
        let acceptor = Acceptor { site: Arc::clone(&site), listener, tls, stop: stop.clone(), tasks: tasks.clone() };
        tasks.spawn(acceptor.run(bound.0));
        bound.1
    };
    Ok(Running {
        kubelet: start(kubelet, Listener::Kubelet, Some(tls)),
        healthz: healthz.map(|bound| start(bound, Listener::Healthz, None)),
        read_only: read_only.map(|bound| start(bound, Listener::ReadOnly, None)),
        stop,
        tasks,
    })
}

async fn bind(ip: IpAddr, port: u16, setting: &'static str) -> Result<(TcpListener, SocketAddr), ServerError> {
    let address = SocketAddr::new(ip, port);
    let failed = |source| ServerError::Bind { address, setting, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Descriptor;
    use components::ids::PodUid;
    use components::snapshot::{Chunk, CoreMetrics, Health, PodView};
    use components::status::{ContainerReport, Phase, PodStatus, ReportedState};
    use components::time::{Mono, Wall};
    use components::world::Stage;
    use http_body_util::{BodyExt, Empty};
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName};
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
            let mut roots = rustls::RootCertStore::empty();
            roots.add(CertificateDer::from_pem_file(self.dir.path().join("kubelet.crt")).unwrap()).unwrap();
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let mut config = rustls::ClientConfig::builder_with_provider(provider)
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_no_client_auth();
            config.alpn_protocols = vec![alpn.to_vec()];
            let stream = TcpStream::connect(self.running.kubelet).await.unwrap();
            let name = ServerName::from(Ipv4Addr::LOCALHOST.to_owned());
            TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
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
        let tls =
            TlsSource { files: None, cert_dir: dir.path().to_owned(), hostname: "node-1".to_owned(), ips: vec![local] };
        ServerConfig {
            address: local,
            port: 0,
            healthz_address: local,
            healthz_port: Some(0),
            read_only_port: Some(0),
            tls,
            anonymous: true,
            always_allow: true,
            debugging_handlers: true,
            configz: r#"{"kubeletconfig":{}}"#.to_owned(),
            node_name: "node-1".to_owned(),
            syncloop_limit: Duration::from_secs(120),
        }
    }

    fn readers(snapshot: Snapshot) -> Readers {
        let own: MetricsWriter = Box::new(|page| page.single(Descriptor::gauge("ticklet_test", "A test."), 7.0));
        Readers { snapshot: Arc::new(ArcSwap::from_pointee(snapshot)), clock: Clock::default(), metrics: vec![own] }
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
            }),
            ..Snapshot::default()
        }
    }

    async fn exchange(
        mut stream: impl AsyncRead + AsyncWrite + Unpin,
        method: &str,
        path: &str,
    ) -> (u16, String, String) {
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
        rig.check("GET", "/stats/summary", 501, "/stats/summary is not served by this version of ticklet").await;
        rig.check("POST", "/exec/ns/p/c?command=sh", 501, "/exec is not served by this version").await;
        rig.check("DELETE", "/exec/ns/p/c", 405, "allow: GET, POST").await;
        rig.check("GET", "/runningpods/", 501, "not served").await;
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
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
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
            ("/stats/summary", 404, 501),
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
    }

    #[tokio::test]
    async fn a_taken_port_is_named_with_its_field_and_bad_requests_end_their_connection_only() {
        let rig = Rig::new(|_| {}).await;
        let dir = tempfile::tempdir().unwrap();
        let taken = ServerConfig { port: rig.running.kubelet.port(), ..config(&dir) };
        let error = serve(taken, readers(Snapshot::default())).await.unwrap_err().to_string();
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
}
