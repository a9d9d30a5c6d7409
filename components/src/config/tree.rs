//! A document as a tree that knows the file and line of each value.
//!
//! The decoder works on it field by field, so that one wrong field does not hide the next; drop-in files are merged
//! on it, so that a complaint about a merged value still names the file it came from.

use std::sync::Arc;

/// Where a value was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The file as the user named it, or the flag.
    pub file: Arc<str>,
    /// The line, from 1; 0 when the source has no lines.
    pub line: u32,
}

impl Origin {
    /// A source without lines, such as a flag or the built-in defaults.
    #[must_use]
    pub fn whole(file: &str) -> Self {
        Self { file: file.into(), line: 0 }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The value itself.
    pub value: Value,
    /// Where it was written.
    pub at: Origin,
}

/// The kinds of value that YAML and JSON share.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Absent.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number that fits 64 bits.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Text(String),
    /// A sequence.
    List(Vec<Node>),
    /// An object; keys are unique and in the order of the document.
    Object(Vec<Entry>),
}

/// One key of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Where the key was written.
    pub at: Origin,
    /// Its value.
    pub value: Node,
}

impl Value {
    /// What to call the value in an error message.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Int(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }
}

impl Node {
    /// The value under `key`, if this is an object that has one other than null.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Value::Object(entries) = &self.value else { return None };
        entries.iter().find(|e| e.key == key).map(|e| &e.value).filter(|v| v.value != Value::Null)
    }

    /// Builds a tree from plain JSON; `origin_of` says where the value at a path came from.
    pub fn from_json(json: &serde_json::Value, path: &str, origin_of: &dyn Fn(&str) -> Origin) -> Self {
        let value = match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => Value::Bool(*b),
            serde_json::Value::Number(n) => match n.as_i64() {
                Some(int) => Value::Int(int),
                None => Value::Float(n.as_f64().unwrap_or(f64::MAX)),
            },
            serde_json::Value::String(s) => Value::Text(s.clone()),
            serde_json::Value::Array(items) => Value::List(
                items.iter().enumerate().map(|(i, item)| Self::from_json(item, &index(path, i), origin_of)).collect(),
            ),
            serde_json::Value::Object(map) => Value::Object(
                map.iter()
                    .map(|(key, item)| {
                        let child = join(path, key);
                        Entry {
                            key: key.clone(),
                            at: origin_of(&child),
                            value: Self::from_json(item, &child, origin_of),
                        }
                    })
                    .collect(),
            ),
        };
        Self { value, at: origin_of(path) }
    }

    /// Lays `patch` over this tree: objects key by key, null removes, everything else replaces.
    pub fn merge(&mut self, patch: Self) {
        let Value::Object(entries) = patch.value else {
            *self = patch;
            return;
        };
        if !matches!(self.value, Value::Object(_)) {
            self.value = Value::Object(Vec::new());
        }
        let Value::Object(mine) = &mut self.value else { return };
        for entry in entries {
            let place = mine.iter().position(|e| e.key == entry.key);
            match (place, &entry.value.value) {
                (Some(i), Value::Null) => {
                    mine.remove(i);
                }
                (None, Value::Null) => {}
                (Some(i), _) => {
                    mine[i].at = entry.at;
                    mine[i].value.merge(entry.value);
                }
                (None, _) => {
                    // Merging into nothing drops the nulls inside the patch.
                    let mut value = Self { value: Value::Null, at: entry.value.at.clone() };
                    value.merge(entry.value);
                    mine.push(Entry { key: entry.key, at: entry.at, value });
                }
            }
        }
    }

    /// Calls `visit` with the path and place of every value below this one.
    pub fn walk(&self, path: &str, visit: &mut dyn FnMut(&str, &Origin)) {
        match &self.value {
            Value::Object(entries) => {
                for entry in entries {
                    let child = join(path, &entry.key);
                    visit(&child, &entry.at);
                    entry.value.walk(&child, visit);
                }
            }
            Value::List(items) => {
                for (i, item) in items.iter().enumerate() {
                    let child = index(path, i);
                    visit(&child, &item.at);
                    item.walk(&child, visit);
                }
            }
            _ => {}
        }
    }
}

/// The path of `key` below `path`; keys that are not plain names are put in brackets.
#[must_use]
pub fn join(path: &str, key: &str) -> String {
    let plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric());
    match (path.is_empty(), plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key}]"),
    }
}

/// The path of the item at `position` below `path`.
#[must_use]
pub fn index(path: &str, position: usize) -> String {
    format!("{path}[{position}]")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(json: serde_json::Value, file: &str) -> Node {
        Node::from_json(&json, "", &|_| Origin::whole(file))
    }

    #[track_caller]
    fn check(base: serde_json::Value, patch: serde_json::Value, expect: &serde_json::Value) {
        let mut node = tree(base, "base");
        node.merge(tree(patch, "patch"));
        let mut want = tree(expect.clone(), "any");
        strip(&mut node);
        strip(&mut want);
        assert_eq!(node, want);
    }

    /// Makes two trees comparable: places forgotten, keys sorted.
    fn strip(node: &mut Node) {
        node.at = Origin::whole("");
        match &mut node.value {
            Value::Object(entries) => {
                entries.sort_by(|a, b| a.key.cmp(&b.key));
                for e in entries {
                    e.at = Origin::whole("");
                    strip(&mut e.value);
                }
            }
            Value::List(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }

    #[test]
    fn merge_rules() {
        use serde_json::json;
        check(json!({"a": 1}), json!({"a": 2, "b": 3}), &json!({"a": 2, "b": 3}));
        check(json!({"m": {"x": 1, "y": 2}}), json!({"m": {"y": 3, "z": 4}}), &json!({"m": {"x": 1, "y": 3, "z": 4}}));
        check(json!({"l": [1, 2]}), json!({"l": [3]}), &json!({"l": [3]}));
        check(json!({"a": 1, "b": 2}), json!({"a": null}), &json!({"b": 2}));
        check(json!({}), json!({"m": {"x": null, "y": 1}}), &json!({"m": {"y": 1}}));
        check(json!({"a": 1}), json!({"a": {"b": 2}}), &json!({"a": {"b": 2}}));
    }

    #[test]
    fn a_merged_value_remembers_its_file() {
        let mut node = tree(serde_json::json!({"m": {"x": 1, "y": 2}}), "base");
        node.merge(tree(serde_json::json!({"m": {"y": 3}}), "patch"));
        let mut seen = Vec::new();
        node.walk("", &mut |path, at| seen.push(format!("{path}@{}", at.file)));
        assert_eq!(seen, ["m@patch", "m.x@base", "m.y@patch"]);
    }
}
