//! `ticklet sim`: serves the simulated runtime as a CRI, and talks to one that is served.
//!
//! Reads its arguments; writes to standard output and error.

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The subcommand `sim` with its own subcommands.
pub(crate) fn command() -> Command {
    Command::new("sim")
        .about("A simulated container runtime, for tests and measurements")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(serve_command())
        .subcommand(
            Command::new("ctl")
                .about("Sends a command (list, count, kill, lose, fail, hang, down, drop-events, network, clear) to a served runtime")
                .arg(Arg::new("socket").required(true).value_name("SOCKET").help("Socket the runtime is served at"))
                .arg(
                    Arg::new("words")
                        .required(true)
                        .num_args(1..)
                        .value_name("COMMAND")
                        .help("For example: kill default/web/c 3"),
                ),
        )
}

fn serve_command() -> Command {
    Command::new("serve")
        .about("Serves the simulated runtime as a CRI on a unix socket")
        .arg(
            Arg::new("listen")
                .long("listen")
                .required(true)
                .value_name("ENDPOINT")
                .help("unix:///path of the socket; commands are taken at the same path with .ctl added"),
        )
        .arg(
            Arg::new("latency-ms")
                .long("latency-ms")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .default_value("0")
                .help("Milliseconds added to every call"),
        )
        .arg(
            Arg::new("no-events")
                .long("no-events")
                .action(ArgAction::SetTrue)
                .help("Serve neither the event stream nor RuntimeConfig, as older runtimes"),
        )
        .arg(
            Arg::new("root")
                .long("root")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Directory that stands for the image file system [default: beside the socket]"),
        )
        .arg(
            Arg::new("image")
                .long("image")
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("Image that is here from the start (may be repeated)"),
        )
        .arg(
            Arg::new("cgroup-driver")
                .long("cgroup-driver")
                .value_name("DRIVER")
                .value_parser(["cgroupfs", "systemd"])
                .default_value("cgroupfs")
                .help("cgroup driver to report"),
        )
}

/// Runs `ticklet sim …`.
pub(crate) fn run(matches: &ArgMatches) -> ExitCode {
    let result = match matches.subcommand() {
        Some(("serve", matches)) => serve(matches),
        Some(("ctl", matches)) => control(matches),
        _ => Err(io::Error::other("a subcommand is needed")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ticklet sim: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(matches: &ArgMatches) -> io::Result<()> {
    let options = options(matches)?;
    // One thread: the model is behind one lock, and a second core belongs to what is measured.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let ended = ended()?;
        eprintln!("ticklet sim: serving at {}", options.socket.display());
        sim::serve::serve(options, ended).await
    })
}

fn options(matches: &ArgMatches) -> io::Result<sim::serve::Options> {
    let listen = matches.get_one::<String>("listen").map_or("", String::as_str);
    let socket = socket_path(listen)?;
    let root = matches.get_one::<PathBuf>("root").cloned();
    Ok(sim::serve::Options {
        root: root.unwrap_or_else(|| socket.with_extension("images")),
        socket,
        latency: Duration::from_millis(matches.get_one::<u64>("latency-ms").copied().unwrap_or(0)),
        events: !matches.get_flag("no-events"),
        images: matches.get_many::<String>("image").into_iter().flatten().cloned().collect(),
        systemd_cgroups: matches.get_one::<String>("cgroup-driver").is_some_and(|d| d == "systemd"),
    })
}

/// Ends at SIGINT or SIGTERM.
fn ended() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn control(matches: &ArgMatches) -> io::Result<()> {
    let socket = socket_path(matches.get_one::<String>("socket").map_or("", String::as_str))?;
    let words: Vec<String> = matches.get_many::<String>("words").into_iter().flatten().cloned().collect();
    print!("{}", sim::serve::command(&socket, &words)?);
    Ok(())
}

fn socket_path(endpoint: &str) -> io::Result<PathBuf> {
    let path = Path::new(endpoint.strip_prefix("unix://").unwrap_or(endpoint));
    if path.is_absolute() {
        Ok(path.to_owned())
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{endpoint:?} is not unix:// and an absolute path")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(endpoint: &str, expect: Option<&str>) {
        assert_eq!(socket_path(endpoint).ok().as_deref(), expect.map(Path::new));
    }

    #[test]
    fn endpoints_are_absolute_paths() {
        check("unix:///run/x.sock", Some("/run/x.sock"));
        check("/run/x.sock", Some("/run/x.sock"));
        check("run/x.sock", None);
        check("tcp://1.2.3.4:5", None);
        check("", None);
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
        let matches = command()
            .try_get_matches_from(["sim", "serve", "--listen", "unix:///x", "--no-events", "--image", "a:1"])
            .unwrap();
        let options = options(matches.subcommand_matches("serve").unwrap()).unwrap();
        assert!(!options.events);
        assert_eq!(options.images, ["a:1"]);
        assert_eq!(options.root, Path::new("/x.images"));
    }
}
