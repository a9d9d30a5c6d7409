//! What stands in the files of `downwardAPI` and `projected` volumes (contract 3.7): fields of the pod and resources of
//! its containers. Reads only its arguments.

use crate::runtime::env::{EnvContext, resource_field};
use components::edge::host::ProjectedFile;
use components::node::{Machine, NodeConfig};
use components::spec::{EnvSource, PodSpec, VolumeFile};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The files with their content.
///
/// # Errors
/// The reference that cannot be resolved, as a sentence.
pub(super) fn files(
    items: &[VolumeFile],
    spec: &PodSpec,
    config: &NodeConfig,
    machine: &Machine,
) -> Result<Vec<ProjectedFile>, String> {
    let context = EnvContext { spec, config, machine, pod_ips: &[], files: &[] };
    let content = |source: &EnvSource| match source {
        EnvSource::Field(path) => field(spec, path),
        EnvSource::Resource { container, resource, divisor_milli } => {
            resource_field(&context, container, resource, *divisor_milli)
        }
        _ => Err("a file of a volume shows a field or a resource".to_owned()),
    };
    items
        .iter()
        .map(|item| Ok(ProjectedFile { path: item.path.clone(), mode: item.mode, content: content(&item.source)? }))
        .collect()
}

fn field(spec: &PodSpec, path: &str) -> Result<String, String> {
    let keyed = |map: &BTreeMap<String, String>, prefix: &str| {
        let key = path.strip_prefix(prefix)?.strip_suffix("']")?;
        Some(map.get(key).cloned().unwrap_or_default())
    };
    Ok(match path {
        "metadata.name" => spec.name.to_string(),
        "metadata.namespace" => spec.namespace.to_string(),
        "metadata.uid" => spec.uid.to_string(),
        "metadata.labels" => lines(&spec.labels),
        "metadata.annotations" => lines(&spec.annotations),
        _ => keyed(&spec.labels, "metadata.labels['")
            .or_else(|| keyed(&spec.annotations, "metadata.annotations['"))
            .ok_or_else(|| format!("unsupported fieldPath: {path}"))?,
    })
}

/// `key="value"` per line, in the order of the lines, with values quoted as Go quotes them.
fn lines(map: &BTreeMap<String, String>) -> String {
    let mut lines: Vec<String> = map.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
    lines.sort();
    lines.join("\n")
}

/// Go's `%q`.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        let done = match c {
            '"' => out.write_str("\\\""),
            '\\' => out.write_str("\\\\"),
            '\u{7}' => out.write_str("\\a"),
            '\u{8}' => out.write_str("\\b"),
            '\u{c}' => out.write_str("\\f"),
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            '\u{b}' => out.write_str("\\v"),
            c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)),
            c if shown(c) => out.write_char(c),
            c if u32::from(c) < 0x1_0000 => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
        // Writing to a string cannot fail.
        debug_assert!(done.is_ok(), "a string takes any text");
    }
    out.push('"');
    out
}

/// What Go prints as it is: no control, format or private character and no other space than the plain one.
fn shown(c: char) -> bool {
    let code = u32::from(c);
    let format = matches!(code, 0xAD | 0x200B..=0x200F | 0x2028..=0x202E | 0x2060..=0x206F | 0xFEFF | 0xFFF9..=0xFFFB);
    let private = matches!(code, 0xE000..=0xF8FF | 0xF_0000..);
    c == ' ' || !(c.is_control() || c.is_whitespace() || format || private)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    fn pod() -> PodSpec {
        let mut spec = fixtures::spec("always a");
        spec.labels = [("zone", "b"), ("app", "web")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        spec.annotations =
            [("note", "two\nlines \"and\" é\u{1}\u{200b}")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        spec.containers[0].resources.limits.memory_bytes = Some(64 << 20);
        spec
    }

    #[track_caller]
    fn check(path: &str, expect: &str) {
        assert_eq!(field(&pod(), path).unwrap_or_else(|error| error), expect);
    }

    #[test]
    fn fields_print_as_the_kubelet_prints_them() {
        check("metadata.name", "pod");
        check("metadata.uid", "uid");
        check("metadata.labels", "app=\"web\"\nzone=\"b\"");
        check("metadata.annotations", "note=\"two\\nlines \\\"and\\\" é\\x01\\u200b\"");
        check("metadata.labels['app']", "web");
        check("metadata.labels['none']", "");
        check("metadata.annotations['note']", "two\nlines \"and\" é\u{1}\u{200b}");
        check("status.podIP", "unsupported fieldPath: status.podIP");
    }
}
