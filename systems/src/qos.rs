//! The cgroups that pods' cgroups lie in: what all pods may have together, and what the QoS classes weigh (contract 4).
//!
//! Reads stages and specs of touched pods; keeps [`Weights`]. Emits all three cgroups when a value changed, and again
//! each resync period: something else may have changed them, or the last write failed.

use crate::runtime::{RuntimeSystems, pod_cpu_request, shares};
use bevy_ecs::prelude::*;
use components::edge::host::{Cgroup, HostEffect};
use components::edge::{Effect, Lane, Outcome, Why};
use components::ids::Ticket;
use components::node::{Machine, NodeConfig};
use components::spec::QosClass;
use components::world::{Desired, Lifecycle, RuntimeHealth, Stage};
use engine::{Engine, Inbox, NewWork, Outbox, Owner, Phase, TimerKind, Timers, Touched};
use std::collections::BTreeMap;
use std::time::Duration;

/// Longest time for a few small writes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct QosSystems;

/// What the burstable pods that are active request, and what was last written.
#[derive(Resource, Default, Debug)]
struct Weights {
    burstable: BTreeMap<Entity, i64>,
    total_milli: i64,
    written: Option<Vec<Cgroup>>,
    writing: Option<Ticket>,
}

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<Weights>();
    engine.add_systems(Phase::Act, weigh_classes.in_set(QosSystems).after(RuntimeSystems));
}

fn weigh_classes(
    config: Res<NodeConfig>,
    machine: Res<Machine>,
    health: Res<RuntimeHealth>,
    inbox: Res<Inbox>,
    timers: Res<Timers>,
    touched: Res<Touched>,
    pods: Query<(&Desired, &Lifecycle)>,
    mut weights: ResMut<Weights>,
    mut outbox: ResMut<Outbox>,
) {
    let answer = inbox.completions.iter().find(|arrived| weights.writing == Some(arrived.ticket));
    if let Some(arrived) = answer {
        weights.writing = None;
        if let Outcome::Failed(failure) = &arrived.outcome {
            tracing::warn!(error = %failure.message, "Cgroups of the QoS classes could not be set");
        }
    }
    for pod in touched.iter() {
        let request = pods.get(pod).map_or(0, |(desired, life)| active_request(desired, life));
        weights.note(pod, request);
    }
    let systemd = health.info.as_ref().and_then(|info| info.cgroup_driver.as_deref());
    let systemd = systemd.map_or(config.cgroup_driver_systemd, |driver| driver == "systemd");
    // Slices are systemd's to make.
    if !config.cgroups_per_qos || systemd || config.limits.cpu_milli == 0 || weights.writing.is_some() {
        return;
    }
    let wanted = cgroups(&config, &machine, weights.total_milli);
    if weights.written.as_ref() == Some(&wanted) && !timers.node_due(TimerKind::Resync) {
        return;
    }
    weights.writing = Some(outbox.emit(NewWork {
        owner: Owner::Node,
        lane: Lane::Free,
        chained: false,
        timeout: TIMEOUT,
        why: Why { system: "qos", rule: "pods get what is not reserved, and burstable ones weigh what they request" },
        effect: Effect::Host(HostEffect::SetCgroups(wanted.clone())),
    }));
    weights.written = Some(wanted);
}

impl Weights {
    fn note(&mut self, pod: Entity, milli: i64) {
        let before = if milli > 0 { self.burstable.insert(pod, milli) } else { self.burstable.remove(&pod) };
        self.total_milli += milli - before.unwrap_or(0);
    }
}

/// CPU that a pod requests of the burstable class, while it may run.
fn active_request(desired: &Desired, life: &Lifecycle) -> i64 {
    let active = matches!(life.stage, Stage::Syncing | Stage::Terminating);
    let spec = desired.spec.as_ref().filter(|spec| active && spec.qos == QosClass::Burstable);
    spec.map_or(0, |spec| pod_cpu_request(spec))
}

/// The three cgroups; guaranteed pods lie beside the two of the classes.
fn cgroups(config: &NodeConfig, machine: &Machine, burstable_milli: i64) -> Vec<Cgroup> {
    let Some(top) = config.pods_cgroup() else { return Vec::new() };
    let weight = |milli: i64| u64::try_from(shares(milli)).ok();
    let (cpu, memory) = if config.limits.enforced {
        (config.limits.cpu_milli, config.limits.memory_bytes)
    } else {
        (i64::from(machine.cpus) * 1000, machine.memory_bytes)
    };
    let class = |name: &str, milli: i64| Cgroup {
        path: format!("{top}/{name}"),
        cpu_shares: weight(milli),
        ..Cgroup::default()
    };
    vec![
        Cgroup {
            path: top.clone(),
            cpu_shares: weight(cpu),
            memory_bytes: Some(memory).filter(|bytes| *bytes > 0),
            ..Cgroup::default()
        },
        class("besteffort", 0),
        class("burstable", burstable_milli),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    #[test]
    fn the_classes_weigh_what_the_reference_kubelet_wrote() {
        let mut node = fixtures::node();
        (node.cgroup_root, node.limits.cpu_milli) = ("/labnode".to_owned(), 2000);
        (node.limits.memory_bytes, node.limits.enforced) = (25_276_063_744, true);
        let machine = Machine { cpus: 4, memory_bytes: 1, ..Machine::default() };
        let shown = |all: Vec<Cgroup>| {
            let one = |c: &Cgroup| format!("{} {:?} {:?}", c.path, c.cpu_shares, c.memory_bytes);
            all.iter().map(one).collect::<Vec<_>>().join("\n")
        };
        let expect = "/labnode/kubepods Some(2048) Some(25276063744)\n\
                      /labnode/kubepods/besteffort Some(2) None\n\
                      /labnode/kubepods/burstable Some(102) None";
        assert_eq!(shown(cgroups(&node, &machine, 100)), expect);
        node.limits.enforced = false;
        assert!(shown(cgroups(&node, &machine, 0)).starts_with("/labnode/kubepods Some(4096) Some(1)\n"));
    }

    #[test]
    fn the_sum_follows_each_pod() {
        let mut weights = Weights::default();
        let pods: Vec<Entity> = (1..=3).filter_map(Entity::from_raw_u32).collect();
        for (pod, milli) in [(0, 100), (1, 250), (2, 0), (0, 150), (1, 0), (1, 0)] {
            weights.note(pods[pod], milli);
        }
        assert_eq!((weights.total_milli, weights.burstable.len()), (150, 1));
    }
}
