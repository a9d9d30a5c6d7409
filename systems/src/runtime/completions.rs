//! What came of the works under way: results become components of the pod or container that asked.

use super::{backoff, hooks, pullerror};
use crate::planted;
use bevy_ecs::prelude::*;
use components::edge::cri::{ContainerState, CriAnswer};
use components::edge::host::HostAnswer;
use components::edge::host::pulls::{Compared, PullsAnswer};
use components::edge::{Answer, FailureClass, Outcome};
use components::hooks::{HookKind, HookRun, HookState};
use components::ids::{ContainerId, Ticket};
use components::planted::{Bug, Planted};
use components::resize::Size;
use components::time::Mono;
use components::world::{
    ContainerRun, Desired, Flow, InspectRequests, Observed, PodContainers, PodLimits, Progress, Step,
};
use engine::{Clock, Inbox, Owner, TimerKind, Timers, Touched};
use std::sync::Arc;
use std::time::Duration;

/// Wait after an error of one container that is no back-off of its own (contract 7: pod sync error back-off).
const CONTAINER_RETRY: Duration = Duration::from_secs(10);
/// Longest wait after errors of a pod as a whole.
const POD_RETRY_MAX: Duration = Duration::from_secs(10);

pub(super) fn take_completions(
    clock: Res<Clock>,
    inbox: Res<Inbox>,
    mut pods: Query<(&mut Flow, &Desired, &Observed, Option<&PodContainers>)>,
    mut runs: Query<&mut ContainerRun>,
    mut requests: ResMut<InspectRequests>,
    mut timers: ResMut<Timers>,
    mut touched: ResMut<Touched>,
    planted: Option<Res<Planted>>,
) {
    let any = planted::is(&planted, Bug::StaleCompletionAccepted);
    for arrived in &inbox.completions {
        let Owner::Pod(pod) = arrived.owner else { continue };
        let Ok((mut flow, desired, observed, containers)) = pods.get_mut(pod) else { continue };
        let Some(at) = flow.in_flight.iter().position(|(ticket, _)| any || *ticket == arrived.ticket) else { continue };
        let (_, step) = flow.in_flight.remove(at);
        touched.add(pod);
        let now = clock.now.mono;
        let index = container_of(&step);
        let run = index.and_then(|i| containers.and_then(|c| c.entities().get(usize::from(i)).copied()));
        let mut run = run.and_then(|entity| runs.get_mut(entity).ok());
        let spec = index.and_then(|i| desired.spec.as_ref()?.containers.get(usize::from(i)));
        let version = observed.version;
        let image = spec.map_or_else(|| "".into(), |container| Arc::clone(&container.image));
        let mut taken = Taken { flow: &mut flow, now, version, index, image, inspect: None, wake: None };
        match (run.as_deref_mut(), &step) {
            (run, Step::RunHook(_, id, kind)) => taken.hook(run, id, *kind, arrived.ticket, &arrived.outcome),
            (Some(run), _) => {
                let name = spec.map_or("", |c| &*c.name);
                taken.container(run, &step, &arrived.outcome, observed, name);
                taken.started(&step, &arrived.outcome, spec.is_some_and(|c| c.lifecycle.post_start.is_some()));
            }
            (None, _) => taken.pod(&step, &arrived.outcome),
        }
        let (inspect, wake) = (taken.inspect, taken.wake);
        match inspect {
            None => {}
            Some(Look::All) => requests.look(pod),
            Some(Look::List) => requests.list(pod),
            Some(Look::SandboxStarted(id)) => requests.sandbox_started(pod, id),
            Some(Look::ContainerStarted(id)) if shows_started(observed, &id) => {}
            Some(Look::ContainerStarted(id)) => requests.container_started(pod, id),
        }
        if let Some(at) = wake {
            timers.arm_no_later(TimerKind::Pod, Owner::Pod(pod), at);
        }
    }
}

