//! Which container the kernel kills first when memory runs out (contract 3.4).

use components::edge::sources::Source;
use components::node::Machine;
use components::spec::{ContainerKind, ContainerSpec, PodSpec, QosClass};

/// Class of pods that go last.
const NODE_CRITICAL: &str = "system-node-critical";
/// Priority from which a pod of an API server is critical.
const CRITICAL: i32 = 2_000_000_000;
/// Value of those that go last.
const LAST: i64 = -997;
/// Value of those that go first.
const FIRST: i64 = 1000;

/// `oom_score_adj` of one container.
pub(super) fn score_adj(spec: &PodSpec, container: &ContainerSpec, machine: &Machine) -> i64 {
    let critical = spec.source != Source::Api || spec.priority >= CRITICAL;
    if (critical && spec.priority_class == NODE_CRITICAL) || spec.qos == QosClass::Guaranteed {
        return LAST;
    }
    if spec.qos == QosClass::BestEffort {
        return FIRST;
    }
    let spare = unclaimed(spec);
    let score = |request: i64| match machine.memory_bytes {
        // The share of the machine that was asked for, in thousandths, is what makes it safer.
        memory @ 1.. => FIRST - share(request.saturating_add(spare), memory),
        _ => FIRST,
    };
    let mut adj = score(requested(container));
    if container.kind == ContainerKind::Sidecar {
        // A sidecar is not killed before the containers it serves.
        let main = spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
        adj = main.map(requested).min().map_or(adj, |least| adj.min(score(least)));
    }
    adj.clamp(FIRST + LAST, FIRST - 1)
}

fn requested(container: &ContainerSpec) -> i64 {
    container.resources.requests.memory_bytes.unwrap_or(0)
}

fn share(bytes: i64, memory: i64) -> i64 {
    i64::try_from(i128::from(bytes) * 1000 / i128::from(memory)).unwrap_or(i64::MAX)
}

/// What the pod requested as a whole and none of its containers claims, for each of them.
fn unclaimed(spec: &PodSpec) -> i64 {
    let Some(pod) = spec.resources.as_ref().and_then(|own| own.requests.memory_bytes).filter(|bytes| *bytes > 0) else {
        return 0;
    };
    let claimed = super::effective(spec, &|c| c.resources.requests.memory_bytes).unwrap_or(0);
    let count = spec.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral).count();
    (pod - claimed) / i64::try_from(count).unwrap_or(1).max(1)
}
