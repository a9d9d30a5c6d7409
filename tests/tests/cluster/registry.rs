//! A registry of images on loopback with TLS and a login, which a runtime has to be told of.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use sha2::{Digest, Sha256};

/// A client that asks nothing for so long is left.
const IDLE: Duration = Duration::from_secs(60);
/// `user:secret` in base64.
const LOGIN: &str = "Basic dXNlcjpzZWNyZXQ=";

/// A registry that serves one image under any name, to those who log in.
pub(super) struct Registry {
    pub(super) port: u16,
    /// Paths that were asked for with the right login.
    pub(super) served: Arc<Mutex<Vec<String>>>,
}

struct Content {
    manifest: (String, Vec<u8>),
    blobs: BTreeMap<String, Vec<u8>>,
}

impl Registry {
    /// Starts it, and tells the lab's runtime whom to trust.
    pub(super) fn start(lab: &Path) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let own = rcgen::CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let hosts = lab.join(format!("certs.d/127.0.0.1:{port}"));
        fs::create_dir_all(&hosts).unwrap();
        fs::write(hosts.join("ca.crt"), own.pem()).unwrap();
        let ca = hosts.join("ca.crt");
        fs::write(
            hosts.join("hosts.toml"),
            format!("server = \"https://127.0.0.1:{port}\"\nca = \"{}\"\n", ca.display()),
        )
        .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(own.pem().as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
            )
            .unwrap();
        let (config, content) = (Arc::new(config), Arc::new(content(lab)));
        let served = Arc::new(Mutex::default());
        let told = Arc::clone(&served);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, content, told) = (Arc::clone(&config), Arc::clone(&content), Arc::clone(&told));
                std::thread::spawn(move || {
                    // A client that went away is no concern of the registry's.
                    let _ = talk(config, &content, &told, stream);
                });
            }
        });
        Self { port, served }
    }

    /// The full name of an image of this registry.
    pub(super) fn image(&self, name: &str) -> String {
        format!("127.0.0.1:{}/{name}", self.port)
    }
}

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// One layer with busybox.
fn content(lab: &Path) -> Content {
    let root = lab.join("image-root");
    fs::create_dir_all(root.join("bin")).unwrap();
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].iter().find(|path| Path::new(path).exists()).unwrap();
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in ["sh", "sleep", "echo"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    let archive = lab.join("image-layer.tar");
    let mut tar = Command::new("tar");
    tar.arg("-c").arg("-f").arg(&archive).arg("-C").arg(&root).arg(".");
    assert!(tar.status().unwrap().success());
    let layer = fs::read(archive).unwrap();
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Env": ["PATH=/bin"], "Cmd": ["sh"] },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    })
    .to_string()
    .into_bytes();
    let part = |kind: &str, bytes: &[u8]| json!({ "mediaType": format!("application/vnd.oci.image.{kind}"), "digest": digest(bytes), "size": bytes.len() });
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": part("config.v1+json", &config),
        "layers": [part("layer.v1.tar", &layer)],
    })
    .to_string()
    .into_bytes();
    let blobs = [layer, config].into_iter().map(|blob| (digest(&blob), blob)).collect();
    Content { manifest: (digest(&manifest), manifest), blobs }
}

fn talk(
    config: Arc<rustls::ServerConfig>,
    content: &Content,
    served: &Mutex<Vec<String>>,
    stream: TcpStream,
) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let session = rustls::ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = BufReader::new(rustls::StreamOwned::new(session, stream));
    loop {
        let mut request = String::new();
        if stream.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let (mut known, mut header) = (false, String::new());
        while stream.read_line(&mut header)? > 2 {
            known |= header
                .split_once(": ")
                .is_some_and(|(name, value)| name.eq_ignore_ascii_case("authorization") && value.trim() == LOGIN);
            header.clear();
        }
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let out = stream.get_mut();
        if !known {
            let head =
                "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"lab\"\r\nContent-Length: 0\r\n\r\n";
            out.write_all(head.as_bytes())?;
            continue;
        }
        served.lock().unwrap().push(path.to_owned());
        let last = path.split('?').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        let (kind, digest, body) = match content.blobs.get(last) {
            Some(blob) if path.contains("/blobs/") => ("application/octet-stream", last, blob),
            _ => ("application/vnd.oci.image.manifest.v1+json", content.manifest.0.as_str(), &content.manifest.1),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {digest}\r\n\r\n",
            body.len()
        );
        out.write_all(head.as_bytes())?;
        if method == "GET" {
            out.write_all(body)?;
        }
        out.flush()?;
    }
}

/// The certificate that the registry shows is trusted by nobody else.
#[test]
fn it_asks_for_a_login() {
    let lab = std::env::temp_dir().join(format!("ticklet-tls-registry-{}", std::process::id()));
    fs::create_dir_all(&lab).unwrap();
    let registry = Registry::start(&lab);
    let ask = |login: &[&str]| {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--insecure", "--output", "/dev/null", "--write-out", "%{http_code}"]).args(login);
        let output = curl.arg(format!("https://127.0.0.1:{}/v2/a/manifests/1", registry.port)).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(ask(&[]), "401");
    assert_eq!(ask(&["--user", "user:wrong"]), "401");
    assert_eq!(ask(&["--user", "user:secret"]), "200");
    assert_eq!(registry.served.lock().unwrap().len(), 1);
    fs::remove_dir_all(lab).unwrap();
}
