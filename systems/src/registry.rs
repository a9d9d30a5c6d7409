//! Logins for image pulls: those of the pod's pull secrets, then those of the node's own docker configuration, then those of
//! credential providers.
//!
//! Writes [`NodeLogins`]: the files are read when a pull first needs them and again when what is known is old.

mod keyring;
mod providers;
pub(crate) mod pulls;

use crate::turns::IngestTurn;
use bevy_ecs::prelude::*;
use components::edge::host::{HostAnswer, HostEffect};
use components::edge::{Answer, Effect, Lane, Outcome, Why};
use components::node::NodeConfig;
use components::objects::{ObjectKind, ObjectRef, Objects};
use components::pulls::TrackedLogin;
use components::registry::NodeLogins;
use components::spec::PodSpec;
use components::time::Mono;
use components::world::PodIndex;
use engine::{Clock, Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::time::Duration;

/// Age at which the node's configuration is read again.
const AGE: Duration = Duration::from_secs(300);
/// Longest time for reading it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Longest time that a credential provider may take, as the kubelet's.
const PROVIDER_TIMEOUT: Duration = Duration::from_secs(60);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct RegistrySystems;

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<NodeLogins>();
    engine.add_systems(
        Phase::Ingest,
        (take_logins, keep_records)
            .chain_ignore_deferred()
            .in_set(RegistrySystems)
            .after(IngestTurn::Sources)
            .after(IngestTurn::Completions)
            .after(IngestTurn::Objects),
    );
}

fn take_logins(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    mut logins: ResMut<NodeLogins>,
    mut touched: ResMut<Touched>,
) {
    if let Some(config) = &config.providers
        && !logins.provided.asking.is_empty()
    {
        for arrived in &inbox.completions {
            if providers::take(arrived.ticket, &arrived.outcome, config, &mut logins.provided, clock.now.mono) {
                index.by_uid.values().for_each(|pod| touched.add(*pod));
            }
        }
    }
    let Some(ticket) = logins.reading else { return };
    let Some(arrived) = inbox.completions.iter().find(|arrived| arrived.ticket == ticket) else { return };
    logins.reading = None;
    logins.read = Some(clock.now.mono);
    match &arrived.outcome {
        Outcome::Done(Answer::Host(HostAnswer::LoginsRead { logins: list, problems })) => {
            logins.list.clone_from(list);
            for problem in problems {
                tracing::warn!(error = %problem, "A docker configuration of the node cannot be read");
            }
        }
        other => tracing::warn!(outcome = ?other, "The docker configuration of the node cannot be read"),
    }
    // Any pod may wait for it to pull.
    index.by_uid.values().for_each(|pod| touched.add(*pod));
}

/// Keeps the records of pulls.
fn keep_records(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    inbox: Res<Inbox>,
    index: Res<PodIndex>,
    mut logins: ResMut<NodeLogins>,
    mut touched: ResMut<Touched>,
    mut timers: ResMut<Timers>,
    mut outbox: ResMut<Outbox>,
) {
    if config.pulls.is_none() {
        return;
    }
    let (dir, now) = (pulls::dir(&config.root_dir), clock.now);
    let records = &mut logins.records;
    let (was_read, had_failed) = (records.read, records.failed);
    let mut waited_for = false;
    for done in &inbox.completions {
        waited_for |= pulls::take(records, &dir, done.ticket, &done.outcome, now, &mut outbox);
    }
    if waited_for {
        index.by_uid.values().for_each(|pod| touched.add(*pod));
    }
    // What earlier runs left is looked at as soon as it is known.
    let due = timers.node_due(TimerKind::PullRecords) || (records.read && !was_read);
    pulls::ask(records, &dir, due, now.wall, &mut outbox);
    if due {
        timers.arm(TimerKind::PullRecords, Owner::Node, now.mono.after(pulls::PERIOD));
    }
    if records.failed && !had_failed {
        timers.arm(TimerKind::PullRecords, Owner::Node, now.mono.after(pulls::RETRY));
    }
    pulls::count(records, config.max_pods);
}

/// Asks for the node's logins if what is known is too old. False while a pull has to wait for the answer. A node without
/// a cluster pulls without logins.
pub(crate) fn ready(logins: &mut NodeLogins, config: &NodeConfig, now: Mono, outbox: &mut Outbox) -> bool {
    if config.api.is_none() {
        return true;
    }
    let old = logins.read.is_none_or(|read| now.since(read) >= AGE);
    if old && logins.reading.is_none() {
        let paths = vec![format!("{}/config.json", config.root_dir), format!("{}/.dockercfg", config.root_dir)];
        logins.reading = Some(outbox.emit(NewWork {
            owner: Owner::Node,
            lane: Lane::Free,
            chained: false,
            timeout: TIMEOUT,
            why: Why { system: "registry", rule: "a pull needs the logins of the node" },
            effect: Effect::Host(HostEffect::ReadLogins { paths }),
        }));
    }
    logins.read.is_some()
}

