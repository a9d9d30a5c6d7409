//! Records every tick into the ring of traces below the root directory.
//!
//! The tick's own thread only puts the frame into bytes and hands it to a queue; a thread of its own compresses and
//! writes. When that thread falls behind or the disk is full, frames are dropped, counted and said to be missing in
//! the file; the node never waits.

use crate::driver::Observer;
use components::edge::Ingress;
use components::node::Boot;
use components::time::{Now, Wall};
use engine::TickOutput;
use io::traces::{FileStep, Queue, Script, Writer};
use std::io as std_io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use trace::{Encoder, Header, Limits, Packet, Spool, Step, TickEffects, TraceError};

/// Frames that may wait, and their bytes: several seconds of a busy node.
const QUEUE: Queue = Queue { items: 4096, weight: 32 << 20 };
/// How long the end of the process waits for what is queued.
const CLOSE: Duration = Duration::from_secs(2);

/// Numbers of the recording, for metrics.
#[derive(Debug, Default)]
pub(crate) struct TraceStats {
    /// Frames handed to the writer.
    pub(crate) frames: AtomicU64,
    /// Frames that are in no file: the writer was behind, or a write failed.
    pub(crate) dropped: AtomicU64,
    /// Bytes written.
    pub(crate) bytes: AtomicU64,
    /// Failed writes.
    pub(crate) failures: AtomicU64,
}

/// Sees every tick and records it.
pub(crate) struct Recorder {
    encoder: Encoder,
    writer: Option<Writer<Item>>,
    wants_fresh: Arc<AtomicBool>,
    /// Frames that did not reach the queue since the last one that did.
    lost: u64,
    last_wall: Wall,
    stats: Arc<TraceStats>,
}

enum Item {
    Frame { packet: Packet, lost_before: u64 },
    NewRun(Box<Header>),
}

impl Recorder {
    /// Starts the recording of a run into `dir`, making room there first.
    ///
    /// # Errors
    /// When the directory cannot be listed or the thread not started. The node can run without.
    pub(crate) fn start(dir: &Path, boot: Boot, now: Now, limits: Limits) -> std_io::Result<Self> {
        let stats = Arc::new(TraceStats::default());
        let wants_fresh = Arc::new(AtomicBool::new(false));
        let existing = io::traces::list(dir)?;
        let (spool, first) = Spool::start(header(boot, now.wall), limits, &existing);
        let script = Files {
            spool,
            dir: dir.to_owned(),
            limits,
            failing: false,
            wants_fresh: Arc::clone(&wants_fresh),
            stats: Arc::clone(&stats),
            counted: 0,
        };
        let first = first.into_iter().map(file_step).collect();
        let writer = Writer::start(dir.to_owned(), script, first, QUEUE)?;
        Ok(Self { encoder: Encoder::default(), writer: Some(writer), wants_fresh, lost: 0, last_wall: now.wall, stats })
    }

    /// Numbers for metrics.
    pub(crate) fn stats(&self) -> Arc<TraceStats> {
        Arc::clone(&self.stats)
    }

    /// Writes what is queued and ends the file; false when that took too long. Dropping does the same.
    pub(crate) fn close(&mut self) -> bool {
        if let Some(packet) = self.encoder.abandon() {
            self.send(packet);
        }
        self.writer.take().is_none_or(|writer| writer.close(CLOSE))
    }

