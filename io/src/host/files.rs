//! Plain directories and files of pods.

use super::HostError;
use components::edge::FailureClass;
use components::edge::host::{Dir, File};
use nix::fcntl::OFlag;
use rustc_hash::FxHashSet;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::OnceLock;

/// Makes directories in order, each with its parents in the same mode, unless it is there. The mode of one that is
/// there stays. `go_on` is asked before each.
pub(super) fn make_dirs(dirs: &[Dir], mut go_on: impl FnMut() -> Result<(), HostError>) -> Result<(), HostError> {
    // As text: paths are compared part by part, which is slow.
    let mut made: FxHashSet<&str> = FxHashSet::default();
    for dir in dirs {
        go_on()?;
        let path = Path::new(&dir.path);
        // Below one that was made just now there is nothing to look for.
        let below_new = path.parent().and_then(Path::to_str).is_some_and(|parent| made.contains(parent));
        if if below_new { create_dir(path, dir.mode)? } else { make_dir_with(path, dir.mode)? } {
            made.insert(dir.path.trim_end_matches('/'));
        }
    }
    Ok(())
}

/// Makes a directory, and its parents with the same mode; true when it was made, false when it was there.
pub(super) fn make_dir_with(path: &Path, mode: u32) -> Result<bool, HostError> {
    // Looked for first: most parents are there, and a failing mkdir would wait for the lock of the folder above, which
    // the starts of all pods share.
    if fs::metadata(path).is_ok_and(|found| found.is_dir()) {
        return Ok(false);
    }
    create_dir(path, mode)
}

/// As [`make_dir_with`] without looking first.
pub(super) fn create_dir(path: &Path, mode: u32) -> Result<bool, HostError> {
    match DirBuilder::new().mode(mode).create(path) {
        Ok(()) => {
            if mode & umask() != 0 {
                fs::set_permissions(path, Permissions::from_mode(mode))
                    .map_err(|error| HostError::io("set mode of", path, &error))?;
            }
            Ok(true)
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = fs::metadata(path).map_err(|error| HostError::io("look at", path, &error))?;
            if found.is_dir() {
                Ok(false)
            } else {
                Err(HostError::new(FailureClass::Invalid, format!("{} is not a directory", path.display())))
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().ok_or_else(|| HostError::io("make directory", path, &error))?;
            // Either the parent was missing and is made now, or it was made by another strand in the meantime;
            // a parent that cannot be made ends this.
            make_dir_with(parent, mode)?;
            make_dir_with(path, mode)
        }
        Err(error) => Err(HostError::io("make directory", path, &error)),
    }
}

/// Bits that the process takes off the modes of what it makes; read once. All of them when it can't be read.
fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(0o7777)
    })
}

/// Writes a file whole. One that is there is written in place: it may be bind-mounted into containers, which would
/// go on seeing the old file if a new one took its name.
pub(super) fn write_file(file: &File) -> Result<(), HostError> {
    let path = Path::new(&file.path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).mode(file.mode).custom_flags(OFlag::O_NOFOLLOW.bits());
    let (mut handle, new) = match options.clone().create_new(true).open(path) {
        Ok(handle) => (handle, true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            (options.open(path).map_err(|error| HostError::io("open file", path, &error))?, false)
        }
        Err(error) => return Err(HostError::io("make file", path, &error)),
    };
    let written = fill(&mut handle, file, new);
    if written.is_err() && new {
        // Half a file must not look like a whole one to the next try; its own error is the one to report.
        if let Err(error) = fs::remove_file(path) {
            tracing::warn!(path = %path.display(), error = %error, "File that could not be written could not be removed");
        }
    }
    written.map_err(|error| HostError::io("write", path, &error))
}

fn fill(handle: &mut fs::File, file: &File, new: bool) -> io::Result<()> {
    let wanted = file.content.as_bytes();
    if new {
        handle.write_all(wanted)?;
        if file.mode & umask() != 0 {
            handle.set_permissions(Permissions::from_mode(file.mode))?;
        }
        return Ok(());
    }
    // A reader in a container never sees a moment of emptiness when nothing changes.
    let same = {
        let mut present = Vec::new();
        let limit = wanted.len() as u64 + 1;
        Read::by_ref(handle).take(limit).read_to_end(&mut present)?;
        present == wanted
    };
    if !same {
        handle.set_len(0)?;
        io::Seek::rewind(handle)?;
        handle.write_all(wanted)?;
    }
    if handle.metadata()?.permissions().mode() & 0o7777 != file.mode {
        handle.set_permissions(Permissions::from_mode(file.mode))?;
    }
    Ok(())
}

