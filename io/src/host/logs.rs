//! Log files of containers: found, renamed, compressed, removed, linked. Exactly what an effect names.
//!
//! Only files below `podLogsDir` are touched; names that lead out of a log's directory are refused.

use super::{Cancel, HostError, below, files};
use components::edge::FailureClass;
use components::edge::host::reclaim::{
    CleanLogLinks, LinkLogs, LogFound, LookAtLogs, RemoveLogs, RestoreLog, RotateLog,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use nix::fcntl::{AT_FDCWD, OFlag, RenameFlags, renameat2};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// Bytes compressed between two looks at whether to stop.
const BLOCK: usize = 256 << 10;

/// Finds the log files that are large, and those that are missing.
pub(super) fn look(asked: &LookAtLogs, cancel: &Cancel) -> Result<Vec<LogFound>, HostError> {
    let mut found = Vec::new();
    for path in &asked.logs {
        cancel.check()?;
        let log = Path::new(&**path);
        let bytes = match fs::metadata(log) {
            Ok(file) if file.len() < asked.at_least => continue,
            Ok(file) => Some(file.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            // One log that can't be looked at does not keep the others from being rotated.
            Err(error) => {
                tracing::warn!(path = %log.display(), %error, "Log file can't be looked at");
                continue;
            }
        };
        let rotated = if bytes.is_some() { beside(log)? } else { Vec::new() };
        found.push(LogFound { path: path.clone(), bytes, rotated });
    }
    Ok(found)
}

/// Names of files beside a log that begin with its name and a dot, sorted.
fn beside(log: &Path) -> Result<Vec<String>, HostError> {
    let (Some(dir), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("read directory", dir, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| HostError::io("read directory", dir, &error))?;
        let other = entry.file_name();
        let ours = other.to_str().filter(|other| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')));
        names.extend(ours.map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// Removes, compresses and renames, in this order.
pub(super) fn rotate(rotate: &RotateLog, logs_dir: &str, cancel: &Cancel) -> Result<(), HostError> {
    let log = below(&rotate.path, logs_dir)?;
    for name in &rotate.remove {
        cancel.check()?;
        remove_file(&sibling(&log, name)?)?;
    }
    for name in &rotate.compress {
        compress(&sibling(&log, name)?, cancel)?;
    }
    cancel.check()?;
    let renamed = sibling(&log, &rotate.rename_to)?;
    rename(&log, &renamed)
}

/// Gives a renamed log its name back, unless another file has it by now.
pub(super) fn restore(restore: &RestoreLog, logs_dir: &str) -> Result<(), HostError> {
    let log = below(&restore.path, logs_dir)?;
    rename(&sibling(&log, &restore.renamed)?, &log)
}

/// Renames without replacing anything.
fn rename(from: &Path, to: &Path) -> Result<(), HostError> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        // Some file systems can't do both at once.
        Err(nix::errno::Errno::EINVAL | nix::errno::Errno::ENOSYS) if !to.exists() => {
            fs::rename(from, to).map_err(|error| HostError::io("rename", from, &error))
        }
        renamed => renamed.map_err(|errno| HostError::errno("rename", from, errno)),
    }
}

/// Removes a log with the rotated files beside it, and the link to it.
pub(super) fn remove(remove: &RemoveLogs, logs_dir: &str, cancel: &Cancel) -> Result<(), HostError> {
    let log = below(&remove.path, logs_dir)?;
    for name in beside(&log)? {
        cancel.check()?;
        remove_file(&sibling(&log, &name)?)?;
    }
    remove_file(&log)?;
    if let Some(link) = &remove.link {
        let link = Path::new(link);
        // Only the link that leads there: a file of that name is somebody else's.
        if fs::read_link(link).is_ok_and(|target| target == log) {
            remove_file(link)?;
        }
    }
    Ok(())
}

/// Links logs that are there.
pub(super) fn link(wanted: &LinkLogs) -> Result<(), HostError> {
    let dir = Path::new(&wanted.dir);
    files::make_dir_with(dir, 0o755)?;
    for (link, target) in &wanted.links {
        let (link, target) = (Path::new(link), Path::new(&**target));
        if link.parent() != Some(dir) {
            return Err(HostError::new(
                FailureClass::Invalid,
                format!("refused to link {}: it is not in {}", link.display(), dir.display()),
            ));
        }
        // A log that is not there yet, or no more, is not linked.
        if !target.exists() {
            continue;
        }
        match symlink(target, link) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::read_link(link) {
                Ok(found) if found == target => {}
                Ok(_) => {
                    remove_file(link)?;
                    symlink(target, link).map_err(|error| HostError::io("link", link, &error))?;
                }
                Err(error) => return Err(HostError::io("read link", link, &error)),
            },
            Err(error) => return Err(HostError::io("link", link, &error)),
        }
    }
    Ok(())
}

/// Removes links that point below the logs to nothing.
pub(super) fn clean_links(clean: &CleanLogLinks, cancel: &Cancel) -> Result<(), HostError> {
    let dir = Path::new(&clean.dir);
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(HostError::io("read directory", dir, &error)),
    };
    for entry in entries {
        cancel.check()?;
        let entry = entry.map_err(|error| HostError::io("read directory", dir, &error))?;
        let link = entry.path();
        let kept = clean.keep.iter().any(|kept| Path::new(kept) == link);
        if kept || link.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let Ok(target) = fs::read_link(&link) else { continue };
        let gone = fs::metadata(&link).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        if gone && target.starts_with(&clean.logs_dir) {
            remove_file(&link)?;
        }
    }
    Ok(())
}

/// A file beside a log.
fn sibling(log: &Path, name: &str) -> Result<PathBuf, HostError> {
    let own = log.file_name().and_then(|own| own.to_str()).unwrap_or_default();
    let plain = name.strip_prefix(own).is_some_and(|rest| rest.starts_with('.') && !rest.contains('/'));
    if own.is_empty() || !plain {
        return Err(HostError::new(
            FailureClass::Invalid,
            format!("refused to touch {name:?}: it is no rotated file of {}", log.display()),
        ));
    }
    Ok(log.with_file_name(name))
}

fn remove_file(path: &Path) -> Result<(), HostError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(HostError::io("remove", path, &error)),
    }
}

