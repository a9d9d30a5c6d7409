//! Helper programs that print an answer: run once, with what they read and what is kept of their words bounded.

use std::io;
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// Longest output that is read.
const MAX_OUTPUT: u64 = 1 << 20;
/// Longest part of what it says to people that is kept.
const MAX_COMPLAINT: u64 = 1024;

/// What a program that has ended said.
#[derive(Debug)]
pub(crate) struct Said {
    /// How it ended.
    pub(crate) status: ExitStatus,
    /// Its standard output.
    pub(crate) output: Vec<u8>,
    /// The start of its standard error, where that was not left to our own.
    pub(crate) complaint: Vec<u8>,
}

/// Runs a program. With `input` it is told that, and the start of its complaints is kept; without, it is told nothing and
/// its complaints go to our own standard error. The caller bounds the time; dropping the future ends the program.
pub(crate) async fn run(command: &mut Command, input: Option<&[u8]>) -> io::Result<Said> {
    let (stdin, stderr) =
        if input.is_some() { (Stdio::piped(), Stdio::piped()) } else { (Stdio::null(), Stdio::inherit()) };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(stderr).kill_on_drop(true);
    let mut child = command.spawn()?;
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let tell = async {
        if let (Some(mut stdin), Some(input)) = (stdin, input) {
            // One that does not read its input has decided already.
            let _ = stdin.write_all(input).await;
        }
    };
    let listen = async {
        let mut text = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(MAX_OUTPUT).read_to_end(&mut text).await?;
        }
        Ok::<_, io::Error>(text)
    };
    let hear = async {
        let mut text = Vec::new();
        if let Some(stderr) = stderr {
            let mut start = stderr.take(MAX_COMPLAINT);
            start.read_to_end(&mut text).await?;
            tokio::io::copy(&mut start.into_inner(), &mut tokio::io::sink()).await?;
        }
        Ok::<_, io::Error>(text)
    };
    let ((), output, complaint) = tokio::join!(tell, listen, hear);
    let (output, complaint) = (output?, complaint?);
    Ok(Said { status: child.wait().await?, output, complaint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_is_told_heard_and_bounded() {
        let mut shell = Command::new("/bin/sh");
        let script =
            "read line; echo $line; head -c 3000 /dev/zero | tr '\\0' x >&2; head -c 2000000 /dev/zero; exit 3";
        let said = run(shell.args(["-c", script]), Some(b"hello\n")).await.unwrap();
        assert!(said.output.starts_with(b"hello\n"));
        assert_eq!((said.output.len(), said.complaint.len()), (1 << 20, 1024));
        assert!(!said.status.success());
        let said = run(Command::new("/bin/sh").args(["-c", "read line || echo nothing"]), None).await.unwrap();
        assert_eq!((said.output.as_slice(), said.status.code()), (b"nothing\n".as_slice(), Some(0)));
        assert!(run(&mut Command::new("/nonexistent"), None).await.is_err());
    }
}
