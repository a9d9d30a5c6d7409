//! Usage on a real runtime: values that are known beforehand, and the shape of the answers.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tests::node::{NODE, Node};
use tests::process;

use crate::volumes::{ask, pod};
use crate::{SOON, WAIT, chosen_lab};

/// A node that measures volumes often and serves its read-only port.
fn node() -> Option<(Node, u16)> {
    let mut node = Node::new(chosen_lab()?).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    node.configure(&format!("volumeStatsAggPeriod: 1s\nreadOnlyPort: {port}")).unwrap();
    node.start().unwrap();
    Some((node, port))
}

fn summary(node: &Node) -> Result<Value> {
    serde_json::from_str(&node.get("/stats/summary")?).context("the summary is no JSON")
}

/// A pod of a summary, given by its name in the manifest.
fn of_pod(summary: &Value, name: &str) -> Option<Value> {
    let name = format!("{name}-{NODE}");
    summary["pods"].as_array()?.iter().find(|pod| pod["podRef"]["name"] == name.as_str()).cloned()
}

/// Value of the first line of a page that begins so.
fn sample(page: &str, start: &str) -> Option<f64> {
    let line = page.lines().find(|line| line.starts_with(start))?;
    let value = line.rsplit_once('}').map_or(line, |(_, rest)| rest);
    value.split_whitespace().find_map(|word| word.parse().ok())
}

/// Every path of keys in a value; items of lists count as one.
fn paths(value: &Value, at: &str, out: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let at = format!("{at}.{key}");
                out.insert(at.clone());
                paths(value, &at, out);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| paths(item, &format!("{at}[]"), out)),
        _ => {}
    }
}

#[test]
fn usage_is_what_containers_were_made_to_use() {
    let Some((mut node, _)) = node() else { return };
    let spec = "  volumes:\n  - {name: disk, emptyDir: {}}\n  - {name: memory, emptyDir: {medium: Memory}}";
    let mounts = ", volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]";
    let hold = "dd if=/dev/zero of=/disk/f bs=1M count=5; dd if=/dev/zero of=/outside bs=1M count=3; sync; \
                dd if=/dev/zero of=/memory/f bs=1M count=50; echo said; trap 'exit 0' TERM; while :; do sleep 0.1; done";
    node.put("hold.yaml", pod("hold", "", spec, mounts, hold)).unwrap();
    let limits = ", resources: {limits: {memory: 64Mi, cpu: 200m}}";
    let busy = "trap 'exit 0' TERM; while :; do :; done";
    node.put("busy.yaml", pod("busy", "", "", limits, busy)).unwrap();
    let running = node.wait_running("hold", SOON).unwrap();
    node.wait_running("busy", SOON).unwrap();
    node.wait("the memory is held", SOON, |node| Ok(node.container_log(&running)?.contains("said").then_some(())))
        .unwrap();
    // Traffic: the node's bridge is the pod's gateway.
    ask(&node, &running, "ping -c 3 -s 1000 $(ip route | awk '/default/ {print $3}') >/dev/null");
    let seen = node
        .wait("usage is measured", SOON, |node| {
            let all = summary(node)?;
            let (Some(hold), Some(busy)) = (of_pod(&all, "hold"), of_pod(&all, "busy")) else { return Ok(None) };
            let written = hold["containers"][0]["rootfs"]["usedBytes"].as_u64().unwrap_or(0) >= 3 << 20;
            let rate = busy["containers"][0]["cpu"]["usageNanoCores"].as_u64().unwrap_or(0) > 0;
            let volume = hold["volume"][0]["usedBytes"].as_u64().unwrap_or(0) >= 5 << 20;
            Ok((written && rate && volume).then_some((all, hold, busy)))
        })
        .unwrap();
    let (all, hold, busy) = seen;
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} in {all}"));
    let between = |value: &Value, low: u64, high: u64| {
        let found = number(value);
        assert!((low..=high).contains(&found), "{found} is not in {low}..={high}\n{all}");
    };
    let mib = 1_u64 << 20;
    between(&hold["containers"][0]["memory"]["workingSetBytes"], 50 * mib, 75 * mib);
    between(&hold["memory"]["workingSetBytes"], 50 * mib, 80 * mib);
    between(&hold["containers"][0]["rootfs"]["usedBytes"], 3 * mib, 4 * mib);
    between(&hold["containers"][0]["logs"]["usedBytes"], 1, mib);
    let volume = |name: &str| hold["volume"].as_array().unwrap().iter().find(|v| v["name"] == name).unwrap().clone();
    between(&volume("disk")["usedBytes"], 5 * mib, 6 * mib);
    between(&volume("disk")["inodesUsed"], 2, 2);
    between(&volume("memory")["usedBytes"], 50 * mib, 51 * mib);
    between(&hold["ephemeral-storage"]["usedBytes"], 8 * mib, 10 * mib);
    assert_eq!(hold["network"]["name"], "eth0", "{hold}");
    between(&hold["network"]["rxBytes"], 3000, 10 * mib);
    between(&hold["network"]["txBytes"], 3000, 10 * mib);
    between(&hold["process_stats"]["process_count"], 2, 10);
    // A loop that may have a fifth of a core.
    between(&busy["containers"][0]["cpu"]["usageNanoCores"], 20_000_000, 300_000_000);
    between(&busy["containers"][0]["cpu"]["usageCoreNanoSeconds"], 10_000_000, 3_600_000_000_000);
    between(&busy["containers"][0]["memory"]["availableBytes"], 40 * mib, 64 * mib);
    assert_eq!(hold["containers"][0]["memory"].get("availableBytes"), None, "no limit: {hold}");
    between(&all["node"]["memory"]["workingSetBytes"], 100 * mib, 1 << 40);
    between(&all["node"]["runtime"]["imageFs"]["usedBytes"], 1, 1 << 40);
    node.check_alive().unwrap();
}

