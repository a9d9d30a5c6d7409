//! A scripted runtime on a unix socket: a test says what each call gets, and sees which calls came.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use components::edge::cri::CriEffect;
use components::edge::{Ingress, Outcome};
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use io::cri::{CriOptions, CriPort};
use io::port::Port;
use prost::Message;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, NamedService};
use tonic::{Code, Request, Response, Status};

/// What a call gets.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// This answer.
    Answer(Bytes),
    /// This answer after a while.
    Late(Duration, Bytes),
    /// A refusal.
    Refuse(Code, &'static str),
    /// Nothing, for ever.
    Hang,
    /// These messages of a stream, which then ends, or stays open.
    Stream { messages: Vec<Bytes>, then_open: bool },
}

/// An answer from a message.
pub(crate) fn answer(message: &impl Message) -> Reply {
    Reply::Answer(message.encode_to_vec().into())
}

type Script = Box<dyn Fn(&str, &Bytes) -> Reply + Send + Sync>;

/// What the runtime has seen.
#[derive(Default)]
pub(crate) struct Seen {
    calls: Mutex<Vec<(String, Bytes)>>,
    running: AtomicUsize,
    most: AtomicUsize,
    dropped: AtomicUsize,
}

impl Seen {
    /// Names of the calls in order of arrival.
    pub(crate) fn names(&self) -> Vec<String> {
        self.calls.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }

