//! The kubelet mode: everything between a loaded configuration and a running standalone node.
//!
//! Refuses what the kubelet refuses (swap, cgroup v1, damaged state files), each with one line that says what to do.

use crate::compose::{self, Plan, Running, limits};
use crate::facts::Facts;
use crate::load::{HostFiles, Loaded, Start, load};
use anyhow::{Context, bail};
use components::config::gates::GateSet;
use components::config::{KubeletConfiguration, not_acted_on};
use components::edge::Ingress;
use components::edge::control::ControlIngress;
use components::node::{ApiConfig, Machine, ObjectStrategy, UserIds};
use io::apiserver::Rates;
use io::cri::CriOptions;
use io::cri::streams::StreamCalls;
use io::cri::usage::UsageCalls;
use io::dispatch::Limits;
use io::klog::LogFormat;
use io::logind::LogindConfig;
use io::sources::{SourcesOptions, UrlSource};
use io::stats::Stats;
use io::store::state_files::{self, Policies};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

/// How long requests under way may go on after a stop.
const SERVER_GRACE: Duration = Duration::from_millis(500);
/// Exit code of expected trouble, as the kubelet's.
const FAILED: u8 = 1;

/// Runs with these arguments.
pub(crate) fn run(args: &[String]) -> ExitCode {
    match load(args, &HostFiles) {
        Ok(Start::Print(text)) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Ok(Start::Run(loaded)) => match node(*loaded) {
            Ok(code) => code,
            Err(error) => {
                tracing::error!("{error:#}");
                eprintln!("ticklet: {error:#}");
                ExitCode::from(FAILED)
            }
        },
        Err(error) => {
            for line in error.to_string().lines() {
                eprintln!("ticklet: {line}");
            }
            ExitCode::from(FAILED)
        }
    }
}

