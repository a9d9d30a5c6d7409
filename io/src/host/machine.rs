//! The machine's facts, read once at start.

mod address;
mod identity;
mod resolver;
pub mod users;

pub use self::identity::identity;

use super::HostError;
use components::edge::FailureClass;
use components::node::Machine;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Reads the machine's facts.
///
/// `resolv_conf` is `resolvConf`, where `None` and "" mean none; `node_ip` is `--node-ip`; `hostname_override` is
/// `--hostname-override`.
///
/// # Errors
/// When a fact that pods depend on cannot be read, or an argument is unusable.
pub fn machine(
    resolv_conf: Option<&str>,
    node_ip: Option<&str>,
    hostname_override: Option<&str>,
) -> Result<Machine, HostError> {
    let hostname = hostname(hostname_override)?;
    let resolver = match resolv_conf.filter(|path| !path.is_empty()) {
        Some(path) => Some(resolver::read(Path::new(path))?),
        None => None,
    };
    Ok(Machine {
        node_ips: node_ips(node_ip, &hostname)?,
        hostname,
        cpus: cpus()?,
        memory_bytes: memory_bytes()?,
        hugepage_sizes: hugepage_sizes(Path::new("/sys/kernel/mm/hugepages"))?,
        user_ranges: Vec::new(),
        apparmor: fs::read("/sys/module/apparmor/parameters/enabled").is_ok_and(|text| text.starts_with(b"Y")),
        swap_controller: swap_controller(&read(Path::new("/proc/self/cgroup"))?).exists(),
        swap_bytes: identity::swap_bytes(),
        cgroup_v2: statfs("/sys/fs/cgroup").is_ok_and(|found| found.filesystem_type() == CGROUP2_SUPER_MAGIC),
        shutting_down: false,
        resolver,
        etc_hosts: etc_hosts(Path::new("/etc/hosts"))?,
        // The kernel's own file system of SELinux is there exactly when it is enabled.
        selinux: fs::metadata("/sys/fs/selinux/enforce").is_ok(),
        boot_id: read(Path::new("/proc/sys/kernel/random/boot_id"))?.trim().to_owned(),
    })
}

/// The file by which a cgroup's swap is limited. On the unified hierarchy the root has none, so our own cgroup is asked.
fn swap_controller(own: &str) -> PathBuf {
    match own.lines().find_map(|line| line.strip_prefix("0::")) {
        Some(path) if own.lines().count() == 1 => {
            Path::new("/sys/fs/cgroup").join(path.trim_start_matches('/')).join("memory.swap.max")
        }
        _ => PathBuf::from("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes"),
    }
}

/// Size of the file system that a path is or will be on; `None` when nothing of the path can be looked at.
#[must_use]
pub fn disk_bytes(path: &Path) -> Option<i64> {
    let found = path.ancestors().find_map(|part| nix::sys::statvfs::statvfs(part).ok())?;
    i64::try_from(u128::from(found.blocks()) * u128::from(found.fragment_size())).ok()
}

/// True when the kernel uses swap.
///
/// # Errors
/// When `/proc/swaps` cannot be read.
pub fn swap_on() -> Result<bool, HostError> {
    match fs::read_to_string("/proc/swaps") {
        Ok(text) => Ok(lists_swap(&text)),
        // A kernel without swap has no such file.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(HostError::io("read", Path::new("/proc/swaps"), &error)),
    }
}

fn lists_swap(text: &str) -> bool {
    text.lines().skip(1).any(|line| !line.trim().is_empty())
}

fn hostname(given: Option<&str>) -> Result<String, HostError> {
    let found = match given.map(str::trim).filter(|name| !name.is_empty()) {
        Some(name) => name.to_owned(),
        None => {
            let name = nix::unistd::gethostname().map_err(|errno| {
                HostError::new(FailureClass::Other, format!("read the host name: {}", errno.desc()))
            })?;
            name.to_string_lossy().trim().to_owned()
        }
    };
    if found.is_empty() {
        return Err(HostError::new(FailureClass::Invalid, "the host name is empty; give --hostname-override"));
    }
    Ok(found.to_lowercase())
}

/// The addresses of `--node-ip`, else of a host name that is one, else of the default route's interface.
fn node_ips(given: Option<&str>, hostname: &str) -> Result<Vec<String>, HostError> {
    let mut addresses = Vec::new();
    for part in given.unwrap_or_default().split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let address: IpAddr = part
            .parse()
            .map_err(|_| HostError::new(FailureClass::Invalid, format!("--node-ip: {part:?} is not an IP address")))?;
        addresses.push(address);
    }
    match addresses[..] {
        // All zeros choose the family only.
        [only] if only.is_unspecified() => Ok(vec![address::of_this_node(only.is_ipv6())?.to_string()]),
        [] => match hostname.parse::<IpAddr>() {
            Ok(address) => Ok(vec![address.to_string()]),
            Err(_) => Ok(vec![address::of_this_node(false)?.to_string()]),
        },
        _ => Ok(addresses.iter().map(IpAddr::to_string).collect()),
    }
}

