//! Watches the manifest paths and says that something was touched, and which files went. It says too much rather than too
//! little: what is there now is found out by a read.

use components::edge::Ingress;
use components::edge::sources::SourcesIngress;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;

/// How often a path that is not there is looked for.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Changes within this time are one.
const GATHER: Duration = Duration::from_millis(50);

/// Watches `path`, a file or a directory, until the receiver is gone.
pub(super) async fn watch(path: PathBuf, ingress: mpsc::Sender<Ingress>) {
    let mut was_there = true;
    loop {
        match Watch::arm(&path) {
            Ok(mut watch) => {
                was_there = true;
                // What happened before the watch stood was not seen.
                if tell(&ingress, BTreeSet::new()).await.is_err() {
                    return;
                }
                while watch.changed().await {
                    if tell(&ingress, std::mem::take(&mut watch.removed)).await.is_err() {
                        return;
                    }
                }
            }
            Err(error) if was_there => {
                was_there = false;
                tracing::debug!(path = %path.display(), "cannot be watched: {error}");
            }
            Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = ingress.closed() => return,
        }
    }
}

async fn tell(ingress: &mpsc::Sender<Ingress>, removed: BTreeSet<Arc<str>>) -> Result<(), ()> {
    let fact = if removed.is_empty() {
        SourcesIngress::ManifestsTouched
    } else {
        SourcesIngress::ManifestsRemoved { origins: removed.into_iter().collect() }
    };
    ingress.send(Ingress::Sources(fact)).await.map_err(|_| ())
}

/// The kernel's queue as something to wait for.
struct Queue(Inotify);

impl AsRawFd for Queue {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

struct Watch {
    queue: AsyncFd<Queue>,
    folder: PathBuf,
    /// Only this name counts; every name that does not begin with a dot without it.
    name: Option<OsString>,
    /// Files that went since this was told last.
    removed: BTreeSet<Arc<str>>,
    over: bool,
}

impl Watch {
    fn arm(path: &Path) -> std::io::Result<Self> {
        let (folder, name) = if std::fs::metadata(path)?.is_dir() {
            (path.to_owned(), None)
        } else {
            let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            (folder.to_owned(), path.file_name().map(OsString::from))
        };
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC)?;
        let what = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(&folder, what)?;
        #[expect(deprecated, reason = "its replacement is unsafe; `Queue` owns its descriptor and never replaces it")]
        let queue = AsyncFd::new(Queue(inotify))?;
        Ok(Self { queue, folder, name, removed: BTreeSet::new(), over: false })
    }

    /// Waits for a change that counts. False when the watch is over, after one last true.
    async fn changed(&mut self) -> bool {
        loop {
            if self.over {
                return false;
            }
            if !self.take().await {
                continue;
            }
            tokio::time::sleep(GATHER).await;
            // Whatever else is there by now belongs to the same change.
            if let Ok(events) = self.queue.get_ref().0.read_events() {
                self.judge(&events);
            }
            return true;
        }
    }

    /// Waits for events, takes them, and tells whether one counts.
    async fn take(&mut self) -> bool {
        let events = match self.queue.readable().await {
            Ok(mut guard) => match guard.try_io(|queue| Ok(queue.get_ref().0.read_events()?)) {
                Ok(Ok(events)) => events,
                Ok(Err(_)) => {
                    self.over = true;
                    return true;
                }
                Err(_would_block) => return false,
            },
            Err(_) => {
                self.over = true;
                return true;
            }
        };
        self.judge(&events)
    }

