//! Probes of a container, with ports as numbers and paths as they are sent.

use components::ids::Sensitive;
use components::probes::{ProbeAction, ProbeKind, ProbeSpec};
use k8s_openapi::api::core::v1 as api;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::fmt::Write as _;

/// The probes of a container in the order of their kinds.
pub(super) fn of(container: &api::Container) -> Vec<(ProbeKind, ProbeSpec)> {
    [
        (ProbeKind::Startup, &container.startup_probe),
        (ProbeKind::Readiness, &container.readiness_probe),
        (ProbeKind::Liveness, &container.liveness_probe),
    ]
    .into_iter()
    .filter_map(|(kind, probe)| Some((kind, convert(container, probe.as_ref()?)?)))
    .collect()
}

fn convert(container: &api::Container, probe: &api::Probe) -> Option<ProbeSpec> {
    let number = |field: Option<i32>, default: u32| field.and_then(|n| u32::try_from(n).ok()).unwrap_or(default);
    Some(ProbeSpec {
        action: action(container, probe)?,
        initial_delay: number(probe.initial_delay_seconds, 0),
        period: number(probe.period_seconds, 10).max(1),
        timeout: number(probe.timeout_seconds, 1).max(1),
        successes: number(probe.success_threshold, 1).max(1),
        failures: number(probe.failure_threshold, 3).max(1),
        grace_seconds: probe.termination_grace_period_seconds.and_then(|n| u32::try_from(n).ok()),
    })
}

fn action(container: &api::Container, probe: &api::Probe) -> Option<ProbeAction> {
    let host = |host: &Option<String>| host.clone().filter(|h| !h.is_empty());
    if let Some(exec) = &probe.exec {
        return Some(ProbeAction::Exec(exec.command.iter().flatten().map(|word| Sensitive(word.clone())).collect()));
    }
    if let Some(get) = &probe.http_get {
        let headers = get.http_headers.iter().flatten();
        return Some(ProbeAction::Http {
            tls: get.scheme.as_deref() == Some("HTTPS"),
            host: host(&get.host),
            port: port(container, &get.port),
            path: request_path(get.path.as_deref().unwrap_or_default()),
            headers: headers.map(|h| (canonical(&h.name), Sensitive(h.value.clone()))).collect(),
        });
    }
    if let Some(tcp) = &probe.tcp_socket {
        return Some(ProbeAction::Tcp { host: host(&tcp.host), port: port(container, &tcp.port) });
    }
    let grpc = probe.grpc.as_ref()?;
    let port = u16::try_from(grpc.port).unwrap_or(0);
    Some(ProbeAction::Grpc { port, service: grpc.service.clone().unwrap_or_default() })
}

/// A port by number or by name; 0 when no port of the container has the name, so that the probe never passes.
fn port(container: &api::Container, port: &IntOrString) -> u16 {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|p| p.name.as_deref() == Some(name));
            named.map_or_else(|| name.parse().unwrap_or(0), |p| p.container_port)
        }
    };
    u16::try_from(number).unwrap_or(0)
}

/// A header's name as HTTP libraries write it: `x-probe` becomes `X-Probe`.
fn canonical(name: &str) -> String {
    let mut upper = true;
    name.chars()
        .map(|c| {
            let out = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            upper = c == '-';
            out
        })
        .collect()
}

/// The path as it is sent: with a leading slash, without a fragment, and with what cannot stand in a request escaped.
fn request_path(path: &str) -> String {
    let path = path.split('#').next().unwrap_or_default();
    let mut out = String::with_capacity(path.len() + 1);
    if !path.starts_with('/') {
        out.push('/');
    }
    for byte in path.bytes() {
        match byte {
            0x21..=0x7e if !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}') => {
                out.push(char::from(byte));
            }
            _ => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_sent_as_a_url_parser_would() {
        for (path, sent) in [
            ("", "/"),
            ("/ok?a=b#c", "/ok?a=b"),
            ("health", "/health"),
            ("/a b", "/a%20b"),
            ("/\r\nX: y", "/%0D%0AX:%20y"),
        ] {
            assert_eq!(request_path(path), sent);
        }
    }

    #[test]
    fn ports_are_found_by_name_or_number() {
        let named = api::ContainerPort { name: Some("web".into()), container_port: 8080, ..Default::default() };
        let container = api::Container { ports: Some(vec![named]), ..Default::default() };
        let by_name = |name: &str| port(&container, &IntOrString::String(name.into()));
        assert_eq!([by_name("web"), by_name("90"), by_name("gone")], [8080, 90, 0]);
        assert_eq!(port(&container, &IntOrString::Int(7)), 7);
        assert_eq!([canonical("x-probe"), canonical("AUTHORIZATION")], ["X-Probe", "Authorization"]);
    }
}
