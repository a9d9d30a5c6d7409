//! Lean decoding of the two relist answers: only id, state and owner are read, everything else is jumped over.
//!
//! An object's owner (pod of a sandbox, sandbox of a container) never changes. So an object that was in the list
//! before costs no look at its labels and no allocation: its ids are shared with the list before.

use std::cmp::Ordering;

use components::edge::cri::{ContainerBrief, ContainerState, SandboxBrief, SandboxState};
use components::ids::{ContainerId, PodUid, SandboxId};
use thiserror::Error;

use super::wire::{Field, Fields, WireError};

/// Label that names a sandbox's pod.
const POD_UID_LABEL: &str = "io.kubernetes.pod.uid";

/// Why a list answer is unusable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub(super) enum LeanError {
    /// It is no protobuf message of the expected form.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// An object has no id.
    #[error("the list has an object without an id")]
    NoId,
}

/// Sandboxes of a `ListPodSandboxResponse`, sorted by id; `before` is the list before, sorted as well.
pub(super) fn sandboxes(answer: &[u8], before: &[SandboxBrief]) -> Result<Vec<SandboxBrief>, LeanError> {
    let heads = heads(answer, &SANDBOX)?;
    let mut known = Known::new(before, |brief: &SandboxBrief| brief.id.as_str());
    let mut briefs = Vec::with_capacity(heads.len());
    for head in heads {
        let state = if head.state == 0 { SandboxState::Ready } else { SandboxState::NotReady };
        if let Some(brief) = known.find(head.id) {
            briefs.push(SandboxBrief { id: brief.id.clone(), pod: brief.pod.clone(), state });
        } else if let Some(pod) = sandbox_pod(head.body)? {
            // A sandbox without the label is not ours.
            briefs.push(SandboxBrief { id: SandboxId::from(head.id), pod: PodUid::from(pod), state });
        }
    }
    Ok(briefs)
}

/// Containers of a `ListContainersResponse`, sorted by id; `before` is the list before, sorted as well.
pub(super) fn containers(answer: &[u8], before: &[ContainerBrief]) -> Result<Vec<ContainerBrief>, LeanError> {
    let heads = heads(answer, &CONTAINER)?;
    let mut known = Known::new(before, |brief: &ContainerBrief| brief.id.as_str());
    let mut briefs = Vec::with_capacity(heads.len());
    for head in heads {
        let state = match head.state {
            0 => ContainerState::Created,
            1 => ContainerState::Running,
            2 => ContainerState::Exited,
            _ => ContainerState::Unknown,
        };
        briefs.push(match known.find(head.id) {
            Some(brief) => ContainerBrief { id: brief.id.clone(), sandbox: brief.sandbox.clone(), state },
            None => {
                let sandbox = SandboxId::from(container_sandbox(head.body)?);
                ContainerBrief { id: ContainerId::from(head.id), sandbox, state }
            }
        });
    }
    Ok(briefs)
}

/// Field numbers that differ between the two lists.
struct Shape {
    state: u32,
}

const SANDBOX: Shape = Shape { state: 3 };
const CONTAINER: Shape = Shape { state: 6 };

/// What is read of every object, known or not.
#[derive(Clone, Copy)]
struct Head<'a> {
    id: &'a str,
    state: u64,
    body: &'a [u8],
}

/// All objects of a list sorted by id, each id once.
fn heads<'a>(answer: &'a [u8], shape: &Shape) -> Result<Vec<Head<'a>>, LeanError> {
    let mut heads = Vec::new();
    for field in Fields::of(answer) {
        let field = field?;
        if field.number == 1 {
            heads.push(head(field.bytes()?, shape)?);
        }
    }
    heads.sort_unstable_by(|a, b| compare(a.id, b.id));
    heads.dedup_by(|a, b| a.id == b.id);
    Ok(heads)
}

fn head<'a>(body: &'a [u8], shape: &Shape) -> Result<Head<'a>, LeanError> {
    let (mut id, mut state) = ("", 0);
    for field in Fields::of(body) {
        let field = field?;
        // A field left out has the value 0; of one that comes twice the last counts.
        if field.number == 1 {
            id = field.text()?;
        } else if field.number == shape.state {
            state = field.number()?;
        }
    }
    if id.is_empty() { Err(LeanError::NoId) } else { Ok(Head { id, state, body }) }
}

/// Orders ids like `str` does; the first eight bytes in one step, since runtime ids are random.
fn compare(a: &str, b: &str) -> Ordering {
    let first = |text: &str| text.as_bytes().first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
    match (first(a), first(b)) {
        (Some(x), Some(y)) if x != y => x.cmp(&y),
        _ => a.cmp(b),
    }
}

