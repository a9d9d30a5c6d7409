//! The model's rules, one by one.

use super::*;
use components::edge::cri::Namespaces;

fn at(seconds: u64) -> Now {
    Now { mono: Mono(seconds * 1_000_000_000), wall: Wall(seconds as i64 * 1_000_000_000) }
}

fn sandbox(uid: &str, attempt: u32) -> SandboxRequest {
    SandboxRequest {
        name: "web".into(),
        namespace: "default".into(),
        uid: uid.into(),
        attempt,
        ..SandboxRequest::default()
    }
}

fn container(command: &[&str], attempt: u32) -> ContainerRequest {
    ContainerRequest {
        name: "c".into(),
        attempt,
        image_ref: "busybox:1".into(),
        command: command.iter().map(|w| (*w).to_owned()).collect(),
        ..ContainerRequest::default()
    }
}

fn started(command: &[&str]) -> (Runtime, SandboxId, ContainerId) {
    let mut runtime = Runtime::new(1, false);
    runtime.images.add("busybox:1");
    let sandbox = runtime.run_sandbox(at(0), sandbox("u", 0)).unwrap();
    let id = runtime.create_container(at(0), &sandbox, container(command, 0)).unwrap();
    runtime.start_container(at(0), &id).unwrap();
    (runtime, sandbox, id)
}

#[track_caller]
fn check_exit(runtime: &Runtime, id: &ContainerId, code: i32, finished: u64) {
    let container = &runtime.containers()[id];
    assert_eq!(container.state, ContainerState::Exited);
    assert_eq!((container.exit_code, container.finished), (code, at(finished).wall));
}

#[test]
fn a_process_ends_when_its_time_has_come() {
    let (mut runtime, _, id) = started(&["sh", "-c", "sleep 5; exit 3"]);
    assert_eq!(runtime.next_due(), Some(at(5).mono));
    runtime.advance(at(4));
    assert!(runtime.is_running(&id));
    runtime.advance(at(5));
    check_exit(&runtime, &id, 3, 5);
    assert_eq!(runtime.next_due(), None);
}

#[test]
fn term_ends_it_at_once_and_a_deaf_one_is_killed_after_its_grace() {
    let (mut runtime, _, id) = started(&["serve"]);
    runtime.stop_container(at(1), &id, Duration::from_secs(30)).unwrap();
    check_exit(&runtime, &id, 143, 1);

    let (mut runtime, _, id) = started(&["sh", "-c", "trap '' TERM; sleep 999"]);
    runtime.stop_container(at(1), &id, Duration::from_secs(30)).unwrap();
    assert_eq!(runtime.next_due(), Some(at(31).mono));
    // A second stop may shorten the grace, never lengthen it.
    runtime.stop_container(at(2), &id, Duration::from_secs(60)).unwrap();
    runtime.stop_container(at(3), &id, Duration::from_secs(2)).unwrap();
    assert_eq!(runtime.next_due(), Some(at(5).mono));
    runtime.advance(at(5));
    check_exit(&runtime, &id, 137, 5);
    assert_eq!(runtime.next_due(), None);
}

#[test]
fn a_name_is_reserved_until_its_owner_is_removed() {
    let (mut runtime, sandbox_id, id) = started(&["serve"]);
    let again = runtime.create_container(at(1), &sandbox_id, container(&["serve"], 0));
    assert!(again.unwrap_err().message.contains("is reserved for"));
    runtime.remove_container(at(1), &id).unwrap();
    runtime.create_container(at(1), &sandbox_id, container(&["serve"], 0)).unwrap();
    assert!(runtime.run_sandbox(at(1), sandbox("u", 0)).is_err());
    assert!(runtime.run_sandbox(at(1), sandbox("u", 1)).is_ok());
}

#[test]
fn stopping_a_sandbox_kills_what_is_in_it_and_frees_its_address() {
    let (mut runtime, sandbox_id, id) = started(&["sh", "-c", "trap '' TERM; sleep 999"]);
    assert_eq!(runtime.sandboxes()[&sandbox_id].ip(), "10.88.0.2");
    runtime.stop_sandbox(at(1), &sandbox_id).unwrap();
    check_exit(&runtime, &id, 137, 1);
    assert_eq!(runtime.sandboxes()[&sandbox_id].ip(), "");
    let refused = runtime.create_container(at(2), &sandbox_id, container(&["true"], 1));
    assert!(refused.unwrap_err().message.contains("is not running"));
    runtime.remove_sandbox(at(3), &sandbox_id).unwrap();
    assert!(runtime.containers().is_empty());
    assert_eq!(runtime.remove_sandbox(at(3), &sandbox_id).unwrap_err().class, FailureClass::NotFound);
}

#[test]
fn a_lost_sandbox_takes_only_containers_of_its_process_namespace_along() {
    let (mut runtime, sandbox_id, id) = started(&["serve"]);
    runtime.sandboxes.get_mut(&sandbox_id).unwrap().request.namespaces =
        Namespaces { pid: NamespaceMode::Container, ..Namespaces::default() };
    runtime.lose_sandbox(at(1), &sandbox_id);
    assert_eq!(runtime.sandboxes()[&sandbox_id].state, SandboxState::NotReady);
    assert!(runtime.is_running(&id));
}

#[test]
fn events_come_in_order() {
    let (mut runtime, sandbox_id, _) = started(&["true"]);
    runtime.advance(at(0));
    runtime.remove_sandbox(at(1), &sandbox_id).unwrap();
    let seen: Vec<_> = runtime.take_events().into_iter().map(|e| (e.id.to_string(), e.change)).collect();
    let expect = [
        ("s00001", ContainerChange::Created),
        ("s00001", ContainerChange::Started),
        ("c00002", ContainerChange::Created),
        ("c00002", ContainerChange::Started),
        ("c00002", ContainerChange::Stopped),
        ("s00001", ContainerChange::Stopped),
        ("c00002", ContainerChange::Deleted),
        ("s00001", ContainerChange::Deleted),
    ];
    assert_eq!(seen, expect.map(|(id, change)| (id.to_owned(), change)).to_vec());
}

#[test]
fn images_are_found_by_name_and_id_once_pulled() {
    let mut images = Images::default();
    assert_eq!(images.find("a:1"), None);
    let id = images.pull("a:1").unwrap();
    assert_eq!(images.find(&id).unwrap().name, "a:1");
    assert!(images.pull("missing:1").is_err());
    images.remove("a:1");
    assert_eq!(images.find(&id), None);
}
