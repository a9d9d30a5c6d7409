//! Reads the manifest paths: each a file, or a directory whose files are read. Names that begin with a dot and
//! directories inside are not looked at.

use super::parse::{Content, MAX_BYTES, parse};
use components::edge::sources::{ManifestProblem, Source, SourcesAnswer};
use components::edge::{Failure, FailureClass};
use components::fnv::fnv1a_128;
use nix::libc::O_NONBLOCK;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What was parsed last time, by origin, with a digest of the bytes it was parsed from: unchanged files are not parsed
/// again.
pub(super) type Parsed = BTreeMap<Arc<str>, (u128, Result<Content, String>)>;

/// Reads everything below `paths`. Fails as a whole when a path cannot be looked at.
pub(super) fn read(paths: &[PathBuf], parsed: &mut Parsed) -> Result<SourcesAnswer, Failure> {
    let mut files = Vec::new();
    for path in paths {
        files.extend(list(path).map_err(|error| failure(path, &error))?);
    }
    files.sort_by(|a, b| a.as_os_str().as_bytes().cmp(b.as_os_str().as_bytes()));
    files.dedup();
    let mut kept = Parsed::new();
    let (mut manifests, mut problems) = (Vec::new(), Vec::new());
    for file in files {
        let origin: Arc<str> = file.to_string_lossy().into();
        let content = match read_file(&file) {
            Ok(Some(bytes)) => parse_once(&origin, &bytes, parsed, &mut kept),
            Ok(None) => continue,
            Err(message) => Err(message),
        };
        match content {
            Ok(content) => {
                manifests.extend(content.manifests);
                problems.extend(content.remarks);
            }
            Err(message) => problems.push(ManifestProblem { origin, message }),
        }
    }
    *parsed = kept;
    Ok(SourcesAnswer::ManifestsRead { source: Source::File, manifests, problems })
}

fn failure(path: &Path, error: &io::Error) -> Failure {
    let class = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FailureClass::NotFound,
        io::ErrorKind::PermissionDenied => FailureClass::Denied,
        _ => FailureClass::Other,
    };
    Failure { class, message: format!("{}: {error}", path.display()) }
}

/// The files to read for one path.
fn list(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !fs::metadata(path)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_name().as_bytes().starts_with(b".") {
            files.push(entry.path());
        }
    }
    Ok(files)
}

/// A file's bytes; `None` for a directory and for what was removed since it was listed.
fn read_file(path: &Path) -> Result<Option<Vec<u8>>, String> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound && fs::symlink_metadata(path).is_err() => {
            return Ok(None);
        }
        Err(error) => return Err(error.to_string()),
    };
    let metadata = file.metadata().map_err(|e| e.to_string())?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        return Ok(None);
    }
    if !kind.is_file() {
        return Err("it is no regular file".to_owned());
    }
    let most = MAX_BYTES as u64 + 1;
    // One byte more than it has, so that its end is seen without growing.
    let mut bytes = Vec::with_capacity(usize::try_from(most.min(metadata.len() + 1)).unwrap_or(MAX_BYTES));
    file.take(most).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(Some(bytes))
}

/// Opens without waiting, should it be a pipe.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(O_NONBLOCK).open(path)
}

