//! Writes append-only files from a thread of its own, for recordings that must never hold up the node.
//!
//! Decides nothing: a [`Script`] turns items into steps, this runs them and reports one that failed. Items that find
//! the queue full are handed back to the caller. Files are made private (0600) in a private directory.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SendError, Sender};
use std::time::{Duration, Instant};

/// One thing to do in the directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileStep {
    /// Begin a file that must not be there yet; later appends go to it.
    Create {
        /// Its name, without a directory.
        name: String,
        /// Its first bytes.
        bytes: Vec<u8>,
    },
    /// Append to the file at hand: all of it, or nothing.
    Append {
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Remove a file; one that is gone is removed already.
    Remove {
        /// Its name, without a directory.
        name: String,
    },
}

/// Says what is to be done. Times are since the writer was started.
pub trait Script: Send + 'static {
    /// What comes through the queue.
    type Item: Send + 'static;
    /// An item came.
    fn take(&mut self, item: Self::Item, at: Duration) -> Vec<FileStep>;
    /// The deadline passed.
    fn wake(&mut self, at: Duration) -> Vec<FileStep>;
    /// When to wake, if no item comes before.
    fn deadline(&self) -> Option<Duration>;
    /// The steps given last were run, `bytes` were written.
    fn done(&mut self, bytes: u64);
    /// One of the steps given last failed; those after it were not run. Without `open`, there is no file to append to.
    fn failed(&mut self, error: &io::Error, open: bool, at: Duration);
    /// No more items will come.
    fn close(&mut self) -> Vec<FileStep>;
}

/// Bounds of the queue.
#[derive(Clone, Copy, Debug)]
pub struct Queue {
    /// Items.
    pub items: usize,
    /// Sum of the weights of the items.
    pub weight: usize,
}

/// The near end of the writer.
#[derive(Debug)]
pub struct Writer<T> {
    queue: Sender<(T, usize)>,
    waiting: Arc<Waiting>,
    limit: Queue,
    ended: Receiver<()>,
}

/// What is in the queue. A channel with a bound of its own would hold the memory of all its places from the start.
#[derive(Default, Debug)]
struct Waiting {
    items: AtomicUsize,
    weight: AtomicUsize,
}

impl Waiting {
    /// Counts an item in, if there is room. One that is too heavy by itself is let in alone.
    fn enter(&self, weight: usize, limit: Queue) -> bool {
        let items = self.items.fetch_add(1, Ordering::Relaxed);
        let before = self.weight.fetch_add(weight, Ordering::Relaxed);
        let fits = items < limit.items.max(1) && (before == 0 || before.saturating_add(weight) <= limit.weight);
        if !fits {
            self.leave(weight);
        }
        fits
    }

    fn leave(&self, weight: usize) {
        self.items.fetch_sub(1, Ordering::Relaxed);
        self.weight.fetch_sub(weight, Ordering::Relaxed);
    }
}

/// Names and sizes of the regular files in a directory; none when it is not there.
///
/// # Errors
/// When the directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<(String, u64)>> {
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry?;
        // A file may go away while we look.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if let (true, Ok(name)) = (metadata.is_file(), entry.file_name().into_string()) {
            files.push((name, metadata.len()));
        }
    }
    files.sort();
    Ok(files)
}

impl<T: Send + 'static> Writer<T> {
    /// Starts the thread. The directory is made when it is missing, whenever a file is begun in it. `first` is done
    /// before anything else.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn start<S: Script<Item = T>>(dir: PathBuf, script: S, first: Vec<FileStep>, queue: Queue) -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let waiting = Arc::new(Waiting::default());
        let counted = Arc::clone(&waiting);
        std::thread::Builder::new().name("trace-writer".to_owned()).spawn(move || {
            let mut thread = Thread { files: Files { dir, file: None }, script, began: Instant::now() };
            thread.run(first);
            thread.serve(&receiver, &counted);
            // The other end may have stopped waiting.
            let _ = end.send(());
        })?;
        Ok(Self { queue: sender, waiting, limit: queue, ended })
    }

    /// Queues an item, or hands it back when the queue is full or the thread has ended. Never blocks.
    ///
    /// # Errors
    /// The item.
    pub fn offer(&self, item: T, weight: usize) -> Result<(), T> {
        if !self.waiting.enter(weight, self.limit) {
            return Err(item);
        }
        self.queue.send((item, weight)).map_err(|SendError((item, _))| {
            self.waiting.leave(weight);
            item
        })
    }

    /// Lets the thread finish what is queued; false when it did not within `limit`.
    #[must_use]
    pub fn close(self, limit: Duration) -> bool {
        drop(self.queue);
        self.ended.recv_timeout(limit).is_ok()
    }
}

