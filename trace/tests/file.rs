//! Whole traces: golden files, round trips of every kind of input, cut-off and damaged files, secrets, replay.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::disallowed_methods, reason = "golden files and their update")]

#[path = "file/look.rs"]
mod look;
#[path = "file/sample.rs"]
mod sample;

use components::edge::cri::{CriAnswer, FoundImage};
use components::edge::{Answer, Ingress, Outcome};
use components::ids::Ticket;
use components::time::Now;
use std::path::{Path, PathBuf};
use trace::cut::{alter, cut};
use trace::format::MAGIC;
use trace::{Builder, Effects, Ending, Gap, Item, Reader, Replayed, TraceError, replay};

/// Reads everything; the error, if any, comes last.
fn read_all(data: &[u8]) -> (Vec<Item>, Result<Ending, TraceError>) {
    let mut items = Vec::new();
    let mut reader = match Reader::open(data) {
        Ok(reader) => reader,
        Err(error) => return (items, Err(error)),
    };
    loop {
        match reader.next_item() {
            Ok(Some(item)) => items.push(item),
            Ok(None) => return (items, Ok(reader.ending().unwrap())),
            Err(error) => return (items, Err(error)),
        }
    }
}

fn whole() -> Vec<u8> {
    sample::build().finish(Ending::Closed).unwrap()
}

// === golden files ===

fn golden_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/golden")
}

/// The layout of every edge type is pinned by this file: when it no longer reads, or is no longer what would be
/// written, the format has changed and its version must too (see `trace::format`). A new file is written beside the
/// old one with `UPDATE_GOLDEN=1`; the files of released versions stay.
#[test]
fn the_first_version_reads_for_ever() {
    let path = golden_dir().join("v1-minimal.trace");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, whole()).unwrap();
    }
    let data = std::fs::read(&path).unwrap();
    let (items, ending) = read_all(&data);
    assert_eq!(ending.unwrap(), Ending::Closed);
    assert_eq!(items, read_all(&whole()).0);
    assert_eq!(Reader::open(&data).unwrap().header(), &sample::header());
}

// === round trips ===

#[test]
fn every_kind_of_input_comes_back() {
    let (items, ending) = read_all(&whole());
    assert_eq!(ending.unwrap(), Ending::Closed);
    let inputs = items.iter().flat_map(|item| match item {
        Item::Frame(frame) => frame.inputs.clone(),
        Item::Gap(_) => Vec::new(),
    });
    let inputs: Vec<_> = inputs.collect();
    assert_eq!(inputs, sample::redacted_inputs());
}

#[test]
fn gaps_come_back_and_what_follows_them_too() {
    let mut builder = sample::build();
    let gap = Gap { after_tick: 99, frames: 7 };
    builder.gap(gap).unwrap();
    for (tick, inputs) in sample::ticks().into_iter().enumerate() {
        builder.begin(200 + tick as u64, sample::now(9), &inputs).unwrap();
    }
    let (items, ending) = read_all(&builder.finish(Ending::Full).unwrap());
    assert_eq!(ending.unwrap(), Ending::Full);
    let n = sample::ticks().len();
    assert_eq!(items.len(), 2 * n + 1);
    assert_eq!(items[n], Item::Gap(gap));
    let (Item::Frame(before), Item::Frame(after)) = (&items[1], &items[n + 2]) else { panic!("no frames") };
    assert_eq!(before.inputs, after.inputs);
}

// === bad files ===

#[test]
fn a_file_cut_off_anywhere_reads_up_to_its_last_whole_block() {
    let data = sample::small_blocks();
    let (all, _) = read_all(&data);
    let mut most = 0;
    for end in 0..data.len() {
        let (items, ending) = read_all(&data[..end]);
        assert_eq!(items, all[..items.len()]);
        assert!(items.len() >= most);
        most = items.len();
        match ending {
            Ok(ending) => assert!(matches!(ending, Ending::Open | Ending::CutOff { .. })),
            Err(TraceError::NotATrace) => assert_eq!(end, 0),
            Err(error) => assert!(matches!(error, TraceError::NoHeader { .. }), "{error}"),
        }
    }
    assert_eq!(most, all.len());
}

#[test]
fn damage_anywhere_is_an_error_or_shows_nowhere_else() {
    let data = sample::small_blocks();
    let (all, _) = read_all(&data);
    for at in 0..data.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bad = data.clone();
            bad[at] ^= flip;
            let (items, ending) = read_all(&bad);
            assert_eq!(items, all[..items.len()], "byte {at}");
            // Only the version part has no checksum: its minor version and the name of the tool.
            if at >= 13 + sample::TOOL.len() {
                assert!(matches!(ending, Err(TraceError::Corrupt { .. })), "byte {at}");
            }
        }
    }
}

#[test]
fn files_that_are_no_trace_say_so() {
    for data in [&b""[..], b"x", b"PK\x03\x04", &[0; 100], b"ticktrb\n11111"] {
        assert!(matches!(Reader::open(data), Err(TraceError::NotATrace)));
    }
    assert!(matches!(Reader::open(&MAGIC), Err(TraceError::NoHeader { .. })));
    let mut newer = whole();
    newer[8] = 2;
    let Err(error) = Reader::open(&newer) else { panic!("a newer major was read") };
    assert!(error.to_string().contains("use ticklet 0.1.0-golden or a newer"));
}

// === secrets ===

