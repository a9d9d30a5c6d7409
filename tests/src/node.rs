//! A ticklet process on a lab: its configuration, its manifests, its log, and waiting with a deadline.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::crictl::{Container, Crictl};
use crate::lab::Lab;
use crate::process;

/// The node's name in all tests.
pub const NODE: &str = "lab";

/// A node: the lab below it and the ticklet that runs on it now, if one does.
#[derive(Debug)]
pub struct Node {
    ticklet: Option<Child>,
    port: u16,
    healthz_port: u16,
    crictl: Crictl,
    /// Given with `--kubeconfig`, where there is a cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Variables of its environment, besides the test's own.
    pub environment: Vec<(&'static str, String)>,
    /// Further flags, for the next start.
    pub flags: Vec<String>,
    /// The kubelet that [`Self::start`] starts; the ticklet that was built with the tests if none is given.
    pub program: Option<PathBuf>,
    /// The runtime and everything else below ticklet. Declared after the process: it goes first.
    pub lab: Lab,
}

impl Node {
    /// A node without a running ticklet.
    pub fn new(lab: Lab) -> Result<Self> {
        let [port, healthz_port] = free_ports()?;
        let node = Self {
            ticklet: None,
            port,
            healthz_port,
            crictl: lab.crictl()?,
            kubeconfig: None,
            environment: Vec::new(),
            flags: Vec::new(),
            program: None,
            lab,
        };
        fs::create_dir_all(node.manifests())?;
        fs::write(node.config_file(), node.configuration())?;
        Ok(node)
    }

    /// A node with a running ticklet.
    pub fn start_new(lab: Lab) -> Result<Self> {
        let mut node = Self::new(lab)?;
        node.start()?;
        Ok(node)
    }

    /// The folder whose manifests the node runs.
    #[must_use]
    pub fn manifests(&self) -> PathBuf {
        self.lab.dir().join("manifests")
    }

    /// The kubelet's root folder.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.lab.dir().join("kubelet")
    }

