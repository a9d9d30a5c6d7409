//! Logins of image registries: what docker configurations hold of them, and how far a pull has come with them.
//!
//! [`NodeLogins`] is written by `systems::registry` only.

use crate::ids::{Sensitive, Ticket};
use crate::time::Mono;
use bevy_ecs::prelude::Resource;
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Longest text of all failed attempts together that a message keeps.
const ERRORS: usize = 8;

/// A login of one registry, or of a part of one.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RegistryLogin {
    /// The registry as the configuration names it.
    pub server: String,
    /// User name.
    pub username: Sensitive,
    /// Password.
    pub password: Sensitive,
}

/// Logins that the node's own docker configuration holds.
#[derive(Resource, Clone, Debug, Default)]
pub struct NodeLogins {
    /// When they were read last; `None` before the first time.
    pub read: Option<Mono>,
    /// The read under way.
    pub reading: Option<Ticket>,
    /// In the order of their servers.
    pub list: Vec<RegistryLogin>,
    /// Those of credential providers.
    pub provided: crate::providers::ProviderRuns,
    /// What is known of pulls.
    pub records: crate::pulls::PullRecords,
}

/// How far a pull has come with the logins that fit the image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PullTries {
    /// Logins that were refused.
    pub tried: usize,
    /// There are more.
    pub more: bool,
    /// What was said of each.
    pub errors: Vec<String>,
}

impl PullTries {
    /// Takes a refusal. True when another login is to be tried at once; else [`Self::end`] says what happened.
    pub fn refused(&mut self, error: String) -> bool {
        if self.errors.len() < ERRORS {
            self.errors.push(error);
        }
        self.tried += 1;
        self.more
    }

    /// All that was said, and begins anew.
    pub fn end(&mut self) -> String {
        let errors = std::mem::take(self).errors;
        match errors.as_slice() {
            [one] => one.clone(),
            several => format!("[{}]", several.join(", ")),
        }
    }
}

/// The logins of a `config.json` or `.dockerconfigjson` (`auths` inside), or of a `.dockercfg`.
///
/// # Errors
/// What is wrong with it; values are not repeated.
pub fn logins(text: &[u8], nested: bool) -> Result<Vec<RegistryLogin>, String> {
    Ok(logins_with_email(text, nested)?.into_iter().map(|(login, _)| login).collect())
}

/// The same, each with its `email`, which old configurations have.
///
/// # Errors
/// As [`logins`].
pub fn logins_with_email(text: &[u8], nested: bool) -> Result<Vec<(RegistryLogin, Sensitive)>, String> {
    let broken =
        |error: serde_json::Error| format!("not valid JSON at line {} column {}", error.line(), error.column());
    let mut value: Value = serde_json::from_slice(text).map_err(broken)?;
    let auths = if nested { value.get_mut("auths").map(Value::take).unwrap_or_default() } else { value };
    let auths: Map<String, Value> = match auths {
        Value::Object(auths) => auths,
        Value::Null => Map::new(),
        _ => return Err("the logins are no object".to_owned()),
    };
    let mut out = Vec::new();
    for (server, entry) in auths {
        let field = |name: &str| entry.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (mut username, mut password) = (field("username"), field("password"));
        let auth = field("auth");
        if !auth.is_empty() {
            (username, password) = pair(&auth).ok_or_else(|| {
                format!("unable to parse auth field of {server:?}, must be formatted as base64(username:password)")
            })?;
        }
        let email = Sensitive(field("email"));
        out.push((RegistryLogin { server, username: Sensitive(username), password: Sensitive(password) }, email));
    }
    Ok(out)
}

