//! The programs a lab needs that Debian does not have as we need them, built or unpacked into the user's cache.
//!
//! Go programs are built from their published module at a fixed version; Debian's older containerd is unpacked from its
//! package and never installed, so that no service starts and no other containerd is in its way.

mod e2e;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

pub use e2e::{SuiteTools, ensure_suite};

/// A set of Go programs from one module.
struct GoTools {
    name: &'static str,
    module: &'static str,
    version: &'static str,
    packages: &'static [&'static str],
    /// Modules that it names only by folders beside its own, with the version they are published as.
    beside: (&'static [&'static str], &'static str),
    /// What the linker sets.
    settings: &'static str,
}

const CONTAINERD: GoTools = GoTools {
    name: "containerd",
    module: "github.com/containerd/containerd/v2",
    version: "v2.4.2",
    packages: &["cmd/containerd", "cmd/containerd-shim-runc-v2", "cmd/ctr"],
    beside: (&[], ""),
    settings: "",
};

const CRICTL: GoTools = GoTools {
    name: "crictl",
    module: "sigs.k8s.io/cri-tools",
    version: "v1.37.0",
    packages: &["cmd/crictl"],
    beside: (&[], ""),
    settings: "",
};

/// The reference kubelet.
const KUBELET: GoTools = GoTools {
    name: "kubelet",
    module: "k8s.io/kubernetes",
    version: "v1.37.2",
    packages: &["cmd/kubelet"],
    beside: (&STAGING, "v0.37.2"),
    settings: "-X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 \
               -X k8s.io/component-base/version.gitMinor=37",
};

/// The control plane and its client.
const KUBE: GoTools = GoTools {
    name: "kube",
    module: "k8s.io/kubernetes",
    version: "v1.37.2",
    packages: &["cmd/kube-apiserver", "cmd/kube-controller-manager", "cmd/kube-scheduler", "cmd/kubectl"],
    beside: (&STAGING, "v0.37.2"),
    settings: KUBELET.settings,
};

/// What `kubectl top` asks.
const METRICS_SERVER: GoTools = GoTools {
    name: "metrics-server",
    module: "sigs.k8s.io/metrics-server",
    version: "v0.8.0",
    packages: &["cmd/metrics-server"],
    beside: (&[], ""),
    settings: "",
};

/// Modules that are developed inside of `k8s.io/kubernetes` and published beside it.
const STAGING: [&str; 33] = [
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "cri-streaming",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
    "streaming",
];

/// The published CRI definitions that ours are compared with.
const CRI_API: &str = "k8s.io/cri-api@v0.37.2";

/// A cold build of containerd takes about five minutes of two cores.
const BUILD_DEADLINE: Duration = Duration::from_secs(40 * 60);

/// Makes sure that all tools of the lab are in the cache.
pub fn ensure_lab() -> Result<()> {
    CRICTL.ensure()?;
    CONTAINERD.ensure()?;
    ensure_debian_containerd()
}

/// The folder of the published CRI module, downloaded when it is not there.
pub fn cri_api() -> Result<PathBuf> {
    let mut download = go(&std::env::temp_dir());
    download.args(["mod", "download", "-json", CRI_API]);
    let told =
        process::run(&mut download, BUILD_DEADLINE)?.success().with_context(|| format!("cannot get {CRI_API}"))?;
    let told: serde_json::Value = serde_json::from_str(&told).context("go mod download printed no JSON")?;
    Ok(told["Dir"].as_str().context("go mod download named no folder")?.into())
}

/// The folder with containerd 2.x, its shim and `ctr`.
pub fn containerd2_bin() -> Result<PathBuf> {
    Ok(CONTAINERD.dir()?.join("bin"))
}

/// The folder with Debian's containerd, its shim and `ctr`.
pub fn containerd1_bin() -> Result<PathBuf> {
    Ok(debian_containerd_dir()?.join("usr/bin"))
}

/// The path of crictl.
pub fn crictl() -> Result<PathBuf> {
    Ok(CRICTL.dir()?.join("bin/crictl"))
}

/// The reference kubelet, built when it is not in the cache: about ten minutes of two cores.
pub fn kubelet() -> Result<PathBuf> {
    KUBELET.ensure()?;
    Ok(KUBELET.dir()?.join("bin/kubelet"))
}

/// Builds and unpacks the control plane when it is not in the cache: about twenty minutes of two cores.
pub fn ensure_cluster() -> Result<()> {
    KUBE.ensure()?;
    METRICS_SERVER.ensure()?;
    ensure_debian("etcd-server", &etcd_dir()?, "usr/bin/etcd")
}

