//! Puts the effective configuration together: main file, then drop-ins in order, defaults before and after.
//!
//! Follows the kubelet: the main file is completed with defaults first, so a drop-in overrides complete settings;
//! objects merge key by key, lists are replaced, null removes a setting and brings its default back.

use std::collections::BTreeMap;

use crate::config::decode::{Decode, Findings};
use crate::config::gates::GateSet;
use crate::config::syntax::parse;
use crate::config::tree::{Node, Origin, Value};
use crate::config::types::{API_VERSION, KIND, KubeletConfiguration};
use crate::duration::GoDuration;

/// One configuration file.
#[derive(Clone, Debug)]
pub struct Document {
    /// The file as the user named it.
    pub file: String,
    /// The absolute directory that relative paths in it start from.
    pub dir: String,
    /// Its content.
    pub bytes: Vec<u8>,
}

/// The outcome of `assemble`.
#[derive(Clone, Debug)]
pub struct Assembled {
    /// The effective configuration, not yet validated.
    pub config: KubeletConfiguration,
    /// Where its settings came from.
    pub origins: Origins,
    /// What is wrong with the files.
    pub findings: Findings,
}

/// Where settings came from, by field path.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    places: BTreeMap<String, Origin>,
}

impl Origins {
    /// Records where the setting at `path` came from; what was known about its parts is forgotten.
    pub fn set(&mut self, path: &str, at: Origin) {
        self.places.retain(|known, _| !is_below(known, path));
        self.places.insert(path.to_owned(), at);
    }

