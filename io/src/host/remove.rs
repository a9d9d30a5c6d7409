//! Removing a directory tree that containers may have filled with anything.
//!
//! Never follows a symbolic link, never enters another file system, holds three descriptors and no recursion however
//! deep the tree is: a nested directory that is not empty is first moved up to the top, where its turn comes later.

use super::{Cancel, HostError};
use components::edge::FailureClass;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstat, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::ffi::{CStr, CString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// Names read at a time, so that memory stays small in a directory of millions.
const BATCH: usize = 1024;

/// Removes a directory and all in it. A missing one counts as removed.
pub(super) fn remove_tree(path: &Path, cancel: &Cancel) -> Result<(), HostError> {
    let (Some(parent_path), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(HostError::new(FailureClass::Invalid, format!("refused to remove {}", path.display())));
    };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let parent = match Dir::open(parent_path, flags, Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::ENOENT) => return Ok(()),
        Err(errno) => return Err(HostError::errno("open", parent_path, errno)),
    };
    let top = match open_here(&parent, name) {
        Ok(top) => top,
        Err(Errno::ENOENT) => return Ok(()),
        Err(Errno::EXDEV) => return Err(other_file_system(path)),
        Err(errno) => return Err(HostError::errno("open", path, errno)),
    };
    let device = device_of(&top, path)?;
    if device != device_of(&parent, parent_path)? {
        return Err(other_file_system(path));
    }
    let mut tree = Tree { path: path.to_owned(), top, device, moved: 0, cancel };
    tree.empty()?;
    match unlinkat(&parent, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(HostError::errno("remove", path, errno)),
    }
}

struct Tree<'a> {
    path: PathBuf,
    top: Dir,
    device: u64,
    moved: u64,
    cancel: &'a Cancel,
}

impl Tree<'_> {
    fn empty(&mut self) -> Result<(), HostError> {
        loop {
            self.cancel.check()?;
            let batch = read_batch(&mut self.top, &self.path)?;
            if batch.is_empty() {
                return Ok(());
            }
            for (name, kind) in batch {
                let path = self.path.join(lossy(&name));
                if self.is_directory(&self.top, &name, kind, &path)? {
                    self.empty_child(&name, &path)?;
                    unlink(&self.top, &name, UnlinkatFlags::RemoveDir, &path)?;
                } else {
                    unlink(&self.top, &name, UnlinkatFlags::NoRemoveDir, &path)?;
                }
            }
        }
    }

    /// Empties a directory that lies right in the top one.
    fn empty_child(&mut self, name: &CStr, path: &Path) -> Result<(), HostError> {
        let mut child = match open_here(&self.top, name) {
            Ok(child) => child,
            Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::EXDEV) => return Err(other_file_system(path)),
            Err(errno) => return Err(HostError::errno("open", path, errno)),
        };
        if device_of(&child, path)? != self.device {
            return Err(other_file_system(path));
        }
        loop {
            self.cancel.check()?;
            let batch = read_batch(&mut child, path)?;
            if batch.is_empty() {
                return Ok(());
            }
            for (name, kind) in batch {
                let path = path.join(lossy(&name));
                if self.is_directory(&child, &name, kind, &path)? {
                    self.take_up(&child, &name, &path)?;
                } else {
                    unlink(&child, &name, UnlinkatFlags::NoRemoveDir, &path)?;
                }
            }
        }
    }

    /// Removes an empty directory, or moves one that is not empty to the top.
    fn take_up(&mut self, child: &Dir, name: &CStr, path: &Path) -> Result<(), HostError> {
        match unlinkat(child, name, UnlinkatFlags::RemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            Err(errno) => return Err(HostError::errno("remove", path, errno)),
        }
        loop {
            self.moved += 1;
            let free = format!(".ticklet-removes-{}", self.moved);
            match renameat(child, name, &self.top, free.as_str()) {
                Ok(()) | Err(Errno::ENOENT) => return Ok(()),
                // The name is taken, by an earlier try that was stopped.
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
                Err(Errno::EXDEV) => return Err(other_file_system(path)),
                Err(errno) => return Err(HostError::errno("move", path, errno)),
            }
        }
    }

    fn is_directory(&self, dir: &Dir, name: &CStr, kind: Option<Type>, path: &Path) -> Result<bool, HostError> {
        match kind {
            Some(Type::Directory) => Ok(true),
            Some(_) => Ok(false),
            // Some file systems do not say the type in the listing.
            None => match fstatat(dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(found) => Ok(found.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFDIR.bits()),
                Err(Errno::ENOENT) => Ok(false),
                Err(errno) => Err(HostError::errno("look at", path, errno)),
            },
        }
    }
}

/// Opens a directory unless it is a link or a mount point. A bind mount may lie on the same file system, so that its
/// device tells nothing.
fn open_here<P: ?Sized + nix::NixPath>(parent: &Dir, name: &P) -> Result<Dir, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let how = OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_NO_XDEV);
    match openat2(parent, name, how) {
        Ok(fd) => Dir::from_fd(fd),
        // Kernels before 5.6: the check of the device remains.
        Err(Errno::ENOSYS) => Dir::openat(parent, name, flags, Mode::empty()),
        Err(errno) => Err(errno),
    }
}

