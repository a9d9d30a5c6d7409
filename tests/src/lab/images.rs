//! The lab's images, made on the spot from Debian's static busybox: no registry is asked.
//!
//! One layer serves both images; they differ in what they start.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::process;

/// The image of all test containers.
pub const BUSYBOX_IMAGE: &str = "localhost/busybox:1";

/// The same image under a second name.
pub const SAME_IMAGE: &str = "localhost/busybox:2";

/// The image of sandboxes.
pub(super) const PAUSE_IMAGE: &str = "localhost/pause:1";

/// Tar works in blocks of this size.
const BLOCK: usize = 512;

/// The machine's static busybox.
pub fn busybox() -> Result<PathBuf> {
    for path in ["/bin/busybox", "/usr/bin/busybox", "/bin/busybox-static"] {
        if let Ok(bytes) = fs::read(path)
            && is_static(&bytes)
        {
            return Ok(path.into());
        }
    }
    bail!("no static busybox: install the package busybox-static")
}

/// A program without an interpreter names no dynamic loader.
fn is_static(elf: &[u8]) -> bool {
    let head = &elf[..elf.len().min(4096)];
    elf.starts_with(b"\x7fELF") && !head.windows(8).any(|window| window == b"/ld-linu" || window == b"/ld-musl")
}

/// Writes both images as one archive in docker's format.
pub(super) fn write_archive(path: &Path) -> Result<()> {
    let layer = layer()?;
    let busybox = image_config(&layer, BUSYBOX_IMAGE, &["sh"]);
    // The runtime ends sandboxes with a kill: the process only has to wait.
    let pause = image_config(&layer, PAUSE_IMAGE, &["/bin/busybox", "sleep", "2147483647"]);
    let file_name = |config: &[u8]| format!("{}.json", hex(config));
    let manifest = json!([
        { "Config": file_name(&busybox), "RepoTags": [BUSYBOX_IMAGE, SAME_IMAGE], "Layers": ["layer.tar"] },
        { "Config": file_name(&pause), "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"] },
    ]);
    let mut tar = Tar::default();
    tar.file(&file_name(&busybox), 0o644, &busybox)?;
    tar.file(&file_name(&pause), 0o644, &pause)?;
    tar.file("layer.tar", 0o644, &layer)?;
    tar.file("manifest.json", 0o644, manifest.to_string().as_bytes())?;
    File::create(path)?.write_all(&tar.end()).with_context(|| format!("cannot write {}", path.display()))
}

/// The root file system: busybox under all its names, and the files programs expect.
fn layer() -> Result<Vec<u8>> {
    let busybox = busybox()?;
    let names = process::run(Command::new(&busybox).arg("--list"), Duration::from_secs(10))?.success()?;
    let mut tar = Tar::default();
    for dir in ["bin", "dev", "etc", "home", "proc", "root", "sys", "tmp", "usr", "var", "var/www"] {
        tar.dir(dir, if dir == "tmp" { 0o1777 } else { 0o755 })?;
    }
    tar.file("bin/busybox", 0o755, &fs::read(&busybox)?)?;
    for name in names.split_whitespace().filter(|name| *name != "busybox") {
        tar.link(&format!("bin/{name}"), "busybox")?;
    }
    tar.file("etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/home:/bin/false\n")?;
    tar.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?;
    Ok(tar.end())
}

fn image_config(layer: &[u8], name: &str, command: &[&str]) -> Vec<u8> {
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        // The name keeps the ids of two images apart even if all else is equal.
        "config": { "Cmd": command, "Env": [path], "WorkingDir": "/", "Labels": { "name": name } },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{}", hex(layer))] },
    });
    config.to_string().into_bytes()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tar archive in memory, in the plain ustar form.
#[derive(Default)]
struct Tar {
    bytes: Vec<u8>,
}

impl Tar {
    fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.header(name, mode, b'0', content.len(), "")?;
        self.bytes.extend(content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
        Ok(())
    }

    fn dir(&mut self, name: &str, mode: u32) -> Result<()> {
        self.header(&format!("{name}/"), mode, b'5', 0, "")
    }

    fn link(&mut self, name: &str, target: &str) -> Result<()> {
        self.header(name, 0o777, b'2', 0, target)
    }

    /// Two empty blocks end an archive.
    fn end(mut self) -> Vec<u8> {
        self.bytes.extend([0; 2 * BLOCK]);
        self.bytes
    }

    fn header(&mut self, name: &str, mode: u32, kind: u8, size: usize, target: &str) -> Result<()> {
        if name.len() > 100 || target.len() > 100 {
            bail!("`{name}` is too long for a plain tar header");
        }
        let mut block = [0_u8; BLOCK];
        let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
        put(0, name.as_bytes());
        put(100, format!("{mode:07o}").as_bytes());
        put(108, b"0000000\x000000000\0");
        put(124, format!("{size:011o}").as_bytes());
        put(136, b"00000000000");
        // The checksum counts its own field as spaces.
        put(148, b"        ");
        put(156, &[kind]);
        put(157, target.as_bytes());
        put(257, b"ustar\x0000");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.bytes.extend(block);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_read_by_tar() {
        let mut tar = Tar::default();
        tar.dir("d", 0o755).unwrap();
        tar.file("d/f", 0o640, b"content\n").unwrap();
        tar.link("d/l", "f").unwrap();
        let dir = std::env::temp_dir().join(format!("ticklet-tar-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("a.tar"), tar.end()).unwrap();
        let mut command = Command::new("tar");
        command.args(["-x", "-f", "a.tar"]).current_dir(&dir);
        process::run(&mut command, Duration::from_secs(10)).unwrap().success().unwrap();
        let content = fs::read_to_string(dir.join("d/l")).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(content, "content\n");
    }

    #[test]
    fn long_names_are_refused() {
        assert!(Tar::default().file(&"x".repeat(101), 0o644, b"").is_err());
    }
}
