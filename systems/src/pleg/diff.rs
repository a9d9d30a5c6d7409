//! The relist diff: which pods' objects are not what they were.

use components::edge::cri::RuntimeList;
use components::ids::{PodUid, SandboxId};
use components::world::PodObjects;
use std::collections::{BTreeMap, BTreeSet};

/// Groups a list by pod. A container whose sandbox is not in the list belongs to no pod and is left out.
#[must_use]
pub(super) fn group(list: &RuntimeList) -> BTreeMap<PodUid, PodObjects> {
    let mut pods: BTreeMap<PodUid, PodObjects> = BTreeMap::new();
    let mut owner: BTreeMap<&SandboxId, &PodUid> = BTreeMap::new();
    for sandbox in &list.sandboxes {
        owner.insert(&sandbox.id, &sandbox.pod);
        pods.entry(sandbox.pod.clone()).or_default().sandboxes.push((sandbox.id.clone(), sandbox.state));
    }
    for container in &list.containers {
        if let Some(pod) = owner.get(&container.sandbox).and_then(|uid| pods.get_mut(*uid)) {
            pod.containers.push((container.id.clone(), container.sandbox.clone(), container.state));
        }
    }
    for pod in pods.values_mut() {
        pod.sandboxes.sort();
        pod.containers.sort();
    }
    pods
}

/// Pods that appeared, vanished or changed between two relists, sorted.
#[must_use]
pub(super) fn changed(old: &BTreeMap<PodUid, PodObjects>, new: &BTreeMap<PodUid, PodObjects>) -> BTreeSet<PodUid> {
    let gone = old.keys().filter(|uid| !new.contains_key(*uid));
    let changed = new.iter().filter(|(uid, objects)| old.get(*uid) != Some(objects)).map(|(uid, _)| uid);
    gone.chain(changed).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::cri::{ContainerBrief, ContainerState, SandboxBrief, SandboxState};

    /// `s1=a+ c1@s1R` : sandbox s1 of pod a, ready; container c1 in s1, running.
    fn list(text: &str) -> RuntimeList {
        let mut list = RuntimeList::default();
        for word in text.split_whitespace() {
            if let Some((id, rest)) = word.split_once('=') {
                let ready = rest.ends_with('+');
                let state = if ready { SandboxState::Ready } else { SandboxState::NotReady };
                let pod = rest.trim_end_matches(['+', '-']).into();
                list.sandboxes.push(SandboxBrief { id: id.into(), pod, state });
            } else if let Some((id, rest)) = word.split_once('@') {
                let running = rest.ends_with('R');
                let state = if running { ContainerState::Running } else { ContainerState::Exited };
                let sandbox = rest.trim_end_matches(['R', 'X']).into();
                list.containers.push(ContainerBrief { id: id.into(), sandbox, state });
            }
        }
        list
    }

    #[track_caller]
    fn check(old: &str, new: &str, expect: &str) {
        let changed = changed(&group(&list(old)), &group(&list(new)));
        let names: Vec<_> = changed.iter().map(PodUid::as_str).collect();
        assert_eq!(names.join(" "), expect);
    }

    #[test]
    fn only_pods_with_a_difference_are_named() {
        check("s1=a+ c1@s1R s2=b+", "s1=a+ c1@s1R s2=b+", "");
        check("s1=a+ c1@s1R s2=b+", "s1=a+ c1@s1X s2=b+", "a");
        check("s1=a+", "s1=a+ s2=b+", "b");
        check("s1=a+ s2=b+", "s2=b-", "a b");
        check("s1=a+ s2=b+", "s2=b+ s1=a+", "");
    }

    #[test]
    fn a_container_without_its_sandbox_belongs_to_nobody() {
        check("s1=a+", "s1=a+ c9@s9R", "");
    }
}
