//! The files of v1 hierarchies.

use super::{Reader, V1, below};
use crate::stats::parse::pairs;
use crate::stats::sample::{Cpu, Depth, DeviceIo, Memory, Sample};
use std::path::Path;

/// Clock ticks of `cpuacct.stat` in nanoseconds; the kernel's user interface fixes them.
const TICK: u64 = 10_000_000;
/// A limit above this is the kernel's word for none.
const UNLIMITED: u64 = 1 << 62;

pub(super) fn read(mounts: &V1, path: &str, depth: Depth, reader: &mut Reader, sample: &mut Sample) {
    let dir = |mount: &Option<std::path::PathBuf>| mount.as_ref().map(|mount| below(mount, path));
    if let Some(dir) = dir(&mounts.cpuacct) {
        sample.cpu = cpu(&dir, depth, reader);
    }
    if depth >= Depth::Detail
        && let (Some(cpu), Some(dir)) = (&mut sample.cpu, dir(&mounts.cpu))
    {
        bounds(&dir, cpu, reader);
    }
    if let Some(dir) = dir(&mounts.memory) {
        sample.memory = memory(&dir, depth, reader);
    }
    if depth >= Depth::Detail {
        if let Some(dir) = dir(&mounts.pids) {
            sample.tasks = reader.number(&dir, "pids.current").map(|n| (n, reader.number(&dir, "pids.max")));
        }
        if let Some(dir) = dir(&mounts.blkio) {
            sample.io = io(&dir, reader);
        }
    }
}

fn cpu(dir: &Path, depth: Depth, reader: &mut Reader) -> Option<Cpu> {
    let mut cpu = Cpu { usage: reader.number(dir, "cpuacct.usage")?, ..Cpu::default() };
    if depth >= Depth::Detail
        && let Some(text) = reader.read(dir, "cpuacct.stat")
    {
        for (name, value) in pairs(text) {
            match name {
                "user" => cpu.user = value * TICK,
                "system" => cpu.system = value * TICK,
                _ => {}
            }
        }
    }
    Some(cpu)
}

fn bounds(dir: &Path, cpu: &mut Cpu, reader: &mut Reader) {
    cpu.shares = reader.number(dir, "cpu.shares");
    cpu.period = reader.number(dir, "cpu.cfs_period_us");
    // -1 stands for none, which is no number of ours.
    cpu.quota = reader.number(dir, "cpu.cfs_quota_us");
    if let Some(text) = reader.read(dir, "cpu.stat") {
        let (mut periods, mut throttled, mut nanos) = (0, 0, 0);
        for (name, value) in pairs(text) {
            match name {
                "nr_periods" => periods = value,
                "nr_throttled" => throttled = value,
                "throttled_time" => nanos = value,
                _ => {}
            }
        }
        cpu.throttling = Some((periods, throttled, nanos));
    }
}

fn memory(dir: &Path, depth: Depth, reader: &mut Reader) -> Option<Memory> {
    let mut memory = Memory { usage: reader.number(dir, "memory.usage_in_bytes")?, ..Memory::default() };
    if let Some(text) = reader.read(dir, "memory.stat") {
        for (name, value) in pairs(text) {
            match name {
                "cache" => memory.cache = value,
                "mapped_file" => memory.mapped = value,
                "swap" => memory.swap = value,
                "dirty" => memory.dirty = value,
                "writeback" => memory.writeback = value,
                "pgfault" => memory.faults.0 = value,
                "pgmajfault" => memory.faults.1 = value,
                "workingset_refault_file" => memory.refaults.0 = value,
                "workingset_refault_anon" => memory.refaults.1 = value,
                "total_rss" => memory.rss = value,
                "total_inactive_file" => memory.inactive_file = value,
                "total_active_file" => memory.active_file = value,
                "total_pgfault" => memory.all_faults.0 = value,
                "total_pgmajfault" => memory.all_faults.1 = value,
                _ => {}
            }
        }
    }
    let limited = |limit: Option<u64>| limit.filter(|bytes| *bytes < UNLIMITED);
    memory.limit = limited(reader.number(dir, "memory.limit_in_bytes"));
    memory.swap_limit = limited(reader.number(dir, "memory.memsw.limit_in_bytes"));
    if depth >= Depth::Detail {
        memory.highest = reader.number(dir, "memory.max_usage_in_bytes").unwrap_or(0);
        memory.limit_hits = reader.number(dir, "memory.failcnt").unwrap_or(0);
        memory.kernel = reader.number(dir, "memory.kmem.usage_in_bytes").unwrap_or(0);
        memory.reservation = limited(reader.number(dir, "memory.soft_limit_in_bytes")).unwrap_or(0);
        if let Some(text) = reader.read(dir, "memory.oom_control") {
            memory.oom_kills = pairs(text).find(|(name, _)| *name == "oom_kill").map_or(0, |(_, value)| value);
        }
    }
    Some(memory)
}

fn io(dir: &Path, reader: &mut Reader) -> Vec<DeviceIo> {
    let mut devices: Vec<DeviceIo> = Vec::new();
    for (file, bytes) in [("blkio.throttle.io_service_bytes", true), ("blkio.throttle.io_serviced", false)] {
        let Some(text) = reader.read(dir, file) else { continue };
        for line in text.lines() {
            let mut parts = line.split(' ');
            let (Some(device), Some(kind), Some(value)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let Ok(value) = value.parse::<u64>() else { continue };
            let at = devices.iter().position(|known| known.device == device).unwrap_or_else(|| {
                devices.push(DeviceIo { device: device.to_owned(), ..DeviceIo::default() });
                devices.len() - 1
            });
            let Some(found) = devices.get_mut(at) else { continue };
            let pair = if bytes { &mut found.bytes } else { &mut found.operations };
            match kind {
                "Read" => pair.0 = value,
                "Write" => pair.1 = value,
                _ => {}
            }
        }
    }
    devices
}