fn node(loaded: Loaded) -> anyhow::Result<ExitCode> {
    io::host::memory::share_heap();
    let config = &loaded.config;
    let format = if config.logging.format == "json" { LogFormat::Json } else { LogFormat::Text };
    // A second receiver of events cannot be set, which would only mean that one is there already.
    let _ = io::klog::init(format, config.logging.verbosity);
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
    let unused = not_acted_on(config);
    if !unused.is_empty() {
        tracing::warn!(fields = %unused.join(", "), "Accepted, but not acted on by this version");
    }
    let mut machine = machine(&loaded)?;
    refuse(config, &machine)?;
    let root = PathBuf::from(&loaded.flags.root_dir);
    machine.shutting_down = io::host::shutdown_under_way(&root)?;
    std::fs::create_dir_all(&root).with_context(|| format!("failed to make --root-dir {}", root.display()))?;
    // As the kubelet does. A node without a cluster leaves the machine's mounts alone.
    if !loaded.flags.kubeconfig.is_empty()
        && let Err(error) = io::host::share(&root)
    {
        tracing::warn!("Volumes cannot pass mounts on: {error}");
    }
    let (mut store, _) = compose::open_store(&root)?;
    let policies = Policies { cpu: &config.cpu_manager_policy, memory: &config.memory_manager_policy };
    for warning in state_files::check(&root, policies)? {
        tracing::warn!("{warning}");
    }
    let records = store.adopt_states(&root)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        // As many as the dispatcher runs host works at a time: each further thread costs an allocator arena.
        .max_blocking_threads(8)
        .thread_name("io")
        .enable_all()
        .build()
        .context("failed to start the I/O threads")?;
    let code = runtime.block_on(serve(&loaded, machine, &root, store, records));
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

fn machine(loaded: &Loaded) -> anyhow::Result<Machine> {
    let node_ips: Vec<String> = loaded.flags.node_ips().0.iter().map(ToString::to_string).collect();
    let node_ip = Some(node_ips.join(","));
    let name = Some(loaded.flags.hostname_override.as_str()).filter(|name| !name.is_empty());
    let resolver = Some(loaded.config.resolv_conf.as_str()).filter(|path| !path.is_empty());
    let mut machine =
        io::host::machine(resolver, node_ip.as_deref(), name).context("failed to read this machine's facts")?;
    let pods = Path::new(&loaded.flags.root_dir).join("pods");
    machine.user_ranges = io::host::machine::users::recorded(&pods).context("failed to read pods' user namespaces")?;
    Ok(machine)
}

/// Ids that were set aside for the kubelet replace the default ones; unusable ones are an error, not a surprise.
fn user_ids(config: &KubeletConfiguration) -> anyhow::Result<Option<UserIds>> {
    let set_aside = io::host::machine::users::set_aside().context("failed to read ids of user kubelet")?;
    let ids = limits::user_ids(config, set_aside);
    if let Some(ids) = ids.filter(|_| set_aside.is_some()) {
        let max_pods = u32::try_from(config.max_pods).unwrap_or(0);
        limits::check_user_ids(ids, max_pods)
            .map_err(|why| anyhow::anyhow!("ids of user kubelet in /etc/subuid and /etc/subgid: {why}"))?;
    }
    Ok(ids)
}

/// `configMapAndSecretChangeDetectionStrategy`, which was validated.
fn object_strategy(config: &KubeletConfiguration) -> ObjectStrategy {
    match config.config_map_and_secret_change_detection_strategy.as_str() {
        "Cache" => ObjectStrategy::Cache,
        "Get" => ObjectStrategy::Get,
        _ => ObjectStrategy::Watch,
    }
}

/// What a kubelet does not start on.
fn refuse(config: &KubeletConfiguration, machine: &Machine) -> anyhow::Result<()> {
    if config.fail_swap_on && io::host::swap_on()? {
        bail!("swap is on and failSwapOn is true: turn swap off, or set failSwapOn: false");
    }
    let problems = config.validate_host(!machine.cgroup_v2);
    if let Some(problem) = problems.first() {
        bail!("{}: {}", problem.path, problem.message);
    }
    Ok(())
}

fn plan(loaded: &Loaded, machine: Machine, root: &Path) -> anyhow::Result<Plan> {
    let config = &loaded.config;
    let path = Some(PathBuf::from(&config.static_pod_path)).filter(|p| !p.as_os_str().is_empty());
    let url = (!config.static_pod_url.is_empty())
        .then(|| UrlSource { url: config.static_pod_url.clone(), headers: config.static_pod_url_header.clone() });
    let parallel = config.max_parallel_image_pulls.map_or(32, |n| usize::try_from(n).unwrap_or(1));
    let pulls = if config.serialize_image_pulls { 1 } else { parallel };
    let flags = &loaded.flags;
    let mut node = compose::node::node_config(config, &flags.root_dir, &machine);
    node.limits.users = user_ids(config)?;
    node.reclaim.collection = Some(compose::node::collection(
        flags.maximum_dead_containers,
        flags.maximum_dead_containers_per_container,
        flags.minimum_container_ttl_duration,
    ));
    node.identity = compose::identity::identity(config, flags)?.map(Box::new);
    node.providers = compose::providers::providers(config, flags)?.map(Box::new);
    let access = compose::identity::access(flags, node.identity.as_deref());
    let api = access.map(|access| (access, rates(config)));
    node.api = api.is_some().then(|| ApiConfig {
        objects: object_strategy(config),
        pod_certificates: GateSet::from_map(&config.feature_gates).0.enabled("PodCertificateRequest"),
        ..ApiConfig::default()
    });
    if api.is_some() {
        node.object = Some(Box::new(compose::object::object(config, flags, &machine)?));
    }
    let needed: u32 = node.shutdown_bands.iter().map(|band| band.seconds).sum();
    let logind = (needed > 0).then(|| LogindConfig {
        needed: Duration::from_secs(needed.into()),
        drop_ins: PathBuf::from("/etc/systemd/logind.conf.d"),
    });
    Ok(Plan {
        config: node,
        machine,
        root: root.to_owned(),
        cri: CriOptions {
            runtime_endpoint: config.container_runtime_endpoint.clone(),
            image_endpoint: config.image_service_endpoint.clone(),
        },
        sources: SourcesOptions { paths: path.into_iter().collect(), url },
        api,
        limits: Limits { pulls, ..Limits::default() },
        logind,
        record: true,
    })
}

fn rates(config: &KubeletConfiguration) -> Rates {
    Rates {
        qps: config.kube_api_qps,
        burst: config.kube_api_burst,
        event_qps: config.event_record_qps,
        event_burst: config.event_burst,
    }
}

async fn serve(
    loaded: &Loaded,
    machine: Machine,
    root: &Path,
    store: io::store::Store,
    records: Vec<components::edge::store::Record>,
) -> anyhow::Result<ExitCode> {
    let name = machine.hostname.clone();
    let cert_dir = PathBuf::from(&loaded.flags.cert_dir);
    let serving = crate::serving::config(&loaded.config, &machine, root, &cert_dir)?;
    let plan = plan(loaded, machine, root)?;
    let usage = UsageCalls::new(&plan.cri)?;
    let gates = GateSet::from_map(&loaded.config.feature_gates).0;
    let facts = Facts { gates, cgroup_v2: plan.machine.cgroup_v2 };
    let runtime_cgroups = &loaded.flags.runtime_cgroups;
    let stats = crate::serving::stats_config(&loaded.config, plan.config.clone(), &plan.machine, runtime_cgroups);
    let runtime = StreamCalls::new(&plan.cri, plan.config.runtime_timeout)?;
    let api = plan.api.clone();
    let node = compose::start(plan, store, records)?;
    let reviews = api
        .map(|(access, rates)| crate::reviews::reviews(&access, rates, node.ingress.clone(), &loaded.config))
        .transpose()?;
    let stats =
        Stats::new(stats, Arc::clone(&node.snapshots), node.clock, usage).context("failed to start a thread")?;
    let server = match serving {
        Some(config) => {
            let readers = crate::serving::readers(&node, runtime, reviews, stats, facts);
            Some(io::server::serve(config, readers).await?)
        }
        None => None,
    };
    let mode = if loaded.flags.kubeconfig.is_empty() { "standalone" } else { "in a cluster" };
    tracing::info!(node = %name, mode, "Started ticklet");
    crate::systemd::ready();
    let limit = crate::serving::syncloop_limit(&loaded.config);
    let alive = tokio::spawn(crate::systemd::keep_alive(Arc::clone(&node.snapshots), node.clock, limit));
    let broken = until_stopped(&node).await;
    crate::systemd::stopping();
    alive.abort();
    let broken = broken?;
    if let Some(server) = server {
        server.stop(SERVER_GRACE).await;
    }
    let why = node.finish().await;
    tracing::info!("Stopped; containers go on running");
    if broken {
        bail!("the core stopped by itself ({why:?}); see the log for the panic");
    }
    Ok(ExitCode::SUCCESS)
}

/// Waits for SIGTERM or SIGINT; true when the core stopped by itself. SIGPWR announces a shutdown of the node.
async fn until_stopped(node: &Running) -> anyhow::Result<bool> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut term = signal(SignalKind::terminate())?;
    let mut int = signal(SignalKind::interrupt())?;
    let mut power = signal(SignalKind::from_raw(nix::sys::signal::Signal::SIGPWR as i32))?;
    loop {
        tokio::select! {
            _ = term.recv() => return Ok(false),
            _ = int.recv() => return Ok(false),
            () = node.ended.cancelled() => return Ok(true),
            _ = power.recv() => {
                let fact = Ingress::Control(ControlIngress::ShutdownAnnounced);
                if node.ingress.send(fact).await.is_err() {
                    return Ok(true);
                }
            }
        }
    }
}
