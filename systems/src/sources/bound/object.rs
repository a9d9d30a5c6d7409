//! A pod's object as the watch brings it: the few fields that decide what is to be done with it.

use components::apipods::ApiPod;
use components::fnv::fnv1a_128;
use components::ids::PodUid;
use components::status::parse;
use serde_json::Value;
use std::sync::Arc;

/// Annotation of a mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// What of an object is looked at before it is compiled.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) uid: PodUid,
    /// Digest of everything that makes up the pod: a write of its status leaves it as it is.
    pub(super) digest: u128,
    pub(super) pod: ApiPod,
    /// `metadata.creationTimestamp` as it is written, which sorts by time.
    pub(super) created: String,
}

impl Object {
    /// Reads an object; `None` when it has no name, uid or version.
    pub(super) fn read(json: &str) -> Option<Self> {
        let mut value: Value = serde_json::from_str(json).ok()?;
        let pod = api_pod(&value)?;
        let uid = PodUid::from(value.pointer("/metadata/uid")?.as_str()?);
        value.as_object_mut()?.remove("status");
        let metadata = value.get_mut("metadata")?.as_object_mut()?;
        for field in ["resourceVersion", "managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"] {
            metadata.remove(field);
        }
        let created = metadata.get("creationTimestamp").and_then(Value::as_str).unwrap_or_default().to_owned();
        Some(Self { uid, digest: fnv1a_128(value.to_string().as_bytes()), pod, created })
    }
}

/// What the server has, from a whole object.
pub(crate) fn api_pod(value: &Value) -> Option<ApiPod> {
    let metadata = value.get("metadata")?;
    let text = |field: &str| metadata.get(field).and_then(Value::as_str);
    let grace = metadata.get("deletionGracePeriodSeconds").and_then(Value::as_u64);
    let grace = grace.map_or(0, |seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
    let mirror = metadata.get("annotations").and_then(|all| all.get(MIRROR)).and_then(Value::as_str);
    let phase = value.pointer("/status/phase").and_then(Value::as_str).unwrap_or_default();
    Some(ApiPod {
        namespace: text("namespace")?.into(),
        name: text("name")?.into(),
        version: text("resourceVersion")?.parse().ok()?,
        delete: text("deletionTimestamp").map(|_| grace),
        phase: parse::phase(phase),
        status: value.get("status").map_or_else(|| "{}".to_owned(), Value::to_string).into(),
        mirror_of: mirror.map(Arc::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn writes_of_the_status_and_of_its_deletion_are_no_new_content() {
        let mut pod = json!({
            "metadata": {"name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7", "generation": 1},
            "spec": {"containers": []}, "status": {"phase": "Running"},
        });
        let first = Object::read(&pod.to_string()).unwrap();
        assert_eq!((first.pod.version, first.pod.phase.as_str(), first.pod.delete), (7, "Running", None));
        pod["metadata"]["resourceVersion"] = json!("8");
        pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(5);
        pod["status"]["phase"] = json!("Failed");
        let second = Object::read(&pod.to_string()).unwrap();
        assert_eq!((second.digest, second.pod.delete), (first.digest, Some(5)));
        pod["metadata"]["labels"] = json!({"a": "b"});
        assert_ne!(Object::read(&pod.to_string()).unwrap().digest, first.digest);
        assert!(Object::read("{}").is_none());
    }
}
