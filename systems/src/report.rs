//! The snapshot that readers see: touched pods are replaced in it, everything else is shared with the one before.
//!
//! Writes `engine::Published`. Counts what happened to pods on the way.

mod counts;

use crate::probes::{ProbeMemos, ProbeNumbers};
use bevy_ecs::prelude::*;
use components::node::NodeConfig;
use components::pulls::PullCounts;
use components::registry::NodeLogins;
use components::resize::Resizing;
use components::snapshot::{CHUNK, Chunk, CoreMetrics, Health, PodView, Snapshot};
use components::world::{
    Desired, Finished, Flow, Lifecycle, Observed, Pleg, PodIndex, PodKey, Reported, RuntimeHealth, SourceStates,
};
use engine::{Clock, Engine, InvariantCount, Outbox, Phase, Published, Touched};
use std::sync::Arc;

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReportSystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Slots>();
    engine.world_mut().init_resource::<counts::Tally>();
    engine.add_systems(
        Phase::Report,
        (update_slots, publish).chain_ignore_deferred().in_set(ReportSystems).after(crate::status::StatusSystems),
    );
}

/// The chunks of the next snapshot.
#[derive(Resource, Default, Debug)]
struct Slots {
    chunks: Vec<Arc<Chunk>>,
    /// Slots that were freed and must be emptied.
    shown: std::collections::BTreeMap<components::ids::PodUid, u32>,
}

fn update_slots(
    touched: Res<Touched>,
    index: Res<PodIndex>,
    pods: Query<(&PodKey, &Desired, &Lifecycle, &Observed, &Flow, &Reported, &Resizing)>,
    finished: Res<Finished>,
    memos: Res<ProbeMemos>,
    clock: Res<Clock>,
    mut slots: ResMut<Slots>,
    mut tally: ResMut<counts::Tally>,
) {
    tally.since.get_or_insert(clock.now.wall);
    for entity in touched.iter() {
        let Ok((key, desired, life, observed, flow, reported, resizing)) = pods.get(entity) else { continue };
        if observed.inspection.is_none() && (finished.0.contains_key(&key.uid) || memos.knows(&key.uid)) {
            // An earlier run saw it finish, or serve: nothing else may be shown, and that not before it was looked at.
            continue;
        }
        let (namespace, name) = match (&desired.spec, &observed.inspection) {
            (Some(spec), _) => (Arc::clone(&spec.namespace), Arc::clone(&spec.name)),
            (None, Some(seen)) => (seen.namespace.as_str().into(), seen.name.as_str().into()),
            (None, None) => ("".into(), "".into()),
        };
        let view = PodView {
            // What its source wants, not what is allocated to it.
            spec: resizing.wanted.clone().or_else(|| desired.spec.clone()),
            namespace,
            name,
            uid: key.uid.clone(),
            stage: life.stage,
            buried: flow.buried,
            status: Arc::clone(&reported.status),
            last_event: Arc::clone(&flow.last_event),
        };
        tally.note(slots.get(key.slot).filter(|before| before.uid == view.uid), &view);
        slots.set(key.slot, Some(Arc::new(view)));
        if let Some(old) = slots.shown.insert(key.uid.clone(), key.slot).filter(|old| *old != key.slot) {
            // Another pod of the same uid stood there before it was buried.
            slots.empty(old, &key.uid);
        }
    }
    // Pods come and go seldom: a tick without either costs nothing here.
    if index.is_changed() {
        slots.drop_buried(&index);
    }
}

impl Slots {
    fn get(&self, slot: u32) -> Option<&PodView> {
        self.chunks.get(slot as usize / CHUNK)?[slot as usize % CHUNK].as_deref()
    }

    fn set(&mut self, slot: u32, view: Option<Arc<PodView>>) {
        let slot = slot as usize;
        while self.chunks.len() <= slot / CHUNK {
            self.chunks.push(Arc::new(vec![None; CHUNK]));
        }
        Arc::make_mut(&mut self.chunks[slot / CHUNK])[slot % CHUNK] = view;
    }

    /// Empties the slots of pods that were buried.
    fn drop_buried(&mut self, index: &PodIndex) {
        let gone: Vec<_> = self
            .shown
            .iter()
            .filter(|(uid, _)| !index.by_uid.contains_key(*uid))
            .map(|(uid, slot)| (uid.clone(), *slot))
            .collect();
        for (uid, slot) in gone {
            self.shown.remove(&uid);
            self.empty(slot, &uid);
        }
    }

    /// Empties a slot if it still shows this pod.
    fn empty(&mut self, slot: u32, uid: &components::ids::PodUid) {
        let shown = self.chunks.get(slot as usize / CHUNK).and_then(|c| c[slot as usize % CHUNK].as_ref());
        if shown.is_some_and(|view| view.uid == *uid) {
            self.set(slot, None);
        }
    }
}

/// What is shown of images.
#[derive(bevy_ecs::system::SystemParam)]
struct Images<'w> {
    config: Res<'w, NodeConfig>,
    logins: Res<'w, NodeLogins>,
}

impl Images<'_> {
    fn counts(&self) -> Option<Arc<PullCounts>> {
        self.config.pulls.as_ref().map(|_| Arc::clone(&self.logins.records.counts))
    }
}

fn publish(
    clock: Res<Clock>,
    slots: Res<Slots>,
    pleg: Res<Pleg>,
    health: Res<RuntimeHealth>,
    sources: Res<SourceStates>,
    outbox: Res<Outbox>,
    broken: Res<InvariantCount>,
    numbers: Res<ProbeNumbers>,
    tally: Res<counts::Tally>,
    identity: Res<crate::identity::Identity>,
    images: Images<'_>,
    pod_certificates: Res<crate::objects::certificates::PodCertificates>,
    mut published: ResMut<Published>,
) {
    published.0 = Arc::new(Snapshot {
        tick: clock.tick,
        mono: clock.now.mono,
        wall: clock.now.wall,
        chunks: slots.chunks.clone(),
        runtime: health.info.clone(),
        health: Health {
            runtime_seen: health.ready_seen,
            pleg_seen: pleg.relisted,
            sources_ready: sources.all_read(),
            events_open: pleg.events_open,
        },
        metrics: Arc::new(CoreMetrics { pulls: images.counts(), ..metrics(&pleg, &outbox, &broken, &tally) }),
        probes: Arc::clone(&numbers.series),
        certificates: identity.numbers(),
        pod_certificates: pod_certificates.states(),
    });
}

fn metrics(pleg: &Pleg, outbox: &Outbox, broken: &InvariantCount, tally: &counts::Tally) -> CoreMetrics {
    let counts = outbox.counts;
    CoreMetrics {
        counters: vec![
            ("ticklet_ticks_total", "", counts.ticks),
            ("ticklet_inputs_total", "", counts.inputs),
            ("ticklet_works_total", "", counts.works),
            ("ticklet_stale_completions_total", "", counts.stale_completions),
            ("ticklet_journal_records_total", "", counts.records),
            ("ticklet_invariants_broken_total", "", broken.0),
            ("ticklet_relists_total", "", pleg.relists),
            ("ticklet_relists_with_changes_total", "", pleg.changes),
        ],
        gauges: vec![("ticklet_works_awaited", "", outbox.awaited() as f64)],
        pods: Arc::clone(&tally.counts),
        pulls: None,
    }
}