fn read_batch(dir: &mut Dir, path: &Path) -> Result<Vec<(CString, Option<Type>)>, HostError> {
    let mut batch = Vec::new();
    // Dropping the iterator rewinds, so each batch starts at what is left.
    for entry in dir.iter() {
        let entry = entry.map_err(|errno| HostError::errno("read directory", path, errno))?;
        let name = entry.file_name();
        if name != c"." && name != c".." {
            batch.push((name.to_owned(), entry.file_type()));
        }
        if batch.len() == BATCH {
            break;
        }
    }
    Ok(batch)
}

fn unlink(dir: &Dir, name: &CStr, flag: UnlinkatFlags, path: &Path) -> Result<(), HostError> {
    match unlinkat(dir, name, flag) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(HostError::errno("remove", path, errno)),
    }
}

fn device_of(dir: &Dir, path: &Path) -> Result<u64, HostError> {
    fstat(dir.as_fd()).map(|found| found.st_dev).map_err(|errno| HostError::errno("look at", path, errno))
}

fn other_file_system(path: &Path) -> HostError {
    HostError::new(FailureClass::Other, format!("refused to remove {}: it lies on another file system", path.display()))
}

fn lossy(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let top = tempfile::tempdir().unwrap();
        let outside = top.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "1").unwrap();
        let tree = top.path().join("tree");
        fs::create_dir_all(tree.join("a/b/c")).unwrap();
        fs::create_dir_all(tree.join(".ticklet-removes-1/x/y")).unwrap();
        fs::write(tree.join(".ticklet-removes-2"), "a file with that name").unwrap();
        fs::write(tree.join("a/b/file"), "x").unwrap();
        symlink(&outside, tree.join("a/b/link")).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        nix::unistd::mkfifo(&tree.join("a/fifo"), Mode::S_IRWXU).unwrap();
        remove_tree(&tree, &Cancel::default()).unwrap();
        assert!(!tree.exists());
        assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "1");
        remove_tree(&tree, &Cancel::default()).unwrap();
        remove_tree(&top.path().join("no/such"), &Cancel::default()).unwrap();
        symlink(&outside, &tree).unwrap();
        let error = remove_tree(&tree, &Cancel::default()).unwrap_err();
        assert_eq!(error.class, FailureClass::Invalid, "{error}");
        assert!(outside.join("precious").exists());
    }

    /// What a bind mount shows belongs to somebody else, although it lies on the same file system.
    #[test]
    fn nothing_is_removed_through_a_bind_mount() {
        use nix::mount::{MsFlags, mount, umount};
        let top = tempfile::tempdir().unwrap();
        let outside = top.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("precious"), "1").unwrap();
        let tree = top.path().join("tree");
        for place in [tree.join("bound"), tree.join("deep/bound"), tree.clone()] {
            fs::create_dir_all(&place).unwrap();
            let none: Option<&str> = None;
            mount(Some(&outside), &place, none, MsFlags::MS_BIND, none).unwrap();
            let refused = remove_tree(&tree, &Cancel::default());
            // A deep one may have been moved up with its directory, never entered.
            let points = crate::host::mounts::read().unwrap().into_iter().map(|mount| mount.point);
            for point in points.filter(|point| point.starts_with(&tree)) {
                umount(&point).unwrap();
            }
            assert!(refused.is_err());
            assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "1");
        }
        remove_tree(&tree, &Cancel::default()).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn a_tree_deeper_than_any_path_or_stack_goes() {
        let top = tempfile::tempdir().unwrap();
        let tree = top.path().join("tree");
        fs::create_dir(&tree).unwrap();
        // By descriptor, since the paths are far beyond PATH_MAX.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY;
        let mut dir = Dir::open(&tree, flags, Mode::empty()).unwrap();
        for _ in 0..2_000 {
            nix::sys::stat::mkdirat(&dir, c"deep-directory", Mode::S_IRWXU).unwrap();
            dir = Dir::openat(&dir, c"deep-directory", flags, Mode::empty()).unwrap();
        }
        drop(dir);
        remove_tree(&tree, &Cancel::default()).unwrap();
        assert!(!tree.exists());
    }

    #[test]
    fn many_files_go_in_batches_and_a_cancel_stops() {
        let top = tempfile::tempdir().unwrap();
        let tree = top.path().join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        for i in 0..BATCH * 2 + 7 {
            fs::write(tree.join(format!("sub/{i}")), "").unwrap();
        }
        let cancelled = Cancel::default();
        cancelled.0.store(true, std::sync::atomic::Ordering::Relaxed);
        remove_tree(&tree, &cancelled).unwrap_err();
        assert!(tree.exists());
        remove_tree(&tree, &Cancel::default()).unwrap();
        assert!(!tree.exists());
    }
}
