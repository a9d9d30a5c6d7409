//! Probes of a pod: what was set, when each is due, what came of it. Written by `systems::probes`.
//!
//! One component per pod holds all its probes side by side, so that a due probe costs one look into one table.

use crate::edge::Effect;
use crate::ids::{ContainerId, Sensitive, Ticket};
use crate::spec::PodSpec;
use crate::time::Mono;
use bevy_ecs::prelude::Component;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a probe is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum ProbeKind {
    /// Has it started? The others wait for it.
    Startup,
    /// Does it serve?
    Readiness,
    /// Is it well, or must it be restarted?
    Liveness,
}

impl ProbeKind {
    /// As metrics and messages spell it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// A compiled probe of the pod spec, defaults applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProbeSpec {
    /// What is done.
    pub action: ProbeAction,
    /// `initialDelaySeconds`.
    pub initial_delay: u32,
    /// `periodSeconds`.
    pub period: u32,
    /// `timeoutSeconds`.
    pub timeout: u32,
    /// `successThreshold`.
    pub successes: u32,
    /// `failureThreshold`.
    pub failures: u32,
    /// `terminationGracePeriodSeconds`.
    pub grace_seconds: Option<u32>,
}

/// What a probe does. Ports are resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProbeAction {
    /// `exec.command`.
    Exec(Arc<[Sensitive]>),
    /// `httpGet`.
    Http {
        /// HTTPS.
        tls: bool,
        /// Host to connect to; `None` for the pod's address.
        host: Option<String>,
        /// Port.
        port: u16,
        /// Path with query.
        path: String,
        /// Headers as given.
        headers: Vec<(String, Sensitive)>,
    },
    /// `tcpSocket`.
    Tcp {
        /// Host to connect to; `None` for the pod's address.
        host: Option<String>,
        /// Port.
        port: u16,
    },
    /// `grpc`.
    Grpc {
        /// Port.
        port: u16,
        /// Service.
        service: String,
    },
}

/// What attempts have led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Verdict {
    /// No threshold was met yet.
    #[default]
    Unknown,
    /// Passed.
    Passed,
    /// Failed.
    Failed,
}

/// All probes of a pod.
#[derive(Component, Clone, Debug, Default)]
pub struct Probes {
    /// By container, then startup, readiness, liveness.
    pub list: Vec<Probe>,
    /// `Desired::version` that the list was made from.
    pub made_from: u64,
}

/// One probe of one container.
#[derive(Clone, Debug)]
pub struct Probe {
    /// What for.
    pub kind: ProbeKind,
    /// Index of the container in the pod spec.
    pub container: u16,
    /// The instance it looks at; `None` while there is none that runs.
    pub target: Option<ContainerId>,
    /// The attempt, made once per instance.
    pub attempt: Option<Effect>,
    /// When the next attempt is due; `None` when none is to come.
    pub due: Option<Mono>,
    /// The attempt under way, since when, and at which instance.
    pub in_flight: Option<(Ticket, Mono, ContainerId)>,
    /// The last result that counted, and how often it came in a row.
    pub run: (bool, u32),
    /// What the thresholds made of it.
    pub verdict: Verdict,
    /// A threshold was met; nothing is asked until there is a new instance.
    pub on_hold: bool,
    /// Why the last failed attempt failed; empty after one that passed.
    pub message: Arc<str>,
    /// Numbers for metrics.
    pub counts: ProbeCounts,
}

/// Upper bounds of the duration histogram in seconds: those of the kubelet's `prober_probe_duration_seconds`.
pub const DURATION_BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// Attempts that ended, by result, and how long they took.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProbeCounts {
    /// Passed.
    pub successful: u64,
    /// Failed.
    pub failed: u64,
    /// Neither: the question could not be asked.
    pub unknown: u64,
    /// Attempts that took no longer than each bound, not cumulative.
    pub buckets: [u64; DURATION_BOUNDS.len()],
    /// Attempts in the histogram.
    pub timed: u64,
    /// Their time together, in seconds.
    pub seconds: f64,
}

impl ProbeCounts {
    /// Adds one time to the histogram.
    pub fn observe(&mut self, seconds: f64) {
        self.timed += 1;
        self.seconds += seconds;
        crate::histogram::count_in(&mut self.buckets, &DURATION_BOUNDS, seconds);
    }
}

/// One probe's numbers, as readers of the snapshot see them.
#[derive(Clone, Debug)]
pub struct ProbeSeries {
    /// Its pod.
    pub spec: Arc<PodSpec>,
    /// Index of its container in the spec.
    pub container: u16,
    /// What for.
    pub kind: ProbeKind,
    /// Numbers.
    pub counts: ProbeCounts,
}

/// What the probes say of one container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContainerHealth {
    /// It has started: no startup probe, or one that passed.
    pub started: bool,
    /// It serves: started, and no readiness probe or one that passed.
    pub ready: bool,
    /// It must be stopped because of this probe.
    pub condemned: Option<ProbeKind>,
}

impl ContainerHealth {
    /// Of a container without probes.
    pub const WELL: Self = Self { started: true, ready: true, condemned: None };
}

impl Probes {
    /// What the probes say of the instance `id` of the container at `index`, given that it runs.
    #[must_use]
    pub fn health(&self, index: usize, id: &ContainerId) -> ContainerHealth {
        let own = self.list.iter().filter(|p| usize::from(p.container) == index);
        own.fold(ContainerHealth::WELL, |mut health, probe| {
            let verdict = if probe.target.as_ref() == Some(id) { probe.verdict } else { Verdict::Unknown };
            match (probe.kind, verdict) {
                (ProbeKind::Startup, Verdict::Passed) | (ProbeKind::Readiness, Verdict::Passed) => {}
                (ProbeKind::Startup, _) => {
                    health.started = false;
                    health.ready = false;
                }
                (ProbeKind::Readiness, _) => health.ready = false,
                (ProbeKind::Liveness, _) => {}
            }
            if verdict == Verdict::Failed && probe.kind != ProbeKind::Readiness && health.condemned.is_none() {
                health.condemned = Some(probe.kind);
            }
            health
        })
    }
}
