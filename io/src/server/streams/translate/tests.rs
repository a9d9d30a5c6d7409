//! A client and a runtime made of pipes, with the translation between them.

use super::*;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

struct Rig {
    client: WebSocketStream<DuplexStream>,
    read: FrameReader<ReadHalf<DuplexStream>>,
    write: FrameWriter<WriteHalf<DuplexStream>>,
    translating: JoinHandle<()>,
}

impl Rig {
    async fn new(wanted: Wanted) -> Self {
        let ((client, near), (far, runtime)) = (duplex(4096), duplex(4096));
        let translating = tokio::spawn(async move {
            translate(websocket::server(near).await, Ok(far), wanted).await;
        });
        let client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
        let (read, write) = tokio::io::split(runtime);
        let mut rig = Self { client, read: FrameReader::new(read), write: FrameWriter::new(write), translating };
        for (stream, _) in Ids::new(wanted).named() {
            let Some(Frame::Open { stream: opened, .. }) = rig.read.next().await.unwrap() else { panic!("no stream") };
            assert_eq!(opened, stream);
            rig.write.send(&Frame::Reply { stream, headers: vec![], fin: false }).await.unwrap();
        }
        rig
    }

    async fn say(&mut self, stream: u32, text: &str) {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        self.write.send(&Frame::Data { stream, bytes, fin: false }).await.unwrap();
    }

    async fn reset(&mut self, ids: &[u32]) {
        for stream in ids {
            self.write.send(&Frame::Reset { stream: *stream, status: 5 }).await.unwrap();
        }
    }

    /// Channel and text of everything the client gets until the end.
    async fn heard(&mut self) -> Vec<(u8, String)> {
        let mut heard = Vec::new();
        while let Some(Ok(message)) = self.client.next().await {
            match message {
                Message::Binary(bytes) => heard.push((bytes[0], String::from_utf8_lossy(&bytes[1..]).into_owned())),
                Message::Close(frame) => assert_eq!(frame.map(|frame| frame.code), Some(CloseCode::Normal)),
                other => panic!("{other:?}"),
            }
        }
        heard
    }
}

const ALL: Wanted = Wanted { stdin: true, stdout: true, stderr: true, tty: false };
const OK: &str = r#"{"metadata":{},"status":"Success"}"#;

fn channel(channel: u8, text: &str) -> (u8, String) {
    (channel, text.to_owned())
}

#[tokio::test]
async fn each_stream_has_its_channel_and_the_end_is_told_last() {
    let mut rig = Rig::new(ALL).await;
    rig.say(5, "out").await;
    rig.say(7, "err").await;
    rig.say(1, OK).await;
    rig.write.send(&Frame::Ping { id: 2 }).await.unwrap();
    assert_eq!(rig.read.next().await.unwrap(), Some(Frame::Ping { id: 2 }));
    rig.say(5, " more").await;
    rig.reset(&[1, 3, 5, 7]).await;
    let heard = rig.heard().await;
    assert_eq!(heard[0], channel(STDOUT, ""));
    assert_eq!(heard[1..4], [channel(1, "out"), channel(2, "err"), channel(1, " more")]);
    assert_eq!(heard[4..], [channel(3, OK)]);
    rig.translating.await.unwrap();
}

#[tokio::test]
async fn input_arrives_in_parts_and_ends_when_the_client_says_so() {
    let rig = Rig::new(Wanted { tty: true, stderr: false, ..ALL }).await;
    let text = "i".repeat(100_000);
    let messages = [
        message(STDIN, text.as_bytes()),
        message(STDOUT, b"not for a client to say"),
        message(RESIZE, br#"{"Width":80,"Height":24}"#),
        message(CLOSE, &[STDIN]),
        message(STDIN, b"too late"),
        message(CLOSE, &[9]),
        message(CLOSE, &[]),
    ];
    let Rig { client, mut read, .. } = rig;
    let (mut send, _receive) = client.split();
    let sending = tokio::spawn(async move {
        for message in messages {
            send.send(message).await.unwrap();
        }
        send
    });
    let (mut input, mut sizes) = (Vec::new(), Vec::new());
    loop {
        match read.next().await.unwrap().unwrap() {
            Frame::Data { stream: 3, fin: true, bytes } => {
                input.extend_from_slice(&bytes);
                break;
            }
            Frame::Data { stream: 3, bytes, .. } => input.extend_from_slice(&bytes),
            Frame::Data { stream: 7, bytes, .. } => sizes.extend_from_slice(&bytes),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(String::from_utf8_lossy(&input), text);
    assert_eq!(String::from_utf8_lossy(&sizes), r#"{"Width":80,"Height":24}"#);
    drop(sending.await.unwrap());
}

#[tokio::test]
async fn a_runtime_that_breaks_off_is_never_success() {
    let mut rig = Rig::new(ALL).await;
    rig.say(5, "half").await;
    drop((rig.write, rig.read));
    let mut heard = Vec::new();
    while let Some(Ok(message)) = rig.client.next().await {
        if let Message::Binary(bytes) = message {
            heard.push(bytes);
        }
    }
    let last = heard.last().unwrap();
    assert_eq!(last[0], STATUS);
    assert!(String::from_utf8_lossy(last).contains(r#""status":"Failure""#), "{last:?}");
    drop(rig.client);
    rig.translating.await.unwrap();
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_runtimes_connection() {
    let rig = Rig::new(ALL).await;
    let Rig { client, mut read, write: _write, translating } = rig;
    drop(client);
    assert_eq!(read.next().await.unwrap(), None);
    translating.await.unwrap();
}

#[tokio::test]
async fn why_there_is_no_stream_is_told() {
    let (client, near) = duplex(4096);
    let far: Result<DuplexStream, _> = Err("dial tcp 127.0.0.1:1: refused".to_owned());
    let wanted = Wanted { stdin: true, ..Wanted::default() };
    let translating = tokio::spawn(async move { translate(websocket::server(near).await, far, wanted).await });
    let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
    assert_eq!(client.next().await.unwrap().unwrap(), message(STATUS, &[]));
    let Message::Binary(told) = client.next().await.unwrap().unwrap() else { panic!("no status") };
    assert!(String::from_utf8_lossy(&told).contains("Internal error occurred: dial tcp 127.0.0.1:1: refused"));
    drop(client);
    translating.await.unwrap();
}
