//! The checks that run no test: format, lints, the core's purity, generated code.

use anyhow::Result;

use crate::run::{cargo, run};

/// The crates that must touch no operating system.
pub(crate) const CORE: [&str; 5] = ["components", "engine", "podspec", "systems", "trace"];

/// The target that proves it: it has none.
pub(crate) const PURE_TARGET: &str = "wasm32-unknown-unknown";

/// The code is formatted.
pub(crate) fn format() -> Result<()> {
    run(cargo(&["fmt", "--all", "--check"]))
}

/// No compiler or clippy warning anywhere, tests included.
pub(crate) fn lints() -> Result<()> {
    run(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-Dwarnings"]))
}

/// The core builds for a machine without an operating system.
pub(crate) fn pure_core() -> Result<()> {
    let mut args = vec!["check", "--locked", "--target", PURE_TARGET];
    for name in CORE {
        args.extend(["-p", name]);
    }
    run(cargo(&args))
}
