//! Takes secrets out of manifests before they are written: every `env[].value`, and the annotation in which kubectl
//! repeats the whole object. Every other byte stays, so that the core decides on a redacted object as it did on the
//! real one (the digest is of the real one, and hashes of effects leave secrets out).
//!
//! Of what the API server said the same goes; of objects that hold secrets (`Secret`, tokens) every value of `data`,
//! `stringData` and `status.token` goes.
//!
//! One exception: a value that a `subPathExpr` of the same container refers to names a directory on the node, which
//! anyone sees and decisions depend on; it stays.

use components::edge::api::{Answered, ApiAnswer, ApiEvent, ApiIngress};
use components::edge::sources::Manifest;
use components::edge::{Answer, Completion, Ingress, Outcome};
use serde_json::Value;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

/// What stands where a secret was.
pub const REDACTED: &str = "<redacted>";
/// The same where base64 is expected.
pub const REDACTED_BASE64: &str = "PHJlZGFjdGVkPg==";
/// kubectl keeps the object as it was applied in this annotation.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The manifest without secrets; shares the text when there are none.
#[must_use]
pub fn manifest(manifest: &Manifest) -> Cow<'_, Manifest> {
    match json(&manifest.json) {
        Cow::Borrowed(_) => Cow::Borrowed(manifest),
        Cow::Owned(text) => Cow::Owned(Manifest { json: Arc::from(text), ..manifest.clone() }),
    }
}

/// The fact without secrets, if it is one of the API server.
#[must_use]
pub fn api(input: &Ingress) -> Cow<'_, Ingress> {
    match input {
        Ingress::Completed(Completion { ticket, outcome: Outcome::Done(Answer::Api(ApiAnswer::Answered(it))) }) => {
            let body = Arc::from(answer(&it.body, it.secret));
            let answered = ApiAnswer::Answered(Box::new(Answered { body, ..(**it).clone() }));
            let outcome = Outcome::Done(Answer::Api(answered));
            Cow::Owned(Ingress::Completed(Completion { ticket: *ticket, outcome }))
        }
        Ingress::Api(ApiIngress::WatchEvents { watch, secret, events }) => {
            let clean = |e: &ApiEvent| ApiEvent { kind: e.kind, object: Arc::from(answer(&e.object, *secret)) };
            let events = events.iter().map(clean).collect();
            Cow::Owned(Ingress::Api(ApiIngress::WatchEvents { watch: *watch, secret: *secret, events }))
        }
        other => Cow::Borrowed(other),
    }
}

/// A text of the API server without secrets.
fn answer(text: &str, secret: bool) -> Cow<'_, str> {
    if !secret {
        return json(text);
    }
    let Ok(mut object) = serde_json::from_str::<Value>(text) else { return Cow::Owned(REDACTED.to_owned()) };
    match object.get_mut("items").and_then(Value::as_array_mut) {
        Some(items) => items.iter_mut().for_each(hide),
        None => hide(&mut object),
    }
    Cow::Owned(object.to_string())
}

/// What stands for a value of a secret. Which registries a docker configuration names decides what is tried.
fn placeholder(key: &str, value: &Value) -> String {
    let logins = matches!(key, ".dockerconfigjson" | ".dockercfg").then(|| value.as_str()).flatten();
    logins.and_then(components::registry::without_secrets).unwrap_or_else(|| REDACTED_BASE64.to_owned())
}

/// Takes the values out of one object that holds secrets; keys and all else stay.
fn hide(object: &mut Value) {
    for field in ["data", "stringData"] {
        let Some(values) = object.get_mut(field) else { continue };
        match values.as_object_mut() {
            Some(values) => values.iter_mut().for_each(|(key, value)| *value = Value::from(placeholder(key, value))),
            None => *values = Value::Null,
        }
    }
    if let Some(token) = object.pointer_mut("/status/token") {
        *token = Value::from(REDACTED);
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
        && let Some(copy) = annotations.get_mut(LAST_APPLIED)
    {
        *copy = Value::from(REDACTED);
    }
}

/// The JSON text without secrets. A text that is no JSON is replaced whole, by one that is no JSON either.
#[must_use]
pub fn json(text: &str) -> Cow<'_, str> {
    if serde_json::from_str::<serde::de::IgnoredAny>(text).is_err() {
        return Cow::Owned(REDACTED.to_owned());
    }
    let mut edits = Scanner::new(text).scan();
    if edits.is_empty() {
        return Cow::Borrowed(text);
    }
    edits.sort_by_key(|edit| (edit.span.start, std::cmp::Reverse(edit.span.end)));
    let mut out = String::with_capacity(text.len());
    let mut done = 0;
    for edit in edits {
        // An edit inside of one that was made already is gone with it.
        if edit.span.start >= done {
            out.push_str(&text[done..edit.span.start]);
            out.push_str(edit.with);
            done = edit.span.end;
        }
    }
    out.push_str(&text[done..]);
    Cow::Owned(out)
}

