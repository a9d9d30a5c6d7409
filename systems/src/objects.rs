//! Objects of the API server that the pods of this node refer to: config maps, secrets, tokens, services, certificates.
//!
//! Reads what pods want and what the API server answers; writes [`Objects`], [`PodRefs`] and [`Services`], which
//! environments and volumes are made from, and touches the pods that an answer concerns. Only objects that some pod
//! refers to are asked for, each once, whatever the number of pods.

pub(crate) mod bundles;
pub(crate) mod certificates;
pub(crate) mod copied;
mod copy;
mod references;
pub(crate) mod services;
mod tokens;

use self::copied::{BUNDLES, CLASSES};
use self::copy::{Keeper, News};
use crate::apicall;
use crate::links::LinkSystems;
use crate::reflector::{Reflector, Target};
use crate::turns::{IngestTurn, PlanTurn, ReclaimTurn};
use bevy_ecs::prelude::*;
use components::edge::Why;
use components::edge::api::{ApiIngress, Class};
use components::fnv::fnv1a_128;
use components::ids::Ticket;
use components::node::NodeConfig;
use components::objects::{ObjectKey, ObjectState, Objects, PodRefs, Services, TokenRun};
use components::time::Mono;
use components::world::{Desired, Lifecycle, PodIndex, Stage};
use engine::{Clock, Engine, Inbox, Outbox, Owner, Phase, Seed, TimerKind, Timers, Touched};
use std::collections::{BTreeMap, BTreeSet};

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct ObjectSystems;

/// The copies that are kept, and whose question each ticket is.
#[derive(Resource, Default, Debug)]
struct Keepers {
    list: BTreeMap<ObjectKey, Keeper>,
    by_ticket: BTreeMap<Ticket, ObjectKey>,
    services: Option<Reflector>,
    /// All trust bundles, while some pod refers to one.
    bundles: Option<Reflector>,
    /// All runtime classes, while some pod names one.
    classes: Option<Reflector>,
    /// Something may be due that no timer is armed for.
    dirty: bool,
}

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    let seed = engine.world().resource::<Seed>().0;
    let watched = engine.world().resource::<NodeConfig>().api.is_some();
    let query = format!("fieldSelector={}", apicall::encode("spec.clusterIP!=None"));
    let target = Target { path: "/api/v1/services".to_owned(), query, class: Class::Object, secret: false };
    let services = watched.then(|| Reflector::new(target, apicall::mix(seed ^ 0x7365_7276)));
    engine.world_mut().init_resource::<Objects>();
    engine.world_mut().insert_resource(Services { watched, ..Services::default() });
    engine.world_mut().insert_resource(Keepers { services, dirty: watched, ..Keepers::default() });
    engine.world_mut().init_resource::<certificates::PodCertificates>();
    engine.add_systems(
        Phase::Ingest,
        (take_answers, certificates::take)
            .chain_ignore_deferred()
            .in_set(ObjectSystems)
            .in_set(IngestTurn::Objects)
            .after(IngestTurn::Sources)
            .after(IngestTurn::Completions),
    );
    engine.add_systems(
        Phase::Plan,
        (follow_pods, ask_for_tokens, certificates::ask, ask_for_objects)
            .chain_ignore_deferred()
            .in_set(ObjectSystems)
            .in_set(PlanTurn::Objects)
            .after(crate::shutdown::ShutdownSystems)
            .before(PlanTurn::Stages),
    );
    engine.add_systems(
        Phase::Reclaim,
        release_pods
            .in_set(ObjectSystems)
            .after(ReclaimTurn::Collection)
            .after(LinkSystems)
            .before(ReclaimTurn::Burial),
    );
}

