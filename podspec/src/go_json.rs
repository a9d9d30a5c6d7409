//! JSON as Go writes it, for the few texts that the reference kubelet hashes or writes into annotations.

use k8s_openapi::api::core::v1::{ContainerPort, HTTPGetAction, LifecycleHandler};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// An object under construction; fields appear in the order they are added.
struct Object(String);

impl Object {
    const fn new() -> Self {
        Self(String::new())
    }

    fn raw(mut self, name: &str, json: &str) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(&string(name));
        self.0.push(':');
        self.0.push_str(json);
        self
    }

    /// Leaves an empty text out, as `omitempty` does.
    fn text(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) if !value.is_empty() => self.raw(name, &string(value)),
            _ => self,
        }
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0)
    }
}

/// A string with the escapes of Go's encoder.
fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

/// The part of a container that its hash is made of.
pub(super) fn hashed_fields(name: &str, image: &str) -> String {
    Object::new().raw("image", &string(image)).raw("name", &string(name)).end()
}

/// Annotation `io.kubernetes.container.ports`; empty without ports.
pub(super) fn ports(ports: &[ContainerPort]) -> String {
    if ports.is_empty() {
        return String::new();
    }
    list(ports.iter().map(|port| {
        let mut object = Object::new().text("name", port.name.as_deref());
        if let Some(host) = port.host_port.filter(|host| *host != 0) {
            object = object.raw("hostPort", &host.to_string());
        }
        object
            .raw("containerPort", &port.container_port.to_string())
            .text("protocol", port.protocol.as_deref())
            .text("hostIP", port.host_ip.as_deref())
            .end()
    }))
}

/// Annotation `io.kubernetes.container.preStopHandler`.
pub(super) fn handler(handler: &LifecycleHandler) -> String {
    let mut object = Object::new();
    if let Some(exec) = &handler.exec {
        let command = exec.command.as_deref().unwrap_or_default();
        object = object.raw("exec", &strings("command", command));
    }
    if let Some(get) = &handler.http_get {
        object = object.raw("httpGet", &http_get(get));
    }
    if let Some(tcp) = &handler.tcp_socket {
        let socket = Object::new().raw("port", &port(&tcp.port)).text("host", tcp.host.as_deref());
        object = object.raw("tcpSocket", &socket.end());
    }
    if let Some(sleep) = &handler.sleep {
        object = object.raw("sleep", &Object::new().raw("seconds", &sleep.seconds.to_string()).end());
    }
    object.end()
}

fn strings(name: &str, items: &[String]) -> String {
    if items.is_empty() {
        return "{}".to_owned();
    }
    Object::new().raw(name, &list(items.iter().map(|item| string(item)))).end()
}

fn http_get(get: &HTTPGetAction) -> String {
    let mut object = Object::new()
        .text("path", get.path.as_deref())
        .raw("port", &port(&get.port))
        .text("host", get.host.as_deref())
        .text("scheme", get.scheme.as_deref());
    if let Some(headers) = get.http_headers.as_ref().filter(|headers| !headers.is_empty()) {
        let headers = headers
            .iter()
            .map(|header| Object::new().raw("name", &string(&header.name)).raw("value", &string(&header.value)).end());
        object = object.raw("httpHeaders", &list(headers));
    }
    object.end()
}

fn port(port: &IntOrString) -> String {
    match port {
        IntOrString::Int(number) => number.to_string(),
        IntOrString::String(name) => string(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_as_go_does() {
        assert_eq!(string("a<b>&\"\\\n\u{1}\u{2028}ä"), r#""a\u003cb\u003e\u0026\"\\\n\u0001\u2028ä""#);
    }

    #[test]
    fn handlers_have_the_order_of_the_api() {
        let json = r#"{"httpGet":{"host":"h","httpHeaders":[{"name":"A","value":"1"}],"path":"/x","port":"web","scheme":"HTTP"}}"#;
        let parsed: LifecycleHandler = serde_json::from_str(json).unwrap();
        assert_eq!(
            handler(&parsed),
            r#"{"httpGet":{"path":"/x","port":"web","host":"h","scheme":"HTTP","httpHeaders":[{"name":"A","value":"1"}]}}"#
        );
        let parsed: LifecycleHandler = serde_json::from_str(r#"{"sleep":{"seconds":3}}"#).unwrap();
        assert_eq!(handler(&parsed), r#"{"sleep":{"seconds":3}}"#);
    }
}
