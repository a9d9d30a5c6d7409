//! The control plane of a cluster on loopback: etcd, kube-apiserver, controller manager and scheduler, with certificates
//! of its own. It lives in a folder of the lab and ends with the value that stands for it.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::node::NODE;
use crate::{process, tools};

/// The API server migrates its storage at its first start, on a machine that is busy with more.
const START_DEADLINE: Duration = Duration::from_secs(180);
/// Services get addresses from here.
const SERVICES: &str = "10.96.0.0/16";

/// A running control plane.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    bin: PathBuf,
    port: u16,
    etcd_port: u16,
    etcd: Option<Child>,
    apiserver: Option<Child>,
    others: Vec<Child>,
    /// Flags of the API server beyond those that every cluster has.
    flags: Vec<String>,
}

impl Cluster {
    /// Makes certificates and starts etcd and the API server; waits until it serves.
    ///
    /// # Errors
    /// With the end of the log of what did not come up.
    pub fn start(dir: &Path) -> Result<Self> {
        Self::start_with(dir, Vec::new())
    }

    /// As [`Self::start`], with further flags of the API server.
    ///
    /// # Errors
    /// With the end of the log of what did not come up.
    pub fn start_with(dir: &Path, flags: Vec<String>) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let [port, etcd_port, peer_port] = free_ports()?;
        let bin = tools::kube_bin()?;
        let mut cluster =
            Self { dir: dir.to_owned(), bin, port, etcd_port, etcd: None, apiserver: None, others: Vec::new(), flags };
        cluster.certificates()?;
        cluster.start_etcd(peer_port)?;
        cluster.start_apiserver()?;
        Ok(cluster)
    }

    /// Starts the controller manager and the scheduler.
    ///
    /// # Errors
    /// When a program cannot be started.
    pub fn start_controllers(&mut self) -> Result<()> {
        self.start_controllers_with(&[])
    }

    /// As [`Self::start_controllers`], with further flags of the controller manager.
    ///
    /// # Errors
    /// When a program cannot be started.
    pub fn start_controllers_with(&mut self, flags: &[&str]) -> Result<()> {
        let mut manager = self.program("kube-controller-manager");
        manager.args(flags);
        // Each controller acts as an account of its own: that is what the roles of a new cluster are made for.
        manager.args(["--leader-elect=false", "--secure-port=0", "--v=1", "--use-service-account-credentials"]);
        manager.arg(format!("--kubeconfig={}", self.kubeconfig("kube-controller-manager").display()));
        for (flag, file) in [
            ("service-account-private-key-file", "sa.key"),
            ("root-ca-file", "ca.crt"),
            ("cluster-signing-cert-file", "ca.crt"),
            ("cluster-signing-key-file", "ca.key"),
        ] {
            manager.arg(format!("--{flag}={}", self.dir.join(file).display()));
        }
        let mut scheduler = self.program("kube-scheduler");
        scheduler.args(["--leader-elect=false", "--secure-port=0", "--v=1"]);
        scheduler.arg(format!("--kubeconfig={}", self.kubeconfig("kube-scheduler").display()));
        for mut program in [manager, scheduler] {
            self.others.push(program.spawn().context("cannot start a controller")?);
        }
        Ok(())
    }

    /// Starts metrics-server and makes the API server know it.
    ///
    /// # Errors
    /// When it cannot be started or its objects are refused.
    pub fn start_metrics_server(&mut self) -> Result<()> {
        let [port, ..] = free_ports()?;
        let mut server = Command::new(tools::metrics_server()?);
        let log = self.log("metrics-server")?;
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let kubeconfig = self.kubeconfig("admin");
        for flag in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
            server.arg(format!("--{flag}={}", kubeconfig.display()));
        }
        server.arg(format!("--secure-port={port}")).arg(format!("--cert-dir={}", self.file("metrics").display()));
        server.args([
            "--bind-address=127.0.0.1",
            "--metric-resolution=10s",
            "--kubelet-request-timeout=9s",
            "--kubelet-insecure-tls",
            "--kubelet-use-node-status-port",
            "--kubelet-preferred-address-types=InternalIP",
        ]);
        self.others.push(server.spawn().context("cannot start metrics-server")?);
        let service = serde_json::json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "metrics-server", "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]}});
        let api = serde_json::json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "service": {"name": "metrics-server", "namespace": "kube-system", "port": port}}});
        self.apply(&format!("{service}\n---\n{api}\n")).map(drop)
    }

    /// The kubeconfig of a user: `admin`, `node` (the lab's node), or a component by its name.
    #[must_use]
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.dir.join(format!("{user}.kubeconfig"))
    }

    /// The address of the API server.
    #[must_use]
    pub fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// A command for curl with the certificates of an administrator.
    #[must_use]
    pub fn curl(&self) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--cacert"]).arg(self.file("ca.crt"));
        curl.arg("--cert").arg(self.file("admin.crt")).arg("--key").arg(self.file("admin.key"));
        curl
    }

    /// A file of the cluster, for example `ca.crt`.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Runs kubectl as an administrator; what it printed.
    ///
    /// # Errors
    /// With what kubectl said.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut kubectl = Command::new(self.bin.join("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig("admin")).args(args).env("HOME", &self.dir);
        process::run(&mut kubectl, Duration::from_secs(60))?.success()
    }

    /// Starts kubectl as an administrator, for what runs until it is stopped; its output goes nowhere.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_kubectl(&self, args: &[&str]) -> Result<Child> {
        let mut kubectl = Command::new(self.bin.join("kubectl"));
        kubectl.arg("--kubeconfig").arg(self.kubeconfig("admin")).args(args).env("HOME", &self.dir);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        kubectl.spawn().context("cannot start kubectl")
    }

    /// Applies a manifest.
    ///
    /// # Errors
    /// With what kubectl said.
    pub fn apply(&self, manifest: &str) -> Result<String> {
        let file = self.dir.join("apply.yaml");
        fs::write(&file, manifest)?;
        self.kubectl(&["apply", "-f", &file.display().to_string()])
    }

    /// An object as JSON.
    ///
    /// # Errors
    /// With what kubectl said.
    pub fn get(&self, object: &str) -> Result<serde_json::Value> {
        let text = self.kubectl(&["get", object, "-o", "json"])?;
        serde_json::from_str(&text).with_context(|| format!("{object} is no JSON"))
    }

    /// Waits until kubectl prints this for an object and a JSON path.
    ///
    /// # Errors
    /// With what was seen last.
    pub fn wait_field(&self, object: &str, path: &str, wanted: &str, deadline: Duration) -> Result<()> {
        let end = Instant::now() + deadline;
        loop {
            let seen = self.kubectl(&["get", object, "-o", &format!("jsonpath={{{path}}}")]);
            match seen {
                Ok(seen) if seen == wanted => return Ok(()),
                seen if Instant::now() >= end => {
                    let whole = self.kubectl(&["get", object, "-o", "yaml"]).unwrap_or_default();
                    bail!("not within {deadline:?}: {path} of {object} is {wanted}, it is {seen:?}\n{whole}");
                }
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Waits until an object is there no more.
    ///
    /// # Errors
    /// With the object.
    pub fn wait_gone(&self, object: &str, deadline: Duration) -> Result<()> {
        let end = Instant::now() + deadline;
        loop {
            let seen = self.kubectl(&["get", object, "--ignore-not-found", "-o", "yaml"])?;
            if seen.trim().is_empty() {
                return Ok(());
            }
            if Instant::now() >= end {
                bail!("not within {deadline:?}: {object} is gone\n{seen}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Stops the API server; etcd keeps everything.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn stop_apiserver(&mut self) -> Result<()> {
        if let Some(mut child) = self.apiserver.take() {
            process::stop(&mut child, Signal::SIGTERM, Duration::from_secs(30))?;
        }
        Ok(())
    }

    /// Starts the API server, for the first time or after [`Self::stop_apiserver`], and waits until it serves.
    ///
    /// # Errors
    /// With the end of its log.
    pub fn start_apiserver(&mut self) -> Result<()> {
        let mut command = self.program("kube-apiserver");
        command.arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port));
        command.arg(format!("--secure-port={}", self.port));
        for (flag, file) in [
            ("client-ca-file", "ca.crt"),
            ("tls-cert-file", "apiserver.crt"),
            ("tls-private-key-file", "apiserver.key"),
            ("service-account-signing-key-file", "sa.key"),
            ("service-account-key-file", "sa.pub"),
            ("kubelet-client-certificate", "kubelet-client.crt"),
            ("requestheader-client-ca-file", "ca.crt"),
            ("proxy-client-cert-file", "front-proxy.crt"),
            ("proxy-client-key-file", "front-proxy.key"),
            ("kubelet-client-key", "kubelet-client.key"),
        ] {
            command.arg(format!("--{flag}={}", self.dir.join(file).display()));
        }
        command.args([
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            "--enable-bootstrap-token-auth=true",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--kubelet-preferred-address-types=InternalIP,Hostname",
            "--v=1",
        ]);
        command.arg(format!("--service-cluster-ip-range={SERVICES}")).args(&self.flags);
        command.arg(format!("--cert-dir={}", self.dir.display()));
        self.apiserver = Some(command.spawn().context("cannot start kube-apiserver")?);
        let end = Instant::now() + START_DEADLINE;
        while let Err(error) = self.kubectl(&["get", "--raw", "/readyz"]) {
            let ended = self.apiserver.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > end {
                bail!("the API server does not serve: {error:#}\n{}", self.log_tail("kube-apiserver"));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
        // Pods need their namespace's account, which controllers make only where they run.
        Ok(())
    }

    fn start_etcd(&mut self, peer_port: u16) -> Result<()> {
        let log = self.log("etcd")?;
        let mut command = Command::new(tools::etcd()?);
        let (client, peer) = (format!("http://127.0.0.1:{}", self.etcd_port), format!("http://127.0.0.1:{peer_port}"));
        command.arg("--data-dir").arg(self.dir.join("etcd"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("default={peer}"), "--unsafe-no-fsync"]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.etcd = Some(command.spawn().context("cannot start etcd")?);
        Ok(())
    }

    /// A Kubernetes program with its log.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.bin.join(name));
        command.stdin(Stdio::null());
        if let Ok(log) = self.log(name)
            && let Ok(copy) = log.try_clone()
        {
            command.stdout(copy).stderr(log);
        }
        command
    }

    fn log(&self, name: &str) -> Result<File> {
        Ok(File::options().create(true).append(true).open(self.dir.join(format!("{name}.log")))?)
    }

    /// The last lines of a program's log.
    #[must_use]
    pub fn log_tail(&self, name: &str) -> String {
        let log = fs::read_to_string(self.dir.join(format!("{name}.log"))).unwrap_or_default();
        let from = log.lines().count().saturating_sub(30);
        log.lines().skip(from).collect::<Vec<_>>().join("\n")
    }

    fn certificates(&self) -> Result<()> {
        let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
        let mut ca = vec!["req", "-x509", "-keyout", "ca.key", "-out", "ca.crt", "-days", "30", "-subj", "/CN=lab-ca"];
        ca.extend(key);
        self.openssl(&ca)?;
        self.openssl(&["genrsa", "-out", "sa.key", "2048"])?;
        self.openssl(&["rsa", "-in", "sa.key", "-pubout", "-out", "sa.pub"])?;
        let names = "subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:10.96.0.1";
        self.sign("apiserver", "/CN=kube-apiserver", &format!("{names}\nextendedKeyUsage=serverAuth"))?;
        let client = "extendedKeyUsage=clientAuth";
        for (name, subject) in [
            ("front-proxy", "/CN=front-proxy".to_owned()),
            ("kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client".to_owned()),
            ("admin", "/O=system:masters/CN=admin".to_owned()),
            ("node", format!("/O=system:nodes/CN=system:node:{NODE}")),
            ("kube-controller-manager", "/CN=system:kube-controller-manager".to_owned()),
            ("kube-scheduler", "/CN=system:kube-scheduler".to_owned()),
        ] {
            self.sign(name, &subject, client)?;
            fs::write(self.kubeconfig(name), self.kubeconfig_text(name))?;
        }
        Ok(())
    }

    fn sign(&self, name: &str, subject: &str, extensions: &str) -> Result<()> {
        let (key, request, certificate) = (format!("{name}.key"), format!("{name}.csr"), format!("{name}.crt"));
        let own = format!("{name}.ext");
        fs::write(self.dir.join(&own), extensions)?;
        self.openssl(&[
            "req",
            "-new",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            &key,
            "-out",
            &request,
            "-subj",
            subject,
        ])?;
        self.openssl(&[
            "x509",
            "-req",
            "-in",
            &request,
            "-CA",
            "ca.crt",
            "-CAkey",
            "ca.key",
            "-CAcreateserial",
            "-days",
            "30",
            "-out",
            &certificate,
            "-extfile",
            &own,
        ])
    }

    fn openssl(&self, args: &[&str]) -> Result<()> {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(&self.dir).args(args);
        process::run(&mut openssl, Duration::from_secs(60))?.success().map(drop)
    }

    fn kubeconfig_text(&self, user: &str) -> String {
        format!(
            "apiVersion: v1
kind: Config
current-context: lab
clusters:
- name: lab
  cluster:
    server: https://127.0.0.1:{port}
    certificate-authority: {dir}/ca.crt
users:
- name: {user}
  user:
    client-certificate: {dir}/{user}.crt
    client-key: {dir}/{user}.key
contexts:
- name: lab
  context:
    cluster: lab
    user: {user}
",
            port = self.port,
            // Not every reader of the file looks beside it.
            dir = self.dir.display(),
        )
    }
}

impl Cluster {
    /// Ends all programs.
    pub fn stop(&mut self) {
        // Those that write first: a controller without its server only fills its log.
        let children = self.others.drain(..).chain(self.apiserver.take()).chain(self.etcd.take());
        for mut child in children {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ports that nobody listens on at the moment.
fn free_ports() -> Result<[u16; 3]> {
    let bind = || TcpListener::bind("127.0.0.1:0");
    let listeners = [bind()?, bind()?, bind()?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port(), listeners[2].local_addr()?.port()])
}
