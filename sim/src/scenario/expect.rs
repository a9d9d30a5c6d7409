//! Compares a node with what a scenario expects of it. An error says what is seen instead.

use super::{Afterwards, Now};
use crate::node::{LogLine, Node};
use components::snapshot::PodView;
use components::status::{ConditionKind, ContainerReport, ReportedState};
use components::time::Mono;
use std::sync::Arc;
use std::time::Duration;

/// How far a start may lie from the second that is expected.
const SLACK: Duration = Duration::from_millis(900);

pub(super) fn check_now(node: &Node, expect: &Now) -> Result<(), String> {
    match expect {
        Now::Phase(pod, phase) => same(phase, view(node, pod)?.status.phase.as_str()),
        Now::Stage(pod, stage) => same(stage, &format!("{:?}", view(node, pod)?.stage)),
        Now::Gone(pod) => match view(node, pod) {
            Err(_) => Ok(()),
            Ok(view) => Err(format!("{pod} is still there, stage {:?}", view.stage)),
        },
        Now::Running(pod, container) => {
            let running = node.running(&full(pod), Some(container)).len();
            if running == 1 { Ok(()) } else { Err(format!("{running} instances run")) }
        }
        Now::Stopped(pod, container) => match node.running(&full(pod), Some(container)).as_slice() {
            [] => Ok(()),
            [id, ..] => Err(format!("{id} runs")),
        },
        Now::Restarts(pod, container, count) => {
            same(&count.to_string(), &report(node, pod, container)?.restart_count.to_string())
        }
        Now::Reason(pod, container, reason) => same(reason, reason_of(&report(node, pod, container)?.state)),
        Now::Exit(pod, container, code) => {
            let ends = ends(node, pod, container)?;
            if ends.iter().any(|(c, _)| c == code) { Ok(()) } else { Err(format!("ends are {ends:?}")) }
        }
        Now::Message(pod, container, wanted) => {
            let ends = ends(node, pod, container)?;
            if ends.iter().any(|(_, said)| said.contains(wanted)) { Ok(()) } else { Err(format!("ends are {ends:?}")) }
        }
        Now::Ready(pod, wanted) => {
            let conditions = &view(node, pod)?.status.conditions;
            let ready = conditions.iter().any(|c| c.kind == ConditionKind::Ready && c.status);
            if ready == *wanted { Ok(()) } else { Err(format!("Ready is {ready}")) }
        }
        Now::Dirs(uid, wanted) => {
            let directory = node.options.config.pod_dir(uid);
            let found: Vec<&str> = node.host.below(&directory).collect();
            if found.is_empty() == *wanted { Err(format!("directories are {found:?}")) } else { Ok(()) }
        }
        Now::Logs(pod, container, files) => same(files, &logs(node, pod, container)),
        Now::Dead(pod, container, count) => {
            let full = full(pod);
            let of_pod = |c: &&crate::runtime::model::Container| {
                let sandbox = node.runtime.sandboxes().get(&c.sandbox);
                sandbox.is_some_and(|s| node.pod_name(&s.request.namespace, &s.request.name) == full)
            };
            let ended = node.runtime.containers().values().filter(of_pod).filter(|c| c.request.name == *container);
            let dead = ended.filter(|c| !node.runtime.is_running(&c.id)).count();
            same(&count.to_string(), &dead.to_string())
        }
        Now::Size(pod, container, wanted) => same(wanted, &size(node, pod, container)?),
        Now::Limits(uid, wanted) => same(wanted, &limits(node, uid)?),
        Now::Api(seen) => super::api::check(node, seen),
        Now::Links(count) => same(&count.to_string(), &node.host.links.len().to_string()),
        Now::File(uid, path, content) => {
            let own = format!("/pods/{uid}/");
            let volumes = node.host.written.iter().filter(|(volume, _)| volume.contains(&own));
            let mut files = volumes.flat_map(|(volume, files)| {
                files.iter().map(move |(name, content)| (format!("{volume}/{name}"), content.as_str()))
            });
            let found = files.find(|(name, _)| name.ends_with(path)).map_or("missing", |(_, content)| content);
            same(content, &found.trim_end().replace('\n', "\\n"))
        }
        Now::Sandboxes(pod, count) => {
            let of_pod = node.runtime.sandboxes().values();
            let found = of_pod.filter(|s| node.pod_name(&s.request.namespace, &s.request.name) == full(pod)).count();
            same(&count.to_string(), &found.to_string())
        }
    }
}

/// Shares, quota and memory limit of a running container.
fn size(node: &Node, pod: &str, container: &str) -> Result<String, String> {
    let ids = node.running(&full(pod), Some(container));
    let found = ids.first().and_then(|id| node.runtime.containers().get(id));
    let has = &found.ok_or("it does not run")?.request.resources;
    Ok(format!("{} {} {}", has.cpu_shares, has.cpu_quota, has.memory_limit_bytes))
}

