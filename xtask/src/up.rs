//! `cargo xtask up`: the example pods on a real containerd, live, until Ctrl-C.
//!
//! Starts a private containerd unless an endpoint is given, runs `ticklet up` on it, passes Ctrl-C on, and removes
//! everything afterwards.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tests::lab::{Lab, Runtime};
use tests::process::{self, Signal};

use crate::run::{cargo, root, run};
use crate::{install, lab};

/// The variable that names a runtime to use instead of a private one.
const ENDPOINT_VARIABLE: &str = "TICKLET_RUNTIME_ENDPOINT";

/// What `ticklet up` ends with after Ctrl-C.
const INTERRUPTED: i32 = 130;

/// After Ctrl-C ticklet ends its pods within their grace periods; the examples' longest is 30 s.
const END_DEADLINE: Duration = Duration::from_secs(90);

/// What the command line asks for.
struct Asked {
    endpoint: Option<String>,
    runtime: Runtime,
    /// Further words for `ticklet up`; the examples when no path is among them.
    rest: Vec<String>,
}

/// Builds ticklet, runs it on the examples or on the given paths, and cleans up.
pub(crate) fn task(args: &[String]) -> Result<()> {
    let asked = parse(args)?;
    run(cargo(&["build", "--release", "--locked", "--package", "ticklet"]))?;
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot wait for signals")?;
    let Some(endpoint) = &asked.endpoint else {
        install::tools()?;
        install::sweep()?;
        let mut private = Lab::start(asked.runtime)?;
        println!("{} on {}", asked.runtime.check()?, private.endpoint());
        let root = private.dir().join("kubelet").display().to_string();
        let extra = ["--root-dir".to_owned(), root, "--cgroup-root".to_owned(), private.cgroup()];
        let end = follow(start(&asked, &private.endpoint(), &extra)?, &mut signals);
        lab::clean(&mut private)?;
        return finish(end?);
    };
    finish(follow(start(&asked, endpoint, &[])?, &mut signals)?)
}

/// Reads the words meant for this task; all others go to ticklet.
fn parse(args: &[String]) -> Result<Asked> {
    let variable = std::env::var(ENDPOINT_VARIABLE).ok().filter(|endpoint| !endpoint.is_empty());
    let mut asked = Asked { endpoint: variable, runtime: Runtime::Containerd2, rest: Vec::new() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--runtime-endpoint" => {
                asked.endpoint = Some(args.next().context("--runtime-endpoint needs a value")?.clone())
            }
            "--containerd1" => asked.runtime = Runtime::Containerd1,
            _ => asked.rest.push(arg.clone()),
        }
    }
    if !asked.rest.iter().any(|word| root().join(word).exists()) {
        asked.rest.push("examples".to_owned());
    }
    Ok(asked)
}

fn start(asked: &Asked, endpoint: &str, extra: &[String]) -> Result<Child> {
    let program = root().join("target/release/ticklet");
    let mut command = Command::new(&program);
    command.arg("up").args(&asked.rest).args(["--runtime-endpoint", endpoint]).args(extra).current_dir(root());
    // In a group of its own a terminal's Ctrl-C reaches only this task, which passes it on exactly once.
    command.process_group(0);
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

/// Waits for ticklet's end; a signal to this task is passed on once, then the end has a deadline.
fn follow(mut ticklet: Child, signals: &mut Signals) -> Result<ExitStatus> {
    let mut asked_to_end: Option<Instant> = None;
    loop {
        if let Some(status) = process::wait(&mut ticklet, Duration::from_millis(200))? {
            return Ok(status);
        }
        if signals.pending().next().is_some() && asked_to_end.is_none() {
            process::signal(&ticklet, Signal::SIGINT)?;
            asked_to_end = Some(Instant::now());
        }
        if asked_to_end.is_some_and(|since| since.elapsed() > END_DEADLINE) {
            ticklet.kill()?;
            ticklet.wait()?;
            bail!("ticklet did not end within {END_DEADLINE:?}");
        }
    }
}

fn finish(status: ExitStatus) -> Result<()> {
    if !status.success() && status.code() != Some(INTERRUPTED) {
        bail!("ticklet up ended with {status}");
    }
    Ok(())
}
