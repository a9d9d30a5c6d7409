//! `ticklet replay` and `ticklet trace`: run recordings again, and look into them.
//!
//! Reads the files it is given; writes to standard output, and to files named on the command line that are not there
//! yet. Exit codes: 0 all is the same, 1 something else was decided, 2 the request or the file is unusable.

pub(crate) mod replaying;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::io::{BufWriter, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use trace::story::{Names, Story, story};
use trace::{Item, Reader};

/// Larger files than this are no trace of ours (a file of the ring has about 64 MiB).
const MAX_FILE: u64 = 1 << 30;
/// Exit code when something else was decided.
const DIFFERENT: u8 = 1;
/// Exit code when the request or the file is unusable.
const UNUSABLE: u8 = 2;

/// The subcommands `replay` and `trace`.
pub(crate) fn commands() -> [Command; 2] {
    let file = || {
        Arg::new("file").required(true).value_name("FILE").value_parser(value_parser!(PathBuf)).help("Trace to read")
    };
    let tick = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("TICK").value_parser(value_parser!(u64)).help(help)
    };
    let path = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").value_parser(value_parser!(PathBuf)).help(help)
    };
    let replay = Command::new("replay")
        .about("Run a recorded trace again and report the first tick that decides something else")
        .arg(file())
        .arg(
            Arg::new("pod")
                .long("pod")
                .value_name("NAME")
                .help("Tell this pod's story instead (name, namespace/name or uid)"),
        )
        .arg(path("config", "Run it with another KubeletConfiguration and list what would be decided otherwise"))
        .arg(path("renew", "Write the same inputs with what is decided now to this file, which must not be there"))
        .arg(path("report", "Write a self-contained HTML page to this file, which must not be there"));
    let trace = Command::new("trace")
        .about("Look into recorded traces")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(Command::new("info").about("Show what a trace holds, in numbers").arg(file()).arg(json()))
        .subcommand(
            Command::new("show")
                .about("Print inputs and decisions tick by tick")
                .arg(file())
                .arg(tick("from", "First tick"))
                .arg(tick("to", "Last tick"))
                .arg(json()),
        )
        .subcommand(
            Command::new("cut")
                .about("Write a part of a trace to a new file; it can be replayed when it keeps the first tick")
                .arg(file())
                .arg(
                    Arg::new("out")
                        .required(true)
                        .value_name("OUT")
                        .value_parser(value_parser!(PathBuf))
                        .help("File to write, which must not be there"),
                )
                .arg(tick("from", "First tick"))
                .arg(tick("to", "Last tick")),
        );
    [replay, trace]
}

/// Runs `ticklet replay`.
pub(crate) fn run_replay(matches: &ArgMatches) -> ExitCode {
    ended(replay(matches))
}

/// Runs `ticklet trace`.
pub(crate) fn run_trace(matches: &ArgMatches) -> ExitCode {
    ended(match matches.subcommand() {
        Some(("info", matches)) => info(matches),
        Some(("show", matches)) => show(matches),
        Some(("cut", matches)) => cut(matches),
        _ => Err(anyhow::anyhow!("one of info, show and cut is needed")),
    })
}

fn json() -> Arg {
    Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON")
}

