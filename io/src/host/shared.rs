//! Makes the kubelet's root directory a shared mount: a container may then mount something into a volume for other
//! containers to see (`mountPropagation: Bidirectional`).
//!
//! Most machines share `/` already, and nothing is done there.

use super::HostError;
use nix::mount::{MsFlags, mount};
use std::fs;
use std::path::{Path, PathBuf};

const TABLE: &str = "/proc/self/mountinfo";

/// Mounts a directory onto itself and shares it, unless it lies on a shared mount.
///
/// # Errors
/// When the mount table cannot be read or the kernel refuses.
pub fn share(dir: &Path) -> Result<(), HostError> {
    let dir = fs::canonicalize(dir).map_err(|error| HostError::io("find", dir, &error))?;
    let table = fs::read(TABLE).map_err(|error| HostError::io("read", Path::new(TABLE), &error))?;
    if is_shared(&String::from_utf8_lossy(&table), &dir) {
        return Ok(());
    }
    tracing::info!(path = %dir.display(), "The root directory becomes a shared mount");
    let none: Option<&str> = None;
    mount(Some(&dir), &dir, none, MsFlags::MS_BIND, none)
        .and_then(|()| mount(none, &dir, none, MsFlags::MS_SHARED | MsFlags::MS_REC, none))
        .map_err(|errno| HostError::io("share", &dir, &errno.into()))
}

/// Whether the mount that holds a path is shared; of mounts at one point the last one counts.
fn is_shared(table: &str, path: &Path) -> bool {
    let lines = table.lines().filter_map(|line| {
        let point = PathBuf::from(line.split(' ').nth(4)?);
        let shared = line.split(" - ").next()?.split(' ').skip(6).any(|option| option.starts_with("shared:"));
        path.starts_with(&point).then(|| (point.components().count(), shared))
    });
    lines.fold((0, false), |best, next| if next.0 >= best.0 { next } else { best }).1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_and_last_mount_decides() {
        let table = "21 1 8:1 / / rw - ext4 /dev/vda rw\n\
                     22 21 8:1 /x /var/lib rw shared:3 - ext4 /dev/vda rw\n\
                     23 22 8:1 /y /var/lib/private rw master:3 - ext4 /dev/vda rw\n";
        assert!(!is_shared(table, Path::new("/tmp/kubelet")));
        assert!(is_shared(table, Path::new("/var/lib/kubelet")));
        assert!(!is_shared(table, Path::new("/var/lib/private/kubelet")));
        let over = format!("{table}24 22 8:1 /z /var/lib rw - ext4 /dev/vda rw\n");
        assert!(!is_shared(&over, Path::new("/var/lib/kubelet")));
        assert!(is_shared("21 1 8:1 / / rw shared:1 - ext4 /dev/vda rw\n", Path::new("/var/lib/kubelet")));
    }
}
