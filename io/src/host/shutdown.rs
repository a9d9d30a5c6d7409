//! The kubelet's note of its last graceful shutdown: tells whether one of this boot is still under way.
//!
//! Reads `ROOT/graceful_node_shutdown_state` and the time of the last boot.

use super::HostError;
use serde::Deserialize;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// The file's content, as the kubelet writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    start_time: jiff::Timestamp,
    end_time: jiff::Timestamp,
}

/// True when a shutdown of the node was begun after the last boot and has not ended.
///
/// # Errors
/// When the file is there and cannot be read or understood; it names the file.
pub fn shutdown_under_way(root: &Path) -> Result<bool, HostError> {
    let path = root.join("graceful_node_shutdown_state");
    let text = match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|error| HostError::io("read", &path, &error))?,
    };
    let stat = Path::new("/proc/stat");
    let booted = fs::read_to_string(stat).map_err(|error| HostError::io("read", stat, &error))?;
    let booted = booted.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()).unwrap_or(i64::MAX);
    goes_on(&text, booted).map_err(|error| {
        HostError::new(components::edge::FailureClass::Invalid, format!("{}: {error}; remove it", path.display()))
    })
}

/// True when the shutdown that `text` tells of began after `booted`, in seconds of the wall clock, and has no end.
fn goes_on(text: &str, booted: i64) -> Result<bool, serde_json::Error> {
    let state: State = serde_json::from_str(text)?;
    let (start, end) = (state.start_time.as_second(), state.end_time.as_second());
    Ok(start >= booted && end < start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_shutdown_of_this_boot_without_an_end_goes_on() {
        let zero = "0001-01-01T00:00:00Z";
        let check = |start: &str, end: &str, expect| {
            let text = format!(r#"{{"startTime":"{start}","endTime":"{end}"}}"#);
            assert_eq!(goes_on(&text, 1_000_000_000).unwrap(), expect, "{text}");
        };
        check(zero, zero, false);
        check("2001-09-09T01:46:50Z", zero, true);
        check("2001-09-09T01:46:50.123456789Z", "2001-09-09T01:47:50Z", false);
        check("2001-09-09T01:46:30Z", zero, false);
        assert!(goes_on("{}", 0).is_err());
        assert!(goes_on("{\"startTime\":", 0).is_err());
    }

    #[test]
    fn a_node_that_never_shut_down_has_no_file() {
        let root = tempfile::tempdir().unwrap();
        assert!(!shutdown_under_way(root.path()).unwrap());
        fs::write(root.path().join("graceful_node_shutdown_state"), "half").unwrap();
        assert!(shutdown_under_way(root.path()).unwrap_err().to_string().contains("graceful_node_shutdown_state"));
    }
}
