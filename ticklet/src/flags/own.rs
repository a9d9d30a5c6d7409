//! The flags that have no field in the configuration, and the rules they must obey.

use std::collections::BTreeMap;
use std::net::IpAddr;

use components::config::{Problem, label_value_problem, qualified_name_problem, tree::Origin};
use components::duration::GoDuration;

/// The flags that have no field in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KubeletFlags {
    /// Used to ask for a client certificate when there is no kubeconfig yet.
    pub(crate) bootstrap_kubeconfig: String,
    /// Where certificates are kept.
    pub(crate) cert_dir: String,
    /// Empty or `external`.
    pub(crate) cloud_provider: String,
    /// The configuration file.
    pub(crate) config: String,
    /// The directory of drop-in files.
    pub(crate) config_dir: String,
    /// Whether to end when another process wants the lock.
    pub(crate) exit_on_lock_contention: bool,
    /// Whether allocatable ignores the hard eviction thresholds.
    pub(crate) ignore_eviction_in_allocatable: bool,
    /// A helper that mounts.
    pub(crate) mounter_path: String,
    /// The node's name, instead of the host's: trimmed and in lower case.
    pub(crate) hostname_override: String,
    /// Where credential plugins are.
    pub(crate) image_credential_provider_bin_dir: String,
    /// Which credential plugins there are.
    pub(crate) image_credential_provider_config: String,
    /// How to reach the API server; empty means standalone.
    pub(crate) kubeconfig: String,
    /// A file that only one kubelet holds.
    pub(crate) lock_file: String,
    /// Dead containers kept on the node; negative is no limit.
    pub(crate) maximum_dead_containers: i32,
    /// Dead containers kept for each container.
    pub(crate) maximum_dead_containers_per_container: i32,
    /// Age below which a dead container is kept.
    pub(crate) minimum_container_ttl_duration: GoDuration,
    /// The node's addresses as written.
    pub(crate) node_ip: String,
    /// Labels of a newly registered node.
    pub(crate) node_labels: BTreeMap<String, String>,
    /// The version told to the cluster, if not the real one.
    pub(crate) reported_version: Option<String>,
    /// Where the kubelet keeps its files.
    pub(crate) root_dir: String,
    /// The cgroup of the runtime, for its statistics.
    pub(crate) runtime_cgroups: String,
}

impl Default for KubeletFlags {
    fn default() -> Self {
        Self {
            bootstrap_kubeconfig: String::new(),
            cert_dir: "/var/lib/kubelet/pki".to_owned(),
            cloud_provider: String::new(),
            config: String::new(),
            config_dir: String::new(),
            exit_on_lock_contention: false,
            ignore_eviction_in_allocatable: false,
            mounter_path: String::new(),
            hostname_override: String::new(),
            image_credential_provider_bin_dir: String::new(),
            image_credential_provider_config: String::new(),
            kubeconfig: String::new(),
            lock_file: String::new(),
            maximum_dead_containers: -1,
            maximum_dead_containers_per_container: 1,
            minimum_container_ttl_duration: GoDuration::ZERO,
            node_ip: String::new(),
            node_labels: BTreeMap::new(),
            reported_version: None,
            root_dir: "/var/lib/kubelet".to_owned(),
            runtime_cgroups: String::new(),
        }
    }
}

