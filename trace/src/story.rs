//! One pod's story: the inputs and decisions of a trace that concern it, in order, with names for ids.

use components::edge::cri::{CriAnswer, CriIngress, RuntimeList};
use components::edge::label::{input_label, short_id};
use components::edge::sources::{Manifest, SourcesAnswer};
use components::edge::{Answer, Completion, Ingress, Outcome};
use components::ids::{PodUid, Ticket};
use components::time::Now;
use std::collections::{BTreeMap, BTreeSet};

use crate::format::TraceError;
use crate::frame::{Frame, Line, LineKind};
use crate::reader::{Item, Reader};

/// What ids stand for, learned from the frames so far.
#[derive(Debug, Default)]
pub struct Names {
    /// `namespace/name` by uid.
    pods: BTreeMap<PodUid, String>,
    /// Pod by sandbox or container id.
    owners: BTreeMap<String, PodUid>,
    /// `namespace/name` or `namespace/name/container` by the short form of an id.
    things: BTreeMap<String, String>,
    /// Works under way: pod and label.
    asked: BTreeMap<Ticket, (Option<PodUid>, String)>,
}

/// One line of a story.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Tick.
    pub tick: u64,
    /// Its clocks.
    pub now: Now,
    /// True for something that came in, false for a decision.
    pub came_in: bool,
    /// What happened.
    pub text: String,
}

/// A pod's story, or the names of the pods that have one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Story {
    /// The pods that were meant, and what happened to them.
    Told {
        /// `namespace/name (uid)`; more than one when the pod was replaced, or the name is not unique.
        pods: Vec<String>,
        /// In order.
        events: Vec<Event>,
    },
    /// No such pod; these there are.
    Unknown(Vec<String>),
}

/// Tells the story of a pod, named by `name`, `namespace/name` or uid. A static pod may be named without its node.
///
/// # Errors
/// When the trace cannot be opened. Damage further on ends the story.
pub fn story(data: &[u8], name: &str) -> Result<Story, TraceError> {
    let mut names = Names::default();
    let mut reader = Reader::open(data)?;
    let node = format!("-{}", reader.header().boot.config.node_name);
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Frame(frame) = item {
            names.learn(&frame);
        }
    }
    let meant: BTreeSet<PodUid> = names.pods.keys().filter(|uid| names.is_called(uid, name, &node)).cloned().collect();
    if meant.is_empty() {
        return Ok(Story::Unknown(names.pods.keys().map(|uid| names.pod(uid)).collect()));
    }
    let pods = meant.iter().map(|uid| names.pod(uid)).collect();
    let full = meant.iter().filter_map(|uid| names.pods.get(uid).cloned()).collect();
    names.asked.clear();
    let mut teller = Teller { names, meant, full, node, states: BTreeMap::new(), manifests: BTreeMap::new() };
    let mut events = Vec::new();
    let mut reader = Reader::open(data)?;
    while let Ok(Some(item)) = reader.next_item() {
        if let Item::Frame(frame) = item {
            teller.tell(&frame, &mut events);
        }
    }
    Ok(Story::Told { pods, events })
}

impl Names {
    /// Takes in what a frame says of names and ids.
    pub fn learn(&mut self, frame: &Frame) {
        for input in &frame.inputs {
            self.learn_input(input);
        }
        self.answered(frame);
        for line in frame.effects.iter().flat_map(|effects| &effects.lines) {
            self.learn_line(line);
        }
    }

    /// A pod as `namespace/name (uid)`.
    #[must_use]
    pub fn pod(&self, uid: &PodUid) -> String {
        match self.pods.get(uid) {
            Some(name) => format!("{name} ({uid})"),
            None => uid.to_string(),
        }
    }

    /// The line with the pod's or container's name in place of what only has an id.
    #[must_use]
    pub fn line(&self, line: &Line) -> String {
        let mut text = self.explain(&line.label);
        if let Some(name) = line.pod.as_ref().and_then(|uid| self.pods.get(uid))
            && !text.contains(name.as_str())
        {
            text = format!("{text} of {name}");
        }
        if line.ticket.0 != 0 && line.kind == LineKind::Work {
            text = format!("#{} {text}", line.ticket.0);
        }
        if !line.why.is_empty() {
            text = format!("{text} ({})", line.why);
        }
        text
    }

    /// The input with names, and what a completion answers.
    #[must_use]
    pub fn input(&self, input: &Ingress) -> String {
        let text = self.explain(&input_label(input));
        match input {
            Ingress::Completed(completion) => match self.asked.get(&completion.ticket) {
                Some((_, asked)) => format!("{text} to {}", self.explain(asked)),
                None => text,
            },
            _ => text,
        }
    }

