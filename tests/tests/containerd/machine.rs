//! What the machine's own managers say and hear: a logind and a systemd that tests play, on a D-Bus of their own.

use std::fs;
use std::io::{ErrorKind, Read as _};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use nix::sys::signal::Signal;
use tests::node::Node;
use tests::process;
use tokio::runtime::Runtime;
use zbus::message::{Message, Type};
use zbus::{Connection, MessageStream};

use crate::{SOON, chosen_lab, shell_pod};

/// Delays of shutdowns that the played logind grants, in microseconds.
const DELAY: u64 = 60_000_000;

/// A message bus with a logind on it; both end when dropped.
struct Machine {
    socket: PathBuf,
    daemon: Option<Child>,
    runtime: Runtime,
    logind: Option<Connection>,
    /// Our ends of the locks that were taken, in order.
    locks: Arc<Mutex<Vec<UnixStream>>>,
}

impl Machine {
    fn start(dir: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let mut machine = Self { socket: dir.join("bus"), daemon: None, runtime, logind: None, locks: Arc::default() };
        machine.up()?;
        Ok(machine)
    }

    fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }

    /// Starts the bus, and logind on it.
    fn up(&mut self) -> Result<()> {
        let config = self.socket.with_extension("conf");
        let rules = "<allow own='*'/><allow send_destination='*'/><allow receive_sender='*'/>";
        let text = format!(
            "<busconfig><type>session</type><listen>{}</listen><auth>EXTERNAL</auth>\
             <policy context='default'>{rules}</policy></busconfig>",
            self.address()
        );
        fs::write(&config, text)?;
        let mut daemon = Command::new("dbus-daemon");
        daemon.arg("--nofork").arg("--nosyslog").arg("--config-file").arg(&config);
        self.daemon = Some(daemon.stdin(Stdio::null()).spawn().context("cannot start dbus-daemon")?);
        let end = Instant::now() + SOON;
        while UnixStream::connect(&self.socket).is_err() {
            if Instant::now() > end {
                bail!("no bus at {}", self.socket.display());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let (address, locks) = (self.address(), Arc::clone(&self.locks));
        self.logind = Some(self.runtime.block_on(async move {
            let bus = zbus::connection::Builder::address(address.as_str()).build().await?;
            let calls = MessageStream::from(&bus);
            tokio::spawn(serve(bus.clone(), calls, locks));
            bus.request_name("org.freedesktop.login1").await?;
            anyhow::Ok(bus)
        })?);
        Ok(())
    }

    /// Ends the bus and with it logind.
    fn down(&mut self) -> Result<()> {
        self.logind = None;
        if let Some(mut daemon) = self.daemon.take() {
            process::stop(&mut daemon, Signal::SIGTERM, SOON)?;
        }
        Ok(())
    }

    fn announce(&self, begins: bool) -> Result<()> {
        let bus = self.logind.as_ref().context("logind is not there")?;
        let [path, interface] = ["/org/freedesktop/login1", "org.freedesktop.login1.Manager"];
        let signal = bus.emit_signal(None::<&str>, path, interface, "PrepareForShutdown", &begins);
        Ok(self.runtime.block_on(signal)?)
    }

    fn taken(&self) -> usize {
        self.locks.lock().unwrap().len()
    }

    /// Whether the lock that was taken last is still held.
    fn is_held(&self) -> bool {
        let locks = self.locks.lock().unwrap();
        let Some(mut lock) = locks.last() else { return false };
        matches!(lock.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Err(error) = self.down() {
            eprintln!("the bus did not end: {error:#}");
        }
    }
}

async fn serve(bus: Connection, mut calls: MessageStream, locks: Arc<Mutex<Vec<UnixStream>>>) {
    while let Some(Ok(message)) = calls.next().await {
        if message.message_type() == Type::MethodCall {
            // A caller that has gone away needs no answer.
            let _ = answer(&bus, &message, &locks).await;
        }
    }
}

async fn answer(bus: &Connection, message: &Message, locks: &Mutex<Vec<UnixStream>>) -> Result<()> {
    let header = message.header();
    match header.member().map(|member| member.as_str()) {
        Some("Get") => {
            let (_, name): (String, String) = message.body().deserialize()?;
            assert_eq!(name, "InhibitDelayMaxUSec");
            bus.reply(&header, &zbus::Variant::from(DELAY)).await?;
        }
        Some("Inhibit") => {
            let asked: (String, String, String, String) = message.body().deserialize()?;
            assert_eq!((asked.0.as_str(), asked.1.as_str(), asked.3.as_str()), ("shutdown", "kubelet", "delay"));
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            locks.lock().unwrap().push(ours);
            bus.reply(&header, &zbus::Fd::from(std::os::fd::OwnedFd::from(theirs))).await?;
        }
        other => bail!("{other:?} was called"),
    }
    Ok(())
}

/// What systemd was told since the last look.
fn told(notices: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 512];
    let mut all = Vec::new();
    while let Ok(length) = notices.recv(&mut buffer) {
        all.push(String::from_utf8_lossy(&buffer[..length]).trim().to_owned());
    }
    all
}

#[test]
fn a_shutdown_of_the_machine_waits_for_pods_and_systemd_hears_of_the_node() {
    let Some(lab) = chosen_lab() else {
        return;
    };
    let mut machine = Machine::start(&lab.dir()).unwrap();
    let notices = UnixDatagram::bind(lab.dir().join("notify")).unwrap();
    notices.set_nonblocking(true).unwrap();
    let mut node = Node::new(lab).unwrap();
    node.configure("shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 5s").unwrap();
    node.environment = vec![
        ("DBUS_SYSTEM_BUS_ADDRESS", machine.address()),
        ("NOTIFY_SOCKET", node.lab.dir().join("notify").display().to_string()),
        ("WATCHDOG_USEC", "1000000".to_owned()),
    ];
    node.start().unwrap();
    let mut heard = Vec::new();
    node.wait("systemd hears of the node", SOON, |_| {
        heard.extend(told(&notices));
        Ok((heard.len() >= 4).then_some(()))
    })
    .unwrap();
    assert_eq!(heard[..4], ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"]);
    node.wait("the lock is taken", SOON, |_| Ok(machine.is_held().then_some(()))).unwrap();

    node.put("slow.yaml", shell_pod("slow", "trap 'sleep 3; exit 0' TERM; while :; do sleep 0.2; done", "")).unwrap();
    node.wait_running("slow", SOON).unwrap();
    machine.announce(true).unwrap();
    let mut held = 0;
    node.wait("the pod ends, then the lock", SOON, |node| {
        let runs = !node.running("slow")?.is_empty();
        // Looked at in this order: a lock that is gone must not have gone before the pod.
        let holds = machine.is_held();
        held += u32::from(runs && holds);
        assert!(holds || node.running("slow")?.is_empty(), "the machine goes down under a running pod");
        Ok((!holds).then_some(()))
    })
    .unwrap();
    assert!(held > 0, "nothing held the machine while the pod ended");

    machine.announce(false).unwrap();
    node.wait("the lock is taken again", SOON, |_| Ok((machine.taken() == 2 && machine.is_held()).then_some(())))
        .unwrap();
    node.put("after.yaml", shell_pod("after", crate::WAIT, "")).unwrap();
    node.wait_running("after", SOON).unwrap();

    machine.down().unwrap();
    machine.up().unwrap();
    node.wait("a new bus is asked too", SOON, |_| Ok((machine.taken() == 3 && machine.is_held()).then_some(())))
        .unwrap();
    // Nobody has read for a while: what comes last must not be lost in that.
    told(&notices);
    node.stop().unwrap();
    assert_eq!(told(&notices).last().map(String::as_str), Some("STOPPING=1"));
}