struct Edit {
    span: Range<usize>,
    with: &'static str,
}

/// Walks valid JSON without recursion.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    scopes: Vec<Scope>,
    edits: Vec<Edit>,
}

/// An open object or array.
#[derive(Default)]
struct Scope {
    is_object: bool,
    /// Where it begins.
    start: usize,
    /// Object: the next string is a key.
    wants_key: bool,
    /// Object: key of the value at hand. Array: key under which it stands.
    key: Key,
    /// Object in an `env` array: its name and the spans of its values.
    name: String,
    values: Vec<Edit>,
    /// Container: its variables, and the `subPathExpr`s of its mounts.
    env: Vec<Variable>,
    exprs: Vec<String>,
}

struct Variable {
    name: String,
    /// Text of the value, to see what it refers to.
    text: String,
    edits: Vec<Edit>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Key {
    #[default]
    Other,
    Env,
    Name,
    Value,
    SubPathExpr,
    LastApplied,
}

impl Key {
    fn of(name: &str) -> Self {
        // Decoders of the Kubernetes world differ in whether case matters; here it never does.
        let known = [
            ("env", Self::Env),
            ("name", Self::Name),
            ("value", Self::Value),
            ("subPathExpr", Self::SubPathExpr),
            (LAST_APPLIED, Self::LastApplied),
        ];
        let found = known.iter().find(|(text, _)| text.eq_ignore_ascii_case(name));
        found.map_or(Self::Other, |(_, key)| *key)
    }
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, scopes: Vec::new(), edits: Vec::new() }
    }

    fn scan(mut self) -> Vec<Edit> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'{' | b'[' => self.open(*byte == b'{'),
                b'}' | b']' => self.close(),
                b'"' => self.string(),
                b',' => {
                    if let Some(scope) = self.scopes.last_mut() {
                        scope.wants_key = scope.is_object;
                    }
                    self.at += 1;
                }
                b':' | b' ' | b'\t' | b'\r' | b'\n' => self.at += 1,
                _ => self.literal(),
            }
        }
        self.edits
    }

    fn open(&mut self, is_object: bool) {
        let key = match self.scopes.last() {
            Some(parent) if parent.is_object => parent.key,
            _ => Key::Other,
        };
        self.scopes.push(Scope {
            is_object,
            start: self.at,
            wants_key: is_object,
            key: if is_object { Key::Other } else { key },
            ..Scope::default()
        });
        self.at += 1;
    }

    fn close(&mut self) {
        self.at += 1;
        let Some(scope) = self.scopes.pop() else {
            return;
        };
        let with = if scope.is_object { "{}" } else { "[]" };
        let span = scope.start..self.at;
        if scope.is_object {
            if self.in_env() {
                self.end_variable(scope);
            } else {
                self.end_container(scope);
            }
        }
        // A value that should have been a text.
        if self.is_env_value()
            && let Some(variable) = self.scopes.last_mut()
        {
            variable.values.push(Edit { span, with });
        }
    }

    fn string(&mut self) {
        let start = self.at;
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += if *byte == b'\\' { 2 } else { 1 };
            if *byte == b'"' {
                break;
            }
        }
        let span = start..self.at.min(bytes.len());
        let raw = &self.text[span.clone()];
        let is_env_value = self.is_env_value();
        let depth = self.scopes.len();
        let Some(scope) = self.scopes.last_mut() else {
            return;
        };
        if scope.is_object && scope.wants_key {
            scope.key = Key::of(&unquote(raw));
            scope.wants_key = false;
            return;
        }
        let with = "\"<redacted>\"";
        match scope.key {
            _ if !scope.is_object => {}
            Key::Value if is_env_value && raw.len() > 2 => scope.values.push(Edit { span, with }),
            Key::Name => scope.name = unquote(raw).into_owned(),
            Key::LastApplied => self.edits.push(Edit { span, with }),
            // mount object, `volumeMounts` array, container object
            Key::SubPathExpr if depth >= 3 => {
                self.scopes[depth - 3].exprs.push(unquote(raw).into_owned());
            }
            _ => {}
        }
    }

    fn literal(&mut self) {
        let rest = &self.text[self.at..];
        let end = rest.find([',', '}', ']', ' ', '\t', '\r', '\n']);
        let end = self.at + end.unwrap_or(rest.len());
        let span = self.at..end;
        let with = match &self.text[span.clone()] {
            "null" => "null",
            "true" | "false" => "false",
            _ => "0",
        };
        if self.is_env_value()
            && let Some(variable) = self.scopes.last_mut()
        {
            variable.values.push(Edit { span, with });
        }
        self.at = end;
    }

    /// Whether the innermost scope is an `env` array.
    fn in_env(&self) -> bool {
        let scope = self.scopes.last();
        scope.is_some_and(|array| !array.is_object && array.key == Key::Env)
    }

    /// Whether the value at hand is that of a variable.
    fn is_env_value(&self) -> bool {
        let [.., array, item] = self.scopes.as_slice() else {
            return false;
        };
        let in_env = !array.is_object && array.key == Key::Env;
        in_env && item.is_object && !item.wants_key && item.key == Key::Value
    }

    fn end_variable(&mut self, scope: Scope) {
        let first = scope.values.first();
        let text = first.map(|edit| unquote(&self.text[edit.span.clone()]).into_owned());
        let variable = Variable { name: scope.name, text: text.unwrap_or_default(), edits: scope.values };
        // The array, then the container that holds it.
        let depth = self.scopes.len();
        match depth.checked_sub(2).and_then(|at| self.scopes.get_mut(at)) {
            Some(container) => container.env.push(variable),
            None => self.edits.extend(variable.edits),
        }
    }

    fn end_container(&mut self, scope: Scope) {
        let mut exprs = scope.exprs;
        let mut env = scope.env;
        // What an expression refers to may refer further.
        while let Some(expr) = exprs.pop() {
            let mut at = 0;
            while at < env.len() {
                if expr.contains(&format!("$({})", env[at].name)) {
                    exprs.push(env.swap_remove(at).text);
                } else {
                    at += 1;
                }
            }
        }
        self.edits.extend(env.into_iter().flat_map(|variable| variable.edits));
    }
}

