//! The official conformance suite: its test programs and what their images are made of, from the published module.
//!
//! Test programs are built with `go test -c`, so the module needs their imports by name: Go resolves what a program
//! imports, and not what a test of another module imports.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{KUBE, build_step, cache, go};

/// Programs of the suite: the runner, and what goes into its images.
const PROGRAMS: [&str; 4] = [
    "github.com/onsi/ginkgo/v2/ginkgo",
    "k8s.io/kubernetes/test/images/agnhost",
    "k8s.io/kubernetes/test/images/nonewprivs",
    "k8s.io/kubernetes/test/images/sample-device-plugin",
];

/// The suites: what a program is called and the package it tests.
const SUITES: [(&str, &str); 2] =
    [("e2e.test", "k8s.io/kubernetes/test/e2e"), ("e2e_node.test", "k8s.io/kubernetes/test/e2e_node")];

/// What the tests of both suites import, for Go to resolve.
const IMPORTS: [&str; 12] = [
    "github.com/onsi/gomega",
    "github.com/spf13/pflag",
    "go.yaml.in/yaml/v2",
    "k8s.io/system-validators/validators",
    "k8s.io/kubernetes/cmd/kube-apiserver",
    "k8s.io/kubernetes/test/e2e/common",
    "k8s.io/kubernetes/test/e2e/framework",
    "k8s.io/kubernetes/test/e2e/node",
    "k8s.io/kubernetes/test/e2e/storage",
    "k8s.io/kubernetes/test/e2e_node/criproxy",
    "k8s.io/kubernetes/test/e2e_node/services",
    "k8s.io/kubernetes/test/utils/ktesting",
];

/// Where the suite lies.
#[derive(Debug, Clone)]
pub struct SuiteTools {
    /// Its folder in the cache; other things made for the suite may be kept there.
    pub dir: PathBuf,
    /// The published sources of the test images.
    pub sources: PathBuf,
}

impl SuiteTools {
    /// A program of the suite.
    #[must_use]
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }
}

/// Builds the suite when it is not in the cache: about half an hour of two cores.
pub fn ensure_suite() -> Result<SuiteTools> {
    let dir = cache()?.join(format!("e2e-{}", KUBE.version));
    fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let lock = File::create(dir.join("lock"))?;
    lock.lock().context("cannot lock the tools' cache")?;
    let name = |package: &str| package.rsplit('/').next().unwrap_or(package).to_owned();
    let there = |name: &str| dir.join("bin").join(name).exists();
    if !PROGRAMS.iter().all(|package| there(&name(package))) || !SUITES.iter().all(|(name, _)| there(name)) {
        build(&dir)?;
    }
    let sources = sources(&dir)?;
    Ok(SuiteTools { dir, sources })
}

fn build(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir.join("bin"))?;
    if !dir.join("go.sum").exists() {
        let packages = PROGRAMS.iter().chain(&IMPORTS);
        let imports: String = packages.map(|package| format!("import _ \"{package}\"\n")).collect();
        KUBE.write_imports(dir, &imports)?;
    }
    for package in PROGRAMS {
        println!("building {package}");
        build_step(go(dir).args(["build", "-trimpath", "-ldflags=-s -w", "-o", "bin/", package]))?;
    }
    for (name, package) in SUITES {
        println!("building {name}, which takes a while");
        // Without the vet: it looks at every dependency and takes longer than the build.
        let mut test = go(dir);
        test.args(["test", "-c", "-vet=off", "-trimpath", &format!("-ldflags=-s -w {}", KUBE.settings)]);
        build_step(test.args(["-o", &format!("bin/{name}"), package]))
            .with_context(|| format!("cannot build {name}"))?;
    }
    Ok(())
}

fn sources(dir: &Path) -> Result<PathBuf> {
    let mut list = go(dir);
    list.args(["list", "-mod=mod", "-m", "-f", "{{.Dir}}", KUBE.module]);
    let told = crate::process::run(&mut list, super::BUILD_DEADLINE)?.success()?;
    Ok(PathBuf::from(told.trim()).join("test/images"))
}
