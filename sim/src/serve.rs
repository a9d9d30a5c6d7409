//! The model served as a CRI on a unix socket, good enough for crictl and for a whole kubelet.
//!
//! Decides nothing that the model does not: it adds real time, log files, an event stream and faults on demand. Reads
//! the clock and its control socket (`SOCKET.ctl`); writes log files below the log directories it is told.

mod control;
mod images;
mod logs;
mod runtime_service;
mod state;
mod wire;

pub use control::command;

use components::time::Mono;
use proto::runtime::v1::image_service_server::ImageServiceServer;
use proto::runtime::v1::runtime_service_server::RuntimeServiceServer;
use state::Shared;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;

/// Largest request that is read, as containerd's.
const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;

/// How the runtime is served.
#[derive(Debug, Clone)]
pub struct Options {
    /// Socket path.
    pub socket: PathBuf,
    /// Added to every call.
    pub latency: Duration,
    /// Serve the event stream and `RuntimeConfig`, as containerd 2.x does.
    pub events: bool,
    /// Directory that stands for the image file system.
    pub root: PathBuf,
    /// Images that are here from the start.
    pub images: Vec<String>,
    /// The cgroup driver to report.
    pub systemd_cgroups: bool,
}

/// Serves until `shutdown` ends. A left-over socket file of an earlier run is replaced.
///
/// # Errors
/// When the sockets cannot be made or the server fails.
pub async fn serve(options: Options, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    std::fs::create_dir_all(&options.root)?;
    let listener = bind(&options.socket)?;
    let control_path = control_path(&options.socket);
    let control = bind(&control_path)?;
    let socket = options.socket.clone();
    let shared = Arc::new(Shared::new(options));
    let clock = tokio::spawn(run_clock(Arc::clone(&shared)));
    let commands = tokio::spawn(control::run(Arc::clone(&shared), control));
    let ends = Arc::clone(&shared);
    let served = tonic::transport::Server::builder()
        .add_service(RuntimeServiceServer::from_arc(Arc::clone(&shared)).max_decoding_message_size(MESSAGE_LIMIT))
        .add_service(ImageServiceServer::from_arc(shared).max_decoding_message_size(MESSAGE_LIMIT))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), async move {
            shutdown.await;
            ends.close_streams();
        })
        .await
        .map_err(io::Error::other);
    clock.abort();
    commands.abort();
    for path in [&socket, &control_path] {
        let _ = std::fs::remove_file(path);
    }
    served
}

/// Where the control socket of a served runtime lies.
#[must_use]
pub fn control_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".ctl");
    PathBuf::from(name)
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    if std::os::unix::net::UnixStream::connect(path).is_ok() {
        return Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{} is served already", path.display())));
    }
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Lets the model's time go on: sleeps until something is due or a call has changed what is due.
async fn run_clock(shared: Arc<Shared>) {
    loop {
        let woken = shared.timer_changed.notified();
        match shared.advance() {
            Some(due) => {
                let wait = due.since(Mono(shared.now().mono.0));
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = woken => {}
                }
            }
            None => woken.await,
        }
    }
}

#[cfg(test)]
mod tests;