/// The value of the pod-uid label (field 5 of a sandbox is its map of labels).
fn sandbox_pod(body: &[u8]) -> Result<Option<&str>, LeanError> {
    for field in Fields::of(body) {
        let field = field?;
        if field.number == 5 {
            let (mut key, mut value): (&[u8], Option<Field<'_>>) = (&[], None);
            for part in Fields::of(field.bytes()?) {
                let part = part?;
                match part.number {
                    1 => key = part.bytes()?,
                    2 => value = Some(part),
                    _ => {}
                }
            }
            if key == POD_UID_LABEL.as_bytes() {
                return Ok(value.map(Field::text).transpose()?);
            }
        }
    }
    Ok(None)
}

/// The sandbox a container lives in (field 2).
fn container_sandbox(body: &[u8]) -> Result<&str, LeanError> {
    let mut sandbox = "";
    for field in Fields::of(body) {
        let field = field?;
        if field.number == 2 {
            sandbox = field.text()?;
        }
    }
    Ok(sandbox)
}

/// Finds rising ids in a sorted list, walking it once.
struct Known<'a, T> {
    rest: &'a [T],
    id: fn(&T) -> &str,
}

impl<'a, T> Known<'a, T> {
    const fn new(sorted: &'a [T], id: fn(&T) -> &str) -> Self {
        Self { rest: sorted, id }
    }

