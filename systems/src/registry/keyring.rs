//! Which logins fit an image (contract 3.9): by registry host, with `*` for its parts, and by the path's beginning; the
//! most specific first. Reads only its arguments.

use components::edge::host::pulls::{Coordinates, Credential};
use components::ids::Sensitive;
use components::objects::ObjectData;
use components::pulls::{LoginSource, TrackedLogin};
use components::registry::{RegistryLogin, logins_with_email};

/// The name under which configurations keep the login of the default registry.
const DEFAULT: &str = "index.docker.io";

/// Logins of a pull secret, with its place.
///
/// # Errors
/// What is wrong with it.
pub(super) fn tracked(secret: &ObjectData, namespace: &str, name: &str) -> Result<Vec<TrackedLogin>, String> {
    let of = Coordinates { namespace: namespace.to_owned(), name: name.to_owned(), uid: secret.uid.clone() };
    let source = LoginSource::Secret(of, secret.resource_version.as_str().into());
    let tracked = |(login, email): (RegistryLogin, Sensitive)| {
        let credential = Credential { username: login.username.clone(), password: login.password.clone(), email };
        TrackedLogin { login, credential, source: source.clone() }
    };
    Ok(of_secret(secret)?.into_iter().map(tracked).collect())
}

/// Logins of a pull secret, each with its `email`.
fn of_secret(secret: &ObjectData) -> Result<Vec<(RegistryLogin, Sensitive)>, String> {
    let (key, nested) = match secret.kind.as_str() {
        "kubernetes.io/dockerconfigjson" => (".dockerconfigjson", true),
        "kubernetes.io/dockercfg" => (".dockercfg", false),
        _ => return Ok(Vec::new()),
    };
    secret
        .data
        .get(key)
        .filter(|text| !text.0.is_empty())
        .map_or(Ok(Vec::new()), |text| logins_with_email(&text.0, nested))
}

/// The logins that fit the image, in the order in which they are tried.
pub(super) fn fitting(image: &str, all: &[TrackedLogin]) -> Vec<TrackedLogin> {
    let repository = repository(image);
    let mut keyed: Vec<(String, &TrackedLogin)> = all.iter().map(|it| (key(&it.login.server), it)).collect();
    // Longer ones of the same beginning come first; those of equal keys keep their order.
    keyed.sort_by(|(a, _), (b, _)| b.cmp(a));
    let fits = keyed.iter().filter(|(key, _)| matches(key, &repository)).map(|(_, login)| (*login).clone());
    let found: Vec<TrackedLogin> = fits.collect();
    if !found.is_empty() || !is_default(&repository) {
        return found;
    }
    keyed.iter().filter(|(key, _)| key == DEFAULT).map(|(_, login)| (*login).clone()).collect()
}

/// Host and path of a server as it is compared.
fn key(server: &str) -> String {
    let bare = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://")).unwrap_or(server);
    let bare = bare.split(['?', '#']).next().unwrap_or_default();
    let (host, path) = bare.find('/').map_or((bare, ""), |at| bare.split_at(at));
    let path =
        path.strip_prefix("/v1").or_else(|| path.strip_prefix("/v2")).filter(|p| p.starts_with('/')).unwrap_or(path);
    if path == "/" { host.to_owned() } else { format!("{host}{path}") }
}

/// Name of an image without tag and digest, with the registry that it means when it names none.
pub(super) fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or_default();
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let name = name[last..].find(':').map_or(name, |at| &name[..last + at]);
    match name.split_once('/') {
        Some(("docker.io" | "index.docker.io", rest)) => format!("docker.io/{}", official(rest)),
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        _ => format!("docker.io/{}", official(name)),
    }
}

fn official(path: &str) -> String {
    if path.contains('/') { path.to_owned() } else { format!("library/{path}") }
}

fn is_default(repository: &str) -> bool {
    repository.starts_with("docker.io/")
}

