//! One run of a credential provider for images.

use crate::ids::Sensitive;
use crate::registry::RegistryLogin;
use serde::{Deserialize, Serialize};

/// What is run and told.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RunProvider {
    /// The program's path.
    pub program: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment besides our own.
    pub env: Vec<(String, Sensitive)>,
    /// Version of its answer.
    pub api_version: String,
    /// What it reads: a `CredentialProviderRequest` as JSON, which may hold a token.
    pub request: Sensitive,
}

/// What it said.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Provided {
    /// What the logins are good for.
    pub key: KeyType,
    /// How long they are good, in nanoseconds, when it says so.
    pub cache_nanos: Option<u64>,
    /// By registry.
    pub logins: Vec<RegistryLogin>,
}

/// `cacheKeyType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum KeyType {
    /// This image.
    Image,
    /// All images of the registry.
    Registry,
    /// All images.
    Global,
}
