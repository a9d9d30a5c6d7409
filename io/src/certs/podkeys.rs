//! Keys of pods: made here, kept in memory, and written into volumes. Nothing else ever sees them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use components::edge::host::podkeys::PodKeyEffect;
use components::edge::host::{FileContent, VolumeSetup};
use components::ids::Hidden;
use components::podcerts::{KeyType, PodKey};
use rcgen::{CertificateParams, DistinguishedName, KeyPair, RsaKeySize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The keys, as PEM.
#[derive(Debug, Default)]
pub(crate) struct PodKeys(Mutex<BTreeMap<PodKey, Hidden>>);

impl PodKeys {
    /// Runs one effect; the request that was made.
    pub(crate) fn run(&self, effect: &PodKeyEffect) -> Result<Option<String>, String> {
        match effect {
            PodKeyEffect::Make { key, kind, in_use } => {
                let (pem, request) = make(*kind)?;
                let mut keys = self.keys();
                keys.retain(|own, _| own.pod != key.pod || own.slot != key.slot || Some(own.turn) == *in_use);
                keys.insert(key.clone(), pem);
                Ok(Some(request))
            }
            PodKeyEffect::Forget { pod } => {
                self.keys().retain(|key, _| key.pod != *pod);
                Ok(None)
            }
        }
    }

    /// The same volume with the keys that are known in their places.
    pub(crate) fn fill<'a>(&self, volume: &'a VolumeSetup) -> Cow<'a, VolumeSetup> {
        let VolumeSetup::Files { files, .. } = volume else { return Cow::Borrowed(volume) };
        if files.iter().all(|file| file.content.bytes().is_some()) {
            return Cow::Borrowed(volume);
        }
        let mut filled = volume.clone();
        if let VolumeSetup::Files { files, .. } = &mut filled {
            let keys = self.keys();
            for file in files {
                if let FileContent::Key { key, then } = &file.content
                    && let Some(pem) = keys.get(key)
                {
                    file.content = FileContent::Hidden(Hidden([&*pem.0, then.as_bytes()].concat().into()));
                }
            }
        }
        Cow::Owned(filled)
    }

    fn keys(&self) -> MutexGuard<'_, BTreeMap<PodKey, Hidden>> {
        // What a panic left is whole: a key is put in last.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A key as PEM, and an empty PKCS#10 made with it, in base64.
fn make(kind: KeyType) -> Result<(Hidden, String), String> {
    let failed = |error: rcgen::Error| error.to_string();
    let key = match kind {
        KeyType::Rsa3072 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_3072),
        KeyType::Rsa4096 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
        KeyType::EcdsaP256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
        KeyType::EcdsaP384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
        KeyType::EcdsaP521 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512),
        KeyType::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
    }
    .map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(failed)?;
    let pem = match kind {
        KeyType::Ed25519 => plain(key.serialized_der()).map_or_else(|| key.serialize_pem(), |der| pem(&der)),
        _ => key.serialize_pem(),
    };
    Ok((Hidden::from(pem.into_bytes()), STANDARD.encode(request.der())))
}

/// Before the 32 bytes of an Ed25519 key stand, in PKCS#8 of version 1, these.
const ED25519: [u8; 16] = [0x30, 0x2e, 0x02, 0x01, 0, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];

