//! One short line for a work or an input, for logs, traces and divergence reports. Never holds a secret: only names,
//! ids and counts are shown.

use super::api::{ApiAnswer, ApiEffect, ApiIngress};
use super::control::ControlIngress;
use super::cri::{CriAnswer, CriEffect, CriIngress, SandboxConfig};
use super::hooks::{HooksAnswer, HooksEffect};
use super::host::identity::IdentityAnswer;
use super::host::pulls::{PullsAnswer, PullsEffect};
use super::host::reclaim::RemoveRemains;
use super::host::{HostAnswer, HostEffect};
use super::probes::{ProbesAnswer, ProbesEffect};
use super::sources::{SourcesAnswer, SourcesEffect, SourcesIngress};
use super::store::{Record, StoreIngress};
use super::{Answer, Completion, Effect, Ingress, Outcome, Work};
use std::fmt;

/// Characters of a runtime id that are shown, as crictl does.
const SHORT: usize = 12;

/// The work as one line, for example `CreateContainer default/web/c attempt 1`.
#[must_use]
pub fn label(work: &Work) -> String {
    WorkLabel(work).to_string()
}

/// The input as one line, for example `Completed #12 ContainerCreated 0a1b2c3d4e5f`.
#[must_use]
pub fn input_label(input: &Ingress) -> String {
    InputLabel(input).to_string()
}

/// The first characters of a runtime id.
#[must_use]
pub fn short_id(id: &str) -> &str {
    id.char_indices().nth(SHORT).map_or(id, |(at, _)| &id[..at])
}

/// Prints a work as [`label`] does, without allocating.
#[derive(Clone, Copy, Debug)]
pub struct WorkLabel<'a>(pub &'a Work);

/// Prints an input as [`input_label`] does, without allocating.
#[derive(Clone, Copy, Debug)]
pub struct InputLabel<'a>(pub &'a Ingress);

/// Prints a durable record as one line.
#[derive(Clone, Copy, Debug)]
pub struct RecordLabel<'a>(pub &'a Record);

impl fmt::Display for WorkLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.effect {
            Effect::Cri(effect) => cri_effect(effect, f),
            Effect::Host(effect) => host_effect(effect, f),
            Effect::Sources(SourcesEffect::ReadManifests) => f.write_str("ReadManifests"),
            Effect::Sources(SourcesEffect::FetchManifestUrl) => f.write_str("FetchManifestUrl"),
            Effect::Probes(effect) => probe_effect(effect, f),
            Effect::Hooks(HooksEffect::CallHttp(call)) => write!(f, "CallHttp {}:{}", call.host, call.port),
            Effect::Api(ApiEffect::Request(it)) => write!(f, "{} {}", it.method.as_str(), it.path),
            Effect::Api(ApiEffect::Watch(it)) => write!(f, "WATCH {}", it.path),
            Effect::Api(ApiEffect::Bootstrap(it)) => write!(f, "{} {} to bootstrap", it.method.as_str(), it.path),
        }
    }
}

