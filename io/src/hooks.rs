//! Lifecycle hooks over the network: one GET, done when there is an answer. Decides nothing: the deadline is the work's,
//! and a failed call is told as it is.
//!
//! As upstream does, redirects are followed within the same host, and an HTTPS call to a port that speaks plain HTTP is
//! made again without TLS and without credentials. Bodies are not read.

use bytes::Bytes;
use components::edge::hooks::{HookCall, HooksAnswer, HooksEffect};
use components::edge::{Answer, Failure, FailureClass, Outcome};
use http::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue, LOCATION, USER_AGENT};
use http::{Request, Response, Uri};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::sync::{Arc, LazyLock};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Redirects followed before a hook counts as failed.
const REDIRECTS: usize = 10;

static TRUSTING: LazyLock<Result<Arc<ClientConfig>, String>> = LazyLock::new(crate::probes::trusting);

/// Runs one hook.
pub async fn run(effect: HooksEffect) -> Outcome {
    let HooksEffect::CallHttp(call) = effect;
    match call_with_fallback(*call).await {
        Ok(answer) => Outcome::Done(Answer::Hooks(answer)),
        Err(message) => Outcome::Failed(Failure { class: FailureClass::Unavailable, message }),
    }
}

async fn call_with_fallback(call: HookCall) -> Result<HooksAnswer, String> {
    match follow(&call).await {
        Ok(status) => Ok(HooksAnswer::Called { status, fell_back: false }),
        Err(Trouble::NotTls) => {
            let headers = call.headers.into_iter().filter(|(name, _)| !name.eq_ignore_ascii_case("authorization"));
            let plain = HookCall { tls: false, headers: headers.collect(), ..call };
            let status = follow(&plain).await.map_err(Trouble::text)?;
            Ok(HooksAnswer::Called { status, fell_back: true })
        }
        Err(trouble) => Err(trouble.text()),
    }
}

/// Why there is no answer.
enum Trouble {
    /// The other side speaks no TLS.
    NotTls,
    /// Anything else.
    Text(String),
}

impl Trouble {
    fn text(self) -> String {
        match self {
            Self::NotTls => "the server speaks no TLS".to_owned(),
            Self::Text(text) => text,
        }
    }
}

fn text(what: &str, error: impl std::fmt::Display) -> Trouble {
    Trouble::Text(format!("{what}: {error}"))
}

/// Calls and follows redirects that stay on the host; the status of the last answer.
async fn follow(call: &HookCall) -> Result<u16, Trouble> {
    let mut call = call.clone();
    for _ in 0..=REDIRECTS {
        let answer = once(&call).await?;
        let status = answer.status();
        let location = answer.headers().get(LOCATION).filter(|_| status.is_redirection());
        let Some(next) = location.and_then(|l| l.to_str().ok()).and_then(|l| redirected(&call, l)) else {
            return Ok(status.as_u16());
        };
        call = next;
    }
    Err(Trouble::Text(format!("stopped after {REDIRECTS} redirects")))
}

/// Where a redirect leads, if it stays on the host.
fn redirected(call: &HookCall, location: &str) -> Option<HookCall> {
    let to: Uri = location.parse().ok()?;
    let path = to.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let mut next = HookCall { path, ..call.clone() };
    if let Some(host) = to.host() {
        if host.trim_matches(['[', ']']) != call.host {
            return None;
        }
        next.tls = to.scheme_str() == Some("https");
        next.port = to.port_u16().unwrap_or(if next.tls { 443 } else { 80 });
    }
    Some(next)
}

async fn once(call: &HookCall) -> Result<Response<Incoming>, Trouble> {
    let stream = TcpStream::connect((call.host.as_str(), call.port)).await.map_err(|e| text("connect", e))?;
    if !call.tls {
        return ask(stream, call).await;
    }
    let name = ServerName::try_from(call.host.clone()).map_err(|e| text("host name", e))?;
    let config = TRUSTING.as_ref().map_err(|e| text("TLS", e))?;
    let connector = TlsConnector::from(Arc::clone(config));
    match connector.connect(name, stream).await {
        Ok(stream) => ask(stream, call).await,
        Err(error) => {
            let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
            if matches!(inner, Some(rustls::Error::InvalidMessage(_))) {
                Err(Trouble::NotTls)
            } else {
                Err(text("TLS", error))
            }
        }
    }
}

