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
    let mut dns = if spec.dns_policy == DnsPolicy::None {
        DnsConfig::default()
    } else if of_cluster(spec) && !config.cluster_dns.is_empty() {
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

const fn of_cluster(spec: &PodSpec) -> bool {
    match spec.dns_policy {
        DnsPolicy::ClusterFirst => !spec.host_network,
        DnsPolicy::ClusterFirstWithHostNet => true,
        DnsPolicy::Default | DnsPolicy::None => false,
    }
}

/// What is told of a pod that wants the cluster's name servers on a node that knows none.
pub(super) fn missing(spec: &PodSpec, config: &NodeConfig) -> Option<String> {
    (of_cluster(spec) && config.cluster_dns.is_empty()).then(|| {
        let pod = spec.described();
        format!(
            "pod: {pod:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod using \"ClusterFirst\" policy. \
             Falling back to \"Default\" policy."
        )
    })
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

/// The node's own, or this machine when the node has none.
fn host(machine: &Machine) -> DnsConfig {
    machine.resolver.clone().unwrap_or_else(|| {
        let local = |ip: &String| if ip.contains(':') { "::1".to_owned() } else { "127.0.0.1".to_owned() };
        let mut servers: Vec<String> = machine.node_ips.iter().map(local).collect();
        if servers.is_empty() {
            servers.push("127.0.0.1".to_owned());
        }
        DnsConfig { servers, searches: vec![".".to_owned()], options: Vec::new() }
    })
}

fn append(list: &mut Vec<String>, more: &[String]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Options are merged by name (`name` or `name:value`); the pod's win, and of these the last.
fn merge_options(options: &mut Vec<String>, own: &[String]) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    for new in own {
        options.retain(|old| name(new) != name(old));
        options.push(new.clone());
    }
}

/// Cuts what a resolver would not read: domains past the 32nd first, then those that are too long, then from the end
/// of the line. True when something was cut.
fn limit(dns: &mut DnsConfig) -> bool {
    let before = (dns.servers.len(), dns.searches.len());
    dns.servers.truncate(MAX_SERVERS);
    dns.searches.truncate(MAX_SEARCHES);
    dns.searches.retain(|domain| domain.len() <= MAX_DOMAIN_CHARS);
    while dns.searches.join(" ").len() > MAX_SEARCH_CHARS {
        dns.searches.pop();
    }
    before != (dns.servers.len(), dns.searches.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn machine(resolver: Option<(&str, &str, &str)>) -> Machine {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
        let resolver = resolver.map(|(servers, searches, options)| DnsConfig {
            servers: words(servers),
            searches: words(searches),
            options: words(options),
        });
        Machine { resolver, node_ips: vec!["10.0.0.1".into(), "fd00::1".into()], ..Machine::default() }
    }

    #[track_caller]
    fn check(policy: DnsPolicy, host_network: bool, cluster_dns: &str, own: Option<DnsConfig>, expect: &str) {
        let mut spec = fixtures::spec("always a");
        (spec.dns_policy, spec.host_network, spec.dns_config) = (policy, host_network, own);
        let mut node = fixtures::node();
        node.cluster_dns = cluster_dns.split_whitespace().map(str::to_owned).collect();
        "cluster.local".clone_into(&mut node.cluster_domain);
        let host = machine(Some(("1.1.1.1 8.8.8.8", "corp.example cluster.local", "edns0")));
        let (dns, _) = config(&spec, &node, &host);
        assert_eq!(shown(&dns), expect);
    }

    fn shown(dns: &DnsConfig) -> String {
        format!("{} | {} | {}", dns.servers.join(" "), dns.searches.join(" "), dns.options.join(" "))
    }

    #[test]
    fn each_policy_starts_from_its_own_base() {
        let cluster = "10.96.0.10 | default.svc.cluster.local svc.cluster.local cluster.local corp.example | ndots:5";
        let host = "1.1.1.1 8.8.8.8 | corp.example cluster.local | edns0";
        check(DnsPolicy::ClusterFirst, false, "10.96.0.10", None, cluster);
        check(DnsPolicy::ClusterFirst, true, "10.96.0.10", None, host);
        check(DnsPolicy::ClusterFirstWithHostNet, true, "10.96.0.10", None, cluster);
        check(DnsPolicy::ClusterFirst, false, "", None, host);
        check(DnsPolicy::Default, false, "10.96.0.10", None, host);
        check(DnsPolicy::None, false, "10.96.0.10", None, " |  | ");
    }

    #[test]
    fn a_node_without_name_servers_is_told_of() {
        let told = |policy, servers: &[&str]| {
            let mut spec = fixtures::spec("always a");
            spec.dns_policy = policy;
            let config =
                NodeConfig { cluster_dns: servers.iter().map(|s| (*s).to_owned()).collect(), ..NodeConfig::default() };
            missing(&spec, &config)
        };
        assert!(told(DnsPolicy::ClusterFirst, &[]).is_some_and(|text| text.starts_with("pod: \"pod_default(")));
        assert_eq!(told(DnsPolicy::ClusterFirst, &["10.96.0.10"]), None);
        assert_eq!(told(DnsPolicy::Default, &[]), None);
    }

    #[test]
    fn the_pods_own_configuration_is_added() {
        let own = || {
            Some(DnsConfig {
                servers: vec!["9.9.9.9".into(), "1.1.1.1".into()],
                searches: vec!["corp.example".into(), "own.example".into()],
                options: vec!["ndots:2".into(), "edns0".into()],
            })
        };
        let none = "9.9.9.9 1.1.1.1 | corp.example own.example | ndots:2 edns0";
        check(DnsPolicy::None, false, "", own(), none);
        let host = "1.1.1.1 8.8.8.8 9.9.9.9 | corp.example cluster.local own.example | ndots:2 edns0";
        check(DnsPolicy::Default, false, "", own(), host);
        let cluster = "10.96.0.10 9.9.9.9 1.1.1.1 | default.svc.cluster.local svc.cluster.local cluster.local \
                       corp.example own.example | ndots:2 edns0";
        check(DnsPolicy::ClusterFirst, false, "10.96.0.10", own(), cluster);
    }

    #[test]
    fn without_a_resolver_file_pods_ask_their_own_machine() {
        assert_eq!(shown(&host(&machine(None))), "127.0.0.1 ::1 | . | ");
        assert_eq!(shown(&host(&Machine::default())), "127.0.0.1 | . | ");
    }

    #[test]
    fn options_merge_by_name_and_the_pods_win() {
        let mut options = vec!["ndots:5".to_owned(), "edns0".to_owned()];
        merge_options(&mut options, &["ndots:2".to_owned(), "ndots:3".to_owned()]);
        assert_eq!(options, ["edns0", "ndots:3"]);
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
        // The 33rd is cut before the overlong first one is.
        dns.searches = std::iter::once("a".repeat(254)).chain((1..40).map(|n| format!("d{n}"))).collect();
        assert!(limit(&mut dns));
        assert_eq!((dns.searches.len(), dns.searches.last().map(String::as_str)), (31, Some("d31")));
        dns.searches = (0..9).map(|n| format!("{n}{}", "x".repeat(252))).collect();
        assert!(limit(&mut dns));
        assert_eq!(dns.searches.len(), 8);
        assert!(!limit(&mut dns));
    }
}
