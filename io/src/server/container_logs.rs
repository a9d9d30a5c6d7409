//! `/containerLogs/NAMESPACE/POD/CONTAINER`: which log is meant, what of it, and its bytes as they are read.
//!
//! Reads the published statuses for which instance is meant and whether it still runs, and asks the runtime where its
//! log lies. Says what the kubelet says when there is none.

use super::body::{Body, TEXT, response};
use super::query;
use super::routes::Site;
use crate::logs::{LogOptions, LogRequest, Stream};
use components::ids::PodUid;
use components::snapshot::{PodView, Snapshot};
use components::status::{ContainerReport, ReportedState};
use components::world::Stage;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode, Uri};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;

/// What is said instead of a log.
type Refusal = (StatusCode, String);

/// Answers a request.
pub(super) async fn serve(site: &Arc<Site>, uri: &Uri) -> Response<Body> {
    match read(site, uri).await {
        Ok(answer) => answer,
        Err((status, message)) => response(status, TEXT, message),
    }
}

async fn read(site: &Arc<Site>, uri: &Uri) -> Result<Response<Body>, Refusal> {
    let parts = query::parts(uri.path());
    let [namespace, pod_name, container] = parts.as_slice() else {
        return Err((StatusCode::NOT_FOUND, "404: Page Not Found".to_owned()));
    };
    let pairs = query::pairs(uri.query().unwrap_or_default());
    let now = i128::from(site.readers.clock.now().wall.0);
    let (options, previous) = options(&pairs, site.config.split_log_streams, now)?;
    let not_found = |text: String| (StatusCode::NOT_FOUND, text);
    let snapshot = site.readers.snapshot.load_full();
    let pod = find_pod(&snapshot, namespace, pod_name)
        .ok_or_else(|| not_found(format!("pod {pod_name:?} does not exist")))?;
    let known = pod.spec.as_ref().is_some_and(|spec| spec.containers.iter().any(|c| *c.name == **container));
    if !known {
        return Err(not_found(format!("container {container:?} not found in pod {pod_name:?}")));
    }
    let bad = |text: String| (StatusCode::BAD_REQUEST, text);
    let shown = instance(find_report(&pod, container), &pod.name, container, previous).map_err(bad)?;
    let id = shown.rsplit_once("://").map_or(shown.as_str(), |(_, id)| id).to_owned();
    let path = match site.readers.runtime.log_path(&id).await {
        Ok(Some(path)) if !path.is_empty() => PathBuf::from(path),
        Ok(_) => return Err(bad(format!("unable to retrieve container logs for {shown}"))),
        Err(error) => return Err(bad(error.message)),
    };
    let (reader, uid, name) = (Arc::clone(site), pod.uid.clone(), container.clone());
    let running = Box::new(move || runs(&reader.readers.snapshot.load(), &uid, &name, &shown));
    let request = LogRequest { path, options, running, stop: site.streams.stopped() };
    let portions = site.logs.read(request).await.map_err(|error| bad(error.to_string()))?;
    let pieces = ReceiverStream::new(portions).map(|portion| portion.map_err(io::Error::other));
    let mut answer = Response::new(Body::pieces(pieces));
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    Ok(answer)
}

/// The pod of this name. While one takes over from another, the one that runs.
fn find_pod(snapshot: &Snapshot, namespace: &str, name: &str) -> Option<Arc<PodView>> {
    let place = |stage: Stage| match stage {
        Stage::Syncing => 0,
        Stage::Terminating => 1,
        Stage::Queued => 2,
        Stage::Terminated => 3,
        Stage::Done => 4,
    };
    let named = |pod: &&Arc<PodView>| *pod.namespace == *namespace && *pod.name == *name && pod.spec.is_some();
    snapshot.pods().filter(named).min_by_key(|pod| place(pod.stage)).map(Arc::clone)
}

fn find_report<'a>(pod: &'a PodView, container: &str) -> Option<&'a ContainerReport> {
    let status = &pod.status;
    let all = status.containers.iter().chain(&status.init_containers).chain(&status.ephemeral_containers);
    all.into_iter().find(|report| *report.name == *container)
}

