//! One lab: a private containerd under a folder of its own, with its own bridge, images and cgroup.
//!
//! A lab has a number; folder, bridge, subnet and cgroup are derived from it, and a lock file says that it is in use.
//! The operating system drops the lock with the process, so [`sweep`] can tell a crashed lab from a living one.

mod cgroup;
mod config;
mod images;
mod remains;

pub use remains::log_links;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;

use crate::crictl::Crictl;
use crate::{process, tools};

pub use images::{BUSYBOX_IMAGE, SAME_IMAGE, busybox};

/// Where Debian puts the CNI plugins.
pub const CNI_PLUGINS: &str = "/usr/lib/cni";

/// How many labs may live at once; each has a subnet of 4,094 addresses.
const LABS: u8 = 16;

/// containerd serves its socket within a second on an idle machine.
const START_DEADLINE: Duration = Duration::from_secs(60);

/// Which containerd a lab runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// containerd 2.x: event stream and RuntimeConfig.
    Containerd2,
    /// containerd 1.6: CRI v1 without both.
    Containerd1,
}

impl Runtime {
    /// The variable with which `cargo xtask test` chooses the runtime of the integration tests.
    pub const VARIABLE: &str = "TICKLET_RUNTIME";

    /// Its name in the variable.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Containerd2 => "containerd2",
            Self::Containerd1 => "containerd1",
        }
    }

    /// The runtime that the environment asks for; `None` when it asks for none.
    pub fn from_environment() -> Result<Option<Self>> {
        match std::env::var(Self::VARIABLE).ok().as_deref() {
            None | Some("") => Ok(None),
            Some("containerd2") => Ok(Some(Self::Containerd2)),
            Some("containerd1") => Ok(Some(Self::Containerd1)),
            Some(other) => bail!("{}={other}: say containerd2 or containerd1", Self::VARIABLE),
        }
    }

    /// Checks that the program is of the version the rung promises; returns what it calls itself.
    pub fn check(self) -> Result<String> {
        let told =
            process::run(Command::new(self.bin()?.join("containerd")).arg("--version"), Duration::from_secs(10))?
                .success()?;
        let version = told.split_whitespace().nth(2).unwrap_or_default().trim_start_matches('v');
        let wanted = match self {
            Self::Containerd2 => "2.",
            Self::Containerd1 => "1.6.",
        };
        if !version.starts_with(wanted) {
            bail!("this rung is for containerd {wanted}x, found `{}`", told.trim());
        }
        Ok(told.trim().to_owned())
    }

    fn bin(self) -> Result<PathBuf> {
        match self {
            Self::Containerd2 => tools::containerd2_bin(),
            Self::Containerd1 => tools::containerd1_bin(),
        }
    }
}

/// What identifies a lab; everything it makes is named after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Number(u8);

impl Number {
    fn all() -> impl Iterator<Item = Self> {
        (0..LABS).map(Self)
    }

    fn dir(self) -> PathBuf {
        std::env::temp_dir().join(format!("ticklet-lab-{}", self.0))
    }

    fn bridge(self) -> String {
        format!("tklab{}", self.0)
    }

    /// The bridge's own address, the node's address in tests.
    fn address(self) -> String {
        format!("10.213.{}.1", u16::from(self.0) * 16)
    }

    fn subnet(self) -> String {
        format!("10.213.{}.0/20", u16::from(self.0) * 16)
    }

    fn cgroup(self) -> String {
        format!("ticklet-lab-{}", self.0)
    }

    fn lock_file(self) -> PathBuf {
        std::env::temp_dir().join(format!("ticklet-lab-{}.lock", self.0))
    }

    /// Takes the number, if no living process has it.
    fn lock(self) -> Result<Option<File>> {
        let path = self.lock_file();
        let file = File::create(&path).with_context(|| format!("cannot make {}", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("cannot lock {}", path.display()))
            }
        }
    }
}

/// A running lab. Dropping it removes everything it made.
#[derive(Debug)]
pub struct Lab {
    number: Number,
    runtime: Runtime,
    containerd: Option<Child>,
    over: bool,
    /// Held as long as the lab lives.
    _lock: File,
}