    /// The folder of the containers' logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.lab.dir().join("pod-logs")
    }

    /// Where ticklet keeps its traces.
    #[must_use]
    pub fn traces(&self) -> PathBuf {
        self.root().join("traces")
    }

    /// The TLS port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The kubelet's process id.
    pub fn pid(&self) -> Result<u32> {
        Ok(self.ticklet.as_ref().context("ticklet is not running")?.id())
    }

    /// crictl on the node's runtime.
    #[must_use]
    pub fn crictl(&self) -> &Crictl {
        &self.crictl
    }

    fn config_file(&self) -> PathBuf {
        self.lab.dir().join("kubelet-config.yaml")
    }

    fn log_file(&self) -> PathBuf {
        self.lab.dir().join("ticklet.log")
    }

    fn configuration(&self) -> String {
        format!(
            "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: {manifests}
podLogsDir: {logs}
containerRuntimeEndpoint: {endpoint}
cgroupRoot: {cgroup}
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
address: 127.0.0.1
port: {port}
healthzBindAddress: 127.0.0.1
healthzPort: {healthz}
volumePluginDir: {plugins}
makeIPTablesUtilChains: false
evictionHard: {{memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}}
imageGCHighThresholdPercent: 100
authentication:
  anonymous:
    enabled: true
  webhook:
    enabled: false
authorization:
  mode: AlwaysAllow
",
            manifests = self.manifests().display(),
            logs = self.logs().display(),
            endpoint = self.lab.endpoint(),
            cgroup = self.lab.cgroup(),
            plugins = self.lab.dir().join("volume-plugins").display(),
            port = self.port,
            healthz = self.healthz_port,
        )
    }

    /// Adds lines to the configuration file, for the next start.
    pub fn configure(&self, lines: &str) -> Result<()> {
        let mut file = File::options().append(true).open(self.config_file())?;
        writeln!(file, "{lines}").context("cannot add to the configuration")
    }

    /// Starts a kubelet program with the flags that ticklet and the reference share.
    pub fn start_program(&mut self, program: &Path) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log_file())?;
        let mut command = Command::new(program);
        command.arg("--config").arg(self.config_file()).arg("--root-dir").arg(self.root());
        command.arg("--cert-dir").arg(self.root().join("pki"));
        command.args(["--hostname-override", NODE, "--node-ip", &self.lab.address(), "--v=2"]);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.arg("--kubeconfig").arg(kubeconfig);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.args(&self.flags);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        self.ticklet = Some(child);
        Ok(())
    }

    /// Starts the node's kubelet.
    pub fn start(&mut self) -> Result<()> {
        let program = self.program.clone().map_or_else(ticklet, Ok)?;
        self.start_program(&program)
    }

    /// Kills ticklet as a crash would; its containers run on.
    pub fn kill9(&mut self) -> Result<()> {
        let Some(mut child) = self.ticklet.take() else {
            return Ok(());
        };
        if let Some(status) = child.try_wait()? {
            bail!("ticklet had ended by itself with {status}:\n{}", self.log_tail());
        }
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks ticklet to end; its containers run on.
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.ticklet.take() else {
            return Ok(());
        };
        if !process::stop(&mut child, Signal::SIGTERM, Duration::from_secs(20))? {
            bail!("ticklet did not end within 20 s of SIGTERM:\n{}", self.log_tail());
        }
        Ok(())
    }

    /// Fails when ticklet ended by itself.
    pub fn check_alive(&mut self) -> Result<()> {
        let status = self.ticklet.as_mut().context("ticklet is not running")?.try_wait()?;
        match status {
            None => Ok(()),
            Some(status) => bail!("ticklet ended by itself with {status}:\n{}", self.log_tail()),
        }
    }

    /// Puts a manifest into the folder, whole at once, as an editor or a deployment tool does.
    pub fn put(&self, file: &str, content: impl AsRef<[u8]>) -> Result<()> {
        let hidden = self.manifests().join(format!(".{file}.new"));
        fs::write(&hidden, content)?;
        fs::rename(&hidden, self.manifests().join(file)).with_context(|| format!("cannot put {file}"))
    }

    /// Takes a manifest out of the folder.
    pub fn remove(&self, file: &str) -> Result<()> {
        fs::remove_file(self.manifests().join(file)).with_context(|| format!("cannot remove {file}"))
    }

    /// The running containers of a static pod, given by its name in the manifest.
    pub fn running(&self, pod: &str) -> Result<Vec<Container>> {
        let mut containers = self.crictl.containers_of(&format!("{pod}-{NODE}"))?;
        containers.retain(Container::is_running);
        Ok(containers)
    }

    /// Waits until exactly one container of the pod runs.
    pub fn wait_running(&mut self, pod: &str, deadline: Duration) -> Result<Container> {
        self.wait(&format!("pod {pod} runs"), deadline, |node| {
            let mut running = node.running(pod)?;
            Ok(if running.len() == 1 { running.pop() } else { None })
        })
    }

    /// Waits until the pod has neither a running container nor a ready sandbox.
    pub fn wait_gone(&mut self, pod: &str, deadline: Duration) -> Result<()> {
        self.wait(&format!("pod {pod} is gone"), deadline, |node| {
            let name = format!("{pod}-{NODE}");
            let ready = node.crictl.pods()?.iter().any(|sandbox| sandbox.name == name && sandbox.ready);
            Ok((!ready && node.running(pod)?.is_empty()).then_some(()))
        })
    }

    /// Asks again and again until there is an answer; the failure tells what was waited for and what ticklet said.
    pub fn wait<T>(
        &mut self,
        what: &str,
        deadline: Duration,
        mut ask: impl FnMut(&Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let end = Instant::now() + deadline;
        loop {
            let answer = ask(self);
            if let Ok(Some(answer)) = answer {
                return Ok(answer);
            }
            if self.ticklet.is_some() {
                self.check_alive()?;
            }
            if Instant::now() >= end {
                let why = answer.err().map(|error| format!(" ({error:#})")).unwrap_or_default();
                bail!("not within {deadline:?}: {what}{why}\n{}", self.log_tail());
            }
            std::thread::sleep(Duration::from_millis(25));
        }
    }

    /// The text of a container's log, newest file first.
    pub fn container_log(&self, container: &Container) -> Result<String> {
        let path = &self.crictl.inspect(&container.id)?["status"]["logPath"];
        let path = path.as_str().context("a container without a log path")?;
        fs::read_to_string(path).with_context(|| format!("cannot read {path}"))
    }

    /// What `/healthz` answers: the status code, or an error while nobody listens.
    pub fn healthz(&self) -> Result<u16> {
        let address = SocketAddr::from(([127, 0, 0, 1], self.healthz_port));
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2))?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let code = answer.split(' ').nth(1).context("no HTTP answer")?;
        Ok(code.parse()?)
    }

    /// What the kubelet's own port answers to a GET, whatever its certificate.
    pub fn get(&self, path: &str) -> Result<String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--fail", "--max-time", "10"]);
        curl.arg(format!("https://127.0.0.1:{}{path}", self.port));
        process::run(&mut curl, Duration::from_secs(15))?.success()
    }

    /// The pods as the kubelet's own port shows them.
    pub fn pods(&self) -> Result<serde_json::Value> {
        serde_json::from_str(&self.get("/pods")?).context("the list of pods is no JSON")
    }

    /// The address of the node that pods reach.
    #[must_use]
    pub fn address(&self) -> String {
        self.lab.address()
    }

    /// The status of a pod, given by its full name, as `/pods` shows it.
    pub fn pod_status(&self, name: &str) -> Result<serde_json::Value> {
        let mut pods = self.pods()?;
        let items = pods["items"].as_array_mut().context("/pods has no items")?;
        let found = items.iter_mut().find(|pod| pod["metadata"]["name"] == name);
        Ok(found.with_context(|| format!("/pods has no {name}"))?["status"].take())
    }

    /// Everything ticklet wrote so far.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(self.log_file()).context("cannot read ticklet's log")
    }

    fn log_tail(&self) -> String {
        let log = self.log().unwrap_or_default();
        let from = log.lines().count().saturating_sub(40);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = self.ticklet.as_mut() {
            // It may have ended; the lab's teardown looks again.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The ticklet program that was built with the tests.
pub fn ticklet() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("TICKLET_BIN") {
        return Ok(path.into());
    }
    // Test programs lie in `target/PROFILE/deps`, the binary one folder up.
    let me = std::env::current_exe()?;
    let found = me.ancestors().skip(1).take(2).map(|dir| dir.join("ticklet")).find(|path| path.is_file());
    found.context("no ticklet beside the tests: run `cargo build --workspace --bins`")
}

/// Two ports that nobody listens on at the moment.
fn free_ports() -> Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}
