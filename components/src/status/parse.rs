//! A pod's status as the API server has it, read back: what an earlier run of any kubelet showed.

use super::{
    Condition, ConditionKind, ContainerReport, Phase, PodStatus, RESIZE_IN_PROGRESS, RESIZE_PENDING, ReportedState,
};
use crate::resize::{ResizeCondition, ResizeConditions};
use crate::time::Wall;
use serde::Deserialize;

/// A status from the API's JSON. What is missing or unknown is left at its default: it will be shown anew.
#[must_use]
pub fn status(json: &str) -> PodStatus {
    let found: Status = serde_json::from_str(json).unwrap_or_default();
    let reports = |list: Vec<Container>| list.into_iter().map(Container::report).collect();
    PodStatus {
        phase: phase(&found.phase),
        reason: found.reason,
        message: found.message,
        resize: resize(&found.conditions),
        whole: None,
        conditions: found.conditions.into_iter().filter_map(Shown::condition).collect(),
        host_ip: match &found.host_ips[..] {
            [] => found.host_ip,
            all => all.iter().map(|ip| ip.ip.as_str()).collect::<Vec<_>>().join(","),
        },
        pod_ips: if found.pod_ips.is_empty() && !found.pod_ip.is_empty() {
            vec![found.pod_ip]
        } else {
            found.pod_ips.into_iter().map(|ip| ip.ip).collect()
        },
        start_time: time(found.start_time.as_deref()),
        qos: found.qos_class,
        init_containers: reports(found.init_container_statuses),
        containers: reports(found.container_statuses),
        ephemeral_containers: reports(found.ephemeral_container_statuses),
    }
}

/// A phase by its name; `Pending` for an unknown one.
#[must_use]
pub fn phase(name: &str) -> Phase {
    [Phase::Running, Phase::Succeeded, Phase::Failed].into_iter().find(|p| p.as_str() == name).unwrap_or_default()
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    phase: String,
    reason: String,
    message: String,
    conditions: Vec<Shown>,
    #[serde(rename = "hostIP")]
    host_ip: String,
    #[serde(rename = "hostIPs")]
    host_ips: Vec<Ip>,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<Ip>,
    start_time: Option<String>,
    qos_class: String,
    init_container_statuses: Vec<Container>,
    container_statuses: Vec<Container>,
    ephemeral_container_statuses: Vec<Container>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ip {
    ip: String,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Shown {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
    message: String,
    last_transition_time: Option<String>,
    last_probe_time: Option<String>,
    observed_generation: i64,
}

fn resize(conditions: &[Shown]) -> Option<Box<ResizeConditions>> {
    let find = |kind: &str| {
        conditions.iter().find(|shown| shown.kind == kind).map(|shown| ResizeCondition {
            reason: shown.reason.clone(),
            message: shown.message.clone(),
            generation: shown.observed_generation,
            since: time(shown.last_transition_time.as_deref()),
            probed: time(shown.last_probe_time.as_deref()),
        })
    };
    let found = ResizeConditions { pending: find(RESIZE_PENDING), in_progress: find(RESIZE_IN_PROGRESS) };
    (found.pending.is_some() || found.in_progress.is_some()).then(|| Box::new(found))
}

impl Shown {
    fn condition(self) -> Option<Condition> {
        let kind = ConditionKind::ALL.into_iter().find(|kind| kind.as_str() == self.kind)?;
        let since = time(self.last_transition_time.as_deref());
        Some(Condition { kind, status: self.status == "True", reason: self.reason, message: self.message, since })
    }
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Container {
    name: String,
    state: State,
    last_state: State,
    ready: bool,
    started: Option<bool>,
    restart_count: u32,
    image: String,
    #[serde(rename = "imageID")]
    image_id: String,
    #[serde(rename = "containerID")]
    container_id: String,
    user: Option<User>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct User {
    linux: Option<LinuxUser>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct LinuxUser {
    uid: i64,
    gid: i64,
    supplemental_groups: Vec<i64>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct State {
    waiting: Option<Details>,
    running: Option<Details>,
    terminated: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    reason: String,
    message: String,
    exit_code: i32,
    started_at: Option<String>,
    finished_at: Option<String>,
    #[serde(rename = "containerID")]
    container_id: String,
}

impl Container {
    fn report(self) -> ContainerReport {
        let waits = || ReportedState::Waiting { reason: String::new(), message: String::new() };
        ContainerReport {
            name: self.name.into(),
            state: self.state.reported().unwrap_or_else(waits),
            last: self.last_state.reported(),
            ready: self.ready,
            started: self.started,
            restart_count: self.restart_count,
            image: self.image,
            image_id: self.image_id,
            container_id: self.container_id,
            user: self.user.and_then(|user| user.linux).map(|it| (it.uid, it.gid, it.supplemental_groups)),
            actual: None,
        }
    }
}

impl State {
    fn reported(self) -> Option<ReportedState> {
        if let Some(it) = self.terminated {
            return Some(ReportedState::Terminated {
                exit_code: it.exit_code,
                reason: it.reason,
                message: it.message,
                started_at: time(it.started_at.as_deref()),
                finished_at: time(it.finished_at.as_deref()),
                container_id: it.container_id,
            });
        }
        if let Some(it) = self.running {
            return Some(ReportedState::Running { started_at: time(it.started_at.as_deref()) });
        }
        self.waiting.map(|it| ReportedState::Waiting { reason: it.reason, message: it.message })
    }
}

fn time(text: Option<&str>) -> Wall {
    text.and_then(Wall::from_rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::json::{Declared, status_json};

    /// What the reference showed is read and shown again without a difference.
    #[test]
    fn a_status_survives_the_round_trip() {
        let object = include_str!("../../testdata/mirror-pod.json");
        let pod: serde_json::Value = serde_json::from_str(object).unwrap();
        let mut expect = pod["status"].clone();
        expect.as_object_mut().unwrap().remove("resources");
        let read = status(&pod["status"].to_string());
        assert_eq!(read.phase, Phase::Running);
        let declared: Declared<'_> = serde_json::from_str(object).unwrap();
        let mut shown: serde_json::Value = serde_json::from_str(&status_json(&read, &declared)).unwrap();
        // The object in the test data is of a mirror pod, whose status does not repeat a generation.
        shown.as_object_mut().unwrap().remove("observedGeneration");
        for condition in shown["conditions"].as_array_mut().unwrap() {
            condition.as_object_mut().unwrap().remove("observedGeneration");
        }
        assert_eq!(shown, expect);
    }

    #[test]
    fn garbage_is_an_empty_status() {
        assert_eq!(status("[]"), PodStatus::default());
        assert_eq!(status(r#"{"phase":"Odd"}"#).phase, Phase::Pending);
    }
}
