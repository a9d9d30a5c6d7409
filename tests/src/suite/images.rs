//! The images of the suite's pods, made of Debian's programs and of the suite's own, as folders that become layers.
//!
//! They stand in for the published ones, which a machine without internet cannot pull, and differ where no spec looks.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::debian::{Debian, copy};
use super::layout::{Blob, Layout};
use crate::process;
use crate::tools::SuiteTools;

/// Raised when the images change, so that the ones in a cache are made again.
const REVISION: &str = "1";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n\
    www-data:x:33:33:www-data:/var/www:/bin/false\nnobody:x:65534:65534:nobody:/home:/bin/false\n";
const GROUP: &str = "root:x:0:\ndaemon:x:1:\nwww-data:x:33:\nnogroup:x:65534:\n";

/// What specs about groups of the image expect of agnhost.
const AGNHOST_PASSWD: &str = "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n";
const AGNHOST_GROUP: &str = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n";

const NGINX: &str = "user www-data;
worker_processes 1;
pid /run/nginx.pid;
error_log /dev/stderr notice;
events {}
http {
  types { text/html html; }
  access_log /dev/stdout;
  server { listen 80; location / { root /usr/share/nginx/html; index index.html; } }
}
";

/// Programs of our own: sources beside this crate's.
const SOURCES: [(&str, &str); 3] = [
    ("pause", include_str!("../../images/pause.c")),
    ("sh", include_str!("../../images/sh.c")),
    ("nmeter", include_str!("../../images/nmeter.c")),
];

/// The maker at work.
struct Maker<'a> {
    tools: &'a SuiteTools,
    debian: Debian,
    dir: PathBuf,
    layout: Layout,
}

/// Makes all images into a layout in the cache, unless that was done; returns its folder.
pub(super) fn ensure(tools: &SuiteTools) -> Result<PathBuf> {
    let dir = tools.dir.join("images");
    let layout = dir.join("layout");
    let done = dir.join("done");
    if fs::read_to_string(&done).is_ok_and(|revision| revision == REVISION) {
        return Ok(layout);
    }
    println!("making the suite's images");
    let debian = Debian::ensure(&tools.dir.join("debian"))?;
    let mut maker = Maker { tools, debian, dir, layout: Layout::create(&layout)? };
    maker.compile()?;
    maker.all()?;
    maker.layout.finish()?;
    fs::write(done, REVISION)?;
    Ok(layout)
}

