//! Collection of what dead containers and gone pods leave behind: containers, sandboxes, log and pod directories, links.
//!
//! Reads inspections, sources and stages. Writes [`RemovalRequests`], which `systems::runtime` carries out, and its own
//! [`Garbage`]. Nothing is collected before every source was read and the runtime was looked at. A directory's removal
//! runs in the lane of its pod, so that a pod of the same uid that comes again waits for it.

mod surplus;

use crate::links;
use crate::turns::ReclaimTurn;
use bevy_ecs::prelude::*;
use components::edge::cri::ContainerState;
use components::edge::host::reclaim::{CleanLogLinks, LookAtRemains, RemoveRemains};
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::ids::{PodUid, Ticket};
use components::node::NodeConfig;
use components::node::reclaim::CollectionConfig;
use components::time::{Mono, Now};
use components::world::{Desired, Lifecycle, Observed, Pleg, PodIndex, PodKey, RemovalRequests, SourceStates, Stage};
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How soon to try again while sources or the runtime were not read.
const NOT_YET: Duration = Duration::from_secs(5);
/// Longest time for looking at directories or removing one; what is left then is for the next collection.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct CollectionSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let world = engine.world_mut();
    world.init_resource::<Garbage>();
    world.init_resource::<RemovalRequests>();
    if world.resource::<NodeConfig>().reclaim.collection.is_some() {
        world.resource_mut::<Timers>().arm(TimerKind::Garbage, Owner::Node, Mono(0).after(NOT_YET));
    }
    engine.add_systems(
        Phase::Reclaim,
        collect_garbage.in_set(CollectionSystems).in_set(ReclaimTurn::Collection).after(ReclaimTurn::Rotation),
    );
}

/// What is under way.
#[derive(Resource, Default, Debug)]
pub(crate) struct Garbage {
    looking: Option<Ticket>,
    removing: BTreeMap<Ticket, RemoveRemains>,
    /// Trouble that was told, so that each is told once.
    told: BTreeSet<String>,
}

fn collect_garbage(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    sources: Res<SourceStates>,
    pleg: Res<Pleg>,
    pods: Query<(&PodKey, &Desired, &Lifecycle, &Observed)>,
    mut garbage: ResMut<Garbage>,
    mut requests: ResMut<RemovalRequests>,
    mut timers: ResMut<Timers>,
    mut outbox: ResMut<Outbox>,
) {
    let Some(policy) = &config.reclaim.collection else { return };
    for arrived in inbox.completions.iter().filter(|arrived| arrived.owner == Owner::Node) {
        if garbage.looking == Some(arrived.ticket) {
            garbage.looking = None;
            if let Outcome::Done(Answer::Host(HostAnswer::RemainsFound { pod_dirs, log_dirs })) = &arrived.outcome {
                for (uid, gone) in gone(&config, pod_dirs, log_dirs, |uid| index.by_uid.contains_key(uid)) {
                    garbage.remove(uid, gone, &mut outbox);
                }
            }
        } else if let Some(gone) = garbage.removing.remove(&arrived.ticket) {
            garbage.removed(&gone, &arrived.outcome);
        }
    }
    if !timers.node_due(TimerKind::Garbage) {
        return;
    }
    let ready = sources.all_read() && pleg.relisted.is_some() && config.end_orphans;
    let next = if ready { policy.period } else { NOT_YET };
    timers.arm(TimerKind::Garbage, Owner::Node, clock.now.mono.after(next));
    if !ready {
        return;
    }
    let all = || index.by_uid.values().filter_map(|pod| Some((*pod, pods.get(*pod).ok()?)));
    request_removals(all(), clock.now, policy, &mut requests);
    for pod in requests.pods.keys() {
        timers.arm_no_later(TimerKind::Pod, Owner::Pod(*pod), clock.now.mono);
    }
    if garbage.looking.is_none() && garbage.removing.is_empty() {
        garbage.looking = Some(emit(&mut outbox, Lane::Free, look(&config, &index)));
        let observed = all().filter_map(|(_, (_, _, _, observed))| observed.inspection.as_deref());
        if let Some(clean) = clean_links(&config, observed) {
            emit(&mut outbox, Lane::Free, clean);
        }
    }
}

