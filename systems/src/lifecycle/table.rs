//! The one transition table of pod stages.

use components::time::Now;
use components::world::{Lifecycle, Stage, Transition};
use engine::{InvariantCount, invariant};

/// Transitions remembered per pod.
const REMEMBERED: usize = 16;

/// True for the transitions that can be. A finished pod whose source drops it is cleaned once more; nothing else
/// ever goes back.
#[must_use]
pub(super) const fn allowed(from: Stage, to: Stage) -> bool {
    matches!(
        (from, to),
        (Stage::Queued, Stage::Syncing | Stage::Terminating)
            | (Stage::Syncing, Stage::Terminating)
            | (Stage::Terminating, Stage::Terminated)
            | (Stage::Terminated, Stage::Done)
            | (Stage::Done, Stage::Terminated)
    )
}

/// Moves a pod to another stage if the table has it; records why. False when refused.
pub(super) fn pass(
    life: &mut Lifecycle,
    to: Stage,
    reason: &'static str,
    now: Now,
    broken: &mut InvariantCount,
) -> bool {
    let from = life.stage;
    if !invariant!(broken, allowed(from, to), "a pod cannot go from {from:?} to {to:?} ({reason})") {
        return false;
    }
    life.stage = to;
    life.since = now.mono;
    if life.history.len() == REMEMBERED {
        life.history.remove(0);
    }
    life.history.push(Transition { at: now.wall, from, to, reason });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stage_is_left_towards_life() {
        for from in [Stage::Terminating, Stage::Terminated, Stage::Done] {
            assert!(!allowed(from, Stage::Syncing));
            assert!(!allowed(from, Stage::Queued));
        }
        assert!(allowed(Stage::Queued, Stage::Terminating));
        assert!(!allowed(Stage::Syncing, Stage::Terminated));
    }
}
