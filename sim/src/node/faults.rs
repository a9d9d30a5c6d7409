//! What goes wrong: faults that a scenario names, and chance within the bounds of a plan.

use crate::rng::Rng;
use components::edge::api::ApiEffect;
use components::edge::cri::CriEffect;
use components::edge::hooks::HooksEffect;
use components::edge::host::HostEffect;
use components::edge::probes::ProbesEffect;
use components::edge::sources::SourcesEffect;
use components::edge::{Effect, FailureClass};
use components::time::Mono;
use std::time::Duration;

/// How one piece of work will go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fate {
    /// From its start to its answer (for a stop: at least).
    pub latency: Duration,
    /// What happens.
    pub end: End,
}

/// How a piece of work ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// As the model says.
    Answered,
    /// Refused without being done.
    Refused(FailureClass, String),
    /// Done, but the answer is a failure.
    DoneButFailed(FailureClass, String),
    /// Done, but no answer comes before the deadline.
    AnswerLost,
    /// Neither done nor answered.
    Lost,
    /// No answer before the deadline, and done this long after it.
    DoneLate(Duration),
}

/// What becomes of a group commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitFate {
    /// Written.
    Written,
    /// Refused by the file system.
    Refused,
    /// The process dies before anything is written.
    CrashBefore,
    /// The process dies right after the records are durable.
    CrashAfter,
}

/// Chances, each in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chances {
    /// Shortest latency.
    pub fast: Duration,
    /// Longest latency of an undisturbed work.
    pub slow: Duration,
    /// A work takes up to ten times the longest latency.
    pub very_slow: u64,
    /// A work is refused.
    pub refused: u64,
    /// A work is done but fails.
    pub done_but_failed: u64,
    /// A work is lost in one of three ways.
    pub lost: u64,
    /// A commit is refused.
    pub commit_refused: u64,
    /// The process dies at a commit.
    pub commit_crash: u64,
    /// An event of the runtime is dropped.
    pub event_lost: u64,
    /// An event of the runtime comes twice.
    pub event_twice: u64,
    /// An event of the runtime comes late and out of order.
    pub event_late: u64,
}

/// A fault that a scenario asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Name of the effect, as [`name`] gives it, or `Commit`.
    pub effect: String,
    /// Part of the target's description; empty for any.
    pub target: String,
    /// How often it still happens.
    pub left: u32,
    /// What happens.
    pub what: PlannedFault,
}

/// Kinds of planned fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlannedFault {
    /// See [`End::Refused`].
    Fail(FailureClass, String),
    /// See [`End::DoneButFailed`].
    FailAfter(FailureClass, String),
    /// See [`End::Lost`].
    Hang,
    /// See [`End::AnswerLost`].
    LoseAnswer,
    /// See [`End::DoneLate`].
    Late(Duration),
    /// Answered after this long.
    Slow(Duration),
    /// The process dies before (false) or after (true) the records are durable.
    Crash(bool),
}

/// All faults of a run.
#[derive(Debug, Clone)]
pub struct Faults {
    rng: Rng,
    /// Chances until [`Self::until`].
    pub chances: Chances,
    /// From then on nothing goes wrong by chance and every latency is the shortest.
    pub until: Mono,
    /// Asked for by name.
    pub planned: Vec<Planned>,
    /// Writes so far: commits, and requests that change something on the API server.
    pub writes: u64,
    /// The process dies at the write of this number, before it or (true) right after it was done.
    pub crash_at: Option<(u64, bool)>,
}

impl Faults {
    /// No faults; every work takes 5 ms.
    #[must_use]
    pub fn none(seed: u64) -> Self {
        let latency = Duration::from_millis(5);
        Self {
            rng: Rng::new(seed),
            chances: Chances { fast: latency, slow: latency, ..Chances::default() },
            until: Mono(0),
            planned: Vec::new(),
            writes: 0,
            crash_at: None,
        }
    }

    /// Counts a write; whether the process dies at it, and then whether after it.
    pub fn write(&mut self) -> Option<bool> {
        let number = self.writes;
        self.writes += 1;
        self.crash_at.filter(|(at, _)| *at == number).map(|(_, after)| after)
    }

