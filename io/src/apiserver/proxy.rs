//! Proxies on the way to the API server: which one is used. The kubeconfig's `proxy-url` goes before the environment's
//! `HTTPS_PROXY` and `HTTP_PROXY`, which `NO_PROXY` restricts. A password in its URL is never shown.

use components::ids::Sensitive;
use http::Uri;
use std::net::IpAddr;

/// What is wrong with a URL that leads nowhere.
const NO_PLACE: &str = "names no host with a port";

/// An HTTP proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Where it is, `http://` or `https://` with host and port, without its login.
    pub address: Uri,
    /// User and password.
    pub login: Option<(String, Sensitive)>,
    /// As it was given.
    pub given: Sensitive,
}

impl Proxy {
    /// Reads the URL of a proxy.
    ///
    /// # Errors
    /// What is wrong with it, without repeating it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (scheme, rest) = text.split_once("://").ok_or("must begin with http:// or https://")?;
        let (scheme, port) = match scheme.to_ascii_lowercase().as_str() {
            "http" => ("http", 80),
            "https" => ("https", 443),
            "socks5" | "socks5h" => return Err("names a SOCKS proxy, which is not supported".to_owned()),
            _ => return Err("must begin with http:// or https://".to_owned()),
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (login, place) = authority.rsplit_once('@').map_or((None, authority), |(login, at)| (Some(login), at));
        let login = login.map(|login| {
            let (user, password) = login.split_once(':').unwrap_or((login, ""));
            (decoded(user), Sensitive(decoded(password)))
        });
        let named = place.rsplit_once(':').is_some_and(|(_, port)| !port.contains(']'));
        let place = if named { place.to_owned() } else { format!("{place}:{port}") };
        let address: Uri = format!("{scheme}://{place}").parse().map_err(|_| NO_PLACE.to_owned())?;
        if address.host().is_none_or(str::is_empty) || address.port_u16().is_none() {
            return Err(NO_PLACE.to_owned());
        }
        Ok(Self { address, login, given: Sensitive(text.to_owned()) })
    }

    /// The proxy that the environment names for a server. `get` reads a variable.
    ///
    /// # Errors
    /// Which variable is unusable.
    pub fn of_environment(server: &Uri, get: impl Fn(&str) -> Option<String>) -> Result<Option<Self>, String> {
        let any = |names: [&str; 2]| names.into_iter().find_map(|name| get(name).filter(|text| !text.is_empty()));
        let (names, port) = match server.scheme_str() {
            Some("http") => (["http_proxy", "HTTP_PROXY"], 80),
            _ => (["https_proxy", "HTTPS_PROXY"], 443),
        };
        let Some(text) = any(names) else { return Ok(None) };
        let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        let exempt = any(["no_proxy", "NO_PROXY"]).unwrap_or_default();
        if !goes_through(&host, server.port_u16().unwrap_or(port), &exempt) {
            return Ok(None);
        }
        let full = if text.contains("://") { text } else { format!("http://{text}") };
        Self::parse(&full).map(Some).map_err(|error| format!("{}: {error}", names[1]))
    }
}

/// Whether a proxy is used for a host, by the rules that Go's programs share. `exempt` is `NO_PROXY`.
fn goes_through(host: &str, port: u16, exempt: &str) -> bool {
    let address = host.parse::<IpAddr>().ok();
    if host == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return false;
    }
    let listed = |entry: &str| {
        let entry = entry.trim().to_ascii_lowercase();
        if let Some((network, bits)) = entry.split_once('/')
            && let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>())
        {
            return address.is_some_and(|address| within(address, network, bits));
        }
        let (name, wanted) = match entry.rsplit_once(':') {
            // An address of version 6 without brackets has colons of its own.
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => (name, Some(port)),
            _ => (entry.as_str(), None),
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if name.is_empty() || wanted.is_some_and(|wanted| wanted != port.to_string()) {
            return false;
        }
        if let Ok(own) = name.parse::<IpAddr>() {
            return address == Some(own);
        }
        let name = name.strip_prefix('*').filter(|rest| rest.starts_with('.')).unwrap_or(name);
        match name.strip_prefix('.') {
            Some(domain) => host.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.')),
            None => host == name || host.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')),
        }
    };
    !exempt.split(',').any(|entry| entry.trim() == "*" || listed(entry))
}

