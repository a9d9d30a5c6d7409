//! A read-only registry on loopback that serves a layout, so that pods may pull the suite's images by any policy.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::layout::{blob_file, tags_file};

/// A client that asks nothing for so long is left.
const IDLE: Duration = Duration::from_secs(120);

/// Serves a layout until the process ends; returns the port.
pub(super) fn serve(dir: &Path) -> Result<u16> {
    let tags: Value = serde_json::from_str(&fs::read_to_string(tags_file(dir))?).context("no list of images")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let port = listener.local_addr()?.port();
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (dir, tags) = (dir.clone(), tags.clone());
            std::thread::spawn(move || {
                // A client that went away is no concern of the registry's.
                let _ = talk(&dir, &tags, stream);
            });
        }
    });
    Ok(port)
}

fn talk(dir: &Path, tags: &Value, mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    // containerd tries TLS first and goes on without it only where the answer looks like HTTP.
    if reader.fill_buf()?.first() == Some(&0x16) {
        return stream.write_all(b"HTTP/1.0 400 Bad Request\r\nConnection: close\r\n\r\n");
    }
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let mut header = String::new();
        while reader.read_line(&mut header)? > 2 {
            header.clear();
        }
        let mut words = request.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        match answer(dir, tags, path.split('?').next().unwrap_or_default()) {
            Some((kind, digest, file)) => {
                let mut file = fs::File::open(file)?;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nDocker-Content-Digest: {digest}\r\n\r\n",
                    file.metadata()?.len()
                );
                stream.write_all(head.as_bytes())?;
                if method == "GET" {
                    std::io::copy(&mut file, &mut stream)?;
                }
            }
            None if matches!(path, "/v2/" | "/v2") => {
                stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")?;
            }
            None => stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")?,
        }
    }
}

/// Kind, digest and file of what a path names.
fn answer(dir: &Path, tags: &Value, path: &str) -> Option<(String, String, PathBuf)> {
    let path = path.strip_prefix("/v2/")?;
    let (rest, reference) = path.rsplit_once('/')?;
    let (name, kind) = rest.rsplit_once('/')?;
    let digest = match (kind, reference.starts_with("sha256:")) {
        ("manifests" | "blobs", true) => reference.to_owned(),
        ("manifests", false) => tags[format!("{name}:{reference}")].as_str()?.to_owned(),
        _ => return None,
    };
    let is_digest = digest.strip_prefix("sha256:")?.bytes().all(|byte| byte.is_ascii_hexdigit());
    let file = blob_file(dir, &digest);
    if !is_digest || !file.exists() {
        return None;
    }
    let kind = if kind == "manifests" {
        let manifest: Value = serde_json::from_str(&fs::read_to_string(&file).ok()?).ok()?;
        manifest["mediaType"].as_str()?.to_owned()
    } else {
        "application/octet-stream".to_owned()
    };
    Some((kind, digest, file))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::layout::Layout;
    use super::*;

    fn ask(port: u16, path: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn an_image_is_found_by_tag_and_by_digest() {
        let dir = std::env::temp_dir().join(format!("ticklet-registry-{}", std::process::id()));
        let root = dir.join("root");
        fs::create_dir_all(&root).unwrap();
        fs::write(root.join("file"), "x").unwrap();
        let mut layout = Layout::create(&dir.join("layout")).unwrap();
        let layer = layout.layer(&root).unwrap();
        let image = layout.image("some/name", "1", &[layer], &serde_json::json!({})).unwrap();
        layout.finish().unwrap();
        let port = serve(&dir.join("layout")).unwrap();
        let by_tag = ask(port, "/v2/some/name/manifests/1");
        assert!(by_tag.contains(&image.manifest.digest) && by_tag.contains("image.layer"), "{by_tag}");
        assert!(ask(port, &format!("/v2/some/name/blobs/{}", image.config.digest)).contains("rootfs"));
        assert!(ask(port, "/v2/some/name/manifests/2").starts_with("HTTP/1.1 404"));
        assert!(ask(port, "/v2/").starts_with("HTTP/1.1 200"));
        fs::remove_dir_all(dir).unwrap();
    }
}
