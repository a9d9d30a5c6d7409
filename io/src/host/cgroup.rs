//! cgroups of pods and of QoS classes, on v1 hierarchies and on the unified one, by plain files.
//!
//! Makes and limits what an effect names, below the configured root only, and removes a pod's cgroup after killing
//! what is left in it. Container cgroups are the runtime's.

mod kill;

use super::mounts::MountLine;
use super::{Cancel, HostError};
use components::edge::FailureClass;
use components::edge::host::Cgroup;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

/// Controllers whose files are written; the unified hierarchy must offer them.
const NEEDED: [&str; 3] = ["cpu", "memory", "pids"];

/// Controllers that are passed on to containers as well where the unified hierarchy has them.
const PASSED_ON: [&str; 6] = ["cpu", "cpuset", "hugetlb", "io", "memory", "pids"];

/// The mounted hierarchies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Cgroups {
    layout: Layout,
    /// Path below which everything happens, without a trailing slash; empty for the root.
    root: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Layout {
    V1 {
        hierarchies: Vec<Hierarchy>,
        /// A unified hierarchy beside the others: runtimes may put processes there too.
        beside: Option<PathBuf>,
    },
    V2(PathBuf),
}

/// A v1 hierarchy.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Hierarchy {
    controllers: Vec<String>,
    mount: PathBuf,
}

impl Hierarchy {
    fn has(&self, controller: &str) -> bool {
        self.controllers.iter().any(|name| name == controller)
    }
}

impl Cgroups {
    /// Finds the hierarchies in a mount table.
    pub(super) fn find(mounts: &[MountLine], root: &str) -> Result<Self, HostError> {
        let usable = |kind: &str| {
            let mut found: Vec<&MountLine> =
                mounts.iter().filter(|mount| mount.kind == kind && mount.root == "/").collect();
            // A hierarchy may be mounted again elsewhere; the usual place wins, then the shortest path.
            found.sort_by_key(|mount| (!mount.point.starts_with("/sys/fs/cgroup"), mount.point.as_os_str().len()));
            found
        };
        let mut hierarchies: Vec<Hierarchy> = Vec::new();
        for mount in usable("cgroup") {
            let controllers: Vec<String> = mount
                .options
                .split(',')
                .filter(|option| !matches!(*option, "rw" | "ro" | "xattr" | "clone_children" | "noprefix"))
                .filter(|option| !option.starts_with("release_agent="))
                .map(str::to_owned)
                .collect();
            if !hierarchies.iter().any(|known| known.controllers == controllers) {
                hierarchies.push(Hierarchy { controllers, mount: mount.point.clone() });
            }
        }
        hierarchies.sort_by(|a, b| a.mount.cmp(&b.mount));
        let unified = usable("cgroup2").first().map(|mount| mount.point.clone());
        let layout = match (hierarchies.is_empty(), unified) {
            (false, beside) => Layout::V1 { hierarchies, beside },
            (true, Some(mount)) => Layout::V2(mount),
            (true, None) => {
                return Err(HostError::new(FailureClass::NotFound, "no cgroup hierarchy is mounted"));
            }
        };
        Ok(Self { layout, root: root.trim_end_matches('/').to_owned() })
    }

    /// Makes a cgroup with its limits in every hierarchy. Idempotent.
    pub(super) fn create(&self, cgroup: &Cgroup) -> Result<(), HostError> {
        let path = self.checked(&cgroup.path)?;
        match &self.layout {
            Layout::V1 { hierarchies, .. } => {
                for hierarchy in hierarchies {
                    make_v1(hierarchy, path)?;
                    limit_v1(hierarchy, &hierarchy.mount.join(path), cgroup)?;
                }
                Ok(())
            }
            Layout::V2(mount) => {
                make_v2(mount, path)?;
                limit_v2(&mount.join(path), cgroup)
            }
        }
    }

