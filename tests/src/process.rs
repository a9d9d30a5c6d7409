//! Processes with deadlines: run one to its end, stop one by its id, find those of a lab.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
pub use nix::sys::signal::Signal;
use nix::sys::signal::kill;
use nix::unistd::Pid;

/// What a finished command wrote.
#[derive(Debug)]
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// The standard output of a successful run; otherwise the error it printed.
    pub fn success(self) -> Result<String> {
        if !self.status.success() {
            bail!("{}: {}", self.status, self.stderr.trim());
        }
        Ok(self.stdout)
    }
}

/// Runs a command to its end; kills it when the deadline passes.
pub fn run(command: &mut Command, deadline: Duration) -> Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let Some(status) = wait(&mut child, deadline)? else {
        child.kill().and_then(|()| child.wait()).with_context(|| format!("cannot kill {command:?}"))?;
        bail!("no end after {deadline:?}: {command:?}");
    };
    let text = |thread: std::thread::JoinHandle<String>| thread.join().unwrap_or_default();
    Ok(Output { status, stdout: text(stdout), stderr: text(stderr) })
}

/// Waits for a child until the deadline; `None` when it still runs.
pub fn wait(child: &mut Child, deadline: Duration) -> Result<Option<ExitStatus>> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= end {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Asks a child to end, and kills it if it has not done so by the deadline; true when it ended by itself.
pub fn stop(child: &mut Child, signal: Signal, deadline: Duration) -> Result<bool> {
    if child.try_wait()?.is_some() {
        return Ok(true);
    }
    kill(pid_of(child)?, signal)?;
    if wait(child, deadline)?.is_some() {
        return Ok(true);
    }
    child.kill()?;
    child.wait()?;
    Ok(false)
}

/// Sends a signal to a child that may have ended already.
pub fn signal(child: &Child, signal: Signal) -> Result<()> {
    match kill(pid_of(child)?, signal) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).context("cannot send a signal"),
    }
}

fn pid_of(child: &Child) -> Result<Pid> {
    Ok(Pid::from_raw(i32::try_from(child.id())?))
}

/// Collects a stream on a thread of its own: a full pipe must not stop the child.
fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is still worth showing.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// One process of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its id.
    pub pid: i32,
    /// Its parent's id.
    pub parent: i32,
    /// Its command line.
    pub args: Vec<String>,
}

impl Process {
    /// The last part of the program's path.
    #[must_use]
    pub fn program(&self) -> &str {
        self.args.first().map_or("", |path| path.rsplit('/').next().unwrap_or(path))
    }

    /// Kills it; that it is gone already is fine.
    pub fn kill(&self) -> Result<()> {
        kill_pid(self.pid)
    }
}

/// Kills a process by its id; that it is gone already is fine.
pub fn kill_pid(pid: i32) -> Result<()> {
    match kill(Pid::from_raw(pid), Signal::SIGKILL) {
        Ok(()) | Err(nix::errno::Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot kill process {pid}")),
    }
}

/// All processes of this machine that have a command line.
pub fn all() -> Result<Vec<Process>> {
    let mut processes = Vec::new();
    for entry in std::fs::read_dir("/proc").context("cannot read /proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end while it is looked at.
        if let Some(process) = read(pid, &entry.path()) {
            processes.push(process);
        }
    }
    Ok(processes)
}

/// Reads one process; zombies and threads of the kernel have no command line and are left out.
fn read(pid: i32, dir: &Path) -> Option<Process> {
    let line = std::fs::read(dir.join("cmdline")).ok()?;
    let args: Vec<String> =
        line.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect();
    let stat = std::fs::read_to_string(dir.join("stat")).ok()?;
    // The second field is a name in brackets that may hold anything.
    let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    (!line.is_empty()).then_some(Process { pid, parent, args })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_killed() {
        let start = Instant::now();
        let error = run(Command::new("sleep").arg("60"), Duration::from_millis(100)).unwrap_err();
        assert!(error.to_string().contains("no end after"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn output_and_failure_are_told() {
        let ok = run(Command::new("sh").args(["-c", "echo out; echo err >&2"]), Duration::from_secs(10)).unwrap();
        assert_eq!((ok.stdout.as_str(), ok.stderr.as_str()), ("out\n", "err\n"));
        let bad = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"]), Duration::from_secs(10)).unwrap();
        assert!(bad.success().unwrap_err().to_string().ends_with("why"));
    }

    #[test]
    fn own_process_is_found_with_its_parent() {
        let me = i32::try_from(std::process::id()).unwrap();
        let all = all().unwrap();
        let found = all.iter().find(|process| process.pid == me).unwrap();
        assert_eq!(found.parent, nix::unistd::getppid().as_raw());
    }
}
