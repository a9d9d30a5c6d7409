//! Reading container logs: what a request asks for, joined from the files that the runtime writes, followed over
//! rotation.
//!
//! Reads log files; writes nothing. A reader is a task with a buffer of bounded size, however long the lines are; all
//! readers that wait share one inotify queue. Rotated files that were compressed are not read, as the kubelet does not.

mod follow;
mod line;
mod tail;
mod watch;

pub use self::line::Stream;

use self::line::{PerStream, Shown};
use self::watch::Watcher;
use bytes::Bytes;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Portions of a log that may wait for a slow client.
const PORTIONS: usize = 2;

/// What of a log is asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogOptions {
    /// Go on until the container has ended.
    pub follow: bool,
    /// Only the last lines.
    pub tail_lines: Option<u64>,
    /// Only so many bytes.
    pub limit_bytes: Option<u64>,
    /// Only lines that began at this time or later, in nanoseconds since 1970.
    pub since: Option<i128>,
    /// Each line begins with its time.
    pub timestamps: bool,
    /// Only this stream.
    pub stream: Option<Stream>,
}

impl LogOptions {
    fn shown(&self) -> Shown {
        let mut streams = PerStream::both(self.stream.is_none());
        if let Some(stream) = self.stream {
            streams.set(stream, true);
        }
        Shown { streams, since: self.since, timestamps: self.timestamps, limit: self.limit_bytes.unwrap_or(u64::MAX) }
    }
}

/// A log to be read.
pub struct LogRequest {
    /// The file that the container writes, as the runtime names it.
    pub path: PathBuf,
    /// What of it.
    pub options: LogOptions,
    /// Whether the container may still write; asked only when following.
    pub running: Box<dyn Fn() -> bool + Send + Sync>,
    /// Ends the reading.
    pub stop: CancellationToken,
}

impl fmt::Debug for LogRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogRequest").field("path", &self.path).field("options", &self.options).finish_non_exhaustive()
    }
}

/// Why a log can't be read.
#[derive(thiserror::Error, Debug)]
#[error("failed to {what} log file {path:?}: {source}")]
pub struct LogError {
    what: &'static str,
    path: String,
    #[source]
    source: io::Error,
}

impl LogError {
    fn new(what: &'static str, path: &std::path::Path, source: io::Error) -> Self {
        Self { what, path: path.display().to_string(), source }
    }
}

/// Reads logs; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct LogReader {
    watcher: Watcher,
}

/// Portions of a log as they are read; trouble on the way ends it.
pub type Portions = mpsc::Receiver<Result<Bytes, LogError>>;

impl LogReader {
    /// Opens a log and begins to read it. Dropping the receiver ends the reading.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub async fn read(&self, request: LogRequest) -> Result<Portions, LogError> {
        let (sender, receiver) = mpsc::channel(PORTIONS);
        let opened = follow::Reader::open(self.watcher.clone(), request, Arc::new(sender)).await?;
        tokio::spawn(opened.run());
        Ok(receiver)
    }
}
