//! Rotation of container logs: which are too large, what is done to their files, in which order.
//!
//! Reads inspections for what runs and where it logs; writes only [`Rotations`]. Each `containerLogMonitorInterval`
//! one look finds the large files; up to `containerLogMaxWorkers` logs are rotated at a time. A log that its writer
//! could not be told to open anew gets its name back, and is tried again at the next look.

mod plan;

use crate::turns::ReclaimTurn;
use bevy_ecs::prelude::*;
use components::edge::cri::{ContainerState, CriEffect};
use components::edge::host::reclaim::{LogFound, LookAtLogs, RestoreLog, RotateLog};
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::ids::{ContainerId, Ticket};
use components::node::NodeConfig;
use components::node::reclaim::RotationConfig;
use components::time::Wall;
use components::world::{Observed, PodIndex};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Longest time for looking at files or renaming one.
const LOOK_TIMEOUT: Duration = Duration::from_secs(60);
/// Bytes that the slowest disk compresses a second.
const SLOWEST: u64 = 2 << 20;

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct RotationSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let world = engine.world_mut();
    world.init_resource::<Rotations>();
    if world.resource::<NodeConfig>().reclaim.rotation.is_some() {
        world.resource_mut::<Timers>().arm(TimerKind::LogRotation, Owner::Node, components::time::Mono(0));
    }
    engine.add_systems(Phase::Reclaim, rotate_logs.in_set(RotationSystems).in_set(ReclaimTurn::Rotation));
}

/// Rotations under way and waiting.
#[derive(Resource, Default, Debug)]
pub(crate) struct Rotations {
    /// The look under way, with whose logs it is at.
    looking: Option<(Ticket, BTreeMap<Arc<str>, (Entity, ContainerId)>)>,
    /// Logs to be rotated, in order.
    waiting: VecDeque<Log>,
    running: BTreeMap<Ticket, (Log, Step)>,
}

/// A log that is too large, or missing.
#[derive(Clone, Debug)]
struct Log {
    pod: Entity,
    id: ContainerId,
    found: LogFound,
}

/// What is under way for a log.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    /// Its files are changed, and it gets this name.
    Rotate(String),
    /// Its writer is told, after it got this name.
    Reopen(Option<String>),
    /// It gets its name back for this one.
    Restore(String),
}

fn rotate_logs(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    pods: Query<&Observed>,
    mut rotations: ResMut<Rotations>,
    mut timers: ResMut<Timers>,
    mut outbox: ResMut<Outbox>,
) {
    let Some(policy) = &config.reclaim.rotation else { return };
    let mut emit = Emit { outbox: &mut outbox, policy, runtime_timeout: config.runtime_timeout, wall: clock.now.wall };
    for arrived in inbox.completions.iter().filter(|arrived| arrived.owner == Owner::Node) {
        if let Some((_, asked)) = rotations.looking.take_if(|(ticket, _)| *ticket == arrived.ticket) {
            rotations.take_look(&asked, &arrived.outcome);
        } else if let Some((log, step)) = rotations.running.remove(&arrived.ticket) {
            rotations.go_on(log, step, &arrived.outcome, &mut emit);
        }
    }
    if timers.node_due(TimerKind::LogRotation) {
        timers.arm(TimerKind::LogRotation, Owner::Node, clock.now.mono.after(policy.period));
        if rotations.looking.is_none() {
            let asked = logs_of_running(index.by_uid.values().filter_map(|pod| Some((*pod, pods.get(*pod).ok()?))));
            if !asked.is_empty() {
                rotations.looking = Some((emit.look(asked.keys().cloned().collect()), asked));
            }
        }
    }
    rotations.start_next(&mut emit, |log| {
        let seen = pods.get(log.pod).ok().and_then(|observed| observed.inspection.as_ref());
        seen.is_some_and(|seen| seen.containers.iter().any(|c| c.id == log.id && c.state == ContainerState::Running))
    });
}

/// Only what runs writes; a dead container keeps its last log as it is.
fn logs_of_running<'a>(
    pods: impl Iterator<Item = (Entity, &'a Observed)>,
) -> BTreeMap<Arc<str>, (Entity, ContainerId)> {
    let mut logs = BTreeMap::new();
    for (pod, observed) in pods {
        let Some(seen) = &observed.inspection else { continue };
        for container in seen.containers.iter().filter(|c| c.state == ContainerState::Running) {
            if !container.log_path.is_empty() {
                logs.insert(container.log_path.as_str().into(), (pod, container.id.clone()));
            }
        }
    }
    logs
}

