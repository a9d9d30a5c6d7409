//! The durable store: an append-only journal of [`Record`]s under `ROOT/ticklet`, and the kubelet's own state files.
//!
//! Decides nothing about records; it only knows which of them a later one replaces, so that the file can be
//! compacted. Writes `ROOT/ticklet/journal` and holds `ROOT/ticklet/lock`, so that two processes never share a root.
//! A commit is one frame, one write and one `fdatasync`. A tail that a crash tore is cut off with a log line, since
//! nothing relied on it yet; damage before the tail is an error that names the file and what to do.

mod frame;
mod pods_state;
pub mod state_files;

use self::frame::{HEADER, Scan};
use self::pods_state::PodsState;
use self::state_files::StateError;
use components::edge::store::Record;
use components::ids::PodUid;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Records in the file beyond which compaction is worth its write, besides twice the live ones. At some 100 bytes a
/// record this keeps the file of an empty node under 200 KiB.
const SLACK: usize = 1024;

/// Why the store cannot be used.
#[derive(thiserror::Error, Debug)]
pub enum StoreError {
    /// A file operation failed.
    #[error("{what} {path}: {source}", path = path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Another process uses the root directory.
    #[error("root directory is in use by another ticklet (lock {path}); stop it or give another --root-dir", path = path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The journal is damaged before its tail.
    #[error(
        "journal {path} is damaged at byte {offset}: {what}; drain this node, remove that file and start again (running containers are found again)",
        path = path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// The records of one commit do not fit into a frame.
    #[error("{records} records are too many for one commit to {path}", path = path.display())]
    TooLarge {
        /// How many.
        records: usize,
        /// The journal.
        path: PathBuf,
    },
}

/// The open journal. All calls block; the driver makes them where blocking is allowed.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    path: PathBuf,
    file: File,
    /// Length up to which the file is whole and durable.
    good: u64,
    /// The file may be longer than `good`, from a commit that failed.
    dirty: bool,
    live: Live,
    /// Resources of pods, which are in state files as well.
    sizes: PodsState,
    /// Records in the file.
    written: usize,
    /// Compaction is tried from this number of records on.
    compact_at: usize,
    _lock: File,
}

impl Store {
    /// Opens the journal below `root`, making what is missing. Returns the records that still count, sorted by pod.
    ///
    /// # Errors
    /// When the root is in use, cannot be written, or the journal is damaged.
    pub fn open(root: &Path) -> Result<(Self, Vec<Record>), StoreError> {
        let dir = root.join("ticklet");
        fs::DirBuilder::new().recursive(true).mode(0o750).create(&dir).map_err(io_error("make", &dir))?;
        let lock = take_lock(&dir.join("lock"))?;
        let temporary = dir.join("journal.tmp");
        if let Err(source) = fs::remove_file(&temporary)
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(io_error("remove", &temporary)(source));
        }
        let path = dir.join("journal");
        let (file, bytes) = read_or_create(&dir, &path)?;
        let Scan { groups, good, torn } = frame::scan(&bytes).map_err(|damage| StoreError::Damaged {
            path: path.clone(),
            offset: damage.offset as u64,
            what: damage.what,
        })?;
        let mut live = Live::default();
        let sizes = PodsState::new();
        let written = groups.iter().map(Vec::len).sum();
        for record in groups.into_iter().flatten() {
            if !sizes.apply(&record) {
                live.apply(record);
            }
        }
        let (good, dirty) = (good as u64, torn > 0);
        let mut store = Self { dir, path, file, good, dirty, live, sizes, written, compact_at: 0, _lock: lock };
        if torn > 0 {
            tracing::warn!(
                path = %store.path.display(),
                bytes = torn,
                "Cut off the torn end of the journal, left by a crash during a write"
            );
        }
        store.cut_back()?;
        store.compact_at = store.next_compaction();
        store.compact_if_due();
        let records = store.records();
        Ok((store, records))
    }

    /// Makes records durable, all or none. Returns when they are.
    ///
    /// # Errors
    /// When they are not durable; the file is back at its length before (or will be before the next write).
    pub fn commit(&mut self, records: &[Record]) -> Result<(), StoreError> {
        if records.is_empty() {
            return Ok(());
        }
        // Before the journal: the state files are never older than it.
        self.sizes.commit(records)?;
        self.cut_back()?;
        let bytes = frame::encode(records)
            .ok_or_else(|| StoreError::TooLarge { records: records.len(), path: self.path.clone() })?;
        self.dirty = true;
        let written = self.file.write_all(&bytes).and_then(|()| self.file.sync_data());
        if let Err(source) = written {
            let error = io_error("write", &self.path)(source);
            // When cutting back fails too, `dirty` stays and the next commit begins with it.
            if let Err(again) = self.cut_back() {
                tracing::warn!(error = %again, "Journal could not be cut back after a failed write");
            }
            return Err(error);
        }
        self.dirty = false;
        self.good += bytes.len() as u64;
        self.written += records.len();
        for record in records {
            if !matches!(record, Record::PodAllocated { .. } | Record::PodActuated { .. }) {
                self.live.apply(record.clone());
            }
        }
        self.compact_if_due();
        Ok(())
    }

    /// Takes in what the kubelet's state files below `root` say of pods' resources, and keeps them written from now on.
    /// Returns the records that count then.
    ///
    /// # Errors
    /// When a state file cannot be read or is not what a kubelet writes.
    pub fn adopt_states(&mut self, root: &Path) -> Result<Vec<Record>, StateError> {
        self.sizes.adopt(root)?;
        Ok(self.records())
    }

    /// The records that count, sorted by pod: what [`Store::open`] would return now.
    #[must_use]
    pub fn records(&self) -> Vec<Record> {
        let mut records = self.live.records();
        records.extend(self.sizes.records());
        records
    }

    /// Length of the journal in bytes.
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.good
    }

    /// True when no record counts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.live.count == 0
    }

    /// Brings the file back to its durable part and the position to its end.
    fn cut_back(&mut self) -> Result<(), StoreError> {
        if self.dirty {
            self.file
                .set_len(self.good)
                .and_then(|()| self.file.sync_data())
                .map_err(io_error("cut back", &self.path))?;
            self.dirty = false;
        }
        self.file.seek(SeekFrom::Start(self.good)).map_err(io_error("seek in", &self.path))?;
        Ok(())
    }

    fn compact_if_due(&mut self) {
        if self.written < self.compact_at {
            return;
        }
        // The records are durable as they are, so a compaction that fails costs only space; it is tried again later.
        if let Err(error) = self.compact() {
            tracing::warn!(error = %error, "Journal could not be compacted; going on with the longer one");
            self.compact_at = self.written * 2;
        } else {
            self.compact_at = self.next_compaction();
        }
    }

    fn next_compaction(&self) -> usize {
        2 * (self.live.count + self.sizes.len()) + SLACK
    }

    fn compact(&mut self) -> Result<(), StoreError> {
        let records = self.records();
        let mut bytes = HEADER.to_vec();
        // In pieces, so that a large node stays far from the limit of one frame.
        for group in records.chunks(4096) {
            bytes.extend(
                frame::encode(group)
                    .ok_or_else(|| StoreError::TooLarge { records: group.len(), path: self.path.clone() })?,
            );
        }
        let file = replace_file(&self.dir, "journal", 0o600, &bytes)?;
        self.file = file;
        self.good = bytes.len() as u64;
        self.dirty = false;
        self.written = records.len();
        Ok(())
    }
}

