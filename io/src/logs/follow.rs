//! One log being read: from its start, or the start of its last lines, to its end, and on while it is written.
//!
//! A file that was renamed is read to its end before the one that took its name is begun. Files are read on tokio's
//! blocking pool, a bounded portion at a time; in between there is only a task that waits.

use super::line::{Joiner, PerStream};
use super::watch::{Subscription, Watcher};
use super::{LogError, LogOptions, LogRequest, tail};
use bytes::Bytes;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Bytes read, and about as many shown, at a time.
const PORTION: usize = 64 << 10;
/// How often a reader looks whether its container has ended.
const LOOK: Duration = Duration::from_secs(1);
/// How often a reader looks at the file although nothing was told: watches can be lost, writes can not be told over
/// some file systems.
const LOOK_AT_FILE: Duration = Duration::from_secs(10);
/// A runtime opens the new file, then lets both streams change over: what the old one still gets comes within this.
const CHANGE_OVER: Duration = Duration::from_millis(20);

/// A log being read.
pub(super) struct Reader {
    source: Source,
    options: LogOptions,
    running: Box<dyn Fn() -> bool + Send + Sync>,
    stop: CancellationToken,
    watcher: Watcher,
    sender: Arc<mpsc::Sender<Result<Bytes, LogError>>>,
}

/// What a portion is read from; moves to the blocking pool and back.
struct Source {
    path: PathBuf,
    file: File,
    inode: u64,
    offset: u64,
    /// Where to stop; `None` when following.
    end: Option<u64>,
    joiner: Joiner,
    buffer: Vec<u8>,
}

/// What the blocking part of a step brought.
enum Step {
    /// Bytes to show, possibly none; there may be more.
    More(Vec<u8>),
    /// Bytes to show, and nothing more for now; the file to go on with, when there is one.
    End(Vec<u8>, Option<File>),
    /// Bytes to show, and nothing more at all.
    Full(Vec<u8>),
}

impl Reader {
    /// Opens the file and finds where to begin.
    pub(super) async fn open(
        watcher: Watcher,
        request: LogRequest,
        sender: Arc<mpsc::Sender<Result<Bytes, LogError>>>,
    ) -> Result<Self, LogError> {
        let LogRequest { path, options, running, stop } = request;
        let (wanted, asked, listens) = (options.clone(), path.clone(), Arc::clone(&sender));
        let source = blocking(&path, move || Source::open(&asked, &wanted, &|| !listens.is_closed())).await?;
        Ok(Self { source, options, running, stop, watcher, sender })
    }

    /// Reads to the end of the log, or until nobody listens.
    pub(super) async fn run(self) {
        let sender = Arc::clone(&self.sender);
        let stop = self.stop.clone();
        let read = async {
            if let Err(error) = self.read().await {
                tracing::debug!(%error, "A log could not be read to its end");
                let _ = sender.send(Err(error)).await;
            }
        };
        tokio::select! {
            () = read => {}
            () = sender.closed() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn read(self) -> Result<(), LogError> {
        let Self { mut source, options, running, watcher, sender, .. } = self;
        let mut wait = Wait::default();
        loop {
            let path = source.path.clone();
            let (back, step) = blocking(&path, move || source.step()).await?;
            source = back;
            let (bytes, end) = match step {
                Step::More(bytes) => (bytes, None),
                Step::End(bytes, next) => (bytes, Some(next)),
                Step::Full(bytes) => {
                    let _ = send(&sender, bytes).await;
                    return Ok(());
                }
            };
            if !send(&sender, bytes).await {
                return Ok(());
            }
            let Some(next) = end else {
                wait.ended = false;
                continue;
            };
            if !options.follow {
                return Ok(());
            }
            match next {
                Some(file) if wait.changing_over => {
                    source.change_over(file)?;
                    wait.changing_over = false;
                }
                Some(_) => {
                    // The old file is read once more before the change.
                    wait.changing_over = true;
                    tokio::time::sleep(CHANGE_OVER).await;
                }
                None if wait.ended => return Ok(()),
                None => wait.next(&watcher, &path, &*running).await,
            }
        }
    }
}

/// Hands a portion over; false when nobody listens.
async fn send(sender: &mpsc::Sender<Result<Bytes, LogError>>, bytes: Vec<u8>) -> bool {
    bytes.is_empty() || sender.send(Ok(Bytes::from(bytes))).await.is_ok()
}

/// How a reader waits.
#[derive(Default)]
struct Wait {
    subscription: Option<Subscription>,
    tried: bool,
    /// A newer file is there, and the old one is being looked at for the last time.
    changing_over: bool,
    /// The container has ended, and what it left is being read.
    ended: bool,
}

impl Wait {
    /// Waits until the log may have grown, or the container has ended.
    async fn next(&mut self, watcher: &Watcher, path: &Path, running: &(dyn Fn() -> bool + Send + Sync)) {
        if self.subscription.is_none() && !self.tried {
            // What was written before the watch stood was not told: look again first.
            self.tried = true;
            self.subscription = path.parent().and_then(|directory| watcher.subscribe(directory));
            return;
        }
        let look_at_file = Instant::now() + LOOK_AT_FILE;
        loop {
            if !running() {
                self.ended = true;
                return;
            }
            let Some(subscription) = &mut self.subscription else {
                tokio::time::sleep(LOOK).await;
                self.tried = false;
                return;
            };
            match tokio::time::timeout(LOOK, subscription.changed()).await {
                Ok(true) => {
                    subscription.mark_seen();
                    return;
                }
                Ok(false) => self.subscription = None,
                Err(_) if Instant::now() >= look_at_file => return,
                Err(_) => {}
            }
        }
    }
}

/// Runs something that blocks; trouble of the pool itself is told as trouble with the file.
async fn blocking<T: Send + 'static>(
    path: &Path,
    work: impl FnOnce() -> Result<T, LogError> + Send + 'static,
) -> Result<T, LogError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(LogError::new("read", path, io::Error::other(error))),
    }
}

