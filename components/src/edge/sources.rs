//! Pod sources: the manifest directory or file, and the manifest URL.

use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which source a pod came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Source {
    /// Manifest directory or file (`kubernetes.io/config.source: file`).
    File,
    /// Manifest URL (`kubernetes.io/config.source: http`).
    Http,
    /// API server (`kubernetes.io/config.source: api`).
    Api,
}

impl Source {
    /// Value of the annotation `kubernetes.io/config.source`.
    #[must_use]
    pub const fn annotation(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Http => "http",
            Self::Api => "api",
        }
    }
}

/// Reads of a source. Where the source lies (path, URL, headers) the bridge was told at start.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub enum SourcesEffect {
    /// Read the whole manifest directory or file.
    ReadManifests,
    /// Fetch the manifest URL once.
    FetchManifestUrl,
}

/// Unasked facts of the sources.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SourcesIngress {
    /// Something in the manifest directory was created, changed, renamed or removed.
    ManifestsTouched,
    /// Files of the manifest directory were deleted or moved away; by now others may lie in their places.
    ManifestsRemoved {
        /// Their paths, sorted.
        origins: Vec<Arc<str>>,
    },
}

/// What a read brought.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SourcesAnswer {
    /// The whole content of a source.
    ManifestsRead {
        /// The source.
        source: Source,
        /// Every object found, sorted by path, then by position in the file.
        manifests: Vec<Manifest>,
        /// Files that could not be read or parsed, sorted by path.
        problems: Vec<ManifestProblem>,
    },
    /// The content is byte for byte what the last `ManifestsRead` of this source said.
    ManifestsUnchanged {
        /// The source.
        source: Source,
    },
}

/// One object of a source, as JSON.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// File path, or the URL.
    pub origin: Arc<str>,
    /// Position within a list; 0 for a single object.
    pub index: u32,
    /// FNV-1a 128 over the object's JSON text without its `status`, before redaction: equal digest, equal object.
    pub digest: u128,
    /// The object as JSON text. In a trace, `env[].value` texts are redacted.
    pub json: Arc<str>,
}

/// A file or answer that is not usable.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ManifestProblem {
    /// File path, or the URL.
    pub origin: Arc<str>,
    /// One line: what is wrong, with the line number where one is known.
    pub message: String,
}
