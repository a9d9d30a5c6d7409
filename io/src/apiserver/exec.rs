//! Exec credential plugins of a kubeconfig (`client.authentication.k8s.io`): a program that prints a token or a client
//! certificate, run when there is no credential, when it has expired, and after the server refused it.

use super::identity::bearer;
use super::kubeconfig::ExecPlugin;
use super::pool::Pools;
use crate::clock::Clock;
use crate::program;
use components::ids::Sensitive;
use components::time::Wall;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::json;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// Longest time that a plugin may take: requests wait for it.
const DEADLINE: Duration = Duration::from_secs(30);

/// A plugin with what it said last.
#[derive(Debug)]
pub(super) struct Exec {
    plugin: ExecPlugin,
    current: Mutex<Option<Arc<Made>>>,
    closed: CancellationToken,
}

/// A credential in use.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) pools: Arc<Pools>,
    pub(super) bearer: Option<HeaderValue>,
    /// Cancelled when another certificate takes its place.
    pub(super) closed: CancellationToken,
    credential: Credential,
}

/// What a plugin printed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Credential {
    token: Sensitive,
    /// PEM of certificate and key.
    pub(super) identity: Option<(Sensitive, Sensitive)>,
    expires: Option<Wall>,
}

impl Exec {
    pub(super) fn new(plugin: ExecPlugin) -> Self {
        Self { plugin, current: Mutex::default(), closed: CancellationToken::new() }
    }

    /// The credential in use, asked for when there is none or it has expired. `connect` makes the connections of a new
    /// certificate.
    pub(super) async fn current(
        &self,
        connect: impl FnOnce(&Credential) -> Result<Arc<Pools>, String>,
    ) -> Result<Arc<Made>, String> {
        // Whoever comes meanwhile waits here: the plugin runs once for all.
        let mut current = self.current.lock().await;
        if let Some(made) = current.as_ref().filter(|made| !made.credential.has_expired(Clock::default().now().wall)) {
            return Ok(Arc::clone(made));
        }
        let credential = run(&self.plugin).await.map_err(|error| format!("getting credentials: {error}"))?;
        let header = (!credential.token.0.is_empty()).then(|| bearer(&credential.token.0)).transpose()?;
        let same = current.as_ref().filter(|made| made.credential.identity == credential.identity);
        let (pools, closed) = match same {
            Some(made) => (Arc::clone(&made.pools), made.closed.clone()),
            None => (connect(&credential)?, self.closed.child_token()),
        };
        let made = Arc::new(Made { pools, bearer: header, closed: closed.clone(), credential });
        if let Some(former) = current.replace(Arc::clone(&made))
            && former.credential.identity != made.credential.identity
        {
            former.closed.cancel();
        }
        Ok(made)
    }

    /// The server refused the credential: the next request asks for another, unless somebody did already.
    pub(super) async fn refused(&self, bearer: Option<&HeaderValue>) {
        let mut current = self.current.lock().await;
        if let Some(made) = current.as_mut().filter(|made| made.bearer.as_ref() == bearer) {
            let credential = Credential {
                token: made.credential.token.clone(),
                identity: made.credential.identity.clone(),
                expires: Some(Wall(0)),
            };
            let (pools, closed) = (Arc::clone(&made.pools), made.closed.clone());
            *made = Arc::new(Made { pools, bearer: made.bearer.clone(), closed, credential });
        }
    }

    /// Its connections are given up.
    pub(super) fn close(&self) {
        self.closed.cancel();
    }
}

impl Credential {
    fn has_expired(&self, now: Wall) -> bool {
        self.expires.is_some_and(|expires| now > expires)
    }
}

