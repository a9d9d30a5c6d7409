//! Who the node is to the API server: which certificates it asks for, and with which credentials it begins.

use crate::flags::KubeletFlags;
use components::config::KubeletConfiguration;
use components::config::gates::GateSet;
use components::node::identity::{IdentityConfig, ServingConfig};
use io::apiserver::Access;
use io::certs::{FirstError, first_start};
use std::path::{Path, PathBuf};

/// Settings of the node's certificates; `None` for a node that works on its own, or with what it was given.
///
/// A node that begins gets its kubeconfig here, which points to where its certificate will be: the certificate itself is
/// asked for by the core, which runs static pods meanwhile.
///
/// # Errors
/// When the node has no usable kubeconfig and cannot get one.
pub(crate) fn identity(
    config: &KubeletConfiguration,
    flags: &KubeletFlags,
) -> Result<Option<IdentityConfig>, FirstError> {
    if flags.kubeconfig.is_empty() {
        return Ok(None);
    }
    let (kubeconfig, cert_dir) = (Path::new(&flags.kubeconfig), Path::new(&flags.cert_dir));
    let bootstrap = !flags.bootstrap_kubeconfig.is_empty();
    let bootstrapping = bootstrap && first_start(kubeconfig, Path::new(&flags.bootstrap_kubeconfig), cert_dir)?;
    let (gates, _) = GateSet::from_map(&config.feature_gates);
    let files =
        (!config.tls_cert_file.is_empty()).then(|| (config.tls_cert_file.clone(), config.tls_private_key_file.clone()));
    let serving = crate::serving::requests_certificate(config)
        .then(|| ServingConfig { files, dns_only: gates.enabled("AllowDNSOnlyNodeCSR") });
    let asks = config.rotate_certificates || bootstrapping || serving.is_some();
    Ok(asks.then(|| IdentityConfig {
        cert_dir: flags.cert_dir.clone(),
        kubeconfig: flags.kubeconfig.clone(),
        bootstrap,
        bootstrapping,
        rotate: config.rotate_certificates,
        serving,
    }))
}

/// The files that the client of the API server is made from; `None` for a node that works on its own.
pub(crate) fn access(flags: &KubeletFlags, identity: Option<&IdentityConfig>) -> Option<Access> {
    let file = |path: &str| (!path.is_empty()).then(|| PathBuf::from(path));
    let rotates = identity.is_some_and(|identity| identity.rotate);
    Some(Access {
        kubeconfig: file(&flags.kubeconfig)?,
        rotated: rotates.then(|| Path::new(&flags.cert_dir).join("kubelet-client-current.pem")),
        bootstrap: file(&flags.bootstrap_kubeconfig),
        may_begin_without: identity.is_some_and(|identity| identity.bootstrapping || identity.rotate),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_say_which_certificates_are_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let mut config = KubeletConfiguration::default();
        let mut flags = KubeletFlags { cert_dir: at("pki"), ..KubeletFlags::default() };
        config.rotate_certificates = true;
        assert_eq!(identity(&config, &flags).unwrap(), None, "there is no cluster");
        assert_eq!(access(&flags, None), None);
        config.rotate_certificates = false;
        flags.kubeconfig = at("kubelet.conf");
        assert_eq!(identity(&config, &flags).unwrap(), None);
        config.server_tls_bootstrap = true;
        assert!(identity(&config, &flags).unwrap().unwrap().serving.is_some());
        flags.bootstrap_kubeconfig = at("bootstrap.conf");
        assert!(identity(&config, &flags).is_err(), "nothing to begin with");
        let text = "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n\
                    clusters: [{name: k, cluster: {server: 'https://h'}}]\nusers: [{name: u, user: {token: t}}]\n";
        std::fs::write(&flags.bootstrap_kubeconfig, text).unwrap();
        let found = identity(&config, &flags).unwrap().unwrap();
        assert!(found.bootstrap && found.bootstrapping && !found.rotate);
        let access = access(&flags, Some(&found)).unwrap();
        assert!(access.may_begin_without && access.rotated.is_none() && access.bootstrap.is_some());
    }
}