impl Source {
    fn open(asked: &Path, options: &LogOptions, go_on: &dyn Fn() -> bool) -> Result<Self, LogError> {
        // Watched and looked for where it really lies.
        let path = asked.canonicalize().map_err(|error| LogError::new("find", asked, error))?;
        let file = open(&path)?;
        let found = file.metadata().map_err(|error| LogError::new("look at", &path, error))?;
        let size = found.len();
        let from = match options.tail_lines {
            None => PerStream::default(),
            Some(0) => PerStream::both(size),
            Some(lines) => {
                tail::starts(&file, size, lines, go_on).map_err(|error| LogError::new("read", &path, error))?
            }
        };
        let offset = tail::first(&from);
        let mut source = Self {
            joiner: Joiner::new(options.shown(), from, offset),
            inode: found.ino(),
            end: (!options.follow).then_some(size),
            path,
            file,
            offset: 0,
            buffer: vec![0; PORTION],
        };
        source.seek(offset)?;
        Ok(source)
    }

    fn seek(&mut self, offset: u64) -> Result<(), LogError> {
        self.offset = offset;
        self.file.seek(SeekFrom::Start(offset)).map_err(|error| LogError::new("read", &self.path, error))?;
        Ok(())
    }

    /// Reads a portion.
    fn step(mut self) -> Result<(Self, Step), LogError> {
        let mut out = Vec::new();
        while out.len() < PORTION {
            let left = self.end.map_or(u64::MAX, |end| end.saturating_sub(self.offset));
            let room = usize::try_from(left).unwrap_or(usize::MAX).min(self.buffer.len());
            let read = match self.file.read(&mut self.buffer[..room]) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(LogError::new("read", &self.path, error)),
            };
            if read == 0 {
                self.joiner.rest(&mut out);
                let next = if self.end.is_none() { self.successor()? } else { None };
                return Ok((self, Step::End(out, next)));
            }
            self.offset += read as u64;
            if !self.joiner.feed(&self.buffer[..read], &mut out) {
                return Ok((self, Step::Full(out)));
            }
        }
        Ok((self, Step::More(out)))
    }

    /// The file to go on with, when this one was renamed and there is something in the next. A file that was cut
    /// short is read again from its start.
    fn successor(&mut self) -> Result<Option<File>, LogError> {
        let ours = self.file.metadata().map_err(|error| LogError::new("look at", &self.path, error))?;
        if ours.len() < self.offset {
            self.seek(0)?;
            self.joiner.next_file();
            return Ok(None);
        }
        let current = match std::fs::metadata(&self.path) {
            Ok(current) if current.ino() != self.inode && current.len() > 0 => current,
            Ok(_) => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(LogError::new("look at", &self.path, error)),
        };
        let mut files = self.rotated();
        files.push((self.path.clone(), current.ino()));
        // A slow client may be more than one rotation behind. Files older than ours are compressed by then, and so may
        // be ours: what is left is newer.
        let next = files.iter().position(|(_, inode)| *inode == self.inode).map_or(0, |ours| ours + 1);
        Ok(files.get(next).and_then(|(path, _)| open(path).ok()))
    }

    /// Rotated files that are not compressed, oldest first, with their inodes.
    fn rotated(&self) -> Vec<(PathBuf, u64)> {
        let (Some(directory), Some(name)) = (self.path.parent(), self.path.file_name()) else { return Vec::new() };
        let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
        let rotated = |other: &OsStr| {
            let rest = other.as_bytes().strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"."));
            rest.is_some_and(|rest| !rest.ends_with(b".gz") && !rest.ends_with(b".tmp"))
        };
        let mut files: Vec<_> = entries
            .flatten()
            .filter(|entry| rotated(&entry.file_name()))
            .filter_map(|entry| Some((entry.path(), entry.metadata().ok()?.ino())))
            .collect();
        files.sort();
        files
    }

    fn change_over(&mut self, file: File) -> Result<(), LogError> {
        let found = file.metadata().map_err(|error| LogError::new("look at", &self.path, error))?;
        self.inode = found.ino();
        self.file = file;
        self.offset = 0;
        self.joiner.next_file();
        Ok(())
    }
}