/// The instance whose log is meant: the one that runs, or the one that ended last.
fn instance(report: Option<&ContainerReport>, pod: &str, container: &str, previous: bool) -> Result<String, String> {
    let Some(report) = report else {
        return Err(format!("container {container:?} in pod {pod:?} is not available"));
    };
    let ended = |state: Option<&ReportedState>| match state {
        Some(ReportedState::Terminated { container_id, .. }) => Some(container_id.clone()),
        _ => None,
    };
    let last = ended(report.last.as_ref());
    if previous {
        return last
            .filter(|id| !id.is_empty())
            .ok_or_else(|| format!("previous terminated container {container:?} in pod {pod:?} not found"));
    }
    let found = match &report.state {
        ReportedState::Running { .. } => return Ok(report.container_id.clone()),
        ReportedState::Terminated { container_id, .. } if container_id.is_empty() => last,
        ReportedState::Terminated { container_id, .. } => return Ok(container_id.clone()),
        ReportedState::Waiting { reason, .. } if last.is_none() => {
            let why = match reason.as_str() {
                "ErrImagePull" => "image can't be pulled",
                "ImagePullBackOff" => "trying and failing to pull image",
                other => other,
            };
            return Err(format!("container {container:?} in pod {pod:?} is waiting to start: {why}"));
        }
        ReportedState::Waiting { .. } => last,
    };
    found.filter(|id| !id.is_empty()).ok_or_else(|| format!("container {container:?} in pod {pod:?} is terminated"))
}

/// Whether this instance runs, as far as is published.
fn runs(snapshot: &Snapshot, uid: &PodUid, container: &str, id: &str) -> bool {
    let pod = snapshot.pods().find(|pod| pod.uid == *uid);
    let report = pod.and_then(|pod| find_report(pod, container));
    report.is_some_and(|report| matches!(report.state, ReportedState::Running { .. }) && report.container_id == id)
}