fn ended(result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        // Whoever reads our output may stop at any time.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(UNUSABLE)
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

fn replay(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (path, data) = input(matches)?;
    let mut out = std::io::stdout().lock();
    if let Some(name) = matches.get_one::<String>("pod") {
        return pod(&mut out, &path, &data, name);
    }
    if let Some(to) = matches.get_one::<PathBuf>("renew") {
        let renewed = replaying::renew(&data).with_context(|| format!("failed to replay {}", path.display()))?;
        create(to, &renewed)?;
        writeln!(out, "written to {}", to.display())?;
        return Ok(ExitCode::SUCCESS);
    }
    let other = matches.get_one::<PathBuf>("config").map(PathBuf::as_path);
    let verdict =
        replaying::replay_file(&data, other).with_context(|| format!("failed to replay {}", path.display()))?;
    write!(out, "{}", verdict.text)?;
    if let Some(report) = matches.get_one::<PathBuf>("report") {
        let page = trace::page::page(&data, &verdict.text)?;
        create(report, page.as_bytes())?;
        writeln!(out, "report written to {}", report.display())?;
    }
    Ok(if verdict.same { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

fn pod(out: &mut dyn Write, path: &Path, data: &[u8], name: &str) -> anyhow::Result<ExitCode> {
    match story(data, name).with_context(|| format!("failed to read {}", path.display()))? {
        Story::Unknown(pods) if pods.is_empty() => bail!("no pod {name:?} in this trace, nor any other"),
        Story::Unknown(pods) => bail!("no pod {name:?} in this trace; there are: {}", pods.join(", ")),
        Story::Told { pods, events } => {
            writeln!(out, "{}", pods.join("\n"))?;
            for event in events {
                let mark = if event.came_in { '<' } else { '>' };
                let wall = event.now.wall.rfc3339_nano();
                writeln!(out, "{:>8} {wall} {mark} {}", event.tick, event.text)?;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn info(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (path, data) = input(matches)?;
    let info = trace::info::info(&data).with_context(|| format!("failed to read {}", path.display()))?;
    let mut out = std::io::stdout().lock();
    if matches.get_flag("json") {
        writeln!(out, "{}", serde_json::to_string_pretty(&info)?)?;
    } else {
        write!(out, "{info}")?;
    }
    Ok(if info.damage.is_some() { ExitCode::from(DIFFERENT) } else { ExitCode::SUCCESS })
}

fn show(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (path, data) = input(matches)?;
    let failed = || format!("failed to read {}", path.display());
    let (from, to) = span(matches)?;
    let mut reader = Reader::open(&data).with_context(failed)?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut names = Names::default();
    loop {
        let item = match reader.next_item() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(error) => {
                out.flush()?;
                return Err(error).with_context(failed);
            }
        };
        let tick = match &item {
            Item::Frame(frame) => frame.tick,
            Item::Gap(gap) => gap.after_tick,
        };
        if tick > to {
            break;
        }
        if tick >= from {
            if matches.get_flag("json") {
                show_json(&mut out, &item)?;
            } else {
                show_text(&mut out, &item, &mut names)?;
            }
        } else if let Item::Frame(frame) = &item {
            names.learn(frame);
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn show_json(out: &mut dyn Write, item: &Item) -> anyhow::Result<()> {
    match item {
        Item::Frame(frame) => writeln!(out, "{}", serde_json::to_string(frame)?)?,
        Item::Gap(gap) => writeln!(out, "{}", serde_json::json!({ "gap": gap }))?,
    }
    Ok(())
}

fn show_text(out: &mut dyn Write, item: &Item, names: &mut Names) -> anyhow::Result<()> {
    let frame = match item {
        Item::Frame(frame) => frame,
        Item::Gap(gap) => {
            writeln!(out, "-- {} ticks after tick {} are missing", gap.frames, gap.after_tick)?;
            return Ok(());
        }
    };
    let mono = std::time::Duration::from_nanos(frame.now.mono.0).as_secs_f64();
    writeln!(out, "tick {} {} {mono:.3} s", frame.tick, frame.now.wall.rfc3339_nano())?;
    for input in &frame.inputs {
        writeln!(out, "  < {}", names.input(input))?;
    }
    names.learn(frame);
    match &frame.effects {
        Some(effects) => {
            for line in &effects.lines {
                writeln!(out, "  > {}", names.line(line))?;
            }
        }
        None => writeln!(out, "  ! this tick did not end")?,
    }
    Ok(())
}

fn cut(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let (path, data) = input(matches)?;
    let (from, to) = span(matches)?;
    let part = trace::cut::cut(&data, from, to).with_context(|| format!("failed to cut {}", path.display()))?;
    let Some(out) = matches.get_one::<PathBuf>("out") else {
        bail!("an output file is needed");
    };
    create(out, &part)?;
    let info = trace::info::info(&part)?;
    let replay = if info.from_boot { "can be replayed" } else { "cannot be replayed: the first tick is not in it" };
    println!("{} ticks, {} bytes, {replay}", info.ticks, part.len());
    Ok(ExitCode::SUCCESS)
}

fn span(matches: &ArgMatches) -> anyhow::Result<(u64, u64)> {
    let from = matches.get_one::<u64>("from").copied().unwrap_or(0);
    let to = matches.get_one::<u64>("to").copied().unwrap_or(u64::MAX);
    if from > to {
        bail!("--from {from} is after --to {to}");
    }
    Ok((from, to))
}

fn input(matches: &ArgMatches) -> anyhow::Result<(PathBuf, Vec<u8>)> {
    let Some(path) = matches.get_one::<PathBuf>("file") else {
        bail!("a file is needed");
    };
    let failed = || format!("failed to read {}", path.display());
    let metadata = std::fs::metadata(path).with_context(failed)?;
    if !metadata.is_file() {
        bail!("{} is not a regular file", path.display());
    }
    if metadata.len() > MAX_FILE {
        bail!("{} has {} bytes, which is no trace of ticklet", path.display(), metadata.len());
    }
    Ok((path.clone(), std::fs::read(path).with_context(failed)?))
}

/// Writes a new file that only its owner may read.
fn create(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let failed = || format!("failed to write {}", path.display());
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.with_context(failed)?.write_all(bytes).with_context(failed)
}
