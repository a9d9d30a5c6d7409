//! Whether the node is as the manifests want it. An error says what is missing or too much.

use super::cluster;
use super::plan::{Pod, Slot};
use crate::node::Node;
use components::edge::cri::SandboxState;
use components::edge::sources::Source;
use components::ids::PodUid;
use components::snapshot::PodView;
use components::status::{ConditionKind, ReportedState};
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn check(node: &Node, slots: &[Slot]) -> Result<(), String> {
    if !node.is_up() {
        return Err("the agent is not up".into());
    }
    let wanted: BTreeSet<PodUid> =
        slots.iter().filter_map(|s| Some(PodUid::from(s.pod.as_ref()?.uid.as_str()))).collect();
    nothing_too_much(node, &wanted)?;
    for slot in slots {
        if let Some(pod) = &slot.pod {
            pod_is_well(node, pod).map_err(|text| format!("{} ({}): {text}", slot.name, pod.uid))?;
        }
        if slot.source == Source::Api {
            cluster::check(node, slot)?;
        }
    }
    Ok(())
}

fn nothing_too_much(node: &Node, wanted: &BTreeSet<PodUid>) -> Result<(), String> {
    let runtime = &node.runtime;
    if let Some(container) =
        runtime.containers().values().find(|c| runtime.is_running(&c.id) && !wanted.contains(&c.pod))
    {
        return Err(format!("container {} of unwanted pod {} still runs", container.id, container.pod));
    }
    let ready = |s: &&crate::runtime::model::Sandbox| s.state == SandboxState::Ready;
    if let Some(sandbox) = runtime.sandboxes().values().filter(ready).find(|s| !wanted.contains(&s.pod)) {
        return Err(format!("sandbox {} of unwanted pod {} is still ready", sandbox.id, sandbox.pod));
    }
    let pods = format!("{}/pods/", node.options.config.root_dir);
    for path in &node.host.paths {
        let uid = path.strip_prefix(&pods).and_then(|rest| rest.split('/').next());
        if let Some(uid) = uid.filter(|uid| !wanted.contains(&PodUid::from(*uid))) {
            return Err(format!("{path} of unwanted pod {uid} is still there"));
        }
    }
    let logs = format!("{}/", node.options.config.pod_logs_dir);
    for path in node.host.logs.keys() {
        let dir = path.strip_prefix(&logs).and_then(|rest| rest.split('/').next());
        let uid = dir.and_then(|dir| dir.rsplit_once('_')).map(|(_, uid)| uid);
        if let Some(uid) = uid.filter(|uid| !wanted.contains(&PodUid::from(*uid))) {
            return Err(format!("{path} of unwanted pod {uid} is still there"));
        }
    }
    logs_are_well(node)?;
    if let Some(view) = node.snapshot().pods().find(|p| !wanted.contains(&p.uid)) {
        return Err(format!("unwanted pod {} is still published, stage {:?}", view.uid, view.stage));
    }
    Ok(())
}

/// What runs has its log, no log has too many files, and no link leads nowhere.
fn logs_are_well(node: &Node) -> Result<(), String> {
    let files = node.options.config.reclaim.rotation.as_ref().map_or(usize::MAX, |r| r.max_files as usize);
    for container in node.runtime.containers().values().filter(|c| node.runtime.is_running(&c.id)) {
        let Some(sandbox) = node.runtime.sandboxes().get(&container.sandbox) else { continue };
        let path = format!("{}/{}", sandbox.request.log_directory, container.request.log_path);
        let rotated = node.host.rotated(&path);
        if node.host.logs.contains_key(&path) && rotated.len() + 1 > files {
            return Err(format!("{path} has {} files more: {rotated:?}", rotated.len()));
        }
    }
    match node.host.links.iter().find(|(_, target)| !node.host.logs.contains_key(*target)) {
        Some((link, target)) => Err(format!("{link} leads to {target}, which is gone")),
        None => Ok(()),
    }
}

fn pod_is_well(node: &Node, pod: &Pod) -> Result<(), String> {
    let uid = PodUid::from(pod.uid.as_str());
    let view = node.snapshot().pods().find(|p| p.uid == uid).ok_or("it is not published")?;
    let phase = view.status.phase;
    if phase.is_terminal() {
        return if pod.policy == "Always" { Err(format!("it is {phase:?}")) } else { Ok(()) };
    }
    if pod.finishes() {
        return Err(format!("it does not end: phase {phase:?}, {}", view.last_event));
    }
    if node.awaits_post_start(&uid) {
        // Its answer was lost: that is noticed after an hour.
        return Ok(());
    }
    let ready = node.runtime.sandboxes_of(&uid).filter(|s| s.state == SandboxState::Ready).count();
    if ready != 1 {
        return Err(format!("it has {ready} ready sandboxes; {}", view.last_event));
    }
    for (n, does) in pod.main.iter().enumerate() {
        // One that is killed by chance may have ended for good.
        if does.stays() && pod.policy == "Always" {
            runs(node, &uid, view, &format!("c{n}"), &pod.image)?;
        }
    }
    let lasting = pod.policy == "Always" && pod.stays();
    let unready = view.status.conditions.iter().any(|c| c.kind == ConditionKind::Ready && !c.status);
    if lasting && unready {
        return Err(format!("it is not ready; {}", view.last_event));
    }
    Ok(())
}

fn runs(node: &Node, uid: &PodUid, view: &Arc<PodView>, name: &str, image: &str) -> Result<(), String> {
    let running = node.runtime.containers_of(uid).filter(|c| c.request.name == name && node.runtime.is_running(&c.id));
    let running: Vec<_> = running.collect();
    let [container] = running.as_slice() else {
        return Err(format!("{} instances of {name} run; {}", running.len(), view.last_event));
    };
    if container.request.user_image != image {
        return Err(format!("{name} runs {} instead of {image}", container.request.user_image));
    }
    let report = view.status.containers.iter().find(|c| &*c.name == name);
    let report = report.ok_or_else(|| format!("the status has no {name}"))?;
    let told = matches!(report.state, ReportedState::Running { .. });
    if !told || !report.container_id.ends_with(container.id.as_str()) {
        return Err(format!(
            "{name} runs as {}, the status says {:?} {}",
            container.id, report.state, report.container_id
        ));
    }
    Ok(())
}
