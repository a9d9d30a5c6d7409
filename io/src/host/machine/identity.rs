//! What tells this machine from others: ids, names of its kernel and system, its memory besides the ordinary.

use super::super::HostError;
use components::edge::FailureClass;
use components::node::object::MachineIdentity;
use std::fs;
use std::path::Path;

/// Where the machine id is.
const MACHINE_ID: [&str; 2] = ["/etc/machine-id", "/var/lib/dbus/machine-id"];
/// Where firmware tells its UUID; machines without one are told by their machine id.
const SYSTEM_UUID: [&str; 4] =
    ["/sys/class/dmi/id/product_uuid", "/proc/device-tree/vm,uuid", "/proc/device-tree/system-id", "/etc/machine-id"];
/// Where the system's name is.
const OS_RELEASE: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];

/// Reads the machine's identity.
///
/// # Errors
/// When the kernel does not say its release.
pub fn identity() -> Result<MachineIdentity, HostError> {
    let system = nix::sys::utsname::uname()
        .map_err(|errno| HostError::new(FailureClass::Other, format!("read the kernel's release: {}", errno.desc())))?;
    let text = |path: &str| fs::read_to_string(path).ok();
    Ok(MachineIdentity {
        machine_id: first(&MACHINE_ID, text),
        system_uuid: first(&SYSTEM_UUID, text),
        kernel: system.release().to_string_lossy().into_owned(),
        os_image: OS_RELEASE.iter().find_map(|path| pretty_name(&text(path)?)).unwrap_or_else(|| "Unknown".to_owned()),
        architecture: architecture(std::env::consts::ARCH).to_owned(),
        hugepages: hugepages(Path::new("/sys/kernel/mm/hugepages")),
        in_user_namespace: text("/proc/self/uid_map").is_some_and(|map| is_mapped(&map)),
    })
}

/// The first file that says something.
fn first(paths: &[&str], read: impl Fn(&str) -> Option<String>) -> String {
    let said = |path: &&str| {
        let text = read(path)?;
        // Device trees end their texts with a zero.
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
        (!text.is_empty()).then_some(text)
    };
    paths.iter().find_map(said).unwrap_or_default()
}

fn pretty_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.trim().strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(|c| c == '"' || c == '\'').to_owned())
}

/// As Go names it.
fn architecture(name: &str) -> &str {
    match name {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

/// (bytes of a page, bytes of all pages) of each size that the kernel has, the smallest first.
fn hugepages(dir: &Path) -> Vec<(i64, i64)> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let size = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let kib: i64 = name.to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let count: i64 = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?.trim().parse().ok()?;
        let page = kib.checked_mul(1024)?;
        Some((page, page.checked_mul(count)?))
    };
    let mut sizes: Vec<(i64, i64)> = entries.filter_map(|entry| size(entry.ok()?)).collect();
    sizes.sort_unstable();
    sizes
}

/// Swap of this machine in bytes; 0 where the kernel tells of none.
pub(super) fn swap_bytes() -> i64 {
    fs::read_to_string("/proc/meminfo").ok().and_then(|text| swap_total(&text)).unwrap_or(0)
}

fn swap_total(meminfo: &str) -> Option<i64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("SwapTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<i64>().ok()?.checked_mul(1024)
}

/// True unless all ids mean themselves.
fn is_mapped(map: &str) -> bool {
    map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_an_identity() {
        let found = identity().unwrap();
        assert!(!found.kernel.is_empty() && !found.os_image.is_empty() && !found.architecture.is_empty());
    }

    #[test]
    fn texts_of_the_system_are_understood() {
        let release = "NAME=\"Debian\"\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(pretty_name(release).as_deref(), Some("Debian GNU/Linux 12 (bookworm)"));
        assert_eq!(pretty_name("NAME=x\n"), None);
        let files = |path: &str| match path {
            "/a" => Some(" \n".to_owned()),
            "/b" => Some("id\0".to_owned()),
            _ => None,
        };
        assert_eq!(first(&["/none", "/a", "/b"], files), "id");
        assert_eq!(swap_total("MemTotal: 5 kB\nSwapTotal:    2048 kB\n"), Some(2 << 20));
        assert!(!is_mapped("         0          0 4294967295\n"));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n"));
        assert_eq!((architecture("x86_64"), architecture("riscv64")), ("amd64", "riscv64"));
    }

    #[test]
    fn hugepages_are_counted_by_size() {
        let dir = tempfile::tempdir().unwrap();
        for (name, count) in [("hugepages-1048576kB", "1"), ("hugepages-2048kB", "8"), ("other", "3")] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("nr_hugepages"), format!("{count}\n")).unwrap();
        }
        assert_eq!(hugepages(dir.path()), [(2 << 20, 16 << 20), (1 << 30, 1 << 30)]);
        assert_eq!(hugepages(Path::new("/no/such")), []);
    }
}
