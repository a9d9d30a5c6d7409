//! Certificates of pods (`podCertificate`, contract 3.7): asked for in the pod's name and renewed before they end.
//!
//! Reads what pods want, the node's uid, and the copy of this node's `PodCertificateRequest`s, which is kept while some
//! pod needs one; writes [`CertificateRun`]s. Keys are made and kept by the host, under names that count upwards.

pub(crate) mod run;

use super::references;
use crate::apicall;
use crate::node_object::NodeAgent;
use crate::reflector::{Change, Reflector, Target};
use bevy_ecs::prelude::*;
use components::edge::api::{ApiRequest, Class, Method};
use components::edge::host::HostEffect;
use components::edge::host::podkeys::PodKeyEffect;
use components::edge::{Effect, Lane, Why};
use components::ids::PodUid;
use components::node::NodeConfig;
use components::objects::PodRefs;
use components::podcerts::{CertificateRun, CertificateSource, CertificateStates, CertificateStep, PodKey};
use components::spec::PodSpec;
use components::time::Now;
use components::world::{Desired, Flow};
use engine::{Clock, Inbox, NewWork, Outbox, Owner, Seed, TimerKind, Timers, Touched};
use podspec::podcerts::{Bearer, Progress};
use run::Ask;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

const PATH: &str = "/apis/certificates.k8s.io/v1/podcertificaterequests";
/// Longest time for a key, its wait for its turn aside; a large one takes seconds.
const KEY_TIMEOUT: Duration = Duration::from_secs(120);
/// Keys of a pod are made in order, beside everything else of the pod.
const STRAND: u16 = u16::MAX;
/// How soon the node's uid is looked for again.
const NODE_WAIT: Duration = Duration::from_secs(1);

/// Namespace and name of a request.
type Name = (String, String);

/// Requests of this node, and who waits for them.
#[derive(Resource, Default, Debug)]
pub(crate) struct PodCertificates {
    copy: Option<Reflector>,
    /// Those that were decided, and `None` for one that was deleted while it was waited for. An answer may be overtaken
    /// by what follows from it.
    known: BTreeMap<Name, Option<Progress>>,
    waiting: BTreeMap<Name, Entity>,
    users: BTreeSet<Entity>,
    states: Arc<CertificateStates>,
}

impl PodCertificates {
    /// How many there are in each state.
    pub(crate) fn states(&self) -> Arc<CertificateStates> {
        Arc::clone(&self.states)
    }

    fn recount(&mut self, run: &mut CertificateRun, now: Option<(&str, &'static str)>) {
        let same = match (&run.counted, now) {
            (Some((signer, state)), Some(now)) => (&**signer, *state) == now,
            (None, None) => true,
            _ => false,
        };
        if same {
            return;
        }
        let states = Arc::make_mut(&mut self.states);
        if let Some(old) = run.counted.take()
            && let Some(count) = states.get_mut(&old)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                states.remove(&old);
            }
        }
        if let Some((signer, state)) = now {
            let key = (Arc::from(signer), state);
            *states.entry(key.clone()).or_default() += 1;
            run.counted = Some(key);
        }
    }
}

/// Notes what a pod wants. True when that changed.
pub(super) fn follow(
    pod: Entity,
    spec: &PodSpec,
    refs: &mut PodRefs,
    config: &NodeConfig,
    all: &mut PodCertificates,
) -> bool {
    let wanted: BTreeSet<_> = references::certificates(spec).map(|source| source.slot.clone()).collect();
    if wanted.iter().eq(refs.certificates.keys()) {
        return false;
    }
    let gone: Vec<_> = refs.certificates.keys().filter(|slot| !wanted.contains(slot)).cloned().collect();
    for mut run in gone.iter().filter_map(|slot| refs.certificates.remove(slot)) {
        drop_run(&mut run, spec, all);
    }
    let on = config.api.as_ref().is_some_and(|api| api.pod_certificates);
    for slot in wanted {
        let none = || CertificateRun {
            step: CertificateStep::Refused { denied: false },
            error: Some("unimplemented".to_owned()),
            ..CertificateRun::default()
        };
        refs.certificates.entry(slot).or_insert_with(|| if on { CertificateRun::default() } else { none() });
    }
    if on && !refs.certificates.is_empty() {
        all.users.insert(pod);
    }
    true
}

fn drop_run(run: &mut CertificateRun, spec: &PodSpec, all: &mut PodCertificates) {
    if let CertificateStep::Wait { name, .. } = &run.step {
        all.waiting.remove(&(spec.namespace.to_string(), name.clone()));
    }
    all.recount(run, None);
}