/// Whether a registry or a part of one, given with globs, holds a repository.
pub(super) fn matches(key: &str, repository: &str) -> bool {
    let split = |text: &str| -> (Vec<String>, String, String) {
        let (host, path) = text.find('/').map_or((text, ""), |at| text.split_at(at));
        let (host, port) = host.rsplit_once(':').unwrap_or((host, ""));
        (host.split('.').map(ToOwned::to_owned).collect(), port.to_owned(), path.to_owned())
    };
    let ((wanted, wanted_port, prefix), (given, port, path)) = (split(key), split(repository));
    let parts = wanted.len() == given.len() && wanted.iter().zip(&given).all(|(glob, part)| glob_fits(glob, part));
    parts && wanted_port == port && path.starts_with(&prefix)
}

/// `*` stands for any text and `?` for one character.
fn glob_fits(glob: &str, text: &str) -> bool {
    match glob.chars().next() {
        None => text.is_empty(),
        Some('*') => {
            let rest = &glob[1..];
            text.char_indices().map(|(at, _)| at).chain([text.len()]).any(|at| glob_fits(rest, &text[at..]))
        }
        Some(first) => {
            let mut chars = text.chars();
            chars.next().is_some_and(|c| first == '?' || c == first)
                && glob_fits(&glob[first.len_utf8()..], chars.as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::ids::{Hidden, Sensitive};

    #[track_caller]
    fn check(image: &str, servers: &[&str], expect: &[&str]) {
        let login = |server: &&str| RegistryLogin { server: (*server).to_owned(), ..RegistryLogin::default() };
        let all: Vec<_> = servers.iter().map(|server| TrackedLogin::of_node(&login(server))).collect();
        let got: Vec<String> = fitting(image, &all).into_iter().map(|it| it.login.server).collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn the_most_specific_login_comes_first() {
        check("reg.example/a/b:1", &["reg.example", "reg.example/a", "other"], &["reg.example/a", "reg.example"]);
        check("reg.example/a/b@sha256:0", &["https://reg.example/v2/"], &["https://reg.example/v2/"]);
        check("reg.example:5000/a", &["reg.example", "reg.example:5000"], &["reg.example:5000"]);
        check("x.reg.example/a", &["*.reg.example", "reg.example", "*.example"], &["*.reg.example"]);
        check("reg-1.example/a", &["reg-?.example/b", "reg*.example"], &["reg*.example"]);
        check("reg.example/a", &["reg.example/b"], &[]);
    }

    #[test]
    fn the_default_registry_goes_by_its_old_name() {
        for image in ["busybox", "busybox:1", "library/busybox", "docker.io/library/busybox:1"] {
            check(image, &["https://index.docker.io/v1/", "reg"], &["https://index.docker.io/v1/"]);
        }
        check("busybox", &["docker.io", "index.docker.io"], &["docker.io"]);
        check("reg.example/busybox", &["index.docker.io"], &[]);
    }

    #[test]
    fn images_have_a_repository() {
        let check = |image: &str, expect: &str| assert_eq!(repository(image), expect);
        check("busybox:1.2", "docker.io/library/busybox");
        check("me/tool@sha256:00", "docker.io/me/tool");
        check("localhost/x:1", "localhost/x");
        check("reg:5000/a/b:tag", "reg:5000/a/b");
    }

    #[test]
    fn only_secrets_of_the_two_kinds_hold_logins() {
        let text = br#"{"auths":{"reg":{"username":"u","password":"p"}}}"#;
        let mut secret = ObjectData::default();
        secret.data.insert(".dockerconfigjson".to_owned(), Hidden::from(text.to_vec()));
        assert_eq!(of_secret(&secret), Ok(Vec::new()));
        "kubernetes.io/dockerconfigjson".clone_into(&mut secret.kind);
        let login = RegistryLogin {
            server: "reg".to_owned(),
            username: Sensitive("u".to_owned()),
            password: Sensitive("p".to_owned()),
        };
        assert_eq!(of_secret(&secret), Ok(vec![(login, Sensitive(String::new()))]));
    }
}
