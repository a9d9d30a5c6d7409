//! Takes over what an event says of an object that just started, so that the runtime need not be asked about it.
//!
//! An event can be late or out of order, so it only ever brings an object forward: one that we made and have not seen,
//! or have seen not started. Whatever else an event says, and whenever something is in doubt, the runtime is asked.

use components::edge::cri::started::StartedObject;
use components::edge::cri::{ContainerState, PodInspection, SandboxState};
use components::world::{Flow, Observed};
use std::cmp::Reverse;
use std::sync::Arc;

/// Adds the object to what is observed of the pod; false when the runtime is to be asked instead.
pub(super) fn take(observed: &mut Observed, flow: &Flow, object: &StartedObject) -> bool {
    if observed.unsure {
        return false;
    }
    let Some(next) = observed.settled().and_then(|seen| with(seen, flow, object)) else { return false };
    observed.inspection = Some(Arc::new(next));
    true
}

/// The inspection with the object in it, if nothing speaks against it.
fn with(seen: &PodInspection, flow: &Flow, object: &StartedObject) -> Option<PodInspection> {
    match object {
        StartedObject::Sandbox { namespace, name, status } => {
            let made = flow.new_sandboxes.contains(&status.id);
            let alone = seen.sandboxes.iter().all(|s| s.state == SandboxState::NotReady && s.id != status.id);
            let whole = status.state == SandboxState::Ready && (status.host_network || !status.ips.is_empty());
            if !(made && alone && whole) {
                return None;
            }
            let mut next = seen.clone();
            next.sandboxes.push(status.clone());
            next.sandboxes.sort_by_cached_key(|s| Reverse((s.attempt, s.created_at, s.id.clone())));
            if next.sandboxes.first().is_some_and(|newest| newest.id == status.id) {
                next.namespace.clone_from(namespace);
                next.name.clone_from(name);
            }
            Some(next)
        }
        StartedObject::Container { status, size } => {
            let fresh = match seen.containers.iter().find(|c| c.id == status.id) {
                Some(before) => before.state == ContainerState::Created,
                None => flow.new_containers.iter().any(|(made, _)| *made == status.id),
            };
            let housed = seen.sandboxes.iter().any(|s| s.id == status.sandbox);
            if !(fresh && housed && status.state == ContainerState::Running) {
                return None;
            }
            let mut next = seen.clone();
            next.containers.retain(|c| c.id != status.id);
            let mut status = status.clone();
            status.size = *size;
            next.containers.push(status);
            next.containers.sort_by_cached_key(|c| (c.name.clone(), Reverse((c.attempt, c.created_at, c.id.clone()))));
            Some(next)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures;

    /// What is seen of the pod before an event, in the words of the fixtures; then, apart from what is seen, what we made.
    fn pod(seen: &str, made: &str) -> (Observed, Flow) {
        let spec = fixtures::spec("always a b");
        let seen = Arc::new(fixtures::inspection(&spec, seen));
        let mut flow = Flow::default();
        for id in made.split_whitespace() {
            if id.starts_with('s') {
                flow.new_sandboxes.push(id.into());
            } else {
                flow.new_containers.push((id.into(), "s0".into()));
            }
        }
        (Observed { inspection: Some(seen), ..Observed::default() }, flow)
    }

    /// The object of this id in an inspection that shows it.
    fn object(shown: &str, id: &str) -> StartedObject {
        let seen = fixtures::inspection(&fixtures::spec("always a b"), shown);
        if let Some(status) = seen.sandboxes.iter().find(|s| s.id.as_str() == id) {
            let (namespace, name) = (seen.namespace.clone(), seen.name.clone());
            return StartedObject::Sandbox { namespace, name, status: status.clone() };
        }
        let status = seen.containers.into_iter().find(|c| c.id.as_str() == id).unwrap();
        StartedObject::Container { status, size: None }
    }

    #[track_caller]
    fn check(seen: &str, made: &str, shown: &str, id: &str, expect: &str) {
        let (mut observed, flow) = pod(seen, made);
        let taken = take(&mut observed, &flow, &object(shown, id));
        let now = observed.inspection.unwrap();
        let sandboxes = now.sandboxes.iter().map(|s| format!("{}{:?}", s.id, s.state));
        let containers = now.containers.iter().map(|c| format!("{}{:?}", c.id, c.state));
        let text: Vec<String> = sandboxes.chain(containers).collect();
        assert_eq!(if taken { text.join(" ") } else { "asked".to_owned() }, expect);
    }

    #[test]
    fn what_we_made_is_taken_over() {
        check("", "s0", "s0+", "s0", "s0Ready");
        check("s0-", "s1", "s1+ s0-", "s1", "s1Ready s0NotReady");
        check("s0+", "a0", "s0+ a0:run", "a0", "s0Ready a0Running");
        check("s0+ a0:created", "", "s0+ a0:run", "a0", "s0Ready a0Running");
        check("s0+ a0:exit1", "a1", "s0+ a1:run a0:exit1", "a1", "s0Ready a1Running a0Exited");
        check("s0+ b0:run", "a0", "s0+ a0:run b0:run", "a0", "s0Ready a0Running b0Running");
    }

    #[test]
    fn nothing_is_taken_back_and_what_is_in_doubt_is_asked_for() {
        check("s0+ a0:exit1", "a0", "s0+ a0:run", "a0", "asked");
        check("s0+ a0:run", "a0", "s0+ a0:run", "a0", "asked");
        check("s0-", "s0", "s0+", "s0", "asked");
        check("", "", "s0+", "s0", "asked");
        check("", "s0", "s0-", "s0", "asked");
        check("", "s0", "s0+noip", "s0", "asked");
        check("s0+", "s1", "s1+ s0+", "s1", "asked");
        check("s0+", "", "s0+ a0:run", "a0", "asked");
        check("s0+", "a0", "s0+ a0:exit0", "a0", "asked");
        check("s1+", "a0", "s0+ a0:run@s0", "a0", "asked");
    }

    #[test]
    fn while_something_is_open_the_runtime_is_asked() {
        let (observed, flow) = pod("", "s0");
        let object = object("s0+", "s0");
        let inspection = observed.inspection;
        let with = |change: fn(&mut Observed)| {
            let mut observed = Observed { inspection: inspection.clone(), ..Observed::default() };
            change(&mut observed);
            take(&mut observed, &flow, &object)
        };
        assert!(with(|_| {}));
        assert!(!with(|o| o.stale = true));
        assert!(!with(|o| o.unsure = true));
        assert!(!with(|o| o.inspecting = Some(components::ids::Ticket(1))));
        assert!(!with(|o| o.inspection = None));
    }
}
