//! What a pod takes of the node and whether that is left: pods, CPU, memory, local storage, huge pages, host ports.

use super::CRITICAL;
use super::preempt::{Candidate, Need};
use components::edge::cri::Protocol;
use components::edge::sources::Source;
use components::ids::PodUid;
use components::quantity::{Format, Quantity};
use components::spec::{ContainerKind, PodSpec, QosClass, Resources};
use std::collections::BTreeMap;

/// Amounts that pods request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Amounts {
    pub(crate) cpu_milli: i64,
    pub(crate) memory: i64,
    pub(crate) storage: i64,
    pub(crate) hugepages: BTreeMap<String, i64>,
}

/// A port of the host: address (empty for all), protocol, number.
pub(crate) type HostPort = (String, &'static str, i32);

/// What the node offers to pods.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offer {
    pub(crate) pods: i64,
    pub(crate) amounts: Amounts,
    /// Local storage is accounted for.
    pub(crate) storage_counts: bool,
}

/// An admitted pod.
#[derive(Debug)]
struct Pod {
    amounts: Amounts,
    ports: Vec<HostPort>,
    qos: QosClass,
    /// Its priority; none can be higher than a static pod's.
    priority: i32,
}

/// What admitted pods take, kept by deltas.
#[derive(Default, Debug)]
pub(crate) struct Taken {
    pods: BTreeMap<PodUid, Pod>,
    all: Amounts,
    ports: BTreeMap<HostPort, u32>,
    /// Counts how often something became free.
    freed: u64,
}

impl Amounts {
    fn of(list: &Resources) -> Self {
        Self {
            cpu_milli: list.cpu_milli.unwrap_or(0),
            memory: list.memory_bytes.unwrap_or(0),
            storage: list.ephemeral_storage_bytes.unwrap_or(0),
            hugepages: list.hugepages.clone(),
        }
    }

    fn add(&mut self, other: &Self, sign: i64) {
        let add = |to: &mut i64, amount: i64| *to = to.saturating_add(amount.saturating_mul(sign));
        add(&mut self.cpu_milli, other.cpu_milli);
        add(&mut self.memory, other.memory);
        add(&mut self.storage, other.storage);
        for (name, amount) in &other.hugepages {
            add(self.hugepages.entry(name.clone()).or_default(), *amount);
        }
    }

    fn at_least(&mut self, other: &Self) {
        self.cpu_milli = self.cpu_milli.max(other.cpu_milli);
        self.memory = self.memory.max(other.memory);
        self.storage = self.storage.max(other.storage);
        for (name, amount) in &other.hugepages {
            let own = self.hugepages.entry(name.clone()).or_default();
            *own = (*own).max(*amount);
        }
    }

    /// Amount of a resource by name; every pod is one pod.
    pub(super) fn of_resource(&self, name: &str) -> i64 {
        match name {
            "pods" => 1,
            "cpu" => self.cpu_milli,
            "memory" => self.memory,
            "ephemeral-storage" => self.storage,
            other => self.hugepages.get(other).copied().unwrap_or(0),
        }
    }

    fn is_nothing(&self) -> bool {
        self.cpu_milli == 0 && self.memory == 0 && self.storage == 0 && self.hugepages.is_empty()
    }
}

/// What a pod requests: its containers together with its sidecars, or more where an init container needs more beside
/// the sidecars before it; what the pod as a whole requests counts instead; and its overhead on top.
pub(crate) fn requests(spec: &PodSpec) -> Amounts {
    let (mut together, mut sidecars, mut starting) = (Amounts::default(), Amounts::default(), Amounts::default());
    for container in &spec.containers {
        let own = Amounts::of(&container.resources.requests);
        match container.kind {
            ContainerKind::Main => together.add(&own, 1),
            ContainerKind::Sidecar => {
                sidecars.add(&own, 1);
                starting.at_least(&sidecars);
            }
            ContainerKind::Init => {
                let mut needed = sidecars.clone();
                needed.add(&own, 1);
                starting.at_least(&needed);
            }
            ContainerKind::Ephemeral => {}
        }
    }
    together.add(&sidecars, 1);
    together.at_least(&starting);
    if let Some(whole) = spec.resources.as_ref().map(|all| &all.requests) {
        together.cpu_milli = whole.cpu_milli.unwrap_or(together.cpu_milli);
        together.memory = whole.memory_bytes.unwrap_or(together.memory);
        together.hugepages.extend(whole.hugepages.clone());
    }
    together.add(&Amounts::of(&spec.overhead), 1);
    together
}

/// Priority for who makes way for whom: static pods for nobody.
fn rank(spec: &PodSpec) -> i32 {
    if spec.source == Source::Api { spec.priority } else { i32::MAX }
}

