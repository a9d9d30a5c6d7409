//! Reads YAML or JSON text into a tree, within bounds.
//!
//! YAML is a superset of JSON, so one reader serves both. Size, depth and alias expansion are limited, so that a hostile
//! or damaged file costs little and gets a one-line answer.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;
use serde_saphyr::options::DuplicateKeyPolicy;

use crate::config::decode::{Findings, Problem};
use crate::config::tree::{Entry, Node, Origin, Value, index, join};

/// The largest configuration file that is read.
pub const MAX_FILE_BYTES: usize = 4 << 20;
/// Objects and lists inside each other; the deepest field of a KubeletConfiguration sits at 5.
const MAX_DEPTH: usize = 32;
/// Values in one file, aliases expanded; a file that sets every field has a few hundred.
const MAX_NODES: usize = 20_000;

/// Reads one document; repeated fields are warned about and the last one wins.
pub fn parse(file: &str, bytes: &[u8], found: &mut Findings) -> Option<Node> {
    let file: Arc<str> = file.into();
    let at = |line| Origin { file: file.clone(), line };
    let text = match as_text(bytes) {
        Ok(text) => text,
        Err((line, message)) => {
            found.error(&at(line), "", message);
            return None;
        }
    };
    let documents = match serde_saphyr::from_multiple_with_options::<Spanned<Raw>>(text, options()) {
        Ok(documents) => documents,
        Err(error) => {
            let line = error.location().map_or(0, |l| l.line() as u32);
            found.error(&at(line), "", one_line(&error));
            return None;
        }
    };
    let mut documents = documents.into_iter();
    let Some(first) = documents.next().filter(|d| !matches!(d.value, Raw::Null)) else {
        found.error(&at(0), "", "the file is empty: want a KubeletConfiguration".to_owned());
        return None;
    };
    if let Some(next) = documents.next() {
        found.warn(&at(next.defined.line() as u32), String::new(), "only the first document of the file is used");
    }
    Some(build(first, &file, "", found))
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_documents: 16,
            max_total_scalar_bytes: MAX_FILE_BYTES,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        legacy_octal_numbers: true,
    }
}

/// Text, or the line and the reason why it is none.
fn as_text(bytes: &[u8]) -> Result<&str, (u32, String)> {
    let line_of = |end: usize| 1 + bytes[..end].iter().filter(|b| **b == b'\n').count() as u32;
    if bytes.len() > MAX_FILE_BYTES {
        return Err((0, format!("the file is larger than {} MiB", MAX_FILE_BYTES >> 20)));
    }
    if let Some(position) = bytes.iter().position(|b| *b == 0) {
        return Err((line_of(position), "not a text file: it contains a zero byte".to_owned()));
    }
    std::str::from_utf8(bytes).map_err(|e| (line_of(e.valid_up_to()), "not a text file: it is not UTF-8".to_owned()))
}

/// The parser's message without its snippet and its own place.
fn one_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let line = text.lines().next().unwrap_or_default();
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let line = line.split_once(": ").filter(|(head, _)| head.starts_with("line ")).map_or(line, |(_, rest)| rest);
    let line = line.find(" at line ").map_or(line, |end| &line[..end]);
    format!("not valid YAML or JSON: {line}")
}

fn build(raw: Spanned<Raw>, file: &Arc<str>, path: &str, found: &mut Findings) -> Node {
    let at = Origin { file: file.clone(), line: raw.referenced.line() as u32 };
    let value = match raw.value {
        Raw::Null => Value::Null,
        Raw::Bool(b) => Value::Bool(b),
        Raw::Int(n) => Value::Int(n),
        Raw::Float(n) => Value::Float(n),
        Raw::Text(text) => Value::Text(text),
        Raw::List(items) => Value::List(
            items.into_iter().enumerate().map(|(i, item)| build(item, file, &index(path, i), found)).collect(),
        ),
        Raw::Object(pairs) => build_object(pairs, file, path, found),
    };
    Node { value, at }
}

fn build_object(
    pairs: Vec<(Spanned<String>, Spanned<Raw>)>,
    file: &Arc<str>,
    path: &str,
    found: &mut Findings,
) -> Value {
    let mut entries: Vec<Entry> = Vec::with_capacity(pairs.len());
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (key, raw) in pairs {
        let at = Origin { file: file.clone(), line: key.referenced.line() as u32 };
        let child = join(path, &key.value);
        let value = build(raw, file, &child, found);
        match places.get(&key.value).map(|place| &mut entries[*place]) {
            Some(earlier) => {
                let message = format!("repeated field, the value of line {} is replaced", earlier.at.line);
                found.warnings.push(Problem { at: at.clone(), field: child, message });
                *earlier = Entry { key: key.value, at, value };
            }
            None => {
                places.insert(key.value.clone(), entries.len());
                entries.push(Entry { key: key.value, at, value });
            }
        }
    }
    Value::Object(entries)
}

