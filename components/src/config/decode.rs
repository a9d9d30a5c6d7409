//! Decodes a tree field by field and collects everything that is wrong with it.
//!
//! Wrong types and values are errors; unknown and repeated fields only warnings, as the kubelet starts with them too.

use std::collections::BTreeMap;
use std::fmt;

use crate::config::tree::{Entry, Node, Origin, Value, index, join};
use crate::duration::GoDuration;
use crate::quantity::{Format, Quantity};

/// One thing wrong at one place of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where it was written.
    pub at: Origin,
    /// The path of the field; empty when the whole document is meant.
    pub field: String,
    /// What is wrong and what would be right, on one line.
    pub message: String,
}

impl fmt::Display for Problem {
    /// `FILE:LINE: field: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.at.file)?;
        if self.at.line > 0 {
            write!(f, ":{}", self.at.line)?;
        }
        if !self.field.is_empty() {
            write!(f, ": {}", OneLine(&self.field))?;
        }
        write!(f, ": {}", OneLine(&self.message))
    }
}

/// Text that stays on one line: keys and parser messages may hold anything.
pub(super) struct OneLine<'a>(pub(super) &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 400;
        for c in self.0.chars().take(SHOWN) {
            if c.is_control() { write!(f, "{}", c.escape_default())? } else { fmt::Write::write_char(f, c)? }
        }
        Ok(())
    }
}

/// What decoding found besides the values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// What makes the configuration unusable.
    pub errors: Vec<Problem>,
    /// What was ignored.
    pub warnings: Vec<Problem>,
}

impl Findings {
    pub(super) fn error(&mut self, at: &Origin, field: &str, message: String) {
        self.errors.push(Problem { at: at.clone(), field: field.to_owned(), message });
    }

    pub(super) fn warn(&mut self, at: &Origin, field: String, message: &str) {
        self.warnings.push(Problem { at: at.clone(), field, message: message.to_owned() });
    }

    pub(super) fn unknown(&mut self, entry: &Entry, path: String) {
        self.warn(&entry.at, path, "unknown field, ignored");
    }

    fn mismatch(&mut self, node: &Node, path: &str, expected: &str) {
        let got = match &node.value {
            other if is_secret(path) => other.kind().to_owned(),
            Value::Text(text) => format!("the string {}", quote(text)),
            Value::Bool(b) => format!("the boolean {b}"),
            Value::Int(n) => format!("the number {n}"),
            Value::Float(n) => format!("the number {n}"),
            other => other.kind().to_owned(),
        };
        self.error(&node.at, path, format!("want {expected}, got {got}"));
    }
}

/// Whether the values below a path must not be shown.
fn is_secret(path: &str) -> bool {
    path.starts_with("staticPodURLHeader")
}

/// Shows user text inside a message: quoted, escaped, bounded.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 64;
    if text.chars().count() <= SHOWN {
        return format!("{text:?}");
    }
    let head: String = text.chars().take(SHOWN).collect();
    format!("{head:?}…")
}

/// A type that can be read from a node.
pub(super) trait Decode: Sized {
    /// What to ask for when the node is something else.
    const EXPECTED: &'static str;
    /// The names of its fields, if it is an object with fixed ones.
    const FIELDS: &'static [&'static str] = &[];
    /// Reads the value; on failure reports and returns nothing.
    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self>;
}

/// Reads a field into its slot; null and wrong values leave the slot alone.
pub(super) fn read<T: Decode>(node: &Node, path: &str, slot: &mut T, found: &mut Findings) {
    if node.value == Value::Null {
        return;
    }
    if let Some(value) = T::decode(node, path, found) {
        *slot = value;
    }
}

/// The entries of an object, or a report that it is none.
pub(super) fn object_entries<'a>(node: &'a Node, path: &str, found: &mut Findings) -> Option<&'a [Entry]> {
    match &node.value {
        Value::Object(entries) => Some(entries),
        _ => {
            found.mismatch(node, path, "an object");
            None
        }
    }
}