    /// Forgets the works that are answered in this frame.
    fn answered(&mut self, frame: &Frame) {
        for input in &frame.inputs {
            if let Ingress::Completed(completion) = input {
                self.asked.remove(&completion.ticket);
            }
        }
    }

    /// The pod that asked for what is completed, or that a decision is about.
    #[must_use]
    pub fn pod_of(&self, ticket: Ticket) -> Option<&PodUid> {
        self.asked.get(&ticket)?.0.as_ref()
    }

    fn learn_input(&mut self, input: &Ingress) {
        let Ingress::Completed(Completion { ticket, outcome: Outcome::Done(Answer::Cri(answer)) }) = input else {
            return;
        };
        match answer {
            CriAnswer::SandboxStarted { id } => self.learn_created(*ticket, id.as_str()),
            CriAnswer::ContainerCreated { id } => self.learn_created(*ticket, id.as_str()),
            CriAnswer::RuntimeListed(list) => self.learn_list(list),
            CriAnswer::PodInspected(pod) | CriAnswer::PodSeen { pod, .. } if !pod.name.is_empty() => {
                let name = format!("{}/{}", pod.namespace, pod.name);
                let uid = self.pod_of(*ticket).cloned();
                for sandbox in &pod.sandboxes {
                    self.learn_thing(sandbox.id.as_str(), name.clone(), uid.as_ref());
                }
                for container in &pod.containers {
                    let name = format!("{name}/{}", container.name);
                    self.learn_thing(container.id.as_str(), name, uid.as_ref());
                }
                if let Some(uid) = uid {
                    self.pods.insert(uid, name);
                }
            }
            _ => {}
        }
    }

    fn learn_list(&mut self, list: &RuntimeList) {
        for sandbox in &list.sandboxes {
            let id = sandbox.id.as_str();
            if !self.owners.contains_key(id) {
                self.owners.insert(id.to_owned(), sandbox.pod.clone());
            }
        }
        for container in &list.containers {
            let id = container.id.as_str();
            if !self.owners.contains_key(id)
                && let Some(pod) = self.owners.get(container.sandbox.as_str()).cloned()
            {
                self.owners.insert(id.to_owned(), pod);
            }
        }
    }

    /// A new sandbox or container is called as the label of the work that made it says.
    fn learn_created(&mut self, ticket: Ticket, id: &str) {
        if let Some((pod, label)) = self.asked.get(&ticket).cloned()
            && let Some(name) = label.split(' ').nth(1)
        {
            self.learn_thing(id, name.to_owned(), pod.as_ref());
        }
    }

    fn learn_thing(&mut self, id: &str, name: String, pod: Option<&PodUid>) {
        if let Some(pod) = pod {
            self.owners.insert(id.to_owned(), pod.clone());
        }
        self.things.insert(short_id(id).to_owned(), name);
    }

    fn learn_line(&mut self, line: &Line) {
        let mut words = line.label.split(' ');
        let name = match (line.kind, words.next(), words.next()) {
            (LineKind::Record, Some("PodAdmitted"), Some(name)) => Some(name),
            (LineKind::Work, Some("RunSandbox"), Some(name)) => Some(name),
            _ => None,
        };
        if let (Some(uid), Some(name)) = (&line.pod, name) {
            self.pods.insert(uid.clone(), name.to_owned());
        }
        if line.kind == LineKind::Work {
            self.asked.insert(line.ticket, (line.pod.clone(), line.label.clone()));
        }
    }

    /// Adds the name to a short id that stands in a label.
    fn explain(&self, label: &str) -> String {
        let known = label.split(' ').find_map(|word| self.things.get(word));
        match known {
            Some(name) if !label.contains(name.as_str()) => format!("{label} {name}"),
            _ => label.to_owned(),
        }
    }

    fn is_called(&self, uid: &PodUid, name: &str, node: &str) -> bool {
        let Some(full) = self.pods.get(uid) else {
            return uid.as_str() == name;
        };
        let short = full.split_once('/').map_or(full.as_str(), |(_, short)| short);
        let bare = |text: &str| text.strip_suffix(node).is_some_and(|bare| bare == name);
        uid.as_str() == name || full == name || short == name || bare(full) || bare(short)
    }
}

struct Teller {
    names: Names,
    meant: BTreeSet<PodUid>,
    /// `namespace/name` of the pods that are meant.
    full: BTreeSet<String>,
    node: String,
    /// Last listed state by id.
    states: BTreeMap<String, String>,
    /// Last digest by origin and index.
    manifests: BTreeMap<(String, u32), u128>,
}

