//! Graceful shutdown of the node: pods end in bands of priority, the lowest first, each band with its own time.
//!
//! Reads the announcement, the bands of [`NodeConfig`] and the stages of pods; writes [`NodeShutdown`] and the
//! kubelet's `graceful_node_shutdown_state`, and lets the machine go down in the end. A band is over when all of its pods have ended or its time has passed.

use bevy_ecs::prelude::*;
use components::edge::control::ControlIngress;
use components::edge::host::{File, HostEffect, PrepareContainer};
use components::edge::{Effect, Lane, Why};
use components::node::{Machine, NodeConfig, ShutdownBand};
use components::time::{Mono, Wall};
use components::world::{Desired, Lifecycle, NodeShutdown, PodIndex, Stage};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::time::Duration;

/// Time for the state file, and to let the machine go down.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct ShutdownSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let again = engine.world().resource::<Machine>().shutting_down;
    engine.world_mut().insert_resource(NodeShutdown::default());
    if again {
        engine.world_mut().insert_resource(Announced(true));
    } else {
        engine.world_mut().init_resource::<Announced>();
    }
    engine
        .add_systems(Phase::Plan, advance_shutdown.in_set(ShutdownSystems).before(crate::lifecycle::LifecycleSystems));
}

/// A shutdown was announced by an earlier run and goes on.
#[derive(Resource, Default, Debug)]
struct Announced(bool);

/// The band of a pod: the last one whose priority is not above the pod's; the first for a pod below all.
#[must_use]
pub fn band_of(bands: &[ShutdownBand], priority: i32) -> usize {
    bands.iter().rposition(|band| band.priority <= priority).unwrap_or(0)
}

/// The grace period that the shutdown leaves a pod of this priority; `None` while it may go on running.
#[must_use]
pub fn bound(shutdown: &NodeShutdown, bands: &[ShutdownBand], priority: i32) -> Option<u32> {
    let band = band_of(bands, priority);
    (shutdown.began.is_some() && band <= shutdown.band).then(|| bands.get(band).map_or(0, |band| band.seconds))
}

/// Where a shutdown stands after a look at the priorities of the pods that have not ended: the band and when it began.
fn advance(bands: &[ShutdownBand], mut band: usize, mut began: u64, alive: &[i32], now: u64) -> (usize, u64) {
    while let Some(current) = bands.get(band) {
        let over = now >= began.saturating_add(u64::from(current.seconds) * 1_000_000_000);
        if !over && alive.iter().any(|priority| band_of(bands, *priority) == band) {
            break;
        }
        band += 1;
        began = now;
    }
    (band, began)
}

fn advance_shutdown(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    config: Res<NodeConfig>,
    index: Res<PodIndex>,
    pods: Query<(&Desired, &Lifecycle)>,
    mut again: ResMut<Announced>,
    mut shutdown: ResMut<NodeShutdown>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
    mut touched: ResMut<Touched>,
) {
    let now = clock.now;
    let mut announced = std::mem::take(&mut again.0);
    let mut state = None;
    for fact in &inbox.control {
        match fact {
            ControlIngress::ShutdownAnnounced => announced = true,
            ControlIngress::ShutdownCancelled => {
                announced = false;
                if shutdown.began.is_some() {
                    *shutdown = NodeShutdown::default();
                    index.by_uid.values().for_each(|pod| touched.add(*pod));
                    state = Some((None, None));
                }
            }
            ControlIngress::DrainRequested { .. } => {}
        }
    }
    if announced && shutdown.began.is_none() && !config.shutdown_bands.is_empty() {
        *shutdown =
            NodeShutdown { began: Some(now.mono), started: now.wall, band_began: now.mono, ..Default::default() };
        tracing::info!("The node shuts down: pods end by priority");
        index.by_uid.values().for_each(|pod| touched.add(*pod));
        state = Some((Some(now.wall), None));
    }
    if shutdown.began.is_some() && !shutdown.done && end_bands(&clock, &config, &index, &pods, &mut shutdown) {
        index.by_uid.values().for_each(|pod| touched.add(*pod));
        if shutdown.done {
            tracing::info!("The node's pods have ended or have used up their time");
            let why = Why { system: "shutdown", rule: "no pod needs the machine any longer" };
            emit(&mut outbox, why, HostEffect::AllowShutdown);
            state = Some((Some(shutdown.started), Some(now.wall)));
        }
    }
    if let Some(band) = config.shutdown_bands.get(shutdown.band).filter(|_| shutdown.began.is_some()) {
        let end = shutdown.band_began.after(Duration::from_secs(u64::from(band.seconds)));
        timers.arm(TimerKind::Shutdown, Owner::Node, end);
    }
    if let Some((start, end)) = state {
        write_state(&mut outbox, &config, start, end);
    }
}

