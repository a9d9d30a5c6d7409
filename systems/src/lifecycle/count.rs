//! What runs when ticklet starts takes its share of the node before anything new is judged.
//!
//! Reads what the runtime has and what the sources want; writes [`Admitted`].

use crate::admission::Admitted;
use bevy_ecs::prelude::*;
use components::edge::cri::SandboxState;
use components::world::{Desired, Lifecycle, Pleg, PodIndex, RuntimeIndex, SourceStates, Stage};

/// Counts the pods that wait for their turn and have a sandbox already, once the runtime was first listed and once every
/// source was read.
pub(super) fn count_what_runs(
    pleg: Res<Pleg>,
    sources: Res<SourceStates>,
    runtime: Res<RuntimeIndex>,
    index: Res<PodIndex>,
    pods: Query<(&Desired, &Lifecycle)>,
    mut admitted: ResMut<Admitted>,
    mut known: Local<(bool, bool)>,
) {
    let now = (pleg.relisted.is_some(), sources.all_read());
    if *known == now {
        return;
    }
    *known = now;
    for (uid, objects) in &runtime.pods {
        let lives = objects.sandboxes.iter().any(|(_, state)| *state == SandboxState::Ready);
        let Some((desired, life)) = index.by_uid.get(uid).filter(|_| lives).and_then(|pod| pods.get(*pod).ok()) else {
            continue;
        };
        if let (Stage::Queued, Some(spec)) = (life.stage, &desired.spec) {
            admitted.0.put(spec);
        }
    }
}
