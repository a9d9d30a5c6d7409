//! `emptyDir`: a directory of the pod's own on disk, in memory or on huge pages.
//!
//! A marker file says that a volume was set up once. From then on its mode and owner belong to the pod's containers.

use super::super::files::make_dir_with;
use super::super::{Cancel, HostError, mounts};
use super::owner;
use components::edge::FailureClass;
use components::edge::host::{Medium, OwnPlace};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use std::fs::{self, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Makes the directory with what it lies on. Idempotent.
pub(super) fn set_up(place: &OwnPlace, medium: Medium, cancel: &Cancel) -> Result<(), HostError> {
    if in_place(place, medium)? && is_ready(place)? {
        return Ok(());
    }
    make(place, medium)?;
    owner::give(place, Path::new(&place.path), owner::Access::ReadWrite, cancel)?;
    set_ready(place)
}

/// The directory, with its mount, but nobody's yet.
pub(super) fn make(place: &OwnPlace, medium: Medium) -> Result<(), HostError> {
    let path = Path::new(&place.path);
    // The directories above a volume's are the kubelet's own.
    if let Some(parent) = path.parent() {
        make_dir_with(parent, 0o750)?;
    }
    make_dir_with(path, 0o777)?;
    match medium {
        Medium::Disk => open_to_all(path),
        Medium::Memory { size_bytes } if !mounts::is_mount_point(path)? => {
            open_to_all(path)?;
            mount_tmpfs(path, size_bytes)
        }
        Medium::HugePages { page_bytes } if !mounts::is_mount_point(path)? => {
            open_to_all(path)?;
            let options = format!("pagesize={page_bytes}");
            mount(Some("nodev"), path, Some("hugetlbfs"), MsFlags::empty(), Some(options.as_str()))
                .map_err(|errno| HostError::errno("mount huge pages at", path, errno))
        }
        Medium::Memory { .. } | Medium::HugePages { .. } => Ok(()),
    }
}

/// The umask must not close the directory to a pod's user.
fn open_to_all(path: &Path) -> Result<(), HostError> {
    fs::set_permissions(path, Permissions::from_mode(0o777)).map_err(|error| HostError::io("set mode of", path, &error))
}

fn in_place(place: &OwnPlace, medium: Medium) -> Result<bool, HostError> {
    let path = Path::new(&place.path);
    match medium {
        Medium::Disk => Ok(fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())),
        Medium::Memory { .. } | Medium::HugePages { .. } => mounts::is_mount_point(path),
    }
}

/// True when the volume was set up before.
pub(super) fn is_ready(place: &OwnPlace) -> Result<bool, HostError> {
    let file = Path::new(&place.marker).join("ready");
    match fs::symlink_metadata(&file) {
        Ok(found) => Ok(found.is_file()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(HostError::io("look at", &file, &error)),
    }
}

/// Notes that the volume was set up.
pub(super) fn set_ready(place: &OwnPlace) -> Result<(), HostError> {
    let dir = Path::new(&place.marker);
    make_dir_with(dir, 0o750)?;
    let file = dir.join("ready");
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o640)
        .open(&file)
        .map(|_| ())
        .map_err(|error| HostError::io("make file", &file, &error))
}