    fn took(&mut self, frame: Result<Option<Packet>, TraceError>) {
        match frame {
            Ok(Some(packet)) => self.send(packet),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "A tick is missing in the trace");
                self.encoder.abandon();
                self.lose();
            }
        }
    }

    fn send(&mut self, packet: Packet) {
        let Some(writer) = &self.writer else {
            return;
        };
        let weight = packet.bytes.len();
        match writer.offer(Item::Frame { packet, lost_before: self.lost }, weight) {
            Ok(()) => {
                self.lost = 0;
                self.stats.frames.fetch_add(1, Ordering::Relaxed);
            }
            Err(_) => self.lose(),
        }
    }

    fn lose(&mut self) {
        self.lost += 1;
        self.stats.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

impl Observer for Recorder {
    fn begin(&mut self, tick: u64, now: Now, inputs: &[Ingress]) {
        if let Some(unfinished) = self.encoder.abandon() {
            self.send(unfinished);
        }
        if self.lost > 0 || self.wants_fresh.load(Ordering::Relaxed) {
            self.encoder.refresh();
        }
        self.last_wall = now.wall;
        let unfinished = self.encoder.begin(tick, now, inputs);
        self.took(unfinished);
    }

    fn end(&mut self, output: &TickOutput) {
        let effects = TickEffects { works: &output.works, cancels: &output.cancels, durable: &output.durable };
        let frame = self.encoder.end(&effects);
        self.took(frame);
    }

    fn restarted(&mut self, boot: &Boot) {
        if let Some(unfinished) = self.encoder.abandon() {
            self.send(unfinished);
        }
        self.encoder.refresh();
        let item = Item::NewRun(Box::new(header(boot.clone(), self.last_wall)));
        let Some(writer) = &self.writer else {
            return;
        };
        // Frames of the new run in the old run's file would mislead a replay; without a new file there is none.
        if writer.offer(item, 0).is_err() {
            tracing::warn!("Recording ends: the trace of the restarted core could not be begun");
            self.writer = None;
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        if !self.close() {
            tracing::warn!("The end of the trace was not written in time");
        }
    }
}

/// Joins the ring's policy (trace) to the writer (io).
struct Files {
    spool: Spool,
    dir: PathBuf,
    limits: Limits,
    failing: bool,
    wants_fresh: Arc<AtomicBool>,
    stats: Arc<TraceStats>,
    /// Lost frames that are counted already; those the queue refused are counted by the recorder.
    counted: u64,
}

impl Files {
    fn steps(&mut self, steps: Result<Vec<Step>, TraceError>) -> Vec<FileStep> {
        self.wants_fresh.store(self.spool.wants_fresh(), Ordering::Relaxed);
        match steps {
            Ok(steps) => steps.into_iter().map(file_step).collect(),
            Err(error) => {
                tracing::warn!(%error, "A part of the trace is missing");
                Vec::new()
            }
        }
    }

    fn count_lost(&mut self) {
        let lost = self.spool.lost();
        self.stats.dropped.fetch_add(lost.saturating_sub(self.counted), Ordering::Relaxed);
        self.counted = lost;
    }
}

impl Script for Files {
    type Item = Item;

    fn take(&mut self, item: Item, at: Duration) -> Vec<FileStep> {
        match item {
            Item::Frame { packet, lost_before } => {
                self.counted += lost_before;
                let steps = self.spool.packet(&packet, lost_before, at);
                self.count_lost();
                self.steps(steps)
            }
            Item::NewRun(header) => {
                let mut steps = self.spool.close();
                let existing = io::traces::list(&self.dir).unwrap_or_default();
                let (spool, first) = Spool::start(*header, self.limits, &existing);
                self.spool = spool;
                self.counted = 0;
                if let Ok(steps) = &mut steps {
                    steps.extend(first);
                }
                self.steps(steps)
            }
        }
    }

    fn wake(&mut self, at: Duration) -> Vec<FileStep> {
        let steps = self.spool.wake(at);
        self.steps(Ok(steps))
    }

    fn deadline(&self) -> Option<Duration> {
        self.spool.deadline()
    }

    fn done(&mut self, bytes: u64) {
        self.stats.bytes.fetch_add(bytes, Ordering::Relaxed);
        if self.failing && bytes > 0 {
            self.failing = false;
            tracing::info!("Recording goes on, with a gap");
        }
    }

    fn failed(&mut self, error: &std_io::Error, open: bool, at: Duration) {
        self.stats.failures.fetch_add(1, Ordering::Relaxed);
        if !self.failing {
            self.failing = true;
            let dir = self.dir.display();
            tracing::warn!(%dir, %error, "Recording pauses: the trace cannot be written");
        }
        self.spool.failed(open, at);
        self.count_lost();
        self.wants_fresh.store(true, Ordering::Relaxed);
    }

    fn close(&mut self) -> Vec<FileStep> {
        let steps = self.spool.close();
        self.steps(steps)
    }
}

fn header(boot: Boot, started: Wall) -> Header {
    Header { ticklet: env!("CARGO_PKG_VERSION").to_owned(), started, segment: 0, from_boot: true, boot }
}

fn file_step(step: Step) -> FileStep {
    match step {
        Step::Create { name, bytes } => FileStep::Create { name, bytes },
        Step::Append { bytes } => FileStep::Append { bytes },
        Step::Remove { name } => FileStep::Remove { name },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace_cli::replaying::EngineReplay;
    use components::edge::control::ControlIngress;
    use components::edge::sources::SourcesIngress;
    use components::time::Mono;
    use engine::Engine;
    use trace::replay::Stopped;
    use trace::{Ending, Reader, replay};

    fn boot() -> Boot {
        serde_json::from_str(include_str!("../../trace/src/spool/boot.json")).unwrap()
    }

    fn at(n: u64) -> Now {
        Now { mono: Mono(n * 700_000_000), wall: Wall(1_700_000_000_000_000_000 + n.cast_signed()) }
    }

    /// Runs an engine that is recorded, as the driver does.
    fn run(recorder: &mut Recorder, boot: Boot, ticks: u64) {
        let mut engine = Engine::new(boot);
        systems::plugin(&mut engine);
        for n in 1..=ticks {
            let batch = match n % 5 {
                0 => vec![Ingress::Sources(SourcesIngress::ManifestsTouched)],
                3 => vec![Ingress::Control(ControlIngress::DrainRequested { grace_seconds: Some(3) })],
                _ => Vec::new(),
            };
            recorder.begin(n, at(n), &batch);
            let output = engine.tick(at(n), batch);
            recorder.end(&output);
        }
    }

    fn replay_file(path: &Path) -> trace::Report {
        let data = std::fs::read(path).unwrap();
        let mut reader = Reader::open(&data).unwrap();
        let mut engine = EngineReplay::new(reader.header().boot.clone());
        replay(&mut reader, &mut engine, 1).unwrap()
    }

    fn files(dir: &Path) -> Vec<PathBuf> {
        io::traces::list(dir).unwrap().into_iter().map(|(name, _)| dir.join(name)).collect()
    }

    #[test]
    fn a_recorded_engine_replays_and_a_restart_begins_a_new_run() {
        let temp = tempfile_dir();
        let dir = temp.join("traces");
        let mut recorder = Recorder::start(&dir, boot(), at(0), Limits::default()).unwrap();
        run(&mut recorder, boot(), 40);
        let again = Boot { tickets: 1_000, ..boot() };
        recorder.restarted(&again);
        run(&mut recorder, again, 20);
        let stats = recorder.stats();
        assert!(recorder.close());
        assert_eq!(stats.frames.load(Ordering::Relaxed), 60);
        assert_eq!(stats.dropped.load(Ordering::Relaxed), 0);
        let files = files(&dir);
        assert_eq!(files.len(), 2, "{files:?}");
        for (file, ticks) in files.iter().zip([40, 20]) {
            let report = replay_file(file);
            assert!(report.is_same(), "{report}");
            assert_eq!(report.ticks, ticks);
            assert_eq!(report.stopped, Stopped::Ended(Ending::Closed));
            assert!(report.works > 0, "the run must decide something");
        }
        std::fs::remove_dir_all(&temp).unwrap();
    }

    #[test]
    fn an_unwritable_directory_costs_frames_and_nothing_else() {
        let temp = tempfile_dir();
        let dir = temp.join("traces");
        let mut recorder = Recorder::start(&dir, boot(), at(0), Limits::default()).unwrap();
        // A file where the directory should be.
        std::fs::write(&dir, "").unwrap();
        run(&mut recorder, boot(), 10);
        let stats = recorder.stats();
        assert!(recorder.close());
        assert_eq!(stats.bytes.load(Ordering::Relaxed), 0);
        assert_eq!(stats.dropped.load(Ordering::Relaxed), 10);
        assert!(stats.failures.load(Ordering::Relaxed) >= 1);
        std::fs::remove_dir_all(&temp).unwrap();
    }

    fn tempfile_dir() -> PathBuf {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("ticklet-recorder-{}-{n}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }
}