impl Decode for bool {
    const EXPECTED: &'static str = "true or false";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        match node.value {
            Value::Bool(b) => Some(b),
            _ => {
                found.mismatch(node, path, Self::EXPECTED);
                None
            }
        }
    }
}

impl Decode for String {
    const EXPECTED: &'static str = "a string";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        match &node.value {
            Value::Text(text) => Some(text.clone()),
            _ => {
                found.mismatch(node, path, Self::EXPECTED);
                None
            }
        }
    }
}

/// A whole number between two bounds.
fn whole(node: &Node, path: &str, min: i64, max: i64, found: &mut Findings) -> Option<i64> {
    let number = match node.value {
        Value::Int(n) => Some(n),
        Value::Float(n) if n.fract() == 0.0 && n.abs() < 9e15 => Some(n as i64),
        Value::Float(n) if n.fract() == 0.0 => {
            found.error(&node.at, path, format!("the number {n} is out of range, want {min} to {max}"));
            return None;
        }
        _ => None,
    };
    let Some(number) = number else {
        found.mismatch(node, path, "a whole number");
        return None;
    };
    if number < min || number > max {
        found.error(&node.at, path, format!("the number {number} is out of range, want {min} to {max}"));
        return None;
    }
    Some(number)
}

impl Decode for i32 {
    const EXPECTED: &'static str = "a whole number";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        whole(node, path, Self::MIN.into(), Self::MAX.into(), found).map(|n| n as Self)
    }
}

impl Decode for u32 {
    const EXPECTED: &'static str = "a whole number";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        whole(node, path, 0, Self::MAX.into(), found).map(|n| n as Self)
    }
}

impl Decode for i64 {
    const EXPECTED: &'static str = "a whole number";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        whole(node, path, Self::MIN, Self::MAX, found)
    }
}

impl Decode for f64 {
    const EXPECTED: &'static str = "a number";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        match node.value {
            Value::Int(n) => Some(n as Self),
            Value::Float(n) => Some(n),
            _ => {
                found.mismatch(node, path, Self::EXPECTED);
                None
            }
        }
    }
}

impl Decode for GoDuration {
    const EXPECTED: &'static str = "a duration such as \"1m30s\"";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        let Value::Text(text) = &node.value else {
            found.mismatch(node, path, Self::EXPECTED);
            return None;
        };
        Self::parse(text).map_err(|e| found.error(&node.at, path, format!("{}: {e}", quote(text)))).ok()
    }
}

impl Decode for Quantity {
    const EXPECTED: &'static str = "a quantity such as 500m, 2 or 1Gi";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        let parsed = match &node.value {
            Value::Int(n) => return Some(Self::from_units(*n, Format::DecimalSi)),
            Value::Float(n) => Self::parse(&n.to_string()).map_err(|e| (n.to_string(), e)),
            Value::Text(text) => Self::parse(text).map_err(|e| (quote(text), e)),
            _ => {
                found.mismatch(node, path, Self::EXPECTED);
                return None;
            }
        };
        parsed.map_err(|(text, e)| found.error(&node.at, path, format!("{text}: {e}"))).ok()
    }
}

impl<T: Decode> Decode for Option<T> {
    const EXPECTED: &'static str = T::EXPECTED;

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        T::decode(node, path, found).map(Some)
    }
}

impl<T: Decode> Decode for Vec<T> {
    const EXPECTED: &'static str = "a list";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        let Value::List(items) = &node.value else {
            found.mismatch(node, path, Self::EXPECTED);
            return None;
        };
        let read = |(i, item)| T::decode(item, &index(path, i), found);
        Some(items.iter().enumerate().filter_map(read).collect())
    }
}

impl<T: Decode> Decode for BTreeMap<String, T> {
    const EXPECTED: &'static str = "an object";

    fn decode(node: &Node, path: &str, found: &mut Findings) -> Option<Self> {
        let mut map = Self::new();
        for entry in object_entries(node, path, found)? {
            let child = join(path, &entry.key);
            if let Some(value) = T::decode(&entry.value, &child, found) {
                map.insert(entry.key.clone(), value);
            }
        }
        Some(map)
    }
}
