//! Checks an effective configuration and names everything that is wrong with it.
//!
//! The rules are those the kubelet applies before and while it starts, so that what it would refuse later is refused
//! here, at once and with the field's name. Rules that need to look at the host are in `validate_host`.

mod node;
mod resources;
mod serving;

use std::fmt;
use std::net::IpAddr;

use crate::config::decode::{OneLine, quote};
use crate::config::gates::GateSet;
use crate::config::tree::{index, join};
use crate::config::types::KubeletConfiguration;
use crate::duration::GoDuration;

/// A field with a value that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field.
    pub path: String,
    /// What is wrong and what would be right, on one line.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", OneLine(&self.path), OneLine(&self.message))
    }
}

impl KubeletConfiguration {
    /// Everything that is wrong with the configuration itself.
    #[must_use]
    pub fn validate(&self) -> Vec<FieldError> {
        let (gates, gate_errors) = GateSet::from_map(&self.feature_gates);
        let mut check = Check { config: self, gates, errors: Vec::new() };
        for (gate, message) in gate_errors {
            check.fail(&join("featureGates", &gate), message);
        }
        serving::check(&mut check);
        node::check(&mut check);
        resources::check(&mut check);
        check.errors
    }

    /// What the kubelet starts with but ignores or cannot use.
    #[must_use]
    pub fn advice(&self) -> Vec<FieldError> {
        let mut check = Check { config: self, gates: GateSet::default(), errors: Vec::new() };
        for (i, server) in self.cluster_dns.iter().enumerate() {
            if server.parse::<IpAddr>().is_err() {
                check.fail(&index("clusterDNS", i), format!("{} is not an IP address, ignored", quote(server)));
            }
        }
        if !self.static_pod_url.is_empty() && !serving::is_web_address(&self.static_pod_url) {
            check.fail("staticPodURL", "is no http:// or https:// address, nothing will come from it".to_owned());
        }
        let (own, reserved) = (&self.kubelet_cgroups, &self.kube_reserved_cgroup);
        if !own.is_empty() && !reserved.is_empty() && !own.starts_with(reserved.as_str()) {
            check.fail("kubeletCgroups", "lies outside kubeReservedCgroup".to_owned());
        }
        check.errors
    }

    /// The DNS servers of the cluster, without those that are no IP address.
    #[must_use]
    pub fn cluster_dns_addresses(&self) -> Vec<IpAddr> {
        self.cluster_dns.iter().filter_map(|server| server.parse().ok()).collect()
    }

    /// What is wrong with the configuration on a host with this cgroup version.
    #[must_use]
    pub fn validate_host(&self, cgroup_v1: bool) -> Vec<FieldError> {
        let mut check = Check { config: self, gates: GateSet::default(), errors: Vec::new() };
        if cgroup_v1 && self.fail_cgroup_v1 {
            check.fail("failCgroupV1", "this host uses cgroup v1; set it to false to start all the same".to_owned());
        }
        if cgroup_v1 && self.single_process_oom_kill == Some(false) {
            check.fail("singleProcessOOMKill", "must not be false on a host with cgroup v1".to_owned());
        }
        check.errors
    }
}

/// A validation under way.
struct Check<'a> {
    config: &'a KubeletConfiguration,
    gates: GateSet,
    errors: Vec<FieldError>,
}

impl Check<'_> {
    fn fail(&mut self, path: &str, message: String) {
        self.errors.push(FieldError { path: path.to_owned(), message });
    }

    fn range(&mut self, path: &str, value: i64, min: i64, max: i64) {
        if !(min..=max).contains(&value) {
            self.fail(path, format!("{value} is out of range, want {min} to {max}"));
        }
    }

    fn at_least(&mut self, path: &str, value: i64, min: i64) {
        if value < min {
            self.fail(path, format!("{value} is too small, want at least {min}"));
        }
    }

    fn not_negative_time(&mut self, path: &str, value: GoDuration) {
        if value < GoDuration::ZERO {
            self.fail(path, format!("{value} must not be negative"));
        }
    }

    fn one_of(&mut self, path: &str, value: &str, choices: &[&str]) {
        if !choices.contains(&value) {
            self.fail(path, format!("{} is not known, want {}", quote(value), choices.join(", ")));
        }
    }

    fn needs_gate(&mut self, path: &str, gate: &str) {
        if !self.gates.enabled(gate) {
            self.fail(path, format!("needs the feature gate {gate}"));
        }
    }
}
