//! Tells the readers of a directory that something in it changed: one inotify queue for all of them.
//!
//! It says too much rather than too little, and what it can't say (no more watches, a lost queue) readers find out by
//! looking from time to time.

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;

/// The shared queue, made when the first reader comes; cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Watcher {
    queue: Arc<Mutex<Option<Arc<Queue>>>>,
}

impl Watcher {
    /// Changes of a directory from now on; `None` when it can't be watched. Call within a tokio runtime.
    pub(super) fn subscribe(&self, directory: &Path) -> Option<Subscription> {
        let mut made = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if made.as_ref().is_none_or(|queue| queue.is_over()) {
            *made = Queue::start().map_err(|error| tracing::warn!(%error, "Log directories can't be watched")).ok();
        }
        made.as_ref()?.subscribe(directory)
    }
}

/// The kernel's queue and who waits for which directory.
#[derive(Debug)]
struct Queue {
    inotify: AsyncFd<Descriptor>,
    watched: Mutex<BTreeMap<WatchDescriptor, Directory>>,
    over: watch::Sender<bool>,
}

#[derive(Debug)]
struct Directory {
    changes: watch::Sender<u64>,
    readers: usize,
}

#[derive(Debug)]
struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Queue {
    fn start() -> std::io::Result<Arc<Self>> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        #[expect(
            deprecated,
            reason = "its replacement is unsafe; `Descriptor` owns its descriptor and never replaces it"
        )]
        let inotify = AsyncFd::new(Descriptor(inotify))?;
        let queue = Arc::new(Self { inotify, watched: Mutex::default(), over: watch::Sender::new(false) });
        tokio::spawn(Arc::clone(&queue).run());
        Ok(queue)
    }

    fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<WatchDescriptor, Directory>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe(self: &Arc<Self>, directory: &Path) -> Option<Subscription> {
        let what = AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        // Under the lock: the same directory gives the same descriptor, which a leaving reader may be taking back.
        let mut watched = self.lock();
        let descriptor = self.inotify.get_ref().0.add_watch(directory, what).ok()?;
        let entry =
            watched.entry(descriptor).or_insert_with(|| Directory { changes: watch::Sender::new(0), readers: 0 });
        entry.readers += 1;
        let changes = entry.changes.subscribe();
        Some(Subscription { queue: Arc::clone(self), descriptor, changes })
    }

    /// Lives as long as the runtime, or until the queue is lost; then the next reader makes another.
    async fn run(self: Arc<Self>) {
        loop {
            let Ok(mut guard) = self.inotify.readable().await else { break };
            let read = guard.try_io(|queue| Ok(queue.get_ref().0.read_events()?));
            match read {
                Ok(Ok(events)) => {
                    let mut watched = self.lock();
                    for event in events {
                        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                            watched.values().for_each(Directory::tell);
                        } else if let Some(directory) = watched.get(&event.wd) {
                            directory.tell();
                        }
                        if event.mask.contains(AddWatchFlags::IN_IGNORED) {
                            // Its readers are told by the closed channel, and look from time to time.
                            watched.remove(&event.wd);
                        }
                    }
                }
                Ok(Err(error)) => {
                    tracing::warn!(%error, "Changes of log directories can't be read");
                    break;
                }
                Err(_would_block) => {}
            }
        }
        self.over.send_replace(true);
        self.lock().clear();
    }

    fn leave(&self, descriptor: WatchDescriptor) {
        let mut watched = self.lock();
        let Some(directory) = watched.get_mut(&descriptor) else { return };
        directory.readers -= 1;
        if directory.readers == 0 {
            watched.remove(&descriptor);
            // It fails when the directory is gone, and the watch with it.
            let _ = self.inotify.get_ref().0.rm_watch(descriptor);
        }
    }
}

impl Directory {
    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }
}

/// One reader's view of a directory's changes.
#[derive(Debug)]
pub(super) struct Subscription {
    queue: Arc<Queue>,
    descriptor: WatchDescriptor,
    changes: watch::Receiver<u64>,
}

impl Subscription {
    /// What happened up to now is known.
    pub(super) fn mark_seen(&mut self) {
        self.changes.mark_unchanged();
    }

    /// Waits for a change since; false when none will be told any more.
    pub(super) async fn changed(&mut self) -> bool {
        self.changes.changed().await.is_ok()
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.queue.leave(self.descriptor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;
    use tokio::time::timeout;

    async fn told(subscription: &mut Subscription) -> bool {
        timeout(Duration::from_millis(500), subscription.changed()).await.unwrap_or(false)
    }

    #[tokio::test]
    async fn readers_hear_of_their_directory_only() {
        let top = tempfile::tempdir().unwrap();
        let (a, b) = (top.path().join("a"), top.path().join("b"));
        fs::create_dir(&a).unwrap();
        fs::create_dir(&b).unwrap();
        let watcher = Watcher::default();
        let mut first = watcher.subscribe(&a).unwrap();
        let mut second = watcher.subscribe(&a).unwrap();
        let mut other = watcher.subscribe(&b).unwrap();
        assert!(watcher.subscribe(&top.path().join("none")).is_none());
        fs::write(a.join("0.log"), "x").unwrap();
        assert!(told(&mut first).await && told(&mut second).await);
        assert!(!told(&mut other).await);
        // One that leaves does not silence the other.
        drop(second);
        first.mark_seen();
        fs::rename(a.join("0.log"), a.join("0.log.1")).unwrap();
        assert!(told(&mut first).await);
        drop(first);
        assert_eq!(other.queue.lock().len(), 1);
        // A directory that goes is told, then nothing more comes.
        fs::remove_dir_all(&b).unwrap();
        assert!(told(&mut other).await);
        timeout(Duration::from_secs(5), async { while other.changed().await {} }).await.unwrap();
    }
}
