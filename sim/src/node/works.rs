//! Works in virtual time: started in their lane, done at some instant, answered at another, or never.

use super::faults::{self, End, Fate};
use super::probes::Meets;
use super::{Event, Node, api, bridge};
use components::edge::api::{ApiEffect, Method};
use components::edge::cri::{CriAnswer, CriEffect, CriIngress};
use components::edge::hooks::{HooksAnswer, HooksEffect};
use components::edge::host::HostEffect;
use components::edge::sources::{Source, SourcesEffect};
use components::edge::{Answer, Completion, Effect, Failure, FailureClass, Ingress, Lane, Outcome, Work};
use components::ids::{ContainerId, Ticket};
use components::time::Mono;
use std::time::Duration;

/// A work that runs.
#[derive(Debug)]
pub(super) struct Flying {
    work: Box<Work>,
    fate: Fate,
    /// What it brought, once it took effect.
    result: Option<Result<Answer, Failure>>,
    /// Version of the source that was read.
    version: u64,
    /// Its answer is due and waits for the container or the command to end.
    waits: bool,
    /// When the command that it runs ends by itself; `None` for never.
    command_ends: Option<Mono>,
}

impl Flying {
    fn stops(&self) -> Option<&ContainerId> {
        match &self.work.effect {
            Effect::Cri(CriEffect::StopContainer { id, .. }) => Some(id),
            _ => None,
        }
    }

    fn execs(&self) -> Option<&ContainerId> {
        match &self.work.effect {
            Effect::Cri(CriEffect::ExecSync { id, .. }) => Some(id),
            _ => None,
        }
    }

    pub(super) fn effect(&self) -> &Effect {
        &self.work.effect
    }

    pub(super) fn bring(&mut self, answer: Answer) {
        self.result = Some(Ok(answer));
    }
}

impl Node {
    pub(super) fn bring(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(flying) = self.flying.get_mut(&ticket) {
            flying.bring(answer);
        }
    }

    pub(super) fn submit(&mut self, work: Work) {
        let moves = self.lanes.push(work);
        self.follow(moves);
    }

    fn follow(&mut self, moves: super::lanes::Moves) {
        for ticket in moves.dismissed {
            self.hand_over(ticket, Outcome::Cancelled);
        }
        if let Some(work) = moves.start {
            self.start(work);
        }
    }

    fn start(&mut self, work: Box<Work>) {
        let target = if self.faults.planned.is_empty() { String::new() } else { self.target(&work) };
        let mut fate = self.faults.fate(self.now, &work.effect, &target);
        if matches!(work.effect, Effect::Cri(_)) && self.now < self.down_until {
            fate.end = End::Refused(FailureClass::Unavailable, "connection refused".into());
        }
        if matches!(work.effect, Effect::Api(_)) && self.api_is_down() {
            let (class, message) = api::refused();
            fate.end = End::Refused(class, message);
        }
        let writes = matches!(&work.effect, Effect::Api(ApiEffect::Request(request)) if request.method != Method::Get);
        if let Some(after) = if writes { self.faults.write() } else { None } {
            let done = if after { fate.latency / 2 } else { Duration::ZERO };
            fate.end = if after { End::AnswerLost } else { End::Lost };
            self.at(self.now.after(done + Duration::from_nanos(1)), Event::Crash);
        }
        let silence = match &work.effect {
            Effect::Probes(effect) => Some(self.meets(effect)),
            Effect::Cri(CriEffect::ExecSync { id, timeout_seconds, .. }) => self.scripted(id, *timeout_seconds),
            _ => None,
        };
        let mut timeout = work.timeout;
        if let Some(Meets::Silence(ended)) = silence
            && fate.end == End::Answered
        {
            fate.end = End::Lost;
            timeout = ended.unwrap_or(timeout);
        }
        self.note(|n| format!("start {}{}", n.describe(&work), fate_text(&fate)));
        let ticket = work.ticket;
        let answered = self.now.after(fate.latency);
        let done = self.now.after(fate.latency / 2);
        let deadline = self.now.after(timeout);
        match fate.end {
            End::Answered | End::DoneButFailed(..) => {
                self.at(done, Event::Apply(ticket));
                self.at(answered, Event::Answer(ticket));
            }
            End::Refused(..) => self.at(answered, Event::Answer(ticket)),
            End::AnswerLost => self.at(done, Event::Apply(ticket)),
            End::Lost => {}
            End::DoneLate(by) => {
                if let Effect::Cri(effect) = &work.effect {
                    self.at(deadline.after(by), Event::Late(Box::new(effect.clone())));
                }
            }
        }
        self.at(deadline, Event::Deadline(ticket));
        self.flying.insert(ticket, Flying { work, fate, result: None, version: 0, waits: false, command_ends: None });
    }

