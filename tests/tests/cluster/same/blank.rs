//! Makes the words of two runs comparable: times, ids, addresses and folders become placeholders, objects become lines.

use std::collections::BTreeMap;

use serde_json::Value;

/// What a kubelet left: a line for each value, with its path.
pub(super) type Lines = BTreeMap<String, String>;

/// The text with everything that differs between two runs of the same program blanked.
pub(super) fn blank(text: &str) -> String {
    let mut out = String::new();
    let mut word = String::new();
    for letter in text.chars() {
        if letter.is_alphanumeric() || matches!(letter, '.' | '-' | ':') {
            word.push(letter);
        } else {
            out += &blank_word(&word);
            word.clear();
            out.push(letter);
        }
    }
    out + &blank_word(&word)
}

fn blank_word(word: &str) -> String {
    let core = word.trim_end_matches(['.', ':']);
    let tail = &word[core.len()..];
    if core.is_empty() {
        return word.to_owned();
    }
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let starts = core.starts_with(|c: char| c.is_ascii_digit());
    let blanked = if core.len() >= 20 && starts && core.contains('T') && core.ends_with('Z') {
        "TIME".to_owned()
    } else if core.len() == 36 && core.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && hex(&core.replace('-', "")) {
        "UID".to_owned()
    } else if core.len() >= 32 && hex(core) {
        "ID".to_owned()
    } else if let Some(("", _)) = core.split_once("kube-api-access-") {
        "kube-api-access-ID".to_owned()
    } else if let Some((address, port)) = core.rsplit_once(':').filter(|(a, p)| is_address(a) && digits(p)) {
        // Ports of the lab are free ones; those of services are the same everywhere.
        format!("{}:{}", address_name(address), if port.len() == 5 { "PORT" } else { port })
    } else if is_address(core) {
        address_name(core).to_owned()
    } else if starts && is_duration(core) {
        "DURATION".to_owned()
    } else {
        core.to_owned()
    };
    blanked + tail
}

fn is_address(text: &str) -> bool {
    text.split('.').count() == 4 && text.split('.').all(|part| part.parse::<u8>().is_ok())
}

/// Which address it is, not its number: the lab's subnet is chosen anew for each run.
fn address_name(address: &str) -> &'static str {
    if address.starts_with("127.") {
        "LOOPBACK"
    } else if address.ends_with(".0.1") {
        "GATEWAY"
    } else {
        "ADDRESS"
    }
}

/// As Go prints durations: numbers with units.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        let Some(unit) = ["ms", "µs", "ns", "h", "m", "s"].into_iter().find(|unit| number.starts_with(unit)) else {
            return false;
        };
        if number.len() == rest.len() {
            return false;
        }
        rest = &number[unit.len()..];
    }
    true
}

/// A value as lines: members of lists are named by their `type`, `name` or `path`, or counted.
pub(super) fn flatten(lines: &mut Lines, path: &str, value: &Value) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            fields.iter().for_each(|(key, value)| flatten(lines, &format!("{path}.{key}"), value));
        }
        Value::Array(items) if !items.is_empty() => {
            for (index, item) in items.iter().enumerate() {
                let named = ["type", "name", "mountPath"].iter().find_map(|key| item[*key].as_str());
                flatten(lines, &format!("{path}[{}]", named.map_or_else(|| index.to_string(), blank)), item);
            }
        }
        Value::String(text) => drop(lines.insert(path.to_owned(), blank(text))),
        other => drop(lines.insert(path.to_owned(), other.to_string())),
    }
}

#[test]
fn what_changes_from_run_to_run_is_blanked() {
    for (text, expect) in [
        ("at 2026-11-29T17:18:09Z", "at TIME"),
        (
            "in 12.5ms (1m3s including waiting). Image size: 12 bytes.",
            "in DURATION (DURATION including waiting). Image size: 12 bytes.",
        ),
        (
            "back-off 10s restarting failed container=c pod=p_default(1d9cd8f5-2c1f-4d8e-9c55-0d1f9a6e4f7b)",
            "back-off DURATION restarting failed container=c pod=p_default(UID)",
        ),
        ("dial tcp 10.213.3.4:8080: refused", "dial tcp ADDRESS:8080: refused"),
        ("v1.37.2, exit code 3", "v1.37.2, exit code 3"),
        ("volume \"kube-api-access-x7k2p\"", "volume \"kube-api-access-ID\""),
    ] {
        assert_eq!(blank(text), expect);
    }
}

#[test]
fn objects_become_lines() {
    let mut lines = Lines::new();
    flatten(&mut lines, "pod", &serde_json::json!({"a": [{"type": "Ready", "b": true}, 3], "c": {}, "d": null}));
    let lines: Vec<_> = lines.iter().map(|(path, value)| format!("{path}={value}")).collect();
    assert_eq!(lines, ["pod.a[1]=3", "pod.a[Ready].b=true", "pod.a[Ready].type=Ready", "pod.c={}", "pod.d=null"]);
}
