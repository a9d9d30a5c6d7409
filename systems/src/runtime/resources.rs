//! Requests and limits as the kernel's numbers (contract 3.4).

mod oom;

use components::edge::cri::LinuxResources;
use components::node::{Machine, NodeConfig};
use components::spec::{ContainerKind, ContainerSpec, PodSpec, QosClass, ResourceRequirements, Resources};
use std::collections::BTreeMap;

/// Smallest and largest `cpu.shares`.
const MIN_SHARES: i64 = 2;
const MAX_SHARES: i64 = 262_144;
/// Smallest CFS quota in microseconds.
const MIN_QUOTA: i64 = 1000;
/// Memory limits end at a page.
const PAGE: i64 = 4096;

/// `cpu.shares` of a request in thousandths of a core.
pub(crate) const fn shares(milli: i64) -> i64 {
    let shares = milli.saturating_mul(1024) / 1000;
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
    let quota = milli.saturating_mul(period) / 1000;
    if quota < MIN_QUOTA { MIN_QUOTA } else { quota }
}

/// Resources of one container.
pub(super) fn of_container(
    spec: &PodSpec,
    container: &ContainerSpec,
    config: &NodeConfig,
    machine: &Machine,
) -> LinuxResources {
    let own = with_pod_limits(spec, container);
    let mut out = of_requirements(&own, config, machine);
    out.oom_score_adj = oom::score_adj(spec, container, machine);
    out.hugepage_limits =
        machine.hugepage_sizes.iter().map(|size| (size.clone(), huge_limit(&own.limits.hugepages, size))).collect();
    if machine.cgroup_v2 {
        if machine.swap_controller {
            let swap = swap_limit(spec, &own, config, machine);
            out.unified.insert("memory.swap.max".to_owned(), swap.to_string());
        }
        out.unified.extend(memory_protection(spec.qos, &own, config));
    } else if machine.swap_controller {
        // Memory and swap together, so nothing is left for swap.
        out.memory_swap_limit_bytes = out.memory_limit_bytes;
    }
    out
}

/// Swap that a container may use, in bytes: with `LimitedSwap` a share of the node's as large as its share of the
/// memory, and only for containers whose memory may grow (KEP-2400).
fn swap_limit(spec: &PodSpec, own: &ResourceRequirements, config: &NodeConfig, machine: &Machine) -> i64 {
    let request = own.requests.memory_bytes.unwrap_or(0);
    let grows = request > 0 && own.limits.memory_bytes != Some(request);
    let may = config.limits.limited_swap && grows && spec.qos == QosClass::Burstable;
    if !may || crate::admission::is_critical(spec) || request > machine.memory_bytes {
        return 0;
    }
    let share = i128::from(request) * i128::from(machine.swap_bytes) / i128::from(machine.memory_bytes);
    i64::try_from(share).unwrap_or(0)
}

/// Sum over the pod, as the sandbox is told.
pub(super) fn of_pod(spec: &PodSpec, config: &NodeConfig, machine: &Machine) -> LinuxResources {
    of_requirements(&containers_together(spec), config, machine)
}

/// The runtime class's overhead, as the sandbox is told: nothing without one.
pub(super) fn of_overhead(spec: &PodSpec, config: &NodeConfig, machine: &Machine) -> LinuxResources {
    if spec.overhead == Resources::default() {
        return LinuxResources::default();
    }
    let fixed = ResourceRequirements { requests: spec.overhead.clone(), limits: spec.overhead.clone() };
    of_requirements(&fixed, config, machine)
}

/// Requests and limits of the pod as a whole, overhead included: a limit only where the pod has one.
pub(crate) fn pod_requirements(spec: &PodSpec) -> ResourceRequirements {
    let mut out = containers_together(spec);
    let add = |sum: &mut Option<i64>, more: Option<i64>, needed: bool| {
        if let Some(more) = more.filter(|_| !needed || sum.is_some_and(|value| value > 0)) {
            *sum = Some(sum.unwrap_or(0).saturating_add(more));
        }
    };
    add(&mut out.requests.cpu_milli, spec.overhead.cpu_milli, false);
    add(&mut out.requests.memory_bytes, spec.overhead.memory_bytes, false);
    add(&mut out.limits.cpu_milli, spec.overhead.cpu_milli, true);
    add(&mut out.limits.memory_bytes, spec.overhead.memory_bytes, true);
    out
}

