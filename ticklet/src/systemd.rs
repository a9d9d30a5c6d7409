//! What systemd is told of this process: ready, alive as long as the core ticks, stopping.
//!
//! Reads `NOTIFY_SOCKET` and `WATCHDOG_USEC`; without them nothing happens.

use arc_swap::ArcSwap;
use components::snapshot::Snapshot;
use io::clock::Clock;
use sd_notify::NotifyState;
use std::sync::Arc;
use std::time::Duration;

/// Tells that the node has begun its work.
pub(crate) fn ready() {
    tell(&NotifyState::Ready);
}

/// Tells that the process is about to end.
pub(crate) fn stopping() {
    tell(&NotifyState::Stopping);
}

/// Tells twice in each period of the watchdog that the node is alive; not while its last tick is older than `limit`.
/// Returns at once when no watchdog waits.
pub(crate) async fn keep_alive(snapshots: Arc<ArcSwap<Snapshot>>, clock: Clock, limit: Duration) {
    let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) else { return };
    tracing::info!(seconds = period.as_secs_f64(), "systemd's watchdog is served");
    let mut beat = tokio::time::interval(period / 2);
    loop {
        beat.tick().await;
        match io::server::syncloop_problem(&snapshots.load(), clock.now().mono, limit) {
            None => tell(&NotifyState::Watchdog),
            Some(problem) => tracing::error!("systemd's watchdog is not served: {problem}"),
        }
    }
}

fn tell(state: &NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(std::slice::from_ref(state)) {
        tracing::warn!("systemd was not told {state}: {error}");
    }
}
