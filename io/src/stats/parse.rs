//! Texts of the kernel as numbers: cgroup files of both versions, pressure, network devices. Pure.

use super::sample::{Interface, Pressure, Stalls};

/// A file that holds one number; `None` for `max` and for what is no number.
pub(super) fn number(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// Lines of a name and a number.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = (&str, u64)> {
    text.lines().filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        Some((name, value.trim().parse().ok()?))
    })
}

/// A pressure file; the kernel leaves `full` out where it has no meaning.
pub(super) fn pressure(text: &str) -> Option<Pressure> {
    let stalls = |kind: &str| -> Option<Stalls> {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let mut stalls = Stalls::default();
        for part in line.split_whitespace() {
            match part.split_once('=')? {
                ("avg10", value) => stalls.avg10 = value.parse().ok()?,
                ("avg60", value) => stalls.avg60 = value.parse().ok()?,
                ("avg300", value) => stalls.avg300 = value.parse().ok()?,
                // Microseconds in the file.
                ("total", value) => stalls.total = value.parse().ok()?,
                _ => {}
            }
        }
        Some(stalls)
    };
    Some(Pressure { some: stalls("some ")?, full: stalls("full ").unwrap_or_default() })
}

/// `/proc/PID/net/dev` without devices that count what others count as well.
pub(super) fn interfaces(text: &str) -> Vec<Interface> {
    let ignored = ["lo", "veth", "docker", "nerdctl"];
    text.lines()
        .skip(2)
        .filter_map(|line| {
            let (name, numbers) = line.split_once(':')?;
            let name = name.trim();
            let numbers: Vec<u64> = numbers.split_whitespace().filter_map(|n| n.parse().ok()).collect();
            if numbers.len() < 12 || ignored.iter().any(|prefix| name.starts_with(prefix)) {
                return None;
            }
            let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
            Some(Interface {
                name: name.to_owned(),
                rx_bytes: at(0),
                rx_packets: at(1),
                rx_errors: at(2),
                rx_dropped: at(3),
                tx_bytes: at(8),
                tx_packets: at(9),
                tx_errors: at(10),
                tx_dropped: at(11),
            })
        })
        .collect()
}

/// Value of a field of `/proc/meminfo` in bytes.
pub(super) fn meminfo(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Processes and threads of the system, from `/proc/loadavg`.
pub(super) fn running_tasks(loadavg: &str) -> Option<u64> {
    loadavg.split_whitespace().nth(3)?.split_once('/')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_number_may_say_max() {
        assert_eq!(number("42\n"), Some(42));
        assert_eq!(number("max\n"), None);
        assert_eq!(pairs("a 1\nbad\nb x\nc 3\n").collect::<Vec<_>>(), [("a", 1), ("c", 3)]);
    }

    #[test]
    fn pressure_may_lack_its_full_line() {
        let text =
            "some avg10=1.50 avg60=0.25 avg300=0.01 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        let found = pressure(text).unwrap();
        assert_eq!((found.some.avg10, found.some.total, found.full.total), (1.5, 12345, 7));
        assert_eq!(pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n").unwrap().full, Stalls::default());
        assert_eq!(pressure(""), None);
        assert_eq!(pressure("some avg10=x\n"), None);
    }

    #[test]
    fn devices_that_are_counted_twice_are_left_out() {
        let text = "Inter-|   Receive\n face |bytes packets\n    lo: 9 9 0 0 0 0 0 0 9 9 0 0 0 0 0 0\n  \
                    eth0:1013 7 1 2 0 0 0 0 4238 8 3 4 0 0 0 0\nveth1: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
        let found = interfaces(text);
        assert_eq!(found.len(), 1);
        let eth0 = &found[0];
        assert_eq!((eth0.name.as_str(), eth0.rx_bytes, eth0.rx_errors, eth0.rx_dropped), ("eth0", 1013, 1, 2));
        assert_eq!((eth0.tx_bytes, eth0.tx_packets, eth0.tx_errors, eth0.tx_dropped), (4238, 8, 3, 4));
    }

    #[test]
    fn memory_and_tasks_of_the_machine() {
        let text = "MemTotal:       26000 kB\nMemFree:  100 kB\n";
        assert_eq!((meminfo(text, "MemTotal"), meminfo(text, "SwapTotal")), (Some(26_624_000), None));
        assert_eq!(running_tasks("0.1 0.2 0.3 2/290 4711\n"), Some(290));
    }
}