    pub(super) fn apply(&mut self, ticket: Ticket) {
        let Some(mut flying) = self.flying.remove(&ticket) else { return };
        if let Effect::Cri(CriEffect::ExecSync { id, command, .. }) = &flying.work.effect {
            let runs = self.runtime.exec(id, &bridge::plain(command)).ok().and_then(|does| does.runs_for);
            let scripted = self.scripted(id, 0).is_some();
            flying.command_ends = if scripted { Some(self.now) } else { runs.map(|runs| self.now.after(runs)) };
        }
        if matches!(flying.work.effect, Effect::Api(ApiEffect::Watch(_))) {
            self.open_watch(ticket, &mut flying);
            self.flying.insert(ticket, flying);
            return;
        }
        flying.result = Some(self.execute(&flying.work));
        if let Effect::Sources(read) = &flying.work.effect {
            flying.version = self.version(read);
        }
        self.flying.insert(ticket, flying);
        self.settle_runtime();
    }

    fn execute(&mut self, work: &Work) -> Result<Answer, Failure> {
        let now = self.now();
        match &work.effect {
            Effect::Cri(CriEffect::WatchEvents) if !self.options.events => {
                Err(Failure { class: FailureClass::Unimplemented, message: "unknown method GetContainerEvents".into() })
            }
            Effect::Probes(effect) => met(self.meets(effect)),
            Effect::Cri(CriEffect::ExecSync { id, timeout_seconds, .. })
                if let Some(meets) = self.scripted(id, *timeout_seconds) =>
            {
                met(meets)
            }
            Effect::Cri(effect) => {
                self.checks.before_call(&self.runtime, Some(&work.lane), effect, self.now);
                self.checks.check_mounts(&self.host, effect, self.now);
                let result = bridge::call(&mut self.runtime, now, effect);
                if let (CriEffect::StartContainer { id } | CriEffect::ReopenLog { id }, Ok(_)) = (effect, &result) {
                    self.write_log(&id.clone());
                }
                if let (CriEffect::WatchEvents, Ok(_)) = (effect, &result) {
                    self.streams += 1;
                    self.stream = Some(self.streams);
                }
                result
            }
            Effect::Host(effect) => {
                self.checks.before_host(&self.runtime, &work.lane, effect, self.now);
                self.host.clock = self.now;
                let answer = self.host.run(effect).map_err(bridge::failure)?;
                Ok(answer.map_or(Answer::Nothing, Answer::Host))
            }
            Effect::Sources(SourcesEffect::ReadManifests) => Ok(Answer::Sources(self.files.read(Source::File))),
            Effect::Sources(SourcesEffect::FetchManifestUrl) => Ok(Answer::Sources(self.url.read(Source::Http))),
            Effect::Api(ApiEffect::Request(request) | ApiEffect::Bootstrap(request)) => Ok(self.ask_api(request)),
            // Opened apart, see `open_watch`.
            Effect::Api(ApiEffect::Watch(_)) => Ok(Answer::Nothing),
            // Every port of a pod answers.
            Effect::Hooks(HooksEffect::CallHttp(_)) => {
                Ok(Answer::Hooks(HooksAnswer::Called { status: 200, fell_back: false }))
            }
        }
    }

