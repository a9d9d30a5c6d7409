//! The sample of the generated matrix (`tests/matrix.json`, made and checked by the simulator's tests) on a real runtime: all
//! pods at once, then their removal.

use std::time::{Duration, Instant};

use serde_json::Value;
use tests::lab::BUSYBOX_IMAGE;
use tests::node::{NODE, Node};

use crate::cases::lifecycle::status;
use crate::chosen_node;

/// By then every pod has reached what is expected of it: three rounds of back-off, on a busy machine.
const SETTLED: Duration = Duration::from_secs(180);

fn sample() -> Vec<Value> {
    serde_json::from_str(include_str!("../../matrix.json")).unwrap()
}

/// What is not as expected; `None` when all is.
fn wrong(node: &Node, case: &Value) -> anyhow::Result<Option<String>> {
    let name = case["name"].as_str().unwrap();
    let Some(status) = status(node, name)? else { return Ok(Some("it is not shown".to_owned())) };
    if status["phase"] != case["phase"] {
        return Ok(Some(format!("phase {} instead of {}", status["phase"], case["phase"])));
    }
    let containers = node.crictl().containers_of(&format!("{name}-{NODE}"))?;
    for (n, code) in case["code"].as_array().unwrap().iter().enumerate() {
        let container = format!("c{n}");
        let own: Vec<_> = containers.iter().filter(|c| c.name == container).collect();
        let tries = own.iter().map(|c| c.attempt + 1).max().unwrap_or(0);
        let runs = own.iter().any(|c| c.is_running());
        let (serves, loops) = (&case["serves"][n] == true, &case["loops"][n] == true);
        let fits = if case["started"] == false {
            tries == 0
        } else if loops {
            tries >= 3
        } else {
            tries == 1 && runs == serves
        };
        if !fits {
            return Ok(Some(format!("{container}: {tries} tries, running: {runs}")));
        }
        let reports = status["containerStatuses"].as_array().cloned().unwrap_or_default();
        let report = reports.iter().find(|r| r["name"] == container.as_str()).cloned().unwrap_or_default();
        if !code.is_null() && report["state"]["terminated"]["exitCode"] != *code {
            return Ok(Some(format!("{container} is {} instead of ended with {code}", report["state"])));
        }
    }
    let over = ["Succeeded", "Failed"].iter().any(|phase| case["phase"] == *phase);
    for n in 0..case["sidecars"].as_u64().unwrap() {
        let own: Vec<_> = containers.iter().filter(|c| c.name == format!("s{n}")).collect();
        if own.len() != 1 || own[0].is_running() == over {
            return Ok(Some(format!("sidecar s{n}: {} instances", own.len())));
        }
    }
    Ok(None)
}

#[test]
fn thirty_generated_pods_end_as_the_oracle_says() {
    let Some(mut node) = chosen_node() else { return };
    let cases = sample();
    assert_eq!(cases.len(), 30);
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let manifest = case["manifest"].to_string().replace("\"IMAGE\"", &format!("\"{BUSYBOX_IMAGE}\""));
        node.put(&format!("{name}.yaml"), manifest).unwrap();
    }
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let mut last = String::new();
        let settled = node.wait(&format!("pod {name} is as expected"), SETTLED, |node| {
            let found = wrong(node, case)?;
            if let Some(found) = &found {
                last.clone_from(found);
            }
            Ok(found.is_none().then_some(()))
        });
        if let Err(error) = settled {
            panic!("{name}: {last}\n{case:#}\n{error:#}");
        }
    }
    let removed = Instant::now();
    for case in &cases {
        node.remove(&format!("{}.yaml", case["name"].as_str().unwrap())).unwrap();
    }
    for case in &cases {
        node.wait_gone(case["name"].as_str().unwrap(), Duration::from_secs(90)).unwrap();
    }
    println!("30 pods gone {:?} after their removal", removed.elapsed());
}
