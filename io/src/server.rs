//! The kubelet's HTTP ports: the TLS port, the read-only port, the healthz port.
//!
//! Reads published snapshots and counters, never the world; changes nothing. Every connection has a deadline for its
//! handshake and for idleness, and their number is bounded, so that nobody can keep the node's memory.

mod body;
mod certificates;
mod checkpoint;
mod connection;
mod container_logs;
mod credentials;
mod debug;
mod health;
mod identity;
mod idle;
mod log_query;
mod node_logs;
mod page;
mod probes;
mod process;
mod query;
mod requests;
pub mod review;
mod routes;
mod run;
mod streams;
mod tls;
mod usage;

pub use self::health::syncloop_problem;
pub use self::tls::{TlsPolicy, TlsSource};

use self::connection::Acceptor;
use self::credentials::Credentials;
use self::requests::Requests;
use self::routes::{Listener, Site};
use self::streams::Streams;
use crate::clock::Clock;
use crate::cri::streams::StreamCalls;
use crate::logs::LogReader;
use crate::metrics::Exposition;
use crate::stats::Stats;
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
    /// Versions, suites and groups.
    pub tls_policy: TlsPolicy,
    /// `authentication.x509.clientCAFile`.
    pub client_ca: Option<PathBuf>,
    /// `authentication.anonymous.enabled`.
    pub anonymous: bool,
    /// `authentication.webhook.enabled`: tokens count.
    pub token_webhook: bool,
    /// `authorization.mode` is `AlwaysAllow`.
    pub always_allow: bool,
    /// Feature gate `PodLogsQuerySplitStreams`.
    pub split_log_streams: bool,
    /// `enableDebuggingHandlers`.
    pub debugging_handlers: bool,
    /// Where checkpoints of containers go; `None` without the feature gate `ContainerCheckpoint`.
    pub checkpoints: Option<PathBuf>,
    /// Switches of single debugging handlers.
    pub switches: Switches,
    /// The body of `/configz`: `{"kubeletconfig":{…}}`.
    pub configz: String,
    /// Node name.
    pub node_name: String,
    /// Without a tick for this long the node is not healthy: twice `syncFrequency`, at least two minutes.
    pub syncloop_limit: Duration,
}

/// Debugging handlers that have a switch of their own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switches {
    /// `enableSystemLogHandler`.
    pub system_logs: bool,
    /// `enableProfilingHandler`.
    pub profiling: bool,
    /// `enableDebugFlagsHandler`.
    pub debug_flags: bool,
    /// `enableSystemLogQuery`.
    pub log_query: bool,
}

/// What the pages are made from.
pub struct Readers {
    /// Published snapshots.
    pub snapshot: Arc<ArcSwap<Snapshot>>,
    /// The clock whose times are in the snapshots.
    pub clock: Clock,
    /// Parts that write their own metrics.
    pub metrics: Vec<MetricsWriter>,
    /// The runtime, for requests that are about what runs.
    pub runtime: StreamCalls,
    /// What everything uses.
    pub stats: Stats,
    /// Who may ask for what; without it tokens are nobody's and nothing is allowed but by `AlwaysAllow`.
    pub reviews: Option<Arc<review::Reviews>>,
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
    /// The client CA is unusable.
    #[error("client CA {path} (authentication.x509.clientCAFile): {message}", path = path.display())]
    ClientCa {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// Nothing that is asked for can be offered.
    #[error("TLS terms: {message}")]
    Terms {
        /// Which field.
        message: String,
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
    let credentials = Arc::new(Credentials::new(&config, readers.reviews.clone())?);
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
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let streams = Streams::new(stop.clone(), tasks.clone());
    let site = Arc::new(Site {
        config,
        readers,
        credentials: Arc::clone(&credentials),
        streams,
        logs: LogReader::default(),
        requests: Requests::default(),
    });
    let start = |bound: (TcpListener, SocketAddr), listener, tls| {
        let acceptor = Acceptor { site: Arc::clone(&site), listener, tls, stop: stop.clone(), tasks: tasks.clone() };
        tasks.spawn(acceptor.run(bound.0));
        bound.1
    };
    Ok(Running {
        kubelet: start(kubelet, Listener::Kubelet, Some(credentials)),
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
mod tests;
