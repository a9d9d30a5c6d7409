//! The page `/metrics/cadvisor`: every cgroup of the node as dashboards know it. Pure.
//!
//! A family is one line of a table: its name, and how its value is found. What the kernel does not tell has no sample.

mod devices;
mod machine;
mod table;

use super::disk::FileSystem;
use super::machine::Machine;
use super::picture::{Measured, Picture};
use super::sample::{Interface, Sample};
use crate::cri::usage::LayerUsage;
use crate::metrics::{Descriptor, Exposition, as_f64};
use components::ids::ContainerId;
use std::collections::HashMap;

/// What lies on disks.
pub(super) struct Disks<'a> {
    /// Writable layers of containers.
    pub(super) layers: &'a HashMap<ContainerId, LayerUsage>,
    /// The file system that they lie on.
    pub(super) container: Option<FileSystem>,
    /// The file system of the root directory.
    pub(super) node: Option<FileSystem>,
}

/// A cgroup with the labels of its samples.
struct Row<'a> {
    labels: [(&'static str, &'a str); 6],
    seen: &'a Measured,
    /// Start in seconds since 1970.
    started: f64,
    network: &'a [Interface],
    /// Bytes on a file system, and its size.
    disk: Option<(u64, u64)>,
    /// It has processes of its own.
    leaf: bool,
}

/// Writes the page; without a picture only that something is wrong, and what is known of the machine.
pub(super) fn page(picture: Option<&Picture>, disks: &Disks<'_>, machine: &Machine) -> String {
    let mut page = Exposition::default();
    machine::version(machine, &mut page);
    if let Some(picture) = picture {
        let rows = rows(picture, disks);
        table::write(&rows, &mut page);
        devices::write(&rows, disks, machine, &mut page);
        network(&rows, &mut page);
    }
    let failed = if picture.is_some() { 0.0 } else { 1.0 };
    page.single(Descriptor::gauge("container_scrape_error", "1 when usage could not be read, else 0."), failed);
    machine::write(machine, &mut page);
    page.into_text()
}

fn rows<'a>(picture: &'a Picture, disks: &Disks<'_>) -> Vec<Row<'a>> {
    let labels = |id: &'a str| labels(["", id, "", "", "", ""]);
    let plain = |seen: &'a Measured, network: &'a [Interface], disk| Row {
        labels: labels(&seen.cgroup),
        seen,
        started: seconds(&seen.sample),
        network,
        disk,
        leaf: false,
    };
    let node = disks.node.map(|on| (on.used, on.capacity));
    let mut rows = vec![plain(&picture.root, &picture.network, node)];
    let daemons = picture.daemons.iter().map(|(_, seen)| seen);
    rows.extend(picture.pods_cgroup.iter().chain(&picture.classes).chain(daemons).map(|seen| plain(seen, &[], None)));
    for pod in &picture.pods {
        rows.extend(of_pod(pod, disks));
    }
    rows
}

fn of_pod<'a>(pod: &'a super::picture::PodPicture, disks: &Disks<'_>) -> Vec<Row<'a>> {
    let (namespace, name) = (&*pod.view.namespace, &*pod.view.name);
    let mut rows = Vec::new();
    // The network is that of the sandbox, so that it counts once.
    let of_sandbox: &[Interface] = if pod.sandbox.is_some() { &pod.network } else { &[] };
    let of_own: &[Interface] = if pod.sandbox.is_some() { &[] } else { &pod.network };
    rows.extend(pod.own.iter().map(|seen| Row {
        labels: labels(["", &seen.cgroup, "", "", namespace, name]),
        seen,
        started: seconds(&seen.sample),
        network: of_own,
        disk: None,
        leaf: false,
    }));
    rows.extend(pod.sandbox.iter().map(|(id, seen)| Row {
        labels: labels(["", &seen.cgroup, "", id, namespace, name]),
        seen,
        started: seconds(&seen.sample),
        network: of_sandbox,
        disk: None,
        leaf: true,
    }));
    rows.extend(pod.containers.iter().map(|container| {
        let layer = disks.layers.get(&ContainerId::from(container.id.as_str()));
        let size = disks.container.map_or(0, |on| on.capacity);
        Row {
            labels: labels([
                &*container.name,
                &container.used.cgroup,
                &container.image,
                &container.id,
                namespace,
                name,
            ]),
            seen: &container.used,
            started: container.started.0 as f64 / 1e9,
            network: &[],
            disk: layer.map(|layer| (layer.bytes, size)),
            leaf: true,
        }
    }));
    rows
}

fn labels([container, id, image, name, namespace, pod]: [&str; 6]) -> [(&'static str, &str); 6] {
    [("container", container), ("id", id), ("image", image), ("name", name), ("namespace", namespace), ("pod", pod)]
}

fn seconds(sample: &Sample) -> f64 {
    sample.created.map_or(0.0, |wall| (wall.0 / 1_000_000_000) as f64)
}

fn millis(sample: &Sample) -> i64 {
    sample.wall.0 / 1_000_000
}

fn network(rows: &[Row<'_>], page: &mut Exposition) {
    type Value = fn(&Interface) -> u64;
    let families: [(&'static str, &'static str, Value); 8] = [
        ("container_network_receive_bytes_total", "Bytes received.", |i| i.rx_bytes),
        ("container_network_receive_errors_total", "Errors in receiving.", |i| i.rx_errors),
        ("container_network_receive_packets_dropped_total", "Received packets that were dropped.", |i| i.rx_dropped),
        ("container_network_receive_packets_total", "Packets received.", |i| i.rx_packets),
        ("container_network_transmit_bytes_total", "Bytes sent.", |i| i.tx_bytes),
        ("container_network_transmit_errors_total", "Errors in sending.", |i| i.tx_errors),
        ("container_network_transmit_packets_dropped_total", "Packets dropped before they were sent.", |i| {
            i.tx_dropped
        }),
        ("container_network_transmit_packets_total", "Packets sent.", |i| i.tx_packets),
    ];
    for (name, help, value) in families {
        let mut family = page.family(Descriptor::counter(name, help));
        for row in rows {
            for device in row.network {
                let [container, id, image, called, namespace, pod] = row.labels;
                let labels = [container, id, image, ("interface", device.name.as_str()), called, namespace, pod];
                family.sample_at(&labels, as_f64(value(device)), millis(&row.seen.sample));
            }
        }
    }
}

#[cfg(test)]
mod tests;
