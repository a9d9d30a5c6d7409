//! `/stats/summary`: what the query asks for, and the answer.

use super::body::{Body, TEXT, response};
use crate::stats::Stats;
use http::{Response, StatusCode};

/// Answers the request.
pub(super) async fn summary(stats: &Stats, query: &str) -> Response<Body> {
    match stats.summary(only_cpu_and_memory(query)).await {
        Ok(text) => response(StatusCode::OK, "application/json", text),
        Err(error) => {
            tracing::warn!(%error, "Usage could not be read for /stats/summary");
            response(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("Internal Error: {error}"))
        }
    }
}

/// True for a value that Go takes for true.
fn only_cpu_and_memory(query: &str) -> bool {
    let value = query.split('&').find_map(|part| part.strip_prefix("only_cpu_and_memory="));
    matches!(value, Some("1" | "t" | "T" | "true" | "TRUE" | "True"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_is_read_as_go_reads_it() {
        assert!(only_cpu_and_memory("a=b&only_cpu_and_memory=true"));
        assert!(!only_cpu_and_memory("only_cpu_and_memory=false"));
        assert!(!only_cpu_and_memory("only_cpu_and_memory=yes"));
        assert!(!only_cpu_and_memory(""));
    }
}