impl Maker<'_> {
    fn all(&mut self) -> Result<()> {
        let busybox = self.busybox("busybox")?;
        self.add(&["busybox:1.37.0-2"], &busybox, &json!({ "Cmd": ["sh"] }))?;
        self.add(&["nonroot:1.5"], &busybox, &json!({ "Cmd": ["sh"], "User": "1234" }))?;
        self.pause()?;
        self.agnhost()?;
        let root = self.busybox("nonewprivs")?;
        // The program tells its effective user, and the specs ask whether the bits below took effect.
        self.suite_program("nonewprivs", &root.join("usr/local/bin/nnp"), 0o6755)?;
        self.add(&["nonewprivs:1.4"], &root, &json!({ "Cmd": ["nnp"] }))?;
        let root = self.busybox("sample-device-plugin")?;
        self.suite_program("sample-device-plugin", &root.join("sampledeviceplugin"), 0o755)?;
        let command = json!({ "Entrypoint": ["/sampledeviceplugin", "-alsologtostderr"] });
        self.add(&["sample-device-plugin:1.7"], &root, &command)?;
        let root = self.busybox("glibc-dns-testing")?;
        let programs = ["usr/bin/dig", "usr/bin/host", "usr/bin/nslookup", "usr/bin/getent", "bin/bash"];
        self.debian.copy_programs(&programs, &root)?;
        self.add(&["glibc-dns-testing:2.1.1"], &root, &json!({ "Cmd": ["sh"] }))?;
        let root = self.busybox("ipc-utils")?;
        self.debian.copy_programs(&["usr/bin/ipcs", "usr/bin/ipcmk", "usr/bin/ipcrm"], &root)?;
        self.add(&["ipc-utils:1.4"], &root, &json!({ "Cmd": ["sh"] }))?;
        self.nginx()
    }

    /// Adds an image under names below the folder of the suite's images.
    fn add(&mut self, names: &[&str], root: &Path, config: &Value) -> Result<()> {
        let layer = self.layout.layer(root)?;
        self.add_layers(names, &[layer], config)
    }

    fn add_layers(&mut self, names: &[&str], layers: &[Blob], config: &Value) -> Result<()> {
        for name in names {
            let (name, tag) = name.split_once(':').context("an image without a tag")?;
            self.layout.image(&format!("e2e-test-images/{name}"), tag, layers, config)?;
        }
        Ok(())
    }

    fn pause(&mut self) -> Result<()> {
        let root = self.empty("pause")?;
        copy(&self.own("pause"), &root.join("pause"), 0o755)?;
        let layer = self.layout.layer(&root)?;
        let config = json!({ "Entrypoint": ["/pause"], "User": "65535:65535" });
        self.layout.image("pause", "3.10.2", &[layer], &config).map(drop)
    }

    fn agnhost(&mut self) -> Result<()> {
        let root = self.busybox("agnhost")?;
        append(&root.join("etc/passwd"), AGNHOST_PASSWD)?;
        append(&root.join("etc/group"), AGNHOST_GROUP)?;
        for dir in ["uploads", "home/user-defined-in-image"] {
            fs::create_dir_all(root.join(dir))?;
        }
        let programs = [
            "usr/bin/curl",
            "bin/bash",
            "usr/bin/dig",
            "usr/bin/host",
            "bin/nc.openbsd",
            "usr/bin/iperf",
            "usr/bin/socat",
            "bin/ip",
            "bin/ss",
            "usr/bin/nsenter",
            "usr/bin/unshare",
            "usr/bin/setpriv",
            "usr/bin/getent",
        ];
        self.debian.copy_programs(&programs, &root)?;
        fs::remove_file(root.join("bin/nc"))?;
        symlink("nc.openbsd", root.join("bin/nc"))?;
        self.suite_program("agnhost", &root.join("agnhost"), 0o755)?;
        symlink("agnhost", root.join("agnhost-2"))?;
        fs::write(root.join("etc/os-release"), "ID=standin\nPRETTY_NAME=\"a stand-in, not Alpine Linux\"\n")?;
        for file in ["localhost.crt", "localhost.key"] {
            copy(&self.tools.sources.join("agnhost/porter").join(file), &root.join(file), 0o644)?;
        }
        self.own_registry(&root)?;
        let layer = self.layout.layer(&root)?;
        let config = |command: &str| json!({ "Entrypoint": ["/agnhost"], "Cmd": [command] });
        self.add_layers(&["agnhost:2.66.1", "agnhost:2.55"], std::slice::from_ref(&layer), &config("pause"))?;
        for name in ["kitten", "nautilus"] {
            let root = self.empty(name)?;
            for entry in fs::read_dir(self.tools.sources.join(name).join("html"))? {
                let path = entry?.path();
                copy(&path, &root.join(path.file_name().context("a file without a name")?), 0o644)?;
            }
            let upper = self.layout.layer(&root)?;
            self.add_layers(&[&format!("{name}:1.8")], &[layer.clone(), upper], &config("test-webserver"))?;
        }
        Ok(())
    }

    /// agnhost can be a registry with one image in it, read from its own files.
    fn own_registry(&self, root: &Path) -> Result<()> {
        let mut layout = Layout::create(&self.dir.join("registry"))?;
        let layer = layout.layer(&self.dir.join("roots/pause"))?;
        let image =
            layout.image("pause", "testing", std::slice::from_ref(&layer), &json!({ "Entrypoint": ["/pause"] }))?;
        let place = root.join("var/registry/pause");
        for (kind, blob) in [("manifests", &image.manifest), ("blobs", &image.config), ("blobs", &layer)] {
            let hash = blob.digest.trim_start_matches("sha256:");
            let file = place.join(kind).join("sha256").join(&hash[..2]).join(hash).join("data");
            copy(&layout.path(&blob.digest), &file, 0o644)?;
        }
        fs::write(place.join("manifests/testing"), format!("{}\n", image.manifest.digest))?;
        Ok(())
    }

    fn nginx(&mut self) -> Result<()> {
        let root = self.busybox("nginx")?;
        self.debian.copy_programs(&["usr/sbin/nginx", "usr/bin/curl", "bin/bash"], &root)?;
        for dir in ["etc/nginx", "usr/share/nginx/html", "var/log/nginx", "var/lib/nginx/body"] {
            fs::create_dir_all(root.join(dir))?;
        }
        fs::write(root.join("etc/nginx/nginx.conf"), NGINX)?;
        fs::write(root.join("usr/share/nginx/html/index.html"), "<title>Welcome to nginx!</title>\n")?;
        let config = json!({ "Cmd": ["nginx", "-g", "daemon off;"], "StopSignal": "SIGQUIT" });
        self.add(&["nginx:1.27.0-2", "nginx:1.28.0-2"], &root, &config)
    }

    /// A root file system with busybox in it.
    fn busybox(&self, name: &str) -> Result<PathBuf> {
        let root = self.empty(name)?;
        for dir in
            ["bin", "dev", "etc", "home", "mnt", "proc", "root", "run", "sbin", "sys", "usr/bin", "usr/sbin", "var/log"]
        {
            fs::create_dir_all(root.join(dir))?;
        }
        for dir in ["tmp", "var/tmp"] {
            fs::create_dir_all(root.join(dir))?;
            fs::set_permissions(root.join(dir), fs::Permissions::from_mode(0o1777))?;
        }
        for (file, text) in [
            ("etc/passwd", PASSWD),
            ("etc/group", GROUP),
            ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n"),
        ] {
            fs::write(root.join(file), text)?;
        }
        let busybox = root.join("bin/busybox");
        copy(&self.debian.file("usr/bin/busybox"), &busybox, 0o755)?;
        let names = process::run(Command::new(&busybox).arg("--list"), Duration::from_secs(10))?.success()?;
        for name in names.split_whitespace().filter(|name| !matches!(*name, "busybox" | "sh")) {
            fs::hard_link(&busybox, root.join("bin").join(name))?;
        }
        symlink("../../bin/env", root.join("usr/bin/env"))?;
        copy(&self.own("sh"), &root.join("bin/sh"), 0o755)?;
        copy(&self.own("nmeter"), &root.join("bin/nmeter"), 0o755)?;
        copy(&self.debian.file("usr/bin/bash-static"), &root.join("bin/.bash"), 0o755)?;
        Ok(root)
    }

    fn empty(&self, name: &str) -> Result<PathBuf> {
        let root = self.dir.join("roots").join(name);
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir_all(&root)?;
        Ok(root)
    }

    fn suite_program(&self, name: &str, to: &Path, mode: u32) -> Result<()> {
        copy(&self.tools.program(name), to, mode)
    }

    fn own(&self, name: &str) -> PathBuf {
        self.dir.join("programs").join(name)
    }

    fn compile(&self) -> Result<()> {
        fs::create_dir_all(self.dir.join("programs"))?;
        for (name, source) in SOURCES {
            let file = self.dir.join("programs").join(format!("{name}.c"));
            fs::write(&file, source)?;
            let mut cc = Command::new("cc");
            cc.args(["-Os", "-static", "-s", "-o"]).arg(self.own(name)).arg(&file);
            process::run(&mut cc, Duration::from_secs(60))?
                .success()
                .with_context(|| format!("cannot compile {name}"))?;
        }
        Ok(())
    }
}

fn append(file: &Path, text: &str) -> Result<()> {
    let whole = fs::read_to_string(file)? + text;
    fs::write(file, whole).with_context(|| format!("cannot write {}", file.display()))
}
