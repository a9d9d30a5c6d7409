//! Runtime manager: brings each pod's sandbox and containers to what its stage and spec want.
//!
//! Reads stage, spec, inspection and what is under way; decides with plain functions (`actions`), builds complete
//! CRI configurations (`config`) and emits works. Writes [`Flow`] and [`ContainerRun`].

mod act;
mod actions;
pub(crate) mod backoff;
pub(crate) mod cgroups;
mod completions;
mod config;
mod dns;
pub(crate) mod env;
mod hooks;
mod hosts;
mod order;
mod paths;
pub(crate) mod pullerror;
mod resize;
mod resources;
mod security;
mod steps;
mod users;

pub(crate) use resize::runs;
pub(crate) use resources::{pod_requirements, shares};

/// CPU that a pod requests as a whole, in thousandths.
pub(crate) fn pod_cpu_request(spec: &components::spec::PodSpec) -> i64 {
    pod_requirements(spec).requests.cpu_milli.unwrap_or(0)
}

/// Limits that a pod's cgroup is to have; nothing where it is not made by us.
pub(crate) fn pod_limits(
    spec: &components::spec::PodSpec,
    config: &NodeConfig,
    machine: &components::node::Machine,
    health: &components::world::RuntimeHealth,
) -> components::world::PodLimits {
    let said = health.info.as_ref().and_then(|info| info.cgroup_driver.as_deref());
    let systemd = said.map_or(config.cgroup_driver_systemd, |driver| driver == "systemd");
    cgroups::of_pod(spec, config, machine, systemd).as_ref().map(resize::limits).unwrap_or_default()
}

/// True when the pod's cgroup has the limits that its spec asks for.
pub(crate) fn limits_in_force(
    spec: &components::spec::PodSpec,
    flow: &components::world::Flow,
    config: &NodeConfig,
    machine: &components::node::Machine,
    health: &components::world::RuntimeHealth,
) -> bool {
    let said = health.info.as_ref().and_then(|info| info.cgroup_driver.as_deref());
    let systemd = said.map_or(config.cgroup_driver_systemd, |driver| driver == "systemd");
    resize::limits_in_force(spec, flow.limits, config, machine, systemd)
}

use crate::turns::IngestTurn;
use bevy_ecs::prelude::*;
use components::node::NodeConfig;
use components::time::Mono;
use engine::{Clock, Engine, Owner, Phase, TimerKind, Timers, Touched};

/// Systems of this domain.
#[derive(SystemSet, Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuntimeSystems;

/// Token bucket of image pulls (`registryPullQPS`, `registryBurst`).
#[derive(Resource, Debug, Default)]
pub(crate) struct PullBudget {
    tokens: f64,
    refilled: Mono,
    started: bool,
}

impl PullBudget {
    /// Takes a token if there is one; always when `qps` is 0.
    fn take(&mut self, qps: u32, burst: u32, now: Mono) -> bool {
        if qps == 0 {
            return true;
        }
        if !self.started {
            self.tokens = f64::from(burst);
            self.started = true;
        }
        let earned = now.since(self.refilled).as_secs_f64() * f64::from(qps);
        self.tokens = (self.tokens + earned).min(f64::from(burst));
        self.refilled = now;
        let has = self.tokens >= 1.0;
        if has {
            self.tokens -= 1.0;
        }
        has
    }
}

/// Adds the domain to the engine.
pub fn plugin(engine: &mut Engine) {
    engine.world_mut().init_resource::<PullBudget>();
    let found = users::UserRanges::found(engine.world().resource::<components::node::Machine>());
    engine.world_mut().insert_resource(found);
    engine.world_mut().resource_mut::<Timers>().arm(TimerKind::Resync, Owner::Node, Mono(0));
    engine.add_systems(
        Phase::Ingest,
        (completions::take_completions, resync)
            .chain_ignore_deferred()
            .in_set(RuntimeSystems)
            .in_set(IngestTurn::Completions)
            .after(IngestTurn::Health),
    );
    engine.add_systems(Phase::Act, act::act_on_pods.in_set(RuntimeSystems));
}

/// Looks at every pod again each `syncFrequency`: a safety net under the change-driven path.
fn resync(
    clock: Res<Clock>,
    config: Res<NodeConfig>,
    index: Res<components::world::PodIndex>,
    mut timers: ResMut<Timers>,
    mut touched: ResMut<Touched>,
) {
    if timers.node_due(TimerKind::Resync) {
        timers.arm(TimerKind::Resync, Owner::Node, clock.now.mono.after(config.sync_frequency));
        index.by_uid.values().for_each(|pod| touched.add(*pod));
    }
}
