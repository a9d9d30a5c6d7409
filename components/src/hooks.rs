//! Lifecycle of containers: what a spec says of hooks, signals and restarts, and how far an instance's hooks and end
//! have come. The state is written by `systems::runtime`.

use crate::ids::{Sensitive, Ticket};
use crate::spec::RestartPolicy;
use crate::time::Mono;
use std::sync::Arc;

/// What a container's spec says of its life besides the pod's restart policy.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LifecycleSpec {
    /// `lifecycle.postStart`.
    pub post_start: Option<HookAction>,
    /// `lifecycle.preStop`.
    pub pre_stop: Option<HookAction>,
    /// `lifecycle.stopSignal`, as written.
    pub stop_signal: Option<String>,
    /// `restartPolicy` of the container; a sidecar's `Always` is in its kind.
    pub restart_policy: Option<RestartPolicy>,
    /// `restartPolicyRules` in order.
    pub restart_rules: Vec<RestartRule>,
}

/// What a hook does. Ports are resolved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookAction {
    /// `exec.command`.
    Exec(Arc<[Sensitive]>),
    /// `httpGet`.
    Http {
        /// HTTPS.
        tls: bool,
        /// Host to connect to; `None` for the pod's address.
        host: Option<String>,
        /// Port; 0 when it names none.
        port: u16,
        /// Path with query.
        path: String,
        /// Headers as given.
        headers: Vec<(String, Sensitive)>,
    },
    /// `sleep.seconds`.
    Sleep(u32),
    /// A handler that is accepted and always fails, as `tcpSocket`: its name.
    Invalid(&'static str),
}

/// One of `restartPolicyRules`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartRule {
    /// What is done when it fits.
    pub action: RestartAction,
    /// True: fits the exit codes of the list; false: all others.
    pub is_in: bool,
    /// Exit codes.
    pub codes: Vec<i32>,
}

/// What a restart rule does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RestartAction {
    /// Restarts the container.
    Restart,
    /// Restarts every container of the pod, from the first init container on.
    RestartAll,
}

/// Which hook.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HookKind {
    /// After the start.
    PostStart,
    /// Before the stop.
    PreStop,
}

/// A hook of one instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HookRun {
    /// Which.
    pub kind: HookKind,
    /// How far it has come.
    pub state: HookState,
}

/// How far a hook has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HookState {
    /// It is to begin.
    Due,
    /// It runs.
    Running {
        /// Its work; `None` for one that sleeps.
        ticket: Option<Ticket>,
        /// When a sleep ends; for others the end of all patience.
        until: Mono,
    },
    /// It ended well, or nobody waits for it any more.
    Over,
    /// It failed.
    Failed,
}

impl HookState {
    /// True before it has ended.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        matches!(self, Self::Due | Self::Running { .. })
    }
}

/// One instance that is ended while its pod lives on. Once begun it is carried through.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kill {
    /// When it began.
    pub began: Mono,
    /// Its grace period in seconds, hook included.
    pub grace_seconds: u32,
    /// It waits for the containers that end before it, as in a pod that ends as a whole.
    pub in_order: bool,
    /// Why, as a short sentence.
    pub rule: &'static str,
}
