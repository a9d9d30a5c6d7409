//! Starts programs: where the repository is, and commands whose failure names what was run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The repository's root folder.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// A command that runs in the repository's root.
pub(crate) fn command(program: impl AsRef<OsStr>, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// A cargo command of the toolchain that runs this task.
pub(crate) fn cargo(args: &[&str]) -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), args)
}

/// Runs it with the terminal's streams; any end but success is an error.
pub(crate) fn run(mut command: Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("`{}` ended with {status}", line(&command));
    }
    Ok(())
}

/// Runs it and returns what it wrote to its standard output.
pub(crate) fn output(mut command: Command) -> Result<String> {
    let out =
        command.stderr(std::process::Stdio::inherit()).output().with_context(|| format!("cannot start {command:?}"))?;
    if !out.status.success() {
        bail!("`{}` ended with {}", line(&command), out.status);
    }
    String::from_utf8(out.stdout).with_context(|| format!("output of `{}` is not text", line(&command)))
}

/// Whether a program of this name is in `PATH` or in one of the administrator's folders.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/sbin", "/sbin"].into_iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(admin).any(|dir| dir.join(name).is_file())
}

/// The command as one would type it.
fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}
