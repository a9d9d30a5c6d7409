//! Builds the answer of `/stats/summary` from a picture and from what lies on disks. Pure.

use super::disk::FileSystem;
use super::du::PodDisk;
use super::model::{
    Container, Cpu, Fs, Interface, Io, Memory, Network, Node, Pod, PodRef, ProcessStats, Psi, PsiData, Rlimit, Runtime,
    Summary, Swap, Time, Used, Volume,
};
use super::picture::{Measured, Picture, PodPicture};
use super::sample::{Depth, Interface as Device, Pressure, Pressures, Sample, Stalls};
use crate::cri::usage::LayerUsage;
use components::ids::{ContainerId, PodUid};
use components::time::Wall;
use std::collections::HashMap;
use std::sync::Arc;

/// Name of the interface whose numbers stand for the whole network.
const MAIN_INTERFACE: &str = "eth0";

/// A file system with what was measured on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct UsedFs {
    pub(super) on: FileSystem,
    pub(super) layer: LayerUsage,
}

/// What lies on disks; only in full answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Disks {
    pub(super) at: Wall,
    /// File system of the root directory.
    pub(super) node: Option<FileSystem>,
    /// File system of the logs.
    pub(super) logs: Option<FileSystem>,
    pub(super) images: Option<UsedFs>,
    pub(super) containers: Option<UsedFs>,
    pub(super) layers: Arc<HashMap<ContainerId, LayerUsage>>,
    pub(super) pods: HashMap<PodUid, Arc<PodDisk>>,
    /// Most processes there may be, and how many there are.
    pub(super) tasks: Option<(u64, u64)>,
}

/// Builds the whole answer; without `disks` only CPU and memory.
pub(super) fn build(node_name: &str, picture: &Picture, disks: Option<&Disks>) -> Summary {
    let daemon = |name: &str, seen: &Measured| Container {
        name: name.to_owned(),
        start_time: Time(seen.sample.created.unwrap_or_default()),
        used: used(seen),
        rootfs: None,
        logs: None,
    };
    let pods = picture.pods_cgroup.iter().map(|seen| daemon("pods", seen));
    let system_containers = picture.daemons.iter().map(|(name, seen)| daemon(name, seen)).chain(pods).collect();
    let root = &picture.root.sample;
    let node = Node {
        node_name: node_name.to_owned(),
        system_containers,
        start_time: Time(root.created.unwrap_or_default()),
        used: used(&picture.root),
        network: disks.and_then(|_| network(root.wall, &picture.network)),
        fs: disks.and_then(|disks| {
            let on = disks.node?;
            Some(fs(disks.at, on, on.used, Some(on.inodes.saturating_sub(on.inodes_free))))
        }),
        runtime: disks.map(|disks| {
            let of = |found: &UsedFs| fs(disks.at, found.on, found.layer.bytes, found.layer.inodes);
            let image_fs = disks.images.as_ref().map(of);
            let container_fs = disks.containers.as_ref().map(of).or_else(|| image_fs.clone());
            Runtime { image_fs, container_fs }
        }),
        rlimit: disks
            .and_then(|disks| disks.tasks.map(|(maxpid, curproc)| Rlimit { time: Time(disks.at), maxpid, curproc })),
    };
    Summary { node, pods: picture.pods.iter().map(|seen| pod(seen, picture.depth, disks)).collect() }
}

