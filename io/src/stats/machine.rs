//! Facts of the machine that usage is compared with. Read once, except for the number of tasks.

use super::{parse, read};
use components::time::Wall;
use std::collections::{BTreeMap, BTreeSet};

/// What the page of container metrics says of the machine.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Machine {
    pub(super) cores: u64,
    pub(super) physical_cores: u64,
    pub(super) sockets: u64,
    pub(super) memory_bytes: u64,
    pub(super) swap_bytes: u64,
    pub(super) machine_id: String,
    pub(super) system_uuid: String,
    pub(super) boot_id: String,
    pub(super) kernel: String,
    pub(super) os: String,
    /// Block devices by number.
    pub(super) devices: BTreeMap<String, String>,
}

impl Machine {
    /// Path of a block device, given by its numbers; those when nothing is known.
    pub(super) fn device<'a>(&'a self, numbers: &'a str) -> &'a str {
        self.devices.get(numbers).map_or(numbers, String::as_str)
    }

    /// Reads what can be read.
    pub(super) fn read() -> Self {
        let text = |path: &str| read(path).map(|text| text.trim().to_owned()).unwrap_or_default();
        let memory = read("/proc/meminfo").unwrap_or_default();
        let (cores, physical_cores, sockets) = processors(&read("/proc/cpuinfo").unwrap_or_default());
        Self {
            cores,
            physical_cores,
            sockets,
            memory_bytes: parse::meminfo(&memory, "MemTotal").unwrap_or(0),
            swap_bytes: parse::meminfo(&memory, "SwapTotal").unwrap_or(0),
            machine_id: text("/etc/machine-id"),
            system_uuid: text("/sys/class/dmi/id/product_uuid"),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: text("/proc/sys/kernel/osrelease"),
            devices: devices(&read("/proc/diskstats").unwrap_or_default()),
            os: pretty_name(&read("/etc/os-release").unwrap_or_default()),
        }
    }
}

/// Threads, cores and sockets; a machine that does not tell cores apart has one a thread.
fn processors(text: &str) -> (u64, u64, u64) {
    let (mut threads, mut cores, mut sockets) = (0, BTreeSet::new(), BTreeSet::new());
    let mut socket = String::new();
    for line in text.lines() {
        let Some((name, value)) = line.split_once(':') else { continue };
        match (name.trim(), value.trim()) {
            ("processor", _) => threads += 1,
            ("physical id", value) => {
                value.clone_into(&mut socket);
                sockets.insert(socket.clone());
            }
            ("core id", value) => {
                cores.insert((socket.clone(), value.to_owned()));
            }
            _ => {}
        }
    }
    let count = |n: usize, or: u64| if n == 0 { or } else { n as u64 };
    (threads, count(cores.len(), threads), count(sockets.len(), 1))
}

fn devices(text: &str) -> BTreeMap<String, String> {
    let device = |line: &str| {
        let mut words = line.split_whitespace();
        let (major, minor, name) = (words.next()?, words.next()?, words.next()?);
        Some((format!("{major}:{minor}"), format!("/dev/{name}")))
    };
    text.lines().filter_map(device).collect()
}

fn pretty_name(text: &str) -> String {
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    line.unwrap_or_default().trim_matches('"').to_owned()
}

/// When the machine was started.
pub(super) fn booted() -> Option<Wall> {
    let stat = read("/proc/stat")?;
    let seconds: i64 = stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(Wall(seconds * 1_000_000_000))
}

/// The cgroup that this process lives in; `None` for the root's.
pub(super) fn own_cgroup() -> Option<String> {
    own(&read("/proc/self/cgroup")?)
}

fn own(text: &str) -> Option<String> {
    let of = |wanted: &dyn Fn(&str) -> bool| {
        text.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            wanted(controllers).then(|| path.to_owned())
        })
    };
    let v1 = of(&|controllers| controllers.split(',').any(|name| name == "memory"));
    v1.or_else(|| of(&str::is_empty)).filter(|path| path != "/")
}

/// Most tasks there may be, and how many there are.
pub(super) fn tasks() -> Option<(u64, u64)> {
    let limit = |path: &str| parse::number(&read(path)?);
    let (pids, threads) = (limit("/proc/sys/kernel/pid_max")?, limit("/proc/sys/kernel/threads-max"));
    Some((threads.map_or(pids, |threads| threads.min(pids)), parse::running_tasks(&read("/proc/loadavg")?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_counted_by_thread_core_and_socket() {
        let text = "processor\t: 0\nphysical id\t: 0\ncore id\t: 0\n\nprocessor\t: 1\nphysical id\t: 0\ncore id\t: 0\n\n\
                    processor\t: 2\nphysical id\t: 1\ncore id\t: 0\n";
        assert_eq!(processors(text), (3, 2, 2));
        assert_eq!(processors("processor : 0\nprocessor : 1\n"), (2, 2, 1));
    }

    #[test]
    fn devices_have_names() {
        let machine = Machine { devices: devices(" 254       0 vda 1 2 3\n"), ..Machine::default() };
        assert_eq!((machine.device("254:0"), machine.device("7:1")), ("/dev/vda", "7:1"));
    }

    #[test]
    fn the_own_cgroup_is_that_of_the_memory_controller() {
        assert_eq!(
            own("5:cpu:/x\n4:memory:/system.slice/k.service\n0::/u\n").as_deref(),
            Some("/system.slice/k.service")
        );
        assert_eq!(own("0::/system.slice/k.service\n").as_deref(), Some("/system.slice/k.service"));
        assert_eq!(own("4:memory:/\n0::/\n"), None);
    }

    #[test]
    fn this_machine_has_tasks_and_was_started() {
        let (most, now) = tasks().unwrap();
        assert!(now >= 1 && most >= now, "{now} of {most}");
        assert!(booted().unwrap() > Wall::default());
        assert!(Machine::read().cores >= 1);
    }
}
