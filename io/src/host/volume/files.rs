//! Files that are written for a pod: `downwardAPI`, `configMap`, `secret` and `projected`.
//!
//! They lie in a memory file system (of a `configMap` on disk), in a directory named after the time. `..data` is a link to it, and each name that
//! containers see is a link through `..data`. New content is written beside the old, and the rename of one link makes
//! all of it visible at once. Readers never see half of either.

use super::super::{Cancel, HostError};
use super::{empty_dir, owner};
use components::edge::FailureClass;
use components::edge::host::{Medium, OwnPlace, ProjectedFile};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Component, Path, PathBuf};

/// Link to the directory with the content.
const DATA: &str = "..data";
/// The next such link, before it takes the name.
const NEXT: &str = "..data_tmp";

/// Makes the place and writes the files, if they differ from what is there.
pub(super) fn set_up(
    place: &OwnPlace,
    medium: Medium,
    files: &[ProjectedFile],
    cancel: &Cancel,
) -> Result<(), HostError> {
    let wanted = check(files)?;
    empty_dir::make(place, medium)?;
    let top = Path::new(&place.path);
    let old = current(top)?;
    if old.as_ref().is_some_and(|old| holds(old, &wanted)) {
        tidy(top, old.as_deref(), &wanted)?;
        return empty_dir::set_ready(place);
    }
    cancel.check()?;
    let new = make_version(top)?;
    let written = write_all(&new, &wanted).and_then(|()| owner::give(place, &new, owner::Access::ReadOnly, cancel));
    if let Err(error) = written.and_then(|()| show(place, top, &new, &wanted, cancel)) {
        // The old content stays visible; half of the new one would only take up memory.
        if let Err(left) = fs::remove_dir_all(&new) {
            tracing::warn!(path = %new.display(), error = %left, "Content that could not be shown could not be removed");
        }
        return Err(error);
    }
    tidy(top, Some(&new), &wanted)?;
    empty_dir::set_ready(place)
}

/// The files by path; of equal paths the last one counts.
fn check(files: &[ProjectedFile]) -> Result<BTreeMap<PathBuf, &ProjectedFile>, HostError> {
    let mut wanted = BTreeMap::new();
    for file in files {
        let path: PathBuf = Path::new(&file.path).components().filter(|part| *part != Component::CurDir).collect();
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        let first = path.components().next().map(|part| part.as_os_str().to_string_lossy().starts_with(".."));
        if !plain || first != Some(false) {
            let text = format!("{:?} is no path of a file within a volume", file.path);
            return Err(HostError::new(FailureClass::Invalid, text));
        }
        wanted.insert(path, file);
    }
    Ok(wanted)
}

/// The directory that `..data` points to.
fn current(top: &Path) -> Result<Option<PathBuf>, HostError> {
    let link = top.join(DATA);
    match fs::read_link(&link) {
        Ok(target) => Ok(Some(top.join(target))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(HostError::io("read link", &link, &error)),
    }
}

/// True when the directory holds exactly these files.
fn holds(dir: &Path, wanted: &BTreeMap<PathBuf, &ProjectedFile>) -> bool {
    let same = wanted.iter().all(|(path, file)| {
        let path = dir.join(path);
        fs::read(&path).is_ok_and(|found| file.content.bytes() == Some(found.as_slice()))
    });
    same && list(dir, Path::new("")).is_ok_and(|found| found.iter().all(|path| wanted.contains_key(path)))
}

fn list(dir: &Path, below: &Path) -> io::Result<BTreeSet<PathBuf>> {
    let mut out = BTreeSet::new();
    for entry in fs::read_dir(dir.join(below))? {
        let entry = entry?;
        let path = below.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            out.append(&mut list(dir, &path)?);
        } else {
            out.insert(path);
        }
    }
    Ok(out)
}

/// A new directory, named after the time as the kubelet names it.
fn make_version(top: &Path) -> Result<PathBuf, HostError> {
    let stamp = jiff::Timestamp::now().strftime("..%Y_%m_%d_%H_%M_%S.").to_string();
    let made = tempfile::Builder::new().prefix(&stamp).rand_bytes(10).tempdir_in(top);
    let dir = made.map_err(|error| HostError::io("make directory below", top, &error))?.keep();
    fs::set_permissions(&dir, Permissions::from_mode(0o755))
        .map_err(|error| HostError::io("set mode of", &dir, &error))?;
    Ok(dir)
}

