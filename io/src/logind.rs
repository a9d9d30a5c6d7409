//! logind's word on shutdowns of the machine, over D-Bus: holds the lock that delays one, tells when one is announced.
//!
//! Writes `99-kubelet.conf` when logind would wait for less than the pods may take. When to let go of the lock is the
//! core's decision ([`components::edge::host::HostEffect::AllowShutdown`]); when the bus is lost it is asked again.

use components::edge::Ingress;
use components::edge::control::ControlIngress;
use futures_util::StreamExt as _;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use zbus::message::{Message, Type};
use zbus::{Connection, MatchRule, MessageStream};

const LOGIN: [&str; 3] = ["org.freedesktop.login1", "/org/freedesktop/login1", "org.freedesktop.login1.Manager"];
const SYSTEMD: [&str; 3] =
    ["org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"];
/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pauses between two attempts: the first, and the longest of those that double.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Looks at a setting that was changed, and the pause before the second of them, which doubles.
const LOOKS: (u32, Duration) = (6, Duration::from_millis(100));
/// Signals that may wait to be read; there is one at a time.
const SIGNALS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(7);

/// What to ask logind for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogindConfig {
    /// Time that pods may take to end (`shutdownGracePeriod` or the sum of its bands by priority).
    pub needed: Duration,
    /// Folder of logind's drop-in files, `/etc/systemd/logind.conf.d`.
    pub drop_ins: PathBuf,
}

/// The lock that keeps the machine from going down; letting go of it more than once does no harm.
#[derive(Clone, Debug, Default)]
pub struct ShutdownLock(Arc<Mutex<Option<OwnedFd>>>);

impl ShutdownLock {
    /// Lets the machine go down.
    pub fn release(&self) {
        drop(self.put(None));
    }

    /// Whether it delays a shutdown now.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn put(&self, lock: Option<OwnedFd>) -> Option<OwnedFd> {
        std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), lock)
    }
}

