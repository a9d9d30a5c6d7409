//! Objects that pods refer to, from the API server's JSON to what decisions use: `ConfigMap`, `Secret`, `Service`,
//! and the answer to a `TokenRequest`. Reads only its arguments; no error text repeats a value.

use components::ids::Hidden;
use components::objects::{Bundle, ObjectData, ObjectKind, Service, Token};
use components::time::{Mono, Wall};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A `ConfigMap` or `Secret`.
///
/// # Errors
/// What is wrong with the text.
pub fn object(kind: ObjectKind, text: &str) -> Result<ObjectData, String> {
    let mut value = parse(text)?;
    let field = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut data = ObjectData {
        uid: field(&value, "/metadata/uid"),
        resource_version: field(&value, "/metadata/resourceVersion"),
        immutable: value.get("immutable").and_then(Value::as_bool) == Some(true),
        kind: field(&value, "/type"),
        ..ObjectData::default()
    };
    let (plain, encoded) = match kind {
        ObjectKind::ConfigMap => (value["data"].take(), value["binaryData"].take()),
        ObjectKind::Secret => (Value::Null, value["data"].take()),
    };
    for (key, value) in entries(plain) {
        let Value::String(text) = value else { return Err(format!("data[{key:?}] is no text")) };
        data.data.insert(key, Hidden::from(text.into_bytes()));
    }
    let into = if kind == ObjectKind::Secret { &mut data.data } else { &mut data.binary };
    for (key, value) in entries(encoded) {
        let bytes: ByteString = serde_json::from_value(value).map_err(|_| format!("data[{key:?}] is no base64"))?;
        into.insert(key, Hidden::from(bytes.0));
    }
    Ok(data)
}

fn parse(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        // The parser's own text might repeat a value.
        format!("not valid JSON at line {} column {}", error.line(), error.column())
    })?;
    if value.is_object() { Ok(value) } else { Err("is no object".to_owned()) }
}

fn entries(value: Value) -> serde_json::Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => serde_json::Map::new(),
    }
}

/// Namespace, name and what environments show of a `Service`; `None` for one without an address.
///
/// # Errors
/// What is wrong with the text.
pub fn service(text: &str) -> Result<((String, String), Option<Service>), String> {
    let value = parse(text)?;
    let field = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let key = (field("/metadata/namespace"), field("/metadata/name"));
    let address = field("/spec/clusterIP");
    if address.is_empty() || address == "None" {
        return Ok((key, None));
    }
    let ports = value.pointer("/spec/ports").and_then(Value::as_array).into_iter().flatten().map(|port| {
        let text = |name: &str| port.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let number = port.get("port").and_then(Value::as_i64).and_then(|port| i32::try_from(port).ok());
        let protocol = Some(text("protocol")).filter(|p| !p.is_empty()).unwrap_or_else(|| "TCP".to_owned());
        (text("name"), number.unwrap_or_default(), protocol)
    });
    Ok((key, Some(Service { ports: ports.collect(), address })))
}

/// Name and content of a `ClusterTrustBundle`.
///
/// # Errors
/// What is wrong with the text.
pub fn bundle(text: &str) -> Result<(String, Bundle), String> {
    let value = parse(text)?;
    let field = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let labels = value.pointer("/metadata/labels").and_then(Value::as_object).into_iter().flatten();
    let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
    let anchors = certificates(&field("/spec/trustBundle"));
    Ok((field("/metadata/name"), Bundle { signer: field("/spec/signerName"), labels: labels.collect(), anchors }))
}

/// `metadata.resourceVersion` of an object as this module's users keep it, without reading the rest.
#[must_use]
pub fn version_of(json: &str) -> Option<&str> {
    // Texts inside hold no bare quotes, so that nothing else can look like the field.
    let (_, rest) = json.split_once("\"resourceVersion\":\"")?;
    rest.split_once('"').map(|(version, _)| version)
}

/// Name and handler of a `RuntimeClass`.
///
/// # Errors
/// What is wrong with the text.
pub fn runtime_class(text: &str) -> Result<(String, String), String> {
    let value = parse(text)?;
    let field = |path: &str| value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok((field("/metadata/name"), field("/handler")))
}

/// What stands between the marks of each certificate, without line breaks. The server lets nothing else in.
fn certificates(text: &str) -> Vec<String> {
    let bodies = text.split("-----BEGIN CERTIFICATE-----").skip(1);
    let bodies = bodies.filter_map(|rest| rest.split_once("-----END CERTIFICATE-----"));
    bodies.map(|(body, _)| body.split_whitespace().collect()).collect()
}

/// The token in the answer to a `TokenRequest`.
///
/// # Errors
/// What is wrong with the text.
pub fn token(text: &str, came: Mono) -> Result<Token, String> {
    let value = parse(text)?;
    let token = value.pointer("/status/token").and_then(Value::as_str).filter(|token| !token.is_empty());
    let token = token.ok_or("the answer holds no token")?;
    let expires = value.pointer("/status/expirationTimestamp").and_then(Value::as_str);
    let expires: Option<jiff::Timestamp> = expires.and_then(|text| text.parse().ok());
    let expires = expires.ok_or("the answer does not say when the token expires")?;
    let nanos = i64::try_from(expires.as_nanosecond()).map_err(|_| "the token expires at no possible time")?;
    let seconds = value.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or_default();
    Ok(Token { text: Hidden::from(token.as_bytes().to_vec()), expires: Wall(nanos), seconds, came })
}

