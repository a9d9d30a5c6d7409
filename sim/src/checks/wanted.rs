//! What the manifests want, and what of it the agent was told.

use crate::node::sources::Content;
use components::edge::api::{ApiAnswer, ApiIngress};
use components::edge::sources::{Source, SourcesAnswer};
use components::edge::{Answer, Completion, Ingress, Outcome};
use components::ids::PodUid;
use components::node::NodeConfig;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What role a container has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Init,
    Sidecar,
    Main,
}

/// A pod as its manifest describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pod {
    json: Arc<str>,
    /// Main containers with their images.
    main: BTreeMap<String, String>,
    /// All containers in the order of their start.
    order: Vec<(String, Role)>,
    /// It has an `activeDeadlineSeconds`.
    limited: bool,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Wanted {
    pods: BTreeMap<PodUid, Pod>,
    /// What was wanted once: such pods still end in order.
    gone: BTreeMap<PodUid, Pod>,
    changes: BTreeMap<PodUid, u64>,
    /// Uids of each source as the running agent was last told; a source without an entry was not read yet.
    told: BTreeMap<Source, BTreeSet<PodUid>>,
    /// Uids that the running agent was ever told.
    named: BTreeSet<PodUid>,
    sources: usize,
    /// Pods of the API server that are bound to this node and not asked to end.
    bound: Vec<Arc<str>>,
}

impl Wanted {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let given = [config.file_source, config.url_source.is_some(), config.api.is_some()];
        let sources = given.into_iter().filter(|given| *given).count();
        Self {
            pods: BTreeMap::new(),
            gone: BTreeMap::new(),
            changes: BTreeMap::new(),
            told: BTreeMap::new(),
            named: BTreeSet::new(),
            sources,
            bound: Vec::new(),
        }
    }

    pub(super) fn uids(&self) -> BTreeSet<PodUid> {
        self.pods.keys().cloned().collect()
    }

    /// How often the manifest of this pod changed; `None` when no manifest wants it.
    pub(super) fn changes(&self, uid: &PodUid) -> Option<u64> {
        self.pods.contains_key(uid).then(|| self.changes.get(uid).copied().unwrap_or(0))
    }

    /// True when the pod wants a main container of this name with this image.
    pub(super) fn wants(&self, uid: &PodUid, container: &str, image: &str) -> bool {
        self.pods.get(uid).and_then(|p| p.main.get(container)).is_some_and(|wanted| wanted == image)
    }

    /// True when the pod's time is limited: it may end at any moment.
    pub(super) fn limited(&self, uid: &PodUid) -> bool {
        self.pods.get(uid).is_some_and(|pod| pod.limited)
    }

    /// The pod's containers in the order of their start; `None` when no manifest wants it any more and none did before.
    pub(super) fn order(&self, uid: &PodUid) -> Option<&[(String, Role)]> {
        self.pods.get(uid).or_else(|| self.gone.get(uid)).map(|pod| pod.order.as_slice())
    }

    /// Takes the manifests in; returns the pods whose manifest changed, appeared or went.
    pub(super) fn update(&mut self, files: &Content, url: &Content) -> BTreeSet<PodUid> {
        let mut pods = BTreeMap::new();
        let manifests = files.files().values().chain(url.files().values()).flatten();
        for json in manifests.chain(&self.bound) {
            if let Some((uid, pod)) = parse(json) {
                pods.insert(uid, pod);
            }
        }
        let mut changed: BTreeSet<PodUid> = pods.keys().chain(self.pods.keys()).cloned().collect();
        changed.retain(|uid| pods.get(uid) != self.pods.get(uid));
        for uid in &changed {
            *self.changes.entry(uid.clone()).or_default() += 1;
        }
        self.gone.extend(std::mem::replace(&mut self.pods, pods));
        changed
    }

    /// Takes the pods of the API server in, for the next [`Self::update`]; true when they are others than before.
    pub(super) fn bind(&mut self, pods: Vec<Arc<str>>) -> bool {
        let others = self.bound != pods;
        self.bound = pods;
        others
    }

    pub(super) fn forget_told(&mut self) {
        self.told.clear();
        self.named.clear();
    }

    /// Takes in what the agent is told.
    pub(super) fn tell(&mut self, batch: &[Ingress]) {
        for fact in batch {
            self.tell_api(fact);
            let Ingress::Completed(Completion { outcome: Outcome::Done(Answer::Sources(answer)), .. }) = fact else {
                continue;
            };
            match answer {
                SourcesAnswer::ManifestsRead { source, manifests, .. } => {
                    let uids: BTreeSet<PodUid> =
                        manifests.iter().filter_map(|m| parse(&m.json).map(|(uid, _)| uid)).collect();
                    self.named.extend(uids.iter().cloned());
                    self.told.insert(*source, uids);
                }
                SourcesAnswer::ManifestsUnchanged { source } => {
                    self.told.entry(*source).or_default();
                }
            }
        }
    }

    /// Takes in what the API server told: lists and changes of pods.
    fn tell_api(&mut self, fact: &Ingress) {
        let uid = |pod: &Value| {
            pod.pointer("/spec/nodeName")?;
            Some(PodUid::from(pod.pointer("/metadata/uid")?.as_str()?))
        };
        let read = |text: &str| serde_json::from_str::<Value>(text).unwrap_or_default();
        match fact {
            Ingress::Completed(Completion {
                outcome: Outcome::Done(Answer::Api(ApiAnswer::Answered(answered))),
                ..
            }) => {
                if let Some(items) = read(&answered.body).get("items").and_then(Value::as_array) {
                    let uids: BTreeSet<PodUid> = items.iter().filter_map(uid).collect();
                    self.named.extend(uids.iter().cloned());
                    self.told.insert(Source::Api, uids);
                }
            }
            Ingress::Api(ApiIngress::WatchEvents { events, .. }) => {
                for event in events {
                    self.named.extend(uid(&read(&event.object)));
                }
            }
            _ => {}
        }
    }

    pub(super) fn all_read(&self) -> bool {
        self.told.len() >= self.sources
    }

    pub(super) fn was_told(&self, uid: &PodUid) -> bool {
        self.named.contains(uid)
    }
}

fn parse(json: &Arc<str>) -> Option<(PodUid, Pod)> {
    let value: Value = serde_json::from_str(json).ok()?;
    let uid = PodUid::from(value.pointer("/metadata/uid")?.as_str()?);
    let containers = value.pointer("/spec/containers")?.as_array()?;
    let text = |c: &Value, key: &str| Some(c.get(key)?.as_str()?.to_owned());
    let main = containers.iter().filter_map(|c| Some((text(c, "name")?, text(c, "image")?))).collect();
    let limited = value.pointer("/spec/activeDeadlineSeconds").is_some();
    let init = value.pointer("/spec/initContainers").and_then(Value::as_array).into_iter().flatten();
    let role =
        |c: &Value| if text(c, "restartPolicy").as_deref() == Some("Always") { Role::Sidecar } else { Role::Init };
    let first = init.filter_map(|c| Some((text(c, "name")?, role(c))));
    let order = first.chain(containers.iter().filter_map(|c| Some((text(c, "name")?, Role::Main)))).collect();
    Some((uid, Pod { json: Arc::clone(json), main, order, limited }))
}