impl fmt::Display for InputLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ingress::Completed(completion) => completed(completion, f),
            Ingress::Control(ControlIngress::ShutdownAnnounced) => f.write_str("ShutdownAnnounced"),
            Ingress::Control(ControlIngress::ShutdownCancelled) => f.write_str("ShutdownCancelled"),
            Ingress::Control(ControlIngress::DrainRequested { grace_seconds }) => match grace_seconds {
                Some(seconds) => write!(f, "DrainRequested grace at most {seconds}s"),
                None => f.write_str("DrainRequested"),
            },
            Ingress::Cri(CriIngress::EventsOpened) => f.write_str("EventsOpened"),
            Ingress::Cri(CriIngress::EventsClosed { unsupported, message }) => {
                let kind = if *unsupported { " (unsupported)" } else { "" };
                write!(f, "EventsClosed{kind}: {message}")
            }
            Ingress::Cri(CriIngress::ContainerChanged { pod, id, change }) => {
                write!(f, "ContainerChanged {} {change:?}", short_id(id.as_str()))?;
                // Some events carry no pod.
                if pod.as_str().is_empty() { Ok(()) } else { write!(f, " pod {pod}") }
            }
            Ingress::Cri(CriIngress::ObjectStarted { pod, object }) => {
                write!(f, "ObjectStarted {} pod {pod}", short_id(object.id()))
            }
            Ingress::Sources(SourcesIngress::ManifestsTouched) => f.write_str("ManifestsTouched"),
            Ingress::Sources(SourcesIngress::ManifestsRemoved { origins }) => {
                write!(f, "ManifestsRemoved {}", origins.join(" "))
            }
            Ingress::Store(StoreIngress::CommitFailed { records, message }) => {
                write!(f, "CommitFailed of {} records: {message}", records.len())
            }
            Ingress::Api(ApiIngress::WatchOpened { watch }) => write!(f, "WatchOpened #{}", watch.0),
            Ingress::Api(ApiIngress::WatchEvents { watch, events, .. }) => {
                write!(f, "WatchEvents #{} {} events", watch.0, events.len())
            }
        }
    }
}

impl fmt::Display for RecordLabel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Record::PodAdmitted { uid, name, .. } => write!(f, "PodAdmitted {name} uid {uid}"),
            Record::PodFinished { uid, succeeded } => {
                let phase = if *succeeded { "Succeeded" } else { "Failed" };
                write!(f, "PodFinished {phase} uid {uid}")
            }
            Record::PodForgotten { uid } => write!(f, "PodForgotten uid {uid}"),
            Record::PodProbed { uid, ready, .. } => write!(f, "PodProbed ready {ready} uid {uid}"),
            Record::PodEnded { uid, status } => write!(f, "PodEnded {} uid {uid}", status.phase.as_str()),
            Record::PodAllocated { uid, .. } => write!(f, "PodAllocated uid {uid}"),
            Record::PodActuated { uid, .. } => write!(f, "PodActuated uid {uid}"),
        }
    }
}

fn cri_effect(effect: &CriEffect, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match effect {
        CriEffect::ReadRuntime => f.write_str("ReadRuntime"),
        CriEffect::ListRuntime => f.write_str("ListRuntime"),
        CriEffect::WatchEvents => f.write_str("WatchEvents"),
        CriEffect::InspectPod { uid, .. } => write!(f, "InspectPod {uid}"),
        CriEffect::RunSandbox { config, .. } => {
            write!(f, "RunSandbox {} attempt {}", PodName(config), config.attempt)
        }
        CriEffect::StopSandbox { id } => write!(f, "StopSandbox {}", short_id(id.as_str())),
        CriEffect::RemoveSandbox { id } => write!(f, "RemoveSandbox {}", short_id(id.as_str())),
        CriEffect::FindImage { image } => write!(f, "FindImage {image}"),
        CriEffect::PullImage { image, config, .. } => {
            write!(f, "PullImage {image} for {}", PodName(config))
        }
        CriEffect::CreateContainer { config, sandbox_config, .. } => {
            let pod = PodName(sandbox_config);
            let (name, attempt) = (&config.name, config.attempt);
            write!(f, "CreateContainer {pod}/{name} attempt {attempt}")
        }
        CriEffect::StartContainer { id } => write!(f, "StartContainer {}", short_id(id.as_str())),
        CriEffect::StopContainer { id, grace_seconds } => {
            let id = short_id(id.as_str());
            write!(f, "StopContainer {id} grace {grace_seconds}s")
        }
        CriEffect::RemoveContainer { id } => write!(f, "RemoveContainer {}", short_id(id.as_str())),
        CriEffect::UpdateContainer { id, .. } => write!(f, "UpdateContainer {}", short_id(id.as_str())),
        CriEffect::ListImages => f.write_str("ListImages"),
        CriEffect::SetPodCidr { cidr } => write!(f, "SetPodCidr {cidr}"),
        CriEffect::ReopenLog { id } => write!(f, "ReopenLog {}", short_id(id.as_str())),
        CriEffect::ExecSync { id, timeout_seconds, .. } => {
            // Without the command, which may hold a secret.
            write!(f, "ExecSync {} timeout {timeout_seconds}s", short_id(id.as_str()))
        }
    }
}