fn write_all(dir: &Path, wanted: &BTreeMap<PathBuf, &ProjectedFile>) -> Result<(), HostError> {
    for (path, file) in wanted {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            DirBuilder::new()
                .recursive(true)
                .mode(0o755)
                .create(parent)
                .map_err(|error| HostError::io("make directory", parent, &error))?;
        }
        let mut made = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .map_err(|error| HostError::io("make file", &path, &error))?;
        let unknown = || HostError::new(FailureClass::NotFound, format!("the key for {} is not known", path.display()));
        made.write_all(file.content.bytes().ok_or_else(unknown)?)
            .and_then(|()| made.set_permissions(Permissions::from_mode(file.mode & 0o7777)))
            .map_err(|error| HostError::io("write", &path, &error))?;
        if file.owner.is_some() {
            fchown(&made, file.owner, None).map_err(|error| HostError::io("set owner of", &path, &error))?;
        }
    }
    Ok(())
}

/// Makes the new version the one that is seen.
fn show(
    place: &OwnPlace,
    top: &Path,
    new: &Path,
    wanted: &BTreeMap<PathBuf, &ProjectedFile>,
    cancel: &Cancel,
) -> Result<(), HostError> {
    for name in visible(wanted) {
        let link = top.join(&name);
        match symlink(Path::new(DATA).join(&name), &link) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(HostError::io("make link", &link, &error)),
        }
    }
    let next = top.join(NEXT);
    match fs::remove_file(&next) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(HostError::io("remove", &next, &error));
        }
        // Left by an attempt that was cut off.
        _ => {}
    }
    let name = new.file_name().unwrap_or_default();
    symlink(name, &next).map_err(|error| HostError::io("make link", &next, &error))?;
    // The links and the top belong to the group too; versions that are not shown any more are removed after this.
    owner::give(place, top, owner::Access::ReadOnly, cancel)?;
    let data = top.join(DATA);
    fs::rename(&next, &data).map_err(|error| HostError::io("rename to", &data, &error))
}

/// First elements of the wanted paths: what containers see.
fn visible(wanted: &BTreeMap<PathBuf, &ProjectedFile>) -> BTreeSet<OsString> {
    wanted.keys().filter_map(|path| path.components().next()).map(|part| part.as_os_str().to_owned()).collect()
}

