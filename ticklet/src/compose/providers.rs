//! Credential providers for image pulls: their configuration files are read once at start, and their programs must be there.

use crate::flags::KubeletFlags;
use anyhow::{Context, bail};
use components::config::KubeletConfiguration;
use components::config::gates::GateSet;
use components::providers::{Providers, decode};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Largest file that is read.
const MAX_BYTES: u64 = 1 << 20;

/// The providers of the flags; `None` without them.
///
/// # Errors
/// What is wrong with which file, or which program is missing.
pub(crate) fn providers(config: &KubeletConfiguration, flags: &KubeletFlags) -> anyhow::Result<Option<Providers>> {
    let (path, dir) = (&flags.image_credential_provider_config, &flags.image_credential_provider_bin_dir);
    if path.is_empty() {
        return Ok(None);
    }
    let read = || -> anyhow::Result<Providers> {
        let mut texts = Vec::new();
        for file in files(Path::new(path))? {
            let name = file.display().to_string();
            let size = fs::metadata(&file).with_context(|| name.clone())?.len();
            if size > MAX_BYTES {
                bail!("{name}: larger than 1 MiB");
            }
            texts.push((name.clone(), fs::read_to_string(&file).context(name)?));
        }
        let (gates, _) = GateSet::from_map(&config.feature_gates);
        let tokens = gates.enabled("KubeletServiceAccountTokenForCredentialProviders");
        let list = decode(&texts, tokens).map_err(anyhow::Error::msg)?;
        Ok(Providers { dir: dir.clone(), list })
    };
    let found = read().context("--image-credential-provider-config")?;
    for provider in &found.list {
        let program = Path::new(dir).join(&provider.name);
        let there = fs::metadata(&program).is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0);
        if !there {
            bail!("--image-credential-provider-bin-dir: {} is not there or cannot be run", program.display());
        }
    }
    Ok(Some(found))
}

/// The file, or the files of a directory that look like configurations, sorted.
fn files(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !fs::metadata(path).with_context(|| path.display().to_string())?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
        let file = entry?.path();
        let known = file.extension().is_some_and(|ext| ext == "json" || ext == "yaml" || ext == "yml");
        if known && file.is_file() {
            found.push(file);
        }
    }
    found.sort();
    if found.is_empty() {
        bail!("{}: holds no .json, .yaml or .yml file", path.display());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_programs_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let config = KubeletConfiguration::default();
        let mut flags = KubeletFlags::default();
        assert_eq!(providers(&config, &flags).unwrap(), None);
        flags.image_credential_provider_config = at("conf");
        flags.image_credential_provider_bin_dir = at("bin");
        let check = |flags: &KubeletFlags, expect: &str| {
            let error = format!("{:#}", providers(&config, flags).unwrap_err());
            assert!(error.contains(expect), "{error}");
        };
        check(&flags, "conf");
        fs::create_dir(at("conf")).unwrap();
        check(&flags, "holds no .json");
        let text = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n\
                    - {name: p, matchImages: [reg], defaultCacheDuration: 1m, apiVersion: credentialprovider.kubelet.k8s.io/v1}\n";
        fs::write(at("conf/a.yaml"), text).unwrap();
        fs::write(at("conf/other.txt"), "nonsense").unwrap();
        check(&flags, "bin/p is not there");
        fs::create_dir(at("bin")).unwrap();
        fs::write(at("bin/p"), "#!/bin/sh\n").unwrap();
        check(&flags, "cannot be run");
        fs::set_permissions(at("bin/p"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(providers(&config, &flags).unwrap().unwrap().list[0].name, "p");
        fs::write(at("conf/b.json"), "{}").unwrap();
        check(&flags, "b.json");
    }
}