async fn run(plugin: &ExecPlugin) -> Result<Credential, String> {
    let name = plugin.command.display();
    let mut spec = json!({ "interactive": false });
    if let Some(cluster) = &plugin.cluster {
        spec["cluster"] = cluster.clone();
    }
    let info = json!({ "kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec });
    let mut command = Command::new(&plugin.command);
    command.args(&plugin.args).envs(plugin.env.iter().map(|(name, value)| (name, &value.0)));
    command.env("KUBERNETES_EXEC_INFO", info.to_string());
    // What it says to people goes to our own log.
    let said = tokio::time::timeout(DEADLINE, program::run(&mut command, None)).await;
    let said = said
        .map_err(|_| format!("exec: executable {name} did not end within {} seconds", DEADLINE.as_secs()))?
        .map_err(|error| match error.kind() {
            ErrorKind::NotFound if plugin.install_hint.is_empty() => format!("exec: executable {name} not found"),
            ErrorKind::NotFound => format!("exec: executable {name} not found: {}", plugin.install_hint),
            _ => format!("exec: {name}: {error}"),
        })?;
    match said.status.code() {
        Some(0) => parse(&said.output, &plugin.api_version),
        Some(code) => Err(format!("exec: executable {name} failed with exit code {code}")),
        None => Err(format!("exec: executable {name} was ended by a signal")),
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Printed {
    api_version: String,
    kind: String,
    status: Option<Status>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    expiration_timestamp: Option<String>,
    token: String,
    client_certificate_data: String,
    client_key_data: String,
}

/// Reads what a plugin printed; nothing of it is repeated in messages.
fn parse(text: &[u8], api_version: &str) -> Result<Credential, String> {
    let printed: Printed = serde_json::from_slice(text)
        .map_err(|error| format!("decoding stdout: not JSON at line {} column {}", error.line(), error.column()))?;
    if printed.kind != "ExecCredential" || printed.api_version != api_version {
        return Err(format!("the plugin is configured to use {api_version} and printed something else"));
    }
    let status = printed.status.ok_or("exec plugin didn't return a status field")?;
    let pair = (status.client_certificate_data, status.client_key_data);
    let identity = match (pair.0.is_empty(), pair.1.is_empty()) {
        (true, true) => None,
        (false, false) => Some((Sensitive(pair.0), Sensitive(pair.1))),
        _ => return Err("exec plugin returned only certificate or key, not both".to_owned()),
    };
    if status.token.is_empty() && identity.is_none() {
        return Err("exec plugin didn't return a token or cert/key pair".to_owned());
    }
    let time = status.expiration_timestamp.as_deref();
    let expires = time
        .map(|time| Wall::from_rfc3339(time).ok_or("exec plugin returned an expirationTimestamp that is no time"))
        .transpose()?;
    Ok(Credential { token: Sensitive(status.token), identity, expires })
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION: &str = "client.authentication.k8s.io/v1";

    #[track_caller]
    fn bad(status: &str, expect: &str) {
        let text = format!(r#"{{"kind":"ExecCredential","apiVersion":"{VERSION}"{status}}}"#);
        let error = parse(text.as_bytes(), VERSION).unwrap_err();
        assert!(error.contains(expect) && !error.contains("geheim"), "{error}");
    }

    #[test]
    fn what_a_plugin_prints_is_read_and_never_repeated() {
        let text = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{},
            "status":{"token":"geheim","expirationTimestamp":"2026-11-30T09:00:00Z"}}"#;
        let found = parse(text.as_bytes(), VERSION).unwrap();
        assert_eq!((found.token.0.as_str(), &found.identity), ("geheim", &None));
        let expires = found.expires.unwrap();
        assert!(!found.has_expired(expires) && found.has_expired(Wall(expires.0 + 1)));
        assert!(!format!("{found:?}").contains("geheim"));
        bad("", "didn't return a status");
        bad(r#","status":{}"#, "didn't return a token");
        bad(r#","status":{"clientKeyData":"geheim"}"#, "not both");
        bad(r#","status":{"token":"geheim","expirationTimestamp":"geheim"}"#, "no time");
        let error = parse(text.as_bytes(), "client.authentication.k8s.io/v1beta1").unwrap_err();
        assert!(error.contains("v1beta1"), "{error}");
        assert!(parse(b"geheim", VERSION).unwrap_err().contains("not JSON"));
    }

    fn shell(script: &str) -> ExecPlugin {
        ExecPlugin {
            command: "/bin/sh".into(),
            args: vec!["-c".to_owned(), script.to_owned(), "plugin".to_owned(), "argument".to_owned()],
            env: vec![("EXTRA".to_owned(), "value".into())],
            api_version: VERSION.to_owned(),
            cluster: Some(json!({ "server": "https://h" })),
            install_hint: "get it".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_plugin_gets_its_arguments_environment_and_the_cluster() {
        let script = r#"case "$KUBERNETES_EXEC_INFO" in *'"interactive":false'*) ;; *) exit 3;; esac
            case "$KUBERNETES_EXEC_INFO" in *'"server":"https://h"'*) ;; *) exit 4;; esac
            read line && exit 5
            echo "{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\"status\":{\"token\":\"$EXTRA-$1\"}}""#;
        assert_eq!(run(&shell(script)).await.unwrap().token.0, "value-argument");
        let error = run(&shell("exit 7")).await.unwrap_err();
        assert_eq!(error, "exec: executable /bin/sh failed with exit code 7");
        let none = ExecPlugin { command: "/nonexistent/plugin".into(), ..shell("") };
        let error = run(&none).await.unwrap_err();
        assert_eq!(error, "exec: executable /nonexistent/plugin not found: get it");
    }
}
