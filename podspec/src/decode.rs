//! JSON to a typed Pod: every error names its field, unknown fields are collected, no value is ever quoted.
//!
//! Values stay out of messages because an environment value may be a secret.

use k8s_openapi::serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde_json::Value;
use std::cell::RefCell;
use std::fmt;

/// What of a decoded object was not understood.
pub(super) type UnknownFields = Vec<String>;

/// At most this many unknown fields are named.
const MAX_UNKNOWN: usize = 20;

/// Decodes `value`, as lenient towards unknown fields as the kubelet is.
pub(super) fn decode<T: DeserializeOwned>(value: &Value) -> Result<(T, UnknownFields), String> {
    let unknown = RefCell::new(Vec::new());
    let node = Node { value, path: &Path::Root, unknown: &unknown };
    match T::deserialize(node) {
        Ok(decoded) => Ok((decoded, unknown.into_inner())),
        Err(error) => Err(error.to_string()),
    }
}

/// Where in the object a node lies.
enum Path<'p> {
    Root,
    Field(&'p Self, &'p str),
    Index(&'p Self, usize),
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field(Self::Root, name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// Why decoding stopped.
#[derive(Debug)]
struct DecodeError {
    path: Option<String>,
    message: String,
}

impl DecodeError {
    fn at(mut self, path: &Path<'_>) -> Self {
        self.path.get_or_insert_with(|| path.to_string());
        self
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.path.as_deref() {
            Some(path) if !path.is_empty() => write!(f, "{path}: {}", self.message),
            _ => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for DecodeError {}

impl de::Error for DecodeError {
    fn custom<M: fmt::Display>(message: M) -> Self {
        Self { path: None, message: message.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("must be {expected}, not {}", kind_of(&found)))
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("must be {expected}"))
    }
}

fn kind_of(found: &Unexpected<'_>) -> &'static str {
    match found {
        Unexpected::Bool(_) => "a boolean",
        Unexpected::Unsigned(_) | Unexpected::Signed(_) => "a number",
        Unexpected::Float(_) => "a number with a fraction",
        Unexpected::Str(_) => "a string",
        Unexpected::Unit | Unexpected::Option => "null",
        Unexpected::Seq => "a list",
        Unexpected::Map => "an object",
        _ => "something else",
    }
}

/// A value with its place.
struct Node<'de, 'p> {
    value: &'de Value,
    path: &'p Path<'p>,
    unknown: &'p RefCell<UnknownFields>,
}

impl<'de> Node<'de, '_> {
    fn visit<V: Visitor<'de>>(
        self,
        known: Option<&'static [&'static str]>,
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::String(value) => visitor.visit_borrowed_str(value),
            Value::Number(value) => match (value.as_i64(), value.as_u64()) {
                (Some(value), _) => visitor.visit_i64(value),
                (None, Some(value)) => visitor.visit_u64(value),
                (None, None) => visitor.visit_f64(value.as_f64().unwrap_or(f64::NAN)),
            },
            Value::Array(items) => visitor.visit_seq(Items { node: self, rest: items.iter(), index: 0 }),
            Value::Object(fields) => {
                visitor.visit_map(Fields { node: self, rest: fields.iter(), known, current: None })
            }
        }
    }
}

impl<'de> Deserializer<'de> for Node<'de, '_> {
    type Error = DecodeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        let path = self.path;
        self.visit(None, visitor).map_err(|e| e.at(path))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeError> {
        let path = self.path;
        self.visit(Some(fields), visitor).map_err(|e| e.at(path))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeError> {
        if self.value.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, DecodeError> {
        let path = self.path;
        visitor.visit_newtype_struct(self).map_err(|e| e.at(path))
    }

    k8s_openapi::serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map enum identifier ignored_any
    }
}

struct Items<'de, 'p> {
    node: Node<'de, 'p>,
    rest: std::slice::Iter<'de, Value>,
    index: usize,
}

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = DecodeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, DecodeError> {
        let Some(value) = self.rest.next() else { return Ok(None) };
        let path = Path::Index(self.node.path, self.index);
        self.index += 1;
        seed.deserialize(Node { value, path: &path, unknown: self.node.unknown }).map(Some)
    }
}

struct Fields<'de, 'p> {
    node: Node<'de, 'p>,
    rest: serde_json::map::Iter<'de>,
    known: Option<&'static [&'static str]>,
    current: Option<(&'de str, &'de Value)>,
}

