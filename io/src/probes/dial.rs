//! Connecting, with errors in the words that events of a kubelet use.

use std::io;
use std::net::IpAddr;
use tokio::net::TcpStream;

/// Connects to a host by address or name.
pub(super) async fn dial(host: &str, port: u16) -> Result<TcpStream, String> {
    if port == 0 {
        return Err("the container has no port of the probe's name".to_owned());
    }
    let connected = match host.parse::<IpAddr>() {
        Ok(address) => TcpStream::connect((address, port)).await,
        Err(_) => TcpStream::connect((host, port)).await,
    };
    connected.map_err(|error| format!("dial tcp {}: connect: {}", address(host, port), said(&error)))
}

/// `host:port`, with an IPv6 address in brackets.
pub(super) fn address(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// What the system said, without its number and in lower case: `connection refused`.
pub(super) fn said(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_lowercase().chain(letters).collect())
}
