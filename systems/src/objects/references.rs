//! What a pod refers to: the objects and tokens that its environment, volumes and pulls need. Reads only the spec.

use components::objects::{ObjectKey, ObjectKind, ObjectRef, TokenKey};
use components::podcerts::CertificateSource;
use components::spec::{EnvSource, FileSource, PodSpec, VolumeSource};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Config maps and secrets of the pod's namespace, each once.
pub(super) fn objects(spec: &PodSpec) -> BTreeSet<ObjectKey> {
    let key =
        |kind, name: &Arc<str>| ObjectKey { kind, namespace: Arc::clone(&spec.namespace), name: Arc::clone(name) };
    let of = |object: &ObjectRef| key(object.kind, &object.name);
    let mut out = BTreeSet::new();
    for container in &spec.containers {
        out.extend(container.env_from.iter().map(|from| of(&from.object)));
        out.extend(container.env.iter().filter_map(|var| match &var.source {
            EnvSource::Key { object, .. } => Some(of(object)),
            _ => None,
        }));
    }
    out.extend(sources(spec).filter_map(|source| match source {
        FileSource::Object { object, .. } => Some(of(object)),
        _ => None,
    }));
    out.extend(spec.pull_secrets.iter().filter(|name| !name.is_empty()).map(|name| key(ObjectKind::Secret, name)));
    out
}

/// True when a volume shows trust bundles of the cluster.
pub(super) fn bundles(spec: &PodSpec) -> bool {
    sources(spec).any(|source| matches!(source, FileSource::Bundle(_)))
}

/// Tokens that volumes hold.
pub(super) fn tokens(spec: &PodSpec) -> BTreeSet<TokenKey> {
    let token = |source: &FileSource| match source {
        FileSource::Token { audience, seconds, .. } => Some(TokenKey { audience: audience.clone(), seconds: *seconds }),
        _ => None,
    };
    sources(spec).filter_map(token).collect()
}

/// Certificates that volumes show.
pub(super) fn certificates(spec: &PodSpec) -> impl Iterator<Item = &CertificateSource> {
    sources(spec).filter_map(|source| match source {
        FileSource::Certificate(source) => Some(&**source),
        _ => None,
    })
}

fn sources(spec: &PodSpec) -> impl Iterator<Item = &FileSource> {
    spec.volumes.iter().flat_map(|volume| match &volume.source {
        VolumeSource::Files { sources, .. } => sources.as_slice(),
        _ => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::spec::{EnvFrom, EnvVar, FilesKind, Volume};

    #[test]
    fn everything_that_a_pod_needs_is_found_once() {
        let mut spec = fixtures::spec("always init:i a");
        let from = |text: &str| EnvFrom { prefix: String::new(), object: fixtures::reference(text) };
        let source = |text: &str| EnvSource::Key { object: fixtures::reference(text), key: "k".to_owned() };
        spec.containers[0].env_from = vec![from("map:e")];
        spec.containers[1].env = vec![
            EnvVar { name: "A".to_owned(), source: source("secret:k?") },
            EnvVar { name: "B".to_owned(), source: source("map:e?") },
        ];
        let object =
            |text: &str| FileSource::Object { object: fixtures::reference(text), items: Vec::new(), mode: 0o644 };
        let token = |audience: &str| FileSource::Token {
            audience: audience.to_owned(),
            seconds: 3600,
            path: "t".to_owned(),
            mode: 0o644,
        };
        let volume = |name: &str, sources| Volume {
            name: name.into(),
            source: VolumeSource::Files { kind: FilesKind::Projected, sources },
        };
        spec.volumes = vec![
            volume("a", vec![object("secret:v"), token(""), token("x")]),
            volume("b", vec![object("map:e"), token("")]),
            Volume { name: "c".into(), source: VolumeSource::EmptyDir { size_bytes: None } },
        ];
        spec.pull_secrets = vec!["p".into(), "k".into(), "".into()];
        let expect = ["map:e", "secret:k", "secret:p", "secret:v"].map(fixtures::place);
        assert_eq!(objects(&spec), BTreeSet::from(expect));
        let audiences: Vec<_> = tokens(&spec).into_iter().map(|token| token.audience).collect();
        assert_eq!(audiences, ["", "x"]);
    }
}
