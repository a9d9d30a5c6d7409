//! The message a container left behind: the end of its termination file, or of its log where the pod asks for that.
//!
//! The runtime's own status says where both are and which policy holds, so a message is found again after any restart.
//! What lies at the path belongs to the container: only a plain file is read, no link is followed, nothing blocks.

use components::ids::ContainerId;
use nix::libc;
use proto::runtime::v1 as pb;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Bytes read of a termination file, from its end (contract 3.7).
const FILE_BYTES: u64 = 4096;
/// Lines and bytes taken from the end of a log.
const LOG_LINES: usize = 80;
const LOG_BYTES: usize = 2048;
/// Bytes of a log that are looked at for its last lines.
const LOG_WINDOW: u64 = 256 << 10;

/// Adds what an ended container left behind to its status.
pub(super) async fn complete(id: &ContainerId, mut status: pb::ContainerStatus) -> pb::ContainerStatus {
    if status.state != pb::ContainerState::ContainerExited as i32 {
        return status;
    }
    let wanted = Wanted::of(&status);
    let read = tokio::task::spawn_blocking(move || wanted.read()).await;
    let left = read.unwrap_or_else(|error| {
        tracing::warn!(container = %id, %error, "A termination message could not be read");
        String::new()
    });
    if !left.is_empty() {
        if !status.message.is_empty() {
            status.message.push_str(": ");
        }
        status.message.push_str(&left);
    }
    status
}

/// Where a message may be.
struct Wanted {
    file: Option<String>,
    log: Option<String>,
}

impl Wanted {
    fn of(status: &pb::ContainerStatus) -> Self {
        let note = |key: &str| status.annotations.get(key).map_or("", String::as_str);
        let path = note("io.kubernetes.container.terminationMessagePath");
        let mount = status.mounts.iter().find(|mount| !path.is_empty() && mount.container_path == path);
        let policy = note("io.kubernetes.container.terminationMessagePolicy");
        let failed = status.exit_code != 0 && status.reason != "ContainerCannotRun";
        let to_log = policy == "FallbackToLogsOnError" && failed && !status.log_path.is_empty();
        Self { file: mount.map(|mount| mount.host_path.clone()), log: to_log.then(|| status.log_path.clone()) }
    }

    fn read(&self) -> String {
        let left = match &self.file {
            None => Vec::new(),
            Some(path) => match end_of(Path::new(path), FILE_BYTES) {
                Ok(bytes) => bytes,
                Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
                Err(error) => return format!("Error on reading termination log {path}: {error}"),
            },
        };
        if !left.is_empty() {
            return String::from_utf8_lossy(&left).into_owned();
        }
        let log = self.log.as_ref().and_then(|path| end_of(Path::new(path), LOG_WINDOW).ok());
        log.map(|log| last_lines(&log)).unwrap_or_default()
    }
}

/// The last bytes of a plain file.
fn end_of(path: &Path, bytes: u64) -> io::Result<Vec<u8>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut file: File = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "not a plain file"));
    }
    file.seek(SeekFrom::Start(found.len().saturating_sub(bytes)))?;
    let mut content = Vec::new();
    file.take(bytes).read_to_end(&mut content)?;
    Ok(content)
}

/// What the last lines of a log say, without their frame of time, stream and tag. A first line that is cut off does
/// not count.
fn last_lines(log: &[u8]) -> String {
    let mut lines: Vec<&[u8]> = log.split_inclusive(|byte| *byte == b'\n').collect();
    let first = lines.len().saturating_sub(LOG_LINES);
    let mut text = Vec::new();
    for line in lines.drain(first..) {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let (_, stream, tag, said) = (parts.next(), parts.next(), parts.next(), parts.next());
        let (Some(b"stdout" | b"stderr"), Some(tag), Some(said)) = (stream, tag, said) else { continue };
        // A partial line goes on in the next one.
        let whole = !tag.starts_with(b"P");
        text.extend_from_slice(said.strip_suffix(b"\n").unwrap_or(said));
        if whole && said.ends_with(b"\n") {
            text.push(b'\n');
        }
    }
    let cut = text.len().saturating_sub(LOG_BYTES);
    String::from_utf8_lossy(&text[cut..]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(dir: &Path, policy: &str, exit_code: i32) -> pb::ContainerStatus {
        let note = |key: &str, value: &str| (format!("io.kubernetes.container.{key}"), value.to_owned());
        pb::ContainerStatus {
            state: pb::ContainerState::ContainerExited as i32,
            exit_code,
            reason: "Error".into(),
            annotations: [
                note("terminationMessagePath", "/dev/termination-log"),
                note("terminationMessagePolicy", policy),
            ]
            .into(),
            mounts: vec![pb::Mount {
                container_path: "/dev/termination-log".into(),
                host_path: dir.join("file").to_string_lossy().into_owned(),
                ..Default::default()
            }],
            log_path: dir.join("0.log").to_string_lossy().into_owned(),
            ..Default::default()
        }
    }

    /// `file` and `log` are what the container left.
    #[track_caller]
    fn check(file: &[u8], log: &str, policy: &str, exit_code: i32, expect: &str) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), file).unwrap();
        std::fs::write(dir.path().join("0.log"), log).unwrap();
        assert_eq!(Wanted::of(&status(dir.path(), policy, exit_code)).read(), expect);
    }

    #[test]
    fn the_file_goes_before_the_log() {
        let log =
            "2026-01-01T00:00:00Z stdout F one\n2026-01-01T00:00:00Z stderr P tw\n2026-01-01T00:00:01Z stderr F o\n";
        check(b"bye", log, "FallbackToLogsOnError", 1, "bye");
        check(b"", log, "FallbackToLogsOnError", 1, "one\ntwo\n");
        check(b"", log, "FallbackToLogsOnError", 0, "");
        check(b"", log, "File", 1, "");
    }

    #[test]
    fn only_the_end_is_taken_and_what_is_no_text_is_replaced() {
        let mut long = vec![b'a'; 100];
        long.extend(std::iter::repeat_n(b'b', 4096));
        check(&long, "", "File", 0, &"b".repeat(4096));
        check(b"x\xffy", "", "File", 0, "x\u{fffd}y");
        let log: String = (0..200).map(|n| format!("2026-01-01T00:00:00Z stdout F {n}\n")).collect();
        let lines: String = (120..200).map(|n| format!("{n}\n")).collect();
        check(b"", &log, "FallbackToLogsOnError", 1, &lines);
        let wide = format!("2026-01-01T00:00:00Z stdout F {}\n", "w".repeat(5000));
        check(b"", &wide, "FallbackToLogsOnError", 1, &format!("{}\n", "w".repeat(2047)));
    }

    #[test]
    fn links_and_pipes_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), dir.path().join("file")).unwrap();
        let said = Wanted::of(&status(dir.path(), "File", 0)).read();
        assert!(said.starts_with("Error on reading termination log") && !said.contains("secret\n"), "{said}");
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
        assert!(end_of(&pipe, 10).is_err());
    }

    #[tokio::test]
    async fn the_runtimes_own_message_stands_first() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "bye").unwrap();
        let own = pb::ContainerStatus { message: "oom".into(), ..status(dir.path(), "File", 1) };
        let id = ContainerId::from("c");
        assert_eq!(complete(&id, own.clone()).await.message, "oom: bye");
        let running = pb::ContainerStatus { state: pb::ContainerState::ContainerRunning as i32, ..own };
        assert_eq!(complete(&id, running).await.message, "oom");
    }
}
