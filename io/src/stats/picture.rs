//! One look at everything that runs: the node's cgroups, each pod's and each container's.
//!
//! Reads the published snapshot for what there is and the cgroup files for what it uses. Where a cgroup lies follows
//! from the pod, so that no tree is walked.

use super::cgroup::Hierarchies;
use super::rates::Rates;
use super::sample::{Depth, Interface, Sample};
use super::{StatsConfig, parse};
use crate::clock::Clock;
use components::node::cgroups::slices;
use components::snapshot::{PodView, Snapshot};
use components::status::{ContainerReport, ReportedState};
use components::time::{Now, Wall};
use std::fs;
use std::sync::Arc;

/// A look at a cgroup with the rate since an earlier one.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Measured {
    /// Path of the cgroup.
    pub(super) cgroup: String,
    /// What was seen.
    pub(super) sample: Sample,
    /// Nanoseconds of CPU time a second, once there were two looks.
    pub(super) nano_cores: Option<u64>,
}

/// A container.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct ContainerPicture {
    /// Name.
    pub(super) name: Arc<str>,
    /// The runtime's id.
    pub(super) id: String,
    /// Image.
    pub(super) image: String,
    /// Since when it runs.
    pub(super) started: Wall,
    /// What it uses.
    pub(super) used: Measured,
}

/// A pod.
#[derive(Clone, Debug)]
pub(super) struct PodPicture {
    /// The pod.
    pub(super) view: Arc<PodView>,
    /// What its own cgroup shows, where it has one.
    pub(super) own: Option<Measured>,
    /// Its running containers.
    pub(super) containers: Vec<ContainerPicture>,
    /// Its sandbox: the runtime's id, and what it uses.
    pub(super) sandbox: Option<(String, Measured)>,
    /// Devices of its network.
    pub(super) network: Vec<Interface>,
    /// Its processes.
    pub(super) processes: u64,
}

/// Everything.
#[derive(Clone, Debug)]
pub(super) struct Picture {
    /// How much was looked at.
    pub(super) depth: Depth,
    /// When the look began.
    pub(super) now: Now,
    /// The root cgroup: the machine.
    pub(super) root: Measured,
    /// The cgroup of all pods.
    pub(super) pods_cgroup: Option<Measured>,
    /// The cgroups of the QoS classes; only in detail.
    pub(super) classes: Vec<Measured>,
    /// Cgroups of daemons: (name, what they use).
    pub(super) daemons: Vec<(&'static str, Measured)>,
    /// Devices of the node's network.
    pub(super) network: Vec<Interface>,
    /// Pods in slot order.
    pub(super) pods: Vec<PodPicture>,
}

/// How runtimes name the cgroup of a container below a pod's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Naming {
    /// By the id.
    Plain,
    /// `PREFIX-ID.scope`.
    Scope(&'static str),
}

impl Naming {
    fn of(snapshot: &Snapshot, systemd: bool) -> Self {
        let runtime = snapshot.runtime.as_ref().map_or("", |runtime| runtime.name.as_str());
        match (systemd, runtime) {
            (false, _) => Self::Plain,
            (true, "cri-o") => Self::Scope("crio"),
            (true, _) => Self::Scope("cri-containerd"),
        }
    }

    fn name(self, id: &str) -> String {
        match self {
            Self::Plain => id.to_owned(),
            Self::Scope(prefix) => format!("{prefix}-{id}.scope"),
        }
    }

