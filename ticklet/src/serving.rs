//! The node's ports: what is served, from which settings, with whose numbers.

use crate::compose::Running;
use crate::driver::DriverStats;
use crate::facts::{self, Facts};
use crate::recorder::TraceStats;
use anyhow::Context;
use components::config::KubeletConfiguration;
use components::config::gates::GateSet;
use components::node::{Machine, NodeConfig};
use io::cri::streams::StreamCalls;
use io::metrics::{Descriptor, Exposition, MetricKind};
use io::server::review::Reviews;
use io::server::{Readers, ServerConfig, Switches, TlsPolicy, TlsSource};
use io::stats::{Stats, StatsConfig};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A node is unhealthy after this long without a tick, whatever `syncFrequency` says.
const SYNCLOOP_FLOOR: Duration = Duration::from_secs(120);

/// Volumes are not measured more often, whatever `volumeStatsAggPeriod` says.
const SHORTEST_VOLUME_PERIOD: Duration = Duration::from_secs(1);

/// Settings of the server; `None` when `enableServer` is false.
pub(crate) fn config(
    config: &KubeletConfiguration,
    machine: &Machine,
    root: &Path,
    cert_dir: &Path,
) -> anyhow::Result<Option<ServerConfig>> {
    if !config.enable_server {
        return Ok(None);
    }
    let address = |field: &str, text: &str| -> anyhow::Result<IpAddr> {
        text.parse().with_context(|| format!("{field}: {text:?} is not an IP address"))
    };
    let optional = |port: i32| u16::try_from(port).ok().filter(|port| *port != 0);
    let files = (!config.tls_cert_file.is_empty())
        .then(|| (PathBuf::from(&config.tls_cert_file), PathBuf::from(&config.tls_private_key_file)));
    let gates = GateSet::from_map(&config.feature_gates).0;
    Ok(Some(ServerConfig {
        address: address("address", &config.address)?,
        port: u16::try_from(config.port).unwrap_or(0),
        healthz_address: address("healthzBindAddress", &config.healthz_bind_address)?,
        healthz_port: optional(config.healthz_port),
        read_only_port: optional(config.read_only_port),
        tls: TlsSource {
            files,
            requested: requests_certificate(config),
            cert_dir: cert_dir.to_owned(),
            hostname: machine.hostname.clone(),
            ips: machine.node_ips.iter().filter_map(|ip| ip.parse().ok()).collect(),
        },
        tls_policy: TlsPolicy {
            min_version: config.tls_min_version.clone(),
            cipher_suites: config.tls_cipher_suites.clone(),
            curves: config.tls_curve_preferences.clone(),
        },
        client_ca: optional_path(&config.authentication.x509.client_ca_file),
        anonymous: config.authentication.anonymous.enabled,
        token_webhook: config.authentication.webhook.enabled,
        always_allow: config.authorization.mode == "AlwaysAllow",
        split_log_streams: gates.enabled("PodLogsQuerySplitStreams"),
        debugging_handlers: config.enable_debugging_handlers,
        checkpoints: gates.enabled("ContainerCheckpoint").then(|| root.join("checkpoints")),
        switches: Switches {
            system_logs: config.enable_system_log_handler,
            profiling: config.enable_profiling_handler,
            debug_flags: config.enable_debug_flags_handler,
            log_query: config.enable_system_log_query,
        },
        configz: serde_json::to_string(&shown(config, cert_dir).configz())?,
        node_name: machine.hostname.to_lowercase(),
        syncloop_limit: syncloop_limit(config),
    }))
}

/// The configuration that `/configz` shows: with the pair that is made where none is given, as upstream's `InitializeTLS`
/// fills it in.
fn shown(config: &KubeletConfiguration, cert_dir: &Path) -> KubeletConfiguration {
    let mut shown = config.redacted();
    if shown.tls_cert_file.is_empty() && shown.tls_private_key_file.is_empty() && !config.server_tls_bootstrap {
        let file = |name: &str| cert_dir.join(name).display().to_string();
        (shown.tls_cert_file, shown.tls_private_key_file) = (file("kubelet.crt"), file("kubelet.key"));
    }
    shown
}

/// How long the node may go without a tick.
pub(crate) fn syncloop_limit(config: &KubeletConfiguration) -> Duration {
    SYNCLOOP_FLOOR.max(Duration::from_nanos(config.sync_frequency.0.unsigned_abs()) * 2)
}

