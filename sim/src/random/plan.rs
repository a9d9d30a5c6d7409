//! The pods of a history: what their manifests say and what their containers do.

use crate::rng::Rng;
use components::edge::sources::Source;
use serde_json::{Value, json};

/// What a container's process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    /// Runs until it is told to stop.
    Serves,
    /// Runs until it is killed.
    Deaf,
    /// Ends well after so many seconds.
    Succeeds(u64),
    /// Ends badly after so many seconds.
    Fails(u64),
}

impl Does {
    fn command(self) -> Vec<String> {
        match self {
            Self::Serves => vec!["serve".into()],
            Self::Deaf => vec!["sh".into(), "-c".into(), "trap '' TERM; sleep infinity".into()],
            Self::Succeeds(seconds) => vec!["sleep".into(), seconds.to_string()],
            Self::Fails(seconds) => vec!["sh".into(), "-c".into(), format!("sleep {seconds}; exit 1")],
        }
    }

    /// True when it does not end by itself.
    pub(super) const fn stays(self) -> bool {
        matches!(self, Self::Serves | Self::Deaf)
    }
}

/// A pod.
#[derive(Debug, Clone)]
pub(super) struct Pod {
    pub(super) uid: String,
    pub(super) policy: &'static str,
    grace: u64,
    label: u64,
    pub(super) image: String,
    init: Vec<Does>,
    sidecars: Vec<Does>,
    pub(super) main: Vec<Does>,
    /// Probes of the first main container, in the API's words.
    probes: serde_json::Map<String, Value>,
    /// Hooks of main containers and sidecars.
    hooks: Vec<(&'static str, Value)>,
}

impl Pod {
    /// True when each of its containers that serve runs until it is told to stop.
    pub(super) fn stays(&self) -> bool {
        self.main.iter().chain(&self.sidecars).all(|does| does.stays())
    }

    fn draw(rng: &mut Rng, uid: String) -> Self {
        let policy = *rng.pick(&["Always", "Always", "OnFailure", "Never"]).unwrap_or(&"Always");
        let draw = |rng: &mut Rng| match rng.below(10) {
            0..=4 => Does::Serves,
            5..=6 => Does::Deaf,
            7 => Does::Succeeds(rng.below(6)),
            8 => Does::Fails(rng.below(6)),
            _ => Does::Succeeds(20),
        };
        let init = (0..rng.below(3)).map(|_| Does::Succeeds(rng.below(3))).collect();
        let main: Vec<Does> = (0..=rng.below(2)).map(|_| draw(rng)).collect();
        let probes = if rng.chance(400) {
            probes(rng, main.first().is_some_and(|does| does.stays()))
        } else {
            serde_json::Map::new()
        };
        let grace = 1 + rng.below(6);
        let init = if rng.chance(300) { init } else { Vec::new() };
        let sidecar = rng.chance(150);
        // A stream of its own: what else happens in a history stays as it was.
        let mut more = rng.fork();
        let lasting = [Does::Serves, Does::Serves, Does::Deaf, Does::Succeeds(20), Does::Fails(8)];
        let sidecars = more.below(4).saturating_sub(1);
        let sidecars = (0..sidecars).filter_map(|_| more.pick(&lasting).copied()).collect();
        let mut hooks = Vec::new();
        if more.chance(250) {
            let all = [
                json!({"exec": {"command": ["sleep", "1"]}}),
                json!({"exec": {"command": ["sleep", "infinity"]}}),
                json!({"exec": {"command": ["false"]}}),
                json!({"httpGet": {"port": 80}}),
                json!({"sleep": {"seconds": 1}}),
                json!({"tcpSocket": {"port": 80}}),
            ];
            hooks.extend(more.pick(&all).cloned().map(|hook| ("preStop", hook)));
        }
        if more.chance(200) {
            let all = [
                json!({"exec": {"command": ["sleep", "2"]}}),
                json!({"httpGet": {"port": 80}}),
                json!({"sleep": {"seconds": 1}}),
            ];
            hooks.extend(more.pick(&all).cloned().map(|hook| ("postStart", hook)));
        }
        let sidecars = if sidecar { vec![Does::Serves] } else { sidecars };
        Self { uid, policy, grace, label: 0, image: "busybox:1".into(), init, sidecars, main, probes, hooks }
    }

