//! The files of one store: `NAME-TIME.pem`, `NAME-current.pem` that links to one of them, `NAME.key.tmp`.
//!
//! The link is replaced by a rename of `NAME-updated.pem`, so at every moment one whole pair is in use.

use crate::files;
use components::edge::host::identity::CertificateStore;
use rcgen::KeyPair;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

/// One store.
#[derive(Debug)]
pub(super) struct Store {
    dir: PathBuf,
    name: String,
}

impl Store {
    pub(super) fn new(store: &CertificateStore) -> Self {
        Self { dir: PathBuf::from(&store.dir), name: store.name.clone() }
    }

    fn file(&self, which: &str) -> PathBuf {
        self.dir.join(format!("{}-{which}.pem", self.name))
    }

    /// The link to the pair in use.
    pub(super) fn current_path(&self) -> PathBuf {
        self.file("current")
    }

    fn key_path(&self) -> PathBuf {
        self.dir.join(format!("{}.key.tmp", self.name))
    }

    /// Certificate and key in use; `None` when there are none.
    pub(super) fn current(&self) -> Result<Option<Vec<u8>>, String> {
        let path = self.current_path();
        match fs::read(&path) {
            Ok(pem) => Ok(Some(pem)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(said(&path, &error)),
        }
    }

    /// Goes on where an earlier run was stopped between making the link and renaming it. Other programs' stores, which
    /// remove the old link first, are put right too.
    pub(super) fn recover(&self) -> Result<(), String> {
        let (current, updated) = (self.current_path(), self.file("updated"));
        if current.exists() || !updated.is_symlink() || !updated.exists() {
            return Ok(());
        }
        fs::rename(&updated, &current).map_err(|error| said(&current, &error))
    }

    /// The key of the request under way, made when there is none or a new one is wanted.
    pub(super) fn pending_key(&self, new: bool) -> Result<KeyPair, String> {
        let path = self.key_path();
        if !new
            && let Ok(text) = fs::read_to_string(&path)
            && let Ok(key) = KeyPair::from_pem(&text)
        {
            return Ok(key);
        }
        let key = KeyPair::generate().map_err(|error| format!("a key could not be made: {error}"))?;
        fs::create_dir_all(&self.dir).map_err(|error| said(&self.dir, &error))?;
        files::put(&path, 0o600, &key.serialize_pem()).map_err(|error| said(&path, &error))?;
        Ok(key)
    }

    /// Puts a pair into use.
    pub(super) fn keep(&self, certificates: &[u8], key: &KeyPair, time: &str) -> Result<(), String> {
        let path = self.file(time);
        let write = || {
            let mut file = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&path)?;
            file.write_all(certificates)?;
            if !certificates.ends_with(b"\n") {
                file.write_all(b"\n")?;
            }
            file.write_all(key.serialize_pem().as_bytes())?;
            file.sync_all()
        };
        write().map_err(|error| said(&path, &error))?;
        self.link(&path)?;
        // Left behind, it would only be used for a request that is made anew.
        let _ = fs::remove_file(self.key_path());
        Ok(())
    }

    fn link(&self, path: &Path) -> Result<(), String> {
        let (current, updated) = (self.current_path(), self.file("updated"));
        for link in [&current, &updated] {
            if link.exists() && !link.is_symlink() {
                return Err(format!("{}: expected a symbolic link, but it is a file", link.display()));
            }
        }
        let target = std::path::absolute(path).map_err(|error| said(path, &error))?;
        match fs::remove_file(&updated) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(said(&updated, &error)),
            _ => {}
        }
        symlink(&target, &updated).map_err(|error| said(&updated, &error))?;
        fs::rename(&updated, &current).map_err(|error| said(&current, &error))
    }
}

/// Whether the first certificate was issued for this key.
pub(super) fn check_pair(certificates: &[u8], key: &KeyPair) -> Result<(), String> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("the issued certificate is unusable: {error}"))?;
    let private =
        PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| format!("the key is unusable: {error}"))?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, private, &provider)
        .map(drop)
        .map_err(|error| format!("the issued certificate does not fit the key: {error}"))
}

fn said(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}", path.display())
}