fn cpus() -> Result<u32, HostError> {
    let path = Path::new("/sys/devices/system/cpu/online");
    let text = read(path)?;
    count_list(text.trim()).ok_or_else(|| {
        HostError::new(FailureClass::Garbage, format!("{} is no list: {:?}", path.display(), text.trim()))
    })
}

/// The number of members of a list like `0-3,8`.
fn count_list(text: &str) -> Option<u32> {
    let mut count = 0_u32;
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        count = count.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(count)
}

fn memory_bytes() -> Result<i64, HostError> {
    let path = Path::new("/proc/meminfo");
    memory_total(&read(path)?)
        .ok_or_else(|| HostError::new(FailureClass::Garbage, format!("{} has no MemTotal", path.display())))
}

fn memory_total(text: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

/// Page sizes as the runtime names them, in the order in which the kernel lists them: runtimes do the same.
fn hugepage_sizes(dir: &Path) -> Result<Vec<String>, HostError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HostError::io("read", dir, &error)),
    };
    let mut sizes = Vec::new();
    for entry in entries {
        let name = entry.map_err(|error| HostError::io("read", dir, &error))?.file_name();
        sizes.extend(name.to_str().and_then(hugepage_size));
    }
    Ok(sizes)
}

fn hugepage_size(name: &str) -> Option<String> {
    let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
    let (mut size, mut units) = (kib, ["KB", "MB", "GB"].into_iter());
    let mut unit = units.next()?;
    while size >= 1024 && size % 1024 == 0 {
        let Some(larger) = units.next() else { break };
        size /= 1024;
        unit = larger;
    }
    Some(format!("{size}{unit}"))
}

fn etc_hosts(path: &Path) -> Result<String, HostError> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(HostError::io("read", path, &error)),
    }
}

fn read(path: &Path) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|error| HostError::io("read", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_its_facts() {
        let found = machine(None, None, Some(" Some-Name ")).unwrap();
        assert_eq!(found.hostname, "some-name");
        assert!(found.cpus >= 1 && found.memory_bytes > 1 << 20);
        assert_eq!(found.node_ips.len(), 1);
        assert_eq!(found.boot_id.len(), 36);
        assert_eq!(found.resolver, None);
        let error = machine(Some("/no/such/resolv.conf"), None, None).unwrap_err();
        assert!(error.message.contains("/no/such/resolv.conf"), "{error}");
    }

    #[track_caller]
    fn check_ips(given: &str, hostname: &str, expect: &str) {
        let got = match node_ips(Some(given), hostname) {
            Ok(ips) => ips.join(" "),
            Err(error) => error.message,
        };
        assert_eq!(got, expect);
    }

    #[test]
    fn node_ips_come_from_the_flag_or_the_name() {
        check_ips("10.0.0.7", "n", "10.0.0.7");
        check_ips("10.0.0.7, fd00::7", "n", "10.0.0.7 fd00::7");
        check_ips("", "10.1.1.1", "10.1.1.1");
        check_ips("10.0.0", "n", "--node-ip: \"10.0.0\" is not an IP address");
    }

    #[test]
    fn kernel_texts_are_understood() {
        assert_eq!(count_list("0-3,8"), Some(5));
        assert_eq!(count_list("0"), Some(1));
        assert_eq!(count_list("3-0"), None);
        assert_eq!(count_list(""), None);
        assert_eq!(memory_total("MemFree: 1 kB\nMemTotal:       24684096 kB\n"), Some(25_276_514_304));
        assert_eq!(memory_total("MemTotal: x kB"), None);
        for (name, expect) in [
            ("hugepages-2048kB", Some("2MB")),
            ("hugepages-1048576kB", Some("1GB")),
            ("hugepages-64kB", Some("64KB")),
            ("hugepages-16777216kB", Some("16GB")),
            ("other", None),
        ] {
            assert_eq!(hugepage_size(name).as_deref(), expect, "{name}");
        }
        let v1 = "2:cpu:/a\n1:memory:/a\n0::/a\n";
        assert!(swap_controller(v1).ends_with("memory.memsw.limit_in_bytes"));
        assert_eq!(swap_controller("0::/a/b\n"), Path::new("/sys/fs/cgroup/a/b/memory.swap.max"));
        let header = "Filename\tType\tSize\tUsed\tPriority\n";
        assert!(!lists_swap(header));
        assert!(!lists_swap(""));
        assert!(lists_swap(&format!("{header}/dev/sda2 partition 1 0 -2\n")));
    }
}
