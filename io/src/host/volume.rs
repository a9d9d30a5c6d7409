//! Setting up the volumes whose place is this host: `emptyDir`, files written for the pod, and `hostPath`.

mod empty_dir;
mod files;
mod owner;

use super::files::make_dir_with;
use super::{Cancel, HostError};
use components::edge::FailureClass;
use components::edge::host::{HostPathKind, Medium, VolumeSetup};
use std::fs::{self, FileType, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Sets one volume up. Idempotent.
pub(super) fn set_up(volume: &VolumeSetup, cancel: &Cancel) -> Result<(), HostError> {
    match volume {
        VolumeSetup::EmptyDir { place, medium, .. } => empty_dir::set_up(place, *medium, cancel),
        VolumeSetup::Files { place, size_bytes, files, on_disk, .. } => {
            let medium = if *on_disk { Medium::Disk } else { Medium::Memory { size_bytes: *size_bytes } };
            files::set_up(place, medium, files, cancel)
        }
        VolumeSetup::HostPath { path, kind, .. } => host_path(Path::new(path), *kind),
    }
}

fn host_path(path: &Path, kind: HostPathKind) -> Result<(), HostError> {
    match kind {
        HostPathKind::Unset => Ok(()),
        HostPathKind::DirectoryOrCreate => {
            if missing(path)? {
                make_dir_with(path, 0o755)?;
            }
            check(path, kind, "directory")
        }
        HostPathKind::Directory => check(path, kind, "directory"),
        HostPathKind::FileOrCreate => {
            if missing(path)? {
                make_file(path)?;
            }
            check(path, kind, "file")
        }
        HostPathKind::File => check(path, kind, "file"),
        HostPathKind::Socket => check(path, kind, "socket file"),
        HostPathKind::CharDevice => check(path, kind, "character device"),
        HostPathKind::BlockDevice => check(path, kind, "block device"),
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

/// The texts are the kubelet's: users and tools know them from events.
fn check(path: &Path, kind: HostPathKind, what: &str) -> Result<(), HostError> {
    let shown = path.display();
    let found = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(HostError::new(FailureClass::NotFound, format!("hostPath {shown} doesn't exist")));
        }
        Err(error) => return Err(HostError::io("look at", path, &error)),
    };
    let text = match name_of(found) {
        Some((is, _)) if is == wanted(kind) => return Ok(()),
        Some((_, name)) => format!("hostPath type check failed: {shown} is not a {what}, it's a {name}"),
        None => format!(
            "hostPath type check failed, {shown} is not a {what}, unable to determine its type: only recognise file, \
             directory, socket, block device and character device"
        ),
    };
    Err(HostError::new(FailureClass::Invalid, text))
}

/// The kind that must be found where nothing is made any more.
const fn wanted(kind: HostPathKind) -> HostPathKind {
    match kind {
        HostPathKind::DirectoryOrCreate => HostPathKind::Directory,
        HostPathKind::FileOrCreate => HostPathKind::File,
        other => other,
    }
}

fn name_of(found: FileType) -> Option<(HostPathKind, &'static str)> {
    Some(match found {
        it if it.is_dir() => (HostPathKind::Directory, "Directory"),
        it if it.is_file() => (HostPathKind::File, "File"),
        it if it.is_socket() => (HostPathKind::Socket, "Socket"),
        it if it.is_char_device() => (HostPathKind::CharDevice, "CharDevice"),
        it if it.is_block_device() => (HostPathKind::BlockDevice, "BlockDevice"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::Arc;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[track_caller]
    fn check_host_path(path: &Path, kind: HostPathKind, expect: Result<(), &str>) {
        let setup = VolumeSetup::HostPath { name: Arc::from("h"), path: path.display().to_string(), kind };
        let got = set_up(&setup, &Cancel::default()).map_err(|error| error.message);
        assert_eq!(got, expect.map_err(|text| text.replace("PATH", &path.display().to_string())));
    }

    #[test]
    fn host_paths_are_checked_by_their_type() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::write(at("file"), "").unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        symlink(at("file"), at("link")).unwrap();
        nix::unistd::mkfifo(&at("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let gone = Err("hostPath PATH doesn't exist");
        let not = "hostPath type check failed: PATH is not a ";
        check_host_path(&at("no"), HostPathKind::Unset, Ok(()));
        check_host_path(&at("no"), HostPathKind::Directory, gone);
        check_host_path(&at("file"), HostPathKind::Directory, Err(&format!("{not}directory, it's a File")));
        check_host_path(top.path(), HostPathKind::Directory, Ok(()));
        check_host_path(&at("new/dir"), HostPathKind::DirectoryOrCreate, Ok(()));
        assert_eq!(mode(&at("new/dir")), 0o755);
        check_host_path(&at("file"), HostPathKind::DirectoryOrCreate, Err(&format!("{not}directory, it's a File")));
        check_host_path(&at("made"), HostPathKind::FileOrCreate, Ok(()));
        assert_eq!(mode(&at("made")), 0o644);
        check_host_path(&at("link"), HostPathKind::File, Ok(()));
        check_host_path(top.path(), HostPathKind::File, Err(&format!("{not}file, it's a Directory")));
        check_host_path(&at("no"), HostPathKind::File, gone);
        check_host_path(&at("socket"), HostPathKind::Socket, Ok(()));
        check_host_path(&at("file"), HostPathKind::Socket, Err(&format!("{not}socket file, it's a File")));
        check_host_path(Path::new("/dev/null"), HostPathKind::CharDevice, Ok(()));
        check_host_path(&at("file"), HostPathKind::CharDevice, Err(&format!("{not}character device, it's a File")));
        check_host_path(&at("file"), HostPathKind::BlockDevice, Err(&format!("{not}block device, it's a File")));
        let odd = "hostPath type check failed, PATH is not a file, unable to determine its type: only recognise file, \
                   directory, socket, block device and character device";
        check_host_path(&at("fifo"), HostPathKind::File, Err(odd));
    }
}
