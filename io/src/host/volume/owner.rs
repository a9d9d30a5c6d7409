//! Giving a volume to the pod's group (`fsGroup`): every file gets the group, is readable and writable by it, and
//! directories hand the group on.
//!
//! The walk follows no link and leaves the volume's file system nowhere; it stops when nobody waits for it.

use super::super::{Cancel, HostError};
use components::edge::FailureClass;
use components::edge::host::OwnPlace;
use nix::errno::Errno;
use nix::fcntl::AT_FDCWD;
use nix::fcntl::AtFlags;
use nix::sys::stat::{FchmodatFlags, Mode, SFlag, fchmodat, fstatat};
use nix::unistd::{Gid, fchownat};
use std::fs;
use std::path::{Path, PathBuf};

/// What the pod's containers may do to the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Read and write.
    ReadWrite,
    /// Read: the kubelet writes them.
    ReadOnly,
}

impl Access {
    const fn file_bits(self) -> u32 {
        match self {
            Self::ReadWrite => 0o660,
            Self::ReadOnly => 0o440,
        }
    }

    const fn dir_bits(self) -> u32 {
        self.file_bits() | 0o2110
    }
}

/// Gives everything at and below `path` to the volume's group; nothing without a group.
pub(super) fn give(place: &OwnPlace, path: &Path, access: Access, cancel: &Cancel) -> Result<(), HostError> {
    let Some(group) = place.group else { return Ok(()) };
    let id = u32::try_from(group)
        .map_err(|_| HostError::new(FailureClass::Invalid, format!("group id {group} is out of range")))?;
    if place.only_on_mismatch && top_fits(path, id, access)? {
        return Ok(());
    }
    // Children before their directory: the top fits only when all below it does, so a walk that was cut off starts
    // again although the policy is to look at the top only.
    let mut found = vec![path.to_owned()];
    let device = look(path)?.map(|stat| stat.st_dev);
    let mut next = 0;
    while let Some(dir) = found.get(next).cloned() {
        cancel.check()?;
        next += 1;
        for entry in fs::read_dir(&dir).map_err(|error| HostError::io("read directory", &dir, &error))? {
            let entry = entry.map_err(|error| HostError::io("read directory", &dir, &error))?;
            let child = entry.path();
            let Some(stat) = look(&child)? else { continue };
            if Some(stat.st_dev) != device {
                continue;
            }
            if is(stat.st_mode, SFlag::S_IFDIR) {
                found.push(child);
            } else {
                change(&child, id, stat.st_mode, access)?;
            }
        }
    }
    for dir in found.iter().rev() {
        cancel.check()?;
        if let Some(stat) = look(dir)? {
            change(dir, id, stat.st_mode, access)?;
        }
    }
    Ok(())
}

fn top_fits(path: &Path, group: u32, access: Access) -> Result<bool, HostError> {
    let bits = access.dir_bits();
    Ok(look(path)?
        .is_some_and(|stat| is(stat.st_mode, SFlag::S_IFDIR) && stat.st_gid == group && stat.st_mode & bits == bits))
}

fn look(path: &Path) -> Result<Option<nix::sys::stat::FileStat>, HostError> {
    match fstatat(AT_FDCWD, path, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(HostError::errno("look at", path, errno)),
    }
}

const fn is(mode: u32, kind: SFlag) -> bool {
    mode & SFlag::S_IFMT.bits() == kind.bits()
}

fn change(path: &PathBuf, group: u32, mode: u32, access: Access) -> Result<(), HostError> {
    let done = fchownat(AT_FDCWD, path, None, Some(Gid::from_raw(group)), AtFlags::AT_SYMLINK_NOFOLLOW);
    done.map_err(|errno| HostError::errno("set group of", path, errno))?;
    // A link has no mode of its own, and a change would reach what it points to.
    if is(mode, SFlag::S_IFLNK) {
        return Ok(());
    }
    let bits = if is(mode, SFlag::S_IFDIR) { access.dir_bits() } else { access.file_bits() };
    // After chown, which drops the set-group-id bit.
    let wanted = Mode::from_bits_truncate((mode & 0o7777) | bits);
    fchmodat(AT_FDCWD, path, wanted, FchmodatFlags::FollowSymlink)
        .map_err(|errno| HostError::errno("set mode of", path, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn place(path: &Path, only_on_mismatch: bool) -> OwnPlace {
        OwnPlace { path: path.display().to_string(), marker: String::new(), group: Some(4321), only_on_mismatch }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn seen(path: &Path) -> (u32, u32) {
        let found = fs::symlink_metadata(path).unwrap();
        (found.mode() & 0o7777, found.gid())
    }

    #[test]
    fn everything_below_goes_to_the_group_and_links_are_not_followed() {
        let top = tempfile::tempdir().unwrap();
        let outside = top.path().join("outside");
        fs::write(&outside, "").unwrap();
        set_mode(&outside, 0o600);
        let volume = top.path().join("volume");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("a/b/file"), "").unwrap();
        set_mode(&volume.join("a/b/file"), 0o600);
        set_mode(&volume.join("a"), 0o700);
        symlink(&outside, volume.join("link")).unwrap();
        give(&place(&volume, false), &volume, Access::ReadWrite, &Cancel::default()).unwrap();
        assert_eq!(seen(&volume.join("a/b/file")), (0o660, 4321));
        assert_eq!(seen(&volume.join("a")), (0o2770, 4321));
        assert_eq!(seen(&volume.join("link")).1, 4321);
        assert_eq!(seen(&outside), (0o600, 0));
    }

    #[test]
    fn a_top_that_fits_saves_the_walk_only_under_its_policy() {
        let top = tempfile::tempdir().unwrap();
        let volume = top.path().join("volume");
        fs::create_dir(&volume).unwrap();
        give(&place(&volume, true), &volume, Access::ReadWrite, &Cancel::default()).unwrap();
        let late = volume.join("late");
        fs::write(&late, "").unwrap();
        std::os::unix::fs::chown(&late, None, Some(0)).unwrap();
        give(&place(&volume, true), &volume, Access::ReadWrite, &Cancel::default()).unwrap();
        assert_eq!(seen(&late).1, 0, "the top fits");
        give(&place(&volume, false), &volume, Access::ReadWrite, &Cancel::default()).unwrap();
        assert_eq!(seen(&late).1, 4321);
    }

    #[test]
    fn a_cut_off_walk_is_not_taken_for_a_done_one() {
        let top = tempfile::tempdir().unwrap();
        let volume = top.path().join("volume");
        fs::create_dir_all(volume.join("sub")).unwrap();
        let cancelled = Cancel::default();
        cancelled.0.store(true, std::sync::atomic::Ordering::Relaxed);
        give(&place(&volume, true), &volume, Access::ReadWrite, &cancelled).unwrap_err();
        assert_eq!(seen(&volume).1, 0);
    }
}
