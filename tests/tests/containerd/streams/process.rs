//! A client's side of exec and attach, over SPDY and over WebSockets.

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use io::spdy::{Frame, FrameReader, FrameWriter};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::client::Client;

/// Long enough for one conversation.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(45);

/// How a client speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Speech {
    Spdy,
    /// A WebSocket of this protocol.
    WebSocket(&'static str),
}

pub(super) const V4: Speech = Speech::WebSocket("v4.channel.k8s.io");
pub(super) const V4_BASE64: Speech = Speech::WebSocket("v4.base64.channel.k8s.io");
pub(super) const V5: Speech = Speech::WebSocket("v5.channel.k8s.io");

/// What a client does.
#[derive(Clone, Default, Debug)]
pub(super) struct Script {
    /// Has a terminal.
    pub(super) tty: bool,
    /// What is sent on standard input.
    pub(super) input: Option<Vec<u8>>,
    /// Standard input is ended afterwards.
    pub(super) end: bool,
    /// The terminal's size, sent before the input.
    pub(super) size: Option<(u16, u16)>,
    /// The client leaves once the output holds this.
    pub(super) until: Option<&'static str>,
}

/// What a client got.
#[derive(Clone, Default, Debug)]
pub(super) struct Got {
    /// The status code, when the connection was not upgraded.
    pub(super) refused: Option<(u16, String)>,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
    /// What came last on the error stream.
    pub(super) status: String,
}

impl Got {
    pub(super) fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    pub(super) fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// 0 for success, the exit code, or -1 for another failure.
    pub(super) fn code(&self) -> i32 {
        let status: serde_json::Value = serde_json::from_str(&self.status).unwrap_or_default();
        if status["status"] == "Success" {
            return 0;
        }
        let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
        let code = causes.iter().find(|cause| cause["reason"] == "ExitCode");
        code.and_then(|cause| cause["message"].as_str()?.parse().ok()).unwrap_or(-1)
    }

    fn add(&mut self, channel: u8, bytes: &[u8]) {
        match channel {
            1 => self.stdout.extend_from_slice(bytes),
            2 => self.stderr.extend_from_slice(bytes),
            3 => self.status.push_str(&String::from_utf8_lossy(bytes)),
            other => panic!("nothing is sent on channel {other}"),
        }
    }

    fn is_enough(&self, script: &Script) -> bool {
        script.until.is_some_and(|text| self.out().contains(text))
    }
}

/// Runs a script on a path such as `/exec/ns/pod/c?command=…`.
pub(super) async fn talk(client: &Client, speech: Speech, path: &str, script: Script) -> Got {
    let flag = |name: &str, on: bool| if on { format!("&{name}=1") } else { String::new() };
    let path = format!(
        "{path}&output=1{}{}{}",
        flag("error", !script.tty),
        flag("input", script.input.is_some()),
        flag("tty", script.tty)
    );
    let talking = async {
        match speech {
            Speech::Spdy => over_spdy(client, &path, script).await,
            Speech::WebSocket(protocol) => over_websocket(client, protocol, &path, script).await,
        }
    };
    // A conversation that hangs names itself, rather than that some test took too long.
    let talked = tokio::time::timeout(LIMIT, talking).await;
    talked.unwrap_or_else(|_| panic!("{speech:?} has no end: {path}"))
}

