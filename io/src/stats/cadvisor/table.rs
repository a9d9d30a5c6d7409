//! Families that have one sample a cgroup, or one for each value of a further label.

use super::{Row, millis};
use crate::metrics::{Descriptor, Exposition, MetricKind, as_f64};
use crate::stats::sample::{Cpu, Memory, Pressure, Pressures, Stalls};

type Value = fn(&Row<'_>) -> Option<f64>;

const fn counter(name: &'static str, help: &'static str, value: Value) -> (Descriptor, Value) {
    (Descriptor { name, help, kind: MetricKind::Counter }, value)
}

const fn gauge(name: &'static str, help: &'static str, value: Value) -> (Descriptor, Value) {
    (Descriptor { name, help, kind: MetricKind::Gauge }, value)
}

fn cpu(row: &Row<'_>, value: fn(&Cpu) -> u64) -> Option<f64> {
    row.seen.sample.cpu.as_ref().map(|cpu| as_f64(value(cpu)))
}

fn memory(row: &Row<'_>, value: fn(&Memory) -> u64) -> Option<f64> {
    row.seen.sample.memory.as_ref().map(|memory| as_f64(value(memory)))
}

fn throttling(row: &Row<'_>, value: fn((u64, u64, u64)) -> u64) -> Option<f64> {
    // Without a quota nothing is throttled, and there is nothing to say.
    let cpu = row.seen.sample.cpu.as_ref().filter(|cpu| cpu.quota.is_some())?;
    cpu.throttling.map(|found| as_f64(value(found)))
}

fn stalled(row: &Row<'_>, resource: fn(&Pressures) -> Pressure, kind: fn(&Pressure) -> Stalls) -> Option<f64> {
    let found = resource(row.seen.sample.pressure.as_ref()?);
    Some(as_f64(kind(&found).total) / 1e6)
}

const FAMILIES: &[(Descriptor, Value)] = &[
    counter("container_cpu_cfs_periods_total", "Periods in which a CPU quota was enforced.", |row| {
        throttling(row, |(periods, _, _)| periods)
    }),
    counter("container_cpu_cfs_throttled_periods_total", "Periods in which it was throttled.", |row| {
        throttling(row, |(_, throttled, _)| throttled)
    }),
    counter("container_cpu_cfs_throttled_seconds_total", "Time for which it was throttled.", |row| {
        throttling(row, |(_, _, nanos)| nanos).map(|nanos| nanos / 1e9)
    }),
    counter("container_cpu_system_seconds_total", "CPU time spent in the kernel.", |row| {
        cpu(row, |cpu| cpu.system).map(|nanos| nanos / 1e9)
    }),
    counter("container_cpu_user_seconds_total", "CPU time spent in user mode.", |row| {
        cpu(row, |cpu| cpu.user).map(|nanos| nanos / 1e9)
    }),
    gauge("container_creation_time_seconds", "When the cgroup was made, in seconds since 1970.", |row| {
        Some(row.started)
    }),
    gauge("container_last_seen", "When it was looked at, in seconds since 1970.", |row| {
        Some((row.seen.sample.wall.0 / 1_000_000_000) as f64)
    }),
    gauge("container_memory_cache", "Page cache in bytes.", |row| memory(row, |m| m.cache)),
    counter("container_memory_events_high_total", "Times that memory was throttled at its high mark.", |row| {
        memory(row, |m| m.events.0)
    }),
    counter("container_memory_events_max_total", "Times that memory was about to pass its limit.", |row| {
        memory(row, |m| m.events.1)
    }),
    counter("container_memory_failcnt", "Times that the memory limit was hit.", |row| memory(row, |m| m.limit_hits)),
    gauge("container_memory_file_dirty_bytes", "Changed file pages that are not written yet.", |row| {
        memory(row, |m| m.dirty)
    }),
    gauge("container_memory_file_writeback_bytes", "File pages that are being written.", |row| {
        memory(row, |m| m.writeback)
    }),
    gauge("container_memory_kernel_usage", "Memory of the kernel in bytes.", |row| memory(row, |m| m.kernel)),
    gauge("container_memory_mapped_file", "Mapped files in bytes.", |row| memory(row, |m| m.mapped)),
    gauge("container_memory_max_usage_bytes", "Most memory that was ever in use.", |row| memory(row, |m| m.highest)),
    counter("container_memory_pgscan_total", "Pages that were looked at to free memory.", |row| {
        memory(row, |m| m.reclaim.0)
    }),
    counter("container_memory_pgsteal_total", "Pages that were freed so.", |row| memory(row, |m| m.reclaim.1)),
    gauge("container_memory_rss", "Anonymous memory in bytes.", |row| memory(row, |m| m.rss)),
    gauge("container_memory_swap", "Memory that is swapped out, in bytes.", |row| memory(row, |m| m.swap)),
    gauge("container_memory_total_active_file_bytes", "File pages used lately.", |row| memory(row, |m| m.active_file)),
    gauge("container_memory_total_inactive_file_bytes", "File pages not used lately.", |row| {
        memory(row, |m| m.inactive_file)
    }),
    gauge("container_memory_usage_bytes", "All memory in use, in bytes.", |row| memory(row, |m| m.usage)),
    gauge("container_memory_working_set_bytes", "Memory that can't be had back without harm, in bytes.", |row| {
        memory(row, Memory::working_set)
    }),
    counter("container_memory_workingset_refault_anon_total", "Anonymous pages that came back too soon.", |row| {
        memory(row, |m| m.refaults.1)
    }),
    counter("container_memory_workingset_refault_file_total", "File pages that came back too soon.", |row| {
        memory(row, |m| m.refaults.0)
    }),
    counter("container_oom_events_total", "Processes killed for lack of memory.", |row| memory(row, |m| m.oom_kills)),
    counter("container_pressure_cpu_stalled_seconds_total", "Time in which all tasks waited for CPU.", |row| {
        stalled(row, |all| all.cpu, |pressure| pressure.full)
    }),
    counter("container_pressure_cpu_waiting_seconds_total", "Time in which a task waited for CPU.", |row| {
        stalled(row, |all| all.cpu, |pressure| pressure.some)
    }),
    counter("container_pressure_io_stalled_seconds_total", "Time in which all tasks waited for I/O.", |row| {
        stalled(row, |all| all.io, |pressure| pressure.full)
    }),
    counter("container_pressure_io_waiting_seconds_total", "Time in which a task waited for I/O.", |row| {
        stalled(row, |all| all.io, |pressure| pressure.some)
    }),
    counter("container_pressure_memory_stalled_seconds_total", "Time in which all tasks waited for memory.", |row| {
        stalled(row, |all| all.memory, |pressure| pressure.full)
    }),
    counter("container_pressure_memory_waiting_seconds_total", "Time in which a task waited for memory.", |row| {
        stalled(row, |all| all.memory, |pressure| pressure.some)
    }),
    gauge("container_file_descriptors", "Open file descriptors.", |row| {
        row.seen.sample.open.map(|open| as_f64(open.files))
    }),
    gauge("container_sockets", "Open sockets.", |row| row.seen.sample.open.map(|open| as_f64(open.sockets))),
    gauge("container_processes", "Processes.", |row| row.leaf.then_some(row.seen.sample.processes.len() as f64)),
    gauge("container_spec_cpu_period", "Period of the CPU quota in microseconds.", |row| {
        row.seen.sample.cpu.as_ref()?.period.map(as_f64)
    }),
    gauge("container_spec_cpu_quota", "CPU time a period in microseconds.", |row| {
        row.seen.sample.cpu.as_ref()?.quota.map(as_f64)
    }),
    gauge("container_spec_cpu_shares", "Weight among others.", |row| row.seen.sample.cpu.as_ref()?.shares.map(as_f64)),
    gauge("container_spec_memory_limit_bytes", "Memory limit in bytes; 0 for none.", |row| {
        memory(row, |m| m.limit.unwrap_or(0))
    }),
    gauge("container_spec_memory_reservation_limit_bytes", "Memory kept from reclaim; 0 for none.", |row| {
        memory(row, |m| m.reservation)
    }),
    gauge("container_spec_memory_swap_limit_bytes", "Swap limit in bytes; 0 for none.", |row| {
        memory(row, |m| m.swap_limit.unwrap_or(0))
    }),
    gauge("container_start_time_seconds", "Start in seconds since 1970.", |row| Some(row.started)),
    gauge("container_threads", "Threads.", |row| row.seen.sample.tasks.map(|(now, _)| as_f64(now))),
    gauge("container_threads_max", "Most threads there may be; 0 for no limit.", |row| {
        row.seen.sample.tasks.map(|(_, most)| as_f64(most.unwrap_or(0)))
    }),
];

/// Writes them.
pub(super) fn write(rows: &[Row<'_>], page: &mut Exposition) {
    for (descriptor, value) in FAMILIES {
        let mut family = page.family(*descriptor);
        for row in rows {
            if let Some(value) = value(row) {
                family.sample_at(&row.labels, value, millis(&row.seen.sample));
            }
        }
    }
    further(rows, page);
}

fn further(rows: &[Row<'_>], page: &mut Exposition) {
    let help = "CPU time spent.";
    let mut family = page.family(Descriptor::counter("container_cpu_usage_seconds_total", help));
    for row in rows {
        if let Some(nanos) = cpu(row, |cpu| cpu.usage) {
            let [container, rest @ ..] = row.labels;
            let [id, image, name, namespace, pod] = rest;
            let labels = [container, ("cpu", "total"), id, image, name, namespace, pod];
            family.sample_at(&labels, nanos / 1e9, millis(&row.seen.sample));
        }
    }
    let help = "Page faults, of the cgroup itself and with all below it.";
    let mut family = page.family(Descriptor::counter("container_memory_failures_total", help));
    for row in rows {
        let Some(memory) = &row.seen.sample.memory else { continue };
        for (kind, scope, count) in [
            ("pgfault", "container", memory.faults.0),
            ("pgfault", "hierarchy", memory.all_faults.0),
            ("pgmajfault", "container", memory.faults.1),
            ("pgmajfault", "hierarchy", memory.all_faults.1),
        ] {
            let [container, id, image, name, namespace, pod] = row.labels;
            let labels = [container, ("failure_type", kind), id, image, name, namespace, pod, ("scope", scope)];
            family.sample_at(&labels, as_f64(count), millis(&row.seen.sample));
        }
    }
    let help = "Limit of open files of the first process.";
    let mut family = page.family(Descriptor::gauge("container_ulimits_soft", help));
    for row in rows {
        if let Some(open) = row.seen.sample.open {
            let [container, id, image, name, namespace, pod] = row.labels;
            let labels = [container, id, image, name, namespace, pod, ("ulimit", "max_open_files")];
            family.sample_at(&labels, open.limit.map_or(-1.0, as_f64), millis(&row.seen.sample));
        }
    }
}
