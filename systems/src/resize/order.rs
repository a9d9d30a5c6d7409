//! Which of several resizes that wait is tried first.

use components::spec::QosClass;
use components::time::Wall;
use std::cmp::Ordering;

/// What decides about a pod's turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Turn {
    /// It asks for more CPU or memory than it has.
    pub(super) grows: bool,
    /// The pod's priority.
    pub(super) priority: i32,
    /// Its class.
    pub(super) qos: QosClass,
    /// Since when it waits; `None` for one that was never tried.
    pub(super) since: Option<Wall>,
}

/// What gives back comes first, then by priority and class; then those that wait longest.
pub(super) fn compare(a: &Turn, b: &Turn) -> Ordering {
    let class = |turn: &Turn| turn.qos != QosClass::Guaranteed;
    let age = |turn: &Turn| (turn.since.is_none(), turn.since);
    a.grows
        .cmp(&b.grows)
        .then_with(|| b.priority.cmp(&a.priority))
        .then_with(|| class(a).cmp(&class(b)))
        .then_with(|| age(a).cmp(&age(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_by_growth_priority_class_and_age() {
        let turn = |grows, priority, qos, since: Option<i64>| Turn { grows, priority, qos, since: since.map(Wall) };
        let mut turns = vec![
            turn(true, 0, QosClass::Burstable, None),
            turn(true, 0, QosClass::Burstable, Some(9)),
            turn(true, 0, QosClass::Burstable, Some(5)),
            turn(true, 0, QosClass::Guaranteed, None),
            turn(true, 7, QosClass::Burstable, None),
            turn(false, 0, QosClass::Burstable, None),
        ];
        let expect: Vec<Turn> = turns.iter().rev().copied().collect();
        turns.sort_by(compare);
        assert_eq!(turns, expect);
    }
}
