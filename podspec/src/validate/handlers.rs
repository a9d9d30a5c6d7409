//! Rules of probes and lifecycle hooks: a bad one is refused at once,
//! not when it is run.

use super::names;
use super::pod::one_of;
use crate::issues::Issues;
use k8s_openapi::api::core::v1::{Container, HTTPGetAction, LifecycleHandler, PodSpec, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Checks probes and hooks of one container; `lasting` is false for init containers that run to their end.
pub(super) fn check(path: &str, lasting: bool, container: &Container, spec: &PodSpec, issues: &mut Issues) {
    let probes = [
        ("livenessProbe", &container.liveness_probe),
        ("readinessProbe", &container.readiness_probe),
        ("startupProbe", &container.startup_probe),
    ];
    for (name, probe) in probes {
        let Some(probe) = probe else { continue };
        let path = format!("{path}.{name}");
        if lasting { check_probe(&path, name, probe, issues) } else { not_on_init(&path, issues) }
    }
    let Some(lifecycle) = &container.lifecycle else { return };
    let grace = spec.termination_grace_period_seconds.unwrap_or(0);
    for (name, handler) in [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)] {
        let Some(handler) = handler else { continue };
        let path = format!("{path}.lifecycle.{name}");
        if lasting { check_hook(&path, handler, grace, issues) } else { not_on_init(&path, issues) }
    }
}

fn not_on_init(path: &str, issues: &mut Issues) {
    issues.forbidden(path, "may not be set for init containers without restartPolicy Always");
}

fn check_probe(path: &str, name: &str, probe: &Probe, issues: &mut Issues) {
    let kinds = [probe.exec.is_some(), probe.http_get.is_some(), probe.tcp_socket.is_some(), probe.grpc.is_some()];
    one_kind(path, kinds.iter().filter(|set| **set).count(), issues);
    if let Some(exec) = &probe.exec {
        check_command(path, exec.command.as_deref(), issues);
    }
    if let Some(get) = &probe.http_get {
        check_http(&format!("{path}.httpGet"), get, issues);
    }
    if let Some(tcp) = &probe.tcp_socket {
        check_target(&format!("{path}.tcpSocket.port"), &tcp.port, issues);
    }
    if let Some(grpc) = &probe.grpc {
        check_target(&format!("{path}.grpc.port"), &IntOrString::Int(grpc.port), issues);
    }
    let fields = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, value) in fields {
        if let Some(value) = value.filter(|v| *v < 0) {
            issues.invalid(&format!("{path}.{field}"), value, "must be greater than or equal to 0");
        }
    }
    if name != "readinessProbe" && probe.success_threshold != Some(1) {
        issues.invalid(&format!("{path}.successThreshold"), probe.success_threshold.unwrap_or(0), "must be 1");
    }
    if let Some(grace) = probe.termination_grace_period_seconds {
        let path = format!("{path}.terminationGracePeriodSeconds");
        if name == "readinessProbe" {
            issues.invalid(&path, grace, "must not be set for readiness probes");
        } else if grace <= 0 {
            issues.invalid(&path, grace, "must be greater than 0");
        }
    }
}

fn one_kind(path: &str, count: usize, issues: &mut Issues) {
    match count {
        0 => issues.required(path, "must name a handler"),
        1 => {}
        _ => issues.forbidden(path, "may not name more than one handler"),
    }
}

fn check_command(path: &str, command: Option<&[String]>, issues: &mut Issues) {
    if command.is_none_or(<[String]>::is_empty) {
        issues.required(&format!("{path}.exec.command"), "");
    }
}

fn check_hook(path: &str, handler: &LifecycleHandler, grace: i64, issues: &mut Issues) {
    let kinds =
        [handler.exec.is_some(), handler.http_get.is_some(), handler.tcp_socket.is_some(), handler.sleep.is_some()];
    one_kind(path, kinds.iter().filter(|set| **set).count(), issues);
    if let Some(exec) = &handler.exec {
        check_command(path, exec.command.as_deref(), issues);
    }
    if let Some(get) = &handler.http_get {
        check_http(&format!("{path}.httpGet"), get, issues);
    }
    if let Some(tcp) = &handler.tcp_socket {
        check_target(&format!("{path}.tcpSocket.port"), &tcp.port, issues);
    }
    if let Some(sleep) = handler.sleep.as_ref().filter(|sleep| !(0..=grace).contains(&sleep.seconds)) {
        issues.invalid(
            &format!("{path}.sleep.seconds"),
            sleep.seconds,
            &format!("must be between 0 and terminationGracePeriodSeconds ({grace})"),
        );
    }
}

fn check_http(path: &str, get: &HTTPGetAction, issues: &mut Issues) {
    check_target(&format!("{path}.port"), &get.port, issues);
    one_of(&format!("{path}.scheme"), get.scheme.as_deref(), &["HTTP", "HTTPS"], issues);
    for (i, header) in get.http_headers.iter().flatten().enumerate() {
        let name = header.name.as_str();
        if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
            issues.invalid(&format!("{path}.httpHeaders[{i}].name"), name, "must be a header name");
        }
    }
}

fn check_target(path: &str, port: &IntOrString, issues: &mut Issues) {
    match port {
        IntOrString::Int(port) if !(1..=65535).contains(port) => {
            issues.invalid(path, port, "must be between 1 and 65535");
        }
        IntOrString::Int(_) => {}
        IntOrString::String(name) => {
            if let Some(wrong) = names::port(name) {
                issues.invalid(path, name, wrong);
            }
        }
    }
}
