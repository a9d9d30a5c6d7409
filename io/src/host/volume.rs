//! Setting up the volumes whose place is this host: `emptyDir`, on disk or in memory, and `hostPath`.

use super::files::make_dir_with;
use super::{HostError, mounts};
use components::edge::FailureClass;
use components::edge::host::{HostPathKind, VolumeSetup};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::fs::{self, FileType, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::Path;

/// Sets one volume up. Idempotent.
pub(super) fn set_up(volume: &VolumeSetup) -> Result<(), HostError> {
    match volume {
        VolumeSetup::EmptyDir { path, group, .. } => {
            let path = Path::new(path);
            make_volume_dir(path)?;
            own(path, *group)
        }
        VolumeSetup::EmptyDirMemory { path, size_bytes, group, .. } => {
            let path = Path::new(path);
            make_volume_dir(path)?;
            if !mounts::is_mount_point(path)? {
                mount_tmpfs(path, *size_bytes)?;
            }
            own(path, *group)
        }
        VolumeSetup::HostPath { path, kind, .. } => host_path(Path::new(path), *kind),
    }
}

/// The directories above a volume's are the kubelet's own.
fn make_volume_dir(path: &Path) -> Result<(), HostError> {
    if let Some(parent) = path.parent() {
        make_dir_with(parent, 0o750)?;
    }
    make_dir_with(path, 0o777).map(|_| ())
}

/// Opens a volume to all, and to the pod's group with inheritance where it has one.
fn own(path: &Path, group: Option<i64>) -> Result<(), HostError> {
    let mut mode = 0o777;
    if let Some(group) = group {
        let id = u32::try_from(group)
            .map_err(|_| HostError::new(FailureClass::Invalid, format!("group id {group} is out of range")))?;
        // Before chmod: a change of owner drops the set-group-id bit.
        chown(path, None, Some(id)).map_err(|error| HostError::io("set group of", path, &error))?;
        mode |= 0o2000;
    }
    fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|error| HostError::io("set mode of", path, &error))
}

fn mount_tmpfs(path: &Path, size_bytes: Option<i64>) -> Result<(), HostError> {
    let size = size_bytes.map(|bytes| format!("size={bytes}"));
    let mount_with = |options: &str| mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options));
    let with_noswap = size.as_ref().map_or_else(|| "noswap".to_owned(), |size| format!("{size},noswap"));
    let mounted = match mount_with(&with_noswap) {
        // Kernels before 6.4 do not know the option.
        Err(Errno::EINVAL) => mount_with(size.as_deref().unwrap_or_default()),
        other => other,
    };
    mounted.map_err(|errno| HostError::errno("mount memory at", path, errno))
}

fn host_path(path: &Path, kind: HostPathKind) -> Result<(), HostError> {
    match kind {
        HostPathKind::Unset => Ok(()),
        HostPathKind::DirectoryOrCreate => {
            if missing(path)? {
                make_dir_with(path, 0o755)?;
            }
            check(path, FileType::is_dir, "a directory")
        }
        HostPathKind::Directory => check(path, FileType::is_dir, "a directory"),
        HostPathKind::FileOrCreate => {
            if missing(path)? {
                make_file(path)?;
            }
            check(path, FileType::is_file, "a file")
        }
        HostPathKind::File => check(path, FileType::is_file, "a file"),
        HostPathKind::Socket => check(path, FileType::is_socket, "a socket file"),
        HostPathKind::CharDevice => check(path, FileType::is_char_device, "a character device"),
        HostPathKind::BlockDevice => check(path, FileType::is_block_device, "a block device"),
    }
}

fn missing(path: &Path) -> Result<bool, HostError> {
    match fs::metadata(path) {
        Ok(_) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) => Err(HostError::io("look at", path, &error)),
    }
}

fn make_file(path: &Path) -> Result<(), HostError> {
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o644).open(path);
    made.and_then(|file| file.set_permissions(Permissions::from_mode(0o644)))
        .map_err(|error| HostError::io("make file", path, &error))
}

