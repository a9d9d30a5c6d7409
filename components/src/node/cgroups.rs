//! Where the cgroups of pods lie (contract 4), for those that make them and those that read them.

use super::NodeConfig;
use crate::spec::QosClass;

/// The cgroup of all pods, below the configured root.
const PODS: &str = "kubepods";

impl NodeConfig {
    /// cgroupfs path of the cgroup of all pods; `None` when `cgroupsPerQOS` is off.
    #[must_use]
    pub fn pods_cgroup(&self) -> Option<String> {
        self.cgroups_per_qos.then(|| format!("{}/{PODS}", self.cgroup_root.trim_end_matches('/')))
    }

    /// cgroupfs path of a pod's cgroup; that of `cgroupRoot` when `cgroupsPerQOS` is off, as pods then live there.
    #[must_use]
    pub fn pod_cgroup(&self, qos: QosClass, uid: &str) -> String {
        let Some(pods) = self.pods_cgroup() else { return self.cgroup_root.trim_end_matches('/').to_owned() };
        let class = match qos {
            QosClass::Guaranteed => "",
            QosClass::Burstable => "/burstable",
            QosClass::BestEffort => "/besteffort",
        };
        format!("{pods}{class}/pod{uid}")
    }
}

/// `/kubepods/burstable/podA-B` as `/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podA_B.slice`.
#[must_use]
pub fn slices(path: &str) -> String {
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

    #[test]
    fn guaranteed_pods_lie_beside_the_two_classes() {
        let mut config = NodeConfig { cgroup_root: "/lab/".to_owned(), ..NodeConfig::default() };
        assert_eq!(config.pod_cgroup(QosClass::Guaranteed, "u"), "/lab/kubepods/podu");
        assert_eq!(config.pod_cgroup(QosClass::BestEffort, "u"), "/lab/kubepods/besteffort/podu");
        config.cgroups_per_qos = false;
        assert_eq!((config.pod_cgroup(QosClass::Burstable, "u"), config.pods_cgroup()), ("/lab".to_owned(), None));
    }
}
