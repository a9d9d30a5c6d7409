//! What is done for a full name, and the objects.

use super::*;
use crate::fixtures;
use components::status::Phase;
use serde_json::{Value, json};

fn mirror(of: &str, delete: Option<u32>) -> ApiPod {
    ApiPod {
        namespace: "default".into(),
        name: "p-node".into(),
        version: 1,
        delete,
        phase: Phase::Running,
        status: "{}".into(),
        mirror_of: Some(of.into()),
    }
}

#[test]
fn a_mirror_is_made_healed_and_taken_away() {
    let spec = fixtures::spec("p: c");
    let own = hash(&spec).to_owned();
    let uid = PodUid::from("m");
    let step = |spec: bool, found: Option<&ApiPod>, ends: bool| {
        let text = fixtures::spec("p: c");
        let step = decide(spec.then_some(&text), found.map(|pod| (&uid, pod)), ends);
        match step {
            Step::Nothing => "nothing",
            Step::Create(_) => "create",
            Step::Delete(..) => "delete",
        }
        .to_owned()
    };
    assert_eq!(step(false, None, false), "nothing");
    assert_eq!(step(true, None, false), "create");
    assert_eq!(step(true, Some(&mirror(&own, None)), false), "nothing");
    assert_eq!(step(true, Some(&mirror("other", None)), false), "delete");
    assert_eq!(step(true, Some(&mirror(&own, Some(30))), false), "delete");
    assert_eq!(step(false, Some(&mirror(&own, None)), false), "delete");
    // Its static pod is being ended: it is shown until that is done.
    assert_eq!(step(false, Some(&mirror(&own, None)), true), "nothing");
    assert_eq!(step(false, Some(&mirror(&own, Some(30))), true), "delete");
}

#[test]
fn a_mirror_is_owned_by_the_node_and_names_what_it_stands_for() {
    let mut spec = fixtures::spec("p: c");
    spec.json = json!({"metadata": {"name": "p-node", "uid": "u"}, "spec": {}}).to_string().into();
    let body: Value = serde_json::from_str(&object::mirror(&spec, "node", "node-uid").unwrap()).unwrap();
    assert_eq!(body["metadata"]["annotations"]["kubernetes.io/config.mirror"], hash(&spec));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "node", "uid": "node-uid", "controller": true});
    assert_eq!(body["metadata"]["ownerReferences"], json!([owner]));
    assert!(body["metadata"].get("uid").is_none());
    assert_eq!(object::node_uid(r#"{"metadata":{"uid":"x"}}"#), Some("x".into()));
    assert_eq!(object::node_uid(r#"{"metadata":{"uid":"x","deletionTimestamp":"t"}}"#), None);
}
