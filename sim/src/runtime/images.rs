//! Images: which are here, which a registry has. Decides how a pull ends.

use crate::runtime::model::Refusal;
use crate::runtime::splitmix;
use components::edge::FailureClass;
use components::registry::RegistryLogin;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// An image that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `sha256:…`.
    pub id: Arc<str>,
    /// Name with tag or digest.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
}

/// Images that are here and those that can be pulled.
#[derive(Debug, Clone, Default)]
pub struct Images {
    here: BTreeMap<String, Image>,
    by_id: BTreeMap<Arc<str>, String>,
    /// Names that no registry has. A name with the word `missing` in it is never there either.
    pub absent: BTreeSet<String>,
    /// Passwords of images that are not for everyone, by name.
    pub private: BTreeMap<String, String>,
}

impl Images {
    /// The image with this name or id.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Image> {
        self.here.get(name).or_else(|| self.by_id.get(name).and_then(|n| self.here.get(n)))
    }

    /// All images by name.
    pub fn iter(&self) -> impl Iterator<Item = &Image> {
        self.here.values()
    }

    /// `PullImage` with a login.
    ///
    /// # Errors
    /// When no registry has the image, or the login is not the one it wants.
    pub fn pull_with(&mut self, name: &str, login: Option<&RegistryLogin>) -> Result<Arc<str>, Refusal> {
        let given = login.map(|login| login.password.0.as_str());
        if self.private.get(name).is_some_and(|wanted| given != Some(wanted)) {
            let message = format!("failed to authorize {name:?}: 401 Unauthorized");
            return Err(Refusal::new(FailureClass::Denied, message));
        }
        self.pull(name)
    }

    /// `PullImage` of an image that is for everyone.
    ///
    /// # Errors
    /// When no registry has the image.
    pub fn pull(&mut self, name: &str) -> Result<Arc<str>, Refusal> {
        if name.contains("missing") || self.absent.contains(name) {
            return Err(Refusal::new(
                FailureClass::NotFound,
                format!("failed to resolve reference {name:?}: {name}: not found"),
            ));
        }
        Ok(self.add(name))
    }

    /// Puts an image here, as if it had been loaded.
    pub fn add(&mut self, name: &str) -> Arc<str> {
        if let Some(image) = self.here.get(name) {
            return image.id.clone();
        }
        let mut state =
            name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let digits: String = (0..4).map(|_| format!("{:016x}", splitmix(&mut state))).collect();
        let id: Arc<str> = Arc::from(format!("sha256:{digits}"));
        self.by_id.insert(id.clone(), name.to_owned());
        self.here.insert(name.to_owned(), Image { id: id.clone(), name: name.to_owned(), size: 4_000_000 });
        id
    }

    /// `RemoveImage`; a missing image counts as removed.
    pub fn remove(&mut self, name: &str) {
        if let Some(image) = self.find(name).cloned() {
            self.by_id.remove(&image.id);
            self.here.remove(&image.name);
        }
    }
}
