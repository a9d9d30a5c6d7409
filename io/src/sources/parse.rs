//! One file or answer to its objects: YAML or JSON, a single object or a list, within bounds.
//!
//! What is JSON is read as JSON, which is ten times faster; all else by the reader of YAML, which also says what is
//! wrong. Size, depth and the expansion of aliases are limited: a hostile or damaged file costs little and gets a
//! one-line answer. What the objects mean is decided elsewhere.

use components::edge::sources::{Manifest, ManifestProblem};
use components::fnv::fnv1a_128;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::DuplicateKeyPolicy;
use std::fmt;
use std::sync::Arc;

/// The largest file or answer that is read.
pub(super) const MAX_BYTES: usize = 10 << 20;
/// Objects and lists inside each other; the deepest field of a Pod sits at about 12, a list adds 2.
const MAX_DEPTH: usize = 64;
/// What anchors may hold in all: an alias bomb is refused within milliseconds, before it holds up the files beside it.
const MAX_ANCHORED: usize = 50_000;
/// Values in one file, aliases expanded.
const MAX_NODES: usize = 2_000_000;
/// At most this many repeated fields are named.
const MAX_REPEATED: usize = 5;

/// What a file or answer holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// Its objects in order.
    pub(super) manifests: Vec<Manifest>,
    /// What is to be said about it although its objects are usable.
    pub(super) remarks: Vec<ManifestProblem>,
}

/// Reads `bytes`, which came from `origin`.
pub(super) fn parse(origin: &Arc<str>, bytes: &[u8]) -> Result<Content, String> {
    let text = as_text(bytes)?;
    let mut documents = match as_json(text) {
        Some(document) => vec![document],
        None => serde_saphyr::from_multiple_with_options(text, options()).map_err(|error| one_line(&error))?,
    }
    .into_iter();
    let first = documents.next().filter(|document| !document.value.is_null());
    let Some(Document { value, repeated }) = first else { return Err("it is empty: want a Pod".to_owned()) };
    let mut content = Content::default();
    let mut remark = |message: String| {
        content.remarks.push(ManifestProblem { origin: Arc::clone(origin), message });
    };
    if !repeated.is_empty() {
        remark(format!("repeated fields, the last of each counts: {}", repeated.join(", ")));
    }
    if documents.next().is_some() {
        remark("only the first of its documents is used".to_owned());
    }
    for (index, object) in objects(value)?.into_iter().enumerate() {
        content.manifests.push(manifest(origin, index, object));
    }
    Ok(content)
}

/// The document when it is an object in JSON, and no deeper than any other may be.
fn as_json(text: &str) -> Option<Document> {
    let document: Document = text.trim_start().starts_with('{').then(|| serde_json::from_str(text).ok())??;
    fits(&document.value, MAX_DEPTH).then_some(document)
}

/// Whether no more than `levels` objects and lists lie inside each other.
fn fits(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(fields) => levels > 0 && fields.values().all(|field| fits(field, levels - 1)),
        Value::Array(items) => levels > 0 && items.iter().all(|item| fits(item, levels - 1)),
        _ => true,
    }
}

/// The object itself, or the items of a list with the list's kind put on each.
fn objects(value: Value) -> Result<Vec<Value>, String> {
    let Value::Object(mut object) = value else { return Err("it is no object: want a Pod".to_owned()) };
    if object.get("kind").and_then(Value::as_str) != Some("PodList") {
        return Ok(vec![Value::Object(object)]);
    }
    if object.get("apiVersion").and_then(Value::as_str) != Some("v1") {
        return Err("a PodList must have apiVersion v1".to_owned());
    }
    let items = match object.remove("items") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => return Err("items of the PodList must be a list".to_owned()),
    };
    Ok(items.into_iter().map(with_kind).collect())
}

/// Items of a list may leave out what the list says of them.
fn with_kind(mut item: Value) -> Value {
    if let Value::Object(fields) = &mut item {
        fields.entry("apiVersion").or_insert_with(|| "v1".into());
        fields.entry("kind").or_insert_with(|| "Pod".into());
    }
    item
}

