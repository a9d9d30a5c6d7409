//! Writes the runs of a failed history as trace files, one per start of the agent.

use super::Failure;
use crate::recorder::RunRecord;
use components::time::Wall;
use std::path::{Path, PathBuf};
use trace::{Builder, Ending, Header, TickEffects, TraceError};

/// Writes the traces into `directory`; returns their paths in order.
///
/// # Errors
/// When a file cannot be written or a run cannot be encoded.
pub fn save(failure: &Failure, directory: &Path) -> Result<Vec<PathBuf>, String> {
    std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let mut paths = Vec::new();
    for (number, run) in failure.runs.iter().enumerate() {
        let path = directory.join(format!("history-{}-{number}.trace", failure.seed));
        let bytes = encode(run).map_err(|e| format!("{}: {e}", path.display()))?;
        std::fs::write(&path, bytes).map_err(|e| format!("{}: {e}", path.display()))?;
        paths.push(path);
    }
    Ok(paths)
}

/// One run as a trace.
///
/// # Errors
/// When it cannot be encoded.
pub fn encode(run: &RunRecord) -> Result<Vec<u8>, TraceError> {
    let mut builder = Builder::new(&Header {
        ticklet: env!("CARGO_PKG_VERSION").to_owned(),
        started: run.ticks.first().map_or(Wall(0), |t| t.now.wall),
        segment: 0,
        from_boot: true,
        boot: run.boot.clone(),
    })?;
    for tick in &run.ticks {
        builder.begin(tick.tick, tick.now, &tick.inputs)?;
        builder.end(&TickEffects { works: &tick.works, cancels: &tick.cancels, durable: &tick.durable })?;
    }
    builder.finish(Ending::Closed)
}
