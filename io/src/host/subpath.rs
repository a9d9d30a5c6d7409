//! Binding a part of a volume to a place of its own (`subPath`).
//!
//! Containers may fill the volume with any links, and change them at any time. So the part is looked up element by
//! element from an opened descriptor of the volume, and links are resolved here and not by the kernel: nothing above
//! the volume can be reached. What was found is bound by its descriptor, so that no later change of a name matters.

use super::files::make_dir_with;
use super::{HostError, mounts};
use components::edge::FailureClass;
use components::edge::host::SubPath;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, AtFlags, OFlag, openat, readlinkat};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

/// Links followed in one look-up, as in the kernel.
const MAX_LINKS: u32 = 40;

/// Opens without access to the content and without following a link.
const FIND: OFlag = OFlag::O_PATH.union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Binds the part to its target. Idempotent; a target that shows something else is bound anew.
pub(super) fn bind(part: &SubPath) -> Result<(), HostError> {
    find_and_bind(part).map_err(|error| {
        // What lies where on this host is not for the pod's owner to learn; the log has it.
        let (volume, container) = (&part.volume, &part.container);
        tracing::warn!(error = %error, volume = %volume, container = %container, "subPath could not be prepared");
        let text = format!("failed to prepare subPath for volumeMount \"{volume}\" of container \"{container}\"");
        HostError::new(error.class, text)
    })
}

fn find_and_bind(part: &SubPath) -> Result<(), HostError> {
    let found = find(Path::new(&part.root), Path::new(&part.path))?;
    let target = Path::new(&part.target);
    if shows(target, &found)? {
        return Ok(());
    }
    clear(target)?;
    make_target(target, is(&stat(&found, target)?, SFlag::S_IFDIR))?;
    let source = format!("/proc/self/fd/{}", found.as_raw_fd());
    let none: Option<&str> = None;
    mount(Some(source.as_str()), target, none, MsFlags::MS_BIND, none)
        .map_err(|errno| HostError::errno("bind to", target, errno))
}

/// True when the target shows this very file.
fn shows(target: &Path, found: &OwnedFd) -> Result<bool, HostError> {
    let wanted = stat(found, target)?;
    match fstatat(AT_FDCWD, target, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(seen) => Ok((seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino)),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(HostError::errno("look at", target, errno)),
    }
}

/// Unmounts what an earlier instance of the container was given, and removes the place if it is of the wrong kind.
fn clear(target: &Path) -> Result<(), HostError> {
    if fs::symlink_metadata(target).is_err() {
        return Ok(());
    }
    while mounts::is_mount_point(target)? {
        umount2(target, MntFlags::UMOUNT_NOFOLLOW).map_err(|errno| HostError::errno("unmount", target, errno))?;
    }
    let found = fs::symlink_metadata(target).map_err(|error| HostError::io("look at", target, &error))?;
    let removed = if found.is_dir() { fs::remove_dir(target) } else { fs::remove_file(target) };
    removed.map_err(|error| HostError::io("remove", target, &error))
}

fn make_target(target: &Path, dir: bool) -> Result<(), HostError> {
    if let Some(parent) = target.parent() {
        make_dir_with(parent, 0o750)?;
    }
    if dir {
        return make_dir_with(target, 0o750).map(|_| ());
    }
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o640)
        .open(target)
        .map(|_| ())
        .map_err(|error| HostError::io("make file", target, &error))
}

/// Opens `path` below `root` without ever leaving it. Directories that are missing are made with the root's mode.
fn find(root: &Path, path: &Path) -> Result<OwnedFd, HostError> {
    let real = root.canonicalize().map_err(|error| HostError::io("resolve", root, &error))?;
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC | OFlag::O_DIRECTORY;
    let top = openat(AT_FDCWD, &real, flags, Mode::empty()).map_err(|errno| HostError::errno("open", root, errno))?;
    let mode = Mode::from_bits_truncate(stat(&top, root)?.st_mode & 0o7777);
    let mut walk = Walk { real, shown: root.join(path), top, mode, above: Vec::new(), links: 0, left: VecDeque::new() };
    walk.put(path)?;
    walk.run()
}

