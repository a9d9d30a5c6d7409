//! What lies on disks: file systems by one call each, trees by walking them.
//!
//! A walk follows no link, stays on one file system and stops when it is told to. Decides nothing.

use components::time::Wall;
use nix::dir::{Dir, Type};
use nix::fcntl::{AtFlags, OFlag};
use nix::sys::stat::{FileStat, Mode, fstat, fstatat};
use nix::sys::statvfs::statvfs;
use std::collections::HashSet;
use std::os::fd::AsFd;
use std::path::Path;

/// Folders below each other that a walk goes down; each holds a descriptor open.
const DEEPEST: usize = 128;

/// A file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FileSystem {
    /// Bytes that users may have.
    pub(super) available: u64,
    /// Bytes in all.
    pub(super) capacity: u64,
    /// Bytes that are taken.
    pub(super) used: u64,
    /// Inodes that are free.
    pub(super) inodes_free: u64,
    /// Inodes in all.
    pub(super) inodes: u64,
}

/// What a tree takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Taken {
    /// Bytes of blocks.
    pub(super) bytes: u64,
    /// Inodes.
    pub(super) inodes: u64,
}

impl Taken {
    /// Both together.
    #[must_use]
    pub(super) const fn and(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, inodes: self.inodes + other.inodes }
    }
}

/// A tree and when it was measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Measure {
    /// When.
    pub(super) at: Wall,
    /// What it takes.
    pub(super) taken: Taken,
}

/// The file system that a path lies on; `None` when it can't be looked at.
pub(super) fn file_system(path: &Path) -> Option<FileSystem> {
    let found = statvfs(path).ok()?;
    let size = found.fragment_size();
    Some(FileSystem {
        available: found.blocks_available() * size,
        capacity: found.blocks() * size,
        used: found.blocks().saturating_sub(found.blocks_free()) * size,
        inodes_free: found.files_available(),
        inodes: found.files(),
    })
}

/// What a tree takes with its top; `None` when the top is not there or the walk was stopped.
pub(super) fn tree(path: &Path, stopped: &dyn Fn() -> bool) -> Option<Taken> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
    let mut walk = Walk { seen: HashSet::new(), taken: Taken::default(), flags, device: 0, stopped };
    let top = Dir::open(path, flags, Mode::empty()).ok()?;
    let stat = fstat(top.as_fd()).ok()?;
    walk.device = stat.st_dev;
    walk.count(&stat);
    walk.down(top, 0)?;
    Some(walk.taken)
}

/// What the files right in a folder take, without the folder; nothing when it is not there.
pub(super) fn files(dir: &Path) -> Taken {
    let mut taken = Taken::default();
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if let Ok(meta) = entry.metadata()
            && meta.is_file()
        {
            taken = taken.and(one(&meta));
        }
    }
    taken
}

/// What one file takes.
pub(super) fn file(path: &Path) -> Option<Taken> {
    std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file).map(|meta| one(&meta))
}

fn one(meta: &std::fs::Metadata) -> Taken {
    use std::os::unix::fs::MetadataExt;
    Taken { bytes: meta.blocks() * 512, inodes: 1 }
}

struct Walk<'a> {
    /// Files with more than one name that were counted.
    seen: HashSet<u64>,
    taken: Taken,
    flags: OFlag,
    device: u64,
    stopped: &'a dyn Fn() -> bool,
}

impl Walk<'_> {
    fn count(&mut self, stat: &FileStat) {
        self.taken = self.taken.and(Taken { bytes: u64::try_from(stat.st_blocks).unwrap_or(0) * 512, inodes: 1 });
    }

    /// `None` when the walk was stopped; what vanished meanwhile takes nothing.
    fn down(&mut self, mut dir: Dir, depth: usize) -> Option<()> {
        if (self.stopped)() {
            return None;
        }
        let mut below = Vec::new();
        let names: Vec<_> =
            dir.iter().flatten().map(|entry| (entry.file_name().to_owned(), entry.file_type())).collect();
        for (name, kind) in names {
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let Ok(stat) = fstatat(dir.as_fd(), name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else { continue };
            if stat.st_dev != self.device {
                continue;
            }
            let folder = kind == Some(Type::Directory) || (stat.st_mode & libc::S_IFMT) == libc::S_IFDIR;
            if !folder && stat.st_nlink > 1 && !self.seen.insert(stat.st_ino) {
                continue;
            }
            self.count(&stat);
            if folder && depth < DEEPEST {
                below.push(name);
            }
        }
        for name in below {
            let Ok(next) = Dir::openat(dir.as_fd(), name.as_c_str(), self.flags, Mode::empty()) else { continue };
            self.down(next, depth + 1)?;
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_tree_counts_each_inode_once_and_follows_nothing() {
        let top = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::write(outside.path().join("huge"), vec![1; 1 << 20]).unwrap();
        let dir = top.path().join("v");
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/f"), vec![7; 100_000]).unwrap();
        fs::hard_link(dir.join("a/b/f"), dir.join("again")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.join("link")).unwrap();
        let found = tree(&dir, &|| false).unwrap();
        assert_eq!(found.inodes, 5, "v, a, b, f, link");
        assert!((98_304..200_000).contains(&found.bytes), "{found:?}");
        assert_eq!(tree(&dir, &|| true), None);
        assert_eq!(tree(&dir.join("none"), &|| false), None);
        assert_eq!(tree(&dir.join("link"), &|| false), None);
        assert_eq!(files(&dir.join("a/b")).inodes, 1);
        assert_eq!(files(&dir.join("none")), Taken::default());
    }

    #[test]
    fn a_file_system_is_as_large_as_its_parts() {
        let found = file_system(Path::new("/")).unwrap();
        assert!(found.capacity > 0 && found.available <= found.capacity && found.used <= found.capacity);
        assert_eq!(file_system(Path::new("/nonexistent")), None);
    }
}