    /// How this work goes.
    pub fn fate(&mut self, now: Mono, effect: &Effect, target: &str) -> Fate {
        let quiet = Fate { latency: self.chances.fast, end: End::Answered };
        if let Some(what) = self.take_planned(name(effect), target) {
            return planned_fate(quiet, what);
        }
        let stream = matches!(effect, Effect::Cri(CriEffect::WatchEvents) | Effect::Api(ApiEffect::Watch(_)));
        if now >= self.until || stream {
            return quiet;
        }
        let mut fate = self.drawn();
        if matches!(effect, Effect::Cri(CriEffect::PullImage { .. })) && is_lost(&fate.end) {
            // A pull may take an hour; nobody waits for that here.
            fate.end = End::Refused(FailureClass::Unavailable, "simulated fault".into());
        }
        fate
    }

    /// What becomes of this commit.
    pub fn commit(&mut self, now: Mono) -> CommitFate {
        match self.write() {
            Some(true) => return CommitFate::CrashAfter,
            Some(false) => return CommitFate::CrashBefore,
            None => {}
        }
        match self.take_planned("Commit", "") {
            Some(PlannedFault::Crash(true)) => return CommitFate::CrashAfter,
            Some(PlannedFault::Crash(false)) => return CommitFate::CrashBefore,
            Some(_) => return CommitFate::Refused,
            None => {}
        }
        if now >= self.until {
            CommitFate::Written
        } else if self.rng.chance(self.chances.commit_crash) {
            if self.rng.chance(500) { CommitFate::CrashBefore } else { CommitFate::CrashAfter }
        } else if self.rng.chance(self.chances.commit_refused) {
            CommitFate::Refused
        } else {
            CommitFate::Written
        }
    }

    /// Delays after which an event of the runtime is delivered: none, one or two.
    pub fn event(&mut self, now: Mono) -> Vec<Duration> {
        let soon = Duration::from_millis(1);
        if now >= self.until {
            return vec![soon];
        }
        if self.rng.chance(self.chances.event_lost) {
            return Vec::new();
        }
        let mut delays = vec![soon];
        if self.rng.chance(self.chances.event_late) {
            delays = vec![self.rng.duration(soon, Duration::from_secs(3))];
        }
        if self.rng.chance(self.chances.event_twice) {
            delays.push(self.rng.duration(soon, Duration::from_secs(3)));
        }
        delays
    }

    /// True in `permille` of a thousand cases, while faults go on.
    pub fn chance(&mut self, now: Mono, permille: u64) -> bool {
        now < self.until && self.rng.chance(permille)
    }

    fn take_planned(&mut self, effect: &str, target: &str) -> Option<PlannedFault> {
        let fits = |p: &Planned| p.effect == effect && target.contains(&p.target) && p.left > 0;
        let planned = self.planned.iter_mut().find(|p| fits(p))?;
        planned.left -= 1;
        Some(planned.what.clone())
    }

    fn drawn(&mut self) -> Fate {
        let Chances { fast, slow, .. } = self.chances;
        let latency = if self.rng.chance(self.chances.very_slow) {
            self.rng.duration(slow, slow * 10)
        } else {
            self.rng.duration(fast, slow)
        };
        let classes = [FailureClass::Unavailable, FailureClass::Other, FailureClass::Exhausted];
        let class = self.rng.pick(&classes).copied().unwrap_or(FailureClass::Other);
        let message = || "simulated fault".to_owned();
        let end = if self.rng.chance(self.chances.refused) {
            End::Refused(class, message())
        } else if self.rng.chance(self.chances.done_but_failed) {
            End::DoneButFailed(class, message())
        } else if self.rng.chance(self.chances.lost) {
            match self.rng.below(3) {
                0 => End::AnswerLost,
                1 => End::Lost,
                _ => End::DoneLate(self.rng.duration(Duration::from_millis(1), Duration::from_secs(3))),
            }
        } else {
            End::Answered
        };
        Fate { latency, end }
    }
}

const fn is_lost(end: &End) -> bool {
    matches!(end, End::AnswerLost | End::Lost | End::DoneLate(_))
}

