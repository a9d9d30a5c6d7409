//! One kubelet process: started with the flags both have, measured through `/proc`, asked for its pods over HTTPS.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::site::{NODE, Site, own_address, tied};

/// Clock ticks per second in `/proc/PID/stat`: the same on every architecture of Linux.
const TICKS_PER_SECOND: f64 = 100.0;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A program that takes part.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    /// Its name in tables.
    pub(super) name: &'static str,
    /// Its binary.
    pub(super) program: PathBuf,
}

/// A running kubelet; killed when dropped.
pub(super) struct Racer {
    process: Child,
    port: u16,
    log: PathBuf,
}

impl Racer {
    /// Starts the program.
    pub(super) fn start(contender: &Contender, site: &Site) -> Result<Self> {
        let log = site.dir().join("kubelet.log");
        let file = File::options().create(true).append(true).open(&log)?;
        let mut command = tied(&contender.program, site)?;
        command.arg("--config").arg(site.config()).arg("--root-dir").arg(site.root());
        command.arg("--cert-dir").arg(site.root().join("pki"));
        command.args(["--hostname-override", NODE]);
        if let Some(address) = own_address() {
            command.args(["--node-ip", &address]);
        }
        if let Some(kubeconfig) = &site.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let process = command.spawn().with_context(|| format!("cannot start {}", contender.program.display()))?;
        Ok(Self { process, port: site.port, log })
    }

    /// Fails when it ended by itself.
    pub(super) fn check_alive(&mut self) -> Result<()> {
        match self.process.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("it ended by itself with {status}:\n{}", self.log_tail()),
        }
    }

    /// CPU seconds it has used.
    pub(super) fn cpu(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.process.id()))?;
        cpu_of(&stat).context("/proc/PID/stat is not what it should be")
    }

    /// Resident memory now and at its peak, in MiB.
    pub(super) fn memory(&self) -> Result<(f64, f64)> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process.id()))?;
        memory_of(&status).context("/proc/PID/status is not what it should be")
    }

    /// Threads it has.
    pub(super) fn threads(&self) -> Result<usize> {
        Ok(fs::read_dir(format!("/proc/{}/task", self.process.id()))?.count())
    }

    /// Pods that it says are running; 0 while it does not answer.
    pub(super) fn pods_reported(&self) -> usize {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--fail", "--max-time", "15"]);
        curl.arg(format!("https://127.0.0.1:{}/pods", self.port));
        let answer = ::tests::process::run(&mut curl, PATIENCE).and_then(::tests::process::Output::success);
        answer.map_or(0, |text| running_pods(&text))
    }

    /// Kills it as a crash would.
    pub(super) fn kill(mut self) -> Result<()> {
        self.check_alive()?;
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// The end of its log.
    pub(super) fn log_tail(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let from = log.lines().count().saturating_sub(20);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Racer {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// User and system time of a line of `/proc/PID/stat`; the second field is a name in brackets that may hold anything.
fn cpu_of(stat: &str) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

fn memory_of(status: &str) -> Option<(f64, f64)> {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib / 1024.0)
    };
    Some((field("VmRSS:")?, field("VmHWM:")?))
}

/// Pods of a list whose phase is Running and whose containers all run.
fn running_pods(list: &str) -> usize {
    let Ok(list) = serde_json::from_str::<Value>(list) else { return 0 };
    let runs = |pod: &&Value| {
        let containers = pod["status"]["containerStatuses"].as_array();
        pod["status"]["phase"] == "Running"
            && containers.is_some_and(|all| !all.is_empty() && all.iter().all(|c| c["state"]["running"].is_object()))
    };
    list["items"].as_array().map_or(0, |pods| pods.iter().filter(runs).count())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 5 6 7";
        assert_eq!(cpu_of(stat), Some(3.0));
        assert_eq!(cpu_of("garbage"), None);
        assert_eq!(memory_of("VmHWM:\t  4096 kB\nVmRSS:\t  2048 kB\n"), Some((2.0, 4.0)));
    }

    #[test]
    fn only_pods_whose_containers_run_count() {
        let pod = |phase: &str, state: &str| {
            format!(r#"{{"status":{{"phase":"{phase}","containerStatuses":[{{"state":{{"{state}":{{}}}}}}]}}}}"#)
        };
        let pods = [pod("Running", "running"), pod("Running", "waiting"), pod("Pending", "running"), "{}".to_owned()];
        assert_eq!(running_pods(&format!(r#"{{"items":[{}]}}"#, pods.join(","))), 1);
        assert_eq!(running_pods("no JSON"), 0);
    }
}