fn parse_once(origin: &Arc<str>, bytes: &[u8], last: &mut Parsed, kept: &mut Parsed) -> Result<Content, String> {
    let digest = fnv1a_128(bytes);
    let content = match last.remove(origin) {
        Some((same, content)) if same == digest => content,
        _ => parse(origin, bytes),
    };
    kept.insert(Arc::clone(origin), (digest, content.clone()));
    content
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use tempfile::TempDir;

    struct Dir(TempDir, Parsed);

    impl Dir {
        fn new() -> Self {
            Self(TempDir::new().unwrap(), Parsed::new())
        }

        fn put(&self, name: &str, text: impl AsRef<[u8]>) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        /// What is read, as `name[index]: json` and `name! message` lines.
        fn read(&mut self) -> String {
            let paths = [self.0.path().to_owned()];
            let answer = read(&paths, &mut self.1).unwrap();
            let SourcesAnswer::ManifestsRead { manifests, problems, .. } = answer else { panic!("{answer:?}") };
            let prefix = format!("{}/", self.0.path().display());
            let mut lines: Vec<String> = manifests
                .iter()
                .map(|m| format!("{}[{}] {}", m.origin.strip_prefix(&prefix).unwrap(), m.index, m.json))
                .collect();
            lines
                .extend(problems.iter().map(|p| format!("{}! {}", p.origin.strip_prefix(&prefix).unwrap(), p.message)));
            lines.join("\n")
        }
    }

    #[test]
    fn files_are_read_in_byte_order_and_hidden_ones_and_directories_left_out() {
        let mut dir = Dir::new();
        dir.put("web.yaml", "a: 1");
        dir.put("web.yaml.bak", "a: 2");
        dir.put("Z", "a: 3");
        dir.put(".web.yaml.swp", "\0garbage");
        fs::create_dir(dir.0.path().join("cc")).unwrap();
        dir.put("cc/inner.yaml", "a: 4");
        assert_eq!(dir.read(), "Z[0] {\"a\":3}\nweb.yaml[0] {\"a\":1}\nweb.yaml.bak[0] {\"a\":2}");
    }

    #[test]
    fn a_bad_file_is_a_problem_of_its_own() {
        let mut dir = Dir::new();
        dir.put("aa.yaml", "");
        dir.put("bb.yaml", "a: [1,");
        dir.put("c", "a: 1");
        dir.put("big", vec![b'x'; MAX_BYTES + 1]);
        nix::unistd::mkfifo(&dir.0.path().join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        symlink("nowhere", dir.0.path().join("dangling")).unwrap();
        let read = dir.read();
        assert_eq!(read.lines().count(), 6, "{read}");
        for expect in [
            "c[0] {\"a\":1}",
            "aa.yaml! it is empty",
            "bb.yaml! line 1: not valid YAML",
            "big! it is larger than 10 MiB",
            "dangling! No such file",
            "pipe! it is no regular file",
        ] {
            assert!(read.contains(expect), "{expect:?} in {read}");
        }
    }

    #[test]
    fn symlinks_are_followed_and_a_single_file_is_read() {
        let dir = Dir::new();
        dir.put("real", "a: 1");
        symlink("real", dir.0.path().join("link")).unwrap();
        let path = dir.0.path().join("link");
        let answer = read(std::slice::from_ref(&path), &mut Parsed::new()).unwrap();
        let SourcesAnswer::ManifestsRead { manifests, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(manifests.len(), 1);
        assert_eq!(&*manifests[0].origin, path.to_str().unwrap());
    }

    #[test]
    fn a_changed_file_is_parsed_again_and_a_removed_one_forgotten() {
        let mut dir = Dir::new();
        dir.put("a", "a: 1");
        dir.put("b", "b: 1");
        assert_eq!(dir.read(), "a[0] {\"a\":1}\nb[0] {\"b\":1}");
        dir.put("a", "a: 2");
        assert_eq!(dir.read(), "a[0] {\"a\":2}\nb[0] {\"b\":1}");
        fs::remove_file(dir.0.path().join("a")).unwrap();
        assert_eq!(dir.read(), "b[0] {\"b\":1}");
        assert_eq!(dir.1.len(), 1);
    }

    #[test]
    fn a_missing_path_fails_as_a_whole() {
        let dir = Dir::new();
        let missing = dir.0.path().join("missing");
        let failure = read(&[missing], &mut Parsed::new()).unwrap_err();
        assert_eq!(failure.class, FailureClass::NotFound);
        assert!(failure.message.contains("missing: No such file or directory"));
    }

    #[test]
    fn several_paths_are_one_source() {
        let dir = Dir::new();
        dir.put("a", "a: 1");
        dir.put("b", "b: 1");
        let paths = [dir.0.path().join("b"), dir.0.path().to_owned()];
        let answer = read(&paths, &mut Parsed::new()).unwrap();
        let SourcesAnswer::ManifestsRead { manifests, .. } = answer else { panic!("{answer:?}") };
        assert_eq!(manifests.len(), 2);
    }

    #[test]
    fn permissions_are_reported() {
        let mut dir = Dir::new();
        dir.put("a", "a: 1");
        fs::set_permissions(dir.0.path().join("a"), fs::Permissions::from_mode(0o000)).unwrap();
        let read = dir.read();
        // Root may read anything.
        let root = nix::unistd::geteuid().is_root();
        assert!(if root { read == "a[0] {\"a\":1}" } else { read.contains("a! Permission denied") }, "{read}");
    }
}
