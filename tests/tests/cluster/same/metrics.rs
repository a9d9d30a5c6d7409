//! Families of the metrics pages: name, type, labels and bounds of buckets. Values differ from run to run.

use std::collections::{BTreeMap, BTreeSet};

use super::blank::Lines;
use crate::{NODE, Rig};

/// Pages that are asked for through the API server.
const PAGES: [&str; 4] = ["/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes"];

/// A line for each family of each page.
pub(super) fn families(rig: &Rig) -> Lines {
    let mut lines = Lines::new();
    for path in PAGES {
        let page = rig.cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy{path}")]).unwrap();
        lines.extend(read(&page).into_iter().map(|(name, shape)| (format!("metrics {path} {name}"), shape)));
    }
    lines
}

fn read(page: &str) -> BTreeMap<String, String> {
    let mut kinds: BTreeMap<&str, &str> = BTreeMap::new();
    let mut labels: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut bounds: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in page.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kinds.insert(name, kind);
        } else if !line.starts_with('#') && !line.is_empty() {
            let sample = line.split(['{', ' ']).next().unwrap_or_default();
            let ends = ["_bucket", "_sum", "_count"].iter().filter_map(|end| sample.strip_suffix(end));
            let name = ends.into_iter().find(|name| kinds.contains_key(name)).unwrap_or(sample);
            let all = line.split_once('{').and_then(|(_, rest)| rest.rsplit_once('}')).map_or("", |(all, _)| all);
            for (label, value) in pairs(all) {
                if label == "le" {
                    bounds.entry(name).or_default().insert(value);
                } else {
                    labels.entry(name).or_default().insert(label);
                }
            }
        }
    }
    let shape = |name: &str, kind: &str| {
        let list = |of: &BTreeMap<&str, BTreeSet<&str>>| {
            of.get(name).map(|all| all.iter().copied().collect::<Vec<_>>().join(" ")).unwrap_or_default()
        };
        format!("{kind} [{}] {}", list(&labels), list(&bounds)).trim_end().to_owned()
    };
    kinds.iter().map(|(name, kind)| ((*name).to_owned(), shape(name, kind))).collect()
}

/// Names and values; a value may hold commas and escaped quotes.
fn pairs(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some((label, more)) = rest.split_once("=\"") {
        let mut escaped = false;
        let end = more.find(|c| {
            let closes = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        let end = end.unwrap_or(more.len());
        found.push((label.trim_start_matches(','), &more[..end]));
        rest = more.get(end + 1..).unwrap_or_default();
    }
    found
}

#[test]
fn families_are_read_with_labels_and_bounds() {
    let page = "# HELP h H.\n# TYPE h histogram\nh_bucket{op=\"x,\\\"y\",le=\"1\"} 2\nh_bucket{op=\"x\",le=\"+Inf\"} 2\nh_sum{op=\"x\"} 1\n\
                # TYPE g gauge\ng 5 17\n";
    let read = read(page);
    assert_eq!(read["h"], "histogram [op] +Inf 1");
    assert_eq!(read["g"], "gauge []");
}
