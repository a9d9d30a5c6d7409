//! Which dead containers and sandboxes are surplus. Matches upstream's container collection: so many per container,
//! so many in all, the oldest first; but never the instance that says whether a container runs again.

use bevy_ecs::prelude::Entity;
use components::edge::cri::{ContainerState, PodInspection, SandboxState};
use components::ids::{ContainerId, PodUid, SandboxId};
use components::node::reclaim::CollectionConfig;
use components::time::Wall;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

/// A dead container that may be collected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Dead {
    pub(super) pod: Entity,
    pub(super) id: ContainerId,
    /// Higher is newer.
    age: (u32, Wall),
    /// It must stay.
    needed: bool,
}

/// Dead containers by pod and name, newest first.
pub(super) type Units = BTreeMap<(PodUid, String), Vec<Dead>>;

/// Adds a pod's dead containers that are older than `min_age`. In a pod that goes on living (`lives`) the newest
/// instance of each name stays.
pub(super) fn add(
    units: &mut Units,
    (pod, uid): (Entity, &PodUid),
    seen: &PodInspection,
    lives: bool,
    (now, min_age): (Wall, Duration),
) {
    let mut name = None;
    for container in &seen.containers {
        let newest = name.replace(&container.name) != Some(&container.name);
        let old = i64::try_from(min_age.as_nanos()).unwrap_or(i64::MAX);
        if container.state != ContainerState::Exited || container.created_at.0.saturating_add(old) > now.0 {
            continue;
        }
        let age = (container.attempt, container.created_at);
        let dead = Dead { pod, id: container.id.clone(), age, needed: newest && lives };
        units.entry((uid.clone(), container.name.to_string())).or_default().push(dead);
    }
    for unit in units.values_mut() {
        unit.sort_by_key(|dead| Reverse(dead.age));
    }
}

/// Takes what is surplus out of the units.
pub(super) fn take(units: &mut Units, policy: &CollectionConfig) -> Vec<Dead> {
    let mut surplus = Vec::new();
    if let Some(kept) = policy.per_container {
        cut(units, kept, &mut surplus);
    }
    let Some(total) = policy.total else { return surplus };
    let count = |units: &Units| units.values().map(Vec::len).sum::<usize>();
    let bound = usize::try_from(total).unwrap_or(usize::MAX);
    units.retain(|_, unit| !unit.is_empty());
    if count(units) > bound {
        let each = total / u32::try_from(units.len()).unwrap_or(u32::MAX).max(1);
        cut(units, each.max(1), &mut surplus);
    }
    let mut excess = count(units).saturating_sub(bound);
    let mut all: Vec<Dead> = units.values().flatten().filter(|dead| !dead.needed).cloned().collect();
    all.sort_by_key(|dead| dead.age);
    excess = excess.min(all.len());
    surplus.extend(all.drain(..excess));
    surplus
}

/// Leaves at most so many in each unit.
fn cut(units: &mut Units, kept: u32, surplus: &mut Vec<Dead>) {
    let kept = usize::try_from(kept).unwrap_or(usize::MAX);
    for unit in units.values_mut() {
        let mut place = 0;
        unit.retain(|dead| {
            place += 1;
            let stays = place <= kept || dead.needed;
            if !stays {
                surplus.push(dead.clone());
            }
            stays
        });
    }
}

/// Sandboxes that hold nothing and are not a pod's newest.
pub(super) fn sandboxes(seen: &PodInspection) -> Vec<SandboxId> {
    let empty = |id: &SandboxId| !seen.containers.iter().any(|container| container.sandbox == *id);
    let old = seen.sandboxes.iter().skip(1).filter(|s| s.state == SandboxState::NotReady && empty(&s.id));
    old.map(|sandbox| sandbox.id.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn policy(per_container: Option<u32>, total: Option<u32>) -> CollectionConfig {
        CollectionConfig { period: Duration::from_secs(60), min_age: Duration::ZERO, per_container, total }
    }

    /// Pods as inspections; the ids of what is surplus, sorted.
    #[track_caller]
    fn check(pods: &[(&str, bool)], policy: &CollectionConfig, expect: &str) {
        let spec = fixtures::spec("always a b");
        let mut units = Units::new();
        for (index, (text, lives)) in pods.iter().enumerate() {
            let pod = Entity::from_raw_u32(u32::try_from(index).unwrap()).unwrap();
            let seen = fixtures::inspection(&spec, text);
            let uid = PodUid::from(format!("u{index}"));
            add(&mut units, (pod, &uid), &seen, *lives, (Wall(10), policy.min_age));
        }
        let mut ids: Vec<_> = take(&mut units, policy).into_iter().map(|dead| dead.id.to_string()).collect();
        ids.sort();
        assert_eq!(ids.join(" "), expect);
    }

    #[test]
    fn so_many_are_kept_per_container() {
        let pod = [("s0+ a4:run a3:exit1 a2:exit1 a1:exit1 b0:run", true)];
        check(&pod, &policy(Some(1), None), "a1 a2");
        check(&pod, &policy(Some(2), None), "a1");
        check(&pod, &policy(Some(0), None), "a1 a2 a3");
        check(&pod, &policy(None, None), "");
    }

    #[test]
    fn the_instance_that_says_whether_it_runs_again_stays_while_the_pod_lives() {
        let pod = "s0+ a1:exit0 a0:exit1 b0:run";
        check(&[(pod, true)], &policy(Some(0), Some(0)), "a0");
        check(&[(pod, false)], &policy(Some(0), None), "a0 a1");
        check(&[("s0+ a1:created a0:exit1", true)], &policy(Some(1), None), "");
    }

    #[test]
    fn in_all_the_oldest_go_after_each_container_got_its_share() {
        let pods = [("s0+ a3:run a2:exit1 a1:exit1 b0:run", true), ("s0+ a9:run a8:exit1 a7:exit1 a6:exit1", true)];
        check(&pods, &policy(None, Some(4)), "a6");
        check(&pods, &policy(None, Some(2)), "a1 a6 a7");
        check(&pods, &policy(None, Some(1)), "a1 a2 a6 a7");
        check(&pods, &policy(None, Some(9)), "");
    }

    #[test]
    fn young_ones_stay() {
        let young = CollectionConfig { min_age: Duration::from_secs(60), ..policy(Some(0), None) };
        check(&[("s0+ a3:run a2:exit1", true)], &young, "");
    }

    #[test]
    fn old_empty_sandboxes_are_surplus() {
        let spec = fixtures::spec("always a");
        let seen = fixtures::inspection(&spec, "s3+ s2- s1- s0+ a1:run@s3 a0:exit1@s1");
        assert_eq!(sandboxes(&seen), [SandboxId::from("s2")]);
    }
}
