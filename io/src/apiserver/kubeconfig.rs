//! Reads a kubeconfig: the current context's server, its authority, and who we are. Files that it names are looked for
//! beside it. Secrets never appear in messages.

use super::proxy::Proxy;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use components::ids::Sensitive;
use http::Uri;
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Largest kubeconfig that is read.
const MAX_BYTES: usize = 4 << 20;

/// What the current context of a kubeconfig says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kubeconfig {
    /// The API server, `https://host:port` with an optional path.
    pub server: Uri,
    /// Certificates of the authority that signed the server's; `None` for those of the system.
    pub authority: Option<Pem>,
    /// The server's certificate is not looked at.
    pub insecure: bool,
    /// Name to look for in the server's certificate instead of the host of `server`.
    pub server_name: Option<String>,
    /// A proxy on the way to the server.
    pub proxy: Option<Proxy>,
    /// Client certificate and key.
    pub identity: Option<(Pem, Pem)>,
    /// Bearer token.
    pub token: Option<Token>,
    /// A program that gives credentials, where there are no others.
    pub exec: Option<ExecPlugin>,
}

/// An exec credential plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecPlugin {
    /// The program: a path, or a name that is looked for in `PATH`.
    pub command: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Environment besides our own.
    pub env: Vec<(String, Sensitive)>,
    /// Version of what it is told and prints.
    pub api_version: String,
    /// What it is told of the cluster (`provideClusterInfo`).
    pub cluster: Option<Value>,
    /// Told when the program is missing.
    pub install_hint: String,
}

/// Where PEM text is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file, read when needed.
    File(PathBuf),
    /// In the kubeconfig.
    Inline(Sensitive),
}

impl Pem {
    /// The text.
    ///
    /// # Errors
    /// With the name of the file.
    pub fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(path) => std::fs::read(path).map_err(|e| format!("{}: {e}", path.display())),
            Self::Inline(text) => Ok(text.0.as_bytes().to_vec()),
        }
    }
}

/// A bearer token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// In a file that others renew.
    File(PathBuf),
    /// In the kubeconfig.
    Inline(Sensitive),
}

/// Why a kubeconfig cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigError {
    /// It cannot be read.
    #[error("kubeconfig {path}: {source}", path = path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its content is wrong.
    #[error("kubeconfig {path}: {message}", path = path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
}

