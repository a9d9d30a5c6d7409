//! What a connection must agree to: versions, cipher suites and groups, from the names of KubeletConfiguration.
//!
//! There is no TLS below 1.2, no CBC and no RSA key exchange here. A lower `tlsMinVersion` therefore means 1.2, and
//! suites without an equal are left out; both are said once at start.

use super::TlsPolicy;
use crate::server::ServerError;
use rustls::crypto::{CryptoProvider, SupportedKxGroup, aws_lc_rs};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion, version};
use std::sync::Arc;

static NEW: &[&SupportedProtocolVersion] = &[&version::TLS13];
static BOTH: &[&SupportedProtocolVersion] = &[&version::TLS13, &version::TLS12];

/// What rustls is told.
#[derive(Clone, Debug)]
pub(in crate::server) struct Terms {
    pub(in crate::server) provider: Arc<CryptoProvider>,
    pub(in crate::server) versions: &'static [&'static SupportedProtocolVersion],
}

impl Terms {
    /// Translates a policy whose names are known to be right.
    ///
    /// # Errors
    /// When nothing that is asked for can be offered.
    pub(in crate::server) fn new(policy: &TlsPolicy) -> Result<Self, ServerError> {
        let mut provider = aws_lc_rs::default_provider();
        if !policy.curves.is_empty() {
            provider.kx_groups = groups(&policy.curves);
            if provider.kx_groups.is_empty() {
                let message = format!("tlsCurvePreferences {:?}: none of them can be offered", policy.curves);
                return Err(ServerError::Terms { message });
            }
        }
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() || asked_for(*suite, &policy.cipher_suites));
        let old = provider.cipher_suites.iter().any(|suite| suite.tls13().is_none());
        let versions = if policy.min_version == "VersionTLS13" || !old { NEW } else { BOTH };
        for warning in warnings(policy, &provider.cipher_suites) {
            tracing::warn!("{warning}");
        }
        Ok(Self { provider: Arc::new(provider), versions })
    }
}

/// TLS 1.2 suites are a choice; those of 1.3 are not, in Go either.
fn asked_for(suite: SupportedCipherSuite, names: &[String]) -> bool {
    names.is_empty() || names.iter().any(|name| is_named(suite, name))
}

fn is_named(suite: SupportedCipherSuite, name: &str) -> bool {
    let own = format!("{:?}", suite.suite());
    // Two suites have a second, shorter name in Go.
    own == name || (name.ends_with("_POLY1305") && own.strip_suffix("_SHA256") == Some(name))
}

/// The groups that can be offered, in the order of the list.
fn groups(ids: &[i32]) -> Vec<&'static dyn SupportedKxGroup> {
    let group = |id: &i32| aws_lc_rs::ALL_KX_GROUPS.iter().find(|group| i32::from(u16::from(group.name())) == *id);
    ids.iter().filter_map(group).copied().collect()
}

fn warnings(policy: &TlsPolicy, offered: &[SupportedCipherSuite]) -> Vec<String> {
    let mut warnings = Vec::new();
    if matches!(policy.min_version.as_str(), "VersionTLS10" | "VersionTLS11") {
        warnings.push(format!("tlsMinVersion {}: TLS 1.2 is the oldest that is spoken", policy.min_version));
    }
    // A name of TLS 1.3 starts like `TLS_AES`: it changes nothing and needs no word.
    let missing = |name: &&String| name.contains("_WITH_") && !offered.iter().any(|suite| is_named(*suite, name));
    let names: Vec<_> = policy.cipher_suites.iter().filter(missing).map(String::as_str).collect();
    if !names.is_empty() {
        warnings.push(format!("tlsCipherSuites: not offered: {}", names.join(", ")));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(min: &str, suites: &[&str], expect: (usize, usize, usize)) {
        let policy = TlsPolicy {
            min_version: min.to_owned(),
            cipher_suites: suites.iter().map(|name| (*name).to_owned()).collect(),
            curves: Vec::new(),
        };
        let terms = Terms::new(&policy).unwrap();
        let old = terms.provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none()).count();
        assert_eq!((terms.versions.len(), old, warnings(&policy, &terms.provider.cipher_suites).len()), expect);
    }

    #[test]
    fn versions_and_suites_are_as_named() {
        check("", &[], (2, 6, 0));
        check("VersionTLS12", &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256"], (2, 1, 0));
        check("", &["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305"], (2, 1, 0));
        check("VersionTLS13", &[], (1, 6, 0));
        check("VersionTLS10", &["TLS_RSA_WITH_AES_128_CBC_SHA"], (1, 0, 2));
    }

    #[test]
    fn groups_keep_their_order_and_must_not_be_none() {
        let names = |ids: &[i32]| groups(ids).iter().map(|group| u16::from(group.name())).collect::<Vec<_>>();
        assert_eq!(names(&[24, 29, 4588]), [24, 29, 4588]);
        let error = Terms::new(&TlsPolicy { curves: vec![1], ..TlsPolicy::default() }).unwrap_err();
        assert!(error.to_string().contains("tlsCurvePreferences [1]"), "{error}");
    }
}