    /// Memory that a cgroup uses, in bytes; `None` when there is no such cgroup.
    pub(super) fn memory(&self, path: &str) -> Result<Option<u64>, HostError> {
        let path = self.checked(path)?;
        let file = match &self.layout {
            Layout::V1 { hierarchies, .. } => hierarchies
                .iter()
                .find(|hierarchy| hierarchy.has("memory"))
                .map(|hierarchy| hierarchy.mount.join(path).join("memory.usage_in_bytes")),
            Layout::V2(mount) => Some(mount.join(path).join("memory.current")),
        };
        let Some(file) = file else { return Ok(None) };
        match read(&file) {
            Ok(text) => Ok(text.trim().parse().ok()),
            Err(error) if error.class == FailureClass::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Kills what is left in a pod's cgroup and removes it. A missing one counts as removed.
    pub(super) fn remove(&self, path: &str, cancel: &Cancel) -> Result<(), HostError> {
        let relative = self.checked(path)?;
        let last = relative.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // `pod<uid>` by cgroupfs, `kubepods-…-pod<uid>.slice` by systemd. Anything else holds other pods.
        if !last.starts_with("pod") && !last.contains("-pod") {
            return Err(HostError::new(FailureClass::Invalid, format!("refused to remove cgroup {path}: not a pod's")));
        }
        let mut dirs: Vec<PathBuf> = match &self.layout {
            Layout::V1 { hierarchies, beside } => {
                hierarchies.iter().map(|hierarchy| &hierarchy.mount).chain(beside).map(|m| m.join(relative)).collect()
            }
            Layout::V2(mount) => vec![mount.join(relative)],
        };
        dirs.retain(|dir| dir.exists());
        kill::kill_all(&dirs, cancel)?;
        dirs.iter().try_for_each(|dir| kill::remove_dirs(dir, cancel))
    }

    /// The path relative to a mount, when it is plain and strictly below the configured root.
    fn checked<'a>(&self, path: &'a str) -> Result<&'a Path, HostError> {
        let plain = Path::new(path).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
        let below = path.strip_prefix(self.root.as_str()).is_some_and(|rest| rest.starts_with('/') && rest.len() > 1);
        if plain && below {
            Ok(Path::new(path.trim_start_matches('/')))
        } else {
            let root = if self.root.is_empty() { "/" } else { &self.root };
            Err(HostError::new(FailureClass::Invalid, format!("cgroup {path} is not below {root}")))
        }
    }
}

// === v1 ===

fn make_v1(hierarchy: &Hierarchy, path: &Path) -> Result<(), HostError> {
    let mut dir = hierarchy.mount.clone();
    for part in path.components() {
        let parent = dir.clone();
        dir.push(part);
        make(&dir)?;
        if hierarchy.has("cpuset") {
            // A new cpuset is empty, and nothing can run in an empty one.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if read(&dir.join(file))?.trim().is_empty() {
                    let inherited = read(&parent.join(file))?;
                    write(&dir.join(file), inherited.trim())?;
                }
            }
        }
    }
    Ok(())
}

fn limit_v1(hierarchy: &Hierarchy, dir: &Path, cgroup: &Cgroup) -> Result<(), HostError> {
    if hierarchy.has("cpu") {
        if let Some(shares) = cgroup.cpu_shares {
            write(&dir.join("cpu.shares"), &shares.to_string())?;
        }
        let quota = cgroup.cpu_quota.map(|quota| ("cpu.cfs_quota_us", quota.to_string()));
        let period = cgroup.cpu_period.map(|period| ("cpu.cfs_period_us", period.to_string()));
        let values: Vec<(&str, String)> = period.into_iter().chain(quota).collect();
        // Either order may pass through a share that the parent forbids; the other one then does not.
        let set = |(file, value): &(&str, String)| write(&dir.join(file), value);
        values.iter().try_for_each(set).or_else(|_| values.iter().rev().try_for_each(set))?;
    }
    if hierarchy.has("memory")
        && let Some(bytes) = cgroup.memory_bytes
    {
        write(&dir.join("memory.limit_in_bytes"), &bytes.to_string())?;
    }
    if hierarchy.has("pids")
        && let Some(pids) = cgroup.pids
    {
        write(&dir.join("pids.max"), &or_max(pids))?;
    }
    Ok(())
}

// === v2 ===

fn make_v2(mount: &Path, path: &Path) -> Result<(), HostError> {
    let mut dir = mount.to_owned();
    for part in path.components() {
        enable(&dir)?;
        dir.push(part);
        make(&dir)?;
    }
    // Containers live below, so the pod's own cgroup passes its controllers on as well.
    enable(&dir)
}

