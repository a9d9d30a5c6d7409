//! What systemd is told of this process: ready, alive as long as the core ticks, stopping.
//!
//! Reads `NOTIFY_SOCKET`, `WATCHDOG_USEC` and `WATCHDOG_PID`; without them nothing happens. Nothing waits for systemd:
//! what its socket does not take at once is lost, and named in the log.

use arc_swap::ArcSwap;
use components::snapshot::Snapshot;
use io::clock::Clock;
use std::ffi::{OsStr, OsString};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::time::Duration;

/// Tells that the node has begun its work.
pub(crate) fn ready() {
    tell("READY=1");
}

/// Tells that the process is about to end.
pub(crate) fn stopping() {
    tell("STOPPING=1");
}

/// Tells twice in each period of the watchdog that the node is alive; not while its last tick is older than `limit`.
/// Returns at once when no watchdog waits.
pub(crate) async fn keep_alive(snapshots: Arc<ArcSwap<Snapshot>>, clock: Clock, limit: Duration) {
    let variable = |name: &str| std::env::var(name).ok();
    let Some(period) = watchdog(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id()) else {
        return;
    };
    tracing::info!(seconds = period.as_secs_f64(), "systemd's watchdog is served");
    let mut beat = tokio::time::interval(period / 2);
    loop {
        beat.tick().await;
        match io::server::syncloop_problem(&snapshots.load(), clock.now().mono, limit) {
            None => tell("WATCHDOG=1"),
            Some(problem) => tracing::error!("systemd's watchdog is not served: {problem}"),
        }
    }
}

/// Period of the watchdog, where one waits for this process.
fn watchdog(micros: Option<String>, pid: Option<String>, own: u32) -> Option<Duration> {
    let other = pid.and_then(|pid| pid.parse::<u32>().ok()).is_some_and(|pid| pid != own);
    let micros = micros?.parse().ok().filter(|micros| *micros > 0 && !other)?;
    Some(Duration::from_micros(micros))
}

fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) else { return };
    if let Err(error) = send(&socket, state) {
        tracing::warn!("systemd was not told {state}: {}: {error}", socket.display());
    }
}

/// A name that begins with `@` is an abstract one.
fn send(socket: &OsString, state: &str) -> std::io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(OsStr::new(socket))?,
    };
    let from = UnixDatagram::unbound()?;
    from.set_nonblocking(true)?;
    from.send_to_addr(state.as_bytes(), &address)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_waits_for_the_process_it_names() {
        let check = |micros: &str, pid: &str, expect: Option<u64>| {
            let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            assert_eq!(watchdog(given(micros), given(pid), 7), expect.map(Duration::from_micros), "{micros} {pid}");
        };
        check("3000000", "", Some(3_000_000));
        check("3000000", "7", Some(3_000_000));
        check("3000000", "8", None);
        check("0", "", None);
        check("often", "", None);
        check("", "7", None);
    }

    #[test]
    fn a_socket_that_is_not_read_does_not_hold_the_node_up() {
        let top = tempfile::TempDir::new().unwrap();
        let path = top.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let path = path.into_os_string();
        send(&path, "READY=1").unwrap();
        let mut buffer = [0; 16];
        let length = socket.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"READY=1");
        let full = (0..100_000).find_map(|_| send(&path, "WATCHDOG=1").err()).unwrap();
        assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
        let name = format!("@ticklet-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name.as_bytes()[1..]).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        send(&name.into(), "STOPPING=1").unwrap();
        assert_eq!(socket.recv(&mut buffer).unwrap(), 10);
    }
}