/// The records that count, by pod.
#[derive(Debug, Default)]
struct Live {
    pods: BTreeMap<PodUid, Vec<Record>>,
    count: usize,
}

impl Live {
    fn apply(&mut self, record: Record) {
        let uid = match &record {
            Record::PodAdmitted { uid, .. }
            | Record::PodFinished { uid, .. }
            | Record::PodForgotten { uid }
            | Record::PodProbed { uid, .. }
            | Record::PodEnded { uid, .. }
            | Record::PodAllocated { uid, .. }
            | Record::PodActuated { uid, .. } => uid.clone(),
        };
        if matches!(record, Record::PodForgotten { .. }) {
            self.count -= self.pods.remove(&uid).map_or(0, |records| records.len());
            return;
        }
        let records = self.pods.entry(uid).or_default();
        let before = records.len();
        records.retain(|old| std::mem::discriminant(old) != std::mem::discriminant(&record));
        records.push(record);
        self.count = self.count + records.len() - before;
    }

    fn records(&self) -> Vec<Record> {
        self.pods.values().flatten().cloned().collect()
    }
}

fn take_lock(path: &Path) -> Result<File, StoreError> {
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path)
        .map_err(io_error("open", path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(StoreError::Locked { path: path.to_owned() });
        }
        Err(TryLockError::Error(source)) => return Err(io_error("lock", path)(source)),
    }
    // For people who look for the owner; a full disk must not keep the node from starting.
    let named = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    if let Err(error) = named {
        tracing::warn!(path = %path.display(), error = %error, "Process id could not be written into the lock file");
    }
    Ok(file)
}

fn read_or_create(dir: &Path, path: &Path) -> Result<(File, Vec<u8>), StoreError> {
    let opened = OpenOptions::new().read(true).write(true).open(path);
    let mut file = match opened {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::NotFound => {
            let file = replace_file(dir, "journal", 0o600, HEADER)?;
            return Ok((file, HEADER.to_vec()));
        }
        Err(source) => return Err(io_error("open", path)(source)),
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(io_error("read", path))?;
    Ok((file, bytes))
}

/// Writes a file beside its place, makes it durable, moves it there and makes that durable. Returns it, open for
/// writing at its end. On failure the old file stays and nothing else is left.
pub(crate) fn replace_file(dir: &Path, name: &str, mode: u32, content: &[u8]) -> Result<File, StoreError> {
    let temporary = dir.join(format!("{name}.tmp"));
    let path = dir.join(name);
    let written =
        OpenOptions::new().create(true).truncate(true).read(true).write(true).mode(mode).open(&temporary).and_then(
            |mut file| {
                file.write_all(content)?;
                file.sync_all()?;
                fs::rename(&temporary, &path)?;
                File::open(dir)?.sync_all()?;
                Ok(file)
            },
        );
    written.map_err(|source| {
        if let Err(error) = fs::remove_file(&temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %temporary.display(), error = %error, "Temporary file could not be removed");
        }
        io_error("write", &path)(source)
    })
}