    /// How often each method was called.
    pub(crate) fn counts(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for name in self.names() {
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// The last request of a method.
    pub(crate) fn request<M: Message + Default>(&self, name: &str) -> M {
        let calls = self.calls.lock().unwrap();
        let (_, request) = calls.iter().rev().find(|(called, _)| called == name).unwrap();
        M::decode(request.clone()).unwrap()
    }

    /// Most calls that were being served at a time.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }

    /// Calls that the client gave up.
    pub(crate) fn dropped(&self) -> usize {
        self.dropped.load(Ordering::SeqCst)
    }
}

/// A running fake and the port that talks to it.
pub(crate) struct Rig {
    pub(crate) port: CriPort,
    pub(crate) seen: Arc<Seen>,
    pub(crate) ingress: mpsc::Receiver<Ingress>,
    pub(crate) socket: PathBuf,
    server: Option<Server>,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A port to a socket at which nobody listens yet.
    pub(crate) fn alone() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("cri.sock");
        let (sender, ingress) = mpsc::channel(16);
        let runtime_endpoint = format!("unix://{}", socket.display());
        let options = CriOptions { runtime_endpoint, image_endpoint: String::new() };
        let port = CriPort::new(&options, sender).unwrap();
        Self { port, seen: Arc::default(), ingress, socket, server: None, _dir: dir }
    }

    /// A port to a runtime that follows the script.
    pub(crate) fn new(script: impl Fn(&str, &Bytes) -> Reply + Send + Sync + 'static) -> Self {
        let mut rig = Self::alone();
        rig.serve(script);
        rig
    }

    /// Starts the runtime.
    pub(crate) fn serve(&mut self, script: impl Fn(&str, &Bytes) -> Reply + Send + Sync + 'static) {
        let fake = Fake { script: Arc::new(Box::new(script)), seen: Arc::clone(&self.seen) };
        let _ = std::fs::remove_file(&self.socket);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let entered = runtime.enter();
        let listener = UnixListenerStream::new(UnixListener::bind(&self.socket).unwrap());
        drop(entered);
        runtime.spawn(async move {
            tonic::transport::Server::builder()
                .add_service(RuntimeFake(fake.clone()))
                .add_service(ImageFake(fake))
                .serve_with_incoming(listener)
                .await
                .unwrap();
        });
        self.server = Some(Server(Some(runtime)));
    }

    /// Hands over the runtime, to be stopped elsewhere.
    pub(crate) fn take_server(&mut self) -> Server {
        self.server.take().unwrap()
    }

    /// Stops the runtime; its connections break.
    pub(crate) async fn stop(&mut self) {
        self.take_server().kill().await;
    }

    /// Runs one effect with ten seconds' patience.
    pub(crate) async fn run(&self, effect: CriEffect) -> Outcome {
        tokio::time::timeout(Duration::from_secs(10), self.port.run(effect)).await.unwrap_or(Outcome::TimedOut)
    }

    /// The next fact.
    pub(crate) async fn fact(&mut self) -> Ingress {
        tokio::time::timeout(Duration::from_secs(10), self.ingress.recv()).await.unwrap().unwrap()
    }
}

/// A running runtime, on threads of its own: when it is killed, its connections die with it.
pub(crate) struct Server(Option<Runtime>);

impl Server {
    pub(crate) async fn kill(mut self) {
        if let Some(runtime) = self.0.take() {
            tokio::task::spawn_blocking(move || runtime.shutdown_timeout(Duration::from_secs(10))).await.unwrap();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A tokio runtime must not wait inside another one.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Binds a raw socket for runtimes that do not speak gRPC at all.
pub(crate) fn raw_socket(path: &Path) -> UnixListener {
    UnixListener::bind(path).unwrap()
}

/// Waits until a condition holds; fails after ten seconds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}

#[derive(Clone)]
struct Fake {
    script: Arc<Script>,
    seen: Arc<Seen>,
}

/// Counts a call for as long as it is served; notices when the client gives it up.
struct Serving {
    seen: Arc<Seen>,
    done: bool,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.seen.running.fetch_sub(1, Ordering::SeqCst);
        if !self.done {
            self.seen.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Fake {
    fn enter(&self, name: &str, request: &Bytes) -> (Reply, Serving) {
        self.seen.calls.lock().unwrap().push((name.to_owned(), request.clone()));
        let running = self.seen.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.seen.most.fetch_max(running, Ordering::SeqCst);
        ((self.script)(name, request), Serving { seen: Arc::clone(&self.seen), done: false })
    }

    async fn unary(self, name: String, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        let (reply, mut serving) = self.enter(&name, request.get_ref());
        let result = match reply {
            Reply::Answer(bytes) => Ok(Response::new(bytes)),
            Reply::Late(delay, bytes) => {
                tokio::time::sleep(delay).await;
                Ok(Response::new(bytes))
            }
            Reply::Refuse(code, message) => Err(Status::new(code, message)),
            Reply::Hang | Reply::Stream { .. } => std::future::pending().await,
        };
        serving.done = true;
        result
    }

    async fn events(
        self,
        name: String,
        request: Request<Bytes>,
    ) -> Result<Response<BoxStream<'static, Result<Bytes, Status>>>, Status> {
        let (reply, serving) = self.enter(&name, request.get_ref());
        match reply {
            Reply::Stream { messages, then_open } => {
                let first = stream::iter(messages.into_iter().map(Ok));
                if then_open {
                    // Holds the mark until the client closes the stream.
                    let rest = stream::once(async move {
                        let _serving = serving;
                        std::future::pending::<Result<Bytes, Status>>().await
                    });
                    Ok(Response::new(first.chain(rest).boxed()))
                } else {
                    Ok(Response::new(first.boxed()))
                }
            }
            Reply::Refuse(code, message) => Err(Status::new(code, message)),
            _ => std::future::pending().await,
        }
    }

    async fn route(self, request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
        let name = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let mut grpc = Grpc::new(Raw).max_encoding_message_size(usize::MAX);
        Ok(if name == "GetContainerEvents" {
            let service = tower::service_fn(move |request| self.clone().events(name.clone(), request));
            grpc.server_streaming(service, request).await
        } else {
            let service = tower::service_fn(move |request| self.clone().unary(name.clone(), request));
            grpc.unary(service, request).await
        })
    }
}

macro_rules! named {
    ($type:ident, $name:literal) => {
        #[derive(Clone)]
        struct $type(Fake);

        impl NamedService for $type {
            const NAME: &'static str = $name;
        }

        impl tower::Service<http::Request<Body>> for $type {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, request: http::Request<Body>) -> Self::Future {
                Box::pin(self.0.clone().route(request))
            }
        }
    };
}

named!(RuntimeFake, "runtime.v1.RuntimeService");
named!(ImageFake, "runtime.v1.ImageService");

/// Messages stay bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.reserve(item.len());
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
