//! `POST /checkpoint/NAMESPACE/POD/CONTAINER`: makes the runtime write a container's state into an archive.
//!
//! Reads the published pods and the runtime; the archive goes into `checkpoints` below the root directory.

use super::Readers;
use super::body::{Body, TEXT, response};
use super::query;
use super::streams::{find_container, find_pod};
use http::{Response, StatusCode, Uri};
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

/// Answers a request that names a pod and a container; `folder` takes the archive.
pub(super) async fn serve(readers: &Readers, folder: &Path, uri: &Uri) -> Response<Body> {
    let parts = query::parts(uri.path());
    let pod = match find_pod(readers, &parts) {
        Ok(pod) => pod,
        Err(refused) => return *refused,
    };
    let name = parts.last().map_or("", String::as_str);
    if !pod.spec.as_ref().is_some_and(|spec| spec.containers.iter().any(|known| *known.name == *name)) {
        return response(StatusCode::NOT_FOUND, TEXT, format!("container {name} does not exist"));
    }
    let pairs = query::pairs(uri.query().unwrap_or_default());
    // The last one counts.
    let Ok(timeout) = query::all(&pairs, "timeout").pop().map_or(Ok(0), |text| text.parse::<i64>()) else {
        return response(StatusCode::NOT_FOUND, TEXT, "cannot parse value of timeout parameter");
    };
    let failed = |why: &str| {
        let place = format!("{}/{}/{name}", pod.namespace, pod.name);
        response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("checkpointing of {place} failed ({why})"))
    };
    let container = match find_container(readers, &pod, &parts).await {
        Ok(Some(id)) => id,
        Ok(None) => return failed(&format!("container {name} not found")),
        Err(error) => return failed(&error.message),
    };
    if let Err(error) = tokio::fs::create_dir_all(folder).await {
        return failed(&format!("{}: {error}", folder.display()));
    }
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    let file = folder.join(format!("checkpoint-{}_{}-{name}-{now}.tar", pod.name, pod.namespace));
    let file = file.display().to_string();
    let longer = u64::try_from(timeout).ok().map(Duration::from_secs).filter(|wait| !wait.is_zero());
    match readers.runtime.checkpoint(&container, &file, timeout, longer).await {
        Ok(()) => {
            let body = serde_json::json!({ "items": [file] }).to_string();
            response(StatusCode::OK, "application/json", body)
        }
        Err(error) => failed(&error.message),
    }
}
