//! Exec credential providers for image pulls (`CredentialProviderConfig`): which programs there are, for which images, and
//! what they are told.

use crate::duration::GoDuration;
use crate::ids::{PodUid, Sensitive, Ticket};
use crate::objects::Token;
use crate::registry::RegistryLogin;
use crate::time::Mono;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Versions of a provider's input and output.
const VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
];

/// All providers of a node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Providers {
    /// Where the programs are.
    pub dir: String,
    /// The providers, in the order of the configuration.
    pub list: Vec<Provider>,
}

/// One provider.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Provider {
    /// Name of the program.
    pub name: String,
    /// Images that it has logins for: host with globs for its parts, port, and the beginning of the path.
    pub match_images: Vec<String>,
    /// How long its answer is good when it does not say.
    pub default_cache_nanos: u64,
    /// Version of what it is told and says.
    pub api_version: String,
    /// Arguments.
    pub args: Vec<String>,
    /// Environment besides our own.
    pub env: Vec<(String, Sensitive)>,
    /// It gets a token of the pod's service account.
    pub token: Option<TokenAttributes>,
}

/// `tokenAttributes`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenAttributes {
    /// Audience of the token.
    pub service_account_token_audience: String,
    /// Answers are kept by token and not by account only.
    #[serde(rename = "cacheType")]
    pub cache_type: CacheType,
    /// Pods without a service account get nothing.
    pub require_service_account: bool,
    /// Annotations that the account must have.
    #[serde(default)]
    pub required_service_account_annotation_keys: Vec<String>,
    /// Annotations that are passed on where they are there.
    #[serde(default)]
    pub optional_service_account_annotation_keys: Vec<String>,
}

/// `cacheType`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CacheType {
    /// Good for every pod of the account.
    ServiceAccount,
    /// Good for this token only.
    Token,
}

/// What is known of providers' logins. Written by `systems::registry` only.
#[derive(Clone, Debug, Default)]
pub struct ProviderRuns {
    /// Answers that are still good.
    pub answers: BTreeMap<AnswerKey, ProviderAnswer>,
    /// Service accounts by namespace and name: what was read and when.
    pub accounts: BTreeMap<(String, String), (Mono, Result<Account, String>)>,
    /// Tokens by provider and pod; for one that was refused, when it may be asked for again.
    pub tokens: BTreeMap<(u16, PodUid), Result<Token, Mono>>,
    /// Questions under way.
    pub asking: BTreeMap<Ticket, ProviderAsk>,
}

/// What an answer is good for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct AnswerKey {
    /// Index of the provider.
    pub provider: u16,
    /// Image, registry, or empty for all images.
    pub image: String,
    /// Service account; empty when it plays no part.
    pub account: String,
}

/// One answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProviderAnswer {
    /// The logins.
    pub logins: Vec<RegistryLogin>,
    /// Good until then.
    pub until: Mono,
}

/// A service account as providers see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Account {
    /// `metadata.uid`.
    pub uid: String,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
}

/// A question under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProviderAsk {
    /// For a service account, by namespace and name.
    Account(String, String),
    /// For a token, by provider and pod.
    Token(u16, PodUid),
    /// For logins, by provider, image and service account.
    Run(AnswerKey),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct File {
    api_version: String,
    kind: String,
    #[serde(default)]
    providers: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    name: String,
    #[serde(default)]
    match_images: Vec<String>,
    #[serde(default)]
    default_cache_duration: Option<GoDuration>,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    #[serde(default)]
    token_attributes: Option<TokenAttributes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    value: String,
}

/// The providers of some files, given by name and text, in the order of their names.
///
/// # Errors
/// What is wrong, with the file; values are not repeated.
pub fn decode(files: &[(String, String)], tokens_allowed: bool) -> Result<Vec<Provider>, String> {
    let mut list: Vec<Provider> = Vec::new();
    let mut names = BTreeSet::new();
    for (path, text) in files {
        let said = |message: String| format!("{path}: {message}");
        // The parser quotes what it stumbles over, which may be a secret: only the place is said.
        let file: File = serde_saphyr::from_str(text).map_err(|error| {
            said(match error.location() {
                Some(at) => format!("line {}: not a CredentialProviderConfig", at.line()),
                None => "not a CredentialProviderConfig".to_owned(),
            })
        })?;
        let version = file.api_version.strip_prefix("kubelet.config.k8s.io/").unwrap_or_default();
        if file.kind != "CredentialProviderConfig" || !matches!(version, "v1" | "v1beta1" | "v1alpha1") {
            return Err(said("want kind CredentialProviderConfig of kubelet.config.k8s.io/v1".to_owned()));
        }
        for entry in file.providers {
            let name = entry.name.clone();
            if !names.insert(name.clone()) {
                return Err(said(format!("duplicate provider name {name:?}")));
            }
            list.push(provider(entry, tokens_allowed).map_err(|why| said(format!("provider {name:?}: {why}")))?);
        }
    }
    if list.is_empty() { Err("at least one provider is required".to_owned()) } else { Ok(list) }
}