/// Goes on to the band whose turn it is; true when that is another one.
fn end_bands(
    clock: &Clock,
    config: &NodeConfig,
    index: &PodIndex,
    pods: &Query<(&Desired, &Lifecycle)>,
    shutdown: &mut NodeShutdown,
) -> bool {
    let lives = |(desired, life): (&Desired, &Lifecycle)| {
        let spec = desired.spec.as_ref().filter(|_| life.stage < Stage::Terminated)?;
        Some(spec.priority)
    };
    let alive: Vec<i32> = index.by_uid.values().filter_map(|pod| pods.get(*pod).ok()).filter_map(lives).collect();
    let bands = &config.shutdown_bands;
    let (band, began) = advance(bands, shutdown.band, shutdown.band_began.0, &alive, clock.now.mono.0);
    let moved = band != shutdown.band;
    shutdown.band = band;
    shutdown.band_began = Mono(began);
    shutdown.done = band >= bands.len();
    moved
}

/// The file that the kubelet keeps about its last shutdown.
fn write_state(outbox: &mut Outbox, config: &NodeConfig, start: Option<Wall>, end: Option<Wall>) {
    let stamp = |at: Option<Wall>| at.map_or_else(|| "0001-01-01T00:00:00Z".to_owned(), |at| at.rfc3339());
    let content = format!("{{\"startTime\":\"{}\",\"endTime\":\"{}\"}}", stamp(start), stamp(end));
    let path = format!("{}/graceful_node_shutdown_state", config.root_dir);
    let files = vec![File { path, mode: 0o600, content }];
    let why = Why { system: "shutdown", rule: "a restart in between goes on with it" };
    let write = PrepareContainer { dirs: Vec::new(), files, sub_paths: Vec::new() };
    emit(outbox, why, HostEffect::PrepareContainer(Box::new(write)));
}

fn emit(outbox: &mut Outbox, why: Why, effect: HostEffect) {
    outbox.emit(NewWork {
        owner: Owner::Node,
        lane: Lane::Free,
        chained: false,
        timeout: TIMEOUT,
        why,
        effect: Effect::Host(effect),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn bands(given: &[(i32, u32)]) -> Vec<ShutdownBand> {
        given.iter().map(|(priority, seconds)| ShutdownBand { priority: *priority, seconds: *seconds }).collect()
    }

    #[test]
    fn pods_belong_to_the_highest_band_not_above_them() {
        let bands = bands(&[(0, 20), (1000, 10), (2_000_000_000, 5)]);
        let check = |priority, expect| assert_eq!(band_of(&bands, priority), expect, "{priority}");
        check(-5, 0);
        check(0, 0);
        check(999, 0);
        check(1000, 1);
        check(2_000_001_000, 2);
    }

    #[test]
    fn a_band_waits_for_its_pods_no_longer_than_its_time() {
        let bands = bands(&[(0, 20), (2_000_000_000, 10)]);
        let check = |band, began, alive: &[i32], now, expect| {
            assert_eq!(advance(&bands, band, began * SECOND, alive, now * SECOND), expect);
        };
        check(0, 0, &[0, 2_000_000_000], 5, (0, 0));
        check(0, 0, &[2_000_000_000], 5, (1, 5 * SECOND));
        check(0, 0, &[0, 2_000_000_000], 20, (1, 20 * SECOND));
        check(0, 0, &[], 1, (2, SECOND));
        check(1, 20, &[0, 2_000_000_000], 30, (2, 30 * SECOND));
        // Without a single pod of the band it is over at once, also when a lower one has left some.
        check(1, 20, &[0], 21, (2, 21 * SECOND));
    }

    #[test]
    fn a_pod_keeps_running_until_its_band_comes() {
        let bands = bands(&[(0, 20), (2_000_000_000, 10)]);
        let mut shutdown = NodeShutdown::default();
        assert_eq!(bound(&shutdown, &bands, 0), None);
        shutdown.began = Some(Mono(1));
        assert_eq!(bound(&shutdown, &bands, 0), Some(20));
        assert_eq!(bound(&shutdown, &bands, 2_000_000_000), None);
        shutdown.band = 1;
        assert_eq!(bound(&shutdown, &bands, 2_000_000_000), Some(10));
    }
}