/// Logins of credential providers for an image; `None` while a pull has to wait for one of them.
pub(crate) fn provided(
    image: &str,
    spec: &PodSpec,
    logins: &mut NodeLogins,
    config: &NodeConfig,
    now: Mono,
    outbox: &mut Outbox,
) -> Option<Vec<TrackedLogin>> {
    let Some(providers) = &config.providers else { return Some(Vec::new()) };
    match providers::find(image, spec, providers, &logins.provided, now) {
        Ok(found) => Some(found),
        Err(asks) => {
            for (ask, effect) in asks {
                let ticket = outbox.emit(NewWork {
                    owner: Owner::Node,
                    lane: Lane::Free,
                    chained: false,
                    timeout: PROVIDER_TIMEOUT,
                    why: Why { system: "registry", rule: "a pull needs the logins of a credential provider" },
                    effect,
                });
                logins.provided.asking.insert(ticket, ask);
            }
            None
        }
    }
}

/// True while a pull secret of the pod was asked for and nothing is known of it.
pub(crate) fn pending(spec: &PodSpec, objects: &Objects) -> bool {
    spec.pull_secrets.iter().filter(|name| !name.is_empty()).any(|name| {
        let object = ObjectRef { kind: ObjectKind::Secret, name: std::sync::Arc::clone(name), optional: true };
        objects.pending(&object, &spec.namespace)
    })
}

/// The logins to pull an image with, in the order in which they are tried, and the names of pull secrets that cannot
/// be had.
///
/// # Errors
/// What is wrong with a pull secret.
pub(crate) fn for_image(
    image: &str,
    spec: &PodSpec,
    objects: &Objects,
    node: &NodeLogins,
) -> Result<(Vec<TrackedLogin>, Vec<String>), String> {
    let (mut own, mut missing) = (Vec::new(), Vec::new());
    for name in spec.pull_secrets.iter().filter(|name| !name.is_empty()) {
        match objects.get(ObjectKind::Secret, &spec.namespace, name) {
            Ok(Some(secret)) => own.extend(keyring::tracked(secret, &spec.namespace, name)?),
            Ok(None) | Err(_) => missing.push(name.to_string()),
        }
    }
    let mut out = keyring::fitting(image, &own);
    let nodes: Vec<TrackedLogin> = node.list.iter().map(TrackedLogin::of_node).collect();
    out.extend(keyring::fitting(image, &nodes));
    Ok((out, missing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::ids::Sensitive;
    use components::objects::ObjectState;
    use std::sync::Arc;

    fn node() -> NodeLogins {
        use components::registry::RegistryLogin;
        let login = |server: &str, username: &str| RegistryLogin {
            server: server.to_owned(),
            username: Sensitive(username.to_owned()),
            password: Sensitive::default(),
        };
        NodeLogins { list: vec![login("reg", "node"), login("other", "x")], ..NodeLogins::default() }
    }

    #[test]
    fn logins_of_the_pod_go_before_those_of_the_node() {
        let mut spec = fixtures::spec("always a");
        spec.pull_secrets = vec!["none".into(), "p".into(), "".into()];
        let mut objects = fixtures::objects();
        let mut secret = fixtures::data("1", &[(".dockercfg", r#"{"reg":{"username":"pod","password":"p"}}"#)]);
        "kubernetes.io/dockercfg".clone_into(&mut secret.kind);
        objects.entries.entry(fixtures::place("secret:p")).or_default().state = ObjectState::Here(Arc::new(secret));
        let (logins, missing) = for_image("reg/a:1", &spec, &objects, &NodeLogins::default()).unwrap();
        assert!(logins.is_empty(), "{logins:?} is no registry of this image");
        assert_eq!(missing, ["none"]);
        let image = "localhost/a";
        let mut own = node();
        "localhost".clone_into(&mut own.list[0].server);
        assert_eq!(for_image(image, &spec, &objects, &own).unwrap().0[0].login.username.0, "node");
        let broken = fixtures::data("2", &[(".dockercfg", "geheim")]);
        let broken = components::objects::ObjectData { kind: "kubernetes.io/dockercfg".to_owned(), ..broken };
        objects.entries.entry(fixtures::place("secret:p")).or_default().state = ObjectState::Here(Arc::new(broken));
        let error = for_image(image, &spec, &objects, &own).unwrap_err();
        assert!(!error.contains("geheim"), "{error}");
    }

    #[test]
    fn the_node_is_read_once_and_again_when_it_is_old() {
        let (mut logins, mut outbox) = (NodeLogins::default(), Outbox::default());
        let mut config = fixtures::node();
        assert!(ready(&mut logins, &config, Mono(0), &mut outbox) && outbox.emitted().is_empty());
        config.api = Some(components::node::ApiConfig::default());
        assert!(!ready(&mut logins, &config, Mono(0), &mut outbox));
        assert!(!ready(&mut logins, &config, Mono(0), &mut outbox));
        assert_eq!(outbox.emitted().len(), 1);
        (logins.read, logins.reading) = (Some(Mono(0)), None);
        assert!(ready(&mut logins, &config, Mono(1), &mut outbox));
        assert_eq!(outbox.emitted().len(), 1);
        assert!(ready(&mut logins, &config, Mono(301_000_000_000), &mut outbox), "what is known is used meanwhile");
        assert_eq!(outbox.emitted().len(), 2);
    }
}