    pub(super) fn json(&self, name: &str) -> String {
        let container = |name: String, does: Does| json!({"name": name, "image": self.image, "imagePullPolicy": "IfNotPresent", "command": does.command()});
        let mut init: Vec<_> = Vec::new();
        let lifecycle: serde_json::Map<_, _> =
            self.hooks.iter().map(|(kind, hook)| ((*kind).to_owned(), hook.clone())).collect();
        for (n, does) in self.sidecars.iter().enumerate() {
            let mut sidecar = container(format!("s{n}"), *does);
            sidecar["restartPolicy"] = json!("Always");
            sidecar["lifecycle"] = json!(lifecycle);
            init.push(sidecar);
        }
        init.extend(self.init.iter().enumerate().map(|(n, does)| container(format!("i{n}"), *does)));
        let with_hooks = |mut container: Value| {
            container["lifecycle"] = json!(lifecycle);
            container
        };
        let main = self.main.iter().enumerate();
        let mut main: Vec<_> = main.map(|(n, does)| with_hooks(container(format!("c{n}"), *does))).collect();
        if let Some(first) = main.first_mut().and_then(Value::as_object_mut) {
            first.extend(self.probes.clone());
        }
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": self.uid, "labels": {"round": self.label.to_string()},
            },
            "spec": {
                "restartPolicy": self.policy,
                "terminationGracePeriodSeconds": self.grace,
                "initContainers": init,
                "containers": main,
                "volumes": [{"name": "e", "emptyDir": {}}],
            },
        })
        .to_string()
    }

    /// True when it must end for good, whatever happens to it.
    pub(super) fn finishes(&self) -> bool {
        let ends = |does: &Does| matches!(does, Does::Succeeds(_)) || (self.policy == "Never" && !does.stays());
        self.policy != "Always" && self.main.iter().all(ends)
    }
}

/// Some probes; those that can end a container only where it ends for nothing else.
fn probes(rng: &mut Rng, stays: bool) -> serde_json::Map<String, Value> {
    let mut out = serde_json::Map::new();
    for (name, chance, ends) in
        [("readinessProbe", 700, false), ("livenessProbe", 500, true), ("startupProbe", 300, true)]
    {
        if !rng.chance(chance) || (ends && !stays) {
            continue;
        }
        let mut probe =
            if rng.chance(500) { json!({"exec": {"command": ["true"]}}) } else { json!({"httpGet": {"port": 80}}) };
        probe["periodSeconds"] = json!(1 + rng.below(4));
        probe["failureThreshold"] = json!(1 + rng.below(3));
        probe["initialDelaySeconds"] = json!(rng.below(3));
        if ends && rng.chance(300) {
            probe["terminationGracePeriodSeconds"] = json!(1 + rng.below(4));
        }
        out.insert(name.to_owned(), probe);
    }
    out
}

/// A manifest file and the pods it held.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub(super) source: Source,
    pub(super) name: String,
    /// What the file holds; `None` when it is not there.
    pub(super) pod: Option<Pod>,
    /// The file cannot be read.
    pub(super) spoiled: bool,
    last: Option<Pod>,
    generation: u64,
}

impl Slot {
    pub(super) fn new(source: Source, name: &str) -> Self {
        Self { source, name: name.to_owned(), pod: None, spoiled: false, last: None, generation: 0 }
    }

    pub(super) fn origin(&self) -> String {
        format!("/etc/kubernetes/manifests/{}.yaml", self.name)
    }

    pub(super) fn renew(&mut self, rng: &mut Rng) {
        self.generation += 1;
        let uid = format!("{}-g{}", self.name, self.generation);
        self.pod = Some(Pod::draw(rng, uid));
    }

    pub(super) fn bring_back(&mut self, rng: &mut Rng) {
        if self.pod.is_none() {
            self.pod = self.last.clone();
        }
        if self.pod.is_none() {
            self.renew(rng);
        }
    }

    pub(super) fn alter(&mut self, rng: &mut Rng) {
        match &mut self.pod {
            None => self.bring_back(rng),
            Some(pod) if rng.chance(500) => {
                pod.image = if pod.image == "busybox:1" { "busybox:2" } else { "busybox:1" }.into();
            }
            Some(pod) => pod.label += 1,
        }
    }

    /// Empties the slot; false when it was empty.
    pub(super) fn take(&mut self) -> bool {
        match self.pod.take() {
            Some(pod) => {
                self.last = Some(pod);
                true
            }
            None => false,
        }
    }
}