/// Body of a `TokenRequest` for a pod's service account.
#[must_use]
pub fn token_request(audience: &str, seconds: i64, pod: &str, uid: &str) -> String {
    let mut spec = json!({
        "expirationSeconds": seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid},
    });
    spec["audiences"] = if audience.is_empty() { Value::Null } else { json!([audience]) };
    json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}).to_string()
}

/// Items of a list as JSON texts, with the list's resource version.
///
/// # Errors
/// What is wrong with the text.
pub fn list(text: &str) -> Result<(String, Vec<String>), String> {
    let mut value = parse(text)?;
    let version = value.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let items = match value["items"].take() {
        Value::Array(items) => items.iter().map(Value::to_string).collect(),
        Value::Null => Vec::new(),
        _ => return Err("items is no list".to_owned()),
    };
    Ok((version, items))
}

/// `message` of a `Status`, or the text itself when it is none.
#[must_use]
pub fn status_message(text: &str) -> String {
    let value: Option<BTreeMap<String, Value>> = serde_json::from_str(text).ok();
    let message = value.and_then(|mut value| value.remove("message"));
    match message {
        Some(Value::String(message)) => message,
        _ => text.chars().take(256).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_decoded_and_never_shown() {
        let text = r#"{"metadata":{"uid":"u","resourceVersion":"7"},"type":"Opaque","immutable":true,"data":{"k":"Z2VoZWlt","z":null}}"#;
        let data = object(ObjectKind::Secret, &text.replace(",\"z\":null", "")).unwrap();
        assert_eq!((data.uid.as_str(), data.resource_version.as_str(), data.kind.as_str()), ("u", "7", "Opaque"));
        assert!(data.immutable);
        assert_eq!(&*data.data["k"].0, b"geheim");
        assert!(!format!("{data:?}").contains("geheim"));
        let bad = object(ObjectKind::Secret, r#"{"data":{"k":"geheim!"}}"#).unwrap_err();
        assert_eq!(bad, "data[\"k\"] is no base64");
        assert!(!object(ObjectKind::Secret, r#"{"data":{"k":geheim}}"#).unwrap_err().contains("geheim"));
        assert!(!object(ObjectKind::Secret, r#""geheim""#).unwrap_err().contains("geheim"));
    }

    #[test]
    fn config_maps_hold_text_and_bytes() {
        let data = object(ObjectKind::ConfigMap, r#"{"data":{"a":"x"},"binaryData":{"b":"AAE="}}"#).unwrap();
        assert_eq!((&*data.data["a"].0, &*data.binary["b"].0), (b"x".as_slice(), [0u8, 1].as_slice()));
        assert!(!data.immutable);
        assert_eq!(object(ObjectKind::ConfigMap, "{}").unwrap(), ObjectData::default());
    }

    #[test]
    fn services_without_an_address_are_left_out() {
        let text = |ip: &str| {
            format!(
                r#"{{"metadata":{{"namespace":"n","name":"s"}},"spec":{{"clusterIP":"{ip}","ports":[{{"port":80}},{{"name":"dns","port":53,"protocol":"UDP"}}]}}}}"#
            )
        };
        let (key, made) = service(&text("10.0.0.1")).unwrap();
        assert_eq!(key, ("n".to_owned(), "s".to_owned()));
        let port = |name: &str, port, protocol: &str| (name.to_owned(), port, protocol.to_owned());
        let ports = vec![port("", 80, "TCP"), port("dns", 53, "UDP")];
        assert_eq!(made, Some(Service { address: "10.0.0.1".to_owned(), ports }));
        assert_eq!(service(&text("None")).unwrap().1, None);
        assert_eq!(service(&text("")).unwrap().1, None);
    }

    #[test]
    fn tokens_come_with_their_life() {
        let text = r#"{"spec":{"expirationSeconds":3607},"status":{"token":"geheim","expirationTimestamp":"1970-01-01T01:00:07Z"}}"#;
        let made = token(text, Mono(5)).unwrap();
        assert_eq!((made.expires, made.seconds, made.came), (Wall(3_607_000_000_000), 3607, Mono(5)));
        assert_eq!(&*made.text.0, b"geheim");
        assert!(!format!("{made:?}").contains("geheim"));
        assert!(token(r#"{"status":{"token":"geheim"}}"#, Mono(0)).is_err_and(|error| !error.contains("geheim")));
        assert!(token("{}", Mono(0)).is_err());
    }

    #[test]
    fn a_token_is_bound_to_its_pod() {
        let body: Value = serde_json::from_str(&token_request("", 600, "p", "u")).unwrap();
        assert_eq!(body["spec"]["boundObjectRef"], json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}));
        assert_eq!((&body["spec"]["audiences"], &body["spec"]["expirationSeconds"]), (&Value::Null, &json!(600)));
        let body: Value = serde_json::from_str(&token_request("vault", 600, "p", "u")).unwrap();
        assert_eq!(body["spec"]["audiences"], json!(["vault"]));
    }

    #[test]
    fn lists_and_statuses_are_taken_apart() {
        let (version, items) = list(r#"{"metadata":{"resourceVersion":"9"},"items":[{"a":1},{"b":2}]}"#).unwrap();
        assert_eq!((version.as_str(), items), ("9", vec![r#"{"a":1}"#.to_owned(), r#"{"b":2}"#.to_owned()]));
        assert!(list(r#"{"metadata":{}}"#).unwrap().1.is_empty());
        assert_eq!(status_message(r#"{"kind":"Status","message":"no"}"#), "no");
        assert_eq!(status_message("bad gateway"), "bad gateway");
    }
}