/// Name of the resource of huge pages of this size.
pub(super) fn hugepage_name(page: i64) -> String {
    format!("hugepages-{}", Quantity::from_units(page, Format::BinarySi))
}

/// The ports of the host that a pod listens on.
pub(crate) fn host_ports(spec: &PodSpec) -> Vec<HostPort> {
    let listens = |kind| matches!(kind, ContainerKind::Main | ContainerKind::Sidecar);
    let ports = spec.containers.iter().filter(|c| listens(c.kind)).flat_map(|c| &c.ports);
    ports
        .filter(|port| port.host_port > 0)
        .map(|port| {
            let everywhere = matches!(port.host_ip.as_str(), "" | "0.0.0.0");
            let address = if everywhere { String::new() } else { port.host_ip.clone() };
            (address, protocol(port.protocol), port.host_port)
        })
        .collect()
}

const fn protocol(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "TCP",
        Protocol::Udp => "UDP",
        Protocol::Sctp => "SCTP",
    }
}

impl Taken {
    /// A pod was admitted; again for one that was changes nothing.
    pub(crate) fn put(&mut self, spec: &PodSpec) {
        if self.pods.contains_key(&spec.uid) {
            return;
        }
        let (amounts, ports) = (requests(spec), host_ports(spec));
        self.all.add(&amounts, 1);
        for port in &ports {
            *self.ports.entry(port.clone()).or_default() += 1;
        }
        let pod = Pod { amounts, ports, qos: spec.qos, priority: rank(spec) };
        self.pods.insert(spec.uid.clone(), pod);
    }

    /// A pod has ended, or was never admitted.
    pub(crate) fn remove(&mut self, uid: &PodUid) {
        if self.pods.contains_key(uid) {
            self.lift(uid);
            self.note_freed();
        }
    }

    /// A counter that changes whenever something of the node became free.
    pub(crate) const fn freed(&self) -> u64 {
        self.freed
    }

    /// Something became free.
    pub(crate) const fn note_freed(&mut self) {
        self.freed += 1;
    }

    /// Leaves a pod out for a moment, to see what is left beside the others.
    pub(crate) fn lift(&mut self, uid: &PodUid) {
        let Some(pod) = self.pods.remove(uid) else { return };
        self.all.add(&pod.amounts, -1);
        for port in pod.ports {
            if let Some(count) = self.ports.get_mut(&port) {
                *count -= 1;
                if *count == 0 {
                    self.ports.remove(&port);
                }
            }
        }
    }

    /// The first thing that is not left for a pod: its name, requested, used and offered amounts.
    pub(crate) fn lacking(&self, spec: &PodSpec, offer: &Offer) -> Option<(String, [i64; 3])> {
        self.all_lacking(spec, offer).into_iter().next()
    }

    /// Pods that may have to make way for this critical one.
    pub(crate) fn below(&self, spec: &PodSpec) -> Vec<Candidate> {
        let own = spec.priority.max(CRITICAL);
        let lower = self.pods.iter().filter(|(_, pod)| pod.priority < own);
        lower.map(|(uid, pod)| Candidate { uid: uid.clone(), qos: pod.qos, amounts: pod.amounts.clone() }).collect()
    }

    /// Everything that is not left for a pod.
    fn all_lacking(&self, spec: &PodSpec, offer: &Offer) -> Vec<(String, [i64; 3])> {
        let used = i64::try_from(self.pods.len()).unwrap_or(i64::MAX);
        let mut found = Vec::new();
        if used + 1 > offer.pods {
            found.push(("pods".to_owned(), [1, used, offer.pods]));
        }
        let asked = requests(spec);
        if asked.is_nothing() {
            return found;
        }
        let (all, most) = (&self.all, &offer.amounts);
        let mut checks = vec![
            ("cpu", asked.cpu_milli, all.cpu_milli, most.cpu_milli),
            ("memory", asked.memory, all.memory, most.memory),
        ];
        if offer.storage_counts {
            checks.push(("ephemeral-storage", asked.storage, all.storage, most.storage));
        }
        let of = |list: &BTreeMap<String, i64>, name: &str| list.get(name).copied().unwrap_or(0);
        for (name, amount) in &asked.hugepages {
            checks.push((name, *amount, of(&all.hugepages, name), of(&most.hugepages, name)));
        }
        let lacks = |(_, asked, used, most): &&(&str, i64, i64, i64)| *asked > 0 && *asked > most.saturating_sub(*used);
        found.extend(
            checks.iter().filter(lacks).map(|(name, asked, used, most)| ((*name).to_owned(), [*asked, *used, *most])),
        );
        found
    }

