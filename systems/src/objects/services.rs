//! Services of the cluster: the copy of them, and the environment variables that name those a pod can reach (contract
//! 3.8). Reads only its arguments.

use crate::reflector::Change;
use components::edge::sources::Source;
use components::objects::{Service, Services};
use components::spec::PodSpec;
use std::collections::BTreeMap;

/// True while the services were asked for and nothing went wrong yet.
pub(crate) fn pending(services: &Services, spec: &PodSpec) -> bool {
    services.watched && !services.synced && !services.failed && spec.source == Source::Api
}

/// The variables by name: services of the pod's namespace if it wants links, and the API server's always.
///
/// # Errors
/// While the services were not read yet. Pods of other sources than the API server do not wait: it may never answer.
pub(crate) fn variables(services: &Services, spec: &PodSpec) -> Result<BTreeMap<String, String>, String> {
    if services.watched && !services.synced && spec.source == Source::Api {
        return Err("services have not yet been read at least once, cannot construct envvars".to_owned());
    }
    // A service of the pod's own namespace goes before the API server's of the same name.
    let of_api = services.list.get_key_value(&("default".to_owned(), "kubernetes".to_owned()));
    let mut chosen: BTreeMap<&str, &Service> = BTreeMap::new();
    chosen.extend(of_api.map(|((_, name), service)| (name.as_str(), service)));
    if spec.service_links {
        let namespace = spec.namespace.to_string();
        let own = services.list.range((namespace.clone(), String::new())..);
        let own = own.take_while(|((other, _), _)| *other == namespace);
        chosen.extend(own.map(|((_, name), service)| (name.as_str(), service)));
    }
    let mut out = BTreeMap::new();
    for (name, service) in chosen {
        add(&upper(name), service, &mut out);
    }
    Ok(out)
}

fn upper(name: &str) -> String {
    name.to_ascii_uppercase().replace('-', "_")
}

fn add(name: &str, service: &Service, out: &mut BTreeMap<String, String>) {
    let Some((_, first, _)) = service.ports.first() else {
        return;
    };
    out.insert(format!("{name}_SERVICE_HOST"), service.address.clone());
    out.insert(format!("{name}_SERVICE_PORT"), first.to_string());
    let host = if service.address.contains(':') { format!("[{}]", service.address) } else { service.address.clone() };
    for (index, (port_name, port, protocol)) in service.ports.iter().enumerate() {
        if !port_name.is_empty() {
            out.insert(format!("{name}_SERVICE_PORT_{}", upper(port_name)), port.to_string());
        }
        let lower = protocol.to_ascii_lowercase();
        let url = format!("{lower}://{host}:{port}");
        if index == 0 {
            out.insert(format!("{name}_PORT"), url.clone());
        }
        let prefix = format!("{name}_PORT_{port}_{}", protocol.to_ascii_uppercase());
        out.insert(format!("{prefix}_PROTO"), lower);
        out.insert(format!("{prefix}_PORT"), port.to_string());
        out.insert(format!("{prefix}_ADDR"), service.address.clone());
        out.insert(prefix, url);
    }
}

/// Takes a change of the copy of all services.
pub(super) fn apply(services: &mut Services, change: Change) {
    let texts = match change {
        Change::Replaced(items) => {
            services.list.clear();
            services.synced = true;
            items
        }
        Change::Put(text) => vec![text],
        Change::Gone(text) => {
            if let Ok((key, _)) = podspec::objects::service(&text) {
                services.list.remove(&key);
            }
            return;
        }
    };
    for text in texts {
        match podspec::objects::service(&text) {
            Ok((key, Some(service))) => services.list.insert(key, service).map_or((), drop),
            // It has lost its address.
            Ok((key, None)) => services.list.remove(&key).map_or((), drop),
            Err(why) => tracing::warn!(error = %why, "A service cannot be read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn services() -> Services {
        let service = |address: &str, ports: &[(&str, i32, &str)]| Service {
            address: address.to_owned(),
            ports: ports.iter().map(|(n, p, proto)| ((*n).to_owned(), *p, (*proto).to_owned())).collect(),
        };
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let list = [
            (key("default", "kubernetes"), service("10.0.0.1", &[("https", 443, "TCP")])),
            (key("default", "web"), service("10.0.0.3", &[("", 1, "TCP")])),
            (key("shop", "data-base"), service("fd00::7", &[("sql", 5432, "TCP"), ("gossip", 7, "UDP")])),
            (key("shoq", "other"), service("10.0.0.9", &[("", 1, "TCP")])),
        ];
        Services { watched: true, synced: true, list: list.into(), ..Services::default() }
    }

    fn names(namespace: &str, links: bool) -> String {
        let mut spec = fixtures::spec("always a");
        spec.namespace = namespace.into();
        spec.service_links = links;
        let made = variables(&services(), &spec).unwrap();
        let hosts = made.iter().filter(|(name, _)| name.ends_with("_SERVICE_HOST"));
        hosts.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn pods_see_their_own_services_and_the_api_server() {
        assert_eq!(names("shop", true), "DATA_BASE_SERVICE_HOST=fd00::7 KUBERNETES_SERVICE_HOST=10.0.0.1");
        assert_eq!(names("shop", false), "KUBERNETES_SERVICE_HOST=10.0.0.1");
        assert_eq!(names("default", true), "KUBERNETES_SERVICE_HOST=10.0.0.1 WEB_SERVICE_HOST=10.0.0.3");
        assert_eq!(names("default", false), "KUBERNETES_SERVICE_HOST=10.0.0.1");
    }

    #[test]
    fn each_port_has_its_variables() {
        let mut spec = fixtures::spec("always a");
        spec.namespace = "shop".into();
        let made = variables(&services(), &spec).unwrap();
        let of: Vec<String> = made
            .iter()
            .filter(|(name, _)| name.starts_with("DATA_BASE"))
            .map(|(name, value)| format!("{}={value}", &name["DATA_BASE_".len()..]))
            .collect();
        let expect = [
            "PORT=tcp://[fd00::7]:5432",
            "PORT_5432_TCP=tcp://[fd00::7]:5432",
            "PORT_5432_TCP_ADDR=fd00::7",
            "PORT_5432_TCP_PORT=5432",
            "PORT_5432_TCP_PROTO=tcp",
            "PORT_7_UDP=udp://[fd00::7]:7",
            "PORT_7_UDP_ADDR=fd00::7",
            "PORT_7_UDP_PORT=7",
            "PORT_7_UDP_PROTO=udp",
            "SERVICE_HOST=fd00::7",
            "SERVICE_PORT=5432",
            "SERVICE_PORT_GOSSIP=7",
            "SERVICE_PORT_SQL=5432",
        ];
        assert_eq!(of, expect);
    }

    #[test]
    fn pods_of_the_api_server_wait_for_the_services() {
        let unread = Services { watched: true, ..Services::default() };
        let mut spec = fixtures::spec("always a");
        assert_eq!(variables(&unread, &spec), Ok(BTreeMap::new()));
        spec.source = Source::Api;
        assert!(variables(&unread, &spec).unwrap_err().starts_with("services have not yet been read"));
        assert_eq!(variables(&Services::default(), &spec), Ok(BTreeMap::new()));
    }
}