/// What is asked for, and whether of the instance before.
fn options(pairs: &[(String, String)], split: bool, now: i128) -> Result<(LogOptions, bool), Refusal> {
    let undecodable = || (StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#.to_owned());
    let invalid = || (StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#.to_owned());
    let value = |key: &str| pairs.iter().find(|(found, _)| found == key).map(|(_, value)| value.as_str());
    // Whatever is there is a yes, unless it is a no.
    let flag = |key: &str| value(key).is_some_and(|text| text != "0" && !text.eq_ignore_ascii_case("false"));
    let number = |text: Option<&str>| text.map(|text| text.parse::<i64>().map_err(|_| undecodable())).transpose();
    // The older name of `tailLines`.
    let tail = match value("tail").filter(|text| !text.is_empty()) {
        Some("all") => None,
        Some(text) => Some(text),
        None => value("tailLines"),
    };
    let (tail, limit, seconds) = (number(tail)?, number(value("limitBytes"))?, number(value("sinceSeconds"))?);
    let time = match value("sinceTime").filter(|text| !text.is_empty() && *text != "null") {
        Some(text) => Some(text.parse::<jiff::Timestamp>().map_err(|_| undecodable())?.as_nanosecond()),
        None => None,
    };
    let specific = value("stream").filter(|text| *text != "All");
    let wrong = tail.is_some_and(|lines| lines < 0)
        || limit.is_some_and(|bytes| bytes < 1)
        || seconds.is_some_and(|seconds| seconds < 1)
        || (seconds.is_some() && time.is_some())
        || (split && specific.is_some_and(|text| tail.is_some() || !matches!(text, "Stdout" | "Stderr")));
    if wrong {
        return Err(invalid());
    }
    let stream = match specific {
        None => None,
        Some(text) if !split => {
            let text = format!(
                "unable to return the given log stream: {text:?}. Please enable PodLogsQuerySplitStreams feature gate in kubelet"
            );
            return Err((StatusCode::BAD_REQUEST, text));
        }
        Some("Stdout") => Some(Stream::Stdout),
        Some(_) => Some(Stream::Stderr),
    };
    let options = LogOptions {
        follow: flag("follow"),
        tail_lines: tail.and_then(|lines| u64::try_from(lines).ok()),
        limit_bytes: limit.and_then(|bytes| u64::try_from(bytes).ok()),
        since: time.or(seconds.map(|seconds| now - i128::from(seconds) * SECOND)),
        timestamps: flag("timestamps"),
        stream,
    };
    Ok((options, flag("previous")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::time::Wall;

    #[track_caller]
    fn check(asked: &str, split: bool, expect: &str) {
        let found = match options(&query::pairs(asked), split, 100 * SECOND) {
            Ok((options, previous)) => format!("{options:?} {previous}"),
            Err((status, text)) => format!("{} {text}", status.as_u16()),
        };
        assert!(found.contains(expect), "{asked}: {found}");
    }

    #[test]
    fn queries_are_understood_as_the_kubelet_does() {
        check("", false, "follow: false, tail_lines: None, limit_bytes: None, since: None, timestamps: false");
        check("follow&timestamps=1&previous=false", false, "follow: true");
        check("follow=False", false, "follow: false");
        check("previous=true", false, "} true");
        check("tailLines=5", false, "tail_lines: Some(5)");
        check("tailLines=5&tail=7", false, "tail_lines: Some(7)");
        check("tailLines=5&tail=all", false, "tail_lines: None");
        check("limitBytes=9", false, "limit_bytes: Some(9)");
        check("sinceSeconds=40", false, "since: Some(60000000000)");
        check("sinceTime=1970-01-01T00:00:01Z", false, "since: Some(1000000000)");
        check("stream=Stderr", true, "stream: Some(Stderr)");
        check("stream=All&tailLines=1", true, "stream: None");
    }

    #[test]
    fn wrong_queries_are_refused() {
        for asked in ["tailLines=x", "tailLines=", "limitBytes=1.5", "sinceTime=yesterday", "sinceSeconds=1h"] {
            check(asked, false, "400 {\"message\": \"Unable to decode query.\"}");
        }
        for asked in ["tailLines=-1", "limitBytes=0", "sinceSeconds=0", "sinceSeconds=1&sinceTime=1970-01-01T00:00:01Z"]
        {
            check(asked, false, "422 {\"message\": \"Invalid request.\"}");
        }
        check("stream=Stdout", false, "400 unable to return the given log stream: \"Stdout\"");
        check("stream=Stdout&tailLines=1", true, "422");
        check("stream=stdin", true, "422");
    }

    #[test]
    fn the_instance_that_is_meant_is_found_or_it_is_said_why_not() {
        let terminated = |id: &str| ReportedState::Terminated {
            exit_code: 1,
            reason: String::new(),
            message: String::new(),
            started_at: Wall(0),
            finished_at: Wall(0),
            container_id: id.to_owned(),
        };
        let waiting = |reason: &str| ReportedState::Waiting { reason: reason.to_owned(), message: String::new() };
        let check = |state, last, previous, expect: &str| {
            let report = ContainerReport {
                name: "c".into(),
                state,
                last,
                ready: false,
                started: None,
                restart_count: 0,
                image: String::new(),
                image_id: String::new(),
                container_id: "containerd://now".to_owned(),
                user: None,
                actual: None,
            };
            let found = instance(Some(&report), "p", "c", previous);
            assert_eq!(found.unwrap_or_else(|text| text), expect);
        };
        let running = || ReportedState::Running { started_at: Wall(1) };
        check(running(), None, false, "containerd://now");
        check(running(), None, true, "previous terminated container \"c\" in pod \"p\" not found");
        check(running(), Some(terminated("old")), true, "old");
        check(terminated("it"), None, false, "it");
        check(terminated(""), Some(terminated("old")), false, "old");
        check(terminated(""), None, false, "container \"c\" in pod \"p\" is terminated");
        check(waiting("CrashLoopBackOff"), Some(terminated("old")), false, "old");
        check(waiting("Odd"), None, false, "container \"c\" in pod \"p\" is waiting to start: Odd");
        check(
            waiting("ErrImagePull"),
            None,
            false,
            "container \"c\" in pod \"p\" is waiting to start: image can't be pulled",
        );
        let none = instance(None, "p", "c", false).unwrap_err();
        assert_eq!(none, "container \"c\" in pod \"p\" is not available");
    }
}