/// Lets go of everything of a pod that is over.
pub(super) fn release(
    pod: Entity,
    spec: Option<&PodSpec>,
    refs: &mut PodRefs,
    all: &mut PodCertificates,
    outbox: &mut Outbox,
) {
    if !all.users.remove(&pod) {
        return;
    }
    let Some(spec) = spec else { return };
    let made = refs.certificates.values().any(|run| run.turn > 0);
    for run in refs.certificates.values_mut() {
        drop_run(run, spec, all);
    }
    if made {
        let effect = PodKeyEffect::Forget { pod: spec.uid.clone() };
        outbox.emit(host(Owner::Node, &spec.uid, "the pod is over", effect));
    }
    if all.users.is_empty() {
        if let Some(mut copy) = all.copy.take() {
            copy.stop(outbox);
        }
        all.known.clear();
    }
}

/// Takes answers, and how far requests have come.
pub(super) fn take(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    mut all: ResMut<PodCertificates>,
    mut pods: Query<(&Desired, &mut PodRefs)>,
    mut outbox: ResMut<Outbox>,
    mut touched: ResMut<Touched>,
) {
    if all.users.is_empty() {
        return;
    }
    let now = clock.now;
    let mut news = BTreeSet::new();
    for fact in &inbox.api {
        let changes = all.copy.as_mut().map(|copy| copy.told(fact, now.mono, &mut outbox)).unwrap_or_default();
        changes.into_iter().for_each(|change| news.append(&mut apply(&mut all, change)));
    }
    for arrived in &inbox.completions {
        match arrived.owner {
            Owner::Node if all.copy.as_ref().is_some_and(|copy| copy.owns(arrived.ticket)) => {
                let change = all.copy.as_mut().and_then(|copy| copy.completed(&arrived.outcome, now.mono));
                change.into_iter().for_each(|change| news.append(&mut apply(&mut all, change)));
            }
            Owner::Pod(pod) if all.users.contains(&pod) => {
                let Ok((desired, mut refs)) = pods.get_mut(pod) else { continue };
                let asked = |run: &&mut CertificateRun| run.asking == Some(arrived.ticket);
                let Some(run) = refs.certificates.values_mut().find(asked) else { continue };
                let changed = run::answered(run, &arrived.outcome, now, arrived.ticket.0);
                if let (CertificateStep::Wait { name, .. }, Some(spec)) = (&run.step, &desired.spec) {
                    let name = (spec.namespace.to_string(), name.clone());
                    all.waiting.insert(name.clone(), pod);
                    news.insert(name);
                }
                refs.version += u64::from(changed);
                touched.add(pod);
            }
            _ => {}
        }
    }
    for name in news {
        let Some(pod) = all.waiting.get(&name).copied() else { continue };
        let Ok((_, mut refs)) = pods.get_mut(pod) else { continue };
        let waits =
            |run: &&mut CertificateRun| matches!(&run.step, CertificateStep::Wait { name: own, .. } if *own == name.1);
        let Some(run) = refs.certificates.values_mut().find(waits) else { continue };
        let (shown, chance) = (format!("{}/{}", name.0, name.1), chance(clock.tick, &name.1));
        let changed = match all.known.get(&name) {
            Some(Some(progress)) => run::settle(run, &shown, progress, now, chance),
            Some(None) => {
                run::deleted(run, &shown, now, chance);
                all.known.remove(&name);
                true
            }
            None => continue,
        };
        all.waiting.remove(&name);
        refs.version += u64::from(changed);
        touched.add(pod);
    }
}

/// Takes a change of the copy; names of the requests that may be news to who waits.
fn apply(all: &mut PodCertificates, change: Change) -> BTreeSet<Name> {
    let read = |text: &str| match podspec::podcerts::read(text) {
        Ok(read) => Some(read),
        Err(why) => {
            tracing::warn!(error = %why, "A request for a pod's certificate cannot be read");
            None
        }
    };
    let mut news = BTreeSet::new();
    let decided = |(_, progress): &(Name, Progress)| *progress != Progress::Waits;
    match change {
        Change::Replaced(texts) => {
            // One that is missing here may be newer than the list: time tells.
            let all_read = texts.iter().filter_map(|text| read(text)).filter(decided);
            all.known = all_read.map(|(name, progress)| (name, Some(progress))).collect();
            news.extend(all.known.keys().cloned());
        }
        Change::Put(text) => {
            if let Some((name, progress)) = read(&text).filter(decided) {
                all.known.insert(name.clone(), Some(progress));
                news.insert(name);
            }
        }
        Change::Gone(text) => {
            if let Some((name, _)) = read(&text) {
                all.known.remove(&name);
                if all.waiting.contains_key(&name) {
                    all.known.insert(name.clone(), None);
                    news.insert(name);
                }
            }
        }
    }
    news
}

