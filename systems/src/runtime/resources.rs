//! Requests and limits as the kernel's numbers (contract 3.4).

use components::edge::cri::LinuxResources;
use components::node::{Machine, NodeConfig};
use components::spec::{ContainerKind, ContainerSpec, PodSpec, QosClass, ResourceRequirements};

/// Smallest and largest `cpu.shares`.
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// Smallest CFS quota in microseconds.
const MIN_QUOTA: i64 = 1000;
/// Priority from which a pod is node-critical.
const NODE_CRITICAL: i32 = 2_000_001_000;

/// `cpu.shares` of a request in thousandths of a core.
pub(super) const fn shares(milli: i64) -> i64 {
    if milli == 0 {
        return MIN_SHARES;
    }
    let shares = milli * 1024 / 1000;
    if shares < MIN_SHARES {
        MIN_SHARES
    } else if shares > MAX_SHARES {
        MAX_SHARES
    } else {
        shares
    }
}

/// CFS quota of a limit in thousandths of a core; 0 for no limit.
pub(super) const fn quota(milli: i64, period: i64) -> i64 {
    if milli == 0 {
        return 0;
    }
    let quota = milli * period / 1000;
    if quota < MIN_QUOTA { MIN_QUOTA } else { quota }
}

/// Resources of one container.
pub(super) fn of_container(
    spec: &PodSpec,
    container: &ContainerSpec,
    config: &NodeConfig,
    machine: &Machine,
) -> LinuxResources {
    let mut out = of_requirements(&with_pod_limits(spec, container), config);
    out.oom_score_adj = oom_score_adj(spec, container, machine);
    let limits = &container.resources.limits.hugepages;
    out.hugepage_limits = machine.hugepage_sizes.iter().map(|size| (size.clone(), huge_limit(limits, size))).collect();
    if machine.cgroup_v2 {
        if !config.single_process_oom_kill {
            out.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
        }
        // No swap for pods (`memorySwap.swapBehavior` unset).
        out.unified.insert("memory.swap.max".to_owned(), "0".to_owned());
    }
    out
}

/// Sum over the pod, as the sandbox is told.
pub(super) fn of_pod(spec: &PodSpec, config: &NodeConfig) -> LinuxResources {
    of_requirements(&pod_requirements(spec), config)
}

/// Requests and limits of the pod as a whole: main containers and sidecars add up, an init container counts with the
/// sidecars before it, the larger wins; pod-level values replace both (`PodLevelResources`).
pub(super) fn pod_requirements(spec: &PodSpec) -> ResourceRequirements {
    let mut out = ResourceRequirements::default();
    let value = |f: &dyn Fn(&ContainerSpec) -> Option<i64>| -> Option<i64> { effective(spec, f) };
    out.requests.cpu_milli = value(&|c| c.resources.requests.cpu_milli);
    out.requests.memory_bytes = value(&|c| c.resources.requests.memory_bytes);
    out.limits.cpu_milli = value(&|c| c.resources.limits.cpu_milli);
    out.limits.memory_bytes = value(&|c| c.resources.limits.memory_bytes);
    if let Some(own) = &spec.resources {
        out.requests.cpu_milli = own.requests.cpu_milli.or(out.requests.cpu_milli);
        out.requests.memory_bytes = own.requests.memory_bytes.or(out.requests.memory_bytes);
        out.limits.cpu_milli = own.limits.cpu_milli.or(out.limits.cpu_milli);
        out.limits.memory_bytes = own.limits.memory_bytes.or(out.limits.memory_bytes);
    }
    out
}

/// True when every container that counts has the limit.
pub(super) fn all_limited(spec: &PodSpec, f: &dyn Fn(&ContainerSpec) -> Option<i64>) -> bool {
    spec.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral).all(|c| f(c).is_some_and(|v| v > 0))
}

fn effective(spec: &PodSpec, f: &dyn Fn(&ContainerSpec) -> Option<i64>) -> Option<i64> {
    let mut steady: Option<i64> = None;
    let mut peak: Option<i64> = None;
    let mut sidecars = 0;
    let add = |sum: &mut Option<i64>, v: Option<i64>| {
        if let Some(v) = v {
            *sum = Some(sum.unwrap_or(0) + v);
        }
    };
    for container in &spec.containers {
        match container.kind {
            ContainerKind::Main => add(&mut steady, f(container)),
            ContainerKind::Sidecar => {
                add(&mut steady, f(container));
                sidecars += f(container).unwrap_or(0);
            }
            ContainerKind::Init => {
                if let Some(v) = f(container) {
                    peak = Some(peak.unwrap_or(0).max(v + sidecars));
                }
            }
            ContainerKind::Ephemeral => {}
        }
    }
    match (steady, peak) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    }
}

fn with_pod_limits(spec: &PodSpec, container: &ContainerSpec) -> ResourceRequirements {
    let mut own = container.resources.clone();
    if let Some(pod) = &spec.resources {
        own.limits.cpu_milli = own.limits.cpu_milli.or(pod.limits.cpu_milli);
        own.limits.memory_bytes = own.limits.memory_bytes.or(pod.limits.memory_bytes);
    }
    own
}

fn of_requirements(own: &ResourceRequirements, config: &NodeConfig) -> LinuxResources {
    let request = own.requests.cpu_milli.or(own.limits.cpu_milli).unwrap_or(0);
    let mut out = LinuxResources { cpu_shares: shares(request), ..LinuxResources::default() };
    if config.cpu_cfs_quota {
        out.cpu_period = config.cpu_cfs_period_us;
        out.cpu_quota = quota(own.limits.cpu_milli.unwrap_or(0), config.cpu_cfs_period_us);
    }
    out.memory_limit_bytes = own.limits.memory_bytes.unwrap_or(0);
    out
}

/// `hugepages-2Mi` is the runtime's `2MB`.
fn huge_limit(limits: &std::collections::BTreeMap<String, i64>, size: &str) -> u64 {
    let name = format!("hugepages-{}", size.replace("KB", "Ki").replace("MB", "Mi").replace("GB", "Gi"));
    limits.get(&name).and_then(|v| u64::try_from(*v).ok()).unwrap_or(0)
}

fn oom_score_adj(spec: &PodSpec, container: &ContainerSpec, machine: &Machine) -> i64 {
    if spec.priority >= NODE_CRITICAL || spec.qos == QosClass::Guaranteed {
        return -997;
    }
    if spec.qos == QosClass::BestEffort {
        return 1000;
    }
    let request = container.resources.requests.memory_bytes.unwrap_or(0);
    let adj = if machine.memory_bytes > 0 { 1000 - 1000 * request / machine.memory_bytes } else { 1000 };
    let adj = adj.clamp(3, 999);
    // A sidecar is not killed before the containers it serves.
    if container.kind == ContainerKind::Sidecar {
        let least = spec.containers.iter().filter(|c| c.kind == ContainerKind::Main);
        let least = least.map(|c| oom_score_adj(spec, c, machine)).min().unwrap_or(adj);
        return adj.min(least);
    }
    adj
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_quotas_follow_the_contract() {
        assert_eq!(shares(0), 2);
        assert_eq!(shares(1), 2);
        assert_eq!(shares(100), 102);
        assert_eq!(shares(1000), 1024);
        assert_eq!(quota(0, 100_000), 0);
        assert_eq!(quota(250, 100_000), 25_000);
        assert_eq!(quota(1, 100_000), 1000);
    }
}
