//! Pod cgroups: path and limits (contract 4).

use super::resources;
use components::edge::host::Cgroup;
use components::ids::ContainerId;
use components::node::cgroups::slices;
use components::node::{Machine, NodeConfig};
use components::spec::{PodSpec, QosClass};

/// What the sandbox is told as `cgroup_parent`: with the systemd driver the slice's full path.
pub(super) fn parent(config: &NodeConfig, systemd: bool, qos: QosClass, uid: &str) -> String {
    let path = config.pod_cgroup(qos, uid);
    if systemd { slices(&path) } else { path }
}

/// Where the runtime puts a container below the cgroup of its pod.
pub(super) fn of_container(pod: &str, systemd: bool, runtime: &str, id: &ContainerId) -> String {
    match (systemd, runtime) {
        (false, _) => format!("{pod}/{id}"),
        (true, "cri-o") => format!("{pod}/crio-{id}.scope"),
        (true, _) => format!("{pod}/cri-containerd-{id}.scope"),
    }
}

/// The pod's cgroup, where pods have one of their own that we make (cgroupfs driver).
pub(super) fn of_pod(spec: &PodSpec, config: &NodeConfig, machine: &Machine, systemd: bool) -> Option<Cgroup> {
    if !config.cgroups_per_qos || systemd {
        return None;
    }
    let all = resources::pod_requirements(spec);
    let mut cgroup = Cgroup { path: config.pod_cgroup(spec.qos, spec.uid.as_str()), ..Cgroup::default() };
    let request = all.requests.cpu_milli.or(all.limits.cpu_milli).unwrap_or(0);
    cgroup.cpu_shares = u64::try_from(resources::shares(request)).ok();
    let whole = |f: &dyn Fn(&components::spec::Resources) -> Option<i64>| {
        spec.qos == QosClass::Guaranteed || (spec.qos == QosClass::Burstable && resources::all_limited(spec, f))
    };
    if config.cpu_cfs_quota
        && whole(&|limits| limits.cpu_milli)
        && let Some(limit) = all.limits.cpu_milli
    {
        cgroup.cpu_period = u64::try_from(config.cpu_cfs_period_us).ok();
        cgroup.cpu_quota = Some(resources::quota(limit, config.cpu_cfs_period_us));
    }
    if whole(&|limits| limits.memory_bytes) {
        cgroup.memory_bytes = all.limits.memory_bytes;
    }
    if machine.cgroup_v2 {
        cgroup.unified = resources::memory_protection(spec.qos, &all, config);
    }
    cgroup.pids = config.pod_pids_limit;
    Some(cgroup)
}

/// What the pod as a whole may use of memory: the sum of its limits, when everything is limited.
pub(crate) fn memory_limit(spec: &PodSpec) -> Option<i64> {
    let whole = spec.qos == QosClass::Guaranteed
        || (spec.qos == QosClass::Burstable && resources::all_limited(spec, &|limits| limits.memory_bytes));
    resources::pod_requirements(spec).limits.memory_bytes.filter(|_| whole)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn a_pods_limits_need_every_containers() {
        let mut spec = fixtures::spec("always a b");
        let (node, machine) = (fixtures::node(), Machine::default());
        let of = |spec: &PodSpec| of_pod(spec, &node, &machine, false).unwrap();
        assert_eq!(
            of(&spec),
            Cgroup { path: "/kubepods/besteffort/poduid".into(), cpu_shares: Some(2), ..Cgroup::default() }
        );
        spec.qos = QosClass::Burstable;
        let a = &mut spec.containers[0].resources;
        (a.requests.cpu_milli, a.limits.cpu_milli, a.limits.memory_bytes) = (Some(100), Some(250), Some(64 << 20));
        let cgroup = of(&spec);
        assert_eq!((cgroup.path.as_str(), cgroup.cpu_shares), ("/kubepods/burstable/poduid", Some(102)));
        assert_eq!((cgroup.cpu_quota, cgroup.memory_bytes), (None, None));
        let b = &mut spec.containers[1].resources;
        (b.limits.cpu_milli, b.limits.memory_bytes) = (Some(250), Some(64 << 20));
        let cgroup = of(&spec);
        assert_eq!(
            (cgroup.cpu_quota, cgroup.cpu_period, cgroup.memory_bytes),
            (Some(50_000), Some(100_000), Some(128 << 20))
        );
        assert_eq!(of_pod(&spec, &node, &machine, true), None, "systemd makes slices");
    }
}