/// The folder with kube-apiserver, kube-controller-manager, kube-scheduler and kubectl.
pub fn kube_bin() -> Result<PathBuf> {
    Ok(KUBE.dir()?.join("bin"))
}

/// The path of metrics-server.
pub fn metrics_server() -> Result<PathBuf> {
    Ok(METRICS_SERVER.dir()?.join("bin/metrics-server"))
}

/// The path of etcd.
pub fn etcd() -> Result<PathBuf> {
    Ok(etcd_dir()?.join("usr/bin/etcd"))
}

fn etcd_dir() -> Result<PathBuf> {
    Ok(cache()?.join("etcd-debian"))
}

/// Where tools are kept: outside the repository, so that a fresh clone need not build them again.
fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => {
            PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache")
        }
    };
    Ok(base.join("ticklet/tools"))
}

impl GoTools {
    fn dir(&self) -> Result<PathBuf> {
        Ok(cache()?.join(format!("{}-{}", self.name, self.version)))
    }

    /// Builds the programs that are missing; only one process at a time does so.
    fn ensure(&self) -> Result<()> {
        let dir = self.dir()?;
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let lock = File::create(dir.join("lock"))?;
        lock.lock().context("cannot lock the tools' cache")?;
        let program = |package: &str| dir.join("bin").join(package.rsplit('/').next().unwrap_or(package));
        if self.packages.iter().all(|package| program(package).exists()) {
            return Ok(());
        }
        self.write_module(&dir)?;
        let mut build = go(&dir);
        build.args(["build", "-trimpath", &format!("-ldflags=-s -w {}", self.settings), "-o", "bin/"]);
        build.args(self.packages.iter().map(|package| format!("{}/{package}", self.module)));
        build_step(&mut build).with_context(|| format!("cannot build {} {}", self.name, self.version))
    }

    /// Writes a module whose only content is the programs as dependencies, then lets Go fill in the rest.
    fn write_module(&self, dir: &Path) -> Result<()> {
        let imports: String =
            self.packages.iter().map(|package| format!("import _ \"{}/{package}\"\n", self.module)).collect();
        self.write_imports(dir, &imports)
    }

    /// The same with imports of the caller's.
    fn write_imports(&self, dir: &Path, imports: &str) -> Result<()> {
        fs::write(dir.join("tools.go"), format!("//go:build tools\n\npackage tools\n\n{imports}"))?;
        let (modules, version) = self.beside;
        let beside: String =
            modules.iter().map(|module| format!("replace k8s.io/{module} => k8s.io/{module} {version}\n")).collect();
        fs::write(
            dir.join("go.mod"),
            format!("module tools\n\ngo 1.26.0\n\nrequire {} {}\n\n{beside}", self.module, self.version),
        )?;
        build_step(go(dir).args(["mod", "tidy"]))
            .with_context(|| format!("cannot resolve {} {}", self.name, self.version))
    }
}

/// Go in a folder, without C: the programs are static and need no headers.
fn go(dir: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(dir).env("CGO_ENABLED", "0").env("GOFLAGS", "-buildvcs=false").env("GOWORK", "off");
    go
}

fn build_step(command: &mut Command) -> Result<()> {
    process::run(command, BUILD_DEADLINE)?.success().map(drop)
}

fn debian_containerd_dir() -> Result<PathBuf> {
    Ok(cache()?.join("containerd-debian"))
}

fn ensure_debian_containerd() -> Result<()> {
    ensure_debian("containerd", &debian_containerd_dir()?, "usr/bin/containerd")
}

/// Downloads a package of Debian's and unpacks it, unless the program is there.
fn ensure_debian(package: &str, dir: &Path, program: &str) -> Result<()> {
    if dir.join(program).exists() {
        return Ok(());
    }
    fs::create_dir_all(dir)?;
    // apt gives up root for downloads and then can't write into a folder of root's, with a warning only.
    let mut apt = Command::new("apt-get");
    apt.args(["download", "-o", "APT::Sandbox::User=root", package]).current_dir(dir);
    build_step(&mut apt).with_context(|| format!("cannot download Debian's {package}"))?;
    let package = fs::read_dir(dir)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "deb"));
    let Some(package) = package else { bail!("apt-get download left no package in {}", dir.display()) };
    build_step(Command::new("dpkg-deb").arg("-x").arg(&package).arg(dir))?;
    fs::remove_file(&package)?;
    Ok(())
}
