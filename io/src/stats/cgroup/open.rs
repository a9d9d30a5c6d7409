//! What processes have open, from `/proc`.

use crate::stats::sample::Open;
use std::fs;

/// Of all of these processes; `None` without any that can be looked at.
pub(super) fn of(processes: &[u32]) -> Option<Open> {
    let mut open = Open {
        limit: limit(&fs::read_to_string(format!("/proc/{}/limits", processes.first()?)).ok()?),
        ..Open::default()
    };
    for pid in processes {
        // One that ended meanwhile has nothing open.
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            open.files += 1;
            let target = fs::read_link(entry.path()).unwrap_or_default();
            open.sockets += u64::from(target.to_str().is_some_and(|target| target.starts_with("socket:")));
        }
    }
    Some(open)
}

fn limit(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_files_and_sockets_open() {
        let me = std::process::id();
        let before = of(&[me]).unwrap();
        let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let after = of(&[me]).unwrap();
        drop(held);
        // Other tests open and close files meanwhile, but what is held is there.
        assert!(after.sockets >= 1 && after.files > after.sockets, "{before:?} {after:?}");
        assert!(after.limit.is_none_or(|limit| limit >= after.files));
        assert_eq!(of(&[]), None);
        assert_eq!(limit("Max open files            unlimited            unlimited            files\n"), None);
        assert_eq!(limit("Max open files            1024                 4096                 files\n"), Some(1024));
    }
}
