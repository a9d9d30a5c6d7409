//! The folder of one run: manifests, configuration, and every path either kubelet writes to.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The image of every pod; the simulated runtime has it from the start.
pub(super) const IMAGE: &str = "docker.io/library/busybox:1.36";
/// The node's name in every run.
pub(super) use ::tests::node::NODE;

/// A folder; removed when dropped unless it is to be kept.
pub(super) struct Site {
    dir: PathBuf,
    keep: bool,
    /// The kubelet's main port.
    pub(super) port: u16,
    healthz_port: u16,
    /// Where it finds its cluster, if there is one.
    pub(super) kubeconfig: Option<PathBuf>,
}

impl Site {
    /// Makes the folder with everything a run of static pods needs.
    pub(super) fn new(name: &str, pods: usize, probed: Option<u16>, keep: bool) -> Result<Self> {
        let site = Self::empty(name, pods, keep)?;
        for index in 0..pods {
            let path = site.dir.join(format!("manifests/race-{index:05}.json"));
            fs::write(&path, manifest(index, probed).to_string())
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(site)
    }

    /// Makes the folder of a node that has room for so many pods and no static ones.
    pub(super) fn empty(name: &str, pods: usize, keep: bool) -> Result<Self> {
        // Memory where there is some: a disk under load would add its own noise to both.
        let memory = Path::new("/dev/shm");
        let base = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
        let dir = base.join(format!("ticklet-race-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let [port, healthz_port] = free_ports()?;
        let site = Self { dir, keep, port, healthz_port, kubeconfig: None };
        for folder in ["manifests", "root", "logs", "plugins", "links"] {
            fs::create_dir(site.dir.join(folder))?;
        }
        fs::write(site.config(), site.configuration(pods))?;
        Ok(site)
    }

    /// Lets the kubelet send so many requests a second, of events as well, and twice as many at once.
    pub(super) fn allow_requests(&self, qps: usize) -> Result<()> {
        let mut config: Value = serde_json::from_str(&fs::read_to_string(self.config())?)?;
        for (limit, burst) in [("kubeAPIQPS", "kubeAPIBurst"), ("eventRecordQPS", "eventBurst")] {
            config[limit] = json!(qps);
            config[burst] = json!(qps * 2);
        }
        Ok(fs::write(self.config(), config.to_string())?)
    }

    /// The folder itself.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The runtime's socket.
    pub(super) fn socket(&self) -> PathBuf {
        self.dir.join("cri.sock")
    }

    /// The configuration file.
    pub(super) fn config(&self) -> PathBuf {
        self.dir.join("config.yaml")
    }

    /// The root folder.
    pub(super) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// The same for both: the pods' cgroups are left out, since simulated containers have no processes, and nothing
    /// on this machine is evicted or firewalled.
    fn configuration(&self, pods: usize) -> String {
        let dir = self.dir.display();
        let document = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": format!("{dir}/manifests"),
            "podLogsDir": format!("{dir}/logs"),
            "volumePluginDir": format!("{dir}/plugins"),
            "containerRuntimeEndpoint": format!("unix://{dir}/cri.sock"),
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": false,
            "enforceNodeAllocatable": [],
            "failCgroupV1": false,
            "failSwapOn": false,
            "makeIPTablesUtilChains": false,
            "oomScoreAdj": 0,
            "maxPods": pods + 100,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%",
                             "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"},
            "address": "127.0.0.1",
            "port": self.port,
            "healthzBindAddress": "127.0.0.1",
            "healthzPort": self.healthz_port,
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
        });
        document.to_string()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.keep {
            println!("kept {}", self.dir.display());
        } else if let Err(error) = fs::remove_dir_all(&self.dir) {
            eprintln!("cannot remove {}: {error}", self.dir.display());
        }
    }
}

/// Where both kubelets link the logs of all containers: no setting moves it.
const LINKS: &str = "/var/log/containers";

/// A command for a program that dies with this process, whatever ends it, and whose mounts end with it: the reference
/// mounts its root folder on itself. It finds the site's folder in the place of the machine's links: the file system
/// there looks past every file that was deleted lately, so that who runs second would pay for who ran first.
pub(super) fn tied(program: &Path, site: &Site) -> Result<Command> {
    fs::create_dir_all(LINKS).with_context(|| format!("cannot make {LINKS}"))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--", "sh", "-c", "mount --bind \"$0\" \"$1\" && shift && exec \"$@\""]);
    command.arg(site.dir.join("links")).arg(LINKS);
    command.args(["setpriv", "--pdeathsig", "KILL", "--"]).arg(program);
    Ok(command)
}

/// One container with a fixed uid, so that both kubelets name and hash it alike on every start.
pub(super) fn manifest(index: usize, probed: Option<u16>) -> Value {
    let mut document = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("race-{index:05}"),
            "namespace": "default",
            "uid": format!("00000000-0000-4000-8000-{index:012}"),
            "labels": {"app": format!("race-{}", index % 50), "tier": "backend"},
        },
        "spec": {
            "containers": [{
                "name": "main",
                "image": IMAGE,
                "imagePullPolicy": "IfNotPresent",
                "command": ["/bin/sleep", "1000000"],
                "env": [{"name": "NUMBER", "value": index.to_string()}],
            }],
        },
    });
    if let Some(port) = probed {
        let mut probe = json!({"periodSeconds": 1, "timeoutSeconds": 1});
        let target = json!({"host": "127.0.0.1", "port": port});
        probe[if index.is_multiple_of(2) { "httpGet" } else { "tcpSocket" }] = target;
        document["spec"]["containers"][0]["readinessProbe"] = probe;
    }
    document
}

/// Two ports that nobody listens on at the moment.
fn free_ports() -> Result<[u16; 2]> {
    let listeners = [TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?];
    Ok([listeners[0].local_addr()?.port(), listeners[1].local_addr()?.port()])
}

/// The address by which this machine would reach others; nothing is sent. `None` without a route.
pub(super) fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // A documentation address: only the route to it is looked up.
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then(|| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_is_whole_and_leaves_nothing() {
        let site = Site::new("test", 3, Some(80), false).unwrap();
        let dir = site.dir().to_path_buf();
        assert_eq!(fs::read_dir(dir.join("manifests")).unwrap().count(), 3);
        let config: Value = serde_json::from_str(&fs::read_to_string(site.config()).unwrap()).unwrap();
        assert_eq!(config["maxPods"], 103);
        drop(site);
        assert!(!dir.exists());
    }
}