/// The serving certificate is the cluster's to give.
pub(crate) fn requests_certificate(config: &KubeletConfiguration) -> bool {
    let (gates, _) = GateSet::from_map(&config.feature_gates);
    config.server_tls_bootstrap && gates.enabled("RotateKubeletServerCertificate")
}

fn optional_path(path: &str) -> Option<PathBuf> {
    (!path.is_empty()).then(|| PathBuf::from(path))
}

/// What the pages are made from.
pub(crate) fn readers(
    node: &Running,
    runtime: StreamCalls,
    reviews: Option<Arc<Reviews>>,
    usage: Stats,
    told: Facts,
) -> Readers {
    let traces = node.traces.clone();
    let stats = Arc::clone(&node.stats);
    let dispatcher = node.dispatcher.clone();
    let api = node.api.clone();
    Readers {
        snapshot: Arc::clone(&node.snapshots),
        clock: node.clock,
        metrics: vec![
            Box::new(move |page| dispatcher.stats().write(page)),
            Box::new(move |page| write_driver(&stats, page)),
            Box::new(move |page| facts::write(&told, page)),
            Box::new(move |page| {
                if let Some(api) = &api {
                    api.write(page);
                }
            }),
            Box::new(move |page| {
                if let Some(traces) = &traces {
                    write_traces(traces, page);
                }
            }),
        ],
        runtime,
        stats: usage,
        reviews,
    }
}

/// What usage is compared with, from the settings of the same names.
pub(crate) fn stats_config(
    config: &KubeletConfiguration,
    node: NodeConfig,
    machine: &Machine,
    runtime_cgroups: &str,
) -> StatsConfig {
    let mut stats = StatsConfig::of_machine(node, machine.memory_bytes);
    if !config.kubelet_cgroups.is_empty() {
        stats.kubelet_cgroup.clone_from(&config.kubelet_cgroups);
    }
    runtime_cgroups.clone_into(&mut stats.runtime_cgroup);
    stats.system_cgroup.clone_from(&config.system_cgroups);
    // Zero and less turn it off.
    let period = u64::try_from(config.volume_stats_agg_period.0).unwrap_or(0);
    stats.volume_period = (period > 0).then(|| Duration::from_nanos(period).max(SHORTEST_VOLUME_PERIOD));
    stats
}

fn count(page: &mut Exposition, name: &'static str, help: &'static str, value: &AtomicU64) {
    page.single(Descriptor { name, help, kind: MetricKind::Counter }, value.load(Ordering::Relaxed) as f64);
}

fn write_driver(stats: &DriverStats, page: &mut Exposition) {
    let seconds = |nanos: &AtomicU64| nanos.load(Ordering::Relaxed) as f64 / 1e9;
    let gauge = |name, help| Descriptor { name, help, kind: MetricKind::Gauge };
    page.single(
        Descriptor { name: "ticklet_tick_seconds_total", help: "Time spent in ticks.", kind: MetricKind::Counter },
        seconds(&stats.tick_nanos),
    );
    page.single(gauge("ticklet_tick_longest_seconds", "Longest tick."), seconds(&stats.longest_tick_nanos));
    let largest = stats.largest_batch.load(Ordering::Relaxed) as f64;
    page.single(gauge("ticklet_tick_batch_size_max", "Most inputs taken into one tick."), largest);
    count(page, "ticklet_engine_panics_total", "Ticks that panicked.", &stats.panics);
    count(page, "ticklet_failed_commits_total", "Group commits that failed.", &stats.failed_commits);
}

fn write_traces(stats: &TraceStats, page: &mut Exposition) {
    count(page, "ticklet_trace_frames_total", "Frames handed to the trace writer.", &stats.frames);
    count(page, "ticklet_trace_dropped_frames_total", "Frames that are in no trace file.", &stats.dropped);
    count(page, "ticklet_trace_bytes_total", "Bytes of trace written.", &stats.bytes);
    count(page, "ticklet_trace_write_failures_total", "Failed writes of trace files.", &stats.failures);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configz_shows_the_pair_that_is_made() {
        let mut config = KubeletConfiguration::default();
        assert_eq!(shown(&config, Path::new("/pki")).tls_private_key_file, "/pki/kubelet.key");
        config.server_tls_bootstrap = true;
        assert_eq!(shown(&config, Path::new("/pki")).tls_cert_file, "");
        (config.server_tls_bootstrap, config.tls_cert_file) = (false, "/own.crt".to_owned());
        config.tls_private_key_file = "/own.key".to_owned();
        assert_eq!(shown(&config, Path::new("/pki")).tls_cert_file, "/own.crt");
    }
}