    fn version(&self, read: &SourcesEffect) -> u64 {
        match read {
            SourcesEffect::ReadManifests => self.files.version(),
            SourcesEffect::FetchManifestUrl => self.url.version(),
        }
    }

    fn write_log(&mut self, id: &ContainerId) {
        let Some(container) = self.runtime.containers().get(id) else { return };
        let Some(sandbox) = self.runtime.sandboxes().get(&container.sandbox) else { return };
        let path = format!("{}/{}", sandbox.request.log_directory, container.request.log_path);
        self.host.clock = self.now;
        self.host.logged(&path);
    }

    pub(super) fn answer(&mut self, ticket: Ticket) {
        let Some(flying) = self.flying.get_mut(&ticket) else { return };
        let stops = flying.stops().cloned();
        if flying.fate.end == End::Answered && stops.is_some_and(|id| self.runtime.is_running(&id)) {
            flying.waits = true;
            return;
        }
        if flying.fate.end == End::Answered && self.command_runs(ticket) {
            return;
        }
        let Some(flying) = self.flying.get_mut(&ticket) else { return };
        let outcome = match &flying.fate.end {
            End::Refused(class, message) | End::DoneButFailed(class, message) => {
                Outcome::Failed(Failure { class: *class, message: message.clone() })
            }
            _ => match flying.result.take() {
                Some(Ok(answer)) => Outcome::Done(answer),
                Some(Err(failure)) => Outcome::Failed(failure),
                None => return,
            },
        };
        self.finish(ticket, outcome);
    }

    /// True while a command still runs; one whose container ends is killed with it.
    fn command_runs(&mut self, ticket: Ticket) -> bool {
        let Some(flying) = self.flying.get_mut(&ticket) else { return false };
        let Some(id) = flying.execs().cloned().filter(|_| matches!(flying.result, Some(Ok(_)))) else { return false };
        if !self.runtime.is_running(&id) {
            let killed = CriAnswer::Executed { exit_code: 137, output: String::new() };
            flying.result = Some(Ok(Answer::Cri(killed)));
            return false;
        }
        let ends = flying.command_ends;
        let runs = ends.is_none_or(|at| at > self.now);
        let first = runs && !std::mem::replace(&mut flying.waits, true);
        if let Some(at) = ends.filter(|_| first) {
            self.at(at, Event::Answer(ticket));
        }
        runs
    }

    /// Answers the stops and commands whose container has ended.
    pub(super) fn end_stops(&mut self) {
        let waiting = self.flying.iter().filter(|(_, f)| f.waits);
        let on = |f: &Flying| f.stops().or_else(|| f.execs()).cloned();
        let over = waiting.filter(|(_, f)| on(f).is_some_and(|id| !self.runtime.is_running(&id)));
        let over: Vec<Ticket> = over.map(|(ticket, _)| *ticket).collect();
        for ticket in over {
            self.at(self.now, Event::Answer(ticket));
        }
    }

    pub(super) fn run_out(&mut self, ticket: Ticket) {
        if self.flying.contains_key(&ticket) {
            self.give_up_stop(ticket);
            self.finish(ticket, Outcome::TimedOut);
        }
    }

    pub(super) fn cancel(&mut self, ticket: Ticket) {
        if self.lanes.cancel_waiting(ticket) {
            self.hand_over(ticket, Outcome::Cancelled);
        } else if self.flying.contains_key(&ticket) {
            self.give_up_stop(ticket);
            self.finish(ticket, Outcome::Cancelled);
        }
    }

    /// The runtime stops waiting for a container's end when its caller goes away, and then does not kill it.
    fn give_up_stop(&mut self, ticket: Ticket) {
        let Some(id) = self.flying.get(&ticket).and_then(Flying::stops).cloned() else { return };
        let others = self.flying.iter().any(|(other, f)| *other != ticket && f.waits && f.stops() == Some(&id));
        if !others {
            self.runtime.forget_stop(&id);
        }
    }

