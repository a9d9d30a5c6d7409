//! The hosts file that a pod's containers see (contract 3.7).

use components::node::Machine;
use components::spec::PodSpec;
use std::fmt::Write;

/// Content for a pod with these addresses; `fqdn` and `hostname` name the pod itself.
pub(super) fn content(spec: &PodSpec, machine: &Machine, ips: &[String], hostname: &str, fqdn: &str) -> String {
    let mut text = String::new();
    if spec.host_network {
        text.push_str("# Kubernetes-managed hosts file (host network).\n");
        text.push_str(&machine.etc_hosts);
    } else {
        text.push_str("# Kubernetes-managed hosts file.\n");
        text.push_str("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\n");
        text.push_str("fe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n");
        for ip in ips {
            let own = if fqdn.is_empty() { hostname.to_owned() } else { format!("{fqdn}\t{hostname}") };
            // Writing into a String cannot fail.
            let _ = writeln!(text, "{ip}\t{own}");
        }
    }
    if !spec.host_aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
        for (ip, names) in &spec.host_aliases {
            let _ = writeln!(text, "{ip}\t{}", names.join("\t"));
        }
    }
    text
}

/// Host name of a pod and, where it has a subdomain, its fully qualified name (contract 3.1).
pub(super) fn names(spec: &PodSpec, cluster_domain: &str) -> (String, String) {
    let hostname = cut(&spec.hostname);
    if spec.subdomain.is_empty() {
        return (hostname, String::new());
    }
    let mut fqdn = format!("{hostname}.{}.{}.svc", spec.subdomain, spec.namespace);
    if !cluster_domain.is_empty() {
        fqdn = format!("{fqdn}.{cluster_domain}");
    }
    (hostname, fqdn)
}

/// At most 63 characters, not ending in `-` or `.`.
fn cut(name: &str) -> String {
    let cut: String = name.chars().take(63).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_host_names_are_cut_and_end_well() {
        assert_eq!(cut("web"), "web");
        assert_eq!(cut(&format!("{}-x", "a".repeat(62))), "a".repeat(62));
    }
}
