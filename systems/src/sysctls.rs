//! Sysctls of pods: which a pod may set, and what its sandbox is given.
//!
//! A sysctl may be set where it belongs to a namespace of the pod's own and is known to be safe, or the node allows it.
//! Reads only its arguments.

use components::spec::PodSpec;
use std::collections::BTreeMap;

/// What every pod may set. The kernels on which some of them are not namespaced are older than any we run on.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// The namespace that a sysctl belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Namespace {
    Ipc,
    Net,
    Uts,
    User,
}

/// Names and beginnings of names, with their namespace.
const NAMESPACED: [(&str, Namespace); 8] = [
    ("kernel.sem", Namespace::Ipc),
    ("kernel.shm", Namespace::Ipc),
    ("kernel.msg", Namespace::Ipc),
    ("fs.mqueue.", Namespace::Ipc),
    ("net.", Namespace::Net),
    ("kernel.domainname", Namespace::Uts),
    ("kernel.hostname", Namespace::Uts),
    ("user.", Namespace::User),
];

fn namespace(name: &str) -> Option<Namespace> {
    NAMESPACED.iter().find(|(begin, _)| name.starts_with(begin)).map(|(_, namespace)| *namespace)
}

/// Whether the pod shares this namespace with the node.
fn shares(spec: &PodSpec, namespace: Namespace) -> bool {
    match namespace {
        Namespace::Ipc => spec.host_ipc,
        Namespace::Net | Namespace::Uts => spec.host_network,
        Namespace::User => spec.host_users,
    }
}

/// Why the pod may not run here: the text of `SysctlForbidden`. `allowed` are names and beginnings that end in `*`.
pub(crate) fn refusal(spec: &PodSpec, allowed: &[String]) -> Option<String> {
    spec.security.sysctls.keys().find_map(|name| {
        let shared = match namespace(name) {
            Some(Namespace::Ipc) if spec.host_ipc => Some("ipc"),
            Some(Namespace::Net) if spec.host_network => Some("net"),
            _ => None,
        };
        let fits = |pattern: &String| match pattern.strip_suffix('*') {
            Some(begin) => name.starts_with(begin),
            None => name == pattern,
        };
        if !SAFE.contains(&name.as_str()) && !allowed.iter().any(fits) {
            return Some(format!("forbidden sysctl: {name:?} not allowlisted"));
        }
        shared.map(|what| format!("forbidden sysctl: {name:?} not allowed with host {what} enabled"))
    })
}

/// What the sandbox is given: the node's defaults that cannot reach the node itself, then the pod's own.
pub(crate) fn of_pod(spec: &PodSpec, defaults: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let harmless = |name: &str| namespace(name).is_some_and(|namespace| !shares(spec, namespace));
    let mut out: BTreeMap<String, String> =
        defaults.iter().filter(|(name, _)| harmless(name)).map(|(n, v)| (n.clone(), v.clone())).collect();
    out.extend(spec.security.sysctls.clone());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[track_caller]
    fn check(sysctl: &str, host: bool, allowed: &str, expect: Option<&str>) {
        let mut spec = fixtures::spec("always a");
        spec.security.sysctls.insert(sysctl.to_owned(), "1".to_owned());
        (spec.host_ipc, spec.host_network) = (host, host);
        let allowed: Vec<String> = allowed.split_whitespace().map(str::to_owned).collect();
        assert_eq!(refusal(&spec, &allowed).as_deref(), expect);
    }

    #[test]
    fn only_safe_or_allowed_ones_are_set() {
        check("net.ipv4.tcp_syncookies", false, "", None);
        check("kernel.shm_rmid_forced", false, "", None);
        check("net.core.somaxconn", false, "", Some("forbidden sysctl: \"net.core.somaxconn\" not allowlisted"));
        check("net.core.somaxconn", false, "net.core.*", None);
        check("net.core.somaxconn", false, "net.core.somaxconn", None);
        check(
            "net.core.somaxconn2",
            false,
            "net.core.somaxconn",
            Some("forbidden sysctl: \"net.core.somaxconn2\" not allowlisted"),
        );
        check("vm.swappiness", false, "kernel.msg*", Some("forbidden sysctl: \"vm.swappiness\" not allowlisted"));
    }

    #[test]
    fn the_nodes_own_namespaces_are_out_of_reach() {
        let net = "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled";
        check("net.ipv4.tcp_syncookies", true, "", Some(net));
        let ipc = "forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host ipc enabled";
        check("kernel.shm_rmid_forced", true, "", Some(ipc));
    }

    #[test]
    fn defaults_reach_only_namespaces_of_the_pod() {
        let defaults: BTreeMap<String, String> =
            [("net.core.somaxconn", "9"), ("kernel.msgmax", "9"), ("user.max_net_namespaces", "9"), ("vm.x", "9")]
                .map(|(n, v)| (n.to_owned(), v.to_owned()))
                .into();
        let names = |spec: &PodSpec| of_pod(spec, &defaults).into_keys().collect::<Vec<_>>().join(" ");
        let mut spec = fixtures::spec("always a");
        assert_eq!(names(&spec), "kernel.msgmax net.core.somaxconn");
        spec.host_users = false;
        assert_eq!(names(&spec), "kernel.msgmax net.core.somaxconn user.max_net_namespaces");
        (spec.host_users, spec.host_network, spec.host_ipc) = (true, true, false);
        assert_eq!(names(&spec), "kernel.msgmax");
        spec.host_ipc = true;
        assert_eq!(names(&spec), "");
        spec.security.sysctls.insert("net.core.somaxconn".into(), "1".into());
        spec.host_network = false;
        assert_eq!(of_pod(&spec, &defaults).get("net.core.somaxconn").map(String::as_str), Some("1"));
    }
}