fn pod(seen: &PodPicture, depth: Depth, disks: Option<&Disks>) -> Pod {
    let view = &seen.view;
    let disk = disks.and_then(|disks| disks.pods.get(&view.uid));
    let container = |found: &super::picture::ContainerPicture| Container {
        name: found.name.to_string(),
        start_time: Time(found.started),
        used: used(&found.used),
        rootfs: disks.and_then(|disks| {
            let layer = disks.layers.get(&ContainerId::from(found.id.as_str()))?;
            let on = disks.containers.as_ref().or(disks.images.as_ref())?.on;
            Some(fs(layer.at, on, layer.bytes, layer.inodes))
        }),
        logs: disks.and_then(|disks| {
            let measure = disk?.logs.get(&found.name)?;
            Some(fs(measure.at, disks.logs?, measure.taken.bytes, Some(measure.taken.inodes)))
        }),
    };
    let containers: Vec<Container> = seen.containers.iter().map(container).collect();
    let volumes = disk.map_or_else(Vec::new, |disk| disk.volumes.to_vec());
    let ephemeral_storage = disks.zip(disk).and_then(|(disks, disk)| {
        let mut all = fs(disks.at, disks.node?, 0, Some(0));
        let mut add = |bytes: u64, inodes: Option<u64>| {
            all.used_bytes += bytes;
            all.inodes_used = Some(all.inodes_used.unwrap_or(0) + inodes.unwrap_or(0));
        };
        for part in containers.iter().flat_map(|c| [&c.rootfs, &c.logs]).flatten() {
            add(part.used_bytes, part.inodes_used);
        }
        for volume in volumes.iter().filter(|volume| volume.ephemeral) {
            add(volume.measure.taken.bytes, Some(volume.measure.taken.inodes));
        }
        add(disk.others.taken.bytes, Some(disk.others.taken.inodes));
        Some(all)
    });
    Pod {
        pod_ref: PodRef {
            name: view.name.to_string(),
            namespace: view.namespace.to_string(),
            uid: view.uid.as_str().to_owned(),
        },
        start_time: Time(view.status.start_time),
        containers: (!containers.is_empty()).then_some(containers),
        used: seen.own.as_ref().map(used).unwrap_or_default(),
        network: disks.and_then(|disks| network(disks.at, &seen.network)),
        volumes: volumes
            .iter()
            .map(|volume| {
                let (at, taken) = (volume.measure.at, volume.measure.taken);
                Volume { fs: fs(at, volume.on, taken.bytes, Some(taken.inodes)), name: volume.name.to_string() }
            })
            .collect(),
        ephemeral_storage,
        process_stats: (depth >= Depth::Summary && disks.is_some())
            .then_some(ProcessStats { process_count: seen.processes }),
    }
}

fn used(seen: &Measured) -> Used {
    let sample = &seen.sample;
    let time = Time(sample.wall);
    let psi = |of: &dyn Fn(&Pressures) -> Pressure| {
        // The kubelet says zero where the kernel counts nothing, and clients ask for the field.
        Some(psi(sample.pressure.as_ref().map(of).unwrap_or_default()))
    };
    Used {
        cpu: sample.cpu.as_ref().map(|cpu| Cpu {
            time,
            usage_nano_cores: seen.nano_cores.unwrap_or(0),
            usage_core_nano_seconds: cpu.usage,
            psi: psi(&|all| all.cpu),
        }),
        memory: memory(sample, psi(&|all| all.memory)),
        io: Some(Io { time, psi: psi(&|all| all.io) }),
        swap: sample.memory.as_ref().map(|memory| Swap {
            time,
            swap_available_bytes: memory.swap_limit.map(|limit| limit.saturating_sub(memory.swap)),
            swap_usage_bytes: memory.swap,
        }),
    }
}

fn memory(sample: &Sample, psi: Option<Psi>) -> Option<Memory> {
    let memory = sample.memory.as_ref()?;
    let working_set = memory.working_set();
    Some(Memory {
        time: Time(sample.wall),
        available_bytes: memory.limit.map(|limit| limit.saturating_sub(working_set)),
        usage_bytes: memory.usage,
        working_set_bytes: working_set,
        rss_bytes: memory.rss,
        page_faults: memory.faults.0,
        major_page_faults: memory.faults.1,
        psi,
    })
}

fn psi(found: Pressure) -> Psi {
    let data = |stalls: Stalls| PsiData {
        total: stalls.total,
        avg10: stalls.avg10,
        avg60: stalls.avg60,
        avg300: stalls.avg300,
    };
    Psi { full: data(found.full), some: data(found.some) }
}

fn network(at: Wall, devices: &[Device]) -> Option<Network> {
    let interface = |device: &Device| Interface {
        name: device.name.clone(),
        rx_bytes: Some(device.rx_bytes),
        rx_errors: Some(device.rx_errors),
        tx_bytes: Some(device.tx_bytes),
        tx_errors: Some(device.tx_errors),
    };
    let main = devices.iter().find(|device| device.name == MAIN_INTERFACE).map(interface).unwrap_or_default();
    let interfaces: Vec<Interface> = devices.iter().map(interface).collect();
    (!interfaces.is_empty()).then_some(Network { time: Time(at), main, interfaces })
}

fn fs(at: Wall, on: FileSystem, used_bytes: u64, inodes_used: Option<u64>) -> Fs {
    Fs {
        time: Time(at),
        available_bytes: on.available,
        capacity_bytes: on.capacity,
        used_bytes,
        inodes_free: on.inodes_free,
        inodes: on.inodes,
        inodes_used,
    }
}

#[cfg(test)]
mod tests;
