//! The simulated runtime of one racer: a process of its own, asked over its control socket.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::site::{IMAGE, Site, tied};

/// Calls that change something in the runtime.
const CHANGES: [&str; 9] = [
    "CreateContainer",
    "PullImage",
    "RemoveContainer",
    "RemoveImage",
    "RemovePodSandbox",
    "RunPodSandbox",
    "StartContainer",
    "StopContainer",
    "StopPodSandbox",
];

/// How long one question may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A served runtime; stopped when dropped.
pub(super) struct Runtime {
    process: Child,
    socket: PathBuf,
}

/// What a runtime counted since it was started.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Counts {
    /// Containers that run now.
    pub(super) running: usize,
    /// Calls by name.
    pub(super) calls: BTreeMap<String, u64>,
}

impl Runtime {
    /// Starts a runtime with nothing in it but the image.
    pub(super) fn start(simulator: &Path, site: &Site) -> Result<Self> {
        let socket = site.socket();
        let log = File::create(site.dir().join("runtime.log"))?;
        let mut command = tied(simulator, site)?;
        command.args(["sim", "serve", "--listen", &format!("unix://{}", socket.display()), "--image", IMAGE]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let process = command.spawn().with_context(|| format!("cannot start {}", simulator.display()))?;
        Ok(Self { process, socket })
    }

    /// Whether it answers; an error when it has ended.
    pub(super) fn ready(&mut self) -> Result<bool> {
        if let Some(status) = self.process.try_wait()? {
            bail!("the simulated runtime ended by itself with {status}");
        }
        Ok(self.counts().is_ok())
    }

    /// What it counted.
    pub(super) fn counts(&self) -> Result<Counts> {
        let mut path = self.socket.as_os_str().to_owned();
        path.push(".ctl");
        let mut stream = UnixStream::connect(&path).context("cannot reach the simulated runtime")?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"count\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        read_counts(&answer)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        // It may have ended by itself; there is nothing else to do about it here.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Counts {
    /// All calls.
    pub(super) fn total(&self) -> u64 {
        self.calls.values().sum()
    }

    /// Calls that changed something.
    pub(super) fn changes(&self) -> u64 {
        CHANGES.iter().filter_map(|call| self.calls.get(*call)).sum()
    }
}

fn read_counts(answer: &str) -> Result<Counts> {
    let mut counts = Counts::default();
    for line in answer.lines() {
        let number = line.split_once(' ').and_then(|(name, number)| Some((name, number.parse::<u64>().ok()?)));
        match number {
            Some(("running", number)) => counts.running = usize::try_from(number)?,
            Some((call, number)) => {
                counts.calls.insert(call.to_owned(), number);
            }
            None => bail!("the simulated runtime answered `{line}`"),
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_and_summed() {
        let counts = read_counts("running 3\nContainerStatus 5\nStopContainer 2\n").unwrap();
        assert_eq!((counts.running, counts.total(), counts.changes()), (3, 7, 2));
        assert!(read_counts("error: unknown command\n").is_err());
    }
}
