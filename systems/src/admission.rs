//! Whether this node takes a pod at all. A pod that is not taken fails at once, with a reason.
//!
//! What only depends on the pod and the node's settings ([`refusal`]) is computed again whenever it is asked for. What
//! depends on other pods and on the node's object ([`judge`]) is decided once, before the pod begins, and kept with its
//! stage. Reads spec, settings, the node's object and [`Admitted`], which `lifecycle` keeps up to date.

mod fit;
mod place;
mod preempt;

pub(crate) use self::place::holds;

use crate::node_object::NodeAgent;
use crate::sysctls;
use bevy_ecs::prelude::Resource;
use components::edge::cri::{AppArmor, GroupsPolicy};
use components::edge::sources::Source;
use components::ids::PodUid;
use components::node::{Machine, NodeConfig};
use components::spec::{PodSpec, Resources};
use fit::{Amounts, Offer, Taken};
use std::collections::BTreeSet;
use std::time::Duration;

/// Priority from which on a pod is critical.
const CRITICAL: i32 = 2_000_000_000;
/// Labels may have changed a moment before the pod was bound, and the news of it is still on its way.
const LABELS_LATE: Duration = Duration::from_secs(2);

/// What admitted pods take of the node.
#[derive(Resource, Default, Debug)]
pub(crate) struct Admitted(pub(crate) Taken);

/// What is decided about a pod that is to begin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Judgement {
    /// It is taken.
    Take,
    /// It cannot be told yet.
    Wait,
    /// It is not taken: reason and message.
    Refuse(String, String),
    /// It is critical: these pods make way, and then it is taken.
    Preempt(Vec<PodUid>),
}

/// What a judgement is made from besides the pod.
pub(crate) struct Node<'a> {
    pub(crate) config: &'a NodeConfig,
    pub(crate) agent: &'a NodeAgent,
    pub(crate) admitted: &'a Admitted,
    /// Pods that already make way.
    pub(crate) leaving: &'a BTreeSet<PodUid>,
    /// The runtime acts on `supplementalGroupsPolicy`; `None` when it does not say.
    pub(crate) groups: Option<bool>,
}

/// Judges a pod that has waited for its turn for so long.
///
/// Critical pods, as static ones are, are not refused for want of resources: others make way for them. Everything else
/// is looked at first, so that nothing is ended in vain.
pub(crate) fn judge(spec: &PodSpec, node: &Node<'_>, waited: Duration) -> Judgement {
    judge_as(spec, node, waited, is_critical(spec))
}

/// Whether a pod is critical to the node or the cluster.
pub(crate) fn is_critical(spec: &PodSpec) -> bool {
    spec.source != Source::Api || spec.priority >= CRITICAL
}

/// Judges what a pod that runs wants to have instead, beside the others; nobody makes way for it. Else why it waits.
pub(crate) fn judge_resize(spec: &PodSpec, node: &Node<'_>) -> Result<(), String> {
    match judge_as(spec, node, LABELS_LATE, false) {
        Judgement::Refuse(_, message) => Err(message),
        Judgement::Wait => Err("Kubelet cannot get node info.".to_owned()),
        Judgement::Take | Judgement::Preempt(_) => Ok(()),
    }
}

/// What a pod requests as a whole.
pub(crate) fn requested(spec: &PodSpec) -> Resources {
    let all = fit::requests(spec);
    let some = |amount: i64| Some(amount).filter(|amount| *amount != 0);
    Resources {
        cpu_milli: some(all.cpu_milli),
        memory_bytes: some(all.memory),
        ephemeral_storage_bytes: some(all.storage),
        hugepages: all.hugepages.into_iter().filter(|(_, bytes)| *bytes != 0).collect(),
        ..Resources::default()
    }
}

/// True when the first spec requests more CPU or memory than the second.
fn exceeds(spec: &PodSpec, other: &PodSpec) -> bool {
    let (mine, its) = (fit::requests(spec), fit::requests(other));
    mine.cpu_milli > its.cpu_milli || mine.memory > its.memory
}

/// True when a pod wants more CPU or memory than is allocated to it.
pub(crate) fn grows(allocated: &PodSpec, wanted: &PodSpec) -> bool {
    exceeds(wanted, allocated)
}

/// True when a pod wants less of CPU or memory than is allocated to it.
pub(crate) fn shrinks(allocated: &PodSpec, wanted: &PodSpec) -> bool {
    exceeds(allocated, wanted)
}

