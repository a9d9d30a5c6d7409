//! Kernel parameters that the reference kubelet sets at start: noted before a run, put back after it.

use std::fs;
use std::path::Path;

/// What the reference sets.
const PATHS: [&str; 6] = [
    "/proc/sys/kernel/keys/root_maxbytes",
    "/proc/sys/kernel/keys/root_maxkeys",
    "/proc/sys/kernel/panic",
    "/proc/sys/kernel/panic_on_oops",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/panic_on_oom",
];

/// Values as they were; put back when dropped.
pub(super) struct Tunables(Vec<(&'static str, String)>);

impl Tunables {
    /// Notes the present values.
    pub(super) fn save() -> Self {
        Self(PATHS.iter().filter_map(|path| Some((*path, fs::read_to_string(path).ok()?))).collect())
    }
}

impl Drop for Tunables {
    fn drop(&mut self) {
        for (path, value) in &self.0 {
            let changed = fs::read_to_string(path).is_ok_and(|now| now != *value);
            if changed && let Err(error) = fs::write(Path::new(path), value) {
                eprintln!("cannot put {path} back to {}: {error}", value.trim());
            }
        }
    }
}