fn take_answers(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    mut objects: ResMut<Objects>,
    mut keepers: ResMut<Keepers>,
    mut services: ResMut<Services>,
    mut pods: Query<&mut PodRefs>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
    mut touched: ResMut<Touched>,
) {
    let now = clock.now;
    let mut changed = BTreeSet::new();
    for fact in &inbox.api {
        let (ApiIngress::WatchOpened { watch } | ApiIngress::WatchEvents { watch, .. }) = fact;
        if let Some(key) = keepers.by_ticket.get(watch).cloned()
            && let Some(keeper) = keepers.list.get_mut(&key)
        {
            let news = keeper.told(fact, now.mono, &mut outbox);
            changed.extend(learn(&mut objects, &key, news));
        }
        keepers.dirty = true;
        let (fact_now, known) = ((fact, now.mono), &mut *objects);
        let Keepers { bundles, classes, .. } = &mut *keepers;
        changed.extend(copied::told(&BUNDLES, bundles, &mut known.bundles, fact_now, &mut outbox));
        changed.extend(copied::told(&CLASSES, classes, &mut known.classes, fact_now, &mut outbox));
        if let Some(reflector) = &mut keepers.services {
            for change in reflector.told(fact, now.mono, &mut outbox) {
                services::apply(&mut services, change);
            }
        }
    }
    for arrived in &inbox.completions {
        match arrived.owner {
            Owner::Pod(pod) => {
                let Ok(mut refs) = pods.get_mut(pod) else { continue };
                let asked = |run: &&mut TokenRun| run.asking == Some(arrived.ticket);
                let Some(run) = refs.tokens.values_mut().find(asked) else { continue };
                tokens::answered(run, &arrived.outcome, now, arrived.ticket.0);
                if let Some(at) = run.due {
                    timers.arm_no_later(TimerKind::Tokens, Owner::Pod(pod), at);
                }
                refs.version += 1;
                touched.add(pod);
            }
            Owner::Node => {
                if let Some(key) = keepers.by_ticket.remove(&arrived.ticket) {
                    keepers.dirty = true;
                    let keeper = keepers.list.get_mut(&key).filter(|keeper| keeper.owns(arrived.ticket));
                    let Some(keeper) = keeper else { continue };
                    let news = keeper.completed(&arrived.outcome, now.mono, &mut outbox);
                    changed.extend(learn(&mut objects, &key, news));
                } else if keepers.bundles.as_ref().is_some_and(|it| it.owns(arrived.ticket)) {
                    let (keeper, known) = (&mut keepers.bundles, &mut objects.bundles);
                    changed.extend(copied::answered(&BUNDLES, keeper, known, &arrived.outcome, now.mono));
                    keepers.dirty = true;
                } else if keepers.classes.as_ref().is_some_and(|it| it.owns(arrived.ticket)) {
                    let (keeper, known) = (&mut keepers.classes, &mut objects.classes);
                    changed.extend(copied::answered(&CLASSES, keeper, known, &arrived.outcome, now.mono));
                    keepers.dirty = true;
                } else if let Some(reflector) = keepers.services.as_mut().filter(|it| it.owns(arrived.ticket)) {
                    let known = (services.synced, services.failed);
                    let change = reflector.completed(&arrived.outcome, now.mono);
                    services.failed = reflector.error().is_some();
                    change.into_iter().for_each(|change| services::apply(&mut services, change));
                    if (services.synced, services.failed) != known && !known.0 {
                        // Pods may wait for the first answer.
                        index.by_uid.values().for_each(|pod| touched.add(*pod));
                    }
                    keepers.dirty = true;
                }
            }
        }
    }
    for pod in changed {
        if let Ok(mut refs) = pods.get_mut(pod) {
            refs.version += 1;
            touched.add(pod);
        }
    }
}

/// Notes what is now known of an object; the pods that this concerns.
fn learn(objects: &mut Objects, key: &ObjectKey, news: News) -> Vec<Entity> {
    let Some(entry) = objects.entries.get_mut(key) else { return Vec::new() };
    let state = match news {
        News::None => return Vec::new(),
        News::State(state) => state,
        News::Trouble(why) => {
            let (kind, namespace, name) = (key.kind.singular(), &key.namespace, &key.name);
            tracing::warn!(kind, %namespace, %name, error = %why, "An object that pods refer to cannot be read");
            if !matches!(entry.state, ObjectState::Unread | ObjectState::Failed(_)) {
                return Vec::new();
            }
            ObjectState::Failed(format!("failed to sync {kind} cache: timed out waiting for the condition"))
        }
    };
    if entry.state == state {
        return Vec::new();
    }
    entry.state = state;
    entry.users.iter().copied().collect()
}

