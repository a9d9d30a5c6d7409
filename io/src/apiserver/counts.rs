//! Counts of the requests to the API server, as client libraries name them.

use crate::metrics::{Descriptor, Distribution, Exposition, as_f64};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Upper bounds of the histogram, in seconds; those of client-go.
const BOUNDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Code of requests that got no answer.
const NO_ANSWER: &str = "<error>";

#[derive(Debug, Default)]
struct Took {
    count: u64,
    seconds: f64,
    buckets: [u64; BOUNDS.len()],
}

#[derive(Debug, Default)]
struct Seen {
    /// By method and code.
    totals: BTreeMap<(&'static str, String), u64>,
    /// By method.
    times: BTreeMap<&'static str, Took>,
}

/// The counts of one server.
#[derive(Debug)]
pub struct ApiCounts {
    host: String,
    seen: Mutex<Seen>,
}

impl ApiCounts {
    pub(super) fn new(host: String) -> Self {
        Self { host, seen: Mutex::default() }
    }

    /// Notes the beginning of an answer, or that there is none.
    pub(super) fn note(&self, method: &'static str, code: Option<u16>, took: Duration) {
        let code = code.map_or_else(|| NO_ANSWER.to_owned(), |code| code.to_string());
        let mut seen = self.lock();
        *seen.totals.entry((method, code)).or_default() += 1;
        let time = seen.times.entry(method).or_default();
        let seconds = took.as_secs_f64();
        time.count += 1;
        time.seconds += seconds;
        let bucket = BOUNDS.iter().position(|bound| seconds <= *bound);
        if let Some(bucket) = bucket.and_then(|index| time.buckets.get_mut(index)) {
            *bucket += 1;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // Numbers only: nothing in there can be half done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the families.
    pub fn write(&self, page: &mut Exposition) {
        let seen = self.lock();
        let help = "Time until answers of the API server began.";
        let mut family = page.family(Descriptor::histogram("rest_client_request_duration_seconds", help));
        for (method, time) in &seen.times {
            let buckets = time.buckets.as_slice();
            let labels = [("host", self.host.as_str()), ("verb", *method)];
            family.histogram(&labels, Distribution { bounds: &BOUNDS, buckets, count: time.count, sum: time.seconds });
        }
        let help = "Requests to the API server, by method and status code.";
        let mut family = page.family(Descriptor::counter("rest_client_requests_total", help));
        for ((method, code), count) in &seen.totals {
            family.sample(&[("code", code), ("host", &self.host), ("method", method)], as_f64(*count));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_method_and_code() {
        let counts = ApiCounts::new("h:6443".to_owned());
        counts.note("GET", Some(200), Duration::from_millis(7));
        counts.note("GET", Some(200), Duration::from_secs(100));
        counts.note("PATCH", None, Duration::ZERO);
        let mut page = Exposition::default();
        counts.write(&mut page);
        let text = page.into_text();
        for line in [
            r#"rest_client_requests_total{code="200",host="h:6443",method="GET"} 2"#,
            r#"rest_client_requests_total{code="<error>",host="h:6443",method="PATCH"} 1"#,
            r#"rest_client_request_duration_seconds_bucket{host="h:6443",verb="GET",le="0.025"} 1"#,
            r#"rest_client_request_duration_seconds_count{host="h:6443",verb="GET"} 2"#,
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
        }
    }
}