fn unquote(raw: &str) -> Cow<'_, str> {
    if raw.contains('\\') {
        return Cow::Owned(serde_json::from_str(raw).unwrap_or_default());
    }
    let inner = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    Cow::Borrowed(inner.unwrap_or(raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expect: &str) {
        assert_eq!(json(input), expect);
        assert_eq!(json(expect), expect, "redaction must be idempotent");
    }

    #[test]
    fn values_of_variables_go_and_all_else_stays() {
        check(
            r#"{"spec":{ "containers" : [{"name":"c","env":[{"name":"A","value":"s\"1"},{"value":"s2","name":"B"}],"args":["x"]}]}}"#,
            r#"{"spec":{ "containers" : [{"name":"c","env":[{"name":"A","value":"<redacted>"},{"value":"<redacted>","name":"B"}],"args":["x"]}]}}"#,
        );
        check(
            r#"{"initContainers":[{"env":[{"name":"A","value":"s"}]}],"ephemeralContainers":[{"env":[{"name":"A","value":"s"}]}]}"#,
            r#"{"initContainers":[{"env":[{"name":"A","value":"<redacted>"}]}],"ephemeralContainers":[{"env":[{"name":"A","value":"<redacted>"}]}]}"#,
        );
    }

    #[test]
    fn values_elsewhere_stay() {
        let text = r#"{"tolerations":[{"key":"k","value":"v"}],"sysctls":[{"name":"n","value":"1"}],"env":{"value":"x"},"value":"y","n":1e3,"e":[]}"#;
        check(text, text);
        let text = r#"{"env":[{"name":"A","valueFrom":{"fieldRef":{"fieldPath":"value"}}},{"name":"B","value":""},{"name":"C"}]}"#;
        check(text, text);
    }

    #[test]
    fn spelling_does_not_hide_a_secret() {
        check(
            r#"{"\u0065nv":[{"n\u0061me":"A","\u0076alue":"s"},{"Value":"s"}],"ENV":[{"VALUE":"s"}]}"#,
            r#"{"\u0065nv":[{"n\u0061me":"A","\u0076alue":"<redacted>"},{"Value":"<redacted>"}],"ENV":[{"VALUE":"<redacted>"}]}"#,
        );
        check(r#"{"env":[{"value":"s1","value":"s2"}]}"#, r#"{"env":[{"value":"<redacted>","value":"<redacted>"}]}"#);
    }

    #[test]
    fn values_of_other_types_keep_their_type() {
        check(
            r#"{"env":[{"value":12345},{"value":true},{"value":null},{"value":["s",{"a":"s"}]},{"value":{"env":[{"value":"s"}]}}]}"#,
            r#"{"env":[{"value":0},{"value":false},{"value":null},{"value":[]},{"value":{}}]}"#,
        );
    }

    #[test]
    fn the_copy_that_kubectl_keeps_goes() {
        check(
            r#"{"metadata":{"annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":"{\"env\":[{\"value\":\"s\"}]}"}}}"#,
            r#"{"metadata":{"annotations":{"a":"b","kubectl.kubernetes.io/last-applied-configuration":"<redacted>"}}}"#,
        );
    }

    #[test]
    fn what_names_a_directory_stays_in_its_container_only() {
        check(
            r#"{"containers":[{"env":[{"name":"DIR","value":"x-$(SUB)"},{"name":"SUB","value":"y"},{"name":"T","value":"s"}],"volumeMounts":[{"subPathExpr":"a/$(DIR)"}]},{"env":[{"name":"DIR","value":"s"}]}]}"#,
            r#"{"containers":[{"env":[{"name":"DIR","value":"x-$(SUB)"},{"name":"SUB","value":"y"},{"name":"T","value":"<redacted>"}],"volumeMounts":[{"subPathExpr":"a/$(DIR)"}]},{"env":[{"name":"DIR","value":"<redacted>"}]}]}"#,
        );
    }

    #[test]
    fn no_json_is_replaced_whole() {
        for text in ["", "{", r#"{"env":[{"value":"s"}]"#, "s", r#"{"a":1} s"#] {
            check(text, REDACTED);
        }
        assert!(serde_json::from_str::<serde::de::IgnoredAny>(REDACTED).is_err());
    }

    #[test]
    fn objects_that_hold_secrets_keep_their_keys_only() {
        let text = concat!(
            r#"{"metadata":{"name":"s","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"geheim"}},"#,
            r#""data":{"k":"Z2VoZWlt"},"stringData":{"a":"geheim"},"status":{"token":"geheim","x":1}}"#
        );
        for text in [text.to_owned(), format!(r#"{{"items":[{text},{text}]}}"#)] {
            let clean = answer(&text, true).into_owned();
            assert!(!clean.contains("geheim") && !clean.contains("Z2VoZWlt"), "{clean}");
            assert!(clean.contains(r#""k":"PHJlZGFjdGVkPg==""#) && clean.contains(r#""x":1"#), "{clean}");
            assert_eq!(answer(&clean, true), clean.as_str());
        }
        assert_eq!(answer("geheim", true), REDACTED);
        assert_eq!(answer(r#"{"data":"geheim"}"#, true), r#"{"data":null}"#);
    }

    #[test]
    fn facts_of_the_api_server_are_cleaned() {
        let pod = r#"{"spec":{"containers":[{"env":[{"name":"A","value":"geheim"}]}]}}"#;
        let event = ApiEvent { kind: components::edge::api::EventKind::Added, object: Arc::from(pod) };
        let watch = components::ids::Ticket(1);
        let told = Ingress::Api(ApiIngress::WatchEvents { watch, secret: false, events: vec![event] });
        let answered = Answered { status: 200, secret: false, body: Arc::from(pod), retry_after: None };
        let outcome = Outcome::Done(Answer::Api(ApiAnswer::Answered(Box::new(answered))));
        let done = Ingress::Completed(Completion { ticket: watch, outcome });
        for fact in [told, done] {
            assert!(format!("{fact:?}").contains("geheim"));
            assert!(!format!("{:?}", api(&fact)).contains("geheim"));
        }
    }

    #[test]
    fn deep_nesting_neither_overflows_nor_leaks() {
        let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
        let text = format!(r#"{{"a":{deep},"env":[{{"value":"s3cret"}}]}}"#);
        assert!(!json(&text).contains("s3cret"));
    }
}
