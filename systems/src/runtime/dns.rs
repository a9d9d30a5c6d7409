//! DNS configuration of a pod (contract 3.5).

use components::edge::cri::DnsConfig;
use components::node::{Machine, NodeConfig};
use components::spec::{DnsPolicy, PodSpec};

/// Most name servers a resolver reads.
const MAX_SERVERS: usize = 3;
/// Most search domains.
const MAX_SEARCHES: usize = 32;
/// Most characters of the search line.
const MAX_SEARCH_CHARS: usize = 2048;
/// Longest search domain.
const MAX_DOMAIN_CHARS: usize = 253;

/// What the sandbox is given, and whether something had to be left out.
pub(super) fn config(spec: &PodSpec, config: &NodeConfig, machine: &Machine) -> (DnsConfig, bool) {
    let cluster = match spec.dns_policy {
        DnsPolicy::ClusterFirst => !spec.host_network,
        DnsPolicy::ClusterFirstWithHostNet => true,
        DnsPolicy::Default | DnsPolicy::None => false,
    };
    let mut dns = if spec.dns_policy == DnsPolicy::None {
        DnsConfig::default()
    } else if cluster && !config.cluster_dns.is_empty() {
        cluster_first(spec, config, machine)
    } else {
        host(machine)
    };
    if let Some(own) = &spec.dns_config {
        append(&mut dns.servers, &own.servers);
        append(&mut dns.searches, &own.searches);
        merge_options(&mut dns.options, &own.options);
    }
    let cut = limit(&mut dns);
    (dns, cut)
}

fn cluster_first(spec: &PodSpec, config: &NodeConfig, machine: &Machine) -> DnsConfig {
    let mut searches = Vec::new();
    if !config.cluster_domain.is_empty() {
        let domain = &config.cluster_domain;
        searches = vec![format!("{}.svc.{domain}", spec.namespace), format!("svc.{domain}"), domain.clone()];
    }
    append(&mut searches, &machine.resolver.as_ref().map(|r| r.searches.clone()).unwrap_or_default());
    DnsConfig { servers: config.cluster_dns.clone(), searches, options: vec!["ndots:5".to_owned()] }
}

fn host(machine: &Machine) -> DnsConfig {
    machine.resolver.clone().unwrap_or_else(|| {
        let v6 = machine.node_ips.first().is_some_and(|ip| ip.contains(':'));
        let server = if v6 { "::1" } else { "127.0.0.1" };
        DnsConfig { servers: vec![server.to_owned()], searches: vec![".".to_owned()], options: Vec::new() }
    })
}

fn append(list: &mut Vec<String>, more: &[String]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Options are merged by name (`name` or `name:value`); the pod's win.
fn merge_options(options: &mut Vec<String>, own: &[String]) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    options.retain(|old| !own.iter().any(|new| name(new) == name(old)));
    options.extend(own.iter().cloned());
}

fn limit(dns: &mut DnsConfig) -> bool {
    let before = (dns.servers.len(), dns.searches.len());
    dns.servers.truncate(MAX_SERVERS);
    dns.searches.retain(|domain| domain.len() <= MAX_DOMAIN_CHARS);
    dns.searches.truncate(MAX_SEARCHES);
    while dns.searches.join(" ").len() > MAX_SEARCH_CHARS {
        dns.searches.pop();
    }
    before != (dns.servers.len(), dns.searches.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_merge_by_name_and_the_pods_win() {
        let mut options = vec!["ndots:5".to_owned(), "edns0".to_owned()];
        merge_options(&mut options, &["ndots:2".to_owned()]);
        assert_eq!(options, ["edns0", "ndots:2"]);
    }

    #[test]
    fn a_resolver_is_not_given_more_than_it_reads() {
        let mut dns = DnsConfig {
            servers: (0..5).map(|n| format!("10.0.0.{n}")).collect(),
            searches: vec!["a".repeat(254), "ok".to_owned()],
            options: Vec::new(),
        };
        assert!(limit(&mut dns));
        assert_eq!(dns.servers.len(), 3);
        assert_eq!(dns.searches, ["ok"]);
    }
}