fn open(path: &Path) -> Result<File, LogError> {
    File::open(path).map_err(|error| LogError::new("open", path, error))
}

#[cfg(test)]
mod tests {
    use super::super::{LogReader, LogRequest, Portions};
    use super::*;
    use std::fs;
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    use tokio::time::timeout;

    struct Rig {
        dir: tempfile::TempDir,
        reader: LogReader,
        running: Arc<AtomicBool>,
    }

    impl Rig {
        fn new() -> Self {
            let running = Arc::new(AtomicBool::new(true));
            Self { dir: tempfile::tempdir().unwrap(), reader: LogReader::default(), running }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("0.log")
        }

        fn append(&self, numbers: std::ops::Range<u32>) {
            let mut file = File::options().create(true).append(true).open(self.path()).unwrap();
            for number in numbers {
                writeln!(file, "2026-11-29T22:00:00Z stdout F {number}").unwrap();
            }
        }

        fn rotate(&self, suffix: &str) {
            fs::rename(self.path(), self.dir.path().join(format!("0.log.{suffix}"))).unwrap();
        }

        async fn read(&self, options: LogOptions) -> Portions {
            let running = Arc::clone(&self.running);
            let running = Box::new(move || running.load(Ordering::SeqCst));
            let stop = CancellationToken::new();
            self.reader.read(LogRequest { path: self.path(), options, running, stop }).await.unwrap()
        }
    }

    /// Waits until so many lines have come.
    async fn lines(portions: &mut Portions, text: &mut String, count: usize) {
        while text.lines().count() < count {
            let portion = timeout(Duration::from_secs(10), portions.recv()).await.expect("no more lines");
            text.push_str(std::str::from_utf8(&portion.unwrap().unwrap()).unwrap());
        }
    }

