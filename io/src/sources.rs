//! The pod sources: reads the manifest paths and the manifest URL, watches the paths.
//!
//! Decides nothing: each read answers with everything there is. What is unchanged is found out by the core, which also
//! decides when to read. A watcher per path only says that something was touched.

mod files;
mod parse;
mod url;
mod watch;

pub use url::UrlSource;

use crate::port::Port;
use crate::sources::files::Parsed;
use crate::sources::url::Fetcher;
use components::edge::sources::{SourcesAnswer, SourcesEffect};
use components::edge::{Answer, Failure, FailureClass, Ingress, Outcome};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, TryLockError};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Where pods are described.
#[derive(Clone, Debug, Default)]
pub struct SourcesOptions {
    /// Manifest files and directories; together they are the file source.
    pub paths: Vec<PathBuf>,
    /// The manifest URL.
    pub url: Option<UrlSource>,
}

/// Runs reads of the pod sources, and watches the manifest paths as long as it lives.
pub struct SourcesPort {
    paths: Vec<PathBuf>,
    parsed: Arc<Mutex<Parsed>>,
    fetcher: Result<Fetcher, String>,
    watchers: Vec<AbortHandle>,
}

impl SourcesPort {
    /// Makes the port and starts its watchers. Must be called within a runtime. What is wrong with the URL is said by
    /// every fetch.
    #[must_use]
    pub fn new(options: SourcesOptions, ingress: mpsc::Sender<Ingress>) -> Self {
        let watchers = options.paths.iter().map(|path| {
            let watching = watch::watch(path.clone(), ingress.clone());
            tokio::spawn(watching).abort_handle()
        });
        let watchers = watchers.collect();
        let fetcher =
            options.url.as_ref().map_or_else(|| Err("no manifest URL is configured".to_owned()), Fetcher::new);
        Self { paths: options.paths, parsed: Arc::default(), fetcher, watchers }
    }

    async fn answer(&self, effect: SourcesEffect) -> Result<SourcesAnswer, Failure> {
        match effect {
            SourcesEffect::ReadManifests => {
                let (paths, parsed) = (self.paths.clone(), Arc::clone(&self.parsed));
                tokio::task::spawn_blocking(move || read_files(&paths, &parsed))
                    .await
                    .unwrap_or_else(|e| Err(Failure { class: FailureClass::Other, message: e.to_string() }))
            }
            SourcesEffect::FetchManifestUrl => match &self.fetcher {
                Ok(fetcher) => fetcher.fetch().await,
                Err(message) => Err(Failure { class: FailureClass::Invalid, message: message.clone() }),
            },
        }
    }
}

fn read_files(paths: &[PathBuf], parsed: &Mutex<Parsed>) -> Result<SourcesAnswer, Failure> {
    let mut parsed = match parsed.try_lock() {
        Ok(parsed) => parsed,
        Err(TryLockError::Poisoned(parsed)) => parsed.into_inner(),
        // A read cannot be taken back once the file system hangs; a second one would hang as well.
        Err(TryLockError::WouldBlock) => {
            let message = "an earlier read has not come back yet".to_owned();
            return Err(Failure { class: FailureClass::Unavailable, message });
        }
    };
    files::read(paths, &mut parsed)
}

impl Port<SourcesEffect> for SourcesPort {
    async fn run(&self, effect: SourcesEffect) -> Outcome {
        match self.answer(effect).await {
            Ok(answer) => Outcome::Done(Answer::Sources(answer)),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}

impl Drop for SourcesPort {
    fn drop(&mut self) {
        for watcher in &self.watchers {
            watcher.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::sources::Source;
    use std::time::Duration;

    #[tokio::test]
    async fn a_touched_directory_is_told_and_read() {
        let dir = tempfile::TempDir::new().unwrap();
        let (sender, mut facts) = mpsc::channel(16);
        let options = SourcesOptions { paths: vec![dir.path().to_owned()], url: None };
        let port = SourcesPort::new(options, sender);
        let wait = Duration::from_secs(5);
        tokio::time::timeout(wait, facts.recv()).await.unwrap().unwrap();
        std::fs::write(dir.path().join("a.yaml"), "kind: Pod").unwrap();
        tokio::time::timeout(wait, facts.recv()).await.unwrap().unwrap();
        let outcome = port.run(SourcesEffect::ReadManifests).await;
        let Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsRead { source, manifests, problems })) = outcome
        else {
            panic!("{outcome:?}")
        };
        assert_eq!((source, manifests.len(), problems.len()), (Source::File, 1, 0));
        let outcome = port.run(SourcesEffect::FetchManifestUrl).await;
        assert!(matches!(outcome, Outcome::Failed(failure) if failure.class == FailureClass::Invalid));
        // The watchers end with the port.
        drop(port);
        while tokio::time::timeout(wait, facts.recv()).await.unwrap().is_some() {}
    }
}