    fn finish(&mut self, ticket: Ticket, outcome: Outcome) {
        let Some(flying) = self.flying.remove(&ticket) else { return };
        self.watches.remove(&ticket);
        let done = matches!(outcome, Outcome::Done(_));
        if let (Outcome::Done(_), Effect::Sources(read)) = (&outcome, &flying.work.effect) {
            match read {
                SourcesEffect::ReadManifests => self.files.delivered(flying.version),
                SourcesEffect::FetchManifestUrl => self.url.delivered(flying.version),
            }
        }
        let opened = done && matches!(flying.work.effect, Effect::Cri(CriEffect::WatchEvents));
        self.note(|n| format!("end {} {}", n.describe(&flying.work), outcome_text(&outcome)));
        self.hand_over(ticket, outcome);
        if opened && self.stream.is_some() {
            self.at(self.now, Event::Fact(self.boots, Ingress::Cri(CriIngress::EventsOpened)));
        }
        if flying.work.lane != Lane::Free {
            let moves = self.lanes.finish(&flying.work.lane, ticket, done);
            self.follow(moves);
        }
    }

    fn hand_over(&mut self, ticket: Ticket, outcome: Outcome) {
        // Through the queue, so that a batch is complete before the tick that reads it.
        let fact = Ingress::Completed(Completion { ticket, outcome });
        self.at(self.now, Event::Fact(self.boots, fact));
    }

    /// The agent is gone; the runtime may still do what it was asked for.
    pub(super) fn abandon(&mut self, flying: Flying) {
        if let Some(id) = flying.stops() {
            self.runtime.forget_stop(id);
        }
        let pending = flying.result.is_none() && !matches!(flying.fate.end, End::Refused(..) | End::Lost);
        if let Effect::Cri(effect) = flying.work.effect
            && pending
            && self.faults.chance(self.now, 500)
        {
            self.at(self.now.after(Duration::from_millis(1)), Event::Late(Box::new(effect)));
        }
    }

    /// The runtime went down: every call under way fails.
    pub(super) fn fail_calls(&mut self) {
        let cri = self.flying.iter_mut().filter(|(_, f)| matches!(f.work.effect, Effect::Cri(_)));
        let mut failed = Vec::new();
        for (ticket, flying) in cri {
            let message = "transport is closing".to_owned();
            flying.fate.end = if flying.result.is_some() {
                End::DoneButFailed(FailureClass::Unavailable, message)
            } else {
                End::Refused(FailureClass::Unavailable, message)
            };
            failed.push(*ticket);
        }
        for ticket in failed {
            self.give_up_stop(ticket);
            self.answer(ticket);
        }
    }

    /// The API server went away: every request under way fails, done or not.
    pub(super) fn fail_requests(&mut self) {
        let requests = self
            .flying
            .iter_mut()
            .filter(|(_, f)| matches!(f.work.effect, Effect::Api(ApiEffect::Request(_) | ApiEffect::Bootstrap(_))));
        let mut failed = Vec::new();
        for (ticket, flying) in requests {
            let (class, message) = api::refused();
            let done = flying.result.is_some();
            flying.fate.end = if done { End::DoneButFailed(class, message) } else { End::Refused(class, message) };
            failed.push(*ticket);
        }
        for ticket in failed {
            self.answer(ticket);
        }
    }

    // === texts ===

    fn target(&self, work: &Work) -> String {
        match &work.effect {
            Effect::Cri(effect) => self.target_of_call(effect),
            Effect::Host(change) => match logs_of(change) {
                Some((namespace, pod, container)) => format!("{}/{container}", self.pod_name(&namespace, &pod)),
                None => self.lane_name(&work.lane),
            },
            Effect::Hooks(_) => self.lane_name(&work.lane),
            Effect::Api(call) => call.path().split('?').next().unwrap_or_default().to_owned(),
            Effect::Sources(_) => String::new(),
            Effect::Probes(effect) => self.probe_target(effect),
        }
    }