impl Teller {
    fn tell(&mut self, frame: &Frame, events: &mut Vec<Event>) {
        let mut add = |came_in, text| events.push(Event { tick: frame.tick, now: frame.now, came_in, text });
        for input in &frame.inputs {
            for text in self.input(input) {
                add(true, text);
            }
        }
        self.names.answered(frame);
        let lines = frame.effects.as_ref().map_or(&[][..], |effects| &effects.lines);
        for line in lines {
            self.names.learn_line(line);
            let of = line.pod.as_ref().or_else(|| self.names.pod_of(line.ticket));
            if of.is_some_and(|uid| self.meant.contains(uid)) {
                add(false, self.names.line(line));
            }
        }
    }

    fn input(&mut self, input: &Ingress) -> Vec<String> {
        match input {
            Ingress::Completed(Completion { ticket, outcome }) => match outcome {
                Outcome::Done(Answer::Cri(CriAnswer::RuntimeListed(list))) => self.list(list),
                Outcome::Done(Answer::Sources(SourcesAnswer::ManifestsRead { manifests, .. })) => {
                    self.manifests(manifests)
                }
                _ if self.names.pod_of(*ticket).is_some_and(|uid| self.meant.contains(uid)) => {
                    vec![self.names.input(input)]
                }
                _ => Vec::new(),
            },
            Ingress::Cri(CriIngress::ContainerChanged { pod, id, .. }) => {
                let owner = self.names.owners.get(id.as_str());
                let ours = self.meant.contains(pod) || owner.is_some_and(|uid| self.meant.contains(uid));
                if ours { vec![self.names.input(input)] } else { Vec::new() }
            }
            Ingress::Cri(CriIngress::ObjectStarted { pod, .. }) if self.meant.contains(pod) => {
                vec![self.names.input(input)]
            }
            Ingress::Control(_) => vec![self.names.input(input)],
            _ => Vec::new(),
        }
    }

    /// What changed of the pod's objects since the last list.
    fn list(&mut self, list: &RuntimeList) -> Vec<String> {
        let owners = &self.names.owners;
        let ours = |id: &str| owners.get(id).is_some_and(|uid| self.meant.contains(uid));
        let mut now: BTreeMap<String, String> = BTreeMap::new();
        for sandbox in list.sandboxes.iter().filter(|sandbox| ours(sandbox.id.as_str())) {
            now.insert(sandbox.id.to_string(), format!("sandbox {:?}", sandbox.state));
        }
        for container in list.containers.iter().filter(|container| ours(container.id.as_str())) {
            now.insert(container.id.to_string(), format!("container {:?}", container.state));
        }
        let mut texts = Vec::new();
        for (id, state) in &now {
            let named = self.names.explain(short_id(id));
            match self.states.get(id) {
                None => texts.push(format!("listed {named}: {state}")),
                Some(old) if old != state => texts.push(format!("listed {named}: {state}, was {old}")),
                Some(_) => {}
            }
        }
        let gone = self.states.keys().filter(|id| !now.contains_key(*id));
        texts.extend(gone.map(|id| format!("listed {}: gone", self.names.explain(short_id(id)))));
        self.states = now;
        texts
    }

    /// What changed of the pod's manifests since the last reading.
    fn manifests(&mut self, manifests: &[Manifest]) -> Vec<String> {
        let ours = manifests.iter().filter(|manifest| self.is_ours(manifest));
        let now: BTreeMap<_, _> = ours.map(|m| ((m.origin.to_string(), m.index), m.digest)).collect();
        let mut texts = Vec::new();
        for (key, digest) in &now {
            match self.manifests.get(key) {
                None => texts.push(format!("manifest {} appeared", key.0)),
                Some(old) if old != digest => texts.push(format!("manifest {} changed", key.0)),
                Some(_) => {}
            }
        }
        let gone = self.manifests.keys().filter(|key| !now.contains_key(*key));
        texts.extend(gone.map(|key| format!("manifest {} is gone", key.0)));
        self.manifests = now;
        texts
    }

    fn is_ours(&self, manifest: &Manifest) -> bool {
        let Ok(object) = serde_json::from_str::<serde_json::Value>(&manifest.json) else {
            return false;
        };
        let text = |key: &str| object["metadata"][key].as_str();
        let namespace = text("namespace").filter(|namespace| !namespace.is_empty()).unwrap_or("default");
        let Some(name) = text("name") else {
            return false;
        };
        let full = format!("{namespace}/{name}");
        self.full.contains(&full) || self.full.contains(&format!("{full}{}", self.node))
    }
}