async fn over_spdy(client: &Client, path: &str, script: Script) -> Got {
    let headers =
        [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1"), ("X-Stream-Protocol-Version", "v4.channel.k8s.io")];
    let (code, head, mut stream) = client.upgrade("POST", path, &headers).await;
    let mut got = Got::default();
    if code != 101 {
        got.refused = Some((code, rest(&mut stream).await));
        return got;
    }
    assert!(head.contains("x-stream-protocol-version: v4.channel.k8s.io"), "{head}");
    let (read, write) = tokio::io::split(stream);
    let (mut read, mut write) = (FrameReader::new(read), FrameWriter::new(write));
    let mut names = vec!["error", "stdout"];
    names.extend((!script.tty).then_some("stderr"));
    names.extend(script.input.is_some().then_some("stdin"));
    names.extend(script.tty.then_some("resize"));
    let id = |name: &str| {
        let index = names.iter().position(|known| *known == name);
        index.map_or(0, |index| u32::try_from(index).unwrap() * 2 + 1)
    };
    for name in &names {
        let headers = vec![("streamtype".to_owned(), (*name).to_owned())];
        write.send(&Frame::Open { stream: id(name), headers, fin: false }).await.unwrap();
    }
    if let Some((width, height)) = script.size {
        let bytes = format!("{{\"Width\":{width},\"Height\":{height}}}").into();
        write.send(&Frame::Data { stream: id("resize"), bytes, fin: false }).await.unwrap();
    }
    if let Some(input) = script.input.clone() {
        let (stdin, end) = (id("stdin"), script.end);
        tokio::spawn(async move {
            write.send(&Frame::Data { stream: stdin, bytes: input.into(), fin: false }).await.unwrap();
            if end {
                write.send(&Frame::Data { stream: stdin, bytes: Bytes::new(), fin: true }).await.unwrap();
            }
            // The connection stays open as long as somebody may write.
            std::future::pending::<()>().await;
        });
    } else {
        tokio::spawn(async move {
            let _open = write;
            std::future::pending::<()>().await;
        });
    }
    while let Ok(Some(frame)) = read.next().await {
        if let Frame::Data { stream, bytes, .. } = frame {
            let channel = names.get(usize::try_from(stream / 2).unwrap()).copied();
            match channel {
                Some("stdout") => got.add(1, &bytes),
                Some("stderr") => got.add(2, &bytes),
                Some("error") => got.add(3, &bytes),
                other => panic!("data on {other:?}"),
            }
        }
        if got.is_enough(&script) {
            break;
        }
    }
    got
}

async fn over_websocket(client: &Client, protocol: &'static str, path: &str, script: Script) -> Got {
    let (code, head, mut stream) = client.upgrade("GET", path, &websocket_headers(protocol)).await;
    let mut got = Got::default();
    if code != 101 {
        got.refused = Some((code, rest(&mut stream).await));
        return got;
    }
    assert!(head.contains(&format!("sec-websocket-protocol: {protocol}")), "{head}");
    let base64 = protocol.contains("base64");
    let (mut send, mut receive) = WebSocketStream::from_raw_socket(stream, Role::Client, None).await.split();
    let message = move |channel: u8, bytes: &[u8]| {
        if base64 {
            return Message::Text(format!("{channel}{}", encode(bytes)).into());
        }
        let mut all = vec![channel];
        all.extend_from_slice(bytes);
        Message::Binary(all.into())
    };
    if let Some((width, height)) = script.size {
        let size = format!("{{\"Width\":{width},\"Height\":{height}}}");
        send.send(message(4, size.as_bytes())).await.unwrap();
    }
    let (input, end) = (script.input.clone(), script.end);
    let sending = tokio::spawn(async move {
        for part in input.unwrap_or_default().chunks(32 << 10) {
            send.send(message(0, part)).await.unwrap();
        }
        if end {
            send.send(Message::Binary(Bytes::from_static(&[255, 0]))).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    while let Some(Ok(message)) = receive.next().await {
        match message {
            Message::Binary(bytes) => got.add(bytes[0], &bytes[1..]),
            Message::Text(text) => got.add(text.as_bytes()[0] - b'0', &decode(&text.as_bytes()[1..])),
            _ => {}
        }
        if got.is_enough(&script) {
            break;
        }
    }
    sending.abort();
    got
}

/// The headers that ask for a WebSocket.
pub(super) fn websocket_headers(protocol: &str) -> [(&str, &str); 5] {
    [
        ("Connection", "Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", protocol),
    ]
}

async fn rest(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    use tokio::io::AsyncReadExt;
    // A refusal may leave the connection open: what has come soon is enough.
    let mut buffer = vec![0; 4096];
    let read = tokio::time::timeout(std::time::Duration::from_secs(2), stream.read(&mut buffer)).await;
    let read = read.map_or(0, |read| read.unwrap_or(0));
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number =
            group.iter().fold(0_usize, |number, byte| number << 8 | usize::from(*byte)) << (8 * (3 - group.len()));
        for index in 0..4 {
            let digit = DIGITS[number >> (18 - 6 * index) & 63];
            text.push(if index <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}

fn decode(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for group in text.chunks(4) {
        let digits: Vec<usize> =
            group.iter().filter_map(|digit| DIGITS.iter().position(|known| known == digit)).collect();
        let number = digits.iter().fold(0, |number, digit| number << 6 | digit) << (6 * (4 - digits.len()));
        let whole = [(number >> 16) as u8, (number >> 8) as u8, number as u8];
        bytes.extend_from_slice(&whole[..digits.len().saturating_sub(1)]);
    }
    bytes
}