async fn ask(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    call: &HookCall,
) -> Result<Response<Incoming>, Trouble> {
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| text("connect", e))?;
    let request = request(call).map_err(Trouble::Text)?;
    tokio::pin!(connection);
    let answer = sender.send_request(request);
    tokio::pin!(answer);
    // Driven here and dropped with the answer: nothing of a hook outlives it.
    loop {
        tokio::select! {
            answer = &mut answer => return answer.map_err(|e| text("request", e)),
            ended = &mut connection => ended.map_err(|e| text("request", e))?,
        }
    }
}

fn request(call: &HookCall) -> Result<Request<Empty<Bytes>>, String> {
    let host = if call.host.contains(':') { format!("[{}]", call.host) } else { call.host.clone() };
    let mut builder =
        Request::get(call.path.as_str()).header(USER_AGENT, concat!("kube-lifecycle/", env!("CARGO_PKG_VERSION")));
    if !call.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case(HOST.as_str())) {
        builder = builder.header(HOST, format!("{host}:{}", call.port));
    }
    for (name, value) in &call.headers {
        let name: HeaderName = name.parse().map_err(|_| format!("{name:?} is not the name of a header"))?;
        let mut value =
            HeaderValue::from_str(&value.0).map_err(|_| format!("the value of header {name} cannot be sent"))?;
        value.set_sensitive(name == AUTHORIZATION);
        builder = builder.header(name, value);
    }
    builder.body(Empty::new()).map_err(|e| format!("request: {e}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::ids::Sensitive;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Answers each connection with the next of `answers`; what was asked, in order.
    async fn serve(answers: Vec<&'static str>) -> (u16, tokio::task::JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = tokio::spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut buffer = vec![0; 4096];
                let read = stream.read(&mut buffer).await.unwrap();
                asked.push(String::from_utf8_lossy(&buffer[..read]).into_owned());
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
            asked
        });
        (port, asked)
    }

    fn call(port: u16, tls: bool) -> HookCall {
        let headers =
            vec![("Authorization".to_owned(), Sensitive("secret".into())), ("X-A".to_owned(), Sensitive("1".into()))];
        HookCall { tls, host: "127.0.0.1".into(), port, path: "/stop?now=1".into(), headers }
    }

    async fn status(call: HookCall) -> Outcome {
        run(HooksEffect::CallHttp(Box::new(call))).await
    }

    #[tokio::test]
    async fn any_answer_is_an_answer() {
        let (port, asked) = serve(vec!["HTTP/1.1 500 no\r\ncontent-length: 0\r\n\r\n"]).await;
        let called = HooksAnswer::Called { status: 500, fell_back: false };
        assert_eq!(status(call(port, false)).await, Outcome::Done(Answer::Hooks(called)));
        let asked = asked.await.unwrap().remove(0);
        assert!(asked.starts_with("GET /stop?now=1 HTTP/1.1\r\n"), "{asked}");
        assert!(asked.contains("x-a: 1") && asked.contains("authorization: secret"), "{asked}");
    }

    #[tokio::test]
    async fn redirects_stay_on_the_host() {
        let moved = "HTTP/1.1 307 moved\r\nlocation: /there\r\ncontent-length: 0\r\n\r\n";
        let away = "HTTP/1.1 302 moved\r\nlocation: http://192.0.2.1/\r\ncontent-length: 0\r\n\r\n";
        let (port, asked) = serve(vec![moved, away]).await;
        let called = HooksAnswer::Called { status: 302, fell_back: false };
        assert_eq!(status(call(port, false)).await, Outcome::Done(Answer::Hooks(called)));
        assert!(asked.await.unwrap()[1].starts_with("GET /there "));
    }

    #[tokio::test]
    async fn a_plain_port_is_asked_again_without_credentials() {
        let plain = "HTTP/1.1 400 plain\r\ncontent-length: 0\r\n\r\n";
        let (port, asked) = serve(vec![plain, "HTTP/1.1 200 ok\r\ncontent-length: 0\r\n\r\n"]).await;
        let called = HooksAnswer::Called { status: 200, fell_back: true };
        assert_eq!(status(call(port, true)).await, Outcome::Done(Answer::Hooks(called)));
        let again = asked.await.unwrap().remove(1);
        assert!(again.contains("x-a: 1") && !again.contains("secret"), "{again}");
    }

    #[tokio::test]
    async fn nobody_there_is_a_failure() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert!(matches!(status(call(port, false)).await, Outcome::Failed(_)));
    }
}