const fn container_of(step: &Step) -> Option<u16> {
    match step {
        Step::FindImage(i)
        | Step::WriteIntent(i)
        | Step::CompareLogins(i)
        | Step::PullImage(i)
        | Step::PrepareContainer(i)
        | Step::ReadEnvFiles(i)
        | Step::CreateContainer(i)
        | Step::StartContainer(i, _)
        | Step::UpdateContainer(i, ..)
        | Step::RunHook(i, ..) => Some(*i),
        _ => None,
    }
}

/// How to look at a pod again.
enum Look {
    /// At everything that is known.
    All,
    /// List its objects anew.
    List,
    /// At everything; this sandbox has started.
    SandboxStarted(Arc<str>),
    /// At its containers; this one has started.
    ContainerStarted(Arc<str>),
}

impl Look {
    const fn list_if(uncertain: bool) -> Self {
        if uncertain { Self::List } else { Self::All }
    }
}

/// True when the start of this container is seen, or will be by the inspection under way.
fn shows_started(observed: &Observed, id: &str) -> bool {
    let started = |state| matches!(state, ContainerState::Running | ContainerState::Exited);
    let seen = observed.settled().is_some_and(|s| s.containers.iter().any(|c| c.id.as_str() == id && started(c.state)));
    seen || observed.will_show_started(id)
}

/// What one completion does to a pod.
struct Taken<'a> {
    flow: &'a mut Flow,
    now: Mono,
    /// Version of the pod's last inspection.
    version: u64,
    /// The container it is about, where it is about one.
    index: Option<u16>,
    /// That container's image, as its spec names it.
    image: Arc<str>,
    /// Look at the pod again.
    inspect: Option<Look>,
    /// Look at the pod again at this time.
    wake: Option<Mono>,
}

/// Text of an outcome that is not `Done`.
fn trouble(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Failed(failure) => failure.message.clone(),
        Outcome::TimedOut => "context deadline exceeded".to_owned(),
        Outcome::Cancelled => "cancelled".to_owned(),
        Outcome::Done(_) => "unexpected answer".to_owned(),
    }
}

/// The same without the frame `rpc error: code = C desc = `, as container statuses show it.
fn said(outcome: &Outcome) -> String {
    let text = trouble(outcome);
    let inner = text.strip_prefix("rpc error: code = ").and_then(|rest| rest.split_once(" desc = "));
    inner.map_or_else(|| text.clone(), |(_, said)| said.to_owned())
}

/// True when the work may have had its effect although we were not told so.
const fn uncertain(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(_) => false,
        Outcome::TimedOut | Outcome::Cancelled => true,
        Outcome::Failed(failure) => {
            matches!(failure.class, FailureClass::Unavailable | FailureClass::Garbage | FailureClass::Other)
        }
    }
}

