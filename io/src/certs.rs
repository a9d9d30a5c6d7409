//! The node's certificates on disk: keys and requests are made here, certificates are kept beside their keys as the
//! kubelet keeps them, and a kubeconfig that points to them is written for a node that begins. Keys of pods stay in memory.
//!
//! Decides nothing: when a certificate is asked for and with what is told. Keys never leave the files of `--cert-dir`.

mod first;
pub(crate) mod podkeys;
mod store;

pub use self::first::{FirstError, first_start};

use crate::apiserver::Kubeconfig;
use crate::apiserver::kubeconfig::Pem;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use components::edge::host::identity::{
    CertificateFacts, CertificateStore, CertificateTemplate, IdentityAnswer, IdentityEffect, Otherwise,
};
use components::edge::{Failure, FailureClass};
use components::time::Wall;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData as _, SanType};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha512_256};
use std::path::Path;
use store::Store;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Runs one effect.
///
/// # Errors
/// With the path of the file. `Invalid` when a certificate does not fit its key.
pub fn run(effect: &IdentityEffect) -> Result<IdentityAnswer, Failure> {
    match effect {
        IdentityEffect::Look { store, otherwise } => look(store, otherwise).map_err(other),
        IdentityEffect::MakeRequest { store, wanted, usages, new_key } => {
            make_request(&Store::new(store), wanted, usages, *new_key).map_err(other)
        }
        IdentityEffect::Keep { store, certificate, time } => keep(&Store::new(store), certificate, time),
    }
}

const fn other(message: String) -> Failure {
    Failure { class: FailureClass::Other, message }
}

fn look(store: &CertificateStore, otherwise: &Otherwise) -> Result<IdentityAnswer, String> {
    let store = Store::new(store);
    store.recover()?;
    if let Some(pem) = store.current()? {
        let certificate = Some(facts(&pem).map_err(|error| format!("{}: {error}", store.current_path().display()))?);
        return Ok(IdentityAnswer::Found { certificate, given_inline: false });
    }
    let (certificate, given_inline) = match otherwise {
        Otherwise::Nowhere => (None, false),
        Otherwise::Files(certificate, key) => {
            let there = Path::new(certificate).exists() && Path::new(key).exists();
            (there.then(|| read_facts(Path::new(certificate))).transpose()?, false)
        }
        Otherwise::Kubeconfig(path) => {
            let kubeconfig = Kubeconfig::read(Path::new(path)).map_err(|error| error.to_string())?;
            match kubeconfig.identity {
                None => (None, false),
                Some((Pem::File(path), _)) if !path.exists() => (None, false),
                Some((Pem::File(path), _)) => (Some(read_facts(&path)?), false),
                Some((Pem::Inline(text), _)) => (Some(facts(text.0.as_bytes())?), true),
            }
        }
    };
    Ok(IdentityAnswer::Found { certificate, given_inline })
}

fn read_facts(path: &Path) -> Result<CertificateFacts, String> {
    let pem = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    facts(&pem).map_err(|error| format!("{}: {error}", path.display()))
}

/// What the first certificate of a PEM text says.
fn facts(pem: &[u8]) -> Result<CertificateFacts, String> {
    let der = CertificateDer::from_pem_slice(pem).map_err(|error| format!("holds no certificate: {error}"))?;
    let (_, parsed) =
        X509Certificate::from_der(&der).map_err(|error| format!("its certificate is unusable: {error}"))?;
    let subject = parsed.subject();
    let texts = |all: Vec<&str>| all.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>();
    let mut found = CertificateTemplate {
        common_name: subject.iter_common_name().find_map(|name| name.as_str().ok()).unwrap_or_default().to_owned(),
        organizations: texts(subject.iter_organization().filter_map(|name| name.as_str().ok()).collect()),
        ..CertificateTemplate::default()
    };
    let names = parsed.subject_alternative_name().ok().flatten();
    for name in names.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => found.dns_names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => found.addresses.extend(address(bytes)),
            _ => {}
        }
    }
    let at = |time: x509_parser::time::ASN1Time| Wall(time.timestamp().saturating_mul(1_000_000_000));
    let validity = parsed.validity();
    Ok(CertificateFacts { subject: found, not_before: at(validity.not_before), not_after: at(validity.not_after) })
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(four).to_string());
    }
    <[u8; 16]>::try_from(bytes).ok().map(|all| std::net::Ipv6Addr::from(all).to_string())
}

fn make_request(
    store: &Store,
    wanted: &CertificateTemplate,
    usages: &[String],
    new_key: bool,
) -> Result<IdentityAnswer, String> {
    let key = store.pending_key(new_key)?;
    let failed = |error: rcgen::Error| format!("a certificate request could not be made: {error}");
    let mut params = CertificateParams::new(wanted.dns_names.clone()).map_err(failed)?;
    let ips = wanted.addresses.iter().filter_map(|ip| ip.parse().ok());
    params.subject_alt_names.extend(ips.map(SanType::IpAddress));
    params.distinguished_name = DistinguishedName::new();
    for organization in &wanted.organizations {
        params.distinguished_name.push(DnType::OrganizationName, organization.as_str());
    }
    params.distinguished_name.push(DnType::CommonName, wanted.common_name.as_str());
    let request = params.serialize_request(&key).and_then(|request| request.pem()).map_err(failed)?;
    Ok(IdentityAnswer::Made { request: STANDARD.encode(request), name: name(&key, wanted, usages) })
}

/// The kubelet's name for a request: the same key, subject and usages make the same one.
fn name(key: &KeyPair, wanted: &CertificateTemplate, usages: &[String]) -> String {
    let mut hash = Sha512_256::new();
    let public = key.subject_public_key_info();
    let texts = std::iter::once(&wanted.common_name).chain(&wanted.organizations).chain(usages);
    for part in std::iter::once(public.as_slice()).chain(texts.map(|text| text.as_bytes())) {
        hash.update(URL_SAFE_NO_PAD.encode(part));
        hash.update("|");
    }
    format!("node-csr-{}", URL_SAFE_NO_PAD.encode(hash.finalize()))
}

fn keep(store: &Store, certificate: &str, time: &str) -> Result<IdentityAnswer, Failure> {
    let wrong = |message: String| Failure { class: FailureClass::Invalid, message };
    let pem = STANDARD.decode(certificate).map_err(|_| wrong("the issued certificate is not base64".to_owned()))?;
    let facts = facts(&pem).map_err(|error| wrong(format!("what was issued {error}")))?;
    let key = store.pending_key(false).map_err(other)?;
    store::check_pair(&pem, &key).map_err(wrong)?;
    store.keep(&pem, &key, time).map_err(other)?;
    Ok(IdentityAnswer::Kept(facts))
}

#[cfg(test)]
mod tests;