/// Watches until nobody takes the facts any more. Without a bus or logind it says so once and tries again later.
pub async fn watch(config: LogindConfig, lock: ShutdownLock, ingress: mpsc::Sender<Ingress>) {
    let mut pause = PAUSES[0];
    let mut said = String::new();
    while !ingress.is_closed() {
        let Err(error) = session(&config, &lock, &ingress, &mut pause).await else { return };
        // Its connection is gone, and with it the lock's meaning.
        lock.release();
        let message = error.to_string();
        if message != said {
            tracing::warn!("Shutdowns of the machine are not noticed: {message}; trying again");
            said = message;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// Why logind is of no help.
#[derive(Debug, thiserror::Error)]
enum LogindError {
    #[error("D-Bus: {0}")]
    Bus(#[from] zbus::Error),
    #[error("D-Bus gave no answer within {} s", PATIENCE.as_secs())]
    Late,
    #[error("failed to write {path}: {error}", path = path.display())]
    DropIn { path: PathBuf, error: std::io::Error },
    #[error(
        "logind delays a shutdown by {} s at most (InhibitDelayMaxSec), pods may take {} s",
        has.as_secs(), needed.as_secs()
    )]
    TooShort { has: Duration, needed: Duration },
    #[error("the connection to D-Bus ended")]
    Ended,
}

/// One connection: takes the lock and passes signals on. `Ok` when nobody listens any more.
async fn session(
    config: &LogindConfig,
    lock: &ShutdownLock,
    ingress: &mpsc::Sender<Ingress>,
    pause: &mut Duration,
) -> Result<(), LogindError> {
    let bus = zbus::connection::Builder::system().method_timeout(PATIENCE).build();
    let bus = tokio::time::timeout(PATIENCE, bus).await.map_err(|_| LogindError::Late)??;
    let signals = MatchRule::builder()
        .msg_type(Type::Signal)
        .sender(LOGIN[0])
        .path(LOGIN[1])
        .interface(LOGIN[2])
        .member("PrepareForShutdown")
        .build()?;
    let signals = MessageStream::for_match_rule(signals, &bus, Some(SIGNALS));
    let mut signals = tokio::time::timeout(PATIENCE, signals).await.map_err(|_| LogindError::Late)??;
    ask_for_time(&bus, config).await?;
    drop(lock.put(Some(inhibit(&bus).await?)));
    tracing::info!("A shutdown of the machine waits for its pods");
    *pause = PAUSES[0];
    loop {
        let signal = tokio::select! {
            signal = signals.next() => signal.ok_or(LogindError::Ended)??,
            () = ingress.closed() => return Ok(()),
        };
        let begins: bool = signal.body().deserialize()?;
        let fact = if begins { ControlIngress::ShutdownAnnounced } else { ControlIngress::ShutdownCancelled };
        if ingress.send(Ingress::Control(fact)).await.is_err() {
            return Ok(());
        }
        if !begins {
            drop(lock.put(Some(inhibit(&bus).await?)));
        }
    }
}

/// Sees to it that logind waits long enough.
async fn ask_for_time(bus: &Connection, config: &LogindConfig) -> Result<(), LogindError> {
    let mut has = longest_delay(bus).await?;
    if has >= config.needed {
        return Ok(());
    }
    write_drop_in(config)?;
    call(bus, SYSTEMD, "KillUnit", &("systemd-logind.service", "all", libc::SIGHUP)).await?;
    // It reads its files some time after the signal.
    let (looks, mut pause) = LOOKS;
    for _ in 1..looks {
        has = longest_delay(bus).await?;
        if has >= config.needed {
            return Ok(());
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Err(LogindError::TooShort { has, needed: config.needed })
}

fn write_drop_in(config: &LogindConfig) -> Result<(), LogindError> {
    let path = config.drop_ins.join("99-kubelet.conf");
    let text = format!("# Kubelet logind override\n[Login]\nInhibitDelayMaxSec={}\n", config.needed.as_secs());
    let failed = |error| LogindError::DropIn { path: path.clone(), error };
    std::fs::create_dir_all(&config.drop_ins).map_err(failed)?;
    std::fs::write(&path, text).map_err(failed)
}

/// `InhibitDelayMaxUSec`.
async fn longest_delay(bus: &Connection) -> Result<Duration, LogindError> {
    let [service, path, manager] = LOGIN;
    let properties = [service, path, "org.freedesktop.DBus.Properties"];
    let answer = call(bus, properties, "Get", &(manager, "InhibitDelayMaxUSec")).await?;
    let value: zbus::OwnedVariant = answer.body().deserialize()?;
    Ok(Duration::from_micros(u64::try_from(value)?))
}

/// Takes the lock; it is held as long as its descriptor is open.
async fn inhibit(bus: &Connection) -> Result<OwnedFd, LogindError> {
    let asked = ("shutdown", "kubelet", "Kubelet needs time to handle node shutdown", "delay");
    let answer = call(bus, LOGIN, "Inhibit", &asked).await?;
    let lock: zbus::OwnedFd = answer.body().deserialize()?;
    Ok(lock.into())
}

async fn call<B>(bus: &Connection, to: [&str; 3], method: &str, body: &B) -> Result<Message, LogindError>
where
    B: serde::Serialize + zbus::DynamicType,
{
    Ok(bus.call_method(Some(to[0]), to[1], Some(to[2]), method, body).await?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drop_in_asks_for_the_time_that_pods_need() {
        let top = tempfile::TempDir::new().unwrap();
        let config = LogindConfig { needed: Duration::from_secs(45), drop_ins: top.path().join("logind.conf.d") };
        write_drop_in(&config).unwrap();
        let text = std::fs::read_to_string(config.drop_ins.join("99-kubelet.conf")).unwrap();
        assert!(text.ends_with("[Login]\nInhibitDelayMaxSec=45\n"), "{text}");
        let file = LogindConfig { drop_ins: config.drop_ins.join("99-kubelet.conf"), ..config };
        let error = write_drop_in(&file).unwrap_err().to_string();
        assert!(error.starts_with("failed to write ") && error.contains("99-kubelet.conf/99-kubelet.conf"), "{error}");
    }

    #[test]
    fn a_lock_is_let_go_once() {
        let lock = ShutdownLock::default();
        let (mine, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        drop(lock.put(Some(mine.into())));
        let shared = lock.clone();
        assert!(lock.is_held());
        shared.release();
        shared.release();
        assert!(!lock.is_held());
        assert_eq!(std::io::Read::read(&mut &theirs, &mut [0]).unwrap(), 0);
    }
}