fn within(address: IpAddr, network: IpAddr, bits: u32) -> bool {
    let (address, network, length) = match (address, network) {
        (IpAddr::V4(a), IpAddr::V4(n)) => (u128::from(a.to_bits()), u128::from(n.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(n)) => (a.to_bits(), n.to_bits(), 128),
        _ => return false,
    };
    let Some(rest) = u32::checked_sub(length, bits) else { return false };
    address.checked_shr(rest).unwrap_or(0) == network.checked_shr(rest).unwrap_or(0)
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        let digits = more.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.filter(|_| *first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = &more[2..];
            }
            None => {
                out.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address and login.
    type Read<'a> = (&'a str, Option<(&'a str, &'a str)>);

    #[track_caller]
    fn check(text: &str, expect: Result<Read<'_>, &str>) {
        let found = Proxy::parse(text);
        let shown = format!("{found:?}");
        assert!(!shown.contains("geheim"), "{shown}");
        let found = found.map(|it| (it.address.to_string(), it.login));
        let found = found.as_ref().map(|(address, login)| {
            let login = login.as_ref().map(|(user, password)| (user.as_str(), password.0.as_str()));
            (address.as_str(), login)
        });
        assert_eq!(found.map_err(String::as_str), expect);
    }

    #[test]
    fn urls_of_proxies_are_read() {
        check("http://p", Ok(("http://p:80/", None)));
        check("https://p/", Ok(("https://p:443/", None)));
        check("http://[::1]", Ok(("http://[::1]:80/", None)));
        check("HTTP://me:geh%65im@p:3128", Ok(("http://p:3128/", Some(("me", "geheim")))));
        check("http://m%40x@p:3128", Ok(("http://p:3128/", Some(("m@x", "")))));
        check("socks5://geheim", Err("names a SOCKS proxy, which is not supported"));
        for bad in ["p:3128", "ftp://geheim", ""] {
            check(bad, Err("must begin with http:// or https://"));
        }
        check("http://", Err(NO_PLACE));
        check("http://a:geheim@:80", Err(NO_PLACE));
        check("http://p:geheim", Err(NO_PLACE));
    }

    /// The proxy for a server by these variables.
    fn of(server: &str, vars: &[(&str, &str)]) -> Option<String> {
        let get = |name: &str| vars.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned());
        let found = Proxy::of_environment(&server.parse().unwrap(), get).unwrap();
        found.map(|proxy| proxy.address.to_string())
    }

    #[test]
    fn the_environment_names_a_proxy() {
        let both = [("HTTPS_PROXY", "s:1"), ("HTTP_PROXY", "http://h:2")];
        assert_eq!(of("https://10.0.0.1:6443", &both).as_deref(), Some("http://s:1/"));
        assert_eq!(of("http://10.0.0.1", &both).as_deref(), Some("http://h:2/"));
        let lower = [("HTTPS_PROXY", "s:1"), ("https_proxy", "t:1")];
        assert_eq!(of("https://x", &lower).as_deref(), Some("http://t:1/"));
        assert_eq!(of("https://x", &[("HTTPS_PROXY", "")]), None);
        for own in ["https://localhost:1", "https://127.0.0.1:1", "https://[::1]:1"] {
            assert_eq!(of(own, &both), None);
        }
        let bad = Proxy::of_environment(&"https://x".parse().unwrap(), |name| {
            (name == "HTTPS_PROXY").then(|| "ftp://geheim".to_owned())
        });
        assert_eq!(bad.unwrap_err(), "HTTPS_PROXY: must begin with http:// or https://");
    }

    #[track_caller]
    fn exempt(host: &str, list: &str, expect: bool) {
        assert_eq!(!goes_through(host, 6443, list), expect, "{host} in {list}");
    }

    #[test]
    fn hosts_are_exempt_by_name_address_and_network() {
        exempt("a.b.c", "x, b.c", true);
        exempt("b.c", "b.c", true);
        exempt("xb.c", "b.c", false);
        exempt("b.c", ".b.c", false);
        exempt("a.b.c", ".b.c", true);
        exempt("a.b.c", "*.b.c", true);
        exempt("a.b.c", "B.C:6443", true);
        exempt("a.b.c", "b.c:443", false);
        exempt("a.b.c", "*", true);
        exempt("a.b.c", "", false);
        exempt("10.1.2.3", "10.1.2.3", true);
        exempt("10.1.2.3", "10.1.2.3:443", false);
        exempt("10.1.2.3", "10.0.0.0/8", true);
        exempt("10.1.2.3", "11.0.0.0/8, 0.0.0.0/0", true);
        exempt("10.1.2.3", "10.1.2.0/33", false);
        exempt("fd00::1", "fd00::/16", true);
        exempt("fd00::1", "fd00::1", true);
        exempt("fd00::1", "[fd00::1]:6443", true);
        exempt("fd00::1", "10.0.0.0/8,:1", false);
    }
}
