//! The files of the unified hierarchy.

use super::Reader;
use crate::stats::parse::{meminfo, pairs, pressure};
use crate::stats::sample::{Cpu, Depth, DeviceIo, Memory, Pressure, Pressures, Sample};
use std::path::Path;

pub(super) fn read(dir: &Path, root: bool, depth: Depth, reader: &mut Reader, sample: &mut Sample) {
    sample.cpu = cpu(dir, depth, reader);
    sample.memory = if root { of_machine(dir, reader) } else { memory(dir, depth, reader) };
    if depth >= Depth::Summary {
        sample.pressure = pressures(dir, root, reader);
    }
    if depth >= Depth::Detail {
        sample.tasks = reader.number(dir, "pids.current").map(|n| (n, reader.number(dir, "pids.max")));
        sample.io = reader.read(dir, "io.stat").map(io).unwrap_or_default();
    }
}

fn cpu(dir: &Path, depth: Depth, reader: &mut Reader) -> Option<Cpu> {
    let mut cpu = Cpu::default();
    let (mut periods, mut throttled, mut nanos, mut bounded) = (0, 0, 0, false);
    for (name, value) in pairs(reader.read(dir, "cpu.stat")?) {
        match name {
            "usage_usec" => cpu.usage = value * 1000,
            "user_usec" => cpu.user = value * 1000,
            "system_usec" => cpu.system = value * 1000,
            "nr_periods" => (periods, bounded) = (value, true),
            "nr_throttled" => throttled = value,
            "throttled_usec" => nanos = value * 1000,
            _ => {}
        }
    }
    cpu.throttling = bounded.then_some((periods, throttled, nanos));
    if depth >= Depth::Detail {
        cpu.shares = reader.number(dir, "cpu.weight").map(shares);
        if let Some((quota, period)) = reader.read(dir, "cpu.max").and_then(|text| text.trim().split_once(' ')) {
            cpu.quota = quota.parse().ok();
            cpu.period = period.parse().ok();
        }
    }
    Some(cpu)
}

/// Shares that a weight was made from, as the kubelet and runtimes convert them.
fn shares(weight: u64) -> u64 {
    if weight == 0 { 0 } else { 2 + (weight.saturating_sub(1) * 262_142) / 9999 }
}

fn fill(memory: &mut Memory, text: &str) {
    for (name, value) in pairs(text) {
        match name {
            "anon" => memory.rss = value,
            "file" => memory.cache = value,
            "file_mapped" => memory.mapped = value,
            "kernel" => memory.kernel = value,
            "file_dirty" => memory.dirty = value,
            "file_writeback" => memory.writeback = value,
            "inactive_file" => memory.inactive_file = value,
            "active_file" => memory.active_file = value,
            "pgfault" => memory.faults.0 = value,
            "pgmajfault" => memory.faults.1 = value,
            "pgscan" => memory.reclaim.0 = value,
            "pgsteal" => memory.reclaim.1 = value,
            "workingset_refault_file" => memory.refaults.0 = value,
            "workingset_refault_anon" => memory.refaults.1 = value,
            _ => {}
        }
    }
    memory.all_faults = memory.faults;
}

fn memory(dir: &Path, depth: Depth, reader: &mut Reader) -> Option<Memory> {
    let mut memory = Memory { usage: reader.number(dir, "memory.current")?, ..Memory::default() };
    if let Some(text) = reader.read(dir, "memory.stat") {
        fill(&mut memory, text);
    }
    memory.limit = reader.number(dir, "memory.max");
    memory.swap = reader.number(dir, "memory.swap.current").unwrap_or(0);
    memory.swap_limit = reader.number(dir, "memory.swap.max");
    if depth >= Depth::Detail {
        memory.highest = reader.number(dir, "memory.peak").unwrap_or(0);
        memory.reservation = reader.number(dir, "memory.min").unwrap_or(0);
        if let Some(text) = reader.read(dir, "memory.events") {
            for (name, value) in pairs(text) {
                match name {
                    "high" => memory.events.0 = value,
                    "max" => (memory.events.1, memory.limit_hits) = (value, value),
                    "oom_kill" => memory.oom_kills = value,
                    _ => {}
                }
            }
        }
    }
    Some(memory)
}

/// The root has no files of its own usage: the machine's numbers are the same.
fn of_machine(dir: &Path, reader: &mut Reader) -> Option<Memory> {
    let mut memory = Memory::default();
    fill(&mut memory, reader.read(dir, "memory.stat")?);
    let text = reader.read(Path::new("/proc"), "meminfo")?;
    let field = |name| meminfo(text, name).unwrap_or(0);
    memory.usage = field("MemTotal").saturating_sub(field("MemFree"));
    memory.swap = field("SwapTotal").saturating_sub(field("SwapFree"));
    Some(memory)
}

/// Pressure of the root is the machine's.
fn pressures(dir: &Path, root: bool, reader: &mut Reader) -> Option<Pressures> {
    if root {
        return of_kernel(reader);
    }
    let mut one = |name: &str| -> Option<Pressure> { pressure(reader.read(dir, name)?) };
    Some(Pressures { cpu: one("cpu.pressure")?, memory: one("memory.pressure")?, io: one("io.pressure")? })
}

/// Pressure on the machine.
pub(super) fn of_kernel(reader: &mut Reader) -> Option<Pressures> {
    let dir = Path::new("/proc/pressure");
    let mut one = |name: &str| -> Option<Pressure> { pressure(reader.read(dir, name)?) };
    Some(Pressures { cpu: one("cpu")?, memory: one("memory")?, io: one("io")? })
}

fn io(text: &str) -> Vec<DeviceIo> {
    let device = |line: &str| -> Option<DeviceIo> {
        let (device, numbers) = line.split_once(' ')?;
        let mut found = DeviceIo { device: device.to_owned(), ..DeviceIo::default() };
        for part in numbers.split(' ') {
            match part.split_once('=')? {
                ("rbytes", value) => found.bytes.0 = value.parse().ok()?,
                ("wbytes", value) => found.bytes.1 = value.parse().ok()?,
                ("rios", value) => found.operations.0 = value.parse().ok()?,
                ("wios", value) => found.operations.1 = value.parse().ok()?,
                _ => {}
            }
        }
        Some(found)
    };
    text.lines().filter_map(device).collect()
}
