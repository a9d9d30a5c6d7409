//! Volumes: what a pod wants of each, against what was set up.
//!
//! Reads the spec, the objects it refers to and what came of preparations and set-ups; writes [`PodVolumes`]. The runtime manager asks it what
//! to set up, emits the works, and starts no sandbox before all volumes are there. What is set up stays until the pod
//! is cleaned, after its last container is gone; only files of a volume are written again when the pod's data changes.

mod content;
mod images;
mod mounts;
mod setup;

pub(crate) use content::Origin;
pub(crate) use mounts::{Mounting, mounts_of, sub_paths_of};
pub(crate) use setup::of_volume;

use crate::turns::{IngestTurn, PlanTurn};
use bevy_ecs::prelude::*;
use components::edge::host::HostAnswer;
use components::edge::{Answer, Outcome};
use components::fnv::fnv1a_128;
use components::node::{Machine, NodeConfig};
use components::objects::{Objects, PodRefs};
use components::spec::PodSpec;
use components::time::Mono;
use components::volumes::{PodVolumes, VolumeRun};
use components::world::{Desired, Flow, Step};
use engine::{Clock, Engine, Inbox, Owner, Phase, TimerKind, Timers, Touched};
use std::time::Duration;

/// First wait after a failed set-up, doubled by each further one (contract 7: volume operations).
const RETRY_FIRST: Duration = Duration::from_millis(500);
/// Longest wait.
const RETRY_MAX: Duration = Duration::from_secs(122);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct VolumeSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.add_systems(
        Phase::Ingest,
        take_answers
            .in_set(VolumeSystems)
            .in_set(IngestTurn::Completions)
            .after(IngestTurn::Health)
            // The steps under way are forgotten there.
            .before(crate::runtime::RuntimeSystems),
    );
    // Pods whose desire changed were touched when it did; what lifecycle touches besides was planned before.
    let plan = plan_volumes.in_set(VolumeSystems).after(crate::shutdown::ShutdownSystems).after(PlanTurn::Objects);
    engine.add_systems(Phase::Plan, plan.before(crate::lifecycle::LifecycleSystems));
}

fn take_answers(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    mut pods: Query<(&mut Flow, &Desired, &mut PodVolumes)>,
    mut timers: ResMut<Timers>,
) {
    for arrived in &inbox.completions {
        let Owner::Pod(pod) = arrived.owner else { continue };
        let Ok((mut flow, desired, mut volumes)) = pods.get_mut(pod) else { continue };
        let known = flow.in_flight.iter().find(|(ticket, _)| *ticket == arrived.ticket);
        let Some((_, step)) = known.cloned() else { continue };
        let now = clock.now.mono;
        match &step {
            Step::PreparePod => prepared(&mut volumes, &arrived.outcome, now),
            Step::SetUpVolume(index) => {
                if let Some(volume) = volumes.volumes.get_mut(usize::from(*index)) {
                    settle(volume, set_up(&arrived.outcome), now);
                }
            }
            Step::FindVolumeImage(index) | Step::WriteVolumeIntent(index) | Step::PullVolumeImage(index) => {
                let index = usize::from(*index);
                let source = desired.spec.as_ref().and_then(|spec| spec.volumes.get(index)).map(|v| &v.source);
                if let (Some(volume), Some(source)) = (volumes.volumes.get_mut(index), source) {
                    images::take(volume, source, &step, &arrived.outcome, now);
                }
            }
            Step::CleanPod(_) if matches!(arrived.outcome, Outcome::Done(_)) => {
                volumes.volumes.iter_mut().for_each(|volume| volume.actual = None);
            }
            _ => continue,
        }
        for text in volumes.volumes.iter_mut().filter_map(|volume| volume.untold.take()) {
            flow.events.warning("FailedMount", text, None);
        }
        if let Some(at) = volumes.volumes.iter().filter_map(|volume| volume.retry_at).min() {
            timers.arm_no_later(TimerKind::Pod, Owner::Pod(pod), at);
        }
    }
}

/// A preparation sets all volumes up that it can, and names the others.
fn prepared(volumes: &mut PodVolumes, outcome: &Outcome, now: Mono) {
    let failed = match outcome {
        Outcome::Done(Answer::Host(HostAnswer::PodPrepared { .. })) => [].as_slice(),
        Outcome::Done(Answer::Host(HostAnswer::PodPreparedInPart { failed, .. })) => failed.as_slice(),
        // It is asked for again as a whole.
        _ => return,
    };
    for volume in volumes.volumes.iter_mut().filter(|volume| volume.wanted.is_some()) {
        let trouble = failed.iter().find(|(name, _)| *name == volume.name).map(|(_, text)| text.clone());
        settle(volume, trouble.map_or(Ok(()), Err), now);
    }
}

