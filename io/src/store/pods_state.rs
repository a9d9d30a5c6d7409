//! `allocated_pods_state` and `actuated_pods_state`: what is allocated to pods and what is in force, for the kubelet that
//! may take the node over, and from the one that had it before.
//!
//! A change of what is known of a pod is written with the commit that brings it. A pod that is new, or gone, is written
//! soon after by a thread of its own: nothing relies on it, as the journal has it.

use super::state_files::StateError;
use super::{StoreError, replace_file, state_files};
use components::edge::store::Record;
use components::ids::PodUid;
use components::resize::SizeTexts;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The two files.
const ALLOCATED: &str = "allocated_pods_state";
const ACTUATED: &str = "actuated_pods_state";
/// What comes within this time after a change is written together.
const GATHER: Duration = Duration::from_millis(300);
/// The thread only serialises and writes.
const STACK: usize = 256 << 10;

/// What is known of pods' resources, and the thread that writes it down.
#[derive(Debug)]
pub(super) struct PodsState {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    pods: Mutex<Pods>,
    /// Rung when there is something to write, or to stop.
    bell: Condvar,
    /// Held while files are written: the checksums of what they hold.
    files: Mutex<[Option<u32>; 2]>,
}

#[derive(Debug, Default)]
struct Pods {
    /// By pod: what is allocated, and what is in force where that differs or did.
    sizes: BTreeMap<PodUid, (SizeTexts, Option<SizeTexts>)>,
    /// Where the files lie; nothing is written before it is known.
    root: Option<PathBuf>,
    dirty: bool,
    stops: bool,
}

impl PodsState {
    pub(super) fn new() -> Self {
        Self { shared: Arc::default(), writer: None }
    }

    /// Takes a record in that came into the journal before; true for one of ours.
    pub(super) fn apply(&self, record: &Record) -> bool {
        let mut pods = self.shared.lock();
        match record {
            Record::PodAllocated { uid, sizes } => {
                let known = pods.sizes.entry(uid.clone()).or_insert_with(|| (sizes.clone(), None));
                let before = std::mem::replace(&mut known.0, sizes.clone());
                // Until it is said otherwise, in force is what was.
                known.1 = known.1.take().or(Some(before)).filter(|sizes| *sizes != known.0);
                true
            }
            Record::PodActuated { uid, sizes } => {
                if let Some(known) = pods.sizes.get_mut(uid) {
                    known.1 = Some(sizes.clone()).filter(|sizes| *sizes != known.0);
                }
                true
            }
            Record::PodForgotten { uid } => {
                pods.sizes.remove(uid);
                false
            }
            Record::PodAdmitted { .. }
            | Record::PodFinished { .. }
            | Record::PodProbed { .. }
            | Record::PodEnded { .. } => false,
        }
    }

    /// Takes the records of a commit in, before they are in the journal; what others must not miss is written at once.
    ///
    /// # Errors
    /// When the files could not be written.
    pub(super) fn commit(&self, records: &[Record]) -> Result<(), StoreError> {
        let known = |uid: &PodUid| self.shared.lock().sizes.contains_key(uid);
        let mut urgent = false;
        let mut dirty = false;
        for record in records {
            match record {
                Record::PodAllocated { uid, .. } => urgent |= known(uid),
                Record::PodActuated { .. } => urgent = true,
                Record::PodForgotten { .. } => {}
                _ => continue,
            }
            dirty = true;
            self.apply(record);
        }
        if urgent {
            return self.shared.write();
        }
        if dirty {
            self.shared.lock().dirty = true;
            self.shared.bell.notify_all();
        }
        Ok(())
    }

    /// Pods that are known.
    pub(super) fn len(&self) -> usize {
        self.shared.lock().sizes.len()
    }

    /// Records of what is known, by pod.
    pub(super) fn records(&self) -> Vec<Record> {
        let pods = self.shared.lock();
        let of_pod = |(uid, (allocated, actuated)): (&PodUid, &(SizeTexts, Option<SizeTexts>))| {
            let first = Record::PodAllocated { uid: uid.clone(), sizes: allocated.clone() };
            let second = actuated.clone().map(|sizes| Record::PodActuated { uid: uid.clone(), sizes });
            std::iter::once(first).chain(second)
        };
        pods.sizes.iter().flat_map(of_pod).collect()
    }

