//! The ring under bounded size, loss, failing writes and restarts.

use super::*;
use crate::frame::tests::work;
use crate::frame::{Encoder, TickEffects};
use crate::reader::{Item, Reader};
use components::node::Boot;
use components::time::{Mono, Now};
use std::collections::BTreeMap;

/// A directory that may be full.
#[derive(Default)]
struct Disk {
    files: BTreeMap<String, Vec<u8>>,
    open: Option<String>,
    full: bool,
}

impl Disk {
    fn list(&self) -> Vec<(String, u64)> {
        self.files.iter().map(|(name, data)| (name.clone(), data.len() as u64)).collect()
    }

    /// Runs steps up to the first that fails.
    fn run(&mut self, steps: Vec<Step>) -> bool {
        for step in steps {
            match step {
                Step::Remove { name } => {
                    self.files.remove(&name);
                }
                _ if self.full => return false,
                Step::Create { name, bytes } => {
                    assert!(self.files.insert(name.clone(), bytes).is_none(), "{name} was there already");
                    self.open = Some(name);
                }
                Step::Append { bytes } => {
                    let name = self.open.clone().unwrap();
                    self.files.get_mut(&name).unwrap().extend(bytes);
                }
            }
        }
        true
    }
}

/// Encoder, spool and disk together, a tick every 10 ms.
struct Node {
    encoder: Encoder,
    spool: Spool,
    disk: Disk,
    tick: u64,
    lost_before: u64,
}

fn header(started: i64) -> Header {
    // The spool looks into nothing of the boot facts, so the sample's are taken from their own JSON.
    let boot = include_str!("boot.json");
    let boot: Boot = serde_json::from_str(boot).unwrap();
    Header { ticklet: "0.1.0".into(), started: Wall(started), segment: 0, from_boot: true, boot }
}

fn small() -> Limits {
    Limits {
        run_bytes: 8 << 10,
        tail_bytes: 4 << 10,
        tail_files: 2,
        runs: 3,
        total_bytes: 64 << 10,
        flush: Duration::from_millis(50),
    }
}

impl Node {
    fn start(started: i64, mut disk: Disk) -> Self {
        let (spool, steps) = Spool::start(header(started), small(), &disk.list());
        assert!(disk.run(steps));
        Self { encoder: Encoder::default(), spool, disk, tick: 0, lost_before: 0 }
    }

    fn at(&self) -> Duration {
        Duration::from_millis(self.tick * 10)
    }

    fn encode(&mut self) -> Packet {
        self.tick += 1;
        if self.spool.wants_fresh() || self.lost_before > 0 {
            self.encoder.refresh();
        }
        let now = Now { mono: Mono(self.tick * 10_000_000), wall: Wall(self.tick.cast_signed()) };
        self.encoder.begin(self.tick, now, &[]).unwrap();
        let works = [work(self.tick.wrapping_mul(0x9e37_79b9_7f4a_7c15))];
        let effects = TickEffects { works: &works, ..TickEffects::default() };
        self.encoder.end(&effects).unwrap().unwrap()
    }

    fn ticks(&mut self, n: u64) {
        for _ in 0..n {
            let packet = self.encode();
            let lost = std::mem::take(&mut self.lost_before);
            let steps = self.spool.packet(&packet, lost, self.at()).unwrap();
            if !self.disk.run(steps) {
                self.spool.failed(self.disk.open.is_some(), self.at());
            }
        }
    }

    /// A frame that never reaches the spool.
    fn lose(&mut self) {
        self.encode();
        self.lost_before += 1;
    }

    fn close(mut self) -> Disk {
        let steps = self.spool.close().unwrap();
        self.disk.run(steps);
        self.disk
    }
}

/// Ticks and gaps of a file, in order, and whether it begins at boot.
fn read(data: &[u8]) -> (bool, Vec<Item>, Ending) {
    let mut reader = Reader::open(data).unwrap();
    let mut items = Vec::new();
    while let Some(item) = reader.next_item().unwrap() {
        items.push(item);
    }
    (reader.header().from_boot, items, reader.ending().unwrap())
}

