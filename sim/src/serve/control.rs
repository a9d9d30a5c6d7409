//! Faults on demand: a line of words on the control socket, a line or more in answer.
//!
//! | command | effect |
//! |---|---|
//! | `list` | pods with their containers and states |
//! | `count` | how many containers run, and how often each call was made since the start |
//! | `kill NAMESPACE/POD[/CONTAINER] [CODE]` | its containers end with CODE (137) |
//! | `lose NAMESPACE/POD` | its sandbox dies |
//! | `fail CALL COUNT MESSAGE…` | the next COUNT calls of that name are refused |
//! | `hang CALL COUNT` | the next COUNT calls of that name never answer |
//! | `down SECONDS` | event streams close and every call is refused for so long |
//! | `drop-events` | event streams close |
//! | `network up\|down` | condition `NetworkReady` |
//! | `clear` | no faults any more |

use super::state::{Fault, Shared};
use components::edge::cri::{ContainerState, SandboxState};
use std::fmt::Write as _;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

/// Longest command that is read.
const LINE_LIMIT: u64 = 4096;
/// How long a client may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sends one command to the runtime served at `socket` and returns its answer.
///
/// # Errors
/// When nothing is served there or the command is refused.
pub fn command(socket: &Path, words: &[String]) -> io::Result<String> {
    let path = super::control_path(socket);
    let mut stream = std::os::unix::net::UnixStream::connect(&path)
        .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{}\n", words.join(" ")).as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    match answer.strip_prefix("error: ") {
        Some(problem) => Err(io::Error::other(problem.trim_end().to_owned())),
        None => Ok(answer),
    }
}

/// Serves commands, one per connection.
pub(super) async fn run(shared: Arc<Shared>, listener: UnixListener) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _ = tokio::time::timeout(PATIENCE, answer(&shared, stream)).await;
        });
    }
}

async fn answer(shared: &Shared, stream: UnixStream) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    BufReader::new(tokio::io::AsyncReadExt::take(read, LINE_LIMIT)).read_line(&mut line).await?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let text = match obey(shared, &words) {
        Ok(text) => text,
        Err(problem) => format!("error: {problem}\n"),
    };
    write.write_all(text.as_bytes()).await
}

fn obey(shared: &Shared, words: &[&str]) -> Result<String, String> {
    match words {
        ["list"] => Ok(list(shared)),
        ["count"] => Ok(count(shared)),
        ["kill", target] => kill(shared, target, 137),
        ["kill", target, code] => kill(shared, target, number(code)?),
        ["lose", target] => lose(shared, target),
        ["fail", call, count, message @ ..] => fault(shared, call, count, Some(message.join(" "))),
        ["hang", call, count] => fault(shared, call, count, None),
        ["down", seconds] => {
            let until = shared.now().mono.after(Duration::from_secs(number(seconds)?));
            shared.lock().down_until = Some(until);
            shared.close_streams();
            Ok("ok\n".into())
        }
        ["drop-events"] => {
            shared.close_streams();
            Ok("ok\n".into())
        }
        ["network", "up"] => network(shared, true),
        ["network", "down"] => network(shared, false),
        ["clear"] => {
            let mut state = shared.lock();
            state.faults.clear();
            state.down_until = None;
            Ok("ok\n".into())
        }
        _ => Err(format!("unknown command {:?}", words.join(" "))),
    }
}

fn list(shared: &Shared) -> String {
    let state = shared.lock();
    let mut text = String::new();
    for sandbox in state.runtime.sandboxes().values() {
        let request = &sandbox.request;
        let ready = if sandbox.state == SandboxState::Ready { "ready" } else { "notready" };
        let _ = writeln!(text, "{}/{} {} {ready} {}", request.namespace, request.name, request.attempt, sandbox.ip());
        for id in &sandbox.containers {
            if let Some(c) = state.runtime.containers().get(id) {
                let word = match c.state {
                    ContainerState::Created => "created".to_owned(),
                    ContainerState::Running => "running".to_owned(),
                    ContainerState::Exited => format!("exited({})", c.exit_code),
                    ContainerState::Unknown => "unknown".to_owned(),
                };
                let _ = writeln!(text, "  {} {} {word}", c.request.name, c.request.attempt);
            }
        }
    }
    text
}

fn count(shared: &Shared) -> String {
    let state = shared.lock();
    let running = state.runtime.containers().values().filter(|c| c.state == ContainerState::Running).count();
    let mut text = format!("running {running}\n");
    for (call, count) in &state.calls {
        let _ = writeln!(text, "{call} {count}");
    }
    text
}

fn kill(shared: &Shared, target: &str, code: i32) -> Result<String, String> {
    let (namespace, pod, container) = split(target)?;
    let killed = shared.change(|state, now| {
        let ids: Vec<_> = state
            .runtime
            .containers()
            .values()
            .filter(|c| c.state == ContainerState::Running && container.is_none_or(|n| c.request.name == n))
            .filter(|c| {
                let sandbox = state.runtime.sandboxes().get(&c.sandbox);
                sandbox.is_some_and(|s| s.request.namespace == namespace && s.request.name == pod)
            })
            .map(|c| c.id.clone())
            .collect();
        for id in &ids {
            state.runtime.kill_container(now, id, code);
        }
        ids.len()
    });
    if killed == 0 { Err(format!("nothing runs in {target}")) } else { Ok(format!("killed {killed}\n")) }
}

fn lose(shared: &Shared, target: &str) -> Result<String, String> {
    let (namespace, pod, _) = split(target)?;
    let lost = shared.change(|state, now| {
        let ids: Vec<_> = state
            .runtime
            .sandboxes()
            .values()
            .filter(|s| s.state == SandboxState::Ready && s.request.namespace == namespace && s.request.name == pod)
            .map(|s| s.id.clone())
            .collect();
        for id in &ids {
            state.runtime.lose_sandbox(now, id);
        }
        ids.len()
    });
    if lost == 0 { Err(format!("no sandbox of {target} is ready")) } else { Ok(format!("lost {lost}\n")) }
}

fn fault(shared: &Shared, call: &str, count: &str, message: Option<String>) -> Result<String, String> {
    let left: u32 = number(count)?;
    let mut state = shared.lock();
    if left == 0 {
        state.faults.remove(call);
    } else {
        state.faults.insert(call.to_owned(), Fault { left, message });
    }
    Ok("ok\n".into())
}

fn network(shared: &Shared, ready: bool) -> Result<String, String> {
    shared.lock().runtime.network_ready = ready;
    Ok("ok\n".into())
}

fn split(target: &str) -> Result<(&str, &str, Option<&str>), String> {
    let mut parts = target.split('/');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(namespace), Some(pod), container, None) => Ok((namespace, pod, container)),
        _ => Err(format!("{target:?} is not NAMESPACE/POD or NAMESPACE/POD/CONTAINER")),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} is not a number"))
}