    fn judge(&mut self, events: &[InotifyEvent]) -> bool {
        let gone = AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_IGNORED
            | AddWatchFlags::IN_UNMOUNT;
        let mut counts = false;
        for event in events {
            if event.mask.intersects(gone) {
                self.over = true;
                counts = true;
            } else if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
                counts = true;
            } else {
                counts |= self.names(event);
            }
        }
        counts
    }

    fn names(&mut self, event: &InotifyEvent) -> bool {
        let Some(name) = &event.name else { return false };
        let ours = match &self.name {
            Some(ours) => ours == name,
            None => !name.as_bytes().starts_with(b"."),
        };
        // A plain file is still being written when it appears; its closing tells.
        let unfinished = event.mask.contains(AddWatchFlags::IN_CREATE)
            && std::fs::symlink_metadata(self.folder.join(name)).is_ok_and(|m| m.is_file() && m.nlink() == 1);
        // A single file that vanishes is a path that cannot be read, which is no removal.
        let went = event.mask.intersects(AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM);
        if ours && went && self.name.is_none() {
            self.removed.insert(self.folder.join(name).to_string_lossy().into());
        }
        ours && !unfinished
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tempfile::TempDir;
    use tokio::time::timeout;

    const SOON: Duration = Duration::from_secs(5);
    const QUIET: Duration = Duration::from_millis(300);

    struct Test {
        dir: TempDir,
        facts: mpsc::Receiver<Ingress>,
    }

    impl Test {
        fn new(path: &str) -> Self {
            let dir = TempDir::new().unwrap();
            let (sender, facts) = mpsc::channel(16);
            let path = if path.is_empty() { dir.path().to_owned() } else { dir.path().join(path) };
            tokio::spawn(watch(path, sender));
            Self { dir, facts }
        }

        #[track_caller]
        fn told(&mut self) -> impl Future<Output = ()> + '_ {
            self.told_without(&[])
        }

        /// Something is told, and that these files went.
        #[track_caller]
        fn told_without<'a>(&'a mut self, removed: &'a [&str]) -> impl Future<Output = ()> + 'a {
            let place = std::panic::Location::caller();
            async move {
                let fact =
                    timeout(SOON, self.facts.recv()).await.unwrap_or_else(|_| panic!("nothing told for {place}"));
                let origins = match fact {
                    Some(Ingress::Sources(SourcesIngress::ManifestsTouched)) => Vec::new(),
                    Some(Ingress::Sources(SourcesIngress::ManifestsRemoved { origins })) => origins,
                    other => panic!("{other:?} for {place}"),
                };
                let expect: Vec<_> = removed.iter().map(|name| self.path(name).to_string_lossy().into()).collect();
                assert_eq!(origins, expect, "{place}");
            }
        }

        async fn quiet(&mut self) {
            assert!(timeout(QUIET, self.facts.recv()).await.is_err(), "told without a reason");
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }
    }

    #[tokio::test]
    async fn changes_of_a_directory_are_told() {
        let mut test = Test::new("");
        test.told().await;
        fs::write(test.path("a"), "1").unwrap();
        test.told().await;
        fs::write(test.path(".hidden"), "1").unwrap();
        test.quiet().await;
        fs::rename(test.path(".hidden"), test.path("a")).unwrap();
        test.told().await;
        fs::hard_link(test.path("a"), test.path("b")).unwrap();
        test.told().await;
        fs::remove_file(test.path("a")).unwrap();
        test.told_without(&["a"]).await;
        test.quiet().await;
    }

    #[tokio::test]
    async fn a_file_that_went_is_named_although_another_takes_its_place_at_once() {
        let mut test = Test::new("");
        test.told().await;
        for name in ["a", "b", "c"] {
            fs::write(test.path(name), "1").unwrap();
        }
        test.told().await;
        fs::remove_file(test.path("b")).unwrap();
        fs::write(test.path("b"), "1").unwrap();
        fs::rename(test.path("a"), test.path("x")).unwrap();
        fs::rename(test.path("x"), test.path("a")).unwrap();
        // Put over what was there, as editors do: nothing of this name was ever gone.
        fs::write(test.path(".new"), "2").unwrap();
        fs::rename(test.path(".new"), test.path("c")).unwrap();
        test.told_without(&["a", "b", "x"]).await;
        test.quiet().await;
    }

    #[tokio::test]
    async fn a_burst_is_told_once_or_twice() {
        let mut test = Test::new("");
        test.told().await;
        for name in 0..200 {
            fs::write(test.path(&name.to_string()), "x").unwrap();
        }
        test.told().await;
        let mut more = 0;
        while timeout(QUIET, test.facts.recv()).await.is_ok() {
            more += 1;
        }
        assert!(more <= 3, "{more}");
    }

    #[tokio::test]
    async fn a_directory_that_vanishes_and_returns_is_watched_again() {
        let mut test = Test::new("sub");
        test.quiet().await;
        fs::create_dir(test.path("sub")).unwrap();
        test.told().await;
        fs::rename(test.path("sub"), test.path("away")).unwrap();
        test.told().await;
        fs::create_dir(test.path("sub")).unwrap();
        test.told().await;
        fs::write(test.path("sub/a"), "1").unwrap();
        test.told().await;
        fs::remove_dir_all(test.path("sub")).unwrap();
        test.told_without(&["sub/a"]).await;
        // The removal may be told as more than one change.
        while timeout(QUIET, test.facts.recv()).await.is_ok() {}
        fs::create_dir(test.path("sub")).unwrap();
        test.told().await;
    }

    #[tokio::test]
    async fn a_single_file_is_watched_through_its_directory() {
        let mut test = Test::new("f");
        fs::write(test.path("f"), "1").unwrap();
        test.told().await;
        fs::write(test.path("other"), "1").unwrap();
        test.quiet().await;
        fs::write(test.path("new"), "2").unwrap();
        fs::rename(test.path("new"), test.path("f")).unwrap();
        test.told().await;
        fs::remove_file(test.path("f")).unwrap();
        test.told().await;
        fs::write(test.path("f"), "3").unwrap();
        test.told().await;
    }

    #[tokio::test]
    async fn it_ends_with_its_receiver() {
        let (sender, facts) = mpsc::channel(1);
        let task = tokio::spawn(watch("/nonexistent/path".into(), sender));
        drop(facts);
        timeout(SOON, task).await.unwrap().unwrap();
    }
}