fn manifest(origin: &Arc<str>, index: usize, mut object: Value) -> Manifest {
    let json: Arc<str> = object.to_string().into();
    let status = object.as_object_mut().and_then(|fields| fields.remove("status"));
    let digest = match status {
        Some(_) => fnv1a_128(object.to_string().as_bytes()),
        None => fnv1a_128(json.as_bytes()),
    };
    Manifest { origin: Arc::clone(origin), index: u32::try_from(index).unwrap_or(u32::MAX), digest, json }
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_documents: 64,
            max_total_scalar_bytes: 2 * MAX_BYTES,
            max_recorded_anchor_events: MAX_ANCHORED,
        },
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        legacy_octal_numbers: true,
    }
}

/// Text, or why it is none.
fn as_text(bytes: &[u8]) -> Result<&str, String> {
    let line_of = |end: usize| 1 + bytes[..end].iter().filter(|b| **b == b'\n').count();
    if bytes.len() > MAX_BYTES {
        return Err(format!("it is larger than {} MiB", MAX_BYTES >> 20));
    }
    if let Some(at) = bytes.iter().position(|b| *b == 0) {
        return Err(format!("line {}: not a text file, it contains a zero byte", line_of(at)));
    }
    std::str::from_utf8(bytes)
        .map_err(|e| format!("line {}: not a text file, it is not UTF-8", line_of(e.valid_up_to())))
}

/// The parser's message as one line that begins with the line number.
fn one_line(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    let said = text.lines().next().unwrap_or_default();
    let said = said.strip_prefix("error: ").unwrap_or(said);
    let said = said.split_once(": ").filter(|(head, _)| head.starts_with("line ")).map_or(said, |(_, rest)| rest);
    let said = said.find(" at line ").map_or(said, |end| &said[..end]);
    match error.location() {
        Some(at) => format!("line {}: not valid YAML or JSON: {said}", at.line()),
        None => format!("not valid YAML or JSON: {said}"),
    }
}

/// A document as JSON, with the names of fields that it repeats.
struct Document {
    value: Value,
    repeated: Vec<String>,
}

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DocumentVisitor)
    }
}

struct DocumentVisitor;

impl DocumentVisitor {
    const fn plain<E>(value: Value) -> Result<Document, E> {
        Ok(Document { value, repeated: Vec::new() })
    }
}

