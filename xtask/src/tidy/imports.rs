//! The arrows of the design as a table, compared with what the manifests say.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::checks::CORE;
use crate::run::{cargo, output};

/// What a layer may import of the other layers.
const LAYERS: [(&str, &[&str]); 13] = [
    ("components", &[]),
    ("engine", &["components"]),
    ("podspec", &["components"]),
    ("systems", &["components", "engine", "podspec"]),
    ("trace", &["components"]),
    ("proto", &[]),
    ("proto-codegen", &[]),
    ("io", &["components", "proto"]),
    ("sim", &["components", "engine", "systems", "trace", "proto"]),
    ("ticklet", &["components", "engine", "systems", "io", "proto", "trace", "sim"]),
    ("benches", &["components", "engine", "systems", "trace", "sim", "proto"]),
    ("tests", &["components", "engine", "systems", "io", "proto", "trace", "sim"]),
    ("xtask", &["tests"]),
];

/// Crates that reach the operating system, time or chance: none may be a dependency of the core.
const IMPURE: [&str; 26] = [
    "axum",
    "chrono",
    "futures-util",
    "getrandom",
    "http-body-util",
    "hyper",
    "hyper-rustls",
    "hyper-util",
    "kube",
    "libc",
    "mio",
    "nix",
    "procfs",
    "prost",
    "rand",
    "reqwest",
    "rustix",
    "rustls",
    "signal-hook",
    "tempfile",
    "tokio",
    "tokio-stream",
    "tokio-util",
    "tonic",
    "tower",
    "zbus",
];

/// Who may know the ECS; everybody else sees plain data.
const KNOWS_ECS: [&str; 5] = ["components", "engine", "systems", "sim", "benches"];

/// Compares every manifest with the tables.
pub(super) fn check() -> Result<Vec<String>> {
    let metadata = output(cargo(&["metadata", "--no-deps", "--format-version=1", "--locked"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("cargo metadata without packages")?;
    let mut findings = Vec::new();
    for package in packages {
        let name = package["name"].as_str().context("a package without a name")?;
        let dependencies = package["dependencies"].as_array().context("a package without dependencies")?;
        let dependencies = dependencies.iter().filter_map(|dependency| {
            let name = dependency["name"].as_str()?;
            Some((name, dependency["kind"].as_str() == Some("dev")))
        });
        findings.extend(check_package(name, dependencies));
        findings.extend(check_manifest(package)?);
    }
    Ok(findings)
}

/// Findings for one package and its dependencies, given as name and whether only tests need it.
fn check_package<'a>(package: &str, dependencies: impl Iterator<Item = (&'a str, bool)>) -> Vec<String> {
    let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == package) else {
        return vec![format!("imports: `{package}` is no layer of the table in xtask/src/tidy/imports.rs")];
    };
    let mut findings = Vec::new();
    for (dependency, only_tests) in dependencies {
        let is_layer = LAYERS.iter().any(|(name, _)| *name == dependency);
        if is_layer && !allowed.contains(&dependency) {
            findings.push(format!("imports: `{package}` may not import `{dependency}`"));
        }
        if CORE.contains(&package) && !only_tests && IMPURE.contains(&dependency) {
            findings.push(format!("imports: `{package}` is pure and may not import `{dependency}`"));
        }
        if dependency.starts_with("bevy") && !KNOWS_ECS.contains(&package) {
            findings.push(format!("imports: `{package}` may not know the ECS (`{dependency}`)"));
        }
    }
    findings
}

/// Every crate takes the workspace's lints.
fn check_manifest(package: &Value) -> Result<Option<String>> {
    let path = package["manifest_path"].as_str().context("a package without a manifest")?;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    let shared = text.contains("[lints]\nworkspace = true");
    Ok((!shared).then(|| format!("lints: {path}: say `[lints] workspace = true`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(package: &str, dependencies: &[(&str, bool)], expect: &[&str]) {
        let findings = check_package(package, dependencies.iter().copied());
        assert_eq!(findings.len(), expect.len(), "{findings:?}");
        for (finding, part) in findings.iter().zip(expect) {
            assert!(finding.contains(part), "{finding} lacks {part}");
        }
    }

    #[test]
    fn arrows_point_one_way() {
        check("systems", &[("components", false), ("engine", false), ("bevy_ecs", false)], &[]);
        check("systems", &[("io", false)], &["may not import `io`"]);
        check("io", &[("systems", true), ("bevy_ecs", false)], &["may not import `systems`", "may not know the ECS"]);
        check("engine", &[("tokio", false)], &["is pure"]);
        check("engine", &[("tempfile", true)], &[]);
        check("extras", &[], &["no layer"]);
    }
}