    async fn rest(portions: &mut Portions) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(portion) = timeout(Duration::from_secs(20), portions.recv()).await.expect("it did not end") {
            all.extend_from_slice(&portion.unwrap());
        }
        all
    }

    fn numbers(range: std::ops::Range<u32>) -> String {
        range.map(|number| format!("{number}\n")).collect()
    }

    #[tokio::test]
    async fn it_is_followed_over_rotations_without_a_gap_and_ends_with_its_container() {
        let rig = Rig::new();
        rig.append(0..10);
        let mut all = rig.read(LogOptions { follow: true, ..LogOptions::default() }).await;
        let mut last = rig.read(LogOptions { follow: true, tail_lines: Some(2), ..LogOptions::default() }).await;
        let (mut whole, mut end) = (String::new(), String::new());
        lines(&mut all, &mut whole, 10).await;
        lines(&mut last, &mut end, 2).await;
        for round in 1..=5 {
            rig.rotate(&format!("2026112{round}"));
            // What the runtime still writes into the renamed file is not lost.
            let old = rig.dir.path().join(format!("0.log.2026112{round}"));
            let mut old = File::options().append(true).open(old).unwrap();
            writeln!(old, "2026-11-29T22:00:00Z stdout F {}", round * 10).unwrap();
            rig.append(round * 10 + 1..round * 10 + 10);
            lines(&mut all, &mut whole, round as usize * 10 + 10).await;
            lines(&mut last, &mut end, round as usize * 10 + 2).await;
        }
        rig.append(60..70);
        rig.running.store(false, Ordering::SeqCst);
        whole.push_str(&String::from_utf8(rest(&mut all).await).unwrap());
        end.push_str(&String::from_utf8(rest(&mut last).await).unwrap());
        assert_eq!(whole, numbers(0..70));
        assert_eq!(end, numbers(8..70));
    }

    #[tokio::test]
    async fn a_slow_client_gets_what_was_rotated_meanwhile() {
        let rig = Rig::new();
        // More than may wait for a client that does not read.
        rig.append(0..60_000);
        let mut portions = rig.read(LogOptions { follow: true, ..LogOptions::default() }).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        rig.rotate("1");
        rig.append(60_000..60_010);
        rig.rotate("2");
        fs::write(rig.dir.path().join("0.log.0.gz"), "not read").unwrap();
        fs::write(rig.dir.path().join("0.log.3.tmp"), "not read").unwrap();
        rig.append(60_010..60_020);
        rig.running.store(false, Ordering::SeqCst);
        assert!(rest(&mut portions).await == numbers(0..60_020).into_bytes());
    }

    #[tokio::test]
    async fn without_following_it_ends_where_the_log_ended_when_it_was_asked_for() {
        let rig = Rig::new();
        rig.append(0..5);
        let mut portions = rig.read(LogOptions { tail_lines: Some(3), ..LogOptions::default() }).await;
        assert_eq!(rest(&mut portions).await, numbers(2..5).into_bytes());
        let mut none = rig.read(LogOptions { tail_lines: Some(0), ..LogOptions::default() }).await;
        assert_eq!(rest(&mut none).await, b"");
        let mut few = rig.read(LogOptions { limit_bytes: Some(3), follow: true, ..LogOptions::default() }).await;
        assert_eq!(rest(&mut few).await, b"0\n1");
        fs::remove_file(rig.path()).unwrap();
        let request = LogRequest {
            path: rig.path(),
            options: LogOptions::default(),
            running: Box::new(|| true),
            stop: CancellationToken::new(),
        };
        let error = rig.reader.read(request).await.unwrap_err().to_string();
        assert!(error.starts_with("failed to find log file \"/") && error.contains("0.log"), "{error}");
    }

    #[tokio::test]
    async fn a_line_of_100_megabytes_passes_in_small_portions() {
        let rig = Rig::new();
        let mut file = File::create(rig.path()).unwrap();
        file.write_all(b"2026-11-29T22:00:00Z stdout F ").unwrap();
        let part = vec![b'a'; 1 << 20];
        for _ in 0..100 {
            file.write_all(&part).unwrap();
        }
        file.write_all(b"\n2026-11-29T22:00:01Z stdout F end\n").unwrap();
        let before = resident();
        let mut portions = rig.read(LogOptions::default()).await;
        let (mut total, mut largest) = (0, 0);
        while let Some(portion) = portions.recv().await {
            let length = portion.unwrap().len();
            total += length;
            largest = largest.max(length);
        }
        assert_eq!(total, (100 << 20) + 1 + 4);
        assert!(largest <= 2 * PORTION, "{largest}");
        let grown = resident().saturating_sub(before);
        // Other tests of this process allocate too; who held the line would hold 100 MiB.
        assert!(grown < 64 << 10, "{grown} KiB more");
        let mut last = rig.read(LogOptions { tail_lines: Some(1), ..LogOptions::default() }).await;
        assert_eq!(rest(&mut last).await, b"end\n");
    }

    /// A number of `/proc/self/status`.
    fn status(name: &str) -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    }

    /// KiB of memory in use.
    fn resident() -> u64 {
        status("RssAnon:")
    }

    #[tokio::test]
    async fn a_thousand_followers_need_no_thread_each_and_leave_nothing() {
        let rig = Rig::new();
        rig.append(0..1);
        let mut followers = Vec::new();
        for _ in 0..1000 {
            followers.push(rig.read(LogOptions { follow: true, ..LogOptions::default() }).await);
        }
        for follower in &mut followers {
            assert_eq!(&follower.recv().await.unwrap().unwrap()[..], b"0\n");
        }
        let open = || fs::read_dir("/proc/self/fd").unwrap().count();
        let many = open();
        rig.append(1..2);
        for follower in &mut followers {
            assert_eq!(&follower.recv().await.unwrap().unwrap()[..], b"1\n");
        }
        // Other tests run beside this one, with threads of their own.
        let threads = status("Threads:");
        assert!(threads < 600, "{threads} threads");
        drop(followers);
        timeout(Duration::from_secs(10), async {
            while open() + 900 > many {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await
        .expect("files stay open");
    }
}
