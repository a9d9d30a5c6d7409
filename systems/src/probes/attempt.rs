//! One attempt: the complete effect of a probe, its deadline, and what an outcome says of it.

use components::edge::cri::{CriAnswer, CriEffect, PodInspection, SandboxState};
use components::edge::probes::{GrpcTarget, HttpTarget, ProbesAnswer, ProbesEffect, TcpTarget};
use components::edge::{Answer, Effect, Outcome};
use components::events::PodEvents;
use components::ids::{ContainerId, Sensitive};
use components::node::Machine;
use components::probes::{Probe, ProbeAction, ProbeKind, ProbeSpec};
use components::spec::PodSpec;
use std::sync::Arc;
use std::time::Duration;

/// Value of `User-Agent`, unless the probe sets one.
const USER_AGENT: &str = "kube-probe/1.37";
/// Bytes of a command's output that are kept: what an event would show of it.
const OUTPUT_LIMIT: u32 = 1024;

/// What one attempt came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Attempted {
    /// It passed.
    Passed,
    /// It failed, for this reason.
    Failed(String),
    /// The question could not be asked; this says nothing of the container.
    Unasked(String),
}

/// The spec of a probe.
pub(super) fn spec_of<'a>(spec: &'a PodSpec, probe: &Probe) -> Option<&'a ProbeSpec> {
    let container = spec.containers.get(usize::from(probe.container))?;
    container.probes.iter().find(|(kind, _)| *kind == probe.kind).map(|(_, set)| set)
}

/// Where addresses come from.
pub(super) struct Site<'a> {
    pub(super) spec: &'a PodSpec,
    pub(super) seen: Option<&'a PodInspection>,
    pub(super) machine: &'a Machine,
}

impl Site<'_> {
    fn pod_ip(&self) -> Option<String> {
        if self.spec.host_network {
            return self.machine.node_ips.first().cloned();
        }
        let newest = self.seen?.sandboxes.first().filter(|s| s.state == SandboxState::Ready)?;
        newest.ips.first().cloned()
    }
}

/// The effect that asks; `None` while the pod has no address.
pub(super) fn effect(set: &ProbeSpec, target: &ContainerId, site: &Site<'_>) -> Option<Effect> {
    let host = |given: &Option<String>| given.clone().or_else(|| site.pod_ip());
    let effect = match &set.action {
        ProbeAction::Exec(command) => {
            return Some(Effect::Cri(CriEffect::ExecSync {
                id: target.clone(),
                command: Arc::clone(command),
                timeout_seconds: set.timeout,
                output_limit: OUTPUT_LIMIT,
            }));
        }
        ProbeAction::Http { tls, host: given, port, path, headers } => {
            ProbesEffect::ProbeHttp(Arc::new(http(*tls, host(given)?, *port, path, headers)))
        }
        ProbeAction::Tcp { host: given, port } => {
            ProbesEffect::ProbeTcp(Arc::new(TcpTarget { host: host(given)?, port: *port }))
        }
        ProbeAction::Grpc { port, service } => {
            let target = GrpcTarget { host: site.pod_ip()?, port: *port, service: service.clone() };
            ProbesEffect::ProbeGrpc(Arc::new(target))
        }
    };
    Some(Effect::Probes(effect))
}

fn http(tls: bool, host: String, port: u16, path: &str, given: &[(String, Sensitive)]) -> HttpTarget {
    let is = |name: &str| given.iter().any(|(n, _)| n == name);
    let mut headers: Vec<(String, Sensitive)> = Vec::new();
    if !is("User-Agent") {
        headers.push(("User-Agent".to_owned(), USER_AGENT.into()));
    }
    if !is("Accept") {
        headers.push(("Accept".to_owned(), "*/*".into()));
    }
    // An empty value is the way to send none of the two.
    let unsent = |(n, v): &(String, Sensitive)| n == "Host" || (v.0.is_empty() && (n == "Accept" || n == "User-Agent"));
    headers.extend(given.iter().filter(|h| !unsent(h)).cloned());
    let own = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let named = given.iter().find(|(n, v)| n == "Host" && !v.0.is_empty());
    let host_header = named.map_or(own, |(_, value)| value.0.clone());
    HttpTarget { tls, host, port, path: path.to_owned(), host_header, headers }
}

