//! The TLS port as its clients see it: certificates, what runs, exec, attach and port-forward (HTP-1, HTP-2).

#[path = "streams/client.rs"]
mod client;
#[path = "streams/forward.rs"]
mod forward;
#[path = "streams/process.rs"]
mod process;

use std::fs;
use std::time::{Duration, Instant};

use tests::lab::Runtime;
use tests::node::{NODE, Node};

use self::client::{Ca, Client};
use self::process::{Script, Speech, V4, V4_BASE64, V5, talk};
use crate::{SOON, WAIT, chosen_lab, shell_pod};

/// Every way to speak of a process.
const SPEECHES: [Speech; 4] = [Speech::Spdy, V4, V4_BASE64, V5];
/// Long enough for a whole test.
const LIMIT: Duration = Duration::from_secs(300);

/// A node that knows clients by their certificates only, its CA, and a client with a certificate.
fn node_with_clients() -> Option<(Node, Ca, Client)> {
    let mut node = Node::new(chosen_lab()?).unwrap();
    let ca = Ca::new();
    let path = node.lab.dir().join("client-ca.crt");
    fs::write(&path, ca.pem()).unwrap();
    let anonymous = "authentication:\n  anonymous:\n    enabled: true\n";
    let known =
        format!("authentication:\n  x509:\n    clientCAFile: {}\n  anonymous:\n    enabled: false\n", path.display());
    let file = node.lab.dir().join("kubelet-config.yaml");
    let config = fs::read_to_string(&file).unwrap();
    assert!(config.contains(anonymous));
    fs::write(&file, config.replace(anonymous, &known)).unwrap();
    node.start().unwrap();
    let client = client_of(&mut node, Some(&ca));
    Some((node, ca, client))
}

fn client_of(node: &mut Node, ca: Option<&Ca>) -> Client {
    node.wait("the node serves", SOON, |node| Ok((node.healthz()? == 200).then_some(()))).unwrap();
    Client::new(node.port(), &node.root().join("pki/kubelet.crt"), ca)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(LIMIT, test).await.expect("the test takes too long") })
}

/// A path to a container `c` of a static pod, with a command.
fn exec(pod: &str, container: &str, command: &[&str]) -> String {
    let encoded = |word: &&str| word.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let words: Vec<_> = command.iter().map(|word| format!("command={}", encoded(word))).collect();
    format!("/exec/default/{pod}-{NODE}/{container}?{}", words.join("&"))
}

