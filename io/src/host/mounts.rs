//! The mount table, and unmounting what lies below a pod's directory.

use super::{Cancel, HostError};
use components::edge::FailureClass;
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

const TABLE: &str = "/proc/self/mountinfo";

/// Passes over the mount table; a mount may be busy for a moment while its last process ends.
const PASSES: u32 = 5;

/// Pause between passes.
const PAUSE: Duration = Duration::from_millis(50);

/// One line of the mount table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MountLine {
    /// What of the file system is mounted.
    pub(crate) root: String,
    /// Where.
    pub(crate) point: PathBuf,
    /// File system type.
    pub(crate) kind: String,
    /// Options of the file system.
    pub(crate) options: String,
}

/// Reads the mount table of this process.
pub(crate) fn read() -> Result<Vec<MountLine>, HostError> {
    let table = Path::new(TABLE);
    // Not `read_to_string`: mount points may hold any bytes.
    let bytes = fs::read(table).map_err(|error| HostError::io("read", table, &error))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Parses a mount table; lines that are not of its form are left out.
pub(super) fn parse(text: &str) -> Vec<MountLine> {
    text.lines().filter_map(parse_line).collect()
}

fn parse_line(line: &str) -> Option<MountLine> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let kind = after.next()?;
    let options = after.nth(1).unwrap_or_default();
    Some(MountLine {
        root: unescape(root),
        point: PathBuf::from(unescape(point)),
        kind: kind.to_owned(),
        options: options.to_owned(),
    })
}

/// Undoes `\040` and its like.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let octal = tail.get(..3).filter(|_| *byte == b'\\').and_then(|digits| {
            digits.iter().try_fold(0_u8, |value, digit| match digit {
                b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
                _ => None,
            })
        });
        match octal {
            Some(value) => {
                out.push(value);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// True when something is mounted exactly there.
pub(super) fn is_mount_point(path: &Path) -> Result<bool, HostError> {
    let Some(path) = real(path)? else { return Ok(false) };
    Ok(read()?.iter().any(|mount| mount.point == path))
}

/// The path as the mount table has it, when there is such a place: without links, except for the last element, which
/// is never followed.
fn real(path: &Path) -> Result<Option<PathBuf>, HostError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(Some(path.to_owned())) };
    match parent.canonicalize() {
        Ok(parent) => Ok(Some(parent.join(name))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HostError::io("resolve", parent, &error)),
    }
}

/// Unmounts everything at or below `dir`, newest first. Fails when a mount remains.
pub(super) fn unmount_below(dir: &Path, cancel: &Cancel) -> Result<(), HostError> {
    let Some(dir) = real(dir)? else { return Ok(()) };
    let dir = dir.as_path();
    let mut trouble = None;
    for pass in 0..PASSES {
        cancel.check()?;
        let points = points_below(&read()?, dir);
        if points.is_empty() {
            return Ok(());
        }
        if pass > 0 {
            std::thread::sleep(PAUSE);
        }
        for point in points {
            match umount2(&point, MntFlags::UMOUNT_NOFOLLOW) {
                // Gone already: with the mount above it, or by its owner.
                Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => {}
                Err(errno) => trouble = Some(HostError::errno("unmount", &point, errno)),
            }
        }
    }
    match points_below(&read()?, dir).first() {
        None => Ok(()),
        Some(point) => Err(trouble.unwrap_or_else(|| {
            HostError::new(FailureClass::Other, format!("{} is still mounted after {PASSES} tries", point.display()))
        })),
    }
}

/// Mount points at or below `dir` in the order in which they can be unmounted: the table lists a mount after the one
/// it lies on.
fn points_below(mounts: &[MountLine], dir: &Path) -> Vec<PathBuf> {
    mounts.iter().rev().filter(|mount| mount.point.starts_with(dir)).map(|mount| mount.point.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
not a line
60 27 0:50 / /r/pods/u/volumes/a\\040b rw - tmpfs tmpfs rw,size=8192k
61 60 0:51 /sub /r/pods/u/volumes/a\\040b/in\\134ner rw - ext4 /dev/vda rw
62 27 0:52 / /r/pods/u2 rw - tmpfs tmpfs rw
";

    #[test]
    fn the_table_is_parsed_with_its_escapes() {
        let mounts = parse(SAMPLE);
        assert_eq!(mounts.len(), 5);
        assert_eq!(mounts[1].options, "rw,cpu,cpuacct");
        assert_eq!(mounts[1].kind, "cgroup");
        assert_eq!(mounts[2].point, Path::new("/r/pods/u/volumes/a b"));
        assert_eq!(mounts[3].point, Path::new("/r/pods/u/volumes/a b/in\\ner"));
        assert_eq!(mounts[3].root, "/sub");
    }

    #[test]
    fn only_mounts_below_the_directory_count_and_the_newest_goes_first() {
        let points = points_below(&parse(SAMPLE), Path::new("/r/pods/u"));
        let expect = ["/r/pods/u/volumes/a b/in\\ner", "/r/pods/u/volumes/a b"].map(PathBuf::from);
        assert_eq!(points, expect);
        assert!(points_below(&parse(SAMPLE), Path::new("/r/pods/nobody")).is_empty());
    }

    #[test]
    fn this_process_has_a_mount_table() {
        assert!(is_mount_point(Path::new("/proc")).unwrap());
        assert!(!is_mount_point(Path::new("/proc/no/such/place")).unwrap());
    }

    /// One mount that is in use must not keep the others of the pod mounted.
    #[test]
    fn a_busy_mount_is_named_and_the_others_go() {
        use nix::mount::{MsFlags, mount};
        let top = tempfile::tempdir().unwrap();
        let pod = top.path().join("pod");
        for name in ["a", "busy", "z"] {
            let path = pod.join(name);
            fs::create_dir_all(&path).unwrap();
            mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("size=64k")).unwrap();
        }
        let held = fs::File::create(pod.join("busy/held")).unwrap();
        let error = unmount_below(&pod, &Cancel::default()).unwrap_err();
        let left: Vec<_> =
            ["a", "busy", "z"].into_iter().filter(|name| is_mount_point(&pod.join(name)).unwrap()).collect();
        drop(held);
        unmount_below(&pod, &Cancel::default()).unwrap();
        assert_eq!(left, ["busy"]);
        assert!(error.message.contains("busy") && error.message.contains("unmount"), "{error}");
    }
}
