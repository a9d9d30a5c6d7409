//! Counts of the requests to the API server, as client libraries name them.

use crate::metrics::{Descriptor, Distribution, Exposition, as_f64};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram, in seconds; those of client-go.
const BOUNDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Upper bounds of sizes, in bytes.
const SIZES: [f64; 11] =
    [64.0, 256.0, 512.0, 1024.0, 4096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];
/// Code of requests that got no answer.
const NO_ANSWER: &str = "<error>";

/// A histogram; how many bounds it has is up to whoever fills it.
#[derive(Debug, Default)]
struct Took {
    count: u64,
    sum: f64,
    buckets: [u64; BOUNDS.len()],
}

impl Took {
    fn add(&mut self, value: f64, bounds: &[f64]) {
        self.count += 1;
        self.sum += value;
        components::histogram::count_in(&mut self.buckets, bounds, value);
    }
}

/// What is measured of the requests of a method.
#[derive(Debug, Default)]
struct Measured {
    took: Took,
    waited: Took,
    sent: Took,
    received: Took,
}

#[derive(Debug, Default)]
struct Seen {
    /// By host, method and code.
    totals: BTreeMap<(Arc<str>, &'static str, String), u64>,
    /// By host and method.
    methods: BTreeMap<(Arc<str>, &'static str), Measured>,
}

/// The counts of all requests.
#[derive(Debug, Default)]
pub struct ApiCounts {
    seen: Mutex<Seen>,
}

/// Counts what one client sends.
#[derive(Debug)]
pub(super) struct Counter {
    host: Arc<str>,
    all: Arc<ApiCounts>,
}

impl Counter {
    pub(super) fn new(host: &str, all: &Arc<ApiCounts>) -> Self {
        Self { host: Arc::from(host), all: Arc::clone(all) }
    }

    /// Notes the beginning of an answer, or that there is none.
    pub(super) fn note(&self, method: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.to_string());
        let mut seen = self.all.lock();
        *seen.totals.entry((Arc::clone(&self.host), method, code)).or_default() += 1;
        seen.methods.entry((Arc::clone(&self.host), method)).or_default().took.add(took.as_secs_f64(), &BOUNDS);
    }

    /// Notes how long a request waited for its turn.
    pub(super) fn waited(&self, method: &'static str, took: Duration) {
        self.all
            .lock()
            .methods
            .entry((Arc::clone(&self.host), method))
            .or_default()
            .waited
            .add(took.as_secs_f64(), &BOUNDS);
    }

    /// Notes the bytes of a request's body and of its answer's.
    pub(super) fn sizes(&self, method: &'static str, sent: usize, received: usize) {
        let mut seen = self.all.lock();
        let measured = seen.methods.entry((Arc::clone(&self.host), method)).or_default();
        measured.sent.add(as_f64(sent as u64), &SIZES);
        measured.received.add(as_f64(received as u64), &SIZES);
    }
}

impl ApiCounts {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        // Numbers only: nothing in there can be half done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the families.
    pub fn write(&self, page: &mut Exposition) {
        let seen = self.lock();
        type Part = fn(&Measured) -> &Took;
        let families: [(&str, &str, Part, &[f64]); 4] = [
            (
                "rest_client_rate_limiter_duration_seconds",
                "Time that requests waited for their turn.",
                |it| &it.waited,
                &BOUNDS,
            ),
            (
                "rest_client_request_duration_seconds",
                "Time until answers of the API server began.",
                |it| &it.took,
                &BOUNDS,
            ),
            ("rest_client_request_size_bytes", "Bytes of the bodies of requests.", |it| &it.sent, &SIZES),
            (
                "rest_client_response_size_bytes",
                "Bytes of the bodies of answers, watches aside.",
                |it| &it.received,
                &SIZES,
            ),
        ];
        for (name, help, part, bounds) in families {
            let mut family = page.family(Descriptor::histogram(name, help));
            for ((host, method), measured) in &seen.methods {
                let Took { count, sum, buckets } = part(measured);
                let buckets = buckets.get(..bounds.len()).unwrap_or_default();
                let labels = [("host", &**host), ("verb", *method)];
                family.histogram(&labels, Distribution { bounds, buckets, count: *count, sum: *sum });
            }
        }
        let help = "Requests to the API server, by method and status code.";
        let mut family = page.family(Descriptor::counter("rest_client_requests_total", help));
        for ((host, method, code), count) in &seen.totals {
            family.sample(&[("code", code), ("host", host), ("method", method)], as_f64(*count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_method_and_code() {
        let all = Arc::default();
        let counts = Counter::new("h:6443", &all);
        Counter::new("other", &all).note("GET", Some(200), Duration::ZERO);
        counts.note("GET", Some(200), Duration::from_millis(7));
        counts.note("GET", Some(200), Duration::from_secs(100));
        counts.note("PATCH", None, Duration::ZERO);
        counts.waited("GET", Duration::from_secs(61));
        counts.sizes("PATCH", 64, 2000);
        let mut page = Exposition::default();
        all.write(&mut page);
        let text = page.into_text();
        for line in [
            r#"rest_client_requests_total{code="200",host="h:6443",method="GET"} 2"#,
            r#"rest_client_requests_total{code="200",host="other",method="GET"} 1"#,
            r#"rest_client_requests_total{code="<error>",host="h:6443",method="PATCH"} 1"#,
            r#"rest_client_request_duration_seconds_bucket{host="h:6443",verb="GET",le="0.025"} 1"#,
            r#"rest_client_request_duration_seconds_count{host="h:6443",verb="GET"} 2"#,
            r#"rest_client_rate_limiter_duration_seconds_bucket{host="h:6443",verb="GET",le="60"} 0"#,
            r#"rest_client_rate_limiter_duration_seconds_bucket{host="h:6443",verb="GET",le="+Inf"} 1"#,
            r#"rest_client_request_size_bytes_bucket{host="h:6443",verb="PATCH",le="64"} 1"#,
            r#"rest_client_response_size_bytes_bucket{host="h:6443",verb="PATCH",le="1024"} 0"#,
            r#"rest_client_response_size_bytes_bucket{host="h:6443",verb="PATCH",le="4096"} 1"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
    }
}