/// Time after which an attempt is given up. The runtime ends a command in time by itself and is given a while more.
pub(super) fn deadline(set: &ProbeSpec, runtime: Duration) -> Duration {
    let timeout = Duration::from_secs(u64::from(set.timeout));
    match set.action {
        ProbeAction::Exec(_) => timeout + runtime,
        _ => timeout,
    }
}

/// What an outcome says.
pub(super) fn result(set: &ProbeSpec, outcome: &Outcome) -> Attempted {
    match outcome {
        Outcome::Done(Answer::Probes(ProbesAnswer::Passed | ProbesAnswer::PassedWithWarning { .. })) => {
            Attempted::Passed
        }
        Outcome::Done(Answer::Probes(ProbesAnswer::NotPassed { message })) => Attempted::Failed(message.clone()),
        Outcome::Done(Answer::Cri(CriAnswer::Executed { exit_code: 0, .. })) => Attempted::Passed,
        Outcome::Done(Answer::Cri(CriAnswer::Executed { output, .. })) => Attempted::Failed(output.clone()),
        Outcome::TimedOut => Attempted::Failed(timed_out(set)),
        Outcome::Failed(failure) => Attempted::Unasked(failure.message.clone()),
        Outcome::Done(_) => Attempted::Unasked("unexpected answer".to_owned()),
        Outcome::Cancelled => Attempted::Unasked("cancelled".to_owned()),
    }
}

/// Notes what the cluster is told of an attempt; false when there is nothing to tell.
pub(super) fn tell(events: &mut PodEvents, probe: &Probe, result: &Attempted, outcome: &Outcome) -> bool {
    let kind = match probe.kind {
        ProbeKind::Liveness => "Liveness",
        ProbeKind::Readiness => "Readiness",
        ProbeKind::Startup => "Startup",
    };
    let (reason, text) = match (result, outcome) {
        (Attempted::Passed, Outcome::Done(Answer::Probes(ProbesAnswer::PassedWithWarning { message }))) => {
            ("ProbeWarning", format!("{kind} probe warning: {message}"))
        }
        (Attempted::Passed, _) => return false,
        (Attempted::Failed(message), _) => ("Unhealthy", format!("{kind} probe failed: {message}")),
        (Attempted::Unasked(message), _) => {
            ("Unhealthy", format!("{kind} probe errored and resulted in unknown state: {message}"))
        }
    };
    events.warning(reason, text, Some(probe.container));
    true
}

fn timed_out(set: &ProbeSpec) -> String {
    let timeout = set.timeout;
    match &set.action {
        // The command stays out of messages: it may hold a secret.
        ProbeAction::Exec(_) => format!("command timed out after {timeout}s"),
        ProbeAction::Http { .. } => {
            format!("context deadline exceeded (Client.Timeout of {timeout}s exceeded while awaiting the answer)")
        }
        ProbeAction::Tcp { host, port } => {
            let host = host.as_deref().unwrap_or("the pod");
            format!("dial tcp {host}:{port}: i/o timeout")
        }
        ProbeAction::Grpc { .. } => format!("timeout: health rpc did not complete within {timeout}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[(&str, &str)], host_header: &str, expect: &[(&str, &str)]) {
        let given: Vec<(String, Sensitive)> = given.iter().map(|(n, v)| ((*n).to_owned(), (*v).into())).collect();
        let target = http(false, "fd00::1".to_owned(), 80, "/", &given);
        let headers: Vec<(&str, &str)> = target.headers.iter().map(|(n, v)| (n.as_str(), v.0.as_str())).collect();
        assert_eq!((target.host_header.as_str(), headers.as_slice()), (host_header, expect));
    }

    #[test]
    fn headers_are_defaulted_replaced_and_left_out() {
        let agent = ("User-Agent", "kube-probe/1.37");
        check(&[], "[fd00::1]:80", &[agent, ("Accept", "*/*")]);
        check(&[("Host", "a.example"), ("Accept", "")], "a.example", &[agent]);
        check(
            &[("User-Agent", "me"), ("X", "1"), ("X", "2")],
            "[fd00::1]:80",
            &[("Accept", "*/*"), ("User-Agent", "me"), ("X", "1"), ("X", "2")],
        );
    }
}
