//! `ticklet up PATH…`: runs manifests in the foreground without configuration and shows them live.
//!
//! Ends when every pod has run to completion, or on Ctrl-C, when it ends the pods and removes what is left of them.

mod table;

use crate::compose::{self, Plan, Running};
use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, Command, value_parser};
use components::edge::Ingress;
use components::edge::control::ControlIngress;
use components::node::NodeConfig;
use components::snapshot::Snapshot;
use components::status::{Phase, ReportedState};
use components::world::Stage;
use io::cri::CriOptions;
use io::dispatch::Limits;
use io::sources::SourcesOptions;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How often the picture is looked at.
const REFRESH: Duration = Duration::from_millis(200);
/// Longest wait for pods to end after Ctrl-C, beyond their grace period.
const DRAIN_SLACK: Duration = Duration::from_secs(60);
/// Exit code after Ctrl-C.
const INTERRUPTED: u8 = 130;

/// The subcommand.
pub(crate) fn command() -> Command {
    Command::new("up")
        .about("Run pod manifests in the foreground and show them live; Ctrl-C ends and removes them")
        .arg(
            Arg::new("paths")
                .required(true)
                .num_args(1..)
                .value_name("PATH")
                .value_parser(value_parser!(PathBuf))
                .help("Manifest file, or folder of manifests"),
        )
        .arg(
            Arg::new("runtime-endpoint")
                .long("runtime-endpoint")
                .value_name("ENDPOINT")
                .default_value("unix:///run/containerd/containerd.sock")
                .help("CRI socket of the container runtime"),
        )
        .arg(
            Arg::new("root-dir")
                .long("root-dir")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Folder for volumes, logs and traces [default: a new one, removed at the end]"),
        )
        .arg(
            Arg::new("cgroup-root")
                .long("cgroup-root")
                .value_name("CGROUP")
                .default_value("")
                .help("Existing cgroup below which pods run [default: the runtime's own]"),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .short('o')
                .value_name("FORMAT")
                .value_parser(["table", "json"])
                .default_value("table")
                .help("table, or json: one line for each change"),
        )
        .arg(
            Arg::new("grace")
                .long("grace")
                .value_name("SECONDS")
                .value_parser(value_parser!(u32))
                .help("Upper bound on grace periods when ending [default: each pod's own]"),
        )
}

