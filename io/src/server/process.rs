//! Metrics of this process, from `/proc/self`.

use crate::metrics::{Descriptor, Exposition, as_f64};
use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage};
use std::fs;

/// Ticks a second in `/proc`; the kernel's user interface fixes it.
const USER_HZ: f64 = 100.0;

/// Writes the families that every exporter has. A number that cannot be read is left out.
pub(super) fn write(page: &mut Exposition) {
    let mut gauge = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            page.single(Descriptor::gauge(name, help), value);
        }
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    gauge("process_resident_memory_bytes", "Resident memory in bytes.", kib(&status, "VmRSS:"));
    gauge("process_virtual_memory_bytes", "Virtual memory in bytes.", kib(&status, "VmSize:"));
    gauge("process_virtual_memory_max_bytes", "Limit of virtual memory in bytes; -1 for none.", max_virtual());
    gauge("process_open_fds", "Open file descriptors.", open_descriptors());
    gauge("process_max_fds", "Limit of open file descriptors.", max_descriptors());
    write_start(page);
    if let Some(seconds) = cpu_seconds() {
        let descriptor =
            Descriptor::counter("process_cpu_seconds_total", "CPU time spent, user and system, in seconds.");
        page.single(descriptor, seconds);
    }
}

/// Writes the family by which a scraper sees a restart.
pub(super) fn write_start(page: &mut Exposition) {
    if let Some(value) = start_time() {
        let help = "Start of the process, in seconds since 1970.";
        page.single(Descriptor::gauge("process_start_time_seconds", help), value);
    }
}

fn cpu_seconds() -> Option<f64> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Some(seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn kib(status: &str, field: &str) -> Option<f64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(as_f64(kib * 1024))
}

fn open_descriptors() -> Option<f64> {
    // The listing itself holds one.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some(count as f64)
}

fn max_descriptors() -> Option<f64> {
    getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(soft, _)| as_f64(soft))
}

fn max_virtual() -> Option<f64> {
    let (soft, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    Some(if soft == libc::RLIM_INFINITY { -1.0 } else { as_f64(soft) })
}

fn start_time() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let boot = fs::read_to_string("/proc/stat").ok()?;
    let boot: u64 = boot.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(as_f64(boot) + start_ticks(&stat)? / USER_HZ)
}

/// Field 22 of `/proc/PID/stat`; the name in field 2 may hold anything, so counting starts behind it.
fn start_ticks(stat: &str) -> Option<f64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    after_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_measured() {
        let mut page = Exposition::default();
        write(&mut page);
        let text = page.into_text();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.unwrap_or_else(|| panic!("{name} is missing in\n{text}")).parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0 && value("process_open_fds") <= value("process_max_fds"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
        let started = value("process_start_time_seconds");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!(started > now - 86_400.0 && started < now + 5.0, "{started} {now}");
    }

    #[test]
    fn the_start_is_found_behind_any_name() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4242 20 21";
        assert_eq!(start_ticks(stat), Some(4242.0));
        assert_eq!(start_ticks("no"), None);
    }
}