fn probe_effect(effect: &ProbesEffect, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match effect {
        ProbesEffect::ProbeHttp(to) => write!(f, "ProbeHttp {}:{}", to.host, to.port),
        ProbesEffect::ProbeTcp(to) => write!(f, "ProbeTcp {}:{}", to.host, to.port),
        ProbesEffect::ProbeGrpc(to) => write!(f, "ProbeGrpc {}:{} {}", to.host, to.port, to.service),
    }
}

fn host_effect(effect: &HostEffect, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match effect {
        HostEffect::PreparePod(it) => {
            let (dirs, volumes) = (it.dirs.len(), it.volumes.len());
            write!(f, "PreparePod {dirs} directories {volumes} volumes")
        }
        HostEffect::PrepareContainer(it) => {
            let (dirs, files) = (it.dirs.len(), it.files.len());
            write!(f, "PrepareContainer {dirs} directories {files} files")
        }
        HostEffect::CleanPod(_) => f.write_str("CleanPod"),
        HostEffect::LookAtLogs(it) => write!(f, "LookAtLogs {} files", it.logs.len()),
        HostEffect::RotateLog(it) => write!(f, "RotateLog {} to {}", it.path, it.rename_to),
        HostEffect::RestoreLog(it) => write!(f, "RestoreLog {}", it.path),
        HostEffect::RemoveLogs(it) => write!(f, "RemoveLogs {}", it.path),
        HostEffect::LinkLogs(it) => write!(f, "LinkLogs {} files", it.links.len()),
        HostEffect::CleanLogLinks(_) => f.write_str("CleanLogLinks"),
        HostEffect::LookAtRemains(_) => f.write_str("LookAtRemains"),
        HostEffect::RemoveRemains(it) => match &**it {
            RemoveRemains::PodDir(path) | RemoveRemains::LogDir(path) => write!(f, "RemoveRemains {path}"),
        },
        HostEffect::SetUpVolume(it) => write!(f, "SetUpVolume {}", it.name()),
        HostEffect::SetCgroups(cgroups) => write!(f, "SetCgroups {}", cgroups.len()),
        HostEffect::ReadEnvFiles(keys) => write!(f, "ReadEnvFiles {} values", keys.len()),
        HostEffect::ReadLogins { .. } => f.write_str("ReadLogins"),
        HostEffect::AllowShutdown => f.write_str("AllowShutdown"),
        HostEffect::ReadMemory { containers, .. } => write!(f, "ReadMemory {} containers", containers.len()),
        HostEffect::RunProvider(it) => write!(f, "RunProvider {}", it.program),
        HostEffect::PodKeys(it) => f.write_str(it.name()),
        HostEffect::Identity(it) => write!(f, "{} {}", it.name(), it.store().name),
        HostEffect::Pulls(it) => match &**it {
            PullsEffect::Read { .. } => f.write_str("ReadPullRecords"),
            PullsEffect::WriteIntent { image, .. } => write!(f, "WritePullIntent {image}"),
            PullsEffect::DropIntent { image, .. } => write!(f, "DropPullIntent {image}"),
            PullsEffect::Record(it) => write!(f, "RecordPull {} as {}", it.image_ref, it.name),
            PullsEffect::Compare { image_ref, name, .. } => write!(f, "CompareLogins {image_ref} as {name}"),
            PullsEffect::Prune { image_refs, .. } => write!(f, "PrunePullRecords {}", image_refs.len()),
        },
    }
}