/// Runs the subcommand.
///
/// # Errors
/// Expected trouble, as one line.
pub(crate) fn run(args: &ArgMatches) -> anyhow::Result<ExitCode> {
    let paths: Vec<PathBuf> = args.get_many::<PathBuf>("paths").unwrap_or_default().cloned().collect();
    for path in &paths {
        if !path.exists() {
            bail!("{} does not exist: give a manifest file or a folder of manifests", path.display());
        }
    }
    let temporary = match args.get_one::<PathBuf>("root-dir") {
        Some(_) => None,
        None => Some(tempfile::Builder::new().prefix("ticklet-up-").tempdir().context("failed to make a root folder")?),
    };
    let root = match (&temporary, args.get_one::<PathBuf>("root-dir")) {
        (Some(dir), _) => dir.path().to_owned(),
        (None, Some(dir)) => std::path::absolute(dir)?,
        (None, None) => bail!("no root folder"),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let code = runtime.block_on(foreground(args, &root, paths));
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

async fn foreground(args: &ArgMatches, root: &Path, paths: Vec<PathBuf>) -> anyhow::Result<ExitCode> {
    let text = |name: &str| args.get_one::<String>(name).cloned().unwrap_or_default();
    let machine = io::host::machine(Some("/etc/resolv.conf"), None, None)?;
    let config = node_config(root, &text("cgroup-root"), &machine);
    let (store, records) = compose::open_store(root)?;
    let plan = Plan {
        config,
        machine,
        root: root.to_owned(),
        cri: CriOptions { runtime_endpoint: text("runtime-endpoint"), image_endpoint: String::new() },
        sources: SourcesOptions { paths, url: None },
        api: None,
        limits: Limits { pulls: 4, ..Limits::default() },
        logind: None,
        record: true,
    };
    let node = compose::start(plan, store, records)?;
    let json = text("output") == "json";
    let code = show(&node, json, args.get_one::<u32>("grace").copied()).await;
    node.finish().await;
    code
}

fn node_config(root: &Path, cgroup_root: &str, machine: &components::node::Machine) -> NodeConfig {
    let defaults = components::config::KubeletConfiguration::default();
    let root_dir = root.display().to_string();
    let mut config = compose::node::node_config(&defaults, &root_dir, machine);
    config.file_source = true;
    config.file_check = Duration::from_secs(5);
    config.pod_logs_dir = format!("{root_dir}/logs");
    config.cgroup_root = cgroup_root.trim_end_matches('/').to_owned();
    config.cgroups_per_qos = !cgroup_root.is_empty();
    // The runtime is shared: what we did not start is not ours to end.
    config.end_orphans = false;
    config.reclaim.collection = None;
    config.reclaim.log_links = None;
    config
}

/// What the foreground run has come to.
#[derive(PartialEq, Eq, Clone, Copy)]
enum Ending {
    No,
    Completed,
    Interrupted,
}

async fn show(node: &Running, json: bool, grace: Option<u32>) -> anyhow::Result<ExitCode> {
    let mut screen = Screen::new(json);
    let mut ending = Ending::No;
    let mut deadline = None;
    let mut code = 0;
    loop {
        let snapshot = node.snapshots.load_full();
        screen.show(&snapshot)?;
        if ending == Ending::No && completed(&snapshot) {
            ending = Ending::Completed;
            code = worst(&snapshot);
            drain(node, &snapshot, grace, &mut deadline).await;
        }
        if ending != Ending::No && gone(&snapshot) {
            screen.show(&snapshot)?;
            break;
        }
        if deadline.is_some_and(|at| std::time::Instant::now() > at) {
            bail!("some pods did not end in time; see the list above and ask the runtime with crictl");
        }
        tokio::select! {
            () = tokio::time::sleep(REFRESH) => {}
            () = node.ended.cancelled() => bail!("the core stopped; see the log"),
            signal = interrupted() => {
                signal?;
                code = INTERRUPTED;
                // Asked twice: end at once.
                let bound = if ending == Ending::Interrupted { Some(1) } else { grace };
                ending = Ending::Interrupted;
                screen.say("ending the pods …");
                drain(node, &snapshot, bound, &mut deadline).await;
            }
        }
    }
    Ok(ExitCode::from(code))
}

async fn interrupted() -> std::io::Result<()> {
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        done = tokio::signal::ctrl_c() => done,
        _ = term.recv() => Ok(()),
    }
}

async fn drain(node: &Running, snapshot: &Snapshot, grace: Option<u32>, deadline: &mut Option<std::time::Instant>) {
    let longest = snapshot.pods().filter_map(|p| p.spec.as_ref()).map(|s| s.grace_seconds).max().unwrap_or(0);
    let bound = grace.map_or(longest, |g| g.min(longest));
    let at = std::time::Instant::now() + Duration::from_secs(u64::from(bound)) + DRAIN_SLACK;
    deadline.get_or_insert(at);
    let wish = Ingress::Control(ControlIngress::DrainRequested { grace_seconds: grace });
    // The driver takes facts until it ends; then there is nothing to drain.
    let _ = node.ingress.send(wish).await;
}

fn ours(snapshot: &Snapshot) -> impl Iterator<Item = &components::snapshot::PodView> {
    snapshot.pods().map(|pod| &**pod).filter(|pod| pod.spec.is_some())
}

/// Every pod has run to completion, and there is at least one.
fn completed(snapshot: &Snapshot) -> bool {
    snapshot.health.sources_ready
        && ours(snapshot).next().is_some()
        && ours(snapshot).all(|pod| pod.status.phase.is_terminal() && pod.stage == Stage::Done)
}

fn gone(snapshot: &Snapshot) -> bool {
    ours(snapshot).all(|pod| pod.buried)
}

/// Exit code of the first pod (by name) that failed: its first non-zero container exit code, else 1.
fn worst(snapshot: &Snapshot) -> u8 {
    let mut failed: Vec<_> = ours(snapshot).filter(|pod| pod.status.phase == Phase::Failed).collect();
    failed.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let Some(pod) = failed.first() else { return 0 };
    let codes = pod.status.init_containers.iter().chain(&pod.status.containers).filter_map(|c| match &c.state {
        ReportedState::Terminated { exit_code, .. } if *exit_code != 0 => Some(*exit_code),
        _ => None,
    });
    codes.map(|code| u8::try_from(code).unwrap_or(1)).next().unwrap_or(1)
}

/// What was last shown.
struct Screen {
    json: bool,
    terminal: bool,
    lines: usize,
    shown: Vec<table::Row>,
}

impl Screen {
    fn new(json: bool) -> Self {
        Self { json, terminal: std::io::stdout().is_terminal(), lines: 0, shown: Vec::new() }
    }

    fn show(&mut self, snapshot: &Snapshot) -> std::io::Result<()> {
        let rows = table::rows(snapshot);
        let mut out = std::io::stdout().lock();
        if self.json {
            for row in rows.iter().filter(|row| self.is_news(row)) {
                writeln!(out, "{}", serde_json::to_string(row).unwrap_or_default())?;
            }
        } else if self.terminal {
            if rows == self.shown {
                return Ok(());
            }
            let text = table::render(&rows, terminal_width());
            // Back to the first line of the picture before, and clear from there.
            if self.lines > 0 {
                write!(out, "\x1b[{}A\x1b[J", self.lines)?;
            }
            write!(out, "{text}")?;
            self.lines = text.lines().count();
        } else {
            let news: Vec<_> = rows.iter().filter(|row| self.is_news(row)).cloned().collect();
            if !news.is_empty() {
                let text = table::render(&news, 160);
                let skip = usize::from(!self.shown.is_empty());
                for line in text.lines().skip(skip) {
                    writeln!(out, "{line}")?;
                }
            }
        }
        out.flush()?;
        self.shown = rows;
        Ok(())
    }

    /// A row that differs from the one shown before in more than its age.
    fn is_news(&self, row: &table::Row) -> bool {
        let before = self.shown.iter().find(|old| old.pod == row.pod);
        before.is_none_or(|old| table::Row { age_seconds: row.age_seconds, ..old.clone() } != *row)
    }

    fn say(&mut self, text: &str) {
        eprintln!("{text}");
        self.lines = 0;
    }
}

/// Width of the terminal, from the environment's `COLUMNS` or 120.
fn terminal_width() -> usize {
    std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).filter(|w| *w >= 40).unwrap_or(120)
}
