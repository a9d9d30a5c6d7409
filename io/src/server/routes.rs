//! What each path answers, and who may ask.

use super::{Readers, ServerConfig, health, page, pod_json, probes};
use crate::metrics;
use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, Uri};
use http_body_util::Full;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Which port a request came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Listener {
    /// The TLS port.
    Kubelet,
    /// The read-only port: what tells no secrets, to anyone.
    ReadOnly,
    /// The healthz port.
    Healthz,
}

/// Everything an answer is made from.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) config: ServerConfig,
    pub(super) readers: Readers,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Healthz(Option<&'static str>),
    Pods,
    Metrics,
    Probes,
    Configz,
    /// Known to Kubernetes, not served by this version: (first part, allowed methods, only with debugging handlers).
    Later(&'static str, &'static str, bool),
}

/// Paths that later versions serve. An entry that ends in `/` stands for all below it.
const LATER: [(&str, &str, bool); 20] = [
    ("/stats/summary", "GET", false),
    ("/metrics/cadvisor", "GET", false),
    ("/metrics/resource", "GET", false),
    ("/metrics/slis", "GET", false),
    ("/run/", "POST", true),
    ("/exec/", "GET, POST", true),
    ("/attach/", "GET, POST", true),
    ("/portForward/", "GET, POST", true),
    ("/containerLogs/", "GET", true),
    ("/runningpods", "GET", true),
    ("/runningpods/", "GET", true),
    ("/logs", "GET", true),
    ("/logs/", "GET", true),
    ("/debug/pprof", "GET", true),
    ("/debug/pprof/", "GET", true),
    ("/debug/flags/v", "PUT", true),
    ("/checkpoint/", "POST", false),
    ("/allocatedPods", "GET", false),
    ("/flagz", "GET", false),
    ("/statusz", "GET", false),
];

impl Site {
    /// Answers one request.
    pub(super) fn answer(&self, listener: Listener, method: &Method, uri: &Uri) -> Response<Full<Bytes>> {
        if listener == Listener::Kubelet
            && let Err((status, message)) = self.admit(method, uri.path())
        {
            return response(status, TEXT, message);
        }
        let Some(target) = target(listener, uri.path()) else {
            return response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
        };
        let (allowed, debugging) = match target {
            Target::Later(_, allowed, debugging) => (allowed, debugging),
            Target::Configz => ("GET", true),
            Target::Healthz(_) | Target::Pods | Target::Metrics | Target::Probes => ("GET", false),
        };
        if debugging && !self.config.debugging_handlers {
            return match target {
                Target::Configz => response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"),
                _ => response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Debug endpoints are disabled.\n"),
            };
        }
        if !allowed.split(", ").any(|name| name == method.as_str()) {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "405: Method Not Allowed");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            return refused;
        }
        match target {
            Target::Healthz(check) => self.healthz(check, uri.query().unwrap_or_default()),
            Target::Pods => {
                response(StatusCode::OK, JSON, pod_json::pod_list(self.readers.snapshot.load_full().pods()))
            }
            Target::Metrics => {
                let page = page::metrics(&self.readers, &self.config.node_name);
                response(StatusCode::OK, metrics::CONTENT_TYPE, page)
            }
            Target::Probes => response(StatusCode::OK, metrics::CONTENT_TYPE, probes::page(&self.readers)),
            Target::Configz => response(StatusCode::OK, JSON, self.config.configz.clone()),
            Target::Later(path, _, _) => {
                let line = format!("{path} is not served by this version of ticklet\n");
                response(StatusCode::NOT_IMPLEMENTED, TEXT, line)
            }
        }
    }

    /// Who asks is known only as anonymous so far, and what is allowed only as everything or nothing.
    fn admit(&self, method: &Method, path: &str) -> Result<(), (StatusCode, String)> {
        if !self.config.anonymous {
            return Err((StatusCode::UNAUTHORIZED, "Unauthorized".to_owned()));
        }
        if self.config.always_allow {
            return Ok(());
        }
        let verb = match *method {
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "get",
        };
        let message = format!(
            "Forbidden (user=system:anonymous, verb={verb}, resource=nodes, subresource(s)=[{}])",
            subresources(path)
        );
        Err((StatusCode::FORBIDDEN, message))
    }

    fn healthz(&self, check: Option<&'static str>, query: &str) -> Response<Full<Bytes>> {
        let verbose = query.split('&').any(|part| part == "verbose" || part.starts_with("verbose="));
        let snapshot = self.readers.snapshot.load();
        let now = self.readers.clock.now().mono;
        let problem = |name| health::problem(name, &snapshot, now, self.config.syncloop_limit);
        let (code, body) = match check {
            Some(check) => health::report(&[check], verbose, problem),
            None => health::report(&health::CHECKS, verbose, problem),
        };
        response(StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), TEXT, body)
    }
}

fn target(listener: Listener, path: &str) -> Option<Target> {
    let health = || {
        let check = path.strip_prefix("/healthz/")?;
        health::CHECKS.into_iter().find(|known| *known == check)
    };
    let target = match path {
        "/healthz" | "/healthz/" => Target::Healthz(None),
        "/pods" | "/pods/" => Target::Pods,
        "/metrics" | "/metrics/" => Target::Metrics,
        "/metrics/probes" | "/metrics/probes/" => Target::Probes,
        "/configz" => Target::Configz,
        _ => match health() {
            Some(check) => Target::Healthz(Some(check)),
            None => later(path)?,
        },
    };
    let open = match listener {
        Listener::Kubelet => true,
        Listener::ReadOnly => match target {
            Target::Later(path, _, _) => path.starts_with("/stats") || path.starts_with("/metrics"),
            Target::Configz => false,
            _ => true,
        },
        Listener::Healthz => matches!(target, Target::Healthz(_)),
    };
    open.then_some(target)
}

fn later(path: &str) -> Option<Target> {
    LATER.iter().find_map(|(known, allowed, debugging)| {
        let found = if known.ends_with('/') { path.starts_with(known) } else { path == *known };
        found.then_some(Target::Later(known.trim_end_matches('/'), allowed, *debugging))
    })
}

/// The subresources of the node that stand for a path, in the order in which they are tried.
fn subresources(path: &str) -> &'static str {
    let below = |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let table = [
        ("/stats", "stats"),
        ("/metrics", "metrics"),
        ("/logs", "log"),
        ("/checkpoint", "checkpoint"),
        ("/pods", "pods proxy"),
        ("/runningpods", "pods proxy"),
        ("/healthz", "healthz proxy"),
        ("/configz", "configz proxy"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ];
    table.iter().find(|(prefix, _)| below(prefix)).map_or("proxy", |(_, names)| names)
}

fn response(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    response
}
