//! The address by which this node is known when none is configured: that of the default route's interface.

use super::super::HostError;
use components::edge::FailureClass;
use nix::ifaddrs::getifaddrs;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Route flag of the kernel: usable.
const RTF_UP: u32 = 1;

/// The node's address, of the wanted family first. A node without a default route (a laptop in a train) still has an
/// address of some interface, at last the loopback's.
pub(super) fn of_this_node(v6_first: bool) -> Result<IpAddr, HostError> {
    let addresses = interface_addresses()?;
    // A family that is switched off has no table.
    let table = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let v4 = pick(&default_v4(&table("/proc/net/route")), &addresses, false);
    let v6 = pick(&default_v6(&table("/proc/net/ipv6_route")), &addresses, true);
    let routed = if v6_first { v6.or(v4) } else { v4.or(v6) };
    let any = || addresses.iter().map(|(_, address)| *address).find(is_global);
    Ok(routed.or_else(any).unwrap_or_else(|| {
        tracing::warn!("No interface has a global address; the node uses the loopback address");
        IpAddr::V4(Ipv4Addr::LOCALHOST)
    }))
}

fn interface_addresses() -> Result<Vec<(String, IpAddr)>, HostError> {
    let found = getifaddrs()
        .map_err(|errno| HostError::new(FailureClass::Other, format!("list interfaces: {}", errno.desc())))?;
    Ok(found
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            let v6 = || address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip()));
            Some((interface.interface_name, v4.or_else(v6)?))
        })
        .collect())
}

/// The first global address of the family on the first interface that has one.
fn pick(interfaces: &[String], addresses: &[(String, IpAddr)], v6: bool) -> Option<IpAddr> {
    interfaces.iter().find_map(|name| {
        let own = addresses.iter().filter(|(interface, _)| interface == name).map(|(_, address)| *address);
        own.filter(|address| address.is_ipv6() == v6).find(is_global)
    })
}

fn is_global(address: &IpAddr) -> bool {
    let local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    !(local || address.is_loopback() || address.is_unspecified() || address.is_multicast())
}

/// Interfaces with a default route in `/proc/net/route`, best metric first.
fn default_v4(text: &str) -> Vec<String> {
    let routes = text.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [name, destination, _, flags, _, _, metric, mask, ..] = fields[..] else {
            return None;
        };
        let usable = hex(flags)? & RTF_UP != 0 && hex(destination)? == 0 && hex(mask)? == 0;
        usable.then_some((metric.parse().ok()?, name.to_owned()))
    });
    by_metric(routes.collect())
}

/// Interfaces with a default route in `/proc/net/ipv6_route`, best metric first.
fn default_v6(text: &str) -> Vec<String> {
    let routes = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [destination, length, _, _, _, metric, _, _, flags, name] = fields[..] else {
            return None;
        };
        let everywhere = u128::from_str_radix(destination, 16).ok()? == Ipv6Addr::UNSPECIFIED.to_bits();
        let usable = everywhere && hex(length)? == 0 && hex(flags)? & RTF_UP != 0 && name != "lo";
        usable.then_some((hex(metric)?, name.to_owned()))
    });
    by_metric(routes.collect())
}

fn by_metric(mut routes: Vec<(u32, String)>) -> Vec<String> {
    routes.sort_by_key(|(metric, _)| *metric);
    routes.into_iter().map(|(_, name)| name).collect()
}

fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
wlan0\t00000000\t0101A8C0\t0003\t0\t0\t600\t00000000\t0\t0\t0
eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0
eth1\t00000000\t010200C0\t0002\t0\t0\t1\t00000000\t0\t0\t0
cni0\t0000580A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
";
    const V6: &str = "\
fd000000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn default_routes_are_found_by_metric() {
        assert_eq!(default_v4(V4), ["eth0", "wlan0"]);
        assert_eq!(default_v6(V6), ["eth0"]);
        assert!(default_v4("").is_empty() && default_v6("garbage\n").is_empty());
    }

    #[test]
    fn the_first_global_address_of_the_family_is_taken() {
        let address = |name: &str, ip: &str| (name.to_owned(), ip.parse().unwrap());
        let addresses = [
            address("lo", "127.0.0.1"),
            address("eth0", "169.254.1.1"),
            address("eth0", "192.0.2.7"),
            address("eth0", "192.0.2.8"),
            address("eth0", "fe80::1"),
            address("eth0", "fd00::7"),
        ];
        let names = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let both = names(&["wlan0", "eth0"]);
        assert_eq!(pick(&both, &addresses, false), Some("192.0.2.7".parse().unwrap()));
        assert_eq!(pick(&both, &addresses, true), Some("fd00::7".parse().unwrap()));
        assert_eq!(pick(&names(&["lo"]), &addresses, false), None);
        assert!(of_this_node(false).is_ok());
    }
}
