//! Installs what a fresh machine lacks: Debian packages, the pure target of the toolchain, the test tools.
//!
//! Looks first and changes nothing that is there.

use std::path::Path;

use anyhow::{Context, Result};

use crate::checks::PURE_TARGET;
use crate::run::{command, has_program, output, run};

/// Tells whether something is installed.
type IsThere = fn() -> bool;

/// Debian packages the lab needs, each with a sign that it is there.
const PACKAGES: [(&str, IsThere); 7] = [
    ("runc", || has_program("runc")),
    ("containernetworking-plugins", || Path::new(tests::lab::CNI_PLUGINS).join("bridge").exists()),
    ("busybox-static", || tests::lab::busybox().is_ok()),
    ("iptables", || has_program("iptables")),
    ("iproute2", || has_program("ip")),
    ("curl", || has_program("curl")),
    ("dbus-daemon", || has_program("dbus-daemon")),
];

/// Installs what is missing for checks and tests, and cleans up after a run that was killed.
pub(crate) fn missing() -> Result<()> {
    debian_packages()?;
    pure_target()?;
    sweep()
}

/// Builds the test tools that are not in the cache yet.
pub(crate) fn tools() -> Result<()> {
    debian_packages()?;
    tests::tools::ensure_lab()
}

/// Removes what labs of dead processes left behind.
pub(crate) fn sweep() -> Result<()> {
    for line in tests::lab::sweep()? {
        println!("swept: {line}");
    }
    Ok(())
}

/// Installs the Debian packages that are not there.
fn debian_packages() -> Result<()> {
    let wanted: Vec<&str> = PACKAGES.iter().filter(|(_, is_there)| !is_there()).map(|(name, _)| *name).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    println!("installing {}", wanted.join(" "));
    let mut install = vec!["install", "--yes", "--no-install-recommends"];
    install.extend(&wanted);
    let apt = |args: &[&str]| {
        let mut apt = command("apt-get", args);
        apt.env("DEBIAN_FRONTEND", "noninteractive");
        run(apt)
    };
    apt(&["update", "--quiet"])
        .and_then(|()| apt(&install))
        .with_context(|| format!("cannot install {}", wanted.join(" ")))
}

/// Adds the target of the core's purity check to the toolchain.
fn pure_target() -> Result<()> {
    let libdir = output(command("rustc", &["--print", "target-libdir", "--target", PURE_TARGET]))?;
    if Path::new(libdir.trim()).exists() {
        return Ok(());
    }
    run(command("rustup", &["target", "add", PURE_TARGET]))
}