fn ticks_of(items: &[Item]) -> Vec<u64> {
    let tick = |item: &Item| match item {
        Item::Frame(frame) => Some(frame.tick),
        Item::Gap(_) => None,
    };
    items.iter().filter_map(tick).collect()
}

fn gaps_of(items: &[Item]) -> Vec<(u64, u64)> {
    let gap = |item: &Item| match item {
        Item::Gap(gap) => Some((gap.after_tick, gap.frames)),
        Item::Frame(_) => None,
    };
    items.iter().filter_map(gap).collect()
}

#[test]
fn a_short_run_is_one_file_from_boot() {
    let mut node = Node::start(1_700_000_000_123_000_000, Disk::default());
    node.ticks(20);
    let disk = node.close();
    let names: Vec<_> = disk.files.keys().cloned().collect();
    assert_eq!(names, ["ticklet-20231114T221320.123Z-000.trace"]);
    let (from_boot, items, ending) = read(&disk.files[&names[0]]);
    assert!(from_boot);
    assert_eq!(ticks_of(&items), (1..=20).collect::<Vec<_>>());
    assert_eq!(ending, Ending::Closed);
}

#[test]
fn a_long_run_keeps_its_start_and_its_end() {
    let mut node = Node::start(1, Disk::default());
    node.ticks(5_000);
    let disk = node.close();
    assert_eq!(disk.files.len(), 3, "{:?}", disk.list());
    let mut files = disk.files.values();
    let (from_boot, items, ending) = read(files.next().unwrap());
    let first = ticks_of(&items);
    assert!(from_boot);
    assert_eq!(first, (1..=first.len() as u64).collect::<Vec<_>>());
    assert_eq!(ending, Ending::Full);
    let (from_boot, items, ending) = read(files.next().unwrap());
    let mut rest = ticks_of(&items);
    assert!(!from_boot);
    assert_eq!(ending, Ending::Full);
    let (from_boot, items, ending) = read(files.next().unwrap());
    rest.extend(ticks_of(&items));
    assert!(!from_boot);
    assert_eq!(ending, Ending::Closed);
    assert_eq!(rest, (rest[0]..=5_000).collect::<Vec<_>>());
    assert!(rest[0] > first.len() as u64);
    for (name, size) in disk.list() {
        assert!(size < 10 << 10, "{name} has {size} bytes");
    }
}

#[test]
fn many_runs_stay_within_count_and_size() {
    let mut disk = Disk::default();
    disk.files.insert("notes.txt".into(), vec![0; 1 << 20]);
    disk.files.insert("ticklet-old.trace".into(), vec![0; 1 << 20]);
    for run in 0..10 {
        let mut node = Node::start(7, disk);
        node.ticks(if run == 8 { 5_000 } else { 20 });
        disk = node.close();
    }
    let names: Vec<_> = disk.files.keys().map(String::as_str).collect();
    let expect = [
        "notes.txt",
        "ticklet-19700101T000000.007Z-000.trace",
        // The long run.
        "ticklet-19700101T000000.008Z-000.trace",
        "ticklet-19700101T000000.008Z-TAIL.trace",
        "ticklet-19700101T000000.008Z-TAIL.trace",
        "ticklet-19700101T000000.009Z-000.trace",
        "ticklet-old.trace",
    ];
    assert_eq!(names.len(), expect.len(), "{names:?}");
    for (name, expect) in names.iter().zip(expect) {
        let (start, end) = expect.split_once("TAIL").unwrap_or((expect, ""));
        assert!(name.starts_with(start) && name.ends_with(end), "{names:?}");
    }
}

#[test]
fn the_oldest_runs_go_first_until_there_is_room() {
    let name = |n: u32| format!("ticklet-2023111{n}T221320.123Z-000.trace");
    let limits = small();
    let run = |n: u32, size: u64| (name(n), size);
    assert!(prune(&[run(1, 10), run(2, 10)], &limits).is_empty());
    assert_eq!(prune(&[run(3, 10), run(1, 10), run(2, 10)], &limits), [name(1)]);
    // 64 KiB in all, 16 KiB of them for the new run.
    assert_eq!(prune(&[run(1, 10), run(2, 48 << 10)], &limits), [name(1)]);
    assert_eq!(prune(&[run(1, 10), run(2, 60 << 10)], &limits), [name(1), name(2)]);
}

