//! Families of `/metrics` that say what runs here: version, feature gates, cgroup version. Constant while it runs.

use crate::flags::KUBERNETES_VERSION;
use components::config::gates::{GateSet, Stage, all};
use io::metrics::{Descriptor, Exposition};

/// What is told.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// The gates as they are set.
    pub(crate) gates: GateSet,
    /// The machine has the unified cgroup hierarchy only.
    pub(crate) cgroup_v2: bool,
}

/// Writes the families.
pub(crate) fn write(facts: &Facts, page: &mut Exposition) {
    let version = KUBERNETES_VERSION.trim_start_matches('v');
    let mut parts = version.split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let platform = format!("{}/{}", std::env::consts::OS, go_arch(std::env::consts::ARCH));
    let help = "Kubernetes version that this node agent stands for; the value is always 1.";
    page.family(Descriptor::gauge("kubernetes_build_info", help)).sample(
        &[
            ("build_date", ""),
            ("compiler", "rustc"),
            ("git_commit", ""),
            ("git_tree_state", ""),
            ("git_version", KUBERNETES_VERSION),
            ("go_version", ""),
            ("major", major),
            ("minor", minor),
            ("platform", &platform),
        ],
        1.0,
    );
    let mut family =
        page.family(Descriptor::gauge("kubernetes_feature_enabled", "1 for a feature gate that is on, else 0."));
    for gate in all() {
        let on = if facts.gates.enabled(gate.name) { 1.0 } else { 0.0 };
        family.sample(&[("name", gate.name), ("stage", stage(gate.stage))], on);
    }
    let version = if facts.cgroup_v2 { 2.0 } else { 1.0 };
    page.single(Descriptor::gauge("kubelet_cgroup_version", "Version of the cgroup hierarchy."), version);
    page.family(Descriptor::gauge("kubelet_metrics_provider", "Where usage comes from; the value is always 1."))
        .sample(&[("provider", "cgroup")], 1.0);
}

/// As the kubelet labels stages; settled ones have no word.
const fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Alpha => "ALPHA",
        Stage::Beta => "BETA",
        Stage::Ga => "",
        Stage::Deprecated => "DEPRECATED",
    }
}

fn go_arch(arch: &str) -> &str {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn gates_are_told_as_they_are_set() {
        let gates = GateSet::from_map(&BTreeMap::from([("PodLogsQuerySplitStreams".to_owned(), true)])).0;
        let mut page = Exposition::default();
        write(&Facts { gates, cgroup_v2: true }, &mut page);
        let text = page.into_text();
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).map(str::to_owned);
        let on = line("kubernetes_feature_enabled{name=\"PodLogsQuerySplitStreams\",").unwrap();
        assert!(on.ends_with("} 1"), "{on}");
        assert!(
            line("kubernetes_build_info{")
                .unwrap()
                .contains("git_version=\"v1.37.2\",go_version=\"\",major=\"1\",minor=\"37\"")
        );
        assert_eq!(line("kubelet_cgroup_version ").as_deref(), Some("kubelet_cgroup_version 2"));
    }
}