#[test]
fn a_client_with_a_certificate_learns_what_runs() {
    let Some((mut node, _ca, client)) = node_with_clients() else { return };
    node.put("web.yaml", shell_pod("web", WAIT, "")).unwrap();
    let container = node.wait_running("web", SOON).unwrap();
    let (stranger, other) = (client_of(&mut node, None), Ca::new());
    let liar = client_of(&mut node, Some(&other));
    run(async {
        let pods = client.ask("GET", "/pods").await;
        assert_eq!(pods.code, 200);
        assert!(pods.body.contains(&format!("web-{NODE}")), "{}", pods.body);
        // The reference answers from a cache that is 2 s old at most.
        let end = Instant::now() + SOON;
        let list = loop {
            let running = client.ask("GET", "/runningpods/").await;
            let list: serde_json::Value = serde_json::from_str(&running.body).unwrap();
            if list["items"][0]["spec"]["containers"][0].is_object() || Instant::now() > end {
                break list;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        let pod = &list["items"][0];
        assert_eq!((&list["kind"], &pod["metadata"]["uid"]), (&"PodList".into(), &container.uid.as_str().into()));
        assert_eq!(pod["metadata"]["name"], format!("web-{NODE}"));
        assert_eq!(pod["spec"]["containers"][0]["name"], "c");
        for client in [&stranger, &liar] {
            let refused = client.ask("GET", "/pods").await;
            assert_eq!((refused.code, refused.body.as_str()), (401, "Unauthorized"), "{}", refused.head);
        }
        let path = |rest: &str| format!("/run/default/web-{NODE}/{rest}");
        let ran = client.ask("POST", &path("c?cmd=echo+one+two")).await;
        assert_eq!((ran.code, ran.body.as_str()), (200, "one two\n"));
        let ran = client.ask("POST", &path(&format!("{}/c?cmd=cat+/nonexistent", container.uid))).await;
        assert_eq!(ran.code, 500);
        assert!(ran.body.contains("command 'cat /nonexistent' exited with 1: cat: can't open"), "{}", ran.body);
        for (method, path, code, body) in [
            ("POST", path("none?cmd=id"), 500, "container not found (\"none\")"),
            ("POST", path("some-other-uid/c?cmd=id"), 500, "container not found (\"c\")"),
            ("POST", "/run/default/none/c?cmd=id".to_owned(), 404, "pod does not exist"),
            ("GET", path("c?cmd=id"), 405, "405: Method Not Allowed"),
            ("POST", format!("/exec/default/web-{NODE}/c?command=id&output=1"), 500, "Upgrade request required"),
            ("POST", format!("/exec/default/web-{NODE}/c?command=id"), 400, "you must specify at least 1 of"),
        ] {
            let answer = client.ask(method, &path).await;
            assert_eq!(answer.code, code, "{method} {path}: {}", answer.body);
            assert!(answer.body.contains(body), "{method} {path}: {}", answer.body);
        }
    });
}

/// HTP-2 but for the session that breaks.
pub(crate) fn exec_tells_output_exit_code_and_ends_with_its_input() {
    let Some((mut node, _ca, client)) = node_with_clients() else { return };
    node.put("box.yaml", shell_pod("box", WAIT, "")).unwrap();
    node.wait_running("box", SOON).unwrap();
    run(async {
        for speech in SPEECHES {
            let sh = |script: &str| exec("box", "c", &["sh", "-c", script]);
            let got = talk(&client, speech, &sh("echo out; echo err >&2; exit 7"), Script::default()).await;
            assert_eq!(
                (got.out().as_str(), got.err().as_str(), got.code()),
                ("out\n", "err\n", 7),
                "{speech:?}: {got:?}"
            );
            let got = talk(&client, speech, &exec("box", "c", &["true"]), Script::default()).await;
            assert_eq!((got.out().as_str(), got.code()), ("", 0), "{speech:?}: {got:?}");
            let got = talk(&client, speech, &exec("box", "c", &["/nonexistent"]), Script::default()).await;
            assert_eq!(got.code(), -1, "{speech:?}: {got:?}");
            assert!(got.status.contains("nonexistent"), "{speech:?}: {got:?}");

            let began = Instant::now();
            let got = talk(&client, speech, &exec("box", "none", &["true"]), Script::default()).await;
            let (code, body) = got.refused.unwrap();
            assert_eq!((code, body.contains("container not found (\"none\")")), (500, true), "{speech:?}: {body}");
            assert!(began.elapsed() < Duration::from_secs(4));

            for _ in 0..5 {
                let got = talk(&client, speech, &exec("box", "c", &["seq", "1", "200000"]), Script::default()).await;
                let out = got.out();
                assert_eq!(
                    (out.lines().count(), out.lines().last(), got.code()),
                    (200_000, Some("200000"), 0),
                    "{speech:?}"
                );
            }
        }
        // The older WebSockets have no end of a single stream.
        for speech in [Speech::Spdy, V5] {
            let input = "foo\n".repeat(50_000).into_bytes();
            let script = Script { input: Some(input.clone()), end: true, ..Script::default() };
            let got = talk(&client, speech, &exec("box", "c", &["cat"]), script).await;
            assert_eq!((got.stdout.len(), got.code()), (input.len(), 0), "{speech:?}");
            assert!(got.stdout == input, "{speech:?} changed what it carried");
        }
        for speech in SPEECHES {
            let input = Some(b"sleep 1; stty size; exit 3\n".to_vec());
            let script = Script { tty: true, size: Some((132, 43)), input, ..Script::default() };
            let got = talk(&client, speech, &exec("box", "c", &["sh"]), script).await;
            assert!(got.out().contains("43 132"), "{speech:?}: {got:?}");
            assert_eq!(got.code(), 3, "{speech:?}: {got:?}");
        }
    });
}

/// HTP-2 (e).
pub(crate) fn a_session_that_breaks_is_no_success_and_leaves_nothing() {
    let Some((mut node, _ca, client)) = node_with_clients() else { return };
    node.put("box.yaml", shell_pod("box", WAIT, "")).unwrap();
    node.wait_running("box", SOON).unwrap();
    let pid = node.pid().unwrap();
    run(async {
        for speech in SPEECHES {
            let script = Script { until: Some("1\n"), ..Script::default() };
            talk(&client, speech, &exec("box", "c", &["sh", "-c", "echo 1; exec sleep 1"]), script).await;
        }
        let before = descriptors(pid);
        for speech in SPEECHES {
            for _ in 0..10 {
                let script = Script { until: Some("1\n"), ..Script::default() };
                talk(&client, speech, &exec("box", "c", &["sh", "-c", "echo 1; exec sleep 1"]), script).await;
            }
        }
        until_descriptors(pid, before).await;

        let talking: Vec<_> = SPEECHES
            .into_iter()
            .map(|speech| {
                let client = client.clone();
                let path = exec("box", "c", &["sh", "-c", "echo begun; exec sleep 60"]);
                tokio::spawn(async move { (speech, talk(&client, speech, &path, Script::default()).await) })
            })
            .collect();
        tokio::time::sleep(Duration::from_secs(3)).await;
        node.kill9().unwrap();
        for talking in talking {
            let (speech, got) = talking.await.unwrap();
            assert_eq!((got.out().as_str(), got.code()), ("begun\n", -1), "{speech:?}: {got:?}");
        }
    });
}

#[test]
fn attach_joins_the_process_that_runs() {
    let Some((mut node, _ca, client)) = node_with_clients() else { return };
    let script = "while read line; do echo got $line; echo seen $line >&2; done; echo over; exec sleep 1000";
    let plain = shell_pod("plain", script, "").replacen("    image:", "    stdin: true\n    image:", 1);
    // Sizes travel beside the input: which of both comes first is open.
    let tty = shell_pod("tty", "while :; do stty size; sleep 1; done", "").replacen(
        "    image:",
        "    stdin: true\n    tty: true\n    image:",
        1,
    );
    node.put("plain.yaml", plain).unwrap();
    node.put("tty.yaml", tty).unwrap();
    node.wait_running("plain", SOON).unwrap();
    node.wait_running("tty", SOON).unwrap();
    run(async {
        for (index, speech) in SPEECHES.into_iter().enumerate() {
            let path = format!("/attach/default/plain-{NODE}/c?x=1");
            let input = Some(format!("line{index}\n").into_bytes());
            let script = Script { input, until: Some("\n"), ..Script::default() };
            let got = talk(&client, speech, &path, script).await;
            assert_eq!(got.out(), format!("got line{index}\n"), "{speech:?}: {got:?}");

            let path = format!("/attach/default/tty-{NODE}/c?x=1");
            let size = Some((100 + u16::try_from(index).unwrap(), 50));
            let script =
                Script { tty: true, size, input: Some(b"x\n".to_vec()), until: Some("50 10"), ..Script::default() };
            let got = talk(&client, speech, &path, script).await;
            assert!(got.out().contains("50 10"), "{speech:?}: {got:?}");
        }
        let got =
            talk(&client, Speech::Spdy, &format!("/attach/default/plain-{NODE}/none?x=1"), Script::default()).await;
        assert!(got.refused.unwrap().1.contains("container none not found in pod"));
    });
}

const DOWNLOAD: usize = 5 << 20;
const GET: &str = "GET /file HTTP/1.0\r\n\r\n";

fn whole(data: &[u8]) -> bool {
    let head = data.windows(4).position(|window| window == b"\r\n\r\n");
    head.is_some_and(|head| data[head + 4..].iter().eq(b"0123456789abcde\n".iter().cycle().take(DOWNLOAD)))
}

/// HTP-1.
pub(crate) fn port_forward_survives_a_refused_port_and_dropped_clients() {
    let Some((mut node, _ca, client)) = node_with_clients() else { return };
    let script = format!(
        "mkdir /www; yes 0123456789abcde | head -c {DOWNLOAD} > /www/file; httpd -p 8080 -h /www; httpd -p 8082 -h /www; {WAIT}"
    );
    node.put("web.yaml", shell_pod("web", &script, "")).unwrap();
    let container = node.wait_running("web", SOON).unwrap();
    node.wait("the server listens", SOON, |node| {
        Ok(Some(node.crictl().exec(&container.id, &["wget", "-qO-", "http://127.0.0.1:8082/file"])?))
    })
    .unwrap();
    let (pid, runtime) = (node.pid().unwrap(), node.lab.runtime());
    run(async {
        for (websocket, path) in [
            (false, format!("/portForward/default/web-{NODE}")),
            (true, format!("/portForward/default/web-{NODE}/{}", container.uid)),
        ] {
            let first = forward::open(&client, &path, websocket).await;
            let second = forward::open(&client, &path, websocket).await;
            for round in 0..10 {
                let (session, port) = if round % 2 == 0 { (&first, 8080) } else { (&second, 8082) };
                let got = session.exchange(port, GET).await;
                assert!(whole(&got.data) && got.error.is_empty(), "{round}: {} bytes, {}", got.data.len(), got.error);
            }
            // containerd 1.6 never ends such a stream, whichever kubelet asks; there it must only disturb nobody.
            let refused = tokio::time::timeout(Duration::from_secs(5), first.exchange(8081, GET)).await;
            match refused {
                Ok(refused) => assert!(refused.data.is_empty() && refused.error.contains("8081"), "{}", refused.error),
                Err(_) => assert_eq!(runtime, Runtime::Containerd1, "a refused port has no end"),
            }
            let all = tokio::join!(
                first.exchange(8080, GET),
                second.exchange(8080, GET),
                first.exchange(8082, GET),
                second.exchange(8082, GET),
            );
            for (name, got) in [("a", all.0), ("b", all.1), ("c", all.2), ("d", all.3)] {
                assert!(whole(&got.data), "{name}: {} bytes, {}", got.data.len(), got.error);
            }
            drop((first, second));
            let before = descriptors(pid);
            for _ in 0..100 {
                forward::open(&client, &path, websocket).await.drop_halfway(8080, GET).await;
            }
            until_descriptors(pid, before).await;
        }
    });
}

#[test]
fn a_forward_needs_ports_and_the_pods_own_uid() {
    let Some((mut node, _ca, client)) = node_with_clients() else { return };
    node.put("web.yaml", shell_pod("web", WAIT, "")).unwrap();
    node.wait_running("web", SOON).unwrap();
    run(async {
        let (code, _, _) = client
            .upgrade(
                "GET",
                &format!("/portForward/default/web-{NODE}"),
                &process::websocket_headers("v4.channel.k8s.io"),
            )
            .await;
        assert_eq!(code, 400, "ports are missing");
        let wrong = client.ask("POST", &format!("/portForward/default/web-{NODE}/other-uid")).await;
        assert_eq!((wrong.code, wrong.body.as_str()), (404, "pod not found"));
    });
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

/// Waits until the process has about as many descriptors as before.
async fn until_descriptors(pid: u32, before: usize) {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let now = descriptors(pid);
        if now <= before + 5 {
            return;
        }
        assert!(Instant::now() < end, "{before} descriptors before, {now} after 30 s");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
