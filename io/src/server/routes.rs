//! What each path answers, and who may ask.

use super::body::{Body, TEXT, response};
use super::connection::Peer;
use super::credentials::Credentials;
use super::identity::Identity;
use super::requests::Requests;
use super::streams::{self, StreamKind, Streams};
use super::{Readers, ServerConfig, checkpoint, container_logs, debug, health, node_logs, page, probes, run, usage};
use crate::logs::LogReader;
use crate::metrics;
use components::status::json as pod_json;
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use std::sync::Arc;

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
    pub(super) credentials: Arc<Credentials>,
    pub(super) streams: Streams,
    pub(super) logs: LogReader,
    pub(super) requests: Requests,
}

/// What a path leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Target {
    Healthz(Option<&'static str>),
    Pods,
    Metrics,
    ProbeMetrics,
    Summary,
    ResourceMetrics,
    CadvisorMetrics,
    NodeLogs,
    Configz,
    RunningPods,
    Run,
    ContainerLogs,
    Stream(StreamKind),
    Checkpoint,
    Profile,
    Verbosity,
    /// A debugging switch of its own is off: what is said.
    Disabled(&'static str),
    /// Known to Kubernetes, not served by this version: (first part, allowed methods, only with debugging handlers).
    Later(&'static str, &'static str, bool),
}

/// Paths that later versions serve. An entry that ends in `/` stands for all below it.
const LATER: [(&str, &str, bool); 4] = [
    ("/metrics/slis", "GET", false),
    ("/allocatedPods", "GET", false),
    ("/flagz", "GET", false),
    ("/statusz", "GET", false),
];

impl Site {
    /// Answers one request.
    pub(super) async fn answer(
        self: &Arc<Self>,
        listener: Listener,
        peer: &Peer,
        request: Request<Incoming>,
    ) -> Response<Body> {
        let path = request.uri().path();
        let _counted = self.requests.begin(listener, request.method(), path);
        if listener == Listener::Kubelet {
            let Some(identity) = self.credentials.identify(&peer.certificates, request.headers()).await else {
                return response(StatusCode::UNAUTHORIZED, TEXT, "Unauthorized");
            };
            if let Err((status, message)) = self.admit(&identity, request.method(), path).await {
                return response(status, TEXT, message);
            }
        }
        let Some(target) = self.target(listener, path) else {
            return response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n");
        };
        match self.refuse(target, request.method(), path) {
            Some(refused) => refused,
            None => self.serve(target, peer, request).await,
        }
    }

    /// What is said instead of an answer: the switches first, then the path's shape, then the method.
    fn refuse(&self, target: Target, method: &Method, path: &str) -> Option<Response<Body>> {
        let (allowed, debugging) = match target {
            Target::Later(_, allowed, debugging) => (allowed, debugging),
            Target::Configz | Target::RunningPods | Target::ContainerLogs | Target::NodeLogs | Target::Disabled(_) => {
                ("GET", true)
            }
            Target::Run | Target::Checkpoint => ("POST", true),
            Target::Profile => ("GET", true),
            // It refuses others in its own words.
            Target::Verbosity => ("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", true),
            Target::Stream(_) => ("GET, POST", true),
            Target::Healthz(_) | Target::Pods | Target::Metrics | Target::ProbeMetrics => ("GET", false),
            Target::Summary => ("GET, POST", false),
            Target::ResourceMetrics | Target::CadvisorMetrics => ("GET", false),
        };
        if debugging && !self.config.debugging_handlers {
            return Some(match target {
                Target::Configz | Target::Checkpoint | Target::Verbosity => {
                    response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n")
                }
                _ => response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "Debug endpoints are disabled.\n"),
            });
        }
        if let Target::Disabled(message) = target {
            return Some(response(StatusCode::METHOD_NOT_ALLOWED, TEXT, message));
        }
        let parts = path.split('/').filter(|part| !part.is_empty()).count();
        let shaped = match target {
            Target::Run | Target::Stream(StreamKind::Exec | StreamKind::Attach) => matches!(parts, 4 | 5),
            Target::Stream(StreamKind::PortForward) => matches!(parts, 3 | 4),
            Target::ContainerLogs | Target::Checkpoint => parts == 4,
            _ => true,
        };
        if !shaped {
            return Some(response(StatusCode::NOT_FOUND, TEXT, "404: Page Not Found"));
        }
        if !allowed.split(", ").any(|name| name == method.as_str()) {
            let mut refused = response(StatusCode::METHOD_NOT_ALLOWED, TEXT, "405: Method Not Allowed");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
            return Some(refused);
        }
        None
    }

    async fn serve(self: &Arc<Self>, target: Target, peer: &Peer, request: Request<Incoming>) -> Response<Body> {
        match target {
            Target::Healthz(check) => self.healthz(check, request.uri().query().unwrap_or_default()),
            Target::Pods => {
                response(StatusCode::OK, JSON, pod_json::pod_list(self.readers.snapshot.load_full().pods()))
            }
            Target::Metrics => {
                let page = page::metrics(self);
                response(StatusCode::OK, metrics::CONTENT_TYPE, page)
            }
            Target::ProbeMetrics => response(StatusCode::OK, metrics::CONTENT_TYPE, probes::page(&self.readers)),
            Target::NodeLogs => {
                node_logs::serve(request.uri(), request.headers(), self.config.switches.log_query).await
            }
            Target::Summary => usage::summary(&self.readers.stats, request.uri().query().unwrap_or_default()).await,
            Target::ResourceMetrics => {
                response(StatusCode::OK, metrics::CONTENT_TYPE, self.readers.stats.resource_page().await)
            }
            Target::CadvisorMetrics => {
                response(StatusCode::OK, metrics::CONTENT_TYPE, self.readers.stats.cadvisor_page().await)
            }
            Target::Configz => response(StatusCode::OK, JSON, self.config.configz.clone()),
            Target::RunningPods => run::running_pods(&self.readers).await,
            Target::ContainerLogs => container_logs::serve(self, request.uri()).await,
            Target::Run => run::run(&self.readers, request.uri()).await,
            Target::Checkpoint => match &self.config.checkpoints {
                Some(folder) => checkpoint::serve(&self.readers, folder, request.uri()).await,
                None => response(StatusCode::NOT_FOUND, TEXT, "404 page not found\n"),
            },
            Target::Profile => debug::profile(request.uri().path()),
            Target::Verbosity => debug::set_verbosity(request).await,
            Target::Stream(kind) => streams::serve(self, kind, peer, request).await,
            Target::Later(path, _, _) => {
                let line = format!("{path} is not served by this version of ticklet\n");
                response(StatusCode::NOT_IMPLEMENTED, TEXT, line)
            }
            Target::Disabled(message) => response(StatusCode::METHOD_NOT_ALLOWED, TEXT, message),
        }
    }

    /// Whether somebody may do this: the first subresource that is allowed counts.
    async fn admit(&self, who: &Identity, method: &Method, path: &str) -> Result<(), (StatusCode, String)> {
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
        let (user, names) = (&who.user, subresources(path));
        if let Some(reviews) = &self.readers.reviews {
            for name in names.split(' ') {
                match reviews.may(who, verb, name, &self.config.node_name).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => {}
                    Err(error) => {
                        tracing::warn!(%error, %user, subresource = name, "An access could not be looked up");
                        let asked = format!("user={user}, verb={verb}, resource=nodes, subresource={name}");
                        return Err((StatusCode::INTERNAL_SERVER_ERROR, format!("Authorization error ({asked})")));
                    }
                }
            }
        }
        let refused = format!("Forbidden (user={user}, verb={verb}, resource=nodes, subresource(s)=[{names}])\n");
        Err((StatusCode::FORBIDDEN, refused))
    }

    fn healthz(&self, check: Option<&'static str>, query: &str) -> Response<Body> {
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

    fn target(&self, listener: Listener, path: &str) -> Option<Target> {
        let target = match path {
            "/healthz" | "/healthz/" => Target::Healthz(None),
            "/pods" | "/pods/" => Target::Pods,
            "/metrics" | "/metrics/" => Target::Metrics,
            "/metrics/probes" | "/metrics/probes/" => Target::ProbeMetrics,
            "/stats/summary" | "/stats/summary/" => Target::Summary,
            "/metrics/resource" | "/metrics/resource/" => Target::ResourceMetrics,
            "/metrics/cadvisor" | "/metrics/cadvisor/" => Target::CadvisorMetrics,
            "/configz" => Target::Configz,
            "/runningpods" | "/runningpods/" => Target::RunningPods,
            "/debug/flags/v" if self.config.switches.debug_flags => Target::Verbosity,
            _ => match health_check(path).or_else(|| below(path)) {
                Some(target) => target,
                None => self.switched(path).or_else(|| logs(path)).or_else(|| profile(path)).or_else(|| later(path))?,
            },
        };
        let open = match listener {
            Listener::Kubelet => true,
            Listener::ReadOnly => match target {
                Target::Later(path, _, _) => path.starts_with("/stats") || path.starts_with("/metrics"),
                Target::Healthz(_) | Target::Pods | Target::Metrics | Target::ProbeMetrics => true,
                Target::Summary | Target::ResourceMetrics | Target::CadvisorMetrics => true,
                _ => false,
            },
            Listener::Healthz => matches!(target, Target::Healthz(_)),
        };
        open.then_some(target)
    }

    /// Paths that a switch of their own turns off.
    fn switched(&self, path: &str) -> Option<Target> {
        let switches = self.config.switches;
        let under =
            |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        let message = match () {
            () if under("/logs") && !switches.system_logs => "logs endpoint is disabled.\n",
            () if under("/debug/pprof") && !switches.profiling => "profiling endpoint is disabled.\n",
            () if path == "/debug/flags/v" && !switches.debug_flags => "flags endpoint is disabled.\n",
            () => return None,
        };
        Some(Target::Disabled(message))
    }
}

