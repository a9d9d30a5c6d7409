//! The rules of the simulated API server.

use super::*;
use components::edge::api::{Body, Class};

const WALL: Wall = Wall(1_767_225_600_000_000_000);
const POD: &str = "/api/v1/namespaces/default/pods/web";

fn server() -> ApiServer {
    let mut server = ApiServer::default();
    let pod = json!({"metadata": {"name": "web", "uid": "u1"}, "spec": {"nodeName": "sim"}});
    server.create(WALL, "/api/v1/namespaces/default/pods", &pod).unwrap();
    server
}

fn ask(server: &mut ApiServer, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Body::Empty } else { Body::Json(body.to_string()) };
    let request = ApiRequest { method, path: path.into(), body, class: Class::Pod, secret: false };
    let answered = server.request(Mono(0), WALL, &request);
    (answered.status, serde_json::from_str(&answered.body).unwrap())
}

#[test]
fn a_status_patch_changes_the_status_only_and_needs_the_right_uid() {
    let mut server = server();
    let path = format!("{POD}/status");
    let conditions = json!([{"type": "Ready", "status": "False"}, {"type": "Initialized", "status": "True"}]);
    let change = json!({"metadata": {"uid": "u1"}, "status": {"phase": "Running", "conditions": conditions}});
    assert_eq!(ask(&mut server, Method::PatchStrategic, &path, &change).0, 200);
    let change = json!({
        "metadata": {"uid": "u1", "labels": {"x": "y"}},
        "spec": {"nodeName": "other"},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "$setElementOrder/conditions": [{"type": "Initialized"}, {"type": "Ready"}]},
    });
    let (status, pod) = ask(&mut server, Method::PatchStrategic, &path, &change);
    assert_eq!(status, 200);
    let expect = json!([{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]);
    assert_eq!((&pod["status"]["conditions"], &pod["status"]["phase"]), (&expect, &json!("Running")));
    assert_eq!((&pod["spec"]["nodeName"], pod["metadata"].get("labels")), (&json!("sim"), None));
    let before = pod["metadata"]["resourceVersion"].clone();
    assert_eq!(ask(&mut server, Method::PatchStrategic, &path, &change).1["metadata"]["resourceVersion"], before);
    let (status, refused) = ask(&mut server, Method::PatchStrategic, &path, &json!({"metadata": {"uid": "u2"}}));
    assert_eq!((status, &refused["reason"]), (409, &json!("Conflict")));
}

#[test]
fn pods_are_deleted_politely_and_at_the_end_for_good() {
    let mut server = server();
    let (status, pod) = ask(&mut server, Method::Delete, POD, &Value::Null);
    assert_eq!((status, &pod["metadata"]["deletionGracePeriodSeconds"]), (200, &json!(30)));
    assert_eq!(pod["metadata"]["deletionTimestamp"], "2026-01-01T00:00:30Z");
    let last = |uid: &str| json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid}});
    assert_eq!(ask(&mut server, Method::Delete, POD, &last("u2")).0, 409);
    assert_eq!(ask(&mut server, Method::Delete, POD, &last("u1")).0, 200);
    assert_eq!(ask(&mut server, Method::Get, POD, &Value::Null).0, 404);
}

#[test]
fn a_watch_tells_what_its_selector_sees() {
    let mut server = server();
    let list = "/api/v1/pods?fieldSelector=spec.nodeName%3Dsim&resourceVersion=0";
    let (_, found) = ask(&mut server, Method::Get, list, &Value::Null);
    assert_eq!(found["items"][0]["metadata"]["name"], "web");
    let version = found["metadata"]["resourceVersion"].as_str().unwrap().to_owned();
    let path = format!("/api/v1/pods?fieldSelector=spec.nodeName%3Dsim&watch=1&resourceVersion={version}");
    let mut watch = server.watch(Mono(0), &path, false).unwrap();
    let pod = json!({"metadata": {"name": "b"}, "spec": {}});
    server.create(WALL, "/api/v1/namespaces/default/pods", &pod).unwrap();
    assert_eq!(server.events(&mut watch), []);
    server.patch("/api/v1/namespaces/default/pods/b", &json!({"spec": {"nodeName": "sim"}})).unwrap();
    server.delete(WALL, POD, Some(0)).unwrap();
    let kinds: Vec<EventKind> = server.events(&mut watch).iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [EventKind::Added, EventKind::Deleted]);
    server.compact();
    assert_eq!(server.watch(Mono(0), &path, false).unwrap_err().status, 410);
    server.refuses = Some((429, Mono(10)));
    assert_eq!(ask(&mut server, Method::Get, list, &Value::Null).0, 429);
    assert_eq!(server.counts["GET pods"], 2);
}
