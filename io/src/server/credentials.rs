//! The serving certificate and the client CA as they are on disk now.
//!
//! The files are looked at when a connection or a request comes, at most once a second: an idle node does nothing. A
//! file that became unusable leaves what was loaded before in force, and is named once in the log.

use super::identity::{ANONYMOUS, ClientCa, Identity};
use super::review::{Reviews, bearer};
use super::tls::{self, Terms};
use super::{ServerConfig, ServerError};
use crate::files::{Stamp, stamp};
use arc_swap::ArcSwap;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Between two looks at the files.
const LOOK: Duration = Duration::from_secs(1);

/// What is in force.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// For handshakes.
    pub(super) tls: Arc<rustls::ServerConfig>,
    clients: Option<ClientCa>,
}

/// The files and what was read from them.
#[derive(Debug)]
pub(super) struct Credentials {
    source: Source,
    anonymous: bool,
    tokens: bool,
    /// Whom tokens are looked up with.
    reviews: Option<Arc<Reviews>>,
    loaded: ArcSwap<Loaded>,
    seen: Mutex<Seen>,
}

/// Where they are read from.
#[derive(Debug)]
struct Source {
    /// Certificate and key: the first pair that is there counts.
    pairs: Vec<(PathBuf, PathBuf)>,
    /// None has to be there.
    may_come_later: bool,
    client_ca: Option<PathBuf>,
    terms: Terms,
}

/// The last look at the files.
#[derive(Debug)]
struct Seen {
    at: Instant,
    stamps: Stamps,
}

type Stamps = Vec<Stamp>;

impl Credentials {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them is unusable.
    pub(super) fn new(config: &ServerConfig, reviews: Option<Arc<Reviews>>) -> Result<Self, ServerError> {
        let source = Source {
            pairs: tls::files(&config.tls)?,
            may_come_later: config.tls.requested,
            client_ca: config.client_ca.clone(),
            terms: Terms::new(&config.tls_policy)?,
        };
        let stamps = source.stamps();
        let loaded = source.load()?;
        Ok(Self {
            source,
            anonymous: config.anonymous,
            tokens: config.token_webhook,
            reviews,
            loaded: ArcSwap::from_pointee(loaded),
            seen: Mutex::new(Seen { at: Instant::now(), stamps }),
        })
    }

    /// What is in force now.
    pub(super) async fn current(self: &Arc<Self>) -> Arc<Loaded> {
        let due = self.seen.try_lock().is_ok_and(|seen| seen.at.elapsed() >= LOOK);
        if due {
            let this = Arc::clone(self);
            // A folder may be on a slow disk. That the look failed is no reason to refuse anybody.
            let _ = tokio::task::spawn_blocking(move || this.look()).await;
        }
        self.loaded.load_full()
    }

    /// Who sends a request; `None` when nobody known does.
    pub(super) async fn identify(
        self: &Arc<Self>,
        chain: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Option<Identity> {
        let loaded = self.current().await;
        if let Some(clients) = &loaded.clients
            && !chain.is_empty()
        {
            return clients
                .identify(chain)
                .map_err(|error| tracing::info!(%error, "Client certificate was refused"))
                .ok();
        }
        let header = headers.get(AUTHORIZATION).filter(|_| self.tokens);
        if let Some(token) = header.and_then(|header| header.to_str().ok()).and_then(bearer) {
            // A token that can't be looked up is a wrong one: it never turns into nobody.
            let reviews = self.reviews.as_ref()?;
            let found = reviews.identify(token).await;
            return found.map_err(|error| tracing::warn!(%error, "A token could not be looked up")).ok().flatten();
        }
        let groups = vec!["system:unauthenticated".to_owned()];
        self.anonymous.then(|| Identity { user: ANONYMOUS.to_owned(), groups, ..Identity::default() })
    }

    fn look(&self) {
        // Whoever holds the lock is looking.
        let Ok(mut seen) = self.seen.try_lock() else { return };
        if seen.at.elapsed() < LOOK {
            return;
        }
        seen.at = Instant::now();
        let found = self.source.stamps();
        if found == seen.stamps {
            return;
        }
        seen.stamps = found;
        match self.source.load() {
            Ok(loaded) => {
                self.loaded.store(Arc::new(loaded));
                tracing::info!("Loaded the changed serving certificate and client CA");
            }
            Err(error) => tracing::error!(%error, "Changed certificate files are unusable; the former stay in force"),
        }
    }
}

impl Source {
    fn load(&self) -> Result<Loaded, ServerError> {
        let clients = self.client_ca.as_deref().map(|path| ClientCa::load(path, &self.terms.provider)).transpose()?;
        let handshake = match &clients {
            Some(clients) => clients.handshake(&self.terms.provider),
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let there = self.pairs.iter().find(|(cert, key)| cert.exists() && key.exists());
        let tls = match there.or_else(|| self.pairs.first().filter(|_| !self.may_come_later)) {
            Some((cert, key)) => tls::server_config((cert, key), &self.terms, handshake)?,
            None => tls::without_certificate(&self.terms, handshake)?,
        };
        Ok(Loaded { tls, clients })
    }

    fn stamps(&self) -> Stamps {
        let pairs = self.pairs.iter().flat_map(|(cert, key)| [cert, key]);
        pairs.chain(&self.client_ca).map(|path| stamp(path)).collect()
    }
}