fn io_error(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { what, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(uid: &str) -> Record {
        Record::PodAdmitted {
            uid: PodUid::from(uid),
            name: format!("default/{uid}"),
            cpu_milli: 100,
            memory_bytes: 1 << 20,
        }
    }

    fn finished(uid: &str) -> Record {
        Record::PodFinished { uid: PodUid::from(uid), succeeded: true }
    }

    fn forgotten(uid: &str) -> Record {
        Record::PodForgotten { uid: PodUid::from(uid) }
    }

    #[test]
    fn records_survive_and_forgotten_ones_go() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, []);
        store.commit(&[admitted("b"), admitted("a")]).unwrap();
        store.commit(&[finished("b")]).unwrap();
        store.commit(&[]).unwrap();
        store.commit(&[admitted("c"), forgotten("c")]).unwrap();
        drop(store);
        let (mut store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, [admitted("a"), admitted("b"), finished("b")]);
        store.commit(&[forgotten("a"), forgotten("b")]).unwrap();
        drop(store);
        let (store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, []);
        assert!(store.is_empty());
    }

    #[test]
    fn a_torn_tail_is_cut_and_writing_goes_on() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        store.commit(&[admitted("a")]).unwrap();
        let good = store.len();
        store.commit(&[admitted("b")]).unwrap();
        drop(store);
        let path = root.path().join("ticklet/journal");
        let whole = fs::read(&path).unwrap();
        for length in usize::try_from(good).unwrap()..whole.len() {
            fs::write(&path, &whole[..length]).unwrap();
            let (mut store, records) = Store::open(root.path()).unwrap();
            assert_eq!(records, [admitted("a")]);
            assert_eq!(fs::metadata(&path).unwrap().len(), good);
            store.commit(&[admitted("c")]).unwrap();
            drop(store);
            let (_store, records) = Store::open(root.path()).unwrap();
            assert_eq!(records, [admitted("a"), admitted("c")]);
        }
    }

    #[test]
    fn damage_before_the_tail_names_file_and_remedy_and_changes_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        for uid in ["a", "b", "c"] {
            store.commit(&[admitted(uid)]).unwrap();
        }
        drop(store);
        let path = root.path().join("ticklet/journal");
        let mut bytes = fs::read(&path).unwrap();
        bytes[HEADER.len() + 20] ^= 1;
        fs::write(&path, &bytes).unwrap();
        let error = Store::open(root.path()).unwrap_err().to_string();
        let begin = format!("journal {} is damaged at byte {}", path.display(), HEADER.len());
        assert!(error.starts_with(&begin), "{error}");
        assert!(error.contains("drain this node, remove that file"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), bytes);
        fs::write(&path, "something else\n").unwrap();
        assert!(matches!(Store::open(root.path()), Err(StoreError::Damaged { offset: 0, .. })));
    }

    #[test]
    fn a_root_has_one_owner() {
        let root = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(root.path()).unwrap();
        let error = Store::open(root.path()).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{error}");
        drop(store);
        Store::open(root.path()).unwrap();
    }

    #[test]
    fn the_file_stays_small_and_leftovers_of_a_compaction_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        store.commit(&[admitted("stays")]).unwrap();
        let mut largest = 0;
        for i in 0..1200 {
            let uid = format!("pod-{i}");
            store.commit(&[admitted(&uid), forgotten(&uid)]).unwrap();
            largest = largest.max(store.len());
        }
        assert!(largest < 200 << 10, "{largest}");
        drop(store);
        let leftover = root.path().join("ticklet/journal.tmp");
        fs::write(&leftover, "half").unwrap();
        let (_store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, [admitted("stays")]);
        assert!(!leftover.exists());
    }

    #[test]
    fn a_failed_write_loses_nothing_and_the_next_works() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        store.commit(&[admitted("a")]).unwrap();
        let good = store.len();
        // A full disk as seen through the file: every write to this one ends in ENOSPC.
        let real = std::mem::replace(&mut store.file, OpenOptions::new().write(true).open("/dev/full").unwrap());
        let error = store.commit(&[admitted("b")]).unwrap_err().to_string();
        assert!(error.contains("No space left on device"), "{error}");
        store.file = real;
        // Half a frame reached the disk before it was full.
        store.file.seek(SeekFrom::Start(good)).unwrap();
        store.file.write_all(&[1, 2, 3]).unwrap();
        assert!(store.dirty);
        store.commit(&[admitted("c")]).unwrap();
        drop(store);
        let (_store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, [admitted("a"), admitted("c")]);
    }
}