impl<'de> MapAccess<'de> for Fields<'de, '_> {
    type Error = DecodeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, DecodeError> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.current = Some((key, value));
        if self.known.is_some_and(|known| !known.contains(&key.as_str())) {
            let mut unknown = self.node.unknown.borrow_mut();
            if unknown.len() < MAX_UNKNOWN {
                unknown.push(Path::Field(self.node.path, key).to_string());
            }
        }
        seed.deserialize(key.as_str().into_deserializer()).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, DecodeError> {
        let Some((key, value)) = self.current.take() else {
            return Err(de::Error::custom("value without a key"));
        };
        let path = Path::Field(self.node.path, key);
        seed.deserialize(Node { value, path: &path, unknown: self.node.unknown })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    #[track_caller]
    fn check(json: &str, expect: &str) {
        let value: Value = serde_json::from_str(json).unwrap();
        let said = match decode::<Pod>(&value) {
            Ok((_, unknown)) => unknown.join(" "),
            Err(error) => error,
        };
        assert_eq!(said, expect);
    }

    fn container(fields: &str) -> String {
        format!(r#"{{"apiVersion":"v1","kind":"Pod","spec":{{"containers":[{{"name":"a"}},{{{fields}}}]}}}}"#)
    }

    #[test]
    fn errors_name_the_field_and_never_the_value() {
        check(
            &container(r#""env":[{"name":"A","value":4711}]"#),
            "spec.containers[1].env[0].value: must be a string, not a number",
        );
        check(
            &container(r#""env":[{"name":"A","value":{"x":1}}]"#),
            "spec.containers[1].env[0].value: must be a string, not an object",
        );
        check(&container(r#""tty":"secret""#), "spec.containers[1].tty: must be a boolean, not a string");
        check(
            &container(r#""ports":[{"containerPort":99999999999}]"#),
            "spec.containers[1].ports[0].containerPort: must be i32",
        );
        check(
            &container(r#""ports":[{"containerPort":1.5}]"#),
            "spec.containers[1].ports[0].containerPort: must be i32, not a number with a fraction",
        );
        check(&container(r#""command":"sh""#), "spec.containers[1].command: must be a sequence, not a string");
        check(&container(r#""command":["sh",7]"#), "spec.containers[1].command[1]: must be a string, not a number");
        check(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":true}}}"#,
            "metadata.labels.a: must be a string, not a boolean",
        );
        check(r#"{"apiVersion":"v1","kind":"Pod","spec":[]}"#, "spec: must be PodSpec, not a list");
    }

    #[test]
    fn unknown_fields_are_named_and_nulls_are_absent() {
        check(
            &container(r#""imagePullPolcy":"Always","command":null,"x":{"y":1}"#),
            "spec.containers[1].imagePullPolcy spec.containers[1].x",
        );
        check(
            r#"{"apiVersion":"v1","kind":"Pod","metadata":{"creationTimestamp":null},"spec":{"containers":null}}"#,
            "",
        );
    }

    #[test]
    fn quantities_may_be_numbers() {
        let json = container(r#""resources":{"limits":{"cpu":2,"memory":1073741824}}"#);
        let (pod, _) = decode::<Pod>(&serde_json::from_str(&json).unwrap()).unwrap();
        let limits = pod.spec.unwrap().containers[1].resources.clone().unwrap().limits.unwrap();
        assert_eq!(limits["cpu"].0, "2");
        assert_eq!(limits["memory"].0, "1073741824");
    }
}
