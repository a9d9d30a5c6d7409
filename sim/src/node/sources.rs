//! The simulated manifest directory and manifest URL.

use components::edge::sources::{Manifest, ManifestProblem, Source, SourcesAnswer};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Content of one source. A file is one pod as JSON, or something broken.
#[derive(Debug, Clone, Default)]
pub struct Content {
    files: BTreeMap<String, Result<Arc<str>, String>>,
    /// Counts changes.
    version: u64,
    /// Version that the last delivered answer of this run showed.
    told: Option<u64>,
}

impl Content {
    /// Adds or replaces a file.
    pub fn put(&mut self, origin: &str, json: &str) {
        self.files.insert(origin.to_owned(), Ok(Arc::from(json)));
        self.version += 1;
    }

    /// Makes a file unusable.
    pub fn spoil(&mut self, origin: &str, problem: &str) {
        self.files.insert(origin.to_owned(), Err(problem.to_owned()));
        self.version += 1;
    }

    /// Removes a file.
    pub fn remove(&mut self, origin: &str) {
        self.files.remove(origin);
        self.version += 1;
    }

    /// Files by origin: the JSON of its pod, or what is wrong with it.
    #[must_use]
    pub fn files(&self) -> &BTreeMap<String, Result<Arc<str>, String>> {
        &self.files
    }

    /// Counts changes.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// What a read brings now.
    #[must_use]
    pub fn read(&self, source: Source) -> SourcesAnswer {
        if self.told == Some(self.version) {
            return SourcesAnswer::ManifestsUnchanged { source };
        }
        let mut manifests = Vec::new();
        let mut problems = Vec::new();
        for (origin, content) in &self.files {
            let origin: Arc<str> = Arc::from(origin.as_str());
            match content {
                Ok(json) => manifests.push(Manifest { origin, index: 0, digest: fnv128(json), json: Arc::clone(json) }),
                Err(message) => problems.push(ManifestProblem { origin, message: message.clone() }),
            }
        }
        SourcesAnswer::ManifestsRead { source, manifests, problems }
    }

    /// The answer that a read brought at `version` was delivered.
    pub fn delivered(&mut self, version: u64) {
        self.told = Some(version);
    }

    /// The bridge starts anew and remembers nothing.
    pub fn forget(&mut self) {
        self.told = None;
    }
}

/// FNV-1a with 128 bits.
#[must_use]
pub fn fnv128(text: &str) -> u128 {
    text.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_source_says_so_only_once_its_content_was_delivered() {
        let mut content = Content::default();
        content.put("/m/a.yaml", "{}");
        assert!(matches!(content.read(Source::File), SourcesAnswer::ManifestsRead { .. }));
        assert!(matches!(content.read(Source::File), SourcesAnswer::ManifestsRead { .. }));
        content.delivered(content.version());
        assert!(matches!(content.read(Source::File), SourcesAnswer::ManifestsUnchanged { .. }));
        content.forget();
        assert!(matches!(content.read(Source::File), SourcesAnswer::ManifestsRead { .. }));
    }

    #[test]
    fn fnv_matches_its_published_vectors() {
        assert_eq!(fnv128(""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv128("a"), 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
    }
}
