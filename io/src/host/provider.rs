//! Runs a credential provider: a program that reads a request from its input and prints logins.

use crate::program;
use components::duration::GoDuration;
use components::edge::host::provider::{KeyType, Provided, RunProvider};
use components::ids::Sensitive;
use components::registry::RegistryLogin;
use serde::Deserialize;
use std::collections::BTreeMap;
use tokio::process::Command;

/// Runs it; the caller bounds the time and drops the future, which ends the program.
pub(super) async fn run(asked: &RunProvider) -> Result<Provided, String> {
    let name = &asked.program;
    let mut command = Command::new(name);
    command.args(&asked.args).envs(asked.env.iter().map(|(name, value)| (name, &value.0)));
    let failed = |what: &dyn std::fmt::Display| format!("credential provider {name}: {what}");
    let said = program::run(&mut command, Some(asked.request.0.as_bytes())).await.map_err(|error| failed(&error))?;
    let (status, complaint) = (said.status, String::from_utf8_lossy(&said.complaint));
    if !status.success() {
        return Err(failed(&format!("{status}: {}", complaint.trim())));
    }
    parse(&said.output, &asked.api_version).map_err(|why| failed(&why))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<GoDuration>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Auth>>,
}

#[derive(Deserialize)]
struct Auth {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Reads what it printed; nothing of it is repeated in messages.
fn parse(text: &[u8], api_version: &str) -> Result<Provided, String> {
    let found: Response = serde_json::from_slice(text).map_err(|error| {
        format!("its answer is no CredentialProviderResponse: line {} column {}", error.line(), error.column())
    })?;
    if found.kind != "CredentialProviderResponse" || found.api_version != api_version {
        return Err(format!("its answer is no CredentialProviderResponse of {api_version}"));
    }
    let key = match found.cache_key_type.as_str() {
        "Image" => KeyType::Image,
        "Registry" => KeyType::Registry,
        "Global" => KeyType::Global,
        _ => return Err("its answer has no valid cacheKeyType: want Image, Registry or Global".to_owned()),
    };
    let login = |(server, auth): (String, Auth)| RegistryLogin {
        server,
        username: Sensitive(auth.username),
        password: Sensitive(auth.password),
    };
    Ok(Provided {
        key,
        cache_nanos: found.cache_duration.map(|duration| u64::try_from(duration.0).unwrap_or(0)),
        logins: found.auth.unwrap_or_default().into_iter().map(login).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "credentialprovider.kubelet.k8s.io/v1";

    fn shell(script: &str) -> RunProvider {
        RunProvider {
            program: "/bin/sh".to_owned(),
            args: vec!["-c".to_owned(), script.to_owned()],
            env: vec![("EXTRA".to_owned(), "value".into())],
            api_version: VERSION.to_owned(),
            request: r#"{"image":"reg/a"}"#.into(),
        }
    }

    fn answer(rest: &str) -> String {
        format!(r#"{{"kind":"CredentialProviderResponse","apiVersion":"{VERSION}"{rest}}}"#)
    }

    #[tokio::test]
    async fn a_provider_reads_its_request_and_prints_logins() {
        let body = answer(
            r#","cacheKeyType":"Registry","cacheDuration":"5m0s","auth":{"reg":{"username":"u","password":"'"$EXTRA"'"}}"#,
        );
        let script = format!("grep -q '\"image\":\"reg/a\"' || exit 9; printf '%s' '{body}'");
        let found = run(&shell(&script)).await.unwrap();
        assert_eq!((found.key, found.cache_nanos), (KeyType::Registry, Some(300_000_000_000)));
        assert_eq!((found.logins[0].server.as_str(), found.logins[0].password.0.as_str()), ("reg", "value"));
    }

    #[tokio::test]
    async fn one_that_fails_says_why() {
        let error = run(&shell("echo no luck >&2; exit 3")).await.unwrap_err();
        assert!(error.contains("/bin/sh") && error.contains("no luck") && error.contains('3'), "{error}");
        let none = RunProvider { program: "/nonexistent/provider".to_owned(), ..shell("") };
        assert!(run(&none).await.unwrap_err().contains("/nonexistent/provider"));
    }

    #[test]
    fn answers_are_checked_and_never_repeated() {
        assert!(parse(answer(r#","cacheKeyType":"Global""#).as_bytes(), VERSION).unwrap().logins.is_empty());
        for text in ["geheim".to_owned(), answer(r#","cacheKeyType":"geheim""#), answer("")] {
            let error = parse(text.as_bytes(), VERSION).unwrap_err();
            assert!(!error.contains("geheim"), "{error}");
        }
        let other = answer(r#","cacheKeyType":"Image""#);
        assert!(parse(other.as_bytes(), "credentialprovider.kubelet.k8s.io/v1beta1").is_err());
    }
}