/// Shares, quota and memory limit of a pod's cgroup.
fn limits(node: &Node, uid: &str) -> Result<String, String> {
    let own = format!("/pod{uid}");
    let found = node.host.pods.iter().find(|(path, _)| path.ends_with(&own));
    let (_, has) = found.ok_or("it has no cgroup")?;
    let text = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let shares = text(has.cpu_shares.map(|n| n.to_string()));
    let (quota, memory) = (has.cpu_quota.map(|n| n.to_string()), has.memory_bytes.map(|n| n.to_string()));
    Ok(format!("{shares} {} {}", text(quota), text(memory)))
}

/// Exit codes and messages of the last ends of a container.
fn ends(node: &Node, pod: &str, container: &str) -> Result<Vec<(i32, String)>, String> {
    let report = report(node, pod, container)?;
    let states = [Some(&report.state), report.last.as_ref()].into_iter().flatten();
    let ended = states.filter_map(|state| match state {
        ReportedState::Terminated { exit_code, message, .. } => Some((*exit_code, message.clone())),
        _ => None,
    });
    Ok(ended.collect())
}

pub(super) fn check_afterwards(log: &[LogLine], expect: &Afterwards) -> Result<(), String> {
    match expect {
        Afterwards::Effect(effect, from, to) => {
            let times = starts(log, effect);
            let hit = times.iter().any(|at| (*from..=*to).contains(at));
            if hit { Ok(()) } else { Err(format!("{effect} starts at {times:?}")) }
        }
        Afterwards::NoEffect(effect, from, to) => {
            let times = starts(log, effect);
            match times.iter().find(|at| (*from..*to).contains(at)) {
                None => Ok(()),
                Some(at) => Err(format!("{effect} starts at {at:?}")),
            }
        }
        Afterwards::Count(effect, count) => same(&count.to_string(), &starts(log, effect).len().to_string()),
        Afterwards::Times(effect, expected) => {
            let times = starts(log, effect);
            let fits = times.len() >= expected.len()
                && times.iter().zip(expected).all(|(at, wanted)| at.abs_diff(*wanted) <= SLACK);
            if fits { Ok(()) } else { Err(format!("{effect} starts at {times:?}")) }
        }
        Afterwards::Order(effects) => order(log, effects),
        Afterwards::NeverFlaps(pod) => {
            let start = format!("ready {pod} ");
            let late = |l: &&LogLine| l.at > Mono(60_000_000_000) && l.text.starts_with(&start);
            log.iter().find(late).map_or(Ok(()), |l| Err(format!("at {:?}: {}", l.at.since(Mono(0)), l.text)))
        }
    }
}

fn order(log: &[LogLine], effects: &[String]) -> Result<(), String> {
    let mut rest = log;
    for effect in effects {
        let at = rest.iter().position(|l| is_start(l, effect));
        let at = at.ok_or_else(|| format!("{effect} does not start after what stands before it"))?;
        rest = &rest[at + 1..];
    }
    Ok(())
}

fn starts(log: &[LogLine], effect: &str) -> Vec<Duration> {
    log.iter().filter(|l| is_start(l, effect)).map(|l| l.at.since(Mono(0))).collect()
}

/// `start NAME TARGET`, possibly followed by its fault.
fn is_start(line: &LogLine, effect: &str) -> bool {
    let rest = line.text.strip_prefix("start ").and_then(|t| t.strip_prefix(effect));
    rest.is_some_and(|r| r.is_empty() || r.starts_with(' '))
}

fn view<'a>(node: &'a Node, pod: &str) -> Result<&'a Arc<PodView>, String> {
    node.view(&full(pod)).ok_or_else(|| format!("{pod} is not published"))
}

fn report<'a>(node: &'a Node, pod: &str, container: &str) -> Result<&'a ContainerReport, String> {
    let status = &view(node, pod)?.status;
    let mut all = status.init_containers.iter().chain(&status.containers).chain(&status.ephemeral_containers);
    all.find(|c| &*c.name == container).ok_or_else(|| format!("the status of {pod} has no container {container}"))
}

fn reason_of(state: &ReportedState) -> &str {
    match state {
        ReportedState::Waiting { reason, .. } | ReportedState::Terminated { reason, .. } => reason,
        ReportedState::Running { .. } => "running",
    }
}

/// Names of a container's log files; the time in a rotated one as `T`.
fn logs(node: &Node, pod: &str, container: &str) -> String {
    let mut names: Vec<String> = Vec::new();
    for path in node.host.logs.keys() {
        let mut parts = path.rsplit('/');
        let (Some(name), Some(of), Some(dir)) = (parts.next(), parts.next(), parts.next()) else { continue };
        let name_of = dir.split_once('_').and_then(|(namespace, rest)| Some((namespace, rest.split('_').next()?)));
        if of == container && name_of.is_some_and(|(namespace, of)| node.pod_name(namespace, of) == full(pod)) {
            let time = |part: &str| part.len() == "20261129-220000".len() && part.contains('-');
            let parts: Vec<&str> = name.split('.').map(|part| if time(part) { "T" } else { part }).collect();
            names.push(parts.join("."));
        }
    }
    names.sort();
    names.join(" ")
}

fn full(pod: &str) -> String {
    format!("default/{pod}")
}

fn same(expected: &str, seen: &str) -> Result<(), String> {
    if expected == seen { Ok(()) } else { Err(format!("it is {seen}")) }
}