fn completed(completion: &Completion, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "Completed #{} ", completion.ticket.0)?;
    match &completion.outcome {
        Outcome::Done(answer) => done(answer, f),
        Outcome::Failed(failure) => write!(f, "Failed {:?}: {}", failure.class, failure.message),
        Outcome::TimedOut => f.write_str("TimedOut"),
        Outcome::Cancelled => f.write_str("Cancelled"),
    }
}

fn done(answer: &Answer, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match answer {
        Answer::Nothing => f.write_str("Done"),
        Answer::Cri(answer) => cri_answer(answer, f),
        Answer::Host(HostAnswer::PodPrepared { log_attempts }) => {
            write!(f, "PodPrepared {} containers with logs", log_attempts.len())
        }
        Answer::Host(HostAnswer::LogsFound { logs }) => write!(f, "LogsFound {} large or missing", logs.len()),
        Answer::Host(HostAnswer::RemainsFound { pod_dirs, log_dirs }) => {
            write!(f, "RemainsFound {} pod and {} log directories", pod_dirs.len(), log_dirs.len())
        }
        Answer::Host(HostAnswer::PodPreparedInPart { failed, .. }) => {
            write!(f, "PodPrepared without {} volumes", failed.len())
        }
        Answer::Host(HostAnswer::EnvFilesRead(values)) => write!(f, "EnvFilesRead {} values", values.len()),
        Answer::Host(HostAnswer::LoginsRead { logins, problems }) => {
            write!(f, "LoginsRead {} logins {} problems", logins.len(), problems.len())
        }
        Answer::Host(HostAnswer::MemoryRead { containers, .. }) => {
            write!(f, "MemoryRead {} containers", containers.len())
        }
        Answer::Host(HostAnswer::Pulls(it)) => match &**it {
            PullsAnswer::Read { records, intents, .. } => {
                write!(f, "PullRecordsRead {} images {} intents", records.len(), intents.len())
            }
            PullsAnswer::Recorded(image) => write!(f, "PullRecorded {}", image.image_ref),
            PullsAnswer::Compared(it) => write!(f, "LoginsCompared {:?}", it.known),
        },
        Answer::Host(HostAnswer::PodKeyMade { .. }) => f.write_str("PodKeyMade"),
        Answer::Host(HostAnswer::Provided(it)) => write!(f, "Provided {} logins", it.logins.len()),
        Answer::Host(HostAnswer::Identity(it)) => match &**it {
            IdentityAnswer::Found { certificate: None, .. } => f.write_str("CertificateFound none"),
            IdentityAnswer::Found { certificate: Some(it), .. } => {
                write!(f, "CertificateFound until {}", it.not_after.rfc3339())
            }
            IdentityAnswer::Made { name, .. } => write!(f, "CertificateRequestMade {name}"),
            IdentityAnswer::Kept(it) => write!(f, "CertificateKept until {}", it.not_after.rfc3339()),
        },
        Answer::Sources(SourcesAnswer::ManifestsRead { source, manifests, problems }) => {
            let (good, bad) = (manifests.len(), problems.len());
            write!(f, "ManifestsRead {} {good} objects {bad} problems", source.annotation())
        }
        Answer::Sources(SourcesAnswer::ManifestsUnchanged { source }) => {
            write!(f, "ManifestsUnchanged {}", source.annotation())
        }
        Answer::Probes(ProbesAnswer::Passed) => f.write_str("ProbePassed"),
        Answer::Probes(ProbesAnswer::PassedWithWarning { message }) => write!(f, "ProbePassed: {message}"),
        Answer::Probes(ProbesAnswer::NotPassed { message }) => write!(f, "ProbeFailed: {message}"),
        Answer::Hooks(HooksAnswer::Called { status, .. }) => write!(f, "HookCalled status {status}"),
        Answer::Api(ApiAnswer::Answered(it)) => write!(f, "Answered status {} {} bytes", it.status, it.body.len()),
        Answer::Api(ApiAnswer::WatchEnded { message }) => write!(f, "WatchEnded: {message}"),
    }
}