fn provider(entry: Entry, tokens_allowed: bool) -> Result<Provider, String> {
    if entry.name.is_empty() || matches!(entry.name.as_str(), "." | "..") || entry.name.contains(['/', ' ']) {
        return Err("name must be that of a program, without '/' and spaces".to_owned());
    }
    if !VERSIONS.contains(&entry.api_version.as_str()) {
        return Err(format!("apiVersion must be one of {}", VERSIONS.join(", ")));
    }
    if entry.match_images.is_empty() {
        return Err("matchImages: at least one is required".to_owned());
    }
    if let Some(bad) = entry.match_images.iter().find(|image| image.contains("://") || image.is_empty()) {
        return Err(format!("matchImages: {bad:?} must be a host with an optional port and path"));
    }
    let cache = entry.default_cache_duration.ok_or("defaultCacheDuration is required")?;
    let default_cache_nanos =
        u64::try_from(cache.0).map_err(|_| "defaultCacheDuration must not be negative".to_owned())?;
    if let Some(token) = &entry.token_attributes {
        check_token(token, &entry.api_version, tokens_allowed).map_err(|why| format!("tokenAttributes: {why}"))?;
    }
    Ok(Provider {
        name: entry.name,
        match_images: entry.match_images,
        default_cache_nanos,
        api_version: entry.api_version,
        args: entry.args.unwrap_or_default(),
        env: entry.env.into_iter().flatten().map(|it| (it.name, Sensitive(it.value))).collect(),
        token: entry.token_attributes,
    })
}

fn check_token(token: &TokenAttributes, version: &str, allowed: bool) -> Result<(), String> {
    if !allowed {
        return Err("needs the feature gate KubeletServiceAccountTokenForCredentialProviders".to_owned());
    }
    if version != VERSIONS[0] {
        return Err(format!("needs apiVersion {}", VERSIONS[0]));
    }
    if token.service_account_token_audience.is_empty() {
        return Err("serviceAccountTokenAudience is required".to_owned());
    }
    let required = &token.required_service_account_annotation_keys;
    if !token.require_service_account && !required.is_empty() {
        return Err("requiredServiceAccountAnnotationKeys needs requireServiceAccount".to_owned());
    }
    let mut seen = BTreeSet::new();
    for key in required.iter().chain(&token.optional_service_account_annotation_keys) {
        if let Some(why) = crate::config::qualified_name_problem(&key.to_lowercase()) {
            return Err(format!("annotation key {key:?}: {why}"));
        }
        if !seen.insert(key) {
            return Err(format!("annotation key {key:?} is there twice"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ['*.example.com', 'reg.example.com:5000/team']
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env: [{name: N, value: geheim}]
  tokenAttributes:
    serviceAccountTokenAudience: reg
    cacheType: ServiceAccount
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/role]
";

    fn read(text: &str) -> Result<Vec<Provider>, String> {
        decode(&[("p.yaml".to_owned(), text.to_owned())], true)
    }

    #[track_caller]
    fn bad(from: &str, to: &str, expect: &str) {
        assert!(GOOD.contains(from), "{from}");
        let error = read(&GOOD.replace(from, to)).unwrap_err();
        assert!(error.contains(expect) && !error.contains("geheim"), "{error}");
    }

    #[test]
    fn a_provider_is_read() {
        let found = read(GOOD).unwrap().remove(0);
        assert_eq!((found.name.as_str(), found.default_cache_nanos), ("ecr", 12 * 3600 * 1_000_000_000));
        assert_eq!(found.token.as_ref().map(|token| token.cache_type), Some(CacheType::ServiceAccount));
        assert!(!format!("{found:?}").contains("geheim"));
        let none = [("p.yaml".to_owned(), GOOD.to_owned())];
        assert!(decode(&none, false).unwrap_err().contains("KubeletServiceAccountTokenForCredentialProviders"));
        assert!(decode(&[none[0].clone(), none[0].clone()], true).unwrap_err().contains("duplicate"));
        assert!(decode(&[], true).unwrap_err().contains("at least one provider"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        bad("kind: CredentialProviderConfig", "kind: Other", "want kind");
        bad("name: ecr", "name: a/b", "without '/'");
        bad("kubelet.k8s.io/v1\n  args", "kubelet.k8s.io/v9\n  args", "apiVersion must be one of");
        bad("  defaultCacheDuration: 12h\n", "", "defaultCacheDuration is required");
        bad("12h", "-1s", "must not be negative");
        bad("'*.example.com', 'reg.example.com:5000/team'", "", "at least one is required");
        bad("'*.example.com'", "'https://x'", "must be a host");
        bad("requireServiceAccount: true", "requireServiceAccount: false", "needs requireServiceAccount");
        bad("Audience: reg", "Audience: ''", "serviceAccountTokenAudience is required");
        bad("[example.com/role]", "['']", "annotation key");
        bad("args: [get]", "args: {geheim", "not a CredentialProviderConfig");
        bad("args: [get]", "arguments: [get]", "not a CredentialProviderConfig");
    }
}
