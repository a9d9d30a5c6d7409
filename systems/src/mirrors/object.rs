//! The objects of mirror pods, and what is read of the node's.

use components::apipods::ApiPod;
use components::edge::api::{ApiRequest, Class, Method};
use components::ids::PodUid;
use components::spec::PodSpec;
use serde_json::{Value, json};

/// Annotation with the static pod's hash.
const HASH: &str = "kubernetes.io/config.hash";
/// The same on the mirror, by which it is known as one.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Hash of a static pod.
pub(crate) fn hash(spec: &PodSpec) -> &str {
    spec.annotations.get(HASH).map_or(spec.uid.as_str(), String::as_str)
}

/// Body of the creation; `None` when the spec's own object cannot be read, which would be a bug.
pub(super) fn mirror(spec: &PodSpec, node_name: &str, node_uid: &str) -> Option<String> {
    let mut pod: Value = serde_json::from_str(&spec.json).ok()?;
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    let metadata = pod.get_mut("metadata")?.as_object_mut()?;
    metadata.remove("uid");
    metadata.remove("resourceVersion");
    metadata.entry("annotations").or_insert_with(|| json!({}))[MIRROR] = json!(hash(spec));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": node_name, "uid": node_uid, "controller": true});
    metadata.insert("ownerReferences".to_owned(), json!([owner]));
    Some(pod.to_string())
}

/// Deletion of this mirror and of no other of its name.
pub(super) fn deletion(uid: &PodUid, mirror: &ApiPod) -> ApiRequest {
    let preconditions = json!({"uid": uid.as_str()});
    let options =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": preconditions});
    let path = format!("/api/v1/namespaces/{}/pods/{}", mirror.namespace, mirror.name);
    ApiRequest::send(Method::Delete, path, options.to_string(), Class::Pod)
}

/// uid of a node that is not being deleted.
pub(super) fn node_uid(body: &str) -> Option<String> {
    let node: Value = serde_json::from_str(body).ok()?;
    let metadata = node.get("metadata")?;
    let stays = metadata.get("deletionTimestamp").is_none();
    metadata.get("uid").and_then(Value::as_str).filter(|uid| stays && !uid.is_empty()).map(str::to_owned)
}
