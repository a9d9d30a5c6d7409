//! Programs of Debian packages, unpacked into a folder and never installed, to be copied into images with the libraries
//! they name.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::process;

/// What the images' programs come from.
const PACKAGES: [&str; 14] = [
    "bash",
    "bash-static",
    "bind9-dnsutils",
    "bind9-host",
    "busybox-static",
    "curl",
    "iperf",
    "iproute2",
    "libc-bin",
    "netcat-openbsd",
    "nginx-light",
    "socat",
    "util-linux",
    "util-linux-extra",
];

const DEADLINE: Duration = Duration::from_secs(600);

/// Debian's packages, unpacked.
#[derive(Debug)]
pub(super) struct Debian {
    root: PathBuf,
}

impl Debian {
    /// Downloads and unpacks the packages and all they depend on, unless that was done.
    pub(super) fn ensure(dir: &Path) -> Result<Self> {
        let root = dir.join("root");
        let done = dir.join("done");
        if done.exists() {
            return Ok(Self { root });
        }
        let archives = dir.join("archives");
        fs::create_dir_all(archives.join("partial"))?;
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        // Debian's folders are merged into /usr.
        for name in ["bin", "sbin", "lib", "lib64"] {
            fs::create_dir_all(root.join("usr").join(name))?;
            std::os::unix::fs::symlink(format!("usr/{name}"), root.join(name))?;
        }
        // With an empty list of installed packages apt downloads everything they depend on.
        let nothing = dir.join("nothing-installed");
        fs::write(&nothing, "")?;
        let mut apt = Command::new("apt-get");
        apt.args(["-qq", "-y", "--download-only", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=true"]);
        apt.args(["-o", "APT::Install-Recommends=false"]);
        apt.arg("-o").arg(format!("Dir::State::status={}", nothing.display()));
        apt.arg("-o").arg(format!("Dir::Cache::archives={}", archives.display()));
        apt.arg("install").args(PACKAGES);
        process::run(&mut apt, DEADLINE)?.success().context("cannot download Debian's packages")?;
        for entry in fs::read_dir(&archives)? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "deb") {
                unpack(&path, &root)?;
            }
        }
        fs::remove_dir_all(&archives)?;
        fs::write(done, "")?;
        Ok(Self { root })
    }

    /// A file of a package.
    pub(super) fn file(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }

    /// Copies programs into a root file system, with the libraries and the loader they name.
    pub(super) fn copy_programs(&self, programs: &[&str], into: &Path) -> Result<()> {
        let mut copied = BTreeSet::new();
        for program in programs {
            let from = self.resolve(&self.file(program))?;
            copy(&from, &into.join(program), 0o755)?;
            self.copy_libraries(&from, into, &mut copied)?;
        }
        Ok(())
    }

    fn copy_libraries(&self, of: &Path, into: &Path, copied: &mut BTreeSet<String>) -> Result<()> {
        let told = process::run(Command::new("readelf").arg("-dlW").arg(of), DEADLINE)?.success()?;
        let between = |line: &str, from: &str| Some(line.split_once(from)?.1.split_once(']')?.0.to_owned());
        for line in told.lines() {
            if let Some(loader) = between(line, "program interpreter: ") {
                let name = Path::new(&loader).file_name().context("a loader without a name")?.to_owned();
                copy(&self.library(&name.to_string_lossy())?, &into.join(loader.trim_start_matches('/')), 0o755)?;
            } else if line.contains("(NEEDED)")
                && let Some(name) = between(line, "[")
                && copied.insert(name.clone())
            {
                let library = self.library(&name)?;
                copy(&library, &into.join("lib/x86_64-linux-gnu").join(&name), 0o755)?;
                self.copy_libraries(&library, into, copied)?;
            }
        }
        Ok(())
    }

    fn library(&self, name: &str) -> Result<PathBuf> {
        for dir in ["usr/lib/x86_64-linux-gnu", "usr/lib", "usr/lib64"] {
            let path = self.root.join(dir).join(name);
            if path.symlink_metadata().is_ok() {
                return self.resolve(&path);
            }
        }
        bail!("no package has the library {name}")
    }

    /// Follows links inside of the unpacked packages.
    fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let mut path = path.to_owned();
        while path.symlink_metadata().with_context(|| format!("no package has {}", path.display()))?.is_symlink() {
            let target = fs::read_link(&path)?;
            path = match target.strip_prefix("/") {
                Ok(inside) => self.root.join(inside),
                Err(_) => path.parent().unwrap_or(&self.root).join(target),
            };
        }
        Ok(path)
    }
}

fn unpack(package: &Path, root: &Path) -> Result<()> {
    let archive = package.with_extension("tar");
    let out = fs::File::create(&archive)?;
    let status = Command::new("dpkg-deb").arg("--fsys-tarfile").arg(package).stdout(out).status()?;
    if !status.success() {
        bail!("{} is no package", package.display());
    }
    let mut tar = Command::new("tar");
    tar.args(["-x", "--keep-directory-symlink", "-C"]).arg(root).arg("-f").arg(&archive);
    process::run(&mut tar, DEADLINE)?.success().with_context(|| format!("cannot unpack {}", package.display()))?;
    fs::remove_file(archive)?;
    Ok(())
}

/// Copies a file, makes its folder, sets its mode; what was there is replaced.
pub(super) fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    let copied = (|| {
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent)?;
        }
        if to.symlink_metadata().is_ok() {
            fs::remove_file(to)?;
        }
        fs::copy(from, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(mode))
    })();
    copied.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}