#[test]
fn lost_frames_leave_a_gap_and_recording_goes_on() {
    let mut node = Node::start(1, Disk::default());
    node.ticks(5);
    node.lose();
    node.lose();
    node.ticks(5);
    assert_eq!(node.spool.lost(), 2);
    let disk = node.close();
    let (from_boot, items, _) = read(disk.files.values().next().unwrap());
    assert!(from_boot);
    assert_eq!(ticks_of(&items), [1, 2, 3, 4, 5, 8, 9, 10, 11, 12]);
    assert_eq!(gaps_of(&items), [(5, 2)]);
    assert!(matches!(items[5], Item::Gap(_)));
}

#[test]
fn a_full_disk_loses_frames_and_says_so_once_there_is_room() {
    let mut node = Node::start(1, Disk::default());
    node.ticks(12);
    node.disk.full = true;
    node.ticks(30);
    node.disk.full = false;
    // The pause after the last failure must pass first.
    node.ticks(150);
    let lost = node.spool.lost();
    let disk = node.close();
    assert_eq!(disk.files.len(), 1);
    let (from_boot, items, ending) = read(disk.files.values().next().unwrap());
    assert!(from_boot);
    let ticks = ticks_of(&items);
    assert_eq!(gaps_of(&items).len(), 1);
    assert_eq!(gaps_of(&items)[0].1, lost);
    assert_eq!(ticks.len() as u64 + lost, 192);
    assert_eq!(ticks.last(), Some(&192));
    assert_eq!(ending, Ending::Closed);
}

#[test]
fn a_file_that_was_given_up_is_followed_by_another() {
    let mut node = Node::start(1, Disk::default());
    node.ticks(12);
    node.disk.full = true;
    node.ticks(12);
    node.disk.full = false;
    node.disk.open = None;
    node.spool.failed(false, node.at());
    node.ticks(150);
    let disk = node.close();
    let files: Vec<_> = disk.files.values().map(|data| read(data)).collect();
    assert_eq!(files.iter().map(|(from_boot, ..)| *from_boot).collect::<Vec<_>>(), [true, false]);
    assert_eq!(files[0].2, Ending::Open);
    assert_eq!(gaps_of(&files[1].1).len(), 1);
}

#[test]
fn a_run_that_could_not_be_begun_is_not_from_boot() {
    let disk = Disk { full: true, ..Disk::default() };
    let mut node = Node::start(1, disk);
    node.ticks(5);
    node.disk.full = false;
    node.ticks(200);
    let disk = node.close();
    let files: Vec<_> = disk.files.values().map(|data| read(data)).collect();
    assert!(files.iter().all(|(from_boot, ..)| !from_boot));
    assert_eq!(files.iter().map(|(_, items, _)| gaps_of(items).len()).sum::<usize>(), 1);
    assert_eq!(ticks_of(&files.last().unwrap().1).last(), Some(&205));
}

#[test]
fn a_quiet_node_is_written_when_the_flush_is_due() {
    let mut node = Node::start(1, Disk::default());
    node.ticks(1);
    assert_eq!(node.spool.deadline(), Some(Duration::from_millis(60)));
    let steps = node.spool.wake(Duration::from_millis(59));
    assert!(steps.is_empty());
    let steps = node.spool.wake(Duration::from_millis(60));
    assert!(node.disk.run(steps));
    assert_eq!(node.spool.deadline(), None);
    let (_, items, ending) = read(node.disk.files.values().next().unwrap());
    assert_eq!((ticks_of(&items), ending), (vec![1], Ending::Open));
}

#[test]
fn a_frame_too_large_for_a_block_is_lost() {
    let mut node = Node::start(1, Disk::default());
    node.ticks(1);
    let packet = Packet { tick: 2, fresh: false, bytes: vec![0; MAX_RAW + 1] };
    assert!(node.spool.packet(&packet, 0, node.at()).unwrap().is_empty());
    assert_eq!(node.spool.lost(), 1);
}