/// True while the pod may need what it refers to.
const fn needs(stage: Stage) -> bool {
    matches!(stage, Stage::Queued | Stage::Syncing | Stage::Terminating)
}

/// Asks for what new pods refer to, and forgets what changed ones no longer do.
fn follow_pods(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    seed: Res<Seed>,
    touched: Res<Touched>,
    mut pods: Query<(&Desired, &Lifecycle, &mut PodRefs)>,
    mut objects: ResMut<Objects>,
    mut keepers: ResMut<Keepers>,
    mut certificates: ResMut<certificates::PodCertificates>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let now = clock.now.mono;
    for pod in touched.iter() {
        let Ok((desired, life, mut refs)) = pods.get_mut(pod) else { continue };
        if refs.planned == desired.version || !needs(life.stage) {
            continue;
        }
        let Some(spec) = &desired.spec else { continue };
        let wanted = references::objects(spec);
        for key in refs.objects.difference(&wanted) {
            release(pod, key, &mut objects, &mut keepers, &mut outbox);
        }
        for key in wanted.difference(&refs.objects) {
            let entry = objects.entries.entry(key.clone()).or_default();
            entry.users.insert(pod);
            match (keepers.list.get_mut(key), &config.api) {
                (Some(keeper), _) => keeper.refresh(now),
                (None, Some(api)) => {
                    let text = format!("{:?}/{}/{}", key.kind, key.namespace, key.name);
                    let own = u64::try_from(fnv1a_128(text.as_bytes()) & u128::from(u64::MAX)).unwrap_or_default();
                    let keeper = Keeper::new(key.clone(), api.objects, now, apicall::mix(seed.0 ^ own));
                    keepers.list.insert(key.clone(), keeper);
                }
                (None, None) => {
                    let (kind, namespace, name) = (key.kind.singular(), &key.namespace, &key.name);
                    let why = format!("couldn't get {kind} {namespace}/{name}, no kubeClient defined");
                    entry.state = ObjectState::Failed(why);
                }
            }
            keepers.dirty = true;
        }
        let site = (config.api.is_some(), seed.0);
        let Keepers { bundles, classes, .. } = &mut *keepers;
        let known = &mut *objects;
        let wants = (pod, references::bundles(spec));
        let bundles = copied::follow(&BUNDLES, wants, site, bundles, &mut known.bundles, &mut outbox);
        let wants = (pod, spec.runtime_class.is_some());
        let classes = copied::follow(&CLASSES, wants, site, classes, &mut known.classes, &mut outbox);
        if bundles || classes {
            keepers.dirty = true;
            refs.version += 1;
        }
        let tokens = references::tokens(spec);
        let certified = certificates::follow(pod, spec, &mut refs, &config, &mut certificates);
        let changed = certified || wanted != refs.objects || !tokens.iter().eq(refs.tokens.keys());
        refs.tokens.retain(|key, _| tokens.contains(key));
        for key in tokens {
            refs.tokens.entry(key).or_insert_with(|| first_token(config.api.is_some(), now));
        }
        if !refs.tokens.is_empty() {
            timers.arm_no_later(TimerKind::Tokens, Owner::Pod(pod), now);
        }
        refs.objects = wanted;
        refs.planned = desired.version;
        refs.version += u64::from(changed);
    }
}

fn first_token(cluster: bool, now: Mono) -> TokenRun {
    if cluster {
        return TokenRun { due: Some(now), ..TokenRun::default() };
    }
    let why = "failed to fetch token: cannot use TokenManager when kubelet is in standalone mode".to_owned();
    TokenRun { error: Some(why), ..TokenRun::default() }
}

