//! Counts of the requests that the ports answered, as the kubelet's metrics name them.

use super::routes::Listener;
use crate::metrics::{Descriptor, Distribution, Exposition, as_f64};
use http::Method;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Upper bounds of the histogram, in seconds.
const BOUNDS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// Paths with a name of their own; every other one is counted together, so that nobody can make up names.
const PATHS: [&str; 19] = [
    "attach",
    "checkpoint",
    "configz",
    "containerLogs",
    "debug",
    "exec",
    "flagz",
    "healthz",
    "logs",
    "metrics",
    "metrics/cadvisor",
    "metrics/probes",
    "metrics/resource",
    "pods",
    "portForward",
    "run",
    "runningpods",
    "stats",
    "statusz",
];

/// What requests are told apart by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Kind {
    long_running: bool,
    method: &'static str,
    path: &'static str,
    server: &'static str,
}

impl Kind {
    fn of(listener: Listener, method: &Method, path: &str) -> Self {
        let path = path.trim_matches('/');
        let first = path.split('/').next().unwrap_or_default();
        let named = |wanted: &str| PATHS.into_iter().find(|known| *known == wanted);
        let path = named(path).or_else(|| named(first)).unwrap_or("Invalid path");
        let methods = ["GET", "POST", "PUT", "DELETE", "HEAD", "PATCH", "OPTIONS"];
        Self {
            long_running: matches!(path, "attach" | "exec" | "portForward" | "debug"),
            method: methods.into_iter().find(|known| *known == method.as_str()).unwrap_or("other"),
            path,
            server: if listener == Listener::Kubelet { "readwrite" } else { "readonly" },
        }
    }

    fn labels(self) -> [(&'static str, &'static str); 4] {
        let long = if self.long_running { "true" } else { "false" };
        [("long_running", long), ("method", self.method), ("path", self.path), ("server_type", self.server)]
    }
}

#[derive(Debug, Default)]
struct Count {
    inflight: u64,
    total: u64,
    seconds: f64,
    buckets: [u64; BOUNDS.len()],
}

/// The counts.
#[derive(Debug, Default)]
pub(super) struct Requests {
    kinds: Mutex<BTreeMap<Kind, Count>>,
}

/// A request under way; counted when it is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    requests: &'a Requests,
    kind: Kind,
    begun: Instant,
}

impl Requests {
    /// Counts a request that begins.
    pub(super) fn begin(&self, listener: Listener, method: &Method, path: &str) -> UnderWay<'_> {
        let kind = Kind::of(listener, method, path);
        self.lock().entry(kind).or_default().inflight += 1;
        UnderWay { requests: self, kind, begun: Instant::now() }
    }

    fn end(&self, kind: Kind, took: Duration) {
        let mut kinds = self.lock();
        let count = kinds.entry(kind).or_default();
        let seconds = took.as_secs_f64();
        count.inflight = count.inflight.saturating_sub(1);
        count.total += 1;
        count.seconds += seconds;
        components::histogram::count_in(&mut count.buckets, &BOUNDS, seconds);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Kind, Count>> {
        // Numbers only: nothing in there can be half done.
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the families.
    pub(super) fn write(&self, page: &mut Exposition) {
        let kinds = self.lock();
        let help = "Requests that are being answered.";
        let mut family = page.family(Descriptor::gauge("kubelet_http_inflight_requests", help));
        for (kind, count) in &*kinds {
            family.sample(&kind.labels(), as_f64(count.inflight));
        }
        let help = "Time until answers began.";
        let mut family = page.family(Descriptor::histogram("kubelet_http_requests_duration_seconds", help));
        for (kind, count) in kinds.iter().filter(|(_, count)| count.total > 0) {
            let (buckets, sum) = (count.buckets.as_slice(), count.seconds);
            family.histogram(&kind.labels(), Distribution { bounds: &BOUNDS, buckets, count: count.total, sum });
        }
        let mut family =
            page.family(Descriptor::counter("kubelet_http_requests_total", "Requests that were answered."));
        for (kind, count) in kinds.iter().filter(|(_, count)| count.total > 0) {
            family.sample(&kind.labels(), as_f64(count.total));
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.requests.end(self.kind, self.begun.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_the_kubelets_names() {
        let requests = Requests::default();
        drop(requests.begin(Listener::Kubelet, &Method::GET, "/metrics/cadvisor"));
        drop(requests.begin(Listener::Kubelet, &Method::POST, "/exec/ns/p/c"));
        drop(requests.begin(Listener::ReadOnly, &Method::GET, "/stats/summary"));
        drop(requests.begin(Listener::Kubelet, &Method::TRACE, "/made/up"));
        let held = requests.begin(Listener::Kubelet, &Method::GET, "/pods/");
        let mut page = Exposition::default();
        requests.write(&mut page);
        drop(held);
        let text = page.into_text();
        for line in [
            r#"kubelet_http_requests_total{long_running="false",method="GET",path="metrics/cadvisor",server_type="readwrite"} 1"#,
            r#"kubelet_http_requests_total{long_running="true",method="POST",path="exec",server_type="readwrite"} 1"#,
            r#"kubelet_http_requests_total{long_running="false",method="GET",path="stats",server_type="readonly"} 1"#,
            r#"kubelet_http_requests_total{long_running="false",method="other",path="Invalid path",server_type="readwrite"} 1"#,
            r#"kubelet_http_inflight_requests{long_running="false",method="GET",path="pods",server_type="readwrite"} 1"#,
            r#"kubelet_http_requests_duration_seconds_count{long_running="true",method="POST",path="exec",server_type="readwrite"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
    }
}
