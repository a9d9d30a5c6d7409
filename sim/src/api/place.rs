//! Paths and selectors of requests.

use serde_json::Value;
use std::collections::BTreeMap;

/// Where an object, a collection or a subresource is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Place {
    /// `/api/v1` or `/apis/GROUP/VERSION`.
    pub(super) group: String,
    /// Plural name of the kind.
    pub(super) resource: String,
    /// Empty for all namespaces, and for kinds without one.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    /// Subresource; empty for the object.
    pub(super) sub: String,
}

impl Place {
    /// Takes a path with its query apart.
    pub(super) fn parse(text: &str) -> Result<(Self, BTreeMap<String, String>), String> {
        let (path, query) = text.split_once('?').unwrap_or((text, ""));
        let parts: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let mut parts = parts.into_iter().peekable();
        let mut next = || parts.next().unwrap_or_default();
        let group = match next().as_str() {
            "api" => format!("/api/{}", next()),
            "apis" => format!("/apis/{}/{}", next(), next()),
            _ => return Err(format!("no such path: {path}")),
        };
        let mut place = Self { group, resource: next(), ..Self::default() };
        let (first, second) = (next(), next());
        if place.resource == "namespaces" && !second.is_empty() {
            place = Self { namespace: first, resource: second, name: next(), sub: next(), ..place };
        } else {
            place = Self { name: first, sub: second, ..place };
        }
        if place.resource.is_empty() {
            return Err(format!("no such path: {path}"));
        }
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        Ok((place, pairs.map(|(key, value)| (decode(key), decode(value))).collect()))
    }

    /// The object that a subresource belongs to.
    pub(super) fn object(&self) -> Self {
        Self { sub: String::new(), ..self.clone() }
    }

    /// Whether a collection, or an object, holds this object.
    pub(super) fn holds(&self, object: &Self) -> bool {
        self.group == object.group
            && self.resource == object.resource
            && (self.namespace.is_empty() || self.namespace == object.namespace)
            && (self.name.is_empty() || self.name == object.name)
    }

    /// Resource and subresource.
    pub(super) fn kind(&self) -> String {
        if self.sub.is_empty() { self.resource.clone() } else { format!("{}/{}", self.resource, self.sub) }
    }
}

fn decode(text: &str) -> String {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits: String = bytes.by_ref().take(2).map(char::from).collect();
        out.push(u8::from_str_radix(&digits, 16).unwrap_or(b'?'));
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A field selector: every field has this value, or has it not.
#[derive(Debug, Clone, Default)]
pub(super) struct Selector(Vec<(String, bool, String)>);

impl Selector {
    /// Reads `fieldSelector` of a query.
    pub(super) fn parse(query: &BTreeMap<String, String>) -> Result<Self, String> {
        let text = query.get("fieldSelector").map_or("", String::as_str);
        let parts = text.split(',').filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let (field, value) = part.split_once('=').ok_or_else(|| format!("unable to understand {part:?}"))?;
            let (field, equal) = field.strip_suffix('!').map_or((field, true), |field| (field, false));
            match field {
                "metadata.name" | "metadata.namespace" | "spec.nodeName" | "status.phase" | "spec.clusterIP" => {
                    Ok((format!("/{}", field.replace('.', "/")), equal, value.trim_start_matches('=').to_owned()))
                }
                _ => Err(format!("field label not supported: {field}")),
            }
        };
        Ok(Self(parts.map(pair).collect::<Result<_, String>>()?))
    }

    /// Whether an object is selected.
    pub(super) fn fits(&self, object: &Value) -> bool {
        let value = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default();
        self.0.iter().all(|(field, equal, wanted)| (value(field) == wanted) == *equal)
    }
}