fn health_check(path: &str) -> Option<Target> {
    let check = path.strip_prefix("/healthz/")?;
    health::CHECKS.into_iter().find(|known| *known == check).map(|check| Target::Healthz(Some(check)))
}

fn below(path: &str) -> Option<Target> {
    let first = path.strip_prefix('/')?.split_once('/')?.0;
    Some(match first {
        "run" => Target::Run,
        "containerLogs" => Target::ContainerLogs,
        "exec" => Target::Stream(StreamKind::Exec),
        "attach" => Target::Stream(StreamKind::Attach),
        "portForward" => Target::Stream(StreamKind::PortForward),
        "checkpoint" => Target::Checkpoint,
        _ => return None,
    })
}

fn logs(path: &str) -> Option<Target> {
    let rest = path.strip_prefix("/logs")?;
    (rest.is_empty() || rest.starts_with('/')).then_some(Target::NodeLogs)
}

fn profile(path: &str) -> Option<Target> {
    let rest = path.strip_prefix("/debug/pprof")?;
    (rest.is_empty() || rest.starts_with('/')).then_some(Target::Profile)
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
        ("/allocatedPods", "pods proxy"),
        ("/runningpods", "pods proxy"),
        ("/healthz", "healthz proxy"),
        ("/configz", "configz proxy"),
        ("/statusz", "statusz"),
        ("/flagz", "configz"),
    ];
    table.iter().find(|(prefix, _)| below(prefix)).map_or("proxy", |(_, names)| names)
}