    /// Takes in what the files below `root` hold, which is never older than the journal, and keeps them written.
    ///
    /// # Errors
    /// When a file cannot be read or is not what a kubelet writes.
    pub(super) fn adopt(&mut self, root: &Path) -> Result<(), StateError> {
        let allocated = read(&root.join(ALLOCATED))?;
        let actuated = read(&root.join(ACTUATED))?;
        let mut pods = self.shared.lock();
        for (uid, sizes) in allocated {
            let in_force = actuated.get(&uid).filter(|in_force| **in_force != sizes).cloned();
            pods.sizes.insert(uid, (sizes, in_force));
        }
        pods.root = Some(root.to_owned());
        // Pods that only the journal knows are written as well.
        pods.dirty = true;
        drop(pods);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("pods-state".to_owned()).stack_size(STACK);
        match thread.spawn(move || shared.keep_written()) {
            Ok(writer) => self.writer = Some(writer),
            Err(error) => tracing::warn!(%error, "State files of pods are only written when a pod is resized"),
        }
        Ok(())
    }
}

impl Drop for PodsState {
    fn drop(&mut self) {
        self.shared.lock().stops = true;
        self.shared.bell.notify_all();
        if let Some(writer) = self.writer.take()
            && writer.join().is_err()
        {
            tracing::error!("The writer of the state files of pods panicked");
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pods> {
        self.pods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is dirty, until told to stop; then what is left.
    fn keep_written(&self) {
        loop {
            let mut pods = self.lock();
            while !pods.dirty && !pods.stops {
                pods = self.bell.wait(pods).unwrap_or_else(PoisonError::into_inner);
            }
            let (waits, _) =
                self.bell.wait_timeout_while(pods, GATHER, |pods| !pods.stops).unwrap_or_else(PoisonError::into_inner);
            let (stops, dirty) = (waits.stops, waits.dirty);
            drop(waits);
            if dirty && let Err(error) = self.write() {
                tracing::warn!(%error, "State files of pods could not be written");
            }
            if stops {
                return;
            }
        }
    }

    /// Writes both files, where their content changed.
    fn write(&self) -> Result<(), StoreError> {
        let mut written = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let (root, texts) = {
            let mut pods = self.lock();
            let Some(root) = pods.root.clone() else { return Ok(()) };
            pods.dirty = false;
            let allocated = text(pods.sizes.iter().map(|(uid, (allocated, _))| (uid, allocated)));
            let in_force = |(uid, (allocated, actuated)): (_, &'_ (SizeTexts, Option<SizeTexts>))| {
                (uid, actuated.clone().unwrap_or_else(|| allocated.clone()))
            };
            let actuated: Vec<_> = pods.sizes.iter().map(in_force).collect();
            (root, [allocated, text(actuated.iter().map(|(uid, sizes)| (*uid, sizes)))])
        };
        for ((name, text), known) in [ALLOCATED, ACTUATED].into_iter().zip(texts).zip(written.iter_mut()) {
            let (content, checksum) = text;
            if *known != Some(checksum) {
                replace_file(&root, name, 0o600, content.as_bytes()).inspect_err(|_| self.lock().dirty = true)?;
                *known = Some(checksum);
            }
        }
        Ok(())
    }
}

// === the format ===

/// A file.
#[derive(Serialize, Deserialize)]
struct File {
    data: String,
    checksum: u32,
}

/// What its `data` says.
#[derive(Serialize, Deserialize, Default)]
struct Data {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    entries: BTreeMap<String, Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    #[serde(default)]
    container_resources: Option<BTreeMap<String, Box<RawValue>>>,
    #[serde(default)]
    pod_level_resources: Option<Box<RawValue>>,
    #[serde(default)]
    empty_dir_volume_limits: Option<Box<RawValue>>,
}

/// A file's content and the checksum in it.
fn text<'a>(pods: impl Iterator<Item = (&'a PodUid, &'a SizeTexts)>) -> (String, u32) {
    let raw = |text: &String| RawValue::from_string(text.clone()).ok();
    let entry = |sizes: &SizeTexts| Entry {
        container_resources: Some(
            sizes.containers.iter().filter_map(|(name, text)| Some((name.clone(), raw(text)?))).collect(),
        ),
        pod_level_resources: sizes.pod.as_ref().and_then(raw),
        empty_dir_volume_limits: None,
    };
    let data = Data { entries: pods.map(|(uid, sizes)| (uid.to_string(), entry(sizes))).collect() };
    // Only maps with keys that are no strings can fail here, and there are none.
    let data = serde_json::to_string(&data).unwrap_or_else(|_| "{}".to_owned());
    let checksum = state_files::data_checksum(&data);
    (serde_json::to_string(&File { data, checksum }).unwrap_or_default(), checksum)
}

/// What a file holds; nothing when it is missing.
fn read(path: &Path) -> Result<BTreeMap<PodUid, SizeTexts>, StateError> {
    let Some(text) = state_files::read(path)? else { return Ok(BTreeMap::new()) };
    let corrupted = |what: String| StateError::Corrupted { path: path.to_owned(), what };
    state_files::check_pods(&text).map_err(corrupted)?;
    let file: File = serde_json::from_str(&text).map_err(|error| corrupted(error.to_string()))?;
    let data: Data = serde_json::from_str(&file.data).map_err(|error| corrupted(format!("its data: {error}")))?;
    let sizes = |entry: Entry| SizeTexts {
        pod: entry.pod_level_resources.map(|raw| raw.get().to_owned()).filter(|text| text != "null"),
        containers: entry
            .container_resources
            .unwrap_or_default()
            .into_iter()
            .map(|(name, raw)| (name, raw.get().to_owned()))
            .collect(),
    };
    Ok(data.entries.into_iter().map(|(uid, entry)| (PodUid::from(uid), sizes(entry))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;
    use std::fs;

    fn sizes(cpu: &str) -> SizeTexts {
        let text = format!(r#"{{"requests":{{"cpu":"{cpu}"}}}}"#);
        SizeTexts { pod: None, containers: [("c".to_owned(), text), ("d".to_owned(), "{}".to_owned())].into() }
    }

    fn allocated(uid: &str, cpu: &str) -> Record {
        Record::PodAllocated { uid: uid.into(), sizes: sizes(cpu) }
    }

    fn actuated(uid: &str, cpu: &str) -> Record {
        Record::PodActuated { uid: uid.into(), sizes: sizes(cpu) }
    }

    fn file(root: &Path, name: &str) -> String {
        let text = fs::read_to_string(root.join(name)).unwrap();
        state_files::check_pods(&text).unwrap();
        serde_json::from_str::<File>(&text).unwrap().data
    }

    /// A file of the reference is read, and written again to the byte.
    #[test]
    fn files_of_the_reference_survive() {
        for name in ["state-allocated_pods_state.json", "state-actuated_pods_state.json"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/state").join(name);
            let pods = read(&path).unwrap();
            assert!(!pods.is_empty());
            assert_eq!(text(pods.iter()).0, fs::read_to_string(&path).unwrap().trim_end(), "{name}");
        }
    }

    #[test]
    fn a_change_is_written_with_its_commit_and_new_pods_soon() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        assert_eq!(store.adopt_states(root.path()).unwrap(), []);
        store.commit(&[allocated("u", "100m"), allocated("v", "1")]).unwrap();
        store.commit(&[actuated("u", "100m"), allocated("u", "200m")]).unwrap();
        let data = file(root.path(), ALLOCATED);
        assert!(data.contains("200m") && data.contains(r#""PodLevelResources":null"#), "{data}");
        assert!(file(root.path(), ACTUATED).contains("100m"));
        // Brought into force.
        store.commit(&[actuated("u", "200m")]).unwrap();
        assert!(!file(root.path(), ACTUATED).contains("100m"));
        store.commit(&[Record::PodForgotten { uid: "v".into() }, allocated("w", "3")]).unwrap();
        drop(store);
        let data = file(root.path(), ALLOCATED);
        assert!(data.contains("\"w\"") && !data.contains("\"v\""), "{data}");
        let (mut store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, [allocated("u", "200m"), allocated("w", "3")]);
        assert_eq!(store.adopt_states(root.path()).unwrap(), records);
    }

    #[test]
    fn what_another_kubelet_wrote_counts_before_the_journal() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        store.adopt_states(root.path()).unwrap();
        store.commit(&[allocated("u", "100m")]).unwrap();
        drop(store);
        let other = [("u".into(), sizes("500m")), ("x".into(), sizes("9"))];
        let list: Vec<(PodUid, SizeTexts)> = other.into();
        fs::write(root.path().join(ALLOCATED), text(list.iter().map(|(uid, sizes)| (uid, sizes))).0).unwrap();
        let (mut store, records) = Store::open(root.path()).unwrap();
        assert_eq!(records, [allocated("u", "100m")]);
        let expect = [allocated("u", "500m"), actuated("u", "100m"), allocated("x", "9")];
        assert_eq!(store.adopt_states(root.path()).unwrap(), expect);
        drop(store);
        fs::write(root.path().join(ACTUATED), "{}").unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        let error = store.adopt_states(root.path()).unwrap_err().to_string();
        assert!(error.contains("actuated_pods_state is corrupted: missing field `data`"), "{error}");
    }

    #[test]
    fn a_file_that_cannot_be_written_fails_the_commit_and_loses_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (mut store, _) = Store::open(root.path()).unwrap();
        store.adopt_states(root.path()).unwrap();
        store.commit(&[allocated("u", "100m")]).unwrap();
        let temporary = root.path().join("allocated_pods_state.tmp");
        fs::create_dir(&temporary).unwrap();
        let error = store.commit(&[allocated("u", "200m")]).unwrap_err().to_string();
        assert!(error.contains("allocated_pods_state"), "{error}");
        fs::remove_dir(&temporary).unwrap();
        store.commit(&[allocated("u", "200m")]).unwrap();
        assert!(file(root.path(), ALLOCATED).contains("200m"));
    }
}