/// The same docker configuration in base64 without its secrets, so that it still names the same registries and is
/// understood or not as before; `None` for a text that holds no configuration.
#[must_use]
pub fn without_secrets(encoded: &str) -> Option<String> {
    let bytes: ByteString = serde_json::from_value(Value::from(encoded)).ok()?;
    let mut value: Value = serde_json::from_slice(&bytes.0).ok()?;
    let auths = if value.get("auths").is_some() { value.get_mut("auths")? } else { &mut value };
    for entry in auths.as_object_mut()?.values_mut() {
        let good = entry.get("auth").and_then(Value::as_str).is_none_or(|auth| auth.is_empty() || pair(auth).is_some());
        // base64 of `r:r`.
        *entry = json!({"auth": if good { "cjpy" } else { "r" }});
    }
    // What else it holds may be as secret.
    let value = value.get("auths").map(|auths| json!({"auths": auths})).unwrap_or(value);
    let clean = serde_json::to_value(ByteString(value.to_string().into_bytes())).ok()?;
    clean.as_str().map(ToOwned::to_owned)
}

/// `base64(username:password)`, padded or not.
fn pair(auth: &str) -> Option<(String, String)> {
    let padded = format!("{}{}", auth.trim_end_matches('='), ["", "", "==", "="][auth.trim_end_matches('=').len() % 4]);
    let bytes: ByteString = serde_json::from_value(Value::from(padded)).ok()?;
    let text = String::from_utf8(bytes.0).ok()?;
    let (username, password) = text.split_once(':')?;
    Some((username.to_owned(), password.trim_matches('\0').to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, nested: bool, expect: Result<&str, &str>) {
        let shown = logins(text.as_bytes(), nested).map(|all| {
            let one = |l: &RegistryLogin| format!("{} {} {}", l.server, l.username.0, l.password.0);
            all.iter().map(one).collect::<Vec<_>>().join(", ")
        });
        assert_eq!(shown.as_deref().map_err(String::as_str), expect);
    }

    #[test]
    fn logins_are_given_apart_or_together() {
        check(
            r#"{"auths":{"reg:5000":{"username":"u","password":"p"},"b":{"auth":"dTpwOnE="}}}"#,
            true,
            Ok("b u p:q, reg:5000 u p"),
        );
        check(r#"{"reg":{"auth":"dTpwOnE","email":"x"}}"#, false, Ok("reg u p:q"));
        check(r#"{"credHelpers":{}}"#, true, Ok(""));
        let bad = "unable to parse auth field of \"reg\", must be formatted as base64(username:password)";
        check(r#"{"reg":{"auth":"geheim"}}"#, false, Err(bad));
        check("geheim", true, Err("not valid JSON at line 1 column 1"));
        let all = logins(br#"{"reg":{"username":"u","password":"geheim"}}"#, false).unwrap();
        assert!(!format!("{all:?}").contains("geheim"));
    }

    #[test]
    fn without_its_secrets_a_configuration_names_the_same_registries() {
        let encode = |text: &str| {
            let value = serde_json::to_value(ByteString(text.as_bytes().to_vec())).unwrap();
            value.as_str().unwrap().to_owned()
        };
        let decode = |text: &str| {
            let bytes: ByteString = serde_json::from_value(Value::from(text)).unwrap();
            String::from_utf8(bytes.0).unwrap()
        };
        let text = r#"{"auths":{"a":{"username":"u","password":"geheim"},"b":{"auth":"Z2VoZWlt"}},"x":1}"#;
        let clean = without_secrets(&encode(text)).unwrap();
        assert_eq!(decode(&clean), r#"{"auths":{"a":{"auth":"cjpy"},"b":{"auth":"r"}}}"#);
        assert_eq!(without_secrets(&clean).as_deref(), Some(clean.as_str()));
        let old = without_secrets(&encode(r#"{"reg":{"auth":"dTpw"}}"#)).unwrap();
        assert_eq!(logins(decode(&old).as_bytes(), false).unwrap()[0].server, "reg");
        assert_eq!(without_secrets(&encode("geheim")), None);
        assert_eq!(without_secrets("geheim!"), None);
    }

    #[test]
    fn every_login_is_tried_once() {
        let mut tries = PullTries { more: true, ..PullTries::default() };
        assert!(tries.refused("a".to_owned()));
        tries.more = false;
        assert!(!tries.refused("b".to_owned()));
        assert_eq!(tries.end(), "[a, b]");
        assert_eq!(tries, PullTries::default());
        assert!(!tries.refused("c".to_owned()));
        assert_eq!(tries.end(), "c");
    }
}