impl Taken<'_> {
    fn pod(&mut self, step: &Step, outcome: &Outcome) {
        let done = matches!(outcome, Outcome::Done(_));
        match (step, outcome) {
            (Step::PreparePod, Outcome::Done(Answer::Host(HostAnswer::PodPrepared { log_attempts }))) => {
                self.flow.prepared = true;
                self.flow.log_attempts.clone_from(log_attempts);
                self.recovered();
            }
            // The volumes that are missing are tried again on their own.
            (
                Step::PreparePod,
                Outcome::Done(Answer::Host(HostAnswer::PodPreparedInPart { log_attempts, failed: _ })),
            ) => {
                self.flow.prepared = true;
                self.flow.log_attempts.clone_from(log_attempts);
                self.recovered();
            }
            (Step::LimitPod(part), _) if done => self.limited(*part),
            (Step::ReadMemory, Outcome::Done(Answer::Host(HostAnswer::MemoryRead { pod, containers }))) => {
                self.flow.resize.get_or_insert_default().memory = Some((*pod, containers.clone()));
            }
            (Step::LimitPod(_) | Step::ReadMemory, _) => self.not_resized(outcome),
            // The volumes domain takes these.
            (
                Step::SetUpVolume(_) | Step::FindVolumeImage(_) | Step::WriteVolumeIntent(_) | Step::PullVolumeImage(_),
                _,
            ) => {}
            (Step::PreparePod, _) => self.failed("FailedMount", outcome),
            (Step::RunSandbox, Outcome::Done(Answer::Cri(CriAnswer::SandboxStarted { id }))) => {
                self.flow.new_sandboxes.push(id.clone());
                self.flow.new_since = self.version;
                self.recovered();
                self.inspect = Some(Look::SandboxStarted(Arc::clone(&id.0)));
            }
            (Step::RunSandbox, _) => {
                self.failed("FailedCreatePodSandBox", outcome);
                self.inspect = Some(Look::list_if(uncertain(outcome)));
            }
            (Step::StopSandbox(id), _) if done => {
                self.flow.stopped_sandboxes.insert(id.clone());
                self.recovered();
                self.inspect = Some(Look::All);
            }
            (Step::RemoveSandbox(_) | Step::RemoveContainer(_) | Step::StopContainer(_), _) if done => {
                self.recovered();
                self.inspect = Some(Look::All);
            }
            (Step::CleanPod(all), _) if done => {
                self.flow.cleaned = true;
                self.flow.buried |= *all;
                self.flow.prepared = false;
                self.recovered();
            }
            // Another one with less time took its place.
            (Step::StopContainer(_), _) if self.flow.in_flight.iter().any(|(_, other)| other == step) => {}
            (Step::StopContainer(id), _) => {
                self.flow.stopping.remove(id);
                self.failed("FailedKillPod", outcome);
                self.inspect = Some(Look::All);
            }
            (Step::CleanPod(_), _) => self.failed("FailedCleanUp", outcome),
            (Step::RemoveLogs(_), _) if done => {}
            (Step::RemoveLogs(_), _) => self.failed("FailedRemoveLogs", outcome),
            // Its logs could not be removed, which was told.
            (Step::RemoveContainer(_), Outcome::Cancelled) => self.inspect = Some(Look::All),
            _ => {
                self.failed("FailedKillPod", outcome);
                self.inspect = Some(Look::All);
            }
        }
    }

    fn recovered(&mut self) {
        self.flow.failures = 0;
        self.flow.retry_at = None;
        self.flow.error = None;
    }

    fn failed(&mut self, reason: &'static str, outcome: &Outcome) {
        let text = trouble(outcome);
        if self.flow.error.as_ref().is_none_or(|(r, t)| *r != reason || *t != text) {
            tracing::warn!(reason, error = %text, "Pod could not be brought forward");
        }
        self.flow.last_event = format!("{reason}: {text}").into();
        match reason {
            "FailedCreatePodSandBox" => {
                self.flow.events.warning(reason, format!("Failed to create pod sandbox: {text}"), None);
            }
            "FailedKillPod" => self.flow.events.warning(reason, format!("error killing pod: {text}"), None),
            "FailedMount" => self.flow.events.warning(reason, text.clone(), None),
            _ => {}
        }
        self.flow.error = Some((reason, text));
        let wait = Duration::from_secs(1 << self.flow.failures.min(4)).min(POD_RETRY_MAX);
        self.flow.failures = self.flow.failures.saturating_add(1);
        let at = self.now.after(wait);
        self.flow.retry_at = Some(at);
        self.wake = Some(at);
    }

    fn container(&mut self, run: &mut ContainerRun, step: &Step, outcome: &Outcome, observed: &Observed, name: &str) {
        match (step, outcome) {
            (Step::FindImage(_) | Step::WriteIntent(_) | Step::CompareLogins(_) | Step::PullImage(_), _) => {
                self.image(run, step, outcome, name);
            }
            (Step::ReadEnvFiles(_), Outcome::Done(Answer::Host(HostAnswer::EnvFilesRead(values)))) => {
                run.env_files = Some(values.clone());
            }
            (Step::ReadEnvFiles(_), _) => self.put_off(run, "CreateContainerConfigError", trouble(outcome)),
            // The chained creation is answered too; it tells.
            (Step::PrepareContainer(_), Outcome::Done(_)) => {}
            (Step::PrepareContainer(_), _) => self.put_off(run, "CreateContainerConfigError", trouble(outcome)),
            (Step::CreateContainer(_), Outcome::Done(Answer::Cri(CriAnswer::ContainerCreated { id }))) => {
                if let Some(sandbox) = observed.inspection.as_ref().and_then(|i| i.sandboxes.first()) {
                    self.flow.new_containers.push((id.clone(), sandbox.id.clone()));
                    self.flow.new_since = self.version;
                }
                run.progress = Progress::Created(id.clone());
                self.flow.events.normal("Created", "Container created", self.index);
            }
            (Step::CreateContainer(_), Outcome::Cancelled) => {
                // Its preparation failed and has said why, or its tick was not made durable.
                run.progress = Progress::Idle;
                self.wake = Some(self.now.after(Duration::from_secs(1)));
            }
            (Step::CreateContainer(_), _) => {
                self.put_off(run, "CreateContainerError", said(outcome));
                self.inspect = Some(Look::list_if(uncertain(outcome)));
            }
            (Step::StartContainer(_, id), Outcome::Done(_)) => {
                run.progress = Progress::Idle;
                run.image = None;
                run.waiting = None;
                self.wrote_log(name, run.attempt);
                self.flow.events.normal("Started", "Container started", self.index);
                self.note("Started container", name);
                self.inspect = Some(Look::ContainerStarted(Arc::clone(&id.0)));
            }
            (Step::UpdateContainer(_, _, size), _) => self.updated(run, *size, outcome),
            (Step::StartContainer(_, _), _) => {
                self.put_off(run, "RunContainerError", said(outcome));
                self.inspect = Some(Look::All);
            }
            _ => {}
        }
    }

    /// A step on the way to a container's image.
    fn image(&mut self, run: &mut ContainerRun, step: &Step, outcome: &Outcome, name: &str) {
        match (step, outcome) {
            (Step::FindImage(_), Outcome::Done(Answer::Cri(CriAnswer::ImageFound(found)))) => match found {
                Some(image) => {
                    let pulled = run.progress == Progress::ImagePulled;
                    run.image = Some(image.clone());
                    run.compared = None;
                    run.progress = if pulled { Progress::ImageReady } else { Progress::ImageFound };
                }
                None => run.progress = Progress::ImageAbsent,
            },
            (Step::FindImage(_), _) => self.put_off(run, "ImageInspectError", trouble(outcome)),
            (Step::PullImage(_), Outcome::Done(Answer::Cri(CriAnswer::ImagePulled { .. }))) => {
                run.pull_backoff = components::world::Backoff::default();
                run.pull = components::registry::PullTries::default();
                run.progress = Progress::ImagePulled;
                let text = format!("Successfully pulled image \"{}\"", self.image);
                self.flow.events.normal("Pulled", text, self.index);
                self.note("Pulled image", name);
            }
            (Step::WriteIntent(_), Outcome::Done(_)) => {}
            // Its pull is answered too.
            (Step::WriteIntent(_), _) => {
                let image = &self.image;
                let why = trouble(outcome);
                let text = pullerror::not_noted(image, &why);
                self.put_off(run, "ErrImagePull", text);
            }
            (Step::CompareLogins(_), Outcome::Done(Answer::Host(HostAnswer::Pulls(answer)))) => {
                if let PullsAnswer::Compared(compared) = &**answer {
                    run.compared = Some(*compared);
                }
            }
            // What cannot be compared is not known.
            (Step::CompareLogins(_), _) => run.compared = Some(Compared::default()),
            (Step::PullImage(_), Outcome::Cancelled) => run.progress = Progress::Idle,
            // The next login is tried.
            (Step::PullImage(_), _) if run.pull.refused(trouble(outcome)) => run.progress = Progress::ImageMissing,
            (Step::PullImage(_), _) => {
                let said = run.pull.end();
                self.pull_failed(run, &said);
            }
            _ => {}
        }
    }

    /// The pod's cgroup has these limits.
    fn limited(&mut self, part: PodLimits) {
        let has = &mut self.flow.limits;
        has.shares = part.shares.or(has.shares);
        has.quota = part.quota.or(has.quota);
        has.memory = part.memory.or(has.memory);
    }

    /// A container was to get another size.
    fn updated(&mut self, run: &mut ContainerRun, size: Size, outcome: &Outcome) {
        self.inspect = Some(Look::All);
        if matches!(outcome, Outcome::Done(_)) {
            run.size = Some(size);
            self.flow.resize.get_or_insert_default().unrecorded = true;
        } else {
            self.not_resized(outcome);
        }
    }

    /// A step of a resize failed: it is tried again after a while.
    fn not_resized(&mut self, outcome: &Outcome) {
        let at = self.now.after(CONTAINER_RETRY);
        let resize = self.flow.resize.get_or_insert_default();
        // One that was cut off says nothing of the resize.
        if !matches!(outcome, Outcome::Cancelled) {
            resize.error = Some(trouble(outcome));
        }
        resize.checked = false;
        resize.retry_at = Some(at);
        self.wake = Some(at);
    }

    /// A started instance has a log of its number: should all be removed from the runtime, the count goes on from it.
    fn wrote_log(&mut self, name: &str, attempt: u32) {
        match self.flow.log_attempts.iter_mut().find(|(known, _)| **known == *name) {
            Some((_, highest)) => *highest = (*highest).max(attempt),
            None => self.flow.log_attempts.push((name.into(), attempt)),
        }
    }

    /// An instance was started: the hook that follows is due.
    fn started(&mut self, step: &Step, outcome: &Outcome, hooked: bool) {
        if let (Step::StartContainer(_, id), Outcome::Done(_), true) = (step, outcome, hooked) {
            let run = HookRun { kind: HookKind::PostStart, state: HookState::Due };
            self.flow.hooks.insert(id.clone(), run);
        }
    }

    /// A hook ended. One whose instance has ended, or that nobody waits for any more, changes nothing.
    fn hook(
        &mut self,
        run: Option<&mut ContainerRun>,
        id: &ContainerId,
        kind: HookKind,
        ticket: Ticket,
        outcome: &Outcome,
    ) {
        let Some(hook) = self.flow.hooks.get_mut(id) else { return };
        if hook.kind != kind || !matches!(hook.state, HookState::Running { ticket: Some(t), .. } if t == ticket) {
            return;
        }
        let Some(why) = hooks::trouble(outcome) else {
            hook.state = HookState::Over;
            return;
        };
        hook.state = HookState::Failed;
        self.flow.last_event = format!("{}: {why}", hooks::event(kind)).into();
        self.flow.events.warning(hooks::event(kind), hooks::told(kind), self.index);
        if let Some(run) = run.filter(|_| kind == HookKind::PostStart) {
            run.waiting = Some(("PostStartHookError", why));
        }
    }

    fn note(&mut self, what: &str, name: &str) {
        self.flow.last_event = format!("{what} {name}").into();
    }

    /// A container's attempt failed: start over after a while.
    fn put_off(&mut self, run: &mut ContainerRun, reason: &'static str, message: String) {
        self.flow.last_event = format!("{reason}: {message}").into();
        if reason == "ImageInspectError" {
            let text = format!("Failed to inspect image \"{}\": {message}", self.image);
            self.flow.events.warning("InspectFailed", text, self.index);
        }
        let said = if reason == "ImageInspectError" { reason } else { &message };
        self.flow.events.warning("Failed", format!("Error: {said}"), self.index);
        run.waiting = Some((reason, message));
        run.progress = Progress::Idle;
        run.image = None;
        let at = self.now.after(CONTAINER_RETRY);
        run.retry_at = Some(at);
        self.wake = Some(at);
    }

    fn pull_failed(&mut self, run: &mut ContainerRun, said: &str) {
        backoff::fail(&mut run.pull_backoff, self.now, backoff::PULL_MAX);
        let (reason, message) = pullerror::of(&self.image, said);
        run.pull_error = format!("{reason}: {message}");
        self.flow.last_event = run.pull_error.as_str().into();
        let text = format!("Failed to pull image \"{}\": {}", self.image, pullerror::words(said));
        self.flow.events.warning("Failed", text, self.index);
        self.flow.events.warning("Failed", format!("Error: {reason}"), self.index);
        run.waiting = Some((reason, message));
        run.progress = Progress::Idle;
        run.image = None;
        self.wake = run.pull_backoff.until;
    }
}