fn set_up(outcome: &Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Done(_) => Ok(()),
        Outcome::Failed(failure) => Err(failure.message.clone()),
        Outcome::TimedOut => Err("context deadline exceeded".to_owned()),
        Outcome::Cancelled => Err("cancelled".to_owned()),
    }
}

/// Takes what came of one set-up. What was wanted has not changed since: it is not planned anew while one is under way.
fn settle(volume: &mut VolumeRun, result: Result<(), String>, now: Mono) {
    match result {
        Ok(()) => {
            volume.actual = volume.wanted;
            volume.error = None;
            volume.failures = 0;
            volume.retry_at = None;
        }
        Err(text) => {
            let text = format!("MountVolume.SetUp failed for volume \"{}\" : {text}", volume.name);
            if volume.error.as_ref() != Some(&text) {
                tracing::warn!(volume = %volume.name, error = %text, "Volume could not be set up");
            }
            volume.untold = Some(text.clone());
            volume.error = Some(text);
            volume.retry_at = Some(now.after(wait(volume.failures)));
            volume.failures = volume.failures.saturating_add(1);
        }
    }
}

fn wait(failures: u32) -> Duration {
    // Beyond eight doublings the longest wait is reached.
    RETRY_FIRST.saturating_mul(1 << failures.min(8)).min(RETRY_MAX)
}

fn plan_volumes(
    config: Res<NodeConfig>,
    machine: Res<Machine>,
    objects: Res<Objects>,
    touched: Res<Touched>,
    mut pods: Query<(&Desired, &mut Flow, &PodRefs, &mut PodVolumes)>,
) {
    for pod in touched.iter() {
        let Ok((desired, mut flow, refs, mut volumes)) = pods.get_mut(pod) else { continue };
        let stale = desired.version != volumes.planned || refs.version != volumes.refs;
        let Some(spec) = desired.spec.as_ref().filter(|_| stale) else { continue };
        let busy = flow.in_flight.iter().any(|(_, step)| matches!(step, Step::PreparePod | Step::SetUpVolume(_)));
        if !busy {
            plan(&mut volumes, spec, Origin { config: &config, machine: &machine, objects: &objects, refs });
            (volumes.planned, volumes.refs) = (desired.version, refs.version);
            for text in volumes.volumes.iter_mut().filter_map(|volume| volume.untold.take()) {
                flow.events.warning("FailedMount", text, None);
            }
        }
    }
}

/// Makes the list match the spec; volumes of the same name keep what is known of them.
fn plan(volumes: &mut PodVolumes, spec: &PodSpec, origin: Origin<'_>) {
    let known = std::mem::take(&mut volumes.volumes);
    volumes.volumes = spec
        .volumes
        .iter()
        .map(|volume| {
            let name = std::sync::Arc::clone(&volume.name);
            let run = known.iter().find(|run| run.name == name).cloned();
            let mut run = run.unwrap_or_else(|| VolumeRun { name, ..VolumeRun::default() });
            if content::pending(volume, spec, origin) {
                // It is waited for without a word: the answer is on its way.
                (run.wanted, run.error, run.retry_at) = (None, None, None);
                return run;
            }
            match of_volume(spec, volume, origin) {
                Ok(Some(made)) => want(&mut run, fnv1a_128(format!("{made:?}").as_bytes())),
                // There is nothing to do on this host.
                Ok(None) => (run.wanted, run.actual) = (Some(0), Some(0)),
                Err(text) => refuse(&mut run, &text),
            }
            run
        })
        .collect();
}

/// Notes what set-up is wanted now. Another one than before does not wait for what went wrong with that.
fn want(run: &mut VolumeRun, wanted: u128) {
    if run.wanted != Some(wanted) {
        run.retry_at = None;
        run.failures = 0;
        if run.actual == Some(wanted) {
            run.error = None;
        }
    }
    run.wanted = Some(wanted);
}

/// Notes why no set-up can be wanted. What was set up before stays as it is.
fn refuse(run: &mut VolumeRun, why: &str) {
    let text = format!("MountVolume.SetUp failed for volume \"{}\" : {why}", run.name);
    if run.error.as_ref() != Some(&text) {
        tracing::warn!(volume = %run.name, error = %text, "Volume can not be set up");
        run.untold = Some(text.clone());
    }
    run.wanted = None;
    run.error = Some(text);
    run.retry_at = None;
}

#[cfg(test)]
mod tests;