fn cri_answer(answer: &CriAnswer, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match answer {
        CriAnswer::RuntimeRead(info)
        | CriAnswer::RuntimeSeen { info, .. }
        | CriAnswer::RuntimeDescribed { info, .. } => {
            let (name, version) = (&info.name, &info.version);
            let (runtime, network) = (info.runtime_ready, info.network_ready);
            write!(f, "RuntimeRead {name} {version} ready {runtime} network {network}")
        }
        CriAnswer::RuntimeListed(list) => {
            let (sandboxes, containers) = (list.sandboxes.len(), list.containers.len());
            write!(f, "RuntimeListed {sandboxes} sandboxes {containers} containers")
        }
        CriAnswer::PodInspected(pod) | CriAnswer::PodSeen { pod, .. } => {
            let (sandboxes, containers) = (pod.sandboxes.len(), pod.containers.len());
            write!(f, "PodInspected {}/{} ", pod.namespace, pod.name)?;
            write!(f, "{sandboxes} sandboxes {containers} containers")
        }
        CriAnswer::SandboxStarted { id } => write!(f, "SandboxStarted {}", short_id(id.as_str())),
        CriAnswer::ImageFound(Some(image)) => write!(f, "ImageFound {}", image.image_ref),
        CriAnswer::ImageFound(None) => f.write_str("ImageFound none"),
        CriAnswer::ImagePulled { image_ref } => write!(f, "ImagePulled {image_ref}"),
        CriAnswer::ContainerCreated { id } => {
            write!(f, "ContainerCreated {}", short_id(id.as_str()))
        }
        CriAnswer::ImagesListed(images) => write!(f, "ImagesListed {} images", images.len()),
        CriAnswer::Executed { exit_code, .. } => write!(f, "Executed exit {exit_code}"),
    }
}

/// `namespace/name` of a sandbox configuration.
struct PodName<'a>(&'a SandboxConfig);

impl fmt::Display for PodName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.0.namespace, self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::cri::ContainerConfig;
    use crate::edge::{Failure, FailureClass, Lane, Why};
    use crate::ids::{Sensitive, Ticket};
    use std::time::Duration;

    #[track_caller]
    fn check(effect: CriEffect, expect: &str) {
        let work = Work {
            ticket: Ticket(1),
            lane: Lane::Free,
            chained: false,
            timeout: Duration::from_secs(1),
            why: Why { system: "s", rule: "r" },
            effect: Effect::Cri(effect),
        };
        assert_eq!(label(&work), expect);
    }

    #[test]
    fn works_are_named_by_what_they_touch() {
        let sandbox_config =
            Box::new(SandboxConfig { name: "web".into(), namespace: "default".into(), ..SandboxConfig::default() });
        let config = Box::new(ContainerConfig {
            name: "c".into(),
            attempt: 2,
            command: vec![Sensitive::from("hush")],
            ..ContainerConfig::default()
        });
        let create = CriEffect::CreateContainer { sandbox: "s".into(), config, sandbox_config };
        check(create, "CreateContainer default/web/c attempt 2");
        let start = CriEffect::StartContainer { id: "0123456789abcdef".into() };
        check(start, "StartContainer 0123456789ab");
    }

    #[test]
    fn inputs_are_named_by_their_answer() {
        let failed = Ingress::Completed(Completion {
            ticket: Ticket(7),
            outcome: Outcome::Failed(Failure { class: FailureClass::NotFound, message: "no such image".into() }),
        });
        assert_eq!(input_label(&failed), "Completed #7 Failed NotFound: no such image");
    }

    #[test]
    fn ids_are_cut_between_characters() {
        assert_eq!(short_id("äöüäöüäöüäöüäöü"), "äöüäöüäöüäöü");
        assert_eq!(short_id("short"), "short");
    }
}