/// Passes controllers on to the children of a cgroup.
fn enable(dir: &Path) -> Result<(), HostError> {
    let offered = read(&dir.join("cgroup.controllers"))?;
    let file = dir.join("cgroup.subtree_control");
    let enabled = read(&file)?;
    let has = |list: &str, name: &str| list.split_whitespace().any(|one| one == name);
    for name in PASSED_ON {
        if has(&enabled, name) {
            continue;
        }
        let needed = NEEDED.contains(&name);
        if !has(&offered, name) {
            if needed {
                let message = format!("cgroup controller {name} is not available in {}", dir.display());
                return Err(HostError::new(FailureClass::Other, message));
            }
            continue;
        }
        // One by one: a controller that cannot be passed on must not keep the others back.
        match write(&file, &format!("+{name}")) {
            Err(error) if needed => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn limit_v2(dir: &Path, cgroup: &Cgroup) -> Result<(), HostError> {
    if let Some(shares) = cgroup.cpu_shares {
        write(&dir.join("cpu.weight"), &weight(shares).to_string())?;
    }
    let max = match (cgroup.cpu_quota, cgroup.cpu_period) {
        (None, None) => None,
        (quota, None) => Some(or_max(quota.unwrap_or(-1))),
        (quota, Some(period)) => Some(format!("{} {period}", or_max(quota.unwrap_or(-1)))),
    };
    if let Some(max) = max {
        write(&dir.join("cpu.max"), &max)?;
    }
    if let Some(bytes) = cgroup.memory_bytes {
        write(&dir.join("memory.max"), &or_max(bytes))?;
    }
    if let Some(pids) = cgroup.pids {
        write(&dir.join("pids.max"), &or_max(pids))?;
    }
    cgroup.unified.iter().try_for_each(|(file, value)| write(&dir.join(file), value))
}

/// CPU shares (2 to 262144) as a weight (1 to 10000), as the kubelet converts them.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

/// A limit as the kernel writes it; negative is none.
fn or_max(limit: i64) -> String {
    if limit < 0 { "max".to_owned() } else { limit.to_string() }
}

// === files ===

fn make(dir: &Path) -> Result<(), HostError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(HostError::io("make cgroup", dir, &error)),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, HostError> {
    fs::read_to_string(path).map_err(|error| HostError::io("read", path, &error))
}

fn write(path: &Path, value: &str) -> Result<(), HostError> {
    // `fs::write` would make a file that is missing, where one in a cgroup means an unknown controller.
    let written = fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut f| io::Write::write_all(&mut f, value.as_bytes()));
    written.map_err(|error| HostError::io(&format!("write {value} to"), path, &error))
}

#[cfg(test)]
mod tests {
    use super::super::mounts;
    use super::*;
    use std::process::{Command, Stdio};

    fn table(text: &str) -> Vec<MountLine> {
        mounts::parse(text)
    }

    #[test]
    fn hierarchies_are_found_once_in_their_usual_place() {
        let found = Cgroups::find(
            &table(
                "1 1 0:1 / /elsewhere/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                 2 1 0:1 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                 3 1 0:1 /part /sys/fs/cgroup/a rw - cgroup cgroup rw,pids\n\
                 4 1 0:2 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n\
                 5 1 0:3 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            ),
            "/",
        );
        let hierarchy = |controllers: &[&str], mount: &str| Hierarchy {
            controllers: controllers.iter().map(|&name| name.to_owned()).collect(),
            mount: PathBuf::from(mount),
        };
        let layout = Layout::V1 {
            hierarchies: vec![
                hierarchy(&["cpu", "cpuacct"], "/sys/fs/cgroup/cpu,cpuacct"),
                hierarchy(&["name=systemd"], "/sys/fs/cgroup/systemd"),
            ],
            beside: Some(PathBuf::from("/sys/fs/cgroup/unified")),
        };
        assert_eq!(found.unwrap(), Cgroups { layout, root: String::new() });
        let unified = table("1 1 0:1 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n");
        let layout = Layout::V2(PathBuf::from("/sys/fs/cgroup"));
        assert_eq!(Cgroups::find(&unified, "/x/").unwrap(), Cgroups { layout, root: "/x".to_owned() });
        Cgroups::find(&[], "/").unwrap_err();
    }

    #[test]
    fn only_paths_below_the_root_are_touched_and_only_pods_removed() {
        let cgroups = Cgroups { layout: Layout::V2(PathBuf::from("/nowhere")), root: "/node".to_owned() };
        for path in ["/", "/node", "/node/", "/nodes/kubepods/podx", "/kubepods/podx", "/node/../podx", "node/podx", ""]
        {
            let error = cgroups.remove(path, &Cancel::default()).unwrap_err();
            assert_eq!(error.class, FailureClass::Invalid, "{path}");
        }
        for path in ["/node/kubepods", "/node/kubepods/burstable", "/node/kubepods.slice"] {
            let error = cgroups.remove(path, &Cancel::default()).unwrap_err();
            assert!(error.message.ends_with("not a pod's"), "{error}");
        }
        cgroups.remove("/node/kubepods.slice/kubepods-podx.slice", &Cancel::default()).unwrap();
    }

    #[test]
    fn weights_span_the_range_of_shares() {
        for (shares, expect) in [(0, 1), (2, 1), (102, 4), (1024, 39), (262_144, 10_000), (1 << 40, 10_000)] {
            assert_eq!(weight(shares), expect, "{shares}");
        }
    }

    /// A directory tree that looks like a unified hierarchy.
    fn fake_v2(dir: &Path, controllers: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
        for file in ["cgroup.subtree_control", "cpu.weight", "cpu.max", "memory.max", "pids.max"] {
            fs::write(dir.join(file), "").unwrap();
        }
    }

    #[test]
    fn the_unified_hierarchy_gets_controllers_and_limits() {
        let top = tempfile::tempdir().unwrap();
        let pod = top.path().join("kubepods/podu");
        for dir in [top.path(), &top.path().join("kubepods"), &pod] {
            fake_v2(dir, "cpu io memory pids");
        }
        let cgroups = Cgroups { layout: Layout::V2(top.path().to_owned()), root: String::new() };
        let mut cgroup = Cgroup {
            path: "/kubepods/podu".to_owned(),
            cpu_shares: Some(102),
            cpu_quota: Some(25_000),
            cpu_period: Some(100_000),
            memory_bytes: Some(1 << 26),
            pids: Some(77),
            unified: std::collections::BTreeMap::new(),
        };
        cgroups.create(&cgroup).unwrap();
        let text = |file: &str| fs::read_to_string(pod.join(file)).unwrap();
        assert_eq!(text("cpu.weight"), "4");
        assert_eq!(text("cpu.max"), "25000 100000");
        assert_eq!(text("memory.max"), "67108864");
        assert_eq!(text("pids.max"), "77");
        // The last write is left in a plain file: the last controller in the list.
        assert_eq!(text("cgroup.subtree_control"), "+pids");
        cgroup.cpu_quota = Some(-1);
        cgroup.memory_bytes = Some(-1);
        cgroups.create(&cgroup).unwrap();
        assert_eq!(text("cpu.max"), "max 100000");
        assert_eq!(text("memory.max"), "max");
        fs::write(top.path().join("cgroup.controllers"), "cpu memory").unwrap();
        fs::write(top.path().join("cgroup.subtree_control"), "").unwrap();
        let error = cgroups.create(&cgroup).unwrap_err().message;
        assert!(error.starts_with("cgroup controller pids is not available in"), "{error}");
    }

    /// On a machine with v1 hierarchies: a real cgroup with real limits, and a real process that is killed in it.
    #[test]
    fn real_cgroups_are_made_limited_and_removed_with_their_processes() {
        let mounts = mounts::read().unwrap();
        let root = format!("/ticklet-test-{}", std::process::id());
        let cgroups = Cgroups::find(&mounts, &root).unwrap();
        let Layout::V1 { hierarchies, .. } = &cgroups.layout else {
            // The unified hierarchy is not ours to change here; the test above covers its files.
            return;
        };
        let _guard = RemoveRoot(hierarchies.iter().map(|h| h.mount.join(&root[1..])).collect());
        let path = format!("{root}/kubepods/burstable/podreal");
        let cgroup = Cgroup {
            path: path.clone(),
            cpu_shares: Some(102),
            cpu_quota: Some(25_000),
            cpu_period: Some(100_000),
            memory_bytes: Some(1 << 26),
            pids: Some(77),
            unified: std::collections::BTreeMap::new(),
        };
        cgroups.create(&cgroup).unwrap();
        cgroups.create(&cgroup).unwrap();
        let dir_of =
            |controller: &str| hierarchies.iter().find(|h| h.has(controller)).map(|h| h.mount.join(&path[1..]));
        let expect = [
            ("cpu", "cpu.shares", "102"),
            ("cpu", "cpu.cfs_quota_us", "25000"),
            ("cpu", "cpu.cfs_period_us", "100000"),
            ("memory", "memory.limit_in_bytes", "67108864"),
            ("pids", "pids.max", "77"),
        ];
        for (controller, file, value) in expect {
            let dir = dir_of(controller).unwrap();
            assert_eq!(read(&dir.join(file)).unwrap().trim(), value, "{file}");
        }
        if let Some(dir) = dir_of("cpuset") {
            assert!(!read(&dir.join("cpuset.cpus")).unwrap().trim().is_empty());
        }
        let pids = dir_of("pids").unwrap().join("container");
        fs::create_dir(&pids).unwrap();
        let mut child = Command::new("sleep").arg("300").stdout(Stdio::null()).spawn().unwrap();
        write(&pids.join("cgroup.procs"), &child.id().to_string()).unwrap();
        cgroups.remove(&path, &Cancel::default()).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
        for hierarchy in hierarchies {
            assert!(!hierarchy.mount.join(&path[1..]).exists());
        }
        cgroups.remove(&path, &Cancel::default()).unwrap();
    }

    /// Removes what a test made in the hierarchies, also when it fails.
    struct RemoveRoot(Vec<PathBuf>);

    impl Drop for RemoveRoot {
        fn drop(&mut self) {
            for dir in &self.0 {
                drop(kill::kill_all(std::slice::from_ref(dir), &Cancel::default()));
                drop(kill::remove_dirs(dir, &Cancel::default()));
            }
        }
    }
}
