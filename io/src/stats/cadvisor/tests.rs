//! The page of a small picture.

use super::*;
use crate::stats::fixtures::picture;

#[test]
fn families_of_the_reference_are_written_with_its_labels() {
    let picture = picture();
    let layers = HashMap::from([(ContainerId::from("c0ffee"), LayerUsage { bytes: 32_768, ..LayerUsage::default() })]);
    let on = FileSystem { available: 50, capacity: 100, used: 40, inodes_free: 7, inodes: 9 };
    let disks = Disks { layers: &layers, container: Some(on), node: Some(on) };
    let text = page(Some(&picture), &disks, &Machine { cores: 4, ..Machine::default() });
    let container = r#"container="c",id="/kubepods/podu/c0ffee",image="img:1",name="c0ffee",namespace="ns",pod="p""#;
    let pod = r#"container="",id="/kubepods/podu",image="",name="",namespace="ns",pod="p""#;
    for line in [
        format!("container_memory_working_set_bytes{{{container}}} 750 1700000000000"),
        format!("container_memory_working_set_bytes{{{pod}}} 750 1700000000000"),
        format!("container_fs_usage_bytes{{container=\"c\",device=\"\",{}}} 32768 1700000000000", &container[14..]),
        "container_cpu_usage_seconds_total{container=\"c\",cpu=\"total\",id=\"/kubepods/podu/c0ffee\",image=\"img:1\",name=\"c0ffee\",namespace=\"ns\",pod=\"p\"} 2 1700000000000".to_owned(),
        "container_network_receive_bytes_total{container=\"\",id=\"/kubepods/podu/5a4d\",image=\"\",interface=\"eth0\",name=\"5a4d\",namespace=\"ns\",pod=\"p\"} 11 1700000000000".to_owned(),
        "container_memory_failures_total{container=\"\",failure_type=\"pgfault\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\",scope=\"container\"} 3 1700000000000".to_owned(),
        "container_fs_inodes_free{container=\"\",device=\"\",id=\"/\",image=\"\",name=\"\",namespace=\"\",pod=\"\"} 7 1700000000000".to_owned(),
        "container_scrape_error 0".to_owned(),
        "machine_cpu_cores{boot_id=\"\",machine_id=\"\",system_uuid=\"\"} 4".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\nnot in\n{text}");
    }
    assert!(!text.contains("container_spec_cpu_quota{"), "no quota is set");
    let families: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let mut once = families.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), families.len(), "a family is written once");
}

#[test]
fn a_failed_look_is_told() {
    let disks = Disks { layers: &HashMap::new(), container: None, node: None };
    let text = page(None, &disks, &Machine::default());
    assert!(text.contains("container_scrape_error 1\n") && text.contains("machine_memory_bytes{"), "{text}");
}