struct Thread<S> {
    files: Files,
    script: S,
    began: Instant,
}

impl<S: Script> Thread<S> {
    fn serve(&mut self, queue: &Receiver<(S::Item, usize)>, waiting: &Waiting) {
        loop {
            let due = self.script.deadline();
            let wait = due.map_or(Duration::from_secs(3600), |due| due.saturating_sub(self.began.elapsed()));
            let steps = match queue.recv_timeout(wait) {
                Ok((item, weight)) => {
                    waiting.leave(weight);
                    self.script.take(item, self.began.elapsed())
                }
                Err(RecvTimeoutError::Timeout) => self.script.wake(self.began.elapsed()),
                Err(RecvTimeoutError::Disconnected) => break,
            };
            self.run(steps);
        }
        let steps = self.script.close();
        self.run(steps);
    }

    fn run(&mut self, steps: Vec<FileStep>) {
        let mut bytes = 0;
        for step in steps {
            match self.files.run(step) {
                Ok(written) => bytes += written,
                Err(error) => {
                    let open = self.files.file.is_some();
                    return self.script.failed(&error, open, self.began.elapsed());
                }
            }
        }
        self.script.done(bytes);
    }
}

struct Files {
    dir: PathBuf,
    /// The file at hand, and its length up to which it is whole.
    file: Option<(File, u64)>,
}

