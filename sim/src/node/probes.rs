//! What probes meet: a target passes while something of its pod runs, unless a script says otherwise.
//!
//! Targets are `web/c` for commands in a container and `web:8080` for a port of a pod. A command does what it says, as
//! far as the model understands it.

use super::Node;
use components::edge::cri::{CriAnswer, CriEffect};
use components::edge::probes::{ProbesAnswer, ProbesEffect};
use components::edge::{Answer, Failure, FailureClass};
use components::ids::ContainerId;
use std::collections::BTreeMap;
use std::time::Duration;

/// How a target answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Well.
    Pass,
    /// Badly.
    Fail,
    /// Not at all.
    Hang,
}

/// Moods by target; others pass.
#[derive(Debug, Clone, Default)]
pub struct Moods(pub BTreeMap<String, Mood>);

impl Moods {
    fn of(&self, target: &str) -> Option<Mood> {
        self.0.get(target).copied()
    }
}

/// What a probe will meet.
#[derive(Debug)]
pub(super) enum Meets {
    /// An answer.
    Answer(Result<Answer, Failure>),
    /// Nothing; the runtime ends it after this time, if there is one.
    Silence(Option<Duration>),
}

impl Node {
    /// What a probe over the network meets now.
    pub(super) fn meets(&self, effect: &ProbesEffect) -> Meets {
        let mood = self.moods.of(&self.probe_target(effect)).unwrap_or(Mood::Pass);
        let refused = || ProbesAnswer::NotPassed { message: "connect: connection refused".into() };
        let answer = match mood {
            Mood::Hang => return Meets::Silence(None),
            Mood::Fail => ProbesAnswer::NotPassed { message: "HTTP probe failed with statuscode: 503".into() },
            Mood::Pass if self.listens(effect) => ProbesAnswer::Passed,
            Mood::Pass => refused(),
        };
        Meets::Answer(Ok(Answer::Probes(answer)))
    }

    /// What a command meets now, if a script says so.
    pub(super) fn scripted(&self, id: &ContainerId, timeout: u32) -> Option<Meets> {
        let exit_code = match self.moods.of(&self.target_of_container(id))? {
            Mood::Hang => return Some(Meets::Silence(Some(Duration::from_secs(u64::from(timeout))))),
            Mood::Pass => 0,
            Mood::Fail => 1,
        };
        if !self.runtime.is_running(id) {
            let message = format!("container {id} is not running");
            return Some(Meets::Answer(Err(Failure { class: FailureClass::NotFound, message })));
        }
        Some(Meets::Answer(Ok(Answer::Cri(CriAnswer::Executed { exit_code, output: String::new() }))))
    }

    /// The target of a probe over the network.
    pub(super) fn probe_target(&self, effect: &ProbesEffect) -> String {
        let (host, port) = address(effect);
        let sandbox = self.runtime.sandboxes().values().find(|s| s.ip() == host);
        let pod = sandbox.map_or_else(|| host.to_owned(), |s| self.pod_name(&s.request.namespace, &s.request.name));
        format!("{pod}:{port}")
    }

    /// The target of a command.
    pub(super) fn target_of_container(&self, id: &ContainerId) -> String {
        self.target_of_call(&CriEffect::StartContainer { id: id.clone() })
    }

    fn listens(&self, effect: &ProbesEffect) -> bool {
        let (host, _) = address(effect);
        let at_node = self.options.machine.node_ips.iter().any(|ip| ip == host);
        let sandbox = self.runtime.sandboxes().values().find(|s| s.ip() == host);
        at_node || sandbox.is_some_and(|s| s.containers.iter().any(|c| self.runtime.is_running(c)))
    }
}

fn address(effect: &ProbesEffect) -> (&str, u16) {
    match effect {
        ProbesEffect::ProbeHttp(to) => (&to.host, to.port),
        ProbesEffect::ProbeTcp(to) => (&to.host, to.port),
        ProbesEffect::ProbeGrpc(to) => (&to.host, to.port),
    }
}
