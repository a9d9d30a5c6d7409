//! Asking whether a test planted a bug. Production plants none.

use bevy_ecs::prelude::Res;
use components::planted::{Bug, Planted};

/// True when this bug is planted.
pub(crate) fn is(planted: &Option<Res<'_, Planted>>, bug: Bug) -> bool {
    planted.as_ref().is_some_and(|p| p.is(bug))
}
