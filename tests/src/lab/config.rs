//! The files a lab's containerd reads: its configuration and the network's.

use std::fs;

use anyhow::Result;

use super::images::PAUSE_IMAGE;
use super::{CNI_PLUGINS, Number, Runtime, socket};

/// Writes both into the lab's folder.
pub(super) fn write(number: Number, runtime: Runtime) -> Result<()> {
    let dir = number.dir();
    let common = common(number);
    let text = match runtime {
        Runtime::Containerd2 => format!("version = 3\n{common}{}", containerd2(number)),
        Runtime::Containerd1 => format!("version = 2\n{common}{}", containerd1(number)),
    };
    fs::write(dir.join("containerd.toml"), text)?;
    fs::create_dir_all(dir.join("cni"))?;
    fs::write(dir.join("cni/10-lab.conflist"), network(number))?;
    Ok(())
}

/// What both versions say in the same words. Network namespaces and runc's state stay in the lab's folder.
fn common(number: Number) -> String {
    let dir = number.dir();
    let dir = dir.display();
    format!(
        r#"root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
"#,
        socket = socket(number).display()
    )
}

fn containerd2(number: Number) -> String {
    let dir = number.dir();
    let dir = dir.display();
    format!(
        r#"[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{dir}/certs.d"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{PAUSE_IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["{CNI_PLUGINS}"]
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{dir}/runc"
"#
    )
}

fn containerd1(number: Number) -> String {
    let dir = number.dir();
    let dir = dir.display();
    format!(
        r#"[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{PAUSE_IMAGE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PLUGINS}"
    conf_dir = "{dir}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
      Root = "{dir}/runc"
"#
    )
}

/// A bridge of the lab's own, without masquerading: pods of a lab talk to the node and to each other only.
fn network(number: Number) -> String {
    let bridge = serde_json::json!({
        "type": "bridge",
        "bridge": number.bridge(),
        "isGateway": true,
        "ipMasq": false,
        "hairpinMode": true,
        "ipam": {
            "type": "host-local",
            "ranges": [[{ "subnet": number.subnet(), "gateway": number.address() }]],
            "routes": [{ "dst": "0.0.0.0/0" }],
            "dataDir": number.dir().join("ipam"),
        },
    });
    let ports = serde_json::json!({ "type": "portmap", "capabilities": { "portMappings": true } });
    serde_json::json!({ "cniVersion": "1.0.0", "name": number.bridge(), "plugins": [bridge, ports] }).to_string()
}