    /// Where the setting at `path`, or else the object it is in, came from.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Origin> {
        let mut path = path;
        loop {
            if let Some(at) = self.places.get(path) {
                return Some(at);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }

    fn add_tree(&mut self, node: &Node) {
        node.walk("", &mut |path, at| {
            self.places.insert(path.to_owned(), at.clone());
        });
    }
}

fn is_below(path: &str, parent: &str) -> bool {
    path.strip_prefix(parent).is_some_and(|rest| rest.starts_with(['.', '[']))
}

/// Builds the configuration from its files; `flags_only` is what the command line alone means and serves as the base
/// when there is no main file.
#[must_use]
pub fn assemble(flags_only: KubeletConfiguration, main: Option<&Document>, drop_ins: &[Document]) -> Assembled {
    let cli_gates = flags_only.feature_gates.clone();
    let mut origins = Origins::default();
    let mut findings = Findings::default();
    let mut config = flags_only;
    if let Some(document) = main {
        config = KubeletConfiguration::default();
        if let Some(node) = read(document, &mut findings) {
            origins.add_tree(&node);
            config = decode_settled(&node, &cli_gates, &mut findings);
            complete_eviction(&node, &mut config);
            resolve_paths(&mut config, &document.dir);
        }
    }
    if !drop_ins.is_empty() {
        config = merge_drop_ins(&config, drop_ins, &cli_gates, &mut origins, &mut findings);
    }
    Assembled { config, origins, findings }
}

/// Reads one file and checks that it is a KubeletConfiguration.
fn read(document: &Document, findings: &mut Findings) -> Option<Node> {
    let node = parse(&document.file, &document.bytes, findings)?;
    if !matches!(node.value, Value::Object(_)) {
        let message = format!("want a KubeletConfiguration object, got {}", node.value.kind());
        findings.error(&node.at, "", message);
        return None;
    }
    let mut right = true;
    for (field, want) in [("kind", KIND), ("apiVersion", API_VERSION)] {
        let problem = match node.get(field) {
            None => (node.at.clone(), format!("missing, want {want}")),
            Some(Node { value: Value::Text(text), .. }) if text == want => continue,
            Some(Node { value: Value::Text(text), at }) => {
                (at.clone(), format!("want {want}, got {}", crate::config::decode::quote(text)))
            }
            Some(other) => (other.at.clone(), format!("want {want}, got {}", other.value.kind())),
        };
        findings.error(&problem.0, field, problem.1);
        right = false;
    }
    // With another kind every field would be reported as unknown: that helps nobody.
    right.then_some(node)
}

fn merge_drop_ins(
    base: &KubeletConfiguration,
    drop_ins: &[Document],
    cli_gates: &BTreeMap<String, bool>,
    origins: &mut Origins,
    findings: &mut Findings,
) -> KubeletConfiguration {
    let json = serde_json::to_value(base).unwrap_or_default();
    let known = origins.clone();
    let defaults = Origin::whole("built-in defaults");
    let origin_of = |path: &str| known.find(path).unwrap_or(&defaults).clone();
    let mut tree = Node::from_json(&json, "", &origin_of);
    for document in drop_ins {
        if let Some(patch) = read(document, findings) {
            origins.add_tree(&patch);
            tree.merge(patch);
        }
    }
    decode_settled(&tree, cli_gates, findings)
}

/// Decodes a tree and applies the defaults that depend on other fields.
fn decode_settled(node: &Node, cli_gates: &BTreeMap<String, bool>, findings: &mut Findings) -> KubeletConfiguration {
    let Some(mut config) = KubeletConfiguration::decode(node, "", findings) else {
        return KubeletConfiguration::default();
    };
    let given = |key: &str| node.get(key).is_some();
    let given_time = |key| {
        matches!(node.get(key), Some(Node { value: Value::Text(text), .. })
        if GoDuration::parse(text).is_ok_and(|time| !time.is_zero()))
    };
    if !given_time("nodeStatusReportFrequency") && given_time("nodeStatusUpdateFrequency") {
        config.node_status_report_frequency = config.node_status_update_frequency;
    }
    if !given("serializeImagePulls") {
        config.serialize_image_pulls = config.max_parallel_image_pulls.is_none_or(|pulls| pulls < 2);
    }
    config.pod_pids_limit = config.pod_pids_limit.max(-1);
    let mut wanted = cli_gates.clone();
    wanted.extend(config.feature_gates.clone());
    let (gates, _) = GateSet::from_map(&wanted);
    let period = node.get("crashLoopBackOff").and_then(|n| n.get("maxContainerRestartPeriod"));
    if !gates.enabled("KubeletCrashLoopBackOffMax") && period.is_none() {
        config.crash_loop_back_off.max_container_restart_period = None;
    }
    if !gates.enabled("KubeletEnsureSecretPulledImages") && !given("imagePullCredentialsVerificationPolicy") {
        config.image_pull_credentials_verification_policy.clear();
    }
    config
}

const DEFAULT_EVICTION_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

/// The hard thresholds of the main file are taken as a whole unless it asks for the defaults besides.
fn complete_eviction(node: &Node, config: &mut KubeletConfiguration) {
    if node.get("evictionHard").is_some() && !config.merge_default_eviction_settings {
        return;
    }
    for (signal, threshold) in DEFAULT_EVICTION_HARD {
        config.eviction_hard.entry(signal.to_owned()).or_insert_with(|| threshold.to_owned());
    }
}

/// The default configuration with the default hard thresholds.
pub(super) fn with_eviction() -> KubeletConfiguration {
    let eviction_hard = DEFAULT_EVICTION_HARD.map(|(signal, threshold)| (signal.to_owned(), threshold.to_owned()));
    KubeletConfiguration { eviction_hard: eviction_hard.into(), ..KubeletConfiguration::default() }
}

fn resolve_paths(config: &mut KubeletConfiguration, dir: &str) {
    for path in [
        &mut config.static_pod_path,
        &mut config.authentication.x509.client_ca_file,
        &mut config.tls_cert_file,
        &mut config.tls_private_key_file,
        &mut config.resolv_conf,
        &mut config.volume_plugin_dir,
        &mut config.pod_logs_dir,
    ] {
        if !path.is_empty() && !path.starts_with('/') {
            *path = resolve_path(dir, path);
        }
    }
}

/// The absolute, cleaned form of `path` as seen from the absolute directory `dir`.
#[must_use]
pub fn resolve_path(dir: &str, path: &str) -> String {
    let joined = if path.starts_with('/') { path.to_owned() } else { format!("{dir}/{path}") };
    let mut parts: Vec<&str> = Vec::new();
    for part in joined.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}