/// A document as the YAML reader hands it over.
enum Raw {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Self>>),
    Object(Vec<(Spanned<String>, Spanned<Self>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(i64::try_from(value).map_or(Raw::Float(value as f64), Raw::Int))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Raw, E> {
        Ok(Raw::Float(value as f64))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Raw, E> {
        Ok(Raw::Float(value as f64))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            pairs.push(pair);
        }
        Ok(Raw::Object(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(problems: &[Problem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    fn read(text: &[u8]) -> (Option<Node>, Vec<String>, Vec<String>) {
        let mut found = Findings::default();
        let node = parse("f", text, &mut found);
        (node, lines(&found.errors), lines(&found.warnings))
    }

    #[track_caller]
    fn refuse(text: impl AsRef<[u8]>, expect: &str) {
        let (node, errors, _) = read(text.as_ref());
        assert!(node.is_none());
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(expect), "want {expect:?} in {:?}", errors[0]);
        assert!(!errors[0].contains('\n') && errors[0].len() < 300, "{:?}", errors[0]);
    }

    #[test]
    fn every_value_knows_its_line() {
        let (node, errors, warnings) = read(b"# head\na: 1\nb:\n  - x\n  - {c: 2.5, d: null}\ne: 'yes'\nf: true\n");
        assert!(errors.is_empty() && warnings.is_empty());
        let mut seen = Vec::new();
        node.unwrap().walk("", &mut |path, at| seen.push(format!("{path}:{}", at.line)));
        assert_eq!(seen, ["a:2", "b:3", "b[0]:4", "b[1]:5", "b[1].c:5", "b[1].d:5", "e:6", "f:7"]);
    }

    #[test]
    fn line_ends_and_marks_of_other_systems_are_read() {
        let (node, errors, _) = read(b"\xef\xbb\xbfa: 1\r\nb: yes\r\nc: 0644\r\n");
        assert_eq!(errors, [""; 0]);
        let node = node.unwrap();
        assert_eq!(node.get("a").map(|n| n.value.clone()), Some(Value::Int(1)));
        assert_eq!(node.get("b").map(|n| n.value.clone()), Some(Value::Bool(true)));
        assert_eq!(node.get("c").map(|n| (n.value.clone(), n.at.line)), Some((Value::Int(420), 3)));
    }

    #[test]
    fn json_with_tabs_is_read() {
        let (node, errors, _) = read(b"{\n\t\"a\": [1, 2],\n\t\"b\": {\"c\": \"x\"}\n}\n");
        assert_eq!(errors, [""; 0]);
        assert_eq!(node.unwrap().get("b").unwrap().get("c").unwrap().at.line, 3);
    }

    #[test]
    fn repeated_fields_are_warned_about_and_the_last_wins() {
        let (node, errors, warnings) = read(b"a: 1\nm:\n  x: 1\n  x: 2\na: 3\n");
        assert!(errors.is_empty());
        assert_eq!(
            warnings,
            [
                "f:4: m.x: repeated field, the value of line 3 is replaced",
                "f:5: a: repeated field, the value of line 1 is replaced",
            ]
        );
        assert_eq!(node.unwrap().get("a").unwrap().value, Value::Int(3));
    }

    #[test]
    fn a_second_document_is_warned_about() {
        let (node, errors, warnings) = read(b"---\na: 1\n---\nb: 2\n");
        assert!(node.is_some() && errors.is_empty());
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].contains("only the first document"));
    }

    #[test]
    fn bad_input_gets_one_line() {
        refuse("", "the file is empty");
        refuse("\n# only a comment\n", "the file is empty");
        refuse("---\n", "the file is empty");
        refuse(b"a: 1\nb: \0\n", "f:2: not a text file");
        refuse(b"a: 1\n\xff\xfe\n", "f:2: not a text file");
        refuse("{\"a\": 1", "not valid YAML or JSON");
        refuse("{\"a\": [1, 2", "not valid YAML or JSON");
        refuse("a: \"cut off", "not valid YAML or JSON");
        refuse("a: 1\n b: 2\n  c", "f:2: not valid YAML or JSON");
        refuse("a: [\n", "not valid YAML or JSON");
        refuse("x: ".repeat(40), "not valid YAML or JSON");
        refuse("[".repeat(5000), "not valid YAML or JSON");
        refuse("{\"a\":".repeat(5000), "not valid YAML or JSON");
        refuse((0..500).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>(), "not valid YAML or JSON");
        refuse(vec![b'a'; MAX_FILE_BYTES + 1], "larger than 4 MiB");
        refuse("a: *nowhere\n", "not valid YAML or JSON");
        refuse((0..20_000).map(|i| format!("k{i}: 1\n")).collect::<String>(), "not valid YAML or JSON");
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut bomb = String::from("l0: &l0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let earlier = format!("*l{}", level - 1);
            bomb += &format!("l{level}: &l{level} [{}]\n", vec![earlier; 10].join(", "));
        }
        refuse(bomb, "not valid YAML or JSON");
    }

    #[test]
    fn modest_anchors_work() {
        let (node, errors, _) = read(b"a: &x {k: 1}\nb: *x\n");
        assert!(errors.is_empty());
        assert_eq!(node.unwrap().get("b").unwrap().get("k").unwrap().value, Value::Int(1));
    }
}
