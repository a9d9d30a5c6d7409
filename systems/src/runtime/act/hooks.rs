//! Beginning a hook: a command through the runtime, an HTTP request from the node, or a sleep that is only a timer.

use super::super::hooks;
use super::Pod;
use super::stop::LEAST;
use components::edge::Effect;
use components::edge::cri::{ContainerStatus, CriEffect, PodInspection};
use components::edge::hooks::{HookCall, HooksEffect};
use components::hooks::{HookAction, HookKind, HookRun, HookState};
use components::ids::ContainerId;
use components::time::Mono;
use components::world::Step;
use std::sync::Arc;
use std::time::Duration;

/// Longest postStart hook; upstream sets no bound, but every wait needs one.
pub(super) const PATIENCE: Duration = Duration::from_secs(3600);
/// Bytes of a command's output that are kept for the message of a failed hook.
const OUTPUT: u32 = 1024;

impl Pod<'_, '_> {
    /// Begins a hook; true when it is over already. It gets no more time than until `deadline`.
    pub(super) fn begin_hook(
        &mut self,
        seen: &PodInspection,
        container: &ContainerStatus,
        index: usize,
        kind: HookKind,
        action: &HookAction,
        deadline: Mono,
    ) -> bool {
        let now = self.node.now();
        // What is waited for ends at the deadline; the hook itself goes on for as long as its container does.
        let left = match kind {
            HookKind::PreStop => deadline.after(LEAST).since(now),
            HookKind::PostStart => deadline.since(now),
        };
        let effect = match action {
            HookAction::Sleep(seconds) => {
                let until = now.after(Duration::from_secs(u64::from(*seconds))).min(deadline);
                self.set_hook(&container.id, kind, HookState::Running { ticket: None, until });
                self.wake_at(until);
                return until <= now;
            }
            HookAction::Invalid(name) => {
                self.hook_failed(&container.id, index, kind, &format!("invalid handler: {name}"));
                return true;
            }
            HookAction::Exec(command) => Effect::Cri(CriEffect::ExecSync {
                id: container.id.clone(),
                command: Arc::clone(command),
                timeout_seconds: whole_seconds(left),
                output_limit: OUTPUT,
            }),
            HookAction::Http { tls, host, port, path, headers } => {
                let of_pod = || seen.sandboxes.iter().find(|s| s.id == container.sandbox)?.ips.first().cloned();
                let node = || self.node.site().machine.node_ips.first().cloned();
                let Some(host) = host.clone().or_else(of_pod).or_else(node).filter(|_| *port > 0) else {
                    self.hook_failed(&container.id, index, kind, "no address or port to connect to");
                    return true;
                };
                let call = HookCall { tls: *tls, host, port: *port, path: path.clone(), headers: headers.clone() };
                Effect::Hooks(HooksEffect::CallHttp(Box::new(call)))
            }
        };
        let rule = match kind {
            HookKind::PostStart => "it was started",
            HookKind::PreStop => "it is about to be stopped",
        };
        let step = Step::RunHook(u16::try_from(index).unwrap_or(u16::MAX), container.id.clone(), kind);
        self.emit(step, effect, left, rule);
        let ticket = self.flow.in_flight.last().map(|(ticket, _)| *ticket);
        self.set_hook(&container.id, kind, HookState::Running { ticket, until: deadline });
        self.wake_at(deadline);
        false
    }

    /// Notes how far the hook of an instance has come.
    pub(super) fn set_hook(&mut self, id: &ContainerId, kind: HookKind, state: HookState) {
        self.flow.hooks.insert(id.clone(), HookRun { kind, state });
    }

    fn hook_failed(&mut self, id: &ContainerId, index: usize, kind: HookKind, why: &str) {
        self.flow.last_event = format!("{}: {why}", hooks::event(kind)).into();
        self.set_hook(id, kind, HookState::Failed);
        if kind == HookKind::PostStart
            && let Some(run) = self.runs.get_mut(index)
        {
            run.waiting = Some(("PostStartHookError", why.to_owned()));
            // Its end is decided when the pod is looked at again, at once.
            self.wake_at(self.node.now());
        }
    }
}

/// Whole seconds, rounded up: the runtime's own limit must not be shorter than ours.
fn whole_seconds(time: Duration) -> u32 {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    u32::try_from(whole).unwrap_or(u32::MAX)
}
