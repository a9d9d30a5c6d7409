//! The hosts file that a pod's containers see (contract 3.7).

use components::node::Machine;
use components::spec::PodSpec;
use std::fmt::Write;

/// Longest host name.
const MAX_NAME: usize = 63;
/// Longest name that the kernel takes.
const MAX_KERNEL_NAME: usize = 64;

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
    // Without a cluster domain the name ends in a dot, as the Go kubelet has it.
    let fqdn = format!("{hostname}.{}.{}.svc.{cluster_domain}", spec.subdomain, spec.namespace);
    (hostname, fqdn)
}

/// What the kernel of the pod is told to be called: nothing in the node's network.
///
/// # Errors
/// When the full name is wanted and longer than the kernel takes.
pub(super) fn kernel_name(spec: &PodSpec, cluster_domain: &str) -> Result<String, String> {
    let (hostname, fqdn) = names(spec, cluster_domain);
    if spec.host_network {
        return Ok(String::new());
    }
    if !spec.hostname_as_fqdn || fqdn.is_empty() {
        return Ok(hostname);
    }
    if fqdn.len() > MAX_KERNEL_NAME {
        return Err(format!(
            "failed to construct FQDN from pod hostname and cluster domain, FQDN {fqdn} is too long ({MAX_KERNEL_NAME} \
             characters is the max, {} characters requested)",
            fqdn.len()
        ));
    }
    Ok(fqdn)
}

/// At most 63 characters; one that is cut does not end in `-` or `.`.
fn cut(name: &str) -> String {
    if name.len() <= MAX_NAME {
        return name.to_owned();
    }
    let cut: String = name.chars().take(MAX_NAME).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn long_host_names_are_cut_and_end_well() {
        assert_eq!(cut("web"), "web");
        assert_eq!(cut(&format!("{}-x", "a".repeat(62))), "a".repeat(62));
    }

    fn spec(hostname: &str, subdomain: &str) -> PodSpec {
        let mut spec = fixtures::spec("always a");
        hostname.clone_into(&mut spec.hostname);
        subdomain.clone_into(&mut spec.subdomain);
        spec
    }

    #[test]
    fn the_kernel_gets_the_short_name_unless_the_pod_asks() {
        let mut web = spec("web", "sub");
        assert_eq!(names(&web, "cluster.local").1, "web.sub.default.svc.cluster.local");
        assert_eq!(names(&web, "").1, "web.sub.default.svc.");
        assert_eq!(kernel_name(&web, "cluster.local"), Ok("web".to_owned()));
        web.hostname_as_fqdn = true;
        assert_eq!(kernel_name(&web, "cluster.local"), Ok("web.sub.default.svc.cluster.local".to_owned()));
        assert_eq!(kernel_name(&web, &"d".repeat(44)).map(|name| name.len()), Ok(64));
        let error = kernel_name(&web, &"d".repeat(45)).unwrap_err();
        assert!(error.ends_with("is too long (64 characters is the max, 65 characters requested)"), "{error}");
        web.subdomain.clear();
        assert_eq!(kernel_name(&web, "cluster.local"), Ok("web".to_owned()));
        web.host_network = true;
        assert_eq!(kernel_name(&web, "cluster.local"), Ok(String::new()));
    }

    #[test]
    fn the_file_names_the_pod_and_its_aliases() {
        let mut web = spec("web", "sub");
        web.host_aliases = vec![("10.9.9.9".into(), vec!["a.example".into(), "b".into()])];
        let machine = Machine { etc_hosts: "127.0.0.1 node\n".into(), ..Machine::default() };
        let ips = ["10.0.0.7".to_owned(), "fd00::7".to_owned()];
        let (name, fqdn) = names(&web, "c.l");
        let aliases = "\n# Entries added by HostAliases.\n10.9.9.9\ta.example\tb\n";
        let text = content(&web, &machine, &ips, &name, &fqdn);
        let own = "10.0.0.7\tweb.sub.default.svc.c.l\tweb\nfd00::7\tweb.sub.default.svc.c.l\tweb\n";
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"), "{text}");
        assert!(text.ends_with(&format!("fe00::2\tip6-allrouters\n{own}{aliases}")), "{text}");
        let text = content(&web, &machine, &ips, "web", "");
        assert!(text.contains("\n10.0.0.7\tweb\nfd00::7\tweb\n"), "{text}");
        web.host_network = true;
        let text = content(&web, &machine, &ips, &name, &fqdn);
        assert_eq!(text, format!("# Kubernetes-managed hosts file (host network).\n127.0.0.1 node\n{aliases}"));
    }
}