    fn id(self, name: &str) -> Option<&str> {
        match self {
            Self::Plain => Some(name),
            Self::Scope(prefix) => name.strip_prefix(prefix)?.strip_prefix('-')?.strip_suffix(".scope"),
        }
        .filter(|id| id.len() >= 12 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    }
}

/// Takes pictures.
pub(super) struct Camera<'a> {
    pub(super) config: &'a StatsConfig,
    pub(super) hierarchies: &'a Hierarchies,
    pub(super) clock: Clock,
    pub(super) depth: Depth,
    pub(super) rates: &'a mut Rates,
}

impl Camera<'_> {
    /// Looks at everything once.
    pub(super) fn take(&mut self, snapshot: &Snapshot) -> Picture {
        self.rates.begin();
        let driver = snapshot.runtime.as_ref().and_then(|info| info.cgroup_driver.as_deref());
        let systemd = driver.map_or(self.config.node.cgroup_driver_systemd, |driver| driver == "systemd");
        let place = |path: String| if systemd { slices(&path) } else { path };
        let top = self.config.node.pods_cgroup().map(&place);
        let mut root = self.look("/").unwrap_or_default();
        self.complete_root(&mut root.sample);
        let classes = match (self.depth, self.config.node.pods_cgroup()) {
            (Depth::Detail, Some(top)) => ["burstable", "besteffort"]
                .iter()
                .filter_map(|class| self.look(&place(format!("{top}/{class}"))))
                .collect(),
            _ => Vec::new(),
        };
        let named = [
            ("kubelet", &self.config.kubelet_cgroup),
            ("runtime", &self.config.runtime_cgroup),
            ("misc", &self.config.system_cgroup),
        ];
        let daemons: Vec<(&'static str, String)> =
            named.into_iter().filter(|(_, path)| !path.is_empty()).map(|(name, path)| (name, path.clone())).collect();
        let naming = Naming::of(snapshot, systemd);
        let picture = Picture {
            depth: self.depth,
            now: self.clock.now(),
            root,
            pods_cgroup: top.and_then(|path| self.look(&path)),
            classes,
            daemons: daemons.into_iter().filter_map(|(name, path)| Some((name, self.look(&path)?))).collect(),
            network: if self.depth >= Depth::Summary { devices("self") } else { Vec::new() },
            pods: snapshot.pods().filter_map(|view| self.pod(view, naming, &place)).collect(),
        };
        self.rates.end();
        picture
    }

    /// What the root's own files do not say.
    fn complete_root(&self, sample: &mut Sample) {
        if let Some(memory) = &mut sample.memory {
            memory.limit = Some(self.config.memory_bytes);
            let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
            memory.swap_limit = parse::meminfo(&text, "SwapTotal");
        }
        sample.created = Some(self.config.booted);
        if self.depth >= Depth::Summary && sample.pressure.is_none() {
            sample.pressure = super::cgroup::machine_pressure();
        }
    }

    fn look(&mut self, path: &str) -> Option<Measured> {
        let sample = self.hierarchies.read(path, self.depth, self.clock.now())?;
        let nano_cores = sample.cpu.as_ref().and_then(|cpu| self.rates.note(path, sample.mono, cpu.usage));
        Some(Measured { cgroup: path.to_owned(), sample, nano_cores })
    }

    fn pod(&mut self, view: &Arc<PodView>, naming: Naming, place: &dyn Fn(String) -> String) -> Option<PodPicture> {
        let spec = view.spec.as_ref()?;
        if view.buried || view.status.phase.is_terminal() {
            return None;
        }
        let config = &self.config.node;
        let cgroup = place(config.pod_cgroup(spec.qos, view.uid.as_str()));
        let own = if config.cgroups_per_qos { Some(self.look(&cgroup)?) } else { None };
        // A runtime that is told nothing puts containers below a cgroup of its own.
        let parent = if cgroup.is_empty() { "/k8s.io".to_owned() } else { cgroup };
        let mut containers = Vec::new();
        for (report, id, started) in running(view) {
            if let Some(used) = self.look(&format!("{parent}/{}", naming.name(id))) {
                let (name, image) = (Arc::clone(&report.name), report.image.clone());
                containers.push(ContainerPicture { name, id: id.to_owned(), image, started, used });
            }
        }
        let mut pod =
            PodPicture { view: Arc::clone(view), own, containers, sandbox: None, network: Vec::new(), processes: 0 };
        if self.depth >= Depth::Summary {
            self.surroundings(&mut pod, &parent, naming);
        }
        (pod.own.is_some() || !pod.containers.is_empty()).then_some(pod)
    }

    /// The sandbox, the network and the number of processes.
    fn surroundings(&mut self, pod: &mut PodPicture, parent: &str, naming: Naming) {
        if pod.own.is_some() {
            let children = self.hierarchies.children(parent);
            let unknown = children.iter().filter_map(|name| {
                let id = naming.id(name)?;
                (!pod.containers.iter().any(|container| container.id == id)).then_some((id.to_owned(), name))
            });
            let seen: Vec<_> = unknown.collect();
            // A container that came or went this moment may be among them; the sandbox is older than any.
            pod.sandbox = seen
                .into_iter()
                .filter_map(|(id, name)| Some((id, self.look(&format!("{parent}/{name}"))?)))
                .min_by_key(|(_, used)| used.sample.created);
        }
        let of = |used: &Measured| used.sample.processes.clone();
        let mut processes: Vec<u32> = pod.sandbox.iter().flat_map(|(_, used)| of(used)).collect();
        processes.extend(pod.containers.iter().flat_map(|container| of(&container.used)));
        pod.processes = processes.len() as u64;
        if let Some(first) = processes.first() {
            pod.network = devices(&first.to_string());
        }
    }
}

fn devices(process: &str) -> Vec<Interface> {
    fs::read_to_string(format!("/proc/{process}/net/dev")).map(|text| parse::interfaces(&text)).unwrap_or_default()
}

/// Running containers of a pod with the runtime's id and the time of their start.
fn running(view: &PodView) -> impl Iterator<Item = (&ContainerReport, &str, Wall)> {
    let status = &view.status;
    let all = status.init_containers.iter().chain(&status.containers).chain(&status.ephemeral_containers);
    all.filter_map(|report| {
        let ReportedState::Running { started_at } = report.state else { return None };
        let id = report.container_id.split_once("://").map_or(report.container_id.as_str(), |(_, id)| id);
        (!id.is_empty()).then_some((report, id, started_at))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_containers_are_named_as_runtimes_do() {
        let id = "ed121145d40153b2132780fc11c4c0130976bdfdba30a8c9545236b72b104cc7";
        for naming in [Naming::Plain, Naming::Scope("cri-containerd"), Naming::Scope("crio")] {
            assert_eq!(naming.id(&naming.name(id)), Some(id));
        }
        assert_eq!(Naming::Plain.id("init.scope"), None);
        assert_eq!(Naming::Scope("crio").id(&format!("crio-conmon-{id}.scope")), None);
    }
}
