//! Killing what is left in a cgroup and removing its directories, children first.

use super::super::{Cancel, HostError};
use components::edge::FailureClass;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Passes over the processes: one that forks while it is killed leaves children for the next pass.
const KILL_PASSES: u32 = 5;

/// Passes over the directories: a cgroup stays busy until the kernel has reaped its last process.
const REMOVE_PASSES: u32 = 20;

/// Pause between passes; a killed process is gone within it unless it hangs in the kernel.
const PAUSE: Duration = Duration::from_millis(25);

/// Deepest nesting that is looked into; runtimes nest a few levels.
const DEPTH: u32 = 64;

/// Kills every process in the cgroups and their children.
pub(super) fn kill_all(dirs: &[PathBuf], cancel: &Cancel) -> Result<(), HostError> {
    for pass in 0..KILL_PASSES {
        cancel.check()?;
        let mut pids = Vec::new();
        for dir in dirs {
            pids_below(dir, DEPTH, &mut pids)?;
        }
        pids.sort_unstable();
        pids.dedup();
        if pids.is_empty() {
            return Ok(());
        }
        if pass > 0 {
            std::thread::sleep(PAUSE);
        }
        for pid in pids {
            // Another namespace's processes read as 0. A pod's cgroup never holds init or this process; if one does,
            // the path is not what it seems.
            if pid == 0 {
                continue;
            }
            if pid == 1 || u32::try_from(pid).is_ok_and(|pid| pid == std::process::id()) {
                let message = format!("refused to kill process {pid}, found in a pod's cgroup");
                return Err(HostError::new(FailureClass::Invalid, message));
            }
            match kill(Pid::from_raw(pid), Signal::SIGKILL) {
                Ok(()) | Err(Errno::ESRCH) => {}
                Err(errno) => {
                    return Err(HostError::new(FailureClass::Denied, format!("kill process {pid}: {}", errno.desc())));
                }
            }
        }
    }
    // What still hangs shows as a busy directory below.
    Ok(())
}

fn pids_below(dir: &Path, depth: u32, pids: &mut Vec<i32>) -> Result<(), HostError> {
    let procs = dir.join("cgroup.procs");
    match fs::read_to_string(&procs) {
        Ok(text) => pids.extend(text.lines().filter_map(|line| line.trim().parse::<i32>().ok())),
        Err(error) if gone(&error) => return Ok(()),
        // A threaded cgroup lists its processes in its parent.
        Err(error) if error.raw_os_error() == Some(Errno::EOPNOTSUPP as i32) => {}
        Err(error) => return Err(HostError::io("read", &procs, &error)),
    }
    for child in children(dir)? {
        if let Some(depth) = depth.checked_sub(1) {
            pids_below(&child, depth, pids)?;
        }
    }
    Ok(())
}

/// Removes a cgroup and its children. A missing one counts as removed.
pub(super) fn remove_dirs(dir: &Path, cancel: &Cancel) -> Result<(), HostError> {
    for pass in 1..=REMOVE_PASSES {
        cancel.check()?;
        match remove_once(dir, DEPTH) {
            Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) && pass < REMOVE_PASSES => {
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(HostError::io("remove cgroup", dir, &error)),
            Ok(()) => return Ok(()),
        }
    }
    Ok(())
}

fn remove_once(dir: &Path, depth: u32) -> io::Result<()> {
    let entries = match children(dir) {
        Ok(entries) => entries,
        Err(error) => return Err(io::Error::other(error)),
    };
    for child in entries {
        if let Some(depth) = depth.checked_sub(1) {
            remove_once(&child, depth)?;
        }
    }
    match fs::remove_dir(dir) {
        Err(error) if !gone(&error) => Err(error),
        _ => Ok(()),
    }
}

fn children(dir: &Path) -> Result<Vec<PathBuf>, HostError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if gone(&error) => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("read cgroup", dir, &error)),
    };
    // Entries that vanish while they are read are gone, which is what is wanted.
    Ok(entries.flatten().filter(|e| e.file_type().is_ok_and(|kind| kind.is_dir())).map(|e| e.path()).collect())
}

fn gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ENODEV as i32)
}