/// An Ed25519 key without its public half, which many programs cannot read beside it.
fn plain(der: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = der.split_at_checked(ED25519.len())?;
    // Length and version differ.
    let same = head[5..] == ED25519[5..] && head[0] == ED25519[0];
    same.then(|| Some([&ED25519, rest.get(..32)?].concat())).flatten()
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::host::{OwnPlace, ProjectedFile};
    use components::podcerts::CertificateSlot;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject as _;
    use x509_parser::prelude::{FromDer as _, X509CertificationRequest};

    fn key(pod: &str, turn: u32) -> PodKey {
        PodKey { pod: pod.into(), slot: CertificateSlot { volume: "v".into(), source: 1 }, turn }
    }

    fn volume(keys: &[PodKey]) -> VolumeSetup {
        let file = |key: &PodKey| ProjectedFile {
            path: key.turn.to_string(),
            mode: 0o600,
            content: FileContent::Key { key: key.clone(), then: "CHAIN".into() },
            owner: None,
        };
        let place = OwnPlace { path: String::new(), marker: String::new(), group: None, only_on_mismatch: false };
        VolumeSetup::Files {
            name: "v".into(),
            place,
            size_bytes: 1,
            files: keys.iter().map(file).collect(),
            on_disk: false,
            versions: Vec::new(),
        }
    }

    /// Whether each key is known.
    fn known(keys: &PodKeys, asked: &[PodKey]) -> Vec<bool> {
        let setup = volume(asked);
        let filled = keys.fill(&setup);
        let VolumeSetup::Files { files, .. } = &*filled else { panic!() };
        files.iter().map(|file| file.content.bytes().is_some_and(|bytes| bytes.ends_with(b"KEY-----\nCHAIN"))).collect()
    }

    fn make_one(keys: &PodKeys, key: PodKey, in_use: Option<u32>) {
        keys.run(&PodKeyEffect::Make { key, kind: KeyType::EcdsaP256, in_use }).unwrap().unwrap();
    }

    #[test]
    fn a_key_stays_while_it_is_in_use_and_goes_with_its_pod() {
        let keys = PodKeys::default();
        make_one(&keys, key("a", 1), None);
        make_one(&keys, key("b", 1), None);
        make_one(&keys, key("a", 2), Some(1));
        let all = [key("a", 1), key("a", 2), key("a", 3), key("b", 1)];
        assert_eq!(known(&keys, &all), [true, true, false, true]);
        make_one(&keys, key("a", 3), Some(2));
        assert_eq!(known(&keys, &all), [false, true, true, true]);
        keys.run(&PodKeyEffect::Forget { pod: "a".into() }).unwrap();
        assert_eq!(known(&keys, &all), [false, false, false, true]);
        assert!(!format!("{keys:?}").contains("PRIVATE"));
    }

    /// Makes a key of a kind; others can read it, and its request is signed with it.
    #[track_caller]
    fn check(kind: KeyType) {
        let (pem, request) = make(kind).unwrap();
        let text = std::str::from_utf8(&pem.0).unwrap();
        assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n") && text.ends_with("-----END PRIVATE KEY-----\n"));
        let der = PrivateKeyDer::from_pem_slice(&pem.0).unwrap();
        let signing = rustls::crypto::aws_lc_rs::sign::any_supported_type(&der).unwrap();
        let der = STANDARD.decode(request).unwrap();
        let (rest, request) = X509CertificationRequest::from_der(&der).unwrap();
        assert!(rest.is_empty());
        let info = &request.certification_request_info;
        let all = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms.all;
        let public = &info.subject_pki.subject_public_key.data;
        let (signed, signature) = (info.raw, &request.signature_value.data);
        assert!(all.iter().any(|it| it.verify_signature(public, signed, signature).is_ok()), "{kind:?}");
        assert_eq!(info.subject.iter().count(), 0);
        assert_eq!(signing.public_key().unwrap().as_ref(), info.subject_pki.raw);
    }

    #[test]
    fn every_kind_of_key_is_made() {
        for kind in [KeyType::Rsa3072, KeyType::Rsa4096, KeyType::EcdsaP256, KeyType::EcdsaP384] {
            check(kind);
        }
        for kind in [KeyType::EcdsaP521, KeyType::Ed25519] {
            check(kind);
        }
    }

    #[test]
    fn an_edwards_key_is_as_short_as_can_be() {
        let (pem, _) = make(KeyType::Ed25519).unwrap();
        let PrivateKeyDer::Pkcs8(der) = PrivateKeyDer::from_pem_slice(&pem.0).unwrap() else { panic!() };
        assert_eq!((der.secret_pkcs8_der().len(), &der.secret_pkcs8_der()[..16]), (48, ED25519.as_slice()));
    }
}
