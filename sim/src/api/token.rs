//! Tokens of service accounts: bound to a pod that must exist.

use super::place::Place;
use super::{ApiServer, failure};
use components::time::Wall;
use serde_json::{Value, json};

/// Life of a token when none is asked for, and the shortest there is.
const SECONDS: (i64, i64) = (3600, 600);

impl ApiServer {
    /// Answers a `TokenRequest`.
    pub(super) fn issue_token(&mut self, wall: Wall, place: &Place, mut request: Value) -> (u16, Value) {
        let text = |path: &str| request.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, uid) = (text("/spec/boundObjectRef/name"), text("/spec/boundObjectRef/uid"));
        let namespace = place.namespace.clone();
        let at =
            Place { group: "/api/v1".to_owned(), resource: "pods".to_owned(), namespace, name, sub: String::new() };
        let Some(pod) = self.objects.get(&at) else {
            return failure(404, "NotFound", &format!("pods {:?} not found", at.name));
        };
        if pod.pointer("/metadata/uid").and_then(Value::as_str) != Some(&uid) {
            return failure(409, "Conflict", "the UID in the bound object reference does not match the UID in record");
        }
        let seconds = request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(SECONDS.0);
        if seconds < SECONDS.1 {
            return failure(422, "Invalid", "may not specify a duration less than 10 minutes");
        }
        self.tokens += 1;
        let expires = Wall(wall.0.saturating_add(seconds.saturating_mul(1_000_000_000)));
        request["spec"]["expirationSeconds"] = json!(seconds);
        request["status"] = json!({
            "token": format!("token-{} of {}/{}", self.tokens, place.namespace, place.name),
            "expirationTimestamp": expires.rfc3339(),
        });
        (201, request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::api::{ApiRequest, Body, Class, Method};
    use components::time::Mono;

    fn ask(server: &mut ApiServer, uid: &str, seconds: i64) -> (u16, Value) {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid});
        let body = json!({"spec": {"expirationSeconds": seconds, "boundObjectRef": bound}}).to_string();
        let path = "/api/v1/namespaces/default/serviceaccounts/robot/token".to_owned();
        let request = ApiRequest { secret: true, ..ApiRequest::send(Method::Post, path, body, Class::Object) };
        assert!(matches!(request.body, Body::Json(_)));
        let answer = server.request(Mono(0), Wall(0), &request);
        (answer.status, serde_json::from_str(&answer.body).unwrap())
    }

    #[test]
    fn tokens_need_their_pod() {
        let mut server = ApiServer::default();
        assert_eq!(ask(&mut server, "u", 3600).0, 404);
        let pod = json!({"metadata": {"name": "p", "uid": "u"}});
        server.create(Wall(0), "/api/v1/namespaces/default/pods", &pod).unwrap();
        assert_eq!(ask(&mut server, "other", 3600).0, 409);
        assert_eq!(ask(&mut server, "u", 10).0, 422);
        let (status, body) = ask(&mut server, "u", 3600);
        assert_eq!((status, &body["status"]["token"]), (201, &json!("token-1 of default/robot")));
        assert_eq!(body["status"]["expirationTimestamp"], json!("1970-01-01T01:00:00Z"));
    }
}