/// The highest `N` of files named `N.log` or `N.log.*`; `None` when there is none or no such directory.
pub(super) fn highest_log_attempt(dir: &Path) -> Result<Option<u32>, HostError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(HostError::io("read directory", dir, &error)),
    };
    let mut highest = None;
    for entry in entries {
        let entry = entry.map_err(|error| HostError::io("read directory", dir, &error))?;
        let name = entry.file_name();
        let attempt = name.to_str().and_then(log_attempt);
        highest = highest.max(attempt);
    }
    Ok(highest)
}

fn log_attempt(name: &str) -> Option<u32> {
    let (number, rest) = name.split_once(".log")?;
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    if digits && (rest.is_empty() || rest.starts_with('.')) { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn file(path: &Path, mode: u32, content: &str) -> File {
        File { path: path.display().to_string(), mode, content: content.to_owned() }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn directories_get_their_mode_whatever_the_umask_and_keep_it() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a/b");
        let dir = Dir { path: path.display().to_string(), mode: 0o777 };
        make_dirs(std::slice::from_ref(&dir), || Ok(())).unwrap();
        assert_eq!((mode(&path), mode(&top.path().join("a"))), (0o777, 0o777));
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        make_dirs(std::slice::from_ref(&dir), || Ok(())).unwrap();
        assert_eq!(mode(&path), 0o700);
        fs::write(path.join("file"), "").unwrap();
        let error = make_dir_with(&path.join("file"), 0o755).unwrap_err();
        assert!(error.message.ends_with("a/b/file is not a directory"), "{error}");
        let error = make_dir_with(&path.join("file/x/y"), 0o755).unwrap_err();
        assert_eq!(error.class, FailureClass::Invalid, "{error}");
    }

    #[test]
    fn files_are_written_in_place_and_only_when_they_differ() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("etc-hosts");
        write_file(&file(&path, 0o666, "one\n")).unwrap();
        assert_eq!(mode(&path), 0o666);
        let before = fs::metadata(&path).unwrap();
        write_file(&file(&path, 0o644, "one\n")).unwrap();
        assert_eq!(mode(&path), 0o644);
        assert_eq!(fs::metadata(&path).unwrap().mtime_nsec(), before.mtime_nsec());
        write_file(&file(&path, 0o644, "2\n")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "2\n");
        assert_eq!(fs::metadata(&path).unwrap().ino(), before.ino());
    }

    #[test]
    fn a_symlink_is_not_written_through_and_a_missing_folder_is_named() {
        let top = tempfile::tempdir().unwrap();
        let target = top.path().join("target");
        fs::write(&target, "safe").unwrap();
        let link = top.path().join("link");
        symlink(&target, &link).unwrap();
        let error = write_file(&file(&link, 0o644, "evil")).unwrap_err();
        assert_eq!(error.class, FailureClass::Invalid, "{error}");
        assert_eq!(fs::read_to_string(&target).unwrap(), "safe");
        let error = write_file(&file(&top.path().join("no/file"), 0o644, "")).unwrap_err();
        assert_eq!(error.class, FailureClass::NotFound);
        assert!(error.message.contains("no/file: No such file or directory"), "{error}");
    }

    #[test]
    fn a_full_disk_is_exhausted_names_the_file_and_leaves_no_half_of_it() {
        let top = tempfile::tempdir().unwrap();
        let small = top.path().join("small");
        fs::create_dir(&small).unwrap();
        nix::mount::mount(Some("tmpfs"), &small, Some("tmpfs"), nix::mount::MsFlags::empty(), Some("size=16k"))
            .unwrap();
        let path = small.join("file");
        let error = write_file(&file(&path, 0o666, &"x".repeat(100_000)));
        let exists = path.exists();
        nix::mount::umount(&small).unwrap();
        let error = error.unwrap_err();
        assert_eq!(error.class, FailureClass::Exhausted, "{error}");
        assert!(error.message.contains("small/file: No space left on device"), "{error}");
        assert!(!exists);
    }

    #[test]
    fn the_highest_log_attempt_counts_rotated_files() {
        let top = tempfile::tempdir().unwrap();
        assert_eq!(highest_log_attempt(&top.path().join("none")).unwrap(), None);
        assert_eq!(highest_log_attempt(top.path()).unwrap(), None);
        for name in ["0.log", "9.log.20261129-175001.gz", "10.log", "x.log", "77.logs", "88", ".log", "-5.log"] {
            fs::write(top.path().join(name), "").unwrap();
        }
        assert_eq!(highest_log_attempt(top.path()).unwrap(), Some(10));
    }
}