    fn find(&mut self, id: &str) -> Option<&'a T> {
        while let Some((first, rest)) = self.rest.split_first() {
            match compare((self.id)(first), id) {
                Ordering::Less => self.rest = rest,
                Ordering::Equal => return Some(first),
                Ordering::Greater => return None,
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;
    use proto::runtime::v1 as pb;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    fn labels(uid: Option<&str>) -> BTreeMap<String, String> {
        let uid = uid.map(|uid| (POD_UID_LABEL.to_owned(), uid.to_owned()));
        let others = [("app", "x"), ("io.kubernetes.pod.name", "web"), ("z", "")];
        others.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().chain(uid).collect()
    }

    fn sandbox(id: &str, uid: Option<&str>, state: i32) -> pb::PodSandbox {
        pb::PodSandbox {
            id: id.into(),
            metadata: Some(pb::PodSandboxMetadata { name: "web".into(), uid: "other".into(), ..Default::default() }),
            state,
            created_at: 77,
            labels: labels(uid),
            annotations: labels(Some("not this one")),
            runtime_handler: "runc".into(),
        }
    }

    fn container(id: &str, sandbox: &str, state: i32) -> pb::Container {
        pb::Container {
            id: id.into(),
            pod_sandbox_id: sandbox.into(),
            metadata: Some(pb::ContainerMetadata { name: "c".into(), attempt: 3 }),
            image: Some(pb::ImageSpec { image: "busybox".into(), ..Default::default() }),
            image_ref: "sha256:1".into(),
            state,
            created_at: 78,
            labels: labels(Some("uid")),
            annotations: BTreeMap::new(),
            image_id: "sha256:1".into(),
        }
    }

    fn sandbox_list(items: Vec<pb::PodSandbox>) -> Vec<u8> {
        pb::ListPodSandboxResponse { items }.encode_to_vec()
    }

    fn container_list(containers: Vec<pb::Container>) -> Vec<u8> {
        pb::ListContainersResponse { containers }.encode_to_vec()
    }

    #[test]
    fn sandboxes_are_sorted_and_foreign_ones_left_out() {
        let list = sandbox_list(vec![
            sandbox("bbbbbbbbb2", Some("u2"), 1),
            sandbox("foreign", None, 0),
            sandbox("a", Some("u1"), 0),
            sandbox("bbbbbbbbb1", Some("u1"), 9),
        ]);
        let text: Vec<String> =
            sandboxes(&list, &[]).unwrap().iter().map(|s| format!("{} {} {:?}", s.id, s.pod, s.state)).collect();
        assert_eq!(text, ["a u1 Ready", "bbbbbbbbb1 u1 NotReady", "bbbbbbbbb2 u2 NotReady"]);
    }

    #[test]
    fn containers_keep_their_sandbox_and_unknown_states_stay_unknown() {
        let list = container_list((0..6).map(|state| container(&format!("c{state}"), "s", 5 - state)).collect());
        let text: Vec<String> =
            containers(&list, &[]).unwrap().iter().map(|c| format!("{} {} {:?}", c.id, c.sandbox, c.state)).collect();
        let expect = ["c0 s Unknown", "c1 s Unknown", "c2 s Unknown", "c3 s Exited", "c4 s Running", "c5 s Created"];
        assert_eq!(text, expect);
    }

    #[test]
    fn known_objects_share_their_ids_and_only_their_state_is_read_again() {
        let before = sandboxes(&sandbox_list(vec![sandbox("s1", Some("u1"), 0), sandbox("s3", Some("u3"), 0)]), &[]);
        let before = before.unwrap();
        // The labels of a known sandbox are not even looked at: here they would name another pod.
        let list = sandbox_list(vec![
            sandbox("s3", Some("changed"), 1),
            sandbox("s2", Some("u2"), 0),
            sandbox("s1", Some("u1"), 0),
        ]);
        let after = sandboxes(&list, &before).unwrap();
        assert_eq!(after.len(), 3);
        assert_eq!((after[2].pod.as_str(), after[2].state), ("u3", SandboxState::NotReady));
        assert_eq!(after[1].pod.as_str(), "u2");
        assert!(Arc::ptr_eq(&after[2].id.0, &before[1].id.0));
        assert!(Arc::ptr_eq(&after[0].pod.0, &before[0].pod.0));

        let before = containers(&container_list(vec![container("c", "s", 1)]), &[]).unwrap();
        let after = containers(&container_list(vec![container("c", "s", 2)]), &before).unwrap();
        assert!(Arc::ptr_eq(&after[0].sandbox.0, &before[0].sandbox.0));
        assert_eq!(after[0].state, ContainerState::Exited);
    }

    #[test]
    fn repeated_ids_and_odd_field_orders_are_one_object_each() {
        let one = sandbox("s1", Some("u1"), 0);
        let list = sandbox_list(vec![one.clone(), one]);
        assert_eq!(sandboxes(&list, &[]).unwrap().len(), 1);
        // State before id, id twice, and a field nobody knows (number 200).
        let body = [0x18, 1, 0x0a, 1, b'x', 0x0a, 1, b'y', 0xc0, 0x0c, 1];
        let list = [&[0x0a, u8::try_from(body.len()).unwrap()][..], &body].concat();
        let known = [SandboxBrief { id: "y".into(), pod: "u".into(), state: SandboxState::Ready }];
        let found = sandboxes(&list, &known).unwrap();
        assert_eq!((found[0].id.as_str(), found[0].state), ("y", SandboxState::NotReady));
    }

    #[test]
    fn garbage_is_refused_with_its_reason() {
        let good = sandbox_list(vec![sandbox("s1", Some("u1"), 0)]);
        assert_eq!(sandboxes(&good[..good.len() - 1], &[]), Err(WireError::CutOff.into()));
        assert_eq!(sandboxes(&sandbox_list(vec![sandbox("", Some("u1"), 0)]), &[]), Err(LeanError::NoId));
        assert_eq!(sandboxes(&[0x08, 1], &[]), Err(WireError::WrongType(1).into()));
        let not_text = [0x0a, 3, 0x0a, 1, 0xff];
        assert_eq!(containers(&not_text, &[]), Err(WireError::NotText(1).into()));
        assert!(containers(b"HTTP/1.1 400 Bad Request", &[]).is_err());
    }

    /// The lean decoder and the generated one must agree on any list.
    #[test]
    fn agrees_with_the_full_decoder() {
        let mut seed = 1_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        let mut before = Vec::new();
        for _ in 0..50 {
            let count = random(40);
            let items: Vec<pb::PodSandbox> = (0..count)
                .map(|_| {
                    let id = random(60);
                    let uid = format!("uid-{id}");
                    sandbox(&format!("{:x}", id * 0x1234_5678_9abc), (id % 5 != 0).then_some(&*uid), id as i32 % 2)
                })
                .collect();
            let bytes = sandbox_list(items);
            let mut expect: Vec<SandboxBrief> = pb::ListPodSandboxResponse::decode(&*bytes)
                .unwrap()
                .items
                .into_iter()
                .filter_map(|item| {
                    let pod = PodUid::from(item.labels.get(POD_UID_LABEL)?.as_str());
                    let state = if item.state == 0 { SandboxState::Ready } else { SandboxState::NotReady };
                    Some(SandboxBrief { id: item.id.into(), pod, state })
                })
                .collect();
            expect.sort_by(|a, b| a.id.cmp(&b.id));
            expect.dedup_by(|a, b| a.id == b.id);
            let found = sandboxes(&bytes, &before).unwrap();
            assert_eq!(found, expect);
            before = found;
        }
    }
}