fn check(path: &Path, is: fn(&FileType) -> bool, what: &str) -> Result<(), HostError> {
    let class = match fs::metadata(path) {
        Ok(found) if is(&found.file_type()) => return Ok(()),
        Ok(_) => FailureClass::Invalid,
        Err(error) if error.kind() == io::ErrorKind::NotFound => FailureClass::NotFound,
        Err(error) => return Err(HostError::io("look at", path, &error)),
    };
    Err(HostError::new(class, format!("hostPath type check failed: {} is not {what}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::{Cancel, remove};
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn an_empty_dir_is_open_to_all_and_to_its_group() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("volumes/kubernetes.io~empty-dir/e");
        let make =
            |group| set_up(&VolumeSetup::EmptyDir { name: Arc::from("e"), path: path.display().to_string(), group });
        make(None).unwrap();
        assert_eq!(mode(&path), 0o777);
        assert_eq!(mode(path.parent().unwrap()), 0o750);
        fs::write(path.join("kept"), "").unwrap();
        make(Some(3000)).unwrap();
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().gid()), (0o2777, 3000));
        assert!(path.join("kept").exists());
        assert_eq!(make(Some(-1)).unwrap_err().class, FailureClass::Invalid);
    }

    #[test]
    fn a_memory_dir_is_mounted_once_with_its_size_and_unmounted_before_removal() {
        let top = tempfile::tempdir().unwrap();
        let pod = top.path().join("pod");
        let path = pod.join("volumes/m");
        let setup = VolumeSetup::EmptyDirMemory {
            name: Arc::from("m"),
            path: path.display().to_string(),
            size_bytes: Some(1 << 20),
            group: Some(7),
        };
        set_up(&setup).unwrap();
        fs::write(path.join("kept"), "x").unwrap();
        set_up(&setup).unwrap();
        let lines: Vec<_> = mounts::read().unwrap().into_iter().filter(|mount| mount.point == path).collect();
        assert_eq!(lines.len(), 1, "mounted once");
        assert!(lines[0].options.contains("size=1024k"), "{}", lines[0].options);
        assert!(path.join("kept").exists());
        assert_eq!((mode(&path), fs::metadata(&path).unwrap().gid()), (0o2777, 7));
        let refused = remove::remove_tree(&pod, &Cancel::default()).unwrap_err();
        assert!(path.join("kept").exists(), "{refused}");
        mounts::unmount_below(&top.path().join("pod"), &Cancel::default()).unwrap();
        remove::remove_tree(&pod, &Cancel::default()).unwrap();
        assert!(!pod.exists());
    }

    #[track_caller]
    fn check_host_path(path: &Path, kind: HostPathKind, expect: Result<(), &str>) {
        let setup = VolumeSetup::HostPath { name: Arc::from("h"), path: path.display().to_string(), kind };
        let got = set_up(&setup).map_err(|error| error.message);
        let expect = expect.map_err(|what| format!("hostPath type check failed: {} is not {what}", path.display()));
        assert_eq!(got, expect);
    }

    #[test]
    fn host_paths_are_checked_by_their_type() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::write(at("file"), "").unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        check_host_path(&at("no"), HostPathKind::Unset, Ok(()));
        check_host_path(&at("no"), HostPathKind::Directory, Err("a directory"));
        check_host_path(&at("file"), HostPathKind::Directory, Err("a directory"));
        check_host_path(top.path(), HostPathKind::Directory, Ok(()));
        check_host_path(&at("new/dir"), HostPathKind::DirectoryOrCreate, Ok(()));
        assert_eq!(mode(&at("new/dir")), 0o755);
        check_host_path(&at("file"), HostPathKind::DirectoryOrCreate, Err("a directory"));
        check_host_path(&at("made"), HostPathKind::FileOrCreate, Ok(()));
        assert_eq!(mode(&at("made")), 0o644);
        check_host_path(&at("link"), HostPathKind::File, Ok(()));
        check_host_path(top.path(), HostPathKind::File, Err("a file"));
        check_host_path(&at("no"), HostPathKind::File, Err("a file"));
        check_host_path(&at("socket"), HostPathKind::Socket, Ok(()));
        check_host_path(&at("file"), HostPathKind::Socket, Err("a socket file"));
        check_host_path(Path::new("/dev/null"), HostPathKind::CharDevice, Ok(()));
        check_host_path(&at("file"), HostPathKind::CharDevice, Err("a character device"));
        check_host_path(&at("file"), HostPathKind::BlockDevice, Err("a block device"));
    }
}