impl KubeletFlags {
    /// The flags given that change nothing in this version.
    #[must_use]
    pub(crate) fn not_acted_on(&self) -> Vec<&'static str> {
        let usual = Self::default();
        let flags = [
            ("--exit-on-lock-contention", self.exit_on_lock_contention),
            ("--experimental-allocatable-ignore-eviction", self.ignore_eviction_in_allocatable),
            ("--experimental-mounter-path", self.mounter_path != usual.mounter_path),
            ("--lock-file", self.lock_file != usual.lock_file),
        ];
        flags.into_iter().filter_map(|(name, given)| given.then_some(name)).collect()
    }

    /// The addresses of `--node-ip`, and what in it is none and therefore ignored.
    #[must_use]
    pub(crate) fn node_ips(&self) -> (Vec<IpAddr>, Vec<String>) {
        let (mut addresses, mut others) = (Vec::new(), Vec::new());
        for piece in self.node_ip.split(',').map(str::trim).filter(|piece| !piece.is_empty()) {
            match piece.parse() {
                Ok(address) => addresses.push(address),
                Err(_) => others.push(piece.to_owned()),
            }
        }
        (addresses, others)
    }

    /// What is wrong with the flags.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut fail = |flag: &str, message: String| {
            problems.push(Problem { at: Origin::whole(flag), field: String::new(), message });
        };
        for (key, value) in &self.node_labels {
            if is_foreign_label(key) {
                let message = "a kubelet may not set this label in a kubernetes.io or k8s.io namespace";
                fail("--node-labels", format!("{key}: {message}"));
            }
            if let Some(problem) = qualified_name_problem(key).or_else(|| label_value_problem(value)) {
                fail("--node-labels", format!("{key}: {problem}"));
            }
        }
        if !matches!(self.cloud_provider.as_str(), "" | "external") {
            fail("--cloud-provider", format!("want nothing or external, got {:?}", self.cloud_provider));
        }
        let (config, dir) = (&self.image_credential_provider_config, &self.image_credential_provider_bin_dir);
        match (config.is_empty(), dir.is_empty()) {
            (false, true) => fail(
                "--image-credential-provider-config",
                "must be set together with --image-credential-provider-bin-dir".to_owned(),
            ),
            (true, false) => fail(
                "--image-credential-provider-bin-dir",
                "must be set together with --image-credential-provider-config".to_owned(),
            ),
            _ => {}
        }
        if !fits_node_ips(&self.node_ips().0) {
            fail("--node-ip", format!("want one address or one of each IP family, got {:?}", self.node_ip));
        }
        if self.exit_on_lock_contention && self.lock_file.is_empty() {
            fail("--exit-on-lock-contention", "needs --lock-file".to_owned());
        }
        problems
    }
}

fn fits_node_ips(addresses: &[IpAddr]) -> bool {
    match addresses {
        [] | [_] => true,
        [a, b] => a.is_ipv4() != b.is_ipv4() && !a.is_unspecified() && !b.is_unspecified(),
        _ => false,
    }
}

/// Whether a label lies in Kubernetes' own namespaces and is not one that kubelets set.
fn is_foreign_label(key: &str) -> bool {
    const OWN: [&str; 11] = [
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
    let within = |parents: [&str; 2]| {
        let inside = |parent: &str| namespace.strip_suffix(parent).is_some_and(|head| head.ends_with('.'));
        parents.iter().any(|parent| namespace == *parent || inside(parent))
    };
    within(["kubernetes.io", "k8s.io"])
        && !within(["kubelet.kubernetes.io", "node.kubernetes.io"])
        && !OWN.contains(&key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_that_kubelets_may_set() {
        for own in ["a", "example.com/a", "node.kubernetes.io/a", "x.kubelet.kubernetes.io/a", "kubernetes.io/os"] {
            assert!(!is_foreign_label(own), "{own}");
        }
        for foreign in ["kubernetes.io/a", "node-role.kubernetes.io/x", "k8s.io/a", "a.k8s.io/b"] {
            assert!(is_foreign_label(foreign), "{foreign}");
        }
    }

    #[test]
    fn addresses() {
        let flags = KubeletFlags { node_ip: " 10.0.0.1, fe80::1,x".into(), ..Default::default() };
        assert_eq!((flags.node_ips().0.len(), flags.node_ips().1), (2, vec!["x".to_owned()]));
    }

    #[test]
    fn idle_flags_are_named() {
        assert_eq!(KubeletFlags::default().not_acted_on(), [""; 0]);
        let flags = KubeletFlags { lock_file: "/l".into(), root_dir: "/r".into(), ..Default::default() };
        assert_eq!(flags.not_acted_on(), ["--lock-file"]);
    }
}