#[test]
fn no_secret_is_in_the_file() {
    let data = whole();
    let hidden = sample::SECRET.as_bytes();
    let holds = |hay: &[u8]| hay.windows(hidden.len()).any(|w| w == hidden);
    assert!(!holds(&data));
    let mut at = 13 + sample::TOOL.len();
    let mut blocks = 0;
    while let trace::format::Found::Block(block) = trace::format::read_block(&data, at).unwrap() {
        assert!(!holds(&block.content().unwrap()));
        at = block.end;
        blocks += 1;
    }
    assert!(blocks >= 3);
    let given = format!("{:?}", sample::ticks());
    assert!(given.contains(sample::SECRET), "the sample must hold the secret");
}

// === replay ===

/// Decides one inspection per input, with the number of inputs so far in its ticket.
struct Echo {
    tick: u64,
    seen: u64,
    grace: u32,
}

impl Replayed for Echo {
    fn tick(&mut self, _now: Now, batch: Vec<Ingress>) -> Effects {
        self.tick += 1;
        let mut effects = Effects { tick: self.tick, ..Effects::default() };
        for input in batch {
            self.seen += 1;
            let text = format!("{input:?}").len() as u64;
            effects.works.push(sample::stop(self.seen, text, self.grace));
        }
        effects.cancels.push(Ticket(self.seen));
        effects
    }
}

fn echo(grace: u32) -> Echo {
    Echo { tick: 0, seen: 0, grace }
}

/// A trace of what `Echo` decides.
fn recorded() -> Vec<u8> {
    let mut builder = Builder::new(&sample::header()).unwrap();
    let mut engine = echo(30);
    // Inputs as the reader gives them back, so that redaction does not change what `Echo` sees.
    for (n, input) in sample::redacted_inputs().into_iter().enumerate() {
        let now = sample::now(n as u64);
        builder.begin(n as u64 + 1, now, std::slice::from_ref(&input)).unwrap();
        let effects = engine.tick(now, vec![input]);
        builder.end(&effects.borrowed()).unwrap();
    }
    builder.finish(Ending::Closed).unwrap()
}

fn run(data: &[u8], grace: u32, limit: usize) -> trace::Report {
    replay(&mut Reader::open(data).unwrap(), &mut echo(grace), limit).unwrap()
}

#[test]
fn a_replay_is_the_same_and_says_so() {
    let report = run(&recorded(), 30, 1);
    assert!(report.is_same(), "{report}");
    assert_eq!(report.ticks, sample::redacted_inputs().len() as u64);
    assert!(report.to_string().contains("no divergence"));
}

#[test]
fn an_altered_input_diverges_at_its_tick() {
    let data = recorded();
    for tick in 1..=sample::redacted_inputs().len() as u64 {
        let altered = alter(&data, tick, |inputs| {
            inputs[0] = Ingress::Completed(components::edge::Completion {
                ticket: Ticket(1),
                outcome: Outcome::Done(Answer::Cri(CriAnswer::ImageFound(Some(FoundImage {
                    image_ref: "an image that no sample has".into(),
                    uid: None,
                    username: String::new(),
                })))),
            });
        });
        let report = run(&altered.unwrap(), 30, 1);
        let ticks: Vec<_> = report.differences.iter().map(|d| d.tick).collect();
        assert_eq!(ticks, [tick], "{report}");
        let text = report.to_string();
        assert!(text.contains(&format!("divergence at tick {tick} ")), "{text}");
        assert!(text.contains("- #"), "{text}");
        assert!(text.contains("+ #"), "{text}");
        assert!(text.contains("ImageFound an image that no sample has"), "{text}");
    }
    assert!(alter(&data, 4_000, |_| {}).is_err());
}

#[test]
fn all_differences_are_listed_when_asked_for() {
    let report = run(&recorded(), 10, 3);
    let ticks: Vec<_> = report.differences.iter().map(|d| d.tick).collect();
    assert_eq!(ticks, [1, 2, 3]);
    let text = report.to_string();
    assert!(text.contains("- #1 StopContainer c grace 30s"), "{text}");
    assert!(text.contains("+ #1 StopContainer c grace 10s"), "{text}");
}

#[test]
fn a_cut_replays_when_it_keeps_the_start_and_refuses_otherwise() {
    let data = recorded();
    let report = run(&cut(&data, 1, 4).unwrap(), 30, 1);
    assert!(report.is_same());
    assert_eq!(report.ticks, 4);
    let tail = cut(&data, 3, 5).unwrap();
    let error = replay(&mut Reader::open(&tail).unwrap(), &mut echo(30), 1).unwrap_err();
    assert!(error.to_string().contains("begins at tick 3"), "{error}");
    let (items, ending) = read_all(&tail);
    assert_eq!((items.len(), ending.unwrap()), (3, Ending::Cut));
}

#[test]
fn a_replay_stops_at_a_gap_and_at_damage() {
    let mut builder = Builder::new(&sample::header()).unwrap();
    builder.begin(1, sample::now(1), &[]).unwrap();
    let gap = Gap { after_tick: 1, frames: 2 };
    builder.gap(gap).unwrap();
    builder.begin(4, sample::now(4), &[]).unwrap();
    let data = builder.finish(Ending::Closed).unwrap();
    let report = run(&data, 30, 1);
    assert_eq!((report.ticks, report.not_ended.clone()), (1, vec![1]));
    let text = report.to_string();
    assert!(text.contains("2 ticks after tick 1 are missing"), "{text}");

    let mut data = recorded();
    let end = data.len() - 40;
    data[end] ^= 1;
    let report = run(&data, 30, 1);
    assert!(!report.is_same());
    assert!(report.to_string().contains("damaged at byte"), "{report}");
}