/// Asks for what is due.
pub(super) fn ask(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    seed: Res<Seed>,
    agent: Res<NodeAgent>,
    touched: Res<Touched>,
    mut all: ResMut<PodCertificates>,
    mut pods: Query<(&Desired, &mut PodRefs, &mut Flow)>,
    mut outbox: ResMut<Outbox>,
    mut timers: ResMut<Timers>,
) {
    if all.users.is_empty() {
        return;
    }
    let now = clock.now;
    for pod in touched.iter().filter(|pod| all.users.contains(pod)).collect::<Vec<_>>() {
        let Ok((desired, mut refs, mut flow)) = pods.get_mut(pod) else { continue };
        let Some(spec) = &desired.spec else { continue };
        for source in references::certificates(spec) {
            let PodRefs { certificates, version, .. } = &mut *refs;
            let Some(run) = certificates.get_mut(&source.slot) else { continue };
            let waited = if let CertificateStep::Wait { name, .. } = &run.step { Some(name.clone()) } else { None };
            let (ask, changed) = run::advance(run, &spec.namespace, now, chance(seed.0, &spec.name));
            *version += u64::from(changed);
            if let Some(name) = waited.filter(|_| !matches!(run.step, CertificateStep::Wait { .. })) {
                all.waiting.remove(&(spec.namespace.to_string(), name));
            }
            if let Some(ask) = ask {
                emit(pod, spec, source, run, ask, (&config, &agent, now), &mut outbox);
            }
            for (reason, text) in run.untold.drain(..) {
                flow.events.warning(reason, text, None);
            }
            if let Some(at) = run::due(run, now) {
                timers.arm_no_later(TimerKind::Pod, Owner::Pod(pod), at);
            }
            let state = run::state(run, now.wall);
            all.recount(run, Some((&source.signer, state)));
        }
    }
    let copy = all.copy.get_or_insert_with(|| {
        let query = format!("fieldSelector={}", apicall::encode(&format!("spec.nodeName={}", config.node_name)));
        let target = Target { path: PATH.to_owned(), query, class: Class::Object, secret: false };
        Reflector::new(target, apicall::mix(seed.0 ^ 0x7063_6572))
    });
    copy.drive(now.mono, "objects", &mut outbox);
    if let Some(at) = copy.due() {
        timers.arm_no_later(TimerKind::PodCertificates, Owner::Node, at);
    }
}

fn emit(
    pod: Entity,
    spec: &PodSpec,
    source: &CertificateSource,
    run: &mut CertificateRun,
    ask: Ask,
    (config, agent, now): (&NodeConfig, &NodeAgent, Now),
    outbox: &mut Outbox,
) {
    let rule = if run.shown.is_some() { "the certificate is to be renewed" } else { "a volume holds a certificate" };
    let why = Why { system: "objects", rule };
    let namespace = apicall::encode(&spec.namespace);
    let work = match ask {
        Ask::Key => {
            let in_use = run.shown.as_ref().map(|shown| shown.turn);
            run.turn += 1;
            let key = PodKey { pod: spec.uid.clone(), slot: source.slot.clone(), turn: run.turn };
            host(Owner::Pod(pod), &spec.uid, rule, PodKeyEffect::Make { key, kind: source.key_type, in_use })
        }
        Ask::Account => {
            let account = apicall::encode(&spec.service_account);
            let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}");
            apicall::work(Owner::Pod(pod), why, ApiRequest::get(path, Class::Object))
        }
        Ask::Send { request, account } => {
            let Some(node_uid) = agent.uid() else {
                run.due = Some(now.mono.after(NODE_WAIT));
                return;
            };
            let bearer = Bearer { node: &config.node_name, node_uid, account_uid: &account };
            let body = podspec::podcerts::body(spec, source, bearer, &request);
            let path = format!("/apis/certificates.k8s.io/v1/namespaces/{namespace}/podcertificaterequests");
            apicall::work(Owner::Pod(pod), why, ApiRequest::send(Method::Post, path, body, Class::Object))
        }
    };
    run.asking = Some(outbox.emit(work));
}

fn host(owner: Owner, uid: &PodUid, rule: &'static str, effect: PodKeyEffect) -> NewWork {
    NewWork {
        owner,
        lane: Lane::Pod { uid: uid.clone(), strand: STRAND },
        chained: false,
        timeout: KEY_TIMEOUT,
        why: Why { system: "objects", rule },
        effect: Effect::Host(HostEffect::PodKeys(Box::new(effect))),
    }
}

fn chance(seed: u64, name: &str) -> u64 {
    let own = components::fnv::fnv1a_128(name.as_bytes()) & u128::from(u64::MAX);
    apicall::mix(seed ^ u64::try_from(own).unwrap_or_default())
}