impl Kubeconfig {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or says something that this client cannot do.
    pub fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let unreadable = |source| KubeconfigError::Unreadable { path: path.to_owned(), source };
        let unusable = |message| KubeconfigError::Unusable { path: path.to_owned(), message };
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > MAX_BYTES as u64 {
            return Err(unusable("larger than 4 MiB".to_owned()));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        let dir = path.parent().unwrap_or_else(|| Path::new("/"));
        parse(&text, dir).map_err(unusable)
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct File {
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
    contexts: Vec<Named<Context>>,
    current_context: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Named<T: Default> {
    name: String,
    #[serde(alias = "cluster", alias = "user", alias = "context")]
    value: Option<T>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: String,
    certificate_authority_data: String,
    insecure_skip_tls_verify: bool,
    tls_server_name: String,
    proxy_url: String,
    extensions: Vec<Extension>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Extension {
    name: String,
    extension: Value,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct ExecEntry {
    command: String,
    args: Option<Vec<String>>,
    env: Option<Vec<EnvEntry>>,
    api_version: String,
    provide_cluster_info: bool,
    install_hint: String,
    interactive_mode: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct EnvEntry {
    name: String,
    value: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct User {
    client_certificate: String,
    client_certificate_data: String,
    client_key: String,
    client_key_data: String,
    token: String,
    #[serde(rename = "tokenFile")]
    token_file: String,
    username: String,
    exec: Option<ExecEntry>,
    auth_provider: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "kebab-case")]
struct Context {
    cluster: String,
    user: String,
}

fn parse(text: &str, dir: &Path) -> Result<Kubeconfig, String> {
    // The parser quotes what it stumbles over, which may be a key: only the place is said.
    let file: File = serde_saphyr::from_str(text).map_err(|e| match e.location() {
        Some(at) => format!("line {}: not a kubeconfig in YAML or JSON", at.line()),
        None => "not a kubeconfig in YAML or JSON".to_owned(),
    })?;
    let context = match file.current_context.as_str() {
        "" => return Err("current-context is not set".to_owned()),
        name => find(&file.contexts, name, "context")?,
    };
    let cluster = find(&file.clusters, &context.cluster, "cluster")?;
    let nobody = User::default();
    let user = if context.user.is_empty() { &nobody } else { find(&file.users, &context.user, "user")? };
    if user.auth_provider.is_some() {
        return Err("auth-provider is not supported: use exec, a client certificate or a token".to_owned());
    }
    if !user.username.is_empty() {
        return Err("username and password are not supported: use a client certificate or a token".to_owned());
    }
    let given = Some(cluster.proxy_url.as_str()).filter(|url| !url.is_empty());
    let proxy = given.map(Proxy::parse).transpose().map_err(|error| format!("proxy-url {error}"))?;
    let authority = pem(&cluster.certificate_authority, &cluster.certificate_authority_data, dir)
        .map_err(|e| format!("certificate-authority-data: {e}"))?;
    if authority.is_some() && cluster.insecure_skip_tls_verify {
        return Err("certificate-authority and insecure-skip-tls-verify exclude each other".to_owned());
    }
    let certificate = pem(&user.client_certificate, &user.client_certificate_data, dir)
        .map_err(|e| format!("client-certificate-data: {e}"))?;
    let key = pem(&user.client_key, &user.client_key_data, dir).map_err(|e| format!("client-key-data: {e}"))?;
    let identity = match (certificate, key) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("client-certificate and client-key must be given together".to_owned()),
    };
    // A file wins over a token that stands here, as it may be newer.
    let token = match (user.token_file.as_str(), user.token.as_str()) {
        ("", "") => None,
        ("", token) => Some(Token::Inline(Sensitive::from(token))),
        (path, _) => Some(Token::File(dir.join(path))),
    };
    // Credentials that stand here go before a program.
    let exec = user.exec.as_ref().filter(|_| identity.is_none() && token.is_none());
    let exec = exec.map(|exec| plugin(exec, cluster, authority.as_ref(), dir)).transpose()?;
    Ok(Kubeconfig {
        exec,
        server: server(&cluster.server)?,
        authority,
        insecure: cluster.insecure_skip_tls_verify,
        server_name: Some(cluster.tls_server_name.clone()).filter(|name| !name.is_empty()),
        proxy,
        identity,
        token,
    })
}

fn plugin(exec: &ExecEntry, cluster: &Cluster, authority: Option<&Pem>, dir: &Path) -> Result<ExecPlugin, String> {
    if exec.command.is_empty() {
        return Err("exec: command is not set".to_owned());
    }
    let stable = exec.api_version == "client.authentication.k8s.io/v1";
    if !stable && exec.api_version != "client.authentication.k8s.io/v1beta1" {
        return Err(format!("exec: invalid apiVersion {:?}", exec.api_version));
    }
    match exec.interactive_mode.as_str() {
        "Never" | "IfAvailable" => {}
        "" if !stable => {}
        "" => return Err("exec: interactiveMode must be set".to_owned()),
        "Always" => return Err("exec: interactiveMode Always cannot be had: nobody sits at a node agent".to_owned()),
        other => return Err(format!("exec: unknown interactiveMode {other:?}")),
    }
    // A name alone is looked for in PATH.
    let command = if exec.command.contains('/') { dir.join(&exec.command) } else { PathBuf::from(&exec.command) };
    let entry = |entry: &EnvEntry| (entry.name.clone(), Sensitive(entry.value.clone()));
    Ok(ExecPlugin {
        command,
        args: exec.args.clone().unwrap_or_default(),
        env: exec.env.iter().flatten().map(entry).collect(),
        api_version: exec.api_version.clone(),
        cluster: exec.provide_cluster_info.then(|| cluster_info(cluster, authority)).transpose()?,
        install_hint: exec.install_hint.clone(),
    })
}

/// What a plugin is told of the cluster.
fn cluster_info(cluster: &Cluster, authority: Option<&Pem>) -> Result<Value, String> {
    let mut info = json!({ "server": cluster.server });
    if !cluster.tls_server_name.is_empty() {
        info["tls-server-name"] = cluster.tls_server_name.as_str().into();
    }
    if !cluster.proxy_url.is_empty() {
        info["proxy-url"] = cluster.proxy_url.as_str().into();
    }
    if cluster.insecure_skip_tls_verify {
        info["insecure-skip-tls-verify"] = true.into();
    }
    if let Some(authority) = authority {
        info["certificate-authority-data"] = STANDARD.encode(authority.read()?).into();
    }
    if let Some(own) = cluster.extensions.iter().find(|it| it.name == "client.authentication.k8s.io/exec") {
        info["config"] = own.extension.clone();
    }
    Ok(info)
}

fn find<'a, T: Default>(list: &'a [Named<T>], name: &str, what: &str) -> Result<&'a T, String> {
    let found = list.iter().find(|entry| entry.name == name).and_then(|entry| entry.value.as_ref());
    found.ok_or_else(|| format!("{what} {name:?} is not there"))
}

/// Data wins over a file, as in every client of Kubernetes.
fn pem(file: &str, data: &str, dir: &Path) -> Result<Option<Pem>, String> {
    if !data.is_empty() {
        let bytes = STANDARD.decode(data.trim()).map_err(|_| "not base64".to_owned())?;
        let text = String::from_utf8(bytes).map_err(|_| "not PEM".to_owned())?;
        return Ok(Some(Pem::Inline(Sensitive(text))));
    }
    Ok((!file.is_empty()).then(|| Pem::File(dir.join(file))))
}

fn server(text: &str) -> Result<Uri, String> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let uri: Uri = full.parse().map_err(|e| format!("server is not a URL: {e}"))?;
    let good = matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
    if good { Ok(uri) } else { Err("server must begin with https:// or http:// and a host".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "
apiVersion: v1
kind: Config
current-context: c
contexts:
- {name: c, context: {cluster: k, user: u, namespace: x}}
- {name: d, context: {cluster: none, user: u}}
clusters:
- name: k
  cluster: {server: 'https://10.0.0.1:6443', certificate-authority: ca.crt}
users:
- name: u
  user: {client-certificate: /abs/c.pem, client-key: c.key}
";

    #[track_caller]
    fn good(text: &str) -> Kubeconfig {
        parse(text, Path::new("/etc/kubernetes")).unwrap()
    }

    #[track_caller]
    fn bad(from: &str, to: &str, expect: &str) {
        assert!(GOOD.contains(from), "{from}");
        let error = parse(&GOOD.replace(from, to), Path::new("/")).unwrap_err();
        assert!(error.contains(expect), "{error}");
        assert!(!error.contains("geheim"), "{error}");
    }

    #[test]
    fn files_are_looked_for_beside_it() {
        let found = good(GOOD);
        assert_eq!(found.server, "https://10.0.0.1:6443/");
        assert_eq!(found.authority, Some(Pem::File("/etc/kubernetes/ca.crt".into())));
        let identity = (Pem::File("/abs/c.pem".into()), Pem::File("/etc/kubernetes/c.key".into()));
        assert_eq!((found.identity, found.token, found.insecure), (Some(identity), None, false));
    }

    #[test]
    fn data_wins_over_files_and_a_token_file_over_a_token() {
        let text = GOOD
            .replace("ca.crt", "ca.crt, certificate-authority-data: eA==, tls-server-name: kubernetes")
            .replace("client-certificate: /abs/c.pem, client-key: c.key", "token: geheim");
        let found = good(&text);
        assert_eq!(found.authority, Some(Pem::Inline("x".into())));
        assert_eq!(found.server_name.as_deref(), Some("kubernetes"));
        assert_eq!((&found.identity, &found.token), (&None, &Some(Token::Inline("geheim".into()))));
        assert!(!format!("{found:?}").contains("geheim"));
        let found = good(&text.replace("token: geheim", "token: geheim, tokenFile: t"));
        assert_eq!(found.token, Some(Token::File("/etc/kubernetes/t".into())));
    }

    #[test]
    fn a_proxy_is_known_and_its_password_is_not_shown() {
        let found = good(&GOOD.replace("ca.crt", "ca.crt, proxy-url: 'http://u:geheim@p:3128'"));
        assert_eq!(found.proxy.as_ref().map(|proxy| proxy.address.to_string()).as_deref(), Some("http://p:3128/"));
        assert!(!format!("{found:?}").contains("geheim"));
    }

    #[test]
    fn a_plugin_is_used_where_there_is_no_other_credential() {
        let own = "client-certificate: /abs/c.pem, client-key: c.key";
        let exec = "exec: {command: ./bin/p, args: [a], env: [{name: N, value: geheim}], provideClusterInfo: true, \
                    apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never}";
        assert_eq!(good(&GOOD.replace(own, &format!("{own}, {exec}"))).exec, None);
        let inline = "certificate-authority-data: eA==, extensions: [{name: client.authentication.k8s.io/exec, \
                      extension: {k: v}}]";
        let text = GOOD.replace(own, exec).replace("certificate-authority: ca.crt", inline);
        let found = good(&text).exec.unwrap();
        assert_eq!(found.command, Path::new("/etc/kubernetes/./bin/p"));
        assert_eq!((found.args.as_slice(), found.env[0].0.as_str()), (["a".to_owned()].as_slice(), "N"));
        let told =
            json!({ "server": "https://10.0.0.1:6443", "certificate-authority-data": "eA==", "config": {"k": "v"} });
        assert_eq!(found.cluster, Some(told));
        assert!(!format!("{found:?}").contains("geheim"));
        let named = good(&text.replace("./bin/p", "p")).exec.unwrap();
        assert_eq!(named.command, Path::new("p"));
        for (from, to, expect) in [
            ("exec/v1", "exec/v1", ""),
            ("interactiveMode: Never", "interactiveMode: Always", "nobody sits"),
            (", interactiveMode: Never", "", "interactiveMode must be set"),
            ("client.authentication.k8s.io/v1,", "client.authentication.k8s.io/v1alpha1,", "invalid apiVersion"),
            ("command: ./bin/p, ", "", "command is not set"),
        ] {
            let result = parse(&text.replace(from, to), Path::new("/"));
            match expect {
                "" => assert!(result.is_ok()),
                expect => assert!(result.unwrap_err().contains(expect)),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        bad("current-context: c", "current-context: z", "context \"z\" is not there");
        bad("current-context: c", "current-context: d", "cluster \"none\" is not there");
        bad("current-context: c\n", "", "current-context is not set");
        bad("https://10.0.0.1:6443", "ftp://x", "server must begin with");
        bad(", client-key: c.key", "", "must be given together");
        bad("client-key: c.key", "auth-provider: {name: geheim}", "auth-provider is not supported");
        bad("ca.crt", "ca.crt, certificate-authority-data: geheim", "certificate-authority-data: not");
        bad("ca.crt", "ca.crt, proxy-url: 'ftp://u:geheim@p'", "proxy-url must begin with");
        bad("ca.crt", "ca.crt, insecure-skip-tls-verify: true", "exclude each other");
        bad("users:", "users: geheim\nx:", "not a kubeconfig");
    }
}