#[test]
fn the_summary_has_the_keys_of_the_reference() {
    let Some((mut node, port)) = node() else { return };
    let spec = "  volumes:\n  - {name: disk, emptyDir: {}}";
    node.put("web.yaml", pod("web", "", spec, ", volumeMounts: [{name: disk, mountPath: /disk}]", WAIT)).unwrap();
    node.wait_running("web", SOON).unwrap();
    let web = node
        .wait("the pod is measured", SOON, |node| {
            let found = of_pod(&summary(node)?, "web");
            Ok(found.filter(|pod| !pod["volume"].is_null() && !pod["containers"][0]["rootfs"].is_null()))
        })
        .unwrap();
    let mut found = BTreeSet::new();
    paths(&web, "pod", &mut found);
    let node_part = summary(&node).unwrap()["node"].clone();
    paths(&node_part, "node", &mut found);
    let wanted = include_str!("stats/summary-keys.txt").lines();
    let missing: Vec<&str> = wanted.filter(|path| !found.contains(*path)).collect();
    assert_eq!(missing, [""; 0], "{found:#?}");
    let plain = |path: &str| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--fail", "--max-time", "10", &format!("http://127.0.0.1:{port}{path}")]);
        process::run(&mut curl, Duration::from_secs(15)).unwrap().success().unwrap()
    };
    let only: Value = serde_json::from_str(&plain("/stats/summary?only_cpu_and_memory=true")).unwrap();
    let lean = of_pod(&only, "web").unwrap();
    assert!(lean["cpu"]["usageCoreNanoSeconds"].as_u64().unwrap() > 0 && lean.get("volume").is_none(), "{lean}");
    assert!(plain("/healthz") == "ok" && plain("/pods").contains("\"web-lab\""));
    // What metrics-server needs of each container.
    let page = plain("/metrics/resource");
    let labels = format!("{{container=\"c\",namespace=\"default\",pod=\"web-{NODE}\"}}");
    assert!(sample(&page, &format!("container_memory_working_set_bytes{labels}")).unwrap() > 1e4, "{page}");
    assert!(sample(&page, &format!("container_cpu_usage_seconds_total{labels}")).unwrap() > 0.0, "{page}");
    assert!(sample(&page, &format!("container_start_time_seconds{labels}")).unwrap() > 1e9, "{page}");
    assert!(sample(&page, "node_cpu_usage_seconds_total").unwrap() > 1.0, "{page}");
    assert_eq!(sample(&page, "resource_scrape_error"), Some(0.0));
    let page = plain("/metrics/cadvisor");
    let wanted = include_str!("stats/cadvisor-families.txt").lines();
    let missing: Vec<&str> = wanted.filter(|name| !page.contains(&format!("# TYPE {name} "))).collect();
    assert_eq!(missing, [""; 0]);
    let of_web = |name: &str, container: &str| {
        let line = page.lines().find(|line| {
            line.starts_with(&format!("{name}{{container=\"{container}\""))
                && line.contains(&format!("pod=\"web-{NODE}\""))
        });
        line.and_then(|line| line.rsplit_once('}')?.1.split_whitespace().next()?.parse::<f64>().ok())
    };
    assert!(of_web("container_memory_working_set_bytes", "c").unwrap() > 1e4, "{page}");
    assert!(of_web("container_network_receive_bytes_total", "").is_some(), "{page}");
    assert_eq!(of_web("container_processes", "c").map(|n| n >= 1.0), Some(true), "{page}");
}