fn mount_tmpfs(path: &Path, size_bytes: i64) -> Result<(), HostError> {
    if size_bytes <= 0 {
        // The kernel takes zero for "no limit".
        let text = format!("mount memory at {}: a size of {size_bytes} bytes is no size", path.display());
        return Err(HostError::new(FailureClass::Invalid, text));
    }
    let mount_with = |options: &str| mount(Some("tmpfs"), path, Some("tmpfs"), MsFlags::empty(), Some(options));
    let size = format!("size={size_bytes}");
    let mounted = match mount_with(&format!("{size},noswap")) {
        // Kernels before 6.4 do not know the option.
        Err(Errno::EINVAL) => mount_with(&size),
        other => other,
    };
    mounted.map_err(|errno| HostError::errno("mount memory at", path, errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::remove;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    fn place(pod: &Path, group: Option<i64>) -> OwnPlace {
        OwnPlace {
            path: pod.join("volumes/kubernetes.io~empty-dir/e").display().to_string(),
            marker: pod.join("plugins/kubernetes.io~empty-dir/e").display().to_string(),
            group,
            only_on_mismatch: false,
        }
    }

    #[test]
    fn it_is_open_to_all_and_to_its_group_and_set_up_once() {
        let top = tempfile::tempdir().unwrap();
        let plain = place(&top.path().join("one"), None);
        set_up(&plain, Medium::Disk, &Cancel::default()).unwrap();
        let path = Path::new(&plain.path);
        assert_eq!((mode(path), mode(path.parent().unwrap())), (0o777, 0o750));
        assert!(Path::new(&plain.marker).join("ready").is_file());
        // A container made it its own: another set-up leaves it so.
        fs::set_permissions(path, Permissions::from_mode(0o700)).unwrap();
        fs::write(path.join("kept"), "").unwrap();
        set_up(&plain, Medium::Disk, &Cancel::default()).unwrap();
        assert_eq!(mode(path), 0o700);
        assert!(path.join("kept").exists());
        let grouped = place(&top.path().join("two"), Some(3000));
        set_up(&grouped, Medium::Disk, &Cancel::default()).unwrap();
        let found = fs::metadata(&grouped.path).unwrap();
        assert_eq!((found.mode() & 0o7777, found.gid()), (0o2777, 3000));
        let strange = place(&top.path().join("three"), Some(-1));
        assert_eq!(set_up(&strange, Medium::Disk, &Cancel::default()).unwrap_err().class, FailureClass::Invalid);
        let strange = place(&top.path().join("four"), Some(1 << 40));
        assert_eq!(set_up(&strange, Medium::Disk, &Cancel::default()).unwrap_err().class, FailureClass::Invalid);
    }

    /// With a symlinked root, the kernel knows the mount by its real path.
    #[test]
    fn memory_is_mounted_once_with_its_size_also_through_a_link_and_unmounted_before_removal() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("real")).unwrap();
        symlink(top.path().join("real"), top.path().join("link")).unwrap();
        for name in ["real", "link"] {
            let pod = top.path().join(name).join("pod");
            let place = place(&pod, Some(7));
            let path = Path::new(&place.path);
            let memory = Medium::Memory { size_bytes: 1 << 20 };
            set_up(&place, memory, &Cancel::default()).unwrap();
            fs::write(path.join("kept"), "x").unwrap();
            set_up(&place, memory, &Cancel::default()).unwrap();
            let real = path.canonicalize().unwrap();
            let lines: Vec<_> = mounts::read().unwrap().into_iter().filter(|mount| mount.point == real).collect();
            assert_eq!(lines.len(), 1, "mounted once");
            assert!(lines[0].options.contains("size=1024k"), "{}", lines[0].options);
            assert!(path.join("kept").exists());
            let found = fs::metadata(path).unwrap();
            assert_eq!((found.mode() & 0o7777, found.gid()), (0o3777, 7), "as the kernel makes it, with its group");
            // The directories above it may be moved by the attempt; what is mounted is not entered.
            remove::remove_tree(&pod, &Cancel::default()).unwrap_err();
            let top = top.path().canonicalize().unwrap();
            let mut points = mounts::read().unwrap().into_iter().map(|mount| mount.point);
            assert!(points.any(|point| point.starts_with(&top) && point.join("kept").exists()));
            mounts::unmount_below(&pod, &Cancel::default()).unwrap();
            remove::remove_tree(&pod, &Cancel::default()).unwrap();
            assert!(!pod.exists());
        }
    }

    #[test]
    fn a_size_that_is_none_is_refused_and_a_full_one_says_so() {
        let top = tempfile::tempdir().unwrap();
        let place = place(&top.path().join("pod"), None);
        let error = set_up(&place, Medium::Memory { size_bytes: 0 }, &Cancel::default()).unwrap_err();
        assert_eq!(error.class, FailureClass::Invalid);
        set_up(&place, Medium::Memory { size_bytes: 4096 }, &Cancel::default()).unwrap();
        let full = fs::write(Path::new(&place.path).join("big"), vec![1; 100_000]).unwrap_err();
        mounts::unmount_below(&top.path().join("pod"), &Cancel::default()).unwrap();
        assert_eq!(full.raw_os_error(), Some(Errno::ENOSPC as i32));
    }

    #[test]
    fn huge_pages_have_their_page_size() {
        let top = tempfile::tempdir().unwrap();
        let place = place(&top.path().join("pod"), None);
        let made = set_up(&place, Medium::HugePages { page_bytes: 2 << 20 }, &Cancel::default());
        let real = Path::new(&place.path).canonicalize().unwrap();
        let line = mounts::read().unwrap().into_iter().find(|mount| mount.point == real);
        mounts::unmount_below(&top.path().join("pod"), &Cancel::default()).unwrap();
        // A kernel without huge pages has no such file system, and says so.
        match made {
            Ok(()) => {
                assert!(line.is_some_and(|line| line.kind == "hugetlbfs" && line.options.contains("pagesize=2M")))
            }
            Err(error) => assert!(error.message.starts_with("mount huge pages at"), "{error}"),
        }
    }
}
