//! What probes of a race ask: one listener on the loopback that answers every HTTP request and lets every connection
//! be made, and counts both.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{Backlog, listen};

/// Threads that answer; each serves one connection at a time, which takes far less than a millisecond.
const THREADS: usize = 8;
/// Connections that may wait for them.
const WAITING: i32 = 4096;
/// Longest wait for what a connection has to say.
const PATIENCE: Duration = Duration::from_secs(2);
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";

/// A listener that answers until it is dropped.
pub(super) struct Targets {
    /// Its port.
    pub(super) port: u16,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Counts {
    http: AtomicU64,
    tcp: AtomicU64,
    over: AtomicBool,
}

impl Targets {
    /// Listens on a free port.
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen for probes")?;
        // Every pod of a node has a queue of its own; here all share one, which must hold a batch of all their probes.
        listen(&listener, Backlog::new(WAITING)?)?;
        let port = listener.local_addr()?.port();
        let counts = Arc::new(Counts::default());
        let mut threads = Vec::new();
        for _ in 0..THREADS {
            let (listener, counts) = (listener.try_clone()?, Arc::clone(&counts));
            threads.push(std::thread::spawn(move || serve(&listener, &counts)));
        }
        Ok(Self { port, counts, threads })
    }

    /// HTTP requests answered and connections that were only made.
    pub(super) fn answered(&self) -> (u64, u64) {
        (self.counts.http.load(Ordering::Relaxed), self.counts.tcp.load(Ordering::Relaxed))
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        self.counts.over.store(true, Ordering::Relaxed);
        for _ in &self.threads {
            // Wakes one thread, which then sees that it is over.
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, counts: &Counts) {
    while !counts.over.load(Ordering::Relaxed) {
        let Ok((mut stream, _)) = listener.accept() else { return };
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let mut request = [0; 2048];
        match stream.read(&mut request) {
            Ok(0) => counts.tcp.fetch_add(1, Ordering::Relaxed),
            Ok(_) if stream.write_all(ANSWER).is_ok() => counts.http.fetch_add(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_connections_are_counted() {
        let targets = Targets::start().unwrap();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, targets.port)).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, targets.port)).unwrap());
        while targets.answered() != (1, 1) {
            std::thread::yield_now();
        }
    }
}
