//! What stands in the files of `downwardAPI`, `configMap`, `secret` and `projected` volumes (contract 3.7): fields of
//! the pod, resources of its containers, keys of objects, and tokens. Reads only its arguments.

use crate::objects::bundles;
use crate::objects::certificates::run::NOT_YET;
use crate::runtime::env::{EnvContext, resource_field};
use components::edge::host::{FileContent, ProjectedFile};
use components::ids::Hidden;
use components::node::{Machine, NodeConfig};
use components::objects::{ObjectData, ObjectKind, ObjectRef, Objects, PodRefs, Services, TokenKey};
use components::podcerts::{CertificateSource, PodKey};
use components::spec::{
    BundleSource, ContainerKind, EnvSource, FileSource, KeyPath, PodSpec, Volume, VolumeFile, VolumeSource,
};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

/// What the files of a pod are made from.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) config: &'a NodeConfig,
    pub(crate) machine: &'a Machine,
    pub(crate) objects: &'a Objects,
    pub(crate) refs: &'a PodRefs,
}

/// The files of a volume.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    /// In order; of equal paths the last one counts.
    pub(super) files: Vec<ProjectedFile>,
    /// Versions of what stands in hidden ones.
    pub(super) versions: Vec<String>,
}

/// The files with their content.
///
/// # Errors
/// Each reference that cannot be resolved.
pub(super) fn files(sources: &[FileSource], spec: &PodSpec, origin: Origin<'_>) -> Result<Content, String> {
    let mut out = Content::default();
    let mut errors = Vec::new();
    for source in sources {
        let added = match source {
            FileSource::Known(file) => known(file, spec, origin).map(|file| out.files.push(file)),
            FileSource::Object { object, items, mode } => keys(object, items, *mode, spec, origin, &mut out),
            FileSource::Token { audience, seconds, path, mode } => {
                let key = TokenKey { audience: audience.clone(), seconds: *seconds };
                token(&key, path, *mode, spec, origin, &mut out)
            }
            FileSource::Bundle(source) => anchors(source, spec, origin, &mut out),
            FileSource::Certificate(source) => certificate(source, spec, origin, &mut out),
        };
        errors.extend(added.err());
    }
    match errors.as_slice() {
        [] => Ok(out),
        [one] => Err(one.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

/// True while something that the files are made from was asked for and nothing is known of it.
pub(super) fn pending(volume: &Volume, spec: &PodSpec, origin: Origin<'_>) -> bool {
    let VolumeSource::Files { sources, .. } = &volume.source else { return false };
    sources.iter().any(|source| match source {
        FileSource::Known(_) => false,
        FileSource::Object { object, .. } => origin.objects.pending(object, &spec.namespace),
        FileSource::Token { audience, seconds, .. } => {
            let key = TokenKey { audience: audience.clone(), seconds: *seconds };
            let run = origin.refs.tokens.get(&key);
            run.is_none_or(|run| run.token.is_none() && run.error.is_none())
        }
        FileSource::Bundle(_) => origin.objects.bundles.pending(),
        FileSource::Certificate(source) => {
            let run = origin.refs.certificates.get(&source.slot);
            run.is_none_or(|run| run.shown.is_none() && run.error.is_none())
        }
    })
}

fn known(item: &VolumeFile, spec: &PodSpec, origin: Origin<'_>) -> Result<ProjectedFile, String> {
    let Origin { config, machine, objects, .. } = origin;
    let services = &Services::default();
    let context = EnvContext { spec, config, machine, pod_ips: &[], files: &[], objects, services };
    let content = match &item.source {
        EnvSource::Field(path) => field(spec, path)?,
        EnvSource::Resource { container, resource, divisor_milli } => {
            resource_field(&context, container, resource, *divisor_milli)?
        }
        _ => return Err("a file of a volume shows a field or a resource".to_owned()),
    };
    Ok(ProjectedFile { path: item.path.clone(), mode: item.mode, content: FileContent::Text(content), owner: None })
}

/// Adds the keys of an object that are asked for.
fn keys(
    of: &ObjectRef,
    items: &[KeyPath],
    mode: u32,
    spec: &PodSpec,
    origin: Origin<'_>,
    out: &mut Content,
) -> Result<(), String> {
    let Some(data) = origin.objects.get(of.kind, &spec.namespace, &of.name)? else {
        return if of.optional { Ok(()) } else { Err(format!("{} {:?} not found", of.kind.singular(), of.name)) };
    };
    let hidden = |path: &str, mode, bytes: &Hidden| ProjectedFile {
        path: path.to_owned(),
        mode,
        content: FileContent::Hidden(Hidden(Arc::clone(&bytes.0))),
        owner: None,
    };
    let mut files = Vec::new();
    if items.is_empty() {
        files.extend(data.data.iter().chain(&data.binary).map(|(key, bytes)| hidden(key, mode, bytes)));
    }
    for item in items {
        match find(data, &item.key) {
            Some(bytes) => files.push(hidden(&item.path, item.mode, bytes)),
            None if of.optional => {}
            None => {
                return Err(match of.kind {
                    ObjectKind::ConfigMap => format!("configmap references non-existent config key: {}", item.key),
                    ObjectKind::Secret => format!("references non-existent secret key: {}", item.key),
                });
            }
        }
    }
    out.files.append(&mut files);
    out.versions.push(format!("{}/{} {}/{}", of.kind.singular(), of.name, data.uid, data.resource_version));
    Ok(())
}

fn find<'a>(data: &'a ObjectData, key: &str) -> Option<&'a Hidden> {
    data.data.get(key).or_else(|| data.binary.get(key))
}

/// Adds a token of the pod's service account.
fn token(
    key: &TokenKey,
    path: &str,
    mode: u32,
    spec: &PodSpec,
    origin: Origin<'_>,
    out: &mut Content,
) -> Result<(), String> {
    let run = origin.refs.tokens.get(key);
    let Some(token) = run.and_then(|run| run.token.as_ref()) else {
        let why = run.and_then(|run| run.error.clone());
        return Err(why.unwrap_or_else(|| "failed to fetch token: the request is under way".to_owned()));
    };
    let owner = common_user(spec);
    // Whoever is not known by user or group reads it as one of the others.
    let closed = owner.is_some() || spec.security.fs_group.is_some();
    out.files.push(ProjectedFile {
        path: path.to_owned(),
        mode: if closed { 0o600 } else { mode },
        content: FileContent::Hidden(Hidden(Arc::clone(&token.text.0))),
        owner,
    });
    out.versions.push(format!("token {:?} {} until {}", key.audience, key.seconds, token.expires.0));
    Ok(())
}

/// Adds trust anchors of the cluster.
fn anchors(source: &BundleSource, spec: &PodSpec, origin: Origin<'_>, out: &mut Content) -> Result<(), String> {
    let text = bundles::file(source, &origin.objects.bundles)?;
    let owner = common_user(spec);
    let closed = owner.is_some() || spec.security.fs_group.is_some();
    let mode = if closed { 0o600 } else { source.mode };
    out.files.push(ProjectedFile { path: source.path.clone(), mode, content: FileContent::Text(text), owner });
    Ok(())
}

/// Adds a key and the certificates that were issued for it.
fn certificate(
    source: &CertificateSource,
    spec: &PodSpec,
    origin: Origin<'_>,
    out: &mut Content,
) -> Result<(), String> {
    let run = origin.refs.certificates.get(&source.slot);
    let Some(shown) = run.and_then(|run| run.shown.as_ref()) else {
        let why = run.and_then(|run| run.error.clone());
        return Err(why.unwrap_or_else(|| NOT_YET.to_owned()));
    };
    let owner = common_user(spec);
    let closed = owner.is_some() || spec.security.fs_group.is_some();
    let mode = if closed { 0o600 } else { source.mode };
    let key = |then| {
        let key = PodKey { pod: spec.uid.clone(), slot: source.slot.clone(), turn: shown.turn };
        FileContent::Key { key, then }
    };
    let files = [
        (&source.bundle_path, key(Arc::clone(&shown.chain))),
        (&source.key_path, key(Arc::from(""))),
        (&source.chain_path, FileContent::Text(shown.chain.to_string())),
    ];
    let named = files.into_iter().filter(|(path, _)| !path.is_empty());
    out.files.extend(named.map(|(path, content)| ProjectedFile { path: path.clone(), mode, content, owner }));
    Ok(())
}

/// The user that all of the pod's containers run as, if it is known.
fn common_user(spec: &PodSpec) -> Option<u32> {
    let containers = spec.containers.iter().filter(|c| c.kind != ContainerKind::Ephemeral);
    let mut users = containers.map(|c| c.security.run_as_user.or(spec.security.run_as_user));
    let first = users.next()??;
    users.all(|user| user == Some(first)).then(|| u32::try_from(first).ok()).flatten()
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
    use components::objects::{Token, TokenRun};
    use components::podcerts::{CertificateRun, CertificateSlot, Credential, KeyType};
    use components::time::{Mono, Wall};

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

    fn object(text: &str, items: &[(&str, &str, u32)]) -> FileSource {
        let item = |(key, path, mode): &(&str, &str, u32)| KeyPath {
            key: (*key).to_owned(),
            path: (*path).to_owned(),
            mode: *mode,
        };
        FileSource::Object { object: fixtures::reference(text), items: items.iter().map(item).collect(), mode: 0o644 }
    }

    fn token_source() -> FileSource {
        FileSource::Token { audience: String::new(), seconds: 3607, path: "token".to_owned(), mode: 0o644 }
    }

    fn refs(token: bool) -> PodRefs {
        let made = Token { text: Hidden::from(b"geheim".to_vec()), expires: Wall(7), seconds: 3607, came: Mono(0) };
        let run = TokenRun {
            token: token.then_some(made),
            error: Some("failed to fetch token: no".to_owned()),
            ..TokenRun::default()
        };
        let key = TokenKey { audience: String::new(), seconds: 3607 };
        PodRefs { tokens: BTreeMap::from([(key, run)]), ..PodRefs::default() }
    }

    fn made(sources: &[FileSource], spec: &PodSpec, token: bool) -> Result<Content, String> {
        let (config, machine, objects) = (fixtures::node(), Machine::default(), fixtures::objects());
        let refs = refs(token);
        files(sources, spec, Origin { config: &config, machine: &machine, objects: &objects, refs: &refs })
    }

    /// Paths with octal modes and content.
    #[track_caller]
    fn check_files(sources: &[FileSource], expect: Result<&str, &str>) {
        let got = made(sources, &pod(), true).map(|content| {
            let one = |f: &ProjectedFile| {
                format!("{}:{:o}:{}", f.path, f.mode, String::from_utf8_lossy(f.content.bytes().unwrap()))
            };
            content.files.iter().map(one).collect::<Vec<_>>().join(" ")
        });
        assert_eq!(got.as_deref().map_err(String::as_str), expect);
    }

    #[test]
    fn keys_of_objects_become_files() {
        check_files(&[object("map:m", &[])], Ok("A:644:from-map odd.key-1:644:x"));
        check_files(&[object("secret:s", &[("A", "x/f", 0o400)])], Ok("x/f:400:from-secret"));
        check_files(
            &[object("map:none?", &[]), object("map:m?", &[("none", "f", 0), ("A", "g", 0o600)])],
            Ok("g:600:from-map"),
        );
        let gone = Err("configmap references non-existent config key: none");
        check_files(&[object("map:m", &[("A", "a", 0), ("none", "f", 0)])], gone);
        check_files(&[object("secret:s", &[("none", "f", 0)])], Err("references non-existent secret key: none"));
        check_files(&[object("secret:none", &[])], Err("secret \"none\" not found"));
        let both = [object("secret:none", &[]), object("map:none", &[]), object("map:m", &[])];
        check_files(&both, Err("[secret \"none\" not found, configmap \"none\" not found]"));
    }

    #[test]
    fn values_are_known_by_their_version_and_never_shown() {
        let sources = [object("map:m", &[]), object("secret:s", &[]), token_source()];
        let content = made(&sources, &pod(), true).unwrap();
        assert_eq!(content.versions, ["configmap/m u/1", "secret/s u/2", "token \"\" 3607 until 7"]);
        let shown = format!("{content:?}");
        assert!(!shown.contains("from-secret") && !shown.contains("geheim"), "{shown}");
    }

    #[test]
    fn a_certificate_names_its_key_and_shows_its_chain() {
        let slot = CertificateSlot { volume: "v".into(), source: 2 };
        let source = CertificateSource {
            slot: slot.clone(),
            signer: "example.com/s".to_owned(),
            key_type: KeyType::Ed25519,
            seconds: None,
            annotations: BTreeMap::new(),
            bundle_path: "both".to_owned(),
            key_path: String::new(),
            chain_path: "chain".to_owned(),
            mode: 0o644,
        };
        let sources = [FileSource::Certificate(Box::new(source))];
        let (config, machine, objects) = (fixtures::node(), Machine::default(), fixtures::objects());
        let mut refs = PodRefs::default();
        let made = |refs: &PodRefs| {
            files(&sources, &pod(), Origin { config: &config, machine: &machine, objects: &objects, refs })
        };
        assert_eq!(made(&refs), Err(NOT_YET.to_owned()));
        let shown = Credential {
            turn: 3,
            chain: "CHAIN".into(),
            refresh_at: Wall(1),
            not_after: Wall(2),
            late_told: false,
            end_told: false,
        };
        refs.certificates.insert(slot.clone(), CertificateRun { shown: Some(shown), ..CertificateRun::default() });
        let found = made(&refs).unwrap().files;
        let key = PodKey { pod: "uid".into(), slot, turn: 3 };
        assert_eq!((found[0].path.as_str(), found[1].path.as_str(), found.len()), ("both", "chain", 2));
        assert_eq!(found[0].content, FileContent::Key { key, then: "CHAIN".into() });
        assert_eq!(found[1].content, FileContent::Text("CHAIN".to_owned()));
    }

    #[test]
    fn a_token_belongs_to_the_user_of_the_pod() {
        let mut spec = pod();
        let token = |spec: &PodSpec| {
            let content = made(&[token_source()], spec, true).unwrap();
            (content.files[0].mode, content.files[0].owner)
        };
        assert_eq!(token(&spec), (0o644, None));
        spec.security.fs_group = Some(5);
        assert_eq!(token(&spec), (0o600, None));
        spec.security.fs_group = None;
        spec.security.run_as_user = Some(1000);
        assert_eq!(token(&spec), (0o600, Some(1000)));
        spec.containers.push(spec.containers[0].clone());
        spec.containers[1].security.run_as_user = Some(1001);
        assert_eq!(token(&spec), (0o644, None));
        assert_eq!(made(&[token_source()], &spec, false).unwrap_err(), "failed to fetch token: no");
    }
}