/// Asks for the removal of surplus containers and sandboxes of pods that stay.
fn request_removals<'a>(
    pods: impl Iterator<Item = (Entity, (&'a PodKey, &'a Desired, &'a Lifecycle, &'a Observed))>,
    now: Now,
    policy: &CollectionConfig,
    requests: &mut RemovalRequests,
) {
    let mut units = surplus::Units::new();
    for (pod, (key, desired, life, observed)) in pods {
        // Pods that end are removed whole.
        let stays = desired.spec.is_some() && matches!(life.stage, Stage::Syncing | Stage::Done);
        let Some(seen) = observed.settled().filter(|_| stays) else { continue };
        let lives = life.stage == Stage::Syncing;
        surplus::add(&mut units, (pod, &key.uid), seen, lives, (now.wall, policy.min_age));
        let sandboxes = surplus::sandboxes(seen);
        if !sandboxes.is_empty() {
            requests.pods.entry(pod).or_default().sandboxes.extend(sandboxes);
        }
    }
    for dead in surplus::take(&mut units, policy) {
        requests.pods.entry(dead.pod).or_default().containers.insert(dead.id);
    }
}

fn look(config: &NodeConfig, index: &PodIndex) -> HostEffect {
    HostEffect::LookAtRemains(Box::new(LookAtRemains {
        pods_dir: format!("{}/pods", config.root_dir),
        logs_dir: config.pod_logs_dir.clone(),
        known: index.by_uid.keys().cloned().collect(),
    }))
}

/// The directories of pods that are not known. Asked again here: a pod may have come since they were looked for.
fn gone(
    config: &NodeConfig,
    pod_dirs: &[String],
    log_dirs: &[String],
    known: impl Fn(&PodUid) -> bool,
) -> Vec<(PodUid, RemoveRemains)> {
    let pods = pod_dirs.iter().map(|name| {
        let path = config.pod_dir(name);
        (PodUid::from(name.as_str()), RemoveRemains::PodDir(path))
    });
    let logs = log_dirs.iter().filter_map(|name| {
        let (_, uid) = name.rsplit_once('_')?;
        Some((PodUid::from(uid), RemoveRemains::LogDir(format!("{}/{name}", config.pod_logs_dir))))
    });
    pods.chain(logs).filter(|(uid, _)| !known(uid)).collect()
}

/// Links whose log file is gone; those of running containers stay, whose log may be between two names.
fn clean_links<'a>(
    config: &NodeConfig,
    pods: impl Iterator<Item = &'a components::edge::cri::PodInspection>,
) -> Option<HostEffect> {
    let dir = config.reclaim.log_links.as_ref()?;
    let mut keep = Vec::new();
    for seen in pods {
        let running = seen.containers.iter().filter(|c| c.state == ContainerState::Running);
        keep.extend(running.map(|container| links::path(dir, seen, container)));
    }
    let clean = CleanLogLinks { dir: dir.clone(), logs_dir: config.pod_logs_dir.clone(), keep };
    Some(HostEffect::CleanLogLinks(Box::new(clean)))
}

impl Garbage {
    fn remove(&mut self, uid: PodUid, gone: RemoveRemains, outbox: &mut Outbox) {
        let effect = HostEffect::RemoveRemains(Box::new(gone.clone()));
        let ticket = emit(outbox, Lane::Pod { uid, strand: 0 }, effect);
        self.removing.insert(ticket, gone);
    }

    fn removed(&mut self, gone: &RemoveRemains, outcome: &Outcome) {
        let (RemoveRemains::PodDir(path) | RemoveRemains::LogDir(path)) = gone;
        match outcome {
            Outcome::Done(_) => {
                tracing::info!(%path, "Removed what a pod left that is gone");
                self.told.retain(|told| !told.contains(path.as_str()));
            }
            Outcome::Failed(failure) if self.told.insert(failure.message.clone()) => {
                tracing::warn!(error = %failure.message, "What a pod left can't be removed yet");
            }
            Outcome::Failed(_) | Outcome::TimedOut | Outcome::Cancelled => {}
        }
    }
}

fn emit(outbox: &mut Outbox, lane: Lane, effect: HostEffect) -> Ticket {
    outbox.emit(NewWork {
        owner: Owner::Node,
        lane,
        chained: false,
        timeout: TIMEOUT,
        why: Why { system: "gc", rule: "what is left of the dead is collected" },
        effect: Effect::Host(effect),
    })
}