/// Compresses a file to `NAME.gz`; whole or not at all.
fn compress(path: &Path, cancel: &Cancel) -> Result<(), HostError> {
    let mut source = match OpenOptions::new().read(true).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path) {
        Ok(source) => source,
        // Somebody else was here first.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(HostError::io("open", path, &error)),
    };
    let temporary = appended(path, ".tmp");
    let packed = pack(&mut source, path, &temporary, cancel).and_then(|()| {
        fs::rename(&temporary, appended(path, ".gz")).map_err(|e| HostError::io("rename", &temporary, &e))
    });
    if packed.is_err() {
        if let Err(error) = remove_file(&temporary) {
            tracing::warn!(%error, "A half compressed log stays until the next rotation");
        }
        return packed;
    }
    remove_file(path)
}

fn pack(source: &mut File, path: &Path, temporary: &Path, cancel: &Cancel) -> Result<(), HostError> {
    let found = source.metadata().map_err(|error| HostError::io("look at", path, &error))?;
    let failed = |error: &io::Error| HostError::io("write", temporary, error);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(found.permissions().mode() & 0o7777)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(temporary)
        .map_err(|error| failed(&error))?;
    let mut packer = GzEncoder::new(file, Compression::default());
    let mut block = vec![0; BLOCK];
    loop {
        cancel.check()?;
        let read = source.read(&mut block).map_err(|error| HostError::io("read", path, &error))?;
        if read == 0 {
            break;
        }
        packer.write_all(&block[..read]).map_err(|error| failed(&error))?;
    }
    packer.finish().map_err(|error| failed(&error))?;
    Ok(())
}

