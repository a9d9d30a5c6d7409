//! Reads one cgroup from plain files, on v1 hierarchies and on the unified one.
//!
//! Decides nothing; what can't be read is left out. Reads only as many files as the asked depth needs.

mod open;
mod v1;
mod v2;

use super::sample::{Depth, Sample};
use crate::host::mounts::{self, MountLine};
use components::time::{Now, Wall};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Largest part of a file that is looked at; lists of processes may be longer than anything else.
const LARGEST: usize = 1 << 20;

/// The mounted hierarchies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Hierarchies {
    /// One mount for each controller, by the controller's name.
    V1(V1),
    /// The unified hierarchy.
    V2(PathBuf),
}

/// Mounts of the v1 controllers that are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct V1 {
    pub(super) cpu: Option<PathBuf>,
    pub(super) cpuacct: Option<PathBuf>,
    pub(super) memory: Option<PathBuf>,
    pub(super) pids: Option<PathBuf>,
    pub(super) blkio: Option<PathBuf>,
}

impl Hierarchies {
    /// Those of this machine; `None` when there are none.
    pub(super) fn of_machine() -> Option<Self> {
        Self::find(&mounts::read().ok()?)
    }

    fn find(mounts: &[MountLine]) -> Option<Self> {
        let place = |wanted: &dyn Fn(&MountLine) -> bool| {
            let mut found: Vec<&MountLine> = mounts.iter().filter(|m| m.root == "/" && wanted(m)).collect();
            found.sort_by_key(|m| (!m.point.starts_with("/sys/fs/cgroup"), m.point.as_os_str().len()));
            found.first().map(|m| m.point.clone())
        };
        let controller = |name: &str| {
            place(&|m: &MountLine| m.kind == "cgroup" && m.options.split(',').any(|option| option == name))
        };
        if mounts.iter().any(|m| m.kind == "cgroup") {
            return Some(Self::V1(V1 {
                cpu: controller("cpu"),
                cpuacct: controller("cpuacct"),
                memory: controller("memory"),
                pids: controller("pids"),
                blkio: controller("blkio"),
            }));
        }
        place(&|m: &MountLine| m.kind == "cgroup2").map(Self::V2)
    }

    /// One cgroup, given by its path below the hierarchies' roots; `None` when it is not there.
    pub(super) fn read(&self, path: &str, depth: Depth, now: Now) -> Option<Sample> {
        let mut reader = Reader::default();
        let dir = self.dir(path)?;
        let mut sample = Sample { mono: now.mono, wall: now.wall, created: made(&dir), ..Sample::default() };
        // The root is never gone; anything else is looked for before its files are.
        sample.created?;
        match self {
            Self::V1(mounts) => v1::read(mounts, path, depth, &mut reader, &mut sample),
            Self::V2(mount) => {
                v2::read(&below(mount, path), path.trim_matches('/').is_empty(), depth, &mut reader, &mut sample)
            }
        }
        if depth >= Depth::Summary {
            sample.processes = reader
                .read(&dir, "cgroup.procs")
                .map(|text| text.lines().filter_map(|pid| pid.parse().ok()).collect())
                .unwrap_or_default();
        }
        // The root's processes are the machine's.
        if depth >= Depth::Detail && !path.trim_matches('/').is_empty() {
            sample.open = open::of(&sample.processes);
        }
        Some(sample)
    }

    /// Names of the cgroups right below one.
    pub(super) fn children(&self, path: &str) -> Vec<String> {
        let Some(entries) = self.dir(path).and_then(|dir| std::fs::read_dir(dir).ok()) else { return Vec::new() };
        let dirs = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let mut names: Vec<String> = dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The folder whose existence stands for the cgroup's.
    fn dir(&self, path: &str) -> Option<PathBuf> {
        let mount = match self {
            Self::V1(mounts) => mounts.cpuacct.as_ref().or(mounts.memory.as_ref())?,
            Self::V2(mount) => mount,
        };
        Some(below(mount, path))
    }
}

fn below(mount: &Path, path: &str) -> PathBuf {
    mount.join(path.trim_matches('/'))
}

fn made(dir: &Path) -> Option<Wall> {
    let meta = std::fs::metadata(dir).ok().filter(std::fs::Metadata::is_dir)?;
    // cgroup file systems keep no time of birth; the modification time is that of the newest cgroup below.
    let time = meta.created().or_else(|_| meta.modified()).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(time.as_nanos()).ok().map(Wall)
}

/// Pressure on the whole machine, where the kernel counts it.
pub(super) fn machine_pressure() -> Option<super::sample::Pressures> {
    v2::of_kernel(&mut Reader::default())
}

/// Reads small files into one buffer.
#[derive(Default)]
pub(super) struct Reader {
    buffer: Vec<u8>,
}

impl Reader {
    /// The text of a file; `None` when it is not there or no text.
    pub(super) fn read(&mut self, dir: &Path, name: &str) -> Option<&str> {
        self.buffer.clear();
        let file = File::open(dir.join(name)).ok()?;
        file.take(LARGEST as u64).read_to_end(&mut self.buffer).ok()?;
        std::str::from_utf8(&self.buffer).ok()
    }

    /// A file that holds one number.
    pub(super) fn number(&mut self, dir: &Path, name: &str) -> Option<u64> {
        super::parse::number(self.read(dir, name)?)
    }
}

#[cfg(test)]
mod tests;
