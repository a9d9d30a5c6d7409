//! Runs a trace through the engine with all its systems, as it was or with another configuration.

use crate::compose::node::node_config;
use anyhow::{Context, bail};
use components::config::{Document, KubeletConfiguration, assemble};
use components::edge::Ingress;
use components::node::reclaim::ReclaimConfig;
use components::node::{Boot, NodeConfig};
use components::time::Now;
use engine::Engine;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use trace::replay::Stopped;
use trace::{Effects, Reader, Replayed, replay};

/// Differing ticks that a replay with another configuration lists: what follows the first ones is decided on answers
/// to works that were never asked for.
const OTHERWISE: usize = 10;

/// The engine, as the replay of a trace drives it.
pub(crate) struct EngineReplay {
    engine: Option<Engine>,
    ticks: u64,
    /// Tick in which it panicked.
    panicked: Option<u64>,
}

impl EngineReplay {
    /// A fresh engine with all systems.
    pub(crate) fn new(boot: Boot) -> Self {
        let mut engine = Engine::new(boot);
        systems::plugin(&mut engine);
        Self { engine: Some(engine), ticks: 0, panicked: None }
    }
}

impl Replayed for EngineReplay {
    fn tick(&mut self, now: Now, batch: Vec<Ingress>) -> Effects {
        self.ticks += 1;
        let Some(mut engine) = self.engine.take() else {
            return Effects { tick: self.ticks, ..Effects::default() };
        };
        let Ok(output) = catch_unwind(AssertUnwindSafe(|| engine.tick(now, batch))) else {
            // Nothing of a half-done tick is to be used, as on a node.
            self.panicked = Some(self.ticks);
            return Effects { tick: self.ticks, ..Effects::default() };
        };
        self.engine = Some(engine);
        Effects { tick: output.tick, works: output.works, cancels: output.cancels, durable: output.durable }
    }
}

/// What a replay found.
pub(super) struct Verdict {
    /// True without any difference.
    pub(super) same: bool,
    /// For people.
    pub(super) text: String,
}

/// Replays a trace; with `other`, under the KubeletConfiguration in that file.
pub(super) fn replay_file(data: &[u8], other: Option<&Path>) -> anyhow::Result<Verdict> {
    let mut reader = Reader::open(data)?;
    let mut boot = reader.header().boot.clone();
    let mut text = String::new();
    if reader.header().ticklet != env!("CARGO_PKG_VERSION") {
        let (theirs, ours) = (&reader.header().ticklet, env!("CARGO_PKG_VERSION"));
        writeln!(text, "note: recorded by ticklet {theirs}, replayed by {ours}")?;
    }
    if let Some(path) = other {
        boot.config = load(path, &boot)?;
    }
    let mut engine = EngineReplay::new(boot);
    let limit = if other.is_some() { OTHERWISE } else { 1 };
    let report = replay(&mut reader, &mut engine, limit)?;
    write!(text, "{report}")?;
    if let Some(tick) = engine.panicked {
        writeln!(text, "the core panicked at tick {tick}")?;
    }
    if other.is_some() && report.stopped == Stopped::AtDifference {
        writeln!(text, "only the first {OTHERWISE} ticks that differ are listed")?;
    }
    if other.is_some() && !report.differences.is_empty() {
        writeln!(
            text,
            "ticks after the first one above still see the answers to what was decided when it was recorded"
        )?;
    }
    Ok(Verdict { same: report.is_same() && engine.panicked.is_none(), text })
}

/// The same inputs with what is decided on them now: for recordings whose decisions were changed on purpose, as long as
/// the same works are asked for in the same order.
pub(super) fn renew(data: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut reader = Reader::open(data)?;
    let mut engine = EngineReplay::new(reader.header().boot.clone());
    let mut out = trace::Builder::new(reader.header())?;
    while let Some(item) = reader.next_item()? {
        let trace::Item::Frame(frame) = item else { bail!("frames are missing in it") };
        out.begin(frame.tick, frame.now, &frame.inputs)?;
        let effects = engine.tick(frame.now, frame.inputs);
        let (works, cancels, durable) = (&effects.works, &effects.cancels, &effects.durable);
        out.end(&trace::TickEffects { works, cancels, durable })?;
        if let Some(tick) = engine.panicked {
            bail!("the core panicked at tick {tick}");
        }
    }
    Ok(out.finish(reader.ending().unwrap_or(trace::Ending::Open))?)
}

/// Reads another configuration for the node that was recorded.
fn load(path: &Path, boot: &Boot) -> anyhow::Result<NodeConfig> {
    let bytes = std::fs::read(path).with_context(|| format!("failed to read {}", path.display()))?;
    let file = path.display().to_string();
    let dir = std::path::absolute(path)?.parent().map(|dir| dir.display().to_string()).unwrap_or_default();
    let document = Document { file, dir, bytes };
    let assembled = assemble(KubeletConfiguration::default(), Some(&document), &[]);
    let found = assembled.findings.errors.iter().map(ToString::to_string);
    let wrong = assembled.config.validate().into_iter().map(|error| error.to_string());
    let problems: Vec<_> = found.chain(wrong).collect();
    if !problems.is_empty() {
        bail!("the configuration cannot be used:\n  {}", problems.join("\n  "));
    }
    // Where the recorded node's pods came from and where it kept them is no question of the other configuration: the
    // recorded inputs answer for these places only.
    let recorded = boot.config.clone();
    let other = node_config(&assembled.config, &recorded.root_dir, &boot.machine);
    Ok(NodeConfig {
        node_name: recorded.node_name,
        root_dir: recorded.root_dir,
        pod_logs_dir: recorded.pod_logs_dir,
        file_source: recorded.file_source,
        url_source: recorded.url_source,
        cgroup_root: recorded.cgroup_root,
        end_orphans: recorded.end_orphans,
        api: recorded.api,
        reclaim: ReclaimConfig { rotation: other.reclaim.rotation.clone(), ..recorded.reclaim },
        object: recorded.object,
        ..other
    })
}