fn appended(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    struct Rig {
        top: tempfile::TempDir,
    }

    impl Rig {
        fn new(names: &[&str]) -> Self {
            let rig = Self { top: tempfile::tempdir().unwrap() };
            fs::create_dir_all(rig.dir()).unwrap();
            for name in names {
                fs::write(rig.dir().join(name), format!("content of {name}\n")).unwrap();
            }
            rig
        }

        fn logs(&self) -> String {
            self.top.path().join("logs").display().to_string()
        }

        fn dir(&self) -> PathBuf {
            self.top.path().join("logs/ns_p_uid/c")
        }

        fn log(&self) -> Arc<str> {
            self.dir().join("0.log").display().to_string().into()
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<_> =
                fs::read_dir(self.dir()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    #[test]
    fn large_and_missing_logs_are_found_with_their_rotated_files() {
        let rig = Rig::new(&["0.log", "0.log.20261129-220000", "0.log.20261129-210000.gz", "10.log", "0.logx"]);
        let missing: Arc<str> = rig.dir().join("7.log").display().to_string().into();
        let small: Arc<str> = rig.dir().join("10.log").display().to_string().into();
        fs::write(rig.dir().join("10.log"), "x").unwrap();
        let asked = LookAtLogs { logs: vec![small, rig.log(), missing.clone()], at_least: 5 };
        let found = look(&asked, &Cancel::default()).unwrap();
        let rotated = vec!["0.log.20261129-210000.gz".to_owned(), "0.log.20261129-220000".to_owned()];
        let expect = [
            LogFound { path: rig.log(), bytes: Some(17), rotated },
            LogFound { path: missing, bytes: None, rotated: Vec::new() },
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn a_rotation_removes_compresses_and_renames() {
        let rig = Rig::new(&["0.log", "0.log.1.gz", "0.log.2", "0.log.3.tmp"]);
        let mut change = RotateLog {
            path: rig.log(),
            remove: vec!["0.log.1.gz".into(), "0.log.3.tmp".into(), "0.log.gone".into()],
            compress: vec!["0.log.2".into()],
            rename_to: "0.log.4".into(),
        };
        rotate(&change, &rig.logs(), &Cancel::default()).unwrap();
        assert_eq!(rig.names(), ["0.log.2.gz", "0.log.4"]);
        let packed = fs::read(rig.dir().join("0.log.2.gz")).unwrap();
        let mut text = String::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content of 0.log.2\n");
        // Nothing is renamed over a file that is there, and a missing log is told.
        fs::write(rig.dir().join("0.log"), "new\n").unwrap();
        change.compress.clear();
        let error = rotate(&change, &rig.logs(), &Cancel::default()).unwrap_err();
        assert_eq!(error.class, FailureClass::AlreadyExists, "{error}");
        let back = RestoreLog { path: rig.log(), renamed: "0.log.4".into() };
        restore(&back, &rig.logs()).unwrap_err();
        fs::remove_file(rig.dir().join("0.log")).unwrap();
        restore(&back, &rig.logs()).unwrap();
        assert_eq!(fs::read_to_string(rig.dir().join("0.log")).unwrap(), "content of 0.log\n");
    }

    #[test]
    fn paths_that_lead_elsewhere_are_refused_and_a_stop_leaves_no_half_of_it() {
        let rig = Rig::new(&["0.log", "0.log.2"]);
        let path = rig.log();
        for name in ["other", "0.log./../../x", "../0.log.1", "0.log"] {
            let change = RotateLog { path: path.clone(), rename_to: name.into(), ..RotateLog::default() };
            assert_eq!(rotate(&change, &rig.logs(), &Cancel::default()).unwrap_err().class, FailureClass::Invalid);
        }
        let change = RotateLog { path: "/etc/passwd".into(), rename_to: "passwd.1".into(), ..RotateLog::default() };
        assert_eq!(rotate(&change, &rig.logs(), &Cancel::default()).unwrap_err().class, FailureClass::Invalid);
        let stopped = Cancel::default();
        stopped.0.store(true, std::sync::atomic::Ordering::Relaxed);
        compress(&rig.dir().join("0.log.2"), &stopped).unwrap_err();
        assert_eq!(rig.names(), ["0.log", "0.log.2"]);
    }

    #[test]
    fn logs_go_with_their_link_and_nothing_else() {
        let rig = Rig::new(&["1.log", "1.log.1.gz", "10.log", "0.log"]);
        let links = rig.top.path().join("links");
        let target: Arc<str> = rig.dir().join("1.log").display().to_string().into();
        let at = |name: &str| links.join(name).display().to_string();
        let missing: Arc<str> = rig.dir().join("9.log").display().to_string().into();
        let wanted = LinkLogs {
            dir: links.display().to_string(),
            links: vec![(at("a.log"), target.clone()), (at("b.log"), rig.log()), (at("c.log"), missing)],
        };
        for _ in 0..2 {
            link(&wanted).unwrap();
        }
        // One that points elsewhere is put right.
        fs::remove_file(at("a.log")).unwrap();
        symlink("/nonexistent", at("a.log")).unwrap();
        link(&wanted).unwrap();
        assert_eq!(fs::read_link(at("a.log")).unwrap().display().to_string(), &*target);
        assert!(fs::symlink_metadata(at("c.log")).is_err());
        let outside = LinkLogs { dir: links.display().to_string(), links: vec![("/tmp/x.log".into(), target.clone())] };
        assert_eq!(link(&outside).unwrap_err().class, FailureClass::Invalid);
        let gone = RemoveLogs { path: target, link: Some(at("a.log")) };
        for _ in 0..2 {
            remove(&gone, &rig.logs(), &Cancel::default()).unwrap();
        }
        assert_eq!(rig.names(), ["0.log", "10.log"]);
        assert!(fs::symlink_metadata(at("a.log")).is_err());
        // Dangling links of our logs go, those of others and those that are to stay do not.
        fs::remove_file(rig.dir().join("0.log")).unwrap();
        symlink("/nonexistent/x.log", at("other.log")).unwrap();
        symlink(rig.dir().join("10.log"), at("alive.log")).unwrap();
        symlink(rig.dir().join("55.log"), at("kept.log")).unwrap();
        let clean = CleanLogLinks { dir: wanted.dir, logs_dir: rig.logs(), keep: vec![at("kept.log")] };
        clean_links(&clean, &Cancel::default()).unwrap();
        let mut left: Vec<_> = fs::read_dir(&links).unwrap().map(|e| e.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["alive.log", "kept.log", "other.log"]);
    }
}