    /// How much of what is missing for a pod.
    pub(crate) fn needs(&self, spec: &PodSpec, offer: &Offer) -> Vec<Need> {
        let missing = |(name, [asked, used, most]): (String, [i64; 3])| (name, asked + used - most);
        self.all_lacking(spec, offer).into_iter().map(missing).collect()
    }

    /// True when a port of the host that the pod wants is taken.
    pub(crate) fn port_taken(&self, spec: &PodSpec) -> bool {
        host_ports(spec).iter().any(|(address, protocol, number)| {
            let same = |(other, p, n): &HostPort| {
                p == protocol && n == number && (address.is_empty() || other.is_empty() || other == address)
            };
            self.ports.keys().any(same)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;
    use components::spec::{ContainerPort, ResourceRequirements};

    /// A pod whose containers request these amounts of CPU.
    fn pod(uid: &str, text: &str, cpu: &[i64]) -> PodSpec {
        let mut spec = fixtures::spec(text);
        spec.uid = uid.into();
        for (container, cpu) in spec.containers.iter_mut().zip(cpu) {
            container.resources.requests.cpu_milli = Some(*cpu);
        }
        spec
    }

    #[test]
    fn a_pod_needs_what_runs_at_one_time() {
        let cpu = |text: &str, cpu: &[i64]| requests(&pod("u", text, cpu)).cpu_milli;
        assert_eq!(cpu("always a b", &[100, 200]), 300);
        assert_eq!(cpu("always init:i a", &[500, 200]), 500);
        assert_eq!(cpu("always side:s init:i a", &[100, 500, 200]), 600);
        assert_eq!(cpu("always init:i side:s a", &[500, 100, 200]), 500);
        assert_eq!(cpu("always side:s a", &[100, 200]), 300);
        let mut spec = pod("u", "always a b", &[100, 200]);
        spec.overhead.cpu_milli = Some(10);
        assert_eq!(requests(&spec).cpu_milli, 310);
        let whole = Resources { cpu_milli: Some(1000), ..Resources::default() };
        spec.resources = Some(ResourceRequirements { requests: whole, ..ResourceRequirements::default() });
        assert_eq!(requests(&spec).cpu_milli, 1010);
    }

    #[test]
    fn what_is_taken_is_not_left() {
        let offer = Offer {
            pods: 2,
            amounts: Amounts { cpu_milli: 1000, memory: 100, ..Amounts::default() },
            storage_counts: true,
        };
        let mut taken = Taken::default();
        let first = pod("a", "always a", &[600]);
        assert_eq!(taken.lacking(&first, &offer), None);
        taken.put(&first);
        taken.put(&first);
        let second = pod("b", "always a", &[600]);
        assert_eq!(taken.lacking(&second, &offer), Some(("cpu".to_owned(), [600, 600, 1000])));
        let mut third = pod("c", "always a", &[0]);
        third.containers[0].resources.requests.hugepages.insert("hugepages-2Mi".into(), 5);
        assert_eq!(taken.lacking(&third, &offer), Some(("hugepages-2Mi".to_owned(), [5, 0, 0])));
        taken.put(&pod("d", "always a", &[]));
        assert_eq!(taken.lacking(&pod("e", "always a", &[]), &offer), Some(("pods".to_owned(), [1, 2, 2])));
        taken.remove(&"a".into());
        taken.remove(&"a".into());
        assert_eq!(taken.lacking(&second, &offer), None);
        assert_eq!(taken.all, Amounts::default());
    }

    #[test]
    fn ports_of_the_host_have_one_owner() {
        let listening = |uid: &str, ip: &str, protocol, number| {
            let mut spec = pod(uid, "always a", &[]);
            let (name, host_ip) = (String::new(), ip.to_owned());
            spec.containers[0].ports =
                vec![ContainerPort { name, container_port: 1, host_port: number, host_ip, protocol }];
            spec
        };
        let mut taken = Taken::default();
        taken.put(&listening("a", "127.0.0.1", Protocol::Tcp, 80));
        let clash = |taken: &Taken, ip, protocol, number| taken.port_taken(&listening("b", ip, protocol, number));
        assert!(clash(&taken, "127.0.0.1", Protocol::Tcp, 80));
        assert!(clash(&taken, "", Protocol::Tcp, 80));
        assert!(clash(&taken, "0.0.0.0", Protocol::Tcp, 80));
        assert!(!clash(&taken, "10.0.0.1", Protocol::Tcp, 80));
        assert!(!clash(&taken, "", Protocol::Udp, 80));
        assert!(!clash(&taken, "", Protocol::Tcp, 81));
        assert!(!clash(&taken, "", Protocol::Tcp, 0));
        taken.remove(&"a".into());
        assert!(!clash(&taken, "", Protocol::Tcp, 80));
    }
}