impl Lab {
    /// Makes a lab and waits until its containerd serves and has the images.
    pub fn start(runtime: Runtime) -> Result<Self> {
        let (number, lock) = free_number()?;
        remains::remove(number)?;
        let mut lab = Self { number, runtime, containerd: None, over: false, _lock: lock };
        fs::create_dir_all(lab.dir())?;
        cgroup::create(&number.cgroup())?;
        config::write(number, runtime)?;
        lab.start_containerd()?;
        lab.import_images()?;
        Ok(lab)
    }

    /// The lab's folder; tests may put files of their own into it.
    #[must_use]
    pub fn dir(&self) -> PathBuf {
        self.number.dir()
    }

    /// The runtime's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        socket(self.number)
    }

    /// The runtime's endpoint as a kubelet's configuration names it.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// The cgroup below which all pods of the lab live, as `cgroupRoot` names it.
    #[must_use]
    pub fn cgroup(&self) -> String {
        format!("/{}", self.number.cgroup())
    }

    /// The address of the lab's bridge.
    #[must_use]
    pub fn address(&self) -> String {
        self.number.address()
    }

    /// The name of the lab's bridge.
    #[must_use]
    pub fn bridge(&self) -> String {
        self.number.bridge()
    }

    /// Makes the bridge, which the first pod would make: it holds the node's address, which a kubelet looks for and the API
    /// server asks for before there is a pod.
    pub fn make_bridge(&self) -> Result<()> {
        let name = self.bridge();
        let address = format!("{}/20", self.address());
        for args in [
            vec!["link", "add", &name, "type", "bridge"],
            vec!["addr", "add", &address, "dev", &name],
            vec!["link", "set", &name, "up"],
        ] {
            let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
            process::run(Command::new("ip").args(&args).env("PATH", path), Duration::from_secs(10))?
                .success()
                .with_context(|| format!("ip {}", args.join(" ")))?;
        }
        Ok(())
    }

    /// The runtime it runs.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        self.runtime
    }

    /// crictl on this lab's runtime.
    pub fn crictl(&self) -> Result<Crictl> {
        Crictl::new(&self.socket())
    }

    /// Starts containerd, for the first time or after [`Lab::stop_containerd`].
    pub fn start_containerd(&mut self) -> Result<()> {
        let dir = self.dir();
        let log = File::options().create(true).append(true).open(dir.join("containerd.log"))?;
        let bin = self.runtime.bin()?;
        // The shim is looked for in PATH: each version must find its own.
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
        let mut command = Command::new(bin.join("containerd"));
        command.arg("--config").arg(dir.join("containerd.toml")).env("PATH", path);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // Out of the terminal's group: Ctrl-C is for whoever uses the lab, which still needs its runtime to clean up.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.containerd = Some(command.spawn().context("cannot start containerd")?);
        self.wait_until_served()
    }

    /// Stops containerd and leaves its containers running.
    pub fn stop_containerd(&mut self) -> Result<()> {
        let Some(mut child) = self.containerd.take() else {
            return Ok(());
        };
        process::stop(&mut child, Signal::SIGTERM, Duration::from_secs(20))?;
        Ok(())
    }

    /// Kills containerd as a crash would.
    pub fn kill_containerd(&mut self) -> Result<()> {
        let Some(mut child) = self.containerd.take() else {
            return Ok(());
        };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Holds containerd still, as a hang would: its sockets take connections and nothing answers.
    pub fn hang_containerd(&mut self) -> Result<()> {
        self.signal_containerd(Signal::SIGSTOP)
    }

    /// Ends [`Lab::hang_containerd`].
    pub fn wake_containerd(&mut self) -> Result<()> {
        self.signal_containerd(Signal::SIGCONT)
    }

    fn signal_containerd(&self, signal: Signal) -> Result<()> {
        process::signal(self.containerd.as_ref().context("containerd does not run")?, signal)
    }

    fn wait_until_served(&mut self) -> Result<()> {
        let crictl = self.crictl()?;
        let end = Instant::now() + START_DEADLINE;
        loop {
            let answer =
                if self.socket().exists() { crictl.run(&["version"]) } else { Err(anyhow::anyhow!("no socket yet")) };
            let Err(error) = answer else { return Ok(()) };
            let ended = self.containerd.as_mut().map(Child::try_wait).transpose()?.flatten();
            if ended.is_some() || Instant::now() > end {
                let log = fs::read_to_string(self.dir().join("containerd.log")).unwrap_or_default();
                let tail: Vec<&str> = log.lines().rev().take(15).collect();
                bail!(
                    "containerd does not serve: {error:#}\n{}",
                    tail.into_iter().rev().collect::<Vec<_>>().join("\n")
                );
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn import_images(&self) -> Result<()> {
        let archive = self.dir().join("images.tar");
        images::write_archive(&archive)?;
        let mut ctr = Command::new(self.runtime.bin()?.join("ctr"));
        ctr.arg("--address")
            .arg(self.socket())
            .args(["--namespace", "k8s.io", "images", "import", "--local"])
            .arg(&archive);
        if self.runtime == Runtime::Containerd1 {
            ctr = Command::new(self.runtime.bin()?.join("ctr"));
            ctr.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io", "images", "import"]).arg(&archive);
        }
        process::run(&mut ctr, Duration::from_secs(120))?.success().context("cannot import the images")?;
        fs::remove_file(&archive)?;
        Ok(())
    }

    /// Removes everything the lab made; returns what is still there, which should be nothing.
    pub fn teardown(&mut self) -> Result<Vec<String>> {
        self.over = true;
        if let Some(containerd) = self.containerd.as_mut()
            && containerd.try_wait()?.is_none()
            && let Err(error) = self.crictl()?.remove_all_pods()
        {
            // Not the end: what the runtime can't remove is removed by hand below.
            eprintln!("lab {}: {error:#}", self.number.0);
        }
        self.stop_containerd()?;
        remains::remove(self.number)?;
        remains::find(self.number)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        if std::thread::panicking() {
            self.keep_logs();
        }
        match self.teardown() {
            Ok(left) if left.is_empty() => {}
            Ok(left) => eprintln!("lab {} left behind: {left:?}", self.number.0),
            Err(error) => eprintln!("lab {}: {error:#}", self.number.0),
        }
    }
}

impl Lab {
    /// Copies logs of a failed test out of the folder that is about to go.
    fn keep_logs(&self) {
        let thread = std::thread::current();
        let name = thread.name().unwrap_or("test").replace("::", "-");
        let kept = std::env::temp_dir().join("ticklet-failed").join(format!("{}-{name}", self.runtime.name()));
        let copied = fs::create_dir_all(&kept).and_then(|()| copy_logs(&self.dir(), &kept));
        eprintln!("logs are in {}{}", kept.display(), if copied.is_err() { " (incomplete)" } else { "" });
    }
}

/// Copies the plain files of a folder that a reader of a failure wants to see.
fn copy_logs(from: &Path, to: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let wanted = path.extension().is_some_and(|end| end == "log" || end == "yaml" || end == "toml");
        if let (true, Some(name)) = (wanted, path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

fn socket(number: Number) -> PathBuf {
    number.dir().join("containerd.sock")
}

/// A number that nobody uses, and its lock.
fn free_number() -> Result<(Number, File)> {
    for number in Number::all() {
        if let Some(lock) = number.lock()? {
            return Ok((number, lock));
        }
    }
    bail!("{LABS} labs are in use on this machine")
}

/// Removes what labs of dead processes left behind; returns one line for each thing that was there.
pub fn sweep() -> Result<Vec<String>> {
    let mut swept = Vec::new();
    for number in Number::all() {
        let Some(_lock) = number.lock()? else {
            continue;
        };
        let found = remains::find(number)?;
        if !found.is_empty() {
            remains::remove(number)?;
            swept.extend(found);
        }
    }
    Ok(swept)
}