impl Files {
    fn run(&mut self, step: FileStep) -> io::Result<u64> {
        match step {
            FileStep::Create { name, bytes } => {
                self.file = None;
                let path = self.path(&name)?;
                let file = self.create(&path)?;
                self.file = Some((file, 0));
                let written = self.append(&bytes);
                if written.is_err() {
                    self.file = None;
                    // Nothing of it is of use; if it cannot be removed either, it reads as an empty trace.
                    let _ = std::fs::remove_file(&path);
                }
                written
            }
            FileStep::Append { bytes } => self.append(&bytes),
            FileStep::Remove { name } => match std::fs::remove_file(self.path(&name)?) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(0),
            },
        }
    }

    fn create(&self, path: &Path) -> io::Result<File> {
        let open = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        match open() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.dir)?;
                open()
            }
            file => file,
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let Some((file, whole)) = &mut self.file else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no file was begun"));
        };
        if let Err(error) = file.write_all(bytes) {
            // Take back what was written of it; when even that fails, the file is given up.
            let taken_back = file.set_len(*whole).and_then(|()| io::Seek::seek(file, io::SeekFrom::Start(*whole)));
            if taken_back.is_err() {
                self.file = None;
            }
            return Err(error);
        }
        *whole += bytes.len() as u64;
        Ok(bytes.len() as u64)
    }

    fn path(&self, name: &str) -> io::Result<PathBuf> {
        if name.is_empty() || name.starts_with('.') || name.contains('/') {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a plain file name"));
        }
        Ok(self.dir.join(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    /// Appends each item as a line; remembers what went wrong.
    struct Lines {
        errors: Arc<Mutex<Vec<String>>>,
        hold: Option<Receiver<()>>,
    }

    impl Script for Lines {
        type Item = String;
        fn take(&mut self, item: String, _at: Duration) -> Vec<FileStep> {
            if let Some(hold) = self.hold.take() {
                hold.recv().unwrap();
            }
            match item.strip_prefix("create ") {
                Some(name) => vec![FileStep::Create { name: name.into(), bytes: b"head\n".to_vec() }],
                None => vec![FileStep::Append { bytes: format!("{item}\n").into_bytes() }],
            }
        }
        fn wake(&mut self, _at: Duration) -> Vec<FileStep> {
            Vec::new()
        }
        fn deadline(&self) -> Option<Duration> {
            None
        }
        fn done(&mut self, _bytes: u64) {}
        fn failed(&mut self, error: &io::Error, _open: bool, _at: Duration) {
            self.errors.lock().unwrap().push(error.kind().to_string());
        }
        fn close(&mut self) -> Vec<FileStep> {
            vec![FileStep::Append { bytes: b"end\n".to_vec() }]
        }
    }

    const QUEUE: Queue = Queue { items: 4, weight: 100 };
    const SOON: Duration = Duration::from_secs(10);

    fn start(dir: &Path, hold: Option<Receiver<()>>) -> (Writer<String>, Arc<Mutex<Vec<String>>>) {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let script = Lines { errors: Arc::clone(&errors), hold };
        (Writer::start(dir.to_owned(), script, Vec::new(), QUEUE).unwrap(), errors)
    }

    #[test]
    fn files_are_private_and_in_order() {
        let temp = tempfile::tempdir().unwrap();
        let dir = temp.path().join("a/traces");
        let (writer, errors) = start(&dir, None);
        for item in ["create one", "x", "y"] {
            assert_eq!(writer.offer(item.to_owned(), 1), Ok(()));
        }
        assert!(writer.close(SOON));
        assert_eq!(std::fs::read_to_string(dir.join("one")).unwrap(), "head\nx\ny\nend\n");
        assert_eq!(list(&dir).unwrap(), [("one".to_owned(), 13)]);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join("one"))), (0o700, 0o600));
        assert!(errors.lock().unwrap().is_empty());
        assert!(list(&temp.path().join("nothing")).unwrap().is_empty());
    }

    #[test]
    fn a_full_queue_hands_back_and_never_blocks() {
        let temp = tempfile::tempdir().unwrap();
        let (release, hold) = mpsc::channel();
        let (writer, _) = start(temp.path(), Some(hold));
        writer.offer("create one".into(), 1).unwrap();
        let mut refused = 0;
        for n in 0..20 {
            refused += u32::from(writer.offer(n.to_string(), 1).is_err());
        }
        assert!(refused >= 15, "{refused}");
        release.send(()).unwrap();
        assert!(writer.close(SOON));
        let text = std::fs::read_to_string(temp.path().join("one")).unwrap();
        assert_eq!(text.lines().count() as u32, 2 + 20 - refused);
    }

    #[test]
    fn weight_is_bounded_but_one_item_always_fits() {
        let temp = tempfile::tempdir().unwrap();
        let (release, hold) = mpsc::channel();
        let (writer, _) = start(temp.path(), Some(hold));
        writer.offer("create one".into(), 0).unwrap();
        assert_eq!(writer.offer("big".into(), 1_000), Ok(()));
        assert_eq!(writer.offer("x".into(), 1), Err("x".to_owned()));
        release.send(()).unwrap();
        assert!(writer.close(SOON));
    }

    #[test]
    fn failures_are_reported_and_leave_the_file_whole() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::write(temp.path().join("there"), "x").unwrap();
        let (writer, errors) = start(temp.path(), None);
        writer.offer("create there".into(), 1).unwrap();
        writer.offer("create ../out".into(), 1).unwrap();
        writer.offer("lost".into(), 1).unwrap();
        writer.offer("create good".into(), 1).unwrap();
        assert!(writer.close(SOON));
        let errors = errors.lock().unwrap();
        assert_eq!(errors.len(), 3, "{errors:?}");
        assert_eq!(std::fs::read_to_string(temp.path().join("there")).unwrap(), "x");
        assert_eq!(std::fs::read_to_string(temp.path().join("good")).unwrap(), "head\nend\n");
    }

    #[test]
    fn a_full_disk_takes_back_the_half_written_step() {
        // `/dev/full` refuses every write and every change of length, so the file is given up too.
        let file = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut files = Files { dir: PathBuf::from("/nonexistent"), file: Some((file, 0)) };
        let error = files.run(FileStep::Append { bytes: vec![1; 10] }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(files.file.is_none());
    }
}