    pub(super) fn target_of_call(&self, effect: &CriEffect) -> String {
        let of_sandbox = |id| {
            let sandbox = self.runtime.sandboxes().get(id);
            sandbox.map_or_else(|| "gone".to_owned(), |s| self.pod_name(&s.request.namespace, &s.request.name))
        };
        match effect {
            CriEffect::ReadRuntime
            | CriEffect::ListRuntime
            | CriEffect::ListImages
            | CriEffect::SetPodCidr { .. }
            | CriEffect::WatchEvents => String::new(),
            CriEffect::InspectPod { uid, .. } => self.name_of(uid),
            CriEffect::RunSandbox { config, .. } => self.pod_name(&config.namespace, &config.name),
            CriEffect::StopSandbox { id } | CriEffect::RemoveSandbox { id } => of_sandbox(id),
            CriEffect::FindImage { image } => image.clone(),
            CriEffect::PullImage { image, config, .. } => {
                format!("{} {image}", self.pod_name(&config.namespace, &config.name))
            }
            CriEffect::CreateContainer { sandbox, config, .. } => format!("{}/{}", of_sandbox(sandbox), config.name),
            CriEffect::StartContainer { id }
            | CriEffect::ExecSync { id, .. }
            | CriEffect::StopContainer { id, .. }
            | CriEffect::RemoveContainer { id }
            | CriEffect::UpdateContainer { id, .. }
            | CriEffect::ReopenLog { id } => {
                let container = self.runtime.containers().get(id);
                container
                    .map_or_else(|| "gone".to_owned(), |c| format!("{}/{}", of_sandbox(&c.sandbox), c.request.name))
            }
        }
    }

    fn lane_name(&self, lane: &Lane) -> String {
        match lane {
            Lane::Free => String::new(),
            Lane::Pod { uid, .. } => self.name_of(uid),
        }
    }

    fn describe(&self, work: &Work) -> String {
        format!("{} {}", faults::name(&work.effect), self.target(work)).trim_end().to_owned()
    }

    pub(super) fn describe_cri(&self, effect: &CriEffect) -> String {
        let wrapped = Effect::Cri(effect.clone());
        format!("{} {}", faults::name(&wrapped), self.target_of_call(effect))
    }

    /// When the next thing happens, for messages.
    #[must_use]
    pub fn next_event(&self) -> Option<Mono> {
        self.events.keys().next().map(|(at, _)| *at)
    }
}

/// What a probe meets, when it is asked at all; a target that fell silent in between fails.
fn met(meets: Meets) -> Result<Answer, Failure> {
    match meets {
        Meets::Answer(answer) => answer,
        Meets::Silence(_) => Err(Failure { class: FailureClass::Unavailable, message: "fell silent".into() }),
    }
}

/// Namespace, pod and container of the log that is changed.
fn logs_of(change: &HostEffect) -> Option<(String, String, String)> {
    let path = match change {
        HostEffect::RotateLog(it) => &it.path,
        HostEffect::RestoreLog(it) => &it.path,
        HostEffect::RemoveLogs(it) => &it.path,
        _ => return None,
    };
    let mut parts = path.rsplit('/').skip(1);
    let (container, pod) = (parts.next()?, parts.next()?);
    let mut pod = pod.split('_');
    Some((pod.next()?.to_owned(), pod.next()?.to_owned(), container.to_owned()))
}

fn fate_text(fate: &Fate) -> String {
    match &fate.end {
        End::Answered => String::new(),
        end => format!(" [{end:?}]"),
    }
}

fn outcome_text(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(_) => "done".into(),
        Outcome::Failed(failure) => format!("failed: {}", failure.message),
        Outcome::TimedOut => "timed out".into(),
        Outcome::Cancelled => "cancelled".into(),
    }
}
