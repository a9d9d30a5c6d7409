//! Measures what pods have on disk, one after another, on one thread that gives way to everything else.
//!
//! Results are kept: a pod is measured again when somebody asks after its period. The queue is bounded; what does not
//! fit is asked for again by the next request.

use super::disk::{self, FileSystem, Measure};
use crate::clock::Clock;
use components::ids::PodUid;
use components::time::{Mono, Wall};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// Pods that may wait to be measured.
const QUEUE: usize = 8192;
/// Logs are measured again after this long.
const LOGS_PERIOD: Duration = Duration::from_secs(10);
/// A walk may take this part of the time at most.
const SHARE: u32 = 20;

/// What is to be measured of a pod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Places {
    /// The pod.
    pub(super) uid: PodUid,
    /// Its volumes: (name, folder, counts as ephemeral storage).
    pub(super) volumes: Vec<(Arc<str>, PathBuf, bool)>,
    /// Folder of its logs.
    pub(super) logs: PathBuf,
    /// Names of its containers.
    pub(super) containers: Vec<Arc<str>>,
    /// Its hosts file.
    pub(super) hosts: PathBuf,
}

/// A volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct VolumeTaken {
    /// Name.
    pub(super) name: Arc<str>,
    /// Counts as ephemeral storage.
    pub(super) ephemeral: bool,
    /// What it takes.
    pub(super) measure: Measure,
    /// The file system that it lies on.
    pub(super) on: FileSystem,
}

/// What a pod has on disk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct PodDisk {
    /// Volumes in spec order.
    pub(super) volumes: Arc<Vec<VolumeTaken>>,
    /// Logs by container.
    pub(super) logs: BTreeMap<Arc<str>, Measure>,
    /// Logs of the pod itself and its hosts file.
    pub(super) others: Measure,
}

#[derive(Debug)]
struct Known {
    disk: Arc<PodDisk>,
    logs_due: Mono,
    volumes_due: Mono,
}

#[derive(Default, Debug)]
struct State {
    known: HashMap<PodUid, Known>,
    waiting: HashSet<PodUid>,
}

/// The thread's desk.
#[derive(Debug)]
struct Desk {
    state: Mutex<State>,
    done: Notify,
    stop: AtomicBool,
    clock: Clock,
    period: Option<Duration>,
}

/// What pods have on disk.
#[derive(Debug)]
pub(super) struct DiskUse {
    desk: Arc<Desk>,
    queue: Sender<Places>,
}

impl DiskUse {
    /// Starts the thread. `period` is that of volumes; `None` leaves them alone.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(super) fn start(clock: Clock, period: Option<Duration>) -> std::io::Result<Self> {
        let desk = Arc::new(Desk {
            state: Mutex::default(),
            done: Notify::new(),
            stop: AtomicBool::new(false),
            clock,
            period,
        });
        // One with a bound of its own would hold the memory of all its places from the start.
        let (queue, jobs) = channel();
        let of_thread = Arc::clone(&desk);
        std::thread::Builder::new().name("du".to_owned()).spawn(move || of_thread.work(&jobs))?;
        Ok(Self { desk, queue })
    }

    /// What is known of these pods; those that are due are measured first, as far as `wait` allows.
    pub(super) async fn of(&self, pods: Vec<Places>, wait: Duration) -> HashMap<PodUid, Arc<PodDisk>> {
        let uids: HashSet<PodUid> = pods.iter().map(|pod| pod.uid.clone()).collect();
        self.desk.lock().known.retain(|uid, _| uids.contains(uid));
        let now = self.desk.clock.now().mono;
        for pod in pods {
            let mut state = self.desk.lock();
            let due = state.known.get(&pod.uid).is_none_or(|known| known.logs_due.min(known.volumes_due) <= now);
            if due && state.waiting.len() < QUEUE && state.waiting.insert(pod.uid.clone()) {
                let uid = pod.uid.clone();
                if self.queue.send(pod).is_err() {
                    state.waiting.remove(&uid);
                }
            }
        }
        // The time is over or everything is done: either way there is nothing more to wait for.
        let _ = tokio::time::timeout(wait, self.idle()).await;
        self.desk.lock().known.iter().map(|(uid, known)| (uid.clone(), Arc::clone(&known.disk))).collect()
    }

    async fn idle(&self) {
        loop {
            let done = self.desk.done.notified();
            if self.desk.lock().waiting.is_empty() {
                return;
            }
            done.await;
        }
    }
}

