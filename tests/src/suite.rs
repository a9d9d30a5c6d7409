//! The official conformance suite on one node: control plane, containerd, a kubelet, the suite's images, and a run of the
//! suite's programs with its report.
//!
//! The node stands on a lab, so that nothing of the machine is touched but the ports a kubelet has by default, which the
//! suite expects: 10250, 10248 and 10255.

mod debian;
mod images;
mod layout;
mod registry;
pub mod report;

use std::fs::{self, File};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cluster::Cluster;
use crate::lab::{Lab, Runtime};
use crate::node::{NODE, Node};
use crate::process;
use crate::tools::{self, SuiteTools};

/// Ports the suite expects a kubelet on.
const PORTS: [u16; 3] = [10250, 10248, 10255];
const READY: Duration = Duration::from_secs(120);
/// Specs that run are let end when asked to, which may take minutes; this is not waited for.
const END: Duration = Duration::from_secs(30);

/// A group of specs: which program runs them and how they are chosen.
#[derive(Debug)]
pub struct Group {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// The program.
    program: &'static str,
    /// An expression over the specs' labels.
    labels: &'static str,
    /// A pattern of names.
    focus: Option<&'static str>,
    /// A pattern of source files.
    files: Option<&'static str>,
    /// A pattern of names that are left out.
    skip: Option<&'static str>,
}

/// All groups.
pub const GROUPS: [Group; 4] = [
    Group {
        name: "conformance",
        program: "e2e.test",
        labels: "sig-node && Conformance && !Serial && !Disruptive",
        focus: None,
        files: None,
        skip: None,
    },
    Group {
        name: "node",
        program: "e2e.test",
        labels: "sig-node && NodeConformance && !Conformance && !Serial && !Disruptive && !Slow && !Flaky && \
                 !/^Feature:/ && !Alpha && !BetaOffByDefault",
        focus: None,
        files: None,
        skip: None,
    },
    Group {
        name: "storage",
        program: "e2e.test",
        labels: "sig-storage && (Conformance || NodeConformance) && !Serial && !Disruptive && !Slow && !Flaky && \
                 !/^Feature:/ && !Alpha && !BetaOffByDefault",
        focus: Some(r"\[sig-storage\] (ConfigMap|Secrets|Projected|Downward|EmptyDir|HostPath|Subpath)"),
        files: None,
        skip: None,
    },
    Group {
        name: "e2e-node",
        program: "e2e_node.test",
        labels: "NodeConformance && !Serial && !Slow && !Flaky && !Alpha && !BetaOffByDefault && !/^Feature:/",
        focus: None,
        files: Some("test/e2e_node/"),
        // The managers of devices, processors and memory are tested with those.
        skip: Some(r"Device Plugin Failures"),
    },
];

/// The group of this name.
#[must_use]
pub fn group(name: &str) -> Option<&'static Group> {
    GROUPS.iter().find(|group| group.name == name)
}

/// A node of a cluster with the suite's images. Dropping it ends and removes everything.
#[derive(Debug)]
pub struct Rig {
    tools: SuiteTools,
    /// The control plane. It lies in the lab's folder and goes before it.
    pub cluster: Cluster,
    /// The kubelet and its runtime.
    pub node: Node,
    repositories: PathBuf,
}

impl Rig {
    /// Starts everything; the kubelet is `kubelet`, or ticklet.
    ///
    /// # Errors
    /// When a port is taken or a part does not come up.
    pub fn start(tools: SuiteTools, kubelet: &Path) -> Result<Self> {
        for port in PORTS {
            TcpListener::bind(("0.0.0.0", port))
                .with_context(|| format!("port {port} is a kubelet's, and is taken"))?;
        }
        let images = images::ensure(&tools)?;
        let registry = registry::serve(&images)?;
        let mut lab = Lab::start(Runtime::Containerd2)?;
        more_handlers(&mut lab)?;
        lab.make_bridge()?;
        let mut cluster = Cluster::start(&lab.dir().join("cluster"))?;
        cluster.start_controllers()?;
        let repositories = lab.dir().join("repositories.yaml");
        let list =
            [("promoterE2eRegistry", "/e2e-test-images"), ("gcRegistry", ""), ("buildImageRegistry", "/build-image")];
        let list = list.map(|(name, path)| format!("{name}: localhost:{registry}{path}\n")).concat();
        fs::write(&repositories, list)?;
        let mut node = Node::new(lab)?;
        node.kubeconfig = Some(cluster.kubeconfig("node"));
        fs::write(node.lab.dir().join("kubelet-config.yaml"), configuration(&node, &cluster))?;
        node.start_program(kubelet)?;
        let mut rig = Self { tools, node, cluster, repositories };
        rig.wait_ready()?;
        Ok(rig)
    }

