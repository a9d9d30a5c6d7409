//! User namespaces: which host ids a pod's users are mapped to.
//!
//! Each pod that wants a namespace of its own gets a range that no other pod has, and keeps it as long as its folder is
//! there. The file `userns` in that folder is the record of it; what is found at start is taken already.

use bevy_ecs::prelude::Resource;
use components::edge::cri::IdRange;
use components::ids::PodUid;
use components::node::{Machine, UserIds};
use std::collections::BTreeMap;

/// Ranges that are taken.
#[derive(Resource, Default, Debug)]
pub(crate) struct UserRanges {
    by_pod: BTreeMap<PodUid, IdRange>,
}

impl UserRanges {
    /// The ranges found in pod folders at start.
    pub(super) fn found(machine: &Machine) -> Self {
        Self { by_pod: machine.user_ranges.iter().cloned().collect() }
    }

    /// The range of a pod, if it has one.
    pub(super) fn of(&self, pod: &PodUid) -> Option<IdRange> {
        self.by_pod.get(pod).copied()
    }

    /// Gives a pod a range, the same as long as it has one. `lives` tells which pods still exist: ranges of others are
    /// taken back when there is no free one.
    ///
    /// # Errors
    /// When there are no ids, or none left.
    pub(super) fn assign(
        &mut self,
        pod: &PodUid,
        ids: Option<UserIds>,
        lives: impl Fn(&PodUid) -> bool,
    ) -> Result<IdRange, String> {
        if let Some(range) = self.of(pod) {
            return Ok(range);
        }
        let ids = ids.ok_or_else(|| "create user namespace: the node has no ids for user namespaces".to_owned())?;
        let range = self.free(ids).or_else(|| {
            self.by_pod.retain(|other, _| lives(other));
            self.free(ids)
        });
        let none = "create user namespace: could not find an empty slot to allocate a user namespace";
        let range = range.ok_or_else(|| none.to_owned())?;
        self.by_pod.insert(pod.clone(), range);
        Ok(range)
    }

    /// The lowest range that overlaps no taken one.
    fn free(&self, ids: UserIds) -> Option<IdRange> {
        let mut taken: Vec<IdRange> = self.by_pod.values().copied().collect();
        taken.sort_unstable();
        let length = ids.per_pod;
        let end = u64::from(ids.range.first) + u64::from(ids.range.length);
        let mut first = u64::from(ids.range.first);
        for other in taken {
            if u64::from(other.first) >= first + u64::from(length) {
                break;
            }
            let behind = u64::from(other.first) + u64::from(other.length);
            while first < behind {
                first += u64::from(length.max(1));
            }
        }
        let fits = length > 0 && first + u64::from(length) <= end;
        fits.then_some(IdRange { first: u32::try_from(first).ok()?, length })
    }
}

/// The file by which the kubelet, too, knows the range.
pub(super) fn record(range: IdRange) -> String {
    let mapping = format!("[{{\"hostId\":{},\"containerId\":0,\"length\":{}}}]", range.first, range.length);
    format!("{{\"uidMappings\":{mapping},\"gidMappings\":{mapping}}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u32 = 65_536;

    fn ids(pods: u32) -> Option<UserIds> {
        Some(UserIds { range: IdRange { first: UNIT, length: UNIT * pods }, per_pod: UNIT })
    }

    #[test]
    fn no_two_pods_share_ids_and_a_pod_keeps_its_own() {
        let taken = IdRange { first: 2 * UNIT, length: UNIT };
        let machine = Machine { user_ranges: vec![("old".into(), taken)], ..Machine::default() };
        let mut ranges = UserRanges::found(&machine);
        let mut assign = |pod: &str, lives: bool| ranges.assign(&pod.into(), ids(3), |_| lives).map(|r| r.first / UNIT);
        assert_eq!(assign("a", true), Ok(1));
        assert_eq!(assign("b", true), Ok(3));
        assert_eq!([assign("a", true), assign("old", true)], [Ok(1), Ok(2)]);
        assert!(assign("c", true).is_err_and(|error| error.contains("empty slot")));
        assert_eq!(assign("c", false), Ok(1), "those of pods that are gone are free again");
        assert!(UserRanges::default().assign(&"a".into(), None, |_| true).is_err());
    }

    #[test]
    fn odd_ranges_of_the_past_are_stepped_over() {
        let odd = IdRange { first: UNIT + 5, length: 2 * UNIT };
        let machine = Machine { user_ranges: vec![("odd".into(), odd)], ..Machine::default() };
        let first = UserRanges::found(&machine).assign(&"a".into(), ids(9), |_| true).map(|range| range.first / UNIT);
        assert_eq!(first, Ok(4));
    }

    #[test]
    fn the_record_is_the_kubelets() {
        let text = record(IdRange { first: UNIT, length: UNIT });
        let one = "[{\"hostId\":65536,\"containerId\":0,\"length\":65536}]";
        assert_eq!(text, format!("{{\"uidMappings\":{one},\"gidMappings\":{one}}}"));
    }
}
