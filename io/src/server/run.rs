//! `/runningpods/` and `/run`: what the runtime has now, and one command with its output.

use super::Readers;
use super::body::{Body, TEXT, response};
use super::connection::SILENCE;
use super::query;
use super::streams::{find_container, find_pod};
use http::{Response, StatusCode, Uri};
use serde::Serialize;

const JSON: &str = "application/json";

/// Answers `/runningpods/`.
pub(super) async fn running_pods(readers: &Readers) -> Response<Body> {
    let pods = match readers.runtime.running_pods().await {
        Ok(pods) => pods,
        Err(error) => return response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.message),
    };
    let items = pods
        .iter()
        .map(|pod| ShownPod {
            metadata: ShownMeta { name: &pod.name, namespace: &pod.namespace, uid: &pod.uid },
            spec: ShownSpec {
                containers: pod
                    .containers
                    .iter()
                    .map(|(name, image)| ShownContainer { name, image, resources: Empty {} })
                    .collect(),
            },
            status: Empty {},
        })
        .collect();
    let list = ShownList { kind: "PodList", api_version: "v1", metadata: Empty {}, items };
    match serde_json::to_string(&list) {
        Ok(body) => response(StatusCode::OK, JSON, body),
        Err(error) => response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, error.to_string()),
    }
}

/// Answers `/run/NAMESPACE/POD[/UID]/CONTAINER?cmd=…` with what the command wrote.
pub(super) async fn run(readers: &Readers, uri: &Uri) -> Response<Body> {
    let parts = query::parts(uri.path());
    let pod = match find_pod(readers, &parts) {
        Ok(pod) => pod,
        Err(refused) => return *refused,
    };
    let container = match find_container(readers, &pod, &parts).await {
        Ok(Some(id)) => id,
        Ok(None) => {
            let name = parts.last().map_or("", String::as_str);
            return failed(format!("container not found ({name:?})"));
        }
        Err(error) => return failed(error.message),
    };
    let pairs = query::pairs(uri.query().unwrap_or_default());
    // This path splits its one text at blanks, for reasons of history.
    let cmd: Vec<String> = query::first(&pairs, "cmd").split(' ').map(str::to_owned).collect();
    let said = cmd.join(" ");
    match readers.runtime.exec_sync(&container, cmd, SILENCE).await {
        Err(error) => failed(error.message),
        Ok(end) if end.exit_code != 0 => {
            let stderr = String::from_utf8_lossy(&end.stderr);
            failed(format!("command '{said}' exited with {}: {stderr}", end.exit_code))
        }
        Ok(end) => {
            let mut output = end.stdout;
            output.extend(end.stderr);
            response(StatusCode::OK, JSON, output)
        }
    }
}

fn failed(message: String) -> Response<Body> {
    response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, message)
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct ShownList<'a> {
    kind: &'static str,
    #[serde(rename = "apiVersion")]
    api_version: &'static str,
    metadata: Empty,
    items: Vec<ShownPod<'a>>,
}

#[derive(Serialize)]
struct ShownPod<'a> {
    metadata: ShownMeta<'a>,
    spec: ShownSpec<'a>,
    status: Empty,
}

#[derive(Serialize)]
struct ShownMeta<'a> {
    name: &'a str,
    namespace: &'a str,
    uid: &'a str,
}

#[derive(Serialize)]
struct ShownSpec<'a> {
    containers: Vec<ShownContainer<'a>>,
}

#[derive(Serialize)]
struct ShownContainer<'a> {
    name: &'a str,
    image: &'a str,
    resources: Empty,
}