/// A look-up under way.
struct Walk {
    /// The volume's path without links.
    real: PathBuf,
    /// What is looked for, for messages.
    shown: PathBuf,
    /// The volume.
    top: OwnedFd,
    /// Mode of directories that are made.
    mode: Mode,
    /// Directories gone through, from the volume down: `..` is taken from here.
    above: Vec<OwnedFd>,
    links: u32,
    /// Elements still to go.
    left: VecDeque<OsString>,
}

impl Walk {
    fn run(mut self) -> Result<OwnedFd, HostError> {
        while let Some(name) = self.left.pop_front() {
            if name == ".." {
                if self.above.pop().is_none() {
                    return Err(self.escapes());
                }
                continue;
            }
            let next = match openat(self.here(), name.as_os_str(), FIND, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::ENOENT) => self.make(&name)?,
                Err(errno) => return Err(self.failed(errno)),
            };
            let found = stat(&next, &self.shown)?;
            if is(&found, SFlag::S_IFLNK) {
                self.follow(&next)?;
            } else if is(&found, SFlag::S_IFDIR) {
                self.above.push(next);
            } else if self.left.is_empty() {
                return Ok(next);
            } else {
                return Err(self.failed(Errno::ENOTDIR));
            }
        }
        Ok(self.above.pop().unwrap_or(self.top))
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.above.last().unwrap_or(&self.top).as_fd()
    }

    /// Puts the elements of a relative path before those that are left.
    fn put(&mut self, path: &Path) -> Result<(), HostError> {
        for part in path.components().rev() {
            match part {
                Component::Normal(name) => self.left.push_front(name.to_owned()),
                Component::ParentDir => self.left.push_front(OsString::from("..")),
                Component::CurDir => {}
                Component::RootDir | Component::Prefix(_) => return Err(self.escapes()),
            }
        }
        Ok(())
    }

    fn follow(&mut self, link: &OwnedFd) -> Result<(), HostError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(self.failed(Errno::ELOOP));
        }
        let target = readlinkat(link, OsStr::new("")).map_err(|errno| self.failed(errno))?;
        let target = PathBuf::from(target);
        if !target.is_absolute() {
            return self.put(&target);
        }
        // An absolute link is good when it names a path within the volume.
        let Ok(rest) = target.strip_prefix(&self.real).map(Path::to_owned) else { return Err(self.escapes()) };
        self.above.clear();
        self.put(&rest)
    }

    fn make(&self, name: &OsStr) -> Result<OwnedFd, HostError> {
        match mkdirat(self.here(), name, self.mode) {
            // Made by somebody else in between: it is looked at like any other.
            Err(Errno::EEXIST) => {
                return openat(self.here(), name, FIND, Mode::empty()).map_err(|errno| self.failed(errno));
            }
            Err(errno) => return Err(self.failed(errno)),
            Ok(()) => {}
        }
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let made = openat(self.here(), name, flags, Mode::empty()).map_err(|errno| self.failed(errno))?;
        // The umask has cut the mode.
        fchmod(&made, self.mode).map_err(|errno| self.failed(errno))?;
        Ok(made)
    }

    fn escapes(&self) -> HostError {
        let (path, top) = (self.shown.display(), self.real.display());
        HostError::new(FailureClass::Invalid, format!("{path} leads out of the volume {top}"))
    }

    fn failed(&self, errno: Errno) -> HostError {
        HostError::errno("look up", &self.shown, errno)
    }
}

fn stat(file: &OwnedFd, shown: &Path) -> Result<FileStat, HostError> {
    fstat(file).map_err(|errno| HostError::errno("look at", shown, errno))
}

const fn is(found: &FileStat, kind: SFlag) -> bool {
    found.st_mode & SFlag::S_IFMT.bits() == kind.bits()
}

#[cfg(test)]
#[path = "subpath_tests.rs"]
mod tests;
