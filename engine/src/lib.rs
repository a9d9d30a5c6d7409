//! One tick: take the batch, hand it to the systems phase by phase, and drain what they want done.
//!
//! The engine knows no subsystem. It reads no clock and does no I/O: time and facts come in with [`Engine::tick`],
//! effects and durable records go out with [`TickOutput`]. The caller writes the records first, then runs the works.

mod inbox;
mod invariant;
mod outbox;
mod phase;
mod timers;
mod touched;

pub use inbox::{Arrived, Inbox};
pub use invariant::{InvariantCount, report_broken};
pub use outbox::{NewWork, Outbox, Owner};
pub use phase::{Phase, Tick};
pub use timers::{Timer, TimerKind, Timers};
pub use touched::Touched;

use bevy_ecs::prelude::*;
use bevy_ecs::schedule::{ApplyDeferred, LogLevel, ScheduleBuildSettings, ScheduleConfigs, SingleThreadedExecutor};
use bevy_ecs::system::ScheduleSystem;
use components::edge::store::Record;
use components::edge::{Ingress, Work};
use components::ids::Ticket;
use components::node::Boot;
use components::snapshot::Snapshot;
use components::time::{Mono, Now};
use std::sync::Arc;

/// Both clocks of the tick that runs.
#[derive(Resource, Clone, Copy, Debug, Default)]
pub struct Clock {
    /// The time of this tick.
    pub now: Now,
    /// Number of this tick, from 1.
    pub tick: u64,
}

/// The snapshot to publish; reporting systems replace it.
#[derive(Resource, Clone, Default, Debug)]
pub struct Published(pub Arc<Snapshot>);

/// Seed of every random choice of this run; recorded with it.
#[derive(Resource, Clone, Copy, Default, Debug)]
pub struct Seed(pub u64);

/// The durable records of earlier runs, for systems to start from.
#[derive(Resource, Clone, Default, Debug)]
pub struct Recovered(pub Vec<Record>);

/// What a tick wants done, in this order: make `durable` durable, cancel, run the works, publish.
#[derive(Debug)]
pub struct TickOutput {
    /// Number of the tick.
    pub tick: u64,
    /// Records to commit before any work of this tick starts.
    pub durable: Vec<Record>,
    /// Works under way or queued that are no longer wanted.
    pub cancels: Vec<Ticket>,
    /// Works to run.
    pub works: Vec<Work>,
    /// The node at the end of the tick.
    pub snapshot: Arc<Snapshot>,
}

/// The world, its schedule and its queues.
pub struct Engine {
    world: World,
    schedule: Schedule,
    tick: u64,
}

impl Engine {
    /// An engine with an empty world; plugins add their systems to it.
    #[must_use]
    pub fn new(boot: Boot) -> Self {
        let mut world = World::new();
        world.insert_resource(boot.config);
        world.insert_resource(boot.machine);
        world.insert_resource(Recovered(boot.records));
        world.insert_resource(Seed(boot.seed));
        world.init_resource::<Clock>();
        world.init_resource::<Inbox>();
        world.insert_resource(Outbox::after(boot.tickets));
        world.init_resource::<Timers>();
        world.init_resource::<Touched>();
        world.init_resource::<Published>();
        world.init_resource::<InvariantCount>();
        let mut schedule = Schedule::new(Tick);
        schedule.set_executor(SingleThreadedExecutor::new());
        phase::configure(&mut schedule);
        let mut engine = Self { world, schedule, tick: 0 };
        engine.set_checks(false);
        engine
    }

    /// Adds systems to a phase. Systems of one phase that conflict must be ordered by the caller.
    pub fn add_systems<M>(&mut self, phase: Phase, systems: impl IntoScheduleConfigs<ScheduleSystem, M>) -> &mut Self {
        let systems: ScheduleConfigs<ScheduleSystem> = systems.into_configs();
        self.schedule.add_systems(systems.in_set(phase));
        self
    }

    /// Makes unordered conflicts an error of [`Self::build_schedule`].
    pub fn set_checks(&mut self, ambiguity_is_error: bool) {
        self.schedule.set_build_settings(settings(ambiguity_is_error));
    }

    /// Runs systems that nothing orders in an order drawn from `seed`: the outcome must not change.
    #[cfg(feature = "debug")]
    pub fn shuffle(&mut self, seed: u64) {
        let mut settings = settings(false);
        settings.shuffle_seed = Some(seed);
        self.schedule.set_build_settings(settings);
    }

    /// Builds the schedule without running it.
    ///
    /// # Errors
    /// The reason why it cannot be built, such as two unordered writers.
    pub fn build_schedule(&mut self) -> Result<(), String> {
        self.schedule
            .initialize(&mut self.world)
            .map(|_| ())
            .map_err(|e| e.to_string(self.schedule.graph(), &self.world))
    }

    /// Runs one tick over `batch`. `now.mono` must not run backwards.
    pub fn tick(&mut self, now: Now, batch: Vec<Ingress>) -> TickOutput {
        self.tick += 1;
        self.world.insert_resource(Clock { now, tick: self.tick });
        self.world.resource_mut::<Timers>().advance(now.mono);
        Inbox::fill(&mut self.world, batch);
        self.schedule.run(&mut self.world);
        self.world.resource_mut::<Touched>().clear();
        self.world.resource_mut::<Inbox>().clear();
        self.world.clear_trackers();
        self.world.check_change_ticks();
        let (durable, cancels, works) = self.world.resource_mut::<Outbox>().drain();
        let snapshot = Arc::clone(&self.world.resource::<Published>().0);
        TickOutput { tick: self.tick, durable, cancels, works, snapshot }
    }

    /// When the next tick is due even if nothing comes in; `None` when nothing is armed.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.world.resource::<Timers>().next()
    }

    /// Tickets issued so far.
    #[must_use]
    pub fn tickets_issued(&self) -> u64 {
        self.world.resource::<Outbox>().issued()
    }

    /// The world, to look at.
    #[must_use]
    pub const fn world(&self) -> &World {
        &self.world
    }

    /// The world, to set up.
    pub const fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }
}

fn settings(ambiguity_is_error: bool) -> ScheduleBuildSettings {
    ScheduleBuildSettings {
        ambiguity_detection: if ambiguity_is_error { LogLevel::Error } else { LogLevel::Ignore },
        // Sync points stand between phases and nowhere else, so that none can hide a missing order.
        auto_insert_apply_deferred: false,
        ..ScheduleBuildSettings::default()
    }
}

/// The sync point that phases are separated by.
pub(crate) fn sync_point() -> ScheduleConfigs<ScheduleSystem> {
    ApplyDeferred.into_configs()
}