impl<'de> Visitor<'de> for DocumentVisitor {
    type Value = Document;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Document, E> {
        Self::plain(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Document, E> {
        Self::plain(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Document, D::Error> {
        Document::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Document, E> {
        Self::plain(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Document, E> {
        Self::plain(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Document, E> {
        Self::plain(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Document, E> {
        let number = Number::from_f64(value).ok_or_else(|| E::custom("a number that JSON does not have"))?;
        Self::plain(Value::Number(number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Document, E> {
        Self::plain(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Document, E> {
        Self::plain(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Document, A::Error> {
        let mut items = Vec::new();
        let mut repeated = Vec::new();
        while let Some(item) = seq.next_element::<Document>()? {
            items.push(item.value);
            note(&mut repeated, item.repeated);
        }
        Ok(Document { value: Value::Array(items), repeated })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Document, A::Error> {
        let mut fields = Map::new();
        let mut repeated = Vec::new();
        while let Some((key, field)) = map.next_entry::<String, Document>()? {
            note(&mut repeated, field.repeated);
            if fields.contains_key(&key) {
                note(&mut repeated, vec![key.clone()]);
            }
            fields.insert(key, field.value);
        }
        Ok(Document { value: Value::Object(fields), repeated })
    }
}

fn note(repeated: &mut Vec<String>, more: Vec<String>) {
    let room = MAX_REPEATED.saturating_sub(repeated.len());
    repeated.extend(more.into_iter().take(room));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: impl AsRef<[u8]>) -> Result<Content, String> {
        parse(&"f".into(), text.as_ref())
    }

    #[track_caller]
    fn check(text: &str, expect: &[&str], remarks: &[&str]) {
        let content = read(text).unwrap();
        let found: Vec<&str> = content.manifests.iter().map(|m| &*m.json).collect();
        assert_eq!(found, expect);
        let said: Vec<&str> = content.remarks.iter().map(|r| r.message.as_str()).collect();
        assert_eq!(said, remarks);
    }

    #[track_caller]
    fn refuse(text: impl AsRef<[u8]>, expect: &str) {
        let message = read(text).unwrap_err();
        assert!(message.contains(expect), "want {expect:?} in {message:?}");
        assert!(!message.contains('\n') && message.len() < 300, "{message:?}");
    }

    #[test]
    fn yaml_and_json_give_the_same_object() {
        let json = r#"{"a":[1,2.5,"x"],"b":{"c":null,"d":true}}"#;
        check(json, &[json], &[]);
        check("b: {d: true, c: ~}\na:\n- 1\n- 2.5\n- x\n", &[json], &[]);
        check("# comment\n---\nb:\n  c:\n  d: true\na: [1, 2.5, 'x']\n", &[json], &[]);
        check("{\"a\": \"\\ud83d\\ude00\\/\"}", &["{\"a\":\"\u{1f600}/\"}"], &[]);
        check("{\n\t\"a\": [1, 2.5, \"x\"],\n\t\"b\": {\"c\": null, \"d\": true}\n}\n", &[json], &[]);
    }

    #[test]
    fn scalars_are_typed_as_the_reference_types_them() {
        check(
            "a: yes\nb: 'yes'\nc: 0644\nd: 1e3\ne: \"1\"\n",
            &[r#"{"a":true,"b":"yes","c":420,"d":1000.0,"e":"1"}"#],
            &[],
        );
        check("a: 18446744073709551615\nb: -1\n1: x\n", &[r#"{"1":"x","a":18446744073709551615,"b":-1}"#], &[]);
    }

    #[test]
    fn lists_are_split_and_items_get_their_kind() {
        let pods =
            "apiVersion: v1\nkind: PodList\nitems:\n- metadata: {name: a}\n- {apiVersion: v1, kind: Pod, x: 1}\n";
        check(
            pods,
            &[
                r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}"#,
                r#"{"apiVersion":"v1","kind":"Pod","x":1}"#,
            ],
            &[],
        );
        let indexes: Vec<u32> = read(pods).unwrap().manifests.iter().map(|m| m.index).collect();
        assert_eq!(indexes, [0, 1]);
        check("{apiVersion: v1, kind: PodList, items: []}", &[], &[]);
        check("{apiVersion: v1, kind: PodList}", &[], &[]);
        refuse("{apiVersion: v1, kind: PodList, items: {}}", "items of the PodList must be a list");
        refuse("{kind: PodList, items: []}", "apiVersion v1");
    }

    #[test]
    fn the_digest_follows_content_not_form_or_status() {
        let digest = |text: &str| read(text).unwrap().manifests[0].digest;
        let base = digest("a: 1\nb: 2\n");
        assert_eq!(base, digest("# other\n{\"b\": 2, \"a\": 1}"));
        assert_eq!(base, digest("a: 1\nb: 2\nstatus: {phase: x}\n"));
        assert_ne!(base, digest("a: 1\nb: 3\n"));
    }

    #[test]
    fn repeated_fields_and_further_documents_are_remarked() {
        check(
            "a: 1\nb: {x: 1, x: 2}\na: 3\n",
            &[r#"{"a":3,"b":{"x":2}}"#],
            &["repeated fields, the last of each counts: x, a"],
        );
        check(r#"{"a": 1, "a": 2}"#, &[r#"{"a":2}"#], &["repeated fields, the last of each counts: a"]);
        check("a: 1\n---\nb: 1\n", &[r#"{"a":1}"#], &["only the first of its documents is used"]);
    }

    #[test]
    fn bad_input_gets_one_line() {
        refuse("", "it is empty");
        refuse("\n# only a comment\n", "it is empty");
        refuse("---\n", "it is empty");
        refuse("- a\n", "it is no object");
        refuse("text", "it is no object");
        refuse(b"a: 1\nb: \0\n", "line 2: not a text file");
        refuse(b"a: 1\n\xff\xfe\n", "line 2: not a text file");
        refuse("{\"a\": 1", "not valid YAML or JSON");
        refuse("a: \"cut off", "not valid YAML or JSON");
        refuse("a: 1\n b: 2\n  c", "line 2: not valid YAML or JSON");
        refuse("a: .nan", "not valid YAML or JSON");
        refuse("a: *nowhere\n", "not valid YAML or JSON");
        refuse(format!("{}1{}", "{\"a\":".repeat(65), "}".repeat(65)), "not valid YAML or JSON");
        refuse("[".repeat(100_000), "not valid YAML or JSON");
        refuse("{\"a\":".repeat(100_000), "not valid YAML or JSON");
        refuse((0..500).map(|i| format!("{}a:\n", " ".repeat(i))).collect::<String>(), "not valid YAML or JSON");
        refuse(vec![b'a'; MAX_BYTES + 1], "larger than 10 MiB");
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
}