fn judge_as(spec: &PodSpec, node: &Node<'_>, waited: Duration, critical: bool) -> Judgement {
    let of_api = spec.source == Source::Api;
    if of_api && node.config.object.is_some() && node.agent.known.is_none() {
        return Judgement::Wait;
    }
    let refuse = |reason: &str, message: String| Judgement::Refuse(reason.to_owned(), message);
    let failed = |name: &str, why: &str| refuse(name, format!("Predicate {name} failed: {why}"));
    if spec.labels.get("kubernetes.io/os").is_some_and(|os| os != "linux") {
        let why = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label";
        return refuse("PodOSSelectorNodeLabelDoesNotMatch", why.to_owned());
    }
    if spec.security.groups_policy == Some(GroupsPolicy::Strict) && node.groups == Some(false) {
        let why = "SupplementalGroupsPolicy=Strict is not supported in this node";
        return refuse("SupplementalGroupsPolicyNotSupported", why.to_owned());
    }
    if !critical && let Some((name, [asked, used, most])) = node.admitted.0.lacking(spec, &offer(node.config)) {
        let amounts = format!("requested: {asked}, used: {used}, capacity: {most}");
        return refuse(&format!("OutOf{name}"), format!("Node didn't have enough resource: {name}, {amounts}"));
    }
    let asked = &spec.scheduling;
    let selects = !asked.node_selector.is_empty() || asked.affinity.is_some();
    if selects && !place::fits(asked, &node.agent.labels(node.config), &node.config.node_name) {
        if of_api && waited < LABELS_LATE {
            return Judgement::Wait;
        }
        return failed("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
    }
    if node.admitted.0.port_taken(spec) {
        return failed("NodePorts", "node(s) didn't have free ports for the requested pod ports");
    }
    if of_api && !place::tolerated(asked, &node.agent.taints()) {
        return failed("TaintToleration", "node(s) had taints that the pod didn't tolerate");
    }
    if critical { make_room(spec, node) } else { Judgement::Take }
}

/// Who makes way for a critical pod, if anybody must.
fn make_room(spec: &PodSpec, node: &Node<'_>) -> Judgement {
    let needs = node.admitted.0.needs(spec, &offer(node.config));
    if needs.is_empty() {
        return Judgement::Take;
    }
    let candidates = node.admitted.0.below(spec);
    let (leaving, others): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|pod| node.leaving.contains(&pod.uid));
    let needs = preempt::left(&needs, &leaving.iter().collect::<Vec<_>>());
    match preempt::choose(&others, &needs) {
        Ok(pods) if pods.is_empty() => Judgement::Wait,
        Ok(pods) => Judgement::Preempt(pods),
        Err(missing) => {
            let missing: String =
                missing.iter().map(|(name, amount)| format!("(res: {name}, q: {amount}), ")).collect();
            let what =
                "preemption: error finding a set of pods to preempt: no set of running pods found to reclaim resources";
            let message =
                format!("Unexpected error while attempting to recover from admission failure: {what}: [{missing}]");
            Judgement::Refuse("UnexpectedAdmissionError".to_owned(), message)
        }
    }
}

/// What the node offers. Amounts that were never computed bound nothing.
fn offer(config: &NodeConfig) -> Offer {
    let limits = &config.limits;
    let known = |amount: i64| if limits.cpu_milli == 0 { i64::MAX } else { amount };
    let hugepages = config.object.as_ref().map(|object| object.machine.hugepages.as_slice()).unwrap_or_default();
    let of_hugepages = hugepages.iter().map(|(_, all)| *all).sum::<i64>();
    Offer {
        pods: config.object.as_ref().map_or(i64::from(config.max_pods), |object| i64::from(object.pods)),
        amounts: Amounts {
            cpu_milli: known(limits.cpu_milli),
            memory: match limits.allocatable_memory_bytes {
                0 => i64::MAX,
                all => known(all.saturating_sub(of_hugepages).max(0)),
            },
            storage: known(limits.allocatable_disk_bytes),
            hugepages: hugepages.iter().map(|(page, all)| (fit::hugepage_name(*page), *all)).collect(),
        },
        storage_counts: config.object.as_ref().is_some_and(|object| object.disk_bytes.is_some()),
    }
}

/// Why the pod is not taken: reason and message of its status.
pub(crate) fn refusal(spec: &PodSpec, config: &NodeConfig, machine: &Machine) -> Option<(&'static str, String)> {
    if let Some(refused) = &spec.refused {
        return Some(refused.clone());
    }
    if let Some(why) = sysctls::refusal(spec, &config.limits.unsafe_sysctls) {
        return Some(("SysctlForbidden", why));
    }
    if wants_apparmor(spec) && !machine.apparmor {
        let why = "Cannot enforce AppArmor: AppArmor is not enabled on the host";
        return Some(("AppArmor", why.to_owned()));
    }
    None
}

/// A container has a profile that confines it.
fn wants_apparmor(spec: &PodSpec) -> bool {
    let confines = |profile: &AppArmor| *profile != AppArmor::Unconfined;
    let of_pod = spec.security.apparmor.as_ref();
    spec.containers.iter().any(|c| c.security.apparmor.as_ref().or(of_pod).is_some_and(confines))
}

#[cfg(test)]
mod tests;