/// Main containers and sidecars add up, an init container counts with the sidecars before it, the larger wins;
/// pod-level values replace both (`PodLevelResources`).
fn containers_together(spec: &PodSpec) -> ResourceRequirements {
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

/// True when the pod as a whole has the limit, or every container that counts has it.
pub(super) fn all_limited(spec: &PodSpec, f: &dyn Fn(&Resources) -> Option<i64>) -> bool {
    let set = |limits: &Resources| f(limits).is_some_and(|v| v > 0);
    let counts = |c: &&ContainerSpec| c.kind != ContainerKind::Ephemeral;
    spec.resources.as_ref().is_some_and(|own| set(&own.limits))
        || spec.containers.iter().filter(counts).all(|c| set(&c.resources.limits))
}

fn effective(spec: &PodSpec, f: &dyn Fn(&ContainerSpec) -> Option<i64>) -> Option<i64> {
    let mut steady: Option<i64> = None;
    let mut peak: Option<i64> = None;
    let mut sidecars = 0_i64;
    let add = |sum: &mut Option<i64>, v: Option<i64>| {
        if let Some(v) = v {
            *sum = Some(sum.unwrap_or(0).saturating_add(v));
        }
    };
    for container in &spec.containers {
        match container.kind {
            ContainerKind::Main => add(&mut steady, f(container)),
            ContainerKind::Sidecar => {
                add(&mut steady, f(container));
                sidecars = sidecars.saturating_add(f(container).unwrap_or(0));
            }
            ContainerKind::Init => {
                if let Some(v) = f(container) {
                    peak = Some(peak.unwrap_or(0).max(v.saturating_add(sidecars)));
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

/// A container without a limit of its own is bounded by the pod's.
pub(super) fn with_pod_limits(spec: &PodSpec, container: &ContainerSpec) -> ResourceRequirements {
    let mut own = container.resources.clone();
    if let Some(pod) = &spec.resources {
        own.limits.cpu_milli = own.limits.cpu_milli.or(pod.limits.cpu_milli);
        own.limits.memory_bytes = own.limits.memory_bytes.or(pod.limits.memory_bytes);
        for (name, limit) in &pod.limits.hugepages {
            own.limits.hugepages.entry(name.clone()).or_insert(*limit);
        }
    }
    own
}

fn of_requirements(own: &ResourceRequirements, config: &NodeConfig, machine: &Machine) -> LinuxResources {
    let request = own.requests.cpu_milli.or(own.limits.cpu_milli).unwrap_or(0);
    let mut out = LinuxResources { cpu_shares: shares(request), ..LinuxResources::default() };
    if config.cpu_cfs_quota {
        out.cpu_period = config.cpu_cfs_period_us;
        out.cpu_quota = quota(own.limits.cpu_milli.unwrap_or(0), config.cpu_cfs_period_us);
    }
    out.memory_limit_bytes = own.limits.memory_bytes.unwrap_or(0);
    if machine.cgroup_v2 && !config.single_process_oom_kill {
        out.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    out
}

/// Files of the unified hierarchy that protect what was requested and throttle before the limit (`MemoryQoS`).
pub(super) fn memory_protection(
    qos: QosClass,
    own: &ResourceRequirements,
    config: &NodeConfig,
) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let request = own.requests.memory_bytes.unwrap_or(0);
    let limit = own.limits.memory_bytes.unwrap_or(0);
    if config.limits.tiered_memory && request > 0 {
        match qos {
            QosClass::Guaranteed => files.insert("memory.min".to_owned(), request.to_string()),
            QosClass::Burstable => files.insert("memory.low".to_owned(), request.to_string()),
            QosClass::BestEffort => None,
        };
    }
    if let Some(factor) = config.limits.memory_throttling_factor.filter(|_| request != limit) {
        let most = if limit > 0 { limit } else { config.limits.allocatable_memory_bytes };
        let high = throttle(request, most, factor);
        if high > request {
            files.insert("memory.high".to_owned(), high.to_string());
        }
    }
    files
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the kubelet computes so too")]
fn throttle(request: i64, most: i64, factor: f64) -> i64 {
    let wanted = request as f64 + factor * (most as f64 - request as f64);
    (wanted / PAGE as f64).floor() as i64 * PAGE
}

/// `hugepages-2Mi` is the runtime's `2MB`.
fn huge_limit(limits: &BTreeMap<String, i64>, size: &str) -> u64 {
    let name = format!("hugepages-{}", size.replace("KB", "Ki").replace("MB", "Mi").replace("GB", "Gi"));
    limits.get(&name).and_then(|v| u64::try_from(*v).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
