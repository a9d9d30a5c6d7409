//! Files that others may read or replace at any time: how they are put in place, and how a change of them is seen.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// What tells one version of a file from another: inode, size, and both of its times; `None` for one that is missing.
pub(crate) type Stamp = Option<(u64, u64, [i64; 4])>;

/// Looks at a file, links followed.
pub(crate) fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()]))
}

/// Puts a whole file in place, durable and readable as `mode` says; it is nobody else's to read before.
pub(crate) fn put(path: &Path, mode: u32, content: &str) -> std::io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(dir)?;
    file.write_all(content.as_bytes())?;
    file.as_file().set_permissions(Permissions::from_mode(mode))?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