    /// Ends the kubelet and the control plane; the lab is the caller's to tear down.
    ///
    /// # Errors
    /// When the kubelet does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.cluster.stop();
        self.node.stop()
    }

    fn wait_ready(&mut self) -> Result<()> {
        let path = ".status.conditions[?(@.type==\"Ready\")].status";
        let ready = self.cluster.wait_field(&format!("node/{NODE}"), path, "True", READY);
        self.node.check_alive()?;
        ready.context("the node does not become ready")?;
        // Pods wait for the account of their namespace and the cluster's certificate.
        self.cluster.wait_field("configmap/kube-root-ca.crt", ".metadata.name", "kube-root-ca.crt", READY)
    }

    /// Starts a run of a group's specs, or of those that match a pattern; its report is written to `out`.
    ///
    /// # Errors
    /// When a file cannot be written or the program not be started.
    pub fn run(&self, group: &Group, focus: Option<&str>, procs: u16, out: &Path) -> Result<Run> {
        fs::create_dir_all(out)?;
        let report = out.join("report.json");
        if report.exists() {
            fs::remove_file(&report)?;
        }
        let mut command = Command::new(self.tools.program("ginkgo"));
        command.arg("run").arg(format!("--procs={procs}")).arg(format!("--label-filter={}", group.labels));
        command.args(["--timeout=3h", "--poll-progress-after=5m", "--no-color", "--silence-skips", "--succinct"]);
        command.arg(format!("--output-dir={}", out.display())).arg("--json-report=report.json");
        for (flag, value) in [("focus", focus.or(group.focus)), ("focus-file", group.files), ("skip", group.skip)] {
            command.args(value.map(|value| format!("--{flag}={value}")));
        }
        command.arg(self.tools.program(group.program)).arg("--").args(self.suite_flags(group, out)?);
        // The suite writes some files into its working folder.
        let work = self.node.lab.dir().join("suite");
        fs::create_dir_all(&work)?;
        let log = File::create(out.join("log.txt"))?;
        command.current_dir(work).env("HOME", self.node.lab.dir()).env("KUBE_TEST_REPO_LIST", &self.repositories);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        Ok(Run { child: command.spawn().context("cannot start ginkgo")?, report })
    }

    fn suite_flags(&self, group: &Group, out: &Path) -> Result<Vec<String>> {
        let lab = &self.node.lab;
        let mut flags = vec![format!("--container-runtime-endpoint={}", lab.endpoint())];
        if group.program == "e2e_node.test" {
            let server = self.cluster.server();
            flags.extend([
                "--start-services=false".to_owned(),
                "--stop-services=false".to_owned(),
                format!("--host={server}"),
                format!("--bearer-token={}", self.token()?),
                format!("--node-name={NODE}"),
                "--prepull-images=false".to_owned(),
                format!("--config-dir={}", lab.dir().join("suite/config").display()),
                "--dns-domain=cluster.local".to_owned(),
            ]);
        } else {
            flags.extend([
                format!("--kubeconfig={}", self.cluster.kubeconfig("admin").display()),
                "--provider=skeleton".to_owned(),
                "--num-nodes=1".to_owned(),
                "--allowed-not-ready-nodes=0".to_owned(),
                "--minStartupPods=0".to_owned(),
                "--node-os-distro=debian".to_owned(),
                "--disable-log-dump".to_owned(),
                format!("--kubectl-path={}", tools::kube_bin()?.join("kubectl").display()),
                format!("--kubelet-root-dir={}", self.node.root().display()),
            ]);
        }
        flags.push(format!("--report-dir={}", out.display()));
        Ok(flags)
    }

    /// A token of an administrator, for the suite that takes nothing else.
    fn token(&self) -> Result<String> {
        let account = "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: e2e-node, namespace: kube-system}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: e2e-node}\n\
             roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\n\
             subjects: [{kind: ServiceAccount, name: e2e-node, namespace: kube-system}]\n";
        self.cluster.apply(account)?;
        let token = self.cluster.kubectl(&["-n", "kube-system", "create", "token", "e2e-node", "--duration=8h"])?;
        Ok(token.trim().to_owned())
    }
}

/// A running group.
#[derive(Debug)]
pub struct Run {
    child: Child,
    report: PathBuf,
}

impl Run {
    /// Waits a little; the path of the report once the run has ended.
    ///
    /// # Errors
    /// When the program ended without a report.
    pub fn wait(&mut self, time: Duration) -> Result<Option<&Path>> {
        let Some(status) = process::wait(&mut self.child, time)? else { return Ok(None) };
        if !self.report.exists() {
            bail!("the suite ended with {status} and wrote no report");
        }
        Ok(Some(&self.report))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let Ok(group) = i32::try_from(self.child.id()).map(Pid::from_raw) else { return };
        // Asked once to end its specs in order; then it has to go.
        let _ = killpg(group, Signal::SIGINT);
        let since = Instant::now();
        while since.elapsed() < END && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = killpg(group, Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

/// One spec asks for a runtime handler of this name.
fn more_handlers(lab: &mut Lab) -> Result<()> {
    lab.stop_containerd()?;
    let handler = format!(
        "\n[plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.test-handler]\n  runtime_type = \"io.containerd.runc.v2\"\n\
         [plugins.\"io.containerd.cri.v1.runtime\".containerd.runtimes.test-handler.options]\n  SystemdCgroup = false\n  Root = \"{}/runc\"\n",
        lab.dir().display()
    );
    File::options().append(true).open(lab.dir().join("containerd.toml"))?.write_all(handler.as_bytes())?;
    lab.start_containerd()
}

/// A kubelet's defaults, but for what keeps it inside of the lab and what this kind of machine needs.
fn configuration(node: &Node, cluster: &Cluster) -> String {
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
address: 0.0.0.0
port: 10250
readOnlyPort: 10255
healthzBindAddress: 127.0.0.1
healthzPort: 10248
clusterDomain: cluster.local
resolvConf: {resolv}
volumePluginDir: {plugins}
serializeImagePulls: false
evictionHard: {{memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%}}
imageGCHighThresholdPercent: 100
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {ca}}}
authorization: {{mode: Webhook}}
",
        manifests = node.manifests().display(),
        logs = node.logs().display(),
        endpoint = node.lab.endpoint(),
        cgroup = node.lab.cgroup(),
        plugins = node.lab.dir().join("volume-plugins").display(),
        resolv = "/etc/resolv.conf",
        ca = cluster.file("ca.crt").display(),
    )
}
