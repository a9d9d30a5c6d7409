//! Pod cgroups: path and limits (contract 4).

use super::resources;
use components::edge::host::Cgroup;
use components::node::NodeConfig;
use components::spec::{PodSpec, QosClass};

/// cgroupfs path of a pod's cgroup; empty when `cgroupsPerQOS` is off (pods then live in `cgroupRoot`).
pub(super) fn path(config: &NodeConfig, qos: QosClass, uid: &str) -> String {
    let root = config.cgroup_root.trim_end_matches('/');
    if !config.cgroups_per_qos {
        return root.to_owned();
    }
    let class = match qos {
        QosClass::Guaranteed => "",
        QosClass::Burstable => "/burstable",
        QosClass::BestEffort => "/besteffort",
    };
    format!("{root}/kubepods{class}/pod{uid}")
}

/// What the sandbox is told as `cgroup_parent`: with the systemd driver the slice's full path.
pub(super) fn parent(config: &NodeConfig, systemd: bool, qos: QosClass, uid: &str) -> String {
    let path = path(config, qos, uid);
    if systemd { slices(&path) } else { path }
}

/// `/kubepods/burstable/podA-B` as `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podA_B.slice`.
fn slices(path: &str) -> String {
    let mut prefix = String::new();
    let mut out = String::new();
    for part in path.split('/').filter(|p| !p.is_empty()) {
        if !prefix.is_empty() {
            prefix.push('-');
        }
        prefix.push_str(&part.replace('-', "_"));
        out.push('/');
        out.push_str(&prefix);
        out.push_str(".slice");
    }
    out
}

/// The pod's cgroup, where pods have one of their own that we make (cgroupfs driver).
pub(super) fn of_pod(spec: &PodSpec, config: &NodeConfig, systemd: bool) -> Option<Cgroup> {
    if !config.cgroups_per_qos || systemd {
        return None;
    }
    let all = resources::pod_requirements(spec);
    let mut cgroup = Cgroup { path: path(config, spec.qos, spec.uid.as_str()), ..Cgroup::default() };
    let request = all.requests.cpu_milli.or(all.limits.cpu_milli).unwrap_or(0);
    cgroup.cpu_shares = u64::try_from(resources::shares(request)).ok();
    let whole = |f: &dyn Fn(&components::spec::ContainerSpec) -> Option<i64>| {
        spec.qos == QosClass::Guaranteed || resources::all_limited(spec, f)
    };
    if config.cpu_cfs_quota
        && whole(&|c| c.resources.limits.cpu_milli)
        && let Some(limit) = all.limits.cpu_milli
    {
        cgroup.cpu_period = u64::try_from(config.cpu_cfs_period_us).ok();
        cgroup.cpu_quota = Some(resources::quota(limit, config.cpu_cfs_period_us));
    }
    if whole(&|c| c.resources.limits.memory_bytes) {
        cgroup.memory_bytes = all.limits.memory_bytes;
    }
    cgroup.pids = config.pod_pids_limit;
    Some(cgroup)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_repeat_their_prefix() {
        assert_eq!(
            slices("/kubelet/kubepods/burstable/pod1-2"),
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1_2.slice"
        );
    }
}