/// Removes names and versions that are not wanted any more.
fn tidy(top: &Path, shown: Option<&Path>, wanted: &BTreeMap<PathBuf, &ProjectedFile>) -> Result<(), HostError> {
    let visible = visible(wanted);
    let failed = |error: &io::Error| HostError::io("read directory", top, error);
    for entry in fs::read_dir(top).map_err(|error| failed(&error))? {
        let entry = entry.map_err(|error| failed(&error))?;
        let (name, path) = (entry.file_name(), entry.path());
        if name == DATA || visible.contains(&name) || Some(path.as_path()) == shown {
            continue;
        }
        let is_dir = entry.file_type().map_err(|error| failed(&error))?.is_dir();
        let removed = if is_dir { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(|error| HostError::io("remove", &path, &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::mounts;
    use components::edge::host::FileContent;
    use components::ids::Hidden;
    use std::os::unix::fs::MetadataExt;

    /// A volume whose mount goes with it.
    struct Rig {
        top: tempfile::TempDir,
    }

    impl Drop for Rig {
        fn drop(&mut self) {
            // Else the folder cannot be removed.
            let _ = mounts::unmount_below(self.top.path(), &Cancel::default());
        }
    }

    impl Rig {
        fn place(&self, group: Option<i64>) -> OwnPlace {
            let at = |name: &str| self.top.path().join(name).display().to_string();
            OwnPlace { path: at("volumes/d"), marker: at("plugins/wrapped_d"), group, only_on_mismatch: false }
        }

        fn write(&self, files: &[(&str, &str)]) -> Result<(), HostError> {
            let files: Vec<_> = files
                .iter()
                .map(|(path, content)| ProjectedFile {
                    path: (*path).to_owned(),
                    mode: 0o640,
                    content: FileContent::Text((*content).to_owned()),
                    owner: None,
                })
                .collect();
            set_up(&self.place(Some(77)), Medium::Memory { size_bytes: 1 << 20 }, &files, &Cancel::default())
        }

        fn read(&self, name: &str) -> Option<String> {
            fs::read_to_string(self.top.path().join("volumes/d").join(name)).ok()
        }

        fn names(&self) -> Vec<String> {
            let all = fs::read_dir(self.top.path().join("volumes/d")).unwrap();
            let mut names: Vec<_> =
                all.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        }

        fn data(&self) -> PathBuf {
            fs::read_link(self.top.path().join("volumes/d/..data")).unwrap()
        }
    }

    #[test]
    fn content_changes_at_once_and_only_when_it_differs() {
        let rig = Rig { top: tempfile::tempdir().unwrap() };
        rig.write(&[("labels", "a=\"1\"\n"), ("deep/er/name", "x")]).unwrap();
        assert_eq!(rig.read("labels").unwrap(), "a=\"1\"\n");
        assert_eq!(rig.read("deep/er/name").unwrap(), "x");
        let first = rig.data();
        assert!(first.to_string_lossy().starts_with("..20"), "{first:?}");
        let file = fs::metadata(rig.top.path().join("volumes/d/labels")).unwrap();
        assert_eq!((file.mode() & 0o7777, file.gid()), (0o640, 77));
        rig.write(&[("labels", "a=\"1\"\n"), ("deep/er/name", "x")]).unwrap();
        assert_eq!(rig.data(), first, "nothing changed, nothing was written");
        rig.write(&[("labels", "b")]).unwrap();
        assert_ne!(rig.data(), first);
        assert_eq!((rig.read("labels").unwrap(), rig.read("deep/er/name")), ("b".to_owned(), None));
        let names = rig.names();
        assert_eq!(names.len(), 3, "the old version and its names are gone: {names:?}");
        assert_eq!(names[1..], ["..data", "labels"]);
        let line = mounts::read().unwrap();
        let real = rig.top.path().join("volumes/d").canonicalize().unwrap();
        assert_eq!(line.iter().filter(|mount| mount.point == real && mount.kind == "tmpfs").count(), 1);
    }

    #[test]
    fn hidden_bytes_lie_on_disk_and_belong_to_their_user() {
        let rig = Rig { top: tempfile::tempdir().unwrap() };
        let bytes = vec![0, 0xff, b'x'];
        let content = FileContent::Hidden(Hidden::from(bytes.clone()));
        let file = ProjectedFile { path: "k".to_owned(), mode: 0o600, content, owner: Some(1000) };
        let place = rig.place(Some(77));
        set_up(&place, Medium::Disk, &[file], &Cancel::default()).unwrap();
        let path = rig.top.path().join("volumes/d/k");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o7777, found.uid(), found.gid()), (0o640, 1000, 77));
        let real = rig.top.path().canonicalize().unwrap();
        assert!(mounts::read().unwrap().iter().all(|mount| !mount.point.starts_with(&real)));
    }

    #[test]
    fn paths_out_of_the_volume_are_refused() {
        let rig = Rig { top: tempfile::tempdir().unwrap() };
        for path in ["../x", "/x", "a/../b", "", "..x", ".", "..data"] {
            let error = rig.write(&[(path, "x")]).unwrap_err();
            assert_eq!(error.class, FailureClass::Invalid, "{path}: {error}");
        }
        assert!(!rig.top.path().join("volumes").exists());
    }

    #[test]
    fn what_does_not_fit_leaves_the_old_content() {
        let rig = Rig { top: tempfile::tempdir().unwrap() };
        rig.write(&[("a", "old")]).unwrap();
        let error = rig.write(&[("a", &"x".repeat(2 << 20))]).unwrap_err();
        assert_eq!(error.class, FailureClass::Exhausted, "{error}");
        assert_eq!(rig.read("a").unwrap(), "old");
        assert_eq!(rig.names().len(), 3);
        rig.write(&[("a", "new")]).unwrap();
        assert_eq!(rig.read("a").unwrap(), "new");
    }

    #[test]
    fn an_attempt_that_was_cut_off_is_made_good() {
        let rig = Rig { top: tempfile::tempdir().unwrap() };
        rig.write(&[("a", "old")]).unwrap();
        let top = rig.top.path().join("volumes/d");
        symlink("..nowhere", top.join(NEXT)).unwrap();
        fs::create_dir(top.join("..2020_01_01_00_00_00.1")).unwrap();
        rig.write(&[("a", "new"), ("b", "new")]).unwrap();
        assert_eq!((rig.read("a").unwrap(), rig.read("b").unwrap()), ("new".to_owned(), "new".to_owned()));
        assert_eq!(rig.names().len(), 4);
    }
}
