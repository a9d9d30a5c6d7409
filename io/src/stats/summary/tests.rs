//! The answer of a small picture, and the reference's keys.

use super::*;
use crate::stats::disk::{Measure, Taken};
use crate::stats::du::VolumeTaken;
use crate::stats::fixtures::{WALL, picture};
use serde_json::{Value, json};

fn disks() -> Disks {
    let on = FileSystem { available: 50, capacity: 100, used: 40, inodes_free: 7, inodes: 9 };
    let layer = |bytes| LayerUsage { at: WALL, mount: "/".to_owned(), bytes, inodes: Some(10) };
    let measure = |bytes, inodes| Measure { at: WALL, taken: Taken { bytes, inodes } };
    let volume = |name: &str, ephemeral| VolumeTaken { name: name.into(), ephemeral, measure: measure(12_288, 9), on };
    let disk = PodDisk {
        volumes: Arc::new(vec![volume("data", true), volume("token", false)]),
        logs: [("c".into(), measure(100, 1))].into(),
        others: measure(4096, 1),
    };
    Disks {
        at: WALL,
        node: Some(on),
        logs: Some(on),
        images: Some(UsedFs { on, layer: layer(70) }),
        containers: None,
        layers: Arc::new([("c0ffee".into(), layer(32_768))].into()),
        pods: [(PodUid::from("u"), Arc::new(disk))].into(),
        tasks: Some((32_768, 290)),
    }
}

#[test]
fn a_pod_is_told_with_all_that_it_has() {
    let all = serde_json::to_value(build("n", &picture(), Some(&disks()))).unwrap();
    let pod = &all["pods"][0];
    assert_eq!(pod["podRef"], json!({"name": "p", "namespace": "ns", "uid": "u"}));
    assert_eq!(pod["startTime"], "2023-11-14T22:13:20Z");
    assert_eq!(pod["cpu"]["usageNanoCores"], 5);
    assert_eq!(pod["memory"]["workingSetBytes"], 750);
    assert_eq!(pod["memory"].get("availableBytes"), None, "no limit");
    assert_eq!((&pod["network"]["name"], &pod["network"]["rxBytes"]), (&json!("eth0"), &json!(11)));
    assert_eq!((&pod["volume"][0]["name"], &pod["volume"][0]["usedBytes"]), (&json!("data"), &json!(12_288)));
    let storage = &pod["ephemeral-storage"];
    assert_eq!(storage["usedBytes"], 32_768 + 100 + 12_288 + 4096, "the token lies in memory");
    assert_eq!(storage["inodesUsed"], 10 + 1 + 9 + 1);
    assert_eq!(pod["process_stats"]["process_count"], 2);
    let container = &pod["containers"][0];
    assert_eq!((&container["rootfs"]["usedBytes"], &container["logs"]["usedBytes"]), (&json!(32_768), &json!(100)));
    let node = &all["node"];
    assert_eq!((&node["fs"]["usedBytes"], &node["fs"]["inodesUsed"]), (&json!(40), &json!(2)));
    assert_eq!(node["runtime"]["imageFs"], node["runtime"]["containerFs"]);
    assert_eq!((&node["rlimit"]["maxpid"], &node["rlimit"]["curproc"]), (&json!(32_768), &json!(290)));
}

#[test]
fn cpu_and_memory_alone_leave_the_rest_out() {
    let all = serde_json::to_value(build("n", &picture(), None)).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&all["pods"][0]), "containers cpu io memory podRef startTime swap");
    assert_eq!(keys(&all["node"]), "cpu io memory nodeName startTime swap systemContainers");
    assert_eq!(keys(&all["pods"][0]["containers"][0]), "cpu io memory name startTime swap");
}