fn release(pod: Entity, key: &ObjectKey, objects: &mut Objects, keepers: &mut Keepers, outbox: &mut Outbox) {
    let Some(entry) = objects.entries.get_mut(key) else { return };
    entry.users.remove(&pod);
    if entry.users.is_empty() {
        objects.entries.remove(key);
        if let Some(mut keeper) = keepers.list.remove(key) {
            keeper.stop(outbox);
        }
    }
}

/// Lets go of what pods that are over referred to.
fn release_pods(
    touched: Res<Touched>,
    mut pods: Query<(&Desired, &Lifecycle, &mut PodRefs)>,
    mut objects: ResMut<Objects>,
    mut keepers: ResMut<Keepers>,
    mut certificates: ResMut<certificates::PodCertificates>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    for pod in touched.iter() {
        let Ok((desired, life, mut refs)) = pods.get_mut(pod) else { continue };
        if needs(life.stage) || refs.planned == 0 {
            continue;
        }
        for key in &refs.objects {
            release(pod, key, &mut objects, &mut keepers, &mut outbox);
        }
        copied::release(pod, &mut keepers.bundles, &mut objects.bundles, &mut outbox);
        copied::release(pod, &mut keepers.classes, &mut objects.classes, &mut outbox);
        certificates::release(pod, desired.spec.as_deref(), &mut refs, &mut certificates, &mut outbox);
        timers.disarm(TimerKind::Tokens, Owner::Pod(pod));
        *refs = PodRefs { version: refs.version + 1, ..PodRefs::default() };
    }
}

/// Asks for the tokens of pods that are due, and for new ones at once.
fn ask_for_tokens(
    clock: Res<Clock>,
    touched: Res<Touched>,
    mut pods: Query<(&Desired, &mut PodRefs)>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    let now = clock.now.mono;
    let timed = timers.due().iter().filter(|timer| timer.kind == TimerKind::Tokens).map(|timer| timer.owner);
    let mut due: BTreeSet<Entity> = touched.iter().collect();
    due.extend(timed.filter_map(|owner| match owner {
        Owner::Pod(pod) => Some(pod),
        Owner::Node => None,
    }));
    for pod in due {
        let Ok((desired, mut refs)) = pods.get_mut(pod) else { continue };
        let Some(spec) = desired.spec.as_ref().filter(|_| !refs.tokens.is_empty()) else { continue };
        for (key, run) in &mut refs.tokens {
            if run.asking.is_none() && run.due.is_some_and(|at| at <= now) {
                let rule = if run.token.is_some() { "the token is to be renewed" } else { "a volume holds a token" };
                let why = Why { system: "objects", rule };
                let work = apicall::work(Owner::Pod(pod), why, tokens::request(spec, key));
                run.asking = Some(outbox.emit(work));
            }
        }
        let open = refs.tokens.values().filter(|run| run.asking.is_none());
        if let Some(at) = open.filter_map(|run| run.due).min() {
            timers.arm_no_later(TimerKind::Tokens, Owner::Pod(pod), at);
        }
    }
}

/// Asks for objects that are due.
fn ask_for_objects(
    clock: Res<Clock>,
    mut keepers: ResMut<Keepers>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    if !keepers.dirty && !timers.node_due(TimerKind::Objects) {
        return;
    }
    let now = clock.now.mono;
    let Keepers { list, by_ticket, services, bundles, classes, dirty } = &mut *keepers;
    *dirty = false;
    for (key, keeper) in list.iter_mut() {
        if let Some(ticket) = keeper.drive(now, &mut outbox) {
            by_ticket.insert(ticket, key.clone());
        }
    }
    for reflector in services.iter_mut().chain(bundles.iter_mut()).chain(classes.iter_mut()) {
        reflector.drive(now, "objects", &mut outbox);
    }
    let whole = services.iter().chain(bundles.iter()).chain(classes.iter()).filter_map(Reflector::due);
    if let Some(at) = list.values().filter_map(Keeper::due).chain(whole).min() {
        timers.arm(TimerKind::Objects, Owner::Node, at);
    }
}

#[cfg(test)]
mod tests;