fn planned_fate(quiet: Fate, what: PlannedFault) -> Fate {
    let end = match what {
        PlannedFault::Fail(class, message) => End::Refused(class, message),
        PlannedFault::FailAfter(class, message) => End::DoneButFailed(class, message),
        PlannedFault::Hang | PlannedFault::Crash(_) => End::Lost,
        PlannedFault::LoseAnswer => End::AnswerLost,
        PlannedFault::Late(by) => End::DoneLate(by),
        PlannedFault::Slow(latency) => return Fate { latency, end: End::Answered },
    };
    Fate { end, ..quiet }
}

/// Name of an effect.
#[must_use]
pub const fn name(effect: &Effect) -> &'static str {
    match effect {
        Effect::Cri(call) => match call {
            CriEffect::ReadRuntime => "ReadRuntime",
            CriEffect::ListRuntime => "ListRuntime",
            CriEffect::InspectPod { .. } => "InspectPod",
            CriEffect::RunSandbox { .. } => "RunSandbox",
            CriEffect::StopSandbox { .. } => "StopSandbox",
            CriEffect::RemoveSandbox { .. } => "RemoveSandbox",
            CriEffect::FindImage { .. } => "FindImage",
            CriEffect::ListImages => "ListImages",
            CriEffect::SetPodCidr { .. } => "SetPodCidr",
            CriEffect::PullImage { .. } => "PullImage",
            CriEffect::CreateContainer { .. } => "CreateContainer",
            CriEffect::StartContainer { .. } => "StartContainer",
            CriEffect::StopContainer { .. } => "StopContainer",
            CriEffect::RemoveContainer { .. } => "RemoveContainer",
            CriEffect::ExecSync { .. } => "ExecSync",
            CriEffect::WatchEvents => "WatchEvents",
            CriEffect::ReopenLog { .. } => "ReopenLog",
            CriEffect::UpdateContainer { .. } => "UpdateContainer",
        },
        Effect::Host(change) => match change {
            HostEffect::PreparePod(_) => "PreparePod",
            HostEffect::PrepareContainer(_) => "PrepareContainer",
            HostEffect::CleanPod(_) => "CleanPod",
            HostEffect::LookAtLogs(_) => "LookAtLogs",
            HostEffect::RotateLog(_) => "RotateLog",
            HostEffect::RestoreLog(_) => "RestoreLog",
            HostEffect::RemoveLogs(_) => "RemoveLogs",
            HostEffect::LinkLogs(_) => "LinkLogs",
            HostEffect::CleanLogLinks(_) => "CleanLogLinks",
            HostEffect::LookAtRemains(_) => "LookAtRemains",
            HostEffect::RemoveRemains(_) => "RemoveRemains",
            HostEffect::SetUpVolume(_) => "SetUpVolume",
            HostEffect::SetCgroups(_) => "SetCgroups",
            HostEffect::ReadEnvFiles(_) => "ReadEnvFiles",
            HostEffect::ReadLogins { .. } => "ReadLogins",
            HostEffect::AllowShutdown => "AllowShutdown",
            HostEffect::ReadMemory { .. } => "ReadMemory",
            HostEffect::Identity(effect) => effect.name(),
            HostEffect::PodKeys(effect) => effect.name(),
            HostEffect::RunProvider(_) => "RunProvider",
            HostEffect::Pulls(effect) => super::pulls::name(effect),
        },
        Effect::Hooks(HooksEffect::CallHttp(_)) => "CallHttp",
        Effect::Api(ApiEffect::Request(request) | ApiEffect::Bootstrap(request)) => request.method.as_str(),
        Effect::Api(ApiEffect::Watch(_)) => "WATCH",
        Effect::Sources(read) => match read {
            SourcesEffect::ReadManifests => "ReadManifests",
            SourcesEffect::FetchManifestUrl => "FetchManifestUrl",
        },
        Effect::Probes(attempt) => match attempt {
            ProbesEffect::ProbeHttp(_) => "ProbeHttp",
            ProbesEffect::ProbeTcp(_) => "ProbeTcp",
            ProbesEffect::ProbeGrpc(_) => "ProbeGrpc",
        },
    }
}