impl Rotations {
    /// Queues what a look found, each log once.
    fn take_look(&mut self, asked: &BTreeMap<Arc<str>, (Entity, ContainerId)>, outcome: &Outcome) {
        let logs = match outcome {
            Outcome::Done(Answer::Host(HostAnswer::LogsFound { logs })) => logs,
            other => {
                tracing::warn!(error = %trouble(other), "Container logs could not be looked at");
                return;
            }
        };
        for found in logs {
            let Some((pod, id)) = asked.get(&found.path) else { continue };
            let busy = self.running.values().any(|(log, _)| log.found.path == found.path);
            self.waiting.retain(|log| log.found.path != found.path);
            if !busy {
                self.waiting.push_back(Log { pod: *pod, id: id.clone(), found: found.clone() });
            }
        }
    }

    fn start_next(&mut self, emit: &mut Emit<'_>, runs: impl Fn(&Log) -> bool) {
        let workers = usize::try_from(emit.policy.workers).unwrap_or(usize::MAX).max(1);
        while self.running.len() < workers {
            let Some(log) = self.waiting.pop_front() else { return };
            if !runs(&log) {
                continue;
            }
            if log.found.bytes.is_some() {
                let (ticket, renamed) = emit.rotate(&log);
                self.running.insert(ticket, (log, Step::Rotate(renamed)));
            } else {
                self.running.insert(emit.reopen(&log), (log, Step::Reopen(None)));
            }
        }
    }

    fn go_on(&mut self, log: Log, step: Step, outcome: &Outcome, emit: &mut Emit<'_>) {
        let done = matches!(outcome, Outcome::Done(_));
        if !done {
            let path = &log.found.path;
            tracing::warn!(%path, container = %log.id, ?step, error = %trouble(outcome), "Log could not be rotated");
        }
        match step {
            Step::Rotate(renamed) if done => {
                self.running.insert(emit.reopen(&log), (log, Step::Reopen(Some(renamed))));
            }
            Step::Reopen(Some(renamed)) if !done => {
                self.running.insert(emit.restore(&log, &renamed), (log, Step::Restore(renamed)));
            }
            Step::Rotate(_) | Step::Reopen(_) | Step::Restore(_) => {}
        }
    }
}

/// Emits the works of a rotation.
struct Emit<'a> {
    outbox: &'a mut Outbox,
    policy: &'a RotationConfig,
    runtime_timeout: Duration,
    wall: Wall,
}

impl Emit<'_> {
    fn look(&mut self, logs: Vec<Arc<str>>) -> Ticket {
        let look = LookAtLogs { logs, at_least: self.policy.max_bytes };
        self.host(HostEffect::LookAtLogs(Box::new(look)), LOOK_TIMEOUT, "large logs are rotated")
    }

    fn rotate(&mut self, log: &Log) -> (Ticket, String) {
        let path = Arc::clone(&log.found.path);
        let name = path.rsplit('/').next().unwrap_or_default();
        let plan::Plan { remove, compress, rename_to } =
            plan::plan(name, &log.found.rotated, self.policy.max_files, self.wall);
        let rotate = RotateLog { path, remove, compress, rename_to: rename_to.clone() };
        let rule = "the log has reached its size";
        // What is compressed may be larger than the bound: it grew until somebody looked.
        let largest = self.policy.max_bytes.max(log.found.bytes.unwrap_or(0));
        let timeout = LOOK_TIMEOUT + Duration::from_secs(largest / SLOWEST);
        (self.host(HostEffect::RotateLog(Box::new(rotate)), timeout, rule), rename_to)
    }

    fn reopen(&mut self, log: &Log) -> Ticket {
        let effect = Effect::Cri(CriEffect::ReopenLog { id: log.id.clone() });
        self.work(effect, self.runtime_timeout, "the log's name is free for a new file")
    }

    fn restore(&mut self, log: &Log, renamed: &str) -> Ticket {
        let restore = RestoreLog { path: Arc::clone(&log.found.path), renamed: renamed.to_owned() };
        let rule = "its writer was not told, and goes on in the old file";
        self.host(HostEffect::RestoreLog(Box::new(restore)), LOOK_TIMEOUT, rule)
    }

    fn host(&mut self, effect: HostEffect, timeout: Duration, rule: &'static str) -> Ticket {
        self.work(Effect::Host(effect), timeout, rule)
    }

    fn work(&mut self, effect: Effect, timeout: Duration, rule: &'static str) -> Ticket {
        self.outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout,
            why: Why { system: "logrotate", rule },
            effect,
        })
    }
}

/// Text of an outcome that is not as wished for.
fn trouble(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed(failure) => &failure.message,
        Outcome::TimedOut => "no answer in time",
        Outcome::Cancelled => "cancelled",
        Outcome::Done(_) => "unexpected answer",
    }
}
