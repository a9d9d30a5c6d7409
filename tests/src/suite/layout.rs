//! Images as a registry stores them: layers, configurations and manifests as files named after their digest.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::process;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A folder of blobs and the names of the images in it.
#[derive(Debug)]
pub(super) struct Layout {
    dir: PathBuf,
    tags: serde_json::Map<String, Value>,
}

/// A stored blob.
#[derive(Debug, Clone)]
pub(super) struct Blob {
    pub(super) digest: String,
    size: u64,
}

/// The blobs of one image.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) manifest: Blob,
    pub(super) config: Blob,
}

impl Layout {
    /// An empty layout in a folder, which is emptied.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        if dir.exists() {
            fs::remove_dir_all(dir)?;
        }
        fs::create_dir_all(dir.join("blobs"))?;
        Ok(Self { dir: dir.to_owned(), tags: serde_json::Map::new() })
    }

    /// Stores a root file system as a layer. Owners are root's and times are fixed: the same folder gives the same layer.
    pub(super) fn layer(&self, root: &Path) -> Result<Blob> {
        let archive = self.dir.join("layer.tar");
        let mut tar = Command::new("tar");
        tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@1700000000", "--format=gnu"]);
        tar.arg("-c").arg("-f").arg(&archive).arg("-C").arg(root).arg(".");
        process::run(&mut tar, Duration::from_secs(300))?.success()?;
        let told = process::run(Command::new("sha256sum").arg(&archive), Duration::from_secs(60))?.success()?;
        let digest = format!("sha256:{}", told.split_whitespace().next().context("sha256sum printed nothing")?);
        let size = archive.metadata()?.len();
        fs::rename(&archive, self.path(&digest))?;
        Ok(Blob { digest, size })
    }

    /// Adds an image of these layers under a name and a tag.
    pub(super) fn image(&mut self, name: &str, tag: &str, layers: &[Blob], config: &Value) -> Result<Image> {
        let mut config = config.clone();
        config["Env"] = json!([PATH]);
        // The name keeps ids apart: a runtime names the image of a container by its id, and specs that move a pod from
        // one tag to the other would see no change.
        config["Labels"] = json!({ "name": format!("{name}:{tag}") });
        let diffs: Vec<&str> = layers.iter().map(|layer| layer.digest.as_str()).collect();
        let whole = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": diffs },
        });
        let config = self.blob(whole.to_string().as_bytes())?;
        let part = |kind: &str, blob: &Blob| json!({ "mediaType": kind, "digest": blob.digest, "size": blob.size });
        let layers: Vec<Value> = layers.iter().map(|layer| part(LAYER, layer)).collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": part(CONFIG, &config),
            "layers": layers,
        });
        let manifest = self.blob(manifest.to_string().as_bytes())?;
        self.tags.insert(format!("{name}:{tag}"), manifest.digest.clone().into());
        Ok(Image { manifest, config })
    }

    /// Writes down the names; the layout is whole with this file.
    pub(super) fn finish(self) -> Result<()> {
        fs::write(tags_file(&self.dir), Value::Object(self.tags).to_string()).context("cannot write the images' names")
    }

    fn blob(&self, content: &[u8]) -> Result<Blob> {
        let digest: String = Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect();
        let digest = format!("sha256:{digest}");
        fs::write(self.path(&digest), content)?;
        Ok(Blob { digest, size: content.len() as u64 })
    }

    /// Where a blob lies.
    pub(super) fn path(&self, digest: &str) -> PathBuf {
        blob_file(&self.dir, digest)
    }
}

/// The file of a blob in a layout.
pub(super) fn blob_file(dir: &Path, digest: &str) -> PathBuf {
    dir.join("blobs").join(digest.replace(':', "-"))
}

/// The file with the images' names.
pub(super) fn tags_file(dir: &Path) -> PathBuf {
    dir.join("tags.json")
}