impl Drop for DiskUse {
    fn drop(&mut self) {
        self.desk.stop.store(true, Ordering::Relaxed);
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change under it is one step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends with the queue's other end.
    fn work(&self, jobs: &Receiver<Places>) {
        crate::host::give_way();
        while let Ok(job) = jobs.recv() {
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            self.measure(&job);
            self.lock().waiting.remove(&job.uid);
            self.done.notify_waiters();
        }
    }

    fn measure(&self, job: &Places) {
        let begun = self.clock.now();
        let (old, volumes_due) = match self.lock().known.get(&job.uid) {
            Some(known) => (Some(Arc::clone(&known.disk)), known.volumes_due <= begun.mono),
            None => (None, true),
        };
        let (logs, others) = logs(job, begun.wall);
        let mut volumes = old.map(|disk| Arc::clone(&disk.volumes)).unwrap_or_default();
        let mut next = None;
        if let Some(period) = self.period
            && volumes_due
        {
            let stopped = || self.stop.load(Ordering::Relaxed);
            volumes = Arc::new(job.volumes.iter().filter_map(|place| volume(place, begun.wall, &stopped)).collect());
            let end = self.clock.now().mono;
            next = Some(end.after(period.max(end.since(begun.mono) * SHARE)));
        }
        let disk = Arc::new(PodDisk { volumes, logs, others });
        let mut state = self.lock();
        let before = state.known.get(&job.uid).map(|known| known.volumes_due);
        let volumes_due = next.or(before).unwrap_or(Mono(u64::MAX));
        let logs_due = begun.mono.after(LOGS_PERIOD);
        state.known.insert(job.uid.clone(), Known { disk, logs_due, volumes_due });
    }
}

fn logs(job: &Places, at: Wall) -> (BTreeMap<Arc<str>, Measure>, Measure) {
    let of = |name: &Arc<str>| (Arc::clone(name), Measure { at, taken: disk::files(&job.logs.join(&**name)) });
    let others = disk::files(&job.logs).and(disk::file(&job.hosts).unwrap_or_default());
    (job.containers.iter().map(of).collect(), Measure { at, taken: others })
}

fn volume(place: &(Arc<str>, PathBuf, bool), at: Wall, stopped: &dyn Fn() -> bool) -> Option<VolumeTaken> {
    let (name, path, ephemeral) = place;
    let on = disk::file_system(path)?;
    let taken = disk::tree(path, stopped)?;
    Some(VolumeTaken { name: Arc::clone(name), ephemeral: *ephemeral, measure: Measure { at, taken }, on })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[tokio::test]
    async fn a_pod_is_measured_once_a_period() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        fs::create_dir_all(at("logs/c")).unwrap();
        fs::create_dir_all(at("vol")).unwrap();
        fs::write(at("logs/c/0.log"), vec![b'x'; 5000]).unwrap();
        fs::write(at("vol/data"), vec![b'x'; 50_000]).unwrap();
        fs::write(at("hosts"), "h").unwrap();
        let places = Places {
            uid: PodUid::from("u"),
            volumes: vec![("v".into(), at("vol"), true), ("gone".into(), at("gone"), true)],
            logs: at("logs"),
            containers: vec!["c".into()],
            hosts: at("hosts"),
        };
        let using = DiskUse::start(Clock::default(), Some(Duration::from_secs(60))).unwrap();
        let ask = || using.of(vec![places.clone()], Duration::from_secs(10));
        let found = ask().await;
        let pod = &found[&PodUid::from("u")];
        assert_eq!(pod.volumes.len(), 1);
        assert!(pod.volumes[0].measure.taken.bytes >= 49_152 && pod.volumes[0].measure.taken.inodes == 2);
        assert!(pod.logs["c"].taken.bytes >= 4096 && pod.others.taken.inodes == 1);
        fs::write(at("vol/more"), vec![b'x'; 50_000]).unwrap();
        assert_eq!(ask().await[&PodUid::from("u")], *pod, "not again within the period");
        assert!(using.of(Vec::new(), Duration::ZERO).await.is_empty(), "a pod that is gone is forgotten");
        assert_eq!(ask().await[&PodUid::from("u")].volumes[0].measure.taken.inodes, 3);
    }
}
