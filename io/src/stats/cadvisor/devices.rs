//! Families of block devices and file systems.

use super::{Disks, Row, millis};
use crate::metrics::{Descriptor, Exposition, as_f64};
use crate::stats::machine::Machine;
use crate::stats::sample::DeviceIo;

/// Writes them.
pub(super) fn write(rows: &[Row<'_>], disks: &Disks<'_>, machine: &Machine, page: &mut Exposition) {
    usage(rows, page);
    inodes(rows, disks, page);
    type Value = fn(&DeviceIo) -> u64;
    let families: [(&'static str, &'static str, Value); 4] = [
        ("container_fs_reads_bytes_total", "Bytes read.", |io| io.bytes.0),
        ("container_fs_reads_total", "Reads.", |io| io.operations.0),
        ("container_fs_writes_bytes_total", "Bytes written.", |io| io.bytes.1),
        ("container_fs_writes_total", "Writes.", |io| io.operations.1),
    ];
    for (name, help, value) in families {
        let mut family = page.family(Descriptor::counter(name, help));
        for row in rows {
            for io in &row.seen.sample.io {
                let device = machine.device(&io.device);
                family.sample_at(&labels(row, device), as_f64(value(io)), millis(&row.seen.sample));
            }
        }
    }
    let help = "Bytes by device and operation.";
    let mut family = page.family(Descriptor::counter("container_blkio_device_usage_total", help));
    for row in rows {
        for io in &row.seen.sample.io {
            let Some((major, minor)) = io.device.split_once(':') else { continue };
            for (operation, bytes) in [("Read", io.bytes.0), ("Write", io.bytes.1)] {
                let [container, id, image, name, namespace, pod] = row.labels;
                let device = ("device", machine.device(&io.device));
                let (major, minor, operation) = (("major", major), ("minor", minor), ("operation", operation));
                let labels = [container, device, id, image, major, minor, name, namespace, operation, pod];
                family.sample_at(&labels, as_f64(bytes), millis(&row.seen.sample));
            }
        }
    }
}

fn labels<'a>(row: &Row<'a>, device: &'a str) -> [(&'static str, &'a str); 7] {
    let [container, id, image, name, namespace, pod] = row.labels;
    [container, ("device", device), id, image, name, namespace, pod]
}

fn usage(rows: &[Row<'_>], page: &mut Exposition) {
    for (name, help, of) in [
        ("container_fs_limit_bytes", "Size of the file system that it writes to.", 1),
        ("container_fs_usage_bytes", "Bytes on it.", 0),
    ] {
        let mut family = page.family(Descriptor::gauge(name, help));
        for row in rows {
            if let Some((used, size)) = row.disk {
                let value = if of == 0 { used } else { size };
                family.sample_at(&labels(row, ""), as_f64(value), millis(&row.seen.sample));
            }
        }
    }
}

/// Only the node's file system has inodes of its own.
fn inodes(rows: &[Row<'_>], disks: &Disks<'_>, page: &mut Exposition) {
    let (Some(row), Some(on)) = (rows.first(), disks.node) else { return };
    for (name, help, value) in [
        ("container_fs_inodes_free", "Inodes that are free.", on.inodes_free),
        ("container_fs_inodes_total", "Inodes in all.", on.inodes),
    ] {
        let mut family = page.family(Descriptor::gauge(name, help));
        family.sample_at(&labels(row, ""), as_f64(value), millis(&row.seen.sample));
    }
}
